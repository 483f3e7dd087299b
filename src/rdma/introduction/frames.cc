#include "rdma/introduction/frames.h"

#include <cstring>

namespace ch3_offload {

FrameCheck check_frame_header(std::span<const std::byte> bytes, const Protocol& protocol) noexcept {
  if (bytes.size() < Frame::kHeaderBytes) return FrameCheck::kMalformed;
  Frame header;
  std::memcpy(static_cast<void*>(&header), bytes.data(), Frame::kHeaderBytes);
  if (header.magic != protocol.magic) return FrameCheck::kMalformed;
  return header.version == protocol.version ? FrameCheck::kValid : FrameCheck::kVersion;
}

FrameCheck check_frame(std::span<const std::byte> bytes, const Protocol& protocol, Frame& frame) noexcept {
  if (bytes.size() != sizeof frame) return FrameCheck::kMalformed;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  const FrameCheck check = check_frame_header(bytes, protocol);
  if (check != FrameCheck::kValid) return check;
  bool valid = false;
  switch (frame.kind) {
    case FrameKind::kHello:
    case FrameKind::kOffer: valid = protocol.check_body(frame); break;
    case FrameKind::kRefuse: {
      const std::uint32_t reason = frame.as<RefuseBody>().reason;
      valid = reason != 0 && reason < static_cast<std::uint32_t>(Refusal::kEnd);
      break;
    }
    case FrameKind::kReady: valid = true; break;
    default: break;
  }
  return valid && frame.reserved == 0 ? FrameCheck::kValid : FrameCheck::kMalformed;
}

Frame make_frame(const Protocol& protocol, FrameKind kind) noexcept {
  Frame frame;
  frame.magic = protocol.magic;
  frame.version = protocol.version;
  frame.kind = kind;
  return frame;
}

Frame make_refusal(const Protocol& protocol, Refusal reason) noexcept {
  Frame frame = make_frame(protocol, FrameKind::kRefuse);
  frame.as<RefuseBody>().reason = static_cast<std::uint32_t>(reason);
  return frame;
}

}  // namespace ch3_offload
