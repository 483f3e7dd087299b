#include "rdma/verbs/wire_up/frames.h"

#include <infiniband/verbs.h>

#include <cstring>

namespace ch3_offload {
namespace {

/// Nobody makes so many; the numbers after it are there all the same.
constexpr std::uint32_t kMostLinks = 1u << 31;
constexpr std::uint32_t kMost24Bits = (1u << 24) - 1;

bool is_terminated(std::span<const char> text) noexcept {
  return std::memchr(text.data(), '\0', text.size()) != nullptr;
}

bool check_hello(const HelloBody& body) noexcept {
  return is_terminated(body.address) && body.lane < kMostLanes && body.last_link <= kMostLinks;
}

bool check_offer(const OfferBody& body) noexcept {
  return body.link != 0 && body.link <= kMostLinks && body.queue_pair <= kMost24Bits &&
         body.packet_sequence <= kMost24Bits && body.mtu >= IBV_MTU_256 && body.mtu <= IBV_MTU_4096 &&
         body.limit >= body.received;
}

}  // namespace

FrameCheck check_frame(std::span<const std::byte> bytes, Frame& frame) noexcept {
  if (bytes.size() != sizeof frame) return FrameCheck::kMalformed;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.magic != Frame::kMagic) return FrameCheck::kMalformed;
  if (frame.version != Frame::kVersion) return FrameCheck::kVersion;
  bool valid = false;
  switch (frame.kind) {
    case FrameKind::kHello: valid = check_hello(frame.hello); break;
    case FrameKind::kRefuse:
      valid = frame.refuse.reason != 0 && frame.refuse.reason < static_cast<std::uint32_t>(Refusal::kEnd);
      break;
    case FrameKind::kOffer: valid = check_offer(frame.offer); break;
    case FrameKind::kReady: valid = true; break;
    default: break;
  }
  return valid ? FrameCheck::kValid : FrameCheck::kMalformed;
}

Frame make_frame(FrameKind kind) noexcept {
  Frame frame;
  frame.kind = kind;
  return frame;
}

std::string_view describe(Refusal reason) noexcept {
  switch (reason) {
    case Refusal::kVersion: return "it runs another version of libch3offload";
    case Refusal::kSecret: return "it belongs to another job";
    case Refusal::kStranger: return "another process answers at its address";
    case Refusal::kCrossed: return "both connected at once";
    default: return "for no known reason";
  }
}

}  // namespace ch3_offload
