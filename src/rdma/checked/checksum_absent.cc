// Without ISA-L. See checksum.h.

#include "rdma/checked/checksum.h"

namespace ch3_offload {

bool have_checksums() noexcept { return false; }

std::uint32_t checksum(std::span<const std::byte>) noexcept { return 0; }

}  // namespace ch3_offload
