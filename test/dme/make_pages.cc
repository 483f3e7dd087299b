// What real_memory registers memory with: pages in pipes, or an RDMA device.

#include <cstdio>

#ifdef WITH_VERBS
#include "dme/device_pages.h"
#endif
#include "dme/pages_under_test.h"
#include "dme/pinned_pages.h"

namespace ch3_offload {

std::unique_ptr<PagesUnderTest> make_pages_under_test(std::string_view device) {
  if (device.empty()) return std::make_unique<PinnedPages>();
#ifdef WITH_VERBS
  auto opened = DevicePages::open(device);
  if (opened.ok()) return std::move(opened.value());
  std::fprintf(stderr, "real_memory: %s\n", opened.error().message.c_str());
#else
  std::fprintf(stderr, "real_memory: --device: built without libibverbs\n");
#endif
  return nullptr;
}

}  // namespace ch3_offload
