#include "rdma/introduction/transcript.h"

#include <sys/random.h>

#include <algorithm>
#include <cassert>
#include <string_view>

namespace ch3_offload {
namespace {

/// Sets proofs of introductions apart from other uses of the secret.
constexpr std::string_view kProofOfIntroduction = "ch3:offload introduction 2";

}  // namespace

Transcript::Transcript(std::span<const std::byte> secret) noexcept {
  assert(secret.size() <= kMostSecretBytes);
  std::ranges::copy(secret.first(std::min(secret.size(), kMostSecretBytes)), secret_.begin());
}

KeyedHash Transcript::proof_of(Speaker speaker, const Frame& frame) const noexcept {
  return keyed_hash(
      secret_, {std::as_bytes(std::span(kProofOfIntroduction)), last_, std::as_bytes(std::span(&speaker, 1)),
                std::as_bytes(std::span(&frame, 1)).first(offsetof(Frame, proof))});
}

void Transcript::sign(Speaker speaker, Frame& frame) noexcept {
  // Cannot fail: at most 256 bytes, after the pool was filled, which making the process's instance awaited.
  static_cast<void>(!::getrandom(frame.nonce.data(), frame.nonce.size(), 0));
  frame.proof = last_ = proof_of(speaker, frame);
}

bool Transcript::verify(Speaker speaker, const Frame& frame) noexcept {
  const KeyedHash wanted = proof_of(speaker, frame);
  if (!equal_hashes(wanted, frame.proof)) return false;
  last_ = wanted;
  return true;
}

}  // namespace ch3_offload
