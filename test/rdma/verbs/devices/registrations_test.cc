// The caller's memory, registered with the device of each rail.

#include "rdma/verbs/devices/registrations.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "rdma/verbs/devices/fake_rails.h"

namespace ch3_offload {
namespace {

class RegistrationTests : public FakeRails {
 protected:
  explicit RegistrationTests(const fake_verbs::Config& fake = fake_verbs::two_rails()) {
    fake_verbs::reset(timeless(fake));
    rails_ = open_rails();
    slabs_ = fake_verbs::leaks().regions;
  }
  Status add(Registrations& registrations, MemoryRegion& region, Access access = Access::kWrite,
             bool on_demand = false) {
    return registrations.add(memory_.data(), memory_.size(), access, on_demand, region);
  }
  /// Regions of the caller's memory that the devices have.
  int regions() const { return fake_verbs::leaks().regions - slabs_; }

  std::vector<std::unique_ptr<Rail>> rails_;
  int slabs_ = 0;  ///< Regions of the receive slots.
  std::vector<std::byte> memory_ = std::vector<std::byte>(5000);
};

class PagingRegistrations : public RegistrationTests {
 protected:
  static fake_verbs::Config paging_device() {
    fake_verbs::Config fake;
    fake.devices[0].faults_pages = true;
    fake.devices[0].registered_bytes_per_context = 64 * 8192;  // The receive slots'.
    return fake;
  }
  PagingRegistrations() : RegistrationTests(paging_device()) {}
};

TEST_F(RegistrationTests, ARegionHasTheKeysOfBothRails) {
  Registrations registrations(rails_);
  MemoryRegion region;
  ASSERT_EQ(add(registrations, region), Status::kOk);
  EXPECT_EQ(region.address, memory_.data());
  EXPECT_EQ(region.length_bytes, memory_.size());
  EXPECT_EQ(regions(), 2);
  EXPECT_EQ(registrations.count(), 1u);
  const std::set<std::uint32_t> keys{
      registrations.local_key(region.local_key, 0), registrations.local_key(region.local_key, 1),
      Registrations::remote_key(region.remote_key, 0), Registrations::remote_key(region.remote_key, 1)};
  EXPECT_EQ(keys.size(), 4u) << "the fake's local and remote keys differ";
  registrations.remove(region);
  EXPECT_EQ(region.address, nullptr);
  EXPECT_EQ(regions(), 0);
  EXPECT_EQ(registrations.count(), 0u);
}

TEST_F(RegistrationTests, EachRailHasItsOwnRemoteKey) {
  fake_verbs::adjust([](fake_verbs::Config& config) { config.remote_key_is_local_key = true; });
  Registrations registrations(rails_);
  MemoryRegion region;
  ASSERT_EQ(add(registrations, region), Status::kOk);
  for (const std::uint8_t rail : {std::uint8_t{0}, std::uint8_t{1}})
    EXPECT_EQ(Registrations::remote_key(region.remote_key, rail),
              registrations.local_key(region.local_key, rail));
  registrations.remove(region);
}

TEST_F(RegistrationTests, ARailThatIsLostIsSkipped) {
  Registrations registrations(rails_);
  rails_[0]->lost = true;
  MemoryRegion region;
  ASSERT_EQ(add(registrations, region), Status::kOk);
  EXPECT_EQ(regions(), 1);
  EXPECT_EQ(Registrations::remote_key(region.remote_key, 0), 0u);
  EXPECT_NE(Registrations::remote_key(region.remote_key, 1), 0u);
  EXPECT_NE(registrations.local_key(region.local_key, 1), 0u);
  registrations.remove(region);
  EXPECT_EQ(regions(), 0);
}

TEST_F(RegistrationTests, ErrorsSayWhetherOtherMemoryCouldMakeRoom) {
  Registrations registrations(rails_);
  const struct {
    int error;
    Status status;
  } cases[] = {{ENOMEM, Status::kNoMemory},    {EAGAIN, Status::kNoMemory},
               {ENOSPC, Status::kNoMemory},    {EFAULT, Status::kUnsupported},
               {EINVAL, Status::kUnsupported}, {EPERM, Status::kUnsupported},
               {EACCES, Status::kUnsupported}, {EOPNOTSUPP, Status::kUnsupported}};
  for (const auto& one : cases) {
    MemoryRegion region;
    fake_verbs::fail_call("ibv_reg_mr", 1, one.error);
    EXPECT_EQ(add(registrations, region), one.status) << one.error;
    EXPECT_EQ(region.address, nullptr);
    EXPECT_EQ(registrations.count(), 0u);
  }
}

TEST_F(RegistrationTests, WhatOneRailRefusesLeavesNothingOnTheOther) {
  Registrations registrations(rails_);
  MemoryRegion region;
  fake_verbs::fail_call("ibv_reg_mr", 2, ENOMEM);
  EXPECT_EQ(add(registrations, region), Status::kNoMemory);
  EXPECT_EQ(regions(), 0);
  EXPECT_EQ(registrations.count(), 0u);
  ASSERT_EQ(add(registrations, region), Status::kOk);
  registrations.remove(region);
}

TEST_F(RegistrationTests, ARemovalChangesNoOtherRegion) {
  Registrations registrations(rails_);
  MemoryRegion first, second, third;
  ASSERT_EQ(add(registrations, first), Status::kOk);
  ASSERT_EQ(add(registrations, second), Status::kOk);
  const std::uint32_t keys[2] = {registrations.local_key(second.local_key, 0),
                                 registrations.local_key(second.local_key, 1)};
  registrations.remove(first);
  ASSERT_EQ(add(registrations, third), Status::kOk);
  EXPECT_NE(third.local_key, second.local_key);
  EXPECT_EQ(registrations.local_key(second.local_key, 0), keys[0]);
  EXPECT_EQ(registrations.local_key(second.local_key, 1), keys[1]);
  EXPECT_NE(registrations.local_key(third.local_key, 0), keys[0]);
  EXPECT_EQ(registrations.count(), 2u);
  registrations.remove(second);
  registrations.remove(third);
  EXPECT_EQ(regions(), 0);
}

TEST_F(PagingRegistrations, OnDemandPinsNothing) {
  Registrations registrations(rails_);
  MemoryRegion region;
  EXPECT_EQ(add(registrations, region), Status::kNoMemory) << "no more may be pinned";
  ASSERT_EQ(add(registrations, region, Access::kWrite, true), Status::kOk);
  registrations.remove(region);
}

}  // namespace
}  // namespace ch3_offload
