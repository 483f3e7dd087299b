// What a process reads of others that know its physical id: frames from a connection, their proofs, and the
// cards in them. Input: one byte says which, the rest is it.

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/card.h"
#include "fuzz/frame_rules.h"
#include "fuzz/target.h"
#include "nic/process_frames.h"

namespace ch3_offload::fuzz {
namespace processes_target {

enum class What : std::uint8_t { kFrame, kRepairedFrame, kCard, kCount };

void check_card_text(std::string_view text) {
  const std::optional<Card> card = parse_card(text);
  if (!card) return;
  require(text.starts_with(card->version) && text.ends_with(card->addresses),
          "a card has its parts in order");
  if (!card->names) return;
  std::string again(card->version);
  if (!card->addresses.empty()) again.append(";").append(card->addresses);
  again = card_with_names(again, *card->names);
  // Only an empty address at the end is lost.
  require(text == again || text == again + ";", "names are spelled in one way only");
}

void require_ranges(const Frame& frame) {
  if (frame.kind == FrameKind::kHello) return;
  const auto& text = frame.as<ProcessCard>().card;
  // Whoever reads it as a string stays inside.
  const std::size_t length = ::strnlen(text.data(), text.size());
  require(length >= 1 && length <= kMostProcessCardBytes, "a card ends inside its field");
  require(std::ranges::all_of(card_in(frame), [](char c) { return c > ' ' && c <= '~'; }),
          "a card is printable");
  check_card_text(card_in(frame));
}

void check(std::span<const std::byte> bytes) { check_frame_bytes(bytes, kProcesses, require_ranges); }

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  const auto what = What{input.below(static_cast<std::uint8_t>(What::kCount))};
  if (what == What::kRepairedFrame) {
    const Frame frame = repaired_frame(input, kProcesses);
    return check(std::as_bytes(std::span(&frame, 1)));
  }
  const auto rest = input.rest();
  if (what == What::kFrame) return check(rest);
  check_card_text({reinterpret_cast<const char*>(rest.data()), rest.size()});
}

Seed seed(What what) { return Seed().u8(static_cast<std::uint8_t>(what)); }

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const std::string text :
       {"v=6;shm:1:ab", "v=6;as=42;to=3;shm:1:ab", "v=6;as=0;to=4294967295", "v=6;to=1"}) {
    Frame frame = make_frame(kProcesses, FrameKind::kOffer);
    std::memcpy(frame.as<ProcessCard>().card.data(), text.data(), text.size());
    const std::string body(reinterpret_cast<const char*>(frame.body.data()), frame.body.size());
    all.push_back(seed(What::kRepairedFrame).u8(static_cast<std::uint8_t>(frame.kind)).text(body).done());
    all.push_back(seed(What::kCard).text(text).done());
  }
  for (const Frame& frame :
       {make_frame(kProcesses, FrameKind::kHello), make_refusal(kProcesses, Refusal::kVersion)})
    all.push_back(seed(What::kFrame).text({reinterpret_cast<const char*>(&frame), sizeof frame}).done());
  return all;
}

const Target kTarget("processes", run, seeds);

}  // namespace processes_target
}  // namespace ch3_offload::fuzz
