#include "nic/process_frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "nic/introductions_world.h"

namespace ch3_offload {
namespace {

ProcessFrame hello() {
  ProcessFrame frame = make_process_frame(ProcessFrameKind::kHello);
  frame.hello.nonce.fill(std::byte{7});
  frame.hello.receiver = 5;
  return frame;
}
ProcessFrame card(const char* text = "v=6;here:1") {
  ProcessFrame frame = make_process_frame(ProcessFrameKind::kCard);
  frame.card.sender = 1;
  std::strcpy(frame.card.card.data(), text);
  return frame;
}
ProcessFrame refusal() {
  ProcessFrame frame = make_process_frame(ProcessFrameKind::kRefuse);
  frame.refuse.reason = static_cast<std::uint32_t>(ProcessRefusal::kFull);
  return frame;
}
ProcessFrameCheck check(const ProcessFrame& frame) {
  ProcessFrame copy;
  return check_process_frame(std::as_bytes(std::span(&frame, 1)), copy);
}

TEST(ProcessFrames, AreValidAsTheyAreMade) {
  for (const ProcessFrame& frame : {hello(), card(), refusal()})
    EXPECT_EQ(check(frame), ProcessFrameCheck::kValid);
  EXPECT_EQ(card_in(card()), "v=6;here:1");
}

TEST(ProcessFrames, OfAnotherVersionAreTold) {
  ProcessFrame frame = hello();
  ++frame.version;
  EXPECT_EQ(check(frame), ProcessFrameCheck::kVersion);
}

TEST(ProcessFrames, ThatBreakARuleAreMalformed) {
  const std::vector<std::function<void(ProcessFrame&)>> breaches = {
      [](ProcessFrame& f) { ++f.magic; },
      [](ProcessFrame& f) { f.kind = ProcessFrameKind{}; },
      [](ProcessFrame& f) { f.kind = ProcessFrameKind::kEnd; },
      [](ProcessFrame& f) { f.reserved = 1; },
      [](ProcessFrame& f) { f = hello(), f.hello.reserved.back() = std::byte{1}; },
      [](ProcessFrame& f) { f = hello(), f.proof.back() = std::byte{1}; },
      [](ProcessFrame& f) { f = refusal(), f.refuse.reason = 0; },
      [](ProcessFrame& f) { f = refusal(), f.refuse.reason = 7; },
      [](ProcessFrame& f) { f = refusal(), f.refuse.reserved.back() = std::byte{1}; },
      [](ProcessFrame& f) { f.card.reserved = 1; },
      [](ProcessFrame& f) { f.card.card[0] = '\0'; },
      [](ProcessFrame& f) { f.card.card[1] = ' '; },
      [](ProcessFrame& f) { f.card.card[1] = '\n'; },
      [](ProcessFrame& f) { f.card.card[1] = '\x80'; },
      [](ProcessFrame& f) { f.card.card.back() = 'x'; },
      [](ProcessFrame& f) { f.card.card.fill('x'); },
  };
  for (std::size_t i = 0; i < breaches.size(); ++i) {
    ProcessFrame frame = card();
    breaches[i](frame);
    EXPECT_EQ(check(frame), ProcessFrameCheck::kMalformed) << i;
  }
  const ProcessFrame whole = hello();
  ProcessFrame copy;
  EXPECT_EQ(check_process_frame(std::as_bytes(std::span(&whole, 1)).first(511), copy),
            ProcessFrameCheck::kMalformed);
}

TEST(ProcessFrames, HaveAProofOfAllThatWasSaid) {
  if (!have_keyed_hash()) GTEST_SKIP() << "this library was built without libsodium";
  const KeyFile file(std::string(32, 'k')), other_file(std::string(32, 'l'));
  ProcessNonces nonces;
  const KeyedHash proof = proof_of(file.key(), nonces, ProcessSide::kDialler, card());
  EXPECT_EQ(proof, proof_of(file.key(), nonces, ProcessSide::kDialler, card()));
  EXPECT_NE(proof, proof_of(other_file.key(), nonces, ProcessSide::kDialler, card()));
  EXPECT_NE(proof, proof_of(file.key(), nonces, ProcessSide::kAcceptor, card()));
  EXPECT_NE(proof, proof_of(file.key(), nonces, ProcessSide::kDialler, card("v=6;here:2")));
  for (ProcessNonce* const nonce : {&nonces.dialler, &nonces.acceptor}) {
    nonce->back() = std::byte{1};
    EXPECT_NE(proof, proof_of(file.key(), nonces, ProcessSide::kDialler, card()));
    nonce->back() = std::byte{};
  }
}

TEST(ProcessFrames, EachRefusalHasItsWords) {
  for (std::uint32_t i = 1; i < static_cast<std::uint32_t>(ProcessRefusal::kEnd); ++i)
    EXPECT_NE(describe(ProcessRefusal{i}), describe(ProcessRefusal::kEnd)) << i;
}

}  // namespace
}  // namespace ch3_offload
