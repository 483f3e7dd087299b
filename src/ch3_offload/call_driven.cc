#include "ch3_offload/call_driven.h"

#include <atomic>
#include <mutex>

namespace ch3_offload {
namespace {

/// Without a destructor: other threads may use it when the program ends.
class Movers {
 public:
  void tell() noexcept {
    for (MovesCallDriven* one = first_; one != nullptr; one = one->next_mover) one->call_driven_came();
  }
  void add(MovesCallDriven& mover) noexcept {
    mover.next_mover = first_;
    first_ = &mover;
  }
  void remove(MovesCallDriven& mover) noexcept {
    MovesCallDriven** link = &first_;
    while (*link != nullptr && *link != &mover) link = &(*link)->next_mover;
    if (*link != nullptr) *link = mover.next_mover;
  }

  std::mutex lock;  ///< Of all the rest.

 private:
  MovesCallDriven* first_ = nullptr;
};

/// Stored under the lock, loaded without it. The client lives until the process ends. Sequentially
/// consistent: a mover that stores its flag and then finds no client here is told of the client after that
/// store (Channel::note_care()).
constinit std::atomic<CallDriven*> current{nullptr};
constinit Movers movers;

}  // namespace

void set_call_driven(CallDriven& client) noexcept {
  const std::scoped_lock lock(movers.lock);
  current.store(&client, std::memory_order_seq_cst);
  movers.tell();
}

void reset_call_driven() noexcept { current.store(nullptr, std::memory_order_relaxed); }

CallDriven* call_driven() noexcept { return current.load(std::memory_order_seq_cst); }

void add_mover(MovesCallDriven& mover) noexcept {
  const std::scoped_lock lock(movers.lock);
  movers.add(mover);
  if (call_driven() != nullptr) mover.call_driven_came();
}

void remove_mover(MovesCallDriven& mover) noexcept {
  const std::scoped_lock lock(movers.lock);
  movers.remove(mover);
}

}  // namespace ch3_offload
