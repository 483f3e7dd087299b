#include "info_report.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "ch3_offload/wait_policy.h"
#include "json_writer.h"
#include "nic/wire.h"
#include "rdma/shm/shm_connection.h"
#include "text_table.h"

namespace ch3_offload {
namespace {

/// Descriptors that a process has besides those of its peers: standard streams, the provider's own, MPICH's.
constexpr std::uint64_t kOtherDescriptors = 16;
constexpr std::uint64_t kDescriptorsPerPeer = 2;

std::uint64_t most_peers(std::uint64_t descriptors) noexcept {
  return descriptors < kOtherDescriptors ? 0 : (descriptors - kOtherDescriptors) / kDescriptorsPerPeer;
}

std::string in_units(std::size_t bytes) {
  if (bytes >= (1U << 20) && bytes % (1U << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= (1U << 10) && bytes % (1U << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

/// Why one process may or may not write into another's memory.
std::string remote_copy_detail(const NodeFacts& facts) {
  std::string detail = facts.remote_copy_error.empty() ? "process_vm_writev to a sibling process works"
                                                       : "process_vm_writev: " + facts.remote_copy_error;
  if (facts.ptrace_scope) detail += fmt::format("; kernel.yama.ptrace_scope is {}", *facts.ptrace_scope);
  if (!facts.remote_copy_error.empty() && facts.ptrace_scope.value_or(0) > 0) detail += " (0 allows it)";
  if (facts.seccomp.value_or(0) > 0) detail += "; a seccomp filter is in force (a container's?)";
  return detail;
}

Choice choose_bulk(const Environment& environment, const NodeFacts& facts) {
  const std::string topic = "long messages";
  const std::string_view setting = environment.config.shm_bulk;
  const std::string said = fmt::format("MPIR_CVAR_CH3_OFFLOAD_SHM_BULK is {}", setting);
  if (!facts.shm.write) return {topic, "copied through the ring by both sides", said};
  if (!facts.remote_copy_error.empty())
    return {topic, "copied through the ring by both sides",
            "one process may not write into another's memory here"};
  if (facts.shm.write_threshold_bytes == SIZE_MAX)
    return {topic, "copied through the ring by both sides",
            said + ", and one direct copy measured no faster here"};
  return {topic,
          fmt::format("one copy by process_vm_writev from {} on", in_units(facts.shm.write_threshold_bytes)),
          setting == "auto" ? said + ", and from there it measured faster than the ring" : said};
}

Choice choose_waiting(const Environment& environment, const NodeFacts& facts) {
  const std::int64_t spin_us = environment.config.spin_us;
  const auto longest_us = [&](std::uint32_t processes) {
    return static_cast<double>(WaitPolicy(spin_us, processes, facts.cores).spin_ns()) / 1000;
  };
  if (spin_us >= 0) {
    return {"waiting", fmt::format("polls for at most {:g} us, then sleeps", longest_us(1)),
            fmt::format("MPIR_CVAR_CH3_OFFLOAD_SPIN is {}", spin_us)};
  }
  return {"waiting",
          fmt::format("polls for at most {:g} us, then sleeps; {:g} us with more than {} processes here",
                      longest_us(facts.cores), longest_us(facts.cores + 1), facts.cores),
          fmt::format("MPIR_CVAR_CH3_OFFLOAD_SPIN is -1: it adapts; this node has {} cores", facts.cores)};
}

std::string shown(const std::string& value) { return value.empty() ? "(none)" : value; }

std::string state_of(const SettingState& state) {
  if (state.complaint) return "WRONG";
  return state.source.empty() ? "" : "from " + state.source;
}

}  // namespace

std::vector<Finding> findings(const NodeFacts& facts) {
  std::vector<Finding> found;
  const auto address = ShmAddress::parse(facts.shm_address);
  found.push_back({"shm provider", facts.shm_error.empty(),
                   facts.shm_error.empty()
                       ? fmt::format("memfd, local sockets and epoll work; node id {:016x}",
                                     address ? address->node_id : 0)
                       : facts.shm_error});
  found.push_back(
      {"eventfd", facts.event_error.empty(), facts.event_error.empty() ? "works" : facts.event_error});
  found.push_back({"direct copies", facts.remote_copy_error.empty(), remote_copy_detail(facts)});
  const std::uint64_t peers = most_peers(facts.descriptors);
  found.push_back({"descriptors", peers > 0,
                   fmt::format("{} (hard limit of RLIMIT_NOFILE): enough for {} peers on this node",
                               facts.descriptors, peers)});
  found.push_back({"cores", true, fmt::format("{}", facts.cores)});
  return found;
}

std::vector<Choice> choices(const Environment& environment, const NodeFacts& facts) {
  if (!facts.shm_error.empty()) return {};
  const auto eager = static_cast<std::size_t>(environment.config.eager_limit_bytes);
  const std::size_t slot = facts.shm.max_slot_bytes - sizeof(wire::EagerHeader);
  return {{"provider", "shm", "it is the only one in this build"},
          {"short messages",
           fmt::format("up to {} in one slot, up to {} eager", in_units(eager < slot ? eager : slot),
                       in_units(eager)),
           fmt::format("ring of {}; MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT is {}",
                       in_units(static_cast<std::size_t>(environment.config.shm_ring_bytes)), eager)},
          choose_bulk(environment, facts),
          choose_waiting(environment, facts)};
}

std::string render_text(const Environment& environment, const NodeFacts* facts) {
  std::string text = fmt::format(
      "ch3-offload {}, interface version {}, wire version {}, shm handshake version {}\n\nSettings\n",
      PACKAGE_VERSION, CH3_OFFLOAD_ABI_VERSION, wire::kWireVersion, Hello::kVersion);
  TextTable settings({"variable", "value", "default", ""});
  for (const SettingState& state : environment.settings)
    settings.add({state.setting->variable, shown(state.value), shown(state.standard), state_of(state)});
  text += settings.render(2);
  for (const std::string& name : environment.strangers)
    text += fmt::format("  note: {} is set, but there is no such setting\n", name);
  if (facts == nullptr) return text;

  text += "\nThis node\n";
  TextTable node({"", "", ""});
  for (const Finding& finding : findings(*facts))
    node.add({finding.name, finding.usable ? "yes" : "NO", finding.detail});
  const std::string rows = node.render(2);
  text += rows.substr(rows.find('\n') + 1);  // Without the titles' line.

  text += "\nWhat would be chosen\n";
  for (const Choice& choice : choices(environment, *facts))
    text += fmt::format("  {}: {}\n      because {}\n", choice.topic, choice.choice, choice.why);
  return text;
}

int write_json(const Environment& environment, const NodeFacts* facts, std::FILE* out) {
  JsonWriter json(out);
  json.begin_object();
  json.field("version", PACKAGE_VERSION);
  json.field("interface_version", CH3_OFFLOAD_ABI_VERSION);
  json.field("wire_version", wire::kWireVersion);
  json.field("shm_handshake_version", Hello::kVersion);
  json.field("valid", environment.valid());
  json.begin_array("settings");
  for (const SettingState& state : environment.settings) {
    json.begin_object();
    json.field("variable", state.setting->variable);
    json.field("value", state.value);
    json.field("default", state.standard);
    json.field("unit", state.setting->unit);
    json.field("takes", state.setting->takes);
    json.field("source", state.source);
    json.field("valid", !state.complaint);
    if (state.complaint) json.field("complaint", *state.complaint);
    json.end();
  }
  json.end();
  json.begin_array("unknown_variables");
  for (const std::string& name : environment.strangers) json.element(name);
  json.end();
  if (facts != nullptr) {
    json.begin_array("node");
    for (const Finding& finding : findings(*facts)) {
      json.begin_object();
      json.field("name", finding.name);
      json.field("usable", finding.usable);
      json.field("detail", finding.detail);
      json.end();
    }
    json.end();
    json.begin_array("choices");
    for (const Choice& choice : choices(environment, *facts)) {
      json.begin_object();
      json.field("topic", choice.topic);
      json.field("choice", choice.choice);
      json.field("why", choice.why);
      json.end();
    }
    json.end();
  }
  json.end();
  return json.finish();
}

}  // namespace ch3_offload
