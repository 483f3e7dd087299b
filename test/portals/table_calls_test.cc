#include <thread>

#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

PORTALS_TEST_SUITE(Tables);

TEST_P(Tables, AnyIndexIsTheLeastThatIsFree) {
  const ptl_handle_ni_t ni = open_matching();
  EXPECT_EQ(make_table(ni, PTL_EQ_NONE), 0U);
  EXPECT_EQ(make_table(ni, PTL_EQ_NONE), 1U);
  ASSERT_EQ(PtlPTFree(ni, 0), PTL_OK);
  EXPECT_EQ(make_table(ni, PTL_EQ_NONE), 0U);
}

TEST_P(Tables, AWantedIndexIsTakenOnce) {
  const ptl_handle_ni_t ni = open_matching();
  ptl_pt_index_t index = 99;
  ASSERT_EQ(PtlPTAlloc(ni, 0, PTL_EQ_NONE, 17, &index), PTL_OK);
  EXPECT_EQ(index, 17U);
  EXPECT_EQ(PtlPTAlloc(ni, 0, PTL_EQ_NONE, 17, &index), PTL_PT_IN_USE);
  EXPECT_EQ(PtlPTAlloc(ni, 0, PTL_EQ_NONE, 256, &index), PTL_ARG_INVALID);
}

TEST_P(Tables, AllIndicesCanBeTaken) {
  ptl_ni_limits_t desired{};
  ptl_handle_ni_t ni;
  ASSERT_EQ(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, &desired, nullptr, &ni), PTL_OK);
  ptl_pt_index_t index = 0;
  for (ptl_pt_index_t i = 0; i <= 63; ++i) EXPECT_EQ(make_table(ni, PTL_EQ_NONE), i);
  EXPECT_EQ(PtlPTAlloc(ni, 0, PTL_EQ_NONE, PTL_PT_ANY, &index), PTL_PT_FULL);
}

TEST_P(Tables, WrongArgumentsAreRefused) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_ni_t other = open_listing();
  const ptl_handle_eq_t foreign = make_queue(other);
  const ptl_handle_eq_t stale = make_queue(ni);
  ASSERT_EQ(PtlEQFree(stale), PTL_OK);
  ptl_pt_index_t index = 99;
  EXPECT_EQ(PtlPTAlloc(ni, 1U << 5, PTL_EQ_NONE, PTL_PT_ANY, &index), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTAlloc(ni, 0, PTL_EQ_NONE, PTL_PT_ANY, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTAlloc(ni, 0, foreign, PTL_PT_ANY, &index), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTAlloc(ni, 0, stale, PTL_PT_ANY, &index), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTAlloc(ni, 0, PTL_INVALID_HANDLE, PTL_PT_ANY, &index), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTAlloc(foreign, 0, PTL_EQ_NONE, PTL_PT_ANY, &index), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTAlloc(ni, PTL_PT_FLOWCTRL, PTL_EQ_NONE, PTL_PT_ANY, &index), PTL_PT_EQ_NEEDED);
  EXPECT_EQ(index, 99U);
  EXPECT_EQ(PtlPTFree(ni, 0), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTEnable(ni, 0), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTDisable(ni, 0), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPTFree(ni, PTL_PT_ANY), PTL_ARG_INVALID);
  for (const auto call : {PtlPTFree, PtlPTEnable, PtlPTDisable})
    EXPECT_EQ(call(PTL_INVALID_HANDLE, 0), PTL_ARG_INVALID);
}

TEST_P(Tables, ATableWithEntriesIsInUse) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_pt_index_t table = make_table(ni, PTL_EQ_NONE);
  const ptl_me_t me = match_entry(nullptr, 0);
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  EXPECT_EQ(PtlPTFree(ni, table), PTL_IN_USE);
  ASSERT_EQ(PtlMEUnlink(entry), PTL_OK);
  EXPECT_EQ(PtlPTFree(ni, table), PTL_OK);
}

TEST_P(Tables, ADisabledTableRefuses) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t eq = make_queue(ni);
  const ptl_pt_index_t table = make_table(ni, PTL_EQ_NONE, PTL_PT_ALLOC_DISABLED);
  char byte = 0;
  const ptl_me_t me = match_entry(&byte, 1);
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  char source = 'x';
  const ptl_handle_md_t md = bind(ni, &source, 1, eq, PTL_CT_NONE, PTL_MD_EVENT_SEND_DISABLE);
  const auto put = [&] {
    EXPECT_EQ(PtlPut(md, 0, 1, PTL_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
    return int{next(eq, PTL_EVENT_ACK).ni_fail_type};
  };
  EXPECT_EQ(put(), PTL_NI_PT_DISABLED);
  ASSERT_EQ(PtlPTEnable(ni, table), PTL_OK);
  EXPECT_EQ(put(), PTL_NI_OK);
  EXPECT_EQ(byte, 'x');
  ASSERT_EQ(PtlPTDisable(ni, table), PTL_OK);
  EXPECT_EQ(put(), PTL_NI_PT_DISABLED);
}

/// Where nothing moves without a call.
class HeldTables : public PortalsTest {};
INSTANTIATE_TEST_SUITE_P(Drivers, HeldTables, ::testing::Values(Driver::kHost, Driver::kOther), driver_name);

TEST_P(HeldTables, DisablingWaitsForWhatIsInFlight) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t eq = make_queue(ni);
  const ptl_pt_index_t table = make_table(ni, eq);
  std::string bytes(3 * kOneTurnBytes, ' '), source(bytes.size(), 'x');
  const ptl_me_t me = match_entry(bytes.data(), bytes.size(), PTL_ME_EVENT_LINK_DISABLE);
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  const ptl_handle_md_t md = bind(ni, source.data(), source.size());
  ASSERT_EQ(PtlPut(md, 0, source.size(), PTL_NO_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
  EXPECT_EQ(status_of(ni, PTL_SR_DROP_COUNT), 0);  // A turn, in which it arrives.
  EXPECT_EQ(PtlMEUnlink(entry), PTL_IN_USE);
  EXPECT_NE(bytes, source);
  ASSERT_EQ(PtlPTDisable(ni, table), PTL_OK);
  EXPECT_EQ(bytes, source);
  ptl_event_t event;
  EXPECT_EQ(PtlEQGet(eq, &event), PTL_OK) << "its event is there";
  EXPECT_EQ(int{event.type}, PTL_EVENT_PUT);
}

TEST_P(Tables, FlowControlDisablesRatherThanLose) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t eq = make_queue(ni);
  const ptl_handle_eq_t target = make_queue(ni);
  const ptl_pt_index_t table = make_table(ni, target, PTL_PT_FLOWCTRL);
  char source = 'x';
  const ptl_handle_md_t md = bind(ni, &source, 1, eq, PTL_CT_NONE, PTL_MD_EVENT_SEND_DISABLE);
  ASSERT_EQ(PtlPut(md, 0, 1, PTL_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_ACK).ni_fail_type}, PTL_NI_PT_DISABLED);
  const ptl_event_t disabled = next(target, PTL_EVENT_PT_DISABLED);
  EXPECT_EQ(disabled.pt_index, table);
  EXPECT_EQ(int{disabled.ni_fail_type}, PTL_NI_OK);
  EXPECT_EQ(disabled.user_ptr, nullptr);
}

}  // namespace
}  // namespace ch3_offload::portals
