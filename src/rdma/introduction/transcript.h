// The proofs of an introduction: each frame ends with a keyed hash of all that both sides have said, up to
// and with this frame. The key is a secret that both know and never send: that of a job, or one from a key
// file.
//
// Each frame has a fresh nonce. So a proof holds for one introduction only: who records an introduction
// cannot use its frames in another one. A dialler's first frame is the exception: nothing fresh of the other
// side goes into it, so it may be a replay. Until the dialler's second frame has been verified, it may only
// make the acceptor dial the peer's own address (a knock).
//
// Threads: one at a time. Nothing blocks or allocates.

#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "rdma/introduction/frames.h"
#include "rdma/introduction/keyed_hash.h"

namespace ch3_offload {

/// Whose frame it is. Part of each proof, so that a frame cannot be sent back to its sender.
enum class Speaker : unsigned char { kDialler = 1, kAcceptor = 2 };

class Transcript {
 public:
  static constexpr std::size_t kMostSecretBytes = 32;
  /// `secret`: at most kMostSecretBytes. Without libsodium (have_keyed_hash()) nothing proves anything.
  explicit Transcript(std::span<const std::byte> secret) noexcept;

  /// Sets the nonce and the proof of a frame that `speaker` is about to send, and takes the frame into the
  /// transcript.
  void sign(Speaker speaker, Frame& frame) noexcept;
  /// Returns whether `speaker` knows the secret and both sides have seen the same frames before this one.
  /// Then takes the frame into the transcript.
  bool verify(Speaker speaker, const Frame& frame) noexcept;

 private:
  KeyedHash proof_of(Speaker speaker, const Frame& frame) const noexcept;

  std::array<std::byte, kMostSecretBytes> secret_{};  ///< Zeros behind it: HMAC's own padding.
  KeyedHash last_{};  ///< The proof of the last frame. It covers those before it, too.
};

}  // namespace ch3_offload
