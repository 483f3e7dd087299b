#include "portals/portals_world.h"

namespace ch3_offload::portals {
namespace {

PORTALS_TEST_SUITE(Descriptors);

TEST_P(Descriptors, WrongArgumentsAreRefused) {
  const ptl_handle_ni_t ni = open_matching();
  const ptl_handle_ni_t other = open_listing();
  const ptl_handle_ct_t foreign_ct = make_counter(other);
  const ptl_handle_eq_t foreign_eq = make_queue(other);
  const ptl_handle_ct_t ct = make_counter(ni);
  char byte = 0;
  ptl_handle_md_t md = 42;
  const auto refused = [&](const ptl_md_t& wrong) { return PtlMDBind(ni, &wrong, &md) == PTL_ARG_INVALID; };
  const ptl_md_t right{&byte, 1, 0, PTL_EQ_NONE, PTL_CT_NONE};
  EXPECT_EQ(PtlMDBind(ni, nullptr, &md), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMDBind(ni, &right, nullptr), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMDBind(ct, &right, &md), PTL_ARG_INVALID);
  EXPECT_TRUE(refused({&byte, 1, 0, PTL_EQ_NONE, foreign_ct}));
  EXPECT_TRUE(refused({&byte, 1, 0, foreign_eq, PTL_CT_NONE}));
  EXPECT_TRUE(refused({&byte, 1, 0, ct, PTL_CT_NONE})) << "a counting event is no queue";
  EXPECT_TRUE(refused({&byte, 1, 0, PTL_EQ_NONE, PTL_EQ_NONE}));
  EXPECT_TRUE(refused({&byte, 1, 0, PTL_INVALID_HANDLE, PTL_CT_NONE}));
  for (unsigned int bit = 0; bit < 32; ++bit)
    if ((1U << bit & PTL_MD_OPTIONS_MASK) == 0) {
      EXPECT_TRUE(refused({&byte, 1, 1U << bit, PTL_EQ_NONE, PTL_CT_NONE})) << bit;
    }
  EXPECT_TRUE(refused({nullptr, 1, PTL_IOVEC, PTL_EQ_NONE, PTL_CT_NONE}));
  std::vector<ptl_iovec_t> many(1025);
  EXPECT_TRUE(refused({many.data(), many.size(), PTL_IOVEC, PTL_EQ_NONE, PTL_CT_NONE}));
  ptl_iovec_t endless[2] = {{&byte, PTL_SIZE_MAX}, {&byte, 1}};
  EXPECT_TRUE(refused({endless, 2, PTL_IOVEC, PTL_EQ_NONE, PTL_CT_NONE}));
  EXPECT_EQ(md, 42U);
}

TEST_P(Descriptors, ReleasedOnesAreStale) {
  const ptl_handle_ni_t ni = open_matching();
  char byte = 0;
  const ptl_handle_md_t md = bind(ni, &byte, 1);
  EXPECT_EQ(PtlMDRelease(md), PTL_OK);
  EXPECT_EQ(PtlMDRelease(md), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMDRelease(PTL_INVALID_HANDLE), PTL_ARG_INVALID);
  EXPECT_EQ(PtlMDRelease(ni), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPut(md, 0, 1, PTL_NO_ACK_REQ, self(), 0, 0, 0, nullptr, 0), PTL_ARG_INVALID);
  const ptl_handle_md_t open_when_closed = bind(ni, &byte, 1);
  ASSERT_EQ(PtlNIFini(ni), PTL_OK);
  EXPECT_EQ(PtlMDRelease(open_when_closed), PTL_ARG_INVALID);
  const ptl_handle_ni_t again = open_matching();
  static_cast<void>(bind(again, &byte, 1));
  EXPECT_EQ(PtlMDRelease(open_when_closed), PTL_ARG_INVALID);
}

TEST_P(Descriptors, ThereAreAsManyAsTheLimitSays) {
  ptl_ni_limits_t desired{};
  desired.max_mds = 2;
  ptl_handle_ni_t ni;
  ASSERT_EQ(PtlNIInit(0, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, &desired, nullptr, &ni), PTL_OK);
  char byte = 0;
  const ptl_md_t md{&byte, 1, 0, PTL_EQ_NONE, PTL_CT_NONE};
  ptl_handle_md_t handle;
  const ptl_handle_md_t first = bind(ni, &byte, 1);
  static_cast<void>(bind(ni, &byte, 1));
  EXPECT_EQ(PtlMDBind(ni, &md, &handle), PTL_NO_SPACE);
  ASSERT_EQ(PtlMDRelease(first), PTL_OK);
  EXPECT_EQ(PtlMDBind(ni, &md, &handle), PTL_OK);
}

/// What a put from an iovec brings to a plain entry.
class Iovecs : public PortalsTest {
 protected:
  void SetUp() override {
    PortalsTest::SetUp();
    ni = open_matching();
    eq = make_queue(ni);
    table = make_table(ni, PTL_EQ_NONE);
    const ptl_me_t me = match_entry(arrived, sizeof arrived);
    ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
    md = bind(ni, parts, 4, eq, PTL_CT_NONE, PTL_IOVEC);
  }
  std::string put(ptl_size_t offset, ptl_size_t length) {
    std::memset(arrived, '.', sizeof arrived);
    EXPECT_EQ(PtlPut(md, offset, length, PTL_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
    static_cast<void>(next(eq, PTL_EVENT_SEND));
    EXPECT_EQ(next(eq, PTL_EVENT_ACK).mlength, length);
    return {arrived, length};
  }

  char one[3] = {'a', 'b', 'c'};
  char two[1] = {'d'};
  char three[4] = {'e', 'f', 'g', 'h'};
  ptl_iovec_t parts[4] = {{one, 3}, {nullptr, 0}, {two, 1}, {three, 4}};
  char arrived[16] = {};
  ptl_handle_ni_t ni{};
  ptl_handle_eq_t eq{};
  ptl_handle_md_t md{};
  ptl_handle_me_t entry{};
  ptl_pt_index_t table{};
};
PORTALS_INSTANTIATE(Iovecs);

TEST_P(Iovecs, EveryRangeIsRead) {
  const std::string whole = "abcdefgh";
  for (ptl_size_t offset = 0; offset <= whole.size(); ++offset)
    for (ptl_size_t length = 0; offset + length <= whole.size(); ++length)
      EXPECT_EQ(put(offset, length), whole.substr(offset, length)) << offset << ' ' << length;
}

TEST_P(Iovecs, TheirLengthIsThatOfTheirParts) {
  EXPECT_EQ(PtlPut(md, 0, 9, PTL_NO_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_ARG_INVALID);
  EXPECT_EQ(PtlPut(md, 9, 0, PTL_NO_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_ARG_INVALID);
  const ptl_handle_md_t empty = bind(ni, nullptr, 0, PTL_EQ_NONE, PTL_CT_NONE, PTL_IOVEC);
  EXPECT_EQ(PtlPut(empty, 0, 0, PTL_NO_ACK_REQ, self(), table, 0, 0, nullptr, 0), PTL_OK);
}

TEST_P(Iovecs, AGetFillsThem) {
  std::memcpy(arrived, "12345678", 8);
  ASSERT_EQ(PtlGet(md, 1, 6, self(), table, 0, 0, nullptr), PTL_OK);
  EXPECT_EQ(next(eq, PTL_EVENT_REPLY).mlength, 6U);
  EXPECT_EQ(std::string(one, 3), "a12");
  EXPECT_EQ(two[0], '3');
  EXPECT_EQ(std::string(three, 4), "456h");
}

TEST_P(Iovecs, AnEntryCanBeOne) {
  ASSERT_EQ(PtlMEUnlink(entry), PTL_OK);
  ptl_me_t me = match_entry(parts, 4, PTL_IOVEC);
  ASSERT_EQ(PtlMEAppend(ni, table, &me, PTL_PRIORITY_LIST, nullptr, &entry), PTL_OK);
  char source[6] = {'1', '2', '3', '4', '5', '6'};
  const ptl_handle_md_t plain = bind(ni, source, 6, eq, PTL_CT_NONE, PTL_MD_EVENT_SEND_DISABLE);
  ASSERT_EQ(PtlPut(plain, 0, 6, PTL_ACK_REQ, self(), table, 0, 1, nullptr, 0), PTL_OK);
  EXPECT_EQ(next(eq, PTL_EVENT_ACK).mlength, 6U);
  EXPECT_EQ(std::string(one, 3) + std::string(two, 1) + std::string(three, 4), "a123456h");
  ASSERT_EQ(PtlGet(plain, 0, 6, self(), table, 0, 2, nullptr), PTL_OK);
  EXPECT_EQ(next(eq, PTL_EVENT_REPLY).mlength, 6U);
  EXPECT_EQ(std::string(source, 6), "23456h");
}

}  // namespace
}  // namespace ch3_offload::portals
