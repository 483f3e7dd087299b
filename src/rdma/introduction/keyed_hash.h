// HMAC-SHA-256 (RFC 2104, FIPS 198-1), by libsodium. A library built without libsodium has none.
//
// Threads: any. Blocking: none. Allocation: none.

#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace ch3_offload {

using KeyedHash = std::array<std::byte, 32>;

/// Whether this library has keyed_hash().
bool have_keyed_hash() noexcept;

/// The hash of all `parts`, one after the other. Without libsodium: zeros.
KeyedHash keyed_hash(std::span<const std::byte> key,
                     std::initializer_list<std::span<const std::byte>> parts) noexcept;

/// Compares in a time that does not depend on the bytes.
bool equal_hashes(const KeyedHash& one, const KeyedHash& other) noexcept;

}  // namespace ch3_offload
