// The physical id of a process, and where a process with one listens.
//
// Threads: any.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/targets/target_entry.h"
#include "rdma/file_descriptor.h"
#include "rdma/introduction/socket_address.h"
#include "rdma/status.h"

namespace ch3_offload {

/// nid: an IPv4 address in host byte order. pid: the TCP port.
struct PhysicalId {
  std::uint32_t nid = 0;
  std::uint32_t pid = 0;

  static constexpr PhysicalId of(ProcessId process) noexcept {
    const auto bits = static_cast<std::uint64_t>(process);
    return {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
  }
  constexpr ProcessId process() const noexcept { return make_physical_id(nid, pid); }
  /// Whether a process can have it.
  constexpr bool is_possible() const noexcept { return nid != 0 && pid >= 1 && pid <= 65535; }
  std::string to_string() const;  ///< "10.0.0.5/4711"

  /// Where the process is dialled over TCP.
  SocketAddress on_net() const noexcept;
  /// Where processes of its user and node dial it.
  SocketAddress on_node(UserId user) const noexcept;
};

/// Listens at `id`, on the node and over TCP; pid 0: the kernel chooses one, and sets it. The TCP port holds
/// the pid, also where nobody may come by TCP. Errors: kAgain, the pid is taken; others: the message says
/// what to do.
Result<std::vector<FileDescriptor>> listen_as(PhysicalId& id, UserId user);

}  // namespace ch3_offload
