// What the frames of an introduction (rdma/introduction/frames.h) carry by which two processes set up a pair
// of queue pairs. docs/wire-format.md has them as tables.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rdma/introduction/frames.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// Most links between two processes at the same time (VerbsLane).
inline constexpr std::uint32_t kMostLanes = 2;

struct HelloBody {
  std::uint32_t sender = 0;           ///< PeerId of who speaks, at the other.
  std::uint32_t receiver = 0;         ///< PeerId of who is meant, at that process itself.
  std::uint64_t sender_instance = 0;  ///< VerbsAddress::instance of the sender.
  std::uint64_t receiver_instance = 0;
  std::uint32_t last_link = 0;      ///< Number of the lane's last link at the sender. 0: there was none.
  std::uint32_t lane = 0;           ///< Below kMostLanes.
  std::uint32_t own = 0;            ///< PeerId of who speaks, at itself.
  std::uint32_t known_as = 0;       ///< PeerId of who is meant, at the one who speaks.
  std::array<char, 160> address{};  ///< The sender's VerbsAddress, padded with zeros.
};

struct OfferBody {
  std::uint32_t link = 0;  ///< Its number in the lane. Each lane counts from 1, and may skip numbers.
  std::uint32_t queue_pair = 0;
  std::uint32_t packet_sequence = 0;  ///< First one that the sender sends. 24 bits.
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  ///< ibv_mtu.
  std::uint8_t reserved_byte = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t received = 0;  ///< Items of the receiver that arrived, on all links of the lane before.
  std::uint64_t limit = 0;     ///< The receiver may send items below this number.
};

static_assert(sizeof(HelloBody) == 200 && offsetof(HelloBody, sender_instance) == 8 &&
              offsetof(HelloBody, last_link) == 24 && offsetof(HelloBody, own) == 32 &&
              offsetof(HelloBody, address) == 40);
static_assert(sizeof(OfferBody) == 48 && offsetof(OfferBody, lid) == 12 && offsetof(OfferBody, gid) == 16 &&
              offsetof(OfferBody, received) == 32 && offsetof(OfferBody, limit) == 40);

/// Introductions of links.
inline constexpr std::uint32_t kLinkMagic = 0x766F'3363;  // "c3ov"
inline constexpr std::uint16_t kLinkVersion = 5;

/// Whether the fields of a Hello or an Offer are in their ranges. Accepts any input.
bool check_link_body(const Frame& frame) noexcept;

inline constexpr Protocol kLinks{kLinkMagic, kLinkVersion, check_link_body};

/// The names by which who says hello is answered.
inline PeerNames names_in(const HelloBody& body) noexcept {
  return {PeerId{body.known_as}, PeerId{body.own}};
}

}  // namespace ch3_offload
