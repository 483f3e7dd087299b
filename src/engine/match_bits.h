// Match bits and ignore bits, as Portals 4 (section 3.11) has them, and MPI's layout of them.
//
// A message with bits m matches a receive with bits r and ignore bits i when ((m ^ r) & ~i) == 0.
// MPI's shape (context, source rank, tag) is the fast one; any other mask is matched as well.

#pragma once

#include <cstdint>

namespace ch3_offload {

/// context << 48 | source << 32 | tag. The tag is the 32-bit pattern of MPI's int.
enum class MatchBits : std::uint64_t {};

constexpr std::uint64_t raw(MatchBits bits) noexcept { return static_cast<std::uint64_t>(bits); }

constexpr MatchBits make_match_bits(std::uint16_t context, std::uint16_t source,
                                    std::uint32_t tag) noexcept {
  return MatchBits{std::uint64_t{context} << 48 | std::uint64_t{source} << 32 | tag};
}

constexpr MatchBits operator|(MatchBits a, MatchBits b) noexcept { return MatchBits{raw(a) | raw(b)}; }
constexpr MatchBits operator&(MatchBits a, MatchBits b) noexcept { return MatchBits{raw(a) & raw(b)}; }
constexpr MatchBits operator~(MatchBits a) noexcept { return MatchBits{~raw(a)}; }

inline constexpr MatchBits kIgnoreNothing{0};
inline constexpr MatchBits kIgnoreSource{0x0000'FFFF'0000'0000};
inline constexpr MatchBits kIgnoreTag{0x0000'0000'FFFF'FFFF};
inline constexpr MatchBits kIgnoreSourceAndTag = kIgnoreSource | kIgnoreTag;

constexpr bool matches(MatchBits message, MatchBits receive, MatchBits ignore) noexcept {
  return ((raw(message) ^ raw(receive)) & ~raw(ignore)) == 0;
}

constexpr std::uint16_t context_of(MatchBits bits) noexcept { return static_cast<std::uint16_t>(raw(bits) >> 48); }
constexpr std::uint16_t source_of(MatchBits bits) noexcept { return static_cast<std::uint16_t>(raw(bits) >> 32); }
constexpr std::uint32_t tag_of(MatchBits bits) noexcept { return static_cast<std::uint32_t>(raw(bits)); }

}  // namespace ch3_offload
