// What the engine allocates: nothing on the small-message path, little for a peer. And what it does when
// there is no memory.
//
// Its program replaces operator new (counting_allocator.h). The provider below allocates nothing once it is
// made, so that every allocation is the engine's.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "counting_allocator.h"
#include "engine/card.h"
#include "engine/engine.h"
#include "engine/event_handler.h"
#include "nic/host_driver.h"

namespace ch3_offload {
namespace {

using allocator::allocated_bytes;
using allocator::allocations;
using allocator::live_bytes;

constexpr std::size_t kSlotBytes = 1024;
constexpr std::size_t kLong = 20'000;  ///< By rendezvous.
constexpr MatchKey kKey = make_match_key(1, 2, 3);
constexpr const char* kAddress = "array:longer-than-what-a-string-keeps-without-memory-of-its-own";

/// Slots in arrays, delivered in order when the other side polls. Reaches everybody: whoever is not
/// `other` never polls, and what is sent to it is dropped.
class ArrayProvider final : public Provider {
 public:
  explicit ArrayProvider(PeerId self) : self_(self) {}
  ArrayProvider* other = nullptr;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return kAddress; }
  bool reaches(std::string_view address) const noexcept override { return address == kAddress; }
  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view, const std::optional<PeerNames>&) override {
    return other != nullptr && peer == other->self_ ? &to_other_ : &to_nobody_;
  }
  std::string address_of(PeerId peer) const override {
    return other != nullptr && peer == other->self_ && other->taken_ > 0 ? kAddress : "";
  }
  Status register_memory(void*, std::size_t, Access, MemoryRegion&) noexcept override {
    return Status::kNoMemory;
  }
  void deregister_memory(MemoryRegion&) noexcept override {}
  Status reserve(Endpoint&, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override {
    if (sent_ - taken_ == slots_.size()) return Status::kAgain;
    slot = {slots_[sent_ % slots_.size()].bytes.data(), length_bytes};
    return Status::kOk;
  }
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    if (&endpoint != &to_other_) return;
    slots_[sent_++ % slots_.size()].length_bytes = length_bytes;
  }
  bool end(PeerId) noexcept override { return false; }
  Status write(Endpoint&, const std::byte*, std::size_t, const MemoryRegion&, RemoteMemory, Immediate,
               WorkId) noexcept override {
    return Status::kUnsupported;
  }
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override {
    std::size_t delivered = 0;
    for (; other != nullptr && delivered < budget && other->taken_ != other->sent_; ++delivered) {
      const Slot& slot = other->slots_[other->taken_ % slots_.size()];
      sink.on_message(other->self_, {slot.bytes.data(), slot.length_bytes});
      ++other->taken_;
    }
    return delivered;
  }
  bool arm() noexcept override { return true; }
  void disarm() noexcept override {}
  int descriptor() const noexcept override { return -1; }

 private:
  struct ArrayEndpoint final : Endpoint {};
  struct Slot {
    std::size_t length_bytes = 0;
    std::array<std::byte, kSlotBytes> bytes{};
  };
  const PeerId self_;
  ArrayEndpoint to_other_;
  ArrayEndpoint to_nobody_;  ///< Of all who never poll.
  const Capabilities capabilities_{"array", kSlotBytes, false, SIZE_MAX};
  std::array<Slot, 64> slots_;
  std::size_t sent_ = 0;
  std::size_t taken_ = 0;
};

class CountingHost final : public EventHandler {
 public:
  void on_send_done(Cookie, Status status) noexcept override { sends += status == Status::kOk; }
  void on_receive_done(Cookie, const Envelope& envelope) noexcept override {
    receives += envelope.status == Status::kOk;
  }
  void on_cancel_done(Cookie, bool) noexcept override {}
  void on_packet(PeerId, std::span<const std::byte> bytes) noexcept override { packet_bytes += bytes.size(); }
  Payload on_packet_offer(PeerId, std::size_t) noexcept override { return {}; }
  void on_packet_placed(PeerId, std::size_t) noexcept override { FAIL(); }
  void on_peer_failed(PeerId, Status reason) noexcept override { failure = reason; }
  std::string on_card_wanted(PeerId) override { return card_version() + ";" + kAddress; }
  void on_warning(LogScope, std::string_view) noexcept override { FAIL(); }

  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::uint64_t packet_bytes = 0;
  Status failure = Status::kOk;  ///< Of the other process.
};

struct ArrayProcess {
  ArrayProcess(PeerId self, std::uint32_t job_size, std::size_t budget_bytes = 0,
               std::size_t send_buffer_bytes = 1 << 20)
      : provider(self) {
    EngineConfig config;
    config.self = self;
    config.senders = job_size;
    config.eager_limit_bytes = 16 * 1024;
    config.unexpected_budget_bytes = budget_bytes != 0 ? budget_bytes : std::size_t{4 * 65536} * job_size;
    config.send_buffer_bytes = send_buffer_bytes;
    Provider* const providers[] = {&provider};
    const std::uint64_t before = allocated_bytes;
    engine = std::make_unique<HostDriver>(config, providers);
    engine_bytes = allocated_bytes - before;
  }
  ArrayProvider provider;
  CountingHost host;
  std::unique_ptr<HostDriver> engine;
  std::uint64_t engine_bytes = 0;
};

class EngineAllocation : public testing::Test {
 protected:
  explicit EngineAllocation(bool has_credit = true) {
    zero.provider.other = &one.provider;
    one.provider.other = &zero.provider;
    for (int i = 0; has_credit && i < 2; ++i) {  // From now on 0 has credit.
      receive(one, 0);
      send(zero, PeerId{1}, 0);
      progress();
    }
    one.host.receives = 0;
    zero.host.sends = 0;  // The first one had to wait for the introduction.
    at_start = zero.engine->counters();
  }
  void send(ArrayProcess& from, PeerId to, std::size_t length, SendMode mode = SendMode::kStandard,
            MatchKey key = kKey) {
    Status status{};
    OperationId operation{};
    const Progressed progressed =
        from.engine->send(to, mode, key, {sent.data(), length, nullptr}, 1, nullptr, operation, status);
    ASSERT_NE(progressed, Progressed::kFailed);
  }
  /// Done at once or by a callback: receives of the host count only the latter.
  void receive(ArrayProcess& at, std::size_t capacity, MatchKey ignore = kIgnoreNothing,
               MatchKey key = kKey) {
    Envelope envelope;
    const Progressed progressed =
        at.engine->post_receive(key, ignore, {received.data(), capacity, nullptr}, nullptr, posted, envelope);
    ASSERT_NE(progressed, Progressed::kFailed);
    at.host.receives += progressed == Progressed::kDone;
  }
  void progress() {
    for (int i = 0; i < 4; ++i) {
      ch3_offload::progress(*zero.engine, zero.host);
      ch3_offload::progress(*one.engine, one.host);
    }
  }
  /// Posts receives until the next one would need more memory.
  void use_up_receives() {
    for (std::uint32_t i = 0; i < 32; ++i) receive(one, 0, kIgnoreNothing, make_match_key(8, 8, i));
    spare = posted;
  }
  /// Runs `exchange` until all pools have their size and credit has gone both ways (so both are connected),
  /// then for good: nothing may be allocated.
  template <class Exchange>
  void expect_no_allocation(Exchange exchange) {
    for (int i = 0; i < 2000; ++i) exchange();
    const std::uint64_t before = allocations;
    const std::uint64_t received_before = one.host.receives;
    for (int i = 0; i < 10'000; ++i) exchange();
    EXPECT_EQ(allocations - before, 0u);
    EXPECT_EQ(one.host.receives - received_before, expected_receives * 10'000u);
    EXPECT_EQ(one.engine->counters().unexpected_bytes, 0u);
  }

  ArrayProcess zero{PeerId{0}, 2};
  ArrayProcess one{PeerId{1}, 2};
  Counters at_start;  ///< Of zero.
  std::array<std::byte, kLong> sent{};
  std::array<std::byte, kLong> received{};
  OperationId posted{};  ///< The latest receive.
  OperationId spare{};   ///< One that is there to be cancelled.
  unsigned expected_receives = 1;
};

TEST_F(EngineAllocation, NoneForShortMessagesToPostedReceives) {
  expect_no_allocation([this] {
    receive(one, 1000);
    send(zero, PeerId{1}, 1000);
    progress();
  });
  // The credit came back all the time.
  EXPECT_EQ(zero.engine->counters().sent_short - at_start.sent_short, 12'000u);
}

TEST_F(EngineAllocation, NoneForWildcardReceives) {
  expected_receives = 3;
  expect_no_allocation([this] {
    for (const MatchKey ignore : {kIgnoreInitiator, kIgnoreTag, kIgnoreInitiatorAndTag})
      receive(one, 100, ignore);
    for (int i = 0; i < 3; ++i) send(zero, PeerId{1}, 100);
    progress();
  });
}

TEST_F(EngineAllocation, NoneForSmallUnexpectedMessagesAndProbes) {
  expected_receives = 2;
  expect_no_allocation([this] {
    send(zero, PeerId{1}, 128);
    send(zero, PeerId{1}, 0);
    progress();
    Envelope envelope;
    MessageId message{};
    ASSERT_TRUE(one.engine->probe(kKey, kIgnoreInitiatorAndTag, envelope));
    receive(one, 128, kIgnoreInitiator);
    ASSERT_TRUE(one.engine->matched_probe(kKey, kIgnoreTag, message, envelope));
    ASSERT_EQ(one.engine->receive_matched(message, {received.data(), 10, nullptr}, nullptr, envelope),
              Progressed::kDone);
    ++one.host.receives;
  });
}

TEST_F(EngineAllocation, NoneForShortSynchronousMessages) {
  expect_no_allocation([this] {
    receive(one, 100);
    send(zero, PeerId{1}, 100, SendMode::kSynchronous);
    progress();
  });
  EXPECT_EQ(zero.host.sends, 12'000u);
}

TEST_F(EngineAllocation, NoneForEagerMessagesOfSeveralSlots) {
  expect_no_allocation([this] {
    receive(one, 10'000);
    send(zero, PeerId{1}, 10'000);
    progress();
  });
  EXPECT_EQ(zero.engine->counters().sent_eager - at_start.sent_eager, 12'000u);
}

TEST_F(EngineAllocation, NoneForMessagesThatWaitForRoom) {
  expected_receives = 80;  // More than there are slots.
  expect_no_allocation([this] {
    for (int i = 0; i < 80; ++i) receive(one, 10);
    for (int i = 0; i < 80; ++i) send(zero, PeerId{1}, 10);
    progress();
  });
}

TEST_F(EngineAllocation, NoneForPacketsThatFitASlot) {
  expected_receives = 0;
  expect_no_allocation([this] {
    Status status{};
    const Payload data[] = {{sent.data(), 500, nullptr}};
    ASSERT_EQ(zero.engine->send_packet(PeerId{1}, {sent.data(), 40}, data, nullptr, status),
              Progressed::kDone);
    progress();
  });
  EXPECT_EQ(one.host.packet_bytes, 12'000u * 540);
}

TEST_F(EngineAllocation, NoneForReceivesThatAreTakenBack) {
  expected_receives = 0;
  expect_no_allocation([this] {
    receive(one, 10);
    ASSERT_TRUE(one.engine->cancel_receive(posted));
  });
}

/// The entry, its share of tables and pools, and of the allocator. Whatever their tags.
TEST_F(EngineAllocation, AnUnexpectedMessageOfUpTo16BytesTakesAtMost160Bytes) {
  constexpr std::int64_t kMessages = 70'000;  // Just above a power of two: the tables have just doubled.
  for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{16}}) {
    for (const bool one_tag : {true, false}) {
      const std::int64_t live_before = live_bytes;
      ArrayProcess sender(PeerId{0}, 2, std::size_t{64} << 20);
      ArrayProcess receiver(PeerId{1}, 2, std::size_t{64} << 20);
      sender.provider.other = &receiver.provider;
      receiver.provider.other = &sender.provider;
      const std::int64_t live_engines = live_bytes;
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        send(sender, PeerId{1}, length, SendMode::kStandard, make_match_key(1, 2, one_tag ? 3 : i));
        if (i % 30 != 0) continue;
        ch3_offload::progress(*receiver.engine, receiver.host);
        ch3_offload::progress(*sender.engine, sender.host);
      }
      for (int i = 0; i < 10; ++i) {
        ch3_offload::progress(*receiver.engine, receiver.host);
        ch3_offload::progress(*sender.engine, sender.host);
      }
      ASSERT_EQ(receiver.engine->counters().unexpected_depth, static_cast<std::uint64_t>(kMessages));
      EXPECT_GT(sender.engine->counters().sent_short, 60'000u);
      EXPECT_LE((live_bytes - live_engines) / kMessages, 160)
          << length << (one_tag ? ", one tag" : ", many tags");
      EXPECT_GT((live_bytes - live_engines) / kMessages, 100);
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        receive(receiver, 16, kIgnoreNothing, make_match_key(1, 2, one_tag ? 3 : i));
      }
      EXPECT_EQ(receiver.engine->counters().unexpected_bytes, 0u);
      EXPECT_LT(live_before, live_bytes);
    }
  }
}

/// What a message is charged pays for it: the memory of a flood that fills the budget is within the
/// budget, but for what the allocator rounds up.
TEST_F(EngineAllocation, AFloodTakesNoMoreMemoryThanItsBudgetAndGivesItBack) {
  constexpr std::size_t kFloodBudget = std::size_t{4} << 20;
  ArrayProcess sender(PeerId{0}, 2, kFloodBudget, 0);
  ArrayProcess receiver(PeerId{1}, 2, kFloodBudget, 0);
  sender.provider.other = &receiver.provider;
  receiver.provider.other = &sender.provider;
  const std::int64_t live_at_first = live_bytes;
  for (const std::size_t length : {std::size_t{900}, std::size_t{0}, std::size_t{17}, std::size_t{64},
                                   std::size_t{100}, std::size_t{700}, std::size_t{900}}) {
    const std::int64_t live_before = live_bytes;
    std::uint64_t flooded = 0;
    const std::uint64_t dropped_before = receiver.engine->counters().dropped_payloads;
    while (receiver.engine->counters().dropped_payloads == dropped_before) {
      send(sender, PeerId{1}, length);
      ++flooded;
      ch3_offload::progress(*receiver.engine, receiver.host);
      ch3_offload::progress(*sender.engine, sender.host);
      ASSERT_LT(flooded, kFloodBudget / 100);
    }
    EXPECT_GT(flooded, kFloodBudget / (length + 160) * 9 / 10);
    const std::uint64_t malloc_bytes = length > 16 ? 8 * receiver.engine->counters().unexpected_depth : 0;
    EXPECT_LE(live_bytes - live_before + static_cast<std::int64_t>(malloc_bytes),
              static_cast<std::int64_t>(kFloodBudget + kFloodBudget / 20))
        << length;
    while (receiver.engine->counters().unexpected_depth > 0) {
      receive(receiver, 1000);
      ch3_offload::progress(*receiver.engine, receiver.host);
      ch3_offload::progress(*sender.engine, sender.host);
    }
    // The entries are kept for the next flood, of whatever length; the payloads are not.
    EXPECT_LE(live_bytes - live_at_first, static_cast<std::int64_t>(kFloodBudget)) << length;
  }
}

/// The tables of the matcher stay small, and work.
TEST_F(EngineAllocation, ReceivesArePostedWithoutMemoryForLargerTables) {
  for (std::uint32_t i = 0; i < 33; ++i) receive(one, 8, kIgnoreNothing, make_match_key(2, 2, i));
  allocator::left = 0;
  for (std::uint32_t i = 33; i < 64; ++i) receive(one, 8, kIgnoreNothing, make_match_key(2, 2, i));
  allocator::left = allocator::kPlenty;
  for (std::uint32_t i = 64; i-- > 0;) {
    send(zero, PeerId{1}, 8, SendMode::kStandard, make_match_key(2, 2, i));
    progress();
  }
  EXPECT_EQ(one.host.receives, 64u);
  EXPECT_EQ(one.engine->counters().posted_depth, 0u);
}

/// Its payload is not here yet, so the receive needs an operation.
TEST_F(EngineAllocation, AReceiveWithoutMemoryFailsAndLeavesTheMessage) {
  send(zero, PeerId{1}, kLong);
  progress();
  use_up_receives();
  Envelope envelope;
  const Payload payload{received.data(), kLong, nullptr};
  for (int i = 0; i < 3; ++i) {
    allocator::left = 0;
    const Progressed progressed =
        one.engine->post_receive(kKey, kIgnoreNothing, payload, nullptr, posted, envelope);
    allocator::left = allocator::kPlenty;
    EXPECT_EQ(progressed, Progressed::kFailed);
    EXPECT_EQ(envelope.status, Status::kNoMemory);
    ASSERT_TRUE(one.engine->probe(kKey, kIgnoreNothing, envelope));
  }
  MessageId message{};
  ASSERT_TRUE(one.engine->matched_probe(kKey, kIgnoreNothing, message, envelope));
  allocator::left = 0;
  const Progressed progressed = one.engine->receive_matched(message, payload, nullptr, envelope);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(progressed, Progressed::kFailed);
  ASSERT_TRUE(one.engine->cancel_receive(spare));  // Now there is an operation again.
  EXPECT_EQ(one.engine->receive_matched(message, payload, nullptr, envelope), Progressed::kPending);
  progress();
  EXPECT_EQ(one.host.receives, 1u);
  EXPECT_EQ(zero.host.sends, 1u);
}

class FirstContact : public EngineAllocation {
 protected:
  FirstContact() : EngineAllocation(false) {}
};

TEST_F(FirstContact, WithoutMemoryTheFirstContactFailsAndMayBeTriedAgain) {
  Status status = Status::kNoMemory;
  OperationId operation{};
  const Payload payload{sent.data(), 10, nullptr};
  std::uint64_t attempts = 0;
  for (; status == Status::kNoMemory; ++attempts) {
    ASSERT_LT(attempts, 100u);
    allocator::left = attempts;
    const Progressed progressed =
        zero.engine->send(PeerId{1}, SendMode::kStandard, kKey, payload, 1, nullptr, operation, status);
    allocator::left = allocator::kPlenty;
    ASSERT_EQ(progressed == Progressed::kFailed, status != Status::kOk);
  }
  EXPECT_EQ(status, Status::kOk);
  EXPECT_GT(attempts, 2u);
  EXPECT_EQ(zero.host.failure, Status::kOk);
  receive(one, 10);
  progress();
  EXPECT_EQ(one.host.receives, 1u);
}

TEST_F(FirstContact, WhoseFirstMessageIsLostForWantOfMemoryFails) {
  send(zero, PeerId{1}, 10);
  ch3_offload::progress(*zero.engine, zero.host);  // The introduction: it leaves.
  allocator::left = 0;
  ch3_offload::progress(*one.engine, one.host);
  ch3_offload::progress(*one.engine, one.host);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(one.host.failure, Status::kOk);
  ch3_offload::progress(*one.engine, one.host);
  EXPECT_EQ(one.host.failure, Status::kNoMemory);
  send(zero, PeerId{1}, 10);
  progress();
  EXPECT_EQ(one.engine->counters().unexpected_depth, 0u);
}

TEST_F(FirstContact, WhoCannotBeAnsweredForWantOfMemoryFails) {
  receive(one, 10);
  send(zero, PeerId{1}, 10, SendMode::kSynchronous);
  ch3_offload::progress(*zero.engine, zero.host);  // The introduction: it leaves.
  allocator::left = 0;
  one.engine->progress();
  EXPECT_EQ(one.host.failure, Status::kOk);
  allocator::left = allocator::kPlenty;
  ch3_offload::progress(*one.engine, one.host);
  EXPECT_EQ(one.host.failure, Status::kNoMemory);
  EXPECT_EQ(one.engine->counters().cards_wanted, 0u);
  EXPECT_TRUE(one.engine->idle());
}

TEST_F(EngineAllocation, PurgeNeedsNoMemory) {
  for (int i = 0; i < 3; ++i) receive(one, 10);
  allocator::left = 0;
  const MatchPattern everything{MatchKey{}, ~MatchKey{}};
  one.engine->purge(PurgeScope::kAll, {&everything, 1}, {}, Status::kRevoked);
  int receives = 0;
  for (Event event; one.engine->next_event(event); ++receives) EXPECT_EQ(event.status, Status::kRevoked);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(receives, 3);
  EXPECT_EQ(one.engine->counters().posted_depth, 0u);
}

TEST_F(EngineAllocation, WithoutMemoryAMessageToOneselfFailsAndDoesNotVanish) {
  OperationId operation{};
  Status status{};
  const auto send_to_self = [&](std::size_t length) {
    return one.engine->send(PeerId{1}, SendMode::kStandard, kKey, {sent.data(), length, nullptr}, 1, nullptr,
                            operation, status);
  };
  allocator::left = 0;
  for (const std::size_t length : {std::size_t{100}, kLong}) {
    EXPECT_EQ(send_to_self(length), Progressed::kFailed);
    EXPECT_EQ(status, Status::kNoMemory);
  }
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(one.engine->counters().unexpected_depth, 0u);
  EXPECT_EQ(one.engine->counters().pending_sends, 0u);
  EXPECT_EQ(send_to_self(100), Progressed::kDone);
  Envelope envelope;
  ASSERT_EQ(one.engine->post_receive(kKey, kIgnoreNothing, {received.data(), 100, nullptr}, nullptr, posted,
                                     envelope),
            Progressed::kDone);
  EXPECT_EQ(envelope.length_bytes, 100u);
}

TEST_F(EngineAllocation, WithoutMemoryASendOrAPacketThatMustWaitFails) {
  for (int i = 0; i < 64 + 32; ++i) send(zero, PeerId{1}, 1);  // No room any more, and no operation.
  Status status{};
  OperationId operation{};
  const Payload payload{sent.data(), 100, nullptr};
  const Payload data[] = {payload};
  allocator::left = 0;
  const Progressed message =
      zero.engine->send(PeerId{1}, SendMode::kStandard, kKey, payload, 1, nullptr, operation, status);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(message, Progressed::kFailed);
  EXPECT_EQ(status, Status::kNoMemory);
  send(zero, PeerId{1}, 1);  // Now there are operations, and no memory for what a packet keeps.
  allocator::left = 0;
  const Progressed packet = zero.engine->send_packet(PeerId{1}, {sent.data(), 40}, data, nullptr, status);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(packet, Progressed::kFailed);
  EXPECT_EQ(status, Status::kNoMemory);
  progress();
  progress();
  EXPECT_EQ(one.engine->counters().unexpected_depth, 97u);
  EXPECT_EQ(one.host.packet_bytes, 0u);
  EXPECT_TRUE(zero.engine->idle());
}

/// The requirement of scale: at most 64 bytes for a peer never spoken to, at most 4 KiB for one that is.
TEST(EngineMemory, APeerCostsLittle) {
  const ArrayProcess small(PeerId{0}, 1000);
  ArrayProcess large(PeerId{0}, 101'000);
  EXPECT_EQ(large.engine_bytes, small.engine_bytes) << "a peer never spoken to costs nothing";
  const std::uint64_t before = allocated_bytes;
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    Status status{};
    OperationId operation{};
    std::byte byte{};
    static_cast<void>(large.engine->send(PeerId{i}, SendMode::kStandard, kKey, {&byte, 1, nullptr}, 0,
                                         nullptr, operation, status));
    ASSERT_EQ(status, Status::kOk);
    ch3_offload::progress(*large.engine, large.host);  // The introduction.
  }
  EXPECT_EQ(large.engine->counters().connected_peers, 1000u);
  const std::uint64_t peer_bytes = (allocated_bytes - before) / 1000;
  EXPECT_LE(peer_bytes, 4096u);
  RecordProperty("peer_bytes", static_cast<int>(peer_bytes));
}

}  // namespace
}  // namespace ch3_offload
