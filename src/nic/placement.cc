#include "nic/placement.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace ch3_offload {
namespace {

using Processor = Topology::Processor;
using Level = std::uint32_t Processor::*;  ///< What processors have in common.

bool intersect(const ProcessorSet& one, const ProcessorSet& other) {
  return std::ranges::any_of(one, [&](std::uint32_t number) { return other.contains(number); });
}

ProcessorSet without(const ProcessorSet& one, const ProcessorSet& other) {
  ProcessorSet rest;
  for (const std::uint32_t number : one)
    if (!other.contains(number)) rest.insert(number);
  return rest;
}

/// Processes with the same mask.
struct Group {
  ProcessorSet mask;
  std::size_t processes = 1;
  bool is_known = true;  ///< False: what others have is not known.
};

/// All processes of the node, with assumptions where their masks are not known. This process is in the first
/// group.
std::vector<Group> groups_of(const NodeProcesses& node) {
  std::map<ProcessorSet, std::size_t> all;
  for (const ProcessorSet& mask : node.masks) ++all[mask];
  if (const auto own = all.find(node.own); own != all.end()) {
    std::vector<Group> groups{{own->first, own->second}};
    for (const auto& [mask, processes] : all)
      if (mask != node.own) groups.push_back({mask, processes});
    return groups;
  }
  // Launchers bind processes to equally many processors each, or do not bind them.
  const bool is_bound = !without(node.launcher, node.own).empty();
  if (!is_bound) return {{node.own, node.local_size}};
  const std::size_t wanted = node.local_size * node.own.size();
  const std::size_t sharers = (wanted + node.launcher.size() - 1) / node.launcher.size();
  return {{node.own, std::min<std::size_t>(sharers, node.local_size), false}};
}

/// Processes of the groups that may run on any of the processors.
std::size_t count_processes(const std::vector<Group>& groups, const ProcessorSet& processors) {
  std::size_t count = 0;
  for (const Group& group : groups)
    if (intersect(group.mask, processors)) count += group.processes;
  return count;
}

class Node {
 public:
  Node(const Topology& topology, const NodeProcesses& node) : node_(node), groups_(groups_of(node)) {
    for (const Processor& one : topology.processors) topology_.emplace(one.number, one);
    for (Group& group : groups_) {
      std::erase_if(group.mask, [&](std::uint32_t number) { return !topology_.contains(number); });
      taken_.insert(group.mask.begin(), group.mask.end());
    }
    job_ = taken_;
    for (const std::uint32_t number : node.launcher)
      if (topology_.contains(number)) job_.insert(number);
    if (knows_all() && masks_hold_the_threads()) free_ = without(job_, together(taken_, &Processor::core));
    for (const Group& group : groups_)
      if (!has_room(group.mask)) needy_.push_back(group);
  }

  /// Whether the topology has what the processes run on.
  bool is_usable() const {
    return std::ranges::none_of(groups_, [](const Group& group) { return group.mask.empty(); });
  }

  Placement own() const {
    Placement placement = place(groups_.front().mask);
    placement.all_have_cores = true;
    placement.node_has_core = has_core_for_one();
    for (const Group& group : groups_) {
      const Placement other = place(group.mask);
      placement.all_have_cores = placement.all_have_cores && other.has_core;
      placement.some_client_shares = placement.some_client_shares || other.client_shares;
    }
    return placement;
  }

 private:
  bool knows_all() const { return groups_.front().is_known; }
  /// False: only the first thread of a process is bound to its mask (OMP_PROC_BIND), the others compute
  /// elsewhere.
  bool masks_hold_the_threads() const {
    return std::ranges::all_of(groups_, [&](const Group& one) { return one.mask.size() >= node_.threads; });
  }

  /// The numbers of the cores, caches or memories that the processors belong to.
  ProcessorSet groups(const ProcessorSet& processors, Level level) const {
    std::set<std::uint32_t> numbers;
    for (const std::uint32_t number : processors) numbers.insert(topology_.at(number).*level);
    return numbers;
  }
  std::size_t count_cores(const ProcessorSet& processors) const {
    return groups(processors, &Processor::core).size();
  }
  /// All processors that share a core, a cache or memory with one of these.
  ProcessorSet together(const ProcessorSet& processors, Level level) const {
    const std::set<std::uint32_t> wanted = groups(processors, level);
    ProcessorSet all;
    for (const auto& [number, one] : topology_)
      if (wanted.contains(one.*level)) all.insert(number);
    return all;
  }
  static ProcessorSet common(const ProcessorSet& one, const ProcessorSet& other) {
    return without(one, without(one, other));
  }

  /// Computing threads and network processors of all processes that share cores with this one.
  std::size_t threads_beside(const ProcessorSet& mask) const {
    const ProcessorSet cores = together(mask, &Processor::core);
    return count_processes(groups_, cores) * (node_.threads + 1);
  }
  bool has_room(const ProcessorSet& mask) const { return count_cores(mask) >= threads_beside(mask); }

  /// A quota of processor time limits all processes, wherever they run.
  bool is_throttled() const {
    const std::size_t wanted = std::size_t{node_.local_size} * (node_.threads + 1);
    return node_.cores.of_node < job_.size() && node_.cores.of_node < wanted;
  }

  /// Beside the computing threads of all processes.
  bool has_core_for_one() const {
    const std::size_t wanted = std::size_t{node_.local_size} * node_.threads + 1;
    const bool is_allowed = node_.cores.of_node >= std::min(wanted, job_.size());
    return knows_all() && is_allowed && (!free_.empty() || count_cores(job_) >= wanted);
  }

  Placement place(const ProcessorSet& mask) const {
    if (is_throttled()) return shared(mask);
    if (has_room(mask)) return {.place = Place::kOwnCores, .processors = mask, .has_core = true};
    if (const ProcessorSet cores = free_cores(mask); !cores.empty())
      return {.place = Place::kFreeCores, .processors = cores, .has_core = true};
    if (const ProcessorSet idle = idle_hyperthreads(mask); !idle.empty())
      return {.place = Place::kHyperthreads, .processors = idle};
    if (!free_.empty()) return {.place = Place::kScarceCores, .processors = free_, .thread_shares = true};
    return shared(mask);
  }

  static Placement shared(const ProcessorSet& mask) {
    return {.place = Place::kSharedCores, .processors = mask, .thread_shares = true, .client_shares = true};
  }

  /// The free cores near a process, if there is one for each process nearby that needs one.
  ProcessorSet free_cores(const ProcessorSet& mask) const {
    for (const Level level : {&Processor::cache, &Processor::memory}) {
      const ProcessorSet nearby = together(mask, level);
      if (ProcessorSet cores = common(free_, nearby); is_enough(cores, nearby)) return cores;
    }
    return is_enough(free_, job_) ? free_ : ProcessorSet{};
  }
  bool is_enough(const ProcessorSet& cores, const ProcessorSet& nearby) const {
    return !cores.empty() && count_cores(cores) >= count_processes(needy_, nearby);
  }

  /// Those of the process's cores, if there is one for each process there.
  ProcessorSet idle_hyperthreads(const ProcessorSet& mask) const {
    const ProcessorSet beside = together(mask, &Processor::core);
    if (knows_all()) {
      const ProcessorSet idle = without(common(job_, beside), taken_);
      if (idle.size() * (node_.threads + 1) >= threads_beside(mask)) return idle;
    }
    return mask.size() >= threads_beside(mask) ? mask : ProcessorSet{};
  }

  const NodeProcesses& node_;
  std::vector<Group> groups_;
  std::vector<Group> needy_;                     ///< Those whose processes need more cores than they have.
  std::map<std::uint32_t, Processor> topology_;  ///< By the kernel's numbers.
  ProcessorSet taken_;                           ///< In the mask of a process.
  ProcessorSet job_;                             ///< Of the job: its launcher's and its processes'.
  ProcessorSet free_;                            ///< Of the job, on cores without a process.
};

}  // namespace

Placement place_thread(const Topology& topology, const NodeProcesses& node) {
  const Node all(topology, node);
  return all.is_usable() ? all.own() : place_nowhere(node);
}

Placement place_by_list(std::span<const std::uint32_t> processors, const NodeProcesses& node) {
  const std::vector<Group> groups = groups_of(node);
  std::map<std::uint32_t, std::size_t> threads;  // How many each processor has.
  for (std::size_t i = 0; i < node.local_size; ++i) ++threads[processors[i % processors.size()]];

  // A mask is full if its processes' computing threads and the network processors in it outnumber it.
  const auto is_full = [&](const ProcessorSet& mask) {
    std::size_t inside = 0;
    for (const auto& [processor, count] : threads)
      if (mask.contains(processor)) inside += count;
    return inside > 0 && count_processes(groups, mask) * node.threads + inside > mask.size();
  };
  ProcessorSet full;  // Processors of full masks.
  for (const Group& group : groups)
    if (is_full(group.mask)) full.insert(group.mask.begin(), group.mask.end());
  const auto shares = [&](std::uint32_t processor) {
    return threads.at(processor) > 1 || full.contains(processor);
  };
  const std::uint32_t own = processors[node.local_rank % node.local_size % processors.size()];
  return {.place = Place::kChosen,
          .processors = {own},
          .thread_shares = shares(own),
          .client_shares = is_full(node.own),
          .has_core = !shares(own),
          .all_have_cores = std::ranges::none_of(threads, [&](const auto& one) { return shares(one.first); }),
          .some_client_shares = !full.empty()};
}

Placement place_nowhere(const NodeProcesses& node) {
  const bool shares =
      std::size_t{node.local_size} * (node.threads + 1) > node.cores.of_node || node.cores.of_process == 1;
  return {.place = Place::kUnknown,
          .processors = node.own,
          .thread_shares = shares,
          .client_shares = shares,
          .some_client_shares = shares};
}

}  // namespace ch3_offload
