// Handles that nobody was given: of every kind and interface, near the real ones and far from them. Each call
// refuses them, and nothing is changed.

#include "portals/handle.h"
#include "portals/portals_world.h"
#include "rdma/seeded_random.h"

namespace ch3_offload::portals {
namespace {

PORTALS_TEST_SUITE(HostileHandles);

struct Objects {
  ptl_handle_ni_t ni;
  ptl_handle_eq_t eq;
  ptl_handle_ct_t ct;
  ptl_handle_md_t md;
  ptl_handle_me_t me;

  bool has(ptl_handle_any_t handle) const {
    return handle == ni || handle == eq || handle == ct || handle == md || handle == me;
  }
};

ptl_handle_any_t invent(SeededRandom& random, const Objects& real) {
  const ptl_handle_any_t handles[] = {real.ni, real.eq, real.ct, real.md, real.me};
  ptl_handle_any_t handle = handles[random.below(std::size(handles))];
  // A real one with one to three flipped bits.
  for (std::uint64_t flips = 1 + random.below(3); flips > 0; --flips)
    handle ^= ptl_handle_any_t{1} << random.below(64);
  return handle;
}

TEST_P(HostileHandles, AreRefusedByEveryCall) {
  const ptl_handle_ni_t ni = open_matching();
  static_cast<void>(open_listing());
  char byte = 0;
  const ptl_pt_index_t table = make_table(ni, PTL_EQ_NONE);
  Objects real{ni, make_queue(ni), make_counter(ni), bind(ni, &byte, 1), 0};
  const ptl_me_t me = match_entry(&byte, 1);
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &real.me), PTL_OK);
  SeededRandom random(1);
  const ptl_size_t test = 0;
  ptl_event_t event;
  ptl_ct_event_t count{};
  ptl_handle_any_t out;
  ptl_pt_index_t index;
  unsigned int which;
  for (int i = 0; i < 20'000; ++i) {
    const ptl_handle_any_t handle = invent(random, real);
    if (real.has(handle) || handle == PTL_EQ_NONE || handle == PTL_CT_NONE) continue;
    // The second interface is real, too.
    ptl_handle_ni_t owner;
    if (kind_of(handle) == HandleKind::kInterface && PtlNIHandle(handle, &owner) == PTL_OK) continue;
    SCOPED_TRACE(handle);
    ASSERT_EQ(PtlNIFini(handle), PTL_ARG_INVALID);
    ASSERT_EQ(PtlPTAlloc(handle, 0, PTL_EQ_NONE, PTL_PT_ANY, &index), PTL_ARG_INVALID);
    ASSERT_EQ(PtlPTAlloc(ni, 0, handle, PTL_PT_ANY, &index), PTL_ARG_INVALID);
    ASSERT_EQ(PtlMDRelease(handle), PTL_ARG_INVALID);
    ASSERT_EQ(PtlMEUnlink(handle), PTL_ARG_INVALID);
    ASSERT_EQ(PtlLEUnlink(handle), PTL_ARG_INVALID);
    ASSERT_EQ(PtlEQFree(handle), PTL_ARG_INVALID);
    ASSERT_EQ(PtlEQGet(handle, &event), PTL_ARG_INVALID);
    ASSERT_EQ(PtlEQPoll(&handle, 1, 0, &event, &which), PTL_ARG_INVALID);
    ASSERT_EQ(PtlCTFree(handle), PTL_ARG_INVALID);
    ASSERT_EQ(PtlCTGet(handle, &count), PTL_ARG_INVALID);
    ASSERT_EQ(PtlCTPoll(&handle, &test, 1, 0, &count, &which), PTL_ARG_INVALID);
    ASSERT_EQ(PtlCTInc(handle, {1, 0}), PTL_ARG_INVALID);
    ASSERT_EQ(PtlCTAlloc(handle, &out), PTL_ARG_INVALID);
    ASSERT_EQ(PtlPut(handle, 0, 1, 0, self(), table, 0, 0, nullptr, 0), PTL_ARG_INVALID);
    ASSERT_EQ(PtlTriggeredCTInc(real.ct, {1, 0}, handle, 0), PTL_ARG_INVALID);
    const ptl_md_t md{&byte, 1, 0, PTL_EQ_NONE, handle};
    ASSERT_EQ(PtlMDBind(ni, &md, &out), PTL_ARG_INVALID);
  }
  EXPECT_EQ(count_of(real.ct).success, 0U);
  EXPECT_EQ(PtlMEUnlink(real.me), PTL_OK);
  EXPECT_EQ(PtlMDRelease(real.md), PTL_OK);
  EXPECT_EQ(PtlCTFree(real.ct), PTL_OK);
  EXPECT_EQ(PtlEQFree(real.eq), PTL_OK);
}

}  // namespace
}  // namespace ch3_offload::portals
