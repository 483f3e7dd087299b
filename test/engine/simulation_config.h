// What one simulated job looks like; everything follows from the seed.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "nic/client_memory.h"
#include "nic/ring_port.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {

/// Where the engines run.
enum class SimulatedDriver : std::uint8_t {
  kHost,    ///< In the client's calls.
  kRings,   ///< Behind rings, in turns of their own.
  kProcess  ///< Likewise, those of a node together: they share its end of the network.
};

struct SimulationConfig {
  static SimulationConfig from_seed(std::uint64_t seed, std::uint64_t operations);
  std::string describe() const;

  std::uint64_t seed = 1;
  std::uint64_t operations = 1000;  ///< Commands given to engines; progress() does not count.
  std::uint32_t processes = 2;
  SimulatedDriver driver = SimulatedDriver::kHost;
  bool has_rings() const noexcept { return driver != SimulatedDriver::kHost; }
  std::uint32_t nodes = 1;          ///< Of kProcess: the processes are dealt among them.
  double shared_probability = 0;    ///< Of kProcess: a contiguous buffer is shared with the processor.
  KernelCopies copies = KernelCopies::kAllowed;  ///< Of kProcess.
  Staging staging = Staging::kPacked;
  double refused_copies = 0;        ///< Of kProcess: the kernel refuses a copy that it was to allow.
  FakeConfig network;
  EngineConfig engine;              ///< self is filled in for each process.

  /// Messages carry a number in key that never take part in matching, so that every one can be told,
  /// even an empty one. Otherwise no payload is shorter than its pattern's head.
  bool numbered = true;
  unsigned number_shift = 12;       ///< Of the number, in the tag.
  unsigned number_bits = 16;
  std::uint32_t contexts = 1;
  std::uint32_t tags = 2;

  std::size_t most_waiting = 20;    ///< Messages per process that no receive has taken, about.
  std::size_t most_posted = 20;     ///< Receives per process that wait, about.
  std::size_t longest_bytes = 300'000;
  double long_probability = 0.02;   ///< A message up to longest_bytes.
  double strided_probability = 0.2;
  double motion_probability = 0.7;  ///< Another step of progress or time after each command.
  double nested_probability = 0.1;  ///< A command between two events.
  double purge_probability = 0;     ///< Per command.
  double classify_probability = 0;  ///< Per command.
  double unmap_probability = 0;     ///< A buffer's pages leave the address space when it is freed.
  bool has_checksums = false;       ///< The network damages what it carries.
  std::uint32_t deaths = 0;
  std::uint32_t broken_connections = 0;
};

}  // namespace ch3_offload
