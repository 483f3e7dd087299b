// What a process reads of others that know its physical id: frames from a connection, their proofs, and the
// cards in them. Input: one byte says which, the rest is it.

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/card.h"
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

void require_ranges(const ProcessFrame& frame) {
  switch (frame.kind) {
    case ProcessFrameKind::kHello: return;
    case ProcessFrameKind::kCard: {
      // Whoever reads it as a string stays inside.
      const std::size_t length = ::strnlen(frame.card.card.data(), frame.card.card.size());
      require(length >= 1 && length <= kMostProcessCardBytes, "a card ends inside its field");
      require(std::ranges::all_of(card_in(frame), [](char c) { return c > ' ' && c <= '~'; }),
              "a card is printable");
      return check_card_text(card_in(frame));
    }
    case ProcessFrameKind::kRefuse:
      require(!describe(ProcessRefusal{frame.refuse.reason}).empty(), "a reason has a text");
      return;
    default: require(false, "there are three kinds of frames");
  }
}

/// A proof holds for one frame, and one speaker.
void check_proofs(ProcessFrame frame) {
  if (!have_keyed_hash()) return;
  const UserKey key = UserKey::of_user(UserId{5});
  const ProcessNonces nonces;
  frame.proof = proof_of(key, nonces, ProcessSide::kDialler, frame);
  require(equal_hashes(frame.proof, proof_of(key, nonces, ProcessSide::kDialler, frame)),
          "a proof is accepted");
  require(frame.proof != proof_of(key, nonces, ProcessSide::kAcceptor, frame), "a frame is not taken back");
  frame.bytes[std::to_integer<std::size_t>(frame.bytes[0])] ^= std::byte{1};
  require(frame.proof != proof_of(key, nonces, ProcessSide::kDialler, frame), "every byte counts");
}

void check(std::span<const std::byte> bytes) {
  ProcessFrame frame;
  const ProcessFrameCheck verdict = check_process_frame(bytes, frame);
  if (verdict == ProcessFrameCheck::kMalformed) return;
  require(bytes.size() == sizeof frame && frame.magic == ProcessFrame::kMagic,
          "a frame has its length and magic");
  require((verdict == ProcessFrameCheck::kVersion) == (frame.version != ProcessFrame::kVersion),
          "the version is looked at");
  if (verdict == ProcessFrameCheck::kVersion) return;
  require_ranges(frame);
  require(std::memcmp(&frame, bytes.data(), sizeof frame) == 0, "a frame is taken as it is");
  check_proofs(frame);
}

/// Random bytes behind a right beginning.
void check_repaired(Input& input) {
  ProcessFrame frame = make_process_frame(ProcessFrameKind{input.u8()});
  const auto body = input.bytes(frame.bytes.size());
  if (!body.empty()) std::memcpy(frame.bytes.data(), body.data(), body.size());
  check(std::as_bytes(std::span(&frame, 1)));
}

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  const auto what = What{input.below(static_cast<std::uint8_t>(What::kCount))};
  if (what == What::kRepairedFrame) return check_repaired(input);
  const auto rest = input.rest();
  if (what == What::kFrame) return check(rest);
  check_card_text({reinterpret_cast<const char*>(rest.data()), rest.size()});
}

Seed seed(What what) { return Seed().u8(static_cast<std::uint8_t>(what)); }

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const std::string text :
       {"v=6;shm:1:ab", "v=6;as=42;to=3;shm:1:ab", "v=6;as=0;to=4294967295", "v=6;to=1"}) {
    ProcessFrame frame = make_process_frame(ProcessFrameKind::kCard);
    std::memcpy(frame.card.card.data(), text.data(), text.size());
    const std::string body(reinterpret_cast<const char*>(frame.bytes.data()), frame.bytes.size());
    all.push_back(seed(What::kRepairedFrame).u8(static_cast<std::uint8_t>(frame.kind)).text(body).done());
    all.push_back(seed(What::kCard).text(text).done());
  }
  ProcessFrame refusal = make_process_frame(ProcessFrameKind::kRefuse);
  refusal.refuse.reason = 1;
  for (const ProcessFrame& frame : {make_process_frame(ProcessFrameKind::kHello), refusal})
    all.push_back(seed(What::kFrame).text({reinterpret_cast<const char*>(&frame), sizeof frame}).done());
  return all;
}

const Target kTarget("processes", run, seeds);

}  // namespace processes_target
}  // namespace ch3_offload::fuzz
