// How the addresses that processes publish are taken apart (Provider::local_address()). Any input.
//
// Threads: any.

#pragma once

#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace ch3_offload {

/// At least one piece. Throws std::bad_alloc.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

/// A number has one spelling: decimal, without sign and leading zeros; not 0.
template <class Number>
bool parse_number(std::string_view text, Number& number) noexcept {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && stop == text.data() + text.size() && !text.starts_with('0') && number > 0;
}

}  // namespace ch3_offload
