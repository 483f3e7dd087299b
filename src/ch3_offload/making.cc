#include "ch3_offload/making.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "ch3_offload/settings.h"
#include "engine/targets/target_atomics.h"
#include "engine/trace.h"
#include "engine/wire.h"
#include "rdma/checked/checked_provider.h"
#include "rdma/checked/checksum.h"
#include "rdma/shm/shm_provider.h"
#include "rdma/tcp/tcp_config.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {
namespace {

/// The settings that narrow what a network may be, for its error messages; the providers do not know their
/// names.
std::string chosen_by_user(const ch3_offload_config_t& config) {
  std::string text;
  const auto add = [&](const char* variable, const std::string& value) {
    if (!value.empty()) text += std::string(text.empty() ? " (" : ", ") + variable + "=" + value;
  };
  add("MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE", config.verbs_device);
  add("MPIR_CVAR_CH3_OFFLOAD_INTERFACE", config.network_interface);
  if (config.port_range.low != 0)
    add("MPIR_CVAR_CH3_PORT_RANGE",
        std::to_string(config.port_range.low) + ":" + std::to_string(config.port_range.high));
  return text.empty() ? text : text + ")";
}

/// Whether the range has two ports for each process of the node.
bool has_two_ports_each(const ch3_offload_config_t& config) {
  return config.port_range.low == 0 ||
         config.port_range.high - config.port_range.low + 1 >= 2 * std::int64_t{config.local_size};
}

/// Processor time that the other threads of this process have used.
std::uint64_t other_threads_ns() noexcept {
  const auto used_ns = [](clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  };
  // First, so that the difference is not negative.
  const std::uint64_t own_ns = used_ns(CLOCK_THREAD_CPUTIME_ID);
  return used_ns(CLOCK_PROCESS_CPUTIME_ID) - own_ns;
}

/// How often something else ran although this thread was ready to run. sched_yield() counts if it had an
/// effect.
std::uint64_t switches() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_nivcsw);
}

}  // namespace

EngineConfig engine_config(const ch3_offload_config_t& config) {
  EngineConfig engine;
  engine.self = PeerId{config.rank};
  engine.senders = config.job_size;
  engine.first_foreign_peer = PeerId{config.job_size};
  engine.eager_limit_bytes = static_cast<std::size_t>(config.eager_limit_bytes);
  engine.unexpected_budget_bytes = static_cast<std::size_t>(config.unexpected_budget_bytes);
  engine.send_buffer_bytes = static_cast<std::size_t>(config.send_buffer_bytes);
  engine.always_ignored = {config.always_ignored_bits, 0};
  engine.channel_bits = config.channel_bits;
  engine.traffic_class = traffic_class(config.traffic_class);
  engine.program_memory_bytes = static_cast<std::size_t>(config.module_memory_bytes);
  engine.program_instructions = static_cast<std::uint64_t>(config.module_instructions);
  engine.program_time_percent = static_cast<unsigned>(config.module_share);
  return engine;
}

Result<std::unique_ptr<ShmProvider>> make_node_provider(const ch3_offload_config_t& config, PeerId self,
                                                        void (*log)(void* context, LogScope scope,
                                                                    const char* line),
                                                        void* log_context, std::uint32_t first_peer) {
  ShmConfig shm = shm_config(config);
  shm.self = self;
  static_assert(sizeof shm.job_secret == sizeof config.secret);
  std::memcpy(shm.job_secret.data(), config.secret, sizeof config.secret);
  shm.peer_limit = config.job_size;
  shm.first_peer = first_peer;
  shm.log = log;
  shm.log_context = log_context;
  return ShmProvider::create(shm);
}

Result<std::vector<std::unique_ptr<Provider>>> make_networks(const ch3_offload_config_t& config, PeerId self,
                                                             void (*log)(void* context, LogScope scope,
                                                                         const char* line),
                                                             void* log_context, std::size_t most,
                                                             std::uint32_t first_peer) {
  const FabricChoice fabric = fabric_choice(config.fabric);
  std::vector<std::unique_ptr<Provider>> networks;
  std::optional<Error> refusal;  // The first.
  const auto try_one = [&](auto provider_config, auto make) {
    provider_config.self = self;
    static_assert(sizeof provider_config.job_secret == sizeof config.secret);
    std::memcpy(provider_config.job_secret.data(), config.secret, sizeof config.secret);
    provider_config.peer_limit = config.job_size;
    provider_config.first_peer = first_peer;
    provider_config.log = log;
    provider_config.log_context = log_context;
    Result<std::unique_ptr<Provider>> made = make(provider_config);
    if (made.ok())
      networks.push_back(
          with_chosen_checksums(config, std::move(made.value()), /*is_network=*/true, Log(log, log_context)));
    else if (!refusal)
      refusal = made.error();
    else
      refusal->message += "; " + made.error().message;
  };
  if (fabric.verbs) try_one(verbs_config(config), make_verbs_provider);
  const bool lacks_verbs = networks.empty();
  // A process of another node without RDMA needs it. It must not take the ports of those who have verbs.
  if (fabric.tcp && networks.size() < most && (lacks_verbs || has_two_ports_each(config)))
    try_one(tcp_config(config), make_tcp_provider);
  if (networks.empty()) {
    refusal->message += chosen_by_user(config);
    return *refusal;
  }
  if (fabric.is_auto && lacks_verbs) {
    const std::string line =
        "messages between nodes go over TCP (MPIR_CVAR_CH3_OFFLOAD_FABRIC=shm+tcp says "
        "that this is well): " +
        refusal->message;
    log(log_context, LogScope::kJob, line.c_str());
  }
  return networks;
}

std::unique_ptr<Provider> with_chosen_checksums(const ch3_offload_config_t& config,
                                                std::unique_ptr<Provider> provider, bool is_network,
                                                Log log) {
  const std::string_view asked = config.checksum;
  const bool is_checked = asked == "all" || (asked == "network" && is_network);
  return is_checked ? std::make_unique<CheckedProvider>(std::move(provider), log) : std::move(provider);
}

std::optional<Error> checksums_missing(const ch3_offload_config_t& config) {
  if (std::string_view(config.checksum) == "off" || have_checksums()) return {};
  return Error{Status::kUnsupported, 0,
               "MPIR_CVAR_CH3_OFFLOAD_CHECKSUM=" + std::string(config.checksum) +
                   ": this libch3offload was built without ISA-L (Debian: libisal-dev), which computes "
                   "checksums"};
}

std::string without_network(const Error& error) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return std::string("node ") + host.data() +
         " has no network for messages, and the job has other nodes: " + error.message +
         ". The first message to another node will fail. Run the job on one node, or see in "
         "ch3-offload-info what this one lacks";
}

PinDownConfig pin_down_config(const ch3_offload_config_t& config,
                              std::span<const std::unique_ptr<Provider>> providers) {
  std::size_t registrations = 0;
  for (const auto& one : providers)
    if (one->capabilities().registering_costs)
      registrations = std::max(registrations, one->capabilities().registrations);
  return pin_down_config(config, registrations);
}

std::size_t atomic_bytes(std::span<const std::unique_ptr<Provider>> providers) noexcept {
  std::size_t slot_bytes = SIZE_MAX;
  for (const auto& one : providers) slot_bytes = std::min(slot_bytes, one->capabilities().max_slot_bytes);
  return atomic_bytes(slot_bytes);
}

std::size_t atomic_bytes(std::size_t slot_bytes) noexcept {
  return slot_bytes - sizeof(wire::TargetRequestHeader) - kMostElementBytes;
}

/// Registrations may outlive their transfer only if it is seen when their memory goes.
std::unique_ptr<MemoryEvents> watch_memory(Port& port, std::string& warning) {
  if (!port.keeps_memory()) return nullptr;
  auto watched = MemoryEvents::watch(
      [](void* argument, const void* address, std::size_t length_bytes) noexcept {
        static_cast<Port*>(argument)->memory_gone(address, length_bytes);
      },
      &port);
  if (watched.ok()) return std::move(watched.value());
  port.stop_keeping_memory();
  warning = "memory is registered anew for each long message, which is slower: " + watched.error().message +
            ". MPIR_CVAR_CH3_OFFLOAD_PIN_CACHE=off says that this is well";
  return nullptr;
}

std::optional<Error> bind_nic_thread(NicThread& thread, const NicChoice& nic, std::string& warning) {
  if (!nic.is_bound) return {};
  std::optional<Error> error = thread.bind(nic.placement.processors);
  if (!error) return {};
  if (nic.placement.place == Place::kChosen) {
    error->message = "MPIR_CVAR_CH3_OFFLOAD_NIC_CORES: " + error->message;
    return error;
  }
  warning = error->message + "; it runs where its process may";
  return {};
}

WaitPolicy wait_policy(const ch3_offload_config_t& config, bool shares, std::uint32_t others) noexcept {
  const WaitPolicy::Clocks clocks{Trace::monotonic_ns, other_threads_ns, switches};
  if (shares) return {config.spin_us, 2, Cores{1, 1}, clocks};
  const std::uint32_t processes = config.local_size == 0 ? 0 : config.local_size + others;
  return {config.spin_us, processes, usable_cores(), clocks};
}

}  // namespace ch3_offload
