#include "portals/interface.h"

#include <new>
#include <utility>

#include "portals/limits.h"
#include "portals/translation.h"

namespace ch3_offload::portals {

std::optional<unsigned> interface_number(unsigned int options) noexcept {
  constexpr unsigned int kMatching = PTL_NI_MATCHING | PTL_NI_NO_MATCHING;
  constexpr unsigned int kNaming = PTL_NI_LOGICAL | PTL_NI_PHYSICAL;
  const unsigned int matching = options & kMatching;
  const unsigned int naming = options & kNaming;
  if ((options & ~(kMatching | kNaming)) != 0 || matching == 0 || matching == kMatching || naming == 0 ||
      naming == kNaming)
    return std::nullopt;
  return (matching == PTL_NI_NO_MATCHING ? 2U : 0U) + (naming == PTL_NI_PHYSICAL ? 1U : 0U);
}

/// The one that the processor sees. Made for each processor that sees other memory than the one before.
TargetBoard& Interface::board_of(TargetPort& port) {
  std::shared_ptr<ToldMemory> memory = port.told_memory();
  if (!boards_.empty() && boards_.back().get_deleter().maker == memory) return *boards_.back();
  boards_.reserve(boards_.size() + 1);
  TargetBoardMemory made = make_board(std::move(memory));
  if (made == nullptr) throw std::bad_alloc();
  boards_.push_back(std::move(made));
  // Release: pairs with CountingEvents::read().
  board_.store(boards_.back().get(), std::memory_order_release);
  return *boards_.back();
}

int Interface::open(PortalsProcess& process, const ptl_ni_limits_t* desired) {
  const ptl_ni_limits_t limits = negotiate(desired, process.limits());
  std::vector<bool> tables(static_cast<std::size_t>(limits.max_pt_index) + 1);
  TargetBoard& board = board_of(process.port());
  // Nobody else writes them: the port does not know of this interface yet.
  board.registers.drops.store(0, std::memory_order_relaxed);
  board.registers.permission_violations.store(0, std::memory_order_relaxed);
  board.registers.operation_violations.store(0, std::memory_order_relaxed);
  const Status status = process.port().open(number_, interface_config(limits, process.user()), board);
  if (status != Status::kOk) return PTL_NO_SPACE;
  limits_ = limits;
  tables_ = std::move(tables);
  ++opening_;
  bundles = 0;
  is_open_ = true;
  return PTL_OK;
}

void Interface::close() noexcept {
  is_open_ = false;
  is_closing_ = true;
  queues.for_each([](ptl_handle_any_t, EventQueue& queue) { queue.go(); });
  counters.clear();
  tables_.clear();
  ranks_.clear();
}

void Interface::end() noexcept {
  queues.clear();
  descriptors.clear();
  layouts.clear();
  is_closing_ = false;
}

std::optional<std::uint32_t> Interface::free_table() const noexcept {
  for (std::uint32_t index = 0; index < tables_.size(); ++index)
    if (!tables_[index]) return index;
  return std::nullopt;
}

std::optional<ProcessId> Interface::find_process(const ptl_process_t& process) const noexcept {
  if (!is_logical()) return physical_id_of(process);
  if (process.rank >= ranks_.size()) return std::nullopt;
  return ranks_[process.rank];
}

}  // namespace ch3_offload::portals
