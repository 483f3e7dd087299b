// The settings as a table: one row for each control variable, of ch3_offload_settings.def, and the one parser of
// their texts: MPI, Portals, the processor of a node and ch3-offload-info all read them by it.
//
// Threads: any; nothing here has state.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ch3_offload/ch3_offload.h"
#include "dme/pin_down_cache.h"
#include "engine/engine.h"
#include "rdma/shm/shm_provider.h"
#include "rdma/tcp/tcp_config.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {

enum class SettingKind {
  kNumber,
  kRange,       ///< LOW:HIGH. 0:0: none.
  kSize,        ///< Bytes; K, M, G or T may follow.
  kWord,        ///< One of those that `takes` lists.
  kText,        ///< Anything.
  kPorts,       ///< A list of RDMA ports, parse_port_wishes(), or nothing.
  kPartition,   ///< parse_partition_key(), or nothing.
  kInterfaces,  ///< A list of network interfaces, is_interface_list(), or nothing.
  kProcessors,  ///< A list of processors, "3,7-9", or nothing.
  kPath,        ///< Prefix of file names; empty: off.
};

struct Setting {
  const char* variable;  ///< "MPIR_CVAR_CH3_OFFLOAD_...", or one of MPICH's own.
  SettingKind kind;
  const char* standard;  ///< The default, as a user writes it.
  const char* takes;     ///< Completes "it takes ...".

  /// Where its value is: one of these.
  ch3_offload_number_t ch3_offload_config_t::*number = nullptr;
  ch3_offload_range_t ch3_offload_config_t::*range = nullptr;
  ch3_offload_text_t ch3_offload_config_t::*text = nullptr;

  const char* unit = kind == SettingKind::kSize ? "bytes" : "";  ///< Also "us", "s" and "events".
  std::int64_t least = 0, most = 0;                              ///< Of a number, and of the ends of a range.
  bool power_of_two = false;

  /// Other names without MPICH's prefixes (MPIR_CVAR_ and others); the variable's own takes precedence.
  std::array<const char*, 2> aliases{};  ///< nullptr: no more.
};

std::span<const Setting> settings() noexcept;

/// Why the setting's value in `config` is refused, in a line that names the variable, the value and what it
/// takes; nothing when it is right.
std::optional<std::string> complaint(const Setting& setting, const ch3_offload_config_t& config);

/// Stores what a user wrote; "" is the default. `config` keeps pointers into `text`. Nothing, or why it is
/// refused, with `text` as it stands and `name`, the variable's own if empty: then `config` is as it was.
std::optional<std::string> set_from_text(const Setting& setting, const char* text,
                                         ch3_offload_config_t& config, std::string_view name = {});

/// The value as a user would write it.
std::string to_string(const Setting& setting, const ch3_offload_config_t& config);

/// What a word of MPIR_CVAR_CH3_OFFLOAD_SHM_BULK stands for.
BulkMethod bulk_method(std::string_view word) noexcept;

/// What a word of MPIR_CVAR_CH3_OFFLOAD_CLASS stands for.
TrafficClass traffic_class(std::string_view word) noexcept;

/// What a word of MPIR_CVAR_CH3_OFFLOAD_FABRIC lets a process use.
struct FabricChoice {
  bool shm = false;
  bool verbs = false;
  bool tcp = false;
  bool is_auto = false;  ///< What this node lacks is done without.
  bool has_network() const noexcept { return verbs || tcp; }
};
FabricChoice fabric_choice(std::string_view word) noexcept;

/// What may stay registered; what the settings leave open goes by the machine. Each region takes so many
/// `registrations`. Without what identifies the process and its job. Throws std::bad_alloc.
ShmConfig shm_config(const ch3_offload_config_t& config);
PinDownConfig pin_down_config(const ch3_offload_config_t& config, std::size_t registrations);

/// What the settings ask of the verbs provider. Who the process is, and who listens to it, the caller fills
/// in.
VerbsConfig verbs_config(const ch3_offload_config_t& config);

/// The same for the TCP provider.
TcpConfig tcp_config(const ch3_offload_config_t& config);

/// "64M" and the like. Nothing: not a size, or it does not fit.
std::optional<std::int64_t> parse_size(std::string_view text) noexcept;

/// A whole number, with a sign or not. Nothing: it is none, or does not fit.
std::optional<std::int64_t> parse_number(std::string_view text) noexcept;

/// Two numbers as MPICH reads a range control variable, "LOW:HIGH": blanks before them are skipped, and what is
/// missing is 0. MPICH and mpiexec read the same variable.
std::optional<std::pair<std::int64_t, std::int64_t>> parse_range(std::string_view text) noexcept;

}  // namespace ch3_offload
