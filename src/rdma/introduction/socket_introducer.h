// Introductions over sockets: listeners, dials, and guests, which are the connections that others have
// dialled. A connection lives for one introduction, or goes to the client at its end.
//
//   dialler                       acceptor
//   Hello (nonce)           ──▶
//                           ◀──   Hello (nonce)                  knows the secret, and polls
//   Offer                   ──▶                                  the dialler knows the secret; not a replay
//                           ◀──   Offer                          has taken the dialler's offer
//   Ready                   ──▶                                  both close
//
// A process that computes does not accept. Its kernel keeps the dialler's Hello, if its backlog has room. If
// other contacts are to be dialled, the dialler closes: then that Hello is a *knock*. The acceptor reads it
// later. If the Hello says who has dialled, it dials back.
//
// Evidence (on_gone()): each address of the peer has refused a dial, or another process answered there, and
// no kernel took one in between. Silence (on_silence()) is none by itself: a full backlog, a network that is
// down and a dead node look alike.
//
// Memory: of a guest, nothing is allocated but its connection before its Hello is proved.
//
// Threads: one at a time. Nothing blocks. Only making an introduction allocates.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rdma/file_descriptor.h"
#include "rdma/fork_closing.h"
#include "rdma/introduction/frame_stream.h"
#include "rdma/introduction/introducer.h"
#include "rdma/introduction/transcript.h"
#include "rdma/log.h"

namespace ch3_offload {

/// One introduction, as one side sees it.
struct Introduction {
  enum class Step : std::uint8_t { kFree, kAwaitsHello, kMayOffer, kAwaitsOffer, kMayBeReady, kAwaitsReady };

  Introduction(std::uint32_t number, const Transcript& nothing) noexcept
      : index(number), transcript(nothing) {}
  std::uint32_t index;  ///< In SocketIntroducer::introductions_.
  Step step = Step::kFree;
  bool dialled = false;        ///< By us.
  std::uint32_t life = 0;      ///< Counts the uses of this object, so that a stale reference is noticed.
  std::uint32_t watched = 0;   ///< epoll events that the socket is watched for.
  Introducer::Guest other;     ///< Who the other side is. A dial's has a contact always.
  std::uint64_t since_ns = 0;  ///< SocketIntroducer::patience_ns_ when the last frame came, or when it began.
  bool connected = false;      ///< The other side's kernel has answered.
  FrameStream stream;
  Transcript transcript;
  bool is_free() const noexcept { return step == Step::kFree; }
  Speaker self() const noexcept { return dialled ? Speaker::kDialler : Speaker::kAcceptor; }
  Speaker peer() const noexcept { return dialled ? Speaker::kAcceptor : Speaker::kDialler; }
};

class SocketIntroducer final : public Introducer {
 public:
  static constexpr std::size_t kMostDials = 64;               ///< Outgoing connections at once.
  static constexpr std::size_t kMostChecks = kMostDials / 4;  ///< Dials at once that leave room for checks.
  static constexpr std::size_t kMostGuests = 256;             ///< Accepted connections at once.
  static constexpr int kMostAccepts = 16;                     ///< At one listener, in one service().

  struct Config {
    const Protocol& protocol;  ///< Stays valid.
    Transcript secret;         ///< Knows the secret, and no frame.
    /// Whether others cannot know the secret. If they can, nobody is met over TCP.
    bool is_secret = true;
    int timeout_ms = 10'000;   ///< Silence of a peer for so long counts (on_silence()).
    int guest_ms = 5'000;      ///< Time of a guest to say who it is.
    bool guests_wait = false;  ///< A guest that has said who it is may take its time.
    /// When an introduction has ended well, its connection goes to the client (Client::on_connection()).
    bool keeps_connection = false;
    int knock_ms = 5'000;   ///< Between dials of a contact that computes, while others are to be dialled.
    const char* name = "";  ///< Begins each line of the log.
    Log log{nullptr, nullptr};
  };

  /// `listeners` listen, and do not block.
  SocketIntroducer(const Config& config, std::vector<FileDescriptor> listeners, Client& client);
  ~SocketIntroducer();
  SocketIntroducer(const SocketIntroducer&) = delete;
  SocketIntroducer& operator=(const SocketIntroducer&) = delete;

  /// Prepares for so many contacts. Throws std::bad_alloc; then nothing has changed.
  void make_room(std::size_t contacts) { sought_.reserve(contacts); }

  void seek(Contact& contact) noexcept override;
  void check(Contact& contact) noexcept override;
  void drop(Contact& contact) noexcept override;
  void offer(Contact& contact, Frame& offer) noexcept override;
  void ready(Contact& contact) noexcept override;

  /// Becomes readable when service() has something to do. -1: there is none, and the introducer is unusable.
  int descriptor() const noexcept { return epoll_.get(); }
  /// Makes descriptor() readable while `other` is. Returns false if it cannot be done: errno.
  bool watch_also(int other) noexcept;
  /// Reads what has come, and accepts.
  void service() noexcept;
  /// Does what is due by time: dials, deadlines. To be called every tick_ns() at least. Time in which nobody
  /// calls it does not count as a peer's silence.
  void tick(std::uint64_t now_ns) noexcept;
  /// Time until the next tick() must come. 0: none is needed.
  std::uint64_t tick_ns() const noexcept;
  /// Advances like the clock while tick() is called, and hardly while it is not or need not be.
  std::uint64_t patience_ns() const noexcept { return patience_ns_; }

  /// The contacts that are sought, checks included.
  const std::vector<Contact*>& sought() const noexcept { return sought_; }
  std::size_t connections() const noexcept { return dials_ + guests_; }
  /// Descriptors in use, listeners included.
  std::size_t descriptors() const noexcept { return listeners_.size() + connections(); }
  std::uint64_t dials_made() const noexcept { return dials_made_; }

 private:
  using Step = Introduction::Step;
  using Answer = Contact::Answer;
  /// Between dials of one contact.
  static constexpr std::uint64_t kRedialNs = 200'000'000;
  /// Time that a connection has to be answered before it makes way for another one.
  static constexpr std::uint64_t kGraceNs = 200'000'000;

  // socket_introducer.cc
  void log_once(bool& logged, const char* line) const noexcept;
  void log_shortage(bool& logged, const char* what) const noexcept;
  bool watch(int descriptor, std::uint64_t tag, std::uint32_t events) noexcept;
  void update_watch(Introduction& introduction) noexcept;
  Introduction& begin(FrameStream stream, bool dialled);
  void end(Introduction& introduction) noexcept;
  void give_away(Introduction& introduction) noexcept;
  void send(Introduction& introduction, Frame& frame) noexcept;
  void note_contact(Introduction& introduction) const noexcept;

  void accept_some(std::size_t listener) noexcept;
  void pause_listeners(int error_number) noexcept;
  void resume_listeners() noexcept;
  void refuse_backlog() noexcept;
  bool evict_guest() noexcept;
  void refuse(Introduction& introduction, Refusal reason) noexcept;

  void hear(Introduction& introduction) noexcept;
  void on_frame(Introduction& introduction, const Frame& frame) noexcept;
  void on_hello_of_dialler(Introduction& introduction, const Frame& hello) noexcept;
  void on_hello_of_acceptor(Introduction& introduction, const Frame& hello) noexcept;
  void on_offer_of_dialler(Introduction& introduction, const Frame& offer) noexcept;
  void on_refusal(Introduction& introduction, Refusal reason) noexcept;
  void on_closed(Introduction& introduction, int error_number) noexcept;
  bool our_dial_counts(const Contact& contact) const noexcept;
  void fail(Introduction& introduction) noexcept;
  void break_off(Introduction& introduction) noexcept;

  // dialling.cc
  std::uint64_t timeout_ns() const noexcept;
  void begin_to_seek(Contact& contact) noexcept;
  void dial(Contact& contact) noexcept;
  void dial_next_address(Contact& contact);
  void run_short(Contact& contact) noexcept;
  void refused(Contact& contact, Refusal reason) noexcept;
  void dial_those_due(std::uint64_t now_ns) noexcept;
  void look_at_dials() noexcept;
  void look_at_guests() noexcept;
  std::uint64_t most_attempt_ns(const Contact& contact) const noexcept;
  void no_contact(Contact& contact, std::uint64_t since_ns) noexcept;

  const Config config_;
  Client& client_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor epoll_;
  std::vector<ForkClosing> closing_;  ///< Of the listeners.
  std::vector<std::unique_ptr<Introduction>> introductions_;
  std::vector<Contact*> sought_;
  std::size_t next_sought_ = 0;  ///< In sought_: where dial_those_due() goes on.
  std::size_t dials_ = 0;        ///< Introductions in use that we dialled.
  std::size_t guests_ = 0;       ///< Introductions in use that others dialled.
  bool paused_ = false;          ///< The listeners are not watched: no descriptor, or no room for a guest.
  bool is_short_ = false;        ///< No descriptor or memory: the last connection could not be accepted.
  std::uint64_t short_since_ns_ = 0;  ///< patience_ns() when it began.
  FileDescriptor spare_;              ///< For refuse_backlog().
  std::uint64_t last_tick_ns_ = 0;
  std::uint64_t last_look_ns_ = 0;
  std::uint64_t last_scan_ns_ = 0;  ///< dial_those_due().
  bool dial_is_due_ = false;        ///< Since then, a dial has ended.
  std::uint64_t patience_ns_ = 0;   ///< patience_ns().
  std::uint64_t dials_made_ = 0;
  bool refusal_logged_ = false;
  bool shortage_logged_ = false;
  bool dial_logged_ = false;
  bool dial_shortage_logged_ = false;
  bool backlog_shortage_logged_ = false;
  bool peer_shortage_logged_ = false;
};

}  // namespace ch3_offload
