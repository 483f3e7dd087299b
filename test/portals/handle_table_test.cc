#include "portals/handle_table.h"

#include <gtest/gtest.h>

namespace ch3_offload::portals {
namespace {

TEST(Handle, HoldsWhatItWasMadeOf) {
  const ptl_handle_any_t handle = make_handle(HandleKind::kCounter, 3, kHandleGenerations - 1, 65'535);
  EXPECT_EQ(kind_of(handle), HandleKind::kCounter);
  EXPECT_EQ(interface_of(handle), 3U);
  EXPECT_EQ(index_of(handle), 65'535U);
}

TEST(Handle, OfAnEntryHoldsItsName) {
  const EntryName name{5, 200, TargetId{0xFFFF'FFFF'0000'FFFF}};
  const ptl_handle_any_t handle = make_entry_handle(HandleKind::kMatchEntry, 2, name);
  EXPECT_EQ(kind_of(handle), HandleKind::kMatchEntry);
  EXPECT_EQ(interface_of(handle), 2U);
  const EntryName back = entry_of(handle);
  EXPECT_EQ(back.opening, 5U);
  EXPECT_EQ(back.table, 200U);
  EXPECT_EQ(back.id, name.id);
}

TEST(Handle, ConstantsAreOfNoKind) {
  for (const ptl_handle_any_t none : {PTL_INVALID_HANDLE, PTL_EQ_NONE, PTL_CT_NONE, ptl_handle_any_t{0}}) {
    EXPECT_FALSE(is_entry(kind_of(none)));
    EXPECT_TRUE(static_cast<int>(kind_of(none)) == 0 || static_cast<int>(kind_of(none)) == 7);
  }
}

TEST(HandleTable, FindsWhatIsThere) {
  HandleTable<int> table(HandleKind::kQueue, 1);
  const ptl_handle_any_t one = table.add(std::make_shared<int>(1));
  const ptl_handle_any_t two = table.add(std::make_shared<int>(2));
  EXPECT_EQ(*table.find(one), 1);
  EXPECT_EQ(*table.share(two), 2);
  EXPECT_EQ(table.live(), 2U);
  table.remove(one);
  EXPECT_EQ(table.find(one), nullptr);
  EXPECT_EQ(table.share(one), nullptr);
  EXPECT_EQ(*table.find(two), 2);
}

TEST(HandleTable, AReusedSlotHasAnotherHandle) {
  HandleTable<int> table(HandleKind::kQueue, 1);
  const ptl_handle_any_t old = table.add(std::make_shared<int>(1));
  table.remove(old);
  const ptl_handle_any_t fresh = table.add(std::make_shared<int>(2));
  EXPECT_EQ(index_of(old), index_of(fresh));
  EXPECT_EQ(table.find(old), nullptr);
  EXPECT_EQ(*table.find(fresh), 2);
}

TEST(HandleTable, ClearedHandlesAreStale) {
  HandleTable<int> table(HandleKind::kDescriptor, 0);
  const ptl_handle_any_t old = table.add(std::make_shared<int>(1));
  table.clear();
  EXPECT_EQ(table.live(), 0U);
  static_cast<void>(table.add(std::make_shared<int>(2)));
  EXPECT_EQ(table.find(old), nullptr);
}

TEST(HandleTable, OtherKindsAndInterfacesAreNotFound) {
  HandleTable<int> table(HandleKind::kQueue, 1);
  const ptl_handle_any_t handle = table.add(std::make_shared<int>(1));
  EXPECT_EQ(table.find(make_handle(HandleKind::kCounter, 1, 0, index_of(handle))), nullptr);
  EXPECT_EQ(table.find(make_handle(HandleKind::kQueue, 2, 0, index_of(handle))), nullptr);
  EXPECT_EQ(table.find(PTL_INVALID_HANDLE), nullptr);
  EXPECT_EQ(table.find(0), nullptr);
}

}  // namespace
}  // namespace ch3_offload::portals
