#include "rdma/introduction/keyed_hash.h"

#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>

namespace ch3_offload {
namespace {

static_assert(std::tuple_size_v<KeyedHash> == crypto_auth_hmacsha256_BYTES);

const unsigned char* unsigned_bytes(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

bool have_keyed_hash() noexcept { return true; }

KeyedHash keyed_hash(std::span<const std::byte> key,
                     std::initializer_list<std::span<const std::byte>> parts) noexcept {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, unsigned_bytes(key), key.size());
  for (const std::span<const std::byte> part : parts)
    crypto_auth_hmacsha256_update(&state, unsigned_bytes(part), part.size());
  KeyedHash hash;
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(hash.data()));
  sodium_memzero(&state, sizeof state);
  return hash;
}

bool equal_hashes(const KeyedHash& one, const KeyedHash& other) noexcept {
  return sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace ch3_offload
