#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

PORTALS_TEST_SUITE(CountingEventCalls);

TEST_P(CountingEventCalls, WrongArgumentsAreRefused) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_ct_t ct = make_counter(ni);
  ptl_ct_event_t value{};
  unsigned int which;
  const ptl_size_t test = 0;
  EXPECT_EQ(PtlCTAlloc(ni, nullptr), PTL_ARG_INVALID);
  ptl_handle_ct_t made = 42;
  EXPECT_EQ(PtlCTAlloc(ct, &made), PTL_ARG_INVALID);
  EXPECT_EQ(made, 42U);
  EXPECT_EQ(PtlCTGet(ct, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlCTWait(ct, 0, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlCTPoll(nullptr, &test, 1, 0, &value, &which), PTL_ARG_INVALID);
  EXPECT_EQ(PtlCTPoll(&ct, nullptr, 1, 0, &value, &which), PTL_ARG_INVALID);
  EXPECT_EQ(PtlCTPoll(&ct, &test, 0, 0, &value, &which), PTL_ARG_INVALID);
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, 0, nullptr, &which), PTL_ARG_INVALID);
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, 0, &value, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlCTInc(ct, {1, 1}), PTL_ARG_INVALID);
  EXPECT_EQ(PtlTriggeredCTInc(ct, {1, 1}, ct, 0), PTL_ARG_INVALID);
  const ptl_handle_ct_t foreign = make_counter(open_listing());
  const ptl_handle_ct_t mixed[] = {ct, foreign};
  const ptl_size_t tests[] = {1, 1};
  EXPECT_EQ(PtlCTPoll(mixed, tests, 2, 0, &value, &which), PTL_ARG_INVALID);
  for (const ptl_handle_any_t none : {PTL_CT_NONE, PTL_INVALID_HANDLE, ni, ptl_handle_any_t{0}}) {
    EXPECT_EQ(PtlCTFree(none), PTL_ARG_INVALID);
    EXPECT_EQ(PtlCTCancelTriggered(none), PTL_ARG_INVALID);
    EXPECT_EQ(PtlCTGet(none, &value), PTL_ARG_INVALID);
    EXPECT_EQ(PtlCTWait(none, 0, &value), PTL_ARG_INVALID);
    EXPECT_EQ(PtlCTPoll(&none, &test, 1, 0, &value, &which), PTL_ARG_INVALID);
    EXPECT_EQ(PtlCTSet(none, value), PTL_ARG_INVALID);
    EXPECT_EQ(PtlCTInc(none, value), PTL_ARG_INVALID);
  }
  EXPECT_EQ(count_of(ct).success, 0U);
}

TEST_P(CountingEventCalls, SetAndIncChangeIt) {
  const ptl_handle_ct_t ct = make_counter(open_matching());
  ASSERT_EQ(PtlCTSet(ct, {5, 2}), PTL_OK);
  ASSERT_EQ(PtlCTInc(ct, {3, 0}), PTL_OK);
  ASSERT_EQ(PtlCTInc(ct, {0, 4}), PTL_OK);
  EXPECT_EQ(count_of(ct).success, 8U);
  EXPECT_EQ(count_of(ct).failure, 6U);
}

TEST_P(CountingEventCalls, FreedOnesAreStaleAndFreshOnesBeginAtZero) {
  const ptl_handle_ni_t ni = open_matching();
  ptl_handle_ct_t ct = make_counter(ni);
  ptl_ct_event_t value;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(PtlCTSet(ct, {9, 9}), PTL_OK);
    ASSERT_EQ(PtlCTFree(ct), PTL_OK);
    EXPECT_EQ(PtlCTFree(ct), PTL_ARG_INVALID);
    EXPECT_EQ(PtlCTGet(ct, &value), PTL_ARG_INVALID);
    const ptl_handle_ct_t fresh = make_counter(ni);
    EXPECT_FALSE(PtlHandleIsEqual(ct, fresh));
    EXPECT_EQ(PtlCTGet(ct, &value), PTL_ARG_INVALID);
    EXPECT_EQ(count_of(fresh).success, 0U);
    EXPECT_EQ(count_of(fresh).failure, 0U);
    ct = fresh;
  }
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  EXPECT_EQ(PtlCTGet(ct, &value), PTL_ARG_INVALID);
  static_cast<void>(make_counter(open_matching()));
  EXPECT_EQ(PtlCTGet(ct, &value), PTL_ARG_INVALID);
}

TEST_P(CountingEventCalls, ThereAreAsManyAsTheLimitSays) {
  ptl_ni_limits_t actual{};
  ptl_handle_ni_t ni;
  ASSERT_EQ(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, nullptr, &actual, &ni), PTL_OK);
  ptl_handle_ct_t ct = 0;
  for (int i = 0; i < actual.max_cts; ++i) ASSERT_EQ(PtlCTAlloc(ni, &ct), PTL_OK);
  ptl_handle_ct_t more;
  EXPECT_EQ(PtlCTAlloc(ni, &more), PTL_NO_SPACE);
  ASSERT_EQ(PtlCTFree(ct), PTL_OK);
  EXPECT_EQ(PtlCTAlloc(ni, &more), PTL_OK);
}

TEST_P(CountingEventCalls, AWaitEndsAtTheSumOfSuccessesAndFailures) {
  const ptl_handle_ct_t ct = make_counter(open_matching());
  ASSERT_EQ(PtlCTSet(ct, {3, 2}), PTL_OK);
  ptl_ct_event_t value{};
  EXPECT_EQ(PtlCTWait(ct, 5, &value), PTL_OK);
  EXPECT_EQ(value.success, 3U);
  EXPECT_EQ(value.failure, 2U);
  unsigned int which;
  ptl_size_t test = 6;
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, 20, &value, &which), PTL_CT_NONE_REACHED);
  ASSERT_EQ(PtlCTSet(ct, {PTL_SIZE_MAX, 2}), PTL_OK);
  test = PTL_SIZE_MAX;
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, 0, &value, &which), PTL_OK) << "the sum does not fit";
}

TEST_P(CountingEventCalls, APollTellsWhichOne) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_ct_t cts[] = {make_counter(ni), make_counter(ni), make_counter(ni)};
  const ptl_size_t tests[] = {1, 2, 3};
  ptl_ct_event_t value{};
  unsigned int which = 99;
  EXPECT_EQ(PtlCTPoll(cts, tests, 3, 0, &value, &which), PTL_CT_NONE_REACHED);
  ASSERT_EQ(PtlCTSet(cts[1], {2, 0}), PTL_OK);
  EXPECT_EQ(PtlCTPoll(cts, tests, 3, 10'000, &value, &which), PTL_OK);
  EXPECT_EQ(which, 1U);
  EXPECT_EQ(value.success, 2U);
}

}  // namespace
}  // namespace ch3_offload::portals
