// The client of a node's network processor, before a processor that the test plays.

#include "nic/process_driver.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <thread>

#include "ch3_offload/nicd_world.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

class ProcessDriverTest : public testing::Test {
 protected:
  ProcessDriverTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // A child of a fork does not have the rings.
    hello_.secret = make_secret(0xFD);
    hello_.local_rank = 1;  // Starts nothing.
    listener_ = std::move(listen_as_nicd(nicd_name(::geteuid(), hello_.secret)).value());
    memory_ = std::make_unique<PortMemory>(std::move(PortMemory::make().value()));
    commands_ = memory_->command_consumer();
  }

  /// Sends a message with the files of rings.
  template <class Message>
  bool send(const Message& message, const PortMemory& memory) {
    return send_with_files(socket_, std::as_bytes(std::span(&message, 1)), memory.files());
  }
  void attach() {
    auto call = std::async(std::launch::async, [this] { return ProcessDriver::create(hello_, {}, short_wait(), nullptr); });
    EXPECT_TRUE(await([this] {
      socket_ = FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      return socket_.valid();
    }));
    auto said = std::make_unique<NicdHello>();
    EXPECT_TRUE(await([&] {
      return receive_with_files(socket_, std::as_writable_bytes(std::span(said.get(), 1)), {}) ==
             Receipt::kMessage;
    }));
    auto welcome = std::make_unique<NicdWelcome>();
    welcome->pid = ::getpid();
    EXPECT_TRUE(send(*welcome, *memory_));
    Result<std::unique_ptr<ProcessDriver>> made = call.get();
    ASSERT_TRUE(made.ok()) << made.error().message;
    driver_ = std::move(made.value());
  }
  /// Answers the client's next question, which must be `question`.
  void answer(CommandKind question, std::uint64_t with) {
    EXPECT_TRUE(await([this] { return commands_.header() != 0; }));
    RingConsumer::Record record;
    CommandRecord command;
    ASSERT_TRUE(commands_.parse(commands_.header(), record) && record.payload.size() >= sizeof command);
    std::memcpy(&command, record.payload.data(), sizeof command);
    commands_.advance(record);
    EXPECT_EQ(command.kind, question);
    NicWords& words = memory_->words();
    words.answer = with;
    words.answered.store(++answers_, std::memory_order_seq_cst);
    memory_->wake_from_wait(rung_);
  }
  /// How often the client has announced a sleep.
  std::uint64_t sleeps() const {
    return std::atomic_ref<std::uint64_t>(memory_->ring_counters().client.sleeps)
        .load(std::memory_order_relaxed);
  }

  NicdHello hello_;
  FileDescriptor listener_, socket_;
  std::unique_ptr<PortMemory> memory_;
  RingConsumer commands_;
  std::unique_ptr<ProcessDriver> driver_;
  std::uint32_t answers_ = 0;
  std::uint64_t rung_ = 0;
};

/// The files for the second client come before the answer: a client that looks for news in between, as it
/// does while it waits for long, keeps them.
TEST_F(ProcessDriverTest, FilesThatComeBeforeTheAnswerAreNoRefusal) {
  attach();
  const PortMemory second = std::move(PortMemory::make().value());
  ASSERT_TRUE(send(NicdTargets{}, second));
  driver_->arm();
  driver_->arm();
  auto call = std::async(std::launch::async, [this] {
    const Result<TargetPort*> port = driver_->attach_targets();
    return port.ok() ? "" : port.error().message;
  });
  answer(CommandKind::kAttachTargets, 1);
  EXPECT_EQ(call.get(), "");
  auto end = std::async(std::launch::async, [this] { driver_->detach_targets(); });
  answer(CommandKind::kDetachTargets, 1);
}

TEST_F(ProcessDriverTest, AProcessorWithoutMemoryForASecondClientIsSaid) {
  attach();
  auto call = std::async(std::launch::async, [this] { return driver_->attach_targets().error().status; });
  answer(CommandKind::kAttachTargets, 0);
  EXPECT_EQ(call.get(), Status::kNoMemory);
}

/// What the processor says comes before its answer, as the files above.
TEST_F(ProcessDriverTest, AProcessorThatReachesNoForeignProcessesSaysWhy) {
  attach();
  const UserKey key = UserKey::of_user(UserId{::geteuid()});
  NicdForeign said;
  said.refusal = Status::kDeviceFailed;
  set_text(said.text, "no key file");
  ASSERT_TRUE(send_with_files(socket_, std::as_bytes(std::span(&said, 1)), {}));
  driver_->arm();
  auto call = std::async(std::launch::async, [&] { return driver_->reach_foreign(key).error(); });
  answer(CommandKind::kReachForeign, 0);
  const Error why = call.get();
  EXPECT_EQ(why.status, Status::kDeviceFailed);
  EXPECT_NE(why.message.find("no key file"), std::string::npos);

  call = std::async(std::launch::async, [&] { return driver_->reach_foreign(key).error(); });
  answer(CommandKind::kReachForeign, 1);
  EXPECT_EQ(call.get().status, Status::kProtocol) << "it has said nothing";
}

TEST_F(ProcessDriverTest, ARefusalEndsTheProcessWithItsReason) {
  attach();
  EXPECT_EXIT(
      {
        const char line[] = "its ring of commands holds rubbish";
        ::send(socket_.get(), line, sizeof line, MSG_NOSIGNAL);
        driver_->arm();
      },
      testing::ExitedWithCode(EXIT_FAILURE), "refuses this process: its ring of commands holds rubbish");
}

TEST_F(ProcessDriverTest, TheEndOfTheProcessorEndsTheProcess) {
  attach();
  EXPECT_EXIT(
      {
        ::shutdown(socket_.get(), SHUT_RDWR);
        driver_->arm();
      },
      testing::ExitedWithCode(EXIT_FAILURE), "has ended");
}

TEST_F(ProcessDriverTest, WhoeverWaitsForAnAnswerSleepsAndIsWoken) {
  attach();
  std::atomic<bool> is_over = false;
  std::thread client([&] {
    EXPECT_EQ(driver_->attach_targets().error().status, Status::kNoMemory);
    is_over = true;
  });
  EXPECT_TRUE(await([this] { return sleeps() > 0; })) << "it polls, or gives its core away";
  // A processor that is stopped costs its client a look now and then.
  clockid_t clock{};
  EXPECT_EQ(::pthread_getcpuclockid(client.native_handle(), &clock), 0);
  const auto used_ns = [clock] {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  };
  const std::uint64_t used_before = used_ns(), sleeps_before = sleeps(), begin_ns = monotonic_ns();
  EXPECT_TRUE(await([&] { return sleeps() >= sleeps_before + 10; }));
  EXPECT_LT(used_ns() - used_before, (monotonic_ns() - begin_ns) / 4);
  EXPECT_FALSE(is_over);
  answer(CommandKind::kAttachTargets, 0);
  client.join();
}

TEST_F(ProcessDriverTest, TheEndOfTheProcessorEndsTheProcessThatSleepsUntilItAnswers) {
  attach();
  EXPECT_EXIT(
      {
        std::thread processor([this] {
          EXPECT_TRUE(await([this] { return sleeps() > 0; }));
          ::shutdown(socket_.get(), SHUT_RDWR);
        });
        static_cast<void>(driver_->attach_targets());
      },
      testing::ExitedWithCode(EXIT_FAILURE), "has ended");
}

/// A processor that closes connections before it has read what they say.
class ProcessUnheard : public ProcessDriverTest {
 protected:
  /// Closes the next `connections`, and answers none after them.
  std::string error_after(int connections) {
    NicdStart start;
    start.patience_ns = patience_ns_;
    auto call = std::async(std::launch::async, [&] { return ProcessDriver::create(hello_, start, short_wait(), nullptr); });
    const auto has_ended = [&] {
      return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    EXPECT_TRUE(await([&] {
      FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.valid() && closed_++ == connections) socket_ = std::move(socket);
      return socket_.valid() || has_ended();
    }));
    // It has read what this one says.
    if (socket_.valid()) {
      auto said = std::make_unique<NicdHello>();
      EXPECT_TRUE(await([&] {
        return receive_with_files(socket_, std::as_writable_bytes(std::span(said.get(), 1)), {}) ==
               Receipt::kMessage;
      }));
      auto welcome = std::make_unique<NicdWelcome>();
      welcome->is_refused = 1;
      set_text(welcome->text, "heard");
      EXPECT_TRUE(send_with_files(socket_, std::as_bytes(std::span(welcome.get(), 1)), {}));
    }
    return call.get().error().message;
  }

  std::uint64_t patience_ns_ = 30'000'000'000;
  int closed_ = 0;
};

TEST_F(ProcessUnheard, AClientIntroducesItselfAgain) {
  const std::string why = error_after(5);
  EXPECT_NE(why.find("heard"), std::string::npos) << why;
  EXPECT_EQ(closed_, 6);
}

TEST_F(ProcessUnheard, AClientSaysAtLastWhatHappened) {
  patience_ns_ = 100'000'000;
  const std::string why = error_after(INT_MAX);
  EXPECT_NE(why.find(" connections of this process before it read from them"), std::string::npos) << why;
  EXPECT_NE(why.find("ss -xp shows them"), std::string::npos) << why;
}

/// Which starts a processor, and finds none.
std::string failure_to_start(const std::string& program, std::uint8_t secret) {
  NicdHello hello;
  hello.secret = make_secret(secret);
  NicdStart start;
  start.program = program;
  start.patience_ns = 2'000'000'000;
  const Result<std::unique_ptr<ProcessDriver>> made = ProcessDriver::create(hello, start, short_wait(), nullptr);
  return made.ok() ? "" : made.error().message;
}

TEST(ProcessStart, AProgramThatEndsInsteadOfServingIsNamedAtOnce) {
  const std::string why = failure_to_start("/bin/true", 0xF1);
  EXPECT_NE(why.find("/bin/true has ended instead of serving"), std::string::npos) << why;
}

TEST(ProcessStart, WhatIsWaitedForIsSaid) {
  NicdHello hello;
  hello.secret = make_secret(0xF2);
  hello.local_rank = 1;  // Starts nothing.
  NicdStart start;
  start.patience_ns = 2'000'000'000;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(ProcessDriver::create(hello, start, short_wait(), nullptr).ok());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      said.find("this process waits for local rank 0 to start the node's network processor, at most 2 s"),
      std::string::npos)
      << said;
}

/// The processor runs in another directory than this process.
TEST(ProcessStart, APathFromTheCurrentDirectoryIsFound) {
  const std::string link = "nicd-of-process-start-test." + std::to_string(::getpid());
  ASSERT_EQ(::symlink("/bin/true", link.c_str()), 0);
  const std::string why = failure_to_start("./" + link, 0xF3);
  ::unlink(link.c_str());
  EXPECT_NE(why.find(link + " has ended instead of serving"), std::string::npos) << why;
}

}  // namespace
}  // namespace ch3_offload
