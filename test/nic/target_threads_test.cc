// The second client of the thread driver: a target that does nothing, a client that sleeps, one that comes
// and goes while the thread runs, and two clients at once.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>

#include "nic/target_ports_world.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {
namespace {

class TargetThreads : public TargetPortsWorld {
 protected:
  TargetThreads() : TargetPortsWorld(TargetDriver::kThread) {}

  ThreadSide& side(std::uint32_t i) { return static_cast<ThreadSide&>(*clients[i].side); }
  ThreadDriver& driver(std::uint32_t i) { return *side(i).driver; }
  /// Only that client does something.
  bool until_at(std::uint32_t i, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < end) clients[i].side->step();
    return condition();
  }
  static std::uint64_t read(const std::uint64_t& counter) {
    return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(counter)).load();
  }
};

TEST_F(TargetThreads, ATargetThatDoesNothingServesAll) {
  make();
  std::vector<std::byte> memory(1 << 20), sum(8), ring(8);
  TargetDescription entry = entry_of(1, memory, kCountComm | kNoCommEvent);
  entry.ignore = {MatchBits{0}, kAnyProcess};
  append(1, entry);
  entry = entry_of(1, sum, kCountComm | kNoCommEvent);
  entry.key.bits = MatchBits{7};
  entry.ignore = {MatchBits{0}, kAnyProcess};
  append(1, entry);
  append(0, entry_of(0, ring, kCountComm));
  // After 20 operations, the target's counter puts back.
  TargetRequest back = put_from(1, sum, kNoSendEvent);
  back.acknowledgement = TargetAcknowledgement::kNone;
  ASSERT_EQ(port(1).trigger({clients[1].came_counter, 20}, process_of(0), back), Status::kOk);

  std::vector<std::byte> data = pattern(1 << 20), got(1 << 20), operand(8), old(8);
  operand[0] = std::byte{1};
  std::uint64_t expected = 0;
  for (int round = 0; round < 10; ++round) {
    TargetRequest put = put_from(0, data, kCountAck | kNoSendEvent | kNoOriginSuccessEvent);
    TargetRequest get = get_from(0, got, kCountReply | kNoOriginSuccessEvent);
    TargetRequest add = sum_from(0, operand, old);
    add.bits = MatchBits{7};
    add.source.options = kNoSendEvent;
    add.destination.options = kCountReply | kNoOriginSuccessEvent;
    for (const TargetRequest& request : {put, get, add})
      ASSERT_EQ(port(0).request(process_of(1), request), Status::kOk);
    expected += 3;
    ASSERT_TRUE(until_at(0, [&] { return counted(0, clients[0].begun_counter).success == expected; }));
  }
  // Whoever sees the counts sees the data. A get counts when its reply has left.
  ASSERT_TRUE(until_at(0, [&] { return counted(1, clients[1].came_counter).success == 30; }));
  EXPECT_EQ(memory, data);
  EXPECT_EQ(got, data);
  ASSERT_TRUE(until_at(0, [&] { return counted(0, clients[0].came_counter).success == 1; }));
  std::uint64_t adds = 0, came_back = 0;
  std::memcpy(&adds, sum.data(), 8);
  std::memcpy(&came_back, ring.data(), 8);
  EXPECT_EQ(adds, 10u);
  EXPECT_GE(came_back, 6u) << "those that came before the trigger";
}

TEST_F(TargetThreads, AClientThatSleepsIsWoken) {
  make();
  std::vector<std::byte> memory(8), data = pattern(8);
  append(1, entry_of(1, memory, kCountComm | kNoCommEvent));
  // What was counted may be told later: so nothing is left to be told when it sleeps.
  const auto announce_sleep = [&] {
    while (port(1).progress() > 0 || !port(1).arm()) {
    }
  };
  for (std::uint64_t round = 1; round <= 20; ++round) {
    announce_sleep();
    ASSERT_EQ(port(0).request(process_of(1),
                              put_from(0, data, kCountSend | kNoSendEvent | kNoOriginSuccessEvent)),
              Status::kOk);
    pollfd entry{port(1).descriptors()[0], POLLIN, 0};
    while (counted(1, clients[1].came_counter).success < round) {
      ASSERT_EQ(::poll(&entry, 1, 60'000), 1) << "nobody rang";
      port(1).disarm();
      announce_sleep();
    }
    port(1).disarm();
  }
  // That the data has come does not say that its source is no longer read.
  EXPECT_TRUE(until_at(0, [&] { return counted(0, clients[0].begun_counter).success == 20; }));
}

TEST_F(TargetThreads, AProcessorThatSleepsIsWokenByACommand) {
  make();
  std::vector<std::byte> memory(8), data = pattern(8);
  append(1, entry_of(1, memory));
  const std::uint64_t& sleeps = driver(0).ring_counters().processor.sleeps;
  std::uint64_t slept = 0;
  for (int round = 0; round < 10; ++round) {
    // It has announced a sleep since the last command.
    ASSERT_TRUE(until_at(0, [&] { return read(sleeps) > slept; }));
    slept = read(sleeps);
    ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
    expect_begun(0, "send 0, ack 8");
    expect_came(1, "put 8");
  }
}

/// A book whose descriptor the test writes to, or that has something to do after each millisecond.
class WakingBook final : public FakeProcessBook {
 public:
  explicit WakingBook(bool has_times)
      : FakeProcessBook(0, {{process_of(0), UserId{1}, ""}}),
        has_times_(has_times),
        bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  std::size_t poll(Listener& listener) noexcept override {
    polls.fetch_add(1);
    std::uint64_t rings = 0;
    if (::read(bell.get(), &rings, sizeof rings) != sizeof rings) return FakeProcessBook::poll(listener);
    heard.store(true);
    return 1;
  }
  int descriptor() const noexcept override { return bell.get(); }
  std::uint64_t next_due_ns() const noexcept override { return has_times_ ? 1'000'000 : UINT64_MAX; }

  const bool has_times_;
  const FileDescriptor bell;
  std::atomic<std::uint64_t> polls{0};
  std::atomic<bool> heard{false};
};

TEST_F(TargetThreads, TheBookWakesTheProcessorByItsDescriptor) {
  make(1);
  close(0);
  side(0).detach();
  WakingBook book(false);
  const std::uint64_t& sleeps = driver(0).ring_counters().processor.sleeps;
  const std::uint64_t slept = read(sleeps);
  side(0).attach(book);
  ASSERT_TRUE(until_at(0, [&] { return read(sleeps) > slept; }));
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(book.bell.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_TRUE(until_at(0, [&] { return book.heard.load(); }));
  side(0).detach();
}

TEST_F(TargetThreads, TheBookWakesTheProcessorByTime) {
  make(1);
  close(0);
  side(0).detach();
  WakingBook book(true);
  const std::uint64_t& sleeps = driver(0).ring_counters().processor.sleeps;
  const std::uint64_t slept = read(sleeps);
  side(0).attach(book);
  EXPECT_TRUE(until_at(0, [&] { return read(sleeps) > slept + 20; })) << "it sleeps for good";
  EXPECT_GT(book.polls.load(), 20u);
  side(0).detach();
}

TEST_F(TargetThreads, ASecondClientComesAndGoesWhileTheFirstIsServed) {
  make();
  constexpr MatchKey kKey = make_match_key(1, 2, 3);
  int received = 0, sent = 0;
  const auto exchange = [&] {
    static std::byte room[8], bytes[8];
    OperationId operation;
    Envelope envelope;
    Status status = Status::kOk;
    driver(1).post_receive(kKey, kIgnoreNothing, {room, 8, nullptr}, room, operation, envelope);
    ASSERT_NE(driver(0).send(PeerId{1}, SendMode::kStandard, kKey, {bytes, 8, nullptr}, 0, bytes, operation,
                             status),
              Progressed::kFailed);
    ++sent;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (Event event; received < sent && std::chrono::steady_clock::now() < end; std::this_thread::yield()) {
      for (const std::uint32_t i : {0U, 1U}) {
        static_cast<void>(driver(i).progress());
        while (driver(i).next_event(event)) received += event.kind == Event::Kind::kReceiveDone;
      }
    }
    ASSERT_EQ(received, sent);
  };
  std::vector<std::byte> data = pattern(8), memory(8);
  append(1, entry_of(1, memory));
  ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
  expect_begun(0, "send 0, ack 8");  // Both are introduced.
  expect_came(1, "put 8");
  for (int round = 0; round < 30; ++round) {
    exchange();
    close(0);
    side(0).detach();
    exchange();
    side(0).attach();
    open(0);
    ASSERT_EQ(port(0).request(process_of(1), put_from(0, data)), Status::kOk);
    exchange();
    expect_begun(0, "send 0, ack 8");
    expect_came(1, "put 8");  // Its own event says that `memory` is no longer written.
  }
}

}  // namespace
}  // namespace ch3_offload
