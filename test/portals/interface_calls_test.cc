#include <sys/wait.h>
#include <unistd.h>

#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

PORTALS_TEST_SUITE(Interfaces);

constexpr unsigned int kMatchingPhysical = PTL_NI_MATCHING | PTL_NI_PHYSICAL;
constexpr unsigned int kMatchingLogical = PTL_NI_MATCHING | PTL_NI_LOGICAL;

TEST_P(Interfaces, EveryCallBeforeInitSaysSo) {
  PtlFini();
  ptl_handle_any_t handle = 0;
  ptl_handle_any_t out;
  ptl_process_t process{};
  ptl_size_t size;
  ptl_uid_t uid;
  ptl_sr_value_t value;
  ptl_pt_index_t index;
  ptl_event_t event;
  ptl_ct_event_t count{};
  unsigned int which;
  const ptl_size_t test = 0;
  EXPECT_EQ(PtlNIInit(0, kMatchingPhysical, PTL_PID_ANY, nullptr, nullptr, &out), PTL_NO_INIT);
  EXPECT_EQ(PtlNIFini(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlNIStatus(handle, PTL_SR_DROP_COUNT, &value), PTL_NO_INIT);
  EXPECT_EQ(PtlNIHandle(handle, &out), PTL_NO_INIT);
  EXPECT_EQ(PtlSetMap(handle, 1, &process), PTL_NO_INIT);
  EXPECT_EQ(PtlGetMap(handle, 1, &process, &size), PTL_NO_INIT);
  EXPECT_EQ(PtlGetUid(handle, &uid), PTL_NO_INIT);
  EXPECT_EQ(PtlGetId(handle, &process), PTL_NO_INIT);
  EXPECT_EQ(PtlGetPhysId(handle, &process), PTL_NO_INIT);
  EXPECT_EQ(PtlPTAlloc(handle, 0, PTL_EQ_NONE, PTL_PT_ANY, &index), PTL_NO_INIT);
  EXPECT_EQ(PtlPTFree(handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlPTDisable(handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlPTEnable(handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlMDBind(handle, nullptr, &out), PTL_NO_INIT);
  EXPECT_EQ(PtlMDRelease(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlLEAppend(handle, 0, nullptr, 0, nullptr, &out), PTL_NO_INIT);
  EXPECT_EQ(PtlLEUnlink(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlLESearch(handle, 0, nullptr, 0, nullptr), PTL_NO_INIT);
  EXPECT_EQ(PtlMEAppend(handle, 0, nullptr, 0, nullptr, &out), PTL_NO_INIT);
  EXPECT_EQ(PtlMEUnlink(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlMESearch(handle, 0, nullptr, 0, nullptr), PTL_NO_INIT);
  EXPECT_EQ(PtlCTAlloc(handle, &out), PTL_NO_INIT);
  EXPECT_EQ(PtlCTFree(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlCTCancelTriggered(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlCTGet(handle, &count), PTL_NO_INIT);
  EXPECT_EQ(PtlCTWait(handle, 0, &count), PTL_NO_INIT);
  EXPECT_EQ(PtlCTPoll(&handle, &test, 1, 0, &count, &which), PTL_NO_INIT);
  EXPECT_EQ(PtlCTSet(handle, count), PTL_NO_INIT);
  EXPECT_EQ(PtlCTInc(handle, count), PTL_NO_INIT);
  EXPECT_EQ(PtlEQAlloc(handle, 1, &out), PTL_NO_INIT);
  EXPECT_EQ(PtlEQFree(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlEQGet(handle, &event), PTL_NO_INIT);
  EXPECT_EQ(PtlEQWait(handle, &event), PTL_NO_INIT);
  EXPECT_EQ(PtlEQPoll(&handle, 1, 0, &event, &which), PTL_NO_INIT);
  EXPECT_EQ(PtlPut(handle, 0, 0, 0, process, 0, 0, 0, nullptr, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlGet(handle, 0, 0, process, 0, 0, 0, nullptr), PTL_NO_INIT);
  EXPECT_EQ(PtlAtomic(handle, 0, 0, 0, process, 0, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T), PTL_NO_INIT);
  EXPECT_EQ(PtlFetchAtomic(handle, 0, handle, 0, 0, process, 0, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T),
            PTL_NO_INIT);
  EXPECT_EQ(PtlSwap(handle, 0, handle, 0, 0, process, 0, 0, 0, nullptr, 0, nullptr, PTL_SWAP, PTL_INT8_T),
            PTL_NO_INIT);
  EXPECT_EQ(PtlAtomicSync(), PTL_NO_INIT);
  EXPECT_EQ(PtlTriggeredPut(handle, 0, 0, 0, process, 0, 0, 0, nullptr, 0, handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlTriggeredGet(handle, 0, 0, process, 0, 0, 0, nullptr, handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlTriggeredAtomic(handle, 0, 0, 0, process, 0, 0, 0, nullptr, 0, 0, 0, handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlTriggeredFetchAtomic(handle, 0, handle, 0, 0, process, 0, 0, 0, nullptr, 0, 0, 0, handle, 0),
            PTL_NO_INIT);
  EXPECT_EQ(PtlTriggeredSwap(handle, 0, handle, 0, 0, process, 0, 0, 0, nullptr, 0, nullptr, 0, 0, handle, 0),
            PTL_NO_INIT);
  EXPECT_EQ(PtlTriggeredCTInc(handle, count, handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlTriggeredCTSet(handle, count, handle, 0), PTL_NO_INIT);
  EXPECT_EQ(PtlStartBundle(handle), PTL_NO_INIT);
  EXPECT_EQ(PtlEndBundle(handle), PTL_NO_INIT);
}

TEST_P(Interfaces, InitIsCounted) {
  ASSERT_EQ(PtlInit(), PTL_OK);
  const ptl_handle_ni_t ni = open_matching();
  PtlFini();
  EXPECT_EQ(status_of(ni, PTL_SR_DROP_COUNT), 0);
  PtlFini();
  PtlFini();
  EXPECT_EQ(PtlNIFini(ni), PTL_NO_INIT);
}

TEST_P(Interfaces, AChildOfForkHasNone) {
  const ptl_handle_ni_t ni = open_matching();
  const pid_t child = fork();
  if (child == 0) {
    ptl_process_t id;
    const bool has_none = PtlGetPhysId(ni, &id) == PTL_NO_INIT && PtlInit() == PTL_FAIL;
    PtlFini();  // As a handler of exit() would.
    _exit(has_none ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(Interfaces, WrongOptionsAreRefused) {
  ptl_handle_ni_t ni = 42;
  for (const unsigned int options :
       {0U, PTL_NI_MATCHING, PTL_NI_LOGICAL, PTL_NI_MATCHING | PTL_NI_NO_MATCHING | PTL_NI_LOGICAL,
        PTL_NI_MATCHING | PTL_NI_LOGICAL | PTL_NI_PHYSICAL, kMatchingPhysical | 1U << 4})
    EXPECT_EQ(PtlNIInit(PTL_IFACE_DEFAULT, options, PTL_PID_ANY, nullptr, nullptr, &ni), PTL_ARG_INVALID);
  EXPECT_EQ(PtlNIInit(1, kMatchingPhysical, PTL_PID_ANY, nullptr, nullptr, &ni), PTL_ARG_INVALID);
  EXPECT_EQ(PtlNIInit(0, kMatchingPhysical, PTL_PID_ANY, nullptr, nullptr, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(ni, 42U);
  EXPECT_EQ(world.made, 0U);
}

TEST_P(Interfaces, ASecondInitReturnsTheSameHandle) {
  const ptl_handle_ni_t first = open_matching();
  ptl_ni_limits_t desired{};
  ptl_ni_limits_t actual{};
  ptl_handle_ni_t second;
  ASSERT_EQ(PtlNIInit(0, kMatchingPhysical, 5, &desired, &actual, &second), PTL_OK);
  EXPECT_TRUE(PtlHandleIsEqual(first, second));
  EXPECT_GT(actual.max_entries, 0);
  EXPECT_EQ(PtlNIFini(first), PTL_OK);
  EXPECT_EQ(status_of(first, PTL_SR_DROP_COUNT), 0);
  EXPECT_EQ(PtlNIFini(first), PTL_OK);
  EXPECT_EQ(PtlNIFini(first), PTL_ARG_INVALID);
}

TEST_P(Interfaces, FourKindsShareOneProcess) {
  const ptl_handle_ni_t handles[] = {open(kMatchingPhysical), open(kMatchingLogical),
                                     open(PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL),
                                     open(PTL_NI_NO_MATCHING | PTL_NI_LOGICAL)};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) EXPECT_EQ(PtlHandleIsEqual(handles[i], handles[j]), i == j ? 1 : 0);
  EXPECT_EQ(world.made, 1U);
  for (const ptl_handle_ni_t one : handles) {
    EXPECT_NE(world.port, nullptr);
    EXPECT_EQ(PtlNIFini(one), PTL_OK);
  }
  EXPECT_EQ(world.port, nullptr);
}

TEST_P(Interfaces, AReopenedInterfaceHasAnotherHandle) {
  const ptl_handle_ni_t first = open_matching();
  ASSERT_EQ(PtlNIFini(first), PTL_OK);
  const ptl_handle_ni_t second = open_matching();
  EXPECT_FALSE(PtlHandleIsEqual(first, second));
  EXPECT_EQ(PtlNIFini(first), PTL_ARG_INVALID);
}

TEST_P(Interfaces, ThePidIsTheProcesss) {
  ptl_handle_ni_t ni;
  ASSERT_EQ(PtlNIInit(0, kMatchingPhysical, 1234, nullptr, nullptr, &ni), PTL_OK);
  ptl_process_t id{};
  ASSERT_EQ(PtlGetId(ni, &id), PTL_OK);
  EXPECT_EQ(id.phys.nid, kNid);
  EXPECT_EQ(id.phys.pid, 1234U);
  ptl_handle_ni_t other;
  EXPECT_EQ(PtlNIInit(0, kMatchingLogical, 1235, nullptr, nullptr, &other), PTL_ARG_INVALID);
  EXPECT_EQ(PtlNIInit(0, kMatchingLogical, 1234, nullptr, nullptr, &other), PTL_OK);
}

TEST_P(Interfaces, FailuresOfTheProcessAreReported) {
  ptl_handle_ni_t ni;
  world.failure = Status::kAgain;
  EXPECT_EQ(PtlNIInit(0, kMatchingPhysical, 7, nullptr, nullptr, &ni), PTL_PID_IN_USE);
  world.failure = Status::kUnsupported;
  EXPECT_EQ(PtlNIInit(0, kMatchingPhysical, 7, nullptr, nullptr, &ni), PTL_ARG_INVALID);
  world.failure = Status::kNoMemory;
  EXPECT_EQ(PtlNIInit(0, kMatchingPhysical, 7, nullptr, nullptr, &ni), PTL_NO_SPACE);
  world.failure = Status::kDeviceFailed;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(PtlNIInit(0, kMatchingPhysical, 7, nullptr, nullptr, &ni), PTL_FAIL);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("as the test wants it"), std::string::npos);
  world.failure = Status::kOk;
  EXPECT_EQ(PtlNIInit(0, kMatchingPhysical, 7, nullptr, nullptr, &ni), PTL_OK);
}

TEST_P(Interfaces, LimitsAreTheLesserOfWantedAndPossible) {
  ptl_ni_limits_t desired{};
  desired.max_entries = 10;
  desired.max_unexpected_headers = INT32_MAX;
  desired.max_mds = -1;
  desired.max_pt_index = 64;
  desired.max_msg_size = PTL_SIZE_MAX;
  desired.max_atomic_size = 8;
  desired.max_triggered_ops = 1000;
  ptl_ni_limits_t actual{};
  ptl_handle_ni_t ni;
  ASSERT_EQ(PtlNIInit(0, kMatchingPhysical, PTL_PID_ANY, &desired, &actual, &ni), PTL_OK);
  EXPECT_EQ(actual.max_entries, 10);
  EXPECT_EQ(actual.max_unexpected_headers, 16'384);
  EXPECT_EQ(actual.max_mds, 0);
  EXPECT_EQ(actual.max_pt_index, 64);
  EXPECT_EQ(actual.max_msg_size, 1U << 20);
  EXPECT_EQ(actual.max_atomic_size, 8U);
  EXPECT_EQ(actual.max_fetch_atomic_size, 0U);
  EXPECT_EQ(actual.max_triggered_ops, 8);
  EXPECT_EQ(actual.features, PTL_TARGET_BIND_INACCESSIBLE | PTL_TOTAL_DATA_ORDERING | PTL_COHERENT_ATOMICS);
}

TEST_P(Interfaces, ATableHasTheSpecificationsLeastSize) {
  ptl_ni_limits_t desired{};
  ptl_ni_limits_t actual{};
  ptl_handle_ni_t ni;
  ASSERT_EQ(PtlNIInit(0, kMatchingPhysical, PTL_PID_ANY, &desired, &actual, &ni), PTL_OK);
  EXPECT_EQ(actual.max_pt_index, 63);
}

TEST_P(Interfaces, StatusRegistersCountFromZeroAfterReopening) {
  char byte = 0;
  for (int round = 0; round < 2; ++round) {
    const ptl_handle_ni_t ni = open_matching();
    EXPECT_EQ(status_of(ni, PTL_SR_DROP_COUNT), 0);
    const ptl_handle_md_t md = bind(ni, &byte, 1);
    ASSERT_EQ(PtlPut(md, 0, 1, PTL_NO_ACK_REQ, self(), 0, 0, 0, nullptr, 0), PTL_OK);
    world.port->settle();
    EXPECT_EQ(status_of(ni, PTL_SR_DROP_COUNT), 1);
    EXPECT_EQ(status_of(ni, PTL_SR_PERMISSION_VIOLATIONS), 0);
    EXPECT_EQ(status_of(ni, PTL_SR_OPERATION_VIOLATIONS), 0);
    ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  }
}

TEST_P(Interfaces, StatusRefusesWhatIsNoRegister) {
  const ptl_handle_ni_t ni = open_matching();
  ptl_sr_value_t value;
  EXPECT_EQ(PtlNIStatus(ni, static_cast<ptl_sr_index_t>(PTL_SR_LAST), &value), PTL_ARG_INVALID);
  EXPECT_EQ(PtlNIStatus(ni, PTL_SR_DROP_COUNT, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlNIStatus(ni + 1, PTL_SR_DROP_COUNT, &value), PTL_ARG_INVALID);
}

TEST_P(Interfaces, EveryObjectTellsItsInterface) {
  const ptl_handle_ni_t other = open(kMatchingLogical);
  const ptl_handle_ni_t ni = open_matching();
  char byte = 0;
  const ptl_handle_eq_t eq = make_queue(ni);
  const ptl_handle_ct_t ct = make_counter(ni);
  const ptl_handle_md_t md = bind(ni, &byte, 1);
  const ptl_pt_index_t table = make_table(ni, PTL_EQ_NONE);
  const ptl_me_t me = match_entry(&byte, 1);
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  for (const ptl_handle_any_t object : {ni, eq, ct, md, entry}) {
    ptl_handle_ni_t owner = other;
    EXPECT_EQ(PtlNIHandle(object, &owner), PTL_OK);
    EXPECT_TRUE(PtlHandleIsEqual(owner, ni));
    EXPECT_EQ(PtlNIHandle(object, nullptr), PTL_ARG_INVALID);
  }
  ptl_handle_ni_t owner;
  for (const ptl_handle_any_t none : {PTL_INVALID_HANDLE, PTL_EQ_NONE, PTL_CT_NONE, ptl_handle_any_t{0}})
    EXPECT_EQ(PtlNIHandle(none, &owner), PTL_ARG_INVALID);
  ASSERT_EQ(PtlEQFree(eq), PTL_OK);
  ASSERT_EQ(PtlCTFree(ct), PTL_OK);
  ASSERT_EQ(PtlMDRelease(md), PTL_OK);
  for (const ptl_handle_any_t gone : {eq, ct, md}) EXPECT_EQ(PtlNIHandle(gone, &owner), PTL_ARG_INVALID);
}

TEST_P(Interfaces, AMapNamesRanks) {
  const ptl_handle_ni_t ni = open(kMatchingLogical);
  ptl_process_t map[2];
  map[0].phys.nid = kNid;
  map[0].phys.pid = 1;
  map[1] = self();
  ptl_size_t size = 99;
  ptl_process_t id{};
  EXPECT_EQ(PtlGetMap(ni, 0, nullptr, &size), PTL_OK);
  EXPECT_EQ(size, 0U);
  EXPECT_EQ(PtlGetId(ni, &id), PTL_ARG_INVALID) << "there is no map";
  ASSERT_EQ(PtlSetMap(ni, 2, map), PTL_OK);
  ptl_process_t got[3] = {};
  ASSERT_EQ(PtlGetMap(ni, 3, got, &size), PTL_OK);
  EXPECT_EQ(size, 2U);
  EXPECT_EQ(std::memcmp(got, map, sizeof map), 0);
  got[1] = {};
  ASSERT_EQ(PtlGetMap(ni, 1, got, &size), PTL_OK);
  EXPECT_EQ(size, 2U);
  EXPECT_EQ(got[1].phys.nid, 0U);
  ASSERT_EQ(PtlGetId(ni, &id), PTL_OK);
  EXPECT_EQ(id.rank, 1U);
  ASSERT_EQ(PtlGetPhysId(ni, &id), PTL_OK);
  EXPECT_EQ(id.phys.nid, kNid);
  EXPECT_EQ(id.phys.pid, kPid);
  ASSERT_EQ(PtlSetMap(ni, 1, map), PTL_OK);
  EXPECT_EQ(PtlGetId(ni, &id), PTL_ARG_INVALID) << "the map does not have this process";
}

TEST_P(Interfaces, MapsAreOfLogicalInterfaces) {
  const ptl_handle_ni_t physical = open_matching();
  const ptl_handle_ni_t logical = open(kMatchingLogical);
  ptl_process_t map = self();
  ptl_size_t size;
  EXPECT_EQ(PtlSetMap(physical, 1, &map), PTL_ARG_INVALID);
  EXPECT_EQ(PtlGetMap(physical, 1, &map, &size), PTL_ARG_INVALID);
  EXPECT_EQ(PtlSetMap(logical, 0, &map), PTL_ARG_INVALID);
  EXPECT_EQ(PtlSetMap(logical, 1, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlSetMap(PTL_INVALID_HANDLE, 1, &map), PTL_ARG_INVALID);
  EXPECT_EQ(PtlGetMap(logical, 1, nullptr, &size), PTL_ARG_INVALID);
  EXPECT_EQ(PtlGetMap(logical, 1, &map, nullptr), PTL_ARG_INVALID);
}

TEST_P(Interfaces, IdentifiersNeedAPlaceToGo) {
  const ptl_handle_ni_t ni = open_matching();
  ptl_uid_t uid = 0;
  EXPECT_EQ(PtlGetUid(ni, &uid), PTL_OK);
  EXPECT_EQ(uid, kUid);
  EXPECT_EQ(PtlGetUid(ni, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlGetId(ni, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlGetPhysId(ni, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlGetUid(0, &uid), PTL_ARG_INVALID);
}

TEST_P(Interfaces, BundlesAreNested) {
  const ptl_handle_ni_t ni = open_matching();
  EXPECT_EQ(PtlEndBundle(ni), PTL_ARG_INVALID);
  EXPECT_EQ(PtlStartBundle(ni), PTL_OK);
  EXPECT_EQ(PtlStartBundle(ni), PTL_OK);
  EXPECT_EQ(PtlEndBundle(ni), PTL_OK);
  EXPECT_EQ(PtlEndBundle(ni), PTL_OK);
  EXPECT_EQ(PtlEndBundle(ni), PTL_ARG_INVALID);
  EXPECT_EQ(PtlStartBundle(PTL_INVALID_HANDLE), PTL_ARG_INVALID);
  EXPECT_EQ(PtlAtomicSync(), PTL_OK);
}

}  // namespace
}  // namespace ch3_offload::portals
