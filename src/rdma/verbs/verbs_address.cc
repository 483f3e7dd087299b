#include "rdma/verbs/verbs_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <charconv>
#include <cstring>

#include "rdma/hex.h"

namespace ch3_offload {
namespace {

constexpr std::string_view kPrefix = "verbs:1/";

std::string to_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  else if (address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

bool serves_others(const sockaddr* address) noexcept {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) != 127;
  if (address->sa_family != AF_INET6) return false;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return !IN6_IS_ADDR_LOOPBACK(&ip) && !IN6_IS_ADDR_LINKLOCAL(&ip);
}

std::string address_of_hostname() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return {};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name, nullptr, &hints, &list) != 0) return {};
  std::string found;
  for (const addrinfo* one = list; one != nullptr && found.empty(); one = one->ai_next)
    if (serves_others(one->ai_addr)) found = to_text(one->ai_addr);
  ::freeaddrinfo(list);
  return found;
}

}  // namespace

std::string VerbsAddress::to_string() const {
  std::string text(kPrefix);
  text += ethernet ? "r/" : "i/";
  text += host + "/" + std::to_string(port) + "/";
  append_hex(text, instance);
  text += '/';
  append_hex(text, subnet_prefix);
  return text;
}

std::optional<VerbsAddress> VerbsAddress::parse(std::string_view text) {
  if (text.size() > kMostBytes || !text.starts_with(kPrefix)) return {};
  text.remove_prefix(kPrefix.size());
  std::string_view pieces[5];
  for (std::string_view& piece : pieces) {
    const std::size_t end = &piece == &pieces[4] ? text.size() : text.find('/');
    if (end == std::string_view::npos) return {};
    piece = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  VerbsAddress address;
  if (pieces[0] != "r" && pieces[0] != "i") return {};
  address.ethernet = pieces[0] == "r";
  address.host = pieces[1];
  const char* const end = pieces[2].data() + pieces[2].size();
  const auto [stop, error] = std::from_chars(pieces[2].data(), end, address.port);
  // One spelling: without leading zeros.
  if (error != std::errc{} || stop != end || pieces[2].starts_with('0')) return {};
  if (!parse_hex(pieces[3], address.instance) || !parse_hex(pieces[4], address.subnet_prefix)) return {};
  if (!socket_address(address.host, address.port)) return {};
  return address;
}

std::optional<SocketAddress> socket_address(const std::string& host, std::uint16_t port) noexcept {
  if (host.find('\0') != std::string::npos) return {};  // inet_pton() would stop there.
  SocketAddress result;
  auto* const four = reinterpret_cast<sockaddr_in*>(&result.storage);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    result.length = sizeof(sockaddr_in);
    return result;
  }
  auto* const six = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    result.length = sizeof(sockaddr_in6);
    return result;
  }
  return {};
}

std::string find_host_address(const std::string& interface_or_address) {
  if (interface_or_address.empty()) {
    if (std::string found = address_of_hostname(); !found.empty()) return found;
  }
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::string found;
  for (const ifaddrs* one = list; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const bool named = !interface_or_address.empty() && (interface_or_address == one->ifa_name ||
                                                         interface_or_address == to_text(one->ifa_addr));
    if (interface_or_address.empty() ? serves_others(one->ifa_addr) : named) found = to_text(one->ifa_addr);
  }
  ::freeifaddrs(list);
  return found;
}

}  // namespace ch3_offload
