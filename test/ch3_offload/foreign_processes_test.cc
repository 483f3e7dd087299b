// Processes of different MPI worlds meet, exchange messages, and go.

#include "ch3_offload/foreign_processes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ch3_offload/channel.h"
#include "ch3_offload/nicd_world.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kRanksOfAWorld = 4;  // Of each world, of which one process is here.

/// The process of rank 2 of a world of its own.
class ProcessOfAWorld {
 public:
  ProcessOfAWorld(const char* nic, unsigned char world) {
    const JobSecret secret = make_secret(world);
    if (std::string_view(nic) == "process") start_processor(nicd_name(::geteuid(), secret));
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.rank = 2;
    config.job_size = kRanksOfAWorld;
    config.local_rank = 1;  // Starts nothing.
    config.nic = nic;
    config.fabric = "shm";
    std::memcpy(config.secret, secret.data(), sizeof config.secret);
    Result<std::unique_ptr<Channel>> made = Channel::create(config);
    if (!made.ok()) throw std::runtime_error(made.error().message);
    channel_ = std::move(made.value());
  }
  /// The processor ends with its client.
  ~ProcessOfAWorld() {
    channel_.reset();
    if (processor_.joinable()) processor_.join();
  }
  Channel& channel() noexcept { return *channel_; }
  ForeignProcesses& foreign() {
    Result<ForeignProcesses*> foreign = channel_->foreign();
    if (!foreign.ok()) throw std::runtime_error(foreign.error().message);
    return *foreign.value();
  }
  std::string name() { return foreign().name(); }
  PeerId find(const std::string& name) {
    PeerId peer{};
    EXPECT_EQ(foreign().find(name, peer), Status::kOk);
    return peer;
  }
  void send(PeerId peer, std::string& text) {
    OperationId operation;
    Status status = Status::kOk;
    static_cast<void>(channel_->port().send(peer, SendMode::kStandard, {7, 0},
                                            {reinterpret_cast<std::byte*>(text.data()), text.size(), nullptr},
                                            0, nullptr, operation, status));
  }
  void receive(std::size_t room_bytes) {
    room_.assign(room_bytes, '\0');
    received_.reset();
    OperationId operation;
    Envelope envelope{};
    if (channel_->port().post_receive({7, 0}, {},
                                      {reinterpret_cast<std::byte*>(room_.data()), room_.size(), nullptr},
                                      this, operation, envelope) == Progressed::kDone)
      received_ = room_.substr(0, envelope.length_bytes);
  }
  /// Returns how many things happened.
  std::size_t turn() {
    std::size_t happened = channel_->progress();
    for (Event event; channel_->next_event(event); ++happened) {
      if (event.kind == Event::Kind::kReceiveDone) received_ = room_.substr(0, event.length_bytes);
      if (event.kind == Event::Kind::kPeerFailed) failed_.push_back(event.peer);
      EXPECT_NE(event.kind, Event::Kind::kCardWanted);
    }
    return happened;
  }
  const std::optional<std::string>& received() const noexcept { return received_; }
  const std::vector<PeerId>& failed() const noexcept { return failed_; }

 private:
  void start_processor(const std::string& name) {
    processor_ = std::thread([name] {
      auto nicd = Nicd::create({name, true});
      ASSERT_TRUE(nicd.ok()) << nicd.error().message;
      EXPECT_EQ(nicd.value()->run(), 0);
    });
    EXPECT_TRUE(await([&] { return connect_to_nicd(name).ok(); }));
  }

  std::thread processor_;
  std::unique_ptr<Channel> channel_;
  std::string room_;
  std::optional<std::string> received_;
  std::vector<PeerId> failed_;
};

class ForeignWorlds : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<ProcessOfAWorld> make(unsigned char secret) {
    return std::make_unique<ProcessOfAWorld>(GetParam(), secret);
  }
  template <class Condition>
  static bool run_until(std::initializer_list<ProcessOfAWorld*> processes, const Condition& is_fulfilled) {
    const std::uint64_t began_ns = monotonic_ns();
    while (!is_fulfilled()) {
      if (elapsed_ns(monotonic_ns(), began_ns) > 60'000'000'000) return false;
      for (ProcessOfAWorld* const one : processes) one->turn();
    }
    return true;
  }
};

/// Short messages, and long ones that go by rendezvous.
TEST_P(ForeignWorlds, ExchangeMessages) {
  const auto a = make(1), b = make(2);
  const PeerId b_of_a = a->find(b->name());
  EXPECT_GE(index_of(b_of_a), kRanksOfAWorld);
  for (const std::size_t length : {std::size_t{10}, std::size_t{3'000'000}}) {
    std::string question(length, 'q'), answer(length, 'a');
    b->receive(length);
    a->send(b_of_a, question);
    ASSERT_TRUE(run_until({a.get(), b.get()}, [&] { return b->received().has_value(); }));
    EXPECT_EQ(*b->received(), question);
    // The acceptor knows who has come, and answers by that number.
    const PeerId a_of_b = b->find(a->name());
    EXPECT_EQ(b->foreign().name_of(a_of_b), a->name());
    a->receive(length);
    b->send(a_of_b, answer);
    ASSERT_TRUE(run_until({a.get(), b.get()}, [&] { return a->received().has_value(); }));
    EXPECT_EQ(*a->received(), answer);
  }
}

TEST_P(ForeignWorlds, HearThatOneHasGoneAndMeetTheNext) {
  const auto a = make(1);
  std::uint32_t most = 0;
  PeerId first{};
  for (int round = 0; round < 200; ++round) {
    auto b = make(2);
    const std::size_t failed = a->failed().size();
    std::string text = "hello";
    const PeerId b_of_a = a->find(b->name());
    if (round == 0) first = b_of_a;
    most = std::max(most, slot_of(b_of_a));
    b->receive(10);
    a->send(b_of_a, text);
    ASSERT_TRUE(run_until({a.get(), b.get()}, [&] { return b->received().has_value(); })) << round;
    b.reset();
    ASSERT_TRUE(run_until({a.get()}, [&] { return a->failed().size() > failed; })) << round;
    EXPECT_EQ(a->failed().back(), b_of_a);
    EXPECT_EQ(a->failed().size(), failed + 1);
  }
  EXPECT_LT(most, 150u) << "their numbers are used again";
  // What comes for one that was forgotten holds up nothing.
  std::string late = "late", text = "hello";
  const auto b = make(2);
  a->send(first, late);
  b->receive(10);
  a->send(a->find(b->name()), text);
  ASSERT_TRUE(run_until({a.get(), b.get()}, [&] { return b->received() && a->channel().port().idle(); }));
  EXPECT_EQ(*b->received(), text);
}

TEST_P(ForeignWorlds, AreNotFoundWhereThereIsNobody) {
  const auto a = make(1);
  std::string name;
  {
    const auto b = make(2);
    name = b->name();
  }
  std::string text = "hello";
  const PeerId nobody = a->find(name);
  a->send(nobody, text);
  ASSERT_TRUE(run_until({a.get()}, [&] { return !a->failed().empty(); }));
  EXPECT_EQ(a->failed().front(), nobody);
  // Whoever asks once more hears it once more, whether he gets the same number or another one.
  const PeerId again = a->find(name);
  a->send(again, text);
  ASSERT_TRUE(run_until({a.get()}, [&] { return a->failed().size() > 1; }));
  EXPECT_EQ(a->failed().back(), again);
  PeerId peer{};
  EXPECT_EQ(a->foreign().find("nowhere", peer), Status::kUnsupported);
  EXPECT_EQ(a->foreign().name_of(PeerId{kRanksOfAWorld + 1000}), "");
}

/// Who introduces itself wakes a sleeper.
TEST_P(ForeignWorlds, WakeASleeper) {
  const auto a = make(1), b = make(2);
  const PeerId b_of_a = a->find(b->name());
  std::string text = "hello";
  b->receive(10);
  a->send(b_of_a, text);
  std::atomic<bool> is_over{false};
  std::thread others([&] {
    while (!is_over) a->turn();
  });
  const std::uint64_t began_ns = monotonic_ns();
  while (!b->received() && elapsed_ns(monotonic_ns(), began_ns) < 60'000'000'000) {
    b->turn();
    b->channel().wait_begin();
    while (b->channel().next_step() != WaitPolicy::Step::kSleep) b->turn();
    if (b->turn() == 0 && !b->received()) b->channel().sleep(60'000);
    b->channel().awake();
  }
  is_over = true;
  others.join();
  EXPECT_EQ(b->received(), text);
  EXPECT_LT(elapsed_ns(monotonic_ns(), began_ns), 60'000'000'000u) << "it slept to the end";
}

INSTANTIATE_TEST_SUITE_P(EachDriver, ForeignWorlds, testing::Values("host", "thread", "process"),
                         [](const auto& one) { return std::string(one.param); });

TEST(ProcessName, IsAnAddressAndAPort) {
  EXPECT_EQ(parse_process_name("10.0.0.5/4711")->process(), make_physical_id(0x0A000005, 4711));
  for (const char* const bad : {"", "/", "10.0.0.5", "10.0.0.5/", "10.0.0.5/0", "10.0.0.5/65536",
                                "10.0.0.5/-1", "10.0.0.5/4711 ", "10.0.0/4711", "10.0.0.256/1", "0.0.0.0/1",
                                "::1/1", "10.0.0.5/99999999999999999999", "host.of.some.very.long.name/4711"})
    EXPECT_FALSE(parse_process_name(bad)) << bad;
}

}  // namespace
}  // namespace ch3_offload
