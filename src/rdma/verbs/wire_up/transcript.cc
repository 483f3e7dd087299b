#include "rdma/verbs/wire_up/transcript.h"

#include <sodium/randombytes.h>
#include <sodium/utils.h>

namespace ch3_offload {
namespace {

static_assert(std::tuple_size_v<Proof> == crypto_auth_hmacsha256_BYTES);

/// Sets proofs of introductions apart from other uses of the secret.
constexpr unsigned char kPurpose[] = "ch3:offload introduction 1";

const unsigned char* bytes_of(const auto& object) noexcept {
  return reinterpret_cast<const unsigned char*>(&object);
}

}  // namespace

Transcript::Transcript(const JobSecret& secret) noexcept {
  crypto_auth_hmacsha256_init(&said_, bytes_of(secret), sizeof secret);
  crypto_auth_hmacsha256_update(&said_, kPurpose, sizeof kPurpose);
}

Proof Transcript::proof_of(Speaker speaker, const Frame& frame) const noexcept {
  crypto_auth_hmacsha256_state state = said_;
  const auto who = static_cast<unsigned char>(speaker);
  crypto_auth_hmacsha256_update(&state, &who, 1);
  crypto_auth_hmacsha256_update(&state, bytes_of(frame), offsetof(Frame, proof));
  Proof proof;
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  return proof;
}

void Transcript::take(Speaker speaker, const Frame& frame) noexcept {
  const auto who = static_cast<unsigned char>(speaker);
  crypto_auth_hmacsha256_update(&said_, &who, 1);
  crypto_auth_hmacsha256_update(&said_, bytes_of(frame), sizeof frame);
}

void Transcript::sign(Speaker speaker, Frame& frame) noexcept {
  frame.proof = proof_of(speaker, frame);
  take(speaker, frame);
}

bool Transcript::verify(Speaker speaker, const Frame& frame) noexcept {
  const Proof wanted = proof_of(speaker, frame);
  if (sodium_memcmp(wanted.data(), frame.proof.data(), wanted.size()) != 0) return false;
  take(speaker, frame);
  return true;
}

Nonce make_nonce() noexcept {
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace ch3_offload
