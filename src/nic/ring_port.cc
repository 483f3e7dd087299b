#include "nic/ring_port.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "engine/payload_layout.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t index_in(OperationId operation) noexcept {
  return static_cast<std::uint32_t>(operation) - 1;
}

CommandRecord command_of(CommandKind kind, PeerId peer = {}) noexcept {
  CommandRecord command;
  command.kind = kind;
  command.peer = index_of(peer);
  return command;
}

void fill(CommandRecord& command, CommandKind kind, const MatchKey& key, const Payload& payload) noexcept {
  command.kind = kind;
  command.bits = key.bits;
  command.initiator = key.initiator;
  command.address = reinterpret_cast<std::uintptr_t>(payload.address);
  command.length_bytes = payload.length_bytes;
  command.layout = reinterpret_cast<std::uintptr_t>(payload.layout);
}

CommandRecord command_of(CommandKind kind, const MatchKey& key, const Payload& payload) noexcept {
  CommandRecord command;
  fill(command, kind, key, payload);
  return command;
}

}  // namespace

RingPort::RingPort(PortMemory& memory, const WaitPolicy& wait, const Trace* trace, Staging staging,
                   PeerId self) noexcept
    : memory_(memory),
      words_(memory.words()),
      counters_(memory.ring_counters()),
      commands_(memory.command_producer()),
      ring_(memory.event_consumer()),
      bell_(memory.client_bell().sleeper),
      waiter_(wait),
      trace_(trace),
      staging_(staging),
      self_(self) {}

// Names.

/// kNoOperation: there is no memory.
OperationId RingPort::name(Cookie cookie) noexcept {
  if (free_ == 0) {
    try {
      operations_.emplace_back();
    } catch (const std::bad_alloc&) {
      return kNoOperation;
    }
    free_ = static_cast<std::uint32_t>(operations_.size());
  }
  const std::uint32_t number = free_;
  Operation& operation = operations_[number - 1];
  free_ = operation.next_free;
  operation.is_live = true;
  operation.cookie = cookie;
  operation.cancelled = kNoOperation;
  operation.receives = {};
  operation.sends.clear();
  return OperationId{std::uint64_t{operation.generation} << 32 | number};
}

/// Names an operation on one payload. Returns what the processor is told of it: `payload`, or `staged`, as
/// `stage` makes it of a copy. `operation` is kNoOperation if there is no memory.
inline const Payload& RingPort::name_with(Cookie cookie, const Payload& payload,
                                          bool (RingPort::*stage)(OperationId, Payload&) noexcept,
                                          Payload& staged, OperationId& operation) noexcept {
  operation = name(cookie);
  if (operation == kNoOperation || staging_ == Staging::kNone) return payload;
  staged = payload;
  if (!(this->*stage)(operation, staged)) {
    forget(operation);
    operation = kNoOperation;
  }
  return staged;
}

RingPort::Operation* RingPort::find(OperationId operation) noexcept {
  const std::uint32_t index = index_in(operation);
  if (index >= operations_.size()) return nullptr;
  Operation& found = operations_[index];
  return found.is_live && found.generation == static_cast<std::uint64_t>(operation) >> 32 ? &found : nullptr;
}

void RingPort::forget(OperationId operation) noexcept {
  Operation& over = operations_[index_in(operation)];
  over.is_live = false;
  over.staged.reset();
  over.schedule.reset();
  over.given.clear();
  steps_ -= std::exchange(over.steps, 0);
  // ScheduleRunner::kStepGeneration and kPacketGeneration are the processor's.
  over.generation = over.generation + 1 < UINT32_MAX - 1 ? over.generation + 1 : 1;
  over.next_free = free_;
  free_ = index_in(operation) + 1;
}

// Commands.

/// After something was published for it, or room was made.
void RingPort::wake_processor() noexcept {
  PortMemory::ring(words_.nic_sleeps, memory_.nic_bell(), counters_.client.bells_rung);
}

/// The place of the next command. Waits until there is one.
std::byte* RingPort::begin_command(std::size_t length_bytes) noexcept {
  if (!commands_.has_room(length_bytes)) [[unlikely]]
    await_room(length_bytes);
  return commands_.payload();
}

void RingPort::await_room(std::size_t length_bytes) noexcept {
  ProcessorWait wait(memory_, waiter_, commands_, length_bytes);
  while (!wait.is_over()) {
    wake_processor();
    rest_in(wait);
  }
}

/// The next command, where it is published. What is copied as a whole, just after its parts were written,
/// would wait until these have left the store buffer, behind the line that the processor looks at.
CommandRecord& RingPort::begin_record(CommandKind kind, const MatchKey& key, const Payload& payload,
                                      std::size_t more_bytes) noexcept {
  auto* const command = new (begin_command(sizeof(CommandRecord) + more_bytes)) CommandRecord;
  fill(*command, kind, key, payload);
  return *command;
}

void RingPort::end_command(std::size_t length_bytes) noexcept {
  if (trace_ != nullptr) [[unlikely]]
    last_command_ = {trace_->now(), commands_.position()};
  PortMemory::count(counters_.client.commands);
  memory_.publish_command(commands_, length_bytes, counters_.client.bells_rung);
}

void RingPort::give(const CommandRecord& command, std::span<const std::byte> more) noexcept {
  std::byte* const place = begin_command(sizeof command + more.size());
  std::memcpy(place, &command, sizeof command);
  if (!more.empty()) std::memcpy(place + sizeof command, more.data(), more.size());
  end_command(sizeof command + more.size());
}

/// Whether a command with so many bytes may be done at once.
bool RingPort::begin_inline(std::size_t length_bytes) noexcept {
  if (length_bytes > kInlineBytes) return false;
  if (inline_given_ - inline_done_ >= kInlineCommands) {
    inline_done_ = words_.inline_done.load(std::memory_order_acquire);
    if (inline_given_ - inline_done_ >= kInlineCommands) return false;
  }
  ++inline_given_;
  return true;
}

Progressed RingPort::send(PeerId peer, SendMode mode, const MatchKey& key, const Payload& payload,
                          std::uint32_t send_id, Cookie cookie, OperationId& operation,
                          Status& status) noexcept {
  operation = kNoOperation;
  status = Status::kOk;
  if (mode != SendMode::kSynchronous && (payload.layout == nullptr || staging_ != Staging::kNone) &&
      begin_inline(payload.length_bytes)) {
    constexpr std::size_t kHead = sizeof(InlineRecord);
    std::byte* const place = begin_command(kHead + payload.length_bytes);
    new (place) InlineRecord{CommandKind::kSendInline,
                             static_cast<std::uint8_t>(mode),
                             0,
                             index_of(peer),
                             key.bits,
                             key.initiator,
                             send_id};
    gather(payload, 0, {place + kHead, payload.length_bytes});
    end_command(kHead + payload.length_bytes);
    return Progressed::kDone;
  }
  Payload staged;
  const auto stage = peer == self_ ? &RingPort::stage_to_self : &RingPort::stage_send;
  const Payload& named = name_with(cookie, payload, stage, staged, operation);
  if (operation == kNoOperation) {
    status = Status::kNoMemory;
    return Progressed::kFailed;
  }
  CommandRecord& command = begin_record(CommandKind::kSend, key, named);
  command.operation = operation;
  command.mode = static_cast<std::uint8_t>(mode);
  command.peer = index_of(peer);
  command.send_id = send_id;
  end_command(sizeof command);
  return Progressed::kPending;
}

Progressed RingPort::send_packet(PeerId peer, std::span<const std::byte> header,
                                 std::span<const Payload> data, Cookie cookie, Status& status) noexcept {
  status = Status::kOk;
  std::size_t data_bytes = 0;
  bool is_plain = true;
  for (const Payload& part : data) {
    data_bytes += part.length_bytes;
    is_plain = is_plain && part.layout == nullptr;
  }
  const std::size_t total_bytes = header.size() + data_bytes;
  if (total_bytes == 0) return Progressed::kDone;
  if (is_plain && begin_inline(total_bytes)) {
    InlineRecord command;
    command.kind = CommandKind::kPacketInline;
    command.peer = index_of(peer);
    std::byte* place = begin_command(sizeof command + total_bytes);
    const auto append = [&](const void* bytes, std::size_t length_bytes) {
      if (length_bytes > 0) std::memcpy(place, bytes, length_bytes);
      place += length_bytes;
    };
    append(&command, sizeof command);
    append(header.data(), header.size());
    for (const Payload& part : data) append(part.address, part.length_bytes);
    end_command(sizeof command + total_bytes);
    return Progressed::kDone;
  }
  CommandRecord command = command_of(CommandKind::kPacket, peer);
  command.count = static_cast<std::uint16_t>(data.size());
  command.send_id = static_cast<std::uint32_t>(header.size());
  command.operation = name(cookie);
  std::array<Payload, kMostPacketParts> parts;
  const std::span<Payload> staged = std::span(parts).first(std::min(data.size(), parts.size()));
  std::ranges::copy(data.first(staged.size()), parts.begin());
  const std::size_t length_bytes = sizeof command + data.size_bytes() + header.size();
  if (command.operation == kNoOperation || data.size() > kMostPacketParts ||
      length_bytes > longest_payload(kCommandRingBytes) || !stage_sends(command.operation, staged)) {
    if (command.operation != kNoOperation) forget(command.operation);
    status = Status::kNoMemory;
    return Progressed::kFailed;
  }
  std::byte* const place = begin_command(length_bytes);
  std::memcpy(place, &command, sizeof command);
  if (!data.empty()) std::memcpy(place + sizeof command, staged.data(), staged.size_bytes());
  if (!header.empty()) std::memcpy(place + sizeof command + data.size_bytes(), header.data(), header.size());
  end_command(length_bytes);
  return Progressed::kPending;
}

Progressed RingPort::post_receive(const MatchKey& key, const MatchKey& ignore, const Payload& payload,
                                  Cookie cookie, OperationId& operation, Envelope& envelope) noexcept {
  Payload staged;
  const Payload& named = name_with(cookie, payload, &RingPort::stage_receive, staged, operation);
  if (operation == kNoOperation) {
    envelope = {key, 0, Status::kNoMemory};
    return Progressed::kDone;
  }
  const bool is_masked = ignore != MatchKey{};
  const std::size_t more_bytes = is_masked ? sizeof ignore : 0;
  CommandRecord& command =
      begin_record(is_masked ? CommandKind::kReceiveMasked : CommandKind::kReceive, key, named, more_bytes);
  command.operation = operation;
  if (is_masked) new (&command + 1) MatchKey(ignore);
  end_command(sizeof command + more_bytes);
  return Progressed::kPending;
}

Progressed RingPort::receive_matched(MessageId message, const Payload& payload, Cookie cookie,
                                     Envelope& envelope) noexcept {
  Payload staged;
  OperationId operation;
  const Payload& named = name_with(cookie, payload, &RingPort::stage_receive, staged, operation);
  if (operation == kNoOperation) {
    envelope = {{}, 0, Status::kNoMemory};
    return Progressed::kDone;
  }
  CommandRecord& command = begin_record(CommandKind::kReceiveMatched, MatchKey{}, named);
  command.bits = static_cast<std::uint64_t>(message);
  command.operation = operation;
  end_command(sizeof command);
  return Progressed::kPending;
}

Progressed RingPort::cancel_send(OperationId operation, PeerId peer, const MatchKey& key,
                                 std::uint32_t send_id, Cookie cookie) noexcept {
  if (operation != kNoOperation && find(operation) == nullptr)
    return Progressed::kFailed;  // Its event waits to be taken.
  CommandRecord command = command_of(CommandKind::kCancelSend, key, {});
  command.operation = name(cookie);
  if (command.operation == kNoOperation) return Progressed::kFailed;
  find(command.operation)->cancelled = operation;
  command.peer = index_of(peer);
  command.send_id = send_id;
  command.address = static_cast<std::uint64_t>(operation);
  const auto decided = static_cast<Progressed>(ask(command));
  if (decided == Progressed::kPending) return decided;
  forget(command.operation);
  // If an event of the send is in the ring, it names nothing any more: the cancellation has ended it.
  if (decided == Progressed::kDone && find(operation) != nullptr) forget(operation);
  return decided;
}

void RingPort::classify(std::uint64_t channel, TrafficClass traffic_class) noexcept {
  CommandRecord command = command_of(CommandKind::kClassify, MatchKey{channel, 0}, {});
  command.mode = static_cast<std::uint8_t>(traffic_class);
  give(command);
}

void RingPort::purge(PurgeScope scope, std::span<const MatchPattern> doomed,
                     std::span<const MatchPattern> spared, Status reason) noexcept {
  CommandRecord command = command_of(CommandKind::kPurge);
  command.mode = static_cast<std::uint8_t>(scope);
  command.count = static_cast<std::uint16_t>(doomed.size());
  command.send_id = static_cast<std::uint32_t>(spared.size());
  command.length_bytes = static_cast<std::uint64_t>(reason);
  const std::size_t length_bytes = sizeof command + doomed.size_bytes() + spared.size_bytes();
  assert(length_bytes <= longest_payload(kCommandRingBytes));
  std::byte* const place = begin_command(length_bytes);
  std::memcpy(place, &command, sizeof command);
  if (!doomed.empty()) std::memcpy(place + sizeof command, doomed.data(), doomed.size_bytes());
  if (!spared.empty())
    std::memcpy(place + sizeof command + doomed.size_bytes(), spared.data(), spared.size_bytes());
  end_command(length_bytes);
  static_cast<void>(await_answer());
  static_cast<void>(take_events());  // Of the receives that are over, as with the host driver.
}

void RingPort::introduce(PeerId peer, std::string_view card) noexcept {
  give(command_of(CommandKind::kIntroduce, peer), std::as_bytes(std::span(card)));
}

void RingPort::place_packet(PeerId peer, const Payload& place) noexcept {
  CommandRecord command = command_of(CommandKind::kPlacePacket, MatchKey{}, place);
  command.peer = index_of(peer);
  give(command);
}

void RingPort::of_peer(CommandKind kind, PeerId peer) noexcept { give(command_of(kind, peer)); }

void RingPort::stop_keeping_memory() noexcept {
  static_cast<void>(ask(command_of(CommandKind::kStopKeeping)));
}

// Questions.

std::uint64_t RingPort::ask(CommandKind question) noexcept { return ask(command_of(question)); }

std::uint64_t RingPort::ask(const CommandRecord& question, std::span<const std::byte> more) noexcept {
  give(question, more);
  return await_answer();
}

/// Of the question that was given last.
std::uint64_t RingPort::await_answer() noexcept {
  ProcessorWait wait(memory_, waiter_, ++questions_);
  while (!wait.is_over()) rest_in(wait);
  return words_.answer;
}

std::uint64_t RingPort::ask_probe(CommandKind kind, const MatchKey& key, const MatchKey& ignore,
                                  Envelope& envelope) noexcept {
  const std::uint64_t before = arrivals();
  // A command since then may have sent a message to this process.
  if (fruitless_.arrivals == before && fruitless_.position == commands_.position() && fruitless_.key == key &&
      fruitless_.ignore == ignore)
    return 0;
  const std::uint64_t answer = ask(command_of(kind, key, {}), std::as_bytes(std::span(&ignore, 1)));
  if (answer == 0)
    fruitless_ = {key, ignore, before, commands_.position()};
  else
    envelope = {{words_.bits, words_.initiator}, words_.length_bytes, words_.status};
  return answer;
}

bool RingPort::probe(const MatchKey& key, const MatchKey& ignore, Envelope& envelope) noexcept {
  return ask_probe(CommandKind::kProbe, key, ignore, envelope) != 0;
}

bool RingPort::matched_probe(const MatchKey& key, const MatchKey& ignore, MessageId& message,
                             Envelope& envelope) noexcept {
  message = MessageId{ask_probe(CommandKind::kMatchedProbe, key, ignore, envelope)};
  return message != MessageId{};
}

bool RingPort::cancel_receive(OperationId operation) noexcept {
  if (find(operation) == nullptr) return false;
  CommandRecord question = command_of(CommandKind::kCancelReceive);
  question.operation = operation;
  if (ask(question) == 0) return false;
  forget(operation);
  return true;
}

int RingPort::write_trace(const std::string& path) noexcept {
  if (path.size() > kInlineBytes) return ENAMETOOLONG;
  return static_cast<int>(ask(command_of(CommandKind::kWriteTrace), std::as_bytes(std::span(path))));
}

}  // namespace ch3_offload
