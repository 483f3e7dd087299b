// The messages by which two processes set up queue pairs, over TCP (control_channel.h). docs/wire-format.md has them
// as tables.
//
// All have one length. Little-endian, fixed-width. Who connects says Introduce and is answered with one, or with
// Refuse. Then either side says Connect for a link (link.h) with the number after the last one; the other answers
// with its own Connect of that number; each says Ready once it can receive. Nothing here is trusted before
// check_frame() accepted it, and nothing but an Introduce with the job's secret before the peer gave one.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rdma/job_secret.h"

namespace ch3_offload {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

enum class FrameKind : std::uint8_t {
  kIntroduce = 1,  ///< IntroduceBody: who speaks.
  kRefuse,         ///< RefuseBody: why the connection is closed now.
  kConnect,        ///< ConnectBody: a queue pair, and what arrived so far.
  kReady,          ///< LinkBody: its queue pair receives and may be sent to.
  kPark,           ///< LinkBody: nothing more is sent on this link; it ends when both have said so.
  kBye,            ///< The process ends.
  kEnd
};

enum class Refusal : std::uint32_t {
  kVersion = 1,  ///< Another version of these frames.
  kSecret,       ///< Not the job's secret.
  kStranger,     ///< Meant for another process, or from one that is not in the job.
  kCrossed,      ///< Both connected at once; the other connection is used.
  kEnd
};

/// Links of two processes at once (VerbsLane).
inline constexpr std::uint32_t kMostLanes = 2;

struct IntroduceBody {
  JobSecret secret{};
  std::uint32_t sender = 0;           ///< PeerId of who speaks,
  std::uint32_t receiver = 0;         ///< and of who is meant.
  std::uint64_t sender_instance = 0;  ///< VerbsAddress::instance of both.
  std::uint64_t receiver_instance = 0;
  std::uint32_t features = 0;            ///< None yet: 0.
  std::uint32_t slot_bytes = 0;          ///< Longest message that the speaker receives, with its SlotHeader.
  std::array<char, 160> address{};       ///< The speaker's VerbsAddress, zero-padded.
  std::array<std::byte, 16> reserved{};  ///< 0.
};

struct RefuseBody {
  std::uint32_t reason = 0;  ///< Refusal.
  std::array<std::byte, 220> reserved{};
};

struct ConnectBody {
  std::uint32_t link = 0;  ///< Its number in the lane; each lane counts from 1, and may skip some.
  std::uint32_t queue_pair = 0;
  std::uint32_t packet_sequence = 0;  ///< First one sent, 24 bits.
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;   ///< ibv_mtu.
  std::uint8_t lane = 0;  ///< Below kMostLanes.
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t received = 0;  ///< Items of the peer that arrived, on all links before.
  std::uint64_t limit = 0;     ///< The peer may send items below this number.
  std::array<std::byte, 176> reserved{};
};

struct LinkBody {
  std::uint32_t link = 0;
  std::uint32_t lane = 0;
  std::uint64_t sent = 0;  ///< kPark: items sent, on all links of the lane.
  std::array<std::byte, 208> reserved{};
};

struct Frame {
  static constexpr std::uint32_t kMagic = 0x766F'3363;  // "c3ov"
  static constexpr std::uint16_t kVersion = 2;

  Frame() noexcept : bytes{} {}

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  FrameKind kind{};
  std::uint8_t reserved = 0;
  union {
    std::array<std::byte, 224> bytes;
    IntroduceBody introduce;
    RefuseBody refuse;
    ConnectBody connect;
    LinkBody link;
  };
};
static_assert(sizeof(Frame) == 232 && offsetof(Frame, bytes) == 8);
static_assert(sizeof(IntroduceBody) == 224 && offsetof(IntroduceBody, sender) == 16 &&
              offsetof(IntroduceBody, sender_instance) == 24 && offsetof(IntroduceBody, features) == 40 &&
              offsetof(IntroduceBody, address) == 48);
static_assert(sizeof(RefuseBody) == 224);
static_assert(sizeof(ConnectBody) == 224 && offsetof(ConnectBody, lid) == 12 &&
              offsetof(ConnectBody, gid) == 16 && offsetof(ConnectBody, received) == 32 &&
              offsetof(ConnectBody, limit) == 40);
static_assert(sizeof(LinkBody) == 224 && offsetof(LinkBody, sent) == 8);

enum class FrameCheck {
  kValid,
  kVersion,  ///< The magic number is right, the version is another.
  kMalformed,
};

/// Copies a frame out of `bytes` (of sizeof(Frame)) and checks what needs no context: magic number, version, kind, and
/// ranges of the fields. Any input.
FrameCheck check_frame(std::span<const std::byte> bytes, Frame& frame) noexcept;

/// A frame with an all-zero body.
Frame make_frame(FrameKind kind) noexcept;

/// Completes "the peer refused the connection: ".
std::string_view describe(Refusal reason) noexcept;

}  // namespace ch3_offload
