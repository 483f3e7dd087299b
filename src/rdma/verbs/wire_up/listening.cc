#include "rdma/verbs/wire_up/listening.h"

#include <cerrno>
#include <string>
#include <utility>

#include "rdma/introduction/frame_stream.h"

namespace ch3_offload {
namespace {

/// The port that the kernel finds free at the first address may be taken at the second.
constexpr std::uint32_t kTriesOfKernel = 64;

Error no_free_port(const VerbsConfig& config, const std::vector<std::string>& hosts, std::uint32_t tries) {
  std::string text = "verbs: no TCP port";
  if (config.first_port != 0)
    text += " from " + std::to_string(config.first_port) + " to " + std::to_string(config.last_port);
  text += " is free at " + hosts[0];
  for (std::size_t i = 1; i < hosts.size(); ++i) text += " and " + hosts[i];
  text += " (" + std::to_string(tries) + " tried)";
  if (config.first_port != 0) text += ": the range needs at least one port for each process on the node";
  return {Status::kDeviceFailed, EADDRINUSE, text};
}

/// Listens at `port` of all addresses; 0: the kernel chooses. Returns none if the port is in use at one of
/// them.
Result<std::vector<FileDescriptor>> listen_at(std::uint16_t port, const Log& log, VerbsAddress& address) {
  std::vector<FileDescriptor> listeners;
  address.port = port;
  for (const std::string& host : address.hosts) {
    Result<FileDescriptor> listener = listen_for_streams(host, address.port);
    if (listener.ok()) {
      listeners.push_back(std::move(listener.value()));
      continue;
    }
    if (listener.error().error_number == EADDRINUSE) return std::vector<FileDescriptor>{};
    if (listeners.empty())
      return Error{listener.error().status, listener.error().error_number,
                   "verbs: " + listener.error().message};
    log(LogScope::kNode, "verbs: %s; going on without this address", listener.error().message.c_str());
    address.hosts.resize(listeners.size());
    break;
  }
  return listeners;
}

}  // namespace

Result<std::vector<FileDescriptor>> listen_for_introductions(const VerbsConfig& config, const Log& log,
                                                             VerbsAddress& address) {
  const bool in_range = config.first_port != 0;
  const std::uint32_t tries = in_range ? config.last_port - config.first_port + 1u : kTriesOfKernel;
  for (std::uint32_t i = 0; i < tries; ++i) {
    const std::uint64_t place = (std::uint64_t{index_of(config.self)} + i) % tries;
    const auto port = static_cast<std::uint16_t>(in_range ? config.first_port + place : 0);
    Result<std::vector<FileDescriptor>> listeners = listen_at(port, log, address);
    if (!listeners.ok() || !listeners.value().empty()) return listeners;
  }
  return no_free_port(config, address.hosts, tries);
}

}  // namespace ch3_offload
