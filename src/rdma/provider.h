// The provider interface: what the engine asks of a fabric, in the terms of RDMA verbs.
//
// A provider has two operations. A slot carries a short message; the slots of one peer arrive in order.
// A write copies memory into a peer's registered memory and delivers an immediate value there.
// A provider knows nothing of MPI.
//
//   provider   fabric                                    source
//   shm        shared memory within a node               rdma/shm
//   verbs      InfiniBand and RoCE                       rdma/verbs
//   tcp        TCP, for nodes without RDMA               rdma/tcp
//   checked    one of these, with checksums              rdma/checked
//   fake       a simulated network with faults, tests    test/rdma/fake_provider.h
//
// test/rdma/provider_contract.h tests this contract. Every provider passes it.
//
// Threads: A provider belongs to one engine. One thread at a time calls it. After arm(), one thread may
// sleep on descriptor() while other threads call the provider. If such a call leaves work for poll(), or
// returns kAgain, descriptor() becomes readable when the work or the room is there. Work that such a call
// to poll() has already taken does not make descriptor() readable: the caller of that poll() handles the
// work, or wakes the sleeper by other means.
//
// Blocking: No call waits for a peer.
//
// Allocation: connect() and the first traffic with a peer may allocate. On an established connection
// reserve(), commit(), write() and poll() do not allocate.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rdma/ch3_offload_lane.h"
#include "rdma/registrar.h"
#include "rdma/status.h"
#include "rdma/waiting_place.h"
#include "rdma/write_choice.h"

namespace ch3_offload {

/// A process, as this process numbers it. The engine and all its providers use the same number; the client
/// chooses it. In a job it is the rank. Where processes come and go, the lower bits are a slot, which is used
/// again when its process has gone (Provider::forget()), and the upper ones the generation, which says how
/// often. Slots are small: tables by slot are arrays (peer_table.h).
enum class PeerId : std::uint32_t {};
constexpr std::uint32_t index_of(PeerId peer) noexcept { return static_cast<std::uint32_t>(peer); }
inline constexpr std::uint32_t kPeerSlots = 1u << 20;
constexpr std::uint32_t slot_of(PeerId peer) noexcept { return index_of(peer) % kPeerSlots; }
constexpr std::uint32_t generation_of(PeerId peer) noexcept { return index_of(peer) / kPeerSlots; }
/// The same slot. After the last generation comes the first one.
constexpr PeerId next_generation(PeerId peer) noexcept { return PeerId{index_of(peer) + kPeerSlots}; }

/// Which numbers two processes have for themselves and each other, as one of them sees it. In a job, where
/// all processes use the same numbers, `known_as` is the process's own number, and `own` the peer's.
/// Processes that meet by other names have no common numbers: each gives the other one of its own.
struct PeerNames {
  PeerId known_as{};  ///< This process, at the peer.
  PeerId own{};       ///< The peer, for itself.
  friend bool operator==(const PeerNames&, const PeerNames&) = default;
};

/// The 32 bits that arrive with a write (immediate data, IBTA 9.4.4). The engine passes a transfer id.
enum class Immediate : std::uint32_t {};

/// Identifies a posted write in its completion. The caller chooses it; the provider returns it unchanged.
enum class WorkId : std::uint64_t {};

/// A peer as its provider knows it: Provider::connect() returns it, and the calls that send take it, so that
/// none of them looks the peer up. Each provider derives its own type from this one, and owns the objects. An
/// endpoint is valid as long as its provider, also after on_peer_down(), or until forget(). Only its own
/// provider takes it.
class Endpoint {
 protected:
  Endpoint() = default;
  ~Endpoint() = default;

 public:
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
};

/// The destination of a write.
struct RemoteMemory {
  std::uint64_t address = 0;  ///< Virtual address in the peer's address space.
  RemoteKey remote_key{};
};

/// A slot to any peer can have so many bytes.
inline constexpr std::size_t kLeastSlotBytes = 128;

/// What a provider can do. Constant for the provider's life.
struct Capabilities {
  std::string_view name;  ///< "shm", "verbs", "tcp" or "fake", for logs and the trace.
  /// Longest message that reserve() grants to any peer. A peer may accept less: Provider::max_slot_bytes().
  std::size_t max_slot_bytes = 0;
  bool write = false;  ///< The provider has write(). A write to some peer may still return kUnsupported.
  /// From this length on, write() is expected to be faster than a copy through slots. SIZE_MAX: never.
  std::size_t write_threshold_bytes = SIZE_MAX;
  /// Registration consumes device memory or locked-memory quota, so registrations are cached (src/dme).
  bool registering_costs = false;
  std::size_t most_regions = SIZE_MAX;  ///< Limit on the caller's regions that are registered at once.
  /// Registrations that one region takes. Each counts against the locked-memory limit. 0: none does.
  std::size_t registrations = 1;
  /// A registration pins no pages: it covers addresses, and the device faults in the pages that are mapped
  /// there. The provider need not learn of unmapped memory. Memory registered with Access::kWrite must stay
  /// writable.
  bool on_demand = false;
  /// The kernel copies what is written. So slots are faster where ch3_offload_copy_is_slow(), and may be in
  /// other cases (WriteTerms::choice).
  bool writes_by_copying = false;
};

/// What a Sink has done with a message.
enum class Delivery : std::uint8_t {
  kTaken,  ///< It has been read.
  kHeld,   ///< It will be read: it stays valid until the next poll(), and this poll() delivers nothing more.
};

/// Receives the events that poll() finds. A callback may call reserve(), commit() and write(); it must not
/// call poll(). Events name the PeerId, not the endpoint: a peer that has connected to this process may send
/// before this process has connected to it, and so has an endpoint of it.
class Sink {
 public:
  virtual ~Sink() = default;

  /// A slot arrived from `peer`. `message` is valid until the callback returns, or longer: see Delivery.
  virtual Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept = 0;

  /// `length_bytes` of a peer's write have arrived and are visible. A long write may arrive in several parts,
  /// in any order. Each part is reported once, with the write's immediate. Writes and slots are not ordered
  /// with each other.
  virtual void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept = 0;

  /// Asked by a provider that does not see which process has written: whose write was that immediate granted
  /// to? Nothing: nobody's.
  virtual std::optional<PeerId> writer_of(Immediate) const noexcept { return {}; }

  /// Asked by a provider whose processes can share the work of a write: where does the peer's write with this
  /// immediate land? Returns the address of memory of `length_bytes`, granted to the peer for exactly that
  /// write, of which nothing has arrived. nullptr: there is none, or the provider must not copy itself. The
  /// provider may write to that memory until the callback's caller returns from poll().
  virtual std::byte* on_write_shared(PeerId, Immediate, std::size_t /*length_bytes*/) noexcept {
    return nullptr;
  }

  /// Asked by a provider that compares what was written: whether memory of this process is where the peer's
  /// write with this immediate lands, of which nothing was told yet. It is read, and only during the call.
  virtual bool is_landing(PeerId, Immediate, const std::byte* /*address*/,
                          std::size_t /*length_bytes*/) const noexcept {
    return true;
  }

  /// Returns whether this process waits for something from `peer`. Asked seldom, and only about a peer that
  /// has been silent for long: a provider that has no other news of it then finds out whether it lives.
  virtual bool awaits(PeerId) const noexcept { return true; }

  /// A write of this process is complete. Its source may be reused.
  /// `status`: kOk; kPeerFailed; kUnsupported (nothing was delivered to the peer: use another protocol).
  virtual void on_write_done(PeerId peer, WorkId work, Status status) noexcept = 0;

  /// The connection with `peer` has ended. All messages that had arrived completely have been delivered, and
  /// on_write_done() has been called for all writes to the peer. No write of the peer changes this process's
  /// memory any more: memory that the peer was granted may be reused and deregistered.
  /// Called once for each peer. From now on reserve(), write() and connect() to it return kPeerFailed.
  virtual void on_peer_down(PeerId peer, Status reason) noexcept = 0;
};

/// Counters for the user who tunes a job. A counter that does not apply to a provider is 0.
/// The counters of several providers can be added.
struct ProviderCounters {
  std::uint64_t network_registered_bytes = 0;    ///< Current. Send slots and receive slots.
  std::uint64_t network_connections = 0;         ///< Current. Queue pairs.
  std::uint64_t network_connections_made = 0;    ///< Queue pairs made since the start.
  std::uint64_t network_connections_lost = 0;    ///< Queue pairs that broke: replaced, or the peer failed.
  std::uint64_t network_connections_parked = 0;  ///< Queue pairs closed to make room for others.
  std::uint64_t network_sent_again = 0;          ///< Messages and writes repeated after a queue pair broke.
  std::uint64_t network_credit_messages = 0;     ///< Slots that carried only credit.
  std::uint64_t damaged = 0;                     ///< Messages and writes whose checksum was wrong.

  ProviderCounters& operator+=(const ProviderCounters& other) noexcept {
    network_registered_bytes += other.network_registered_bytes;
    network_connections += other.network_connections;
    network_connections_made += other.network_connections_made;
    network_connections_lost += other.network_connections_lost;
    network_connections_parked += other.network_connections_parked;
    network_sent_again += other.network_sent_again;
    network_credit_messages += other.network_credit_messages;
    damaged += other.damaged;
    return *this;
  }
};

/// How memory is written between this process and a peer, where that differs from peer to peer.
struct WriteTerms {
  Registrar* registrar = nullptr;  ///< In place of the provider. It costs nothing. Null: the provider.
  std::size_t threshold_bytes = 0;
  /// Of messages that this process receives from the peer: it decides in place of the threshold, which
  /// holds for packets and target entries. Null: there is none. Lives as long as the endpoint.
  WriteChoice* choice = nullptr;
};

class Provider : public Registrar {
 public:
  virtual const Capabilities& capabilities() const noexcept = 0;

  /// The address that other processes pass to connect(). Printable ASCII without spaces, at most 160 bytes.
  /// Constant for the provider's life.
  virtual std::string local_address() const = 0;

  /// Returns whether this provider can connect to `address`, another process's local_address().
  /// Returns false for any string that is not an address. Never blocks.
  virtual bool reaches(std::string_view address) const noexcept = 0;

  /// Starts a connection for sending to `peer`, and returns the peer's endpoint, never nullptr. Does not wait
  /// for the peer: slots may be reserved at once; they are delivered when the peer polls. If the peer is
  /// connected already, has no effect and returns the same endpoint. Both sides may connect at the same time.
  /// `names`: which numbers the two have for themselves and each other. Nothing: those that the peer told
  /// when it connected to this process; if it has not, both use the same numbers.
  /// Errors: kUnreachable (also: the peer had another address or other names before); kPeerFailed (no process
  /// listens at `address`, or on_peer_down() was called); kNoMemory (no memory or no descriptors: the
  /// message names the limit); kAgain (likewise, for the moment: call again in a later turn). Throws
  /// std::bad_alloc if there is no memory even for the error; then nothing was done.
  virtual Result<Endpoint*> connect(PeerId peer, std::string_view address,
                                    const std::optional<PeerNames>& names) = 0;
  Result<Endpoint*> connect(PeerId peer, std::string_view address) { return connect(peer, address, {}); }

  /// Returns the address of `peer` as far as this provider knows it: from the peer, which gave it when it
  /// connected to this process, from connect(), or because it serves the peer, too. So a peer that has
  /// connected can be connected to. Empty: this provider does not know it. A process that knows the job's
  /// secret can give a wrong address: then whoever listens there refuses connect(), or stands in for the
  /// peer.
  /// Throws std::bad_alloc.
  virtual std::string address_of(PeerId peer) const = 0;

  /// Ends the connection with `peer`, because the process manager says that it is dead or because the caller
  /// gives up on it. The next calls of poll() deliver what had arrived from the peer, then on_peer_down().
  /// Until on_peer_down() the peer may still write to memory that it was granted.
  /// If the peer lives, its own on_peer_down() is called, now or when it connects.
  /// Returns false if there is no connection with the peer, now or any more: no event of it will come.
  /// A Sink must not call end(). Takes the PeerId, because this process need not have connected to the peer.
  virtual bool end(PeerId peer) noexcept = 0;

  /// Longest message that the peer accepts: at least kLeastSlotBytes, at most Capabilities::max_slot_bytes.
  /// Constant for the provider's life.
  virtual std::size_t max_slot_bytes(Endpoint&) const noexcept { return capabilities().max_slot_bytes; }

  /// Constant for the endpoint's life.
  virtual WriteTerms write_terms(Endpoint&) noexcept {
    return {nullptr, capabilities().write_threshold_bytes, nullptr};
  }

  /// `peer` has gone: on_peer_down() was called, or end() has returned false. The caller never names this
  /// PeerId again, nor uses its endpoint and lane. Frees what was kept of it. Whoever names it from now on is
  /// refused; its next_generation() may be another process. For processes that come and go: a job's ranks
  /// are not used again. A Sink must not call it.
  /// Returns false if something of the peer is still under way, or there is no memory: call it again later.
  virtual bool forget(PeerId) noexcept { return true; }

  /// Grants a slot of exactly `length_bytes` for the next message to the peer. The caller fills the slot and
  /// calls commit(), with no other call for this peer, and no poll(), in between. The next reserve() takes
  /// back a slot that was not committed.
  /// REQUIRES: 1 <= length_bytes <= max_slot_bytes(endpoint).
  /// kAgain: no room; retry after poll(). kPeerFailed: the connection has ended.
  virtual Status reserve(Endpoint& endpoint, std::size_t length_bytes,
                         std::span<std::byte>& slot) noexcept = 0;

  /// Sends the first `length_bytes` of the reserved slot: at once, or what finds no room on its way in later
  /// calls of poll(). REQUIRES: 1 <= length_bytes <= the slot's length.
  virtual void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept = 0;

  /// As commit(), of a part of what the caller sends. The rest follows, at once if there is room for it, so
  /// the part may leave with the rest. At the latest it leaves in the next poll(), arm() or leave(), or in a
  /// reserve() for this peer that finds no room; between arm() and disarm() it leaves at once.
  virtual void commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept {
    commit(endpoint, length_bytes);
  }

  /// Returns the peer's lane, in which short slots may be sent without reserve() and commit(). nullptr:
  /// this provider has none. Valid as long as the provider; after on_peer_down() it takes nothing.
  virtual ch3_offload_lane_t* lane(Endpoint&) noexcept { return nullptr; }

  /// Wakes the peer if it sleeps. To be called after a send through the lane has said so.
  virtual void nudge(Endpoint&) noexcept {}

  /// Copies `source` to `destination` in the peer's memory. The peer gets on_write_arrived() with
  /// `immediate`, once for each part that the provider makes of the write. This process gets
  /// on_write_done() with `work` from poll(), after write() has returned. Writes and slots are not ordered
  /// with each other. REQUIRES: `source` lies in `region`; the caller does not change it before
  /// on_write_done(). kAgain: no room, or the peer is busy with another write; nothing was done; retry
  /// after poll(). Slots may find room nevertheless. kUnsupported: nothing was delivered, but the
  /// destination may be partly overwritten; later writes to this peer may return it, too. kPeerFailed: the
  /// connection has ended.
  virtual Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                       const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                       WorkId work) noexcept = 0;

  /// Delivers at most about `budget` events to `sink` and returns how many. Also does the provider's
  /// housekeeping: accepts connections and detects failed peers.
  /// After arm(), two things count as an event, too: room that reserve() or write() had lacked, and work that
  /// is left for the next poll().
  virtual std::size_t poll(Sink& sink, std::size_t budget) noexcept = 0;

  /// Returns false only if poll() would find nothing but housekeeping to do. True is always allowed. For a
  /// process that shares its core: each of its turns begins with cold caches, and this touches less memory
  /// than poll().
  virtual bool may_have_work() noexcept { return true; }

  /// Announces that a thread is about to sleep: from now on, traffic makes descriptor() readable. After arm()
  /// the caller calls poll() once more and sleeps only if poll() returns 0, so that no wake-up is lost.
  /// Returns false if the caller must not sleep, because work is there already.
  virtual bool arm() noexcept = 0;

  /// Ends the effect of arm(). Has no effect without arm(). Cheap.
  virtual void disarm() noexcept = 0;

  /// A file descriptor that becomes readable (POLLIN) after arm() when poll() has work, a peer has died or a
  /// new connection waits. -1: this provider has none, because it is polled in simulated time.
  virtual int descriptor() const noexcept = 0;

  /// Ends the provider step by step, for a caller that has other work: what was sent leaves, and the peers
  /// are told. Does not wait. Returns true once the destructor has nothing to wait for. Until then the caller
  /// calls it again, every few milliseconds. After the first call only leave() and the destructor may be
  /// called. The destructor waits for what is left.
  virtual bool leave() noexcept { return true; }

  virtual ProviderCounters counters() const noexcept { return {}; }

  /// Where this process says on which processor it waits, and where the peers on its node say that to which
  /// it has a connection. Valid until the next call of the provider.
  virtual WaitingPlaces waiting_places() noexcept { return {}; }
};

}  // namespace ch3_offload
