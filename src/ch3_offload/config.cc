// The settings of the C interface: defaults, and the check that names the control variable at fault.

#include <climits>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "ch3_offload/ch3_offload.h"

namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kGiB = 1024 * kMiB;

struct Range {
  const char* variable;
  int64_t value;
  int64_t least;
  int64_t most;
  const char* takes;
};

bool one_of(const char* value, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (value != nullptr && std::strcmp(value, word) == 0) return true;
  }
  return false;
}

}  // namespace

extern "C" {

void ch3_offload_config_default(ch3_offload_config_t* config) {
  *config = {};
  config->size_bytes = sizeof *config;
  config->job_size = 1;
  config->eager_limit_bytes = 64 * kKiB;
  config->unexpected_budget_bytes = 64 * kMiB;
  config->send_buffer_bytes = 64 * kMiB;
  config->shm_ring_bytes = 256 * kKiB;
  config->shm_bulk = "auto";
  config->fabric = "auto";
  config->spin_us = -1;
  config->trace = "";
  config->trace_events = 65536;
}

int ch3_offload_config_check(const ch3_offload_config_t* config, char* message, size_t capacity_bytes) {
  if (config->size_bytes != sizeof *config) {
    std::snprintf(message, capacity_bytes,
                  "libch3offload and the MPI library were built from different versions (settings of %zu "
                  "bytes, expected %zu): rebuild MPICH with the installed libch3offload",
                  config->size_bytes, sizeof *config);
    return 1;
  }
  const Range ranges[] = {
      {"MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT", config->eager_limit_bytes, 0, 16 * kMiB,
       "bytes from 0 to 16777216"},
      {"MPIR_CVAR_CH3_OFFLOAD_UNEXPECTED_BUDGET", config->unexpected_budget_bytes, 0, 1024 * kGiB,
       "bytes from 0 to 1 TiB"},
      {"MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER", config->send_buffer_bytes, 0, 1024 * kGiB,
       "bytes from 0 to 1 TiB"},
      {"MPIR_CVAR_CH3_OFFLOAD_SPIN", config->spin_us, -1, 10'000'000,
       "microseconds from 0 to 10000000, or -1 to adapt"},
      {"MPIR_CVAR_CH3_OFFLOAD_TRACE_EVENTS", config->trace_events, 1024, 1 << 26,
       "events from 1024 to 67108864"},
      {"MPIR_CVAR_CH3_OFFLOAD_SHM_RING_SIZE", config->shm_ring_bytes, 64 * kKiB, 16 * kMiB,
       "a power of two from 65536 to 16777216 (bytes)"},
  };
  for (const Range& range : ranges) {
    if (range.value >= range.least && range.value <= range.most) continue;
    std::snprintf(message, capacity_bytes, "%s=%lld is out of range: it takes %s", range.variable,
                  static_cast<long long>(range.value), range.takes);
    return 1;
  }
  if ((config->shm_ring_bytes & (config->shm_ring_bytes - 1)) != 0) {
    std::snprintf(message, capacity_bytes,
                  "MPIR_CVAR_CH3_OFFLOAD_SHM_RING_SIZE=%lld: it takes a power of two from 65536 to 16777216 "
                  "(bytes)",
                  static_cast<long long>(config->shm_ring_bytes));
    return 1;
  }
  if (!one_of(config->shm_bulk, {"auto", "stream", "cma"})) {
    std::snprintf(message, capacity_bytes,
                  "MPIR_CVAR_CH3_OFFLOAD_SHM_BULK=%s: it takes auto, stream or cma",
                  config->shm_bulk == nullptr ? "" : config->shm_bulk);
    return 1;
  }
  if (!one_of(config->fabric, {"auto", "shm"})) {
    std::snprintf(message, capacity_bytes, "MPIR_CVAR_CH3_OFFLOAD_FABRIC=%s: it takes auto or shm",
                  config->fabric == nullptr ? "" : config->fabric);
    return 1;
  }
  if (config->job_size == 0 || config->rank >= config->job_size) {
    std::snprintf(message, capacity_bytes, "rank %u is not in a job of %u processes", config->rank,
                  config->job_size);
    return 1;
  }
  return 0;
}

}  // extern "C"
