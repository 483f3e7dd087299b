// The data path: reserve, commit, poll, arm. See shm_provider.h.
//
// On an established connection no function here allocates or takes a lock. System calls are made only to wake
// a sleeper, for writes (shm_write.cc), and in the periodic housekeeping of poll().

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "rdma/cycle_clock.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload {
namespace {

/// Housekeeping looks at the clock once in so many polls. Where processes outnumber cores, a turn of the
/// others is longer than housekeeping's period: one poll in each turn must not make a system call.
constexpr std::uint32_t kIdlePollsPerClock = 32;
constexpr std::uint32_t kBusyPollsPerClock = 256;

/// clock_due_ counts polls in its lower half, and in its upper half those that were not idle.
constexpr std::uint32_t kClockMask = 0xFFFF;
constexpr std::uint32_t kBusyPoll = kClockMask + 2;

/// consume() returns space at the end of a batch, and within it after so many bytes.
constexpr std::size_t kReleaseBytes = kFirstWindowBytes / 4;

}  // namespace

Status ShmProvider::register_memory(void* address, std::size_t length_bytes, Access,
                                    MemoryRegion& region) noexcept {
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{}, 0};
  return Status::kOk;  // The kernel checks every access of process_vm_writev itself.
}

void ShmProvider::deregister_memory(MemoryRegion& region) noexcept { region = {}; }

Status ShmProvider::reserve(Endpoint& endpoint, std::size_t length_bytes,
                            std::span<std::byte>& slot) noexcept {
  ShmEndpoint& peer = of(endpoint);
  if (peer.sending != Status::kOk) [[unlikely]]
    return peer.sending;
  assert(length_bytes >= 1 && length_bytes <= capabilities_.max_slot_bytes);
  if (ch3_offload_lane_travels(&peer.out.lane(), length_bytes)) {
    peer.slot = ShmEndpoint::Slot::kTravelling;
    slot = {reinterpret_cast<std::byte*>(peer.out.lane().travelling) + kRecordHeaderBytes, length_bytes};
    return Status::kOk;
  }
  const bool in_chunk = length_bytes >= kLeastChunkMessage && peer.chunks.any();
  peer.slot = in_chunk ? ShmEndpoint::Slot::kChunk : ShmEndpoint::Slot::kRing;
  const std::size_t payload_bytes = in_chunk ? sizeof(ChunkRecord) : length_bytes;
  if (!find_room(peer, payload_bytes)) [[unlikely]] {
    if (const Status status = no_room(peer, payload_bytes); status != Status::kOk) return status;
  }
  slot = {in_chunk ? peer.chunks.next() : peer.out.payload(), length_bytes};
  return Status::kOk;
}

void ShmProvider::commit(Endpoint& endpoint, std::size_t length_bytes) noexcept {
  assert(length_bytes >= 1);
  ShmEndpoint& peer = of(endpoint);
  switch (peer.slot) {
    case ShmEndpoint::Slot::kRing: return publish(peer, RecordKind::kMessage, length_bytes);
    case ShmEndpoint::Slot::kChunk: return publish_chunk(peer, length_bytes);
    case ShmEndpoint::Slot::kTravelling:
      ch3_offload_lane_pass(&peer.out.lane(), length_bytes);
      return tell(peer);
  }
}

void ShmProvider::publish_chunk(ShmEndpoint& peer, std::size_t length_bytes) noexcept {
  const ChunkRecord record = peer.chunks.pass(length_bytes);
  std::memcpy(peer.out.payload(), &record, sizeof record);
  publish(peer, RecordKind::kChunk, sizeof record);
}

/// Whether a payload of this length fits now. The window grows if the ring streams and there is memory.
bool ShmProvider::find_room(ShmEndpoint& peer, std::size_t payload_bytes) noexcept {
  if (peer.out.has_room_known(payload_bytes)) [[likely]]
    return true;
  if (peer.out.is_at_end(payload_bytes) && peer.laps.is_fast(CycleClock::now(), peer.out.window_bytes()))
    widen(peer, peer.out.whole_ring());
  return peer.out.has_room(payload_bytes) ||
         (widen(peer, peer.out.window_wanted(payload_bytes)) && peer.out.has_room(payload_bytes));
}

/// Lets the window of the peer's ring grow. Returns false if it has that size, or if there is no memory.
bool ShmProvider::widen(ShmEndpoint& peer, std::size_t wanted_bytes) noexcept {
  const std::size_t window_bytes = peer.out.window_bytes();
  const std::size_t granted_bytes = memory_.grant(window_bytes, wanted_bytes);
  if (granted_bytes == window_bytes) return false;
  // A ring grows a few times in its life. The faults of its new pages would cost more than this call.
  if (!peer.out_memory.populate(kRingOffset + window_bytes, granted_bytes - window_bytes)) {
    memory_.ungrant(window_bytes, granted_bytes);
    return false;
  }
  peer.out.grow(granted_bytes);
  return true;
}

void ShmProvider::publish(ShmEndpoint& peer, RecordKind kind, std::size_t payload_bytes) noexcept {
  peer.out.publish(kind, payload_bytes);
  tell(peer);
}

/// Tells a peer of a published record, as the peer's doorbell asks for: "The sleep rule". No other function
/// rings. ch3_offload_lane_publish() does the same, but for the byte on the socket.
void ShmProvider::tell(ShmEndpoint& peer) noexcept {
  const std::uint64_t state = peer.doorbell.state();
  if ((state & (DoorbellWord::kSleeps | DoorbellWord::kWantsBits)) == 0) [[likely]]
    return;
  if ((state & DoorbellWord::kWantsBits) != 0) peer.activity.mark();
  if (peer.doorbell.must_ring(state)) wake_receiver(peer);
}

/// If the peer has closed the connection and this process has not accepted the other one, send_welcome()
/// calls this function again.
void ShmProvider::wake_receiver(const ShmEndpoint& peer) noexcept {
  if (peer.out_socket.valid() && send_wake_byte(peer.out_socket)) return;
  if (peer.in_socket.valid() && !peer.welcome_due) send_wake_byte(peer.in_socket);
}

ch3_offload_lane_t* ShmProvider::lane(Endpoint& endpoint) noexcept { return &of(endpoint).out.lane(); }

void ShmProvider::nudge(Endpoint& endpoint) noexcept {
  tell(of(endpoint));
  // Each message to a peer whose doorbell is not known comes here, so let the next poll look for the Welcome.
  if (!of(endpoint).doorbell.known()) clock_due_ = kBusyPollsPerClock;
}

/// Notes in blocked_, for arm(), that the caller waits for room. Returns kAgain, or kOk if there is room now.
Status ShmProvider::no_room(ShmEndpoint& peer, std::size_t payload_bytes) noexcept {
  // During a sleep, blocked_ is read only after a wake-up. So ask for the wake-up now: "The sleep rule".
  if (armed_ && !peer.out.broken()) {
    peer.out.announce_waiting();
    if (peer.out.has_room_for_sure(payload_bytes) && peer.out.has_room(payload_bytes)) return Status::kOk;
  }
  if (peer.out.broken()) start_dying(peer, Status::kProtocol);
  peer.wanted_bytes = payload_bytes;
  if (!peer.in_blocked) {
    peer.in_blocked = true;
    peer.next_blocked = blocked_;
    blocked_ = &peer;
  }
  return Status::kAgain;
}

std::size_t ShmProvider::poll(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  if (held_ != nullptr) [[unlikely]]
    release_held();
  if (writes_done_begin_ != writes_done_end_) delivered += deliver_write_done(sink, budget);
  if (sharing_ != nullptr) [[unlikely]]
    delivered += deliver_shared_done(sink, budget - std::min(budget, delivered));
  if (dying_ != nullptr) [[unlikely]]
    delivered += deliver_deaths(sink, budget - std::min(budget, delivered));
  // A held message is the last: from here on, nothing else is delivered.
  if (held_ == nullptr) [[likely]]
    delivered += poll_rings(sink, budget - std::min(budget, delivered));

  if (armed_) [[unlikely]] {
    // "The sleep rule": keep_house() may read a wake-up, which uses up all announcements. So announce again,
    // and look at all rings and at the room that blocked senders wait for.
    if (keep_house()) {
      doorbell_.announce_sleep();
      if (found_while_armed()) ++delivered;
    }
    if (delivered < budget) delivered += poll_all_rings(sink, budget - delivered);
    if (held_ == nullptr && dying_ != nullptr && delivered < budget)
      delivered += deliver_deaths(sink, budget - delivered);
    // keep_house() may have read the alarm that was set for what is left now. The sleeper must not miss it.
    if (held_ != nullptr || dying_ != nullptr || writes_done_begin_ != writes_done_end_)
      wake_sleeper(true);
    else if (is_short_ || !connecting_.empty())
      wake_sleeper(false);
    return delivered;
  }
  clock_due_ += delivered == 0 ? kBusyPollsPerClock / kIdlePollsPerClock : kBusyPoll;
  if ((clock_due_ & kClockMask) >= kBusyPollsPerClock) [[unlikely]] {
    const bool was_idle = clock_due_ <= kClockMask;
    clock_due_ = 0;
    const std::uint64_t now = CycleClock::now();
    // A process that waits for longer, as for the first message of a peer, looks at its sockets more often.
    if (now - last_housekeeping_ >=
        (was_idle ? CycleClock::kAbout2Microseconds : CycleClock::kAbout20Microseconds)) [[unlikely]] {
      last_housekeeping_ = now;
      static_cast<void>(keep_house());
    }
  }
  return delivered;
}

/// Polls the ring that had the last record, then the others, or those whose bits are set.
std::size_t ShmProvider::poll_rings(Sink& sink, std::size_t budget) noexcept {
  const std::size_t count = inbound_.size();
  if (count == 0 || budget == 0) return 0;
  std::size_t delivered = 0;
  Inbound& hit = inbound_[last_hit_];
  if (hit.ring.header() != 0) {
    delivered = take_records(last_hit_, sink, budget);
    if (held_ != nullptr) return delivered;
    if (delivered >= budget) {  // It may never be empty, so start with another ring the next time.
      last_hit_ = last_hit_ + 1 < count ? last_hit_ + 1 : 0;
      return delivered;
    }
  } else if (const auto message = hit.travelling.message(hit.ring.position(), std::memory_order_acquire);
             !message.empty()) {
    delivered = 1;  // The next is looked for by the next poll: mostly there is none yet.
    if (!deliver_travelled(hit, message, sink)) return delivered;
  }
  if (doorbell_.wants_bits()) [[unlikely]]
    return delivered + poll_by_bits(sink, budget - delivered);
  for (std::size_t i = 1; i < count && delivered < budget; ++i) {
    next_polled_ = next_polled_ + 1 < count ? next_polled_ + 1 : 0;
    if (!inbound_[next_polled_].has_record()) continue;
    last_hit_ = next_polled_;
    delivered += take_records(next_polled_, sink, budget - delivered);
    if (held_ != nullptr) break;
  }
  return delivered;
}

/// Polls the rings that peers have told of, and one in turn: activity.h, "Trust".
std::size_t ShmProvider::poll_by_bits(Sink& sink, std::size_t budget) noexcept {
  const std::size_t count = inbound_.size();
  for (std::size_t word = 0; word < words_of_bits(); ++word)
    pending_[word] |= activity_.take(word, last_hit_in(word));
  next_polled_ = next_polled_ + 1 < count ? next_polled_ + 1 : 0;
  look_later_at(next_polled_);
  std::size_t delivered = 0;
  while (delivered < budget && held_ == nullptr) {
    const std::size_t index = next_pending();
    if (index == SIZE_MAX) break;
    const std::size_t taken = take_records(index, sink, budget - delivered);
    if (taken != 0) last_hit_ = index;
    delivered += taken;
  }
  return delivered;
}

/// Delivers records of one ring. If some may be left, the ring is looked at later.
std::size_t ShmProvider::take_records(std::size_t index, Sink& sink, std::size_t budget) noexcept {
  const std::size_t delivered = consume(inbound_[index], sink, budget);
  if (delivered >= budget || held_ != nullptr) look_later_at(index);
  return delivered;
}

/// The bit of the ring that each poll begins with, if it is in this word. It is not cleared, because nobody
/// need tell of that ring.
std::uint64_t ShmProvider::last_hit_in(std::size_t word) const noexcept {
  return last_hit_ / kBitsPerWord == word ? std::uint64_t{1} << last_hit_ % kBitsPerWord : 0;
}

void ShmProvider::look_later_at(std::size_t index) noexcept {
  pending_[index / kBitsPerWord] |= std::uint64_t{1} << index % kBitsPerWord;
}

/// Removes a ring from pending_, in turn, and returns its index. SIZE_MAX: there is none.
std::size_t ShmProvider::next_pending() noexcept {
  const std::size_t words = words_of_bits();
  std::size_t word = next_pending_ / kBitsPerWord;
  std::uint64_t bits = pending_[word] & ~std::uint64_t{0} << next_pending_ % kBitsPerWord;
  for (std::size_t i = 0; i <= words; ++i) {
    while (bits != 0) {
      const std::size_t index = word * kBitsPerWord + static_cast<std::size_t>(std::countr_zero(bits));
      bits &= bits - 1;
      pending_[word] &= ~(std::uint64_t{1} << index % kBitsPerWord);
      if (index >= inbound_.size()) continue;  // A peer has set a bit that nobody has.
      next_pending_ = index + 1 < inbound_.size() ? index + 1 : 0;
      return index;
    }
    word = word + 1 < words ? word + 1 : 0;
    bits = pending_[word];
  }
  return SIZE_MAX;
}

std::size_t ShmProvider::poll_all_rings(Sink& sink, std::size_t budget) noexcept {
  std::size_t delivered = 0;
  for (std::size_t i = 0; i < inbound_.size() && delivered < budget && held_ == nullptr; ++i)
    if (inbound_[i].has_record(std::memory_order_seq_cst))
      delivered += take_records(i, sink, budget - delivered);
  return delivered;
}

/// Tells the sender that there is room. Before the Welcome is sent, nothing else may be sent; send_welcome()
/// then calls this function.
void ShmProvider::wake_sender(const ShmEndpoint& peer) noexcept {
  if (!peer.welcome_due) send_wake_byte(peer.watched_socket());
}

/// The message in a record that travels was read: this process sends the next one there.
void ShmProvider::take_travelling(Inbound& inbound, std::span<const std::byte> message) noexcept {
  std::byte* const record = inbound.travelling.take(message);
  ShmEndpoint& peer = *inbound.peer;
  peer.is_met = true;
  if (peer.out.attached())
    give_travelling(peer.out.lane(), record);
  else
    peer.travelling[peer.travelling[0] == nullptr ? 0 : 1] = record;
}

/// Returns false if the Sink holds it.
bool ShmProvider::deliver_travelled(Inbound& inbound, std::span<const std::byte> message,
                                    Sink& sink) noexcept {
  if (sink.on_message(inbound.peer->id, message) == Delivery::kHeld) {
    held_ = inbound.peer;
    held_chunk_ = kInTravelling;
    held_travelling_ = message;
    return false;
  }
  take_travelling(inbound, message);
  return true;
}

/// The message that a kChunk record names, and its chunk. Empty: the peer violates the protocol.
std::span<const std::byte> ShmProvider::in_chunk(const ShmEndpoint& peer, std::span<const std::byte> payload,
                                                 std::uint32_t& chunk) noexcept {
  ChunkRecord record;
  std::memcpy(&record, payload.data(), sizeof record);
  chunk = record.chunk;
  return peer.chunks.message(record);
}

/// Delivers at most `budget` records of one ring.
std::size_t ShmProvider::consume(Inbound& inbound, Sink& sink, std::size_t budget) noexcept {
  RingConsumer& ring = inbound.ring;
  if (!ring.attached()) [[unlikely]]
    return 0;
  ShmEndpoint& peer = *inbound.peer;
  std::size_t left = budget;
  if (peer.reason == Status::kProtocol) [[unlikely]]
    return 0;
  for (; left > 0; --left) {
    // Loaded once: the peer may change it. The ring's bit may have been cleared before: "The sleep rule".
    const std::uint64_t header = ring.attached_header(std::memory_order_seq_cst);
    const auto travelled = inbound.travelling.message(ring.position(), std::memory_order_seq_cst);
    if (!travelled.empty()) {
      if (!deliver_travelled(inbound, travelled, sink)) return budget - left + 1;
      continue;
    }
    RingConsumer::Record record;
    if (!ring.parse(header, record)) [[unlikely]] {
      if (header == 0) break;
      if (!ring.is_skip(header)) {
        start_dying(peer, Status::kProtocol);
        break;
      }
      ring.skip();  // No skip follows it. What travels may be next.
      ++left;
      continue;
    }
    ring.fetch_next(record);
    if (record.kind == RecordKind::kMessage || record.kind == RecordKind::kChunk) {
      std::uint32_t chunk = kInRing;
      const std::span<const std::byte> message =
          record.kind == RecordKind::kMessage ? record.payload : in_chunk(peer, record.payload, chunk);
      if (message.empty()) [[unlikely]] {
        start_dying(peer, Status::kProtocol);
        break;
      }
      if (sink.on_message(peer.id, message) == Delivery::kHeld) {
        ring.advance(record);
        held_ = &peer;
        held_chunk_ = chunk;
        return budget - left + 1;
      }
      if (chunk != kInRing) peer.chunks.give(chunk);
    } else if (record.kind == RecordKind::kWrite) {
      WriteRecord write;
      std::memcpy(&write, record.payload.data(), sizeof write);
      sink.on_write_arrived(peer.id, Immediate{write.immediate}, write.length_bytes);
    } else {
      SharedWriteRecord offer;
      std::memcpy(&offer, record.payload.data(), sizeof offer);
      if (offer.front_bytes >= offer.length_bytes) {
        start_dying(peer, Status::kProtocol);
        break;
      }
      take_back(peer, ring, record, offer, sink);
      if (ring.release_and_look()) wake_sender(peer);
      continue;
    }
    ring.advance(record);
    if (ring.unreleased_bytes() >= kReleaseBytes && ring.release()) wake_sender(peer);
  }
  if (ring.unreleased_bytes() != 0 && ring.release()) wake_sender(peer);
  return budget - left;
}

/// The Sink has read the message that it held: its space goes back to the sender.
void ShmProvider::release_held() noexcept {
  ShmEndpoint& peer = *std::exchange(held_, nullptr);
  const std::uint32_t chunk = std::exchange(held_chunk_, kInRing);
  if (chunk == kInTravelling)
    take_travelling(inbound_[peer.inbound], held_travelling_);
  else if (chunk != kInRing)
    peer.chunks.give(chunk);
  if (peer.in_memory.valid() && inbound_[peer.inbound].ring.release()) wake_sender(peer);
}

bool ShmProvider::may_have_work() noexcept {
  if (writes_done_begin_ != writes_done_end_ || dying_ != nullptr || held_ != nullptr) return true;
  if (shared_write_ended(false)) return true;
  if (!doorbell_.wants_bits())
    return std::ranges::any_of(inbound_, [](const Inbound& each) { return each.has_record(); });
  if (inbound_[last_hit_].has_record()) return true;
  for (std::size_t word = 0; word < words_of_bits(); ++word)
    if (pending_[word] != 0 || activity_.any(word, last_hit_in(word))) return true;
  return false;
}

bool ShmProvider::arm() noexcept {
  armed_ = true;
  doorbell_.announce_sleep();  // "The sleep rule": announce, then look at all rings.
  if (writes_done_begin_ != writes_done_end_ || dying_ != nullptr || !connecting_.empty()) return false;
  for (const Inbound& inbound : inbound_)
    if (inbound.has_record(std::memory_order_seq_cst)) return false;
  return !found_while_armed();
}

/// Each of the two has an effect.
bool ShmProvider::found_while_armed() noexcept {
  const bool has_ended = shared_write_ended(true);
  return blocked_peer_has_room() || has_ended;
}

/// Asks the consumers of all full rings for a wake-up. Returns true if one of the rings has room now. Visits
/// all rings even then, because the caller may be another thread than the sleeper, which goes on sleeping.
bool ShmProvider::blocked_peer_has_room() noexcept {
  bool found = false;
  for (ShmEndpoint** link = &blocked_; *link != nullptr;) {
    ShmEndpoint& peer = **link;
    bool waits = !peer.down && !peer.dying;
    if (waits) {
      peer.out.announce_waiting();
      if (peer.out.has_room_for_sure(peer.wanted_bytes)) waits = false;
    }
    if (waits) {
      link = &peer.next_blocked;
      continue;
    }
    *link = peer.next_blocked;
    peer.in_blocked = false;
    found |= !peer.down && !peer.dying;
  }
  return found;
}

void ShmProvider::disarm() noexcept {
  if (!armed_) return;
  armed_ = false;
  doorbell_.announce_awake();
  last_housekeeping_ = 0;  // Housekeeping is due: the wake-up may have been for a socket.
  clock_due_ = kBusyPollsPerClock;
}

}  // namespace ch3_offload
