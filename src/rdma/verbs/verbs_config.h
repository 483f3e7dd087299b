// What a verbs provider is made from. Free of libibverbs: a library built without has it, too.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdma/job_secret.h"
#include "rdma/log_scope.h"
#include "rdma/processor_set.h"
#include "rdma/provider.h"

namespace ch3_offload {

struct RailConfig {
  /// Header included; a multiple of 64, VerbsAddress::kLeastSlotBytes to kMostSlotBytes.
  std::size_t slot_bytes = 8192;
  std::uint32_t slots_per_slab = 64;  ///< Registered at once.
  std::uint32_t most_receive_slots = 2048;
  std::uint32_t most_queue_pairs = 256;  ///< Live at once.
  std::uint32_t send_queue_depth = 64;   ///< Of each queue pair.
  /// Of packets that go with a global route: DSCP and ECN (the upper six and the lower two bits) on RoCE v2.
  std::uint8_t traffic_class = 0;
  /// 0 to 15. On InfiniBand it chooses the virtual lane, on RoCE it is the priority of the VLAN.
  std::uint8_t service_level = 0;
  /// The device's interrupts come by it, and so to one of the processors. It is taken modulo the number of
  /// the device's vectors. Processes of a node should have different ones.
  std::size_t completion_vector = 0;
};

struct VerbsConfig {
  PeerId self{};
  JobSecret job_secret{};
  /// Peers have numbers from first_peer on, and below peer_limit. An introduction with another is refused.
  std::uint32_t peer_limit = 1u << 20;
  std::uint32_t first_peer = 0;
  std::string device;  ///< survey_verbs_ports(); empty: the best.
  /// The P_Key of the InfiniBand partition to use. 0: the first with full membership.
  std::uint16_t partition_key = 0;
  /// A list as find_host_address() takes it. It names the address at which connections are set up, and the
  /// GID of a RoCE port that is used. Empty: the port's own address, and the best GID.
  std::string interface;
  bool loopback_serves =
      false;  ///< `interface` may name a loopback address; for tests, whose node is one process.
  /// The TCP ports to listen at; first_port 0: the kernel chooses. At which a process begins depends on
  /// `self`. REQUIRES: first_port <= last_port.
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  /// Most rails: further usable ports of the same kind and rate, or of those named in `device`, share the
  /// load and stand in for each other. At least 1.
  std::uint32_t most_rails = 2;
  std::uint32_t most_send_slots = 512;
  std::size_t processes_on_node = 1;  ///< Which share the devices' regions; at least 1.
  std::size_t number_on_node = 0;     ///< Of this process among them. They take turns with ports and vectors.
  ProcessorSet processors{};          ///< That this process may run on. Empty: not known.
  /// Let the device fault the caller's memory in (Capabilities::on_demand), if it can.
  bool on_demand = false;
  RailConfig rail;  ///< Of all rails together: each has its share.
  /// A peer whose link failed and whose host then answers nothing for so long is dead. 1000 at least.
  int peer_timeout_ms = 10'000;
  /// Takes one line without a newline, seldom. nullptr: nobody listens.
  void (*log)(void* context, LogScope scope, const char* line) = nullptr;
  void* log_context = nullptr;
};

/// kUnsupported: this library was built without libibverbs, or this node has no usable port; kNoMemory,
/// kDeviceFailed. The message says what is missing.
Result<std::unique_ptr<Provider>> make_verbs_provider(const VerbsConfig& config);

/// A port of an RDMA device as people want to see it.
struct VerbsPortDescription {
  std::string name{};      ///< "mlx5_0:1"; "mlx5_0": the device cannot be used, whatever its ports are.
  bool wanted = true;      ///< It is one of those to choose from: VerbsConfig::device.
  std::string why_not{};   ///< Why it cannot be used. Empty: it can.
  std::string why_used{};  ///< Why it would be used. Empty: it would not.
  // Of a port that can be used:
  std::string link{};               ///< "InfiniBand", "RoCE v2", "RoCE v1".
  int gid_index = 0;                ///< Of the GID that would be used.
  std::string gid{};                ///< "::ffff:10.9.0.1"
  std::string gid_reason{};         ///< Why this one.
  std::uint16_t partition_key = 0;  ///< InfiniBand: of the partition that would be used. 0: RoCE.
  std::string address{};            ///< The IP address in it. Empty: none that others could connect to.
  std::uint32_t rate_gbit = 0;      ///< 0: unknown.
  std::uint32_t mtu_bytes = 0;
  std::uint32_t max_message_bytes = 0;
};

/// Every port of every device of this node: first those to choose from, best first and the ones that cannot
/// be used behind them, then the others. When config.device is wrong no port is wanted, and
/// make_verbs_provider() says what is wrong. Empty: there is no device, or this library was built without
/// libibverbs.
std::vector<VerbsPortDescription> describe_verbs_ports(const VerbsConfig& config);

/// Why this node has none of the ports that `wanted` (VerbsConfig::device, not empty) names, or none that can
/// be used in the partition. Nothing: it has. Opens the devices for a moment.
std::optional<std::string> why_no_such_port(std::string_view wanted, std::uint16_t partition_key);

}  // namespace ch3_offload
