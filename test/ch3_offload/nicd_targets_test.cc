// Target entries behind a node's network processor: the second port of its clients.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ch3_offload/nicd_world.h"
#include "engine/targets/target_event_ring.h"
#include "engine/targets/told_memory.h"

namespace ch3_offload {
namespace {

using Bytes = std::vector<std::byte>;

class NicdTargetPorts : public NicdWorld {
 protected:
  static constexpr std::uint16_t kTable = 3;

  /// A process with an open interface.
  struct Process {
    TargetPort* port = nullptr;
    TargetBoardMemory board;
    std::unique_ptr<TargetEventMemory> events;
    QueueId queue{};
    CounterId counter{};
  };

  ~NicdTargetPorts() override { processes_.clear(); }

  void make(std::uint32_t size = 2) {
    for (std::uint32_t i = 0; i < size; ++i) {
      attach(hello_of(i, size));
      processes_.emplace_back();
      open(i);
    }
  }
  void open(std::uint32_t i) {
    Result<TargetPort*> port = drivers_[i]->attach_targets();
    ASSERT_TRUE(port.ok()) << port.error().message;
    Process& its = processes_[i];
    its.port = port.value();
    its.board = make_board(its.port->told_memory());
    its.events = TargetEventMemory::make(its.port->told_memory(), 1000, 4);
    ASSERT_EQ(its.port->open(0, {}, *its.board), Status::kOk);
    its.queue = its.port->make_queue(0, its.events->ring);
    its.counter = its.port->make_counter(0);
    ASSERT_EQ(its.port->make_table(0, kTable, its.queue, false), Status::kOk);
  }
  TargetPort& port(std::uint32_t i) { return *processes_[i].port; }

  void append(std::uint32_t i, std::span<std::byte> memory, std::uint64_t bits) {
    TargetDescription entry;
    entry.start = memory.data();
    entry.length_bytes = memory.size();
    entry.key.bits = MatchBits{bits};
    entry.ignore = {MatchBits{0}, kAnyProcess};
    entry.options = kAllowPut | kAllowGet | kNoLinkEvent | kCountComm | kNoCommEvent;
    entry.counter = processes_[i].counter;
    TargetId id{};
    ASSERT_EQ(port(i).append(0, kTable, TargetListKind::kPriority, entry, id), Status::kOk);
    ASSERT_NE(id, kNoTarget);
  }
  TargetRequest request_from(std::uint32_t i, TargetOperation operation, std::uint64_t bits) {
    TargetRequest request;
    request.operation = operation;
    request.table = kTable;
    request.bits = MatchBits{bits};
    request.acknowledgement = TargetAcknowledgement::kFull;
    request.source.options = kNoSendEvent;
    request.source.queue = request.destination.queue = processes_[i].queue;
    return request;
  }
  static Payload payload(std::span<std::byte> memory) { return {memory.data(), memory.size(), nullptr}; }
  TargetRequest put_from(std::uint32_t i, std::span<std::byte> data, std::uint64_t bits) {
    TargetRequest request = request_from(i, TargetOperation::kPut, bits);
    request.source.memory = payload(data);
    return request;
  }
  TargetRequest get_from(std::uint32_t i, std::span<std::byte> data, std::uint64_t bits) {
    TargetRequest request = request_from(i, TargetOperation::kGet, bits);
    request.destination.memory = payload(data);
    return request;
  }
  TargetRequest sum_from(std::uint32_t i, std::span<std::byte> operand, std::span<std::byte> old,
                         std::uint64_t bits) {
    TargetRequest request = put_from(i, operand, bits);
    request.operation = TargetOperation::kFetchAtomic;
    request.atomic_operation = AtomicOperation::kSum;
    request.atomic_type = AtomicType::kUint64;
    request.destination.memory = payload(old);
    return request;
  }

  static NicdHello of_another_job(NicdHello hello) {
    hello.secret = make_secret(0xFE);
    return hello;
  }
  /// Of a client that speaks for itself.
  static std::uint64_t ask(ByHand& client, CommandKind kind) {
    CommandRecord command;
    command.kind = kind;
    RingProducer commands = client.memory->command_producer();
    std::memcpy(commands.payload(), &command, sizeof command);
    commands.publish(RecordKind::kMessage, sizeof command);
    std::uint64_t rung = 0;
    NicWords& words = client.memory->words();
    PortMemory::ring(words.nic_sleeps, client.memory->nic_bell(), rung);
    EXPECT_TRUE(await([&] { return words.answered.load() == 1; }));
    return words.answer;
  }
  static PortMemory receive_targets(ByHand& client) {
    NicdTargets targets;
    std::array<FileDescriptor, PortMemory::kFiles> files;
    EXPECT_EQ(receive_with_files(client.socket, std::as_writable_bytes(std::span(&targets, 1)), files),
              Receipt::kMessage);
    return std::move(PortMemory::attach(std::move(files)).value());
  }

  /// The clients of messages answer what is asked of them: cards.
  bool until(const std::function<bool()>& is_so) {
    return await([&] {
      turn();
      return is_so();
    });
  }
  TargetEvent next_event(std::uint32_t i) {
    TargetEvent event;
    event.failure = TargetFailure::kEnd;
    bool lost = false;
    EXPECT_TRUE(until([&] { return TargetEventReader(processes_[i].events->ring).take(event, lost); }));
    return event;
  }
  /// A request of process 0 to process 1 that succeeds.
  void run(const TargetRequest& request) {
    ASSERT_EQ(port(0).request(make_logical_id(1), request), Status::kOk);
    const TargetEvent event = next_event(0);
    EXPECT_EQ(event.failure, TargetFailure::kNone);
    EXPECT_EQ(event.length_bytes, request.length_bytes());
  }
  static Bytes pattern(std::size_t length_bytes) {
    Bytes bytes(length_bytes);
    for (std::size_t i = 0; i < length_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    return bytes;
  }
  std::uint64_t counted(std::uint32_t i) {
    return processes_[i].board->counters[counter_index(processes_[i].counter)].success.load();
  }

  std::vector<Process> processes_;  ///< Before drivers_, which has the ports.
};

/// Process 1 calls nothing.
TEST_F(NicdTargetPorts, EntriesAreServedWhileTheirProcessDoesNothing) {
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

TEST_F(NicdTargetPorts, AProcessReachesItself) {
  make(1);
  Bytes memory(5000), data = pattern(5000);
  append(0, memory, 1);
  ASSERT_EQ(port(0).request(make_logical_id(0), put_from(0, data, 1)), Status::kOk);
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

TEST_F(NicdTargetPorts, AClientThatSleepsIsWoken) {
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

TEST_F(NicdTargetPorts, AnInterfaceThatIsOpenEndsWithItsPort) {
  make();
  Bytes memory(1 << 20), data = pattern(1 << 20);
  append(1, memory, 1);
  run(put_from(0, data, 1));
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(port(0).request(make_logical_id(1), put_from(0, data, 1)), Status::kOk);
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
  exchange(5000);
}

TEST_F(NicdTargetPorts, AClientThatEndsIsUndeliverable) {
  make(3);
  Bytes memory(4 << 20), data = pattern(4 << 20);
  append(1, memory, 1);
  run(put_from(0, data, 1));
  ASSERT_EQ(port(0).request(make_logical_id(1), put_from(0, data, 1)), Status::kOk);
  processes_.erase(processes_.begin() + 1);
  drivers_.erase(drivers_.begin() + 1);
  static_cast<void>(next_event(0));  // It may have ended.
  Bytes more = pattern(8);
  TargetEvent event;
  do {
    ASSERT_EQ(port(0).request(make_logical_id(1), put_from(0, more, 1)), Status::kOk);
    event = next_event(0);
  } while (event.failure == TargetFailure::kNone);
  EXPECT_EQ(event.failure, TargetFailure::kUndeliverable);
}

/// It sleeps in the kernel, and is killed in the end.
TEST_F(NicdTargetPorts, AnotherProcessIsServedWhileItSleeps) {
  constexpr std::size_t kBytes = 300'000;
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const FileDescriptor reads(pipe[0]), writes(pipe[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string card = attach(hello_of(1)).card();
    processes_.emplace_back();
    open(0);
    Bytes memory = pattern(kBytes), sum(8);
    append(0, memory, 1);
    append(0, sum, 2);
    if (::write(writes.get(), card.c_str(), card.size() + 1) > 0 && !HasFailure())
      for (;;) ::pause();
    ::_exit(1);
  }
  ASSERT_GT(child, 0);
  attach(hello_of(0));
  processes_.emplace_back();
  open(0);
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
  ASSERT_EQ(port(0).request(make_logical_id(1), put_from(0, data, 1)), Status::kOk);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  while (next_event(0).failure == TargetFailure::kNone)
    ASSERT_EQ(port(0).request(make_logical_id(1), put_from(0, data, 1)), Status::kOk);
}

TEST_F(NicdTargetPorts, ThereIsOneForEachClient) {
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

}  // namespace
}  // namespace ch3_offload
