// Rails over the fake device, for the tests of a single part. Everything moves in the calls of the test: the
// fake has no thread, and no transfer fails because the machine is slow.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rdma/verbs/devices/rail.h"
#include "rdma/verbs/fake_verbs.h"

namespace ch3_offload {

/// `config` without a clock.
inline fake_verbs::Config timeless(fake_verbs::Config config = {}) {
  config.pump_interval = std::chrono::microseconds(0);
  config.retry_timeout = std::chrono::hours(1);
  return config;
}

/// One rail for each port of the fake devices.
inline std::vector<std::unique_ptr<Rail>> open_rails(const RailConfig& config = {}) {
  Result<VerbsPorts> ports = survey_verbs_ports("");
  EXPECT_TRUE(ports.ok());
  std::vector<std::unique_ptr<Rail>> rails;
  for (const VerbsPort& port : ports.value().usable) {
    Result<std::unique_ptr<Rail>> rail = Rail::open(port, config, static_cast<std::uint8_t>(rails.size()));
    EXPECT_TRUE(rail.ok()) << rail.error().message;
    rails.push_back(std::move(rail.value()));
  }
  return rails;
}

/// What the owner of a queue pair of `rail` tells its peer. The packet sequence is 0.
inline RemoteQueuePair offer_of(const Rail& rail, const ibv_qp& queue_pair) {
  return {
      .number = queue_pair.qp_num, .lid = rail.port().lid, .mtu = rail.port().mtu, .gid = rail.port().gid};
}

/// Send slots for all rails: `most`, in slabs of at most 64, the first of which is there.
inline SlotPool make_send_slots(const std::vector<std::unique_ptr<Rail>>& rails, std::uint32_t most) {
  std::vector<ibv_pd*> domains;
  for (const std::unique_ptr<Rail>& rail : rails) domains.push_back(rail->domain());
  SlotPool slots(domains, rails[0]->config().slot_bytes, std::min(most, 64u), most);
  EXPECT_FALSE(slots.grow());
  return slots;
}

class FakeRails : public testing::Test {
 protected:
  FakeRails() { fake_verbs::reset(timeless()); }
  ~FakeRails() override {
    EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks();
    EXPECT_EQ(fake_verbs::violations(), std::vector<std::string>{});
    EXPECT_EQ(fake_verbs::counters().overflows, 0u);
  }
};

}  // namespace ch3_offload
