// Which memory a peer may write to, by the key that it names.

#include "rdma/tcp/tcp_landings.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

class TcpLandingTable : public testing::Test {
 protected:
  MemoryRegion add(std::byte* address, std::size_t length_bytes, Access access = Access::kWrite) {
    MemoryRegion region;
    EXPECT_EQ(landings_.add(address, length_bytes, access, region), Status::kOk);
    return region;
  }
  MemoryRegion add(Access access = Access::kWrite) { return add(bytes_.data(), bytes_.size(), access); }
  static std::uint64_t key(const MemoryRegion& region) {
    return static_cast<std::uint64_t>(region.remote_key);
  }
  std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(bytes_.data()) + offset;
  }

  TcpLandings landings_;
  std::array<std::byte, 100> bytes_{};
};

TEST_F(TcpLandingTable, AnEmptyOnePermitsNothing) {
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1} << 32, UINT64_MAX})
    EXPECT_FALSE(landings_.permits(key, at(0), 1));
  EXPECT_FALSE(landings_.permits(0, 0, 0));
}

TEST_F(TcpLandingTable, ARegionSaysWhatItIs) {
  const MemoryRegion region = add();
  EXPECT_EQ(region.address, bytes_.data());
  EXPECT_EQ(region.length_bytes, bytes_.size());
}

TEST_F(TcpLandingTable, AllOfARegionIsPermittedAndNothingAroundIt) {
  const std::uint64_t granted = key(add());
  for (std::size_t begin = 0; begin <= 100; ++begin)
    for (std::size_t end = begin; end <= 100; ++end)
      ASSERT_TRUE(landings_.permits(granted, at(begin), end - begin)) << begin << " " << end;
  EXPECT_TRUE(landings_.permits(granted, at(100), 0)) << "nothing, at its end";
  EXPECT_FALSE(landings_.permits(granted, at(100), 1));
  EXPECT_FALSE(landings_.permits(granted, at(101), 0));
  EXPECT_FALSE(landings_.permits(granted, at(0) - 1, 0));
  EXPECT_FALSE(landings_.permits(granted, at(0) - 1, 1));
  EXPECT_FALSE(landings_.permits(granted, at(0) - 1, 101));
  EXPECT_FALSE(landings_.permits(granted, at(0), 101));
  EXPECT_FALSE(landings_.permits(granted, at(99), 2));
  EXPECT_FALSE(landings_.permits(granted, 0, 1));
}

TEST_F(TcpLandingTable, NumbersThatOverflowArePermittedNowhere) {
  const std::uint64_t granted = key(add());
  EXPECT_FALSE(landings_.permits(granted, at(1), SIZE_MAX));
  EXPECT_FALSE(landings_.permits(granted, at(0), SIZE_MAX - at(0) + 1)) << "address + length is 0";
  EXPECT_FALSE(landings_.permits(granted, at(50), SIZE_MAX - 49)) << "address + length is in the region";
  EXPECT_FALSE(landings_.permits(granted, UINT64_MAX, 1));
  EXPECT_FALSE(landings_.permits(granted, UINT64_MAX, 0));
  EXPECT_FALSE(landings_.permits(granted, UINT64_MAX, at(0) + 2));
}

TEST_F(TcpLandingTable, MemoryToReadFromIsNotWrittenTo) {
  const std::uint64_t read_only = key(add(Access::kRead));
  EXPECT_FALSE(landings_.permits(read_only, at(0), 1));
  EXPECT_FALSE(landings_.permits(read_only, at(0), 0));
  const std::uint64_t writable = key(add());
  EXPECT_NE(writable, read_only);
  EXPECT_TRUE(landings_.permits(writable, at(0), 1));
  EXPECT_FALSE(landings_.permits(read_only, at(0), 1)) << "though another key opens the same memory";
}

TEST_F(TcpLandingTable, AKeyEndsWithItsRegion) {
  const MemoryRegion region = add();
  landings_.remove(region);
  EXPECT_FALSE(landings_.permits(key(region), at(0), 1));
  EXPECT_FALSE(landings_.permits(key(region), at(0), 0));
  EXPECT_FALSE(landings_.permits(key(region) + (std::uint64_t{1} << 32), at(0), 1))
      << "the key that comes next opens nothing yet";
}

TEST_F(TcpLandingTable, TheNextRegionInAnEntryHasAnotherKey) {
  std::set<std::uint64_t> old;
  for (int life = 0; life < 100; ++life) {
    const MemoryRegion region = add();
    EXPECT_TRUE(old.insert(key(region)).second) << life;
    EXPECT_LT(key(region) & UINT32_MAX, 1u) << "the entry is used again";
    for (const std::uint64_t one : old) EXPECT_EQ(landings_.permits(one, at(0), 1), one == key(region));
    landings_.remove(region);
  }
}

TEST_F(TcpLandingTable, AKeyThatWasNeverGivenOpensNothing) {
  const std::uint64_t granted = key(add());
  for (int bit = 0; bit < 64; ++bit)
    EXPECT_FALSE(landings_.permits(granted ^ std::uint64_t{1} << bit, at(0), 1)) << bit;
}

TEST_F(TcpLandingTable, ARegionOfNothingTakesNothing) {
  const std::uint64_t granted = key(add(bytes_.data() + 7, 0));
  EXPECT_TRUE(landings_.permits(granted, at(7), 0));
  EXPECT_FALSE(landings_.permits(granted, at(7), 1));
  EXPECT_FALSE(landings_.permits(granted, at(8), 0));
}

TEST_F(TcpLandingTable, EntriesAreUsedAgain) {
  struct Live {
    MemoryRegion region;
    bool is_writable;
  };
  SeededRandom random(4);
  std::vector<Live> live;
  std::vector<std::uint64_t> old;
  std::uint64_t greatest_index = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 20 && random.chance(0.5)) {
      const bool is_writable = random.chance(0.7);
      const std::size_t begin = random.below(100);
      live.push_back({add(bytes_.data() + begin, random.below(101 - begin),
                          is_writable ? Access::kWrite : Access::kRead),
                      is_writable});
      greatest_index = std::max(greatest_index, key(live.back().region) & UINT32_MAX);
    } else if (!live.empty()) {
      const std::size_t which = random.below(live.size());
      landings_.remove(live[which].region);
      old.push_back(key(live[which].region));
      live[which] = live.back();
      live.pop_back();
    }
    for (const Live& one : live) {
      const auto begin = reinterpret_cast<std::uintptr_t>(one.region.address);
      ASSERT_EQ(landings_.permits(key(one.region), begin, one.region.length_bytes), one.is_writable);
      ASSERT_FALSE(landings_.permits(key(one.region), begin, one.region.length_bytes + 1));
    }
    if (!old.empty()) {
      ASSERT_FALSE(landings_.permits(old[random.below(old.size())], at(0), 0));
    }
  }
  EXPECT_LT(greatest_index, 20u) << "no more entries than regions at once";
}

}  // namespace
}  // namespace ch3_offload
