#include "rdma/tcp/tcp_address.h"

#include <vector>

#include "rdma/address_text.h"
#include "rdma/hex.h"
#include "rdma/introduction/socket_address.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kTcpPrefix = "tcp:1/";

}  // namespace

std::string TcpAddress::to_string() const {
  std::string text(kTcpPrefix);
  text += host + "/" + std::to_string(port) + "/" + std::to_string(slot_bytes) + "/";
  append_hex(text, instance);
  return text;
}

std::optional<TcpAddress> TcpAddress::parse(std::string_view text) {
  if (text.size() > kMostBytes || !text.starts_with(kTcpPrefix)) return {};
  text.remove_prefix(kTcpPrefix.size());
  const std::vector<std::string_view> pieces = split(text, '/');
  if (pieces.size() != 4) return {};
  TcpAddress address;
  address.host = pieces[0];
  if (!parse_number(pieces[1], address.port) || !parse_number(pieces[2], address.slot_bytes) ||
      !parse_hex(pieces[3], address.instance))
    return {};
  if (address.slot_bytes < kLeastSlotBytes || address.slot_bytes > kMostSlotBytes) return {};
  if (!socket_address(address.host, address.port)) return {};
  return address;
}

}  // namespace ch3_offload
