#include "check/link_facts.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>

#include "rdma/file_descriptor.h"
#include "rdma/introduction/socket_address.h"

namespace ch3_offload {
namespace {

std::string interface_with(const std::string& address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr != nullptr && address == ip_text(one->ifa_addr)) return one->ifa_name;
  }
  return {};
}

/// Asked twice: the first answer says how long the lists are that stand behind the settings.
std::uint32_t rate_of(int socket, ifreq& request) {
  constexpr std::size_t kMostListWords = 3 * 127;
  alignas(ethtool_link_settings)
      std::array<std::byte, sizeof(ethtool_link_settings) + kMostListWords * sizeof(std::uint32_t)>
          memory{};
  auto* const link = new (memory.data()) ethtool_link_settings{};
  link->cmd = ETHTOOL_GLINKSETTINGS;
  request.ifr_data = reinterpret_cast<char*>(link);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0 || link->link_mode_masks_nwords >= 0) return 0;
  link->link_mode_masks_nwords =
      static_cast<decltype(link->link_mode_masks_nwords)>(-link->link_mode_masks_nwords);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) return 0;
  return link->speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : link->speed;
}

}  // namespace

LinkFacts link_of(const std::string& address) {
  LinkFacts facts{.name = interface_with(address)};
  if (facts.name.empty()) return facts;
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  facts.name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (::ioctl(socket.get(), SIOCGIFMTU, &request) == 0)
    facts.mtu_bytes = static_cast<std::uint32_t>(request.ifr_mtu);
  facts.rate_mbit = rate_of(socket.get(), request);
  return facts;
}

}  // namespace ch3_offload
