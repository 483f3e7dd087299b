#include "ch3_offload/process_thread.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "dme/fork_mark.h"

namespace ch3_offload {
namespace {

struct Registry {
  const ForkMark mark;
  std::mutex lock;
  std::weak_ptr<NicThread> thread;  ///< Under the lock.
};

/// Never destroyed: other threads may use it when the program ends. A child of fork() makes its own: its
/// parent's may be locked, and names a thread that the child does not have.
Registry& registry() {
  static std::atomic<Registry*> of_process{nullptr};
  Registry* found = of_process.load(std::memory_order_acquire);
  if (found != nullptr && found->mark.is_owner()) return *found;
  auto made = std::make_unique<Registry>();
  // If another thread was first, `found` is its registry.
  const bool is_first = of_process.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel);
  return is_first ? *made.release() : *found;
}

}  // namespace

Result<std::shared_ptr<NicThread>> find_or_start_process_thread(const WaitPolicy& wait) {
  Registry& its = registry();
  const std::scoped_lock lock(its.lock);
  if (std::shared_ptr<NicThread> thread = its.thread.lock()) return thread;
  Result<std::shared_ptr<NicThread>> started = NicThread::start(wait);
  if (started.ok()) its.thread = started.value();
  return started;
}

}  // namespace ch3_offload
