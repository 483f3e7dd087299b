// The C interface: converts types and calls Channel and Port. No logic.

#include <cstddef>
#include <cstdio>
#include <exception>

#include "ch3_offload/channel.h"
#include "dme/memory_events.h"

using namespace ch3_offload;

namespace {

Channel& of(ch3_offload_channel_t* channel) noexcept { return *reinterpret_cast<Channel*>(channel); }
const Channel& of(const ch3_offload_channel_t* channel) noexcept {
  return *reinterpret_cast<const Channel*>(channel);
}

// The layouts are the same struct of two C function pointers; only the pointee types differ.
static_assert(sizeof(PayloadLayout) == sizeof(ch3_offload_layout_t));

Payload from_c(const ch3_offload_payload_t& payload) noexcept {
  return {static_cast<std::byte*>(payload.address), payload.length_bytes,
          reinterpret_cast<const PayloadLayout*>(payload.layout)};
}

static_assert(sizeof(MatchPattern) == sizeof(ch3_offload_pattern_t) &&
              offsetof(MatchPattern, ignore) == offsetof(ch3_offload_pattern_t, ignore));

static_assert(static_cast<int>(Event::Kind::kSendDone) == CH3_OFFLOAD_SEND_DONE &&
              static_cast<int>(Event::Kind::kReceiveDone) == CH3_OFFLOAD_RECEIVE_DONE &&
              static_cast<int>(Event::Kind::kCancelDone) == CH3_OFFLOAD_CANCEL_DONE &&
              static_cast<int>(Event::Kind::kPacket) == CH3_OFFLOAD_PACKET &&
              static_cast<int>(Event::Kind::kPacketOffer) == CH3_OFFLOAD_PACKET_OFFER &&
              static_cast<int>(Event::Kind::kPacketPlaced) == CH3_OFFLOAD_PACKET_PLACED &&
              static_cast<int>(Event::Kind::kPeerFailed) == CH3_OFFLOAD_PEER_DOWN &&
              static_cast<int>(Event::Kind::kCardWanted) == CH3_OFFLOAD_CARD_WANTED &&
              static_cast<int>(Event::Kind::kWarning) == CH3_OFFLOAD_WARNING);

int to_c(Status status) noexcept {
  switch (status) {
    case Status::kOk: return CH3_OFFLOAD_OK;
    case Status::kTruncated: return CH3_OFFLOAD_TRUNCATED;
    case Status::kPeerFailed: return CH3_OFFLOAD_PEER_FAILED;
    case Status::kUnreachable: return CH3_OFFLOAD_UNREACHABLE;
    case Status::kProtocol: return CH3_OFFLOAD_PROTOCOL;
    case Status::kNoMemory: return CH3_OFFLOAD_NO_MEMORY;
    case Status::kRevoked: return CH3_OFFLOAD_REVOKED;
    default: return CH3_OFFLOAD_FAILED;
  }
}

ch3_offload_envelope_t to_c(const Envelope& envelope) noexcept {
  return {raw(envelope.bits), envelope.length_bytes, to_c(envelope.status)};
}

int to_c(Progressed progressed) noexcept {
  switch (progressed) {
    case Progressed::kDone: return CH3_OFFLOAD_DONE;
    case Progressed::kPending: return CH3_OFFLOAD_PENDING;
    case Progressed::kFailed: break;
  }
  return CH3_OFFLOAD_ERROR;
}

}  // namespace

extern "C" {

int ch3_offload_create(const ch3_offload_config_t* config, ch3_offload_channel_t** channel, char* message,
                       size_t capacity_bytes) {
  *channel = nullptr;
  if (ch3_offload_config_check(config, message, capacity_bytes) != 0) return 1;
  try {
    auto made = Channel::create(*config);
    if (!made.ok()) {
      std::snprintf(message, capacity_bytes, "%s", made.error().message.c_str());
      return 1;
    }
    *channel = reinterpret_cast<ch3_offload_channel_t*>(made.value().release());
    return 0;
  } catch (const std::exception& exception) {
    std::snprintf(message, capacity_bytes, "out of memory (%s)", exception.what());
    return 1;
  }
}

void ch3_offload_destroy(ch3_offload_channel_t* channel) { delete &of(channel); }

const char* ch3_offload_card(const ch3_offload_channel_t* channel) { return of(channel).card().c_str(); }

int ch3_offload_send(ch3_offload_channel_t* channel, uint32_t peer, int mode, uint64_t bits,
                     const ch3_offload_payload_t* payload, uint32_t send_id, void* cookie,
                     uint64_t* operation, int* status) {
  constexpr SendMode kModes[] = {SendMode::kStandard, SendMode::kSynchronous, SendMode::kReady};
  OperationId id;
  Status result;
  const Progressed progressed = of(channel).port().send(
      PeerId{peer}, kModes[mode], MatchBits{bits}, from_c(*payload), send_id, cookie, id, result);
  *operation = static_cast<uint64_t>(id);
  *status = to_c(result);
  of(channel).commanded();
  return to_c(progressed);
}

ch3_offload_lane_t* ch3_offload_lane(ch3_offload_channel_t* channel, uint32_t peer) {
  return of(channel).port().lane(PeerId{peer});
}

void ch3_offload_nudge(ch3_offload_channel_t* channel, uint32_t peer) { of(channel).port().nudge(PeerId{peer}); }

int ch3_offload_send_packet(ch3_offload_channel_t* channel, uint32_t peer, const void* header,
                            size_t header_bytes, const struct iovec* iov, size_t iov_count, void* cookie,
                            int* status) {
  constexpr size_t kMostParts = 16;
  if (iov_count > kMostParts) {
    *status = CH3_OFFLOAD_FAILED;
    return CH3_OFFLOAD_ERROR;
  }
  Payload parts[kMostParts];
  for (size_t i = 0; i < iov_count; ++i) {
    parts[i] = {static_cast<std::byte*>(iov[i].iov_base), iov[i].iov_len, nullptr};
  }
  Status result;
  const Progressed progressed = of(channel).port().send_packet(
      PeerId{peer}, {static_cast<const std::byte*>(header), header_bytes}, {parts, iov_count}, cookie,
      result);
  *status = to_c(result);
  of(channel).commanded();
  return to_c(progressed);
}

int ch3_offload_post_receive(ch3_offload_channel_t* channel, uint64_t bits, uint64_t ignore,
                             const ch3_offload_payload_t* payload, void* cookie, uint64_t* operation,
                             ch3_offload_envelope_t* envelope) {
  OperationId id;
  Envelope result;
  const Progressed progressed = of(channel).port().post_receive(
      MatchBits{bits}, MatchBits{ignore}, from_c(*payload), cookie, id, result);
  *operation = static_cast<uint64_t>(id);
  of(channel).commanded();
  if (progressed != Progressed::kPending) *envelope = to_c(result);
  return to_c(progressed);
}

int ch3_offload_probe(ch3_offload_channel_t* channel, uint64_t bits, uint64_t ignore,
                      ch3_offload_envelope_t* envelope) {
  Envelope result;
  if (!of(channel).port().probe(MatchBits{bits}, MatchBits{ignore}, result)) return 0;
  *envelope = to_c(result);
  return 1;
}

int ch3_offload_matched_probe(ch3_offload_channel_t* channel, uint64_t bits, uint64_t ignore,
                              uint64_t* message, ch3_offload_envelope_t* envelope) {
  Envelope result;
  MessageId id;
  if (!of(channel).port().matched_probe(MatchBits{bits}, MatchBits{ignore}, id, result)) return 0;
  *message = static_cast<uint64_t>(id);
  *envelope = to_c(result);
  return 1;
}

int ch3_offload_receive_matched(ch3_offload_channel_t* channel, uint64_t message,
                                const ch3_offload_payload_t* payload, void* cookie,
                                ch3_offload_envelope_t* envelope) {
  Envelope result;
  const Progressed progressed =
      of(channel).port().receive_matched(MessageId{message}, from_c(*payload), cookie, result);
  of(channel).commanded();
  if (progressed != Progressed::kPending) *envelope = to_c(result);
  return to_c(progressed);
}

int ch3_offload_cancel_receive(ch3_offload_channel_t* channel, uint64_t operation) {
  return of(channel).port().cancel_receive(OperationId{operation}) ? 1 : 0;
}

int ch3_offload_cancel_send(ch3_offload_channel_t* channel, uint64_t operation, uint32_t peer,
                            uint64_t bits, uint32_t send_id, void* cookie) {
  const Progressed progressed = of(channel).port().cancel_send(OperationId{operation}, PeerId{peer},
                                                                 MatchBits{bits}, send_id, cookie);
  of(channel).commanded();
  return to_c(progressed);
}

void ch3_offload_purge(ch3_offload_channel_t* channel, int scope, const ch3_offload_pattern_t* doomed,
                       size_t doomed_count, const ch3_offload_pattern_t* spared, size_t spared_count, int status) {
  constexpr PurgeScope kScopes[] = {PurgeScope::kAll, PurgeScope::kReceivesFromOne, PurgeScope::kReceivesFromAny};
  of(channel).port().purge(kScopes[scope], {reinterpret_cast<const MatchPattern*>(doomed), doomed_count},
                           {reinterpret_cast<const MatchPattern*>(spared), spared_count},
                           status == CH3_OFFLOAD_PEER_FAILED ? Status::kPeerFailed : Status::kRevoked);
  of(channel).commanded();
}

void ch3_offload_introduce(ch3_offload_channel_t* channel, uint32_t peer, const char* card) {
  of(channel).port().introduce(PeerId{peer}, card);
  of(channel).commanded();
}

void ch3_offload_place_packet(ch3_offload_channel_t* channel, uint32_t peer, void* address, size_t capacity_bytes) {
  of(channel).port().place_packet(PeerId{peer}, {static_cast<std::byte*>(address), capacity_bytes, nullptr});
  of(channel).commanded();
}

int ch3_offload_next_event(ch3_offload_channel_t* channel, ch3_offload_event_t* out) {
  Event event;
  if (!of(channel).next_event(event)) return 0;
  *out = {static_cast<int>(event.kind), to_c(event.status), event.is_cancelled ? 1 : 0, index_of(event.peer),
          event.cookie, raw(event.bits), event.length_bytes, event.bytes};
  return 1;
}

size_t ch3_offload_progress(ch3_offload_channel_t* channel) { return of(channel).progress(); }

int ch3_offload_idle(const ch3_offload_channel_t* channel) { return of(channel).port().idle() ? 1 : 0; }

void ch3_offload_fail_peer(ch3_offload_channel_t* channel, uint32_t peer) {
  of(channel).port().fail_peer(PeerId{peer});
  of(channel).commanded();
}

void ch3_offload_close_peer(ch3_offload_channel_t* channel, uint32_t peer) {
  of(channel).port().close_peer(PeerId{peer});
}

void ch3_offload_wait_begin(ch3_offload_channel_t* channel) { of(channel).wait_begin(); }
int ch3_offload_wait_step(ch3_offload_channel_t* channel) {
  switch (of(channel).next_step()) {
    case WaitPolicy::Step::kYield: return CH3_OFFLOAD_YIELD;
    case WaitPolicy::Step::kSleep: return CH3_OFFLOAD_SLEEP;
    case WaitPolicy::Step::kPoll: break;
  }
  return CH3_OFFLOAD_POLL;
}
int ch3_offload_may_have_work(ch3_offload_channel_t* channel) { return of(channel).may_have_work() ? 1 : 0; }
int ch3_offload_is_crowded(const ch3_offload_channel_t* channel) { return of(channel).is_crowded() ? 1 : 0; }
void ch3_offload_sleep(ch3_offload_channel_t* channel, int timeout_ms) { of(channel).sleep(timeout_ms); }
void ch3_offload_awake(ch3_offload_channel_t* channel) { of(channel).awake(); }
void ch3_offload_wake(ch3_offload_channel_t* channel) { of(channel).wake(); }

int ch3_offload_trace_write(ch3_offload_channel_t* channel) { return of(channel).write_trace(); }

void* ch3_offload_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address) {
  return ch3_offload::MemoryEvents::remap(address, old_bytes, new_bytes, flags, new_address);
}

}  // extern "C"
