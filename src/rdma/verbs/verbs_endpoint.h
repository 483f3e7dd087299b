// What the verbs provider knows of one peer: its lanes and their links, its address, and its end.
//
// An endpoint is made at the first contact, by connect() or by the peer's introduction, and kept until
// forget(). Each part of the provider changes its own fields.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "rdma/introduction/introducer.h"
#include "rdma/provider.h"
#include "rdma/verbs/links/link_timer.h"
#include "rdma/verbs/transport/link.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/wire_up/link_frames.h"

namespace ch3_offload {

inline constexpr std::uint8_t kNoRail = UINT8_MAX;

struct VerbsEndpoint;

/// One link to a peer and what goes with it.
struct VerbsLane final : Introducer::Contact {
  inline VerbsLane(VerbsEndpoint& owner, std::uint8_t number) noexcept;

  VerbsEndpoint* const peer;
  const std::uint8_t index;     ///< 0: the main lane.
  std::uint8_t rail = kNoRail;  ///< Of the current or last queue pair.
  Link link;

  // Of Transport.
  bool starved = false;            ///< It was credit that lacked: the next slot asks for more.
  bool credit_due = false;         ///< In Transport::credit_due_.
  bool lacks_slot = false;         ///< In Transport::lacking_: a message waits for a send slot.
  bool flush = false;              ///< Until all is retired, the completion of the last item is asked for.
  bool probing = false;            ///< A probe is on its way.
  std::uint64_t last_used = 0;     ///< Transport::polls_ at that time.
  std::uint64_t acknowledged = 0;  ///< Items and probes that the peer has acknowledged.

  // Of Links.
  LinkTimer timer;
  bool waits = false;       ///< In Links::waiting_: a peer is to be dialled, or a queue pair to be made.
  bool wanted = false;      ///< There is a use for a link though nothing is to be sent.
  bool may_offer = false;   ///< The peer has answered our dial.
  bool has_remote = false;  ///< `remote` is the peer's offer, which is to be answered.
  std::uint8_t avoided = kNoRail;  ///< The last link that broke was on this rail.
  /// There the device has just refused a queue pair, and there is another rail.
  std::uint8_t refused = kNoRail;
  std::uint32_t number_before = 0;    ///< Link::number before the current proposal.
  std::uint32_t peers_last_link = 0;  ///< Said when the peer answered our dial.
  std::uint64_t retry_at_ns = 0;      ///< Next try to make a queue pair.
  std::uint64_t up_since_ns = 0;      ///< Of the link.
  OfferBody remote{};

  // Of Parking.
  bool is_parking = false;             ///< In Parking::lanes_.
  std::uint64_t parking_since_ns = 0;  ///< Of the link, while it is parking.
};

/// A peer. See the top of this file.
struct VerbsEndpoint final : Endpoint {
  explicit VerbsEndpoint(PeerId peer) noexcept : id(peer), main(*this, 0) {}
  /// Nothing more is to be sent to it.
  bool is_over() const noexcept { return dying || down; }

  const PeerId id;
  bool connected = false;  ///< connect() was called.
  bool dying = false;      ///< What it sent is delivered, then on_peer_down() is called.
  bool down = false;       ///< on_peer_down() was called.
  bool blocked = false;    ///< In Transport::blocked_: something found no room.
  bool failed = false;     ///< A link to it has failed, and nothing has got through since.
  Status reason = Status::kPeerFailed;
  std::uint64_t leaving_since_ns = 0;  ///< end() was called, and our goodbye is on its way. 0: not so.
  VerbsLane main;
  std::unique_ptr<VerbsLane> second;       ///< Where there are two pairs of rails, once one of us wants it.
  Item reserved{.index = kNone};           ///< A place for a message.
  std::uint32_t unfinished_write = kNone;  ///< In Transport::writes_: not all of its parts are items yet.

  VerbsAddress address;
  PeerNames names;
  bool has_address = false;     ///< `names` and `address` are known; they stay as they are.
  std::uint8_t pair_count = 0;  ///< Of `pairs`.
  struct Pair {
    std::uint8_t mine, theirs;  ///< Rails.
  };
  std::array<Pair, kMostLanes> pairs{};
};

inline VerbsLane::VerbsLane(VerbsEndpoint& owner, std::uint8_t number) noexcept
    : peer(&owner), index(number) {}

/// Calls `function` with each lane of the peer.
template <class Function>
void for_each_lane(VerbsEndpoint& peer, Function function) {
  function(peer.main);
  if (peer.second != nullptr) function(*peer.second);
}

}  // namespace ch3_offload
