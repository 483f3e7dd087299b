// What test/dme/real_memory registers memory with.

#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "rdma/registrar.h"

namespace ch3_offload {

class PagesUnderTest : public Registrar {
 public:
  /// Whether a device that goes by the registration meets the pages that the process has at these addresses, which it
  /// holds. May overwrite them. From any thread.
  virtual bool meets_memory(const MemoryRegion& region, std::byte* address, std::size_t length_bytes) = 0;

 protected:
  /// Ends the program: a device that does not write shows nothing about pages.
  [[noreturn]] static void nothing_was_written() {
    std::fprintf(stderr, "real_memory: the device did not write\n");
    std::exit(2);
  }
};

/// `device`: an RDMA device, or empty for pages without one. Null: stderr says why.
std::unique_ptr<PagesUnderTest> make_pages_under_test(std::string_view device);

}  // namespace ch3_offload
