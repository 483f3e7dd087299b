// The end of a job whose network cannot deliver what it sent: over the fake RDMA device.

#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "ch3_offload/nicd_world.h"
#include "nic/exchange.h"
#include "nic/host_driver.h"
#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/verbs_world.h"

namespace ch3_offload {
namespace {

using Clock = std::chrono::steady_clock;

/// Process 0 is served here. Process 1 is on another node, whose processor listens and never looks.
class NicdFarewell : public NicdWorld {
 protected:
  static constexpr int kPeerTimeoutS = 3;

  NicdFarewell() {
    fake_verbs::reset({});
    VerbsConfig config;
    config.self = PeerId{1};
    config.peer_limit = 2;
    config.job_secret = secret_;
    elsewhere_ = make_verbs(config);
    exchange_ = std::make_unique<Exchange>(PeerId{1}, 2, elsewhere_.get());
    port_ = exchange_->attach(PeerId{1});
    EngineConfig engine;
    engine.self = PeerId{1};
    engine.senders = 2;
    Provider* const provider = port_.get();
    peer_ = std::make_unique<HostDriver>(engine, std::span(&provider, 1));
  }
  ~NicdFarewell() override { elsewhere_->abandon(); }

  /// Attaches process 0, which sends to process 1 and ends.
  void run_job() {
    ch3_offload_config_t config = config_of(0);
    config.local_size = 1;
    config.fabric = "verbs";
    config.peer_timeout_s = kPeerTimeoutS;
    ProcessDriver& driver = attach(hello_of(config));
    OperationId operation;
    Status status;
    long long word = 7;
    driver.send(PeerId{1}, SendMode::kStandard, kKey,
                {reinterpret_cast<std::byte*>(&word), sizeof word, nullptr}, 0, nullptr, operation, status);
    bool is_introduced = false;
    EXPECT_TRUE(await([&] {
      driver.progress();
      for (Event event; driver.next_event(event);) {
        if (event.kind != Event::Kind::kCardWanted) continue;
        driver.introduce(event.peer, peer_->card());
        is_introduced = true;
      }
      return is_introduced && driver.idle();
    }));
    drivers_.clear();
  }

  std::unique_ptr<VerbsProvider> elsewhere_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<ExchangePort> port_;
  std::unique_ptr<HostDriver> peer_;
};

TEST_F(NicdFarewell, OfOneJobDoesNotHoldUpAnother) {
  run_job();
  const auto begin = Clock::now();
  NicdHello other = hello_of(0, 1);
  for (unsigned char number = 0xF0; Clock::now() - begin < std::chrono::seconds(kPeerTimeoutS - 2);
       ++number) {
    other.secret = make_secret(number);
    const auto asked = Clock::now();
    attach_by_hand(other);
    EXPECT_LT(Clock::now() - asked, std::chrono::seconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_EQ(status_, -1) << "the first job says farewell no more";
}

}  // namespace
}  // namespace ch3_offload
