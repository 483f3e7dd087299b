#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

PORTALS_TEST_SUITE(Queues);

/// A LINK event with that user pointer.
void tell(ptl_handle_ni_t ni, ptl_pt_index_t table, void* user_ptr) {
  ptl_me_t me{};
  me.ct_handle = PTL_CT_NONE;
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, user_ptr, &entry), PTL_OK);
}

TEST_P(Queues, WrongArgumentsAreRefused) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_ni_t other = open_listing();
  const ptl_handle_eq_t eq = make_queue(ni);
  const ptl_handle_eq_t foreign = make_queue(other);
  ptl_event_t event;
  unsigned int which;
  EXPECT_EQ(PtlEQAlloc(ni, 1, nullptr), PTL_ARG_INVALID);
  ptl_handle_eq_t made = 42;
  EXPECT_EQ(PtlEQAlloc(eq, 1, &made), PTL_ARG_INVALID);
  EXPECT_EQ(PtlEQAlloc(ni, PTL_SIZE_MAX, &made), PTL_NO_SPACE);
  EXPECT_EQ(made, 42U);
  EXPECT_EQ(PtlEQGet(eq, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlEQWait(eq, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlEQPoll(nullptr, 1, 0, &event, &which), PTL_ARG_INVALID);
  EXPECT_EQ(PtlEQPoll(&eq, 0, 0, &event, &which), PTL_ARG_INVALID);
  EXPECT_EQ(PtlEQPoll(&eq, 1, 0, nullptr, &which), PTL_ARG_INVALID);
  EXPECT_EQ(PtlEQPoll(&eq, 1, 0, &event, nullptr), PTL_ARG_INVALID);
  const ptl_handle_eq_t mixed[] = {eq, foreign};
  EXPECT_EQ(PtlEQPoll(mixed, 2, 0, &event, &which), PTL_ARG_INVALID);
  for (const ptl_handle_any_t none : {PTL_EQ_NONE, PTL_INVALID_HANDLE, ni, ptl_handle_any_t{0}}) {
    EXPECT_EQ(PtlEQFree(none), PTL_ARG_INVALID);
    EXPECT_EQ(PtlEQGet(none, &event), PTL_ARG_INVALID);
    EXPECT_EQ(PtlEQWait(none, &event), PTL_ARG_INVALID);
    EXPECT_EQ(PtlEQPoll(&none, 1, 0, &event, &which), PTL_ARG_INVALID);
  }
}

TEST_P(Queues, FreedOnesAreStale) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t eq = make_queue(ni);
  ptl_event_t event;
  ASSERT_EQ(PtlEQFree(eq), PTL_OK);
  EXPECT_EQ(PtlEQFree(eq), PTL_ARG_INVALID);
  EXPECT_EQ(PtlEQGet(eq, &event), PTL_ARG_INVALID);
  const ptl_handle_eq_t left = make_queue(ni);
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  EXPECT_EQ(PtlEQGet(left, &event), PTL_ARG_INVALID);
  static_cast<void>(make_queue(open_matching()));
  EXPECT_EQ(PtlEQGet(left, &event), PTL_ARG_INVALID);
}

TEST_P(Queues, ThereAreAsManyAsTheLimitSays) {
  ptl_ni_limits_t desired{};
  desired.max_eqs = 1;
  ptl_handle_ni_t ni;
  ASSERT_EQ(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, &desired, nullptr, &ni), PTL_OK);
  const ptl_handle_eq_t eq = make_queue(ni);
  ptl_handle_eq_t more;
  EXPECT_EQ(PtlEQAlloc(ni, 1, &more), PTL_NO_SPACE);
  ASSERT_EQ(PtlEQFree(eq), PTL_OK);
  EXPECT_EQ(PtlEQAlloc(ni, 1, &more), PTL_OK);
}

TEST_P(Queues, EventsComeInOrder) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t eq = make_queue(ni);
  const ptl_pt_index_t table = make_table(ni, eq);
  int cookies[10];
  for (int& cookie : cookies) tell(ni, table, &cookie);
  for (int& cookie : cookies) EXPECT_EQ(next(eq, PTL_EVENT_LINK).user_ptr, &cookie);
  expect_no_event(eq);
}

TEST_P(Queues, LostEventsAreReportedOnce) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t eq = make_queue(ni, 2);
  const ptl_pt_index_t table = make_table(ni, eq);
  int cookies[1000];
  for (int& cookie : cookies) tell(ni, table, &cookie);
  int taken = 0;
  ptl_event_t event;
  while (PtlEQGet(eq, &event) == PTL_OK) EXPECT_EQ(event.user_ptr, &cookies[taken++]);
  EXPECT_GE(taken, 2);
  EXPECT_LT(taken, 1000);
  unsigned int which;
  tell(ni, table, &taken);
  EXPECT_EQ(PtlEQPoll(&eq, 1, 10'000, &event, &which), PTL_EQ_DROPPED);
  EXPECT_EQ(event.user_ptr, &taken);
  tell(ni, table, &taken);
  EXPECT_EQ(PtlEQGet(eq, &event), PTL_OK);
}

TEST_P(Queues, APollTellsWhichQueue) {
  const ptl_handle_ni_t ni = open_matching();
  std::vector<ptl_handle_eq_t> queues;
  std::vector<ptl_pt_index_t> tables;
  for (int i = 0; i < 9; ++i) {
    queues.push_back(make_queue(ni));
    tables.push_back(make_table(ni, queues.back()));
  }
  for (unsigned int size : {9U, 3U}) {
    for (unsigned int i = 0; i < size; ++i) {
      tell(ni, tables[i], &tables[i]);
      ptl_event_t event;
      unsigned int which = 99;
      EXPECT_EQ(PtlEQPoll(queues.data(), size, 10'000, &event, &which), PTL_OK);
      EXPECT_EQ(which, i);
      EXPECT_EQ(event.user_ptr, &tables[i]);
    }
  }
}

TEST_P(Queues, NoQueueIsAlwaysTheLastOne) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t queues[] = {make_queue(ni), make_queue(ni)};
  int found[2] = {};
  for (const ptl_handle_eq_t eq : queues) {
    const ptl_pt_index_t table = make_table(ni, eq);
    for (int i = 0; i < 20; ++i) tell(ni, table, nullptr);
  }
  for (int i = 0; i < 10; ++i) {
    world.port->settle();
    ptl_event_t event;
    unsigned int which = 0;
    ASSERT_EQ(PtlEQPoll(queues, 2, 0, &event, &which), PTL_OK);
    ++found[which];
  }
  EXPECT_GT(found[0], 0);
  EXPECT_GT(found[1], 0);
}

TEST_P(Queues, ATimeoutEndsAPoll) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_eq_t eq = make_queue(ni);
  ptl_event_t event;
  unsigned int which;
  EXPECT_EQ(PtlEQPoll(&eq, 1, 0, &event, &which), PTL_EQ_EMPTY);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(PtlEQPoll(&eq, 1, 50, &event, &which), PTL_EQ_EMPTY);
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_GE(took, std::chrono::milliseconds(50));
  EXPECT_LT(took, std::chrono::seconds(5));
  EXPECT_EQ(PtlEQGet(eq, &event), PTL_EQ_EMPTY);
}

}  // namespace
}  // namespace ch3_offload::portals
