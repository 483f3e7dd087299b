// What holds of every frame of an introduction that is taken, whatever its protocol.

#pragma once

#include <cstring>
#include <span>
#include <string>

#include "fuzz/target.h"
#include "rdma/introduction/frames.h"
#include "rdma/introduction/transcript.h"

namespace ch3_offload::fuzz {

/// Whoever does not know the secret makes no proof, and a proof holds for one frame of one speaker.
inline void check_proofs(Frame frame) {
  if (!have_keyed_hash()) return;
  const std::size_t chosen =
      (std::to_integer<std::size_t>(frame.body[0]) << 8 | std::to_integer<std::size_t>(frame.body[1])) %
      sizeof frame;
  std::array<std::byte, 16> secret;
  secret.fill(std::byte{0x5A});
  require(!Transcript(secret).verify(Speaker::kDialler, frame), "a proof needs the secret");
  Transcript(secret).sign(Speaker::kDialler, frame);
  require(Transcript(secret).verify(Speaker::kDialler, frame), "a proof is accepted");
  require(!Transcript(secret).verify(Speaker::kAcceptor, frame), "a frame is not taken back");
  Transcript twice(secret);
  require(twice.verify(Speaker::kDialler, frame) && !twice.verify(Speaker::kDialler, frame),
          "a proof holds once");
  reinterpret_cast<std::byte*>(&frame)[chosen] ^= std::byte{1};
  require(!Transcript(secret).verify(Speaker::kDialler, frame), "every byte counts");
}

/// `require_ranges(frame)` is asked of a Hello or an Offer that is taken.
template <class RequireRanges>
void check_frame_bytes(std::span<const std::byte> bytes, const Protocol& protocol,
                       RequireRanges require_ranges) {
  Frame frame;
  const FrameCheck verdict = check_frame(bytes, protocol, frame);
  if (verdict == FrameCheck::kMalformed) return;
  require(bytes.size() == sizeof frame && frame.magic == protocol.magic, "a frame has its length and magic");
  require((verdict == FrameCheck::kVersion) == (frame.version != protocol.version),
          "the version is looked at");
  require(check_frame_header(bytes, protocol) == verdict, "the header tells the version");
  if (verdict == FrameCheck::kVersion) return;
  switch (frame.kind) {
    case FrameKind::kHello:
    case FrameKind::kOffer: require_ranges(frame); break;
    case FrameKind::kRefuse: {
      const std::uint32_t reason = frame.as<RefuseBody>().reason;
      require(reason >= 1 && reason < static_cast<std::uint32_t>(Refusal::kEnd), "a refusal has a reason");
      break;
    }
    case FrameKind::kReady: break;
    default: require(false, "there are four kinds of frames");
  }
  const auto again = std::as_bytes(std::span(&frame, 1));
  require(std::memcmp(again.data(), bytes.data(), sizeof frame) == 0, "a frame is taken as it is");
  Frame twice;
  require(check_frame(again, protocol, twice) == FrameCheck::kValid, "what was taken once is taken again");
  check_proofs(frame);
}

/// Random bytes behind a right beginning.
inline Frame repaired_frame(Input& input, const Protocol& protocol) {
  Frame frame = make_frame(protocol, FrameKind{input.u8()});
  const auto body = input.bytes(frame.body.size());
  if (!body.empty()) std::memcpy(frame.body.data(), body.data(), body.size());
  return frame;
}

}  // namespace ch3_offload::fuzz
