#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

/// An entry over `memory`, and descriptors over `source` and `sink`, with one queue and one counter for them.
class Movement : public PortalsTest {
 protected:
  void SetUp() override {
    PortalsTest::SetUp();
    ni = open_matching();
    eq = make_queue(ni);
    ct = make_counter(ni);
    target = make_queue(ni);
    table = make_table(ni, target);
    const ptl_me_t me = match_entry(memory, sizeof memory, PTL_ME_EVENT_LINK_DISABLE);
    ptl_handle_me_t entry;
    ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
    md = bind(ni, source, sizeof source, eq, ct, kCounting);
    to = bind(ni, sink, sizeof sink, eq, ct, kCounting);
  }
  int put(ptl_size_t offset, ptl_size_t length, ptl_ack_req_t ack_req = PTL_NO_ACK_REQ) {
    return PtlPut(md, offset, length, ack_req, self(), table, 0, 0, &cookie, 1);
  }
  int atomic(ptl_size_t length, ptl_op_t operation, ptl_datatype_t type) {
    return PtlAtomic(md, 0, length, PTL_ACK_REQ, self(), table, 0, 0, &cookie, 1, operation, type);
  }
  int fetch(ptl_size_t length, ptl_op_t operation, ptl_datatype_t type) {
    return PtlFetchAtomic(to, 0, md, 0, length, self(), table, 0, 0, &cookie, 1, operation, type);
  }
  int swap(ptl_size_t length, const void* operand, ptl_op_t operation, ptl_datatype_t type) {
    return PtlSwap(to, 0, md, 0, length, self(), table, 0, 0, &cookie, 1, operand, operation, type);
  }

  static constexpr unsigned int kCounting =
      PTL_MD_EVENT_CT_SEND | PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_CT_REPLY;
  alignas(8) char memory[64] = {};
  alignas(8) char source[64] = {};
  alignas(8) char sink[64] = {};
  int cookie = 0;
  ptl_handle_ni_t ni{};
  ptl_handle_eq_t eq{};
  ptl_handle_eq_t target{};
  ptl_handle_ct_t ct{};
  ptl_handle_md_t md{};
  ptl_handle_md_t to{};
  ptl_pt_index_t table{};
};
PORTALS_INSTANTIATE(Movement);

TEST_P(Movement, APutTellsItsInitiator) {
  std::memcpy(source, "0123456789", 10);
  ASSERT_EQ(PtlPut(md, 3, 4, PTL_ACK_REQ, self(), table, 0, 62, &cookie, 7), PTL_OK);
  const ptl_event_t sent = next(eq, PTL_EVENT_SEND);
  EXPECT_EQ(sent.user_ptr, &cookie);
  EXPECT_EQ(int{sent.ni_fail_type}, PTL_NI_OK);
  EXPECT_EQ(sent.mlength, 0U) << "it is not defined";
  const ptl_event_t ack = next(eq, PTL_EVENT_ACK);
  EXPECT_EQ(ack.user_ptr, &cookie);
  EXPECT_EQ(ack.mlength, 2U) << "cut at the entry's end";
  EXPECT_EQ(ack.remote_offset, 62U);
  EXPECT_EQ(ack.hdr_data, 0U) << "it is not defined";
  EXPECT_EQ(std::string(memory + 62, 2), "34");
  EXPECT_EQ(wait_for(ct, 2).success, 2U);
}

TEST_P(Movement, AGetBringsData) {
  std::memcpy(memory, "0123456789", 10);
  ASSERT_EQ(PtlGet(to, 1, 4, self(), table, 0, 5, &cookie), PTL_OK);
  const ptl_event_t reply = next(eq, PTL_EVENT_REPLY);
  EXPECT_EQ(reply.user_ptr, &cookie);
  EXPECT_EQ(reply.mlength, 4U);
  EXPECT_EQ(reply.remote_offset, 5U);
  EXPECT_EQ(std::string(sink + 1, 4), "5678");
  const ptl_event_t got = next(target, PTL_EVENT_GET);
  EXPECT_EQ(got.mlength, 4U);
  EXPECT_EQ(got.hdr_data, 0U);
  EXPECT_EQ(wait_for(ct, 1).success, 1U);
}

TEST_P(Movement, AnAnswerSaysWhichListTookTheOperation) {
  ptl_me_t me = match_entry(memory, sizeof memory, PTL_ME_EVENT_LINK_DISABLE | PTL_ME_UNEXPECTED_HDR_DISABLE);
  me.match_bits = 1;
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_OVERFLOW_LIST, nullptr, &entry), PTL_OK);
  for (const auto& [bits, list] :
       {std::pair<ptl_match_bits_t, ptl_list_t>{0, PTL_PRIORITY_LIST}, {1, PTL_OVERFLOW_LIST}}) {
    ASSERT_EQ(PtlPut(md, 0, 4, PTL_ACK_REQ, self(), table, bits, 0, nullptr, 0), PTL_OK);
    static_cast<void>(next(eq, PTL_EVENT_SEND));
    EXPECT_EQ(int{next(eq, PTL_EVENT_ACK).ptl_list}, int{list});
    ASSERT_EQ(PtlGet(to, 0, 4, self(), table, bits, 0, nullptr), PTL_OK);
    EXPECT_EQ(int{next(eq, PTL_EVENT_REPLY).ptl_list}, int{list});
  }
}

TEST_P(Movement, AnAtomicCombines) {
  const std::int32_t values[] = {1, 2};
  std::memcpy(source, values, sizeof values);
  std::memcpy(memory, values, sizeof values);
  ASSERT_EQ(atomic(8, PTL_SUM, PTL_INT32_T), PTL_OK);
  static_cast<void>(next(eq, PTL_EVENT_SEND));
  EXPECT_EQ(next(eq, PTL_EVENT_ACK).mlength, 8U);
  std::int32_t sums[2];
  std::memcpy(sums, memory, sizeof sums);
  EXPECT_EQ(sums[0], 2);
  EXPECT_EQ(sums[1], 4);
  const ptl_event_t event = next(target, PTL_EVENT_ATOMIC);
  EXPECT_EQ(int{event.atomic_operation}, PTL_SUM);
  EXPECT_EQ(int{event.atomic_type}, PTL_INT32_T);
  EXPECT_EQ(event.hdr_data, 1U);
}

TEST_P(Movement, AFetchAtomicReturnsWhatWasThere) {
  const std::uint64_t here = 5;
  const std::uint64_t there = 40;
  std::memcpy(source, &here, 8);
  std::memcpy(memory, &there, 8);
  ASSERT_EQ(fetch(8, PTL_MAX, PTL_UINT64_T), PTL_OK);
  static_cast<void>(next(eq, PTL_EVENT_SEND));
  EXPECT_EQ(next(eq, PTL_EVENT_REPLY).mlength, 8U);
  EXPECT_EQ(std::memcmp(sink, &there, 8), 0);
  EXPECT_EQ(std::memcmp(memory, &there, 8), 0);
  EXPECT_EQ(int{next(target, PTL_EVENT_FETCH_ATOMIC).atomic_operation}, PTL_MAX);
}

TEST_P(Movement, AConditionalSwapLooksAtItsOperand) {
  const std::uint32_t here = 5;
  std::uint32_t there = 40;
  std::memcpy(source, &here, 4);
  std::memcpy(memory, &there, 4);
  std::uint32_t operand = 39;
  ASSERT_EQ(swap(4, &operand, PTL_CSWAP, PTL_UINT32_T), PTL_OK);
  operand = 0;  // It was copied.
  static_cast<void>(next(eq, PTL_EVENT_SEND));
  static_cast<void>(next(eq, PTL_EVENT_REPLY));
  EXPECT_EQ(std::memcmp(memory, &there, 4), 0);
  ASSERT_EQ(swap(4, &there, PTL_CSWAP, PTL_UINT32_T), PTL_OK);
  static_cast<void>(next(eq, PTL_EVENT_SEND));
  static_cast<void>(next(eq, PTL_EVENT_REPLY));
  EXPECT_EQ(std::memcmp(memory, &here, 4), 0);
  EXPECT_EQ(std::memcmp(sink, &there, 4), 0);
  ASSERT_EQ(swap(8, nullptr, PTL_SWAP, PTL_UINT32_T), PTL_OK)
      << "needs no operand, and takes several elements";
}

TEST_P(Movement, RangesMustBeWithinTheDescriptor) {
  for (const auto& [offset, length] : {std::pair<ptl_size_t, ptl_size_t>{0, 65},
                                       {64, 1},
                                       {65, 0},
                                       {1, PTL_SIZE_MAX},
                                       {PTL_SIZE_MAX, 1},
                                       {PTL_SIZE_MAX, 2}}) {
    EXPECT_EQ(put(offset, length), PTL_ARG_INVALID) << offset << ' ' << length;
    EXPECT_EQ(PtlGet(to, offset, length, self(), table, 0, 0, nullptr), PTL_ARG_INVALID);
    EXPECT_EQ(PtlAtomic(md, offset, length, 0, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T),
              PTL_ARG_INVALID);
    EXPECT_EQ(PtlFetchAtomic(to, offset, md, 0, length, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T),
              PTL_ARG_INVALID);
    EXPECT_EQ(PtlFetchAtomic(to, 0, md, offset, length, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T),
              PTL_ARG_INVALID);
  }
  EXPECT_EQ(put(64, 0), PTL_OK);
  EXPECT_EQ(put(0, 64), PTL_OK);
}

TEST_P(Movement, LengthsMustBeWithinTheLimits) {
  std::vector<char> large(3 << 20);
  const ptl_handle_md_t from = bind(ni, large.data(), large.size());
  const ptl_handle_md_t other = bind(ni, large.data(), large.size());
  const auto put_bytes = [&](ptl_size_t length) {
    return PtlPut(from, 0, length, 0, self(), table, 0, 0, nullptr, 0);
  };
  EXPECT_EQ(put_bytes(1 << 20), PTL_OK);
  EXPECT_EQ(put_bytes((1 << 20) + 1), PTL_ARG_INVALID);
  EXPECT_EQ(PtlGet(from, 0, (1 << 20) + 1, self(), table, 0, 0, nullptr), PTL_ARG_INVALID);
  const auto atomic_bytes = [&](ptl_size_t length) {
    return PtlAtomic(from, 0, length, 0, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T);
  };
  EXPECT_EQ(atomic_bytes(4096), PTL_OK);
  EXPECT_EQ(atomic_bytes(4097), PTL_ARG_INVALID);
  const auto fetched_bytes = [&](ptl_size_t length) {
    return PtlFetchAtomic(from, 0, other, 4096, length, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T);
  };
  EXPECT_EQ(fetched_bytes(2048), PTL_OK);
  EXPECT_EQ(fetched_bytes(2049), PTL_ARG_INVALID);
  world.port->settle();
}

TEST_P(Movement, AtomicsNeedWholeElementsAndAnOperationOnThem) {
  EXPECT_EQ(atomic(7, PTL_SUM, PTL_INT32_T), PTL_ARG_INVALID);
  EXPECT_EQ(atomic(8, PTL_OP_LAST, PTL_INT32_T), PTL_ARG_INVALID);
  EXPECT_EQ(atomic(8, 255, PTL_INT32_T), PTL_ARG_INVALID);
  EXPECT_EQ(atomic(8, PTL_SUM, PTL_DATATYPE_LAST), PTL_ARG_INVALID);
  EXPECT_EQ(atomic(8, PTL_SUM, 255), PTL_ARG_INVALID);
  EXPECT_EQ(atomic(8, PTL_MIN, PTL_FLOAT_COMPLEX), PTL_ARG_INVALID);
  EXPECT_EQ(atomic(8, PTL_BOR, PTL_DOUBLE), PTL_ARG_INVALID);
  EXPECT_EQ(fetch(8, PTL_BXOR, PTL_FLOAT), PTL_ARG_INVALID);
  for (ptl_op_t operation = PTL_SWAP; operation < PTL_OP_LAST; ++operation) {
    EXPECT_EQ(atomic(8, operation, PTL_UINT64_T), PTL_ARG_INVALID);
    EXPECT_EQ(fetch(8, operation, PTL_UINT64_T), PTL_ARG_INVALID);
  }
  const std::uint64_t operand = 0;
  for (ptl_op_t operation = PTL_MIN; operation < PTL_SWAP; ++operation)
    EXPECT_EQ(swap(8, &operand, operation, PTL_UINT64_T), PTL_ARG_INVALID);
  for (ptl_op_t operation = PTL_CSWAP; operation < PTL_OP_LAST; ++operation) {
    EXPECT_EQ(swap(8, nullptr, operation, PTL_UINT64_T), PTL_ARG_INVALID) << "no operand";
    EXPECT_EQ(swap(16, &operand, operation, PTL_UINT64_T), PTL_ARG_INVALID) << "two elements";
  }
  expect_no_event(eq);
}

TEST_P(Movement, AcknowledgementsNeedAPlaceToGo) {
  const ptl_handle_md_t bare = bind(ni, source, 8);
  const ptl_handle_md_t unreliable = bind(ni, source, 8, eq, ct, PTL_MD_UNRELIABLE);
  const auto put_from = [&](ptl_handle_md_t from, ptl_ack_req_t ack_req) {
    return PtlPut(from, 0, 1, ack_req, self(), table, 0, 0, nullptr, 0);
  };
  EXPECT_EQ(put_from(md, 4), PTL_ARG_INVALID);
  EXPECT_EQ(put_from(bare, PTL_ACK_REQ), PTL_ARG_INVALID);
  EXPECT_EQ(put_from(bare, PTL_CT_ACK_REQ), PTL_ARG_INVALID);
  EXPECT_EQ(put_from(unreliable, PTL_ACK_REQ), PTL_ARG_INVALID);
  EXPECT_EQ(PtlAtomic(bare, 0, 1, PTL_ACK_REQ, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT8_T),
            PTL_ARG_INVALID);
  EXPECT_EQ(put_from(bare, PTL_OC_ACK_REQ), PTL_OK);
  EXPECT_EQ(put_from(bare, PTL_NO_ACK_REQ), PTL_OK);
}

TEST_P(Movement, AcknowledgementsAreCounted) {
  const ptl_handle_ct_t acks = make_counter(ni);
  const ptl_handle_md_t counted =
      bind(ni, source, 8, eq, acks, PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_SUCCESS_DISABLE);
  const auto put_to = [&](ptl_pt_index_t index, ptl_ack_req_t ack_req) {
    EXPECT_EQ(PtlPut(counted, 0, 4, ack_req, self(), index, 0, 0, nullptr, 0), PTL_OK);
  };
  put_to(table, PTL_CT_ACK_REQ);
  put_to(table, PTL_OC_ACK_REQ);
  put_to(table, PTL_ACK_REQ);
  put_to(table, PTL_NO_ACK_REQ);
  EXPECT_EQ(wait_for(acks, 3).success, 3U);
  expect_no_event(eq);
  put_to(table + 1, PTL_OC_ACK_REQ);
  EXPECT_EQ(wait_for(acks, 4).success, 4U) << "it is over, whatever has become of it";
  put_to(table + 1, PTL_CT_ACK_REQ);
  EXPECT_EQ(wait_for(acks, 5).failure, 1U);
  put_to(table + 1, PTL_ACK_REQ);
  EXPECT_EQ(int{next(eq, PTL_EVENT_ACK).ni_fail_type}, PTL_NI_DROPPED) << "failures are told all the same";
}

TEST_P(Movement, AnEntryMayForbidAcknowledgements) {
  const ptl_handle_ct_t acks = make_counter(ni), puts = make_counter(ni);
  const ptl_handle_md_t counted = bind(ni, source, 8, eq, acks, PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_CT_REPLY);
  const ptl_pt_index_t silent = make_table(ni, PTL_EQ_NONE), other = make_table(ni, PTL_EQ_NONE);
  char there[8] = {};
  ptl_me_t me = match_entry(there, sizeof there, PTL_ME_ACK_DISABLE | PTL_ME_EVENT_CT_COMM);
  me.ct_handle = puts;
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, silent, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  for (const ptl_ack_req_t ack_req : {PTL_ACK_REQ, PTL_CT_ACK_REQ, PTL_OC_ACK_REQ})
    ASSERT_EQ(PtlPut(counted, 0, 8, ack_req, self(), silent, 0, 0, nullptr, 0), PTL_OK);
  ASSERT_EQ(PtlAtomic(counted, 0, 8, PTL_ACK_REQ, self(), silent, 0, 0, nullptr, 0, PTL_SUM, PTL_UINT64_T),
            PTL_OK);
  EXPECT_EQ(wait_for(puts, 4).success, 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(int{next(eq, PTL_EVENT_SEND).ni_fail_type}, PTL_NI_OK);
  world.port->settle();
  expect_no_event(eq);
  EXPECT_EQ(count_of(acks).success, 0U);
  // A reply is none, and a failure is told.
  ASSERT_EQ(PtlGet(counted, 0, 8, self(), silent, 0, 0, nullptr), PTL_OK);
  EXPECT_EQ(wait_for(acks, 1).success, 1U);
  EXPECT_EQ(int{next(eq, PTL_EVENT_REPLY).ni_fail_type}, PTL_NI_OK);
  ASSERT_EQ(PtlPut(counted, 0, 8, PTL_ACK_REQ, self(), other, 0, 0, nullptr, 0), PTL_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_SEND).ni_fail_type}, PTL_NI_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_ACK).ni_fail_type}, PTL_NI_DROPPED);
  EXPECT_EQ(count_of(acks).failure, 1U);
}

TEST_P(Movement, BytesAreCountedIfWanted) {
  const ptl_handle_ct_t bytes = make_counter(ni);
  const ptl_handle_md_t counted =
      bind(ni, source, 8, PTL_EQ_NONE, bytes, PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_CT_BYTES);
  ASSERT_EQ(PtlPut(counted, 0, 6, PTL_CT_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
  EXPECT_EQ(wait_for(bytes, 6).success, 6U);
}

TEST_P(Movement, AnUnreachableProcessFailsTheOperation) {
  ptl_process_t stranger = self();
  stranger.phys.pid = kPid + 1;
  ASSERT_EQ(PtlPut(md, 0, 1, PTL_ACK_REQ, stranger, table, 0, 0, &cookie, 0), PTL_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_SEND).ni_fail_type}, PTL_NI_UNDELIVERABLE);
  EXPECT_EQ(int{next(eq, PTL_EVENT_ACK).ni_fail_type}, PTL_NI_UNDELIVERABLE);
  ++stranger.phys.pid;
  ASSERT_EQ(PtlGet(to, 0, 1, stranger, table, 0, 0, &cookie), PTL_OK);
  EXPECT_EQ(int{next(eq, PTL_EVENT_REPLY).ni_fail_type}, PTL_NI_UNDELIVERABLE);
}

TEST_P(Movement, WrongHandlesAndTargetsAreRefused) {
  const ptl_handle_ni_t other = open(PTL_NI_MATCHING | PTL_NI_LOGICAL);
  const ptl_handle_md_t foreign = bind(other, sink, 8);
  ptl_process_t rank{};
  EXPECT_EQ(PtlPut(foreign, 0, 1, 0, rank, 0, 0, 0, nullptr, 0), PTL_ARG_INVALID) << "there is no map";
  const ptl_process_t map = self();
  ASSERT_EQ(PtlSetMap(other, 1, &map), PTL_OK);
  EXPECT_EQ(PtlPut(foreign, 0, 1, 0, rank, 0, 0, 0, nullptr, 0), PTL_OK);
  rank.rank = 1;
  EXPECT_EQ(PtlPut(foreign, 0, 1, 0, rank, 0, 0, 0, nullptr, 0), PTL_ARG_INVALID);
  rank.rank = PTL_RANK_ANY;
  EXPECT_EQ(PtlGet(foreign, 0, 1, rank, 0, 0, 0, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPut(md, 0, 1, 0, self(), 256, 0, 0, nullptr, 0), PTL_ARG_INVALID);
  EXPECT_EQ(PtlFetchAtomic(to, 0, foreign, 0, 4, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT32_T),
            PTL_ARG_INVALID);
  EXPECT_EQ(PtlSwap(foreign, 0, md, 0, 4, self(), table, 0, 0, nullptr, 0, nullptr, PTL_SWAP, PTL_INT32_T),
            PTL_ARG_INVALID);
  for (const ptl_handle_any_t none : {PTL_INVALID_HANDLE, ni, eq, ct, ptl_handle_any_t{0}}) {
    EXPECT_EQ(PtlPut(none, 0, 1, 0, self(), table, 0, 0, nullptr, 0), PTL_ARG_INVALID);
    EXPECT_EQ(PtlGet(none, 0, 1, self(), table, 0, 0, nullptr), PTL_ARG_INVALID);
    EXPECT_EQ(PtlAtomic(none, 0, 4, 0, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT32_T),
              PTL_ARG_INVALID);
    EXPECT_EQ(PtlFetchAtomic(none, 0, md, 0, 4, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT32_T),
              PTL_ARG_INVALID);
    EXPECT_EQ(PtlFetchAtomic(to, 0, none, 0, 4, self(), table, 0, 0, nullptr, 0, PTL_SUM, PTL_INT32_T),
              PTL_ARG_INVALID);
  }
}

TEST_P(Movement, VolatileMemoryMayChangeAtOnce) {
  world.port->hold();
  const ptl_handle_md_t changing = bind(ni, source, 65, PTL_EQ_NONE, PTL_CT_NONE, PTL_MD_VOLATILE);
  std::memcpy(source, "then", 4);
  ASSERT_EQ(PtlPut(changing, 0, 4, 0, self(), table, 0, 0, nullptr, 0), PTL_OK);
  std::memcpy(source, "now!", 4);
  EXPECT_EQ(PtlPut(changing, 0, 65, 0, self(), table, 0, 0, nullptr, 0), PTL_ARG_INVALID)
      << "beyond the limit";
  world.port->release();
  static_cast<void>(next(target, PTL_EVENT_PUT));
  EXPECT_EQ(std::string(memory, 4), "then");
}

TEST_P(Movement, ADescriptorMayCoverTheWholeAddressSpace) {
  const ptl_handle_md_t all =
      bind(ni, nullptr, PTL_SIZE_MAX, eq, PTL_CT_NONE, PTL_MD_EVENT_SEND_DISABLE | PTL_MD_UNORDERED);
  const ptl_pt_index_t everything = make_table(ni, PTL_EQ_NONE);
  const ptl_me_t me = match_entry(nullptr, PTL_SIZE_MAX);
  ptl_handle_me_t entry;
  ASSERT_EQ(PtlMEAppend(ni, everything, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  std::memcpy(source, "here", 4);
  ASSERT_EQ(PtlPut(all, reinterpret_cast<ptl_size_t>(source), 4, PTL_ACK_REQ, self(), everything, 0,
                   reinterpret_cast<ptl_size_t>(memory), nullptr, 0),
            PTL_OK);
  const ptl_event_t ack = next(eq, PTL_EVENT_ACK);
  EXPECT_EQ(ack.mlength, 4U);
  EXPECT_EQ(ack.remote_offset, reinterpret_cast<ptl_size_t>(memory));
  EXPECT_EQ(std::string(memory, 4), "here");
}

TEST_P(Movement, ClosingForgetsWhatHasNotEnded) {
  world.port->hold();
  ASSERT_EQ(put(0, 4), PTL_OK);
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  EXPECT_EQ(world.port, nullptr);
  EXPECT_EQ(memory[0], 0);
}

}  // namespace
}  // namespace ch3_offload::portals
