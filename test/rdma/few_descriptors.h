// A process with few descriptors left, for the tests of what it does then.

#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "rdma/file_descriptor.h"
#include "rdma/system_error.h"

namespace ch3_offload {

/// As long as it lives, this process can open `spare` more descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t spare) {
    // UndefinedBehaviorSanitizer looks once at the type of an object whose virtual functions are called. For
    // that it opens a pipe. So the library does here what it will do without a descriptor. A call of this code
    // would not help: tests are compiled without the sanitizer.
    static_cast<void>(system_error("", EMFILE));
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const FileDescriptor next(::dup(0));  // The lowest number that is free.
    const rlimit few{static_cast<rlim_t>(next.get()) + spare, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace ch3_offload
