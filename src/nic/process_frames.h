// What the frames of an introduction (rdma/introduction/frames.h) carry by which two processes that know each
// other's physical ids are introduced (introductions.h). docs/wire-format.md has them as tables.
//
// Threads: any. Nothing blocks or allocates.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rdma/introduction/frames.h"

namespace ch3_offload {

/// A Hello.
struct ProcessHello {
  std::uint64_t receiver = 0;  ///< ProcessId of who is meant.
};

/// An Offer: who speaks, and how it is reached.
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

static_assert(sizeof(ProcessHello) == 8);
static_assert(sizeof(ProcessCard) == 472 && offsetof(ProcessCard, instance) == 16 &&
              offsetof(ProcessCard, user) == 24 && offsetof(ProcessCard, own) == 28 &&
              offsetof(ProcessCard, known_as) == 32 && offsetof(ProcessCard, card) == 40);

inline constexpr std::size_t kMostProcessCardBytes = sizeof(ProcessCard::card) - 1;

/// Introductions of processes.
inline constexpr std::uint32_t kProcessMagic = 0x7069'3363;  // "c3ip"
inline constexpr std::uint16_t kProcessVersion = 3;

/// Whether the fields of an Offer are in their ranges, and its card is printable ASCII without spaces. Any
/// input.
bool check_process_body(const Frame& frame) noexcept;

inline constexpr Protocol kProcesses{kProcessMagic, kProcessVersion, check_process_body};

/// REQUIRES: the frame is a valid Offer.
std::string_view card_in(const Frame& frame) noexcept;

/// Completes "the process refused to be introduced: ".
std::string_view describe(Refusal reason) noexcept;

}  // namespace ch3_offload
