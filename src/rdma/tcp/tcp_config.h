// What a TCP provider is made from. A library built without libsodium has it, too.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rdma/job_secret.h"
#include "rdma/log_scope.h"
#include "rdma/provider.h"

namespace ch3_offload {

struct TcpConfig {
  PeerId self{};
  JobSecret job_secret{};
  /// Peers have numbers from first_peer on, and below peer_limit. An introduction with another is refused.
  std::uint32_t peer_limit = 1u << 20;
  std::uint32_t first_peer = 0;
  std::string interface;         ///< find_host_address().
  bool loopback_serves = false;  ///< `interface` may name a loopback address: all processes are on this node.
  /// The TCP ports to listen at; first_port 0: the kernel chooses. At which a process begins depends on
  /// `self`. REQUIRES: first_port <= last_port.
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  /// Longest message: TcpAddress::kLeastSlotBytes to kMostSlotBytes.
  std::size_t slot_bytes = 32768;
  /// The kernel's memory for a connection, each way. 0: it adapts that to the network.
  int socket_bytes = 0;
  /// A peer whose host acknowledges nothing for so long is dead. 1000 at least.
  int peer_timeout_ms = 10'000;
  /// Takes one line without a newline, seldom. nullptr: nobody listens.
  void (*log)(void* context, LogScope scope, const char* line) = nullptr;
  void* log_context = nullptr;
};

/// kUnsupported: this library was built without libsodium, or the node has no address that others could
/// connect to; kDeviceFailed: no port is free, or no descriptor. The message says what is missing.
Result<std::unique_ptr<Provider>> make_tcp_provider(const TcpConfig& config);

}  // namespace ch3_offload
