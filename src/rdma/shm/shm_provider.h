// The node-local provider: verbs semantics over shared memory.
//
// Each direction of traffic between two processes has one ring (ring.h). The sender makes the ring when it
// connects, and passes it to the receiver through a Unix-domain socket (shm_connection.h). An answer
// is written where the message was read, in memory that both directions share (travelling_records.h,
// travelling_chunks.h). One socket for both directions stays, and wakes sleepers (doorbell.h, "The sleep
// rule"). A write is one copy by the kernel (bulk_copy.h). Both processes share the work of a long one
// (shared_write.h).
//
//   shm_endpoint.h       what it knows of one peer
//   shm_provider.cc      set-up, connect
//   shm_datapath.cc      reserve, commit, poll, arm
//   shm_write.cc         write
//   shm_housekeeping.cc  accepting connections, the handshake, detecting deaths
//
// Threads: see rdma/provider.h.
//
// fork(): A child must not use the provider, and cannot harm it. If a child without exec() outlives its
// parent, the peers do not notice the parent's death.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rdma/log.h"
#include "rdma/peer_table.h"
#include "rdma/provider.h"
#include "rdma/shm/activity.h"
#include "rdma/shm/bulk_copy.h"
#include "rdma/shm/doorbell.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/ring_memory.h"
#include "rdma/shm/shared_memory.h"
#include "rdma/shm/shm_connection.h"
#include "rdma/shm/shm_endpoint.h"

namespace ch3_offload {

struct ShmConfig {
  PeerId self{};
  JobSecret job_secret{};
  /// Greatest size of each ring that this process makes: a power of two, 64 KiB .. 16 MiB.
  std::size_t ring_bytes = std::size_t{2} << 20;
  /// The most memory for the rings of all processes of the job on this node, and their number. Each process
  /// has an equal share for those that it makes.
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::size_t processes_on_node = 2;
  BulkMethod bulk = BulkMethod::kAutomatic;
  /// Peers are numbered from first_peer on, and below peer_limit; a handshake with another number is refused.
  std::uint32_t peer_limit = 1u << 20;
  std::uint32_t first_peer = 0;
  /// Time without a free descriptor (or memory) for an arriving connection, after which waiting connections
  /// are refused.
  /// Only time in which the provider is polled counts.
  std::uint64_t shortage_limit_ms = 10'000;
  /// Called with one line without a newline, rarely: for set-up and failures. nullptr: no log.
  void (*log)(void* context, LogScope scope, const char* line) = nullptr;
  void* log_context = nullptr;
};

class ShmProvider final : public Provider {
 public:
  /// Errors: kNoMemory; kDeviceFailed (wrong configuration, or the node lacks something: the message says
  /// what).
  static Result<std::unique_ptr<ShmProvider>> create(const ShmConfig& config);
  ~ShmProvider() override;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return address_.to_string(); }
  bool reaches(std::string_view address) const noexcept override;
  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override;
  /// Makes the ring to a process of this node and passes it on, so that connect(), which may be called much
  /// later, finds it made: a first message then takes as long as any other. Nothing else follows from it:
  /// if the peer ends before connect() was called, and has sent nothing, on_peer_down() is not called, and
  /// connect() fails with kPeerFailed. Has no effect on a node with more than kMostPrepared processes,
  /// where descriptors are few, and after any error: connect() does it then. Both must have common numbers.
  void prepare(PeerId peer, std::string_view address) noexcept;
  static constexpr std::size_t kMostPrepared = 9;
  /// Takes a step towards connections that are complete: accepts what other processes have prepared, and
  /// reads what they answer. Delivers nothing. Returns whether each process that was given to prepare() has
  /// prepared, too, and no first message has to wait for a connection.
  bool meet_prepared() noexcept;
  std::string address_of(PeerId peer) const override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  WriteTerms write_terms(Endpoint& endpoint) noexcept override;
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override;
  ch3_offload_lane_t* lane(Endpoint& endpoint) noexcept override;
  void nudge(Endpoint& endpoint) noexcept override;
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool end(PeerId peer) noexcept override;
  bool forget(PeerId peer) noexcept override;
  bool may_have_work() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  int descriptor() const noexcept override { return epoll_.get(); }
  WaitingPlaces waiting_places() noexcept override { return {&doorbell_.waiting_place(), peers_places_}; }

 private:
  /// A ring that is polled, or a free place. Consecutive in memory, so that a look at an empty ring touches
  /// only its header. The index in inbound_ is the number of the ring's activity bit. Whoever had a place
  /// before can still set its bit: that costs a look.
  struct Inbound {
    RingConsumer ring;
    ShmEndpoint* peer;  ///< Null: the place is free.
    TravellingRecords travelling;

    bool has_record(std::memory_order order = std::memory_order_acquire) const noexcept {
      return ring.header(order) != 0 || !travelling.message(ring.position(), order).empty();
    }
  };

  /// With at most so many rings, poll() looks at all of them. With more, it asks for activity bits.
  static constexpr std::size_t kMostRingsWithoutBits = kMostPrepared - 1;

  /// A connection whose Hello has not arrived yet.
  using Newcomer = ForkClosedDescriptor;

  struct WriteDone {
    PeerId peer;
    WorkId work;
  };

  explicit ShmProvider(const ShmConfig& config) : config_(config), log_(config.log, config.log_context) {}
  std::optional<Error> set_up();

  /// REQUIRES: connect() of this provider returned it.
  static ShmEndpoint& of(Endpoint& endpoint) noexcept { return static_cast<ShmEndpoint&>(endpoint); }

  // shm_provider.cc
  ShmEndpoint* find(PeerId peer) const noexcept { return peers_.find(peer); }
  ShmEndpoint& find_or_make(PeerId peer);
  std::optional<Error> make_ring(ShmEndpoint& peer);
  std::optional<Error> connect_anew(ShmEndpoint& peer, const ShmAddress& address, const PeerNames& names);
  std::optional<Error> try_connect(ShmEndpoint& peer);
  void count_descriptors() noexcept;
  Error in_time(ShmEndpoint& peer, Error error);
  void try_connect_later(ShmEndpoint& peer) noexcept;
  void forget_sending(ShmEndpoint& peer) noexcept;
  /// Whether the peer's connection stays, and not that of this process: RULE ONE CONNECTION.
  bool peer_keeps_its_connection(const ShmEndpoint& peer) const noexcept {
    return peer.address.socket_id < address_.socket_id;
  }

  /// The file with the chunks and records that the two have in common. Invalid: it is not mapped yet.
  const Mapping& common_memory(const ShmEndpoint& peer) const noexcept {
    return peer_keeps_its_connection(peer) ? peer.in_memory : peer.out_memory;
  }
  void await_travelling(ShmEndpoint& peer) noexcept;

  // shm_datapath.cc
  void publish(ShmEndpoint& peer, RecordKind kind, std::size_t payload_bytes) noexcept;
  static void tell(ShmEndpoint& peer) noexcept;
  bool find_room(ShmEndpoint& peer, std::size_t payload_bytes) noexcept;
  bool widen(ShmEndpoint& peer, std::size_t wanted_bytes) noexcept;
  static void take_travelling(Inbound& inbound, std::span<const std::byte> message) noexcept;
  bool deliver_travelled(Inbound& inbound, std::span<const std::byte> message, Sink& sink) noexcept;
  void publish_chunk(ShmEndpoint& peer, std::size_t length_bytes) noexcept;
  static std::span<const std::byte> in_chunk(const ShmEndpoint& peer, std::span<const std::byte> payload,
                                             std::uint32_t& chunk) noexcept;
  Status no_room(ShmEndpoint& peer, std::size_t payload_bytes) noexcept;
  std::size_t consume(Inbound& inbound, Sink& sink, std::size_t budget) noexcept;
  std::size_t poll_rings(Sink& sink, std::size_t budget) noexcept;
  std::size_t poll_by_bits(Sink& sink, std::size_t budget) noexcept;
  std::size_t take_records(std::size_t index, Sink& sink, std::size_t budget) noexcept;
  std::size_t words_of_bits() const noexcept { return (inbound_.size() + kBitsPerWord - 1) / kBitsPerWord; }
  std::uint64_t last_hit_in(std::size_t word) const noexcept;
  void look_later_at(std::size_t index) noexcept;
  std::size_t next_pending() noexcept;
  std::size_t poll_all_rings(Sink& sink, std::size_t budget) noexcept;
  void release_held() noexcept;
  bool blocked_peer_has_room() noexcept;
  bool found_while_armed() noexcept;
  static void wake_receiver(const ShmEndpoint& peer) noexcept;
  static void wake_sender(const ShmEndpoint& peer) noexcept;

  // shm_write.cc
  Status refuse_write(ShmEndpoint& peer, const char* why, LogScope scope) noexcept;
  enum class Presence : std::uint8_t { kThere, kGone, kUnknown };
  Presence presence_of(const ShmEndpoint& peer) noexcept;
  static bool may_share(ShmEndpoint& peer, std::size_t length_bytes) noexcept;
  void offer_back(ShmEndpoint& peer, const std::byte* source, std::size_t length_bytes,
                  std::size_t front_bytes, Immediate immediate) noexcept;
  void await_back(ShmEndpoint& peer, WorkId work) noexcept;
  static void take_back(ShmEndpoint& peer, RingConsumer& ring, const RingConsumer::Record& record,
                        const SharedWriteRecord& offer, Sink& sink) noexcept;
  std::size_t deliver_shared_done(Sink& sink, std::size_t budget) noexcept;
  bool shared_write_ended(bool announce) noexcept;
  std::size_t deliver_write_done(Sink& sink, std::size_t budget) noexcept;

  // shm_housekeeping.cc
  enum class WatchKind : std::uint32_t { kListener, kNewcomer, kOutbound, kInbound, kAlarm };
  bool watch(const FileDescriptor& descriptor, WatchKind kind, std::uint32_t index) noexcept;
  void unwatch(const FileDescriptor& descriptor) noexcept;
  void close_watched(ForkClosedDescriptor& descriptor) noexcept;
  void wake_sleeper(bool now) noexcept;
  bool keep_house() noexcept;
  void take_newcomers() noexcept;
  void accept_all() noexcept;
  void receive_hello(std::uint32_t index) noexcept;
  std::string_view check(std::span<const std::byte> bytes, Hello& hello) const noexcept;
  bool make_room_for(const Newcomer& newcomer) noexcept;
  bool make_room_for(PeerId sender) noexcept;
  std::size_t free_place() const noexcept;
  static bool is_sender_of(const ShmEndpoint& peer, const Hello& hello) noexcept;
  void attach(Newcomer socket, const Hello& hello, FileDescriptor ring_file) noexcept;
  bool receive_from_receiver(ShmEndpoint& peer) noexcept;
  void take_welcome(ShmEndpoint& peer, std::span<const std::byte> bytes,
                    std::span<const FileDescriptor, 2> files) noexcept;
  bool receive_from_sender(ShmEndpoint& peer) noexcept;
  void close_their_connection(ShmEndpoint& peer) noexcept;
  void lose_own_connection(ShmEndpoint& peer) noexcept;
  void retry_connecting() noexcept;
  void run_short(const FileDescriptor& descriptor, int error_number) noexcept;
  void run_short(const char* what, int error_number) noexcept;
  void retry_what_ran_short() noexcept;
  void log_shortage(const char* what, int error_number) noexcept;
  void refuse_backlog() noexcept;
  bool fail_sender_of_hello(const FileDescriptor& socket) noexcept;
  void send_welcome(ShmEndpoint& peer) noexcept;
  void refuse(std::string_view why) noexcept;
  void start_dying(ShmEndpoint& peer, Status reason) noexcept;
  static bool may_still_copy(const ShmEndpoint& peer, const Inbound& inbound) noexcept;
  void release(ShmEndpoint& peer) noexcept;
  std::size_t deliver_deaths(Sink& sink, std::size_t budget) noexcept;

  // Set-up: constant after create().
  ShmConfig config_;
  const Log log_;
  Capabilities capabilities_;
  ShmAddress address_;
  bool may_prepare_ = false;
  ForkClosedDescriptor listener_;
  FileDescriptor epoll_;
  FileDescriptor alarm_;                  ///< A timer, watched by epoll_. See wake_sleeper().
  std::array<FileDescriptor, 2> spares_;  ///< Closed for a moment when no other descriptor is free.

  // Data path.
  RingMemory memory_;
  PeerTable<ShmEndpoint> peers_;
  std::vector<Inbound> inbound_;
  std::size_t last_hit_ = 0;        ///< Index in inbound_ of the ring to poll first.
  std::size_t next_polled_ = 0;     ///< Index in inbound_ at which round robin continues.
  ShmEndpoint* held_ = nullptr;     ///< Whose latest message the Sink still reads (Delivery::kHeld).
  /// The chunk that has it, or one of these.
  std::uint32_t held_chunk_ = kInRing;
  static constexpr std::uint32_t kInRing = kChunks, kInTravelling = kChunks + 1;
  std::span<const std::byte> held_travelling_;  ///< Valid if held_chunk_ is kInTravelling.
  ShmEndpoint* blocked_ = nullptr;  ///< Peers whose ring was full. Some may have room again.
  ShmEndpoint* sharing_ = nullptr;  ///< Peers that copy the back half of a write.
  Doorbell doorbell_;
  ActivityBits activity_;
  /// Rings to look at besides those whose bits are set. Used if doorbell_.wants_bits().
  std::array<std::uint64_t, kMostActivityBits / kBitsPerWord> pending_{};
  std::size_t next_pending_ = 0;  ///< Index in inbound_ at which the search in pending_ continues.
  bool armed_ = false;

  static constexpr std::size_t kMostWritesDone = 256;
  std::array<WriteDone, kMostWritesDone> writes_done_;  ///< Ring buffer of completions to deliver.
  std::size_t writes_done_begin_ = 0;                   ///< Only grows; the index is modulo the size.
  std::size_t writes_done_end_ = 0;

  // Housekeeping.
  std::uint64_t last_housekeeping_ = 0;  ///< CycleClock time. 0: housekeeping is due.
  std::uint32_t clock_due_ = 0;          ///< Polls since the clock was read: see kClockMask.
  std::vector<Newcomer> newcomers_;      ///< By watch index. Invalid: the index is free.
  /// Peers to connect to again, for example because their backlog was full. connect_anew() reserves the room.
  std::vector<ShmEndpoint*> connecting_;
  /// Of the peers whose doorbells are known and that are not dying. connect_anew() reserves the room.
  std::vector<const WaitingPlace*> peers_places_;
  ShmEndpoint* dying_ = nullptr;       ///< A list, oldest first. A call of the sink may append.
  ShmEndpoint** dying_end_ = &dying_;  ///< The link to which the next dying peer is appended.
  std::uint64_t refused_ = 0;          ///< Refused connections. Only the first is logged.
  bool write_refusal_logged_ = false;
  bool is_short_ = false;       ///< Descriptors or memory were missing: retry_what_ran_short() has work.
  bool cannot_accept_ = false;  ///< The last attempt to accept a connection or its Hello ran short.
  bool may_have_rung_ = false;  ///< A peer, on a connection that was closed: keep_house() reports a wake-up.
  std::uint64_t accept_wait_ns_ = 0;  ///< Time for which no connection could be accepted.
  std::uint64_t last_retry_ns_ = 0;
  bool shortage_logged_ = false;
};

}  // namespace ch3_offload
