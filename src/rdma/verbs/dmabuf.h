// Memory of another device that is mapped into this process (a GPU's, an accelerator's, udmabuf). The kernel may be unable
// to pin its pages, as ibv_reg_mr() does; the buffer behind the mapping, a dma-buf, can be registered by its descriptor.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rdma/file_descriptor.h"

namespace ch3_offload {

struct DmabufRange {
  FileDescriptor file;
  std::uint64_t offset_bytes = 0;  ///< Of the memory in the dma-buf.
};

/// The dma-buf of which a mapping holds all of [address, address + length_bytes). Nothing: there is none, or this process
/// has closed its descriptor. Reads /proc: slow, for memory that cannot be registered otherwise. Any thread.
/// `kind`: how the names of such files begin in /proc; others are for tests.
std::optional<DmabufRange> find_dmabuf(const void* address, std::size_t length_bytes,
                                       std::string_view kind = "/dmabuf:") noexcept;

}  // namespace ch3_offload
