// Engine: registered memory of transfers over a provider where registering costs.

#include <unistd.h>

#include <string>

#include "engine/engine_world.h"
#include "engine/page_arena.h"
#include "engine/trace_contents.h"

namespace ch3_offload {
namespace {

class EngineMemory : public EngineWorld {
 protected:
  EngineMemory() { network_config.registering_costs = true; }
  ~EngineMemory() override { std::pmr::set_default_resource(default_before_); }

  /// The same buffers each time, as a program has them.
  void exchange(TestSend& message, TestReceive& request) {
    receive(1, request);
    send(0, 1, message);
    settle();
    expect_sent(message);
    expect_received(request, message);
  }

  /// As if a buffer had gone to the system and other memory had come there.
  void replace(std::uint32_t i, PayloadBuffer& buffer) {
    const Payload payload = buffer.payload();
    at(i)->memory_gone(payload.address, payload.length_bytes);
    at(i).provider->memory_gone(payload.address, payload.length_bytes);
  }

  static constexpr std::size_t kLong = 100'000;

 private:
  PageArena arena_;  // Buffers that share no page.
  std::pmr::memory_resource* const default_before_ = std::pmr::set_default_resource(&arena_);
};

TEST_F(EngineMemory, IsRegisteredOnceForManyTransfers) {
  make();
  TestSend message(kLong);
  TestReceive request(kLong);
  for (int i = 0; i < 5; ++i) exchange(message, request);
  for (const std::uint32_t i : {0u, 1u}) {
    EXPECT_EQ(at(i).counters().pin_misses, 1u);
    EXPECT_EQ(at(i).counters().pin_hits, 4u);
    EXPECT_EQ(at(i).counters().pinned_regions, 1u);
    EXPECT_GE(at(i).counters().pinned_bytes, kLong);
    EXPECT_EQ(at(i).provider->regions(), 1u);
  }
  EXPECT_EQ(at(0).counters().bulk_written, 5u);
}

TEST_F(EngineMemory, IsRegisteredAnewWhenItWentAndCame) {
  make();
  TestSend message(kLong);
  TestReceive request(kLong);
  exchange(message, request);
  replace(0, message.buffer);
  replace(1, request.buffer);
  exchange(message, request);  // The network would complain of a stale registration.
  EXPECT_EQ(at(0).counters().pin_misses, 2u);
  EXPECT_EQ(at(1).counters().pin_invalidations, 1u);
  EXPECT_EQ(at(1).provider->regions(), 1u);
}

TEST_F(EngineMemory, NeedNotBeWatchedWhereTheDeviceFaultsPages) {
  make();
  EXPECT_TRUE(at(0)->keeps_memory());
  network_config.on_demand = true;
  make();
  EXPECT_FALSE(at(0)->keeps_memory());
  TestSend message(kLong);
  TestReceive request(kLong);
  for (int i = 0; i < 3; ++i) {
    exchange(message, request);
    for (PayloadBuffer* const buffer : {&message.buffer, &request.buffer})
      for (const std::uint32_t process : {0u, 1u})
        at(process).provider->memory_gone(buffer->payload().address, kLong);
  }
  EXPECT_EQ(at(0).counters().pin_misses, 1u);
  EXPECT_EQ(at(0).counters().pin_hits, 2u);
}

TEST_F(EngineMemory, ThatTheDeviceFaultsInIsRegisteredApartForReadingAndForWriting) {
  network_config.on_demand = true;
  make();
  TestSend message(kLong);
  TestReceive request(kLong);
  for (int i = 0; i < 3; ++i) {
    exchange(message, request);
    // Back, from and to the same memory.
    receive(0, request);
    send(1, 0, message);
    settle();
  }
  for (const std::uint32_t i : {0u, 1u}) {
    EXPECT_EQ(at(i).counters().pin_misses, 2u);
    EXPECT_EQ(at(i).counters().pinned_regions, 2u);
  }
}

TEST_F(EngineMemory, OfADeadProgramIsDeregisteredByProgress) {
  make();
  TestSend message(kLong);
  TestReceive request(kLong);
  exchange(message, request);
  EXPECT_EQ(at(1).provider->regions(), 1u);
  replace(1, request.buffer);
  at(1).progress();
  EXPECT_EQ(at(1).provider->regions(), 0u);
}

TEST_F(EngineMemory, IsNotKeptWhereNobodyWatches) {
  make();
  at(1)->stop_keeping_memory();
  EXPECT_TRUE(at(0)->keeps_memory());
  EXPECT_FALSE(at(1)->keeps_memory());
  TestSend message(kLong);
  TestReceive request(kLong);
  for (int i = 0; i < 3; ++i) exchange(message, request);
  EXPECT_EQ(at(1).counters().pin_misses, 3u);
  EXPECT_EQ(at(1).provider->regions(), 0u);
}

TEST_F(EngineMemory, ThatCannotBeRegisteredBouncesAndTheUserIsToldOnce) {
  network_config.pinned_budget_bytes = kLong / 2;
  make();
  TestSend message(kLong);
  TestReceive request(kLong);
  for (int i = 0; i < 3; ++i) exchange(message, request);
  EXPECT_EQ(at(0).counters().bulk_bounced, 3u);
  EXPECT_EQ(at(1).counters().pin_refused, 3u);
  ASSERT_EQ(at(1).warnings.size(), 1u);
  EXPECT_NE(at(1).warnings[0].find("100000 bytes"), std::string::npos) << at(1).warnings[0];
  EXPECT_EQ(at(1).warning_scopes[0], LogScope::kNode);
}

TEST_F(EngineMemory, MakesRoomByGivingUpOlderRegions) {
  network_config.pinned_budget_bytes = 3 * kLong;
  make();
  std::vector<std::unique_ptr<TestSend>> messages;
  std::vector<std::unique_ptr<TestReceive>> requests;
  for (int i = 0; i < 6; ++i) {
    messages.push_back(std::make_unique<TestSend>(kLong));
    requests.push_back(std::make_unique<TestReceive>(kLong));
  }
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < messages.size(); ++i) exchange(*messages[i], *requests[i]);
  EXPECT_EQ(at(0).counters().bulk_written, 18u);
  EXPECT_EQ(at(1).counters().pin_refused, 0u);
  EXPECT_GT(at(1).counters().pin_evictions, 10u);
  EXPECT_TRUE(at(1).warnings.empty());
}

TEST_F(EngineMemory, ThatAFailedPeerCouldWriteToIsNotKept) {
  make(3);
  TestSend message(kLong);
  TestReceive request(kLong);
  exchange(message, request);
  TestReceive other(kLong);
  receive(1, other);
  TestSend more(kLong);
  send(2, 1, more);
  while (at(1).provider->regions() < 2) step();
  kill(2);
  settle();
  EXPECT_EQ(outcome(other)->status, Status::kPeerFailed);
  EXPECT_EQ(at(1).provider->regions(), 1u);  // The first one's.
}

TEST_F(EngineMemory, WhatIsGivenUpOrGoesIsTraced) {
  network_config.pinned_budget_bytes = 3 * kLong;
  Trace trace(PeerId{0}, 2, 4096);
  engine_config.trace = &trace;
  make();
  std::vector<std::unique_ptr<TestSend>> messages;
  TestReceive request(kLong);
  for (int i = 0; i < 6; ++i) {
    messages.push_back(std::make_unique<TestSend>(kLong));
    exchange(*messages.back(), request);
  }
  replace(0, messages.back()->buffer);
  at(0).progress();
  const std::string path = testing::TempDir() + "ch3-trace-" + std::to_string(getpid());
  EXPECT_EQ(trace.write(path), 0);
  const TraceContents contents = read_back(path);
  unlink(path.c_str());
  const auto regions = [&contents](TraceEvent event) {
    std::uint64_t sum = 0;
    for (const TraceRecord& record : contents.records)
      if (record.event == static_cast<std::uint8_t>(event) && record.peer == 0) sum += record.detail;
    return sum;
  };
  EXPECT_GT(at(0).counters().pin_evictions, 0u);
  EXPECT_EQ(regions(TraceEvent::kMemoryEvicted), at(0).counters().pin_evictions);
  EXPECT_EQ(regions(TraceEvent::kMemoryGone), 1u);
  for (const std::uint32_t i : {0u, 1u}) at(i).engine.reset();  // Before the trace.
}

TEST_F(EngineMemory, KeptRegionsAreGoneWithTheEngine) {
  make();
  TestSend message(kLong);
  TestReceive request(kLong);
  exchange(message, request);
  at(0).engine.reset();
  EXPECT_EQ(at(0).provider->regions(), 0u);
}

}  // namespace
}  // namespace ch3_offload
