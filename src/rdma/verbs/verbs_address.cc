#include "rdma/verbs/verbs_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "rdma/address_text.h"
#include "rdma/hex.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kPrefix = "verbs:4/";

std::span<const unsigned char> ip_bytes(const sockaddr* address) noexcept {
  if (address->sa_family == AF_INET)
    return {reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr),
            4};
  return {reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr),
          16};
}

}  // namespace

std::string VerbsAddress::to_string() const {
  std::string text(kPrefix);
  text += ethernet ? "r/" : "i/";
  for (const std::string& host : hosts) text += (&host == &hosts.front() ? "" : "+") + host;
  text += "/" + std::to_string(port) + "/" + std::to_string(slot_bytes);
  for (const std::uint64_t& network : networks) {
    text += &network == &networks.front() ? '/' : '+';
    append_hex(text, network);
  }
  text += '/';
  append_hex(text, instance);
  return text;
}

std::optional<VerbsAddress> VerbsAddress::parse(std::string_view text) {
  if (text.size() > kMostBytes || !text.starts_with(kPrefix)) return {};
  text.remove_prefix(kPrefix.size());
  const std::vector<std::string_view> pieces = split(text, '/');
  if (pieces.size() != 6) return {};
  VerbsAddress address;
  if (pieces[0] != "r" && pieces[0] != "i") return {};
  address.ethernet = pieces[0] == "r";
  if (!parse_number(pieces[2], address.port) || !parse_number(pieces[3], address.slot_bytes)) return {};
  if (address.slot_bytes % 64 != 0 || address.slot_bytes < kLeastSlotBytes ||
      address.slot_bytes > kMostSlotBytes)
    return {};
  if (!parse_hex(pieces[5], address.instance)) return {};
  for (const std::string_view host : split(pieces[1], '+')) {
    address.hosts.emplace_back(host);
    if (!socket_address(address.hosts.back(), address.port)) return {};
  }
  for (const std::string_view network : split(pieces[4], '+')) {
    if (!parse_hex(network, address.networks.emplace_back())) return {};
  }
  if (address.hosts.size() > kMostRails || address.networks.size() > kMostRails) return {};
  return address;
}

bool VerbsAddress::same_fabric(const VerbsAddress& other) const noexcept {
  if (ethernet != other.ethernet) return false;
  return ethernet || std::ranges::find_first_of(networks, other.networks) != networks.end();
}

std::vector<RailPair> pair_rails(const VerbsAddress& first, const VerbsAddress& second) {
  std::vector<RailPair> pairs;
  std::array<bool, VerbsAddress::kMostRails> taken{};
  for (std::size_t i = 0; i < first.networks.size(); ++i) {
    for (std::size_t j = 0; j < second.networks.size(); ++j) {
      if (taken[j] || first.networks[i] != second.networks[j]) continue;
      taken[j] = true;
      pairs.push_back({static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(j)});
      break;
    }
  }
  if (!pairs.empty()) return pairs;
  for (std::size_t i = 0; i < std::min(first.networks.size(), second.networks.size()); ++i)
    pairs.push_back({static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i)});
  return pairs;
}

std::uint64_t network_of_host(const std::string& host) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return 0;
  std::uint64_t network = 0;
  for (const ifaddrs* one = list; one != nullptr && network == 0; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr || ip_text(one->ifa_addr) != host) continue;
    const std::span<const unsigned char> address = ip_bytes(one->ifa_addr), mask = ip_bytes(one->ifa_netmask);
    // FNV-1a: only equality counts.
    network = 0xCBF2'9CE4'8422'2325u;
    for (std::size_t i = 0; i < address.size() && i < mask.size(); ++i) {
      for (const unsigned char byte : {static_cast<unsigned char>(address[i] & mask[i]), mask[i]})
        network = (network ^ byte) * 0x100'0000'01B3u;
    }
  }
  ::freeifaddrs(list);
  return network;
}

}  // namespace ch3_offload
