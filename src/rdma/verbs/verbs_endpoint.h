// What the verbs provider knows of one peer: its lanes and their links, its address, and its end.
//
// An endpoint is made at the first contact, by connect() or by the peer's introduction, and kept until the
// provider is destroyed. Only the provider's functions change it; see verbs_provider.h.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "rdma/provider.h"
#include "rdma/verbs/link.h"
#include "rdma/verbs/slot_pool.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/waiting_messages.h"
#include "rdma/verbs/wire_up/frames.h"
#include "rdma/verbs/wire_up/wire_up.h"

namespace ch3_offload {

inline constexpr std::uint8_t kNoRail = UINT8_MAX;
/// The index of no write.
inline constexpr std::uint32_t kNoWrite = UINT32_MAX;

struct VerbsEndpoint;

/// One link to a peer and what goes with it.
struct VerbsLane {
  inline VerbsLane(VerbsEndpoint& owner, std::uint8_t number) noexcept;

  VerbsEndpoint* peer;
  std::uint8_t index;              ///< 0: the main lane.
  std::uint8_t rail = kNoRail;     ///< In rails_: of the current or last queue pair.
  std::uint8_t avoided = kNoRail;  ///< The last link that broke was on this rail.
  std::uint8_t refused =
      kNoRail;              ///< There the device has just refused a queue pair, and there is another rail.
  bool starved = false;     ///< It was credit that lacked: the next slot asks for more.
  bool credit_due = false;  ///< In credit_due_.
  bool flush = false;       ///< Until all is retired, the completion of the last item is asked for.
  bool waits = false;       ///< In waiting_: a peer is to be dialled, or a queue pair to be made.
  bool wanted = false;      ///< There is a use for a link though nothing is to be sent.
  bool is_parking = false;  ///< In parking_.
  bool lacks_slot = false;  ///< In lacking_: a message waits for a send slot.
  bool may_offer = false;   ///< The peer has answered our dial.
  bool has_remote = false;  ///< `remote` is the peer's offer, which is to be answered.
  WireUp::Contact contact;
  Link link;
  bool probing = false;                ///< A probe is on its way.
  bool probe_done = false;             ///< One has come back since look_for_stalls() last came by.
  std::uint32_t number_before = 0;     ///< Link::number before the current proposal.
  std::uint32_t peers_last_link = 0;   ///< Said when the peer answered our dial.
  std::uint64_t last_used = 0;         ///< polls_ at that time.
  std::uint64_t stopped_poll = 0;      ///< polls_ when nothing more could come from its stopped queue pair.
  std::uint64_t stopped_ns = 0;        ///< Of the queue pair.
  bool is_empty = false;               ///< Nothing more comes from its stopped queue pair.
  std::uint64_t up_since_ns = 0;       ///< Of the link.
  std::uint64_t parking_since_ns = 0;  ///< Of the link, while it is parking.
  std::uint64_t retry_at_ns = 0;       ///< Next try to make a queue pair.
  std::uint64_t seen_retired = 0;      ///< Link::retired() when look_for_stalls() last came by.
  std::uint64_t seen_received = 0;     ///< Link::received() at that time.
  std::uint32_t stalls = 0;            ///< Links given up for that since it last changed.
  std::uint32_t stalled_looks = 0;     ///< In a row, at this link, that found `retired` unchanged.
  std::uint32_t silent_looks = 0;      ///< In a row, at this link, that found nothing moved either way.
  OfferBody remote{};
};

/// A peer. See the top of this file.
struct VerbsEndpoint final : Endpoint {
  explicit VerbsEndpoint(PeerId peer) noexcept : id(peer), main(*this, 0) {}

  const PeerId id;
  bool connected = false;  ///< connect() was called.
  bool dying = false;      ///< In dying_: what it sent is delivered, then on_peer_down() is called.
  bool down = false;       ///< on_peer_down() was called.
  bool blocked = false;    ///< Something found no room and is to be told when there is.
  bool failed = false;     ///< A link to it has failed, and nothing has got through since.
  Status reason = Status::kPeerFailed;
  std::uint64_t leaving_since_ns = 0;  ///< end() was called, and our goodbye is on its way. 0: not so.
  VerbsLane main;
  std::unique_ptr<VerbsLane> second;  ///< Where there are two pairs of rails, once one of us wants it.
  std::uint32_t reserved_slot = SlotPool::kNone;
  std::uint32_t reserved_message = WaitingMessages::kNone;  ///< Instead, while the link is not up.
  std::uint32_t unfinished_write = kNoWrite;  ///< In writes_: not all of its parts are items yet.
  std::uint64_t stopped_poll = 0;             ///< polls_ when it began to die.

  VerbsAddress address;
  bool has_address = false;
  std::uint8_t pair_count = 0;  ///< Of `pairs`.
  struct Pair {
    std::uint8_t mine, theirs;  ///< Rails.
  };
  std::array<Pair, kMostLanes> pairs{};
};

inline VerbsLane::VerbsLane(VerbsEndpoint& owner, std::uint8_t number) noexcept
    : peer(&owner), index(number), contact(owner.id, number) {}

/// Calls `function` with each lane of the peer.
template <class Function>
void for_each_lane(VerbsEndpoint& peer, Function function) {
  function(peer.main);
  if (peer.second != nullptr) function(*peer.second);
}

}  // namespace ch3_offload
