// What real_memory_ucx registers memory with.

#include <cstdio>

#include "dme/pages_under_test.h"
#include "dme/ucx_pages.h"

namespace ch3_offload {

std::unique_ptr<PagesUnderTest> make_pages_under_test(std::string_view device) {
  if (!device.empty()) {
    std::fprintf(stderr, "real_memory_ucx: --device: UCX_NET_DEVICES and UCX_TLS say that\n");
    return nullptr;
  }
  auto opened = UcxPages::open();
  if (opened.ok()) return std::move(opened.value());
  std::fprintf(stderr, "real_memory_ucx: %s\n", opened.error().message.c_str());
  return nullptr;
}

}  // namespace ch3_offload
