// The limit of open file descriptors. A connected peer takes one of them.

#pragma once

#include <sys/resource.h>

namespace ch3_offload {

/// Raises the soft limit of open files to the hard limit. Ignores errors.
inline void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace ch3_offload
