#include "nic/process_frames.h"

#include <algorithm>
#include <span>

namespace ch3_offload {
namespace {

/// Printable ASCII without spaces, at least one character, and zeros behind it.
bool check_card(std::span<const char> text) noexcept {
  const auto end = std::ranges::find(text, '\0');
  if (end == text.begin() || end == text.end()) return false;
  return std::all_of(text.begin(), end, [](char c) { return c > ' ' && c <= '~'; }) &&
         std::all_of(end, text.end(), [](char c) { return c == '\0'; });
}

}  // namespace

bool check_process_body(const Frame& frame) noexcept {
  if (frame.kind == FrameKind::kHello) return true;
  const auto& card = frame.as<ProcessCard>();
  return card.reserved == 0 && check_card(card.card);
}

std::string_view card_in(const Frame& frame) noexcept { return frame.as<ProcessCard>().card.data(); }

std::string_view describe(Refusal reason) noexcept {
  switch (reason) {
    case Refusal::kVersion: return kAnotherVersion;
    case Refusal::kSecret: return "it has another key file: all nodes need the same one";
    case Refusal::kNoSecret: return "it has no key file: all nodes need the same one";
    case Refusal::kStranger: return "another process answers at its address";
    case Refusal::kFull: return "it has met as many processes as it can number";
    case Refusal::kUser: return "it runs with another uid: a user needs the same uid on all nodes";
    case Refusal::kShort: return "it, or this process, has no descriptor left: raise ulimit -n";
    default: return "for no known reason";
  }
}

}  // namespace ch3_offload
