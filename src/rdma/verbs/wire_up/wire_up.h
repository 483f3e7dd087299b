// Introductions: how two processes agree on a queue pair each, over a TCP connection that lives for just
// that.
//
//   dialler                       acceptor
//   Hello (nonce, address)  ──▶
//                           ◀──   Hello (nonce)                  knows the secret, and polls
//   Offer (queue pair)      ──▶                                  the dialler knows the secret; not a replay
//                           ◀──   Offer (queue pair, connected)
//   Ready                   ──▶                                  both close
//
// Why TCP and not UD: only a TCP dial gives evidence of death. The kernel of a dead process's host refuses a
// dial; a datagram gets no answer, like one to a process that computes. TCP also needs no retransmission of
// our own, and works through routers and firewalls that administrators know. The cost is bounded: at most
// kMostDials and kMostGuests descriptors, whatever the number of peers.
//
// A process that computes does not accept. Its kernel keeps the dialler's Hello, if its backlog has room. If
// other peers are to be dialled, the dialler closes: then that Hello is a *knock*. The acceptor reads it
// later and dials back.
//
// Evidence (on_gone()): each address of the peer has refused a dial, or another process answered there, and
// no kernel took one in between. Silence (on_silence()) is none by itself: a full backlog, a network that is
// down and a dead node look alike.
//
// Threads: as rdma/provider.h says. Nothing blocks. Only making an introduction allocates.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rdma/file_descriptor.h"
#include "rdma/introduction/frame_stream.h"
#include "rdma/introduction/transcript.h"
#include "rdma/job_secret.h"
#include "rdma/log.h"
#include "rdma/provider.h"
#include "rdma/status.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/wire_up/introducer.h"
#include "rdma/verbs/wire_up/link_frames.h"

namespace ch3_offload {

/// One introduction, as one side sees it.
struct Introduction {
  enum class Step : std::uint8_t { kFree, kAwaitsHello, kMayOffer, kAwaitsOffer, kMayBeReady, kAwaitsReady };

  Introduction(std::uint32_t number, const JobSecret& secret) noexcept : index(number), transcript(secret) {}
  std::uint32_t index;  ///< In WireUp::introductions_.
  Step step = Step::kFree;
  bool dialled = false;       ///< By us.
  std::uint32_t life = 0;     ///< Counts the uses of this object, so that a stale reference is noticed.
  std::uint32_t watched = 0;  ///< epoll events that the socket is watched for.
  Introducer::Contact* contact = nullptr;  ///< nullptr: the dialler has not said who it is.
  std::uint32_t peers_last_link = 0;
  std::uint64_t since_ns = 0;  ///< WireUp::patience_ns_ when the last frame came, or when it began.
  bool connected = false;      ///< The other side's kernel has answered.
  FrameStream stream;
  Transcript transcript;
  bool is_free() const noexcept { return step == Step::kFree; }
  Speaker self() const noexcept { return dialled ? Speaker::kDialler : Speaker::kAcceptor; }
  Speaker other() const noexcept { return dialled ? Speaker::kAcceptor : Speaker::kDialler; }
};

class WireUp final : public Introducer {
 public:
  static constexpr std::size_t kMostDials = 64;               ///< Outgoing connections at once.
  static constexpr std::size_t kMostChecks = kMostDials / 4;  ///< Dials at once that leave room for checks.
  static constexpr std::size_t kMostGuests = 256;             ///< Accepted connections at once.
  static constexpr int kMostAccepts = 16;                     ///< At one listener, in one service().

  struct Config {
    PeerId self{};
    JobSecret secret{};
    int peer_timeout_ms = 10'000;
    Log log{nullptr, nullptr};
  };

  /// `listeners` listen at `address.port` of each of `address.hosts`. `address` is this process's own, and
  /// stays valid.
  WireUp(const Config& config, const VerbsAddress& address, std::vector<FileDescriptor> listeners,
         Client& client);
  ~WireUp();
  WireUp(const WireUp&) = delete;
  WireUp& operator=(const WireUp&) = delete;

  /// Prepares for so many contacts. Throws std::bad_alloc; then nothing has changed.
  void make_room(std::size_t contacts) { sought_.reserve(contacts); }

  void seek(Contact& contact, const VerbsAddress& address) noexcept override;
  void check(Contact& contact, const VerbsAddress& address) noexcept override;
  void drop(Contact& contact) noexcept override;
  void offer(Contact& contact, const OfferBody& offer) noexcept override;
  void ready(Contact& contact) noexcept override;

  /// Becomes readable when service() has something to do. -1: there is none, and the wire-up is unusable.
  int descriptor() const noexcept { return epoll_.get(); }
  /// Reads what has come, and accepts.
  void service() noexcept;
  /// Does what is due by time: dials, deadlines. To be called every tick_ns() at least, and not often in a
  /// millisecond. Time in which nobody calls it does not count as a peer's silence.
  void tick(std::uint64_t now_ns) noexcept;
  /// Time until the next tick() must come. 0: none is needed.
  std::uint64_t tick_ns() const noexcept;

  /// Descriptors in use, listeners included.
  std::size_t descriptors() const noexcept { return listeners_.size() + dials_ + guests_; }
  std::uint64_t dials_made() const noexcept { return dials_made_; }

 private:
  using Step = Introduction::Step;
  /// Between dials of one contact.
  static constexpr std::uint64_t kRedialNs = 200'000'000;
  /// Time that a dial has to be answered before it makes way for another one.
  static constexpr std::uint64_t kGraceNs = 200'000'000;

  // wire_up.cc
  std::uint64_t timeout_ns() const noexcept;
  void log_once(bool& logged, const char* line) const noexcept;
  bool watch(int descriptor, std::uint64_t tag, std::uint32_t events) noexcept;
  void update_watch(Introduction& introduction) noexcept;
  Introduction* begin(FrameStream stream, bool dialled);
  void end(Introduction& introduction) noexcept;
  void send(Introduction& introduction, Frame& frame) noexcept;
  void note_contact(Introduction& introduction) const noexcept;
  Frame hello_to(const Contact& contact, std::uint64_t instance) const noexcept;

  void accept_some(std::size_t listener) noexcept;
  void pause_listeners(int error_number) noexcept;
  void resume_listeners() noexcept;
  bool evict_guest() noexcept;
  void refuse(Introduction& introduction, Refusal reason, const char* why) noexcept;

  void hear(Introduction& introduction) noexcept;
  void on_frame(Introduction& introduction, const Frame& frame) noexcept;
  void on_hello_of_dialler(Introduction& introduction, const HelloBody& body) noexcept;
  void on_hello_of_acceptor(Introduction& introduction, const HelloBody& body) noexcept;
  void on_offer_of_dialler(Introduction& introduction, const OfferBody& body) noexcept;
  void on_refusal(Introduction& introduction, Refusal reason) noexcept;
  void on_closed(Introduction& introduction, int error_number) noexcept;
  bool our_dial_counts(const Contact& contact) const noexcept;
  void fail(Introduction& introduction) noexcept;
  void break_off(Introduction& introduction) noexcept;

  // dialling.cc
  void begin_to_seek(Contact& contact, const VerbsAddress& address) noexcept;
  void dial(Contact& contact) noexcept;
  void dial_next_host(Contact& contact);
  void refused(Contact& contact) noexcept;
  void dial_those_due(std::uint64_t now_ns) noexcept;
  void look_at_dials() noexcept;
  void look_at_guests() noexcept;
  std::uint64_t most_attempt_ns(const Contact& contact) const noexcept;
  void no_contact(Contact& contact, std::uint64_t since_ns) noexcept;

  const Config config_;
  const VerbsAddress& address_;
  const std::string address_text_;
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
  std::uint64_t last_tick_ns_ = 0;
  std::uint64_t last_look_ns_ = 0;
  std::uint64_t last_scan_ns_ = 0;  ///< dial_those_due().
  bool dials_ended_ = false;        ///< Since then.
  /// Advances like the clock while tick() is called, and hardly while it is not.
  std::uint64_t patience_ns_ = 0;
  std::uint64_t dials_made_ = 0;
  bool refusal_logged_ = false;
  bool shortage_logged_ = false;
  bool dial_logged_ = false;
};

}  // namespace ch3_offload
