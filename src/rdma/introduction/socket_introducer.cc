// Connections and their frames. See socket_introducer.h.

#include "rdma/introduction/socket_introducer.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <utility>

#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// Time that the peer has to dial, after it refused ours because of its own.
constexpr std::uint64_t kCrossedNs = 1'000'000'000;

/// Tags of epoll events: an introduction's index, or a listener's with the first of these bits.
constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 32;
constexpr std::uint64_t kOtherTag = std::uint64_t{2} << 32;

/// Why a guest was refused that is at `step`, for the log. nullptr: nothing is wrong.
const char* why_refused(Refusal reason, Introduction::Step step) noexcept {
  switch (reason) {
    case Refusal::kVersion: return kAnotherVersion;
    case Refusal::kSecret:
      return step == Introduction::Step::kAwaitsHello ? "it does not know the secret"
                                                      : "it repeats what another process said";
    case Refusal::kNoSecret: return "it is on another node, and this process has no secret";
    case Refusal::kStranger: return "it means another process, or is not known";
    case Refusal::kFull: return "there is no number left for it";
    case Refusal::kUser: return "it runs with another uid";
    default: return nullptr;
  }
}

}  // namespace

SocketIntroducer::SocketIntroducer(const Config& config, std::vector<FileDescriptor> listeners,
                                   Client& client)
    : config_(config),
      client_(client),
      listeners_(std::move(listeners)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      spare_(duplicate(epoll_)) {
  for (const FileDescriptor& listener : listeners_) closing_.emplace_back(listener.get());
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    if (!watch(listeners_[i].get(), kListenerTag | i, EPOLLIN)) epoll_.reset();
}

SocketIntroducer::~SocketIntroducer() = default;

void SocketIntroducer::log_once(bool& logged, const char* line) const noexcept {
  if (!std::exchange(logged, true)) config_.log("%s%s", config_.name, line);
}

/// What the error was is in an earlier line.
void SocketIntroducer::log_shortage(bool& logged, const char* what) const noexcept {
  if (std::exchange(logged, true)) return;
  config_.log("%sfor %d s there was no descriptor or memory %s (told once)", config_.name,
              config_.timeout_ms / 1000, what);
}

// Introductions

bool SocketIntroducer::watch(int descriptor, std::uint64_t tag, std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 ||
         (errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event) == 0);
}

bool SocketIntroducer::watch_also(int other) noexcept { return watch(other, kOtherTag, EPOLLIN); }

void SocketIntroducer::update_watch(Introduction& introduction) noexcept {
  if (introduction.is_free()) return;
  const std::uint32_t events =
      EPOLLIN | EPOLLRDHUP | (introduction.stream.wants_write() ? static_cast<std::uint32_t>(EPOLLOUT) : 0);
  if (introduction.watched == events) return;
  if (watch(introduction.stream.socket().get(), introduction.index, events)) introduction.watched = events;
}

/// Throws std::bad_alloc.
Introduction& SocketIntroducer::begin(FrameStream stream, bool dialled) {
  std::size_t index = 0;
  while (index < introductions_.size() && !introductions_[index]->is_free()) ++index;
  if (index == introductions_.size())
    introductions_.push_back(
        std::make_unique<Introduction>(static_cast<std::uint32_t>(index), config_.secret));
  Introduction& introduction = *introductions_[index];
  introduction.step = Step::kAwaitsHello;
  introduction.dialled = dialled;
  introduction.watched = 0;
  introduction.since_ns = patience_ns_;
  introduction.connected = !dialled;
  introduction.stream = std::move(stream);
  introduction.transcript = config_.secret;
  ++(dialled ? dials_ : guests_);
  return introduction;
}

void SocketIntroducer::end(Introduction& introduction) noexcept {
  if (introduction.is_free()) return;
  --(introduction.dialled ? dials_ : guests_);
  dial_is_due_ |= introduction.dialled;
  if (Contact* const contact = introduction.other.contact; contact != nullptr) {
    if (contact->dial_ == &introduction) contact->dial_ = nullptr;
    if (contact->guest_ == &introduction) contact->guest_ = nullptr;
  }
  // Closing alone is not enough: a child between vfork() and exec() holds the descriptor, too.
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, introduction.stream.socket().get(), nullptr));
  introduction.stream.close();
  introduction.other = {};
  introduction.step = Step::kFree;
  ++introduction.life;
}

void SocketIntroducer::send(Introduction& introduction, Frame& frame) noexcept {
  introduction.transcript.sign(introduction.self(), frame);
  introduction.stream.send(frame);
  introduction.since_ns = patience_ns_;
  note_contact(introduction);
  update_watch(introduction);
}

/// Notices that the other side's kernel has answered our dial.
void SocketIntroducer::note_contact(Introduction& introduction) const noexcept {
  if (introduction.connected || !introduction.stream.is_connected()) return;
  introduction.connected = true;
  introduction.since_ns = patience_ns_;
  introduction.other.contact->silent_tries_ = 0;
  introduction.other.contact->answer_ = Answer::kTaken;
}

void SocketIntroducer::drop(Contact& contact) noexcept {
  if (std::exchange(contact.sought_, false)) std::erase(sought_, &contact);
  for (const auto& introduction : introductions_)
    if (introduction->other.contact == &contact) end(*introduction);
}

void SocketIntroducer::offer(Contact& contact, Frame& offer) noexcept {
  Introduction* const introduction = contact.guest_ != nullptr ? contact.guest_ : contact.dial_;
  if (introduction == nullptr || introduction->step != Step::kMayOffer) return;
  introduction->step = introduction->dialled ? Step::kAwaitsOffer : Step::kAwaitsReady;
  send(*introduction, offer);
}

void SocketIntroducer::ready(Contact& contact) noexcept {
  Introduction* const introduction = contact.dial_;
  if (introduction == nullptr || introduction->step != Step::kMayBeReady) return;
  Frame frame = make_frame(config_.protocol, FrameKind::kReady);
  send(*introduction, frame);
  if (config_.keeps_connection) return give_away(*introduction);
  drop(contact);
}

/// Ends an introduction well: its connection is the client's.
void SocketIntroducer::give_away(Introduction& introduction) noexcept {
  Contact& contact = *introduction.other.contact;
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, introduction.stream.socket().get(), nullptr));
  ForkClosedDescriptor socket = introduction.stream.release();
  drop(contact);
  client_.on_connection(contact, std::move(socket));
}

// Accepting

void SocketIntroducer::pause_listeners(int error_number) noexcept {
  paused_ = true;  // The connections stay in the backlog.
  for (const FileDescriptor& listener : listeners_)
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.get(), nullptr));
  if (error_number == 0) return;
  if (!std::exchange(is_short_, true)) short_since_ns_ = patience_ns_;
  if (shortage_logged_) return;
  try {
    log_once(shortage_logged_, system_error("accepting a connection", error_number).message.c_str());
  } catch (const std::bad_alloc&) {
    log_once(shortage_logged_, "accepting a connection failed: there is no memory");
  }
}

void SocketIntroducer::resume_listeners() noexcept {
  paused_ = false;
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    paused_ |= !watch(listeners_[i].get(), kListenerTag | i, EPOLLIN);
}

/// Refuses those who wait, because nobody could be accepted for the time-out: they would wait for ever.
void SocketIntroducer::refuse_backlog() noexcept {
  log_shortage(backlog_shortage_logged_, "to accept a connection: those that wait are refused");
  for (const FileDescriptor& listener : listeners_) {
    for (int i = 0; i < kMostAccepts; ++i) {
      spare_.reset();
      int error_number = 0;
      FileDescriptor socket = accept_stream(listener, error_number);
      const bool is_somebody = socket.valid();
      if (is_somebody) {
        FrameStream stream(std::move(socket), config_.protocol, config_.guest_ms);
        Frame hello;
        static_cast<void>(stream.receive(hello));  // Unread, it would take the refusal with it.
        stream.send(make_refusal(config_.protocol, Refusal::kShort));
      }
      spare_ = duplicate(epoll_);
      if (!is_somebody) break;
    }
  }
}

/// Closes the guest that has been silent for the longest time: at once if it has not said anything, else if
/// it has had its time. Returns false if there is none.
bool SocketIntroducer::evict_guest() noexcept {
  Introduction* victim = nullptr;
  const auto is_dumb = [](const Introduction& guest) { return guest.step == Step::kAwaitsHello; };
  for (const auto& introduction : introductions_) {
    if (introduction->is_free() || introduction->dialled) continue;
    if (!is_dumb(*introduction) && patience_ns_ - introduction->since_ns < kGraceNs) continue;
    const bool is_better =
        victim == nullptr || is_dumb(*introduction) > is_dumb(*victim) ||
        (is_dumb(*introduction) == is_dumb(*victim) && introduction->since_ns < victim->since_ns);
    if (is_better) victim = introduction.get();
  }
  if (victim == nullptr) return false;
  fail(*victim);
  return true;
}

void SocketIntroducer::accept_some(std::size_t listener) noexcept {
  for (int i = 0; i < kMostAccepts; ++i) {
    if (guests_ >= kMostGuests && !evict_guest()) return pause_listeners(0);
    int error_number = 0;
    FileDescriptor socket = accept_stream(listeners_[listener], error_number);
    if (!socket.valid()) {
      if (error_number == 0) return;
      if ((error_number == EMFILE || error_number == ENFILE) && evict_guest()) continue;
      return pause_listeners(error_number);
    }
    try {
      Introduction& introduction =
          begin(FrameStream(std::move(socket), config_.protocol, config_.guest_ms), /*dialled=*/false);
      is_short_ = false;
      update_watch(introduction);
      hear(introduction);  // Its Hello is there already, as a rule.
    } catch (const std::bad_alloc&) {
      return pause_listeners(ENOMEM);  // It will dial again.
    }
  }
}

/// Tells a guest why it is not wanted.
void SocketIntroducer::refuse(Introduction& introduction, Refusal reason) noexcept {
  const char* const why = why_refused(reason, introduction.step);
  introduction.stream.send(make_refusal(config_.protocol, reason));
  fail(introduction);
  if (why == nullptr || refusal_logged_) return;
  char line[160];
  static_cast<void>(
      std::snprintf(line, sizeof line, "refused a connection: %s (further ones are refused silently)", why));
  log_once(refusal_logged_, line);
}

// Frames

void SocketIntroducer::service() noexcept {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    const auto index = static_cast<std::uint32_t>(tag);
    // An event may be stale, because its index was used again within this batch: hear() only tries.
    if ((tag & kListenerTag) != 0)
      accept_some(index);
    else if (tag != kOtherTag && index < introductions_.size())
      hear(*introductions_[index]);
  }
}

void SocketIntroducer::hear(Introduction& introduction) noexcept {
  const std::uint32_t life = introduction.life;
  while (!introduction.is_free() && introduction.life == life) {
    Frame frame;
    const FrameStream::Receipt receipt = introduction.stream.receive(frame);
    if (receipt != FrameStream::Receipt::kClosed) note_contact(introduction);
    switch (receipt) {
      case FrameStream::Receipt::kFrame: on_frame(introduction, frame); break;
      case FrameStream::Receipt::kNothing: return update_watch(introduction);
      case FrameStream::Receipt::kClosed: return on_closed(introduction, introduction.stream.error());
      case FrameStream::Receipt::kVersion:
        if (introduction.dialled) return client_.on_gone(*introduction.other.contact, Refusal::kVersion);
        return refuse(introduction, Refusal::kVersion);
      case FrameStream::Receipt::kMalformed:
        if (introduction.dialled) return refused(*introduction.other.contact, Refusal::kStranger);
        log_once(refusal_logged_,
                 "refused a connection: what it says is malformed (further ones are refused silently)");
        return fail(introduction);
    }
  }
}

void SocketIntroducer::on_frame(Introduction& introduction, const Frame& frame) noexcept {
  const bool dialled = introduction.dialled;
  Contact* const contact = introduction.other.contact;
  if (frame.kind == FrameKind::kRefuse && dialled)
    return on_refusal(introduction, static_cast<Refusal>(frame.as<RefuseBody>().reason));
  if (!dialled && !config_.is_secret && !is_stream_on_node(introduction.stream.socket()))
    return refuse(introduction, Refusal::kNoSecret);
  if (!introduction.transcript.verify(introduction.peer(), frame)) {
    if (!dialled) return refuse(introduction, Refusal::kSecret);
    return introduction.step == Step::kAwaitsHello ? refused(*contact, Refusal::kSecret) : fail(introduction);
  }
  introduction.since_ns = patience_ns_;
  if (introduction.step == Step::kAwaitsHello && frame.kind == FrameKind::kHello)
    return dialled ? on_hello_of_acceptor(introduction, frame) : on_hello_of_dialler(introduction, frame);
  if (introduction.step == Step::kAwaitsOffer && frame.kind == FrameKind::kOffer) {
    if (!dialled) return on_offer_of_dialler(introduction, frame);
    introduction.step = Step::kMayBeReady;
    return client_.on_offer(*contact, frame, /*is_answer=*/true);
  }
  if (introduction.step == Step::kAwaitsReady && frame.kind == FrameKind::kReady) {
    config_.keeps_connection ? give_away(introduction) : drop(*contact);
    return client_.on_ready(*contact);
  }
  fail(introduction);  // Not what is due. It knows the secret: it is a bug of the peer's.
}

/// Whether a dial of the peer's is to make way for ours: if the peer's kernel has taken ours.
bool SocketIntroducer::our_dial_counts(const Contact& contact) const noexcept {
  return contact.dial_ != nullptr && contact.dial_->connected && !contact.checks_ &&
         client_.our_dial_counts(contact);
}

void SocketIntroducer::on_hello_of_dialler(Introduction& introduction, const Frame& hello) noexcept {
  Frame answer = make_frame(config_.protocol, FrameKind::kHello);
  Guest guest;
  try {
    const std::optional<Refusal> refusal = client_.meet(hello, guest, answer);
    if (refusal) return refuse(introduction, *refusal);
  } catch (const std::bad_alloc&) {
    return end(introduction);  // It will dial again.
  }
  if (guest.contact != nullptr && our_dial_counts(*guest.contact))
    return refuse(introduction, Refusal::kCrossed);
  introduction.other = guest;
  introduction.step = Step::kAwaitsOffer;
  send(introduction, answer);
}

void SocketIntroducer::on_hello_of_acceptor(Introduction& introduction, const Frame& hello) noexcept {
  Contact& contact = *introduction.other.contact;
  introduction.step = Step::kMayOffer;
  if (client_.on_answer(contact, hello)) return;
  introduction.step = Step::kAwaitsHello;
  refused(contact, Refusal::kStranger);
}

/// Now it is no replay: it takes the place of all other introductions with the contact.
void SocketIntroducer::on_offer_of_dialler(Introduction& introduction, const Frame& offer) noexcept {
  Guest guest = introduction.other;
  if (guest.contact == nullptr) {
    const std::optional<Refusal> refusal = client_.identify(offer, guest);
    if (refusal) return refuse(introduction, *refusal);
  }
  Contact& contact = *guest.contact;
  if (our_dial_counts(contact)) return refuse(introduction, Refusal::kCrossed);
  const std::uint32_t life = introduction.life;
  for (std::size_t i = 0; i < introductions_.size(); ++i)
    if (introductions_[i]->other.contact == &contact && introductions_[i].get() != &introduction)
      fail(*introductions_[i]);
  if (introduction.life != life) return;  // The client gave the peer up meanwhile.
  introduction.other = guest;
  contact.guest_ = &introduction;
  introduction.step = Step::kMayOffer;
  client_.on_offer(contact, offer, /*is_answer=*/false);
}

void SocketIntroducer::on_refusal(Introduction& introduction, Refusal reason) noexcept {
  Contact& contact = *introduction.other.contact;
  if (reason == Refusal::kVersion) return client_.on_gone(contact, reason);
  if (reason == Refusal::kShort)
    log_once(peer_shortage_logged_,
             "a process has no descriptor or memory left for a connection, and refuses it: it counts as dead "
             "(raise ulimit -n where it runs; told once)");
  if (reason != Refusal::kCrossed) return refused(contact, reason);
  fail(introduction);  // The peer's own dial is on its way.
  contact.retry_at_ns_ = monotonic_ns() + kCrossedNs;
}

void SocketIntroducer::on_closed(Introduction& introduction, int error_number) noexcept {
  const Guest other = introduction.other;
  if (!introduction.dialled) {
    if (other.contact == nullptr || introduction.step != Step::kAwaitsOffer) return fail(introduction);
    end(introduction);
    other.contact->retry_at_ns_ = 0;  // If we dial it, now is the time.
    return client_.on_knock(*other.contact, other.note);
  }
  if (error_number == ECONNREFUSED) return refused(*other.contact, Refusal::kNobody);
  const bool was_connected = introduction.connected;
  const std::uint64_t since_ns = introduction.since_ns;
  fail(introduction);
  other.contact->retry_at_ns_ = monotonic_ns() + kRedialNs;
  if (!was_connected) no_contact(*other.contact, since_ns);
}

/// Ends an introduction before its time. If we dialled, it is tried again.
void SocketIntroducer::fail(Introduction& introduction) noexcept {
  if (introduction.dialled) {
    Contact& contact = *introduction.other.contact;
    contact.answer_ = Answer::kNone;
    // Somebody took this dial, and has not refused it.
    if (introduction.connected) contact.refused_addresses_ = 0;
  }
  break_off(introduction);
}

/// Ends an introduction and tells the client. Unlike fail(), it is no answer of the peer's host.
void SocketIntroducer::break_off(Introduction& introduction) noexcept {
  Contact* const contact = introduction.other.contact;
  // The client may have prepared for it.
  const bool was_allowed = introduction.step >= Step::kMayOffer &&
                           (introduction.dialled || introduction.step != Step::kAwaitsOffer);
  end(introduction);
  if (contact != nullptr && was_allowed) client_.on_broken(*contact);
}

}  // namespace ch3_offload
