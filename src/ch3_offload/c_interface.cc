// The C interface: converts types and calls Channel and Port. No logic.

#include <fcntl.h>

#include <bit>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <vector>

#include "ch3_offload/channel.h"
#include "ch3_offload/nic_choice.h"
#include "ch3_offload/partitions.h"
#include "dme/memory_events.h"
#include "modules/module_message.h"

using namespace ch3_offload;

namespace {

Channel& of(ch3_offload_channel_t* channel) noexcept { return *reinterpret_cast<Channel*>(channel); }
const Channel& of(const ch3_offload_channel_t* channel) noexcept {
  return *reinterpret_cast<const Channel*>(channel);
}

// The types of the two sides are the same bytes; only the names of what they point to differ.
static_assert(sizeof(Piece) == sizeof(ch3_offload_piece_t) &&
              offsetof(Piece, length_bytes) == offsetof(ch3_offload_piece_t, length_bytes));
static_assert(sizeof(PayloadLayout) == sizeof(ch3_offload_layout_t) &&
              offsetof(PayloadLayout, piece_count) == offsetof(ch3_offload_layout_t, piece_count) &&
              offsetof(PayloadLayout, pieces) == offsetof(ch3_offload_layout_t, pieces) &&
              offsetof(PayloadLayout, element_bytes) == offsetof(ch3_offload_layout_t, element_bytes) &&
              offsetof(PayloadLayout, extent_bytes) == offsetof(ch3_offload_layout_t, extent_bytes) &&
              offsetof(PayloadLayout, pack) == offsetof(ch3_offload_layout_t, pack) &&
              offsetof(PayloadLayout, unpack) == offsetof(ch3_offload_layout_t, unpack));
static_assert(static_cast<int>(PayloadLayout::Kind::kPieces) == CH3_OFFLOAD_PIECES &&
              static_cast<int>(PayloadLayout::Kind::kPacked) == CH3_OFFLOAD_PACKED);
static_assert(sizeof(Payload) == sizeof(ch3_offload_payload_t) &&
              offsetof(Payload, length_bytes) == offsetof(ch3_offload_payload_t, length_bytes) &&
              offsetof(Payload, layout) == offsetof(ch3_offload_payload_t, layout));
static_assert(sizeof(MatchKey) == sizeof(ch3_offload_match_t) &&
              offsetof(MatchKey, initiator) == offsetof(ch3_offload_match_t, initiator));
static_assert(sizeof(MatchPattern) == sizeof(ch3_offload_pattern_t) &&
              offsetof(MatchPattern, ignore) == offsetof(ch3_offload_pattern_t, ignore));
static_assert(sizeof(ScheduleStep) == sizeof(ch3_offload_step_t) &&
                  offsetof(ScheduleStep, type) == offsetof(ch3_offload_step_t, type) &&
                  offsetof(ScheduleStep, peer) == offsetof(ch3_offload_step_t, peer) &&
                  offsetof(ScheduleStep, key) == offsetof(ch3_offload_step_t, match) &&
                  offsetof(ScheduleStep, from) == offsetof(ch3_offload_step_t, from) &&
                  offsetof(ScheduleStep, layout) == offsetof(ch3_offload_step_t, layout) &&
                  static_cast<int>(StepKind::kEnd) == CH3_OFFLOAD_STEP_CHECK_COUNT + 1,
              "the steps of a schedule are passed on as they are");
static_assert(sizeof(ModuleHeader) == sizeof(ch3_offload_module_header_t) &&
                  offsetof(ModuleHeader, group) == offsetof(ch3_offload_module_header_t, group) &&
                  offsetof(ModuleHeader, tag) == offsetof(ch3_offload_module_header_t, tag) &&
                  offsetof(ModuleHeader, name) == offsetof(ch3_offload_module_header_t, name) &&
                  sizeof(ModuleOpening) == sizeof(ch3_offload_module_opening_t) &&
                  offsetof(ModuleOpening, peer_count) == offsetof(ch3_offload_module_opening_t, peer_count) &&
                  static_cast<int>(ModuleMessageKind::kData) == CH3_OFFLOAD_MODULE_DATA &&
                  static_cast<int>(ModuleMessageKind::kOpen) == CH3_OFFLOAD_MODULE_OPEN &&
                  static_cast<int>(ModuleMessageKind::kList) == CH3_OFFLOAD_MODULE_LIST,
              "kTrouble is between processors");
static_assert(kProgramKey.bits == CH3_OFFLOAD_MODULE_BITS && kProgramKey.initiator == 0 &&
              kProgramRequestKey.initiator == 1 && kModuleVersion == CH3_OFFLOAD_MODULE_VERSION &&
              kModuleTroubleTag == CH3_OFFLOAD_MODULE_TROUBLE_TAG);
static_assert(sizeof(Envelope) == sizeof(ch3_offload_envelope_t) &&
              offsetof(Envelope, length_bytes) == offsetof(ch3_offload_envelope_t, length_bytes) &&
              offsetof(Envelope, status) == offsetof(ch3_offload_envelope_t, status));

const Payload& from_c(const ch3_offload_payload_t* payload) noexcept {
  return *reinterpret_cast<const Payload*>(payload);
}
MatchKey from_c(ch3_offload_match_t match) noexcept { return {match.bits, match.initiator}; }
Envelope& from_c(ch3_offload_envelope_t* envelope) noexcept { return *reinterpret_cast<Envelope*>(envelope); }

static_assert(static_cast<int>(Status::kOk) == CH3_OFFLOAD_OK &&
              static_cast<int>(Status::kTruncated) == CH3_OFFLOAD_TRUNCATED &&
              static_cast<int>(Status::kNoMemory) == CH3_OFFLOAD_NO_MEMORY &&
              static_cast<int>(Status::kRevoked) == CH3_OFFLOAD_REVOKED &&
              static_cast<int>(Status::kUnreachable) == CH3_OFFLOAD_UNREACHABLE &&
              static_cast<int>(Status::kPeerFailed) == CH3_OFFLOAD_PEER_FAILED &&
              static_cast<int>(Status::kProtocol) == CH3_OFFLOAD_PROTOCOL &&
              static_cast<int>(Status::kDeviceFailed) == CH3_OFFLOAD_FAILED);
int to_c(Status status) noexcept { return static_cast<int>(status); }

static_assert(static_cast<int>(Progressed::kDone) == CH3_OFFLOAD_DONE &&
              static_cast<int>(Progressed::kPending) == CH3_OFFLOAD_PENDING &&
              static_cast<int>(Progressed::kFailed) == CH3_OFFLOAD_ERROR);
int to_c(Progressed progressed) noexcept { return static_cast<int>(progressed); }

/// `use` returns what is wrong, or "". Returns 0 then.
template <class Use>
int with_foreign(ch3_offload_channel_t* channel, char* message, std::size_t capacity_bytes,
                 const Use& use) noexcept {
  try {
    const Result<ForeignProcesses*> foreign = of(channel).foreign();
    const std::string wrong = foreign.ok() ? std::string(use(*foreign.value())) : foreign.error().message;
    std::snprintf(message, capacity_bytes, "%s", wrong.c_str());
    return wrong.empty() ? 0 : 1;
  } catch (const std::exception& exception) {
    std::snprintf(message, capacity_bytes, "out of memory (%s)", exception.what());
    return 1;
  }
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

const char* ch3_offload_best_nic(const ch3_offload_config_t* config) {
  try {
    if (const auto choice = ch3_offload::choose_nic_here(*config); choice.ok())
      return choice.value().has_thread ? "thread" : choice.value().has_process ? "process" : "host";
  } catch (const std::exception&) {
    // As without a topology. Whoever makes the channel hears what is wrong.
  }
  return "host";
}

void ch3_offload_destroy(ch3_offload_channel_t* channel) { delete &of(channel); }

const char* ch3_offload_card(const ch3_offload_channel_t* channel) { return of(channel).card().c_str(); }

int ch3_offload_send(ch3_offload_channel_t* channel, uint32_t peer, int mode, ch3_offload_match_t match,
                     const ch3_offload_payload_t* payload, uint32_t send_id, void* cookie,
                     uint64_t* operation, int* status) {
  constexpr SendMode kModes[] = {SendMode::kStandard, SendMode::kSynchronous, SendMode::kReady};
  OperationId id;
  Status result;
  const Progressed progressed = of(channel).port().send(PeerId{peer}, kModes[mode], from_c(match),
                                                        from_c(payload), send_id, cookie, id, result);
  *operation = static_cast<uint64_t>(id);
  *status = to_c(result);
  of(channel).commanded();
  return to_c(progressed);
}

ch3_offload_lane_t* ch3_offload_lane(ch3_offload_channel_t* channel, uint32_t peer) {
  return of(channel).port().lane(PeerId{peer});
}

void ch3_offload_nudge(ch3_offload_channel_t* channel, uint32_t peer) {
  of(channel).port().nudge(PeerId{peer});
}

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
  const Progressed progressed =
      of(channel).port().send_packet(PeerId{peer}, {static_cast<const std::byte*>(header), header_bytes},
                                     {parts, iov_count}, cookie, result);
  *status = to_c(result);
  of(channel).commanded();
  return to_c(progressed);
}

int ch3_offload_post_receive(ch3_offload_channel_t* channel, ch3_offload_match_t match,
                             ch3_offload_match_t ignore, const ch3_offload_payload_t* payload, void* cookie,
                             uint64_t* operation, ch3_offload_envelope_t* envelope) {
  OperationId id;
  const Progressed progressed = of(channel).port().post_receive(
      from_c(match), from_c(ignore), from_c(payload), cookie, id, from_c(envelope));
  *operation = static_cast<uint64_t>(id);
  of(channel).commanded();
  return to_c(progressed);
}

int ch3_offload_receive_now(ch3_offload_channel_t* channel, const ch3_offload_pattern_t* pattern,
                            const ch3_offload_payload_t* payload, ch3_offload_envelope_t* envelope) {
  const auto& wanted = *reinterpret_cast<const MatchPattern*>(pattern);
  if (!of(channel).port().receive_now(wanted.key, wanted.ignore, from_c(payload), from_c(envelope))) return 0;
  of(channel).commanded();
  return 1;
}

int ch3_offload_probe(ch3_offload_channel_t* channel, ch3_offload_match_t match, ch3_offload_match_t ignore,
                      ch3_offload_envelope_t* envelope) {
  return of(channel).port().probe(from_c(match), from_c(ignore), from_c(envelope)) ? 1 : 0;
}

int ch3_offload_matched_probe(ch3_offload_channel_t* channel, ch3_offload_match_t match,
                              ch3_offload_match_t ignore, uint64_t* message,
                              ch3_offload_envelope_t* envelope) {
  MessageId id;
  if (!of(channel).port().matched_probe(from_c(match), from_c(ignore), id, from_c(envelope))) return 0;
  *message = static_cast<uint64_t>(id);
  return 1;
}

int ch3_offload_receive_matched(ch3_offload_channel_t* channel, uint64_t message,
                                const ch3_offload_payload_t* payload, void* cookie,
                                ch3_offload_envelope_t* envelope) {
  const Progressed progressed =
      of(channel).port().receive_matched(MessageId{message}, from_c(payload), cookie, from_c(envelope));
  of(channel).commanded();
  return to_c(progressed);
}

int ch3_offload_cancel_receive(ch3_offload_channel_t* channel, uint64_t operation) {
  return of(channel).port().cancel_receive(OperationId{operation}) ? 1 : 0;
}

int ch3_offload_cancel_send(ch3_offload_channel_t* channel, uint64_t operation, uint32_t peer,
                            ch3_offload_match_t match, uint32_t send_id, void* cookie) {
  const Progressed progressed =
      of(channel).port().cancel_send(OperationId{operation}, PeerId{peer}, from_c(match), send_id, cookie);
  of(channel).commanded();
  return to_c(progressed);
}

void ch3_offload_purge(ch3_offload_channel_t* channel, int scope, const ch3_offload_pattern_t* doomed,
                       size_t doomed_count, const ch3_offload_pattern_t* spared, size_t spared_count,
                       int status) {
  constexpr PurgeScope kScopes[] = {PurgeScope::kAll, PurgeScope::kReceivesFromOne,
                                    PurgeScope::kReceivesFromAny};
  of(channel).port().purge(kScopes[scope], {reinterpret_cast<const MatchPattern*>(doomed), doomed_count},
                           {reinterpret_cast<const MatchPattern*>(spared), spared_count},
                           status == CH3_OFFLOAD_PEER_FAILED ? Status::kPeerFailed : Status::kRevoked);
  of(channel).commanded();
}

std::uint64_t ch3_offload_cut_partitions(std::uint64_t bytes, std::uint64_t partition_bytes,
                                         std::uint64_t element_bytes) {
  return cut_partitions(bytes, partition_bytes, element_bytes);
}

std::size_t ch3_offload_most_steps(ch3_offload_channel_t* channel) {
  return of(channel).most_schedule_steps();
}

int ch3_offload_schedule(ch3_offload_channel_t* channel, const ch3_offload_step_t* steps, std::size_t count,
                         std::uint64_t failed_bits, std::uint64_t peer_failed_bits, void* cookie) {
  const bool is_taken = of(channel).port().schedule({reinterpret_cast<const ScheduleStep*>(steps), count},
                                                    {failed_bits, peer_failed_bits}, cookie);
  of(channel).commanded();
  return is_taken;
}

void ch3_offload_classify(ch3_offload_channel_t* channel, uint64_t bits, int traffic_class) {
  Channel& one = of(channel);
  one.port().classify(bits, traffic_class == CH3_OFFLOAD_CLASS_OF_PROCESS
                                ? one.traffic_class()
                                : static_cast<TrafficClass>(traffic_class));
  one.commanded();
}

void ch3_offload_introduce(ch3_offload_channel_t* channel, uint32_t peer, const char* card) {
  of(channel).introduce(PeerId{peer}, card);
  of(channel).commanded();
}

void ch3_offload_meet_node(ch3_offload_channel_t* channel) { of(channel).meet_node(); }

void ch3_offload_report(ch3_offload_channel_t* channel, const ch3_offload_config_t* config,
                        const ch3_offload_node_t* nodes, size_t count) {
  try {
    std::vector<ReportedNode> reported;
    for (const ch3_offload_node_t& node : std::span(nodes, count))
      reported.push_back({node.card, node.ranks});
    of(channel).report(*config, reported);
  } catch (const std::bad_alloc&) {
    // Nobody needs a report as much as memory.
  }
}

void ch3_offload_place_packet(ch3_offload_channel_t* channel, uint32_t peer, void* address,
                              size_t capacity_bytes) {
  of(channel).port().place_packet(PeerId{peer}, {static_cast<std::byte*>(address), capacity_bytes, nullptr});
  of(channel).commanded();
}

uint64_t ch3_offload_arrivals(const ch3_offload_channel_t* channel) { return of(channel).port().arrivals(); }

ch3_offload_events_t* ch3_offload_events(ch3_offload_channel_t* channel) {
  return &of(channel).port().events();
}

int ch3_offload_next_event(ch3_offload_channel_t* channel, ch3_offload_event_t* event) {
  return of(channel).next_event(*reinterpret_cast<Event*>(event)) ? 1 : 0;
}

size_t ch3_offload_progress(ch3_offload_channel_t* channel) { return of(channel).progress(); }

int ch3_offload_idle(const ch3_offload_channel_t* channel) { return of(channel).idle() ? 1 : 0; }

int ch3_offload_name(ch3_offload_channel_t* channel, char* name, char* message, size_t capacity_bytes) {
  return with_foreign(channel, message, capacity_bytes, [&](ForeignProcesses& foreign) {
    std::snprintf(name, CH3_OFFLOAD_NAME_BYTES, "%s", foreign.name().c_str());
    return "";
  });
}

int ch3_offload_find(ch3_offload_channel_t* channel, const char* name, uint32_t* peer, char* message,
                     size_t capacity_bytes) {
  return with_foreign(channel, message, capacity_bytes, [&](ForeignProcesses& foreign) {
    PeerId found{};
    const Status status = foreign.find(name, found);
    *peer = index_of(found);
    return status == Status::kOk            ? ""
           : status == Status::kUnsupported ? "no process can have that name"
                                            : "out of memory";
  });
}

void ch3_offload_name_of(ch3_offload_channel_t* channel, uint32_t peer, char* name) {
  *name = '\0';
  char message[1];
  with_foreign(channel, message, sizeof message, [&](ForeignProcesses& foreign) {
    std::snprintf(name, CH3_OFFLOAD_NAME_BYTES, "%s", foreign.name_of(PeerId{peer}).c_str());
    return "";
  });
}

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
    case WaitPolicy::Step::kPoll:
    case WaitPolicy::Step::kLook: break;
  }
  return CH3_OFFLOAD_POLL;
}
int ch3_offload_may_have_work(ch3_offload_channel_t* channel) { return of(channel).may_have_work() ? 1 : 0; }
int ch3_offload_is_crowded(const ch3_offload_channel_t* channel) { return of(channel).is_crowded() ? 1 : 0; }
void ch3_offload_sleep(ch3_offload_channel_t* channel, int timeout_ms) { of(channel).sleep(timeout_ms); }
void ch3_offload_awake(ch3_offload_channel_t* channel) { of(channel).awake(); }
void ch3_offload_wake(ch3_offload_channel_t* channel) { of(channel).wake(); }

int ch3_offload_trace_write(ch3_offload_channel_t* channel) { return of(channel).write_trace(); }

void* ch3_offload_alloc_memory(ch3_offload_channel_t* channel, size_t bytes) {
  SharedArena* const arena = of(channel).arena();
  return arena == nullptr ? nullptr : arena->allocate(bytes);
}

int ch3_offload_free_memory(ch3_offload_channel_t* channel, void* memory) {
  SharedArena* const arena = of(channel).arena();
  return arena != nullptr && arena->give_back(static_cast<std::byte*>(memory)) ? 1 : 0;
}

ch3_offload_place_t ch3_offload_locate_memory(ch3_offload_channel_t* channel, const void* address,
                                              size_t bytes) {
  SharedArena* const arena = of(channel).arena();
  const auto* const begin = static_cast<const std::byte*>(address);
  return std::bit_cast<ch3_offload_place_t>(arena == nullptr ? MemoryPlace{} : arena->locate(begin, bytes));
}

void* ch3_offload_map_memory(ch3_offload_channel_t* channel, const ch3_offload_place_t* place, size_t bytes) {
  return of(channel).neighbours().map(std::bit_cast<MemoryPlace>(*place), bytes);
}

void ch3_offload_unmap_memory(ch3_offload_channel_t* channel, const void* address) {
  if (address != nullptr) of(channel).neighbours().unmap(static_cast<const std::byte*>(address));
}

void ch3_offload_share_memory(ch3_offload_channel_t* channel, void* address, size_t bytes, int file) {
  SharedArena* const arena = of(channel).port().arena();
  if (arena == nullptr) return;
  const FileDescriptor copy(fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (copy.valid()) static_cast<void>(arena->adopt(static_cast<std::byte*>(address), bytes, copy));
}

void ch3_offload_unshare_memory(ch3_offload_channel_t* channel, void* address) {
  SharedArena* const arena = of(channel).port().arena();
  if (arena != nullptr) arena->disown(static_cast<std::byte*>(address));
}

void* ch3_offload_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address) {
  return ch3_offload::MemoryEvents::remap(address, old_bytes, new_bytes, flags, new_address);
}

}  // extern "C"
