// The node-local provider: verbs semantics over shared memory.
//
// Each direction of traffic between two processes has one ring (ring.h). The sender makes the ring when it
// connects, and passes it to the receiver through a Unix-domain socket (shm_connection.h). The same socket
// wakes sleepers (doorbell.h, "The sleep rule"). A write is one copy by process_vm_writev (bulk_copy.h).
//
//   shm_provider.cc      set-up, connect
//   shm_datapath.cc      reserve, commit, write, poll, arm
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

#include "rdma/provider.h"
#include "rdma/shm/bulk_copy.h"
#include "rdma/shm/doorbell.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/shared_memory.h"
#include "rdma/shm/shm_connection.h"

namespace ch3_offload {

struct ShmConfig {
  PeerId self{};
  JobSecret job_secret{};
  /// Size of each ring that this process makes: a power of two, 64 KiB .. 16 MiB.
  std::size_t ring_bytes = std::size_t{256} << 10;
  BulkMethod bulk = BulkMethod::kAutomatic;
  /// The number of peers. A handshake with a peer number that is not below it is refused.
  std::uint32_t peer_limit = 1u << 20;
  /// Time without a free descriptor (or memory) for an arriving connection, after which waiting connections
  /// are refused.
  /// Only time in which the provider is polled counts.
  std::uint64_t shortage_limit_ms = 10'000;
  /// Called with one line without a newline, rarely: for set-up and failures. nullptr: no log.
  void (*log)(void* context, const char* line) = nullptr;
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
  Result<std::monostate> connect(PeerId peer, std::string_view address) override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  Status reserve(PeerId peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(PeerId peer, std::size_t length_bytes) noexcept override;
  ch3_offload_lane_t* lane(PeerId peer) noexcept override;
  void nudge(PeerId peer) noexcept override;
  Status write(PeerId peer, const std::byte* source, std::size_t length_bytes, const MemoryRegion& region,
               RemoteMemory destination, Immediate immediate, WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool end(PeerId peer) noexcept override;
  bool may_have_work() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  int descriptor() const noexcept override { return epoll_.get(); }

 private:
  /// The state of one peer. Made at the first contact and kept until the provider is destroyed.
  struct Peer {
    PeerId id{};

    // Sending to it.
    RingProducer out;
    /// The result of reserve(): kOk; kUnreachable before connect(); kPeerFailed after on_peer_down().
    Status sending = Status::kUnreachable;
    bool connecting = false;       ///< In connecting_: retry_connecting() tries again.
    bool write_refused = false;    ///< process_vm_writev does not work with this peer.
    pid_t pid = 0;                 ///< 0: unknown, or the peer is in another pid namespace.
    std::size_t wanted_bytes = 0;  ///< Length of the last payload that had no room. 0: none.
    Peer* next_blocked = nullptr;  ///< In blocked_.
    bool in_blocked = false;
    PeerDoorbell doorbell;
    FileDescriptor out_socket;
    Mapping out_memory;       ///< Mapped until the end, because the caller may hold a reserved slot.
    FileDescriptor out_file;  ///< The ring's file, until it was sent to the peer.
    ShmAddress address;       ///< Valid while out_file is valid.

    // Receiving from it.
    Mapping in_memory;
    FileDescriptor in_socket;
    bool welcome_due = false;  ///< The Welcome was not sent yet. Nothing else may be sent before it.

    // Its end.
    bool dying = false;          ///< In dying_: what it sent is delivered, then on_peer_down() is called.
    Peer* next_dying = nullptr;  ///< In dying_.
    bool down = false;           ///< on_peer_down() was called.
    Status reason = Status::kPeerFailed;
    std::uint64_t dying_since_ns = 0;  ///< monotonic_ns().
  };

  /// A ring that is polled. Consecutive in memory, so that a look at an empty ring touches only its header.
  struct Inbound {
    RingConsumer ring;
    Peer* peer;
  };

  /// A connection whose Hello has not arrived yet.
  using Newcomer = FileDescriptor;

  struct WriteDone {
    PeerId peer;
    WorkId work;
  };

  explicit ShmProvider(const ShmConfig& config) : config_(config) {}
  std::optional<Error> set_up();
  [[gnu::format(printf, 2, 3)]] void log(const char* format, ...) const noexcept;

  // shm_provider.cc
  Peer* find(PeerId peer) const noexcept {
    const std::uint32_t index = index_of(peer);
    return index < peers_.size() ? peers_[index].get() : nullptr;
  }
  Peer& find_or_make(PeerId peer);
  std::optional<Error> make_ring(Peer& peer);
  Result<std::monostate> connect_anew(Peer& peer, const ShmAddress& address);
  std::optional<Error> try_connect(Peer& peer);
  void try_connect_later(Peer& peer) noexcept;
  void forget_sending(Peer& peer) noexcept;

  // shm_datapath.cc
  void publish(Peer& peer, RecordKind kind, std::size_t payload_bytes) noexcept;
  Status no_room(Peer& peer, std::size_t payload_bytes) noexcept;
  Status refuse_write(Peer& peer, const char* why) noexcept;
  std::size_t consume(Inbound& inbound, Sink& sink, std::size_t budget) noexcept;
  std::size_t poll_rings(Sink& sink, std::size_t budget) noexcept;
  std::size_t poll_all_rings(Sink& sink, std::size_t budget) noexcept;
  void release_held() noexcept;
  std::size_t deliver_write_done(Sink& sink, std::size_t budget) noexcept;
  bool blocked_peer_has_room() noexcept;
  static void wake_sender(const Peer& peer) noexcept;

  // shm_housekeeping.cc
  enum class WatchKind : std::uint32_t { kListener, kNewcomer, kOutbound, kInbound, kAlarm };
  bool watch(const FileDescriptor& descriptor, WatchKind kind, std::uint32_t index) noexcept;
  void unwatch(const FileDescriptor& descriptor) noexcept;
  void close_watched(FileDescriptor& descriptor) noexcept;
  void wake_sleeper(bool now) noexcept;
  bool keep_house() noexcept;
  void take_newcomers() noexcept;
  void accept_all() noexcept;
  void receive_hello(std::uint32_t index) noexcept;
  bool make_room_for(const Newcomer& newcomer) noexcept;
  bool make_room_for(PeerId sender) noexcept;
  void attach(Newcomer socket, const Hello& hello, FileDescriptor ring_file) noexcept;
  bool receive_from_receiver(Peer& peer) noexcept;
  bool receive_from_sender(Peer& peer) noexcept;
  void retry_connecting() noexcept;
  void run_short(const FileDescriptor& descriptor, int error_number) noexcept;
  void run_short(const char* what, int error_number) noexcept;
  void retry_what_ran_short() noexcept;
  void log_shortage(const char* what, int error_number) noexcept;
  void refuse_backlog() noexcept;
  bool fail_sender_of_hello(const FileDescriptor& socket) noexcept;
  void send_welcome(Peer& peer) noexcept;
  void refuse(std::string_view why) noexcept;
  void start_dying(Peer& peer, Status reason) noexcept;
  static bool may_still_copy(const Peer& peer, const Inbound& inbound) noexcept;
  std::size_t deliver_deaths(Sink& sink, std::size_t budget) noexcept;

  // Set-up: constant after create().
  ShmConfig config_;
  Capabilities capabilities_;
  ShmAddress address_;
  FileDescriptor listener_;
  FileDescriptor epoll_;
  FileDescriptor alarm_;  ///< A timer, watched by epoll_. See wake_sleeper().
  FileDescriptor spare_;  ///< Closed for a moment when no other descriptor is free.

  // Data path.
  std::vector<std::unique_ptr<Peer>> peers_;  ///< By PeerId. Null: no contact yet.
  std::vector<Inbound> inbound_;
  std::size_t last_hit_ = 0;     ///< Index in inbound_ of the ring to poll first.
  std::size_t next_polled_ = 0;  ///< Index in inbound_ at which round robin continues.
  Peer* held_ = nullptr;         ///< Whose latest message the Sink still reads (Delivery::kHeld).
  Peer* blocked_ = nullptr;      ///< Peers whose ring was full. Some may have room again.
  Doorbell doorbell_;
  bool armed_ = false;

  static constexpr std::size_t kMostWritesDone = 256;
  std::array<WriteDone, kMostWritesDone> writes_done_;  ///< Ring buffer of completions to deliver.
  std::size_t writes_done_begin_ = 0;                   ///< Only grows; the index is modulo the size.
  std::size_t writes_done_end_ = 0;

  // Housekeeping.
  std::uint64_t last_housekeeping_ = 0;  ///< CycleClock time. 0: housekeeping is due.
  std::uint32_t clock_due_ = 0;          ///< Polls since the clock was read. An idle poll counts more.
  std::vector<Newcomer> newcomers_;      ///< By watch index. Invalid: the index is free.
  /// Peers to connect to again, for example because their backlog was full. connect_anew() reserves the room.
  std::vector<Peer*> connecting_;
  Peer* dying_ = nullptr;       ///< A list, oldest first. A call of the sink may append.
  Peer** dying_end_ = &dying_;  ///< The link to which the next dying peer is appended.
  std::uint64_t refused_ = 0;   ///< Refused connections. Only the first is logged.
  bool write_refusal_logged_ = false;
  bool is_short_ = false;       ///< Descriptors or memory were missing: retry_what_ran_short() has work.
  bool cannot_accept_ = false;  ///< The last attempt to accept a connection or its Hello ran short.
  std::uint64_t accept_wait_ns_ = 0;  ///< Time for which no connection could be accepted.
  std::uint64_t last_retry_ns_ = 0;
  bool shortage_logged_ = false;
};

}  // namespace ch3_offload
