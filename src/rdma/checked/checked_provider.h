// A provider with checksums: what goes over the provider below is checked at its end, and what was damaged is
// sent again. Networks check what is on the wire; this finds what memory, buses, adapters and drivers damage
// between the memories of two processes. It finds accidents, not attacks: anybody can compute a CRC.
//
//   engine
//     │  slots, writes                          Provider
//     ▼
//   CheckedProvider     frames: checksum, number, what was received
//     │  slots, writes                          Provider
//     ▼
//   shm, verbs, tcp
//
// Slots. Each becomes a frame (checked_frames.h), which is kept until the peer has received it (SentFrames).
// The provider below keeps the order, so a receiver that finds a damaged frame drops it and all that follow
// it, and asks once for all of them again (go-back-N). Every frame carries the number of the one that its
// sender awaits. A process that has nothing else to send says that number in a frame of its own.
//
// Writes. When a write is complete at the sender, it tells the receiver where it is, and its checksum. The
// receiver looks, and answers. Until then the sender keeps the source (on_write_done() comes after the
// answer), and the receiver's caller hears nothing of it. What is wrong is written again. A source that
// others change meanwhile, as windows and entries allow, has no right checksum: when that has changed three
// times, it is not compared any more.
//
// Bounds. A peer that is sent to takes SentFrames::bytes_for() of memory. A frame that was asked for
// kMostAsked times, or a write that was wrong kMostWrong times, ends the connection with kPeerFailed.
//
// What is not repeated: the few bytes that the provider below adds to a message or a write. It judges them.
//
//   checked_provider.cc   making, connecting, ending, what leaves
//   checked_frames.cc     frames that arrive
//   checked_writes.cc     writes
//
// Threads: as rdma/provider.h says. Allocation: as there, but for registrations, for lists of writes under
// way, which grow, and for peers that are connected back to.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rdma/checked/checked_frames.h"
#include "rdma/checked/sent_frames.h"
#include "rdma/log.h"
#include "rdma/peer_table.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// What CheckedProvider knows of a peer.
struct CheckedEndpoint final : Endpoint {
  explicit CheckedEndpoint(PeerId peer) noexcept : id(peer) {}

  static constexpr std::uint64_t kNever = UINT64_MAX;
  static constexpr std::uint32_t kNoWrite = UINT32_MAX;

  enum class State : std::uint8_t {
    kUp,
    kFailing,  ///< Its connection is to be ended: it is not heard any more.
    kEnding,   ///< Its connection was ended.
    kDown,     ///< on_peer_down() was called.
  };
  /// What has arrived of writes with that immediate, and no CheckedWritten was found for yet.
  struct Arrived {
    Immediate immediate{};
    std::size_t length_bytes = 0;
  };
  /// A write that the peer says is complete.
  struct Told {
    CheckedWritten what;
    /// What to answer. Nothing: it was not looked at yet.
    std::optional<CheckedKind> answer;
  };

  const PeerId id;
  State state = State::kUp;
  Endpoint* below = nullptr;            ///< Null: not connected to it.
  std::optional<SentFrames> sent;       ///< There if `below` is, until it is down.
  std::span<std::byte> slot;            ///< Of the provider below, for what was reserved.
  std::uint32_t awaited = kFirstFrame;  ///< The number of its next frame.
  std::uint32_t told = kFirstFrame;     ///< `awaited`, as the peer was last told.
  std::size_t untold_bytes = 0;         ///< That have arrived since.
  std::uint64_t heard_in = 0;           ///< The number of the poll() in which its last frame came.
  std::uint64_t connect_in = 0;  ///< The number of the poll() in which to try again to connect. kNever.
  unsigned asked = 0;            ///< So often it was asked for the frame that is awaited.
  std::size_t lacked_bytes = 0;  ///< For so long a slot there was no room. 0: there was.
  bool has_parts = false;        ///< The last frames left by commit_part().
  bool lacks = false;            ///< A frame was damaged, and its repetition has not come.
  bool must_ask = false;         ///< For that.
  bool must_tell = false;        ///< What was received, at once.
  bool is_listed = false;        ///< In CheckedProvider::attended_.
  std::uint32_t first_stalled = kNoWrite;  ///< Writes that are complete or must be repeated: the oldest.
  std::uint32_t last_stalled = kNoWrite;
  std::vector<Arrived> arrived;
  std::vector<Told> writes;
  std::size_t unanswered = 0;  ///< Of `writes`, those with an answer that has not left.
};

class CheckedProvider final : public Provider {
 public:
  /// Every damaged frame asks, also one that had left before the repetition that was asked for.
  static constexpr unsigned kMostAsked = 1000;
  static constexpr unsigned kMostWrong = 64;

  /// REQUIRES: have_checksums(). `below` has slots of kLeastSlotBytes and a CheckedHeader, or more.
  CheckedProvider(std::unique_ptr<Provider> below, Log log);
  /// Waits until the peers have what was sent, for a second at most.
  ~CheckedProvider() override;
  /// The same without owning `below`, which outlives this object. Its end then waits for nothing.
  CheckedProvider(Provider& below, Log log);

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override;
  bool reaches(std::string_view address) const noexcept override;
  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override;
  std::string address_of(PeerId peer) const override;
  bool end(PeerId peer) noexcept override { return below_.end(peer); }
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override;
  WriteTerms write_terms(Endpoint& endpoint) noexcept override;
  bool forget(PeerId peer) noexcept override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    send_message(of(endpoint), length_bytes, /*is_part=*/false);
  }
  void commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    send_message(of(endpoint), length_bytes, /*is_part=*/true);
  }
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool may_have_work() noexcept override { return !attended_.empty() || below_.may_have_work(); }
  /// Nobody wakes who has to try again to connect.
  bool arm() noexcept override;
  void disarm() noexcept override { below_.disarm(); }
  int descriptor() const noexcept override { return below_.descriptor(); }
  bool leave() noexcept override;
  ProviderCounters counters() const noexcept override;
  WaitingPlaces waiting_places() noexcept override { return below_.waiting_places(); }

  /// Whether all living peers have all that was sent to them, and have been told what has come.
  bool is_settled() const noexcept;

 private:
  using Kind = CheckedKind;
  using PeerState = CheckedEndpoint::State;

  static constexpr std::uint32_t kMostWrites = 256;
  static constexpr std::uint32_t kNoWrite = CheckedEndpoint::kNoWrite;
  /// Entries of CheckedEndpoint::arrived, and of `writes`.
  static constexpr std::size_t kMostOfAPeer = 4096;
  static constexpr std::uint64_t kLeavingNs = 1'000'000'000;
  static constexpr int kMostRounds = 16;                ///< Of one poll(), for frames that are no events.
  static constexpr std::uint64_t kConnectPolls = 1000;  ///< Between two tries to connect to a peer.
  static constexpr unsigned kMostChanges = 2;           ///< Of a source; then it is not compared any more.

  /// A write of this process.
  struct Write {
    enum class State : std::uint8_t {
      kFree,
      kPosted,      ///< Below.
      kComplete,    ///< The peer must be told.
      kTold,        ///< Its answer is awaited.
      kMustRepeat,  ///< It must be posted again.
    };
    State state = State::kFree;
    CheckedEndpoint* peer = nullptr;
    const std::byte* source = nullptr;
    std::size_t length_bytes = 0;
    MemoryRegion region;
    RemoteMemory destination;
    Immediate immediate{};
    WorkId work{};
    std::uint32_t checksum = 0;
    unsigned wrong = 0;      ///< So often.
    unsigned changes = 0;    ///< Of the source, as its checksums say.
    std::uint32_t next = 0;  ///< Of the free ones, or of the peer's stalled ones.
  };

  class CountingSink;
  class Filter;

  /// REQUIRES: connect() of this provider returned it.
  static CheckedEndpoint& of(Endpoint& endpoint) noexcept { return static_cast<CheckedEndpoint&>(endpoint); }

  // checked_provider.cc
  CheckedEndpoint& find_or_make(PeerId id);
  CheckedEndpoint* meet(PeerId id) noexcept;
  bool connect_back(CheckedEndpoint& peer) noexcept;
  void seal(CheckedEndpoint& peer, std::span<std::byte> frame, Kind kind, std::uint32_t number) noexcept;
  void send_message(CheckedEndpoint& peer, std::size_t length_bytes, bool is_part) noexcept;
  template <class Body>
  bool send_numbered(CheckedEndpoint& peer, Kind kind, const Body& body) noexcept;
  bool send_unnumbered(CheckedEndpoint& peer, Kind kind) noexcept;
  void send_below(CheckedEndpoint& peer, std::span<std::byte> slot, std::span<const std::byte> frame,
                  bool is_part) noexcept;
  Status push(CheckedEndpoint& peer) noexcept;
  static bool may_connect(const CheckedEndpoint& peer) noexcept;
  void attend_to(CheckedEndpoint& peer) noexcept;
  void distrust(PeerId id) noexcept;
  void attend(CountingSink& sink) noexcept;
  void attend(CheckedEndpoint& peer, CountingSink& sink) noexcept;
  bool needs_attention(const CheckedEndpoint& peer) const noexcept;
  void fail(CheckedEndpoint& peer, const char* why) noexcept;
  void on_peer_down(PeerId id, Status reason, Sink& sink) noexcept;

  // checked_frames.cc
  Delivery on_frame(CheckedEndpoint& peer, std::span<const std::byte> frame, Sink& sink) noexcept;
  Delivery on_numbered(CheckedEndpoint& peer, const CheckedHeader& header, std::span<const std::byte> body,
                       Sink& sink) noexcept;
  void on_unnumbered(CheckedEndpoint& peer, const CheckedHeader& header) noexcept;
  void on_damage(CheckedEndpoint& peer, const char* what) noexcept;
  void ask_again(CheckedEndpoint& peer) noexcept;

  // checked_writes.cc
  Status no_room_for_write() noexcept;
  void on_write_done(PeerId id, WorkId work, Status status, Sink& sink) noexcept;
  void on_write_arrived(CheckedEndpoint& peer, Immediate immediate, std::size_t length_bytes,
                        Sink& sink) noexcept;
  void on_written(CheckedEndpoint& peer, const CheckedWritten& written, Sink& sink) noexcept;
  void on_answer(CheckedEndpoint& peer, Kind kind, const CheckedAnswer& answer, Sink& sink) noexcept;
  void look_at_writes(CheckedEndpoint& peer, Immediate immediate, Sink& sink) noexcept;
  bool is_right(const CheckedEndpoint& peer, const CheckedWritten& written, const Sink& sink) const noexcept;
  bool is_registered(const CheckedWritten& written) const noexcept;
  void go_on_writing(CheckedEndpoint& peer, Sink& sink) noexcept;
  Status post_again(CheckedEndpoint& peer, Write& write) noexcept;
  bool tell_of(CheckedEndpoint& peer, const Write& write) noexcept;
  void answer_writes(CheckedEndpoint& peer) noexcept;
  void stall(Write& write, Write::State state) noexcept;
  void finish(Write& write, Status status, Sink& sink) noexcept;
  std::uint32_t index_of_write(const Write& write) const noexcept;

  std::unique_ptr<Provider> owned_;  ///< `below_`, or null.
  Provider& below_;
  const Log log_;
  Capabilities capabilities_;
  const std::size_t longest_frame_bytes_;
  PeerTable<CheckedEndpoint> peers_;
  std::size_t known_ = 0;  ///< Peers in peers_.
  /// Peers for whom something is to be done in poll(). find_or_make() reserves the room.
  std::vector<CheckedEndpoint*> attended_;
  std::array<PeerId, 8> unmet_{};  ///< Peers of whom something was lost for want of memory: they are ended.
  std::size_t unmet_count_ = 0;
  std::uint64_t polls_ = 0;
  std::size_t room_found_ = 0;  ///< Peers for whom there is room that reserve() had lacked.
  bool lacked_write_ = false;   ///< write() has said kAgain since something has happened below.

  std::array<Write, kMostWrites> writes_;
  std::uint32_t free_write_ = 0;  ///< Index; kNoWrite: none.
  /// Lengths of the memory that is registered, by remote key and address. For whichever access: it is read
  /// here.
  std::multimap<std::pair<std::uint64_t, std::uint64_t>, std::size_t> registered_;

  std::uint64_t damaged_ = 0;     ///< Frames and writes.
  std::uint64_t sent_again_ = 0;  ///< Likewise, of this process.
  std::uint64_t next_line_ = 1;   ///< `damaged_`, at which a line is logged next.
  std::optional<std::uint64_t> leaving_since_ns_;
  bool has_left_ = false;
};

/// `below` with checksums.
std::unique_ptr<Provider> with_checksums(std::unique_ptr<Provider> below, Log log);

}  // namespace ch3_offload
