// A network processor of a node in a thread of this process, and its clients.

#include "ch3_offload/nicd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ch3_offload/nicd_world.h"
#include "nic/late_memory.h"

namespace ch3_offload {
namespace {

class NicdTest : public NicdWorld {};

TEST_F(NicdTest, MessagesGoBetweenTheProcessesOfAJob) {
  attach(hello_of(0));
  attach(hello_of(1));
  for (const std::size_t length : {8, 100, 5000, 70'000, 3'000'000}) exchange(length);
}

TEST_F(NicdTest, ARankIsServedOnce) {
  attach(hello_of(0));
  EXPECT_NE(refusal(hello_of(0)).find("its rank was here before"), std::string::npos) << refusal(hello_of(0));
}

TEST_F(NicdTest, AllProcessesOfAJobSayTheSameSize) {
  attach(hello_of(0));
  EXPECT_NE(refusal(hello_of(1, 3)).find("it has another size"), std::string::npos);
}

TEST_F(NicdTest, ARankIsOfTheJob) {
  attach(hello_of(0));
  EXPECT_NE(refusal(hello_of(7)), "");
}

/// What a job costs goes by its size.
TEST_F(NicdTest, AJobOfMoreProcessesThanThereCanBeIsRefused) {
  attach(hello_of(0));
  NicdHello hello = hello_of(0);
  hello.secret = make_secret(0xF4);
  hello.rank = 100'000'000;
  hello.job_size = 100'000'001;
  const std::string answer = answer_to(std::as_bytes(std::span(&hello, 1)));
  EXPECT_NE(answer.find("at most 1048576 are served"), std::string::npos) << answer;
}

/// Nor does what all jobs of a user cost together.
TEST_F(NicdTest, JobsOfMoreProcessesThanTheProcessorHasRoomForAreRefused) {
  attach(hello_of(0));
  NicdHello hello = hello_of(0);
  hello.job_size = kMostProcesses;
  std::vector<std::unique_ptr<ByHand>> clients;
  unsigned char job = 0xA0;
  for (std::uint32_t others = hello_of(0).job_size; others + kMostProcesses <= kMostProcessesOfJobs;
       others += kMostProcesses) {
    hello.secret = make_secret(++job);
    clients.push_back(attach_by_hand(hello));
  }
  hello.secret = make_secret(++job);
  const auto answer = [&] { return answer_to(std::as_bytes(std::span(&hello, 1))); };
  const std::string refusal = answer();
  EXPECT_NE(refusal.find("at most 4194304 are served"), std::string::npos) << refusal;
  attach(hello_of(1));  // Who is of a job that it serves comes in.
  clients.pop_back();
  EXPECT_TRUE(await([&] { return answer() == ""; })) << "it comes with files";
}

TEST_F(NicdTest, SettingsThatAreCutAreRefused) {
  attach(hello_of(0));
  NicdHello hello = hello_of(1);
  hello.settings[text_of(hello.settings).size() / 2] = '\0';
  EXPECT_NE(refusal(hello).find("its settings are cut"), std::string::npos);
}

TEST_F(NicdTest, ASettingThatIsWrongIsRefusedByName) {
  attach(hello_of(0));
  NicdHello hello = hello_of(1);
  const std::string_view text = text_of(hello.settings);
  const std::size_t at = text.find("SHM_BULK=auto");
  ASSERT_NE(at, std::string_view::npos);
  std::memcpy(hello.settings.data() + at + std::strlen("SHM_BULK="), "what", 4);
  EXPECT_NE(refusal(hello).find("MPIR_CVAR_CH3_OFFLOAD_SHM_BULK"), std::string::npos);
}

/// Jobs of two secrets. Both have a process 0.
TEST_F(NicdTest, JobsDoNotSeeEachOther) {
  attach(hello_of(0));
  NicdHello other = hello_of(0);
  other.secret = make_secret(0xFF);
  attach_by_hand(other);
  EXPECT_NE(refusal(hello_of(0)), "") << "that one is of the first job";
}

TEST_F(NicdTest, AnotherVersionIsRefused) {
  attach(hello_of(0));
  NicdHello hello = hello_of(1);
  ++hello.version;
  EXPECT_NE(answer_to(std::as_bytes(std::span(&hello, 1))).find("different versions"), std::string::npos);
}

/// In shared memory, the processor makes it. Otherwise the receiver does, which is in a call.
TEST_F(NicdTest, LongMessagesMoveWithOneCopy) {
  attach(hello_of(0));
  attach(hello_of(1));
  const auto copied = [&] { return drivers_[1]->ring_counters().client.copied; };
  // On a busy machine the receiver's turn comes too late at times: then the message goes through slots.
  for (int tries = 0; copied() == 0 && tries < 100; ++tries) exchange(1'000'000);
  EXPECT_EQ(copied(), 1u);
  are_shared_ = true;
  exchange(1'000'000);
  EXPECT_TRUE(await([&] {
    turn();
    return drivers_[0]->counters().bulk_written == 2;
  }));
  EXPECT_EQ(copied(), 1u);
  exchange(1'000);
  EXPECT_EQ(drivers_[0]->ring_counters().client.staged, 0u);
}

/// The kernel would take as long for each byte as a memcpy for thousands.
TEST_F(NicdTest, SmallPiecesArePackedByTheirProcesses) {
  static constexpr Piece kPiece{1, 2};
  static constexpr PayloadLayout kLayout{.kind = PayloadLayout::Kind::kPieces,
                                         .piece_count = 1,
                                         .pieces = &kPiece,
                                         .element_bytes = 2,
                                         .extent_bytes = 4};
  constexpr std::size_t kBytes = 20'000;
  attach(hello_of(0));
  attach(hello_of(1));
  std::vector<std::byte> sent(2 * kBytes), room(2 * kBytes), expected(2 * kBytes);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7);
  for (std::size_t i = 0; i < sent.size(); ++i)
    if (i % 4 == 1 || i % 4 == 2) expected[i] = sent[i];
  OperationId operation;
  Envelope envelope;
  Status status;
  drivers_[1]->post_receive(kKey, kIgnoreNothing, {room.data(), kBytes, &kLayout}, nullptr, operation,
                            envelope);
  drivers_[0]->send(PeerId{1}, SendMode::kStandard, kKey, {sent.data(), kBytes, &kLayout}, 0, nullptr,
                    operation, status);
  EXPECT_TRUE(await([&] {
    turn();
    return done_[1] > 0;
  }));
  EXPECT_EQ(room, expected);
  for (const auto& driver : drivers_) EXPECT_EQ(driver->ring_counters().client.staged, 1u);
}

/// Clients of whom the kernel lets the processor read only the memory of rank `readable`.
class NicdStaging : public NicdTest, public testing::WithParamInterface<std::uint32_t> {};

TEST_P(NicdStaging, AClientWhoseMemoryCannotBeReadStagesItsMessages) {
  const std::uint32_t readable = GetParam();
  for (std::uint32_t i = 0; i < 2; ++i) {
    NicdHello hello = hello_of(i);
    if (i != readable) hello.probe_address = 8;
    attach(hello);
  }
  for (const std::size_t length : {8, 5000, 70'000, 3'000'000}) exchange(length);
  for (std::uint32_t i = 0; i < 2; ++i)
    EXPECT_EQ(drivers_[i]->ring_counters().client.staged > 0, i != readable);
  EXPECT_NE(warnings_.find("may not read the memory"), std::string::npos);
  // What it shares, it need not copy.
  const std::uint64_t before = drivers_[1]->ring_counters().client.staged;
  are_shared_ = true;
  exchange(300'000);
  EXPECT_EQ(drivers_[1]->ring_counters().client.staged, before);
}
INSTANTIATE_TEST_SUITE_P(Readable, NicdStaging, testing::Values(0, 1, 2));

/// Of process 2, whose message the processor reads.
class NicdLatePage : public NicdTest {
 protected:
  NicdLatePage() {
    for (std::uint32_t rank = 0; rank < 3; ++rank) attach(hello_of(rank, 3));
  }
  void SetUp() override {
    if (!late_.is_late()) GTEST_SKIP() << "no userfaultfd for this user";
    OperationId operation;
    Status status;
    Envelope envelope;
    ASSERT_EQ(drivers_[1]->post_receive(make_match_key(1, 2, 8), kIgnoreNothing,
                                        {room_.data(), room_.size(), nullptr}, nullptr, operation, envelope),
              Progressed::kPending);
    ASSERT_EQ(
        drivers_[2]->send(PeerId{1}, SendMode::kStandard, make_match_key(1, 2, 8),
                          {late_.address(), LateMemory::kBytes, nullptr}, 0, nullptr, operation, status),
        Progressed::kPending);
    EXPECT_TRUE(await([this] {
      turn();
      return late_.is_wanted();
    }));
  }
  static constexpr int kExchanges = 3;
  void exchange_all() {
    for (const std::size_t length : {8, 5000, 70'000}) exchange(length);
  }

  LateMemory late_;
  std::vector<std::byte> room_{LateMemory::kBytes};
};

TEST_F(NicdLatePage, HoldsUpNobodyElse) {
  exchange_all();
  EXPECT_TRUE(late_.is_wanted());
  ASSERT_TRUE(late_.serve());
  EXPECT_TRUE(await([this] {
    turn();
    return done_[2] == 1 && done_[1] == kExchanges + 1;  // Of the late message, too.
  }));
  exchange_all();
}

TEST_F(NicdLatePage, WhoEndsMeanwhileIsMissed) {
  drivers_[2].reset();
  EXPECT_TRUE(await([this] {
    turn();
    return failed_[1] == 1;
  }));
  EXPECT_TRUE(late_.is_wanted());
  exchange_all();
  ASSERT_TRUE(late_.serve());
  exchange_all();
}

/// While the processes of a job come, and after that.
TEST_F(NicdTest, SilentConnectionsKeepNoJobWaiting) {
  std::atomic<std::size_t> silent = 0;
  std::thread flood([&] {
    std::array<FileDescriptor, 200> held;  // The processor keeps fewer.
    while (silent < 3'000) {
      Result<FileDescriptor> socket = connect_to_nicd(name_);
      if (socket.ok()) held[silent++ % held.size()] = std::move(socket.value());
    }
  });
  EXPECT_TRUE(await([&] { return silent > 100; }));
  attach(hello_of(0));
  attach(hello_of(1));
  exchange(5000);
  flood.join();
  exchange(5000);
}

TEST_F(NicdTest, AHelloOfAnotherLengthEndsTheConnection) {
  attach(hello_of(0));
  const std::array<std::byte, 100> rubbish{};
  EXPECT_EQ(answer_to(rubbish), "");
  std::vector<std::byte> longer(sizeof(NicdHello) + 1);
  EXPECT_EQ(answer_to(longer), "");
}

/// A client whose ring holds rubbish is told, and dropped. Its neighbour goes on.
TEST_F(NicdTest, ADroppedClientHarmsNobodyElse) {
  attach(hello_of(0));
  const auto client = attach_by_hand(hello_of(1));
  RingProducer commands = client->memory->command_producer();
  const std::array<std::byte, 56> rubbish{};
  std::memcpy(commands.payload(), rubbish.data(), rubbish.size());
  commands.publish(RecordKind::kMessage, rubbish.size());
  std::uint64_t rung = 0;
  PortMemory::ring(client->memory->words().nic_sleeps, client->memory->nic_bell(), rung);
  EXPECT_NE(client->last_words().find("its ring of commands holds rubbish"), std::string::npos);
  // To itself.
  OperationId operation;
  Envelope envelope;
  Status status;
  long long sent = 7, room = 0;
  const auto payload = [](long long& word) {
    return Payload{reinterpret_cast<std::byte*>(&word), sizeof word, nullptr};
  };
  drivers_[0]->post_receive(kKey, kIgnoreNothing, payload(room), nullptr, operation, envelope);
  drivers_[0]->send(PeerId{0}, SendMode::kStandard, kKey, payload(sent), 0, nullptr, operation, status);
  EXPECT_TRUE(await([&] {
    turn();
    return done_[0] > 0;
  }));
  EXPECT_EQ(room, 7);
}

/// The first of the node says it, whenever it attaches.
TEST_F(NicdTest, AWarningAboutTheNodeIsToldToAllClients) {
  for (const std::uint32_t rank : {1U, 0U}) {
    ch3_offload_config_t config = config_of(rank, 3);
    config.local_size = 2;
    config.fabric = "auto";
    config.verbs_device = config.network_interface = "there-is-none";
    ProcessDriver& client = attach(hello_of(config));
    std::string said;
    EXPECT_TRUE(await([&] {
      client.progress();
      for (Event event; client.next_event(event);)
        if (event.kind == Event::Kind::kWarning && event.scope == LogScope::kNode)
          said.assign(reinterpret_cast<const char*>(event.bytes), event.length_bytes);
      return !said.empty();
    }));
    EXPECT_NE(said.find("there-is-none"), std::string::npos) << said;
  }
}

/// They are more than the processor takes in a turn.
TEST_F(NicdTest, AllCommandsOfAClientThatHasEndedAreTaken) {
  constexpr int kMessages = 20;
  attach(hello_of(0));
  const auto client = attach_by_hand(hello_of(1));
  std::array<long long, kMessages> room{};
  for (long long& word : room) {
    OperationId operation;
    Envelope envelope;
    drivers_[0]->post_receive(kKey, kIgnoreNothing,
                              {reinterpret_cast<std::byte*>(&word), sizeof word, nullptr}, nullptr, operation,
                              envelope);
  }
  RingProducer commands = client->memory->command_producer();
  const auto give = [&](const auto& head, std::string_view more) {
    std::memcpy(commands.payload(), &head, sizeof head);
    std::memcpy(commands.payload() + sizeof head, more.data(), more.size());
    commands.publish(RecordKind::kMessage, sizeof head + more.size());
  };
  InlineRecord send;
  send.kind = CommandKind::kSendInline;
  send.bits = kKey.bits;
  send.initiator = kKey.initiator;
  give(send, "12345678");
  std::atomic<std::uint32_t>& sleeps = client->memory->words().nic_sleeps;
  std::uint64_t rung = 0;
  PortMemory::ring(sleeps, client->memory->nic_bell(), rung);
  // Nobody is asked for the card of a process of the node.
  ASSERT_TRUE(await([&] {
    turn();
    return done_[0] == 1 && sleeps != 0;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  // It hears of the rest by the socket's end only.
  CommandRecord command;
  command.kind = CommandKind::kClassify;
  command.mode = static_cast<std::uint8_t>(TrafficClass::kDefault);
  for (int i = 0; i < 1000; ++i) give(command, "");
  for (int i = 1; i < kMessages; ++i) give(send, "12345678");
  client->socket.reset();
  EXPECT_TRUE(await([&] {
    turn();
    return failed_[0] > 0 || done_[0] == kMessages;
  }));
  EXPECT_EQ(done_[0], kMessages);
}

/// A key of another length.
TEST_F(NicdTest, AClientThatAsksForForeignProcessesWithoutAKeyIsDropped) {
  attach(hello_of(0));
  const auto client = attach_by_hand(hello_of(1));
  CommandRecord command;
  command.kind = CommandKind::kReachForeign;
  RingProducer commands = client->memory->command_producer();
  std::memcpy(commands.payload(), &command, sizeof command);
  commands.publish(RecordKind::kMessage, sizeof command + UserKey::kBytes + 1);
  std::uint64_t rung = 0;
  PortMemory::ring(client->memory->words().nic_sleeps, client->memory->nic_bell(), rung);
  EXPECT_NE(client->last_words().find("its ring of commands holds rubbish"), std::string::npos);
}

/// A rank is not forgotten, and foreign peers are in few slots.
TEST_F(NicdTest, AClientThatNamesNoForeignPeerForOneIsDropped) {
  attach(hello_of(0, 3));
  const auto give = [](ByHand& client, RingProducer& commands, CommandKind kind, std::uint32_t peer,
                       std::size_t more_bytes) {
    CommandRecord command;
    command.kind = kind;
    command.peer = peer;
    std::memcpy(commands.payload(), &command, sizeof command);
    commands.publish(RecordKind::kMessage, sizeof command + more_bytes);
    std::uint64_t rung = 0;
    PortMemory::ring(client.memory->words().nic_sleeps, client.memory->nic_bell(), rung);
  };
  const std::pair<CommandKind, std::uint32_t> wrong[] = {{CommandKind::kForgetPeer, 1},
                                                         {CommandKind::kFailPeer, 3 + kMostForeignPeers}};
  for (std::uint32_t i = 0; i < std::size(wrong); ++i) {
    const auto client = attach_by_hand(hello_of(1 + i, 3));
    RingProducer commands = client->memory->command_producer();
    give(*client, commands, CommandKind::kReachForeign, 0, UserKey::kBytes);
    give(*client, commands, wrong[i].first, wrong[i].second, 0);
    NicdForeign said;
    EXPECT_TRUE(await([&] {
      return receive_with_files(client->socket, std::as_writable_bytes(std::span(&said, 1)), {}) ==
             Receipt::kMessage;
    }));
    EXPECT_EQ(said.refusal, Status::kOk) << text_of(said.text);
    EXPECT_NE(client->last_words().find("its ring of commands holds rubbish"), std::string::npos);
  }
}

/// Whoever asks twice gets the same answer.
TEST_F(NicdTest, ForeignProcessesReachAClientOfAJob) {
  ProcessDriver& driver = attach(hello_of(0));
  const UserKey key = UserKey::of_user(UserId{::geteuid()});
  const Result<std::string> card = driver.reach_foreign(key), again = driver.reach_foreign(key);
  ASSERT_TRUE(card.ok() && again.ok());
  EXPECT_NE(card.value().find(";shm:"), std::string::npos);
  EXPECT_NE(card.value(), driver.card());
  EXPECT_EQ(again.value(), card.value());
}

TEST_F(NicdTest, OverANetworkForeignProcessesNeedAKeyFile) {
  ch3_offload_config_t config = config_of(0, 1);
  config.fabric = "tcp";
  ProcessDriver& driver = attach(hello_of(config));
  const Result<std::string> card = driver.reach_foreign(UserKey::of_user(UserId{::geteuid()}));
  ASSERT_FALSE(card.ok());
  EXPECT_EQ(card.error().status, Status::kDeviceFailed);
  EXPECT_NE(card.error().message.find("needs a key file"), std::string::npos) << card.error().message;
}

TEST_F(NicdTest, AClientThatSpeaksOutOfTurnIsDropped) {
  attach(hello_of(0));
  const auto client = attach_by_hand(hello_of(1));
  ASSERT_TRUE(send_with_files(client->socket, std::as_bytes(std::span(&client->probe, 1)), {}));
  EXPECT_EQ(client->last_words(), "it speaks out of turn");
}

/// The child of a client that was killed lives on. (Python's multiprocessing forks.)
TEST_F(NicdTest, AChildOfAClientDoesNotHideItsEnd) {
  attach(hello_of(0));
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  FileDescriptor reads(pipe[0]), writes(pipe[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    writes.reset();
    char byte;
    ::_exit(::read(reads.get(), &byte, 1) == 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  drivers_.clear();  // This process keeps nothing of the client's.
  EXPECT_TRUE(await([this] { return status_ != -1; })) << "it believes that its client lives";
  writes.reset();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// Only one listens under a name.
TEST_F(NicdTest, ASecondProcessorOfThatNameIsRefused) {
  attach(hello_of(0));
  const auto second = Nicd::create({name_, true});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("already"), std::string::npos);
}

/// Somebody who listens as a job's processor, and accepts nothing.
class NicdSquatted : public testing::Test {
 protected:
  NicdSquatted() : secret_(make_secret(0xFE)), name_(nicd_name(::geteuid(), secret_)) {
    listener_ = std::move(listen_as_nicd(name_).value());
    EXPECT_EQ(::listen(listener_.get(), 0), 0);  // The queue's length is now that of one.
    queued_ = std::move(connect_to_nicd(name_).value());
  }
  /// Whether it has returned. It would wait until the listener is closed.
  template <class T>
  bool returns(std::future<T>& call) {
    const bool has = call.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    if (!has) listener_.reset();
    return has;
  }

  const JobSecret secret_;
  const std::string name_;
  FileDescriptor listener_, queued_;
};

TEST_F(NicdSquatted, ConnectingDoesNotBlock) {
  auto call = std::async(std::launch::async, [this] { return connect_to_nicd(name_); });
  ASSERT_TRUE(returns(call));
  EXPECT_EQ(call.get().error().status, Status::kAgain);
}

TEST_F(NicdSquatted, AClientSaysAtLastThatNobodyAcceptedIt) {
  NicdHello hello;
  hello.secret = secret_;
  hello.local_rank = 1;  // Starts nothing.
  NicdStart start;
  start.patience_ns = 50'000'000;
  auto call = std::async(std::launch::async,
                         [&] { return ProcessDriver::create(hello, start, short_wait(), nullptr); });
  ASSERT_TRUE(returns(call));
  const Result<Driver> driver = call.get();
  ASSERT_FALSE(driver.ok());
  EXPECT_NE(driver.error().message.find("listens as " + name_ + " accepts no connections"), std::string::npos)
      << driver.error().message;
}

/// The squatter leaves: the next connection is the processor's.
TEST_F(NicdSquatted, AClientTriesAgain) {
  NicdHello hello;
  hello.secret = secret_;
  hello.local_rank = 1;
  NicdStart start;
  start.patience_ns = 200'000'000;
  auto call = std::async(std::launch::async,
                         [&] { return ProcessDriver::create(hello, start, short_wait(), nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  FileDescriptor first(::accept(listener_.get(), nullptr, nullptr));
  FileDescriptor second;
  EXPECT_TRUE(await([&] {
    second = FileDescriptor(::accept(listener_.get(), nullptr, nullptr));
    return second.valid();
  }));
  auto said = std::make_unique<NicdHello>();
  EXPECT_TRUE(await([&] {
    return receive_with_files(second, std::as_writable_bytes(std::span(said.get(), 1)), {}) ==
           Receipt::kMessage;
  }));
  second.reset();
  ASSERT_TRUE(returns(call));
  EXPECT_NE(call.get().error().message.find("has ended"), std::string::npos);
}

TEST(NicdName, TellsUsersAndSecretsApart) {
  EXPECT_NE(nicd_name(1), nicd_name(2));
  EXPECT_NE(nicd_name(1, make_secret(1)), nicd_name(1, make_secret(2)));
  EXPECT_NE(nicd_name(1, make_secret(1)), nicd_name(2, make_secret(1)));
  EXPECT_EQ(nicd_name(1, make_secret(1)), nicd_name(1, make_secret(1)));
}

}  // namespace
}  // namespace ch3_offload
