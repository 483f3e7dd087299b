// Commands: taken from the ring, given to the engine's port.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "nic/ring_server.h"
#include "nic/ring_server_names.h"

namespace ch3_offload {
namespace {

/// Commands in one turn, so that the engine has its own.
constexpr std::size_t kMostCommands = 32;

MatchKey key_of(const InlineRecord& command) noexcept { return {command.bits, command.initiator}; }
Payload payload_of(const CommandRecord& command) noexcept {
  return {reinterpret_cast<std::byte*>(command.address), command.length_bytes,
          reinterpret_cast<const PayloadLayout*>(command.layout)};
}

template <class T>
bool read(std::span<const std::byte>& from, T& object) noexcept {
  if (from.size() < sizeof object) return false;
  std::memcpy(&object, from.data(), sizeof object);
  from = from.subspan(sizeof object);
  return true;
}

}  // namespace

RingServer::RingServer(Port& port, PortMemory& memory, Trace* trace, ClientMemory* client,
                       ClientServices* services) noexcept
    : port_(port),
      memory_(memory),
      words_(memory.words()),
      counters_(port.counters()),
      ring_counters_(memory.ring_counters().processor),
      commands_(memory.command_consumer()),
      ring_(memory.event_producer()),
      trace_(trace),
      client_(client),
      services_(services),
      schedules_(port, client) {
  words_.idle_at.store(kNotIdle, std::memory_order_relaxed);
  if (client_ == nullptr) return;
  const auto is_gone = [](void* its_port, const void* address, std::size_t length_bytes) noexcept {
    static_cast<Port*>(its_port)->memory_gone(address, length_bytes);
  };
  client_->shares().watch({is_gone, &port_});
  client_->offers().use(&words_.offered);
}

RingServer::~RingServer() {
  if (client_ != nullptr) client_->shares().watch({});
}

std::size_t RingServer::turn() noexcept {
  std::size_t happened = take_commands();
  happened += give_events();
  is_refused_ = is_refused_ || ring_.broken();  // Its word of what it has taken is impossible.
  if (!holds_) {
    happened += port_.progress();
    happened += give_events();
  }
  happened += advance_schedules();
  if (!is_broken()) tell_words();
  return happened;
}

// Names.

/// A client's new name.
RingServer::Outcome RingServer::begin(OperationId operation) noexcept {
  const std::uint32_t number = number_in(operation);
  if (number == 0 || number > operations_.size() + 1 || generation_in(operation) == 0 ||
      generation_in(operation) >= kPacketGeneration)
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
RingServer::Outcome RingServer::take(OperationId operation, std::span<Payload> payloads, Use use) noexcept {
  if (client_ == nullptr || payloads.empty()) return Outcome::kTaken;
  Operation& entry = *find(operation);
  Outcome outcome = Outcome::kTaken;
  try {
    entry.parts = std::make_unique<ClientMemory::Part[]>(payloads.size());
    entry.part_count = static_cast<std::uint32_t>(payloads.size());
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      entry.parts[i].belong_to(operation, static_cast<std::uint32_t>(i));
      if (!client_->take(payloads[i], entry.parts[i])) outcome = Outcome::kRubbish;
      if (use == Use::kReceive) entry.parts[i].keep_short(kInlineBytes);
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

/// The client's name is free, and what the operation read or wrote is the client's.
void RingServer::end(Operation& operation) noexcept {
  operation.generation = 0;
  operation.parts.reset();
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
  if (entry != nullptr && entry->engines == engines) end(*entry);
}

// Commands.

std::size_t RingServer::take_commands() noexcept {
  std::size_t taken = 0;
  bool has_walked = false;
  for (; taken < kMostCommands && !is_refused_ && !has_walked && !is_broken(); ++taken) {
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
    has_walked = outcome == Outcome::kWalked;
    commands_.advance(record);
  }
  if (taken > 0 && commands_.release()) [[unlikely]]
    memory_.wake_from_wait(ring_counters_.bells_rung);
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
  // Read once: the client can change it meanwhile.
  CommandRecord command;
  std::memcpy(&command, record.data(), std::min(record.size(), sizeof command));
  if (record.size() < sizeof(InlineRecord) || command.mode > 2) return Outcome::kRubbish;
  if (client_ != nullptr && !client_->may_name(command.peer)) return Outcome::kRubbish;
  const bool is_packet = command.kind == CommandKind::kPacket || command.kind == CommandKind::kPacketInline;
  // It would need a connection to itself, whose failure would end the engine's messages to itself. So would a
  // card that says that it cannot be reached.
  if (client_ != nullptr && (is_packet || command.kind == CommandKind::kIntroduce) &&
      PeerId{command.peer} == client_->rank())
    return Outcome::kRubbish;
  const auto payload = record.subspan(sizeof(InlineRecord));
  if (command.kind == CommandKind::kSendInline) return send_inline(command, payload);
  if (command.kind == CommandKind::kPacketInline) return packet_inline(command, payload);
  if (record.size() < sizeof command) return Outcome::kRubbish;
  std::span<const std::byte> more = record.subspan(sizeof command);

  const bool has_mask = command.kind == CommandKind::kReceiveMasked || command.kind == CommandKind::kProbe ||
                        command.kind == CommandKind::kMatchedProbe;
  MatchKey mask{};
  if (has_mask && !read(more, mask)) return Outcome::kRubbish;
  if (has_mask && !may_walk(mask)) [[unlikely]] {
    client_->fail(
        "it has given a mask that is none of MPI's, with too many receives and messages to compare");
    return Outcome::kTaken;
  }
  const bool has_more = command.kind == CommandKind::kPacket || command.kind == CommandKind::kPurge ||
                        command.kind == CommandKind::kIntroduce || command.kind == CommandKind::kWriteTrace ||
                        command.kind == CommandKind::kGiveBytes || command.kind == CommandKind::kSchedule ||
                        command.kind == CommandKind::kReachForeign;
  if (!has_more && !more.empty()) return Outcome::kRubbish;

  const PeerId peer{command.peer};
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
    case CommandKind::kIntroduce:
    case CommandKind::kWriteTrace: return take_text(command, more);
    case CommandKind::kPlacePacket: return place_packet(command);
    case CommandKind::kShare:
    case CommandKind::kUnshare: return share(command);
    case CommandKind::kGiveBytes: return give_bytes(command, more);
    case CommandKind::kCopied:
      return client_ != nullptr && client_->offers().took_command(command.bits, command.length_bytes)
                 ? Outcome::kTaken
                 : Outcome::kRubbish;
    case CommandKind::kSchedule: return schedule(command, more);
    case CommandKind::kClassify: port_.classify(command.bits, static_cast<TrafficClass>(command.mode)); break;
    case CommandKind::kFailPeer: port_.fail_peer(peer); break;
    case CommandKind::kClosePeer: port_.close_peer(peer); break;
    case CommandKind::kStopKeeping:
      port_.stop_keeping_memory();
      answer(1);
      break;
    case CommandKind::kAttachTargets: return attach_targets();
    case CommandKind::kDetachTargets:
      if (services_ != nullptr) services_->detach_targets();
      answer(1);
      break;
    case CommandKind::kReachForeign: return reach_foreign(command, more);
    case CommandKind::kForgetPeer:
      if (client_ != nullptr && !client_->is_foreign(command.peer)) return Outcome::kRubbish;
      answer(forget_peer(peer));
      break;
    default: return Outcome::kRubbish;
  }
  return Outcome::kTaken;
}

/// Whether the engine may look for what agrees with that mask.
bool RingServer::may_walk(const MatchKey& mask) const noexcept {
  if (client_ == nullptr || mask == kIgnoreInitiator || mask == kIgnoreTag ||
      mask == kIgnoreInitiatorAndTag || mask == kIgnoreNothing) [[likely]]
    return true;
  const CounterPage& counters = port_.counters();
  return counters.posted_depth + counters.unexpected_depth < kMostWalked;
}

/// A card, or the path of a trace.
RingServer::Outcome RingServer::take_text(const CommandRecord& command,
                                          std::span<const std::byte> more) noexcept {
  if (more.size() > kInlineBytes) return Outcome::kRubbish;
  try {
    // A copy: the client can change its ring between two readings.
    const std::string text(reinterpret_cast<const char*>(more.data()), more.size());
    if (command.kind == CommandKind::kIntroduce)
      port_.introduce(PeerId{command.peer}, text);
    else
      answer(static_cast<std::uint64_t>(port_.write_trace(text)));
    return Outcome::kTaken;
  } catch (const std::bad_alloc&) {
    return Outcome::kLater;
  }
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
  const Cookie cookie = cookie_of(OperationId{std::uint64_t{kPacketGeneration} << 32 | command.peer});
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
  if (const Outcome outcome = take(command.operation, {&payload, 1}, Use::kSend); outcome != Outcome::kTaken)
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
  if (const Outcome outcome = take(command.operation, {parts.data(), command.count}, Use::kSend);
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
  if (const Outcome outcome = take(command.operation, {&payload, 1}, Use::kReceive);
      outcome != Outcome::kTaken)
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
  if (const Outcome outcome = take(command.operation, {&payload, 1}, Use::kReceive);
      outcome != Outcome::kTaken)
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
  end(*entry);
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
  } else {
    end(*find(command.operation));
    if (progressed == Progressed::kDone) forget_cancelled(sends, engines);
  }
  static_cast<void>(give_events());  // Who asks for a send that was not cancelled finds it done, if it is.
  answer(static_cast<std::uint64_t>(progressed));
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::purge(const CommandRecord& command,
                                      std::span<const std::byte> more) noexcept {
  const std::size_t doomed = command.count, spared = command.send_id;
  if (more.size() != (doomed + spared) * sizeof(MatchPattern) ||
      command.length_bytes > static_cast<std::uint64_t>(Status::kDeviceFailed))
    return Outcome::kRubbish;
  const auto* const patterns = reinterpret_cast<const MatchPattern*>(more.data());
  const auto scope = static_cast<PurgeScope>(command.mode);
  const auto reason = static_cast<Status>(command.length_bytes);
  port_.purge(scope, {patterns, doomed}, {patterns + doomed, spared}, reason);
  schedules_.purge(scope, {patterns, doomed}, {patterns + doomed, spared}, reason);
  static_cast<void>(give_events());  // As far as there is room: the client takes them with the answer.
  answer(1);
  return Outcome::kWalked;
}

RingServer::Outcome RingServer::place_packet(const CommandRecord& command) noexcept {
  const PeerId peer{command.peer};
  Payload place = payload_of(command);
  if (client_ != nullptr) {
    // A place that nobody wants is no place: the one before may be in use.
    const auto wanted = places_.find(command.peer);
    const bool is_wanted = wanted != places_.end() && std::exchange(wanted->second.is_wanted, false);
    if (is_wanted) wanted->second.part = client_->place(place);
    place = is_wanted ? wanted->second.part.payload() : Payload{};
  }
  port_.place_packet(peer, place);
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::share(const CommandRecord& command) noexcept {
  if (client_ == nullptr) return Outcome::kRubbish;
  ClientShares& shares = client_->shares();
  if (command.kind == CommandKind::kUnshare)
    return shares.unshare(command.address) ? Outcome::kTaken : Outcome::kRubbish;
  answer(shares.share(command.address, command.length_bytes));
  return Outcome::kTaken;
}

RingServer::Outcome RingServer::attach_targets() noexcept {
  if (client_ != nullptr && client_->is_refused())
    answer(kTargetsRefused);
  else
    answer(services_ != nullptr && services_->attach_targets());
  return Outcome::kTaken;
}

bool RingServer::forget_peer(PeerId peer) noexcept {
  if (!port_.forget_peer(peer)) return false;
  places_.erase(index_of(peer));
  schedules_.forget_peer(peer);
  return true;
}

RingServer::Outcome RingServer::reach_foreign(const CommandRecord& command,
                                              std::span<const std::byte> more) noexcept {
  std::array<std::byte, UserKey::kBytes> key;
  if (!read(more, key) || !more.empty() || command.bits > 1) return Outcome::kRubbish;
  answer(services_ != nullptr && services_->reach_foreign(UserKey::of_bytes(key, command.bits != 0)));
  return Outcome::kTaken;
}

/// What kBytesWanted has asked for. The operation may be over: it was cancelled, or its peer has failed.
RingServer::Outcome RingServer::give_bytes(const CommandRecord& command,
                                           std::span<const std::byte> more) noexcept {
  const bool is_shared = command.address != 0;
  if (client_ == nullptr || is_shared != more.empty() || more.size() > kPacketPartBytes)
    return Outcome::kRubbish;
  Operation* const entry = find(command.operation);
  if (entry == nullptr || entry->parts == nullptr) return Outcome::kTaken;
  if (command.count >= entry->part_count) return Outcome::kRubbish;
  ClientMemory::Part& part = entry->parts[command.count];
  try {
    if (is_shared)
      return part.give(command.bits, command.address, command.length_bytes) ? Outcome::kTaken
                                                                            : Outcome::kRubbish;
    part.give(command.bits, more);
    return Outcome::kTaken;
  } catch (const std::bad_alloc&) {
    return Outcome::kLater;
  }
}

RingServer::Outcome RingServer::schedule(const CommandRecord& command,
                                         std::span<const std::byte> more) noexcept {
  if (const Outcome outcome = begin(command.operation); outcome != Outcome::kTaken) return outcome;
  const Status status = schedules_.begin(command.operation, {command.bits, command.address}, more);
  if (status == Status::kOk) return Outcome::kTaken;
  end(*find(command.operation));
  return status == Status::kNoMemory ? Outcome::kLater : Outcome::kRubbish;
}

// Answers.

void RingServer::answer(std::uint64_t answer, const Envelope& envelope) noexcept {
  if (is_broken()) return;
  tell_words();  // The arrivals before.
  words_.answer = answer;
  words_.bits = envelope.key.bits;
  words_.initiator = envelope.key.initiator;
  words_.status = envelope.status;
  words_.length_bytes = envelope.length_bytes;
  words_.answered.store(++answered_, std::memory_order_seq_cst);  // "The sleep rule".
  memory_.wake_from_wait(ring_counters_.bells_rung);
}

void RingServer::answer_probe(const CommandRecord& command, const MatchKey& ignore) noexcept {
  Envelope envelope;
  MessageId message{1};
  const bool found = command.kind == CommandKind::kProbe
                         ? port_.probe(key_of(command), ignore, envelope)
                         : port_.matched_probe(key_of(command), ignore, message, envelope);
  answer(found ? static_cast<std::uint64_t>(message) : 0, envelope);
}

}  // namespace ch3_offload
