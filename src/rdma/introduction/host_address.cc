#include "rdma/introduction/host_address.h"

#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {
namespace {

/// Who can connect to an address.
enum class Reach { kLoopback, kLinkIpv6, kLinkIpv4, kOthers };

/// kLinkIpv6 also for what is no IP address: nobody.
Reach reach_of(const std::string& address) noexcept {
  const std::optional<SocketAddress> parsed = socket_address(address, 0);
  if (!parsed) return Reach::kLinkIpv6;
  if (parsed->storage.ss_family == AF_INET) {
    const std::uint32_t ip = ntohl(reinterpret_cast<const sockaddr_in*>(parsed->get())->sin_addr.s_addr);
    if (ip >> 24 == 127) return Reach::kLoopback;
    return ip >> 16 == (169u << 8 | 254u) ? Reach::kLinkIpv4 : Reach::kOthers;
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(parsed->get())->sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&ip)) return Reach::kLoopback;
  return IN6_IS_ADDR_LINKLOCAL(&ip) ? Reach::kLinkIpv6 : Reach::kOthers;
}

/// One of the list.
struct Entry {
  std::string pattern;
  bool excludes = false;

  bool has_wildcard() const noexcept { return pattern.find_first_of("*?[") != std::string::npos; }
  bool matches(const HostInterface& one) const {
    if (::fnmatch(pattern.c_str(), one.name.c_str(), 0) == 0) return true;
    const std::optional<SocketAddress> address = socket_address(pattern, 0);
    return address && address->host() == one.address;
  }
};

/// Empty: an entry is.
std::vector<Entry> parse_entries(std::string_view wanted) {
  std::vector<Entry> entries;
  for (;;) {
    const std::size_t end = wanted.find(',');
    std::string_view piece = wanted.substr(0, end);
    const bool excludes = piece.starts_with('!');
    if (excludes) piece.remove_prefix(1);
    if (piece.empty()) return {};
    entries.push_back({std::string(piece), excludes});
    if (end == std::string_view::npos) return entries;
    wanted.remove_prefix(end + 1);
  }
}

Error refusal(std::string_view wanted, const std::string& why) {
  return {Status::kUnsupported, 0, "'" + std::string(wanted) + "' " + why};
}

/// "eth0 (10.0.0.5), ib0 (10.1.0.5)": those that `wanted` could name, a few of them.
std::string names_of(const std::vector<HostInterface>& interfaces) {
  constexpr int kMost = 4;
  std::string text;
  int count = 0;
  for (const HostInterface& one : interfaces) {
    if (!one.is_up || reach_of(one.address) != Reach::kOthers) continue;
    if (++count > kMost) return text + ", ...";
    text += (count == 1 ? "" : ", ") + one.name + " (" + one.address + ")";
  }
  return count == 0 ? "none that others reach" : text;
}

Result<std::string> choose_by_itself(const HostNetwork& node) {
  for (const std::string& address : node.of_host_name)
    if (reach_of(address) == Reach::kOthers) return address;
  for (const HostInterface& one : node.interfaces)
    if (one.is_up && reach_of(one.address) == Reach::kOthers) return one.address;
  return Error{Status::kUnsupported, 0,
               "this node has no IP address at which others could set up connections"};
}

bool is_ip(const sockaddr* address) noexcept {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

std::vector<std::string> addresses_of_host_name() {
  std::vector<std::string> addresses;
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return addresses;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name, nullptr, &hints, &list) != 0) return addresses;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next)
    if (is_ip(one->ai_addr)) addresses.push_back(ip_text(one->ai_addr));
  ::freeaddrinfo(list);
  return addresses;
}

}  // namespace

std::vector<HostInterface> interfaces_of_node() {
  std::vector<HostInterface> interfaces;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
    if (is_ip(one->ifa_addr))
      interfaces.push_back({one->ifa_name, ip_text(one->ifa_addr), (one->ifa_flags & IFF_UP) != 0});
  ::freeifaddrs(list);
  return interfaces;
}

bool is_interface_list(std::string_view wanted) { return wanted.empty() || !parse_entries(wanted).empty(); }

bool is_excluded(std::string_view wanted, const HostInterface& one) {
  return std::ranges::any_of(parse_entries(wanted),
                             [&](const Entry& entry) { return entry.excludes && entry.matches(one); });
}

std::optional<std::size_t> place_in_list(std::string_view wanted, const HostInterface& one) {
  if (is_excluded(wanted, one)) return {};
  std::vector<Entry> entries = parse_entries(wanted);
  std::erase_if(entries, [](const Entry& entry) { return entry.excludes; });
  const auto found = std::ranges::find_if(entries, [&](const Entry& entry) { return entry.matches(one); });
  if (found == entries.end()) return {};
  return static_cast<std::size_t>(found - entries.begin());
}

Result<std::string> choose_host_address(std::string_view wanted, const HostNetwork& node,
                                        bool loopback_serves) {
  if (wanted.empty()) return choose_by_itself(node);
  std::vector<Entry> entries = parse_entries(wanted);
  if (entries.empty()) return refusal(wanted, "has an entry without a name between its commas");
  std::vector<HostInterface> candidates;
  for (const HostInterface& one : node.interfaces) {
    if (one.is_up && !is_excluded(wanted, one)) candidates.push_back(one);
  }
  std::erase_if(entries, [](const Entry& entry) { return entry.excludes; });
  if (entries.empty()) entries.push_back({"*"});

  for (const Entry& entry : entries) {
    const bool is_named = !entry.has_wildcard();
    // Any 127.x is an address of this node, whether an interface has it or not.
    std::string loopback = reach_of(entry.pattern) == Reach::kLoopback ? entry.pattern : "";
    for (const HostInterface& one : candidates) {
      if (!entry.matches(one)) continue;
      const Reach reach = reach_of(one.address);
      if (reach == Reach::kOthers || (is_named && reach == Reach::kLinkIpv4)) return one.address;
      if (!is_named || reach != Reach::kLoopback) continue;
      if (loopback_serves) return one.address;
      if (loopback.empty()) loopback = one.address;
    }
    if (!loopback.empty())
      return refusal(entry.pattern, "stands for a loopback address (" + loopback +
                                        "), where other nodes do not reach this one: name another of " +
                                        names_of(node.interfaces));
  }
  return refusal(
      wanted,
      "matches no network interface, and no address, that is up and that other nodes reach: this node "
      "has " +
          names_of(node.interfaces));
}

Result<std::string> find_host_address(std::string_view wanted, bool loopback_serves, AddressFamily family) {
  HostNetwork node;
  node.interfaces = interfaces_of_node();
  if (wanted.empty()) node.of_host_name = addresses_of_host_name();
  if (family == AddressFamily::kIpv4) {
    const auto is_ipv6 = [](const std::string& address) { return address.find(':') != std::string::npos; };
    std::erase_if(node.interfaces, [&](const HostInterface& one) { return is_ipv6(one.address); });
    std::erase_if(node.of_host_name, is_ipv6);
  }
  return choose_host_address(wanted, node, loopback_serves);
}

}  // namespace ch3_offload
