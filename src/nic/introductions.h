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
//            ── Ready ─────────────────────────────▶
//   closes                                            closes
//
// SocketIntroducer (rdma/introduction) listens, dials and exchanges the frames. This class fills them in, and
// knows the processes.
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
// Bounds. Those of SocketIntroducer, and the numbers. A guest gets a number when its Offer is proved. A guest
// has kGuestMs for each of its frames. Only time in which poll() is called counts.
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
#include "rdma/file_descriptor.h"
#include "rdma/introduction/socket_introducer.h"
#include "rdma/log.h"

namespace ch3_offload {

/// The IPv4 address that processes on this node have as nid, by `interface`, as Introductions::Config has it.
/// kUnsupported: the message says why. Blocks while the host's name is resolved, if that is empty.
Result<std::uint32_t> choose_nid(std::string_view interface);

class Introductions final : public ProcessBook, private Introducer::Client {
 public:
  static constexpr int kGuestMs = 5000;

  struct Config {
    /// The nid. 0: the address of `interface`.
    std::uint32_t nid = 0;
    /// As find_host_address() has it. Empty: the best address of the node, or 127.0.0.1 if it has no other.
    std::string interface;
    std::uint16_t pid = 0;       ///< 0: any.
    UserKey key;                 ///< Proves nothing: that of a user without a key file.
    std::string card;            ///< The engine's. At most kMostProcessCardBytes.
    PeerId own{};                ///< The engine's number for itself.
    PeerId first_peer{1};        ///< Processes get numbers from here on,
    std::uint32_t peer_limit{};  ///< and below this. Providers and engine must allow them.
    int patience_ms = 30'000;    ///< With a process that no kernel answers for.
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
  int descriptor() const noexcept override { return introducer_->descriptor(); }
  std::uint64_t next_due_ns() const noexcept override;

  /// Connections now.
  std::size_t connections() const noexcept { return introducer_->connections(); }

 private:
  enum class State : std::uint8_t {
    kSought,       ///< It is, or will be, dialled.
    kMet,          ///< on_card() has told its card.
    kUnreachable,  ///< on_card() has told that it has none.
    kForgotten,    ///< It has gone. In leaving_.
    kFree,         ///< Nobody has the number. In a list that begins at first_free_.
  };
  /// One that has a number.
  struct Process final : Introducer::Contact {
    Process(PhysicalId named, PeerId peer) noexcept : id(named), number(peer) {}
    PhysicalId id;
    PeerId number;
    State state = State::kSought;
    bool is_told = false;    ///< on_process() was called.
    bool was_met = false;    ///< Once. Its later numbers inherit it, as far as ended_ goes.
    bool is_logged = false;  ///< That it cannot be reached. Its later numbers inherit it.
    bool is_silence_logged = false;
    std::uint64_t instance = 0;       ///< kMet.
    PeerId known_as{};                ///< kMet: this process, there.
    std::uint32_t failures = 0;       ///< Of this id in a row. Its later numbers inherit it.
    std::uint64_t again_at_ns = 0;    ///< kUnreachable: find() seeks it anew from then on.
    Process* next_free = nullptr;     ///< kFree.
    std::uint64_t unanswered_ns = 0;  ///< Of patience_ns(): sought, and no kernel has taken a dial.
    std::uint64_t silent_ns = 0;      ///< Of patience_ns(): a kernel has taken a dial.
  };

  explicit Introductions(const Config& config);
  std::optional<Error> set_up();
  /// Numbers of processes that have gone, kept before one is used again: so a generation comes again late.
  static constexpr std::size_t kLeastFree = 64;

  static Process& of(Introducer::Contact& contact) noexcept { return static_cast<Process&>(contact); }
  static const Process& of(const Introducer::Contact& contact) noexcept {
    return static_cast<const Process&>(contact);
  }
  std::size_t most_processes() const noexcept;
  /// The newest of that id. nullptr: it has no number.
  Process* newest(ProcessId process) const noexcept;

  Process* add(PhysicalId id) noexcept;
  void let_go() noexcept;
  void tell_new() noexcept;
  void tell(Process& process) noexcept;
  void met(Process& process, const Frame& frame) noexcept;
  void unreachable(Process& process, std::string_view why) noexcept;
  void nobody_there(Process& process) noexcept;
  void send_card(Process& process) noexcept;
  void log_about(const Process& process, const char* what, std::string_view why) noexcept;
  void look_at_silence() noexcept;

  std::size_t addresses(const Introducer::Contact& contact) const noexcept override;
  SocketAddress address(const Introducer::Contact& contact, std::size_t index) const noexcept override;
  /// Both dials may end in an introduction: they say the same.
  bool our_dial_counts(const Introducer::Contact&) const noexcept override { return false; }
  void say_hello(const Introducer::Contact& contact, Frame& hello) const noexcept override;
  std::optional<Refusal> meet(const Frame& hello, Introducer::Guest& guest, Frame& answer) override;
  std::optional<Refusal> identify(const Frame& offer, Introducer::Guest& guest) noexcept override;
  bool on_answer(Introducer::Contact& contact, const Frame& hello) noexcept override;
  void on_offer(Introducer::Contact& contact, const Frame& offer, bool is_answer) noexcept override;
  void on_ready(Introducer::Contact&) noexcept override {}
  void on_broken(Introducer::Contact& contact) noexcept override;
  void on_knock(Introducer::Contact&, std::uint32_t) noexcept override {}
  void on_gone(Introducer::Contact& contact, Refusal reason) noexcept override;
  /// look_at_silence() counts otherwise: no frame gives a process more time.
  void on_silence(Introducer::Contact&, Introducer::Silence) noexcept override {}

  const Config config_;
  const Log log_;
  const UserId user_;
  const UserKey key_;
  PhysicalId self_;
  std::uint64_t instance_ = 0;
  std::optional<SocketIntroducer> introducer_;       ///< From set_up() on.
  FileDescriptor bell_;                              ///< Readable while find() has left something for poll().
  bool is_rung_ = false;                             ///< The bell.
  Listener* listener_ = nullptr;                     ///< poll()'s.
  std::size_t happened_ = 0;                         ///< In this poll().
  std::vector<std::unique_ptr<Process>> processes_;  ///< By number.
  std::unordered_map<std::uint64_t, Process*> by_id_;  ///< The newest of each ProcessId.
  std::vector<Process*> untold_;                       ///< on_process() is due. Has room for all.
  std::vector<Process*> leaving_;                      ///< Those that are kForgotten. Has room for all.
  Process* first_free_ = nullptr;
  Process* last_free_ = nullptr;
  std::size_t free_count_ = 0;
  Process* last_found_ = nullptr;  ///< By find(). nullptr: look it up.
  /// Of the last processes that were met and forgotten: nothing grows with all of them.
  std::array<ProcessId, 64> ended_{};
  std::size_t next_ended_ = 0;
  std::uint32_t blind_polls_ = 0;    ///< So many of the next polls need not look at the clock.
  std::uint64_t last_clock_ns_ = 0;  ///< When a poll looked at it last.
  std::uint64_t last_poll_ns_ = 0;
  std::uint64_t last_tick_ns_ = 0;
  std::uint64_t patience_at_tick_ns_ = 0;  ///< patience_ns() at the last look_at_silence().
  std::uint32_t lines_ = 0;                ///< Logged.
};

}  // namespace ch3_offload
