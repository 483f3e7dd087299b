// A ring whose window is smaller than the ring: skips, growth, and who is woken.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "rdma/shm/ring.h"
#include "rdma/shm/ring_memory.h"
#include "rdma/shm/shared_memory.h"

namespace ch3_offload {
namespace ring_window_test {

constexpr std::size_t kRingBytes = std::size_t{256} << 10;
constexpr std::size_t kSmall = 56;  ///< A record of one line.
constexpr std::size_t kLong = longest_payload_in_window(kFirstWindowBytes);

class RingWindow : public testing::Test {
 protected:
  RingWindow() {
    file_ = std::move(make_shared_file("ring-test", kRingControlBytes + kRingBytes).value());
    memory_ = std::move(map_mirrored(file_, kRingControlBytes, kRingBytes).value());
    producer = RingProducer(memory_.address(), kRingBytes, kFirstWindowBytes);
    consumer = RingConsumer(memory_.address(), kRingBytes);
  }
  /// Publishes a record whose bytes are all `next_`.
  bool send(std::size_t payload) {
    if (!producer.has_room(payload)) return false;
    std::memset(producer.payload(), next_sent_++, payload);
    producer.publish(RecordKind::kMessage, payload);
    return true;
  }
  std::size_t fill(std::size_t payload) {
    std::size_t records = 0;
    while (send(payload)) ++records;
    return records;
  }
  /// Takes one record. Returns false if there is none.
  bool take() {
    std::uint64_t header = consumer.header();
    if (consumer.is_skip(header)) {
      ++skips;
      consumer.skip();
      header = consumer.header();
    }
    if (header == 0) return false;
    RingConsumer::Record record;
    if (!consumer.parse(header, record)) {
      ADD_FAILURE() << "a record is malformed";
      return false;
    }
    for (const std::byte byte : record.payload) {
      if (byte == std::byte{next_taken_}) continue;
      ADD_FAILURE() << "a record is garbled or out of order";
      return false;
    }
    ++next_taken_;
    consumer.advance(record);
    return true;
  }
  std::size_t take_all() {
    std::size_t records = 0;
    while (take()) ++records;
    static_cast<void>(consumer.release());
    return records;
  }
  /// How far into the ring anything was written.
  std::size_t used_bytes() const {
    std::size_t used = 0;
    for (std::size_t at = 0; at < kRingBytes; at += kLineBytes)
      for (std::size_t i = 0; i < kLineBytes; ++i)
        if (memory_.address()[kRingControlBytes + at + i] != std::byte{0}) used = at + kLineBytes;
    return used;
  }

  /// That the file has.
  std::size_t pages() const {
    struct stat status {};
    EXPECT_EQ(fstat(file_.get(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks * 512 / sysconf(_SC_PAGESIZE));
  }

  int skips = 0;
  RingProducer producer;
  RingConsumer consumer;
  FileDescriptor file_;
  Mapping memory_;

 private:
  unsigned char next_sent_ = 1, next_taken_ = 1;
};

TEST_F(RingWindow, ANewRingHasOnlyThePagesOfItsFirstRecords) {
  producer = RingProducer(memory_.address(), kRingBytes, kRingBytes);
  producer.touch();
  consumer.touch();
  EXPECT_LE(pages(), 2u) << "one of the control block, one of records";
}

TEST_F(RingWindow, ALineOfTrafficStaysInTheWindow) {
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(send(i % 3 == 0 ? kLong : kSmall)) << i;
    ASSERT_EQ(take_all(), 1u) << i;
  }
  EXPECT_GT(skips, 1000);
  EXPECT_LE(used_bytes(), kFirstWindowBytes);
}

TEST_F(RingWindow, IsFullWhenTheConsumerIsBehindTheEndOfIt) {
  const std::size_t records = fill(kSmall);
  EXPECT_EQ(records, kFirstWindowBytes / kLineBytes - 1);
  EXPECT_FALSE(producer.has_room_for_sure(kSmall));
  EXPECT_EQ(take_all(), records);
  EXPECT_TRUE(producer.has_room_for_sure(kSmall));
  EXPECT_EQ(take_all(), 0u) << "a look publishes nothing";
  EXPECT_EQ(skips, 0);
  EXPECT_TRUE(send(kSmall));
  EXPECT_EQ(take_all(), 1u);
  EXPECT_EQ(skips, 1);
}

/// In windows with and without skips: wherever the stream is, as much may be on its way, and not more.
TEST_F(RingWindow, NoMoreIsOnItsWayThanTheProducerWasMadeFor) {
  constexpr std::size_t kAhead = std::size_t{32} << 10;
  for (const std::size_t window : {kRingBytes / 2, kRingBytes}) {
    memory_ = std::move(map_mirrored(file_, kRingControlBytes, kRingBytes).value());
    producer = RingProducer(memory_.address(), kRingBytes, window, kAhead);
    consumer = RingConsumer(memory_.address(), kRingBytes);
    producer.touch();
    consumer.touch();
    for (int round = 0; round < 100; ++round) {
      const std::size_t records = fill(kSmall);
      // The producer that comes to the end of the window may leave the lines of a record there.
      ASSERT_LE(records * kLineBytes, kAhead) << round;
      ASSERT_GE((records + 2) * kLineBytes, kAhead) << round;
      EXPECT_EQ(producer.window_wanted(kSmall), window) << "growing would not help";
      ASSERT_EQ(take_all(), records);
    }
    EXPECT_EQ(skips > 0, window < kRingBytes);
    skips = 0;
  }
}

TEST_F(RingWindow, GrowsInsideTheStream) {
  std::size_t sent = 0, taken = 0;
  for (std::size_t window = kFirstWindowBytes; window < kRingBytes; window *= 2) {
    sent += fill(kSmall);
    ASSERT_EQ(producer.window_wanted(kSmall), 2 * window);
    for (int i = 0; i < 7; ++i) taken += take();
    producer.grow(2 * window);
    ASSERT_TRUE(send(kSmall));
    ++sent;
  }
  sent += fill(kLong) + fill(kSmall);
  EXPECT_EQ(taken + take_all(), sent);
  EXPECT_EQ(skips, 0);
  // The whole ring: records run over its end.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(send(longest_payload(kRingBytes)));
    ASSERT_EQ(take_all(), 1u);
  }
  EXPECT_EQ(skips, 0);
}

TEST_F(RingWindow, GrowsInEachLapOfASkipToo) {
  for (int round = 0; round < 200; ++round) {
    std::size_t sent = fill(round % 2 == 0 ? kSmall : 1000 + static_cast<std::size_t>(round));
    if (round % 40 == 39) producer.grow(std::min(2 * producer.window_bytes(), kRingBytes));
    sent += fill(kSmall);
    ASSERT_EQ(take_all(), sent) << round;
  }
  EXPECT_EQ(producer.window_bytes(), kRingBytes);
}

TEST_F(RingWindow, AProducerThatCaughtUpGrowsOnceInALap) {
  ASSERT_EQ(fill(kSmall), kFirstWindowBytes / kLineBytes - 1);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(take());
  static_cast<void>(consumer.release());
  fill(kSmall);  // Behind a skip, up to the consumer.
  EXPECT_FALSE(producer.is_at_end(kSmall));
  EXPECT_EQ(producer.window_wanted(kSmall), 2 * kFirstWindowBytes);
  producer.grow(2 * kFirstWindowBytes);
  EXPECT_EQ(producer.window_wanted(kSmall), 2 * kFirstWindowBytes) << "it would not help before the next lap";
}

TEST_F(RingWindow, APayloadThatIsTooLongForItWantsAWindowInWhichItFlows) {
  const std::size_t payload = longest_payload(kRingBytes);
  EXPECT_FALSE(send(payload));
  EXPECT_EQ(producer.window_wanted(payload), least_window_bytes(payload));
}

/// RingConsumer::release(): wherever the producer stands when it finds no room, a wake-up comes.
TEST_F(RingWindow, WhoWaitsForRoomIsWokenUntilThereIsRoom) {
  for (const std::size_t window : {kFirstWindowBytes, 2 * kFirstWindowBytes, std::size_t{69'696}}) {
    producer.grow(std::max(window, producer.window_bytes()));
    const std::size_t longest = longest_payload_in_window(producer.window_bytes());
    for (std::size_t i = 0; i < 3000; ++i) {
      const std::size_t payload = 1 + i * 977 % longest;
      if (send(payload)) continue;
      for (bool woken = true; !producer.has_room_for_sure(payload);) {
        ASSERT_TRUE(woken) << "at " << i << " nobody woke the producer";
        producer.announce_waiting();
        if (producer.has_room_for_sure(payload)) break;
        for (woken = false; !woken && take();) woken = consumer.release();
      }
      ASSERT_TRUE(send(payload));
    }
    take_all();
  }
}

TEST_F(RingWindow, ASkipAtTheBeginningOfTheRingIsNone) {
  RingConsumer::Record record;
  const std::uint64_t header = RecordHeader::pack(0, RecordKind::kSkip, 0);
  EXPECT_FALSE(consumer.is_skip(header)) << "skips would follow skips for ever";
  EXPECT_FALSE(consumer.parse(header, record));
}

TEST_F(RingWindow, ASkipWithAPayloadOrOfAnotherPositionIsNone) {
  ASSERT_TRUE(send(kSmall));
  ASSERT_TRUE(take());
  EXPECT_TRUE(consumer.is_skip(RecordHeader::pack(64, RecordKind::kSkip, 0)));
  for (const std::uint64_t header :
       {RecordHeader::pack(64, RecordKind::kSkip, 8), RecordHeader::pack(128, RecordKind::kSkip, 0)}) {
    RingConsumer::Record record;
    EXPECT_FALSE(consumer.is_skip(header));
    EXPECT_FALSE(consumer.parse(header, record));
  }
}

TEST_F(RingWindow, KeepsTheOrderBetweenTwoThreads) {
  constexpr int kRecords = 100'000;
  std::thread sender([&] {
    for (int i = 0; i < kRecords;) {
      const std::size_t payload = 1 + static_cast<std::size_t>(i) * 613 % 3000;
      if (send(payload)) {
        ++i;
        continue;
      }
      if (i % 1000 == 999 && producer.window_bytes() < kRingBytes / 2)
        producer.grow(producer.window_wanted(payload));
      std::this_thread::yield();
    }
  });
  for (int taken = 0; taken < kRecords;) {
    if (take())
      ++taken;
    else
      std::this_thread::yield();
    static_cast<void>(consumer.release());
    if (HasFailure()) break;
  }
  sender.join();
}

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlot = 32'760;

TEST(RingMemory, WithPlentyOfItFewRingsBeginWholeAndManyWithRoomForABurst) {
  constexpr std::size_t kGreatRing = 8 * kRingBytes;
  for (const std::size_t ring_bytes : {kRingBytes / 4, kRingBytes, kGreatRing})
    for (const std::size_t processes : {2u, 5u, 6u}) {
      RingMemory memory(std::size_t{4} << 30, processes, ring_bytes, kPage, kSlot);
      EXPECT_EQ(memory.first_window_bytes(), processes < 6 ? ring_bytes : std::min(ring_bytes, kRingBytes));
    }
  EXPECT_EQ(RingMemory(std::size_t{4} << 20, 2, kGreatRing, kPage, kSlot).first_window_bytes(), kRingBytes);
  for (const std::size_t ring_bytes : {kRingBytes / 4, kRingBytes, kGreatRing}) {
    RingMemory memory(std::size_t{1} << 30, 2, ring_bytes, kPage, kSlot);
    EXPECT_GE(memory.longest_payload(), std::min(kSlot, longest_payload_in_window(ring_bytes)));
    EXPECT_EQ(memory.grant(memory.first_window_bytes(), ring_bytes), ring_bytes);
  }
}

TEST(RingMemory, TheWindowsOfAllRingsFitTheShare) {
  constexpr std::size_t kGreatRing = 8 * kRingBytes;
  for (const std::size_t processes : {8u, 32u, 128u, 500u})
    for (const std::size_t megabytes : {1u, 100u, 700u, 4000u}) {
      const std::size_t all = megabytes << 20, share = all / processes, rings = processes - 1;
      RingMemory memory(all, processes, kGreatRing, kPage, kSlot);
      std::size_t used = 0;
      for (std::size_t i = 0; i < rings; ++i) {
        std::size_t window = memory.first_window_bytes();
        for (int k = 0; k < 9; ++k)
          window =
              memory.grant(window, std::min(std::max(2 * window, least_window_bytes(kSlot)), kGreatRing));
        EXPECT_GE(longest_payload_in_window(window), memory.longest_payload());
        used += window + kPage;
      }
      EXPECT_LE(used, std::max(share, rings * (kFirstWindowBytes + kPage))) << processes << ' ' << megabytes;
    }
}

TEST(RingMemory, TheWindowOfARingThatIsGoneIsForOthers) {
  RingMemory memory(std::size_t{4} << 20, 4, kRingBytes, kPage, kSlot);
  int rings = 0;
  while (rings < 100 && memory.grant(memory.first_window_bytes(), kRingBytes) == kRingBytes) ++rings;
  ASSERT_GT(rings, 0);
  ASSERT_LT(rings, 100);
  memory.give_back(kRingBytes);
  EXPECT_EQ(memory.grant(memory.first_window_bytes(), kRingBytes), kRingBytes);
  EXPECT_LT(memory.grant(memory.first_window_bytes(), kRingBytes), kRingBytes);
}

TEST(RingMemory, WithLittleOfItSlotsAreShorter) {
  const RingMemory memory(std::size_t{1} << 20, 128, kRingBytes, kPage, kSlot);
  EXPECT_EQ(memory.longest_payload(), longest_payload_in_window(kFirstWindowBytes));
  EXPECT_GE(memory.longest_payload(), 4096u);
}

TEST(LapTimer, AStreamIsFastOnceInThirtyTwoLaps) {
  constexpr std::uint64_t kSlow = 100 * CycleClock::kAbout20Microseconds;
  LapTimer timer;
  std::uint64_t now = kSlow;
  const auto fast_in_laps = [&](std::uint64_t each, std::size_t window_bytes) {
    int fast = 0;
    for (int i = 0; i < 32; ++i) fast += timer.is_fast(now += each, window_bytes);
    return fast;
  };
  for (const std::size_t window_bytes : {kFirstWindowBytes, 4 * kFirstWindowBytes}) {
    EXPECT_EQ(fast_in_laps(kSlow, window_bytes), 0);
    EXPECT_EQ(fast_in_laps(CycleClock::kAbout20Microseconds, window_bytes), 1);
  }
  EXPECT_EQ(fast_in_laps(kSlow, std::size_t{1} << 20), 1) << "as many bytes in as much time";
  EXPECT_EQ(fast_in_laps(16 * kSlow, std::size_t{1} << 20), 0);
}

}  // namespace ring_window_test
}  // namespace ch3_offload
