// The random program: what each process does next.

#include <algorithm>

#include "engine/simulation.h"

namespace ch3_offload {

namespace {

/// A process's packet stream to another is one endless pattern.
std::uint64_t stream_seed(std::uint32_t from, std::uint32_t to) {
  return mix64(std::uint64_t{from} << 32 | to);
}

}  // namespace

Simulation::Process* Simulation::choose_alive() {
  for (;;) {
    Process& process = *processes_[random_.below(processes_.size())];
    if (process.alive) return &process;
  }
}

/// A record for which keep() holds, found from a random place on, or null.
template <class Keep>
Record* Simulation::choose_record(Keep keep) {
  constexpr std::size_t kTries = 40;
  for (std::size_t i = 0; i < std::min(kTries, records_.size()); ++i) {
    Record& record = *records_[random_.below(records_.size())];
    if (!record.done && keep(record)) return &record;
  }
  return nullptr;
}

/// The rank of a process in a context's communicator: a rotation, so that ranks are not process numbers. Every
/// second communicator has more than 65,536 ranks.
std::uint32_t Simulation::rank_of(std::uint32_t process, std::uint32_t context) const {
  return (process + context * 3) % config_.processes + context % 2 * 0x1'0000;
}

MatchKey Simulation::random_mask() {
  const std::uint64_t bits = random_.next();
  return {bits, static_cast<std::uint32_t>(random_.next())};
}

MatchKey Simulation::choose_key(std::uint32_t from, std::uint64_t number) {
  const auto context = static_cast<std::uint16_t>(random_.below(config_.contexts));
  auto tag = static_cast<std::uint32_t>(random_.below(config_.tags));
  if (config_.numbered) {
    tag |= static_cast<std::uint32_t>(number & ((std::uint64_t{1} << config_.number_bits) - 1)) << config_.number_shift;
  }
  return make_match_key(context, rank_of(from, context), tag);
}

/// Lengths at and around every limit of the protocols.
std::size_t Simulation::choose_length() {
  const std::size_t slot = config_.network.max_slot_bytes;
  std::size_t length = 0;
  switch (random_.below(10)) {
    case 0: length = 0; break;
    case 1:
    case 2: length = random_.between(1, 16); break;
    case 3: length = random_.between(100, 140); break;
    case 4: length = slot - random_.between(0, 48); break;
    case 5: length = config_.engine.eager_limit_bytes + random_.below(3) - (config_.engine.eager_limit_bytes > 0); break;
    case 6: length = random_.below(6 * slot); break;
    case 7: length = random_.below(3 * config_.engine.eager_limit_bytes + 2); break;
    default: length = random_.below(2000); break;
  }
  if (random_.chance(config_.long_probability)) length = random_.below(config_.longest_bytes + 1);
  length = std::min(length, config_.longest_bytes);
  return config_.numbered ? length : std::max<std::size_t>(length, 8);
}

std::pmr::memory_resource& Simulation::memory_of(Process& process) {
  if (process.shared.arena == nullptr || !memory_random_.chance(config_.shared_probability)) return arena_;
  return process.shared;
}

std::unique_ptr<PayloadBuffer> Simulation::make_buffer(Process& process, std::size_t length) {
  if (!random_.chance(config_.strided_probability))
    return std::make_unique<PayloadBuffer>(length, 0, 0, memory_of(process));
  const std::size_t block_bytes = random_.between(1, 100);
  const auto kind = block_bytes % 2 == 0 ? PayloadBuffer::Kind::kPacked : PayloadBuffer::Kind::kPieces;
  return std::make_unique<PayloadBuffer>(length, block_bytes, random_.below(40), arena_, kind);
}

void Simulation::command(Process& process) {
  ++commands_;
  ++depth_;
  const bool full = oracle_.waiting_messages() > config_.most_waiting * config_.processes;
  const bool eager = oracle_.posted_receives() > config_.most_posted * config_.processes;
  const std::uint64_t dice = random_.below(100);
  if (config_.purge_probability > 0 && random_.chance(config_.purge_probability)) {
    command_purge(process);
  } else if (config_.classify_probability > 0 && random_.chance(config_.classify_probability)) {
    command_classify(process);
  } else if (dice < 35) {
    if (full) command_receive(process); else command_send(process);
  } else if (dice < 70) {
    if (eager) command_send(process); else command_receive(process);
  } else if (dice < 76) {
    command_probe(process);
  } else if (dice < 80) {
    command_matched_probe(process);
  } else if (dice < 85) {
    command_receive_matched(process);
  } else if (dice < 88) {
    command_cancel_receive(process);
  } else if (dice < 92) {
    command_cancel_send(process);
  } else if (dice < 96) {
    if (full) command_receive(process); else command_send(process);
  } else {
    command_packet(process);
  }
  --depth_;
}

void Simulation::nested_command(Process& process) {
  if (calm_ || depth_ > 3 || !random_.chance(config_.nested_probability)) return;
  command(process);
}

void Simulation::command_send(Process& process) {
  const auto to = static_cast<std::uint32_t>(random_.below(config_.processes));
  if (to == process.id && !random_.chance(0.5)) return;
  auto record = std::make_unique<SendRecord>(process.id);
  record->seed = next_seed_++;
  record->from = process.id;
  record->to = to;
  record->key = choose_key(process.id, next_number_[process.id * config_.processes + to]++);
  record->length_bytes = choose_length();
  record->mode = random_.chance(0.75) ? SendMode::kStandard
                 : random_.chance(0.7) ? SendMode::kSynchronous : SendMode::kReady;
  record->send_id = random_.chance(0.9) ? next_send_id_++ : 0;
  record->buffer = make_buffer(process, record->length_bytes);
  record->buffer->fill(record->seed);
  SendRecord& send = adopt(std::move(record));
  log("send", process.id, to, send.seed, abridged(send.key));
  oracle_.sent(send);
  Status status = Status::kDeviceFailed;
  OperationId operation = kNoOperation;
  const Progressed progressed =
      process.engine->send(PeerId{to}, send.mode, send.key, send.buffer->payload(), send.send_id,
                           static_cast<Record*>(&send), operation, status);
  if (send.done) return fail("send() finished it twice");
  switch (progressed) {
    case Progressed::kDone:
      if (operation != kNoOperation) fail("a send that is done has an operation");
      send_over(send, status);
      break;
    case Progressed::kPending:
      send.operation = operation;
      if (operation == kNoOperation) fail("a pending send has no operation");
      break;
    case Progressed::kFailed:
      if (!oracle_.is_lost(process.id, to)) fail(std::string("send() failed: ") + status_name(status));
      oracle_.send_refused(send);
      send.done = true;
      touch(send);
      break;
  }
}

void Simulation::command_packet(Process& process) {
  const auto to = static_cast<std::uint32_t>(random_.below(config_.processes));
  const bool busy = choose_record([](const Record& record) { return record.kind == Record::Kind::kPacket; }) != nullptr;
  if (to == process.id || (busy && random_.chance(0.8))) return;
  auto record = std::make_unique<PacketRecord>(process.id, to);
  std::uint64_t& position = process.packet_bytes_out[to];
  const std::uint64_t seed = stream_seed(process.id, to);
  std::vector<std::byte> header(random_.below(80));
  fill_pattern(header, seed, position);
  std::uint64_t end = position + header.size();
  std::vector<Payload> data;
  for (std::uint64_t parts = random_.below(4); parts > 0; --parts) {
    const std::size_t length = std::min<std::size_t>(choose_length(), 200'000);
    // A buffer's pattern begins at its seed's byte 0; a stream's does not.
    auto buffer = make_buffer(process, length);
    std::vector<std::byte> bytes(length);
    fill_pattern(bytes, seed, end);
    buffer->set(bytes);
    end += length;
    data.push_back(buffer->payload());
    record->parts.push_back(std::move(buffer));
  }
  PacketRecord& packet = adopt(std::move(record));
  log("packet", process.id, to, position, end - position);
  position = end;
  Status status = Status::kDeviceFailed;
  const Progressed progressed = process.engine->send_packet(PeerId{to}, header, data, static_cast<Record*>(&packet), status);
  std::fill(header.begin(), header.end(), std::byte{0x77});
  if (packet.done) return fail("send_packet() finished it twice");
  if (progressed == Progressed::kPending) return;
  if (progressed == Progressed::kFailed && !oracle_.is_lost(process.id, to)) {
    fail(std::string("send_packet() failed: ") + status_name(status));
  }
  for (auto& part : packet.parts) part->scribble();
  packet.done = true;
  touch(packet);
}

/// Bits, mask and capacity of a receive or a probe; three times out of four with a message in mind.
void Simulation::choose_request(Process& process, MatchKey& key, MatchKey& ignore, std::size_t& capacity) {
  const auto context = static_cast<std::uint16_t>(random_.below(config_.contexts));
  const std::uint32_t source = rank_of(static_cast<std::uint32_t>(random_.below(config_.processes)), context);
  key = make_match_key(context, source, static_cast<std::uint32_t>(random_.below(config_.tags)));
  capacity = choose_length();
  const auto& list = oracle_.waiting(static_cast<std::uint32_t>(random_.below(config_.processes)), process.id);
  if (!list.empty() && random_.chance(0.75)) {
    const SentMessage& target = *list[random_.below(list.size())];
    key = target.key;
    capacity = target.length_bytes + (random_.chance(0.5) ? 0 : random_.below(64));
    if (random_.chance(0.2)) capacity = random_.below(capacity + 1);
  }
  if (!config_.numbered) capacity = std::max<std::size_t>(capacity, 8);
  const std::uint64_t dice = random_.below(100);
  if (dice < 35) ignore = kIgnoreNothing;
  else if (dice < 55)
    ignore = kIgnoreInitiator;
  else if (dice < 70) ignore = kIgnoreTag;
  else if (dice < 85)
    ignore = kIgnoreInitiatorAndTag;
  else
    ignore = random_mask() & random_mask() & MatchKey{0x0003'0000'000F, 0x1'0007};
  // What is ignored may hold anything.
  const MatchKey always = config_.engine.always_ignored;
  const MatchKey any = ignore | always;
  key = (key & ~any) | (random_mask() & any);
  if (random_.chance(0.3)) ignore = ignore | (random_mask() & always);
  // The processor of other processes refuses masks that are none of MPI's where much waits.
  const CounterPage& counters = process.engine->counters();
  if (config_.driver == SimulatedDriver::kProcess &&
      counters.posted_depth + counters.unexpected_depth > RingServer::kMostWalked / 2)
    ignore = kIgnoreTag;
}

void Simulation::post(Process& process, MatchKey key, MatchKey ignore, std::size_t capacity,
                      SendRecord* expected) {
  auto record = std::make_unique<ReceiveRecord>(process.id);
  record->at = process.id;
  record->key = key;
  record->ignore = ignore;
  record->expected = expected;
  record->buffer = make_buffer(process, capacity);
  ReceiveRecord& receive = adopt(std::move(record));
  log("post", process.id, UINT32_MAX, capacity, abridged(key));
  oracle_.posted(receive);
  Envelope envelope;
  if (random_.chance(0.3) && process.engine->receive_now(key, ignore, receive.buffer->payload(), envelope)) {
    return receive_over(receive, envelope);
  }
  OperationId operation = kNoOperation;
  const Progressed progressed = process.engine->post_receive(
      key, ignore, receive.buffer->payload(), static_cast<Record*>(&receive), operation, envelope);
  if (receive.done) return fail("post_receive() finished it twice");
  if (progressed == Progressed::kFailed) return fail("post_receive() failed");
  if (progressed == Progressed::kDone) return receive_over(receive, envelope);
  receive.operation = operation;
  if (operation == kNoOperation) fail("a pending receive has no operation");
}

void Simulation::command_receive(Process& process) {
  MatchKey key{};
  MatchKey ignore{};
  std::size_t capacity = 0;
  choose_request(process, key, ignore, capacity);
  post(process, key, ignore, capacity, nullptr);
}

void Simulation::command_probe(Process& process) {
  MatchKey key{};
  MatchKey ignore{};
  std::size_t capacity = 0;
  choose_request(process, key, ignore, capacity);
  Envelope envelope;
  if (!process.engine->probe(key, ignore, envelope)) return;
  SendRecord* const found = identify(process, envelope, nullptr);
  if (found == nullptr) return;
  const bool certain = config_.numbered;
  log("probed", process.id, found->from, found->seed, abridged(key));
  if (certain) oracle_.probed(process.id, key, ignore, *found);
  if (random_.chance(0.5)) post(process, key, ignore, capacity, certain ? found : nullptr);
}

void Simulation::command_matched_probe(Process& process) {
  if (!config_.numbered) return;
  MatchKey key{};
  MatchKey ignore{};
  std::size_t capacity = 0;
  choose_request(process, key, ignore, capacity);
  Envelope envelope;
  MessageId message{};
  if (!process.engine->matched_probe(key, ignore, message, envelope)) return;
  SendRecord* const found = identify(process, envelope, nullptr);
  if (found == nullptr) return;
  log("matched probe", process.id, found->from, found->seed, abridged(key));
  oracle_.taken(process.id, key, ignore, *found);
  process.taken.push_back({message, found});
}

void Simulation::command_receive_matched(Process& process) {
  if (process.taken.empty()) return;
  const std::size_t index = random_.below(process.taken.size());
  const Process::Taken taken = process.taken[index];
  process.taken.erase(process.taken.begin() + static_cast<std::ptrdiff_t>(index));
  auto record = std::make_unique<ReceiveRecord>(process.id);
  record->taken = taken.send;
  std::size_t capacity = taken.send->length_bytes + random_.below(10);
  if (random_.chance(0.2)) capacity = random_.below(capacity + 1);
  record->buffer = make_buffer(process, capacity);
  ReceiveRecord& receive = adopt(std::move(record));
  log("receive matched", process.id, taken.send->from, taken.send->seed, capacity);
  Envelope envelope;
  const Progressed progressed =
      process.engine->receive_matched(taken.message, receive.buffer->payload(), static_cast<Record*>(&receive), envelope);
  if (receive.done) return fail("receive_matched() finished it twice");
  if (progressed == Progressed::kFailed) return fail("receive_matched() failed");
  if (progressed == Progressed::kDone) receive_over(receive, envelope);
}

void Simulation::command_cancel_receive(Process& process) {
  if (process.stale_receive != kNoOperation && random_.chance(0.2) && process.engine->cancel_receive(process.stale_receive)) {
    return fail("a receive that was over was cancelled");
  }
  auto* const record = choose_record([&](const Record& each) {
    return each.owner == process.id && each.kind == Record::Kind::kReceive &&
           static_cast<const ReceiveRecord&>(each).operation != kNoOperation;
  });
  if (record == nullptr) return;
  auto& receive = static_cast<ReceiveRecord&>(*record);
  if (process.engine->cancel_receive(receive.operation)) receive_returned(receive);
}

void Simulation::command_cancel_send(Process& process) {
  // Pending ones by their operation; finished ones, so long as nobody is known to have received them.
  SendRecord* send = nullptr;
  for (int tries = 0; tries < 20 && send == nullptr && !records_.empty(); ++tries) {
    Record& record = *records_[random_.below(records_.size())];
    if (record.kind != Record::Kind::kSend || record.owner != process.id) continue;
    auto& candidate = static_cast<SendRecord&>(record);
    if (candidate.cancelling || candidate.state == SentMessage::State::kCancelled ||
        (candidate.done && candidate.send_id == 0)) {
      continue;
    }
    send = &candidate;
  }
  if (send == nullptr) return;
  CancelRecord& cancel = adopt(std::make_unique<CancelRecord>(process.id, *send));
  log("cancel send", process.id, send->to, send->seed, send->done);
  send->cancelling = true;
  oracle_.cancel_requested(*send);
  const OperationId operation = send->done ? kNoOperation : send->operation;
  const Progressed progressed = process.engine->cancel_send(operation, PeerId{send->to}, send->key,
                                                            send->send_id, static_cast<Record*>(&cancel));
  if (cancel.done) return fail("cancel_send() finished it twice");
  if (progressed == Progressed::kPending) return;
  cancel.done = true;
  touch(cancel);
  cancel_over(*send, progressed == Progressed::kDone);
}

void Simulation::command_classify(Process& process) {
  const auto context = static_cast<std::uint16_t>(random_.below(config_.contexts));
  const auto traffic_class = static_cast<TrafficClass>(random_.below(kTrafficClasses));
  log("classify", process.id, process.id, context, index_of(traffic_class));
  process.engine->classify(make_match_key(context, 0, 0).bits, traffic_class);
}

/// All of a context with a tag that is even or odd, with exceptions or none.
void Simulation::command_purge(Process& process) {
  const auto context = static_cast<std::uint16_t>(random_.below(config_.contexts));
  const auto parity = static_cast<std::uint32_t>(random_.below(2));
  const MatchPattern doomed{make_match_key(context, 0, parity), kIgnoreInitiator | MatchKey{0xFFFF'FFFE, 0}};
  MatchPattern spared{make_match_key(0xFFFF, 0, 0), kIgnoreInitiatorAndTag};  // Nothing.
  if (random_.chance(0.5)) spared = {make_match_key(0, 0, 2), ~MatchKey{2, 0}};
  log("purge", process.id, process.id, context, parity);
  oracle_.purged(process.id, doomed, spared);
  process.engine->purge(PurgeScope::kAll, {&doomed, 1}, {&spared, 1}, Status::kRevoked);
  if (random_.chance(0.5)) take_events(*process.engine, process);
}

}  // namespace ch3_offload
