// The producer's end of a ring whose consumer does not follow the protocol. What follows it is the provider contract's.

#include "rdma/shm/ring.h"

#include <gtest/gtest.h>

#include "rdma/shm/shared_memory.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kRingBytes = kLeastRingBytes;
constexpr std::size_t kPayload = longest_payload(kRingBytes);

class HostileConsumer : public testing::Test {
 protected:
  HostileConsumer() {
    Result<FileDescriptor> file = make_shared_file("ring-test", kRingControlBytes + kRingBytes);
    memory_ = std::move(map_mirrored(file.value(), kRingControlBytes, kRingBytes).value());
    producer = RingProducer(memory_.address(), kRingBytes, kRingBytes);
  }
  /// Publishes what there is room for.
  std::uint64_t fill() {
    std::uint64_t records = 0;
    for (; producer.has_room(kPayload); ++records) producer.publish(RecordKind::kMessage, kPayload);
    return records;
  }
  void return_up_to(std::uint64_t position) {
    reinterpret_cast<RingControl*>(memory_.address())->consumer_position = position;
  }

  RingProducer producer;

 private:
  Mapping memory_;
};

TEST_F(HostileConsumer, WhoReturnsNoMoreThanItWasGivenIsTrusted) {
  const std::uint64_t records = fill();
  ASSERT_EQ(records, 3u);
  return_up_to(records * record_bytes(kPayload));
  EXPECT_EQ(fill(), records);
  EXPECT_FALSE(producer.broken());
}

TEST_F(HostileConsumer, WhoReturnsMoreThanItWasGivenIsFoundOut) {
  for (const std::uint64_t excess : {std::uint64_t{1}, std::uint64_t{kLineBytes}, std::uint64_t{1} << 63}) {
    const RingProducer fresh = producer;
    const std::uint64_t records = fill();
    return_up_to(records * record_bytes(kPayload) + excess);
    EXPECT_FALSE(producer.has_room(kPayload)) << excess;
    EXPECT_TRUE(producer.broken()) << excess;
    EXPECT_FALSE(producer.has_room_for_sure(kPayload)) << excess;
    return_up_to(0);
    producer = fresh;
  }
}

TEST_F(HostileConsumer, WhoTakesBackWhatItReturnedIsFoundOut) {
  const std::uint64_t records = fill();
  return_up_to(records * record_bytes(kPayload));
  EXPECT_EQ(fill(), records);
  return_up_to(record_bytes(kPayload));
  EXPECT_FALSE(producer.has_room_for_sure(kPayload));
  EXPECT_TRUE(producer.broken());
}

}  // namespace
}  // namespace ch3_offload
