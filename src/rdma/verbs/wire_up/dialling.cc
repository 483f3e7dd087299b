// The dialler's side, and what time brings. See wire_up.h.

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/wire_up/wire_up.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
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
constexpr std::uint64_t kDialTickNs = 20 * kMillisecondNs;

}  // namespace

void WireUp::seek(Contact& contact, const VerbsAddress& address) noexcept {
  if (contact.sought_ && !contact.checks_) return;
  if (contact.dial_ != nullptr) fail(*contact.dial_);
  if (contact.sought_) std::erase(sought_, &contact);
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
  sought_.push_back(&contact);
  if (last_tick_ns_ == 0) last_tick_ns_ = monotonic_ns();
}

void WireUp::check(Contact& contact, const VerbsAddress& address) noexcept {
  if (contact.sought_ || contact.guest_ != nullptr || dials_ >= kMostChecks) return;
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
  Result<FrameStream> stream = FrameStream::dial(*to, kLinks, config_.peer_timeout_ms / 2);
  if (!stream.ok()) {
    const Error& error = stream.error();
    if (error.status == Status::kPeerFailed) return refused(contact);
    log_once(dial_logged_, ("verbs: " + error.message + " (peer " + std::to_string(index_of(contact.id)) +
                            "; trying again, told once)")
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
  auto& text = frame.as<HelloBody>().address;
  std::memcpy(text.data(), address_text_.data(), std::min(address_text_.size(), text.size() - 1));
  send(introduction, frame);
}

/// The peer does not listen at the address that was dialled. If all of its addresses have refused, it is gone.
void WireUp::refused(Contact& contact) noexcept {
  if (contact.dial_ != nullptr) break_off(*contact.dial_);
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

std::uint64_t WireUp::tick_ns() const noexcept {
  return sought_.empty() && guests_ == 0 && !paused_ ? 0 : kDialTickNs;
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
