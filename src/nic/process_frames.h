// The messages by which two processes that know each other's physical ids are introduced (introductions.h).
// docs/wire-format.md has them as tables.
//
// All frames have one length. Numbers are little-endian and of fixed width. No field is to be used before
// check_process_frame() has accepted the frame, and none of a Card before its proof was verified.
//
// Threads: any. Nothing blocks or allocates.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "nic/user_key.h"

namespace ch3_offload {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

enum class ProcessFrameKind : std::uint8_t {
  kHello = 1,  ///< ProcessHello: a nonce, and who is meant.
  kCard,       ///< ProcessCard: who speaks, and how it is reached. Has a proof.
  kRefuse,     ///< ProcessRefuse: why the sender closes the connection. Needs no proof.
  kEnd
};

enum class ProcessRefusal : std::uint32_t {
  kVersion = 1,  ///< The sender speaks another version of these frames.
  kKey,          ///< The proof is wrong: the two have different key files, or one has none.
  kNoKey,        ///< The sender has no key file, so it meets processes of its node only.
  kStranger,     ///< Another process is meant.
  kFull,         ///< The sender cannot number one more process.
  kUser,         ///< The two have different user numbers (uids).
  kEnd
};

using ProcessNonce = std::array<std::byte, 32>;

struct ProcessHello {
  ProcessNonce nonce{};        ///< Random: makes the proofs of each introduction differ.
  std::uint64_t receiver = 0;  ///< ProcessId of who is meant.
  std::array<std::byte, 432> reserved{};
};

struct ProcessCard {
  std::uint64_t sender = 0;    ///< ProcessId of who speaks.
  std::uint64_t receiver = 0;  ///< ProcessId of who is meant.
  std::uint64_t instance = 0;  ///< Random: a process that was started anew with the same id is another one.
  std::uint32_t user = 0;      ///< UserId of who speaks.
  std::uint32_t own = 0;       ///< PeerId that the sender has for itself.
  std::uint32_t known_as = 0;  ///< PeerId that the sender has for the receiver.
  std::uint32_t reserved = 0;
  std::array<char, 432> card{};  ///< The sender's Engine::card(), padded with zeros.
};

struct ProcessRefuse {
  std::uint32_t reason = 0;  ///< ProcessRefusal.
  std::array<std::byte, 468> reserved{};
};

struct ProcessFrame {
  static constexpr std::uint32_t kMagic = 0x7069'3363;  // "c3ip"
  static constexpr std::uint16_t kVersion = 1;

  ProcessFrame() noexcept : bytes{} {}

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  ProcessFrameKind kind{};
  std::uint8_t reserved = 0;
  union {
    std::array<std::byte, 472> bytes;
    ProcessHello hello;
    ProcessCard card;
    ProcessRefuse refuse;
  };
  KeyedHash proof{};  ///< Of a Card. Otherwise 0.
};
static_assert(sizeof(ProcessFrame) == 512 && offsetof(ProcessFrame, bytes) == 8 &&
              offsetof(ProcessFrame, proof) == 480);
static_assert(sizeof(ProcessHello) == 472 && offsetof(ProcessHello, receiver) == 32);
static_assert(sizeof(ProcessCard) == 472 && offsetof(ProcessCard, instance) == 16 &&
              offsetof(ProcessCard, user) == 24 && offsetof(ProcessCard, own) == 28 &&
              offsetof(ProcessCard, known_as) == 32 && offsetof(ProcessCard, card) == 40);
static_assert(sizeof(ProcessRefuse) == 472);

inline constexpr std::size_t kMostProcessCardBytes = sizeof(ProcessCard::card) - 1;

enum class ProcessFrameCheck {
  kValid,
  kVersion,  ///< The magic number is right, the version is another.
  kMalformed,
};

/// Copies a frame out of `bytes` and checks what needs no context: length, magic number, version, kind, the
/// ranges of the fields, and that a card is printable ASCII without spaces. Any input.
ProcessFrameCheck check_process_frame(std::span<const std::byte> bytes, ProcessFrame& frame) noexcept;

ProcessFrame make_process_frame(ProcessFrameKind kind) noexcept;
/// REQUIRES: the frame is a valid Card.
std::string_view card_in(const ProcessFrame& frame) noexcept;

/// Who speaks is part of each proof, so that a frame cannot be sent back to its sender.
enum class ProcessSide : unsigned char { kDialler = 1, kAcceptor = 2 };

/// What both have said before their Cards.
struct ProcessNonces {
  ProcessNonce dialler{};
  ProcessNonce acceptor{};
};

/// The proof of a Card of `side`.
KeyedHash proof_of(const UserKey& key, const ProcessNonces& nonces, ProcessSide side,
                   const ProcessFrame& frame) noexcept;

/// Completes "the process refused to be introduced: ".
std::string_view describe(ProcessRefusal reason) noexcept;

}  // namespace ch3_offload
