// The dialler's side, and what time brings. See socket_introducer.h.

#include <algorithm>
#include <bit>
#include <new>
#include <string>
#include <utility>

#include "rdma/introduction/socket_introducer.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
/// Dials that must have failed before a peer's silence counts.
constexpr std::uint32_t kLeastTries = 3;
/// Between looks for contacts whose dial is due, if no dial has ended.
constexpr std::uint64_t kScanNs = 10 * kMillisecondNs;
/// Time that one of a peer's addresses has before another one is tried.
constexpr std::uint64_t kOtherAddressNs = 500 * kMillisecondNs;
/// Between looks at what has deadlines.
constexpr std::uint64_t kLookNs = 50 * kMillisecondNs;
/// Longer without a tick, and this process was busy elsewhere.
constexpr std::uint64_t kMostOfATickNs = 100 * kMillisecondNs;
constexpr std::uint64_t kDialTickNs = 20 * kMillisecondNs;

constexpr std::uint64_t nanoseconds(int milliseconds) noexcept {
  return static_cast<std::uint64_t>(milliseconds) * kMillisecondNs;
}

}  // namespace

std::uint64_t SocketIntroducer::timeout_ns() const noexcept { return nanoseconds(config_.timeout_ms); }

void SocketIntroducer::seek(Contact& contact) noexcept {
  if (contact.sought_ && !contact.checks_) return;
  if (contact.dial_ != nullptr) fail(*contact.dial_);
  if (contact.sought_) std::erase(sought_, &contact);
  begin_to_seek(contact);
  if (contact.guest_ == nullptr && dials_ < kMostDials) dial(contact);
}

void SocketIntroducer::begin_to_seek(Contact& contact) noexcept {
  contact.sought_ = true;
  contact.checks_ = false;
  contact.answer_ = Answer::kNotDialled;
  contact.retry_at_ns_ = 0;
  contact.silent_tries_ = 0;
  contact.short_tries_ = 0;
  contact.refused_addresses_ = 0;
  sought_.push_back(&contact);
  if (last_tick_ns_ == 0) last_tick_ns_ = monotonic_ns();
}

void SocketIntroducer::check(Contact& contact) noexcept {
  if (contact.sought_ || contact.guest_ != nullptr || dials_ >= kMostChecks) return;
  begin_to_seek(contact);
  contact.checks_ = true;
  dial(contact);
}

void SocketIntroducer::dial(Contact& contact) noexcept {
  if (contact.answer_ == Answer::kNotDialled) contact.answer_ = Answer::kNone;
  try {
    do {
      contact.retry_at_ns_ = monotonic_ns() + kRedialNs;
      dial_next_address(contact);
      // The kernel may refuse it at once.
    } while (contact.sought_ && contact.dial_ == nullptr && contact.retry_at_ns_ == 0);
  } catch (const std::bad_alloc&) {
    log_once(shortage_logged_, "connecting to a process failed: there is no memory (trying again)");
    run_short(contact);
  }
}

/// There is no descriptor or memory for a dial. Without a bound, whoever waits for the peer would wait for
/// ever.
void SocketIntroducer::run_short(Contact& contact) noexcept {
  contact.answer_ = Answer::kNone;
  if (contact.short_tries_++ == 0) contact.short_since_ns_ = patience_ns_;
  if (contact.short_tries_ < kLeastTries || patience_ns_ - contact.short_since_ns_ < timeout_ns()) return;
  if (contact.checks_) return drop(contact);  // It shows nothing about the peer.
  log_shortage(dial_shortage_logged_, "to dial a process: it counts as dead");
  client_.on_gone(contact, Refusal::kShort);
}

/// Throws std::bad_alloc.
void SocketIntroducer::dial_next_address(Contact& contact) {
  // Each try is for another of its addresses: a network that is down takes the one in it along.
  const SocketAddress to = client_.address(contact, contact.next_address_ % client_.addresses(contact));
  ++contact.next_address_;
  Result<FrameStream> stream = FrameStream::dial(to, config_.protocol, config_.timeout_ms / 2);
  if (!stream.ok()) {
    const Error& error = stream.error();
    if (error.status == Status::kPeerFailed) return refused(contact, Refusal::kNobody);
    if (error.status == Status::kAgain && to.is_on_node()) {
      // The process lives: its backlog is full.
      contact.answer_ = Answer::kTaken;
      contact.silent_tries_ = 0;
      return;
    }
    log_once(dial_logged_, (error.message + (to.is_on_node() ? " (" : " (at " + to.host() + "; ") +
                            "trying again, told once)")
                               .c_str());
    return error.status == Status::kNoMemory ? run_short(contact) : no_contact(contact, patience_ns_);
  }
  contact.short_tries_ = 0;
  Introduction& introduction = begin(std::move(stream.value()), /*dialled=*/true);
  introduction.other.contact = &contact;
  contact.dial_ = &introduction;
  ++dials_made_;
  if (contact.checks_) return update_watch(introduction);  // Nothing is said.
  Frame hello = make_frame(config_.protocol, FrameKind::kHello);
  client_.say_hello(contact, hello);
  send(introduction, hello);
}

/// The peer does not listen at the address that was dialled, or refuses us there. If it does so at all of its
/// addresses, it is gone.
void SocketIntroducer::refused(Contact& contact, Refusal reason) noexcept {
  if (contact.dial_ != nullptr) break_off(*contact.dial_);
  const std::size_t addresses = client_.addresses(contact);
  contact.refused_addresses_ |= static_cast<std::uint8_t>(1u << ((contact.next_address_ - 1u) % addresses));
  contact.answer_ = Answer::kNone;
  if (static_cast<std::size_t>(std::popcount(contact.refused_addresses_)) == addresses)
    return client_.on_gone(contact, reason);
  contact.retry_at_ns_ = 0;
  dial_is_due_ = true;
}

/// A dial was given up that began at `since_ns` of patience_ns_, and that no kernel had answered.
void SocketIntroducer::no_contact(Contact& contact, std::uint64_t since_ns) noexcept {
  contact.answer_ = Answer::kNone;
  if (contact.silent_tries_++ == 0) contact.silent_since_ns_ = since_ns;
  const bool is_long = patience_ns_ - contact.silent_since_ns_ >= timeout_ns();
  if (!is_long || contact.silent_tries_ < kLeastTries) return;
  client_.on_silence(contact, Silence::kUnreachable);
}

std::uint64_t SocketIntroducer::tick_ns() const noexcept {
  return sought_.empty() && guests_ == 0 && !paused_ ? 0 : kDialTickNs;
}

void SocketIntroducer::tick(std::uint64_t now_ns) noexcept {
  if (tick_ns() == 0) {
    is_short_ = false;
    last_tick_ns_ = now_ns;
    return;
  }
  patience_ns_ += std::min(elapsed_ns(now_ns, last_tick_ns_), kMostOfATickNs);
  last_tick_ns_ = now_ns;
  const bool is_scan = elapsed_ns(now_ns, last_scan_ns_) >= kScanNs;
  if (is_scan) last_scan_ns_ = now_ns;
  if (is_scan && paused_) {
    if (is_short_ && patience_ns_ - short_since_ns_ >= timeout_ns()) refuse_backlog();
    resume_listeners();
  } else if (is_scan) {
    is_short_ = false;  // Since the last scan, whoever came was accepted.
  }
  if (std::exchange(dial_is_due_, false) || is_scan) dial_those_due(now_ns);
  if (elapsed_ns(now_ns, last_look_ns_) < kLookNs) return;
  last_look_ns_ = now_ns;
  look_at_guests();
  look_at_dials();
}

/// How long a dial waits for the other side's kernel: not long if the peer may have another address whose
/// network is up.
std::uint64_t SocketIntroducer::most_attempt_ns(const Contact& contact) const noexcept {
  const std::size_t refused = static_cast<std::size_t>(std::popcount(contact.refused_addresses_));
  const bool has_other = client_.addresses(contact) > refused + 1;
  return has_other ? std::min(kOtherAddressNs, timeout_ns() / 4) : timeout_ns() / 4;
}

/// Goes round, so that each contact has its turn.
void SocketIntroducer::dial_those_due(std::uint64_t now_ns) noexcept {
  for (std::size_t looked = 0; looked < sought_.size() && dials_ < kMostDials; ++looked) {
    Contact& contact = *sought_[next_sought_++ % sought_.size()];
    if (contact.dial_ == nullptr && contact.guest_ == nullptr && now_ns >= contact.retry_at_ns_)
      dial(contact);
  }
}

/// Closes connections that have not said who they are, or have not come to an end, in their time.
void SocketIntroducer::look_at_guests() noexcept {
  for (std::size_t i = 0; i < introductions_.size(); ++i) {
    Introduction& introduction = *introductions_[i];
    if (introduction.is_free() || introduction.dialled) continue;
    if (config_.guests_wait && introduction.other.contact != nullptr) continue;
    if (patience_ns_ - introduction.since_ns >= nanoseconds(config_.guest_ms)) fail(introduction);
  }
}

/// Gives up dials that have had their time: those that no kernel answers, for another address; those that the
/// peer does not answer, for a peer that waits for its turn.
void SocketIntroducer::look_at_dials() noexcept {
  const std::uint64_t now_ns = monotonic_ns();
  std::size_t waiting = 0;
  if (dials_ == kMostDials)
    waiting = static_cast<std::size_t>(std::ranges::count_if(sought_, [&](const Contact* contact) {
      return contact->dial_ == nullptr && contact->guest_ == nullptr && now_ns >= contact->retry_at_ns_;
    }));
  for (std::size_t i = 0; i < introductions_.size(); ++i) {
    Introduction& introduction = *introductions_[i];
    if (introduction.is_free() || !introduction.dialled) continue;
    Contact& contact = *introduction.other.contact;
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
      contact.answer_ = Answer::kTaken;
      contact.retry_at_ns_ = 0;
      client_.on_silence(contact, Silence::kUnanswered);
    } else if (waiting > 0 && introduction.step != Step::kMayOffer) {
      // A Hello that was not answered stays with the peer's kernel: a knock. An offer waits longer.
      const bool is_knock = introduction.step == Step::kAwaitsHello;
      if (since_ns < (is_knock ? kGraceNs : 5 * kGraceNs)) continue;
      --waiting;
      fail(introduction);
      contact.answer_ = Answer::kTaken;
      contact.retry_at_ns_ = now_ns + (is_knock ? nanoseconds(config_.knock_ms) : kRedialNs);
    }
  }
}

}  // namespace ch3_offload
