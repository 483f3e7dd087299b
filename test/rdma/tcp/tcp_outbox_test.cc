// What leaves to a peer, byte for byte, however little of it the socket takes at a time. A reader that knows
// nothing of the outbox takes the records apart again.

#include "rdma/tcp/tcp_outbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rdma/contract_world.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kSlotBytes = 1000;
constexpr std::size_t kRecordBytes = sizeof(TcpRecord);

/// Takes the stream of records apart.
class RecordReader {
 public:
  struct Part {
    TcpWriteRecord record;
    std::vector<std::byte> bytes;
  };
  struct Item {
    bool is_message = false;
    std::vector<std::byte> message;
    Part part;
  };

  void take(const std::byte* bytes, std::size_t length) {
    stream_.insert(stream_.end(), bytes, bytes + length);
    while (take_one()) {
    }
  }
  /// Whether the stream ends with a whole record.
  bool is_whole() const { return at_ == stream_.size(); }

  std::vector<Item> items;

 private:
  bool take_one() {
    TcpRecord record;
    if (stream_.size() - at_ < sizeof record) return false;
    std::memcpy(&record, stream_.data() + at_, sizeof record);
    EXPECT_TRUE(check_tcp_record(record, kSlotBytes, false));
    const bool is_message = record.kind == TcpRecordKind::kSlot;
    const std::size_t header_bytes = is_message ? sizeof record : sizeof(TcpWriteRecord);
    if (stream_.size() - at_ < header_bytes + record.length_bytes) return false;
    Item item;
    item.is_message = is_message;
    const auto payload = stream_.begin() + static_cast<std::ptrdiff_t>(at_ + header_bytes);
    (is_message ? item.message : item.part.bytes).assign(payload, payload + record.length_bytes);
    if (!is_message) {
      std::memcpy(&item.part.record, stream_.data() + at_, sizeof item.part.record);
      EXPECT_EQ(item.part.record.check, check_of(item.part.record));
    }
    at_ += header_bytes + record.length_bytes;
    items.push_back(std::move(item));
    return true;
  }

  std::vector<std::byte> stream_;
  std::size_t at_ = 0;
};

class Outboxes : public testing::Test {
 protected:
  bool send(std::span<const std::byte> message) {
    const std::span<std::byte> slot = outbox_.reserve(message.size());
    if (slot.empty()) return false;
    EXPECT_EQ(slot.size(), message.size());
    std::ranges::copy(message, slot.begin());
    outbox_.commit(message.size());
    return true;
  }
  void write(const std::vector<std::byte>& source, std::uint32_t id) {
    outbox_.add({source.data(),
                 source.size(),
                 {std::uint64_t{id} << 40, RemoteKey{id + 7}},
                 Immediate{id},
                 WorkId{id}});
  }
  /// The socket takes `most` bytes of what is next. Returns how many that were.
  std::size_t leave(std::size_t most) {
    std::size_t taken = 0;
    for (const iovec& piece : outbox_.next()) {
      const std::size_t length = std::min(piece.iov_len, most - taken);
      reader_.take(static_cast<const std::byte*>(piece.iov_base), length);
      taken += length;
    }
    outbox_.left(taken);
    return taken;
  }
  void leave_all() {
    while (!outbox_.empty()) ASSERT_GT(leave(SIZE_MAX), 0u);
  }
  std::string order() const {
    std::string order;
    for (const RecordReader::Item& item : reader_.items) order += item.is_message ? 'm' : 'w';
    return order;
  }

  TcpOutbox outbox_{kSlotBytes};
  RecordReader reader_;
};

TEST_F(Outboxes, AnEmptyOneHasNothing) {
  EXPECT_TRUE(outbox_.empty());
  EXPECT_TRUE(outbox_.has_room());
  EXPECT_TRUE(outbox_.next().empty());
  outbox_.left(0);
  EXPECT_TRUE(outbox_.empty());
  EXPECT_EQ(outbox_.done_write(false), nullptr);
  EXPECT_EQ(outbox_.done_write(true), nullptr);
  EXPECT_FALSE(outbox_.has_done_writes());
  EXPECT_EQ(outbox_.write_room(), TcpOutbox::kMostWrites);
}

TEST_F(Outboxes, AMessageIsARecordAndItsBytes) {
  const std::vector<std::byte> message = Pattern(1).bytes(5);
  ASSERT_TRUE(send(message));
  EXPECT_FALSE(outbox_.empty());
  const std::span<iovec> pieces = outbox_.next();
  ASSERT_EQ(pieces.size(), 1u);
  ASSERT_EQ(pieces[0].iov_len, kRecordBytes + 5);
  std::array<std::byte, kRecordBytes + 5> expected{};
  const TcpRecord record = make_tcp_record(5, TcpRecordKind::kSlot);
  std::memcpy(expected.data(), &record, kRecordBytes);
  std::ranges::copy(message, expected.begin() + kRecordBytes);
  EXPECT_EQ(std::memcmp(pieces[0].iov_base, expected.data(), expected.size()), 0);
}

TEST_F(Outboxes, WhatIsNotCommittedDoesNotLeave) {
  std::span<std::byte> slot = outbox_.reserve(kSlotBytes);
  ASSERT_EQ(slot.size(), kSlotBytes);
  EXPECT_TRUE(outbox_.empty());
  slot = outbox_.reserve(100);
  std::ranges::fill(slot, std::byte{9});
  outbox_.commit(3);
  leave_all();
  ASSERT_EQ(reader_.items.size(), 1u);
  EXPECT_EQ(reader_.items[0].message, std::vector<std::byte>(3, std::byte{9}));
}

TEST_F(Outboxes, MessagesThatFillItHaveNoRoom) {
  const std::vector<std::byte> longest = Pattern(1).bytes(kSlotBytes);
  for (std::size_t i = 0; i < TcpOutbox::kSlots; ++i) {
    EXPECT_TRUE(outbox_.has_room());
    ASSERT_TRUE(send(longest)) << i;
  }
  EXPECT_FALSE(outbox_.has_room());
  EXPECT_TRUE(outbox_.reserve(1).empty());
  // Not before all of the first has left is there room for one as long.
  ASSERT_EQ(leave(kRecordBytes + kSlotBytes - 1), kRecordBytes + kSlotBytes - 1);
  EXPECT_FALSE(outbox_.has_room());
  EXPECT_TRUE(outbox_.reserve(kSlotBytes).empty());
  EXPECT_EQ(outbox_.reserve(kSlotBytes - 1).size(), kSlotBytes - 1) << "what is there moves to the front";
  ASSERT_EQ(leave(1), 1u);
  EXPECT_TRUE(outbox_.has_room());
  ASSERT_TRUE(send(longest));
  leave_all();
  ASSERT_EQ(reader_.items.size(), TcpOutbox::kSlots + 1);
  for (const RecordReader::Item& item : reader_.items) EXPECT_EQ(item.message, longest);
  EXPECT_TRUE(reader_.is_whole());
}

TEST_F(Outboxes, AWriteLeavesInPartsWhoseAddressesFollowEachOther) {
  const std::size_t lengths[] = {0,
                                 1,
                                 kMostTcpPartBytes - 1,
                                 kMostTcpPartBytes,
                                 kMostTcpPartBytes + 1,
                                 3 * std::size_t{kMostTcpPartBytes} + 17};
  std::uint32_t id = 0;
  for (const std::size_t length : lengths) {
    reader_ = {};
    const std::vector<std::byte> source = Pattern(length).bytes(length);
    write(source, ++id);
    leave_all();
    EXPECT_TRUE(reader_.is_whole());
    ASSERT_EQ(reader_.items.size(),
              std::max<std::size_t>((length + kMostTcpPartBytes - 1) / kMostTcpPartBytes, 1));
    std::vector<std::byte> arrived;
    for (const RecordReader::Item& item : reader_.items) {
      ASSERT_FALSE(item.is_message);
      EXPECT_EQ(item.part.record.immediate, id);
      EXPECT_EQ(item.part.record.remote_key, id + 7);
      EXPECT_EQ(item.part.record.address, (std::uint64_t{id} << 40) + arrived.size());
      arrived.insert(arrived.end(), item.part.bytes.begin(), item.part.bytes.end());
    }
    EXPECT_EQ(arrived, source) << length;
    ASSERT_NE(outbox_.done_write(false), nullptr);
    EXPECT_EQ(outbox_.done_write(false)->work, WorkId{id});
    outbox_.pop_write();
  }
}

TEST_F(Outboxes, MessagesOvertakeAWriteBetweenItsPartsOnly) {
  const std::vector<std::byte> source = Pattern(1).bytes(3 * std::size_t{kMostTcpPartBytes});
  write(source, 1);
  ASSERT_EQ(leave(1), 1u);  // The first part has begun.
  ASSERT_TRUE(send(Pattern(2).bytes(10)));
  ASSERT_TRUE(send(Pattern(3).bytes(10)));
  EXPECT_EQ(outbox_.next().size(), 3u) << "the rest of the header, of the part, and the messages";
  leave(sizeof(TcpWriteRecord) + kMostTcpPartBytes - 2);
  EXPECT_EQ(order(), "");
  leave(1);
  EXPECT_EQ(order(), "w");
  leave_all();
  EXPECT_EQ(order(), "wmmww");
  EXPECT_EQ(reader_.items[1].message, Pattern(2).bytes(10));
  EXPECT_EQ(reader_.items[2].message, Pattern(3).bytes(10));
}

TEST_F(Outboxes, AMessageBeforeAWriteGoesFirst) {
  const std::vector<std::byte> source = Pattern(1).bytes(100);
  ASSERT_TRUE(send(Pattern(2).bytes(10)));
  write(source, 1);
  leave(3);
  ASSERT_TRUE(send(Pattern(3).bytes(10)));
  leave_all();
  EXPECT_EQ(order(), "mwm");
}

/// Messages come as fast as the socket takes them.
TEST_F(Outboxes, AWriteLeavesThoughThereAreAlwaysMessages) {
  const std::vector<std::byte> source = Pattern(1).bytes(3 * std::size_t{kMostTcpPartBytes});
  const std::vector<std::byte> message = Pattern(2).bytes(kSlotBytes);
  while (send(message)) {
  }
  write(source, 1);
  for (int i = 0; i < 10'000 && !outbox_.has_done_writes(); ++i) {
    ASSERT_GT(leave(777), 0u);
    while (send(message)) {
    }
  }
  ASSERT_TRUE(outbox_.has_done_writes());
  leave_all();
  std::size_t overtakers = 0;
  for (const RecordReader::Item& item : reader_.items) {
    overtakers = item.is_message ? overtakers + 1 : 0;
    ASSERT_LE(overtakers, std::size_t{TcpOutbox::kSlots}) << order();
    if (&item - reader_.items.data() >= 4 + 3 * 5) break;  // All of the write has left.
  }
  EXPECT_EQ(std::ranges::count(order(), 'w'), 3);
  EXPECT_TRUE(reader_.is_whole());
}

TEST_F(Outboxes, WritesAreDoneInTheirOrderWhenAllOfThemHasLeft) {
  const std::vector<std::byte> source = Pattern(1).bytes(100);
  write(source, 1);
  write(source, 2);
  EXPECT_FALSE(outbox_.has_done_writes());
  leave(sizeof(TcpWriteRecord) + 99);
  EXPECT_EQ(outbox_.done_write(false), nullptr);
  leave(1);
  EXPECT_TRUE(outbox_.has_done_writes());
  EXPECT_TRUE(outbox_.has_done_writes());
  ASSERT_NE(outbox_.done_write(false), nullptr);
  EXPECT_EQ(outbox_.done_write(false)->work, WorkId{1});
  outbox_.pop_write();
  EXPECT_EQ(outbox_.done_write(false), nullptr);
  ASSERT_NE(outbox_.done_write(true), nullptr) << "when its connection has ended";
  EXPECT_EQ(outbox_.done_write(true)->work, WorkId{2});
  EXPECT_FALSE(outbox_.has_done_writes());
  outbox_.pop_write();
  EXPECT_EQ(outbox_.done_write(true), nullptr);
  EXPECT_EQ(outbox_.write_room(), TcpOutbox::kMostWrites);
}

TEST_F(Outboxes, SoManyWritesHaveRoomUntilTheyAreTold) {
  const std::vector<std::byte> source = Pattern(1).bytes(10);
  for (std::uint32_t i = 0; i < TcpOutbox::kMostWrites; ++i) {
    EXPECT_EQ(outbox_.write_room(), TcpOutbox::kMostWrites - i);
    write(source, i);
  }
  EXPECT_EQ(outbox_.write_room(), 0u);
  leave_all();
  EXPECT_EQ(outbox_.write_room(), 0u) << "they have left, and are not told yet";
  for (std::uint32_t i = 0; i < TcpOutbox::kMostWrites; ++i) {
    ASSERT_NE(outbox_.done_write(false), nullptr);
    EXPECT_EQ(outbox_.done_write(false)->work, WorkId{i});
    outbox_.pop_write();
    EXPECT_EQ(outbox_.write_room(), i + 1);
  }
}

TEST_F(Outboxes, AfterTheEndOfTheConnectionItsWritesAreStillKnown) {
  const std::vector<std::byte> source = Pattern(1).bytes(std::size_t{kMostTcpPartBytes} + 1);
  write(source, 1);
  write(source, 2);
  leave(100);
  ASSERT_TRUE(send(Pattern(2).bytes(10)));
  outbox_.drop_messages();
  EXPECT_FALSE(outbox_.has_done_writes());
  for (const std::uint64_t work : {1u, 2u}) {
    ASSERT_NE(outbox_.done_write(true), nullptr);
    EXPECT_EQ(outbox_.done_write(true)->work, WorkId{work});
    EXPECT_FALSE(outbox_.has_done_writes());
    outbox_.pop_write();
  }
  EXPECT_TRUE(outbox_.empty());
}

/// What was asked for, and what the reader should see.
class RandomTraffic : public Outboxes {
 protected:
  void run(std::uint64_t seed) {
    SeededRandom random(seed);
    std::vector<std::vector<std::byte>> messages;
    std::deque<std::vector<std::byte>> sources;  // Of the write with number i.
    std::size_t done = 0;
    const auto tell_done = [&] {
      while (const TcpOutbox::Write* const write = outbox_.done_write(false)) {
        ASSERT_EQ(write->work, WorkId{done});
        outbox_.pop_write();
        ++done;
      }
    };
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t what = random.below(10);
      if (what < 4) {
        messages.push_back(Pattern(random.next()).bytes(random.between(1, kSlotBytes)));
        const bool had_room = outbox_.has_room();
        if (!send(messages.back())) {
          EXPECT_FALSE(had_room);
          messages.pop_back();
        }
      } else if (what == 4 && outbox_.write_room() > 0) {
        // Seldom several parts: they take time.
        const std::size_t most = random.chance(0.1) ? 3 * std::size_t{kMostTcpPartBytes} : 2000;
        sources.push_back(Pattern(random.next()).bytes(random.below(most)));
        write(sources.back(), static_cast<std::uint32_t>(sources.size() - 1));
      } else if (what == 5) {
        tell_done();
      } else {
        leave(random.chance(0.3) ? random.between(1, 40) : random.between(1, 100'000));
      }
    }
    leave_all();
    tell_done();
    EXPECT_EQ(done, sources.size());
    EXPECT_TRUE(reader_.is_whole());
    expect_all(messages, sources);
  }

 private:
  void expect_all(const std::vector<std::vector<std::byte>>& messages,
                  const std::deque<std::vector<std::byte>>& sources) {
    std::size_t message = 0;
    std::uint32_t current = 0;
    std::size_t begun_bytes = 0;  // Of the current write.
    for (const RecordReader::Item& item : reader_.items) {
      if (item.is_message) {
        ASSERT_LT(message, messages.size());
        ASSERT_EQ(item.message, messages[message]) << message;
        ++message;
        continue;
      }
      ASSERT_LT(current, sources.size());
      ASSERT_EQ(item.part.record.immediate, current);
      ASSERT_EQ(item.part.record.remote_key, current + 7);
      ASSERT_EQ(item.part.record.address, (std::uint64_t{current} << 40) + begun_bytes);
      const std::vector<std::byte>& source = sources[current];
      ASSERT_LE(begun_bytes + item.part.bytes.size(), source.size());
      ASSERT_TRUE(std::equal(item.part.bytes.begin(), item.part.bytes.end(),
                             source.begin() + static_cast<std::ptrdiff_t>(begun_bytes)));
      begun_bytes += item.part.bytes.size();
      if (begun_bytes < source.size()) {
        ASSERT_EQ(item.part.bytes.size(), kMostTcpPartBytes) << "only the last part is shorter";
        continue;
      }
      ++current;
      begun_bytes = 0;
    }
    EXPECT_EQ(message, messages.size());
    EXPECT_EQ(current, sources.size());
  }
};

TEST_F(RandomTraffic, LeavesWholeAndInOrderHoweverLittleTheSocketTakes) {
  for (std::uint64_t seed = 1; seed <= 40 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    reader_ = {};
    run(seed);
    // The next run begins with the numbers of a new outbox.
    ASSERT_TRUE(outbox_.empty());
  }
}

}  // namespace
}  // namespace ch3_offload
