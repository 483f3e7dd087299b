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
#include "rdma/introduction/host_address.h"
#include "rdma/processor_set.h"
#include "rdma/verbs/port_wish.h"

namespace ch3_offload {

namespace {

using Config = ch3_offload_config_t;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kTiB = kMiB * 1024 * 1024;

constexpr Setting kSettings[] = {
#define CH3_OFFLOAD_SETTING(name, type, field, its_kind, verbosity, scope, text, what, description, ...) \
  {.variable = #name,                                                                                    \
   .kind = SettingKind::its_kind,                                                                        \
   .standard = text,                                                                                     \
   .takes = what,                                                                                        \
   .type = &Config::field __VA_OPT__(, ) __VA_ARGS__},
#include "ch3_offload/ch3_offload_settings.def"
#undef CH3_OFFLOAD_SETTING
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

/// Whether `value` is one of the words of "auto, shm or verbs".
bool is_word_of(std::string_view list, std::string_view value) noexcept {
  constexpr std::string_view kBetween = ", ";
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find_first_of(kBetween));
    if (value == word && word != "or") return true;
    list.remove_prefix(word.size());
    list.remove_prefix(std::min(list.find_first_not_of(kBetween), list.size()));
  }
  return false;
}

/// Those of a range, or a number twice.
ch3_offload_range_t ends_of(const Setting& setting, const Config& config) noexcept {
  if (setting.range != nullptr) return config.*setting.range;
  return {config.*setting.number, config.*setting.number};
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
  if (setting.text == nullptr) {
    const ch3_offload_range_t ends = ends_of(setting, config);
    if (is_right_number(setting, ends.low) && is_right_number(setting, ends.high) && ends.low <= ends.high)
      return {};
    return refuse(setting, name, typed, setting.range != nullptr ? " is no range" : " is out of range");
  }
  const char* const text = config.*setting.text;
  const std::string_view value = text == nullptr ? "" : text;
  switch (setting.kind) {
    case SettingKind::kWord:
      if (is_word_of(setting.takes, value)) return {};
      break;
    case SettingKind::kProcessors:
      if (value.empty() || parse_processors(value)) return {};
      break;
    case SettingKind::kPorts:
      if (parse_port_wishes(value)) return {};
      break;
    case SettingKind::kPartition:
      if (value.empty() || parse_partition_key(value)) return {};
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
  if (setting.range != nullptr) {
    const auto range = parse_range(text);
    if (range) config.*setting.range = {range->first, range->second};
    return range.has_value();
  }
  const auto value = setting.kind == SettingKind::kSize ? parse_size(text) : parse_number(text);
  if (value) config.*setting.number = *value;
  return value.has_value();
}

}  // namespace

std::optional<std::string> complaint(const Setting& setting, const Config& config) {
  return judge(setting, config, setting.variable, to_string(setting, config));
}

std::optional<std::string> set_from_text(const Setting& setting, const char* text, Config& config,
                                         std::string_view name) {
  if (*text == '\0') {
    store(setting, setting.standard, config);
    return {};
  }
  const Config before = config;
  if (!store(setting, text, config)) return refuse(setting, name, text);
  std::optional<std::string> why = judge(setting, config, name, text);
  if (why) config = before;
  return why;
}

std::string to_string(const Setting& setting, const Config& config) {
  if (setting.text != nullptr) return config.*setting.text == nullptr ? "" : config.*setting.text;
  auto [value, high] = ends_of(setting, config);
  if (setting.range != nullptr) return std::to_string(value) + ":" + std::to_string(high);
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

FabricChoice fabric_choice(std::string_view word) noexcept {
  const bool is_auto = word == "auto";
  return {.shm = is_auto || word.starts_with("shm"),
          .verbs = is_auto || word.ends_with("verbs"),
          .tcp = is_auto || word.ends_with("tcp"),
          .is_auto = is_auto};
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
  verbs.partition_key = parse_partition_key(config.verbs_pkey).value_or(0);
  verbs.rail.traffic_class = static_cast<std::uint8_t>(config.verbs_traffic_class);
  verbs.rail.service_level = static_cast<std::uint8_t>(config.verbs_service_level);
  verbs.first_port = static_cast<std::uint16_t>(config.port_range.low);
  verbs.last_port = static_cast<std::uint16_t>(config.port_range.high);
  verbs.most_rails = static_cast<std::uint32_t>(config.verbs_rails);
  verbs.rail.most_receive_slots =
      static_cast<std::uint32_t>(static_cast<std::size_t>(config.verbs_pool_bytes) / verbs.rail.slot_bytes);
  verbs.rail.most_queue_pairs = static_cast<std::uint32_t>(config.verbs_queue_pairs);
  verbs.on_demand = std::string_view(config.pin_cache) == "on-demand";
  verbs.processes_on_node = processes_on_node(config);
  verbs.number_on_node = config.local_rank;
  verbs.processors = affinity_of(::getpid());
  verbs.peer_timeout_ms = static_cast<int>(config.peer_timeout_s) * 1000;
  return verbs;
}

TcpConfig tcp_config(const ch3_offload_config_t& config) {
  TcpConfig tcp;
  tcp.interface = config.network_interface;
  // Processes of one node reach each other there.
  tcp.loopback_serves = config.local_size != 0 && config.local_size == config.job_size;
  tcp.first_port = static_cast<std::uint16_t>(config.port_range.low);
  tcp.last_port = static_cast<std::uint16_t>(config.port_range.high);
  tcp.peer_timeout_ms = static_cast<int>(config.peer_timeout_s) * 1000;
  return tcp;
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
