// A protocol of introductions whose bodies are a number.

#pragma once

#include <cstdint>

#include "rdma/introduction/frames.h"

namespace ch3_offload {

struct NumberBody {
  std::uint32_t number = 0;  ///< Below 1,000,000.
  std::uint32_t purpose = 0;
};
inline constexpr Protocol kNumbers{
    0x7465'7374, 3, [](const Frame& frame) noexcept { return frame.as<NumberBody>().number < 1'000'000; }};

inline Frame number_frame(std::uint32_t number, FrameKind kind = FrameKind::kOffer) {
  Frame frame = make_frame(kNumbers, kind);
  frame.as<NumberBody>().number = number;
  return frame;
}
inline std::uint32_t number_in(const Frame& frame) { return frame.as<NumberBody>().number; }

}  // namespace ch3_offload
