// What the engine allocates: nothing on the small-message path, little for a peer. And what it does when
// there is no memory.
//
// Its program replaces operator new (counting_allocator.h). The provider below allocates nothing once it is
// made, so that every allocation is the engine's.

#include <gtest/gtest.h>

#include <array>

#include "counting_allocator.h"
#include "nic/engine.h"

namespace ch3_offload {
namespace {

using allocator::allocated_bytes;
using allocator::allocations;

constexpr std::size_t kSlotBytes = 1024;
constexpr std::size_t kLong = 20'000;  ///< By rendezvous.
constexpr MatchBits kBits = make_match_bits(1, 2, 3);

/// Slots in arrays, delivered in order when the other side polls. Reaches everybody: whoever is not
/// `other` never polls, and what is sent to it is dropped.
class ArrayProvider final : public Provider {
 public:
  explicit ArrayProvider(PeerId self) : self_(self) {}
  ArrayProvider* other = nullptr;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return "array"; }
  bool reaches(std::string_view address) const noexcept override { return address == "array"; }
  Result<std::monostate> connect(PeerId, std::string_view) override { return std::monostate{}; }
  Status register_memory(void*, std::size_t, Access, MemoryRegion&) noexcept override { return Status::kNoMemory; }
  void deregister_memory(MemoryRegion&) noexcept override {}
  Status reserve(PeerId, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override {
    if (sent_ - taken_ == slots_.size()) return Status::kAgain;
    slot = {slots_[sent_ % slots_.size()].bytes.data(), length_bytes};
    return Status::kOk;
  }
  void commit(PeerId peer, std::size_t length_bytes) noexcept override {
    if (other == nullptr || peer != other->self_) return;
    slots_[sent_++ % slots_.size()].length_bytes = length_bytes;
  }
  bool end(PeerId) noexcept override { return false; }
  Status write(PeerId, const std::byte*, std::size_t, const MemoryRegion&, RemoteMemory, Immediate,
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
  struct Slot {
    std::size_t length_bytes = 0;
    std::array<std::byte, kSlotBytes> bytes{};
  };
  const PeerId self_;
  const Capabilities capabilities_{"array", kSlotBytes, false, SIZE_MAX};
  std::array<Slot, 64> slots_;
  std::size_t sent_ = 0;
  std::size_t taken_ = 0;
};

class CountingHost final : public Host {
 public:
  void on_send_done(Cookie, Status status) noexcept override { sends += status == Status::kOk; }
  void on_receive_done(Cookie, const Envelope& envelope) noexcept override { receives += envelope.status == Status::kOk; }
  void on_cancel_done(Cookie, bool) noexcept override {}
  void on_packet(PeerId, std::span<const std::byte> bytes) noexcept override { packet_bytes += bytes.size(); }
  Payload on_packet_offer(PeerId, std::size_t) noexcept override { return {}; }
  void on_packet_placed(PeerId, std::size_t) noexcept override { FAIL(); }
  void on_peer_failed(PeerId, Status reason) noexcept override { failure = reason; }
  std::string resolve(PeerId) override { return "v=2;w=65536;array"; }
  void on_warning(const std::string&) noexcept override { FAIL(); }

  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::uint64_t packet_bytes = 0;
  Status failure = Status::kOk;  ///< Of the other process.
};

struct ArrayProcess {
  ArrayProcess(PeerId self, std::uint32_t job_size) : provider(self) {
    EngineConfig config;
    config.self = self;
    config.job_size = job_size;
    config.eager_limit_bytes = 16 * 1024;
    config.unexpected_budget_bytes = std::size_t{4 * 65536} * job_size;
    Provider* const providers[] = {&provider};
    const std::uint64_t before = allocated_bytes;
    engine = std::make_unique<Engine>(config, providers, host);
    engine_bytes = allocated_bytes - before;
  }
  ArrayProvider provider;
  CountingHost host;
  std::unique_ptr<Engine> engine;
  std::uint64_t engine_bytes = 0;
};

class EngineAllocation : public testing::Test {
 protected:
  EngineAllocation() {
    zero.provider.other = &one.provider;
    one.provider.other = &zero.provider;
  }
  void send(ArrayProcess& from, PeerId to, std::size_t length, SendMode mode = SendMode::kStandard) {
    Status status{};
    OperationId operation{};
    const Progressed progressed =
        from.engine->send(to, mode, kBits, {sent.data(), length, nullptr}, 1, nullptr, operation, status);
    ASSERT_NE(progressed, Progressed::kFailed);
  }
  /// Done at once or by a callback: receives of the host count only the latter.
  void receive(ArrayProcess& at, std::size_t capacity, MatchBits ignore = kIgnoreNothing) {
    Envelope envelope;
    const Progressed progressed =
        at.engine->post_receive(kBits, ignore, {received.data(), capacity, nullptr}, nullptr, posted, envelope);
    ASSERT_NE(progressed, Progressed::kFailed);
    at.host.receives += progressed == Progressed::kDone;
  }
  void progress() {
    for (int i = 0; i < 4; ++i) {
      zero.engine->progress();
      one.engine->progress();
    }
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
  std::array<std::byte, kLong> sent{};
  std::array<std::byte, kLong> received{};
  OperationId posted{};  ///< The latest receive.
  unsigned expected_receives = 1;
};

TEST_F(EngineAllocation, NoneForShortMessagesToPostedReceives) {
  expect_no_allocation([this] {
    receive(one, 1000);
    send(zero, PeerId{1}, 1000);
    progress();
  });
  EXPECT_EQ(zero.engine->counters().sent_short, 12'000u);  // The credit came back all the time.
}

TEST_F(EngineAllocation, NoneForWildcardReceives) {
  expected_receives = 3;
  expect_no_allocation([this] {
    for (const MatchBits ignore : {kIgnoreSource, kIgnoreTag, kIgnoreSourceAndTag}) receive(one, 100, ignore);
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
    ASSERT_TRUE(one.engine->probe(kBits, kIgnoreSourceAndTag, envelope));
    receive(one, 128, kIgnoreSource);
    ASSERT_TRUE(one.engine->matched_probe(kBits, kIgnoreTag, message, envelope));
    ASSERT_EQ(one.engine->receive_matched(message, {received.data(), 10, nullptr}, nullptr, envelope), Progressed::kDone);
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
  EXPECT_EQ(zero.engine->counters().sent_eager, 12'000u);
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
    ASSERT_EQ(zero.engine->send_packet(PeerId{1}, {sent.data(), 40}, data, nullptr, status), Progressed::kDone);
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

/// Its payload is not here yet, so the receive needs an operation.
TEST_F(EngineAllocation, AReceiveWithoutMemoryFailsAndLeavesTheMessage) {
  send(zero, PeerId{1}, kLong);
  progress();
  Envelope envelope;
  const Payload payload{received.data(), kLong, nullptr};
  for (int i = 0; i < 3; ++i) {
    allocator::left = 0;
    const Progressed progressed = one.engine->post_receive(kBits, kIgnoreNothing, payload, nullptr, posted, envelope);
    allocator::left = allocator::kPlenty;
    EXPECT_EQ(progressed, Progressed::kFailed);
    EXPECT_EQ(envelope.status, Status::kNoMemory);
    ASSERT_TRUE(one.engine->probe(kBits, kIgnoreNothing, envelope));
  }
  MessageId message{};
  ASSERT_TRUE(one.engine->matched_probe(kBits, kIgnoreNothing, message, envelope));
  allocator::left = 0;
  const Progressed progressed = one.engine->receive_matched(message, payload, nullptr, envelope);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(progressed, Progressed::kFailed);
  EXPECT_EQ(one.engine->receive_matched(message, payload, nullptr, envelope), Progressed::kPending);
  progress();
  EXPECT_EQ(one.host.receives, 1u);
  EXPECT_EQ(zero.host.sends, 1u);
}

TEST_F(EngineAllocation, WithoutMemoryTheFirstContactFailsAndMayBeTriedAgain) {
  Status status = Status::kNoMemory;
  OperationId operation{};
  const Payload payload{sent.data(), 10, nullptr};
  std::uint64_t attempts = 0;
  for (; status == Status::kNoMemory; ++attempts) {
    ASSERT_LT(attempts, 100u);
    allocator::left = attempts;
    const Progressed progressed =
        zero.engine->send(PeerId{1}, SendMode::kStandard, kBits, payload, 1, nullptr, operation, status);
    allocator::left = allocator::kPlenty;
    ASSERT_EQ(progressed, status == Status::kOk ? Progressed::kDone : Progressed::kFailed);
  }
  EXPECT_EQ(status, Status::kOk);
  EXPECT_GT(attempts, 2u);
  EXPECT_EQ(zero.host.failure, Status::kOk);
  receive(one, 10);
  progress();
  EXPECT_EQ(one.host.receives, 1u);
}

TEST_F(EngineAllocation, WhoseFirstMessageIsLostForWantOfMemoryFails) {
  send(zero, PeerId{1}, 10);
  allocator::left = 0;
  one.engine->progress();
  one.engine->progress();
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(one.host.failure, Status::kOk);
  one.engine->progress();
  EXPECT_EQ(one.host.failure, Status::kNoMemory);
  send(zero, PeerId{1}, 10);
  progress();
  EXPECT_EQ(one.engine->counters().unexpected_depth, 0u);
}

TEST_F(EngineAllocation, PurgeNeedsNoMemory) {
  Cookie matched = nullptr;
  ASSERT_EQ(one.engine->offer_external(make_match_bits(9, 9, 9), &sent, matched), Progressed::kPending);
  for (int i = 0; i < 3; ++i) receive(one, 10);
  struct Purged {
    ArrayProcess* at;
    OperationId last;
    int receives = 0, externals = 0;
  } purged{&one, posted};
  allocator::left = 0;
  one.engine->purge([](void*, MatchBits) { return true; },
                    [](void* to, Cookie) {
                      auto& counts = *static_cast<Purged*>(to);
                      // The last one is on its way to its owner, too.
                      EXPECT_FALSE(counts.at->engine->cancel_receive(counts.last));
                      ++counts.receives;
                    },
                    [](void* to, Cookie) { ++static_cast<Purged*>(to)->externals; }, &purged);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(purged.receives, 3);
  EXPECT_EQ(purged.externals, 1);
  EXPECT_EQ(one.engine->counters().posted_depth, 0u);
  EXPECT_EQ(one.engine->counters().unexpected_depth, 0u);
}

TEST_F(EngineAllocation, WithoutMemoryAMessageToOneselfFailsAndDoesNotVanish) {
  Cookie cookie = &sent;
  Cookie receive = nullptr;
  allocator::left = 0;
  EXPECT_EQ(one.engine->offer_external(kBits, cookie, receive), Progressed::kFailed);
  allocator::left = allocator::kPlenty;
  EXPECT_EQ(one.engine->counters().unexpected_depth, 0u);
  EXPECT_EQ(one.engine->offer_external(kBits, cookie, receive), Progressed::kPending);
  Envelope envelope;
  ASSERT_EQ(one.engine->post_receive(kBits, kIgnoreNothing, {}, nullptr, posted, envelope), Progressed::kDone);
  EXPECT_EQ(envelope.external, cookie);
}

TEST_F(EngineAllocation, WithoutMemoryASendOrAPacketThatMustWaitFails) {
  for (int i = 0; i < 64; ++i) send(zero, PeerId{1}, 1);  // No room any more.
  Status status{};
  OperationId operation{};
  const Payload payload{sent.data(), 100, nullptr};
  const Payload data[] = {payload};
  allocator::left = 0;
  const Progressed message =
      zero.engine->send(PeerId{1}, SendMode::kStandard, kBits, payload, 1, nullptr, operation, status);
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
  EXPECT_EQ(one.engine->counters().unexpected_depth, 65u);
  EXPECT_EQ(one.host.packet_bytes, 0u);
  EXPECT_TRUE(zero.engine->idle());
}

/// The requirement of scale: at most 64 bytes for a peer never spoken to, at most 4 KiB for one that is.
TEST(EngineMemory, APeerCostsLittle) {
  const ArrayProcess small(PeerId{0}, 1000);
  ArrayProcess large(PeerId{0}, 101'000);
  ASSERT_GT(large.engine_bytes, small.engine_bytes);
  EXPECT_LE((large.engine_bytes - small.engine_bytes) / 100'000, 64u);
  const std::uint64_t before = allocated_bytes;
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    Status status{};
    OperationId operation{};
    std::byte byte{};
    static_cast<void>(large.engine->send(PeerId{i}, SendMode::kStandard, kBits, {&byte, 1, nullptr}, 0, nullptr,
                                         operation, status));
    ASSERT_EQ(status, Status::kOk);
  }
  EXPECT_EQ(large.engine->counters().connected_peers, 1000u);
  const std::uint64_t peer_bytes = (allocated_bytes - before) / 1000;
  EXPECT_LE(peer_bytes, 4096u);
  RecordProperty("peer_bytes", static_cast<int>(peer_bytes));
  RecordProperty("stranger_bytes", static_cast<int>((large.engine_bytes - small.engine_bytes) / 100'000));
}

}  // namespace
}  // namespace ch3_offload
