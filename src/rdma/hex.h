// 64-bit numbers as 16 lower-case hex digits, the form that provider addresses use.

#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace ch3_offload {

inline void append_hex(std::string& text, std::uint64_t value) {
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
}

/// Parses exactly 16 lower-case hex digits. Returns false for anything else.
inline bool parse_hex(std::string_view digits, std::uint64_t& value) noexcept {
  if (digits.size() != 16) return false;
  for (const char c : digits)
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  const char* end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, value, 16).ptr == end;
}

}  // namespace ch3_offload
