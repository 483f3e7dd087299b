// What a verbs provider is made from. Free of libibverbs: a library built without has it, too.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rdma/job_secret.h"
#include "rdma/provider.h"

namespace ch3_offload {

struct RailConfig {
  std::size_t slot_bytes =
      8192;  ///< Of a slot, header included; a multiple of 64. The same in all processes.
  std::uint32_t most_receive_slots = 2048;
  std::uint32_t most_send_slots = 512;
  std::uint32_t most_queue_pairs = 256;  ///< Live at once.
  std::uint32_t send_queue_depth = 64;   ///< Of each queue pair.
};

struct VerbsConfig {
  PeerId self{};
  JobSecret job_secret{};
  /// Peers are numbered below this; a greater number in an introduction is refused.
  std::uint32_t peer_limit = 1u << 20;
  std::string device;     ///< survey_verbs_ports(); empty: the best.
  std::string interface;  ///< find_host_address(), for ports that have no IP address, or to use another.
  RailConfig rail;
  /// A peer that cannot be reached for so long is dead. 1000 at least.
  int peer_timeout_ms = 10'000;
  /// Takes one line without a newline, seldom. nullptr: nobody listens.
  void (*log)(void* context, const char* line) = nullptr;
  void* log_context = nullptr;
};

/// kUnsupported: this library was built without libibverbs, or this node has no usable port; kNoMemory,
/// kDeviceFailed. The message says what is missing.
Result<std::unique_ptr<Provider>> make_verbs_provider(const VerbsConfig& config);

}  // namespace ch3_offload
