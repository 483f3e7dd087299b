// Registrations where there is no memory to note them. Its program replaces operator new
// (counting_allocator.h).

#include <gtest/gtest.h>

#include <vector>

#include "counting_allocator.h"
#include "rdma/verbs/devices/fake_rails.h"
#include "rdma/verbs/devices/registrations.h"

namespace ch3_offload {
namespace {

class RegistrationsAllocation : public FakeRails {
 protected:
  Status add(Registrations& registrations, MemoryRegion& region) {
    return registrations.add(memory_.data(), memory_.size(), Access::kWrite, false, region);
  }
  const std::vector<std::unique_ptr<Rail>> rails_ = open_rails();
  std::vector<std::byte> memory_ = std::vector<std::byte>(5000);
};

TEST_F(RegistrationsAllocation, WhatCannotBeNotedIsNotRegistered) {
  Registrations first(rails_), second(rails_);
  MemoryRegion region;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(add(first, region), Status::kOk);
    first.remove(region);
  }
  const std::uint64_t before = allocator::allocations;
  ASSERT_EQ(add(first, region), Status::kOk);
  const std::uint64_t of_device = allocator::allocations - before;  // What the fake takes.
  first.remove(region);
  const int regions = fake_verbs::leaks().regions;
  for (const std::uint64_t more : {0u, 1u}) {
    Status status;
    {
      const allocator::Shortage shortage(of_device + more);
      status = add(second, region);
    }
    EXPECT_EQ(status, Status::kNoMemory);
    EXPECT_EQ(second.count(), 0u) << more;
    EXPECT_EQ(fake_verbs::leaks().regions, regions);
  }
  ASSERT_EQ(add(second, region), Status::kOk);
  EXPECT_EQ(second.count(), 1u);
  second.remove(region);
  EXPECT_EQ(second.count(), 0u);
}

}  // namespace
}  // namespace ch3_offload
