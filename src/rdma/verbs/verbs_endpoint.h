// What the verbs provider knows of one peer: its lanes and their links, its TCP connection, and its end.
//
// An endpoint is made at the first contact, by connect() or by the peer's introduction, and kept until the
// provider is destroyed. Only the provider's functions change it; see verbs_provider.h.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "rdma/provider.h"
#include "rdma/verbs/control_channel.h"
#include "rdma/verbs/frames.h"
#include "rdma/verbs/link.h"
#include "rdma/verbs/slot_pool.h"
#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {

enum class ChannelState : std::uint8_t {
  kNone,
  kIntroducing,  ///< We dialled; the peer's introduction is due.
  kOpen,
};

inline constexpr std::uint8_t kNoRail = UINT8_MAX;
/// The index of no write.
inline constexpr std::uint32_t kNoWrite = UINT32_MAX;

struct VerbsEndpoint;

/// One link to a peer and what goes with it.
struct VerbsLane {
  VerbsLane(VerbsEndpoint& owner, std::uint8_t number) noexcept : peer(&owner), index(number) {}

  VerbsEndpoint* peer;
  std::uint8_t index;              ///< 0: the main lane.
  std::uint8_t rail = kNoRail;     ///< In rails_: of the current or last queue pair.
  std::uint8_t avoided = kNoRail;  ///< The last link that broke was on this rail.
  std::uint8_t refused =
      kNoRail;              ///< There the device has just refused a queue pair, and there is another rail.
  bool starved = false;     ///< It was credit that lacked: the next slot asks for more.
  bool credit_due = false;  ///< In credit_due_.
  bool flush = false;       ///< Until all is retired, the completion of the last item is asked for.
  bool proposal_waits = false;  ///< In waiting_: a queue pair is to be made when there may be one more.
  bool has_remote = false;      ///< `remote` is for a link that we have not proposed yet.
  Link link;
  std::uint64_t last_used = 0;         ///< polls_ at that time.
  std::uint64_t lost_poll = 0;         ///< polls_ when its queue pair was stopped.
  std::uint64_t up_since_ns = 0;       ///< Of the link.
  std::uint64_t parking_since_ns = 0;  ///< Of the link, while it is parking.
  std::uint64_t proposed_at_ns = 0;    ///< patience_ns_ when our last Connect was due an answer.
  std::uint64_t retry_at_ns = 0;       ///< Next try to make a queue pair.
  std::uint64_t seen_retired = 0;      ///< Link::retired() when look_for_stalls() last came by.
  std::uint32_t stalls = 0;            ///< Links given up for that since it last changed.
  std::uint32_t stalled_looks = 0;     ///< In a row, at this link, that found it unchanged.
  ConnectBody remote{};                ///< The peer's last Connect.
};

/// A peer. See the top of this file.
struct VerbsEndpoint final : Endpoint {
  explicit VerbsEndpoint(PeerId peer) noexcept : id(peer), main(*this, 0) {}

  const PeerId id;
  bool connected = false;  ///< connect() was called.
  bool dying = false;      ///< In dying_: what it sent is delivered, then on_peer_down() is called.
  bool down = false;       ///< on_peer_down() was called.
  bool blocked = false;    ///< Something found no room and is to be told when there is.
  bool troubled = false;   ///< In troubled_.
  Status reason = Status::kPeerFailed;
  VerbsLane main;
  std::unique_ptr<VerbsLane> second;  ///< Where there are two pairs of rails, once one of us wants it.
  std::uint32_t reserved_slot = SlotPool::kNone;
  std::uint32_t unfinished_write = kNoWrite;  ///< In writes_: not all of its parts are items yet.
  std::uint64_t lost_poll = 0;                ///< polls_ when it began to die.

  ChannelState channel_state = ChannelState::kNone;
  bool dialled = false;         ///< The channel is ours, not the peer's.
  std::uint64_t opened_ns = 0;  ///< Of the channel.
  /// 0: all is well. Since then, in patience_ns_, neither a channel nor an item got through.
  std::uint64_t lost_since_ns = 0;
  std::uint64_t retry_at_ns = 0;  ///< Next try to dial.
  ControlChannel channel;
  std::uint32_t watched = 0;  ///< epoll events that the channel's socket is watched for.
  VerbsAddress address;
  bool has_address = false;
  std::uint8_t next_host = 0;   ///< In address.hosts, to dial.
  std::uint8_t refusals = 0;    ///< By address.hosts in turn, since a channel was open.
  std::uint8_t pair_count = 0;  ///< Of `pairs`.
  struct Pair {
    std::uint8_t mine, theirs;  ///< Rails.
  };
  std::array<Pair, kMostLanes> pairs{};
};

/// Calls `function` with each lane of the peer.
template <class Function>
void for_each_lane(VerbsEndpoint& peer, Function function) {
  function(peer.main);
  if (peer.second != nullptr) function(*peer.second);
}

}  // namespace ch3_offload
