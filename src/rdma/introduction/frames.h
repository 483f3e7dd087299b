// The frames by which two processes are introduced. docs/wire-format.md has them as tables.
//
// All frames have one length, and bodies that only the introducer's client knows. Numbers are little-endian
// and of fixed width. Each frame ends with a proof that its sender knows the secret (transcript.h). RULE: use
// no field before check_frame() has accepted the frame and the transcript has verified the proof.
//
// Threads: any. Nothing blocks or allocates.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "rdma/introduction/keyed_hash.h"

namespace ch3_offload {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

enum class FrameKind : std::uint8_t {
  kHello = 1,  ///< Who speaks, to whom, about what.
  kRefuse,     ///< RefuseBody: why the sender closes the connection. Needs no proof.
  kOffer,      ///< What the two want of each other: a card, or a queue pair.
  kReady,      ///< Nothing: the dialler has taken the acceptor's offer.
  kEnd
};

enum class Refusal : std::uint32_t {
  kNobody = 0,  ///< Not sent: nobody listens there.
  kVersion,     ///< The sender speaks another version of these frames.
  kSecret,      ///< The proof is wrong: the dialler knows another secret.
  kNoSecret,    ///< The sender's secret proves nothing, so it meets processes of its node only.
  kStranger,    ///< The dialler means another process, or may not be met.
  kCrossed,     ///< Both dialled at once, and the other dial is used.
  kFull,        ///< The sender cannot number one more process.
  kUser,        ///< The two have different user numbers (uids).
  kShort,       ///< For the time-out, the sender had no descriptor or memory for a connection.
  kEnd
};

/// What Refusal::kVersion means, for logs.
inline constexpr const char* kAnotherVersion = "it runs another version of libch3offload";

using Nonce = std::array<std::byte, 32>;

struct RefuseBody {
  std::uint32_t reason = 0;  ///< Refusal.
};

struct Frame {
  static constexpr std::size_t kHeaderBytes = 8;
  static constexpr std::size_t kBodyBytes = 472;

  std::uint32_t magic = 0;    ///< Protocol::magic.
  std::uint16_t version = 0;  ///< Protocol::version.
  FrameKind kind{};
  std::uint8_t reserved = 0;
  Nonce nonce{};  ///< Random: makes the proofs of each introduction differ.
  /// What a body does not fill is 0, and nobody looks at it.
  alignas(8) std::array<std::byte, kBodyBytes> body{};
  KeyedHash proof{};

  template <class Body>
  Body& as() noexcept {
    static_assert(sizeof(Body) <= kBodyBytes && alignof(Body) <= 8 && std::is_trivially_copyable_v<Body>);
    return *reinterpret_cast<Body*>(body.data());
  }
  template <class Body>
  const Body& as() const noexcept {
    return const_cast<Frame*>(this)->as<Body>();
  }
};
static_assert(sizeof(Frame) == 544 && offsetof(Frame, nonce) == 8 && offsetof(Frame, body) == 40 &&
              offsetof(Frame, proof) == 512);

/// What two processes are introduced for: the frames of two protocols are never taken for each other.
struct Protocol {
  std::uint32_t magic;
  std::uint16_t version;
  /// Whether the fields of a Hello or an Offer are in their ranges. Any input.
  bool (*check_body)(const Frame& frame) noexcept;
};

enum class FrameCheck {
  kValid,
  kVersion,  ///< The magic number is right, the version is another.
  kMalformed,
};

/// Checks the first Frame::kHeaderBytes of a frame, as far as they do not depend on the version. Any input.
FrameCheck check_frame_header(std::span<const std::byte> bytes, const Protocol& protocol) noexcept;
/// Copies a frame out of `bytes` and checks what needs no context: length, magic number, version, kind, and
/// the ranges of the fields. Accepts any input. Does not look at the proof.
FrameCheck check_frame(std::span<const std::byte> bytes, const Protocol& protocol, Frame& frame) noexcept;

/// A frame with an all-zero body.
Frame make_frame(const Protocol& protocol, FrameKind kind) noexcept;
Frame make_refusal(const Protocol& protocol, Refusal reason) noexcept;

}  // namespace ch3_offload
