// The provider interface: what the engine asks of a fabric, in verbs' terms.
//
// A provider moves slots (short messages with message semantics, in order per peer) and writes
// (one-sided, with an immediate). It knows nothing of MPI. Providers: shm (rdma/shm), fake
// (test/rdma/fake_provider.h). test/rdma/provider_contract.h is the executable form of this contract; every
// provider passes it.
//
// Threads: a provider belongs to one engine and is called by one thread at a time. While one thread sleeps
// on descriptor() (arm()), others may make calls. What such a call leaves for poll(), or waits for,
// makes descriptor() readable; what a poll() took then no longer does: its caller acts on it, or wakes the
// sleeper by other means.
// Blocking: no call waits for a peer. Allocation: connect() and the first traffic of a peer may allocate;
// reserve(), commit(), write() and poll() on an established connection do not.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "rdma/registrar.h"
#include "rdma/status.h"

namespace ch3_offload {

/// A process of the job, numbered 0 .. job size - 1. The engine's and every provider's name for it.
enum class PeerId : std::uint32_t {};
constexpr std::uint32_t index_of(PeerId peer) noexcept { return static_cast<std::uint32_t>(peer); }

/// The 32 bits that arrive with a write (IBTA 9.4.4: immediate data). The engine puts a transfer id
/// there.
enum class Immediate : std::uint32_t {};

/// Names one posted write in its completion. Chosen by the caller, returned unchanged.
enum class WorkId : std::uint64_t {};

/// Where a write lands in the peer's memory.
struct RemoteMemory {
  std::uint64_t address = 0;  ///< Virtual address in the peer's address space.
  RemoteKey remote_key{};
};

/// What a provider can do; constant after it was made.
struct Capabilities {
  std::string_view name;  ///< "shm", "verbs", "fake": for logs and the trace.
  /// Longest message that reserve() grants; some peers may take less: Provider::max_slot_bytes().
  std::size_t max_slot_bytes = 0;
  bool write = false;  ///< write() may work (a peer can still refuse: kUnsupported).
  /// write() is expected to beat copying through slots from this length on; SIZE_MAX: never.
  std::size_t write_threshold_bytes = SIZE_MAX;
  /// Registering memory takes a device or a limit some of its means: what is registered is worth keeping (src/dme).
  bool registering_costs = false;
  std::size_t most_regions = SIZE_MAX;  ///< Registered at once, of the caller's memory.
  std::size_t registrations = 1;        ///< Of each region; each counts against limits of locked memory.
  /// Registering pins nothing: a registration is of addresses, and whatever memory is there. It need not be told what goes.
  /// But the memory must stay writable for a region with Access::kWrite.
  bool on_demand = false;
};

/// Receives what poll() finds. No call may call back into poll(); reserve(), commit() and write()
/// are allowed.
class Sink {
 public:
  virtual ~Sink() = default;

  /// A slot arrived from `peer`. `message` is valid during the call only.
  virtual void on_message(PeerId peer, std::span<const std::byte> message) noexcept = 0;

  /// `length_bytes` of a peer's write are here and visible. A long write may come in parts, each with the
  /// immediate, in any order; a part comes once. Not ordered with slots.
  virtual void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept = 0;

  /// A local write is complete: its source may be reused. Status kOk, or kPeerFailed, or
  /// kUnsupported (nothing was written; use another protocol).
  virtual void on_write_done(PeerId peer, WorkId work, Status status) noexcept = 0;

  /// The connection with `peer` is gone: every message that had arrived whole was delivered before,
  /// and every write to it was answered by on_write_done before.
  /// Called once for a peer. reserve() and write() to it return kPeerFailed from now on.
  virtual void on_peer_down(PeerId peer, Status reason) noexcept = 0;
};

/// What a provider counts for the user who tunes a job; zero where there is no such thing. Sums make sense.
struct ProviderCounters {
  std::uint64_t network_registered_bytes = 0;    ///< Now: slots for both directions, and rings.
  std::uint64_t network_connections = 0;         ///< Now: queue pairs.
  std::uint64_t network_connections_made = 0;    ///< All there ever were.
  std::uint64_t network_connections_lost = 0;    ///< Broken; each was made again, or its peer was given up.
  std::uint64_t network_connections_parked = 0;  ///< Closed to make room for others.
  std::uint64_t network_sent_again = 0;          ///< Messages and writes that a broken connection had lost.
  std::uint64_t network_credit_messages = 0;     ///< Slots that held nothing but credit for slots.
  std::uint64_t network_rings = 0;               ///< Now: polled rings for small messages of peers.
  std::uint64_t network_ring_messages_sent = 0;  ///< Messages written into rings of peers.
  std::uint64_t network_ring_messages_received = 0;  ///< Messages taken from rings.
};

class Provider : public Registrar {
 public:
  virtual const Capabilities& capabilities() const noexcept = 0;

  /// This process's address, to be handed to connect() in another process. Printable ASCII without
  /// spaces, at most 160 bytes. Constant for the provider's life.
  virtual std::string local_address() const = 0;

  /// Whether `address` (from another process's local_address()) can be reached by this provider.
  /// Never blocks; hostile input is answered with false.
  virtual bool reaches(std::string_view address) const noexcept = 0;

  /// Starts a connection for sending to `peer`. Does not wait for the peer: slots may be reserved at
  /// once (they are delivered when the peer polls). Idempotent for a connected peer. Both sides may
  /// connect at the same time.
  /// kUnreachable, kPeerFailed (nobody listens there), kNoMemory (descriptors, memory; message says
  /// which limit).
  virtual Result<std::monostate> connect(PeerId peer, std::string_view address) = 0;

  /// The peer's process is dead, as somebody says who knows, or the caller has given up on it: as if its connection broke
  /// now. What had arrived from it is delivered, then on_peer_down(), by one of the next poll()s; if it lives, it hears
  /// on_peer_down(), too, now or once it connects. Not from a Sink's call.
  /// False: there is no connection with it (any more): nothing will come.
  virtual bool end(PeerId peer) noexcept = 0;

  /// Longest message that `peer`, which must be connected, takes: at least 128 bytes, at most Capabilities::max_slot_bytes. Constant.
  virtual std::size_t max_slot_bytes(PeerId) const noexcept { return capabilities().max_slot_bytes; }

  /// Grants `slot` of exactly `length_bytes` (1 .. max_slot_bytes(peer)) for the next message to `peer`,
  /// which must be connected. The caller fills it and calls commit(); no other call on this peer may
  /// come between. Not committed: the slot is taken back by the next reserve().
  /// kAgain: no room; retry after poll(). kPeerFailed.
  virtual Status reserve(PeerId peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept = 0;

  /// Sends the first `length_bytes` (at most what was reserved, at least 1) of the reserved slot.
  virtual void commit(PeerId peer, std::size_t length_bytes) noexcept = 0;

  /// Writes local memory (inside `region`) to the peer's, delivers `immediate` there (on_write_arrived, with as many
  /// parts as the provider likes) and on_write_done(work) here, from a later poll() or before returning. Not
  /// ordered with slots. The source stays untouched until on_write_done.
  /// kAgain: no room, nothing done. kUnsupported: nothing delivered (the destination may be overwritten in
  /// part), now or ever for this peer.
  /// kPeerFailed.
  virtual Status write(PeerId peer, const std::byte* source, std::size_t length_bytes,
                       const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                       WorkId work) noexcept = 0;

  /// Delivers what has happened to `sink`, at most about `budget` items; returns how many. After arm(), room
  /// that a reserve() or write() lacked counts as one, and so does what had to be left for the next poll().
  /// Also does the provider's housekeeping (accepting connections, noticing deaths).
  virtual std::size_t poll(Sink& sink, std::size_t budget) noexcept = 0;

  /// Announces that the caller will sleep: from now on traffic makes descriptor() readable. The caller
  /// polls once more after arm() and sleeps only if that found nothing, so that no wake-up is lost.
  /// Returns false if it is known already that sleeping would be wrong (something arrived).
  virtual bool arm() noexcept = 0;

  /// Ends what arm() began. Cheap; harmless when not armed.
  virtual void disarm() noexcept = 0;

  /// A descriptor that becomes readable (POLLIN) after arm() when poll() has work, a peer died, or a
  /// new connection waits. -1: this provider has none (it is polled in simulated time).
  virtual int descriptor() const noexcept = 0;

  virtual ProviderCounters counters() const noexcept { return {}; }
};

}  // namespace ch3_offload
