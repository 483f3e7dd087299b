// One or two descriptors per connected peer: providers take what they may have.

#pragma once

#include <sys/resource.h>

namespace ch3_offload {

/// Raises the soft limit of open files to the hard one.
inline void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace ch3_offload
