// The part of the provider interface that registers memory. The pin-down cache (src/dme) needs no other part.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/status.h"

namespace ch3_offload {

/// Grants a peer access to a registered region. Opaque outside the provider that made it.
enum class RemoteKey : std::uint64_t {};

/// What registered memory is for.
enum class Access : std::uint8_t {
  kRead,   ///< Source of writes. The memory need not be writable.
  kWrite,  ///< Destination of peers' writes, or source of writes.
};

/// Registered memory. The provider may read it; peers may write to it if it was registered for kWrite.
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

  /// Registers memory, so that write() can use it as source or destination.
  /// kNoMemory: a limit of locked memory or of the device is reached; deregistering other memory may make
  /// room. kUnsupported: this memory cannot be registered. After either, the caller can send through slots.
  virtual Status register_memory(void* address, std::size_t length_bytes, Access access,
                                 MemoryRegion& region) noexcept = 0;
  /// As register_memory(), of a payload that is not memory of this process: `payload` is its name, and stands
  /// for the address where it is written from or to (Payload of kind kFetched).
  virtual Status register_fetched(std::byte* payload, std::size_t length_bytes, Access access,
                                  MemoryRegion& region) noexcept {
    static_cast<void>(payload), static_cast<void>(length_bytes), static_cast<void>(access);
    static_cast<void>(region);
    return Status::kUnsupported;
  }
  /// Undoes either. Never fails or allocates. REQUIRES: no transfer uses the region.
  virtual void deregister_memory(MemoryRegion& region) noexcept = 0;
};

}  // namespace ch3_offload
