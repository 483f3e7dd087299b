// Two thread drivers in this process, over shared memory, each with a thread of its own or both with one. The
// test's thread is the client of both.

#include "nic/thread_driver.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "engine/payload_buffer.h"
#include "nic/short_wait.h"
#include "rdma/shm/shm_world.h"

namespace ch3_offload {
namespace thread_driver_test {

using namespace std::chrono_literals;

constexpr MatchKey kKey = make_match_key(1, 2, 3);
constexpr auto kLongest = 60s;

Cookie cookie(std::uintptr_t number) { return reinterpret_cast<Cookie>(number); }

std::vector<std::byte> bytes_of(std::size_t length_bytes, std::size_t seed) {
  std::vector<std::byte> bytes(length_bytes);
  for (std::size_t i = 0; i < length_bytes; ++i)
    bytes[i] = static_cast<std::byte>(seed * 31 + i * 7 + i / 251);
  return bytes;
}

class ThreadDriverTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < 2; ++i) {
      EngineConfig config;
      config.self = PeerId{i};
      config.senders = 2;
      Provider* const providers[] = {&world_.at(PeerId{i})};
      const bool is_shared = i > 0 && GetParam();
      Result<std::shared_ptr<NicThread>> thread = is_shared ? threads_[0] : NicThread::start(short_wait());
      ASSERT_TRUE(thread.ok());
      threads_[i] = thread.value();
      auto driver = ThreadDriver::create(config, providers, thread.value(), short_wait());
      ASSERT_TRUE(driver.ok());
      drivers_[i] = std::move(driver.value());
      ASSERT_FALSE(drivers_[i]->start().has_value());
      cards_[i] = drivers_[i]->card();
    }
  }
  ThreadDriver& at(std::uint32_t i) { return *drivers_[i]; }

  void take(std::uint32_t i) {
    Event event;
    const auto take_all = [&] {
      while (at(i).next_event(event)) {
        if (event.kind == Event::Kind::kCardWanted) at(i).introduce(event.peer, cards_[index_of(event.peer)]);
        if (event.kind > Event::Kind::kCancelDone) continue;
        EXPECT_EQ(event.status, event.kind == Event::Kind::kReceiveDone ? receives_end_with_ : Status::kOk);
        EXPECT_TRUE(done_[i].insert(event.cookie).second) << "done twice";
      }
    };
    take_all();
    at(i).progress();
    take_all();
  }
  template <class Condition>
  bool take_until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (!condition() && std::chrono::steady_clock::now() < end) {
      take(0);
      take(1);
      std::this_thread::yield();
    }
    return condition();
  }
  /// Whether it is done. What was done at once has no cookie.
  bool is_done(std::uint32_t i, Cookie its_cookie) { return done_[i].count(its_cookie) != 0; }

  Progressed send(std::uint32_t from, std::vector<std::byte>& bytes, Cookie its_cookie,
                  SendMode mode = SendMode::kStandard) {
    OperationId operation;
    Status status;
    return at(from).send(PeerId{1 - from}, mode, kKey, {bytes.data(), bytes.size(), nullptr}, 0, its_cookie,
                         operation, status);
  }
  void receive(std::uint32_t i, std::vector<std::byte>& room, Cookie its_cookie) {
    OperationId operation;
    Envelope envelope;
    ASSERT_EQ(at(i).post_receive(kKey, kIgnoreNothing, {room.data(), room.size(), nullptr}, its_cookie,
                                 operation, envelope),
              Progressed::kPending);
  }
  /// Sends and receives one message.
  void exchange(std::uint32_t from, std::size_t length_bytes, std::uintptr_t number) {
    std::vector<std::byte> bytes = bytes_of(length_bytes, number), room(length_bytes);
    receive(1 - from, room, cookie(number));
    const Progressed progressed = send(from, bytes, cookie(number));
    ASSERT_NE(progressed, Progressed::kFailed);
    ASSERT_TRUE(take_until([&] {
      return is_done(1 - from, cookie(number)) &&
             (progressed == Progressed::kDone || is_done(from, cookie(number)));
    }));
    EXPECT_TRUE(room == bytes) << length_bytes << " bytes";
    done_[0].clear();
    done_[1].clear();
  }

  ShmWorld world_{2, ShmConfig{}};
  std::shared_ptr<NicThread> threads_[2];
  std::unique_ptr<ThreadDriver> drivers_[2];
  std::string cards_[2];
  std::set<Cookie> done_[2];
  Status receives_end_with_ = Status::kOk;
};

TEST_P(ThreadDriverTest, MessagesOfAllLengthsGoBothWays) {
  std::uintptr_t number = 0;
  for (int round = 0; round < 100; ++round) {
    for (const std::size_t length_bytes : {std::size_t{0}, std::size_t{8}, kInlineBytes, kInlineBytes + 1}) {
      exchange(0, length_bytes, ++number);
      exchange(1, length_bytes, ++number);
    }
  }
  for (int round = 0; round < 5; ++round) {
    for (const std::size_t length_bytes : {std::size_t{30'000}, std::size_t{1} << 20}) {
      exchange(0, length_bytes, ++number);
      exchange(1, length_bytes, ++number);
    }
  }
}

/// The thread packs and unpacks. The client writes the buffers before, and frees them as soon as it has heard.
TEST_P(ThreadDriverTest, PackedPayloadsGoBothWaysAndMayBeCut) {
  std::uintptr_t number = 0;
  const auto exchange_packed = [&](std::uint32_t from, std::size_t length_bytes, std::size_t room_bytes) {
    PayloadBuffer sent(length_bytes, 13, 7), received(room_bytes, 29, 5);
    sent.fill(++number);
    OperationId operation;
    Envelope envelope;
    Status status;
    receives_end_with_ = room_bytes < length_bytes ? Status::kTruncated : Status::kOk;
    ASSERT_EQ(at(1 - from).post_receive(kKey, kIgnoreNothing, received.payload(), cookie(number), operation,
                                        envelope),
              Progressed::kPending);
    ASSERT_EQ(at(from).send(PeerId{1 - from}, SendMode::kStandard, kKey, sent.payload(), 0, cookie(number),
                            operation, status),
              Progressed::kPending);
    ASSERT_TRUE(take_until([&] { return is_done(0, cookie(number)) && is_done(1, cookie(number)); }));
    EXPECT_EQ(received.check(number, length_bytes), "") << length_bytes << " bytes into " << room_bytes;
    EXPECT_EQ(sent.check_guards(), "");
    done_[0].clear();
    done_[1].clear();
  };
  for (int round = 0; round < 10; ++round) {
    for (const std::size_t length_bytes :
         {std::size_t{8}, kInlineBytes + 1, std::size_t{30'000}, std::size_t{300'000}}) {
      for (const std::uint32_t from : {0U, 1U}) {
        exchange_packed(from, length_bytes, length_bytes);
        exchange_packed(from, length_bytes, length_bytes - 3);
      }
    }
  }
}

TEST_P(ThreadDriverTest, GoesOnWhereItIsBoundAndWhereItMayNotBe) {
  const ProcessorSet mine = affinity_of(0);
  EXPECT_FALSE(threads_[0]->bind({*mine.begin()}).has_value());
  const std::optional<Error> refused = threads_[1]->bind({65535});
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->message.find("to processors 65535 failed"), std::string::npos) << refused->message;
  exchange(0, 8, 1);
  exchange(1, std::size_t{1} << 20, 2);
  EXPECT_EQ(affinity_of(0), mine);
}

TEST_P(ThreadDriverTest, ManySmallMessagesComeInOrder) {
  constexpr std::uintptr_t kMessages = 3000;
  std::vector<std::uint64_t> room(kMessages, UINT64_MAX);
  OperationId operation;
  Envelope envelope;
  Status status;
  for (std::uint64_t& one : room)
    at(1).post_receive(kKey, kIgnoreNothing, {reinterpret_cast<std::byte*>(&one), sizeof one, nullptr}, &one,
                       operation, envelope);
  std::vector<std::uint64_t> sent(kMessages);
  for (std::uintptr_t i = 0; i < kMessages; ++i) {
    sent[i] = i;
    ASSERT_NE(at(0).send(PeerId{1}, SendMode::kStandard, kKey,
                         {reinterpret_cast<std::byte*>(&sent[i]), sizeof sent[i], nullptr}, 0, &sent[i],
                         operation, status),
              Progressed::kFailed);
  }
  ASSERT_TRUE(take_until([&] { return done_[1].size() == kMessages && at(0).idle(); }));
  EXPECT_EQ(room, sent);
}

/// The client does nothing but sleep: the message matches and moves, and then the bell rings.
TEST_P(ThreadDriverTest, AReceiveIsDoneWhileTheClientSleeps) {
  exchange(0, 8, 1);
  exchange(1, 8, 2);
  std::vector<std::byte> bytes = bytes_of(1 << 20, 3), room(1 << 20);
  for (std::uintptr_t round = 10; round < 20; ++round) {
    std::fill(room.begin(), room.end(), std::byte{0});
    receive(1, room, cookie(round));
    take(1);
    ASSERT_TRUE(at(1).arm());
    send(0, bytes, cookie(round));
    pollfd entry{at(1).descriptors()[0], POLLIN, 0};
    while (at(1).events().written == at(1).events().taken) {
      ASSERT_EQ(::poll(&entry, 1, 60'000), 1) << "nobody rang";
      at(1).disarm();
      if (at(1).progress() == 0) static_cast<void>(at(1).arm());
    }
    take(1);
    EXPECT_TRUE(is_done(1, cookie(round)));
    EXPECT_TRUE(room == bytes);
    ASSERT_TRUE(take_until([&] { return is_done(0, cookie(round)); }));
  }
  // The processor may count at the same time.
  auto& rung = const_cast<std::uint64_t&>(at(1).ring_counters().processor.bells_rung);
  const std::uint64_t bells = std::atomic_ref<std::uint64_t>(rung).load();
  EXPECT_GE(bells, 10U);
  EXPECT_LE(bells, at(1).ring_counters().client.sleeps);
}

TEST_P(ThreadDriverTest, ABlockedProcessorWakesUpWhenTheClientTakesItsEvents) {
  constexpr std::size_t kMessages = 40'000;
  static_assert(kMessages * record_bytes(sizeof(EventRecord)) > 2 * kEventRingBytes);
  OperationId operation;
  Envelope envelope;
  Status status;
  for (std::uintptr_t i = 1; i <= kMessages; ++i)
    at(0).post_receive(kKey, kIgnoreNothing, {}, cookie(i), operation, envelope);
  for (std::uintptr_t i = 1; i <= kMessages; ++i) {
    if (at(0).send(PeerId{0}, SendMode::kStandard, kKey, {}, 0, cookie(kMessages + i), operation, status) ==
        Progressed::kDone)
      done_[0].insert(cookie(kMessages + i));
  }
  std::this_thread::sleep_for(20ms);  // It falls asleep, the ring being full.
  EXPECT_TRUE(take_until([&] { return done_[0].size() == 2 * kMessages; })) << done_[0].size();
}

TEST_P(ThreadDriverTest, AnsweredProbesOfAThreadThatSleeps) {
  exchange(0, 8, 1);
  std::this_thread::sleep_for(5ms);
  std::vector<std::byte> bytes = bytes_of(100, 1), room(100);
  Envelope envelope;
  EXPECT_FALSE(at(1).probe(kKey, kIgnoreNothing, envelope));
  send(0, bytes, cookie(1));
  ASSERT_TRUE(take_until([&] { return at(1).probe(kKey, kIgnoreNothing, envelope); }));
  EXPECT_EQ(envelope.length_bytes, bytes.size());
  receive(1, room, cookie(2));
  ASSERT_TRUE(take_until([&] { return is_done(1, cookie(2)); }));
  EXPECT_EQ(room, bytes);
}

TEST_P(ThreadDriverTest, ItEndsWithOperationsThatAreNotDone) {
  std::vector<std::byte> bytes = bytes_of(1 << 20, 1), small = bytes_of(8, 2), room(1 << 20);
  exchange(0, 8, 1);
  receive(0, room, cookie(2));
  send(0, bytes, cookie(3));
  send(0, small, cookie(4), SendMode::kSynchronous);
  send(1, bytes, cookie(5));
  drivers_[0].reset();
  std::this_thread::sleep_for(5ms);
  drivers_[1].reset();
}

INSTANTIATE_TEST_SUITE_P(, ThreadDriverTest, testing::Bool(), [](const testing::TestParamInfo<bool>& shared) {
  return shared.param ? std::string("OneThread") : std::string("TwoThreads");
});

}  // namespace thread_driver_test
}  // namespace ch3_offload
