// The work request id of a send: what is needed to find its item when it completes.

#pragma once

#include <cstdint>

#include "rdma/provider.h"

namespace ch3_offload {

/// From the top: 1 bit set (a receive's id is its slot), 1 bit lane, 30 bits peer, 8 bits of the link's number, by which a
/// completion of an earlier queue pair is known, and 24 bits of the item's.
class SendId {
 public:
  constexpr explicit SendId(std::uint64_t raw) noexcept : raw_(raw) {}
  /// `lane`: 0 or 1.
  constexpr SendId(PeerId peer, std::uint8_t lane, std::uint32_t link, std::uint64_t item) noexcept
      : raw_(kIsSend | std::uint64_t{lane} << 62 | std::uint64_t{index_of(peer)} << 32 |
             (link & 0xFFu) << 24 | (item & 0xFF'FFFFu)) {}
  static constexpr bool is_send(std::uint64_t raw) noexcept { return (raw & kIsSend) != 0; }

  constexpr std::uint64_t raw() const noexcept { return raw_; }
  constexpr std::uint8_t lane() const noexcept { return static_cast<std::uint8_t>(raw_ >> 62 & 1); }
  constexpr PeerId peer() const noexcept {
    return PeerId{static_cast<std::uint32_t>(raw_ >> 32 & 0x3FFF'FFFF)};
  }
  constexpr std::uint32_t link_bits() const noexcept { return static_cast<std::uint32_t>(raw_ >> 24 & 0xFF); }
  constexpr std::uint32_t item_bits() const noexcept { return static_cast<std::uint32_t>(raw_ & 0xFF'FFFF); }

 private:
  static constexpr std::uint64_t kIsSend = std::uint64_t{1} << 63;
  std::uint64_t raw_;
};

}  // namespace ch3_offload
