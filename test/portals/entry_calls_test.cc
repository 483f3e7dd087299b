#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

/// A table with a queue, and a descriptor to put from, on an interface with matching.
class Entries : public PortalsTest {
 protected:
  void SetUp() override {
    PortalsTest::SetUp();
    ni = open_matching();
    target = make_queue(ni);
    table = make_table(ni, target);
    md = bind(ni, source, sizeof source);
  }
  ptl_handle_me_t append(const ptl_me_t& me, ptl_list_t list = PTL_PRIORITY_LIST, void* user_ptr = nullptr) {
    ptl_handle_me_t entry = 0;
    EXPECT_EQ(PtlMEAppend(ni, table, &me, list, user_ptr, &entry), PTL_OK);
    return entry;
  }
  /// An entry of the overflow list, for all match bits.
  ptl_handle_me_t append_overflow(unsigned int options) {
    ptl_me_t me = match_entry(over, sizeof over, options);
    me.ignore_bits = ~ptl_match_bits_t{0};
    return append(me, PTL_OVERFLOW_LIST, &over);
  }
  void put(ptl_match_bits_t bits = 0, ptl_size_t length = 4, ptl_size_t offset = 0, ptl_hdr_data_t data = 0) {
    ASSERT_EQ(PtlPut(md, 0, length, PTL_NO_ACK_REQ, self(), table, bits, offset, nullptr, data), PTL_OK);
    world.port->settle();
  }

  char source[8] = {'1', '2', '3', '4', '5', '6', '7', '8'};
  char memory[64] = {};
  char over[64] = {};
  ptl_handle_ni_t ni{};
  ptl_handle_eq_t target{};
  ptl_handle_md_t md{};
  ptl_pt_index_t table{};
  int cookie = 0;
};
PORTALS_INSTANTIATE(Entries);

TEST_P(Entries, WrongArgumentsAreRefused) {
  const ptl_handle_ni_t listing = open_listing();
  const ptl_pt_index_t listing_table = make_table(listing, PTL_EQ_NONE);
  const ptl_handle_ct_t foreign = make_counter(listing);
  ptl_handle_me_t entry = 42;
  const auto refused = [&](const ptl_me_t& wrong) {
    return PtlMEAppend(ni, table, &wrong, PTL_PRIORITY_LIST, nullptr, &entry) == PTL_ARG_INVALID &&
           PtlMESearch(ni, table, &wrong, PTL_SEARCH_ONLY, nullptr) == PTL_ARG_INVALID;
  };
  const ptl_me_t me = match_entry(memory, 8);
  const ptl_le_t le = list_entry(memory, 8);
  EXPECT_EQ(PtlMEAppend(ni, table, nullptr, PTL_PRIORITY_LIST, nullptr, &entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMEAppend(ni, table, &me, 2, nullptr, &entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMEAppend(ni, table + 1, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMEAppend(target, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMEAppend(listing, listing_table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlLEAppend(ni, table, &le, PTL_PRIORITY_LIST, nullptr, &entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMESearch(ni, table, nullptr, PTL_SEARCH_ONLY, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMESearch(ni, table, &me, 2, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMESearch(ni, table + 1, &me, PTL_SEARCH_ONLY, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlLESearch(ni, table, &le, PTL_SEARCH_ONLY, nullptr), PTL_ARG_INVALID);
  ptl_me_t wrong = me;
  for (const ptl_handle_ct_t ct : {foreign, PTL_EQ_NONE, PTL_INVALID_HANDLE, target}) {
    wrong.ct_handle = ct;
    EXPECT_TRUE(refused(wrong));
  }
  wrong = me;
  for (unsigned int bit = 20; bit < 32; ++bit) {
    wrong.options = 1U << bit;
    EXPECT_TRUE(refused(wrong)) << bit;
  }
  wrong.options = PTL_IOVEC;
  wrong.start = nullptr;
  EXPECT_TRUE(refused(wrong));
  ptl_le_t list = le;
  for (unsigned int bit = 15; bit < 32; ++bit) {
    if (1U << bit == PTL_LE_ACK_DISABLE) continue;
    list.options = 1U << bit;
    EXPECT_EQ(PtlLEAppend(listing, listing_table, &list, PTL_PRIORITY_LIST, nullptr, &entry),
              PTL_ARG_INVALID);
    EXPECT_EQ(PtlLESearch(listing, listing_table, &list, PTL_SEARCH_ONLY, nullptr), PTL_ARG_INVALID);
  }
  EXPECT_EQ(entry, 42U);
}

TEST_P(Entries, UnlinkedOnesAreStale) {
  const ptl_handle_me_t entry = append(match_entry(memory, 8));
  EXPECT_EQ(PtlLEUnlink(entry), PTL_ARG_INVALID) << "it is a match list entry";
  EXPECT_EQ(PtlMEUnlink(entry), PTL_OK);
  EXPECT_EQ(PtlMEUnlink(entry), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMEUnlink(PTL_INVALID_HANDLE), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMEUnlink(ni), PTL_ARG_INVALID);
  const ptl_handle_me_t left = append(match_entry(memory, 8));
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  EXPECT_EQ(PtlMEUnlink(left), PTL_ARG_INVALID);
  ni = open_matching();
  table = make_table(ni, PTL_EQ_NONE);
  const ptl_handle_me_t fresh = append(match_entry(memory, 8));
  EXPECT_FALSE(PtlHandleIsEqual(left, fresh));
  EXPECT_EQ(PtlMEUnlink(left), PTL_ARG_INVALID) << "of the interface as it was opened before";
  EXPECT_EQ(PtlMEUnlink(fresh), PTL_OK);
}

TEST_P(Entries, LimitsAreReported) {
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  ptl_ni_limits_t desired{};
  desired.max_entries = 3;
  desired.max_list_size = 2;
  ASSERT_EQ(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, &desired, nullptr, &ni), PTL_OK);
  table = make_table(ni, PTL_EQ_NONE);
  const ptl_me_t me = match_entry(memory, 8);
  ptl_handle_me_t entry = 42;
  static_cast<void>(append(me));
  static_cast<void>(append(me));
  EXPECT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_LIST_TOO_LONG);
  static_cast<void>(append(me, PTL_OVERFLOW_LIST));
  EXPECT_EQ(PtlMEAppend(ni, table, &me, PTL_OVERFLOW_LIST, nullptr, &entry), PTL_NO_SPACE);
  EXPECT_EQ(entry, 42U);
}

TEST_P(Entries, ALinkEventNamesTheEntry) {
  static_cast<void>(append(match_entry(memory, 8), PTL_OVERFLOW_LIST, &cookie));
  const ptl_event_t event = next(target, PTL_EVENT_LINK);
  EXPECT_EQ(event.user_ptr, &cookie);
  EXPECT_EQ(event.pt_index, table);
  EXPECT_EQ(int{event.ptl_list}, PTL_OVERFLOW_LIST);
  EXPECT_EQ(int{event.ni_fail_type}, PTL_NI_OK);
  static_cast<void>(append(match_entry(memory, 8, PTL_ME_EVENT_LINK_DISABLE)));
  expect_no_event(target);
}

TEST_P(Entries, APutEventSaysAll) {
  ptl_me_t me = match_entry(memory, 6, PTL_ME_EVENT_LINK_DISABLE);
  me.match_bits = 0xAB00;
  me.ignore_bits = 0xFF;
  static_cast<void>(append(me, PTL_PRIORITY_LIST, &cookie));
  put(0xAB42, 8, 2, 0x1234567812345678);
  const ptl_event_t event = next(target, PTL_EVENT_PUT);
  EXPECT_EQ(event.start, memory + 2);
  EXPECT_EQ(event.user_ptr, &cookie);
  EXPECT_EQ(event.hdr_data, 0x1234567812345678U);
  EXPECT_EQ(event.match_bits, 0xAB42U);
  EXPECT_EQ(event.rlength, 8U);
  EXPECT_EQ(event.mlength, 4U);
  EXPECT_EQ(event.remote_offset, 2U);
  EXPECT_EQ(event.initiator.phys.nid, kNid);
  EXPECT_EQ(event.initiator.phys.pid, kPid);
  EXPECT_EQ(event.uid, kUid);
  EXPECT_EQ(event.pt_index, table);
  EXPECT_EQ(int{event.ptl_list}, PTL_PRIORITY_LIST);
  EXPECT_EQ(int{event.ni_fail_type}, PTL_NI_OK);
  EXPECT_EQ(std::string(memory + 2, 4), "1234");
}

TEST_P(Entries, MatchIdsMayBeAnyPart) {
  const auto takes = [&](ptl_nid_t nid, ptl_pid_t pid) {
    ptl_me_t me = match_entry(memory, 8, PTL_ME_EVENT_LINK_DISABLE);
    me.match_id.phys.nid = nid;
    me.match_id.phys.pid = pid;
    const ptl_handle_me_t entry = append(me);
    const int before = status_of(ni, PTL_SR_DROP_COUNT);
    put();
    const bool taken = status_of(ni, PTL_SR_DROP_COUNT) == before;
    if (taken) static_cast<void>(next(target, PTL_EVENT_PUT));
    EXPECT_EQ(PtlMEUnlink(entry), PTL_OK);
    return taken;
  };
  EXPECT_TRUE(takes(kNid, kPid));
  EXPECT_TRUE(takes(PTL_NID_ANY, kPid));
  EXPECT_TRUE(takes(kNid, PTL_PID_ANY));
  EXPECT_TRUE(takes(PTL_NID_ANY, PTL_PID_ANY));
  EXPECT_FALSE(takes(kNid + 1, PTL_PID_ANY));
  EXPECT_FALSE(takes(PTL_NID_ANY, kPid + 1));
}

TEST_P(Entries, UsedOnceIsUnlinkedWithAnEvent) {
  const ptl_handle_me_t entry =
      append(match_entry(memory, 8, PTL_ME_EVENT_LINK_DISABLE | PTL_ME_USE_ONCE), PTL_PRIORITY_LIST, &cookie);
  put();
  static_cast<void>(next(target, PTL_EVENT_PUT));
  const ptl_event_t event = next(target, PTL_EVENT_AUTO_UNLINK);
  EXPECT_EQ(event.user_ptr, &cookie);
  EXPECT_EQ(event.pt_index, table);
  EXPECT_EQ(PtlMEUnlink(entry), PTL_ARG_INVALID);
}

TEST_P(Entries, AnUnexpectedPutIsFoundByTheNextEntry) {
  static_cast<void>(append_overflow(PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE | PTL_ME_USE_ONCE));
  put(7, 4, 3, 99);
  EXPECT_EQ(next(target, PTL_EVENT_AUTO_UNLINK).user_ptr, &over);
  ptl_me_t me = match_entry(memory, 8, PTL_ME_USE_ONCE);
  me.match_bits = 7;
  EXPECT_EQ(append(me, PTL_PRIORITY_LIST, &cookie), PTL_INVALID_HANDLE) << "it never linked";
  const ptl_event_t event = next(target, PTL_EVENT_PUT_OVERFLOW);
  EXPECT_EQ(event.start, over + 3);
  EXPECT_EQ(event.user_ptr, &cookie);
  EXPECT_EQ(event.mlength, 4U);
  EXPECT_EQ(event.rlength, 4U);
  EXPECT_EQ(event.hdr_data, 99U);
  EXPECT_EQ(event.match_bits, 7U);
  EXPECT_EQ(int{event.ptl_list}, PTL_OVERFLOW_LIST);
  EXPECT_EQ(next(target, PTL_EVENT_AUTO_UNLINK).user_ptr, &cookie);
  const ptl_event_t free = next(target, PTL_EVENT_AUTO_FREE);
  EXPECT_EQ(free.user_ptr, &over);
  EXPECT_EQ(int{free.ptl_list}, PTL_OVERFLOW_LIST);
}

TEST_P(Entries, AnEntryWithUnexpectedHeadersIsInUse) {
  const ptl_handle_me_t entry = append(match_entry(over, sizeof over), PTL_OVERFLOW_LIST);
  put();
  EXPECT_EQ(PtlMEUnlink(entry), PTL_IN_USE);
  const ptl_me_t any = match_entry(nullptr, 0);
  ASSERT_EQ(PtlMESearch(ni, table, &any, PTL_SEARCH_DELETE, nullptr), PTL_OK);
  EXPECT_EQ(PtlMEUnlink(entry), PTL_OK);
}

TEST_P(Entries, ASearchTellsWhatItFinds) {
  static_cast<void>(append_overflow(PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE));
  put(5, 4, 0, 17);
  ptl_me_t me = match_entry(nullptr, 0, PTL_ME_USE_ONCE);
  me.match_bits = 6;
  ASSERT_EQ(PtlMESearch(ni, table, &me, PTL_SEARCH_ONLY, &cookie), PTL_OK);
  ptl_event_t event = next(target, PTL_EVENT_SEARCH);
  EXPECT_EQ(int{event.ni_fail_type}, PTL_NI_NO_MATCH);
  EXPECT_EQ(event.user_ptr, &cookie);
  EXPECT_EQ(event.pt_index, table);
  EXPECT_EQ(event.start, nullptr);
  me.match_bits = 5;
  ASSERT_EQ(PtlMESearch(ni, table, &me, PTL_SEARCH_ONLY, &cookie), PTL_OK);
  event = next(target, PTL_EVENT_SEARCH);
  EXPECT_EQ(int{event.ni_fail_type}, PTL_NI_OK);
  EXPECT_EQ(event.hdr_data, 17U);
  EXPECT_EQ(event.start, over);
  EXPECT_EQ(event.mlength, 4U);
  ASSERT_EQ(PtlMESearch(ni, table, &me, PTL_SEARCH_DELETE, &cookie), PTL_OK);
  event = next(target, PTL_EVENT_PUT_OVERFLOW);
  EXPECT_EQ(event.user_ptr, &cookie);
  EXPECT_EQ(event.hdr_data, 17U);
  ASSERT_EQ(PtlMESearch(ni, table, &me, PTL_SEARCH_DELETE, &cookie), PTL_OK);
  EXPECT_EQ(int{next(target).ni_fail_type}, PTL_NI_NO_MATCH);
}

TEST_P(Entries, LocallyManagedMemoryFillsUp) {
  ptl_me_t me = match_entry(memory, 10, PTL_ME_EVENT_LINK_DISABLE | PTL_ME_MANAGE_LOCAL);
  me.min_free = 4;
  static_cast<void>(append(me));
  put();
  EXPECT_EQ(next(target, PTL_EVENT_PUT).start, memory);
  put();
  EXPECT_EQ(next(target, PTL_EVENT_PUT).start, memory + 4);
  static_cast<void>(next(target, PTL_EVENT_AUTO_UNLINK));
}

TEST_P(Entries, WhatMustNotBeCutDoesNotMatch) {
  static_cast<void>(append(match_entry(memory, 2, PTL_ME_EVENT_LINK_DISABLE | PTL_ME_NO_TRUNCATE)));
  put(0, 4);
  EXPECT_EQ(status_of(ni, PTL_SR_DROP_COUNT), 1);
  put(0, 2);
  EXPECT_EQ(next(target, PTL_EVENT_PUT).mlength, 2U);
}

TEST_P(Entries, ViolationsAreCounted) {
  const ptl_handle_eq_t eq = make_queue(ni);
  const ptl_handle_md_t told = bind(ni, source, 8, eq, PTL_CT_NONE, PTL_MD_EVENT_SEND_DISABLE);
  ptl_me_t me = match_entry(memory, 8, PTL_ME_EVENT_LINK_DISABLE);
  me.uid = kUid + 1;
  const ptl_handle_me_t others = append(me);
  ASSERT_EQ(PtlPut(told, 0, 4, PTL_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_ACK).ni_fail_type}, PTL_NI_PERM_VIOLATION);
  EXPECT_EQ(status_of(ni, PTL_SR_PERMISSION_VIOLATIONS), 1);
  ASSERT_EQ(PtlMEUnlink(others), PTL_OK);
  me.uid = kUid;
  me.options &= ~PTL_ME_OP_PUT;
  static_cast<void>(append(me));
  ASSERT_EQ(PtlPut(told, 0, 4, PTL_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_ACK).ni_fail_type}, PTL_NI_OP_VIOLATION);
  EXPECT_EQ(status_of(ni, PTL_SR_OPERATION_VIOLATIONS), 1);
  EXPECT_EQ(status_of(ni, PTL_SR_DROP_COUNT), 0);
}

TEST_P(Entries, CountersCountWhatTheOptionsSay) {
  const ptl_handle_ct_t ct = make_counter(ni);
  ptl_me_t me = match_entry(memory, 8, PTL_ME_EVENT_CT_COMM);
  me.ct_handle = ct;
  const ptl_handle_me_t operations = append(me);
  put();
  EXPECT_EQ(count_of(ct).success, 1U);
  ASSERT_EQ(PtlMEUnlink(operations), PTL_OK);
  me.options |= PTL_ME_EVENT_CT_BYTES;
  static_cast<void>(append(me));
  put();
  EXPECT_EQ(count_of(ct).success, 5U);
}

TEST_P(Entries, ListEntriesIgnoreMatchBits) {
  const ptl_handle_ni_t listing = open_listing();
  const ptl_handle_eq_t eq = make_queue(listing);
  const ptl_pt_index_t index = make_table(listing, eq);
  const ptl_le_t le = list_entry(memory, 8, PTL_LE_EVENT_LINK_DISABLE);
  ptl_handle_le_t entry;
  ASSERT_EQ(PtlLEAppend(listing, index, &le, PTL_PRIORITY_LIST, &cookie, &entry), PTL_OK);
  const ptl_handle_md_t from = bind(listing, source, 8);
  ASSERT_EQ(PtlPut(from, 0, 8, PTL_NO_ACK_REQ, self(), index, 0x55, 0, nullptr, 3), PTL_OK);
  const ptl_event_t event = next(eq, PTL_EVENT_PUT);
  EXPECT_EQ(event.user_ptr, &cookie);
  EXPECT_EQ(event.hdr_data, 3U);
  EXPECT_EQ(event.match_bits, 0U);
  EXPECT_EQ(PtlMEUnlink(entry), PTL_ARG_INVALID) << "it is a list entry";
  ASSERT_EQ(PtlLESearch(listing, index, &le, PTL_SEARCH_ONLY, &cookie), PTL_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_SEARCH).ni_fail_type}, PTL_NI_NO_MATCH);
  EXPECT_EQ(PtlLEUnlink(entry), PTL_OK);
  EXPECT_EQ(PtlLEUnlink(entry), PTL_ARG_INVALID);
}

TEST_P(Entries, LogicalInterfacesMatchRanks) {
  const ptl_handle_ni_t logical = open(PTL_NI_MATCHING | PTL_NI_LOGICAL);
  const ptl_handle_eq_t eq = make_queue(logical);
  const ptl_pt_index_t index = make_table(logical, eq);
  ptl_process_t map[2] = {};
  map[1] = self();
  ASSERT_EQ(PtlSetMap(logical, 2, map), PTL_OK);
  const ptl_handle_md_t from = bind(logical, source, 8);
  ptl_process_t me_too{};
  me_too.rank = 1;
  for (const ptl_rank_t rank : {PTL_RANK_ANY, ptl_rank_t{1}, ptl_rank_t{0}}) {
    ptl_me_t me = match_entry(memory, 8, PTL_ME_EVENT_LINK_DISABLE);
    me.match_id.rank = rank;
    ptl_handle_me_t entry;
    ASSERT_EQ(PtlMEAppend(logical, index, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
    ASSERT_EQ(PtlPut(from, 0, 8, PTL_NO_ACK_REQ, me_too, index, 0, 0, nullptr, 0), PTL_OK);
    if (rank == 0) {
      world.port->settle();
      EXPECT_EQ(status_of(logical, PTL_SR_DROP_COUNT), 1);
    } else {
      EXPECT_EQ(next(eq, PTL_EVENT_PUT).initiator.rank, 1U);
    }
    ASSERT_EQ(PtlMEUnlink(entry), PTL_OK);
  }
}

}  // namespace
}  // namespace ch3_offload::portals
