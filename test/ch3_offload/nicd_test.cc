// A network processor of a node in a thread of this process, and its clients.

#include "ch3_offload/nicd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ch3_offload/nicd_job.h"
#include "nic/process_driver.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

using Driver = std::unique_ptr<ProcessDriver>;

constexpr MatchKey kKey = make_match_key(1, 0, 7);

/// Another one for each test.
JobSecret make_secret(unsigned char number) {
  JobSecret secret{};
  const pid_t pid = ::getpid();
  std::memcpy(secret.data(), &pid, sizeof pid);
  secret.back() = static_cast<decltype(secret)::value_type>(number);
  return secret;
}

/// Until it is so. False: it never was.
bool await(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class NicdTest : public testing::Test {
 protected:
  NicdTest() : secret_(make_secret(++last_)), name_(nicd_name(::geteuid(), secret_)) {
    processor_ = std::thread([this] {
      auto nicd = Nicd::create({name_, true});
      ASSERT_TRUE(nicd.ok());
      status_ = nicd.value()->run();
    });
    EXPECT_TRUE(await([this] { return connect_to_nicd(name_).ok(); }));
  }
  /// It ends with its last client.
  ~NicdTest() override {
    drivers_.clear();
    processor_.join();
    EXPECT_EQ(status_, 0);
  }

  NicdHello hello_of(std::uint32_t rank, std::uint32_t job_size = 2) {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.rank = rank;
    config.job_size = job_size;
    config.local_size = job_size;
    config.local_rank = rank + 1;  // Starts nothing.
    config.fabric = "shm";
    NicdHello hello = make_hello(config);
    hello.secret = secret_;
    return hello;
  }
  ProcessDriver& attach(const NicdHello& hello) {
    Result<Driver> made = ProcessDriver::create(hello, {}, nullptr);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *drivers_.emplace_back(std::move(made.value()));
  }
  /// Why that one is refused. "": it is not.
  std::string refusal(const NicdHello& hello) {
    Result<Driver> made = ProcessDriver::create(hello, {}, nullptr);
    return made.ok() ? "" : made.error().message;
  }

  /// A client that speaks for itself.
  struct ByHand {
    /// What the processor says at last, before it ends the connection.
    std::string last_words() {
      std::array<char, 200> text{};
      EXPECT_TRUE(
          await([&] { return ::recv(socket.get(), text.data(), text.size() - 1, MSG_DONTWAIT) > 0; }));
      char byte;
      EXPECT_TRUE(await([&] { return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
      return text.data();
    }

    const std::uint64_t probe = NicdHello::kMagic;
    FileDescriptor socket;
    std::optional<PortMemory> memory;
  };
  std::unique_ptr<ByHand> attach_by_hand(NicdHello hello) {
    auto client = std::make_unique<ByHand>();
    client->socket = std::move(connect_to_nicd(name_).value());
    hello.probe_address = reinterpret_cast<std::uint64_t>(&client->probe);
    EXPECT_TRUE(send_with_files(client->socket, std::as_bytes(std::span(&hello, 1)), {}));
    auto welcome = std::make_unique<NicdWelcome>();
    std::array<FileDescriptor, PortMemory::kFiles> files;
    EXPECT_TRUE(await([&] {
      return receive_with_files(client->socket, std::as_writable_bytes(std::span(welcome.get(), 1)), files) ==
             Receipt::kMessage;
    })) << text_of(welcome->text);
    Result<PortMemory> memory = PortMemory::attach(std::move(files));
    EXPECT_TRUE(memory.ok());
    client->memory.emplace(std::move(memory.value()));
    return client;
  }

  /// What the processor says to these bytes, by hand. "": the connection ends.
  std::string answer_to(std::span<const std::byte> message) {
    Result<FileDescriptor> socket = connect_to_nicd(name_);
    EXPECT_TRUE(socket.ok());
    EXPECT_TRUE(send_with_files(socket.value(), message, {}));
    auto welcome = std::make_unique<NicdWelcome>();
    Receipt receipt = Receipt::kNothing;
    EXPECT_TRUE(await([&] {
      receipt = receive_with_files(socket.value(), std::as_writable_bytes(std::span(welcome.get(), 1)), {});
      return receipt != Receipt::kNothing;
    }));
    return receipt == Receipt::kMessage ? std::string(text_of(welcome->text)) : "";
  }

  /// Takes the events of both, answers what they ask, and counts their completions.
  void turn() {
    for (std::size_t i = 0; i < drivers_.size(); ++i) {
      drivers_[i]->progress();
      for (Event event; drivers_[i]->next_event(event);) {
        done_[i] += event.kind <= Event::Kind::kCancelDone;
        if (event.kind == Event::Kind::kReceiveDone) received_bytes_ = event.length_bytes;
        if (event.kind == Event::Kind::kPeerFailed) ++failed_[i];
        if (event.kind == Event::Kind::kCardWanted)
          drivers_[i]->introduce(event.peer, drivers_[index_of(event.peer)]->card());
      }
    }
  }
  void exchange(std::size_t length_bytes) {
    std::vector<std::byte> sent(length_bytes), room(length_bytes);
    for (std::size_t i = 0; i < length_bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
    OperationId operation;
    Envelope envelope;
    Status status;
    const int before = done_[1];
    ASSERT_EQ(drivers_[1]->post_receive(kKey, kIgnoreNothing, {room.data(), length_bytes, nullptr}, nullptr,
                                        operation, envelope),
              Progressed::kPending);
    const int sends = done_[0];
    const bool is_pending =
        drivers_[0]->send(PeerId{1}, SendMode::kStandard, kKey, {sent.data(), length_bytes, nullptr}, 0,
                          nullptr, operation, status) == Progressed::kPending;
    EXPECT_TRUE(await([&] {
      turn();
      return done_[1] > before && done_[0] >= sends + is_pending;
    }));
    EXPECT_EQ(received_bytes_, length_bytes);
    EXPECT_EQ(room, sent);
  }

  static inline unsigned char last_ = 0;
  const JobSecret secret_;
  const std::string name_;
  std::thread processor_;
  std::atomic<int> status_ = -1;  ///< Of the processor. -1: it runs.
  std::vector<Driver> drivers_;
  std::array<int, 2> done_{}, failed_{};
  std::size_t received_bytes_ = 0;
};

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

TEST_F(NicdTest, AClientWhoseMemoryCannotBeReadIsRefused) {
  attach(hello_of(0));
  NicdHello hello = hello_of(1);
  hello.probe_address = 8;
  EXPECT_NE(answer_to(std::as_bytes(std::span(&hello, 1))).find("may not read the memory"),
            std::string::npos);
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
  auto call = std::async(std::launch::async, [&] { return ProcessDriver::create(hello, start, nullptr); });
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
  auto call = std::async(std::launch::async, [&] { return ProcessDriver::create(hello, start, nullptr); });
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
