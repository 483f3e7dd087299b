#include "rdma/verbs/ring_entry.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "rdma/seeded_random.h"
#include "rdma/verbs/link.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kWords = kRingEntryBytes / 8;
constexpr std::uint64_t kKey = 0x1234'5678'9ABC'DEF0;
constexpr std::size_t kLongest = kRingEntryBytes - sizeof(RingTrailer);
constexpr std::size_t kShortest = sizeof(SlotHeader) + 1;

class RingEntry : public testing::Test {
 protected:
  /// A sealed entry of a message of `length` bytes, which `fill` tells apart, at the end of its words.
  static std::array<std::uint64_t, kWords> sealed(std::size_t length, std::uint64_t number,
                                                  std::uint64_t key = kKey, unsigned fill = 1) {
    alignas(8) std::array<std::byte, kRingEntryBytes> message;
    message.fill(std::byte{0xEE});
    for (std::size_t i = 0; i < length; ++i) message[i] = static_cast<std::byte>(i * 7 + fill);
    const std::size_t bytes = seal_ring_entry(message.data(), length, key, number);
    EXPECT_EQ(bytes, ring_entry_bytes(length));
    std::array<std::uint64_t, kWords> entry{};
    std::memcpy(reinterpret_cast<std::byte*>(entry.data()) + kRingEntryBytes - bytes, message.data(), bytes);
    return entry;
  }
  std::size_t read(std::uint64_t number, std::uint64_t key = kKey) {
    return read_ring_entry(entry_, key, number, copy_);
  }

  std::array<std::uint64_t, kWords> entry_{};
  std::array<std::uint64_t, kWords> copy_{};
};

TEST_F(RingEntry, AMessageOfEveryLengthIsRead) {
  for (std::size_t length = kShortest; length <= kLongest; ++length) {
    const std::uint64_t number = (std::uint64_t{1} << 40) + length;
    entry_ = sealed(length, number);
    EXPECT_TRUE(may_be_ring_entry(entry_, number));
    ASSERT_EQ(read(number), length);
    const auto* const bytes = reinterpret_cast<const unsigned char*>(copy_.data());
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(bytes[i], static_cast<unsigned char>(i * 7 + 1));
  }
}

TEST_F(RingEntry, FreshMemoryHoldsNothing) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
    EXPECT_FALSE(may_be_ring_entry(entry_, number));
    EXPECT_EQ(read(number), 0u);
  }
}

TEST_F(RingEntry, AnotherNumberOrKeyIsNoEntry) {
  entry_ = sealed(40, 7);
  EXPECT_FALSE(may_be_ring_entry(entry_, 7 + kRingEntries));
  EXPECT_EQ(read(7 + kRingEntries), 0u);
  EXPECT_EQ(read(7, kKey + 1), 0u);
  // The lower 32 bits alone do not make it.
  EXPECT_TRUE(may_be_ring_entry(entry_, 7 + (std::uint64_t{1} << 32)));
  EXPECT_EQ(read(7 + (std::uint64_t{1} << 32)), 0u);
  EXPECT_EQ(read(7), 40u);
}

TEST_F(RingEntry, NoLengthLeadsOutOfTheEntry) {
  entry_ = sealed(40, 7);
  for (std::uint32_t length = 0; length <= UINT16_MAX; ++length) {
    if (length == 40) continue;
    entry_.back() = 7u | std::uint64_t{length} << 32;
    ASSERT_EQ(read(7), 0u) << length;
  }
  entry_.back() = 7u | std::uint64_t{40} << 32 | std::uint64_t{1} << 48;
  EXPECT_EQ(read(7), 0u) << "reserved";
}

TEST_F(RingEntry, EveryBitCounts) {
  for (const std::size_t length : {kShortest, std::size_t{40}, kLongest}) {
    const auto whole = sealed(length, 99);
    const std::size_t first = kWords - ring_entry_bytes(length) / 8;
    for (std::size_t word = first; word < kWords; ++word) {
      for (int bit = 0; bit < 64; ++bit) {
        entry_ = whole;
        entry_[word] ^= std::uint64_t{1} << bit;
        ASSERT_EQ(read(99), 0u) << length << " bytes, word " << word << ", bit " << bit;
      }
    }
  }
}

/// Any words of a new entry over an older one of the same place, in any order.
TEST_F(RingEntry, APartOfAWriteIsNoEntry) {
  SeededRandom random(5);
  for (int round = 0; round < 20'000; ++round) {
    const std::uint64_t number = random.below(1000);
    const std::size_t length = kShortest + random.below(kLongest - kShortest + 1);
    const auto old = sealed(kShortest + random.below(kLongest - kShortest + 1), number, kKey, 2);
    const auto fresh = sealed(length, number + kRingEntries, kKey, 3);
    const std::size_t first = kWords - ring_entry_bytes(length) / 8;
    entry_ = old;
    bool whole = true;
    for (std::size_t word = first; word < kWords; ++word) {
      if (random.below(4) != 0)
        entry_[word] = fresh[word];
      else
        whole = whole && old[word] == fresh[word];
    }
    ASSERT_EQ(read(number + kRingEntries), whole ? length : 0u) << round;
  }
}

TEST_F(RingEntry, GarbageIsNoEntry) {
  SeededRandom random(6);
  for (int round = 0; round < 50'000; ++round) {
    for (std::uint64_t& word : entry_) word = random.below(UINT64_MAX);
    if (round % 2 == 0) entry_.back() = (entry_.back() & ~std::uint64_t{0xFFFF'FFFF}) | 3u;
    ASSERT_EQ(read(3), 0u);
  }
}

}  // namespace
}  // namespace ch3_offload
