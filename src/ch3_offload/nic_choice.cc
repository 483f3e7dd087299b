#include "ch3_offload/nic_choice.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "rdma/processor_set.h"

namespace ch3_offload {
namespace {

std::string_view reason(Place place) noexcept {
  switch (place) {
    case Place::kOwnCores: return "its process has more cores than computing threads";
    case Place::kFreeCores: return "no process of the job is bound to these cores";
    case Place::kHyperthreads: return "no core is free, but hyperthreads of its process's cores are";
    case Place::kScarceCores: return "the cores without a process are fewer than the processes";
    case Place::kSharedCores: return "no core is free, or a CPU quota allows no more";
    case Place::kChosen: return "MPIR_CVAR_CH3_OFFLOAD_NIC_CORES says so";
    case Place::kUnknown: break;
  }
  return "the machine's topology is not known";
}

std::string processes_here(const NodeProcesses& node) {
  return "process of the job on this node (" + std::to_string(node.local_size) + ")";
}

/// The warning that a thread's place deserves. A place that the user chose deserves none.
void warn(const Result<Topology>& topology, const NodeProcesses& node, NicChoice& choice) {
  if (choice.placement.place == Place::kChosen) return;
  if (choice.placement.place == Place::kUnknown) {
    choice.warning =
        "the network processor's thread is not bound: " +
        (topology.ok() ? "hwloc does not know this process's processors" : topology.error().message);
  } else if (choice.placement.some_client_shares) {
    choice.warning =
        "the network processor's thread shares cores with the program's threads, which makes both slower (" +
        std::to_string(node.local_size) +
        " processes on this node): start fewer processes, bind each to one core more (mpiexec -bind-to "
        "core:2), or set MPIR_CVAR_CH3_OFFLOAD_NIC=auto";
  }
}

/// Why the user's list cannot be had. Nothing: it can.
std::optional<Error> refusal(const std::vector<std::uint32_t>& list, const char* text,
                             const Result<Topology>& topology, const NodeProcesses& node) {
  if (node.own.empty() || !topology.ok()) return {};  // Whoever binds the thread will hear of it.
  ProcessorSet allowed = node.launcher;
  // Processors that the kernel keeps free (isolcpus) are in no inherited mask.
  for (const Topology::Processor& one : topology.value().processors) allowed.insert(one.number);
  allowed.insert(node.own.begin(), node.own.end());
  for (const std::uint32_t processor : list)
    if (!allowed.contains(processor))
      return Error{Status::kUnsupported, 0,
                   std::string("MPIR_CVAR_CH3_OFFLOAD_NIC_CORES=") + text +
                       ": the job may not run on processor " + std::to_string(processor) + ", only on " +
                       to_text(allowed) +
                       " (the node's processors, as far as its control groups allow them)"};
  return {};
}

/// Where the node's processor runs: on the user's list, else on cores that no process of the job is bound to,
/// else wherever the job may.
void choose_process(const std::optional<std::vector<std::uint32_t>>& list, const NodeProcesses& node,
                    NicChoice& choice) {
  choice.has_process = true;
  if (list) {
    choice.process_processors.insert(list->begin(), list->end());
    choice.why += "; MPIR_CVAR_CH3_OFFLOAD_NIC_CORES says where";
    return;
  }
  ProcessorSet free = node.launcher;
  for (const ProcessorSet& mask : node.masks)
    for (const std::uint32_t processor : mask) free.erase(processor);
  choice.process_processors = free.empty() ? node.launcher : free;
  choice.why += free.empty() ? "; it shares the cores of the job's processes"
                             : "; no process of the job is bound to its cores";
}

/// Whether that name is in the file: it is in the program, which says it, and in a script that starts it.
/// Nothing is run for it. True if the file cannot be read.
bool has_name_of_nicd(const std::string& program) {
  constexpr std::string_view kName = "ch3-offload-nicd";
  std::ifstream file(program, std::ios::binary);
  if (!file) return true;
  std::string kept, block(64 << 10, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    kept.append(block, 0, static_cast<std::size_t>(file.gcount()));
    if (kept.find(kName) != std::string::npos) return true;
    kept.erase(0, kept.size() - std::min(kept.size(), kName.size()));
  }
  return false;
}

}  // namespace

std::string nicd_program(const ch3_offload_config_t& config) {
  return *config.nicd != '\0' ? config.nicd : CH3_OFFLOAD_BINDIR "/ch3-offload-nicd";
}

std::string obstacle_to_program(const ch3_offload_config_t& config) {
  const std::string program = nicd_program(config);
  if (::access(program.c_str(), X_OK) != 0) return program + " cannot be run: " + std::strerror(errno);
  if (*config.nicd != '\0' && !has_name_of_nicd(program))
    return program + " is no ch3-offload-nicd, and does not start one: it does not contain that name";
  return {};
}

std::string obstacle_to_process(const ch3_offload_config_t& config) {
  if (std::string why = obstacle_to_program(config); !why.empty()) return why;
  // Within this process only a filter of system calls (seccomp) forbids it.
  char from = 0, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  if (::process_vm_readv(::gettid(), &local, 1, &remote, 1, 0) != 1)
    return std::string("process_vm_readv is not permitted: ") + std::strerror(errno);
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  if (scope > 1) return "kernel.yama.ptrace_scope is " + std::to_string(scope) + ", more than 1";
  return {};
}

Result<NicChoice> choose_nic(const ch3_offload_config_t& config, const Result<Topology>& topology,
                             const NodeProcesses& node) {
  const std::string_view setting = config.nic;
  NicChoice choice;
  choice.why = std::string("MPIR_CVAR_CH3_OFFLOAD_NIC is ") + config.nic;
  if (setting == "host") return choice;

  const auto list = parse_processors(config.nic_cores);
  if (list)
    if (std::optional<Error> error = refusal(*list, config.nic_cores, topology, node))
      return std::move(*error);
  if (setting == "process") {
    choose_process(list, node, choice);
    return choice;
  }
  if (list)
    choice.placement = place_by_list(*list, node);
  else
    choice.placement = topology.ok() ? place_thread(topology.value(), node) : place_nowhere(node);
  const Placement& placement = choice.placement;
  std::string place_reason(reason(placement.place));
  if (placement.place == Place::kUnknown && !topology.ok())
    place_reason += " (" + topology.error().message + ")";

  if (setting == "auto" && !placement.all_have_cores) {
    choice.why += ", and not each " + processes_here(node) + " has a core to spare";
    if (placement.node_has_core) {
      choice.why += ", but one is left: a process if each node of the job has one left, otherwise host";
      choose_process(list, node, choice);
      return choice;
    }
    if (!placement.has_core) choice.why += ": " + place_reason;
    return choice;
  }
  choice.has_thread = true;
  choice.is_bound =
      !placement.processors.empty() && placement.processors != node.own && placement.place != Place::kUnknown;
  if (setting == "auto") choice.why += ", and each " + processes_here(node) + " has a core to spare";
  choice.why += "; " + place_reason;
  warn(topology, node, choice);
  return choice;
}

Result<NicChoice> choose_nic_here(const ch3_offload_config_t& config) {
  if (std::string_view(config.nic) == "host")
    return choose_nic(config, Error{Status::kUnsupported, 0, "not read"}, NodeProcesses{});
  Result<NicChoice> choice =
      choose_nic(config, read_topology(), read_node_processes(config.local_rank, config.local_size));
  if (choice.ok() && choice.value().has_process && std::string_view(config.nic) == "auto")
    if (const std::string why_not = obstacle_to_process(config); !why_not.empty()) {
      NicChoice none;
      none.why = choice.value().why + "; but " + why_not;
      return none;
    }
  return choice;
}

}  // namespace ch3_offload
