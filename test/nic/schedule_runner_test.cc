// Schedules: random ones against an oracle (schedule_world.h), and what is refused, revoked or too much.

#include "nic/schedule_runner.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/payload_buffer.h"
#include "nic/schedule_world.h"
#include "nic/two_clients.h"

namespace ch3_offload {
namespace schedule_runner_test {

using World = ScheduleWorld;

/// CH3_OFFLOAD_SCHEDULE_SEEDS: how many, to look for failures.
std::uint64_t seeds_or(std::uint64_t some) {
  const char* const wanted = std::getenv("CH3_OFFLOAD_SCHEDULE_SEEDS");
  return wanted == nullptr ? some : std::strtoull(wanted, nullptr, 10);
}

void expect_right_results(World::Driver driver) {
  std::uint64_t succeeded = 0;
  for (std::uint64_t seed = 1; seed <= seeds_or(40); ++seed) {
    World world({driver, seed, static_cast<std::uint32_t>(2 + seed % 7)});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    succeeded += world.succeeded();
  }
  EXPECT_GT(succeeded, 1000U);
}
TEST(Schedules, EndWithTheRightResultInAThread) { expect_right_results(World::Driver::kThread); }
TEST(Schedules, EndWithTheRightResultInAProcess) { expect_right_results(World::Driver::kProcess); }

void expect_ends_where_a_member_dies(World::Driver driver) {
  std::uint64_t failed = 0, succeeded = 0;
  for (std::uint64_t seed = 1; seed <= seeds_or(60); ++seed) {
    World world({driver, seed, static_cast<std::uint32_t>(2 + seed % 7), 12, true});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    failed += world.failed();
    succeeded += world.succeeded();
  }
  EXPECT_GT(failed, 100U);
  EXPECT_GT(succeeded, 100U);
}
TEST(Schedules, EndWhereAMemberDies) { expect_ends_where_a_member_dies(World::Driver::kThread); }
TEST(Schedules, EndWhereAMemberOfAProcessorDies) { expect_ends_where_a_member_dies(World::Driver::kProcess); }

/// One process, whose processor has a turn when the test says so.
class OneClient : public testing::TestWithParam<bool> {
 protected:
  static constexpr MatchKey kKey = make_match_key(3, 0, 5);

  OneClient() : exchange_(PeerId{0}, 2, nullptr), outlet_(exchange_.attach(PeerId{0})) {
    if (GetParam()) memory_ = std::make_unique<OtherProcess>(2, *outlet_);
    Provider* const providers[] = {outlet_.get()};
    EngineConfig config;
    config.senders = 2;
    client_ = std::make_unique<SteppedRings>(config, providers, 1, memory_.get());
  }
  ~OneClient() override {
    client_.reset();
    outlet_.reset();
  }
  bool give(const std::vector<ScheduleStep>& steps) { return client_->schedule(steps, {}, this); }
  /// Nothing: it has not ended.
  std::optional<Status> end() {
    std::optional<Status> ended;
    for (int i = 0; i < 300; ++i) {
      client_->progress();
      for (Event event; client_->next_event(event);)
        if (event.kind == Event::Kind::kScheduleDone) {
          EXPECT_FALSE(ended.has_value());
          EXPECT_EQ(event.cookie, this);
          ended = event.status;
        }
    }
    return ended;
  }
  template <class T>
  static ScheduleStep combine(AtomicOperation operation, AtomicType type, const std::vector<T>& from,
                              std::vector<T>& to) {
    ScheduleStep step;
    step.kind = StepKind::kCombine;
    step.operation = operation;
    step.type = type;
    step.from = reinterpret_cast<const std::byte*>(from.data());
    step.to = reinterpret_cast<std::byte*>(to.data());
    step.length_bytes = to.size() * sizeof(T);
    return step;
  }
  static ScheduleStep to_self(StepKind kind, const Payload& payload) {
    ScheduleStep step;
    step.kind = kind;
    step.key = kKey;
    step.from = step.to = payload.address;
    step.length_bytes = payload.length_bytes;
    step.layout = payload.layout;
    return step;
  }
  static ScheduleStep check(StepKind kind, std::size_t length_bytes) {
    ScheduleStep step;
    step.kind = kind;
    step.length_bytes = length_bytes;
    return step;
  }
  static ScheduleStep receive_from_other() {
    ScheduleStep step;
    step.kind = StepKind::kReceive;
    step.peer = 1;
    step.key = make_match_key(3, 1, 5);
    return step;
  }

  Exchange exchange_;
  std::unique_ptr<ExchangePort> outlet_;
  std::unique_ptr<OtherProcess> memory_;
  std::unique_ptr<SteppedRings> client_;
};
INSTANTIATE_TEST_SUITE_P(InAnotherProcess, OneClient, testing::Bool());

TEST_P(OneClient, CombinesLongMemoryInParts) {
  std::vector<double> from(50'000), to(50'000);
  for (std::size_t i = 0; i < to.size(); ++i) {
    from[i] = static_cast<double>(i) / 3;
    to[i] = static_cast<double>(i % 17);
  }
  std::vector<double> expected = to;
  for (std::size_t i = 0; i < to.size(); ++i) expected[i] += from[i];
  ASSERT_TRUE(give({combine(AtomicOperation::kSum, AtomicType::kDouble, from, to)}));
  EXPECT_EQ(end(), Status::kOk);
  EXPECT_EQ(to, expected);
}

TEST_P(OneClient, SendsAndReceivesInPieces) {
  PayloadBuffer sent(30'000, 24, 8, *std::pmr::get_default_resource(), PayloadBuffer::Kind::kPieces);
  PayloadBuffer received(30'000, 40, 16, *std::pmr::get_default_resource(), PayloadBuffer::Kind::kPieces);
  sent.fill(5);
  if (GetParam()) {
    // MPICH does it: such memory is not staged.
    EXPECT_FALSE(give({to_self(StepKind::kSend, sent.payload())}));
    return;
  }
  ASSERT_TRUE(
      give({to_self(StepKind::kSend, sent.payload()), to_self(StepKind::kReceive, received.payload())}));
  EXPECT_EQ(end(), Status::kOk);
  EXPECT_EQ(received.check(5, 30'000), "");
}

TEST_P(OneClient, CountsWhatItReceives) {
  std::vector<std::byte> bytes(100);
  for (const std::size_t expected : {100U, 99U}) {
    ScheduleStep receive = to_self(StepKind::kReceive, {bytes.data(), 100, nullptr});
    receive.is_barrier = 1;
    std::vector<std::byte> other(100);
    ASSERT_TRUE(
        give({to_self(StepKind::kSend, {other.data(), 100, nullptr}), receive, check(StepKind::kCount, 0),
              check(StepKind::kCountReceived, 0), check(StepKind::kCheckCount, expected)}));
    EXPECT_EQ(end(), expected == 100 ? Status::kOk : Status::kTruncated);
  }
}

TEST_P(OneClient, SaysThatAMessageWasTooLong) {
  std::vector<std::byte> sent(100), received(50);
  ASSERT_TRUE(give({to_self(StepKind::kSend, {sent.data(), 100, nullptr}),
                    to_self(StepKind::kReceive, {received.data(), 50, nullptr})}));
  EXPECT_EQ(end(), Status::kTruncated);
}

TEST_P(OneClient, WaitsForNobodyOfARevokedCommunicator) {
  ScheduleStep first = receive_from_other();
  first.is_barrier = 1;
  ASSERT_TRUE(give({first, receive_from_other()}));
  EXPECT_EQ(end(), std::nullopt);
  const MatchPattern doomed[] = {{make_match_key(3, 0, 0), kIgnoreInitiatorAndTag}};
  client_->purge(PurgeScope::kAll, doomed, {}, Status::kRevoked);
  EXPECT_EQ(end(), Status::kRevoked);
}

TEST_P(OneClient, KeepsWhatAPurgeSpares) {
  std::uint64_t sent[] = {1, 2}, received[2] = {};
  std::vector<ScheduleStep> steps;
  for (int i = 0; i < 2; ++i)
    steps.push_back(to_self(StepKind::kReceive, {reinterpret_cast<std::byte*>(&received[i]), 8, nullptr}));
  steps[0].is_barrier = 1;  // The second one has not begun.
  ASSERT_TRUE(give(steps));
  EXPECT_EQ(end(), std::nullopt);
  const MatchPattern doomed[] = {{kKey, kIgnoreInitiatorAndTag}};
  client_->purge(PurgeScope::kReceivesFromAny, doomed, {}, Status::kRevoked);
  client_->purge(PurgeScope::kAll, doomed, doomed, Status::kRevoked);
  std::vector<ScheduleStep> sends;
  for (std::uint64_t& one : sent)
    sends.push_back(to_self(StepKind::kSend, {reinterpret_cast<std::byte*>(&one), 8, nullptr}));
  ASSERT_TRUE(client_->schedule(sends, {}, &sent));
  int ended = 0;
  for (int i = 0; i < 100; ++i) {
    client_->progress();
    for (Event event; client_->next_event(event); ++ended) EXPECT_EQ(event.status, Status::kOk);
  }
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(received[1], 2U);
}

TEST_P(OneClient, WaitsForNoPeerThatHasFailed) {
  client_->fail_peer(PeerId{1});
  EXPECT_EQ(end(), std::nullopt);
  ASSERT_TRUE(give({receive_from_other(), receive_from_other()}));
  EXPECT_EQ(end(), Status::kPeerFailed);
}

/// Other clients have their turns.
TEST_P(OneClient, DoesALittleInEachTurn) {
  std::vector<std::byte> bytes(100'000);
  std::vector<ScheduleStep> steps(100, check(StepKind::kCount, 0));
  ScheduleStep copy = check(StepKind::kCopy, 40'000);
  copy.from = bytes.data();
  copy.to = bytes.data() + 50'000;
  steps.insert(steps.end(), 10, copy);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client_->schedule(steps, {}, this));
  int turns = 0, ended = 0;
  for (; ended < 5 && turns < 1000; ++turns) {
    client_->server.turn();
    client_->RingPort::progress();
    for (Event event; client_->next_event(event);) ++ended;
  }
  EXPECT_EQ(ended, 5);
  EXPECT_GT(turns, 5 * 10 / 2);
}

TEST_P(OneClient, TakesNoMoreThanThereMayBe) {
  EXPECT_FALSE(give({}));
  EXPECT_FALSE(give(std::vector<ScheduleStep>(kMostScheduleSteps + 1, check(StepKind::kCount, 0))));
  std::vector<ScheduleStep> longest(kMostScheduleSteps, check(StepKind::kCount, 0));
  longest[0] = receive_from_other();
  longest[0].is_barrier = 1;
  std::size_t taken = 0;
  for (; give(longest); ++taken) client_->progress();
  EXPECT_EQ(taken, kMostStepsOfClient / kMostScheduleSteps);
  client_->fail_peer(PeerId{1});
  std::size_t ended = 0;
  for (int i = 0; i < 20'000 && ended < taken; ++i) {
    client_->progress();
    for (Event event; client_->next_event(event);) ended += event.kind == Event::Kind::kScheduleDone;
  }
  EXPECT_EQ(ended, taken);
  EXPECT_FALSE(client_->server.is_refused());
  EXPECT_TRUE(give(longest));
  EXPECT_EQ(end(), Status::kPeerFailed);
}

TEST(Schedules, AreNotTakenByAHostDriverNorWhereNothingIsReached) {
  Exchange exchange(PeerId{0}, 2, nullptr);
  auto outlet = exchange.attach(PeerId{0});
  Provider* const providers[] = {outlet.get()};
  EngineConfig config;
  config.senders = 2;
  std::vector<std::byte> from(100, std::byte{5}), to(100);
  ScheduleStep step;
  step.kind = StepKind::kCopy;
  step.from = from.data();
  step.to = to.data();
  step.length_bytes = from.size();
  {
    HostDriver host(config, providers);
    EXPECT_EQ(host.most_schedule_steps(), 0U);
    EXPECT_FALSE(host.schedule({&step, 1}, {}, nullptr));
  }
  for (const bool shares_nothing : {true, false}) {
    OtherProcess other(2, *outlet, shares_nothing ? KernelCopies::kAllowed : KernelCopies::kRefused);
    other.shares_nothing = shares_nothing;
    SteppedRings client(config, providers, 1, &other);
    EXPECT_EQ(client.schedule({&step, 1}, {}, nullptr), !shares_nothing);
    for (int i = 0; i < 20; ++i) {
      client.progress();
      for (Event event; client.next_event(event);) EXPECT_EQ(event.status, Status::kOk);
    }
    EXPECT_EQ(to == from, !shares_nothing);
  }
}

TEST(Schedules, OfMemoryThatIsNotThereBreakTheClient) {
  Exchange exchange(PeerId{0}, 2, nullptr);
  auto outlet = exchange.attach(PeerId{0});
  {
    OtherProcess other(2, *outlet);
    other.shares_nothing = true;
    Provider* const providers[] = {outlet.get()};
    EngineConfig config;
    config.senders = 2;
    SteppedRings client(config, providers, 1, &other);
    ScheduleStep step;
    step.kind = StepKind::kCopy;
    step.from = reinterpret_cast<const std::byte*>(0x1000);
    step.to = reinterpret_cast<std::byte*>(0x2000);
    step.length_bytes = 100'000;
    EXPECT_FALSE(client.schedule({&step, 1}, {}, nullptr)) << "the client does it, and meets the error";
    CommandRecord command;
    command.kind = CommandKind::kSchedule;
    command.operation = OperationId{std::uint64_t{1} << 32 | 1};
    RingProducer commands = client.memory->command_producer();
    ASSERT_TRUE(commands.has_room(sizeof command + sizeof step));
    std::memcpy(commands.payload(), &command, sizeof command);
    std::memcpy(commands.payload() + sizeof command, &step, sizeof step);
    commands.publish(RecordKind::kMessage, sizeof command + sizeof step);
    for (int i = 0; i < 20; ++i) client.server.turn();
    EXPECT_TRUE(other.memory.is_broken());
    EXPECT_FALSE(client.server.is_refused());
  }
}

}  // namespace schedule_runner_test
}  // namespace ch3_offload
