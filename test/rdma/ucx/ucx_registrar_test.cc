// The UCX registrar, written to by a second worker with the key that it packs; alone, and under the pin-down cache.
// UcxRegistrarPins needs a fabric that pins memory. It has tests where UCX_TLS=rc, over an RDMA device, as in the lab.
//
// No test under ThreadSanitizer: UCX's hook on madvise() runs in threads that it has ended, and crashes there.

#include "rdma/ucx/ucx_registrar.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dme/pin_down_cache.h"
#include "rdma/ucx/ucx_pair.h"

namespace ch3_offload {
namespace {

#ifndef WITH_THREAD_SANITIZER

class UcxRegistrarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = UcxRegistrar::open(0);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    registrar_ = std::move(opened.value());
    auto pair = UcxPair::open(registrar_->context());
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair.value());
  }

  std::vector<std::byte> some_bytes(std::size_t length) {
    std::vector<std::byte> bytes(length);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(++last_ % 251);
    return bytes;
  }

  std::unique_ptr<UcxRegistrar> registrar_;
  std::unique_ptr<UcxPair> pair_;
  unsigned last_ = 0;
};

TEST_F(UcxRegistrarTest, APeerWritesAnywhereInARegion) {
  std::vector<std::byte> memory(100000);
  MemoryRegion region;
  ASSERT_EQ(registrar_->register_memory(memory.data(), memory.size(), Access::kWrite, region), Status::kOk);
  EXPECT_EQ(region.address, memory.data());
  EXPECT_EQ(region.length_bytes, memory.size());
  ASSERT_FALSE(UcxRegistrar::packed_key(region).empty());
  std::vector<std::byte> expected(memory.size());
  constexpr std::pair<std::size_t, std::size_t> kParts[] = {{0, 1}, {5, 4096}, {50000, 50000}, {99999, 1}};
  for (const auto& [begin, length] : kParts) {
    const std::vector<std::byte> bytes = some_bytes(length);
    ASSERT_TRUE(pair_->write(bytes, memory.data() + begin, UcxRegistrar::packed_key(region)));
    std::memcpy(expected.data() + begin, bytes.data(), length);
  }
  EXPECT_EQ(memory, expected);
  registrar_->deregister_memory(region);
  EXPECT_EQ(region.address, nullptr);
}

TEST_F(UcxRegistrarTest, RegionsAreIndependent) {
  std::vector<std::byte> first(8192), second(8192);
  MemoryRegion one, other;
  ASSERT_EQ(registrar_->register_memory(first.data(), first.size(), Access::kWrite, one), Status::kOk);
  ASSERT_EQ(registrar_->register_memory(second.data(), second.size(), Access::kRead, other), Status::kOk);
  registrar_->deregister_memory(other);
  const std::vector<std::byte> bytes = some_bytes(first.size());
  ASSERT_TRUE(pair_->write(bytes, first.data(), UcxRegistrar::packed_key(one)));
  EXPECT_EQ(first, bytes);
  registrar_->deregister_memory(one);
}

TEST_F(UcxRegistrarTest, ACachedRegionIsWrittenAgainWithItsFirstKey) {
  std::vector<std::byte> memory(64 * 1024);
  PinDownCache cache(*registrar_, {});
  Region* region = nullptr;
  ASSERT_EQ(cache.acquire(memory.data(), memory.size(), Access::kWrite, region), Status::kOk);
  const std::span<const std::byte> key = UcxRegistrar::packed_key(region->memory);
  cache.release(*region);
  ASSERT_EQ(cache.acquire(memory.data() + 4096, 100, Access::kWrite, region), Status::kOk);
  EXPECT_EQ(cache.misses(), 1u);
  EXPECT_EQ(UcxRegistrar::packed_key(region->memory).data(), key.data());
  const std::vector<std::byte> bytes = some_bytes(100);
  ASSERT_TRUE(pair_->write(bytes, memory.data() + 4096, key));
  EXPECT_EQ(std::memcmp(memory.data() + 4096, bytes.data(), bytes.size()), 0);
  cache.release(*region);
}

TEST_F(UcxRegistrarTest, ThreadsRegisterAtTheSameTime) {
  const auto some_rounds = [this](std::vector<std::byte>& memory) {
    for (std::size_t i = 1; i <= 200; ++i) {
      MemoryRegion region;
      if (registrar_->register_memory(memory.data(), i * 64, Access::kWrite, region) != Status::kOk) return;
      if (UcxRegistrar::packed_key(region).empty()) return;
      registrar_->deregister_memory(region);
      memory[i] = std::byte{1};
    }
  };
  std::vector<std::vector<std::byte>> memory(4, std::vector<std::byte>(200 * 64));
  std::vector<std::thread> threads;
  for (std::vector<std::byte>& one : memory) threads.emplace_back(some_rounds, std::ref(one));
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<std::byte>& one : memory) EXPECT_EQ(one[200], std::byte{1});
}

/// What is pinned for this process, bytes.
std::size_t pinned_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "VmPin:") {
  }
  std::size_t kib = 0;
  status >> kib;
  return kib * 1024;
}

class UcxRegistrarPins : public UcxRegistrarTest, public ::testing::WithParamInterface<std::string> {
 protected:
  static constexpr std::size_t kPart = 1024 * 1024;

  void SetUp() override {
    UcxRegistrarTest::SetUp();
    if (HasFatalFailure()) return;
    const std::size_t before = pinned_bytes();
    MemoryRegion region;
    ASSERT_EQ(registrar_->register_memory(memory_.data(), kPart, Access::kWrite, region), Status::kOk);
    const bool pins = pinned_bytes() >= before + kPart;
    registrar_->deregister_memory(region);
    ASSERT_TRUE(pins) << "UCX_TLS=" << GetParam() << " pins nothing";
  }

  /// Of 19 uses of memory that was not used before, those after which as much was pinned as before. UCX pins buffers of its own
  /// in a thread of its own, early: so the first ones may see more.
  template <class Use>
  int uses_given_back(Use use) {
    int given_back = 0;
    for (std::size_t at = kPart; at < memory_.size(); at += kPart) {
      const std::size_t before = pinned_bytes();
      use(memory_.data() + at);
      given_back += pinned_bytes() == before ? 1 : 0;
    }
    return given_back;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(20 * kPart);
};

std::vector<std::string> fabrics_that_pin() {
  const char* const chosen = std::getenv("UCX_TLS");
  if (chosen == nullptr || std::string(chosen) != "rc") return {};
  return {chosen};
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UcxRegistrarPins);
INSTANTIATE_TEST_SUITE_P(Chosen, UcxRegistrarPins, ::testing::ValuesIn(fabrics_that_pin()));

TEST_P(UcxRegistrarPins, WhatIsDeregisteredIsPinnedNoMore) {
  EXPECT_GE(uses_given_back([this](std::byte* part) {
              MemoryRegion region;
              ASSERT_EQ(registrar_->register_memory(part, kPart, Access::kWrite, region), Status::kOk);
              registrar_->deregister_memory(region);
            }),
            15);
}

TEST_P(UcxRegistrarPins, WhatTheCacheGivesUpIsPinnedNoMore) {
  PinDownCache cache(*registrar_, {});
  const auto use = [&cache](std::byte* part) {
    Region* region = nullptr;
    ASSERT_EQ(cache.acquire(part, kPart, Access::kWrite, region), Status::kOk);
    cache.release(*region);
  };
  EXPECT_EQ(uses_given_back(use), 0);
  cache.flush();
  EXPECT_GE(uses_given_back([&](std::byte* part) {
              use(part);
              cache.flush();
            }),
            15);
}

TEST_P(UcxRegistrarPins, MemoryThatCannotBeWrittenIsUnsupported) {
  void* const memory = mmap(nullptr, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  MemoryRegion region;
  EXPECT_EQ(registrar_->register_memory(memory, 65536, Access::kRead, region), Status::kUnsupported);
  munmap(memory, 65536);
}

TEST_P(UcxRegistrarPins, BeyondTheLimitThereIsNoMemory) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
  const bool is_exempt = mlock(memory_.data(), 1) == 0;
  MemoryRegion region;
  const Status status = registrar_->register_memory(memory_.data(), kPart, Access::kWrite, region);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (is_exempt) {
    munlock(memory_.data(), 1);
    if (status == Status::kOk) registrar_->deregister_memory(region);
    GTEST_SKIP() << "CAP_IPC_LOCK: no limit binds";
  }
  EXPECT_EQ(status, Status::kNoMemory);
}

#endif

TEST(UcxRegistrarOpen, ATransportThatIsNotThereIsSaidWithTheVariable) {
  const char* const set = std::getenv("UCX_TLS");
  const std::string before = set == nullptr ? "" : set;
  setenv("UCX_TLS", "no_such_transport", 1);
  auto opened = UcxRegistrar::open(0);
  if (set == nullptr) {
    unsetenv("UCX_TLS");
  } else {
    setenv("UCX_TLS", before.c_str(), 1);
  }
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("UCX_TLS"), std::string::npos) << opened.error().message;
}

}  // namespace
}  // namespace ch3_offload
