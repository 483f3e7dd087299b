#include "nic/process_frames.h"

#include <algorithm>
#include <cstring>

namespace ch3_offload {
namespace {

/// Sets these proofs apart from other uses of the key.
constexpr std::string_view kPurpose = "ch3:offload physical ids 1";

bool is_zero(std::span<const std::byte> bytes) noexcept {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; });
}

/// Printable ASCII without spaces, at least one character, and zeros behind it.
bool check_card(std::span<const char> text) noexcept {
  const auto end = std::ranges::find(text, '\0');
  if (end == text.begin() || end == text.end()) return false;
  return std::all_of(text.begin(), end, [](char c) { return c > ' ' && c <= '~'; }) &&
         std::all_of(end, text.end(), [](char c) { return c == '\0'; });
}

}  // namespace

ProcessFrameCheck check_process_frame(std::span<const std::byte> bytes, ProcessFrame& frame) noexcept {
  if (bytes.size() != sizeof frame) return ProcessFrameCheck::kMalformed;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.magic != ProcessFrame::kMagic) return ProcessFrameCheck::kMalformed;
  if (frame.version != ProcessFrame::kVersion) return ProcessFrameCheck::kVersion;
  bool valid = false;
  switch (frame.kind) {
    case ProcessFrameKind::kHello: valid = is_zero(frame.hello.reserved) && is_zero(frame.proof); break;
    case ProcessFrameKind::kCard: valid = frame.card.reserved == 0 && check_card(frame.card.card); break;
    case ProcessFrameKind::kRefuse:
      valid = frame.refuse.reason != 0 &&
              frame.refuse.reason < static_cast<std::uint32_t>(ProcessRefusal::kEnd) &&
              is_zero(frame.refuse.reserved) && is_zero(frame.proof);
      break;
    default: break;
  }
  return valid && frame.reserved == 0 ? ProcessFrameCheck::kValid : ProcessFrameCheck::kMalformed;
}

ProcessFrame make_process_frame(ProcessFrameKind kind) noexcept {
  ProcessFrame frame;
  frame.kind = kind;
  return frame;
}

std::string_view card_in(const ProcessFrame& frame) noexcept { return frame.card.card.data(); }

KeyedHash proof_of(const UserKey& key, const ProcessNonces& nonces, ProcessSide side,
                   const ProcessFrame& frame) noexcept {
  return key.prove({std::as_bytes(std::span(kPurpose)), std::as_bytes(std::span(&side, 1)), nonces.dialler,
                    nonces.acceptor,
                    std::as_bytes(std::span(&frame, 1)).first(offsetof(ProcessFrame, proof))});
}

std::string_view describe(ProcessRefusal reason) noexcept {
  switch (reason) {
    case ProcessRefusal::kVersion: return "it runs another version of libch3offload";
    case ProcessRefusal::kKey: return "it has another key file: all nodes need the same one";
    case ProcessRefusal::kNoKey: return "it has no key file: all nodes need the same one";
    case ProcessRefusal::kStranger: return "another process answers at its address";
    case ProcessRefusal::kFull: return "it has met as many processes as it can number";
    case ProcessRefusal::kUser: return "it runs with another uid: a user needs the same uid on all nodes";
    default: return "for no known reason";
  }
}

}  // namespace ch3_offload
