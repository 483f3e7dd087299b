// What a message is matched by: 64 match bits, as in Portals 4 (section 3.11), and who has sent it.
//
// A message with key m matches a receive with key r and ignore mask i if ((m ^ r) & ~i) == 0. The bits are
// the client's. MPI puts the context above the 32 bits of the tag; the fast masks of the matcher are those
// that MPI needs.

#pragma once

#include <cstdint>

namespace ch3_offload {

/// The key of a message or of a receive, and a mask of either.
struct MatchKey {
  std::uint64_t bits = 0;
  std::uint32_t initiator =
      0;  ///< The sender's number, as its client counts: MPI's rank in the communicator.

  friend constexpr bool operator==(const MatchKey&, const MatchKey&) noexcept = default;
};

/// MPI's: context << 32 | tag. The tag is the 32-bit pattern of MPI's int.
constexpr MatchKey make_match_key(std::uint16_t context, std::uint32_t initiator,
                                  std::uint32_t tag) noexcept {
  return {std::uint64_t{context} << 32 | tag, initiator};
}

/// Of messages to programs of the processor (src/modules). All have this key, which no receive of a
/// client agrees with. No client may have this bit in a key of its own.
inline constexpr MatchKey kProgramKey{std::uint64_t{1} << 63, 0};
/// Likewise, of what a client asks of its own programs. It is taken first.
inline constexpr MatchKey kProgramRequestKey{kProgramKey.bits, 1};

constexpr MatchKey operator|(const MatchKey& a, const MatchKey& b) noexcept {
  return {a.bits | b.bits, a.initiator | b.initiator};
}
constexpr MatchKey operator&(const MatchKey& a, const MatchKey& b) noexcept {
  return {a.bits & b.bits, a.initiator & b.initiator};
}
constexpr MatchKey operator~(const MatchKey& a) noexcept { return {~a.bits, ~a.initiator}; }

inline constexpr MatchKey kIgnoreNothing{0, 0};
inline constexpr MatchKey kIgnoreInitiator{0, UINT32_MAX};
inline constexpr MatchKey kIgnoreTag{UINT32_MAX, 0};
inline constexpr MatchKey kIgnoreInitiatorAndTag = kIgnoreInitiator | kIgnoreTag;

constexpr bool matches(const MatchKey& message, const MatchKey& receive, const MatchKey& ignore) noexcept {
  return ((message.bits ^ receive.bits) & ~ignore.bits) == 0 &&
         ((message.initiator ^ receive.initiator) & ~ignore.initiator) == 0;
}

/// A key in 64 bits, for people: lower half of MPI's context << 48 | lower half of the initiator << 32 | tag.
constexpr std::uint64_t abridged(const MatchKey& key) noexcept {
  return (key.bits >> 32 & 0xFFFF) << 48 | std::uint64_t{key.initiator & 0xFFFF} << 32 |
         (key.bits & UINT32_MAX);
}
constexpr std::uint16_t context_of(std::uint64_t abridged_key) noexcept {
  return static_cast<std::uint16_t>(abridged_key >> 48);
}
constexpr std::uint16_t initiator_of(std::uint64_t abridged_key) noexcept {
  return static_cast<std::uint16_t>(abridged_key >> 32);
}
constexpr std::uint32_t tag_of(std::uint64_t abridged_key) noexcept {
  return static_cast<std::uint32_t>(abridged_key);
}

}  // namespace ch3_offload
