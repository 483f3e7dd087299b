// Threads that wait: what ends their waiting, and that they sleep.

#include <atomic>
#include <thread>

#include "ch3_offload/call_driven.h"
#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

class Waiting : public PortalsTest {
 protected:
  void SetUp() override {
    PortalsTest::SetUp();
    ni = open_matching();
    eq = make_queue(ni);
    ct = make_counter(ni);
    table = make_table(ni, eq);
  }
  /// Another thread sleeps.
  static void await_sleep() {
    const unsigned before = world.port->armings();
    ASSERT_TRUE(eventually([before] { return world.port->is_armed() && world.port->armings() >= before; }));
  }
  /// So many other threads wait. Which of them sleep, nobody can see.
  void await_waiters(int count) {
    ASSERT_TRUE(eventually([this, count] { return started == count; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    await_sleep();
  }
  /// A LINK event.
  void tell() {
    const ptl_me_t me = match_entry(nullptr, 0);
    ptl_handle_me_t entry;
    ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  }

  /// Puts an 'x' to `memory`. It does not arrive before world.port->release().
  void put_held(void* memory) {
    const ptl_me_t me = match_entry(memory, 1, PTL_ME_EVENT_LINK_DISABLE);
    ptl_handle_me_t entry;
    ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
    world.port->settle();
    const ptl_handle_md_t md = bind(ni, &source, 1);
    world.port->hold();
    ASSERT_EQ(PtlPut(md, 0, 1, PTL_NO_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
  }

  char source = 'x';
  std::atomic<int> started{0};
  ptl_handle_ni_t ni{};
  ptl_handle_eq_t eq{};
  ptl_handle_ct_t ct{};
  ptl_pt_index_t table{};
};
PORTALS_INSTANTIATE(Waiting);

TEST_P(Waiting, AnEventEndsASleep) {
  int code = -1;
  ptl_event_t event{};
  std::thread waiter([&] { code = PtlEQWait(eq, &event); });
  await_sleep();
  tell();
  waiter.join();
  EXPECT_EQ(code, PTL_OK);
  EXPECT_EQ(int{event.type}, PTL_EVENT_LINK);
}

TEST_P(Waiting, ACountEndsASleep) {
  int code = -1;
  ptl_ct_event_t value{};
  std::thread waiter([&] { code = PtlCTWait(ct, 2, &value); });
  await_sleep();
  ASSERT_EQ(PtlCTInc(ct, {1, 0}), PTL_OK);
  ASSERT_EQ(PtlCTInc(ct, {1, 0}), PTL_OK);
  waiter.join();
  EXPECT_EQ(code, PTL_OK);
  EXPECT_EQ(value.success, 2U);
}

TEST_P(Waiting, AnArrivalEndsASleep) {
  char memory = 0;
  put_held(&memory);
  int code = -1;
  ptl_event_t event{};
  std::thread waiter([&] { code = PtlEQWait(eq, &event); });
  await_sleep();
  world.port->release();
  waiter.join();
  EXPECT_EQ(code, PTL_OK);
  EXPECT_EQ(int{event.type}, PTL_EVENT_PUT);
  EXPECT_EQ(memory, 'x');
}

TEST_P(Waiting, ATimeoutEndsASleep) {
  ptl_event_t event;
  unsigned int which;
  const unsigned before = world.port->armings();
  EXPECT_EQ(PtlEQPoll(&eq, 1, 200, &event, &which), PTL_EQ_EMPTY);
  EXPECT_GT(world.port->armings(), before) << "it slept";
  EXPECT_FALSE(world.port->is_armed());
  ptl_ct_event_t value;
  const ptl_size_t test = 1;
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, 50, &value, &which), PTL_CT_NONE_REACHED);
}

TEST_P(Waiting, FreeingTheQueueInterrupts) {
  int code = -1;
  ptl_event_t event;
  std::thread waiter([&] { code = PtlEQWait(eq, &event); });
  await_sleep();
  ASSERT_EQ(PtlEQFree(eq), PTL_OK);
  waiter.join();
  EXPECT_EQ(code, PTL_INTERRUPTED);
}

TEST_P(Waiting, FreeingOneOfSeveralQueuesInterrupts) {
  const ptl_handle_eq_t queues[] = {make_queue(ni), eq};
  int code = -1;
  ptl_event_t event;
  unsigned int which;
  std::thread waiter([&] { code = PtlEQPoll(queues, 2, PTL_TIME_FOREVER, &event, &which); });
  await_sleep();
  ASSERT_EQ(PtlEQFree(eq), PTL_OK);
  waiter.join();
  EXPECT_EQ(code, PTL_INTERRUPTED);
}

TEST_P(Waiting, FreeingTheCounterInterrupts) {
  int code = -1;
  ptl_ct_event_t value;
  std::thread waiter([&] { code = PtlCTWait(ct, 1, &value); });
  await_sleep();
  ASSERT_EQ(PtlCTFree(ct), PTL_OK);
  static_cast<void>(make_counter(ni));
  waiter.join();
  EXPECT_EQ(code, PTL_INTERRUPTED);
}

TEST_P(Waiting, ClosingTheInterfaceInterrupts) {
  int codes[2] = {-1, -1};
  ptl_event_t event;
  ptl_ct_event_t value;
  std::thread one([&] {
    ++started;
    codes[0] = PtlEQWait(eq, &event);
  });
  std::thread two([&] {
    ++started;
    codes[1] = PtlCTWait(ct, 1, &value);
  });
  await_waiters(2);
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  EXPECT_EQ(world.port, nullptr);
  one.join();
  two.join();
  EXPECT_EQ(codes[0], PTL_INTERRUPTED);
  EXPECT_EQ(codes[1], PTL_INTERRUPTED);
}

TEST_P(Waiting, TheLastFiniInterrupts) {
  int code = -1;
  ptl_event_t event;
  std::thread waiter([&] { code = PtlEQWait(eq, &event); });
  await_sleep();
  PtlFini();
  waiter.join();
  EXPECT_EQ(code, PTL_INTERRUPTED);
}

TEST_P(Waiting, AbortEndsAllWaitingNowAndLater) {
  int codes[4] = {-1, -1, -1, -1};
  ptl_event_t event[2];
  ptl_ct_event_t value[2];
  unsigned int which[2];
  const ptl_size_t test = 1;
  std::thread threads[] = {std::thread([&] {
                             ++started;
                             codes[0] = PtlEQWait(eq, &event[0]);
                           }),
                           std::thread([&] {
                             ++started;
                             codes[1] = PtlEQPoll(&eq, 1, PTL_TIME_FOREVER, &event[1], &which[0]);
                           }),
                           std::thread([&] {
                             ++started;
                             codes[2] = PtlCTWait(ct, 1, &value[0]);
                           }),
                           std::thread([&] {
                             ++started;
                             codes[3] = PtlCTPoll(&ct, &test, 1, PTL_TIME_FOREVER, &value[1], &which[1]);
                           })};
  await_waiters(4);
  PtlAbort();
  EXPECT_EQ(PtlEQFree(eq), PTL_OK);
  EXPECT_EQ(PtlCTFree(ct), PTL_OK);
  for (std::thread& thread : threads) thread.join();
  for (const int code : codes) EXPECT_EQ(code, PTL_ABORTED);
  eq = make_queue(ni);
  ct = make_counter(ni);
  EXPECT_EQ(PtlEQWait(eq, &event[0]), PTL_ABORTED);
  EXPECT_EQ(PtlEQPoll(&eq, 1, 0, &event[0], &which[0]), PTL_ABORTED);
  EXPECT_EQ(PtlCTWait(ct, 0, &value[0]), PTL_ABORTED);
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, 0, &value[0], &which[0]), PTL_ABORTED);
  EXPECT_EQ(PtlEQGet(eq, &event[0]), PTL_EQ_EMPTY) << "it does not wait";
  PtlFini();
  ASSERT_EQ(PtlInit(), PTL_OK);
  ni = open_matching();
  ct = make_counter(ni);
  EXPECT_EQ(PtlCTWait(ct, 0, &value[0]), PTL_OK) << "its effect has ended";
}

TEST_P(Waiting, WaitingForWhatIsFreedEndsWithTheAbort) {
  ptl_event_t event;
  ptl_ct_event_t value;
  unsigned int which;
  const ptl_size_t test = 1;
  PtlAbort();
  ASSERT_EQ(PtlEQFree(eq), PTL_OK);
  ASSERT_EQ(PtlCTFree(ct), PTL_OK);
  EXPECT_EQ(PtlEQWait(eq, &event), PTL_ABORTED);
  EXPECT_EQ(PtlEQPoll(&eq, 1, PTL_TIME_FOREVER, &event, &which), PTL_ABORTED);
  EXPECT_EQ(PtlCTWait(ct, test, &value), PTL_ABORTED);
  EXPECT_EQ(PtlCTPoll(&ct, &test, 1, PTL_TIME_FOREVER, &value, &which), PTL_ABORTED);
}

TEST_P(Waiting, AbortBeforeInitHasNoEffect) {
  PtlFini();
  PtlAbort();
  ASSERT_EQ(PtlInit(), PTL_OK);
  ct = make_counter(open_matching());
  ptl_ct_event_t value;
  EXPECT_EQ(PtlCTWait(ct, 0, &value), PTL_OK);
}

TEST_P(Waiting, EachEventIsTakenOnceByManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kEvents = 200;
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ptl_event_t event;
      // Who is between two waits when the queue is freed finds that there is none.
      while (PtlEQWait(eq, &event) == PTL_OK) ++taken;
    });
  }
  for (int i = 0; i < kEvents; ++i) {
    tell();
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    // The queue has 64 places.
    ASSERT_TRUE(eventually([&] { return taken >= i - 32; }));
  }
  EXPECT_TRUE(eventually([&] { return taken == kEvents; }));
  ASSERT_EQ(PtlEQFree(eq), PTL_OK);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, kEvents);
}

TEST_P(Waiting, CountersAreReadWhileOthersAreFreed) {
  std::atomic<bool> ends{false};
  std::atomic<ptl_handle_ct_t> shared{ct};
  std::thread reader([&] {
    while (!ends) {
      ptl_ct_event_t value{};
      const int code = PtlCTGet(shared, &value);
      if (code == PTL_OK) {
        EXPECT_EQ(value.failure, 0U);
      } else {
        EXPECT_EQ(code, PTL_ARG_INVALID);
      }
    }
  });
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(PtlCTInc(shared, {1, 0}), PTL_OK);
    ASSERT_EQ(PtlCTFree(shared), PTL_OK);
    shared = make_counter(ni);
  }
  ends = true;
  reader.join();
}

TEST_P(Waiting, ManyThreadsMoveDataAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kPuts = 100;
  const ptl_pt_index_t index = make_table(ni, PTL_EQ_NONE);
  char memory[kThreads] = {};
  const ptl_me_t me = match_entry(memory, sizeof memory);
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, index, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      char source = static_cast<char>('a' + i);
      const ptl_handle_ct_t done = make_counter(ni);
      const ptl_handle_md_t md = bind(ni, &source, 1, PTL_EQ_NONE, done, PTL_MD_EVENT_CT_ACK);
      for (ptl_size_t put = 1; put <= kPuts; ++put) {
        EXPECT_EQ(PtlPut(md, 0, 1, PTL_CT_ACK_REQ, self(), index, 0, static_cast<ptl_size_t>(i), nullptr, 0),
                  PTL_OK);
        ptl_ct_event_t value{};
        EXPECT_EQ(PtlCTWait(done, put, &value), PTL_OK);
        EXPECT_EQ(value.failure, 0U);
      }
      EXPECT_EQ(PtlMDRelease(md), PTL_OK);
      EXPECT_EQ(PtlCTFree(done), PTL_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::string(memory, kThreads), "abcd");
}

TEST_P(Waiting, APortThatWorksAloneNeedsNoCallsOfMpi) {
  const bool works_alone = GetParam() == Driver::kThread;
  EXPECT_EQ(call_driven() == nullptr, works_alone);
}

/// What MPI's calls do where the port needs calls, in a process that has MPI, too.
class BesideMpi : public Waiting {
 protected:
  void SetUp() override {
    Waiting::SetUp();
    library = call_driven();
    ASSERT_NE(library, nullptr);
  }
  bool begin_sleep() {
    set.clear();
    return library->begin_sleep(set);
  }
  bool is_rung() { return set.sleep(0); }

  CallDriven* library = nullptr;
  SleepSet set;
};
INSTANTIATE_TEST_SUITE_P(Drivers, BesideMpi, ::testing::Values(Driver::kHost, Driver::kOther), driver_name);

TEST_P(BesideMpi, ItsCallsMoveThePort) {
  std::atomic<char> memory = 0;
  put_held(&memory);
  world.port->release();
  EXPECT_TRUE(eventually([&] {
    library->work_for_other();
    return memory == 'x';
  }));
}

TEST_P(BesideMpi, ItsSleepEndsForWhatPortalsWaitsFor) {
  world.port->settle();
  ASSERT_TRUE(begin_sleep());
  EXPECT_TRUE(world.port->is_armed());
  EXPECT_FALSE(is_rung());
  tell();
  EXPECT_TRUE(is_rung());
  library->end_sleep();
  EXPECT_FALSE(world.port->is_armed());
}

/// Two sleepers: the thread in MPI and one in Portals. Each may leave first.
TEST_P(BesideMpi, ItsSleepIsOneOfSeveral) {
  for (const bool portals_leaves_first : {false, true}) {
    world.port->settle();
    ASSERT_TRUE(begin_sleep());
    ptl_event_t event{};
    std::thread waiter([&] { EXPECT_EQ(PtlEQWait(eq, &event), PTL_OK); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (!portals_leaves_first) library->end_sleep();
    tell();
    waiter.join();
    if (portals_leaves_first) {
      EXPECT_TRUE(world.port->is_armed());
      library->end_sleep();
    }
    EXPECT_FALSE(world.port->is_armed());
  }
}

TEST_P(BesideMpi, ItDoesNotSleepWhereThePortHasWork) {
  char memory = 0;
  put_held(&memory);
  world.port->release();
  while (memory == 0) {
    ASSERT_FALSE(begin_sleep());
    ASSERT_FALSE(world.port->is_armed());
    library->work_for_other();
  }
}

TEST_P(BesideMpi, TheLastInterfaceWaitsForItsSleep) {
  world.port->settle();
  ASSERT_TRUE(begin_sleep());
  std::atomic<bool> is_closed{false};
  std::thread closer([&] {
    EXPECT_EQ(PtlNIFini(ni), PTL_OK);
    is_closed = true;
  });
  ASSERT_TRUE(eventually([&] { return is_rung(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_closed);
  library->end_sleep();
  closer.join();
  EXPECT_EQ(call_driven(), nullptr);
  EXPECT_EQ(library->work_for_other(), 0U);
  EXPECT_FALSE(begin_sleep());
}

TEST_P(BesideMpi, ItHearsOfEachProcess) {
  class Mover final : public MovesCallDriven {
   public:
    void call_driven_came() noexcept override { ++heard; }
    int heard = 0;
  } mover;
  add_mover(mover);
  EXPECT_EQ(mover.heard, 1);  // It was there.
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  ni = open_matching();
  EXPECT_EQ(mover.heard, 2);
  static_cast<void>(open_listing());
  EXPECT_EQ(mover.heard, 2) << "the same process";
  remove_mover(mover);
  PtlFini();
  ASSERT_EQ(PtlInit(), PTL_OK);
  ni = open_matching();
  EXPECT_EQ(mover.heard, 2);
}

}  // namespace
}  // namespace ch3_offload::portals
