// The messages of an introduction (wire_up.h), by which two processes set up a pair of queue pairs.
// docs/wire-format.md has them as tables.
//
// All frames have one length. Numbers are little-endian and of fixed width. Each frame ends with a proof that
// its sender knows the job's secret (transcript.h). No field is to be used before check_frame() has accepted
// the frame and the transcript has verified the proof.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ch3_offload {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

enum class FrameKind : std::uint8_t {
  kHello = 1,  ///< HelloBody: who speaks, to whom, about which lane.
  kRefuse,     ///< RefuseBody: why the sender closes the connection. Needs no proof.
  kOffer,      ///< OfferBody: the sender's queue pair, and which items have arrived.
  kReady,      ///< Nothing: the dialler's queue pair receives.
  kEnd
};

enum class Refusal : std::uint32_t {
  kVersion = 1,  ///< The sender speaks another version of these frames.
  kSecret,       ///< The proof is wrong: the dialler does not belong to the job.
  kStranger,     ///< The dialler means another process, or is no process of the job.
  kCrossed,      ///< Both dialled at once, and the other dial is used.
  kEnd
};

/// Most links between two processes at the same time (VerbsLane).
inline constexpr std::uint32_t kMostLanes = 2;

using Nonce = std::array<std::byte, 32>;

struct HelloBody {
  Nonce nonce{};                      ///< Random: makes each introduction's proofs differ.
  std::uint32_t sender = 0;           ///< PeerId of who speaks, at the other.
  std::uint32_t receiver = 0;         ///< PeerId of who is meant, at that process itself.
  std::uint64_t sender_instance = 0;  ///< VerbsAddress::instance of the sender.
  std::uint64_t receiver_instance = 0;
  std::uint32_t last_link = 0;      ///< Number of the lane's last link at the sender. 0: there was none.
  std::uint32_t lane = 0;           ///< Below kMostLanes.
  std::uint32_t own = 0;            ///< PeerId of who speaks, at itself.
  std::uint32_t known_as = 0;       ///< PeerId of who is meant, at the one who speaks.
  std::array<char, 160> address{};  ///< The sender's VerbsAddress, padded with zeros.
};

struct RefuseBody {
  std::uint32_t reason = 0;  ///< Refusal.
  std::array<std::byte, 228> reserved{};
};

struct OfferBody {
  std::uint32_t link = 0;  ///< Its number in the lane. Each lane counts from 1, and may skip numbers.
  std::uint32_t queue_pair = 0;
  std::uint32_t packet_sequence = 0;  ///< First one that the sender sends. 24 bits.
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  ///< ibv_mtu.
  std::uint8_t reserved_byte = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t received = 0;  ///< Items of the receiver that arrived, on all links of the lane before.
  std::uint64_t limit = 0;     ///< The receiver may send items below this number.
  std::array<std::byte, 184> reserved{};
};

using Proof = std::array<std::byte, 32>;

struct Frame {
  static constexpr std::uint32_t kMagic = 0x766F'3363;  // "c3ov"
  static constexpr std::uint16_t kVersion = 4;

  Frame() noexcept : bytes{} {}

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  FrameKind kind{};
  std::uint8_t reserved = 0;
  union {
    std::array<std::byte, 232> bytes;
    HelloBody hello;
    RefuseBody refuse;
    OfferBody offer;
  };
  Proof proof{};
};
static_assert(sizeof(Frame) == 272 && offsetof(Frame, bytes) == 8 && offsetof(Frame, proof) == 240);
static_assert(sizeof(HelloBody) == 232 && offsetof(HelloBody, sender) == 32 &&
              offsetof(HelloBody, sender_instance) == 40 && offsetof(HelloBody, last_link) == 56 &&
              offsetof(HelloBody, own) == 64 && offsetof(HelloBody, address) == 72);
static_assert(sizeof(RefuseBody) == 232);
static_assert(sizeof(OfferBody) == 232 && offsetof(OfferBody, lid) == 12 && offsetof(OfferBody, gid) == 16 &&
              offsetof(OfferBody, received) == 32 && offsetof(OfferBody, limit) == 40);

enum class FrameCheck {
  kValid,
  kVersion,  ///< The magic number is right, the version is another.
  kMalformed,
};

/// Copies a frame out of `bytes` and checks what needs no context: length, magic number, version, kind, and
/// the ranges of the fields. Accepts any input. Does not look at the proof.
FrameCheck check_frame(std::span<const std::byte> bytes, Frame& frame) noexcept;

/// A frame with an all-zero body.
Frame make_frame(FrameKind kind) noexcept;

/// Completes "the peer refused the connection: ".
std::string_view describe(Refusal reason) noexcept;

}  // namespace ch3_offload
