#include "rdma/introduction/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "rdma/shm/unix_socket.h"

namespace ch3_offload {

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
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

std::string ip_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  else if (address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

SocketAddress address_on_node(std::string_view name) noexcept {
  SocketAddress address;
  address.length = abstract_address(name, reinterpret_cast<sockaddr_un&>(address.storage));
  return address;
}

}  // namespace ch3_offload
