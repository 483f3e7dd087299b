#include "rdma/verbs/wire_up/wire_up.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// Time that the peer has to dial, after it refused ours because of its own.
constexpr std::uint64_t kCrossedNs = 1'000'000'000;

constexpr const char* kAnotherVersion = "it runs another version of libch3offload";

/// Tags of epoll events: an introduction's index, or a listener's with this bit.
constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 32;

}  // namespace

WireUp::WireUp(const Config& config, const VerbsAddress& address, std::vector<FileDescriptor> listeners,
               Client& client)
    : config_(config),
      address_(address),
      address_text_(address.to_string()),
      client_(client),
      listeners_(std::move(listeners)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const FileDescriptor& listener : listeners_) closing_.emplace_back(listener.get());
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    if (!watch(listeners_[i].get(), kListenerTag | i, EPOLLIN)) epoll_.reset();
}

WireUp::~WireUp() = default;

std::uint64_t WireUp::timeout_ns() const noexcept {
  return static_cast<std::uint64_t>(config_.peer_timeout_ms) * 1'000'000;
}

void WireUp::log_once(bool& logged, const char* line) const noexcept {
  if (!std::exchange(logged, true)) config_.log("%s", line);
}

// Introductions

bool WireUp::watch(int descriptor, std::uint64_t tag, std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 ||
         (errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event) == 0);
}

void WireUp::update_watch(Introduction& introduction) noexcept {
  if (introduction.is_free()) return;
  const std::uint32_t events =
      EPOLLIN | EPOLLRDHUP | (introduction.stream.wants_write() ? static_cast<std::uint32_t>(EPOLLOUT) : 0);
  if (introduction.watched == events) return;
  if (watch(introduction.stream.socket().get(), introduction.index, events)) introduction.watched = events;
}

/// Throws std::bad_alloc.
Introduction* WireUp::begin(FrameStream stream, bool dialled) {
  std::size_t index = 0;
  while (index < introductions_.size() && !introductions_[index]->is_free()) ++index;
  if (index == introductions_.size())
    introductions_.push_back(
        std::make_unique<Introduction>(static_cast<std::uint32_t>(index), config_.secret));
  Introduction& introduction = *introductions_[index];
  introduction.step = Step::kAwaitsHello;
  introduction.dialled = dialled;
  introduction.watched = 0;
  introduction.contact = nullptr;
  introduction.since_ns = patience_ns_;
  introduction.connected = !dialled;
  introduction.stream = std::move(stream);
  introduction.transcript = Transcript(config_.secret);
  ++(dialled ? dials_ : guests_);
  return &introduction;
}

void WireUp::end(Introduction& introduction) noexcept {
  if (introduction.is_free()) return;
  --(introduction.dialled ? dials_ : guests_);
  dials_ended_ |= introduction.dialled;
  if (Contact* const contact = introduction.contact; contact != nullptr) {
    if (contact->dial_ == &introduction) contact->dial_ = nullptr;
    if (contact->guest_ == &introduction) contact->guest_ = nullptr;
  }
  // Closing alone is not enough: a child between vfork() and exec() holds the descriptor, too.
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, introduction.stream.socket().get(), nullptr));
  introduction.stream.close();
  introduction.contact = nullptr;
  introduction.step = Step::kFree;
  ++introduction.life;
}

void WireUp::send(Introduction& introduction, Frame& frame) noexcept {
  introduction.transcript.sign(introduction.self(), frame);
  introduction.stream.send(frame);
  introduction.since_ns = patience_ns_;
  note_contact(introduction);
  update_watch(introduction);
}

/// Notices that the other side's kernel has answered our dial.
void WireUp::note_contact(Introduction& introduction) const noexcept {
  if (introduction.connected || !introduction.stream.is_connected()) return;
  introduction.connected = true;
  introduction.since_ns = patience_ns_;
  introduction.contact->silent_tries_ = 0;
}

Frame WireUp::hello_to(const Contact& contact, std::uint64_t instance) const noexcept {
  Frame frame = make_frame(kLinks, FrameKind::kHello);
  auto& body = frame.as<HelloBody>();
  body.sender = index_of(contact.names.known_as);
  body.receiver = index_of(contact.names.own);
  body.sender_instance = address_.instance;
  body.receiver_instance = instance;
  body.last_link = client_.last_link(contact);
  body.lane = contact.index;
  body.own = index_of(config_.self);
  body.known_as = index_of(contact.id);
  return frame;
}

void WireUp::drop(Contact& contact) noexcept {
  if (std::exchange(contact.sought_, false)) std::erase(sought_, &contact);
  for (const auto& introduction : introductions_)
    if (introduction->contact == &contact) end(*introduction);
}

void WireUp::offer(Contact& contact, const OfferBody& offer) noexcept {
  Introduction* const introduction = contact.guest_ != nullptr ? contact.guest_ : contact.dial_;
  if (introduction == nullptr || introduction->step != Step::kMayOffer) return;
  introduction->step = introduction->dialled ? Step::kAwaitsOffer : Step::kAwaitsReady;
  Frame frame = make_frame(kLinks, FrameKind::kOffer);
  frame.as<OfferBody>() = offer;
  send(*introduction, frame);
}

void WireUp::ready(Contact& contact) noexcept {
  Introduction* const introduction = contact.dial_;
  if (introduction == nullptr || introduction->step != Step::kMayBeReady) return;
  Frame frame = make_frame(kLinks, FrameKind::kReady);
  send(*introduction, frame);
  drop(contact);
}

// Accepting

void WireUp::pause_listeners(int error_number) noexcept {
  paused_ = true;  // The connections stay in the backlog.
  for (const FileDescriptor& listener : listeners_)
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.get(), nullptr));
  if (error_number == 0 || shortage_logged_) return;
  try {
    log_once(shortage_logged_, system_error("verbs: accepting a connection", error_number).message.c_str());
  } catch (const std::bad_alloc&) {
    log_once(shortage_logged_, "verbs: accepting a connection failed: there is no memory");
  }
}

void WireUp::resume_listeners() noexcept {
  paused_ = false;
  for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i].get(), kListenerTag | i, EPOLLIN);
}

/// Closes the guest that has been silent for the longest time: at once if it has not said who it is, else if
/// it has had its time. Returns false if there is none.
bool WireUp::evict_guest() noexcept {
  Introduction* victim = nullptr;
  for (const auto& introduction : introductions_) {
    if (introduction->is_free() || introduction->dialled) continue;
    const bool unknown = introduction->contact == nullptr;
    if (!unknown && patience_ns_ - introduction->since_ns < kGraceNs) continue;
    const bool is_better =
        victim == nullptr || (unknown && victim->contact != nullptr) ||
        (unknown == (victim->contact == nullptr) && introduction->since_ns < victim->since_ns);
    if (is_better) victim = introduction.get();
  }
  if (victim == nullptr) return false;
  fail(*victim);
  return true;
}

void WireUp::accept_some(std::size_t listener) noexcept {
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
          *begin(FrameStream(std::move(socket), kLinks, config_.peer_timeout_ms / 2), /*dialled=*/false);
      update_watch(introduction);
      hear(introduction);  // Its Hello is there already, as a rule.
    } catch (const std::bad_alloc&) {
      return pause_listeners(ENOMEM);  // It will dial again.
    }
  }
}

/// Tells a guest why it is not wanted. `why`: for the log; nullptr: nothing is wrong.
void WireUp::refuse(Introduction& introduction, Refusal reason, const char* why) noexcept {
  introduction.stream.send(make_refusal(kLinks, reason));
  fail(introduction);
  if (why == nullptr || refusal_logged_) return;
  char line[160];
  static_cast<void>(std::snprintf(
      line, sizeof line, "verbs: refused a connection: %s (further ones are refused silently)", why));
  log_once(refusal_logged_, line);
}

// Frames

void WireUp::service() noexcept {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    const auto index = static_cast<std::uint32_t>(tag);
    // An event may be stale, because its index was used again within this batch: hear() only tries.
    if ((tag & kListenerTag) != 0)
      accept_some(index);
    else if (index < introductions_.size())
      hear(*introductions_[index]);
  }
}

void WireUp::hear(Introduction& introduction) noexcept {
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
        if (introduction.dialled) return client_.on_gone(*introduction.contact, kAnotherVersion);
        return refuse(introduction, Refusal::kVersion, kAnotherVersion);
      case FrameStream::Receipt::kMalformed:
        if (introduction.dialled) return refused(*introduction.contact);
        log_once(
            refusal_logged_,
            "verbs: refused a connection: what it says is malformed (further ones are refused silently)");
        return fail(introduction);
    }
  }
}

void WireUp::on_frame(Introduction& introduction, const Frame& frame) noexcept {
  if (frame.kind == FrameKind::kRefuse && introduction.dialled)
    return on_refusal(introduction, static_cast<Refusal>(frame.as<RefuseBody>().reason));
  if (!introduction.transcript.verify(introduction.other(), frame)) {
    if (introduction.dialled) {
      if (introduction.step != Step::kAwaitsHello) return fail(introduction);
      return refused(*introduction.contact);
    }
    if (introduction.contact == nullptr)
      return refuse(introduction, Refusal::kSecret, "it does not know the job's secret");
    return refuse(introduction, Refusal::kSecret, "it repeats what another process said");
  }
  introduction.since_ns = patience_ns_;
  Contact* const contact = introduction.contact;
  if (introduction.step == Step::kAwaitsHello && frame.kind == FrameKind::kHello)
    return introduction.dialled ? on_hello_of_acceptor(introduction, frame.as<HelloBody>())
                                : on_hello_of_dialler(introduction, frame.as<HelloBody>());
  if (introduction.step == Step::kAwaitsOffer && frame.kind == FrameKind::kOffer) {
    if (!introduction.dialled) return on_offer_of_dialler(introduction, frame.as<OfferBody>());
    introduction.step = Step::kMayBeReady;
    return client_.on_offer(*contact, frame.as<OfferBody>(), /*is_answer=*/true);
  }
  if (introduction.step == Step::kAwaitsReady && frame.kind == FrameKind::kReady) {
    drop(*contact);
    return client_.on_ready(*contact);
  }
  fail(introduction);  // Not what is due. It knows the secret: it is a bug of the peer's.
}

/// Whether a dial of the peer's is to make way for ours: of two that cross, the one of the process that comes
/// first counts, if the peer's kernel has taken it.
bool WireUp::our_dial_counts(const Contact& contact) const noexcept {
  return contact.dial_ != nullptr && contact.dial_->connected && !contact.checks_ &&
         comes_first(config_.self, address_.instance, contact.id, contact.names, contact.address_->instance);
}

void WireUp::on_hello_of_dialler(Introduction& introduction, const HelloBody& body) noexcept {
  constexpr const char* kAnother = "it means another process";
  if (body.receiver != index_of(config_.self) || body.receiver_instance != address_.instance ||
      body.sender == index_of(config_.self))
    return refuse(introduction, Refusal::kStranger, kAnother);
  Contact* contact = nullptr;
  try {
    const std::optional<VerbsAddress> address = VerbsAddress::parse(body.address.data());
    if (!address || address->instance != body.sender_instance)
      return refuse(introduction, Refusal::kStranger, kAnother);
    contact = client_.meet(body, *address);
  } catch (const std::bad_alloc&) {
    return end(introduction);  // It will dial again.
  }
  if (contact == nullptr) return refuse(introduction, Refusal::kStranger, kAnother);
  if (our_dial_counts(*contact)) return refuse(introduction, Refusal::kCrossed, nullptr);
  introduction.contact = contact;
  introduction.peers_last_link = body.last_link;
  introduction.step = Step::kAwaitsOffer;
  Frame frame = hello_to(*contact, body.sender_instance);
  send(introduction, frame);
}

void WireUp::on_hello_of_acceptor(Introduction& introduction, const HelloBody& body) noexcept {
  Contact& contact = *introduction.contact;
  if (body.sender != index_of(contact.id) || body.sender_instance != contact.address_->instance ||
      body.receiver != index_of(config_.self) || body.receiver_instance != address_.instance ||
      body.lane != contact.index || names_in(body) != contact.names)
    return refused(contact);
  introduction.step = Step::kMayOffer;
  client_.on_answer(contact, body.last_link);
}

/// Now it is no replay: it takes the place of all other introductions with the contact.
void WireUp::on_offer_of_dialler(Introduction& introduction, const OfferBody& body) noexcept {
  Contact& contact = *introduction.contact;
  if (our_dial_counts(contact)) return refuse(introduction, Refusal::kCrossed, nullptr);
  const std::uint32_t life = introduction.life;
  for (std::size_t i = 0; i < introductions_.size(); ++i)
    if (introductions_[i]->contact == &contact && introductions_[i].get() != &introduction)
      fail(*introductions_[i]);
  if (introduction.life != life) return;  // The client gave the peer up meanwhile.
  contact.guest_ = &introduction;
  introduction.step = Step::kMayOffer;
  client_.on_offer(contact, body, /*is_answer=*/false);
}

void WireUp::on_refusal(Introduction& introduction, Refusal reason) noexcept {
  Contact& contact = *introduction.contact;
  if (reason == Refusal::kVersion) return client_.on_gone(contact, kAnotherVersion);
  if (reason != Refusal::kCrossed) return refused(contact);
  fail(introduction);  // The peer's own dial is on its way.
  contact.retry_at_ns_ = monotonic_ns() + kCrossedNs;
}

void WireUp::on_closed(Introduction& introduction, int error_number) noexcept {
  Contact* const contact = introduction.contact;
  if (contact == nullptr) return end(introduction);
  if (!introduction.dialled) {
    if (introduction.step != Step::kAwaitsOffer) return fail(introduction);
    const std::uint32_t last_link = introduction.peers_last_link;
    end(introduction);
    contact->retry_at_ns_ = 0;  // If we dial it, now is the time.
    return client_.on_knock(*contact, last_link);
  }
  if (error_number == ECONNREFUSED) return refused(*contact);
  const bool was_connected = introduction.connected;
  const std::uint64_t since_ns = introduction.since_ns;
  fail(introduction);
  contact->retry_at_ns_ = monotonic_ns() + kRedialNs;
  if (!was_connected) no_contact(*contact, since_ns);
}

/// Ends an introduction before its time. If we dialled, it is tried again.
void WireUp::fail(Introduction& introduction) noexcept {
  // Somebody took this dial, and has not refused it.
  if (introduction.dialled && introduction.connected) introduction.contact->refused_hosts_ = 0;
  break_off(introduction);
}

/// Ends an introduction and tells the client. Unlike fail(), it is no answer of the peer's host.
void WireUp::break_off(Introduction& introduction) noexcept {
  Contact* const contact = introduction.contact;
  // A queue pair may have been made for it.
  const bool was_allowed = introduction.step >= Step::kMayOffer &&
                           (introduction.dialled || introduction.step != Step::kAwaitsOffer);
  end(introduction);
  if (contact != nullptr && was_allowed) client_.on_broken(*contact);
}

}  // namespace ch3_offload
