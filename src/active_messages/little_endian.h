// Numbers in little-endian byte order, at any address.
//
// Threads: any.

#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace ch3_offload::active_messages {

template <std::unsigned_integral T>
void store_little(unsigned char* to, T value) noexcept {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<unsigned char>(value >> (8 * i));
}

template <std::unsigned_integral T>
T load_little(const unsigned char* from) noexcept {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(from[i]) << (8 * i)));
  return value;
}

}  // namespace ch3_offload::active_messages
