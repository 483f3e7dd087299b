#include "portals/fake_target_port.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "engine/payload_layout.h"

namespace ch3_offload::portals {

namespace {

/// The part of an entry's memory that an operation uses, as bytes that can be read and written.
std::vector<std::byte> read_entry(const Placement& placement) {
  std::vector<std::byte> bytes(placement.length_bytes);
  const TargetDescription& its = placement.entry->its;
  if (bytes.empty()) return bytes;
  if (its.pieces == nullptr) {
    std::copy_n(placement.start(), bytes.size(), bytes.begin());
    return bytes;
  }
  PayloadLayout layout{};
  layout.kind = PayloadLayout::Kind::kPieces;
  layout.pieces = its.pieces;
  layout.piece_count = its.piece_count;
  layout.element_bytes = its.length_bytes;
  gather({nullptr, its.length_bytes, &layout}, placement.offset_bytes, bytes);
  return bytes;
}

void write_entry(const Placement& placement, std::span<const std::byte> bytes) {
  const TargetDescription& its = placement.entry->its;
  if (bytes.empty()) return;
  if (its.pieces == nullptr) {
    std::copy(bytes.begin(), bytes.end(), placement.start());
    return;
  }
  PayloadLayout layout{};
  layout.kind = PayloadLayout::Kind::kPieces;
  layout.pieces = its.pieces;
  layout.piece_count = its.piece_count;
  layout.element_bytes = its.length_bytes;
  scatter({nullptr, its.length_bytes, &layout}, placement.offset_bytes, bytes);
}

bool is_wanted(const TargetOrigin& origin, TargetFailure failure, std::uint32_t disabling) {
  return failure != TargetFailure::kNone || (origin.options & (disabling | kNoOriginSuccessEvent)) == 0;
}

std::uint64_t amount_of(const TargetOrigin& origin, TargetFailure failure, std::uint64_t bytes) {
  return failure == TargetFailure::kNone && (origin.options & kCountOriginBytes) != 0 ? bytes : 1;
}

}  // namespace

FakeTargetPort::FakeTargetPort(const Config& config)
    : config_(config), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), bell_number_(bell_.get()) {
  if (config_.works_alone) thread_ = std::thread([this] { run(); });
}

FakeTargetPort::~FakeTargetPort() {
  {
    const Guard guard(mutex_);
    is_ending_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void FakeTargetPort::run() {
  for (;;) {
    {
      const Guard guard(mutex_);
      if (is_ending_) return;
      while (step()) {
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void FakeTargetPort::hold() {
  const Guard guard(mutex_);
  is_held_ = true;
}

void FakeTargetPort::release() {
  const Guard guard(mutex_);
  is_held_ = false;
  ring_bell();
}

void FakeTargetPort::settle() {
  const Guard guard(mutex_);
  while (step()) {
  }
}

bool FakeTargetPort::is_armed() {
  const Guard guard(mutex_);
  return is_armed_;
}

unsigned FakeTargetPort::armings() {
  const Guard guard(mutex_);
  return armings_;
}

Status FakeTargetPort::open(unsigned number, const TargetInterfaceConfig& config,
                            TargetBoard& board) noexcept {
  const Guard guard(mutex_);
  Side& side = sides_[number];
  if (side.targets != nullptr) return Status::kAgain;
  side.targets = std::make_unique<TargetInterface>(config);
  side.board = &board;
  if (side.targets->prepare() != Status::kOk || !side.targets->identify(0, config_.self, config_.user))
    return Status::kNoMemory;
  return Status::kOk;
}

void FakeTargetPort::close(unsigned number) noexcept {
  const Guard guard(mutex_);
  std::erase_if(operations_, [number](const Operation& one) { return one.request.interface == number; });
  sides_[number] = {};
}

Status FakeTargetPort::set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept {
  const Guard guard(mutex_);
  const auto found = std::find(ranks.begin(), ranks.end(), config_.self);
  const auto rank = static_cast<std::uint32_t>(found - ranks.begin());
  if (found != ranks.end())
    static_cast<void>(sides_[number].targets->identify(0, make_logical_id(rank), config_.user));
  return Status::kOk;
}

QueueId FakeTargetPort::make_queue(unsigned number, TargetEventRing& ring) noexcept {
  const Guard guard(mutex_);
  const QueueId id = sides_[number].targets->make_queue(ring.reservable);
  if (id != kNoQueue) sides_[number].rings[id] = &ring;
  return id;
}

void FakeTargetPort::free_queue(unsigned number, QueueId queue) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->free_queue(queue);
  sides_[number].rings.erase(queue);
}

CounterId FakeTargetPort::make_counter(unsigned number) noexcept {
  const Guard guard(mutex_);
  Side& side = sides_[number];
  if (side.counters.size() == kMostTargetCounters) return kNoCounter;
  const CounterId id = side.targets->make_counter();
  side.counters.push_back(id);
  publish();
  return id;
}

void FakeTargetPort::free_counter(unsigned number, CounterId counter) noexcept {
  const Guard guard(mutex_);
  cancel_triggered(number, counter);
  sides_[number].targets->free_counter(counter);
  std::erase(sides_[number].counters, counter);
}

void FakeTargetPort::change_counter(unsigned number, const TargetCountChange& one) noexcept {
  const Guard guard(mutex_);
  change(sides_[number], one);
  pull_triggers(sides_[number]);
  publish();
  ring_bell();
}

void FakeTargetPort::change(Side& side, const TargetCountChange& one) {
  TargetCount* const count = side.targets->counter(one.counter);
  if (count == nullptr) return;
  if (one.kind == TargetCountChange::Kind::kSet) {
    *count = one.amount;
  } else {
    count->success += one.amount.success;
    count->failure += one.amount.failure;
  }
}

void FakeTargetPort::cancel_triggered(unsigned number, CounterId counter) noexcept {
  const Guard guard(mutex_);
  std::erase_if(sides_[number].waiting,
                [counter](const Waiting& one) { return one.when.counter == counter; });
}

Status FakeTargetPort::make_table(unsigned number, std::uint32_t index, QueueId queue,
                                  bool has_flow_control) noexcept {
  const Guard guard(mutex_);
  return sides_[number].targets->make_table(index, queue, has_flow_control);
}

Status FakeTargetPort::free_table(unsigned number, std::uint32_t index) noexcept {
  const Guard guard(mutex_);
  return sides_[number].targets->free_table(index);
}

void FakeTargetPort::enable_table(unsigned number, std::uint32_t index) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->table(index)->enable();
}

bool FakeTargetPort::disable_table(unsigned number, std::uint32_t index) noexcept {
  const Guard guard(mutex_);
  TargetTable& table = *sides_[number].targets->table(index);
  table.disable();
  return table.in_flight() == 0;
}

Status FakeTargetPort::append(unsigned number, std::uint32_t index, TargetListKind list,
                              const TargetDescription& description, TargetId& id) noexcept {
  const Guard guard(mutex_);
  const Status status = sides_[number].targets->table(index)->append(description, list, id);
  pull_triggers(sides_[number]);
  publish();
  ring_bell();
  return status;
}

void FakeTargetPort::search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
                            const TargetDescription& description) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->table(index)->search(description, mode);
  pull_triggers(sides_[number]);
  publish();
  ring_bell();
}

TargetTable::Unlinked FakeTargetPort::unlink(unsigned number, std::uint32_t index, TargetId id) noexcept {
  const Guard guard(mutex_);
  return sides_[number].targets->table(index)->unlink(id);
}

FakeTargetPort::Operation FakeTargetPort::make_operation(ProcessId process, const TargetRequest& request) {
  Operation made;
  made.process = process;
  made.request = request;
  const Payload& source = request.source.memory;
  if ((request.source.options & kVolatile) == 0 || source.length_bytes == 0) return made;
  made.volatile_data.resize(source.length_bytes);
  gather(source, 0, made.volatile_data);
  return made;
}

Status FakeTargetPort::request(ProcessId process, const TargetRequest& request) noexcept {
  const Guard guard(mutex_);
  operations_.push_back(make_operation(process, request));
  return Status::kOk;
}

Status FakeTargetPort::wait_for(Side& side, Waiting waiting) {
  if (side.waiting.size() == config_.most_triggered) return Status::kNoMemory;
  side.waiting.push_back(std::move(waiting));
  pull_triggers(side);
  publish();
  ring_bell();
  return Status::kOk;
}

Status FakeTargetPort::trigger(const TargetTrigger& when, ProcessId process,
                               const TargetRequest& request) noexcept {
  const Guard guard(mutex_);
  Operation operation;
  operation.process = process;
  operation.request = request;
  return wait_for(sides_[request.interface], {when, std::move(operation), {}});
}

Status FakeTargetPort::trigger(const TargetTrigger& when, unsigned number,
                               const TargetCountChange& change) noexcept {
  const Guard guard(mutex_);
  return wait_for(sides_[number], {when, std::nullopt, change});
}

void FakeTargetPort::pull_triggers(Side& side) {
  for (;;) {
    auto first = side.waiting.end();
    for (auto one = side.waiting.begin(); one != side.waiting.end(); ++one) {
      const TargetCount* const count = side.targets->counter(one->when.counter);
      const bool is_due = count != nullptr && count->success + count->failure >= one->when.threshold;
      if (is_due && (first == side.waiting.end() || one->when.threshold < first->when.threshold)) first = one;
    }
    if (first == side.waiting.end()) return;
    Waiting due = std::move(*first);
    side.waiting.erase(first);
    if (due.operation) {
      operations_.push_back(make_operation(due.operation->process, due.operation->request));
    } else {
      change(side, due.change);
    }
  }
}

std::size_t FakeTargetPort::progress() noexcept {
  const Guard guard(mutex_);
  return !config_.works_alone && step() ? 1 : 0;
}

bool FakeTargetPort::step() noexcept {
  bool happened = false;
  if (!operations_.empty() && !is_held_) {
    Operation& one = operations_.front();
    if (!one.has_arrived) {
      arrive(one);
    } else {
      finish(one);
      Side& side = sides_[one.request.interface];
      operations_.pop_front();
      pull_triggers(side);
    }
    happened = true;
  }
  const bool published = publish() > 0;
  if (happened || published) ring_bell();
  return happened || published;
}

void FakeTargetPort::arrive(Operation& one) {
  const TargetRequest& request = one.request;
  one.has_arrived = true;
  one.header.key.bits = request.bits;
  one.header.length_bytes = request.length_bytes();
  one.header.offset_bytes = request.offset_bytes;
  one.header.header_data = request.header_data;
  one.header.operation = request.operation;
  one.header.atomic_operation = static_cast<std::uint8_t>(request.atomic_operation);
  one.header.atomic_type = static_cast<std::uint8_t>(request.atomic_type);
  if (one.process != config_.self) {
    one.placement.failure = TargetFailure::kUndeliverable;
    return;
  }
  one.placement = sides_[request.interface].targets->arrive(0, request.table, one.header);
}

void FakeTargetPort::finish(Operation& one) {
  const TargetRequest& request = one.request;
  if (one.placement.is_refused()) return tell_ends(request, one.placement.failure, 0, 0);
  const std::vector<std::byte> old = read_entry(one.placement);
  std::vector<std::byte> fresh(old.size());
  const auto read_source = [&](std::span<std::byte> bytes) {
    if (one.volatile_data.empty()) {
      gather(request.source.memory, 0, bytes);
    } else {
      std::copy_n(one.volatile_data.begin(), bytes.size(), bytes.begin());
    }
  };
  std::uint64_t length_bytes = old.size();
  if (request.operation == TargetOperation::kPut) {
    read_source(fresh);
    write_entry(one.placement, fresh);
  } else if (!request.is_get()) {
    length_bytes = length_of(request.atomic_operation, request.atomic_type, old.size());
    read_source(fresh);
    std::vector<std::byte> result = old;
    const std::size_t operand_bytes =
        takes_operand(request.atomic_operation) ? element_bytes(request.atomic_type) : 0;
    if (length_bytes > 0)
      apply(request.atomic_operation, request.atomic_type, std::span(request.operand).first(operand_bytes),
            std::span(fresh).first(length_bytes), std::span(result).first(length_bytes));
    write_entry(one.placement, result);
  }
  if (request.returns_data() && length_bytes > 0)
    scatter(request.destination.memory, 0, std::span(old).first(length_bytes));
  const std::uint64_t offset_bytes = one.placement.offset_bytes;
  sides_[request.interface]
      .targets->table(request.table)
      ->finish(one.placement, one.header, TargetFailure::kNone);
  tell_ends(request, TargetFailure::kNone, length_bytes, offset_bytes);
}

/// As the engine's initiator.
void FakeTargetPort::tell_ends(const TargetRequest& request, TargetFailure failure,
                               std::uint64_t length_bytes, std::uint64_t offset_bytes) {
  TargetInterface& targets = *sides_[request.interface].targets;
  TargetEvent event;
  event.table = request.table;
  event.cookie = request.cookie;
  if (!request.is_get()) {
    const TargetFailure sent = failure == TargetFailure::kUndeliverable ? failure : TargetFailure::kNone;
    event.kind = TargetEventKind::kSend;
    event.failure = sent;
    if (is_wanted(request.source, sent, kNoSendEvent)) targets.tell(request.source.queue, event);
    if ((request.source.options & kCountSend) != 0)
      targets.count(request.source.counter, sent == TargetFailure::kNone,
                    amount_of(request.source, sent, request.source.memory.length_bytes));
  }
  const TargetOrigin& origin = request.answered();
  const bool is_reply = request.returns_data();
  if (!is_reply && request.acknowledgement == TargetAcknowledgement::kNone) return;
  event.kind = is_reply ? TargetEventKind::kReply : TargetEventKind::kAck;
  event.failure = failure;
  event.length_bytes = length_bytes;
  event.header.offset_bytes = offset_bytes;
  const bool has_event = is_reply || request.acknowledgement == TargetAcknowledgement::kFull;
  if (has_event && is_wanted(origin, failure, 0)) targets.tell(origin.queue, event);
  const bool completed = request.acknowledgement == TargetAcknowledgement::kCompleted &&
                         failure != TargetFailure::kUndeliverable;
  const TargetFailure counted = !is_reply && completed ? TargetFailure::kNone : failure;
  if ((origin.options & (is_reply ? kCountReply : kCountAck)) != 0)
    targets.count(origin.counter, counted == TargetFailure::kNone,
                  amount_of(origin, counted, completed ? request.length_bytes() : length_bytes));
}

/// The ring gets one event at a time: what waits is in TargetInterface's queue, whose room is counted.
std::size_t FakeTargetPort::publish() {
  std::size_t events = 0;
  for (Side& side : sides_) {
    if (side.targets == nullptr) continue;
    for (const auto& [id, ring] : side.rings) {
      const std::uint64_t written = ring->written.load(std::memory_order_relaxed);
      if (written != ring->taken.load(std::memory_order_acquire)) continue;
      TargetEventRing::Slot& slot = ring->slots[written % ring->capacity];
      if (!side.targets->next_event(id, slot.event, slot.lost_before)) continue;
      ring->written.store(written + 1, std::memory_order_release);
      ++events;
    }
    for (const CounterId id : side.counters) {
      const TargetCount* const count = side.targets->counter(id);
      TargetCounterWords& words = side.board->counters[counter_index(id)];
      words.success.store(count->success, std::memory_order_release);
      words.failure.store(count->failure, std::memory_order_release);
    }
    const TargetRegisters& registers = side.targets->resources().registers;
    side.board->registers.drops.store(registers.drops, std::memory_order_relaxed);
    side.board->registers.permission_violations.store(registers.permission_violations,
                                                      std::memory_order_relaxed);
    side.board->registers.operation_violations.store(registers.operation_violations,
                                                     std::memory_order_relaxed);
  }
  return events;
}

void FakeTargetPort::ring_bell() {
  if (!is_armed_) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof one);
}

bool FakeTargetPort::idle() const noexcept {
  const Guard guard(mutex_);
  return operations_.empty();
}

bool FakeTargetPort::arm() noexcept {
  const Guard guard(mutex_);
  if (!operations_.empty() && !is_held_) return false;
  is_armed_ = true;
  ++armings_;
  return true;
}

void FakeTargetPort::disarm() noexcept {
  const Guard guard(mutex_);
  is_armed_ = false;
  std::uint64_t rings;
  [[maybe_unused]] const ssize_t drained = read(bell_.get(), &rings, sizeof rings);
}

}  // namespace ch3_offload::portals
