// Where a process listens for introductions: its addresses and its TCP port.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rdma/file_descriptor.h"
#include "rdma/log.h"
#include "rdma/status.h"

namespace ch3_offload {

struct ListeningConfig {
  const char* name = "";  ///< Begins each line of the log, and each error: "verbs: ".
  /// The TCP ports to listen at; first_port 0: the kernel chooses. REQUIRES: first_port <= last_port.
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  std::uint32_t place = 0;  ///< The range's port to begin at, modulo their number.
};

/// Listens at each of `hosts`, IP addresses in numbers, at the same `port`, which it sets. An address after
/// the first that does not work is logged and taken out. Errors: kDeviceFailed: no port of the range is free,
/// or the first address does not work. REQUIRES: there is a host.
Result<std::vector<FileDescriptor>> listen_for_introductions(const ListeningConfig& config, const Log& log,
                                                             std::vector<std::string>& hosts,
                                                             std::uint16_t& port);

}  // namespace ch3_offload
