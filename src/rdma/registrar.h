// What registers memory with a device: the part of the provider interface that the pin-down cache (src/dme) needs.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/status.h"

namespace ch3_offload {

/// Grants a peer access to a registered region. Opaque to all but the provider that made it.
enum class RemoteKey : std::uint64_t {};

/// What registered memory is for.
enum class Access : std::uint8_t {
  kRead,   ///< The source of writes; need not be writable.
  kWrite,  ///< Peers write to it; it may be the source of writes, too.
};

/// Memory that the provider may read from and peers may write to.
struct MemoryRegion {
  std::byte* address = nullptr;
  std::size_t length_bytes = 0;
  RemoteKey remote_key{};
  std::uint64_t local_key = 0;  ///< The provider's own handle (verbs: lkey).
};

class Registrar {
 public:
  Registrar() = default;
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;
  virtual ~Registrar() = default;

  /// Makes memory usable for write(), at either end.
  /// kNoMemory: a limit (of locked memory, of the device) is reached; there may be room when other memory is
  /// deregistered. kUnsupported: this memory cannot be registered. Either way the caller can bounce instead.
  virtual Status register_memory(void* address, std::size_t length_bytes, Access access,
                                 MemoryRegion& region) noexcept = 0;
  /// REQUIRES: nothing is under way that uses the region. Never fails, never allocates.
  virtual void deregister_memory(MemoryRegion& region) noexcept = 0;
};

}  // namespace ch3_offload
