#include "info_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "ch3_offload/making.h"
#include "ch3_offload/settings.h"
#include "engine/wire.h"
#include "nic/exchange.h"
#include "nic/wait_policy.h"
#include "rdma/checked/checked_frames.h"
#include "rdma/shm/bulk_copy.h"

namespace ch3_offload {
namespace {

std::string fabric_said(const Environment& environment) {
  return fmt::format("MPIR_CVAR_CH3_OFFLOAD_FABRIC is {}", environment.config.fabric);
}

bool uses_process(const NodeFacts& facts) { return facts.nic.has_process; }
bool uses_shm(const Environment& environment, const NodeFacts& facts) {
  return !uses_process(facts) && fabric_choice(environment.config.fabric).shm;
}
bool uses_verbs(const Environment& environment, const NodeFacts& facts) {
  return fabric_choice(environment.config.fabric).verbs && !facts.verbs_error;
}
/// Also where it is for nodes only that have no verbs.
bool uses_tcp(const Environment& environment, const NodeFacts& facts) {
  const bool gives_way = uses_process(facts) && uses_verbs(environment, facts);
  return fabric_choice(environment.config.fabric).tcp && !facts.tcp_error && !gives_way;
}

Choice choose_within_node(const Environment& environment, const NodeFacts& facts) {
  if (uses_process(facts))
    return {"within a node", "the node's network processor (ch3-offload-nicd)",
            fmt::format("MPIR_CVAR_CH3_OFFLOAD_NIC is {}", environment.config.nic)};
  if (uses_shm(environment, facts)) return {"within a node", "shm", fabric_said(environment)};
  if (uses_verbs(environment, facts))
    return {"within a node", "verbs on " + facts.used_port(), fabric_said(environment)};
  return {"within a node", "TCP at " + facts.tcp_host, fabric_said(environment)};
}

Choice choose_between_nodes(const Environment& environment, const NodeFacts& facts) {
  const std::string topic = "between nodes";
  const std::string said = fabric_said(environment);
  const FabricChoice fabric = fabric_choice(environment.config.fabric);
  if (!fabric.has_network()) return {topic, "nothing", said};
  if (uses_verbs(environment, facts)) {
    const bool has_both = uses_tcp(environment, facts);
    return {topic, "verbs on " + facts.used_port() + (has_both ? "; TCP to nodes that have no verbs" : ""),
            fabric.shm ? said + "; a job on one node opens no RDMA device" : said};
  }
  const std::string lacks_verbs = fabric.verbs ? ", and " + facts.verbs_error->message : "";
  if (uses_tcp(environment, facts)) return {topic, "TCP at " + facts.tcp_host, said + lacks_verbs};
  const std::string lacks_tcp = fabric.tcp ? ", and " + facts.tcp_error->message : "";
  return {topic,
          fabric.is_auto ? "nothing; a job that has other nodes is warned"
                         : "nothing; MPI_Init of a job that has other nodes fails",
          said + lacks_verbs + lacks_tcp};
}

Choice choose_port(const Environment& environment, const NodeFacts& facts) {
  std::string why;
  for (const VerbsPortDescription& port : facts.verbs_ports)
    if (!port.why_used.empty()) why += (why.empty() ? "" : "; " + port.name + ": ") + port.why_used;
  const std::string_view device = environment.config.verbs_device;
  if (!device.empty()) why += fmt::format("; MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE is {}", device);
  return {"RDMA port", facts.used_port(), why};
}

Choice choose_setup_address(const Environment& environment, const NodeFacts& facts) {
  const std::string_view interface = environment.config.network_interface;
  std::string why = uses_verbs(environment, facts)
                        ? "the RDMA port has no IP address of its own; this is the host's"
                        : "it is the host's";
  for (const VerbsPortDescription& port : facts.verbs_ports)
    if (!port.why_used.empty() && !port.address.empty() && facts.verbs_host.starts_with(port.address))
      why = "it is the RDMA port's own address";
  if (!interface.empty()) why = fmt::format("MPIR_CVAR_CH3_OFFLOAD_INTERFACE is {}", interface);
  const ch3_offload_config_t& config = environment.config;
  std::string where =
      uses_verbs(environment, facts) ? "set up over TCP at " + facts.verbs_host : "TCP, at " + facts.tcp_host;
  if (config.port_range.low != 0) {
    where += fmt::format(", ports {} to {}", config.port_range.low, config.port_range.high);
    why += fmt::format("; MPIR_CVAR_CH3_PORT_RANGE is {}:{}", config.port_range.low, config.port_range.high);
  }
  return {"connections", where, why};
}

Choice choose_short(const Environment& environment, const Capabilities& provider, std::size_t container_bytes,
                    std::string_view container) {
  const auto eager = static_cast<std::size_t>(environment.config.eager_limit_bytes);
  const std::size_t slot = provider.max_slot_bytes - sizeof(wire::EagerHeader);
  return {
      fmt::format("short messages, {}", provider.name),
      fmt::format("up to {} in one slot, up to {} eager", in_units(std::min(eager, slot)), in_units(eager)),
      fmt::format("{} of {}; MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT is {}", container, in_units(container_bytes),
                  eager)};
}

/// Of a network processor as a process.
Choice choose_slots(const NodeFacts& facts) {
  const std::string topic = "long messages, nicd";
  if (facts.remote_copy_error.empty())
    return {topic,
            "copied by the processor into slots and out of them; once within the node between memory of "
            "MPI_Alloc_mem",
            "it may read and write the memory of this user's processes"};
  return {
      topic, "copied into memory that is shared with the processor, and from there into slots",
      "the processor may not read and write the memory of this user's processes: " + facts.remote_copy_error};
}

Choice choose_rdma_write(const NodeFacts& facts) {
  return {"long messages, verbs",
          fmt::format("RDMA write from {} on", in_units(facts.verbs.write_threshold_bytes)),
          "below that, registering memory costs more than a copy through slots"};
}

Choice choose_tcp_write(const NodeFacts& facts) {
  return {"long messages, tcp",
          fmt::format("written from their place to their place from {} on",
                      in_units(facts.tcp.write_threshold_bytes)),
          "below that, a copy is faster than a round trip"};
}

Choice choose_bulk(const Environment& environment, const NodeFacts& facts) {
  const std::string topic = "long messages, shm";
  const std::string said = fmt::format("MPIR_CVAR_CH3_OFFLOAD_SHM_BULK is {}", environment.config.shm_bulk);
  if (!facts.shm.write) return {topic, "copied through the ring by both sides", said};
  if (!facts.remote_copy_error.empty())
    return {topic, "copied through the ring by both sides",
            "one process may not write into another's memory here"};
  if (facts.shm.writes_by_copying)
    return {topic,
            fmt::format(
                "from {} on, what is faster, as each process measures: one copy by process_vm_writev, or the "
                "ring",
                in_units(kLeastTimedBytes)),
            said};
  return {topic,
          fmt::format("one copy by process_vm_writev from {} on", in_units(facts.shm.write_threshold_bytes)),
          said};
}

Choice choose_driver(const NodeFacts& facts) {
  const std::string topic = "network processor";
  const NicChoice& nic = facts.nic;
  if (nic.has_process && facts.user_runs_nicd)
    return {topic, "a process of the node (ch3-offload-nicd), which this user runs for all jobs", nic.why};
  if (nic.has_process)
    return {
        topic,
        nic.process_processors.empty()
            ? std::string("a process of the node (ch3-offload-nicd), which the job starts")
            : fmt::format("a process of the node (ch3-offload-nicd), which the job starts on processors {}",
                          to_text(nic.process_processors)),
        nic.why};
  if (!nic.has_thread) return {topic, "none: the calls of MPI match and move messages", nic.why};
  return {topic,
          fmt::format("a thread of each process; this one's on processors {} ({})",
                      to_text(nic.placement.processors), nic.is_bound ? "bound" : "as its process"),
          nic.why + (nic.warning.empty() ? "" : "; warning: " + nic.warning)};
}

Choice choose_collectives(const Environment& environment, const NodeFacts& facts) {
  const std::string said =
      fmt::format("MPIR_CVAR_CH3_OFFLOAD_COLLECTIVES is {}", environment.config.collectives);
  const bool has_processor = facts.nic.has_process || facts.nic.has_thread;
  const bool is_allowed = std::string_view(environment.config.collectives) == "auto";
  if (has_processor && is_allowed)
    return {"nonblocking collectives", "carried out by the network processor, as far as it can", said};
  return {"nonblocking collectives", "go on in the calls of MPI",
          has_processor ? said : "there is no network processor that works while the program computes"};
}

Choice choose_checksums(const Environment& environment) {
  const std::string_view asked = environment.config.checksum;
  return {"checksums",
          asked == "off"   ? "none of this channel's own"
          : asked == "all" ? "CRC32C of all messages that leave a process"
                           : "CRC32C of all messages that go over a network",
          fmt::format("MPIR_CVAR_CH3_OFFLOAD_CHECKSUM is {}", asked)};
}

/// What a slot has room for, with the checksums that the settings ask for.
Capabilities checked(const Environment& environment, Capabilities provider, bool is_network) {
  const std::string_view asked = environment.config.checksum;
  if (asked == "all" || (asked == "network" && is_network)) provider.max_slot_bytes -= sizeof(CheckedHeader);
  return provider;
}

Choice choose_waiting(const Environment& environment, const NodeFacts& facts) {
  const std::int64_t spin_us = environment.config.spin_us;
  const auto longest_us = [&](std::uint32_t processes) {
    return static_cast<double>(WaitPolicy(spin_us, processes, {facts.cores, 1}, {}).spin_ns()) / 1000;
  };
  if (spin_us >= 0) {
    return {"waiting", fmt::format("polls for at most {:g} us, then sleeps", longest_us(1)),
            fmt::format("MPIR_CVAR_CH3_OFFLOAD_SPIN is {}", spin_us)};
  }
  return {"waiting",
          fmt::format("polls for at most {:g} us, then sleeps; {:g} us, giving its core to others meanwhile, "
                      "with more than {} processes here",
                      longest_us(facts.cores), longest_us(facts.cores + 1), facts.cores),
          fmt::format("MPIR_CVAR_CH3_OFFLOAD_SPIN is -1: it adapts; this node has {} cores", facts.cores)};
}

}  // namespace

std::string in_units(std::size_t bytes) {
  if (bytes >= (1U << 30) && bytes % (1U << 30) == 0) return fmt::format("{} GiB", bytes >> 30);
  if (bytes >= (1U << 20) && bytes % (1U << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= (1U << 10) && bytes % (1U << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

std::vector<std::string> init_errors(const Environment& environment, const NodeFacts& facts) {
  std::vector<std::string> errors;
  if (const auto missing = checksums_missing(environment.config)) errors.push_back(missing->message);
  if (!facts.nic_error.empty()) errors.push_back(facts.nic_error);
  if (!facts.event_error.empty()) errors.push_back("eventfd: " + facts.event_error);
  if (uses_process(facts) && !facts.nicd_error.empty() && !facts.user_runs_nicd)
    errors.push_back(facts.nicd_error);
  if (uses_shm(environment, facts)) {
    if (!facts.shm_error.empty()) errors.push_back(facts.shm_error);
  } else if (const FabricChoice fabric = fabric_choice(environment.config.fabric); !fabric.shm) {
    if (fabric.verbs && facts.verbs_error) errors.push_back(facts.verbs_error->message);
    if (fabric.tcp && facts.tcp_error) errors.push_back(facts.tcp_error->message);
  }
  return errors;
}

std::vector<Choice> choices(const Environment& environment, const NodeFacts& facts) {
  if (!init_errors(environment, facts).empty()) return {};
  std::vector<Choice> chosen{choose_within_node(environment, facts),
                             choose_between_nodes(environment, facts)};
  if (uses_verbs(environment, facts)) chosen.push_back(choose_port(environment, facts));
  if (uses_verbs(environment, facts) || uses_tcp(environment, facts))
    chosen.push_back(choose_setup_address(environment, facts));
  if (uses_process(facts)) {
    Capabilities nicd;
    nicd.name = "nicd";
    nicd.max_slot_bytes = Exchange::kLocalSlotBytes;
    chosen.push_back(choose_short(environment, nicd, nicd.max_slot_bytes, "slots"));
    chosen.push_back(choose_slots(facts));
  }
  if (uses_shm(environment, facts)) {
    const auto ring_bytes = static_cast<std::size_t>(environment.config.shm_ring_bytes);
    const Capabilities shm = checked(environment, facts.shm, /*is_network=*/false);
    chosen.push_back(choose_short(environment, shm, ring_bytes, "ring"));
    chosen.push_back(choose_bulk(environment, facts));
  }
  if (uses_verbs(environment, facts)) {
    Capabilities verbs = checked(environment, facts.verbs, /*is_network=*/true);
    if (uses_process(facts)) verbs.max_slot_bytes -= sizeof(ExchangeFrame);
    chosen.push_back(choose_short(environment, verbs, RailConfig{}.slot_bytes, "slots"));
    if (!uses_process(facts)) chosen.push_back(choose_rdma_write(facts));
  }
  if (uses_tcp(environment, facts)) {
    Capabilities tcp = checked(environment, facts.tcp, /*is_network=*/true);
    if (uses_process(facts)) tcp.max_slot_bytes -= sizeof(ExchangeFrame);
    chosen.push_back(choose_short(environment, tcp, facts.tcp.max_slot_bytes, "slots"));
    if (!uses_process(facts)) chosen.push_back(choose_tcp_write(facts));
  }
  chosen.push_back(choose_driver(facts));
  chosen.push_back(choose_collectives(environment, facts));
  chosen.push_back(choose_checksums(environment));
  chosen.push_back(choose_waiting(environment, facts));
  return chosen;
}

}  // namespace ch3_offload
