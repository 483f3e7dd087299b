// A process with libportals over the port of an engine, and what its tests want again and again.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "portals/portals4.h"
#include "portals/portals_process.h"
#include "portals/test_port.h"

namespace ch3_offload::portals {

inline constexpr ptl_nid_t kNid = 0x0A000001;
inline constexpr ptl_pid_t kPid = 77;
inline constexpr ptl_uid_t kUid = 1000;

/// What is below the library: an engine that needs calls, or one that works alone. kOther needs calls, too,
/// and sees the memory of this process as that of another one.
enum class Driver { kHost, kThread, kOther };

/// What make_portals_process() does.
struct World {
  Driver driver = Driver::kHost;
  Status failure = Status::kOk;  ///< Else it fails so.
  ProcessLimits limits;
  TestPort* port = nullptr;  ///< Of the process that lives. Null: none.
  unsigned made = 0;
};
extern World world;

class PortalsTest : public ::testing::TestWithParam<Driver> {
 protected:
  void SetUp() override;
  void TearDown() override;

  static ptl_handle_ni_t open(unsigned int options);
  static ptl_handle_ni_t open_matching() { return open(PTL_NI_MATCHING | PTL_NI_PHYSICAL); }
  static ptl_handle_ni_t open_listing() { return open(PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL); }
  static ptl_handle_eq_t make_queue(ptl_handle_ni_t ni, ptl_size_t events = 64);
  static ptl_handle_ct_t make_counter(ptl_handle_ni_t ni);
  static ptl_pt_index_t make_table(ptl_handle_ni_t ni, ptl_handle_eq_t eq, unsigned int options = 0);
  static ptl_handle_md_t bind(ptl_handle_ni_t ni, void* start, ptl_size_t length,
                              ptl_handle_eq_t eq = PTL_EQ_NONE, ptl_handle_ct_t ct = PTL_CT_NONE,
                              unsigned int options = 0);

  static ptl_process_t self();
  /// An entry for everybody, with puts and gets.
  static ptl_me_t match_entry(void* start, ptl_size_t length, unsigned int options = 0);
  static ptl_le_t list_entry(void* start, ptl_size_t length, unsigned int options = 0);

  /// The next event of a queue. Fails the test if none comes.
  static ptl_event_t next(ptl_handle_eq_t eq);
  static ptl_event_t next(ptl_handle_eq_t eq, ptl_event_kind_t type);
  /// Expects that none comes.
  static void expect_no_event(ptl_handle_eq_t eq);
  static ptl_ct_event_t count_of(ptl_handle_ct_t ct);
  /// Waits for so many successes and failures.
  static ptl_ct_event_t wait_for(ptl_handle_ct_t ct, ptl_size_t test);
  static int status_of(ptl_handle_ni_t ni, ptl_sr_index_t index);
};

/// Waits until `holds` returns true, at most 10 s.
template <class Holds>
bool eventually(Holds holds) {
  for (int i = 0; i < 10'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

inline std::string driver_name(const ::testing::TestParamInfo<Driver>& info) {
  const char* const names[] = {"Host", "Thread", "Other"};
  return names[static_cast<int>(info.param)];
}

/// Each test runs with each driver.
#define PORTALS_INSTANTIATE(Suite)         \
  INSTANTIATE_TEST_SUITE_P(Drivers, Suite, \
                           ::testing::Values(Driver::kHost, Driver::kThread, Driver::kOther), driver_name)
#define PORTALS_TEST_SUITE(Suite)      \
  class Suite : public PortalsTest {}; \
  PORTALS_INSTANTIATE(Suite)

}  // namespace ch3_offload::portals
