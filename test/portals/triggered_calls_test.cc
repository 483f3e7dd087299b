#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

class Triggered : public PortalsTest {
 protected:
  void SetUp() override {
    PortalsTest::SetUp();
    ni = open_matching();
    trigger = make_counter(ni);
    done = make_counter(ni);
    table = make_table(ni, PTL_EQ_NONE);
    const ptl_me_t me = match_entry(memory, sizeof memory);
    ptl_handle_me_t entry;
    ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
    md = bind(ni, source, 8, PTL_EQ_NONE, done, PTL_MD_EVENT_CT_ACK);
    to = bind(ni, sink, 8, PTL_EQ_NONE, done, PTL_MD_EVENT_CT_REPLY);
  }
  int put(ptl_handle_ct_t when, ptl_size_t threshold) {
    return PtlTriggeredPut(md, 0, 8, PTL_CT_ACK_REQ, self(), table, 0, 0, nullptr, 0, when, threshold);
  }

  alignas(8) char memory[8] = {};
  alignas(8) char source[8] = {};
  alignas(8) char sink[8] = {};
  ptl_handle_ni_t ni{};
  ptl_handle_ct_t trigger{};
  ptl_handle_ct_t done{};
  ptl_handle_md_t md{};
  ptl_handle_md_t to{};
  ptl_pt_index_t table{};
};
PORTALS_INSTANTIATE(Triggered);

TEST_P(Triggered, APutBeginsAtItsThreshold) {
  ASSERT_EQ(put(trigger, 2), PTL_OK);
  ASSERT_EQ(PtlCTInc(trigger, {1, 0}), PTL_OK);
  world.port->settle();
  EXPECT_EQ(count_of(done).success, 0U);
  std::memcpy(source, "now used", 8);  // The memory as it is then.
  ASSERT_EQ(PtlCTInc(trigger, {0, 1}), PTL_OK);
  EXPECT_EQ(wait_for(done, 1).success, 1U);
  EXPECT_EQ(std::string(memory, 8), "now used");
  ASSERT_EQ(put(trigger, 2), PTL_OK);
  EXPECT_EQ(wait_for(done, 2).success, 2U) << "the threshold is reached";
}

TEST_P(Triggered, AnEntryComesAndGoesAtThresholds) {
  const ptl_pt_index_t later = make_table(ni, PTL_EQ_NONE);
  const ptl_me_t me = match_entry(memory, sizeof memory);
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlTriggeredMEAppend(ni, later, &me, PTL_PRIORITY_LIST, nullptr, &entry, trigger, 1), PTL_OK);
  ASSERT_EQ(PtlTriggeredMEUnlink(entry, trigger, 2), PTL_OK);
  EXPECT_EQ(PtlMEUnlink(entry), PTL_IN_USE) << "it has not linked";
  const auto put_there = [&] {
    ASSERT_EQ(PtlPut(md, 0, 8, PTL_CT_ACK_REQ, self(), later, 0, 0, nullptr, 0), PTL_OK);
  };
  put_there();
  EXPECT_EQ(wait_for(done, 1).failure, 1U);
  ASSERT_EQ(PtlCTInc(trigger, {1, 0}), PTL_OK);
  world.port->settle();
  put_there();
  EXPECT_EQ(wait_for(done, 2).success, 1U);
  ASSERT_EQ(PtlCTInc(trigger, {1, 0}), PTL_OK);
  world.port->settle();
  put_there();
  EXPECT_EQ(wait_for(done, 3).failure, 2U);
  EXPECT_EQ(PtlMEUnlink(entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlTriggeredMEUnlink(entry, PTL_CT_NONE, 1), PTL_ARG_INVALID);
  EXPECT_EQ(PtlTriggeredMEAppend(ni, later, nullptr, PTL_PRIORITY_LIST, nullptr, &entry, trigger, 1),
            PTL_ARG_INVALID);
  EXPECT_EQ(PtlTriggeredMEAppend(ni, later, &me, PTL_PRIORITY_LIST, nullptr, &entry, PTL_CT_NONE, 1),
            PTL_ARG_INVALID);
}

TEST_P(Triggered, EveryKindOfOperationCanBe) {
  const std::uint64_t one = 1;
  const std::uint64_t two = 2;
  std::memcpy(source, &one, 8);
  ASSERT_EQ(PtlTriggeredAtomic(md, 0, 8, PTL_CT_ACK_REQ, self(), table, 0, 0, nullptr, 0, PTL_SUM,
                               PTL_UINT64_T, trigger, 1),
            PTL_OK);
  ASSERT_EQ(PtlTriggeredFetchAtomic(to, 0, md, 0, 8, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_UINT64_T,
                                    trigger, 2),
            PTL_OK);
  ASSERT_EQ(PtlTriggeredSwap(to, 0, md, 0, 8, self(), table, 0, 0, nullptr, 0, &two, PTL_CSWAP, PTL_UINT64_T,
                             trigger, 3),
            PTL_OK);
  ASSERT_EQ(PtlTriggeredGet(to, 0, 8, self(), table, 0, 0, nullptr, trigger, 4), PTL_OK);
  const std::uint64_t in_memory[] = {1, 2, 1, 1};
  const std::uint64_t in_sink[] = {0, 1, 2, 1};
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(PtlCTInc(trigger, {1, 0}), PTL_OK);
    static_cast<void>(wait_for(done, static_cast<ptl_size_t>(i) + 1));
    EXPECT_EQ(std::memcmp(memory, &in_memory[i], 8), 0) << i;
    EXPECT_EQ(std::memcmp(sink, &in_sink[i], 8), 0) << i;
  }
}

TEST_P(Triggered, CountersTriggerCounters) {
  const ptl_handle_ct_t next_one = make_counter(ni);
  ASSERT_EQ(PtlTriggeredCTInc(next_one, {5, 0}, trigger, 1), PTL_OK);
  ASSERT_EQ(put(next_one, 5), PTL_OK);
  ASSERT_EQ(PtlTriggeredCTSet(trigger, {0, 0}, next_one, 5), PTL_OK);
  ASSERT_EQ(PtlCTSet(trigger, {1, 0}), PTL_OK);
  EXPECT_EQ(count_of(next_one).success, 5U);
  EXPECT_EQ(count_of(trigger).success, 0U);
  EXPECT_EQ(wait_for(done, 1).success, 1U);
}

TEST_P(Triggered, CancelledOnesDoNotBegin) {
  ASSERT_EQ(put(trigger, 1), PTL_OK);
  ASSERT_EQ(PtlCTCancelTriggered(trigger), PTL_OK);
  ASSERT_EQ(PtlCTInc(trigger, {1, 0}), PTL_OK);
  world.port->settle();
  EXPECT_EQ(count_of(done).success, 0U);
}

TEST_P(Triggered, AsManyWaitAsTheLimitSays) {
  for (int i = 0; i < 8; ++i) ASSERT_EQ(put(trigger, 1), PTL_OK);
  EXPECT_EQ(put(trigger, 1), PTL_NO_SPACE);
  EXPECT_EQ(PtlTriggeredCTInc(done, {1, 0}, trigger, 1), PTL_NO_SPACE);
  ASSERT_EQ(PtlCTCancelTriggered(trigger), PTL_OK);
  EXPECT_EQ(put(trigger, 1), PTL_OK);
}

TEST_P(Triggered, WrongCountersAreRefused) {
  const ptl_handle_ct_t foreign = make_counter(open_listing());
  const ptl_handle_ct_t stale = make_counter(ni);
  ASSERT_EQ(PtlCTFree(stale), PTL_OK);
  for (const ptl_handle_ct_t wrong : {foreign, stale, PTL_CT_NONE, PTL_INVALID_HANDLE, md}) {
    EXPECT_EQ(put(wrong, 0), PTL_ARG_INVALID);
    EXPECT_EQ(PtlTriggeredGet(to, 0, 8, self(), table, 0, 0, nullptr, wrong, 0), PTL_ARG_INVALID);
    EXPECT_EQ(
        PtlTriggeredAtomic(md, 0, 8, 0, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_UINT64_T, wrong, 0),
        PTL_ARG_INVALID);
    EXPECT_EQ(PtlTriggeredFetchAtomic(to, 0, md, 0, 8, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_UINT64_T,
                                      wrong, 0),
              PTL_ARG_INVALID);
    EXPECT_EQ(PtlTriggeredSwap(to, 0, md, 0, 8, self(), table, 0, 0, nullptr, 0, nullptr, PTL_SWAP,
                               PTL_UINT64_T, wrong, 0),
              PTL_ARG_INVALID);
    EXPECT_EQ(PtlTriggeredCTInc(done, {1, 0}, wrong, 0), PTL_ARG_INVALID);
    EXPECT_EQ(PtlTriggeredCTInc(wrong, {1, 0}, trigger, 0), PTL_ARG_INVALID);
    EXPECT_EQ(PtlTriggeredCTSet(done, {1, 0}, wrong, 0), PTL_ARG_INVALID);
    EXPECT_EQ(PtlTriggeredCTSet(wrong, {1, 0}, trigger, 0), PTL_ARG_INVALID);
  }
  world.port->settle();
  EXPECT_EQ(count_of(done).success, 0U);
}

TEST_P(Triggered, WrongRangesAreRefusedNow) {
  EXPECT_EQ(PtlTriggeredPut(md, 1, 8, 0, self(), table, 0, 0, nullptr, 0, trigger, 1), PTL_ARG_INVALID);
  EXPECT_EQ(PtlTriggeredGet(to, 1, 8, self(), table, 0, 0, nullptr, trigger, 1), PTL_ARG_INVALID);
}

}  // namespace
}  // namespace ch3_offload::portals
