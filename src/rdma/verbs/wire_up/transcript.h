// The proofs of an introduction: each frame ends with a keyed hash of all that both sides have said, up to
// and with this frame. The key is the job's secret, which is never sent.
//
// Both sides put a fresh nonce into their first frame. So a proof holds for one introduction only: who
// records an introduction cannot use its frames in another one. A dialler's first frame is the exception:
// nothing fresh of the other side goes into it, so it may be a replay. Until the dialler's second frame has
// been verified, it may only make the acceptor dial the peer's own address (a knock, wire_up.h).
//
// The hash is HMAC-SHA-256 (RFC 2104, FIPS 198-1), by libsodium.
//
// Threads: one at a time. Nothing blocks or allocates.

#pragma once

#include <sodium/crypto_auth_hmacsha256.h>

#include "rdma/job_secret.h"
#include "rdma/verbs/wire_up/frames.h"

namespace ch3_offload {

/// Whose frame it is. Part of each proof, so that a frame cannot be sent back to its sender.
enum class Speaker : unsigned char { kDialler = 1, kAcceptor = 2 };

class Transcript {
 public:
  explicit Transcript(const JobSecret& secret) noexcept;

  /// Sets the proof of a frame that `speaker` is about to send, and takes the frame into the transcript.
  void sign(Speaker speaker, Frame& frame) noexcept;
  /// Returns whether `speaker` knows the secret and both sides have seen the same frames before this one.
  /// Then takes the frame into the transcript.
  bool verify(Speaker speaker, const Frame& frame) noexcept;

 private:
  Proof proof_of(Speaker speaker, const Frame& frame) const noexcept;
  void take(Speaker speaker, const Frame& frame) noexcept;

  crypto_auth_hmacsha256_state said_;
};

/// A random nonce.
Nonce make_nonce() noexcept;

}  // namespace ch3_offload
