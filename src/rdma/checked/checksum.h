// CRC32C (RFC 3720, appendix B.4), by ISA-L, which takes the processor's instructions for it. A library built
// without ISA-L has none.
//
// Threads: any. Blocking: none. Allocation: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ch3_offload {

/// Whether this library has checksum().
bool have_checksums() noexcept;

/// The CRC32C of `bytes`. Without ISA-L: 0.
std::uint32_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace ch3_offload
