// A port that tests can hold, let work, and look at.

#pragma once

#include <cstddef>
#include <memory>

#include "nic/target_driver.h"
#include "nic/target_port.h"

namespace ch3_offload::portals {

/// What a process sends itself beyond it takes several turns.
inline constexpr std::size_t kOneTurnBytes = 4096;

class TestPort : public TargetPort {
 public:
  /// Requests wait, and do not begin, until release().
  virtual void hold() = 0;
  virtual void release() = 0;
  /// Lets it work until nothing is left to do.
  virtual void settle() = 0;
  /// Whether a thread has armed it and not disarmed it yet, and how often it was armed.
  virtual bool is_armed() = 0;
  virtual unsigned armings() = 0;
};

/// The engine's own port, of a process that is alone on its network. kThread: over shared memory. All others:
/// over the fake network.
std::unique_ptr<TestPort> make_engine_port(ProcessId self, UserId user, TargetDriver driver);

}  // namespace ch3_offload::portals
