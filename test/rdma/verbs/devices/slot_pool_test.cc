// Registered memory in slots.

#include "rdma/verbs/devices/slot_pool.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "rdma/verbs/devices/port_selection.h"
#include "rdma/verbs/fake_verbs.h"

namespace ch3_offload {
namespace {

class Slots : public testing::Test {
 protected:
  Slots() {
    fake_verbs::reset();
    context_ = std::move(open_verbs_device("fake0").value());
    domain_.reset(ibv_alloc_pd(context_.get()));
    domains_ = {domain_.get()};
  }
  ~Slots() override {
    domain_.reset();
    context_.reset();
    EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks();
  }
  DeviceContext context_;
  ProtectionDomain domain_;
  std::vector<ibv_pd*> domains_;
};

TEST_F(Slots, GrowsBySlabsUpToItsBound) {
  SlotPool pool(domains_, 512, 64, 100);
  EXPECT_EQ(pool.most(), 128u);
  EXPECT_EQ(pool.take(), SlotPool::kNone);
  EXPECT_TRUE(pool.may_take());
  EXPECT_FALSE(pool.grow());
  EXPECT_EQ(pool.free_count(), 64u);
  EXPECT_FALSE(pool.grow());
  EXPECT_EQ(pool.registered_bytes(), 128u * 512);
  const std::optional<Error> full = pool.grow();
  ASSERT_TRUE(full);
  EXPECT_EQ(full->status, Status::kAgain);
}

TEST_F(Slots, EveryOneIsItsOwn) {
  SlotPool pool(domains_, 512, 64, 128);
  ASSERT_FALSE(pool.grow());
  ASSERT_FALSE(pool.grow());
  std::set<std::byte*> addresses;
  for (int i = 0; i < 128; ++i) {
    const std::uint32_t slot = pool.take();
    ASSERT_NE(slot, SlotPool::kNone);
    EXPECT_TRUE(addresses.insert(pool.address(slot)).second);
    EXPECT_NE(pool.local_key(slot, 0), 0u);
  }
  EXPECT_EQ(pool.take(), SlotPool::kNone);
  EXPECT_FALSE(pool.may_take());
  std::byte* before = nullptr;
  for (std::byte* const address : addresses) {
    if (before != nullptr) {
      EXPECT_GE(address - before, 512);
    }
    before = address;
  }
  pool.give_back(17);
  EXPECT_EQ(pool.take(), 17u);
}

TEST_F(Slots, ARegistrationThatIsRefusedChangesNothing) {
  SlotPool pool(domains_, 512, 64, 128);
  fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM);
  const std::optional<Error> error = pool.grow();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, Status::kNoMemory);
  EXPECT_EQ(error->error_number, ENOMEM);
  EXPECT_NE(error->message.find("registering 32768 bytes failed: Cannot allocate memory"), std::string::npos);
  EXPECT_EQ(pool.count(), 0u);
  EXPECT_FALSE(pool.grow());
}

}  // namespace
}  // namespace ch3_offload
