// The UCX registrar, written to by a second worker with the key that it packs; alone, and under the pin-down cache.

#include "rdma/ucx/ucx_registrar.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "dme/pin_down_cache.h"
#include "rdma/ucx/ucx_pair.h"

namespace ch3_offload {
namespace {

class UcxRegistrarTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP()
        << "UCX's hook on madvise() runs in threads that ThreadSanitizer has ended: it crashes there";
#endif
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

TEST(UcxRegistrarOpen, ATransportThatIsNotThereIsSaidWithTheVariable) {
  setenv("UCX_TLS", "no_such_transport", 1);
  auto opened = UcxRegistrar::open(0);
  unsetenv("UCX_TLS");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("UCX_TLS"), std::string::npos) << opened.error().message;
}

}  // namespace
}  // namespace ch3_offload
