#include "ch3_offload/call_driven.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace ch3_offload {
namespace {

/// Loaded without the lock by who moves it. It lives as long as the process: no order is needed.
std::atomic<CallDriven*> current{nullptr};

struct Movers {
  std::mutex lock;
  std::vector<MovesCallDriven*> all;
};

/// Never destroyed: other threads may use it when the program ends.
Movers& movers() {
  static Movers& its = *new Movers;  // NOLINT: see above.
  return its;
}

}  // namespace

void set_call_driven(CallDriven& client) noexcept {
  const std::scoped_lock lock(movers().lock);
  current.store(&client, std::memory_order_seq_cst);
  for (MovesCallDriven* const mover : movers().all) mover->call_driven_came();
}

void reset_call_driven() noexcept { current.store(nullptr, std::memory_order_relaxed); }

CallDriven* call_driven() noexcept { return current.load(std::memory_order_seq_cst); }

void add_mover(MovesCallDriven& mover) {
  const std::scoped_lock lock(movers().lock);
  movers().all.push_back(&mover);
  if (call_driven() != nullptr) mover.call_driven_came();
}

void remove_mover(MovesCallDriven& mover) noexcept {
  const std::scoped_lock lock(movers().lock);
  std::erase(movers().all, &mover);
}

}  // namespace ch3_offload
