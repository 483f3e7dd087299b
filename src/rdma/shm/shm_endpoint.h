// What the shm provider knows of one peer: both directions of traffic with it, and its end.
//
// An endpoint is made at the first contact, by connect() or by the peer's Hello, and kept until forget(). Its
// memory, mappings and descriptors go when the peer is down. Only the provider's functions change it; see
// shm_provider.h.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "rdma/file_descriptor.h"
#include "rdma/fork_closing.h"
#include "rdma/provider.h"
#include "rdma/shm/activity.h"
#include "rdma/shm/bulk_copy.h"
#include "rdma/shm/doorbell.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/ring_memory.h"
#include "rdma/shm/shared_memory.h"
#include "rdma/shm/shm_connection.h"
#include "rdma/shm/travelling_chunks.h"
#include "rdma/shm/travelling_records.h"

namespace ch3_offload {

struct ShmEndpoint final : Endpoint {
  explicit ShmEndpoint(PeerId peer) noexcept : id(peer) {}

  const PeerId id;
  bool has_address = false;
  ShmAddress address;  ///< From connect() or from its Hello. Valid if has_address.
  PeerNames names;     ///< As `address`.

  // Sending to it.
  RingProducer out;
  LapTimer laps;
  /// The result of reserve(): kOk; kUnreachable before connect(), kPeerFailed after on_peer_down().
  Status sending = Status::kUnreachable;
  std::uint64_t short_since_ns = 0;  ///< connect() has lacked a resource since then. 0: it has not.
  bool connecting = false;           ///< In connecting_: retry_connecting() tries again.
  bool write_refused = false;        ///< process_vm_writev does not work with this peer.
  WriteChoice choice{kLeastTimedBytes, kLeastWrittenBytes};  ///< For what it sends.
  bool read_refused = false;            ///< process_vm_readv does not work with this peer.
  pid_t pid = 0;                        ///< 0: unknown, or the peer is in another pid namespace.
  std::size_t wanted_bytes = 0;         ///< Length of the last payload that had no room. 0: none.
  ShmEndpoint* next_blocked = nullptr;  ///< In blocked_.
  bool in_blocked = false;
  /// Position after the last offer (shared_write.h) in the ring.
  std::uint64_t offer_end = 0;
  bool share_refused = false;           ///< It cannot read this process's memory: nothing is offered.
  bool shares_write = false;            ///< In sharing_: it still copies the back half of a write.
  WorkId shared_work{};                 ///< Of that write.
  ShmEndpoint* next_sharing = nullptr;  ///< In sharing_.
  PeerDoorbell doorbell;
  PeerActivityBit activity;  ///< Known if the doorbell is.
  /// The connection that this process has made. Invalid also when the peer has closed it: RULE ONE
  /// CONNECTION.
  ForkClosedDescriptor out_socket;
  bool is_unwatched = false;  ///< out_socket: its Welcome waits for descriptors, or has come since.
  /// The peer has closed it, and its own connection was not accepted yet.
  bool awaits_connection = false;
  Mapping out_memory;       ///< Invalid: there is no ring, or it is down.
  FileDescriptor out_file;  ///< The ring's file, until it was sent to the peer.

  /// Those that the two have in common: in out_memory, or in in_memory. None before that is mapped.
  TravellingChunks chunks;
  /// The records that travel and that this process has, while it has no ring to the peer. With a ring, its
  /// lane has them.
  TravellingPlaces travelling{};
  enum class Slot : std::uint8_t { kRing, kTravelling, kChunk };
  Slot slot = Slot::kRing;  ///< Where the slot is that was reserved last.

  // Receiving from it.
  Mapping in_memory;          ///< Invalid: it has no ring here, or it is down.
  std::uint32_t inbound = 0;  ///< Index of its ring in inbound_. Valid while in_memory is.
  /// The connection that the peer has made. Invalid also when this process has closed it: RULE ONE
  /// CONNECTION.
  ForkClosedDescriptor in_socket;
  bool welcome_due = false;  ///< The Welcome was not sent yet. Nothing else may be sent before it.

  /// The caller has connected to it, or the peer has said that it will send, or has sent: on_peer_down()
  /// tells its end.
  bool is_met = false;

  // Its end.
  bool dying = false;  ///< In dying_: what it sent is delivered, then on_peer_down() is called.
  ShmEndpoint* next_dying = nullptr;  ///< In dying_.
  bool down = false;                  ///< on_peer_down() was called.
  Status reason = Status::kPeerFailed;
  std::uint64_t dying_since_ns = 0;  ///< monotonic_ns().

  /// The connection that tells whether the peer's process lives. Invalid if there is none.
  const ForkClosedDescriptor& watched_socket() const noexcept {
    return in_socket.valid() ? in_socket : out_socket;
  }
};

}  // namespace ch3_offload
