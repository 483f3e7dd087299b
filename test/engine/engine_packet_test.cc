// The packet stream.

#include <gtest/gtest.h>

#include <numeric>

#include "engine/engine_world.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kSlotBytes = 1024;

class EnginePacket : public EngineWorld {
 protected:
  EnginePacket() { network_config.max_slot_bytes = kSlotBytes; }

  /// The next bytes of the stream from 0 to 1: the pattern of seed 5.
  std::vector<std::byte> next_bytes(std::size_t length) {
    std::vector<std::byte> bytes(length);
    fill_pattern(bytes, 5, sent);
    sent += length;
    return bytes;
  }
  Progressed send_packet(std::span<const std::byte> header, std::span<const Payload> data, Cookie cookie) {
    at(0).sends.erase(cookie);
    Status status = Status::kDeviceFailed;
    const Progressed progressed = at(0)->send_packet(PeerId{1}, header, data, cookie, status);
    EXPECT_EQ(status, Status::kOk);
    return progressed;
  }
  void expect_stream() {
    settle();
    const std::vector<std::byte>& stream = at(1).packets[0];
    EXPECT_EQ(stream.size(), sent);
    EXPECT_EQ(first_difference(stream, 5), stream.size());
    EXPECT_EQ(at(1).counters().packet_bytes_received, sent);
  }

  std::uint64_t sent = 0;
};

TEST_F(EnginePacket, AnyLengthArrivesAsOneRunOfBytes) {
  make();
  for (const std::size_t header_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{40}, kSlotBytes - 8, kSlotBytes}) {
    for (const std::size_t data_bytes : {std::size_t{0}, std::size_t{1}, kSlotBytes - 48, kSlotBytes - 47,
                                         3 * kSlotBytes, std::size_t{100'000}}) {
      const std::vector<std::byte> header = next_bytes(header_bytes);
      std::vector<std::byte> bytes = next_bytes(data_bytes);
      const Payload data[] = {{bytes.data(), bytes.size(), nullptr}};
      static_cast<void>(send_packet(header, data, &bytes));
      expect_stream();
    }
  }
  EXPECT_EQ(at(0).counters().packets_sent, 30u);
  expect_at_rest();
}

TEST_F(EnginePacket, ItsFirstBytesAreNotCut) {
  network_config.max_slot_bytes = kLeastSlotBytes;
  make();
  const std::vector<std::byte> header = next_bytes(kUncutPacketBytes);
  std::vector<std::byte> bytes = next_bytes(500);
  const Payload data[] = {{bytes.data(), bytes.size(), nullptr}};
  static_cast<void>(send_packet(header, data, &bytes));
  for (int i = 0; i < 1000 && at(1).packets[0].empty(); ++i) step();
  EXPECT_EQ(at(1).packets[0].size(), kUncutPacketBytes);
  expect_stream();
}

TEST_F(EnginePacket, IsGatheredFromItsParts) {
  make();
  for (const std::size_t scale : {std::size_t{1}, std::size_t{50}}) {  // One slot; many.
    const std::vector<std::byte> header = next_bytes(32);
    std::vector<std::byte> first = next_bytes(3 * scale);
    PayloadBuffer strided(100 * scale, 7, 3);
    const std::vector<std::byte> middle = next_bytes(100 * scale);
    const Payload layout = strided.payload();
    layout.layout->unpack(layout.address, 0, middle.data(), middle.size());
    std::vector<std::byte> last = next_bytes(5 * scale);
    const Payload data[] = {{first.data(), first.size(), nullptr}, {nullptr, 0, nullptr}, layout,
                            {last.data(), last.size(), nullptr}};
    static_cast<void>(send_packet(header, data, &last));
    expect_stream();
  }
  expect_at_rest();
}

TEST_F(EnginePacket, ItsHeaderIsCopiedAndItsDataIsReadWhenItLeaves) {
  network_config.slots_per_pair = 1;
  make();
  std::vector<std::byte> header = next_bytes(32);
  std::vector<std::byte> bytes = next_bytes(5000);
  const Payload data[] = {{bytes.data(), bytes.size(), nullptr}};
  ASSERT_EQ(send_packet(header, data, &bytes), Progressed::kPending);
  std::fill(header.begin(), header.end(), std::byte{0});
  expect_stream();
  EXPECT_EQ(at(0).sends.at(&bytes), Status::kOk);
  expect_at_rest();
}

TEST_F(EnginePacket, AnEmptyOneIsDoneAndSendsNothing) {
  make();
  const std::uint64_t before = network->messages_delivered();
  EXPECT_EQ(send_packet({}, {}, this), Progressed::kDone);
  settle();
  EXPECT_EQ(network->messages_delivered(), before);
}

TEST_F(EnginePacket, KeepsItsPlaceAmongMessages) {
  for (const std::uint32_t slots : {1U, 64U}) {
    network_config.slots_per_pair = slots;
    make();
    sent = 0;
    std::vector<std::unique_ptr<TestSend>> messages;
    std::vector<std::unique_ptr<TestReceive>> requests;
    std::vector<std::vector<std::byte>> packets;
    for (std::size_t i = 0; i < 20; ++i) {
      requests.push_back(std::make_unique<TestReceive>(3000));
      receive(1, *requests[i]);
    }
    for (std::size_t i = 0; i < 20; ++i) {
      messages.push_back(std::make_unique<TestSend>(i % 2 == 0 ? 20 : 3000, i + 1));
      send(0, 1, *messages[i]);
      packets.push_back(next_bytes(100));
      const Payload data[] = {{packets[i].data(), 100, nullptr}};
      static_cast<void>(send_packet({}, data, &packets[i]));
    }
    expect_stream();
    for (std::size_t i = 0; i < 20; ++i) expect_received(*requests[i], *messages[i]);
    std::string expected;
    for (std::size_t i = 0; i < 20; ++i) expected += "rp";
    EXPECT_EQ(at(1).history, expected);
    expect_at_rest();
  }
}

// Long parts of packets, by rendezvous. The eager limit of these worlds is 16 KiB.

class EnginePacketPart : public EnginePacket {
 protected:
  EnginePacketPart() { network_config.write_threshold_bytes = 4096; }
  /// A packet with 40 bytes of header and that much contiguous data, which lives until the test's end.
  Progressed send_long(std::size_t data_bytes) {
    const std::vector<std::byte> header = next_bytes(40);
    kept.push_back(std::make_unique<std::vector<std::byte>>(next_bytes(data_bytes)));
    const Payload data[] = {{kept.back()->data(), data_bytes, nullptr}};
    return send_packet(header, data, kept.back().get());
  }
  void expect_all_sent() {
    for (const auto& bytes : kept) EXPECT_EQ(at(0).sends.at(bytes.get()), Status::kOk);
    EXPECT_TRUE(at(0)->idle());
  }
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept;
};

TEST_F(EnginePacketPart, IsWrittenToItsPlace) {
  make();
  at(1).place_for = [](std::size_t length) { return length; };
  EXPECT_EQ(send_long(100'000), Progressed::kPending);
  EXPECT_FALSE(at(0)->idle()) << "its part is yet to leave";
  expect_stream();
  EXPECT_EQ(at(1).history, "poP");
  EXPECT_EQ(at(1).counters().packet_bytes_placed, 100'000u);
  EXPECT_EQ(at(0).counters().bulk_written, 1u);
  expect_all_sent();
  expect_at_rest();
}

TEST_F(EnginePacketPart, GoesThroughSlotsToItsPlaceWhereNothingCanBeWritten) {
  network_config.pair_without_write_probability = 1;
  make();
  at(1).place_for = [](std::size_t length) { return length; };
  static_cast<void>(send_long(100'000));
  expect_stream();
  EXPECT_EQ(at(1).counters().packet_bytes_placed, 100'000u);
  EXPECT_EQ(at(0).counters().bulk_bounced, 1u);
  static_cast<void>(send_long(100'000));  // It is known by now.
  expect_stream();
  EXPECT_EQ(at(1).counters().packet_bytes_placed, 100'000u);
  expect_all_sent();
  expect_at_rest();
}

TEST_F(EnginePacketPart, WithoutAPlaceComesThroughSlots) {
  make();
  static_cast<void>(send_long(100'000));
  static_cast<void>(send_long(50'000));
  expect_stream();
  EXPECT_EQ(std::count(at(1).history.begin(), at(1).history.end(), 'o'), 2) << "each part is offered once";
  EXPECT_EQ(at(1).counters().packet_bytes_placed, 0u);
  expect_all_sent();
  expect_at_rest();
}

TEST_F(EnginePacketPart, WhosePlaceEndsGoesOnBehindIt) {
  make();
  at(1).place_for = [](std::size_t) { return std::size_t{40'000}; };
  static_cast<void>(send_long(100'000));  // 40,000 twice, and 20,000.
  static_cast<void>(send_long(50'000));   // 40,000; the rest is eager.
  expect_stream();
  EXPECT_EQ(at(1).history.substr(0, 7), "poPoPoP");
  EXPECT_EQ(at(1).counters().packet_bytes_placed, 140'000u);
  expect_all_sent();
  expect_at_rest();
}

TEST_F(EnginePacketPart, IsNotTakenInSmallPieces) {
  make();
  at(1).place_for = [](std::size_t) { return std::size_t{1000}; };
  static_cast<void>(send_long(100'000));
  expect_stream();
  EXPECT_EQ(at(1).counters().packet_bytes_placed, 0u);
  expect_all_sent();
}

TEST_F(EnginePacketPart, NothingBehindItOvertakesIt) {
  for (const double jitter : {0.0, 1.0}) {
    network_config.most_delay_ns = jitter == 0 ? 1000 : 50'000;  // Writes and slots overtake each other.
    make();
    sent = 0;
    kept.clear();
    at(1).place_for = [](std::size_t length) { return length; };
    TestReceive request(100);
    receive(1, request);
    static_cast<void>(send_long(100'000));
    TestSend message(100);
    send(0, 1, message);
    static_cast<void>(send_long(100));
    static_cast<void>(send_long(60'000));
    expect_stream();
    expect_received(request, message);
    EXPECT_EQ(at(1).history, "poPrppoP");
    expect_at_rest();
  }
}

TEST_F(EnginePacketPart, EachLongPartOfAPacketIsOffered) {
  make();
  at(1).place_for = [](std::size_t length) { return length; };
  std::vector<std::byte> parts[5];
  for (std::size_t i = 0; i < 5; ++i) parts[i] = next_bytes(i % 2 == 0 ? 10 : 30'000);
  PayloadBuffer strided(30'000, 7, 3);
  const std::vector<std::byte> last = next_bytes(30'000);
  const Payload layout = strided.payload();
  layout.layout->unpack(layout.address, 0, last.data(), last.size());
  Payload data[6];
  for (std::size_t i = 0; i < 5; ++i) data[i] = {parts[i].data(), parts[i].size(), nullptr};
  data[5] = layout;
  static_cast<void>(send_packet({}, data, parts));
  expect_stream();
  EXPECT_EQ(at(1).counters().packet_bytes_placed, 60'000u) << "but not the one with holes";
  expect_at_rest();
}

TEST_F(EnginePacketPart, ADeathFailsThePacketAndTakesThePlaceBack) {
  std::size_t places_at_death = 0, sources_at_death = 0;
  for (const std::uint32_t dies : {0U, 1U}) {
    for (int steps = 0; steps < 8; ++steps) {
      SCOPED_TRACE(std::to_string(dies) + " dies after " + std::to_string(steps));
      make();
      sent = 0;
      kept.clear();
      at(1).place_for = [](std::size_t length) { return length; };
      static_cast<void>(send_long(100'000));
      static_cast<void>(send_long(100));
      for (int i = 0; i < steps; ++i) step();
      (dies == 0 ? places_at_death : sources_at_death) += at(1 - dies).provider->regions();
      const bool all_gone = at(0)->idle();
      const bool all_there = at(1).packets[0].size() == sent;
      kill(dies);
      settle();
      EXPECT_EQ(at(1 - dies).provider->regions(), 0u);
      EXPECT_TRUE(at(1 - dies)->idle());
      if (dies == 0) {
        EXPECT_EQ(at(1).failures.size(), 1u);
        const std::vector<std::byte>& stream = at(1).packets[0];
        EXPECT_EQ(first_difference(stream, 5), stream.size());
      } else {
        EXPECT_EQ(at(0).failures.size(), 1u);
        for (const auto& bytes : kept) {
          const auto outcome = at(0).sends.find(bytes.get());
          if (outcome == at(0).sends.end()) continue;  // It was done at once.
          EXPECT_TRUE(outcome->second == Status::kPeerFailed || (outcome->second == Status::kOk && (all_gone || all_there)));
        }
        EXPECT_EQ(at(0).sends.count(kept[0].get()), 1u);
      }
    }
  }
  EXPECT_GT(places_at_death, 0u) << "nobody died while a place was granted";
  EXPECT_GT(sources_at_death, 0u) << "nobody died while a source was read";
}

}  // namespace
}  // namespace ch3_offload
