// Whether this node has RDMA devices.

#pragma once

#include <filesystem>
#include <system_error>

namespace ch3_offload {

/// By what the kernel lists: a device may have no port that can be used. Threads: any.
inline bool has_rdma_device() {
  std::error_code none;
  return std::filesystem::directory_iterator("/sys/class/infiniband", none) !=
         std::filesystem::directory_iterator();
}

}  // namespace ch3_offload
