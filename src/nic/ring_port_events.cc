// Events: taken from the ring, translated into the client's. Waiting.

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/payload_layout.h"
#include "nic/ring_port.h"
#include "rdma/memcheck.h"

namespace ch3_offload {
namespace {

/// What the client's half takes for itself.
bool is_of_rings(Event::Kind kind) noexcept {
  return kind == kReceiveBytes || kind == kBytesWanted || kind == kCopyOffered;
}

bool is_completion(Event::Kind kind) noexcept {
  return kind == Event::Kind::kSendDone || kind == Event::Kind::kReceiveDone ||
         kind == Event::Kind::kCancelDone || kind == Event::Kind::kScheduleDone;
}

}  // namespace

// Events.

/// The next event of the ring, which stays there. False: there is none, or it is rubbish.
bool RingPort::look(EventRecord& event, std::span<const std::byte>& more) noexcept {
  const std::uint64_t header = ring_.header();
  RingConsumer::Record record;
  if (header == 0 || !ring_.parse(header, record) || record.payload.size() < sizeof event) return false;
  std::memcpy(&event, record.payload.data(), sizeof event);
  if (event.kind > Event::Kind::kWarning && !is_completion(event.kind) && !is_of_rings(event.kind))
    return false;
  more = record.payload.subspan(sizeof event);
  return true;
}

bool RingPort::reads_rubbish() noexcept {
  EventRecord event;
  std::span<const std::byte> more;
  return ring_.header() != 0 && !look(event, more);
}

/// Steps over the event that look() has shown. Its bytes stay until progress().
void RingPort::step_over() noexcept {
  RingConsumer::Record record;
  if (ring_.parse(ring_.header(), record)) ring_.advance(record);
}

/// False: it names nothing that is pending.
bool RingPort::translate(const EventRecord& record, std::span<const std::byte> more, Event& event) noexcept {
  event = {.kind = record.kind,
           .status = record.status,
           .is_cancelled = record.is_cancelled != 0,
           .scope = record.scope,
           .peer = PeerId{record.peer},
           .key = {record.bits, record.initiator},
           .length_bytes = record.length_bytes,
           .bytes = more.data()};
  if (!is_completion(record.kind)) {
    if (record.kind == Event::Kind::kPacket || record.kind == Event::Kind::kWarning)
      event.length_bytes = more.size();
    return true;
  }
  const Operation* const operation = find(record.operation);
  // Of a schedule, the client takes another cookie than of a message.
  if (operation == nullptr || (record.kind == Event::Kind::kScheduleDone) != (operation->steps > 0))
    return false;
  event.cookie = operation->cookie;
  const bool has_payload = record.kind == Event::Kind::kReceiveDone && !event.is_cancelled &&
                           (record.status == Status::kOk || record.status == Status::kTruncated);
  const std::size_t most_bytes = has_payload ? operation->receives.length_bytes : 0;
  if (operation->schedule != nullptr && record.status == Status::kOk) operation->schedule->copy_out();
  // What came along is not where it was staged.
  if (!more.empty() && more.size() <= most_bytes)
    scatter(operation->receives, 0, more);
  else if (more.empty() && operation->staged != nullptr && has_payload)
    scatter(operation->receives, 0, {operation->staged.get(), std::min(event.length_bytes, most_bytes)});
  else if (most_bytes > 0 && operation->receives.layout == nullptr && !keeps_memory())
    written_from_outside(operation->receives.address, std::min(event.length_bytes, most_bytes));
  // The send's own event will not come.
  if (event.is_cancelled && find(operation->cancelled) != nullptr) forget(operation->cancelled);
  forget(record.operation);
  return true;
}

/// Moves what the client may take without a call to events_. Returns how much.
std::size_t RingPort::take_events() noexcept {
  std::size_t taken = 0;
  if (events_.packet != nullptr) return 0;  // It is taken first.
  EventRecord record;
  std::span<const std::byte> more;
  for (; events_.written - events_.taken < CH3_OFFLOAD_EVENT_SLOTS && look(record, more); ++taken) {
    if (record.kind == Event::Kind::kPacket) {
      events_.packet_peer = record.peer;
      events_.packet = more.data();
      events_.packet_bytes = more.size();
      step_over();
      return taken + 1;
    }
    if (is_of_rings(record.kind)) [[unlikely]] {
      const EventRecord its = record;
      if (its.kind == kReceiveBytes) take_bytes(its, more);
      step_over();
      if (its.kind == kBytesWanted) give_bytes(its);
      if (its.kind == kCopyOffered) {
        make_copy(its);
        return taken + 1;  // It may have taken long.
      }
      continue;
    }
    if (!is_completion(record.kind)) {
      events_.others = 1;  // next_event() takes it.
      return taken + 1;
    }
    auto* const slot = reinterpret_cast<Event*>(&events_.slots[events_.written % CH3_OFFLOAD_EVENT_SLOTS]);
    if (translate(record, more, *slot)) ++events_.written;
    step_over();
  }
  return taken;
}

std::size_t RingPort::progress() noexcept {
  if (ring_.unreleased_bytes() > 0 && ring_.release()) wake_processor();  // It waits for room.
  const std::uint64_t now = arrivals();
  const bool has_arrivals = std::exchange(arrivals_seen_, now) != now;
  return take_events() + has_arrivals;
}

bool RingPort::next_event(Event& event) noexcept {
  if (const ch3_offload_event_t* const oldest = ch3_offload_take_event(&events_)) {
    event = *reinterpret_cast<const Event*>(oldest);
    return true;
  }
  if (ch3_offload_take_packet(&events_, reinterpret_cast<ch3_offload_event_t*>(&event)) != 0) return true;
  EventRecord record;
  std::span<const std::byte> more;
  if (events_.others != 0 && look(record, more) && !is_completion(record.kind) &&
      record.kind != Event::Kind::kPacket && !is_of_rings(record.kind)) {
    step_over();
    return translate(record, more, event);
  }
  events_.others = 0;
  return false;
}

// Waiting.

bool RingPort::idle() const noexcept {
  // Sequentially consistent after arm(): "The sleep rule".
  return words_.idle_at.load(std::memory_order_seq_cst) == commands_.position();
}

bool RingPort::at_rest() const noexcept {
  return ring_.header() == 0 && ch3_offload_has_events(&events_) == 0 && arrivals() == arrivals_seen_;
}

bool RingPort::arm() noexcept {
  armed_ = true;
  PortMemory::count(counters_.client.sleeps);                // Before: whoever rings finds it counted.
  words_.client_sleeps.store(1, std::memory_order_seq_cst);  // "The sleep rule".
  if (ring_.header(std::memory_order_seq_cst) == 0 &&
      words_.arrivals.load(std::memory_order_seq_cst) == arrivals_seen_)
    return true;
  disarm();
  return false;
}

void RingPort::disarm() noexcept {
  if (!std::exchange(armed_, false)) return;
  PortMemory::quiet(words_.client_sleeps, memory_.client_bell());
}

}  // namespace ch3_offload
