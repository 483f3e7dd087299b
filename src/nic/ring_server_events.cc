// Events: put into the client's ring, or kept until there is room. The words, and waiting.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "nic/ring_server.h"
#include "nic/ring_server_names.h"

namespace ch3_offload {
namespace {

/// Lines that are kept for a client that does not take them.
constexpr std::size_t kMostWarnings = 256;

}  // namespace

// Events.

/// False: there is no room, or the client's memory is not what it should be: it is told of no success.
bool RingServer::publish(const EventRecord& event, std::span<const std::byte> more) noexcept {
  const std::size_t length_bytes = sizeof event + more.size();
  if (is_broken() || !ring_.has_room(length_bytes)) return false;
  tell_arrivals();  // Those before.
  // What the rings ask in the midst of an operation is not its end.
  if (trace_ != nullptr && event.operation != kNoOperation && event.kind < kReceiveBytes) [[unlikely]]
    trace_->record(TraceEvent::kEventPublished, trace_->self(), 0, static_cast<std::uint64_t>(event.kind),
                   cookie_of(event.operation));
  std::memcpy(ring_.payload(), &event, sizeof event);
  if (!more.empty()) std::memcpy(ring_.payload() + sizeof event, more.data(), more.size());
  PortMemory::count(ring_counters_.events);  // Before: who has taken the event finds it counted.
  ring_.publish(RecordKind::kMessage, length_bytes);
  has_news_ = true;
  return true;
}

/// A client's operation is done.
void RingServer::finish(OperationId operation, EventRecord event) noexcept {
  event.operation = operation;
  Operation& entry = operations_[number_in(operation) - 1];
  entry.engines = kNoOperation;
  if (entry.parts != nullptr && entry.parts[0].is_lost()) [[unlikely]]
    event.status = Status::kNoMemory;
  if (first_waiting_ == 0 && give_done(entry, event)) [[likely]] {
    end(entry);
    return;
  }
  entry.event = event;
  entry.next = 0;
  (first_waiting_ == 0 ? first_waiting_ : operations_[last_waiting_ - 1].next) = number_in(operation);
  last_waiting_ = number_in(operation);
}

/// Gives the end of an operation, and what it keeps before that. False: there is no room for all of it.
bool RingServer::give_done(Operation& entry, const EventRecord& event) noexcept {
  const std::span<const std::byte> kept = entry.kept(event);
  if (kept.empty() || (kept.size() <= kInlineBytes && entry.parts[0].kept_from() == 0)) [[likely]]
    return publish(event, kept);
  EventRecord bytes = event_of(kReceiveBytes, Status::kOk);
  bytes.operation = event.operation;
  bytes.bits = client_->is_refused();
  while (entry.told_bytes < kept.size()) {
    const std::size_t length = std::min(kept.size() - entry.told_bytes, kPacketPartBytes);
    bytes.length_bytes = entry.parts[0].kept_from() + entry.told_bytes;
    if (!publish(bytes, kept.subspan(entry.told_bytes, length))) return false;
    entry.told_bytes += length;
  }
  return publish(event);
}

/// Gives what waits for room. False: some still does.
bool RingServer::give_waiting() noexcept {
  while (first_waiting_ != 0) {
    Operation& entry = operations_[first_waiting_ - 1];
    if (!give_done(entry, entry.event)) return false;
    end(entry);
    first_waiting_ = entry.next;
  }
  return true;
}

/// A completion of the engine.
void RingServer::complete(const Event& event) noexcept {
  if (schedules_.take(event)) return;
  const OperationId operation{reinterpret_cast<std::uintptr_t>(event.cookie)};
  const bool is_packet = generation_in(operation) == kPacketGeneration;
  if (is_packet || generation_in(operation) == 0) {
    const std::uint32_t number = number_in(operation);
    const PeerId peer{is_packet ? number : copies_[number - 1].command.peer};
    if (is_packet)
      ++inline_done_;
    else
      copy_done(number - 1);
    // It was done for the client, so the peer would miss it and take what comes after it.
    if (event.status == Status::kNoMemory) port_.fail_peer(peer);
    return;
  }
  const Operation* const entry = find(operation);
  if (entry == nullptr) return;
  if (event.kind == Event::Kind::kCancelDone && event.is_cancelled)
    forget_cancelled(entry->cancels, entry->cancels_engines);
  finish(operation, event_of(event));
}

/// Gives held_. False: there is no room for all of it.
bool RingServer::give_held() noexcept {
  const EventRecord record = event_of(held_);
  switch (held_.kind) {
    case Event::Kind::kLaneMade: return true;  // Of the engine's, not of the client's.
    case Event::Kind::kWarning:
      return publish(record, {held_.bytes, std::min(held_.length_bytes, kWarningBytes)});
    case Event::Kind::kPacket:
      while (held_given_bytes_ < held_.length_bytes) {
        const std::size_t part = std::min(held_.length_bytes - held_given_bytes_, kPacketPartBytes);
        if (!publish(record, {held_.bytes + held_given_bytes_, part})) return false;
        held_given_bytes_ += part;
      }
      return true;
    case Event::Kind::kPacketOffer: return give_offer(record);
    default: return publish(record);
  }
}

/// The answer of a client in another process is a place that stays mapped until the next offer of the peer.
bool RingServer::give_offer(const EventRecord& offer) noexcept {
  if (client_ == nullptr) return publish(offer);
  try {
    Place& place = places_[offer.peer];
    // The answer to an offer that is not published would be taken for one that comes later.
    if (!publish(offer)) return false;
    place.is_wanted = true;
    return true;
  } catch (const std::bad_alloc&) {
    return false;  // The next time.
  }
}

std::size_t RingServer::give_events() noexcept {
  std::size_t given = 0;
  ch3_offload_events_t& events = port_.events();
  for (;; ++given) {
    bool has_room = give_waiting();
    while (const ch3_offload_event_t* const done = ch3_offload_take_event(&events)) {
      complete(*reinterpret_cast<const Event*>(done));
      ++given;
      has_room = first_waiting_ == 0;
    }
    if (!holds_) {
      if (!port_.next_event(held_)) {
        given += give_wanted(has_room) + give_offer_of_copy(has_room);
        return given + give_warnings(has_room);
      }
      if (held_.kind <= Event::Kind::kCancelDone) {
        complete(held_);
        continue;
      }
      if (held_.kind == Event::Kind::kPeerFailed) schedules_.fail_peer(held_.peer);
      holds_ = true;
      held_given_bytes_ = 0;
    }
    if (!has_room || !give_held()) return given;
    holds_ = false;
  }
}

/// Returns how much has happened.
std::size_t RingServer::advance_schedules() noexcept {
  const std::size_t happened = schedules_.advance();
  for (ScheduleRunner::Ended ended; schedules_.next_ended(ended);)
    finish(ended.name, event_of(Event::Kind::kScheduleDone, ended.status));
  return happened;
}

/// Asks for bytes that the client must copy, if `has_room`. Returns how many times.
std::size_t RingServer::give_wanted(bool has_room) noexcept {
  std::size_t given = 0;
  if (client_ == nullptr) return given;
  while (const ClientMemory::Wanted* const wanted = has_room ? client_->next_wanted() : nullptr) {
    EventRecord record = event_of(kBytesWanted, Status::kOk);
    record.operation = wanted->operation;
    record.initiator = wanted->part;
    record.length_bytes = wanted->offset_bytes;
    record.bits = client_->is_refused();
    if (find(wanted->operation) != nullptr && !publish(record)) break;
    client_->told_wanted();
    ++given;
  }
  return given;
}

/// Asks the client to make a copy, if `has_room`. Returns how many times.
std::size_t RingServer::give_offer_of_copy(bool has_room) noexcept {
  if (client_ == nullptr) return 0;
  OfferedCopies& offers = client_->offers();
  offers.expire();
  const OfferedCopy* const copy = has_room ? offers.open_next() : nullptr;
  if (copy == nullptr) [[likely]]
    return 0;
  EventRecord record = event_of(kCopyOffered, Status::kOk);
  record.operation = copy->receive;
  record.peer = offers.number();
  record.bits = copy->address;
  record.initiator = static_cast<std::uint32_t>(copy->process);
  record.length_bytes = copy->length_bytes;
  if (!publish(record)) return 0;
  offers.told();
  return 1;
}

/// Gives what warn() kept, if `has_room`. Returns how many.
std::size_t RingServer::give_warnings(bool has_room) noexcept {
  std::size_t given = 0;
  for (; has_room && !warnings_.empty(); ++given) {
    const auto& [scope, line] = warnings_.front();
    EventRecord record = event_of(Event::Kind::kWarning, Status::kOk);
    record.scope = scope;
    if (!publish(record, std::as_bytes(std::span(line)).first(std::min(line.size(), kWarningBytes)))) break;
    warnings_.pop_front();
  }
  return given;
}

void RingServer::warn(LogScope scope, std::string_view line) noexcept {
  if (warnings_.size() >= kMostWarnings) return;  // The client takes none.
  try {
    warnings_.emplace_back(scope, line);
  } catch (const std::bad_alloc&) {
    // A line less.
  }
}

void RingServer::tell_counters() noexcept {
  // The rest of the page is padding.
  constexpr std::size_t kCounters = (sizeof(Counters) + sizeof(ProviderCounters)) / sizeof(std::uint64_t);
  static_assert(sizeof(Counters) % alignof(ProviderCounters) == 0, "nothing lies between the two");
  using Words = std::array<std::uint64_t, kCounters>;
  const auto& now = reinterpret_cast<const Words&>(port_.counters());
  auto& told = reinterpret_cast<Words&>(memory_.counters());
  for (std::size_t i = 0; i < now.size(); ++i)
    if (told[i] != now[i]) std::atomic_ref<std::uint64_t>(told[i]).store(now[i], std::memory_order_relaxed);
}

void RingServer::tell_arrivals() noexcept {
  if (arrivals_told_ == counters_.received_unexpected) return;
  arrivals_told_ = counters_.received_unexpected;
  words_.arrivals.store(arrivals_told_, std::memory_order_seq_cst);  // "The sleep rule".
  has_news_ = true;
}

void RingServer::tell_words() noexcept {
  tell_arrivals();
  if (inline_told_ != inline_done_) {
    inline_told_ = inline_done_;
    words_.inline_done.store(inline_done_, std::memory_order_release);
  }
  const bool is_idle = first_waiting_ == 0 && port_.idle();
  const std::uint64_t idle_at = is_idle ? commands_.position() : kNotIdle;
  if (idle_told_ != idle_at) {
    idle_told_ = idle_at;
    words_.idle_at.store(idle_at, std::memory_order_seq_cst);
    has_news_ = has_news_ || idle_at != kNotIdle;
  }
  if (std::exchange(has_news_, false))
    PortMemory::ring(words_.client_sleeps, memory_.client_bell(), ring_counters_.bells_rung);
}

// Waiting.

bool RingServer::arm() noexcept {
  PortMemory::count(ring_counters_.sleeps);  // Before: whoever rings finds it counted.
  bool has_work = !memory_.announce_nic_sleep();
  has_work = has_work || (!is_refused_ && commands_.header(std::memory_order_seq_cst) != 0);
  const bool asks_client =
      client_ != nullptr && (client_->next_wanted() != nullptr || client_->offers().has_next());
  has_work = has_work || schedules_.has_work();
  if (holds_ || first_waiting_ != 0 || !warnings_.empty() || asks_client) {
    ring_.announce_waiting();
    has_work = has_work || ring_.has_room_for_sure(sizeof(EventRecord) + kPacketPartBytes);
  }
  has_work = has_work || (client_ != nullptr && client_->offers().is_open());
  if (has_work) disarm();
  return !has_work;
}

void RingServer::disarm() noexcept { PortMemory::quiet(words_.nic_sleeps, memory_.nic_bell()); }

}  // namespace ch3_offload
