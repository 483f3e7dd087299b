#include "nic/physical_id.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "rdma/introduction/frame_stream.h"

namespace ch3_offload {

std::string PhysicalId::to_string() const { return on_net().host() + "/" + std::to_string(pid); }

SocketAddress PhysicalId::on_net() const noexcept {
  SocketAddress address;
  auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(pid));
  four.sin_addr.s_addr = htonl(nid);
  address.length = sizeof four;
  return address;
}

SocketAddress PhysicalId::on_node(UserId user) const noexcept {
  char name[80];
  const int length =
      std::snprintf(name, sizeof name, "ch3-offload-process-%u-%08x-%u", static_cast<unsigned>(user),
                    static_cast<unsigned>(nid), static_cast<unsigned>(pid));
  return address_on_node({name, static_cast<std::size_t>(length)});
}

Result<std::vector<FileDescriptor>> listen_as(PhysicalId& id, UserId user) {
  constexpr int kTriesOfKernel = 64;  // A TCP port that the kernel finds free may be taken on the node.
  const bool is_any = id.pid == 0;
  for (int tries = is_any ? kTriesOfKernel : 1;; --tries) {
    PhysicalId tried = id;
    SocketAddress at = tried.on_net();
    Result<FileDescriptor> net = listen_for_streams(at);
    tried.pid = at.port();
    at = tried.on_node(user);
    Result<FileDescriptor> node = net.ok() ? listen_for_streams(at) : net.error();
    if (net.ok() && node.ok()) {
      id = tried;
      std::vector<FileDescriptor> listeners;
      listeners.push_back(std::move(node.value()));
      listeners.push_back(std::move(net.value()));
      return listeners;
    }
    Error error = node.error();
    if (error.error_number != EADDRINUSE) {
      error.message = "listening as the process id " + tried.to_string() + ": " + error.message;
      return error;
    }
    if (net.ok() && tries > 1) continue;
    return Error{
        Status::kAgain, EADDRINUSE,
        "the process id " + tried.to_string() +
            " is taken: another process, or another program's TCP port, has it; ask for another pid or any"};
  }
}

}  // namespace ch3_offload
