// Target entries behind a node's network processor: the second port of its clients.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ch3_offload/nicd_targets_world.h"

namespace ch3_offload {
namespace nicd_targets_test {

/// Of ranks of a job, and of processes of no job.
class NicdTargets : public NicdTargetPorts, public testing::WithParamInterface<const char*> {
 protected:
  NicdTargets() { is_lone_ = std::strcmp(GetParam(), "lone") == 0; }
};
INSTANTIATE_TEST_SUITE_P(Clients, NicdTargets, testing::Values("ranks", "lone"),
                         [](const auto& tested) { return std::string(tested.param); });

/// Process 1 calls nothing.
TEST_P(NicdTargets, EntriesAreServedWhileTheirProcessDoesNothing) {
  make();
  constexpr std::size_t kBytes = 300'000;
  for (const bool are_shared : {false, true}) {
    are_shared_ = are_shared;
    const SharedBlock entry_block = make_block(1, kBytes), sum_block = make_block(1, 8);
    const SharedBlock data_block = make_block(0, kBytes), back_block = make_block(0, kBytes);
    const std::span entry(entry_block.get(), kBytes), data(data_block.get(), kBytes),
        back(back_block.get(), kBytes), sum(sum_block.get(), 8);
    std::ranges::fill(sum, std::byte{});
    std::ranges::copy(pattern(kBytes), data.begin());
    const std::uint64_t bits = are_shared ? 10 : 20;
    append(1, entry, bits);
    append(1, sum, bits + 1);
    for (const std::size_t length : {std::size_t{8}, std::size_t{5000}, kBytes}) {
      std::ranges::fill(entry, std::byte{});
      run(put_from(0, data.first(length), bits));
      EXPECT_TRUE(std::ranges::equal(entry.first(length), data.first(length)));
      std::ranges::fill(back, std::byte{});
      run(get_from(0, back.first(length), bits));
      EXPECT_TRUE(std::ranges::equal(back.first(length), data.first(length)));
    }
    Bytes operand(8), old(8);
    operand[0] = std::byte{3};
    for (std::uint8_t i = 0; i < 20; ++i) {
      run(sum_from(0, operand, old, bits + 1));
      EXPECT_EQ(old[0], std::byte(3 * i));
    }
    EXPECT_EQ(sum[0], std::byte{60});
  }
  EXPECT_TRUE(until([&] { return counted(1) == 2 * (6 + 20); })) << counted(1);
  EXPECT_EQ(processes_[0].board->registers.drops.load(), 0u);
}

TEST_P(NicdTargets, AProcessReachesItself) {
  make(1);
  Bytes memory(5000), data = pattern(5000);
  append(0, memory, 1);
  ASSERT_EQ(port(0).request(id_of(0), put_from(0, data, 1)), Status::kOk);
  EXPECT_EQ(next_event(0).failure, TargetFailure::kNone);
  EXPECT_EQ(memory, data);
}

TEST_F(NicdTargetPorts, AProcessThatIsNoRankIsUndeliverable) {
  make(1);
  Bytes data = pattern(8);
  ASSERT_EQ(port(0).request(make_logical_id(1), put_from(0, data, 1)), Status::kOk);
  EXPECT_EQ(next_event(0).failure, TargetFailure::kUndeliverable);
}

TEST_F(NicdTargetPorts, MessagesGoOnBesideThem) {
  make();
  Bytes memory(100'000), data = pattern(100'000);
  append(1, memory, 1);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(port(0).request(make_logical_id(1), put_from(0, data, 1)), Status::kOk);
    exchange(70'000);
    EXPECT_EQ(next_event(0).failure, TargetFailure::kNone);
  }
  EXPECT_EQ(memory, data);
}

TEST_P(NicdTargets, AClientThatSleepsIsWoken) {
  make();
  Bytes memory(8), data = pattern(8);
  append(1, memory, 1);
  run(put_from(0, data, 1));  // They have met.
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(until([&] { return counted(1) == static_cast<std::uint64_t>(i + 1); }));
    while (port(1).progress() > 0) {
    }
    const std::uint64_t before = counted(1);
    ASSERT_TRUE(port(1).arm());
    run(put_from(0, data, 1));
    pollfd entry{port(1).descriptors().front(), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 30'000), 1);
    port(1).disarm();
    EXPECT_EQ(counted(1), before + 1);
  }
}

TEST_F(NicdTargetPorts, WithoutCopiesByTheKernelThereAreNone) {
  NicdHello hello = hello_of(0);
  hello.probe_address = 8;
  Result<TargetPort*> refused = attach(hello).attach_targets();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, Status::kUnsupported);
  EXPECT_NE(refused.error().message.find("may not read the memory"), std::string::npos);
  // Nor does the processor believe a client that asks all the same.
  hello = hello_of(1);
  hello.probe_address = 8;
  const auto client = attach_by_hand(hello, /*is_readable=*/false);
  EXPECT_EQ(ask(*client, CommandKind::kAttachTargets), 0u);
}

TEST_P(NicdTargets, AnInterfaceThatIsOpenEndsWithItsPort) {
  make();
  Bytes memory(1 << 20), data = pattern(1 << 20);
  append(1, memory, 1);
  run(put_from(0, data, 1));
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(port(0).request(id_of(1), put_from(0, data, 1)), Status::kOk);
    if (i % 2 == 0) turn();
    drivers_[1]->detach_targets();
    processes_[1] = {};
    const TargetFailure failure = next_event(0).failure;
    EXPECT_TRUE(failure == TargetFailure::kNone || failure == TargetFailure::kDropped);
    std::ranges::fill(memory, std::byte{});
    open(1);
    append(1, memory, 1);
    run(put_from(0, data, 1));
    EXPECT_EQ(memory, data);
  }
  if (!is_lone_) exchange(5000);
}

TEST_P(NicdTargets, AClientThatEndsIsUndeliverable) {
  make(3);
  Bytes memory(4 << 20), data = pattern(4 << 20);
  append(1, memory, 1);
  run(put_from(0, data, 1));
  ASSERT_EQ(port(0).request(id_of(1), put_from(0, data, 1)), Status::kOk);
  const ProcessId ended = id_of(1);
  processes_.erase(processes_.begin() + 1);
  drivers_.erase(drivers_.begin() + 1);
  static_cast<void>(next_event(0));  // It may have ended.
  Bytes more = pattern(8);
  TargetEvent event;
  do {
    ASSERT_EQ(port(0).request(ended, put_from(0, more, 1)), Status::kOk);
    event = next_event(0);
  } while (event.failure == TargetFailure::kNone);
  EXPECT_EQ(event.failure, TargetFailure::kUndeliverable);
}

/// It sleeps in the kernel, and is killed in the end.
TEST_P(NicdTargets, AnotherProcessIsServedWhileItSleeps) {
  constexpr std::size_t kBytes = 300'000;
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const FileDescriptor reads(pipe[0]), writes(pipe[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const ProcessDriver& driver = attach(is_lone_ ? lone_hello() : hello_of(1));
    const std::string card = driver.card();
    const ProcessId id = driver.process();
    processes_.emplace_back();
    open(0);
    Bytes memory = pattern(kBytes), sum(8);
    append(0, memory, 1);
    append(0, sum, 2);
    if (::write(writes.get(), &id, sizeof id) > 0 &&
        ::write(writes.get(), card.c_str(), card.size() + 1) > 0 && !HasFailure())
      for (;;) ::pause();
    ::_exit(1);
  }
  ASSERT_GT(child, 0);
  attach(is_lone_ ? lone_hello() : hello_of(0));
  processes_.emplace_back();
  open(0);
  ProcessId id{};
  ASSERT_EQ(::read(reads.get(), &id, sizeof id), static_cast<ssize_t>(sizeof id));
  if (is_lone_) ids_elsewhere_[1] = id;
  std::array<char, 4096> card{};
  ASSERT_GT(::read(reads.get(), card.data(), card.size()), 0);
  cards_elsewhere_[PeerId{1}] = card.data();

  Bytes back(kBytes), data(kBytes, std::byte{7}), operand(8), old(8);
  run(get_from(0, back, 1));
  EXPECT_EQ(back, pattern(kBytes));
  run(put_from(0, data, 1));
  run(get_from(0, back, 1));
  EXPECT_EQ(back, data);
  operand[0] = std::byte{1};
  for (std::uint8_t i = 0; i < 20; ++i) {
    run(sum_from(0, operand, old, 2));
    EXPECT_EQ(old[0], std::byte{i});
  }
  ASSERT_EQ(port(0).request(id_of(1), put_from(0, data, 1)), Status::kOk);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  while (next_event(0).failure == TargetFailure::kNone)
    ASSERT_EQ(port(0).request(id_of(1), put_from(0, data, 1)), Status::kOk);
}

TEST_P(NicdTargets, ThereIsOneForEachClient) {
  make(1);
  Result<TargetPort*> second = drivers_[0]->attach_targets();
  EXPECT_FALSE(second.ok());
}

TEST_F(NicdTargetPorts, AClientWithRubbishInItsSecondRingIsDropped) {
  make(1);
  const auto client = attach_by_hand(of_another_job(hello_of(0, 1)));
  ASSERT_EQ(ask(*client, CommandKind::kAttachTargets), 1u);
  PortMemory targets = receive_targets(*client);
  RingProducer commands = targets.command_producer();
  const std::array<std::byte, 56> rubbish{};
  std::memcpy(commands.payload(), rubbish.data(), rubbish.size());
  commands.publish(RecordKind::kMessage, rubbish.size());
  std::uint64_t rung = 0;
  PortMemory::ring(targets.words().nic_sleeps, targets.nic_bell(), rung);
  EXPECT_NE(client->last_words().find("for target entries holds rubbish"), std::string::npos);
  Bytes memory(8), data = pattern(8);
  append(0, memory, 1);
  ASSERT_EQ(port(0).request(make_logical_id(0), put_from(0, data, 1)), Status::kOk);
  EXPECT_EQ(next_event(0).failure, TargetFailure::kNone) << "its neighbour goes on";
}

}  // namespace nicd_targets_test
}  // namespace ch3_offload
