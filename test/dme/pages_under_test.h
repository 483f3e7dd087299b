// What test/dme/real_memory registers memory with.

#pragma once

#include <cstddef>

#include "rdma/registrar.h"

namespace ch3_offload {

class PagesUnderTest : public Registrar {
 public:
  /// Whether a device that goes by the registration meets the pages that the process has at these addresses, which it
  /// holds. May overwrite them. From any thread.
  virtual bool meets_memory(const MemoryRegion& region, std::byte* address, std::size_t length_bytes) = 0;
};

}  // namespace ch3_offload
