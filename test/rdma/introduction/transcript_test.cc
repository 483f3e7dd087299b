// What a proof holds for.

#include "rdma/introduction/transcript.h"

#include <gtest/gtest.h>

#include <array>

#include "rdma/introduction/test_protocol.h"

namespace ch3_offload {
namespace {

std::array<std::byte, 16> secret(unsigned char fill) {
  std::array<std::byte, 16> bytes;
  bytes.fill(static_cast<std::byte>(fill));
  return bytes;
}

Frame hello() { return number_frame(1, FrameKind::kHello); }

class Transcripts : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_keyed_hash()) GTEST_SKIP() << "this library was built without libsodium";
  }
  Transcript dialler_{secret(1)};
  Transcript acceptor_{secret(1)};
};

TEST_F(Transcripts, BothSidesVerifyEachOther) {
  Frame first = hello(), second = hello(), third = number_frame(2);
  dialler_.sign(Speaker::kDialler, first);
  EXPECT_TRUE(acceptor_.verify(Speaker::kDialler, first));
  acceptor_.sign(Speaker::kAcceptor, second);
  EXPECT_TRUE(dialler_.verify(Speaker::kAcceptor, second));
  dialler_.sign(Speaker::kDialler, third);
  EXPECT_TRUE(acceptor_.verify(Speaker::kDialler, third));
}

TEST_F(Transcripts, AnotherSecretDoesNotDo) {
  Transcript stranger(secret(2));
  Frame frame = hello();
  stranger.sign(Speaker::kDialler, frame);
  EXPECT_FALSE(acceptor_.verify(Speaker::kDialler, frame));
}

TEST_F(Transcripts, EveryByteCounts) {
  Frame frame = hello();
  dialler_.sign(Speaker::kDialler, frame);
  for (std::size_t i = 0; i < sizeof frame; ++i) {
    Frame changed = frame;
    reinterpret_cast<unsigned char*>(&changed)[i] ^= 1;
    EXPECT_FALSE(Transcript(secret(1)).verify(Speaker::kDialler, changed)) << i;
  }
}

TEST_F(Transcripts, AFrameIsNotTakenBackFromWhoItWasSentTo) {
  Frame frame = hello();
  dialler_.sign(Speaker::kDialler, frame);
  EXPECT_FALSE(acceptor_.verify(Speaker::kAcceptor, frame));
}

TEST_F(Transcripts, AFrameOfAnotherIntroductionDoesNotDo) {
  Frame first = hello(), answer = hello(), third = number_frame(2);
  dialler_.sign(Speaker::kDialler, first);
  acceptor_.verify(Speaker::kDialler, first);
  acceptor_.sign(Speaker::kAcceptor, answer);
  dialler_.verify(Speaker::kAcceptor, answer);
  dialler_.sign(Speaker::kDialler, third);

  Transcript again(secret(1));  // The acceptor meets a replay, and says another nonce.
  EXPECT_TRUE(again.verify(Speaker::kDialler, first)) << "the first frame has nothing fresh of ours";
  Frame other_answer = hello();
  again.sign(Speaker::kAcceptor, other_answer);
  EXPECT_FALSE(again.verify(Speaker::kDialler, third));
}

TEST_F(Transcripts, AFrameThatFailedChangesNothing) {
  Frame wrong = hello(), right = hello();
  Transcript(secret(2)).sign(Speaker::kDialler, wrong);
  dialler_.sign(Speaker::kDialler, right);
  EXPECT_FALSE(acceptor_.verify(Speaker::kDialler, wrong));
  EXPECT_TRUE(acceptor_.verify(Speaker::kDialler, right));
}

TEST_F(Transcripts, NoTwoFramesAreSignedAlike) {
  Frame one = hello(), other = hello();
  Transcript(secret(1)).sign(Speaker::kDialler, one);
  Transcript(secret(1)).sign(Speaker::kDialler, other);
  EXPECT_NE(one.nonce, other.nonce);
  EXPECT_NE(one.proof, other.proof);
}

}  // namespace
}  // namespace ch3_offload
