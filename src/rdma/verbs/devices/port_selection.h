// Which device, port and GID this process uses, and why.
//
// Set-up only. Opens each device for a moment. Threads: any.

#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rdma/processor_set.h"
#include "rdma/status.h"
#include "rdma/verbs/devices/verbs_handles.h"

namespace ch3_offload {

/// A port that works.
struct VerbsPort {
  std::string device;     ///< "mlx5_0"
  std::uint8_t port = 1;  ///< Counts from 1.
  bool ethernet = false;  ///< RoCE; otherwise InfiniBand.
  int gid_index = 0;
  ibv_gid gid{};
  bool gid_is_roce_v2 = false;
  std::uint16_t lid = 0;  ///< InfiniBand only.
  /// InfiniBand: the partition's P_Key, and its place in the port's table. RoCE has one partition, at 0.
  std::uint16_t partition_key = 0;
  std::uint16_t partition_index = 0;
  /// InfiniBand: the port demands that packets have a global route header (GRH), also within a subnet.
  bool needs_global_route = false;
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint32_t rate_gbit = 0;  ///< Gbit/s, as the port says; 0: unknown.
  std::uint32_t max_message_bytes = 0;
  std::string reason;  ///< Why this GID: for ch3-offload-info.
  /// With RoCE a number for the IP network of the port's address, 0 if that is not known; on InfiniBand the
  /// prefix of the subnet. Fabrics that nobody has configured have the same prefix, and managers of their
  /// own.
  std::uint64_t network = 0;
  std::uint16_t manager_lid = 0;  ///< InfiniBand: of the subnet's manager, which may change.
  bool near = true;               ///< is_near()

  /// "InfiniBand", "RoCE v2", "RoCE v1".
  const char* link() const noexcept {
    return !ethernet ? "InfiniBand" : gid_is_roce_v2 ? "RoCE v2" : "RoCE v1";
  }
  /// "mlx5_0:1"
  std::string name() const { return device + ":" + std::to_string(port); }
  bool is_same(const VerbsPort& other) const noexcept { return device == other.device && port == other.port; }
  /// "mlx5_0:1:3 (RoCE v2, 10.9.0.1, 100 Gbit/s)"
  std::string to_string() const;
  /// The IP address in the GID of a RoCE port; empty: it has none that can be connected to.
  std::string network_address() const;
};

/// One that does not, or a whole device.
struct RejectedPort {
  std::string name;  ///< "mlx5_1:1", "mlx5_1"
  std::string why;   ///< "the port is down"
};

struct VerbsPorts {
  std::vector<VerbsPort> usable;  ///< Best first.
  std::vector<RejectedPort> rejected;
};

/// Looks at every device of this node. `wanted`: empty for all, or "DEVICE[:PORT[:GID_INDEX]]", several
/// separated by commas: then only these, in that order. The others are what VerbsConfig says they are.
/// kUnsupported: `wanted` is malformed or names what is not there (message says what there is).
Result<VerbsPorts> survey_verbs_ports(std::string_view wanted, std::uint16_t partition_key = 0,
                                      const ProcessorSet& processors = {}, std::string_view interface = {});

/// Asks the device again for what the subnet manager and the kernel may change while it is used: LID, GID, and
/// place of the partition. A value that is not valid any more stays as it was. Returns whether one has changed.
bool refresh_port(ibv_context* context, VerbsPort& port) noexcept;

/// Opens a device by name. kUnsupported: no such device; kDeviceFailed: it cannot be opened.
Result<DeviceContext> open_verbs_device(std::string_view name);

}  // namespace ch3_offload
