#include "portals/fake_target_port.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "engine/payload_layout.h"

namespace ch3_offload::portals {

namespace {

/// The memory of an entry.
Payload memory_of(const TargetPlacement& placement) {
  const TargetDescription& its = placement.entry->its;
  if (its.layout == nullptr) return {placement.start(), placement.length_bytes, nullptr};
  return {its.start, its.length_bytes, its.layout};
}

std::size_t offset_of(const TargetPlacement& placement) {
  return placement.entry->its.layout == nullptr ? 0 : placement.offset_bytes;
}

/// The part of an entry's memory that an operation uses, as bytes that can be read and written.
std::vector<std::byte> read_entry(const TargetPlacement& placement) {
  std::vector<std::byte> bytes(placement.length_bytes);
  if (!bytes.empty()) gather(memory_of(placement), offset_of(placement), bytes);
  return bytes;
}

void write_entry(const TargetPlacement& placement, std::span<const std::byte> bytes) {
  if (!bytes.empty()) scatter(memory_of(placement), offset_of(placement), bytes);
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
  side.targets = std::make_unique<TargetInterface>(config, board, due_);
  if (side.targets->prepare() != Status::kOk || !side.targets->identify(0, config_.self, config_.user))
    return Status::kNoMemory;
  return Status::kOk;
}

bool FakeTargetPort::close(unsigned number) noexcept {
  const Guard guard(mutex_);
  std::erase_if(operations_, [number](const Operation& one) { return one.request.interface == number; });
  sides_[number] = {};
  return true;
}

Status FakeTargetPort::set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept {
  const Guard guard(mutex_);
  const auto found = std::find(ranks.begin(), ranks.end(), config_.self);
  const auto rank = static_cast<std::uint32_t>(found - ranks.begin());
  if (found != ranks.end())
    static_cast<void>(sides_[number].targets->identify(0, make_logical_id(rank), config_.user));
  return Status::kOk;
}

QueueId FakeTargetPort::make_queue(unsigned number, const TargetEventRing& ring) noexcept {
  const Guard guard(mutex_);
  return sides_[number].targets->make_queue(ring);
}

void FakeTargetPort::free_queue(unsigned number, QueueId queue) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->free_queue(queue);
}

CounterId FakeTargetPort::make_counter(unsigned number) noexcept {
  const Guard guard(mutex_);
  return sides_[number].targets->make_counter();
}

void FakeTargetPort::free_counter(unsigned number, CounterId counter) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->free_counter(counter);
}

void FakeTargetPort::change_counter(unsigned number, const TargetCountChange& change) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->change_counter(change);
  begin_due();
  ring_bell();
}

void FakeTargetPort::cancel_triggered(unsigned number, CounterId counter) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->cancel_triggered(counter);
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
  begin_due();
  ring_bell();
  return status;
}

void FakeTargetPort::search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
                            const TargetDescription& description) noexcept {
  const Guard guard(mutex_);
  sides_[number].targets->table(index)->search(description, mode);
  begin_due();
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

// A process is peer 0 if it is this one, and peer 1 otherwise.
Status FakeTargetPort::trigger(const TargetTrigger& when, ProcessId process,
                               const TargetRequest& request) noexcept {
  const Guard guard(mutex_);
  const PeerId peer{process == config_.self ? 0U : 1U};
  const Status status = sides_[request.interface].targets->trigger(when, TriggeredRequest{peer, request});
  begin_due();
  ring_bell();
  return status;
}

Status FakeTargetPort::trigger(const TargetTrigger& when, unsigned number,
                               const TargetCountChange& change) noexcept {
  const Guard guard(mutex_);
  const Status status = sides_[number].targets->trigger(when, change);
  begin_due();
  ring_bell();
  return status;
}

Status FakeTargetPort::trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                      TargetListKind list, const TargetDescription& description,
                                      TargetId& id) noexcept {
  const Guard guard(mutex_);
  const Status status = sides_[number].targets->trigger_append(when, index, list, description, id);
  begin_due();
  ring_bell();
  return status;
}

Status FakeTargetPort::trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                      TargetId id) noexcept {
  const Guard guard(mutex_);
  const Status status = sides_[number].targets->trigger(when, TriggeredUnlink{index, id});
  begin_due();
  ring_bell();
  return status;
}

std::size_t FakeTargetPort::begin_due() {
  std::size_t begun = 0;
  TriggeredAction action;
  while (due_ > 0) {
    for (Side& side : sides_) {
      while (side.targets != nullptr && side.targets->take_due(action)) {
        ++begun;
        if (const auto* const triggered = std::get_if<TriggeredRequest>(&action))
          operations_.push_back(
              make_operation(triggered->peer == PeerId{0} ? config_.self : ProcessId{}, triggered->request));
        else
          side.targets->carry_out(action);
      }
    }
  }
  return begun;
}

std::size_t FakeTargetPort::progress() noexcept {
  const Guard guard(mutex_);
  return !config_.works_alone && step() ? 1 : 0;
}

bool FakeTargetPort::step() noexcept {
  bool happened = false;
  if (!operations_.empty() && !is_held_) {
    Operation& one = operations_.front();
    if (one.has_arrived) {
      finish(one);
      operations_.pop_front();
    } else {
      arrive(one);
    }
    happened = true;
  }
  happened = begin_due() > 0 || happened;
  if (happened) ring_bell();
  return happened;
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
  if (one.placement.is_refused()) return tell_ends(request, one.placement.failure, {});
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
  sides_[request.interface]
      .targets->table(request.table)
      ->finish(one.placement, one.header, TargetFailure::kNone);
  tell_ends(request, TargetFailure::kNone,
            {length_bytes, one.placement.offset_bytes, one.placement.list, one.placement.is_untold});
}

/// As the engine's initiator.
void FakeTargetPort::tell_ends(const TargetRequest& request, TargetFailure failure, const Place& place) {
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
  if (!is_reply && (request.acknowledgement == TargetAcknowledgement::kNone || place.is_untold)) return;
  event.kind = is_reply ? TargetEventKind::kReply : TargetEventKind::kAck;
  event.failure = failure;
  event.list = place.list;
  event.length_bytes = place.length_bytes;
  event.header.offset_bytes = place.offset_bytes;
  const bool has_event = is_reply || request.acknowledgement == TargetAcknowledgement::kFull;
  if (has_event && is_wanted(origin, failure, 0)) targets.tell(origin.queue, event);
  const bool completed = request.acknowledgement == TargetAcknowledgement::kCompleted &&
                         failure != TargetFailure::kUndeliverable;
  const TargetFailure counted = !is_reply && completed ? TargetFailure::kNone : failure;
  if ((origin.options & (is_reply ? kCountReply : kCountAck)) != 0)
    targets.count(origin.counter, counted == TargetFailure::kNone,
                  amount_of(origin, counted, completed ? request.length_bytes() : place.length_bytes));
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
