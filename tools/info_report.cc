#include "info_report.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "engine/wire.h"
#include "json_writer.h"
#include "rdma/shm/shm_connection.h"
#include "text_table.h"

namespace ch3_offload {
namespace {

/// Descriptors that a process has besides those of its peers, of which each takes one: standard streams, the
/// driver's and the provider's own, and those that mpiexec leaves open.
constexpr std::uint64_t kOtherDescriptors = 24;

std::uint64_t most_peers(std::uint64_t descriptors) noexcept {
  return descriptors < kOtherDescriptors ? 0 : descriptors - kOtherDescriptors;
}

/// Why one process may or may not write into another's memory.
std::string remote_copy_detail(const NodeFacts& facts) {
  std::string detail = facts.remote_copy_error.empty() ? "process_vm_writev to a sibling process works"
                                                       : "process_vm_writev: " + facts.remote_copy_error;
  if (facts.ptrace_scope) detail += fmt::format("; kernel.yama.ptrace_scope is {}", *facts.ptrace_scope);
  if (!facts.remote_copy_error.empty() && facts.ptrace_scope.value_or(0) > 1) detail += " (0 or 1 allows it)";
  if (facts.seccomp.value_or(0) > 0) detail += "; a seccomp filter is in force (a container's?)";
  return detail;
}

/// What a port's first slots take, of both directions.
constexpr std::uint64_t kFirstSlotsBytes =
    std::uint64_t{2} * RailConfig{}.slots_per_slab * RailConfig{}.slot_bytes;

/// Whether verbs could register its first slots. If the provider was made, it has.
bool can_lock(const NodeFacts& facts) noexcept {
  if (!facts.verbs_error) return true;
  return facts.verbs_error->status != Status::kNoMemory &&
         (facts.may_lock_all || facts.locked_bytes >= kFirstSlotsBytes);
}

std::string locked_detail(const NodeFacts& facts) {
  if (facts.locked_bytes == UINT64_MAX) return "no limit (RLIMIT_MEMLOCK)";
  const std::string limit = in_units(facts.locked_bytes) + " (RLIMIT_MEMLOCK)";
  if (facts.locked_bytes >= kFirstSlotsBytes)
    return limit +
           " for what is registered with an RDMA device; when that is used up, long messages go "
           "through slots";
  const std::string needs =
      fmt::format("{}, and verbs needs {} for its first slots on a port", limit, in_units(kFirstSlotsBytes));
  if (facts.may_lock_all)
    return needs + "; the limit does not apply to this process, which has the capability CAP_IPC_LOCK";
  return needs + ": raise it (ulimit -l unlimited) to use RDMA; without RDMA it does not matter";
}

std::string verbs_detail(const NodeFacts& facts) {
  if (facts.verbs_error) return facts.verbs_error->message;
  return fmt::format("its queues and memory can be had on {}; connections are set up at {}",
                     facts.used_port(), facts.verbs_host);
}

std::string tcp_detail(const NodeFacts& facts) {
  if (facts.tcp_error) return facts.tcp_error->message;
  std::string detail = "listens at " + facts.tcp_host;
  if (facts.congestion_control == "bbr")
    detail +=
        "; the congestion control bbr paces what is sent, so a long message can take several times as long "
        "as with cubic or dctcp (sysctl net.ipv4.tcp_congestion_control)";
  return detail;
}

std::string port_detail(const VerbsPortDescription& port) {
  if (!port.why_not.empty()) return port.why_not;
  std::string detail =
      fmt::format("{}, GID {}: {} ({})", port.link, port.gid_index, port.gid, port.gid_reason);
  if (!port.address.empty()) detail += ", address " + port.address;
  if (port.partition_key != 0) detail += fmt::format(", partition {:#06x}", port.partition_key);
  if (port.rate_gbit != 0) detail += fmt::format(", {} Gbit/s", port.rate_gbit);
  return detail +
         fmt::format(", MTU {}, messages up to {}", port.mtu_bytes, in_units(port.max_message_bytes));
}

/// Rows of name, yes or NO, and detail.
std::string render_findings(const std::vector<Finding>& findings) {
  TextTable table({"", "", ""});
  for (const Finding& finding : findings)
    table.add({finding.name, finding.usable ? "yes" : "NO", finding.detail});
  const std::string rows = table.render(2);
  return rows.substr(rows.find('\n') + 1);  // Without the titles' line.
}

std::string shown(const std::string& value) { return value.empty() ? "(none)" : value; }

void write_port(JsonWriter& json, const VerbsPortDescription& port) {
  json.begin_object();
  json.field("name", port.name);
  json.field("usable", port.why_not.empty());
  json.field("wanted", port.wanted);
  json.field("used", !port.why_used.empty());
  if (!port.why_used.empty()) json.field("why_used", port.why_used);
  if (!port.why_not.empty()) {
    json.field("why_not", port.why_not);
  } else {
    json.field("link", port.link);
    json.field("gid_index", port.gid_index);
    json.field("gid", port.gid);
    json.field("gid_reason", port.gid_reason);
    json.field("address", port.address);
    json.field("partition_key", port.partition_key);
    json.field("rate_gbit", port.rate_gbit);
    json.field("mtu_bytes", port.mtu_bytes);
    json.field("max_message_bytes", port.max_message_bytes);
  }
  json.end();
}

std::string state_of(const SettingState& state) {
  if (state.complaint) return "WRONG";
  return state.source.empty() ? "" : "from " + state.source;
}

std::string outcome_of(const SettingsFile& file) {
  if (!file.why_not.empty()) return "NOT USED: " + file.why_not;
  if (!file.exists) return "does not exist";
  return fmt::format("{} setting{}", file.settings, file.settings == 1 ? "" : "s");
}

void write_file(JsonWriter& json, const SettingsFile& file) {
  json.begin_object();
  json.field("path", file.path);
  json.field("exists", file.exists);
  json.field("settings", file.settings);
  if (!file.why_not.empty()) json.field("why_not", file.why_not);
  json.end();
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
  found.push_back(
      {"descriptors", peers > 0,
       fmt::format("{} (hard limit of RLIMIT_NOFILE): enough for {} peers on this node, one each, "
                   "beside some {} of the process's own and of mpiexec",
                   facts.descriptors, peers, kOtherDescriptors)});
  found.push_back({"cores", true, fmt::format("{}", facts.cores)});
  found.push_back({"verbs provider", !facts.verbs_error, verbs_detail(facts)});
  found.push_back({"TCP provider", !facts.tcp_error, tcp_detail(facts)});
  found.push_back(
      {"locked memory", facts.locked_bytes == UINT64_MAX || can_lock(facts), locked_detail(facts)});
  return found;
}

std::vector<Finding> port_findings(const NodeFacts& facts) {
  std::vector<Finding> found;
  for (const VerbsPortDescription& port : facts.verbs_ports) {
    found.push_back({port.name, port.why_not.empty(), port_detail(port)});
    if (!port.wanted) found.back().detail += "; not one of MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE";
  }
  return found;
}

std::string render_settings_file(const Environment& environment) {
  std::string text = fmt::format(
      "# Settings of ch3:offload {}, which the environment overrides. docs/settings.md explains each.\n",
      PACKAGE_VERSION);
  for (const SettingState& state : environment.settings)
    text += fmt::format("\n# {}\n{}{} = {}\n", state.setting->takes, state.source.empty() ? "# " : "",
                        state.setting->variable, state.value);
  return text;
}

std::string render_text(const Environment& environment, const NodeFacts* facts) {
  std::string text = fmt::format(
      "ch3-offload {}, interface version {}, wire version {}, shm handshake version {}\n\nSettings\n",
      PACKAGE_VERSION, CH3_OFFLOAD_ABI_VERSION, wire::kWireVersion, Hello::kVersion);
  TextTable settings({"variable", "value", "default", ""});
  for (const SettingState& state : environment.settings)
    settings.add(
        {state.setting->variable, shown(state.value), shown(state.setting->standard), state_of(state)});
  text += settings.render(2);
  for (const std::string& line : environment.warnings) text += fmt::format("  warning: {}\n", line);
  for (const SettingsFile& file : environment.files)
    text += fmt::format("  file {}: {}\n", file.path, outcome_of(file));
  if (facts == nullptr) return text;
  for (const std::string& line : facts->meaningless) text += fmt::format("  warning: {}\n", line);

  text += "\nThis node\n" + render_findings(findings(*facts));
  if (!facts->verbs_ports.empty())
    text += "\nRDMA ports, best first\n" + render_findings(port_findings(*facts));

  text += "\nWhat would be chosen\n";
  for (const std::string& why : init_errors(environment, *facts))
    text += fmt::format("  nothing: MPI_Init would fail: {}\n", why);
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
    json.field("default", state.setting->standard);
    json.field("unit", state.setting->unit);
    json.field("takes", state.setting->takes);
    json.field("source", state.source);
    json.field("valid", !state.complaint);
    if (state.complaint) json.field("complaint", *state.complaint);
    json.end();
  }
  json.end();
  json.begin_array("settings_files");
  for (const SettingsFile& file : environment.files) write_file(json, file);
  json.end();
  json.begin_array("unknown_variables");
  for (const Stranger& stranger : environment.strangers) json.element(stranger.name);
  json.end();
  json.begin_array("warnings");
  for (const std::string& line : environment.warnings) json.element(line);
  if (facts != nullptr)
    for (const std::string& line : facts->meaningless) json.element(line);
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
    json.begin_array("rdma_ports");
    for (const VerbsPortDescription& port : facts->verbs_ports) write_port(json, port);
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
