// Two nodes' PairTesters over TCP, in this process.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "check/pair_tester.h"
#include "rdma/tcp/tcp_config.h"

namespace ch3_offload {
namespace {

class Node {
 public:
  Node(std::uint32_t self, int limit_ms) {
    TcpConfig config;
    config.self = PeerId{self};
    config.interface = "lo";
    config.loopback_serves = true;
    auto made = make_tcp_provider(config);
    if (!made.ok()) return;
    provider_ = std::move(made.value());
    tester_ = std::make_unique<PairTester>(*provider_, PeerId{self}, limit_ms);
  }
  bool is_there() const { return provider_ != nullptr; }
  std::string address() const { return provider_->local_address(); }
  PairTester& tester() { return *tester_; }

 private:
  std::unique_ptr<Provider> provider_;
  std::unique_ptr<PairTester> tester_;
};

class PairTesters : public testing::Test {
 protected:
  void SetUp() override {
    if (!first_.is_there()) GTEST_SKIP() << "this library was built without TCP";
  }
  void turn_until_over(Node& node) {
    while (!is_over_) {
      node.tester().turn();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::atomic<bool> is_over_ = false, has_given_up_ = false;
  Node first_{0, 10'000}, second_{1, 10'000}, third_{2, 200};
};

TEST_F(PairTesters, MeasureAWayInBothDirections) {
  PairResult of_second;
  std::thread other([&] {
    of_second = second_.tester().test(PeerId{0}, first_.address(), false);
    turn_until_over(second_);  // What it has said last may still be leaving.
  });
  const PairResult of_first = first_.tester().test(PeerId{1}, second_.address(), true);
  is_over_ = true;
  other.join();
  EXPECT_TRUE(of_first.ok()) << of_first.why;
  EXPECT_TRUE(of_second.ok()) << of_second.why;
  EXPECT_GT(of_first.latency_ns, 0u);
  EXPECT_GT(of_first.bytes_per_s, 0u);
  EXPECT_GT(of_second.bytes_per_s, 0u);
}

TEST_F(PairTesters, GiveUpIfNobodyAnswers) {
  const PairResult result = third_.tester().test(PeerId{0}, first_.address(), true);
  EXPECT_EQ(result.stage, PairStage::kFirst);
  EXPECT_EQ(result.why, "nothing has come for 0.2 s");
}

TEST_F(PairTesters, SayWhatIsWrongWithAnAddress) {
  EXPECT_EQ(first_.tester().test(PeerId{1}, "verbs:nonsense", true).stage, PairStage::kFirst);
  EXPECT_FALSE(first_.tester().test(PeerId{2}, "", true).why.empty());
}

TEST_F(PairTesters, NoticeThatTheOtherHasGivenUp) {
  std::thread other([&] {
    EXPECT_FALSE(third_.tester().test(PeerId{0}, first_.address(), true).ok());
    has_given_up_ = true;
    turn_until_over(third_);
  });
  while (!has_given_up_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const PairResult result = first_.tester().test(PeerId{2}, third_.address(), false);
  EXPECT_FALSE(result.ok());
  is_over_ = true;
  other.join();
  EXPECT_EQ(result.why, "the connection broke");
}

}  // namespace
}  // namespace ch3_offload
