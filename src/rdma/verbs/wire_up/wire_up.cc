#include "rdma/verbs/wire_up/wire_up.h"

#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
/// Between dials of one contact.
constexpr std::uint64_t kRedialNs = 200 * kMillisecondNs;
/// Time that the peer has to dial, after it refused ours because of its own.
constexpr std::uint64_t kCrossedNs = 1000 * kMillisecondNs;
/// Time that a dial has to be answered before it makes way for another one.
constexpr std::uint64_t kGraceNs = 200 * kMillisecondNs;
/// Dials that must have failed before a peer's silence counts.
constexpr std::uint32_t kLeastTries = 3;
/// Between looks for contacts whose dial is due, if no dial has ended.
constexpr std::uint64_t kScanNs = 10 * kMillisecondNs;
/// Time that one of a peer's addresses has before another one is tried.
constexpr std::uint64_t kOtherHostNs = 500 * kMillisecondNs;
/// Between looks at what has deadlines.
constexpr std::uint64_t kLookNs = 50 * kMillisecondNs;
/// Longer without a tick, and this process was busy elsewhere.
constexpr std::uint64_t kLongestTickNs = 100 * kMillisecondNs;
constexpr std::uint64_t kTickNs = 20 * kMillisecondNs;

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
  return static_cast<std::uint64_t>(config_.peer_timeout_ms) * kMillisecondNs;
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
  Frame frame = make_frame(FrameKind::kHello);
  HelloBody& body = frame.hello;
  body.nonce = make_nonce();
  body.sender = index_of(config_.self);
  body.receiver = index_of(contact.id);
  body.sender_instance = address_.instance;
  body.receiver_instance = instance;
  body.last_link = client_.last_link(contact);
  body.lane = contact.index;
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
  Frame frame = make_frame(FrameKind::kOffer);
  frame.offer = offer;
  send(*introduction, frame);
}

void WireUp::ready(Contact& contact) noexcept {
  Introduction* const introduction = contact.dial_;
  if (introduction == nullptr || introduction->step != Step::kMayBeReady) return;
  Frame frame = make_frame(FrameKind::kReady);
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
          *begin(FrameStream(std::move(socket), config_.peer_timeout_ms / 2), /*dialled=*/false);
      update_watch(introduction);
      hear(introduction);  // Its Hello is there already, as a rule.
    } catch (const std::bad_alloc&) {
      return pause_listeners(ENOMEM);  // It will dial again.
    }
  }
}

/// Tells a guest why it is not wanted. `why`: for the log; nullptr: nothing is wrong.
void WireUp::refuse(Introduction& introduction, Refusal reason, const char* why) noexcept {
  Frame frame = make_frame(FrameKind::kRefuse);
  frame.refuse.reason = static_cast<std::uint32_t>(reason);
  introduction.stream.send(frame);
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
        if (introduction.dialled)
          return client_.on_gone(*introduction.contact, describe(Refusal::kVersion).data());
        return refuse(introduction, Refusal::kVersion, describe(Refusal::kVersion).data());
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
    return on_refusal(introduction, static_cast<Refusal>(frame.refuse.reason));
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
    return introduction.dialled ? on_hello_of_acceptor(introduction, frame.hello)
                                : on_hello_of_dialler(introduction, frame.hello);
  if (introduction.step == Step::kAwaitsOffer && frame.kind == FrameKind::kOffer) {
    if (!introduction.dialled) return on_offer_of_dialler(introduction, frame.offer);
    introduction.step = Step::kMayBeReady;
    return client_.on_offer(*contact, frame.offer, /*is_answer=*/true);
  }
  if (introduction.step == Step::kAwaitsReady && frame.kind == FrameKind::kReady) {
    drop(*contact);
    return client_.on_ready(*contact);
  }
  fail(introduction);  // Not what is due. It knows the secret: it is a bug of the peer's.
}

/// Whether a dial of the peer's is to make way for ours: of two that cross, the one of the lower number
/// counts, if the peer's kernel has taken it.
bool WireUp::our_dial_counts(const Contact& contact) const noexcept {
  return contact.dial_ != nullptr && contact.dial_->connected && !contact.checks_ &&
         config_.self < contact.id;
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
      body.lane != contact.index)
    return refused(contact);
  contact.was_reset_ = false;
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
  if (reason == Refusal::kVersion) return client_.on_gone(contact, describe(Refusal::kVersion).data());
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
  if (!was_connected) return no_contact(*contact, since_ns);
  // What reset the connection was the process's end, perhaps: the next dial tells. But a process that is
  // short of descriptors resets, too.
  if (error_number == ECONNRESET && !std::exchange(contact->was_reset_, true)) contact->retry_at_ns_ = 0;
}

/// Ends an introduction before its time. If we dialled, it is tried again.
void WireUp::fail(Introduction& introduction) noexcept {
  Contact* const contact = introduction.contact;
  // Somebody took this dial, and has not refused it.
  if (introduction.dialled && introduction.connected) contact->refused_hosts_ = 0;
  // A queue pair may have been made for it.
  const bool was_allowed = introduction.step >= Step::kMayOffer &&
                           (introduction.dialled || introduction.step != Step::kAwaitsOffer);
  end(introduction);
  if (contact != nullptr && was_allowed) client_.on_broken(*contact);
}

// Dialling

void WireUp::seek(Contact& contact, const VerbsAddress& address) noexcept {
  if (contact.sought_ && std::exchange(contact.checks_, false) && contact.dial_ != nullptr)
    fail(*contact.dial_);
  if (contact.sought_) return;
  begin_to_seek(contact, address);
  if (contact.guest_ == nullptr && dials_ < kMostDials) dial(contact);
}

void WireUp::begin_to_seek(Contact& contact, const VerbsAddress& address) noexcept {
  contact.sought_ = true;
  contact.checks_ = false;
  contact.address_ = &address;
  contact.retry_at_ns_ = 0;
  contact.silent_tries_ = 0;
  contact.refused_hosts_ = 0;
  contact.was_reset_ = false;
  sought_.push_back(&contact);
  if (last_tick_ns_ == 0) last_tick_ns_ = monotonic_ns();
}

void WireUp::check(Contact& contact, const VerbsAddress& address) noexcept {
  if (contact.sought_ || contact.guest_ != nullptr || dials_ >= kMostDials) return;
  begin_to_seek(contact, address);
  contact.checks_ = true;
  dial(contact);
}

void WireUp::dial(Contact& contact) noexcept {
  contact.retry_at_ns_ = monotonic_ns() + kRedialNs;
  try {
    dial_next_host(contact);
  } catch (const std::bad_alloc&) {
    log_once(shortage_logged_, "verbs: connecting to a process failed: there is no memory (trying again)");
  }
}

/// Throws std::bad_alloc.
void WireUp::dial_next_host(Contact& contact) {
  // Each try is for another of its addresses: a rail that is down takes the one of its port along.
  const std::string& host = contact.address_->hosts[contact.next_host_ % contact.address_->hosts.size()];
  ++contact.next_host_;
  const std::optional<SocketAddress> to = socket_address(host, contact.address_->port);
  Result<FrameStream> stream = FrameStream::dial(*to, config_.peer_timeout_ms / 2);
  if (!stream.ok()) {
    const Error& error = stream.error();
    if (error.status == Status::kPeerFailed) return refused(contact);
    log_once(dial_logged_,
             (error.message + " (peer " + std::to_string(index_of(contact.id)) + "; trying again, told once)")
                 .c_str());
    if (error.status != Status::kNoMemory) no_contact(contact, patience_ns_);
    return;
  }
  Introduction& introduction = *begin(std::move(stream.value()), /*dialled=*/true);
  introduction.contact = &contact;
  contact.dial_ = &introduction;
  ++dials_made_;
  if (contact.checks_) return update_watch(introduction);  // Nothing is said.
  Frame frame = hello_to(contact, contact.address_->instance);
  std::memcpy(frame.hello.address.data(), address_text_.data(),
              std::min(address_text_.size(), frame.hello.address.size() - 1));
  send(introduction, frame);
}

/// At the address that was dialled there is not the peer. If that is so at each of them, it is gone.
void WireUp::refused(Contact& contact) noexcept {
  const std::uint8_t before = contact.refused_hosts_;
  if (contact.dial_ != nullptr) fail(*contact.dial_);
  contact.refused_hosts_ = before;
  const std::size_t hosts = contact.address_->hosts.size();
  contact.refused_hosts_ |= static_cast<std::uint8_t>(1u << ((contact.next_host_ - 1u) % hosts));
  if (static_cast<std::size_t>(std::popcount(contact.refused_hosts_)) == hosts)
    return client_.on_gone(contact, nullptr);
  contact.retry_at_ns_ = 0;
}

/// A dial was given up that began at `since_ns` of patience_ns_, and that no kernel had answered.
void WireUp::no_contact(Contact& contact, std::uint64_t since_ns) noexcept {
  if (contact.silent_tries_++ == 0) contact.silent_since_ns_ = since_ns;
  const bool is_long = patience_ns_ - contact.silent_since_ns_ >= timeout_ns();
  if (!is_long || contact.silent_tries_ < kLeastTries) return;
  client_.on_silence(contact, Silence::kUnreachable);
}

// Time

std::uint64_t WireUp::tick_ns() const noexcept {
  return sought_.empty() && guests_ == 0 && !paused_ ? 0 : kTickNs;
}

void WireUp::tick(std::uint64_t now_ns) noexcept {
  if (tick_ns() == 0) {
    last_tick_ns_ = now_ns;
    return;
  }
  patience_ns_ += std::min(elapsed_ns(now_ns, last_tick_ns_), kLongestTickNs);
  last_tick_ns_ = now_ns;
  if (paused_) resume_listeners();
  dial_those_due(now_ns);
  if (elapsed_ns(now_ns, last_look_ns_) < kLookNs) return;
  last_look_ns_ = now_ns;
  look_at_guests();
  look_at_dials();
}

/// How long a dial waits for the other side's kernel: not long if the peer has another address, which may be
/// the one whose rail is up.
std::uint64_t WireUp::most_attempt_ns(const Contact& contact) const noexcept {
  return contact.address_->hosts.size() > 1 ? std::min(kOtherHostNs, timeout_ns() / 4) : timeout_ns() / 4;
}

/// Goes round, so that each contact has its turn.
void WireUp::dial_those_due(std::uint64_t now_ns) noexcept {
  if (!dials_ended_ && elapsed_ns(now_ns, last_scan_ns_) < kScanNs) return;
  dials_ended_ = false;
  last_scan_ns_ = now_ns;
  for (std::size_t looked = 0; looked < sought_.size() && dials_ < kMostDials; ++looked) {
    Contact& contact = *sought_[next_sought_++ % sought_.size()];
    if (contact.dial_ == nullptr && contact.guest_ == nullptr && now_ns >= contact.retry_at_ns_)
      dial(contact);
  }
}

/// Closes connections that have not said who they are for half of the peer time-out.
void WireUp::look_at_guests() noexcept {
  for (std::size_t i = 0; i < introductions_.size(); ++i) {
    Introduction& introduction = *introductions_[i];
    if (introduction.is_free() || introduction.dialled || introduction.contact != nullptr) continue;
    if (patience_ns_ - introduction.since_ns >= timeout_ns() / 2) end(introduction);
  }
}

/// Gives up dials that have had their time: those that no kernel answers, for another address; those that the
/// peer does not answer, for a peer that waits for its turn.
void WireUp::look_at_dials() noexcept {
  const std::uint64_t now_ns = monotonic_ns();
  std::size_t waiting = 0;
  if (dials_ == kMostDials)
    waiting = static_cast<std::size_t>(std::ranges::count_if(sought_, [&](const Contact* contact) {
      return contact->dial_ == nullptr && contact->guest_ == nullptr && now_ns >= contact->retry_at_ns_;
    }));
  for (std::size_t i = 0; i < introductions_.size(); ++i) {
    Introduction& introduction = *introductions_[i];
    if (introduction.is_free() || !introduction.dialled) continue;
    Contact& contact = *introduction.contact;
    const std::uint64_t since_ns = patience_ns_ - introduction.since_ns;
    if (introduction.connected && contact.checks_) {
      drop(contact);  // Somebody listens.
    } else if (!introduction.connected) {
      const bool makes_way = waiting > 0 && since_ns >= kGraceNs;
      if (!makes_way && since_ns < most_attempt_ns(contact)) continue;
      waiting -= makes_way;
      const std::uint64_t began_ns = introduction.since_ns;
      fail(introduction);
      contact.retry_at_ns_ = makes_way ? now_ns + kRedialNs : 0;
      no_contact(contact, began_ns);
    } else if (introduction.step == Step::kAwaitsHello && since_ns >= timeout_ns()) {
      fail(introduction);  // A new dial meets what evidence there is by now.
      contact.retry_at_ns_ = 0;
      client_.on_silence(contact, Silence::kUnanswered);
    } else if (waiting > 0 && introduction.step != Step::kMayOffer) {
      // A Hello that was not answered stays with the peer's kernel: a knock. A queue pair that was offered
      // waits longer.
      const bool is_knock = introduction.step == Step::kAwaitsHello;
      if (since_ns < (is_knock ? kGraceNs : 5 * kGraceNs)) continue;
      --waiting;
      fail(introduction);
      contact.retry_at_ns_ = now_ns + (is_knock ? timeout_ns() / 2 : kRedialNs);
    }
  }
}

}  // namespace ch3_offload
