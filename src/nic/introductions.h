// The book of processes (process_book.h) where a physical id is an address: nid is an IPv4 address, pid a TCP
// port. Any two processes of a user that know such an id can be introduced, without a process manager.
//
// A process that names another one dials it: first as a process of its node, at an abstract Unix socket that
// is named by the user and the id; then over TCP at nid:pid.
//
//   dialler  ── Hello: who is meant ─────────────▶  acceptor
//            ◀──────────────────────────── Hello ──
//            ── Offer: id, instance, card, numbers ─▶  the acceptor knows the dialler
//            ◀─ Offer: id, instance, card, numbers ──  the dialler knows the acceptor
//   closes                                            closes
//
// Who is who. Each frame ends with a proof that its sender knows the user's key (user_key.h). On the node the
// kernel also says whose process it is (SO_PEERCRED), so a key that proves nothing serves. Over TCP processes
// without a key file are refused.
//
// Numbers. Each side tells the other by which number it knows it, and the number that it has for itself
// (PeerNames). If both dial at once, both exchanges carry the same numbers and have one result. A process
// with the same id and another instance, or one that has given up this process and begun anew, gets a new
// number. A process that could not be reached keeps its dead number for a while (100 ms, and twice as long
// after each failure, 1 s at most), so that who names it again and again uses few numbers; operations on it
// fail at once. It may introduce itself at any time, and then gets a new number. The number of a process that
// has gone is used again, in its next generation, once nothing uses it any more (Listener::on_unused()).
//
// Ends. A refused dial shows that the process has ended: programs exchange ids after they have begun to
// listen. A process that no kernel answers for, for Config::patience_ms, cannot be reached. A dial that a
// kernel has taken and that is not answered proves nothing: the process may compute. This time is free;
// it is logged once. No frame gives a process more time: a stranger could send it for ever. No connection
// outlives its introduction: liveness is the providers'.
//
// Bounds. kMostDials and kMostGuests connections at once. When all dials are in use, the oldest one makes way
// after 200 ms for a process that waits for a dial, and is made again later. Of guests, nothing is allocated
// before the proof but a slot. A guest has kGuestMs. Only time in which poll() is called counts.
//
// Threads: one, the engine's. Blocking: none, but in create().

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nic/physical_id.h"
#include "nic/process_book.h"
#include "nic/process_frames.h"
#include "nic/user_key.h"
#include "rdma/fork_closing.h"
#include "rdma/introduction/frame_stream.h"
#include "rdma/introduction/transcript.h"
#include "rdma/log.h"

namespace ch3_offload {

/// The IPv4 address that processes on this node have as nid, by `interface`, as Introductions::Config has it.
/// kUnsupported: the message says why. Blocks while the host's name is resolved, if that is empty.
Result<std::uint32_t> choose_nid(std::string_view interface);

class Introductions final : public ProcessBook {
 public:
  static constexpr std::size_t kMostDials = 64;
  static constexpr std::size_t kMostGuests = 256;
  static constexpr std::uint64_t kGuestMs = 5000;

  struct Config {
    /// The nid. 0: the address of `interface`.
    std::uint32_t nid = 0;
    /// As find_host_address() has it. Empty: the best address of the node, or 127.0.0.1 if it has no other.
    std::string interface;
    std::uint16_t pid = 0;               ///< 0: any.
    UserKey key;                         ///< Proves nothing: that of a user without a key file.
    std::string card;                    ///< The engine's. At most kMostProcessCardBytes.
    PeerId own{};                        ///< The engine's number for itself.
    PeerId first_peer{1};                ///< Processes get numbers from here on,
    std::uint32_t peer_limit{};          ///< and below this. Providers and engine must allow them.
    std::uint64_t patience_ms = 30'000;  ///< With a process that no kernel answers for.
    /// False: other processes are dialled over TCP only. For tests, whose processes are of one node.
    bool meets_on_node = true;
    void (*log)(void* context, LogScope scope, const char* line) = nullptr;
    void* log_context = nullptr;
  };

  /// Listens. Errors: kAgain, the pid is taken; kUnsupported, kNoMemory, kDeviceFailed. The message says what
  /// to do. Blocks while the host's name is resolved, if neither nid nor interface is given.
  static Result<std::unique_ptr<Introductions>> create(const Config& config);
  ~Introductions() override;

  ProcessId self() const noexcept override { return self_.process(); }
  UserId user() const noexcept override { return user_; }
  Status find(ProcessId process, PeerId& peer) noexcept override;
  void forget(PeerId peer) noexcept override;
  std::size_t poll(Listener& listener) noexcept override;
  int descriptor() const noexcept override { return epoll_.get(); }
  std::uint64_t next_due_ns() const noexcept override;

  /// Connections now.
  std::size_t connections() const noexcept { return dials_ + guests_; }

 private:
  enum class State : std::uint8_t {
    kSought,       ///< It is, or will be, dialled.
    kMet,          ///< on_card() has told its card.
    kUnreachable,  ///< on_card() has told that it has none.
    kForgotten,    ///< It has gone. In leaving_.
    kFree,         ///< Nobody has the number. In a list that begins at first_free_.
  };
  /// One that has a number.
  struct Process {
    PhysicalId id;
    PeerId number{};
    State state = State::kSought;
    bool is_told = false;         ///< on_process() was called.
    bool is_elsewhere = false;    ///< There is none of that id on this node.
    std::uint64_t instance = 0;   ///< kMet.
    PeerId known_as{};            ///< kMet: this process, there.
    std::size_t dial = SIZE_MAX;  ///< In meetings_. SIZE_MAX: none now.
    bool was_dialled = false;
    bool is_full = false;              ///< The last dial found its backlog full: the process lives.
    bool was_met = false;              ///< Once. Its later numbers inherit it, as far as ended_ goes.
    bool is_logged = false;            ///< That it cannot be reached. Its later numbers inherit it.
    std::uint32_t failures = 0;        ///< Of this id in a row. Its later numbers inherit it.
    std::uint64_t again_at_ns = 0;     ///< kUnreachable: find() seeks it anew from then on.
    std::size_t next_free = SIZE_MAX;  ///< kFree.
    bool is_silence_logged = false;
    std::uint64_t unanswered_ns = 0;  ///< Of patience_ns_: sought, and no kernel has taken a dial.
    std::uint64_t silent_ns = 0;      ///< Of patience_ns_: a kernel has taken a dial.
    std::uint64_t retry_at_ns = 0;
  };

  enum class Step : std::uint8_t { kFree, kAwaitsHello, kAwaitsCard, kAwaitsClose };
  /// One connection. A slot that is used again and again.
  struct Meeting {
    Step step = Step::kFree;
    bool is_dial = false;
    bool is_on_node = false;
    std::uint32_t life = 0;      ///< Counts the uses of this slot.
    std::uint32_t watched = 0;   ///< epoll events.
    std::size_t process = 0;     ///< A dial's: in processes_.
    std::uint64_t since_ns = 0;  ///< patience_ns_ when it began.
    Transcript transcript{std::span<const std::byte>{}};
    FrameStream stream;
    Speaker self() const noexcept { return is_dial ? Speaker::kDialler : Speaker::kAcceptor; }
    Speaker other() const noexcept { return is_dial ? Speaker::kAcceptor : Speaker::kDialler; }
  };
  enum class Tag : std::uint32_t { kMeeting, kNode, kNet, kBell };

  explicit Introductions(const Config& config);
  std::optional<Error> set_up();
  /// Numbers of processes that have gone, kept before one is used again: so a generation comes again late.
  static constexpr std::size_t kLeastFree = 64;

  PeerId number_of(std::size_t index) const noexcept { return processes_[index].number; }
  std::size_t most_processes() const noexcept;

  Status add(PhysicalId id, std::size_t& index) noexcept;
  void let_go(Listener& listener) noexcept;
  std::size_t tell_new(Listener& listener) noexcept;
  std::size_t tell(Listener& listener, std::size_t index) noexcept;
  std::size_t met(Listener& listener, std::size_t index, const Frame& frame) noexcept;
  std::size_t unreachable(Listener& listener, std::size_t index, std::string_view why) noexcept;
  std::size_t nobody_there(Listener& listener, std::size_t index, std::string_view why) noexcept;

  bool watch(int descriptor, Tag tag, std::size_t index, std::uint32_t events) noexcept;
  void update_watch(std::size_t index) noexcept;
  std::size_t begin(FrameStream stream, bool is_dial, bool is_on_node) noexcept;
  void end(std::size_t index) noexcept;
  void send(Meeting& meeting, Frame& frame) noexcept;
  void send_hello(Meeting& meeting, PhysicalId to) noexcept;
  void send_card(Meeting& meeting, std::size_t process) noexcept;

  std::size_t accept_some(Listener& listener, Tag tag) noexcept;
  bool evict_guest() noexcept;
  void pause() noexcept;
  void resume() noexcept;

  std::size_t hear(Listener& listener, std::size_t index) noexcept;
  std::size_t on_frame(Listener& listener, std::size_t index, const Frame& frame) noexcept;
  std::size_t on_card_of_guest(Listener& listener, std::size_t index, const Frame& frame) noexcept;
  std::size_t on_card_of_acceptor(Listener& listener, std::size_t index, const Frame& frame) noexcept;
  std::size_t on_refusal(Listener& listener, std::size_t index, std::string_view why) noexcept;
  std::size_t on_closed(Listener& listener, std::size_t index) noexcept;
  void refuse(std::size_t index, Refusal reason) noexcept;

  std::size_t dial(Listener& listener, std::size_t process) noexcept;
  std::size_t dial_those_due(Listener& listener) noexcept;
  void stop_seeking(std::size_t process) noexcept;
  void make_way() noexcept;
  void log_about(const Process& process, const char* what, std::string_view why) noexcept;
  std::size_t look_at_deadlines(Listener& listener) noexcept;

  const Config config_;
  const Log log_;
  const UserId user_;
  const UserKey key_;
  PhysicalId self_;
  std::uint64_t instance_ = 0;
  ProcessListeners listeners_;
  FileDescriptor bell_;  ///< Readable while find() has left something for poll().
  FileDescriptor epoll_;
  std::array<ForkClosing, 2> closing_;  ///< Of the listeners.
  std::vector<std::unique_ptr<Meeting>> meetings_;
  std::size_t dials_ = 0;
  std::size_t guests_ = 0;
  std::vector<Process> processes_;                        ///< By number.
  std::unordered_map<std::uint64_t, std::size_t> by_id_;  ///< The newest of each ProcessId.
  std::vector<std::size_t> sought_;                       ///< Those that are kSought. Has room for all.
  std::size_t next_sought_ = 0;                           ///< Where dial_those_due() goes on.
  std::vector<std::size_t> untold_;                       ///< on_process() is due. Has room for all.
  std::vector<std::size_t> leaving_;                      ///< Those that are kForgotten. Has room for all.
  std::size_t first_free_ = SIZE_MAX, last_free_ = SIZE_MAX;
  std::size_t free_count_ = 0;
  bool paused_ = false;  ///< The listeners are not watched.
  /// What find() has found last. SIZE_MAX: look it up.
  struct Found {
    ProcessId process{};
    std::size_t index = SIZE_MAX;
  };
  Found last_found_;
  /// Of the last processes that were met and forgotten: nothing grows with all of them.
  std::array<ProcessId, 64> ended_{};
  std::size_t next_ended_ = 0;
  std::uint32_t blind_polls_ = 0;    ///< So many of the next polls need not look at the clock.
  std::uint64_t last_clock_ns_ = 0;  ///< When a poll looked at it last.
  std::uint64_t last_poll_ns_ = 0;
  std::uint64_t last_tick_ns_ = 0;
  /// Advances like the clock while poll() is called, and hardly while it is not.
  std::uint64_t patience_ns_ = 0;
  std::uint64_t patience_at_tick_ns_ = 0;  ///< patience_ns_ at the last look_at_deadlines().
  std::uint32_t lines_ = 0;                ///< Logged.
};

}  // namespace ch3_offload
