#include "rdma/introduction/listening.h"

#include <cerrno>
#include <string>
#include <utility>

#include "rdma/introduction/frame_stream.h"

namespace ch3_offload {
namespace {

/// The port that the kernel finds free at the first address may be taken at the second.
constexpr std::uint32_t kTriesOfKernel = 64;

Error no_free_port(const ListeningConfig& config, const std::vector<std::string>& hosts,
                   std::uint32_t tries) {
  std::string text = std::string(config.name) + "no TCP port";
  if (config.first_port != 0)
    text += " from " + std::to_string(config.first_port) + " to " + std::to_string(config.last_port);
  text += " is free at " + hosts[0];
  for (std::size_t i = 1; i < hosts.size(); ++i) text += " and " + hosts[i];
  text += " (" + std::to_string(tries) + " tried)";
  if (config.first_port != 0) text += ": the range needs at least one port for each process on the node";
  return {Status::kDeviceFailed, EADDRINUSE, text};
}

/// Listens at `port` of all hosts; 0: the kernel chooses. Returns none if the port is in use at one of them.
Result<std::vector<FileDescriptor>> listen_at(const ListeningConfig& config, const Log& log,
                                              std::vector<std::string>& hosts, std::uint16_t& port) {
  std::vector<FileDescriptor> listeners;
  for (const std::string& host : hosts) {
    Result<FileDescriptor> listener = listen_for_streams(host, port);
    if (listener.ok()) {
      listeners.push_back(std::move(listener.value()));
      continue;
    }
    if (listener.error().error_number == EADDRINUSE) return std::vector<FileDescriptor>{};
    if (listeners.empty())
      return Error{listener.error().status, listener.error().error_number,
                   config.name + listener.error().message};
    log(LogScope::kNode, "%s%s; going on without this address", config.name,
        listener.error().message.c_str());
    hosts.resize(listeners.size());
    break;
  }
  return listeners;
}

}  // namespace

Result<std::vector<FileDescriptor>> listen_for_introductions(const ListeningConfig& config, const Log& log,
                                                             std::vector<std::string>& hosts,
                                                             std::uint16_t& port) {
  const bool in_range = config.first_port != 0;
  const std::uint32_t tries = in_range ? config.last_port - config.first_port + 1u : kTriesOfKernel;
  for (std::uint32_t i = 0; i < tries; ++i) {
    const std::uint64_t place = (std::uint64_t{config.place} + i) % tries;
    port = static_cast<std::uint16_t>(in_range ? config.first_port + place : 0);
    Result<std::vector<FileDescriptor>> listeners = listen_at(config, log, hosts, port);
    if (!listeners.ok() || !listeners.value().empty()) return listeners;
  }
  return no_free_port(config, hosts, tries);
}

}  // namespace ch3_offload
