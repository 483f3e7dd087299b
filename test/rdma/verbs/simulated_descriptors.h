// Descriptors of simulated processes: epoll instances, timers and event counters that the kernel does not
// know.
//
// A verbs provider takes six descriptors, and a program that runs thousands of providers may not open so many.
// A program that links simulated_descriptors.cc has its own epoll_create1(), timerfd_create(), eventfd() and
// what goes with them: the linker takes a program's own symbols first. While a Process lives, they make
// simulated descriptors. All others are the kernel's. Sockets always are.
//
// A simulated epoll instance reports what the kernel's would, level-triggered, but only with time-out 0.
//
// Threads: one.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ch3_offload::simulated_descriptors {

/// While it lives, the program acts as process `number`.
class Process {
 public:
  explicit Process(std::uint32_t number) noexcept;
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

 private:
  std::optional<std::uint32_t> before_;
};

/// Replaces the contents of `processes` by the processes of which a descriptor may have become readable since
/// the last call, each once. A process whose socket is still readable is among them again.
void find_woken(std::vector<std::uint32_t>& processes);

}  // namespace ch3_offload::simulated_descriptors
