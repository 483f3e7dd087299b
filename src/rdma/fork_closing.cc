#include "rdma/fork_closing.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace ch3_offload {
namespace {

/// Never destroyed: a process may fork while it exits.
struct List {
  std::mutex mutex;
  std::vector<int> descriptors;
};

List& list() {
  static List& only = *[] {
    auto* const made = new List;
    static_cast<void>(::pthread_atfork([] { list().mutex.lock(); }, [] { list().mutex.unlock(); },
                                       [] {
                                         for (const int descriptor : list().descriptors) ::close(descriptor);
                                         list().descriptors.clear();
                                         list().mutex.unlock();
                                       }));
    return made;
  }();
  return only;
}

}  // namespace

ForkClosing::ForkClosing(int descriptor) {
  const std::lock_guard lock(list().mutex);
  list().descriptors.push_back(descriptor);
  descriptor_ = descriptor;
}

ForkClosing::ForkClosing(ForkClosing&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ForkClosing& ForkClosing::operator=(ForkClosing&& other) noexcept {
  forget();
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

ForkClosing::~ForkClosing() { forget(); }

void ForkClosing::forget() noexcept {
  if (descriptor_ < 0) return;
  const std::lock_guard lock(list().mutex);
  auto& descriptors = list().descriptors;
  // Introductions come and go: theirs are the latest.
  const auto found = std::find(descriptors.rbegin(), descriptors.rend(), descriptor_);
  if (found != descriptors.rend()) {
    *found = descriptors.back();
    descriptors.pop_back();
  }
  descriptor_ = -1;
}

}  // namespace ch3_offload
