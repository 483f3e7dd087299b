#include "nic/ring_server.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace ch3_offload {
namespace {

/// Commands in one turn, so that the engine has its own.
constexpr std::size_t kMostCommands = 32;

/// The engine's cookie of a copy is the copy's number. That of a packet in a command is the peer's, behind
/// them. No name of a client is so small: its generation is not 0.
constexpr std::uint32_t kInlinePackets = kInlineCommands + 1;

Cookie cookie_of(OperationId operation) noexcept {
  return reinterpret_cast<Cookie>(static_cast<std::uintptr_t>(operation));
}
std::uint32_t number_in(OperationId operation) noexcept { return static_cast<std::uint32_t>(operation); }
std::uint32_t generation_in(OperationId operation) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(operation) >> 32);
}

MatchKey key_of(const InlineRecord& command) noexcept { return {command.bits, command.initiator}; }
Payload payload_of(const CommandRecord& command) noexcept {
  return {reinterpret_cast<std::byte*>(command.address), command.length_bytes,
          reinterpret_cast<const PayloadLayout*>(command.layout)};
}

EventRecord event_of(Event::Kind kind, Status status) noexcept {
  EventRecord event;
  event.kind = kind;
  event.status = status;
  return event;
}
EventRecord event_of(const Envelope& envelope) noexcept {
  EventRecord event = event_of(Event::Kind::kReceiveDone, envelope.status);
  event.bits = envelope.key.bits;
  event.initiator = envelope.key.initiator;
  event.length_bytes = envelope.length_bytes;
  return event;
}
EventRecord event_of(const Event& event) noexcept {
  EventRecord record = event_of({event.key, event.length_bytes, event.status});
  record.kind = event.kind;
  record.is_cancelled = event.is_cancelled;
  record.scope = event.scope;
  record.peer = index_of(event.peer);
  return record;
}

template <class T>
bool read(std::span<const std::byte>& from, T& object) noexcept {
  if (from.size() < sizeof object) return false;
  std::memcpy(&object, from.data(), sizeof object);
  from = from.subspan(sizeof object);
  return true;
}

}  // namespace

RingServer::RingServer(Port& port, PortMemory& memory, Trace* trace, ClientMemory* client) noexcept
    : port_(port),
      memory_(memory),
      words_(memory.words()),
      counters_(port.counters()),
      ring_counters_(memory.ring_counters().processor),
      commands_(memory.command_consumer()),
      ring_(memory.event_producer()),
      trace_(trace),
      client_(client) {
  words_.idle_at.store(kNotIdle, std::memory_order_relaxed);
}

std::size_t RingServer::turn() noexcept {
  std::size_t happened = take_commands();
  happened += give_events();
  if (!holds_) {
    happened += port_.progress();
    happened += give_events();
  }
  tell_words();
  return happened;
}

// Names.

/// A client's new name.
RingServer::Outcome RingServer::begin(OperationId operation) noexcept {
  const std::uint32_t number = number_in(operation);
  if (number == 0 || number > operations_.size() + 1 || generation_in(operation) == 0)
    return Outcome::kRubbish;
  if (number > operations_.size()) {
    try {
      operations_.emplace_back();
    } catch (const std::bad_alloc&) {
      return Outcome::kLater;
    }
  }
  Operation& entry = operations_[number - 1];
  if (entry.generation != 0) return Outcome::kRubbish;
  entry = {};
  entry.generation = generation_in(operation);
  trace_taken(cookie_of(operation));
  return Outcome::kTaken;
}

/// What the operation reads or writes: of a client in another process, by copies between the two.
RingServer::Outcome RingServer::take(OperationId operation, std::span<Payload> payloads) noexcept {
  if (client_ == nullptr || payloads.empty()) return Outcome::kTaken;
  Operation& entry = *find(operation);
  Outcome outcome = Outcome::kTaken;
  try {
    entry.parts = std::make_unique<ClientMemory::Part[]>(payloads.size());
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      if (!client_->take(payloads[i], entry.parts[i])) outcome = Outcome::kRubbish;
      payloads[i] = entry.parts[i].payload();
    }
  } catch (const std::bad_alloc&) {
    outcome = Outcome::kLater;
  }
  if (outcome != Outcome::kTaken) entry = {};
  return outcome;
}

RingServer::Operation* RingServer::find(OperationId operation) noexcept {
  const std::uint32_t number = number_in(operation);
  if (number == 0 || number > operations_.size() || generation_in(operation) == 0) return nullptr;
  Operation& entry = operations_[number - 1];
  return entry.generation == generation_in(operation) ? &entry : nullptr;
}

/// A send that was cancelled. If the engine still had it, under the name `engines`, its event will not come.
void RingServer::forget_cancelled(OperationId operation, OperationId engines) noexcept {
  if (engines == kNoOperation) return;
  if (generation_in(operation) == 0) {
    const std::size_t index = number_in(operation) - 1;
    if (copies_[index].engines == engines) copy_done(index);
    return;
  }
  Operation* const entry = find(operation);
  if (entry != nullptr && entry->engines == engines) entry->generation = 0;
}

// Commands.

std::size_t RingServer::take_commands() noexcept {
  std::size_t taken = 0;
  for (; taken < kMostCommands && !is_refused_; ++taken) {
    const std::uint64_t header = commands_.header();
    if (header == 0) break;
    RingConsumer::Record record;
    const Outcome outcome = commands_.parse(header, record) && record.kind == RecordKind::kMessage
                                ? execute(record.payload)
                                : Outcome::kRubbish;
    if (outcome == Outcome::kLater) break;
    if (outcome == Outcome::kRubbish) [[unlikely]] {
      is_refused_ = true;
      break;
    }
    commands_.advance(record);
  }
  if (taken > 0) static_cast<void>(commands_.release());
  return taken;
}

/// Tells the trace that the engine gets the next command, under that cookie.
void RingServer::trace_taken(Cookie cookie) noexcept {
  if (trace_ == nullptr || trace_taken_ == commands_.position()) [[likely]]
    return;  // What is tried again was taken before.
  trace_taken_ = commands_.position();
  trace_->record(TraceEvent::kCommandTaken, trace_->self(), 0, commands_.position(), cookie);
}

RingServer::Outcome RingServer::execute(std::span<const std::byte> record) noexcept {
  CommandRecord command;
  std::span<const std::byte> more = record;
  if (!read(more, static_cast<InlineRecord&>(command)) || command.mode > 2) return Outcome::kRubbish;
  if (client_ != nullptr && command.peer >= client_->peer_limit()) return Outcome::kRubbish;
  if (command.kind == CommandKind::kSendInline) return send_inline(command, more);
  if (command.kind == CommandKind::kPacketInline) return packet_inline(command, more);
  more = record;
  if (!read(more, command)) return Outcome::kRubbish;

  const bool has_mask = command.kind == CommandKind::kReceiveMasked || command.kind == CommandKind::kProbe ||
                        command.kind == CommandKind::kMatchedProbe;
  MatchKey mask{};
  if (has_mask && !read(more, mask)) return Outcome::kRubbish;
  const bool has_more = command.kind == CommandKind::kPacket || command.kind == CommandKind::kPurge ||
                        command.kind == CommandKind::kIntroduce || command.kind == CommandKind::kWriteTrace;
  if (!has_more && !more.empty()) return Outcome::kRubbish;

  const PeerId peer{command.peer};
  const std::string_view text(reinterpret_cast<const char*>(more.data()), more.size());
  switch (command.kind) {
    case CommandKind::kSend: return send(command);
    case CommandKind::kPacket: return packet(command, more);
    case CommandKind::kReceive:
    case CommandKind::kReceiveMasked: return receive(command, mask);
    case CommandKind::kReceiveMatched: return receive_matched(command);
    case CommandKind::kCancelReceive: answer(cancel_receive(command.operation)); break;
    case CommandKind::kCancelSend: return cancel_send(command);
    case CommandKind::kProbe:
    case CommandKind::kMatchedProbe: answer_probe(command, mask); break;
    case CommandKind::kPurge: return purge(command, more);
    case CommandKind::kIntroduce: port_.introduce(peer, text); break;
    case CommandKind::kPlacePacket:
      // Copies between processes have no place that a peer could write to.
      port_.place_packet(peer, client_ == nullptr ? payload_of(command) : Payload{});
      break;
    case CommandKind::kClassify: port_.classify(command.bits, static_cast<TrafficClass>(command.mode)); break;
    case CommandKind::kFailPeer: port_.fail_peer(peer); break;
    case CommandKind::kClosePeer: port_.close_peer(peer); break;
    case CommandKind::kStopKeeping:
      port_.stop_keeping_memory();
      answer(1);
      break;
    case CommandKind::kWriteTrace:
      try {
        answer(static_cast<std::uint64_t>(port_.write_trace(std::string(text))));
      } catch (const std::bad_alloc&) {
        answer(ENOMEM);
      }
      break;
    default: return Outcome::kRubbish;
  }
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::send_inline(const InlineRecord& command,
                                            std::span<const std::byte> payload) noexcept {
  if (payload.size() > kInlineBytes || taken_copies_ == ~std::uint64_t{0}) return Outcome::kRubbish;
  // The engine may keep the payload until the peer takes it: so it must not be the ring's.
  const auto index = static_cast<std::size_t>(std::countr_one(taken_copies_));
  Copy& copy = copies_[index];
  if (!payload.empty()) std::memcpy(copy.bytes.data(), payload.data(), payload.size());
  copy.command = command;
  copy.age = ++copies_used_;
  const Cookie cookie = cookie_of(OperationId{index + 1});
  trace_taken(cookie);
  Status status = Status::kOk;
  const Progressed progressed =
      port_.send(PeerId{command.peer}, static_cast<SendMode>(command.mode), key_of(command),
                 {copy.bytes.data(), payload.size(), nullptr}, command.send_id, cookie, copy.engines, status);
  if (progressed == Progressed::kFailed && status == Status::kNoMemory) return Outcome::kLater;
  if (progressed == Progressed::kPending)
    taken_copies_ |= std::uint64_t{1} << index;
  else
    ++inline_done_;  // What failed now is told by the peer's death.
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::packet_inline(const InlineRecord& command,
                                              std::span<const std::byte> bytes) noexcept {
  if (bytes.empty() || bytes.size() > kInlineBytes) return Outcome::kRubbish;
  const Cookie cookie = cookie_of(OperationId{std::uint64_t{kInlinePackets} + command.peer});
  trace_taken(cookie);
  Status status = Status::kOk;
  // As a header: the engine copies what cannot leave.
  const Progressed progressed = port_.send_packet(PeerId{command.peer}, bytes, {}, cookie, status);
  if (progressed == Progressed::kFailed && status == Status::kNoMemory) return Outcome::kLater;
  if (progressed != Progressed::kPending) ++inline_done_;
  return Outcome::kTaken;
}

void RingServer::copy_done(std::size_t index) noexcept {
  taken_copies_ &= ~(std::uint64_t{1} << index);
  copies_[index].engines = kNoOperation;
  ++inline_done_;
}

RingServer::Outcome RingServer::send(const CommandRecord& command) noexcept {
  if (const Outcome outcome = begin(command.operation); outcome != Outcome::kTaken) return outcome;
  Payload payload = payload_of(command);
  if (const Outcome outcome = take(command.operation, {&payload, 1}); outcome != Outcome::kTaken)
    return outcome;
  OperationId engines = kNoOperation;
  Status status = Status::kOk;
  const Progressed progressed =
      port_.send(PeerId{command.peer}, static_cast<SendMode>(command.mode), key_of(command), payload,
                 command.send_id, cookie_of(command.operation), engines, status);
  if (progressed == Progressed::kPending)
    find(command.operation)->engines = engines;
  else
    finish(command.operation, event_of(Event::Kind::kSendDone, status));
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::packet(const CommandRecord& command,
                                       std::span<const std::byte> more) noexcept {
  std::array<Payload, kMostPacketParts> parts;
  if (command.count > parts.size()) return Outcome::kRubbish;
  for (std::size_t i = 0; i < command.count; ++i)
    if (!read(more, parts[i])) return Outcome::kRubbish;
  if (more.size() != command.send_id) return Outcome::kRubbish;
  if (const Outcome outcome = begin(command.operation); outcome != Outcome::kTaken) return outcome;
  if (const Outcome outcome = take(command.operation, {parts.data(), command.count});
      outcome != Outcome::kTaken)
    return outcome;
  Status status = Status::kOk;
  if (port_.send_packet(PeerId{command.peer}, more, {parts.data(), command.count},
                        cookie_of(command.operation), status) != Progressed::kPending)
    finish(command.operation, event_of(Event::Kind::kSendDone, status));
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::receive(const CommandRecord& command, const MatchKey& ignore) noexcept {
  if (const Outcome outcome = begin(command.operation); outcome != Outcome::kTaken) return outcome;
  Payload payload = payload_of(command);
  if (const Outcome outcome = take(command.operation, {&payload, 1}); outcome != Outcome::kTaken)
    return outcome;
  OperationId engines = kNoOperation;
  Envelope envelope;
  if (port_.post_receive(key_of(command), ignore, payload, cookie_of(command.operation), engines, envelope) ==
      Progressed::kPending)
    find(command.operation)->engines = engines;
  else
    finish(command.operation, event_of(envelope));
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::receive_matched(const CommandRecord& command) noexcept {
  if (const Outcome outcome = begin(command.operation); outcome != Outcome::kTaken) return outcome;
  Payload payload = payload_of(command);
  if (const Outcome outcome = take(command.operation, {&payload, 1}); outcome != Outcome::kTaken)
    return outcome;
  Envelope envelope;
  if (port_.receive_matched(MessageId{command.bits}, payload, cookie_of(command.operation), envelope) !=
      Progressed::kPending)
    finish(command.operation, event_of(envelope));
  return Outcome::kTaken;
}

bool RingServer::cancel_receive(OperationId operation) noexcept {
  Operation* const entry = find(operation);
  if (entry == nullptr || entry->engines == kNoOperation || !port_.cancel_receive(entry->engines))
    return false;
  entry->generation = 0;
  return true;
}

RingServer::Outcome RingServer::cancel_send(const CommandRecord& command) noexcept {
  if (const Outcome outcome = begin(command.operation); outcome != Outcome::kTaken) return outcome;
  OperationId sends = OperationId{command.address};
  OperationId engines = kNoOperation, found = kNoOperation;
  if (const Operation* const entry = find(sends)) engines = entry->engines;
  // The engine may still have it, although it is done for the client. Ids are reused: the newest.
  std::uint64_t age = 0;
  for (std::size_t i = 0; sends == kNoOperation && i < copies_.size(); ++i) {
    const Copy& copy = copies_[i];
    if ((taken_copies_ >> i & 1) == 0 || copy.age < age || copy.command.send_id != command.send_id ||
        copy.command.peer != command.peer || key_of(copy.command) != key_of(command))
      continue;
    age = copy.age;
    found = OperationId{i + 1};
    engines = copy.engines;
  }
  if (found != kNoOperation) sends = found;
  const Progressed progressed = port_.cancel_send(engines, PeerId{command.peer}, key_of(command),
                                                  command.send_id, cookie_of(command.operation));
  if (progressed == Progressed::kPending) {
    Operation& entry = *find(command.operation);
    entry.cancels = sends;
    entry.cancels_engines = engines;
    return Outcome::kTaken;
  }
  EventRecord event = event_of(Event::Kind::kCancelDone, Status::kOk);
  event.is_cancelled = progressed == Progressed::kDone;
  if (event.is_cancelled) forget_cancelled(sends, engines);
  finish(command.operation, event);
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::purge(const CommandRecord& command,
                                      std::span<const std::byte> more) noexcept {
  const std::size_t doomed = command.count, spared = command.send_id;
  if (more.size() != (doomed + spared) * sizeof(MatchPattern) ||
      command.length_bytes > static_cast<std::uint64_t>(Status::kDeviceFailed))
    return Outcome::kRubbish;
  const auto* const patterns = reinterpret_cast<const MatchPattern*>(more.data());
  port_.purge(static_cast<PurgeScope>(command.mode), {patterns, doomed}, {patterns + doomed, spared},
              static_cast<Status>(command.length_bytes));
  static_cast<void>(give_events());  // As far as there is room: the client takes them with the answer.
  answer(1);
  return Outcome::kTaken;
}

// Answers.

void RingServer::answer(std::uint64_t answer, const Envelope& envelope) noexcept {
  tell_words();  // The arrivals before.
  words_.answer = answer;
  words_.bits = envelope.key.bits;
  words_.initiator = envelope.key.initiator;
  words_.status = envelope.status;
  words_.length_bytes = envelope.length_bytes;
  words_.answered.store(++answered_, std::memory_order_release);
}

void RingServer::answer_probe(const CommandRecord& command, const MatchKey& ignore) noexcept {
  Envelope envelope;
  MessageId message{1};
  const bool found = command.kind == CommandKind::kProbe
                         ? port_.probe(key_of(command), ignore, envelope)
                         : port_.matched_probe(key_of(command), ignore, message, envelope);
  answer(found ? static_cast<std::uint64_t>(message) : 0, envelope);
}

// Events.

/// False: there is no room.
bool RingServer::publish(const EventRecord& event, std::span<const std::byte> more) noexcept {
  const std::size_t length_bytes = sizeof event + more.size();
  if (!ring_.has_room(length_bytes)) return false;
  tell_arrivals();  // Those before.
  if (trace_ != nullptr && event.operation != kNoOperation) [[unlikely]]
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
  if (first_waiting_ == 0 && publish(event)) [[likely]] {
    entry.generation = 0;
    return;
  }
  entry.event = event;
  entry.next = 0;
  (first_waiting_ == 0 ? first_waiting_ : operations_[last_waiting_ - 1].next) = number_in(operation);
  last_waiting_ = number_in(operation);
}

/// Gives what waits for room. False: some still does.
bool RingServer::give_waiting() noexcept {
  while (first_waiting_ != 0) {
    Operation& entry = operations_[first_waiting_ - 1];
    if (!publish(entry.event)) return false;
    entry.generation = 0;
    first_waiting_ = entry.next;
  }
  return true;
}

/// A completion of the engine.
void RingServer::complete(const Event& event) noexcept {
  const OperationId operation{reinterpret_cast<std::uintptr_t>(event.cookie)};
  if (generation_in(operation) == 0) {
    const std::uint32_t number = number_in(operation);
    const bool is_packet = number >= kInlinePackets;
    const PeerId peer{is_packet ? number - kInlinePackets : copies_[number - 1].command.peer};
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
    default: return publish(record);
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
      if (!port_.next_event(held_)) return given + give_warnings(has_room);
      if (held_.kind <= Event::Kind::kCancelDone) {
        complete(held_);
        continue;
      }
      holds_ = true;
      held_given_bytes_ = 0;
    }
    if (!has_room || !give_held()) return given;
    holds_ = false;
  }
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
  try {
    warnings_.emplace_back(scope, line);
  } catch (const std::bad_alloc&) {
    // A line less.
  }
}

void RingServer::tell_counters() noexcept {
  static_assert(sizeof(CounterPage) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(CounterPage) / sizeof(std::uint64_t)>;
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
  const std::uint64_t idle_at = port_.idle() ? commands_.position() : kNotIdle;
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
  PortMemory::count(ring_counters_.sleeps);               // Before: whoever rings finds it counted.
  words_.nic_sleeps.store(1, std::memory_order_seq_cst);  // "The sleep rule".
  bool has_work = !is_refused_ && commands_.header(std::memory_order_seq_cst) != 0;
  if (holds_ || first_waiting_ != 0 || !warnings_.empty()) {
    ring_.announce_waiting();
    has_work = has_work || ring_.has_room_for_sure(sizeof(EventRecord) + kPacketPartBytes);
  }
  if (has_work) disarm();
  return !has_work;
}

void RingServer::disarm() noexcept { PortMemory::quiet(words_.nic_sleeps, memory_.nic_bell()); }

}  // namespace ch3_offload
