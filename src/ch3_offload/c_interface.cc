// The C interface: converts types and calls Channel and Engine. No logic.

#include <cstdio>
#include <exception>

#include "ch3_offload/channel.h"
#include "dme/memory_events.h"

using ch3_offload::Cookie;
using ch3_offload::Engine;
using ch3_offload::Envelope;
using ch3_offload::MatchBits;
using ch3_offload::MessageId;
using ch3_offload::OperationId;
using ch3_offload::Payload;
using ch3_offload::PayloadLayout;
using ch3_offload::PeerId;
using ch3_offload::Channel;
using ch3_offload::Progressed;
using ch3_offload::SendMode;
using ch3_offload::Status;
using ch3_offload::WaitPolicy;

namespace {

Channel& of(ch3_offload_channel_t *channel) noexcept { return *reinterpret_cast<Channel*>(channel); }
const Channel& of(const ch3_offload_channel_t *channel) noexcept {
  return *reinterpret_cast<const Channel*>(channel);
}

// The layouts are the same struct of two C function pointers; only the pointee types differ.
static_assert(sizeof(PayloadLayout) == sizeof(ch3_offload_layout_t));

Payload from_c(const ch3_offload_payload_t& payload) noexcept {
  return {static_cast<std::byte*>(payload.address), payload.length_bytes,
          reinterpret_cast<const PayloadLayout*>(payload.layout)};
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

int ch3_offload_create(const ch3_offload_config_t* config, const ch3_offload_callbacks_t* callbacks,
                       void* user, ch3_offload_channel_t** channel, char* message,
                       size_t capacity_bytes) {
  *channel = nullptr;
  if (ch3_offload_config_check(config, message, capacity_bytes) != 0) return 1;
  if (callbacks->size_bytes != sizeof *callbacks) {
    std::snprintf(message, capacity_bytes, "the callbacks are of another version of libch3offload");
    return 1;
  }
  try {
    auto made = Channel::create(*config, *callbacks, user);
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

void ch3_offload_destroy(ch3_offload_channel_t *channel) { delete &of(channel); }

const char* ch3_offload_card(const ch3_offload_channel_t *channel) { return of(channel).card().c_str(); }

int ch3_offload_send(ch3_offload_channel_t *channel, uint32_t peer, int mode, uint64_t bits,
                     const ch3_offload_payload_t* payload, uint32_t send_id, void* cookie,
                     uint64_t* operation, int* status) {
  constexpr SendMode kModes[] = {SendMode::kStandard, SendMode::kSynchronous, SendMode::kReady};
  OperationId id;
  Status result;
  const Progressed progressed = of(channel).engine().send(
      PeerId{peer}, kModes[mode], MatchBits{bits}, from_c(*payload), send_id, cookie, id, result);
  *operation = static_cast<uint64_t>(id);
  *status = ch3_offload::to_c(result);
  of(channel).commanded();
  return to_c(progressed);
}

int ch3_offload_send_packet(ch3_offload_channel_t *channel, uint32_t peer, const void* header,
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
  const Progressed progressed = of(channel).engine().send_packet(
      PeerId{peer}, {static_cast<const std::byte*>(header), header_bytes}, {parts, iov_count}, cookie,
      result);
  *status = ch3_offload::to_c(result);
  of(channel).commanded();
  return to_c(progressed);
}

int ch3_offload_post_receive(ch3_offload_channel_t *channel, uint64_t bits, uint64_t ignore,
                             const ch3_offload_payload_t* payload, void* cookie, uint64_t* operation,
                             ch3_offload_envelope_t* envelope) {
  OperationId id;
  Envelope result;
  const Progressed progressed = of(channel).engine().post_receive(
      MatchBits{bits}, MatchBits{ignore}, from_c(*payload), cookie, id, result);
  *operation = static_cast<uint64_t>(id);
  of(channel).commanded();
  if (progressed != Progressed::kPending) *envelope = ch3_offload::to_c(result);
  return to_c(progressed);
}

int ch3_offload_probe(ch3_offload_channel_t *channel, uint64_t bits, uint64_t ignore,
                      ch3_offload_envelope_t* envelope) {
  Envelope result;
  if (!of(channel).engine().probe(MatchBits{bits}, MatchBits{ignore}, result)) return 0;
  *envelope = ch3_offload::to_c(result);
  return 1;
}

int ch3_offload_matched_probe(ch3_offload_channel_t *channel, uint64_t bits, uint64_t ignore,
                              uint64_t* message, ch3_offload_envelope_t* envelope) {
  Envelope result;
  MessageId id;
  if (!of(channel).engine().matched_probe(MatchBits{bits}, MatchBits{ignore}, id, result)) return 0;
  *message = static_cast<uint64_t>(id);
  *envelope = ch3_offload::to_c(result);
  return 1;
}

int ch3_offload_receive_matched(ch3_offload_channel_t *channel, uint64_t message,
                                const ch3_offload_payload_t* payload, void* cookie,
                                ch3_offload_envelope_t* envelope) {
  Envelope result;
  const Progressed progressed =
      of(channel).engine().receive_matched(MessageId{message}, from_c(*payload), cookie, result);
  of(channel).commanded();
  if (progressed != Progressed::kPending) *envelope = ch3_offload::to_c(result);
  return to_c(progressed);
}

int ch3_offload_cancel_receive(ch3_offload_channel_t *channel, uint64_t operation) {
  return of(channel).engine().cancel_receive(OperationId{operation}) ? 1 : 0;
}

int ch3_offload_cancel_send(ch3_offload_channel_t *channel, uint64_t operation, uint32_t peer,
                            uint64_t bits, uint32_t send_id, void* cookie) {
  const Progressed progressed = of(channel).engine().cancel_send(OperationId{operation}, PeerId{peer},
                                                                 MatchBits{bits}, send_id, cookie);
  of(channel).commanded();
  return to_c(progressed);
}

int ch3_offload_offer_external(ch3_offload_channel_t *channel, uint64_t bits, void* cookie, void** receive) {
  return to_c(of(channel).engine().offer_external(MatchBits{bits}, cookie, *receive));
}

void* ch3_offload_withdraw_external(ch3_offload_channel_t *channel, uint64_t bits,
                                    int (*is_wanted)(void* context, void* cookie), void* context) {
  struct Wanted {
    int (*is_wanted)(void*, void*);
    void* context;
  } wanted{is_wanted, context};
  return of(channel).engine().withdraw_external(
      MatchBits{bits},
      [](void* wrapped, Cookie cookie) {
        const auto& asked = *static_cast<Wanted*>(wrapped);
        return asked.is_wanted(asked.context, cookie) != 0;
      },
      &wanted);
}

void ch3_offload_purge(ch3_offload_channel_t *channel, int (*is_doomed)(void* context, uint64_t bits),
                       void (*on_receive)(void* context, void* cookie),
                       void (*on_external)(void* context, void* cookie), void* context) {
  struct Purge {
    int (*is_doomed)(void*, uint64_t);
    void (*on_receive)(void*, void*);
    void (*on_external)(void*, void*);
    void* context;
  } purge{is_doomed, on_receive, on_external, context};
  of(channel).engine().purge(
      [](void* wrapped, MatchBits bits) {
        const auto& asked = *static_cast<Purge*>(wrapped);
        return asked.is_doomed(asked.context, raw(bits)) != 0;
      },
      [](void* wrapped, Cookie cookie) {
        const auto& asked = *static_cast<Purge*>(wrapped);
        asked.on_receive(asked.context, cookie);
      },
      [](void* wrapped, Cookie cookie) {
        const auto& asked = *static_cast<Purge*>(wrapped);
        asked.on_external(asked.context, cookie);
      },
      &purge);
  of(channel).commanded();
}

void ch3_offload_for_each_posted(const ch3_offload_channel_t *channel,
                                 void (*visit)(void* context, uint64_t operation, void* cookie),
                                 void* context) {
  struct Visit {
    void (*visit)(void*, uint64_t, void*);
    void* context;
  } wrapped_visit{visit, context};
  of(channel).engine().for_each_posted(
      [](void* wrapped, OperationId operation, Cookie cookie) {
        const auto& asked = *static_cast<Visit*>(wrapped);
        asked.visit(asked.context, static_cast<uint64_t>(operation), cookie);
      },
      &wrapped_visit);
}

size_t ch3_offload_progress(ch3_offload_channel_t *channel) { return of(channel).progress(); }

int ch3_offload_idle(const ch3_offload_channel_t *channel) { return of(channel).engine().idle() ? 1 : 0; }

void ch3_offload_fail_peer(ch3_offload_channel_t *channel, uint32_t peer) {
  of(channel).engine().fail_peer(PeerId{peer});
  of(channel).commanded();
}

void ch3_offload_close_peer(ch3_offload_channel_t *channel, uint32_t peer) {
  of(channel).engine().close_peer(PeerId{peer});
}

void ch3_offload_wait_begin(ch3_offload_channel_t *channel) { of(channel).wait_begin(); }
int ch3_offload_wait_step(ch3_offload_channel_t *channel) {
  switch (of(channel).next_step()) {
    case WaitPolicy::Step::kYield: return CH3_OFFLOAD_YIELD;
    case WaitPolicy::Step::kSleep: return CH3_OFFLOAD_SLEEP;
    case WaitPolicy::Step::kPoll: break;
  }
  return CH3_OFFLOAD_POLL;
}
int ch3_offload_may_have_work(ch3_offload_channel_t *channel) { return of(channel).may_have_work() ? 1 : 0; }
int ch3_offload_is_crowded(const ch3_offload_channel_t *channel) { return of(channel).is_crowded() ? 1 : 0; }
void ch3_offload_sleep(ch3_offload_channel_t *channel, int timeout_ms) { of(channel).sleep(timeout_ms); }
void ch3_offload_awake(ch3_offload_channel_t *channel) { of(channel).awake(); }
void ch3_offload_wake(ch3_offload_channel_t *channel) { of(channel).wake(); }

int ch3_offload_trace_write(ch3_offload_channel_t *channel) { return of(channel).write_trace(); }

void* ch3_offload_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address) {
  return ch3_offload::MemoryEvents::remap(address, old_bytes, new_bytes, flags, new_address);
}

}  // extern "C"
