// Who has connected to a network processor of a node, and has not said yet who it is.
//
// Silent connections cost the processor no more than kMostSilent descriptors. A further connection makes one
// of them go, and so does a connection for which no descriptor is free: of the process that has the most, the
// one that has been silent for the longest time. So a client that the system has stopped between its connection
// and its hello keeps its place, however many connections another process makes. Whoever is to go is heard
// first: a client that has said who it is by then is admitted. If no descriptor is free and nobody is silent,
// the listening socket is set aside for kAsideNs: it stays readable meanwhile, and would end each sleep of the
// processor.
//
// Threads: one. Blocking: none.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "nic/nicd_protocol.h"
#include "nic/waiter.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {

class NicdNewcomers {
 public:
  /// Takes a connection, and what came over it.
  using Admit = std::function<void(FileDescriptor socket, const NicdHello& hello)>;

  static constexpr std::size_t kMostSilent = 64;
  /// Connections that one look() accepts.
  static constexpr std::size_t kMostAccepted = 256;
  static constexpr std::uint64_t kSilenceNs = 30'000'000'000;  ///< A silent connection is closed after it.
  static constexpr std::uint64_t kAsideNs = 100'000'000;

  /// `listener`: non-blocking (listen_as_nicd()).
  /// Throws std::bad_alloc.
  explicit NicdNewcomers(FileDescriptor listener);

  /// Accepts connections of this user, calls `admit` for each one that has said who it is, and closes those
  /// that say something else, or nothing for kSilenceNs. `admit` throws nothing.
  void look(std::uint64_t now_ns, const Admit& admit) noexcept;

  /// Adds what ends a sleep: connections, what silent ones say, and the time of the next look().
  void add_to(SleepSet& set) const noexcept;

 private:
  struct Silent {
    FileDescriptor socket;
    std::uint64_t since_ns;
    pid_t pid;  ///< Of who has connected. 0: not visible in our pid namespace.
  };

  FileDescriptor accept(std::uint64_t now_ns, const Admit& admit);
  void make_way(std::uint64_t now_ns, const Admit& admit);
  bool is_still_silent(Silent& one, std::uint64_t now_ns, const Admit& admit);

  const FileDescriptor listener_;
  const std::unique_ptr<NicdHello> hello_;  ///< The one that is being received.
  std::vector<Silent> silent_;              ///< The oldest first.
  std::uint64_t aside_until_ns_ = 0;        ///< 0: the listener is not set aside.
};

}  // namespace ch3_offload
