#include "engine/target_simulation.h"

#include <algorithm>

#include "rdma/checked/checksum.h"

namespace ch3_offload {

TargetSimulation::~TargetSimulation() {
  processes.clear();  // Before the providers that its engines use.
}

Provider* TargetSimulation::provider_of(std::uint32_t i, FakeProvider& provider) {
  sides_.resize(i + 1);
  if (has_checksums_)
    sides_[i].checked = std::make_unique<CheckedProvider>(provider, Log(nullptr, nullptr));
  sides_[i].observed = std::make_unique<ObservingProvider>(
      has_checksums_ ? *sides_[i].checked : static_cast<Provider&>(provider),
      [this, i](PeerId from, std::span<const std::byte> message) { arrive(i, index_of(from), message); });
  return sides_[i].observed.get();
}

void TargetSimulation::begin_program(std::uint64_t seed, std::uint64_t steps) {
  random_ = SeededRandom(seed);
  processes.clear();
  sides_.clear();
  begun_.clear();
  cards.clear();
  is_exact_ = true;
  network_config = {};
  network_config.seed = seed;
  network_config.slots_per_pair = random_.chance(0.5) ? 64 : 2;
  network_config.max_slot_bytes = random_.chance(0.3) ? 200 : 4096;
  network_config.write = random_.chance(0.8);
  network_config.write_threshold_bytes = random_.chance(0.5) ? 4096 : 500;
  network_config.again_probability = random_.chance(0.5) ? 0.2 : 0;
  network_config.slow_probability = random_.chance(0.5) ? 0.05 : 0;
  network_config.pair_without_write_probability = random_.chance(0.3) ? 0.3 : 0;
  network_config.late_unsupported_probability = random_.chance(0.3) ? 0.1 : 0;
  network_config.registration_refused_probability = random_.chance(0.3) ? 0.2 : 0;
  // Drawn apart, so that seeds from before still mean the same programs.
  SeededRandom damages(mix64(seed) ^ 0xC3C);
  has_checksums_ = have_checksums() && damages.chance(0.25);
  network_config.damaged_message_probability = has_checksums_ && damages.chance(0.7) ? 0.05 : 0;
  network_config.damaged_write_probability = has_checksums_ && damages.chance(0.7) ? 0.2 : 0;
  has_flow_control = random_.chance(0.3);
  // Nothing runs full: a step leaves few events, and at most one entry or header.
  const std::size_t room = 4 * steps + 200;
  interface_config.limits = {room, room, room};
  queue_events = room;
  self_copy_bytes = random_.chance(0.3) ? 4096 : SIZE_MAX;
  make(static_cast<std::uint32_t>(random_.between(2, 4)));
  for (std::uint32_t i = 0; i < processes.size(); ++i) {
    sides_[i].oracle =
        std::make_unique<TargetOracle>(TableConfig{kTable, true, has_flow_control}, interface_config.limits);
    if (is_elsewhere_) {
      sides_[i].memory = std::make_unique<OtherMemory>(i, static_cast<std::uint32_t>(processes.size()));
      sides_[i].addresses = std::make_unique<TargetAddresses>(&sides_[i].memory->client());
    }
    append_fixed(i);
  }
}

Status TargetSimulation::append_to_table(std::uint32_t i, TargetDescription entry, TargetListKind list,
                                         TargetId& id) {
  TargetReach reach;
  if (is_elsewhere_) {
    EXPECT_EQ(sides_[i].addresses->take(entry, reach), TargetAddresses::Taken::kTaken);
    sides_[i].kept.emplace_back(reach);
  }
  return table(i).append(entry, list, id, reach);
}

/// How much of the memory is still kept.
std::size_t TargetSimulation::kept(std::uint32_t i) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(sides_[i].kept, [](const auto& one) { return !one.expired(); }));
}

TargetHold TargetSimulation::hold_of(std::uint32_t i, TargetRequest& request) {
  TargetHold hold;
  if (is_elsewhere_) {
    EXPECT_EQ(sides_[i].addresses->take(request, hold), TargetAddresses::Taken::kTaken);
    sides_[i].kept.emplace_back(hold);
  }
  return hold;
}

/// The entries that stay: one that is read, and a sum.
void TargetSimulation::append_fixed(std::uint32_t i) {
  Side& side = sides_[i];
  side.readable = pattern(kReadBytes, i);
  side.sum.assign(sizeof(std::uint64_t), std::byte{0});
  for (const std::uint64_t bits : {kReadBits, kSumBits}) {
    TargetDescription entry = entry_of(bits == kReadBits ? side.readable : side.sum);
    entry.key.bits = MatchBits{bits};
    entry.ignore = {MatchBits{0}, kAnyProcess};
    if (bits == kReadBits) entry.options &= ~kAllowPut;
    Linked one;
    EXPECT_EQ(append_to_table(i, entry, TargetListKind::kPriority, one.id), Status::kOk);
    EXPECT_EQ(side.oracle->append(entry, TargetListKind::kPriority, one.entry), Status::kOk);
    side.linked.push_back(one);
  }
}

TargetDescription TargetSimulation::random_entry(std::uint32_t i) {
  Side& side = sides_[i];
  side.memories.emplace_back(random_.chance(0.3) ? 30'000 : random_.below(600));
  TargetDescription entry = entry_of(side.memories.back(), kManageLocal);
  entry.key = {MatchBits{random_.below(4)}, make_logical_id(static_cast<std::uint32_t>(random_.below(4)))};
  entry.ignore = {MatchBits{random_.chance(0.5) ? 0 : random_.below(4)},
                  random_.chance(0.5) ? kAnyProcess : kExactProcess};
  entry.options &= ~kNoLinkEvent;
  for (const std::uint32_t option :
       {kUseOnce, kNoTruncate, kAdvanceByUnexpected, kNoUnexpectedHeader, kNoLinkEvent, kNoCommEvent,
        kNoOverflowEvent, kNoUnlinkEvent, kCountComm, kCountOverflow, kCountBytes})
    if (random_.chance(0.25)) entry.options |= option;
  // Where a process dies or closes, nobody can say on which entry an operation was that is not told of.
  if (!has_incident_ && random_.chance(0.25)) entry.options |= kNoAcknowledgement;
  if (random_.chance(0.1)) entry.options &= ~kAllowPut;
  if (random_.chance(0.05)) entry.user = UserId{77};
  if (random_.chance(0.5)) entry.min_free_bytes = random_.below(200);
  if (random_.chance(0.5)) entry.counter = at(i).target_counter;
  entry.cookie = side.memories.back().data();
  return entry;
}

void TargetSimulation::append_any(std::uint32_t i) {
  const TargetDescription entry = random_entry(i);
  const TargetListKind list = random_.chance(0.4) ? TargetListKind::kOverflow : TargetListKind::kPriority;
  Linked one;
  const Status status = append_to_table(i, entry, list, one.id);
  if (is_exact_) {
    EXPECT_EQ(sides_[i].oracle->append(entry, list, one.entry), status);
    EXPECT_EQ(one.id == kNoTarget, one.entry == nullptr);
  }
  if (one.id != kNoTarget) sides_[i].linked.push_back(one);
}

void TargetSimulation::search(std::uint32_t i) {
  const TargetDescription entry = random_entry(i);
  const auto mode = random_.chance(0.5) ? TargetTable::SearchMode::kOnly : TargetTable::SearchMode::kDelete;
  table(i).search(entry, mode);
  sides_[i].oracle->search(entry, mode);
}

/// The oracle's operations are over before the engine's. So it follows where the engine unlinks.
void TargetSimulation::unlink(std::uint32_t i) {
  std::vector<Linked>& linked = sides_[i].linked;
  if (linked.size() <= 2) return;
  const std::size_t which = 2 + random_.below(linked.size() - 2);
  const TargetTable::Unlinked done = table(i).unlink(linked[which].id);
  if (done == TargetTable::Unlinked::kInUse) return;
  if (is_exact_) {
    EXPECT_EQ(sides_[i].oracle->unlink(linked[which].entry), done);
  }
  linked[which] = linked.back();
  linked.pop_back();
}

TargetRequest TargetSimulation::random_request(Begun& begun) {
  const std::size_t lengths[] = {0, 8, 50, 300, 5000, 20'000};
  const std::uint64_t kind = random_.below(10);
  if (kind < 6) {
    begun.source = pattern(lengths[random_.below(std::size(lengths))], begun_.size());
    TargetRequest request = put_from(begun.from, begun.source);
    request.bits = MatchBits{random_.below(4)};
    request.acknowledgement = static_cast<TargetAcknowledgement>(random_.below(4));
    return request;
  }
  if (kind < 8) {
    begun.destination.resize(lengths[random_.below(std::size(lengths))]);
    TargetRequest request = get_from(begun.from, begun.destination);
    request.bits = MatchBits{random_.chance(0.7) ? kReadBits : random_.below(4)};
    request.offset_bytes = random_.below(kReadBytes + 1000);
    return request;
  }
  const std::uint64_t operand = random_.below(1000);
  begun.source.resize(sizeof operand);
  std::memcpy(begun.source.data(), &operand, sizeof operand);
  TargetRequest request = put_from(begun.from, begun.source);
  request.operation = kind == 8 ? TargetOperation::kAtomic : TargetOperation::kFetchAtomic;
  request.atomic_operation = AtomicOperation::kSum;
  request.atomic_type = AtomicType::kUint64;
  request.bits = MatchBits{kSumBits};
  begun.destination.resize(sizeof operand);
  if (kind == 9) request.destination = origin_of(begun.from, begun.destination);
  return request;
}

void TargetSimulation::begin(std::uint32_t from, std::uint32_t to) {
  Begun& begun = begun_.emplace_back();
  begun.from = from;
  begun.to = to;
  begun.request = random_request(begun);
  begun.request.header_data = begun_.size() - 1;
  begun.request.table = random_.chance(0.03) ? kTable + 1 : kTable;
  begun.request.cookie = reinterpret_cast<void*>(begun_.size() - 1);
  if (from == to) {
    begun.header.key.bits = begun.request.bits;
    begun.header.length_bytes = begun.request.length_bytes();
    begun.header.offset_bytes = begun.request.offset_bytes;
    begun.header.operation = begun.request.operation;
    decide(begun);
  }
  TargetRequest request = begun.request;
  const TargetHold hold = hold_of(from, request);
  const Status status = at(from).engine->request(PeerId{to}, request, hold);
  if (status == Status::kOk) return;
  EXPECT_EQ(status, Status::kPeerFailed);
  EXPECT_FALSE(is_exact_);
  begun_.pop_back();
}

/// A request, or a change of a counting event, that waits for the counting event of what comes.
void TargetSimulation::trigger(std::uint32_t from, std::uint32_t to) {
  const TargetTrigger when{at(from).target_counter, random_.below(2000)};
  if (from == to) {
    const Waiting waiting{when.threshold, 1 + random_.below(9)};
    sides_[from].waiting.push_back(waiting);
    EXPECT_EQ(at(from).interface->trigger(when, TargetCountChange{TargetCountChange::Kind::kAdd,
                                                                  at(from).initiator_counter,
                                                                  {waiting.amount, 0}}),
              Status::kOk);
    at(from).engine->run_triggered();
    return;
  }
  Begun& begun = begun_.emplace_back();
  begun.from = from;
  begun.to = to;
  begun.request = random_request(begun);
  begun.request.header_data = begun_.size() - 1;
  begun.request.cookie = reinterpret_cast<void*>(begun_.size() - 1);
  begun.is_triggered = true;
  begun.threshold = when.threshold;
  TargetRequest request = begun.request;
  const TargetHold hold = hold_of(from, request);
  EXPECT_EQ(at(from).engine->trigger(when, PeerId{to}, request, hold), Status::kOk);
}

/// The process closes its interface. When that is done, it uses its memory for something else.
void TargetSimulation::close(std::uint32_t i) {
  at(i).engine->close_targets(0);
  sides_[i].is_closed = true;
  at(i).interface = nullptr;
  for (int steps = 0; steps < 100'000 && !at(i).engine->targets_are_closed(0); ++steps) step();
  EXPECT_TRUE(at(i).engine->targets_are_closed(0));
  at(i).queues.clear();
  for (Begun& begun : begun_) {
    if (begun.from != i) continue;
    begun.sent = begun.source;
    std::ranges::fill(begun.source, kMine);
    std::ranges::fill(begun.destination, kMine);
  }
  for (std::vector<std::byte>& memory : sides_[i].memories) std::ranges::fill(memory, kMine);
  std::ranges::fill(sides_[i].readable, kMine);
  std::ranges::fill(sides_[i].sum, kMine);
}

void TargetSimulation::expect_own_memory(std::uint32_t i) {
  const auto is_mine = [](const std::vector<std::byte>& memory) {
    return std::ranges::all_of(memory, [](std::byte one) { return one == kMine; });
  };
  for (const Begun& begun : begun_) {
    if (begun.from != i) continue;
    EXPECT_TRUE(is_mine(begun.source) && is_mine(begun.destination));
  }
  for (const std::vector<std::byte>& memory : sides_[i].memories) EXPECT_TRUE(is_mine(memory));
  EXPECT_TRUE(is_mine(sides_[i].readable) && is_mine(sides_[i].sum));
  EXPECT_EQ(kept(i), 0u);
  EXPECT_EQ(at(i).provider->regions(), 0u);
}

/// A request has arrived: the oracle sees it before the engine.
void TargetSimulation::arrive(std::uint32_t at, std::uint32_t from, std::span<const std::byte> message) {
  wire::TargetRequestHeader request;
  if (!wire::get_request(message, request) || request.common.client != wire::kTargetClient) return;
  Begun& begun = begun_[request.header_data];
  EXPECT_EQ(begun.from, from);
  EXPECT_EQ(begun.to, at);
  EXPECT_FALSE(begun.is_decided) << "it has arrived twice";
  begun.header.key.bits = MatchBits{request.bits};
  begun.header.length_bytes = begun.request.length_bytes();
  begun.header.offset_bytes = request.offset_bytes;
  begun.header.operation = begun.request.operation;
  decide(begun);
}

void TargetSimulation::decide(Begun& begun) {
  Side& side = sides_[begun.to];
  TargetHeader& header = begun.header;
  header.key.initiator = make_logical_id(begun.from);
  header.header_data = begun.request.header_data;
  header.atomic_operation = static_cast<std::uint8_t>(begun.request.atomic_operation);
  header.atomic_type = static_cast<std::uint8_t>(begun.request.atomic_type);
  begun.is_decided = true;
  if (begun.request.table != kTable) {
    ++side.oracle->registers.drops;
    begun.decision.failure = TargetFailure::kDropped;
    return;
  }
  begun.decision = side.oracle->arrive(header);
  if (begun.decision.failure != TargetFailure::kNone) return;
  const bool is_sum = begun.request.bits == MatchBits{kSumBits};
  if (is_sum) {
    std::uint64_t operand = 0;
    std::memcpy(&operand, begun.source.data(), sizeof operand);
    side.expected_sum += operand;
  }
  side.oracle->finish(begun.decision, header, TargetFailure::kNone);
}

void TargetSimulation::take_events(std::uint32_t i) {
  for (const TargetEvent& event : take(i, at(i).initiator_queue)) heard(event);
  for (const TargetEvent& event : take(i, at(i).target_queue)) {
    sides_[i].events.push_back(event);
    check_data(i, event);
  }
}

/// What an initiator is told of its request.
void TargetSimulation::heard(const TargetEvent& event) {
  Begun& begun = begun_[reinterpret_cast<std::uintptr_t>(event.cookie)];
  if (event.kind == TargetEventKind::kSend) {
    EXPECT_EQ(++begun.sends, 1);
    EXPECT_EQ(begun.answers, 0) << "its answer came before its send event";
    EXPECT_TRUE(!is_exact_ || event.failure == TargetFailure::kNone);
    return;
  }
  EXPECT_EQ(event.kind, begun.request.returns_data() ? TargetEventKind::kReply : TargetEventKind::kAck);
  EXPECT_EQ(++begun.answers, 1);
  if (!is_exact_) return;  // The oracle does not know what a death has ended.
  EXPECT_TRUE(begun.is_decided);
  EXPECT_EQ(event.failure, begun.decision.failure);
  if (event.failure != TargetFailure::kNone) return;
  EXPECT_EQ(event.length_bytes, begun.decision.length);
  EXPECT_EQ(event.header.offset_bytes, begun.decision.offset);
  if (begun.request.is_get() && begun.request.bits == MatchBits{kReadBits}) {
    const auto& readable = sides_[begun.to].readable;
    EXPECT_TRUE(std::equal(begun.destination.begin(),
                           begun.destination.begin() + static_cast<std::ptrdiff_t>(event.length_bytes),
                           readable.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(
                                                  begun.decision.offset, readable.size()))));
  }
}

/// The data of a put is where its event says. No other operation touches those bytes: offsets are local.
void TargetSimulation::check_data(std::uint32_t i, const TargetEvent& event) {
  const bool is_put = event.kind == TargetEventKind::kPut || event.kind == TargetEventKind::kPutOverflow ||
                      event.kind == TargetEventKind::kSearch;
  if (!is_put || event.failure != TargetFailure::kNone || event.header.operation != TargetOperation::kPut)
    return;
  const Begun& begun = begun_[event.header.header_data];
  EXPECT_EQ(begun.to, i);
  // A search may find a header whose data is on its way.
  if (event.kind == TargetEventKind::kSearch) return;
  const auto& data = begun.sent.empty() ? begun.source : begun.sent;
  EXPECT_TRUE(std::equal(event.start, event.start + event.length_bytes, data.begin()));
}

void TargetSimulation::compare(std::uint32_t i) {
  const auto in_words = [](const std::vector<TargetEvent>& events) {
    std::vector<std::string> words;
    for (const TargetEvent& event : events) words.push_back(long_form(event));
    std::sort(words.begin(), words.end());
    return words;
  };
  TargetOracle& oracle = *sides_[i].oracle;
  EXPECT_EQ(in_words(sides_[i].events), in_words(oracle.told.events));
  const auto counted = oracle.told.counters[at(i).target_counter];
  EXPECT_EQ(at(i).interface->counted(at(i).target_counter), (TargetCount{counted.first, counted.second}));
  const TargetRegisterWords& registers = at(i).board->registers;
  EXPECT_EQ(registers.drops, oracle.registers.drops);
  EXPECT_EQ(registers.permission_violations, oracle.registers.permission_violations);
  EXPECT_EQ(registers.operation_violations, oracle.registers.operation_violations);
  EXPECT_EQ(table(i).is_enabled(), oracle.enabled);
  EXPECT_EQ(table(i).waiting_headers(), oracle.waiting());
  std::uint64_t sum = 0;
  std::memcpy(&sum, sides_[i].sum.data(), sizeof sum);
  EXPECT_EQ(sum, sides_[i].expected_sum);
}

/// Nothing is in use any more.
void TargetSimulation::unlink_all(std::uint32_t i) {
  EXPECT_EQ(table(i).in_flight(), 0u);
  table(i).search({}, TargetTable::SearchMode::kDelete);
  for (const Linked& one : sides_[i].linked)
    EXPECT_NE(table(i).unlink(one.id), TargetTable::Unlinked::kInUse);
  EXPECT_TRUE(table(i).is_unused());
  EXPECT_EQ(at(i).interface->free_table(kTable), Status::kOk);
  EXPECT_LE(kept(i), at(i).interface->triggered()) << "what waits for a trigger keeps its memory";
  EXPECT_EQ(at(i).provider->regions(), 0u);
}

void TargetSimulation::run(std::uint64_t seed, std::uint64_t steps, Incident incident) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  has_incident_ = incident != Incident::kNone;
  begin_program(seed, steps);
  const auto size = static_cast<std::uint32_t>(processes.size());
  const std::uint64_t happens_at = incident == Incident::kNone ? steps : random_.below(steps);
  for (std::uint64_t step_number = 0; step_number < steps && !HasFailure(); ++step_number) {
    const auto i = static_cast<std::uint32_t>(random_.below(size));
    if (step_number == happens_at) {
      is_exact_ = false;
      if (incident == Incident::kDeath)
        kill(static_cast<std::uint32_t>(size - 1));
      else
        close(static_cast<std::uint32_t>(size - 1));
    }
    if (!is_alive(i)) continue;
    const std::uint64_t what = random_.below(100);
    if (what < 42) {
      begin(i, static_cast<std::uint32_t>(random_.below(size)));
    } else if (what < 45) {
      trigger(i, static_cast<std::uint32_t>(random_.below(size)));
    } else if (what < 60) {
      append_any(i);
    } else if (what < 64) {
      search(i);
    } else if (what < 70) {
      unlink(i);
    } else if (what < 72 && !has_flow_control) {
      table(i).disable();
      sides_[i].oracle->enabled = false;
    } else if (what < 78 && table(i).in_flight() == 0) {
      table(i).enable();
      sides_[i].oracle->enable();
    } else {
      step();
    }
    if (is_alive(i)) take_events(i);
  }
  settle();
  for (std::uint32_t i = 0; i < size; ++i) {
    if (!is_alive(i)) continue;
    take_events(i);
    if (is_exact_) compare(i);
    std::uint64_t changed = 0;
    for (const Waiting& waiting : sides_[i].waiting)
      if (has_fired(i, waiting.threshold)) changed += waiting.amount;
    EXPECT_EQ(at(i).interface->counted(at(i).initiator_counter), (TargetCount{changed, 0}));
    unlink_all(i);
  }
  for (const Begun& begun : begun_) {
    if (!is_alive(begun.from)) continue;
    const TargetRequest& request = begun.request;
    if (begun.is_triggered && !has_fired(begun.from, begun.threshold)) {
      EXPECT_EQ(begun.sends + begun.answers, 0) << "its trigger has not fired";
      continue;
    }
    EXPECT_EQ(begun.sends, request.is_get() ? 0 : 1);
    const bool is_told = request.returns_data() || request.acknowledgement == TargetAcknowledgement::kFull;
    const bool is_untold = !request.returns_data() && begun.decision.entry != nullptr &&
                           begun.decision.failure == TargetFailure::kNone &&
                           begun.decision.entry->its.has(kNoAcknowledgement);
    EXPECT_EQ(begun.answers, is_told && !is_untold ? 1 : 0);
  }
  for (std::uint32_t i = 0; i < size; ++i)
    if (sides_[i].is_closed) expect_own_memory(i);
}

}  // namespace ch3_offload
