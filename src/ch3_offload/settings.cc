#include "ch3_offload/settings.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <limits>
#include <system_error>

#include "dme/pin_budget.h"
#include "nic/processor_set.h"
#include "rdma/verbs/host_address.h"
#include "rdma/verbs/port_wish.h"

namespace ch3_offload {

namespace {

using Config = ch3_offload_config_t;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kTiB = kMiB * 1024 * 1024;

constexpr Setting kSettings[] = {
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT",
     .kind = SettingKind::kSize,
     .unit = "bytes",
     .takes = "bytes from 0 to 16M; K and M may follow",
     .effect = "longest message sent before its receive is known",
     .number = &Config::eager_limit_bytes,
     .least = 0,
     .most = 16 * kMiB},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_UNEXPECTED_BUDGET",
     .kind = SettingKind::kSize,
     .unit = "bytes",
     .takes = "bytes from 0 to 1T; K, M, G and T may follow",
     .effect = "payload kept for messages without a receive, all peers together",
     .number = &Config::unexpected_budget_bytes,
     .least = 0,
     .most = kTiB},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER",
     .kind = SettingKind::kSize,
     .unit = "bytes",
     .takes = "bytes from 0 to 1T; K, M, G and T may follow",
     .effect = "payload copied on the sending side, so that sends return while the peer has no room",
     .number = &Config::send_buffer_bytes,
     .least = 0,
     .most = kTiB},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_SHM_RING_SIZE",
     .kind = SettingKind::kSize,
     .unit = "bytes",
     .takes = "a power of two from 64K to 16M (bytes); K and M may follow",
     .effect = "greatest size of the shared-memory ring to each peer on the node",
     .number = &Config::shm_ring_bytes,
     .least = 64 * kKiB,
     .most = 16 * kMiB,
     .power_of_two = true},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_SHM_MEMORY",
     .kind = SettingKind::kSize,
     .unit = "bytes",
     .takes = "bytes from 1 to 1T, or 0 to go by the machine; K, M, G and T may follow",
     .effect = "most memory of the rings of all processes on the node; 0: a sixteenth of the node's memory",
     .number = &Config::shm_memory_bytes,
     .least = 0,
     .most = kTiB},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_SHM_BULK",
     .kind = SettingKind::kWord,
     .unit = "",
     .takes = "auto, stream or cma",
     .effect = "how long messages move on a node",
     .text = &Config::shm_bulk,
     .words = {"auto", "stream", "cma"}},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_FABRIC",
     .kind = SettingKind::kWord,
     .unit = "",
     .takes = "auto, shm or verbs",
     .effect = "which transports are used",
     .text = &Config::fabric,
     .words = {"auto", "shm", "verbs"}},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_NIC",
     .kind = SettingKind::kWord,
     .unit = "",
     .takes = "host, thread, process or auto",
     .effect = "where messages are matched and moved",
     .text = &Config::nic,
     .words = {"host", "thread", "process", "auto"}},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_NIC_CORES",
     .kind = SettingKind::kProcessors,
     .unit = "",
     .takes = "numbers of processors, as in 3,7-9, or nothing",
     .effect = "where the threads of NIC=thread run: the entry of the process's number on its node; "
               "NIC=process: on all entries; nothing: on cores that nobody computes on",
     .text = &Config::nic_cores},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_NICD",
     .kind = SettingKind::kText,
     .unit = "",
     .takes = "the path of a program, or nothing",
     .effect = "the program of NIC=process that the first process of a node starts; nothing: the installed "
               "ch3-offload-nicd",
     .text = &Config::nicd},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_CLASS",
     .kind = SettingKind::kWord,
     .unit = "",
     .takes = "latency, default or bulk",
     .effect = "how urgent the messages of communicators without info ch3_offload_class are",
     .text = &Config::traffic_class,
     .words = {"latency", "default", "bulk"}},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE",
     .kind = SettingKind::kPorts,
     .unit = "",
     .takes = "DEVICE[:PORT[:GID_INDEX]], as in mlx5_0:1, several with commas between, or nothing",
     .effect = "the RDMA port that is used; several: the first that work",
     .text = &Config::verbs_device},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_VERBS_RAILS",
     .kind = SettingKind::kNumber,
     .unit = "",
     .takes = "1 or 2",
     .effect =
         "most RDMA ports that a process uses at once, to share the load and to stand in for each other",
     .number = &Config::verbs_rails,
     .least = 1,
     .most = 2},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_VERBS_POOL",
     .kind = SettingKind::kSize,
     .unit = "bytes",
     .takes = "bytes from 512K to 1G; K, M and G may follow",
     .effect = "most registered memory for what arrives over verbs, all peers together",
     .number = &Config::verbs_pool_bytes,
     .least = 512 * kKiB,
     .most = 1024 * kMiB},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_VERBS_QUEUE_PAIRS",
     .kind = SettingKind::kNumber,
     .unit = "",
     .takes = "a number from 2 to 65536",
     .effect = "most queue pairs of a process at once; the least used one makes room for another",
     .number = &Config::verbs_queue_pairs,
     .least = 2,
     .most = 65536},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_PIN_CACHE",
     .kind = SettingKind::kWord,
     .unit = "",
     .takes = "on, off or on-demand",
     .effect = "whether memory stays registered after its transfer, for the next one",
     .text = &Config::pin_cache,
     .words = {"on", "off", "on-demand"}},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_PIN_BYTES",
     .kind = SettingKind::kSize,
     .unit = "bytes",
     .takes = "bytes from 1 to 1T, or 0 to go by the machine; K, M, G and T may follow",
     .effect = "most memory of the program that is registered at once; 0: by the machine's memory and limits",
     .number = &Config::pin_bytes,
     .least = 0,
     .most = kTiB},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_PIN_REGIONS",
     .kind = SettingKind::kNumber,
     .unit = "",
     .takes = "a number from 1 to 1000000, or 0 to go by the device",
     .effect = "most pieces of the program's memory that are registered at once; 0: by the device's limits",
     .number = &Config::pin_regions,
     .least = 0,
     .most = 1'000'000},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_INTERFACE",
     .kind = SettingKind::kInterfaces,
     .unit = "",
     .takes = "network interfaces (patterns as in ib*) or IP addresses of this node, !-prefixed ones "
              "excluded, with "
              "commas between, or nothing",
     .effect = "where processes set up connections; nothing: the RDMA port's address, or the host's",
     .text = &Config::network_interface},
    {.variable = "MPIR_CVAR_CH3_PORT_RANGE",
     .kind = SettingKind::kRange,
     .unit = "",
     .takes = "LOW:HIGH, TCP ports from 1 to 65535, or 0:0 for any",
     .effect = "the TCP ports at which processes set up connections; 0:0: any free one",
     .number = &Config::first_port,
     .high = &Config::last_port,
     .least = 0,
     .most = 65535,
     .aliases = {"PORTRANGE", "PORT_RANGE"}},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_PEER_TIMEOUT",
     .kind = SettingKind::kNumber,
     .unit = "s",
     .takes = "seconds from 1 to 86400",
     .effect = "a process on another node that is out of reach for so long is taken for dead",
     .number = &Config::peer_timeout_s,
     .least = 1,
     .most = 86400},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_SPIN",
     .kind = SettingKind::kNumber,
     .unit = "us",
     .takes = "microseconds from 0 to 10000000, or -1 to adapt",
     .effect = "longest polling before a waiting process sleeps; -1 adapts",
     .number = &Config::spin_us,
     .least = -1,
     .most = 10'000'000},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_TRACE",
     .kind = SettingKind::kPath,
     .unit = "",
     .takes = "a prefix of file names in a writable folder, or nothing",
     .effect = "writes a trace: prefix of its files",
     .text = &Config::trace},
    {.variable = "MPIR_CVAR_CH3_OFFLOAD_TRACE_EVENTS",
     .kind = SettingKind::kNumber,
     .unit = "events",
     .takes = "events from 1024 to 67108864",
     .effect = "events kept for the trace",
     .number = &Config::trace_events,
     .least = 1024,
     .most = 1 << 26},
};

std::string refuse(const Setting& setting, std::string_view name, std::string_view value,
                   std::string_view why = {}) {
  std::string text(name.empty() ? setting.variable : name);
  text.append("=").append(value).append(why);
  return text.append(": it takes ").append(setting.takes);
}

bool is_right_number(const Setting& setting, std::int64_t value) noexcept {
  if (value < setting.least || value > setting.most) return false;
  return !setting.power_of_two || std::has_single_bit(static_cast<std::uint64_t>(value));
}

bool is_right_word(const Setting& setting, std::string_view value) noexcept {
  for (const char* const word : setting.words) {
    if (word != nullptr && value == word) return true;
  }
  return false;
}

/// The folder that files with this prefix would lie in.
std::string folder_of(std::string_view prefix) {
  const std::size_t slash = prefix.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(prefix.substr(0, slash == 0 ? 1 : slash));
}

/// This job's on this node; where that is not known, all of the job's.
std::size_t processes_on_node(const ch3_offload_config_t& config) noexcept {
  return config.local_size == 0 ? config.job_size : config.local_size;
}

}  // namespace

std::span<const Setting> settings() noexcept { return kSettings; }

namespace {

/// As complaint(), of the value that was written as `typed` for `name`.
std::optional<std::string> judge(const Setting& setting, const Config& config, std::string_view name,
                                 std::string_view typed) {
  if (setting.number != nullptr) {
    const std::int64_t value = config.*setting.number;
    const bool is_range = setting.kind == SettingKind::kRange;
    if (is_right_number(setting, value) &&
        (!is_range || (is_right_number(setting, config.*setting.high) && value <= config.*setting.high)))
      return {};
    return refuse(setting, name, typed, is_range ? " is no range" : " is out of range");
  }
  const char* const text = config.*setting.text;
  const std::string_view value = text == nullptr ? "" : text;
  switch (setting.kind) {
    case SettingKind::kWord:
      if (is_right_word(setting, value)) return {};
      break;
    case SettingKind::kProcessors:
      if (value.empty() || parse_processors(value)) return {};
      break;
    case SettingKind::kPorts:
      if (parse_port_wishes(value)) return {};
      break;
    case SettingKind::kInterfaces:
      if (is_interface_list(value)) return {};
      break;
    case SettingKind::kPath:
      if (value.empty() || ::access(folder_of(value).c_str(), W_OK | X_OK) == 0) return {};
      return refuse(setting, name, typed, " (" + std::generic_category().message(errno) + ")");
    default: return {};  // Whether the node has what it names, node_settings.h says.
  }
  return refuse(setting, name, typed);
}

/// Stores what `text` says. Returns false if that is nothing of the setting's kind.
bool store(const Setting& setting, const char* text, Config& config) {
  if (setting.text != nullptr) {
    config.*setting.text = text;
    return true;
  }
  if (setting.kind == SettingKind::kRange) {
    const auto range = parse_range(text);
    if (range) {
      config.*setting.number = range->first;
      config.*setting.high = range->second;
    }
    return range.has_value();
  }
  const auto value = setting.kind == SettingKind::kSize ? parse_size(text) : parse_number(text);
  if (value) config.*setting.number = *value;
  return value.has_value();
}

void set_default(const Setting& setting, Config& config) {
  Config standard;
  ch3_offload_config_default(&standard);
  if (setting.text != nullptr) config.*setting.text = standard.*setting.text;
  if (setting.number != nullptr) config.*setting.number = standard.*setting.number;
  if (setting.high != nullptr) config.*setting.high = standard.*setting.high;
}

}  // namespace

std::optional<std::string> complaint(const Setting& setting, const Config& config) {
  return judge(setting, config, setting.variable, to_string(setting, config));
}

std::optional<std::string> set_from_text(const Setting& setting, const char* text, Config& config,
                                         std::string_view name) {
  const Config before = config;
  if (*text == '\0') {
    set_default(setting, config);
    return {};
  }
  if (!store(setting, text, config)) return refuse(setting, name, text);
  std::optional<std::string> why = judge(setting, config, name, text);
  if (why) config = before;
  return why;
}

std::string to_string(const Setting& setting, const Config& config) {
  if (setting.text != nullptr) return config.*setting.text == nullptr ? "" : config.*setting.text;
  std::int64_t value = config.*setting.number;
  if (setting.kind == SettingKind::kRange)
    return std::to_string(value) + ":" + std::to_string(config.*setting.high);
  if (setting.kind != SettingKind::kSize) return std::to_string(value);
  constexpr std::string_view kSuffixes = " KMGT";
  std::size_t suffix = 0;
  while (value != 0 && value % 1024 == 0 && suffix + 1 < kSuffixes.size()) {
    value /= 1024;
    ++suffix;
  }
  std::string text = std::to_string(value);
  if (suffix > 0) text += kSuffixes[suffix];
  return text;
}

BulkMethod bulk_method(std::string_view word) noexcept {
  if (word == "stream") return BulkMethod::kStream;
  if (word == "cma") return BulkMethod::kCma;
  return BulkMethod::kAutomatic;
}

TrafficClass traffic_class(std::string_view word) noexcept {
  if (word == "latency") return TrafficClass::kLatency;
  if (word == "bulk") return TrafficClass::kBulk;
  return TrafficClass::kDefault;
}

ShmConfig shm_config(const ch3_offload_config_t& config) {
  constexpr std::size_t kPartOfTheNode = 16;
  ShmConfig shm;
  shm.ring_bytes = static_cast<std::size_t>(config.shm_ring_bytes);
  shm.memory_bytes = config.shm_memory_bytes != 0 ? static_cast<std::size_t>(config.shm_memory_bytes)
                                                  : pin_limits(1).memory_bytes / kPartOfTheNode;
  shm.processes_on_node = processes_on_node(config);
  shm.bulk = bulk_method(config.shm_bulk);
  return shm;
}

PinDownConfig pin_down_config(const ch3_offload_config_t& config, std::size_t registrations) {
  PinLimits limits = pin_limits(processes_on_node(config));
  if (registrations == 0) limits.locked_bytes = SIZE_MAX;
  if (limits.locked_bytes != SIZE_MAX) limits.locked_bytes /= registrations;
  PinDownConfig pins = pin_budget(limits);
  pins.keep = std::string_view(config.pin_cache) != "off";
  if (config.pin_bytes != 0) pins.most_bytes = static_cast<std::size_t>(config.pin_bytes);
  if (config.pin_regions != 0) pins.most_regions = static_cast<std::size_t>(config.pin_regions);
  return pins;
}

VerbsConfig verbs_config(const ch3_offload_config_t& config) {
  VerbsConfig verbs;
  verbs.device = config.verbs_device;
  verbs.interface = config.network_interface;
  verbs.first_port = static_cast<std::uint16_t>(config.first_port);
  verbs.last_port = static_cast<std::uint16_t>(config.last_port);
  verbs.most_rails = static_cast<std::uint32_t>(config.verbs_rails);
  verbs.rail.most_receive_slots =
      static_cast<std::uint32_t>(static_cast<std::size_t>(config.verbs_pool_bytes) / verbs.rail.slot_bytes);
  verbs.rail.most_queue_pairs = static_cast<std::uint32_t>(config.verbs_queue_pairs);
  verbs.on_demand = std::string_view(config.pin_cache) == "on-demand";
  verbs.processes_on_node = processes_on_node(config);
  verbs.peer_timeout_ms = static_cast<int>(config.peer_timeout_s) * 1000;
  return verbs;
}

std::optional<std::int64_t> parse_size(std::string_view text) noexcept {
  if (text.empty() || text[0] < '0' || text[0] > '9') return {};
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return {};
  int shift = 0;
  if (rest != end) {
    switch (std::toupper(static_cast<unsigned char>(*rest))) {
      case 'K': shift = 10; break;
      case 'M': shift = 20; break;
      case 'G': shift = 30; break;
      case 'T': shift = 40; break;
      default: return {};
    }
    if (rest + 1 != end) return {};
  }
  if (value > std::numeric_limits<std::int64_t>::max() >> shift) return {};
  return value << shift;
}

std::optional<std::int64_t> parse_number(std::string_view text) noexcept {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return {};
  return value;
}

std::optional<std::pair<std::int64_t, std::int64_t>> parse_range(std::string_view text) noexcept {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text[0]))) text.remove_prefix(1);
  // Digits, or none at all.
  const auto take_number = [&text](std::int64_t& number) {
    std::int64_t value = 0;
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits > 0 && std::from_chars(text.data(), text.data() + digits, value).ec != std::errc())
      return false;
    text.remove_prefix(digits);
    number = value;
    return true;
  };
  std::int64_t low = 0, high = 0;
  if (!take_number(low)) return {};
  if (text.starts_with(':')) {
    text.remove_prefix(1);
    if (!take_number(high)) return {};
  }
  if (!text.empty()) return {};
  return std::pair(low, high);
}

}  // namespace ch3_offload
