// Unexpected headers: found in the order of arrival, by any mask, with an index and without.

#include "engine/targets/unexpected_headers.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "engine/targets/target_entries.h"

namespace ch3_offload {
namespace {

class WaitingHeaders : public testing::Test {
 protected:
  UnexpectedHeader& arrive(std::uint64_t bits, ProcessId initiator = kAlice) {
    UnexpectedHeader& header = all_.emplace_back();
    header.header = put_of(bits, 8, 0, initiator);
    headers.append(header);
    return header;
  }
  std::vector<UnexpectedHeader*> found(std::uint64_t bits, std::uint64_t ignored) {
    std::vector<UnexpectedHeader*> result;
    headers.for_each_match({MatchBits{bits}, kAlice}, {MatchBits{ignored}, kExactProcess},
                           [&](UnexpectedHeader& header) {
                             result.push_back(&header);
                             return true;
                           });
    return result;
  }

  UnexpectedHeaders headers;

 private:
  std::deque<UnexpectedHeader> all_;
};

TEST_F(WaitingHeaders, AreFoundInTheOrderOfArrival) {
  UnexpectedHeader& first = arrive(5);
  arrive(5, kBob);
  UnexpectedHeader& second = arrive(7);
  UnexpectedHeader& third = arrive(5);
  EXPECT_EQ(found(5, 0), (std::vector{&first, &third}));
  EXPECT_EQ(found(5, 2), (std::vector{&first, &second, &third}));
  EXPECT_EQ(found(6, 0), std::vector<UnexpectedHeader*>{});
}

TEST_F(WaitingHeaders, ThatArriveAfterAnIndexWasMadeAreInIt) {
  UnexpectedHeader& first = arrive(5);
  EXPECT_EQ(found(5, 0), (std::vector{&first}));
  UnexpectedHeader& second = arrive(5);
  EXPECT_EQ(found(5, 0), (std::vector{&first, &second}));
  headers.remove(first);
  EXPECT_EQ(found(5, 0), (std::vector{&second}));
}

TEST_F(WaitingHeaders, AreFoundByMoreMasksThanThereAreIndices) {
  UnexpectedHeader& first = arrive(0);
  UnexpectedHeader& second = arrive(1);
  for (std::uint64_t mask = 1; mask < 3 * UnexpectedHeader::kIndices; ++mask)
    EXPECT_EQ(found(0, mask << 1 | 1), (std::vector{&first, &second})) << mask;
  headers.remove(first);
  headers.remove(second);
  EXPECT_TRUE(headers.empty());
  UnexpectedHeader& third = arrive(1);  // The indices are other masks' now.
  for (std::uint64_t mask = 10; mask < 10 + UnexpectedHeader::kIndices; ++mask)
    EXPECT_EQ(found(0, mask << 1 | 1), (std::vector{&third})) << mask;
}

TEST_F(WaitingHeaders, ThatDoNotMatchAreNotLookedAt) {
  for (std::uint64_t bits = 0; bits < 1000; ++bits) arrive(bits);
  for (std::uint64_t bits = 0; bits < 1000; ++bits) EXPECT_EQ(found(bits, 0).size(), 1u);
  EXPECT_EQ(headers.looked_at(), 1000u);
}

TEST_F(WaitingHeaders, LeaveTheIndicesToOtherMasksWhenAllAreGone) {
  UnexpectedHeader& first = arrive(0);
  for (std::uint64_t mask = 0; mask <= UnexpectedHeader::kIndices; ++mask) found(0, mask);
  headers.remove(first);
  for (std::uint64_t bits = 0; bits < 1000; ++bits) arrive(bits << 1);
  const std::uint64_t before = headers.looked_at();
  EXPECT_EQ(found(500, 1).size(), 1u);
  EXPECT_EQ(found(500, UnexpectedHeader::kIndices).size(), 2u);
  EXPECT_EQ(headers.looked_at() - before, 3u);
}

TEST_F(WaitingHeaders, MayBeRemovedByTheVisit) {
  for (int i = 0; i < 3; ++i) arrive(5);
  UnexpectedHeader& other = arrive(6);
  headers.for_each_match({MatchBits{5}, kAlice}, {}, [&](UnexpectedHeader& header) {
    headers.remove(header);
    return headers.size() > 2;
  });
  EXPECT_EQ(headers.size(), 2u);
  EXPECT_EQ(found(5, 0).size(), 1u);
  EXPECT_EQ(found(6, 0), (std::vector{&other}));
}

}  // namespace
}  // namespace ch3_offload
