#include "rdma/verbs/port_wish.h"

#include <charconv>
#include <system_error>

namespace ch3_offload {
namespace {

std::optional<int> parse_number(std::string_view text, int most) noexcept {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > most) return {};
  return value;
}

std::string_view next_piece(std::string_view& list, char separator) noexcept {
  const std::size_t end = list.find(separator);
  const std::string_view piece = list.substr(0, end);
  list = end == std::string_view::npos ? std::string_view{} : list.substr(end + 1);
  return piece;
}

std::optional<PortWish> parse_wish(std::string_view text) {
  PortWish wish;
  wish.device = next_piece(text, ':');
  if (wish.device.empty()) return {};
  if (!text.empty()) {
    const auto port = parse_number(next_piece(text, ':'), 255);
    if (!port || *port == 0) return {};
    wish.port = *port;
  }
  if (!text.empty()) {
    const auto gid = parse_number(text, 65535);
    if (!gid) return {};
    wish.gid_index = *gid;
  }
  return wish;
}

}  // namespace

std::optional<std::vector<PortWish>> parse_port_wishes(std::string_view list) {
  std::vector<PortWish> wishes;
  while (!list.empty()) {
    std::optional<PortWish> wish = parse_wish(next_piece(list, ','));
    if (!wish) return {};
    wishes.push_back(std::move(*wish));
  }
  return wishes;
}

std::optional<std::uint16_t> parse_partition_key(std::string_view text) {
  if (!text.starts_with("0x") || text.size() > 6) return {};
  text.remove_prefix(2);
  std::uint16_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  if (!is_number || (value & ~kFullMember) == 0) return {};
  return value;
}

}  // namespace ch3_offload
