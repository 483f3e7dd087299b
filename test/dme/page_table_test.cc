#include "dme/page_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <vector>

#include "dme/region.h"

namespace ch3_offload {
namespace {

class PageTableTest : public testing::Test {
 protected:
  void insert(PageRange range, Region& region) {
    while (table_.spare_nodes() < PageTable::kNodesForInsert) {
      table_.add_spare(nodes_.emplace_back());
    }
    table_.insert(range, region);
  }

  std::deque<PageTable::Node> nodes_;
  PageTable table_;
};

TEST_F(PageTableTest, FindsARegionByEachOfItsPagesAndNoOther) {
  Region region;
  insert({1000, 3000}, region);
  EXPECT_EQ(table_.find(999), nullptr);
  for (std::uint64_t page = 1000; page < 3000; ++page) ASSERT_EQ(table_.find(page), &region) << page;
  EXPECT_EQ(table_.find(3000), nullptr);
  table_.erase({1000, 3000});
  for (std::uint64_t page = 999; page <= 3000; ++page) ASSERT_EQ(table_.find(page), nullptr) << page;
}

TEST_F(PageTableTest, TheLargestRangeFits) {
  Region region;
  insert({0, PageTable::kPages}, region);
  EXPECT_EQ(table_.find(0), &region);
  EXPECT_EQ(table_.find(PageTable::kPages - 1), &region);
  EXPECT_EQ(table_.first_in({12345, 12346}), &region);
  table_.erase({0, PageTable::kPages});
  EXPECT_EQ(table_.first_in({0, PageTable::kPages}), nullptr);
}

TEST_F(PageTableTest, FirstInIsTheLowestThatOverlaps) {
  Region low;
  Region high;
  const std::uint64_t far = std::uint64_t{1} << 35;
  insert({511, 513}, low);
  insert({far, far + 1}, high);
  EXPECT_EQ(table_.first_in({0, 511}), nullptr);
  EXPECT_EQ(table_.first_in({0, 512}), &low);
  EXPECT_EQ(table_.first_in({512, UINT64_MAX}), &low);
  EXPECT_EQ(table_.first_in({513, far}), nullptr);
  EXPECT_EQ(table_.first_in({513, far + 1}), &high);
  EXPECT_EQ(table_.first_in({far + 1, UINT64_MAX}), nullptr);
  table_.erase({511, 513});
  table_.erase({far, far + 1});
}

TEST_F(PageTableTest, NodesAreGivenBack) {
  Region region;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const PageRange range{(i << 27) / 7, (i << 27) / 7 + (i << 18) + 1};
    insert(range, region);
    EXPECT_EQ(table_.find(range.last - 1), &region);
    table_.erase(range);
  }
  EXPECT_LE(nodes_.size(), PageTable::kNodesForInsert);
  EXPECT_EQ(table_.spare_nodes(), nodes_.size());
}

TEST_F(PageTableTest, AgreesWithAnOrderedMap) {
  std::mt19937_64 random(4);
  std::vector<Region> regions(400);
  std::map<std::uint64_t, std::pair<PageRange, Region*>> expected;  // By first page.
  std::size_t next = 0;
  for (int step = 0; step < 200'000; ++step) {
    const unsigned scale = random() % 30;
    const std::uint64_t first = random() % (std::uint64_t{1} << 30);
    const PageRange range{first, first + 1 + random() % (std::uint64_t{1} << scale)};
    auto overlapping = expected.upper_bound(range.first);
    if (overlapping != expected.begin() && std::prev(overlapping)->second.first.last > range.first)
      --overlapping;
    const bool some = overlapping != expected.end() && overlapping->first < range.last;
    ASSERT_EQ(table_.first_in(range), some ? overlapping->second.second : nullptr);
    ASSERT_EQ(table_.find(first), some && overlapping->first <= first ? overlapping->second.second : nullptr);
    if (some) {
      table_.erase(overlapping->second.first);
      expected.erase(overlapping);
    } else if (expected.size() < regions.size()) {
      Region& region = regions[next++ % regions.size()];
      insert(range, region);
      expected[first] = {range, &region};
    }
  }
  for (const auto& [first, entry] : expected) table_.erase(entry.first);
  EXPECT_EQ(table_.spare_nodes(), nodes_.size());
}

}  // namespace
}  // namespace ch3_offload
