#include "rdma/verbs/wire_up/link_frames.h"

#include <infiniband/verbs.h>

#include <cstring>
#include <span>

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

bool check_link_body(const Frame& frame) noexcept {
  return frame.kind == FrameKind::kHello ? check_hello(frame.as<HelloBody>())
                                         : check_offer(frame.as<OfferBody>());
}

}  // namespace ch3_offload
