#include "nic/host_targets.h"

#include <new>
#include <utility>

namespace ch3_offload {

namespace {

/// Of a process that is no rank of the interface.
constexpr std::uint32_t kNoRank = UINT32_MAX;

}  // namespace

HostTargets::HostTargets(HostDriver& driver, ProcessBook& book)
    : driver_(driver),
      engine_(driver.engine()),
      book_(book),
      descriptors_(driver.descriptors().begin(), driver.descriptors().end()) {
  if (book.descriptor() >= 0) descriptors_.push_back(book.descriptor());
}

// Interfaces, and who the processes are to them.

Status HostTargets::open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept {
  if (number >= interfaces_.size()) return Status::kUnsupported;
  Interface& interface = interfaces_[number];
  if (interface.targets != nullptr || !engine_.targets_are_closed(number)) return Status::kAgain;
  TargetInterfaceConfig checked = config;
  checked.identifies_all = !book_.knows_all();
  if (book_.knows_all()) checked.user = book_.user();
  interface.targets = engine_.open_targets(number, checked, board);
  if (interface.targets == nullptr) return Status::kNoMemory;
  if (is_silent_ != nullptr) interface.targets->fall_silent_when(*is_silent_);
  if (identify_all(interface)) return Status::kOk;
  static_cast<void>(close(number));  // Nothing has begun: it ends at once.
  return Status::kNoMemory;
}

bool HostTargets::close(unsigned number) noexcept {
  if (number >= interfaces_.size()) return true;
  Interface& interface = interfaces_[number];
  if (interface.targets != nullptr) {
    told_before_ += interface.targets->told();
    interface = {};
    engine_.close_targets(number);
  }
  return engine_.targets_are_closed(number);
}

Status HostTargets::set_ranks(unsigned number, std::span<const ProcessId> ranks) noexcept {
  if (at(number) == nullptr) return Status::kUnsupported;
  Interface& interface = interfaces_[number];
  try {
    std::unordered_map<ProcessId, std::uint32_t> rank_of;
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) rank_of.emplace(ranks[rank], rank);
    interface.rank_of = std::move(rank_of);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  interface.has_ranks = true;
  return identify_all(interface) ? Status::kOk : Status::kNoMemory;
}

bool HostTargets::identify(Interface& interface, PeerId peer, ProcessId process, UserId user) noexcept {
  ProcessId its = process;
  if (interface.has_ranks) {
    const auto rank = interface.rank_of.find(process);
    its = make_logical_id(rank == interface.rank_of.end() ? kNoRank : rank->second);
  }
  return interface.targets->identify(slot_of(peer), its, user);
}

bool HostTargets::identify_all(Interface& interface) noexcept {
  if (book_.knows_all()) return true;  // A number says who it is.
  if (!identify(interface, engine_.self(), book_.self(), book_.user())) return false;
  for (const auto& [peer, known] : known_)
    if (known.is_identified && !identify(interface, PeerId{peer}, known.process, known.user)) return false;
  return true;
}

/// Null: no memory, and the peer fails: it must not be taken for anybody else.
HostTargets::Known* HostTargets::known(PeerId peer) noexcept {
  try {
    return &known_[index_of(peer)];
  } catch (const std::bad_alloc&) {
    engine_.fail_peer(peer);
    return nullptr;
  }
}

void HostTargets::on_process(PeerId peer, ProcessId process, UserId user) noexcept {
  Known* const its = known(peer);
  if (its == nullptr) return;
  its->is_identified = true;
  its->process = process;
  its->user = user;
  for (Interface& interface : interfaces_)
    if (interface.targets != nullptr && !identify(interface, peer, process, user)) engine_.fail_peer(peer);
}

/// The engine keeps a card for which it has not asked. A peer without one fails, and the book forgets it.
void HostTargets::on_card(PeerId peer, std::string_view card) noexcept { engine_.introduce(peer, card); }

/// The engine may have had no connection with it, by which it would have learnt that.
void HostTargets::on_replaced(PeerId peer) noexcept { engine_.fail_peer(peer); }

bool HostTargets::on_unused(PeerId peer) noexcept { return engine_.forget_peer(peer); }

void HostTargets::on_event(const Event& event) noexcept {
  if (event.kind != Event::Kind::kPeerFailed) return;
  known_.erase(index_of(event.peer));
  for (const Interface& interface : interfaces_)
    if (interface.targets != nullptr) interface.targets->forget(slot_of(event.peer));
  book_.forget(event.peer);
}

// Queues, counting events, tables and entries.

QueueId HostTargets::make_queue(unsigned number, const TargetEventRing& ring) noexcept {
  TargetInterface* const interface = at(number);
  return interface == nullptr ? kNoQueue : interface->make_queue(ring);
}

void HostTargets::free_queue(unsigned number, QueueId queue) noexcept {
  if (TargetInterface* const interface = at(number)) interface->free_queue(queue);
}

CounterId HostTargets::make_counter(unsigned number) noexcept {
  TargetInterface* const interface = at(number);
  return interface == nullptr ? kNoCounter : interface->make_counter();
}

void HostTargets::free_counter(unsigned number, CounterId counter) noexcept {
  if (TargetInterface* const interface = at(number)) interface->free_counter(counter);
}

void HostTargets::change_counter(unsigned number, const TargetCountChange& change) noexcept {
  TargetInterface* const interface = at(number);
  if (interface == nullptr) return;
  interface->change_counter(change);
  static_cast<void>(engine_.run_triggered());
}

void HostTargets::cancel_triggered(unsigned number, CounterId counter) noexcept {
  if (TargetInterface* const interface = at(number)) interface->cancel_triggered(counter);
}

Status HostTargets::make_table(unsigned number, std::uint32_t index, QueueId queue,
                               bool has_flow_control) noexcept {
  TargetInterface* const interface = at(number);
  return interface == nullptr ? Status::kUnsupported : interface->make_table(index, queue, has_flow_control);
}

Status HostTargets::free_table(unsigned number, std::uint32_t index) noexcept {
  TargetInterface* const interface = at(number);
  return interface == nullptr ? Status::kUnsupported : interface->free_table(index);
}

void HostTargets::enable_table(unsigned number, std::uint32_t index) noexcept {
  if (TargetTable* const its = table(number, index)) its->enable();
}

bool HostTargets::disable_table(unsigned number, std::uint32_t index) noexcept {
  TargetTable* const its = table(number, index);
  if (its == nullptr) return true;
  its->disable();
  return its->in_flight() == 0;
}

Status HostTargets::append(unsigned number, std::uint32_t index, TargetListKind list,
                           const TargetDescription& description, TargetId& id,
                           const TargetReach& reach) noexcept {
  id = kNoTarget;
  TargetTable* const its = table(number, index);
  if (its == nullptr) return Status::kUnsupported;
  const Status status = its->append(description, list, id, reach);
  static_cast<void>(engine_.run_triggered());  // Headers that it has found may have been counted.
  return status;
}

void HostTargets::search(unsigned number, std::uint32_t index, TargetTable::SearchMode mode,
                         const TargetDescription& description) noexcept {
  TargetTable* const its = table(number, index);
  if (its == nullptr) return;
  its->search(description, mode);
  static_cast<void>(engine_.run_triggered());
}

TargetTable::Unlinked HostTargets::unlink(unsigned number, std::uint32_t index, TargetId id) noexcept {
  TargetTable* const its = table(number, index);
  return its == nullptr ? TargetTable::Unlinked::kUnknown : its->unlink(id);
}

// Operations.

Status HostTargets::request(ProcessId process, const TargetRequest& request,
                            const TargetHold& hold) noexcept {
  PeerId peer{};
  if (const Status status = book_.find(process, peer); status != Status::kOk) return status;
  const Status status = engine_.request(peer, request, hold);
  if (status != Status::kPeerFailed) return status;
  engine_.tell_refused(request);
  return Status::kOk;
}

Status HostTargets::trigger(const TargetTrigger& when, ProcessId process, const TargetRequest& request,
                            const TargetHold& hold) noexcept {
  PeerId peer{};
  if (const Status status = book_.find(process, peer); status != Status::kOk) return status;
  return engine_.trigger(when, peer, request, hold);
}

Status HostTargets::trigger(const TargetTrigger& when, unsigned number,
                            const TargetCountChange& change) noexcept {
  TargetInterface* const interface = at(number);
  if (interface == nullptr) return Status::kUnsupported;
  const Status status = interface->trigger(when, change);
  static_cast<void>(engine_.run_triggered());
  return status;
}

Status HostTargets::trigger_append(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                   TargetListKind list, const TargetDescription& description, TargetId& id,
                                   const TargetReach& reach) noexcept {
  id = kNoTarget;
  TargetInterface* const interface = at(number);
  if (interface == nullptr) return Status::kUnsupported;
  const Status status = interface->trigger_append(when, index, list, description, id, reach);
  static_cast<void>(engine_.run_triggered());
  return status;
}

Status HostTargets::trigger_unlink(const TargetTrigger& when, unsigned number, std::uint32_t index,
                                   TargetId id) noexcept {
  TargetInterface* const interface = at(number);
  if (interface == nullptr) return Status::kUnsupported;
  const Status status = interface->trigger(when, TriggeredUnlink{index, id});
  static_cast<void>(engine_.run_triggered());
  return status;
}

// Progress.

std::size_t HostTargets::serve() noexcept {
  const std::size_t happened = book_.poll(*this);
  return happened + take_events();
}

std::size_t HostTargets::take_events() noexcept {
  std::size_t taken = 0;
  for (Event event; engine_.next_book_event(event); ++taken) on_event(event);
  return taken;
}

std::size_t HostTargets::progress() noexcept {
  std::size_t happened = serve();
  if (!engine_.has_events()) happened += engine_.progress();
  return happened + take_events();
}

std::uint64_t HostTargets::told() const noexcept {
  std::uint64_t sum = told_before_;
  for (const Interface& interface : interfaces_)
    if (interface.targets != nullptr) sum += interface.targets->told();
  return sum;
}

}  // namespace ch3_offload
