// What libFuzzer calls: the one target that this program was linked with.

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ch3_offload::fuzz::Target::first()->run(std::as_bytes(std::span(data, size)));
  return 0;
}
