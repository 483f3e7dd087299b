// One port of one device, opened: how queue pairs end on it, its receive slots, and what the device tells.
// What a device lacks, verbs_set_up_test.cc tests.

#include "rdma/verbs/devices/rail.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/devices/fake_rails.h"
#include "rdma/verbs/verbs_endpoint.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;

/// What the device told.
struct Told final : Rail::Client {
  void on_queue_pair_failed(VerbsLane& lane, const char* why) noexcept override {
    failed.push_back(&lane);
    reasons.emplace_back(why);
    if (reaction) reaction(lane);
  }
  void on_port(Rail&, bool is_up) noexcept override { ports.push_back(is_up); }
  void on_address_changed(Rail&, const char* why) noexcept override { changes.emplace_back(why); }
  void on_device_failed(Rail& rail, const char*, LogScope scope) noexcept override {
    rail.lost = true;
    scopes.push_back(scope);
  }
  std::vector<VerbsLane*> failed;
  std::vector<std::string> reasons;
  std::vector<bool> ports;
  std::vector<std::string> changes;
  std::vector<LogScope> scopes;
  std::function<void(VerbsLane&)> reaction;
};

/// A rail, and another one from which messages come to it.
class Rails : public FakeRails {
 protected:
  Rails() { open({}); }

  void open(const RailConfig& config) {
    ends_.clear();
    rails_[0] = std::move(open_rails(config).front());
    rails_[1] = std::move(open_rails({}).front());
  }
  Rail& rail() { return *rails_[0]; }
  /// A queue pair of the rail for `lane`, connected with one of the other rail.
  QueuePair connected(VerbsLane& lane) {
    Result<QueuePair> mine = rail().make_queue_pair(lane), theirs = rails_[1]->make_queue_pair(sender_.main);
    EXPECT_TRUE(mine.ok() && theirs.ok());
    EXPECT_TRUE(rail().connect(mine.value().get(), 0, offer_of(*rails_[1], *theirs.value())));
    EXPECT_TRUE(rails_[1]->connect(theirs.value().get(), 0, offer_of(rail(), *mine.value())));
    ends_[mine.value()->qp_num] = std::move(theirs.value());
    return std::move(mine.value());
  }
  /// The other end of a queue pair sends a message.
  void send_to(std::uint32_t queue_pair, std::uint32_t length = 0) {
    ibv_sge piece{};
    piece.addr = reinterpret_cast<std::uintptr_t>(rails_[1]->receive_slots().address(0));
    piece.length = length;
    piece.lkey = rails_[1]->receive_slots().local_key(0, 0);
    ibv_send_wr request{}, *refused = nullptr;
    request.sg_list = &piece;
    request.num_sge = length > 0 ? 1 : 0;
    request.opcode = IBV_WR_SEND;
    EXPECT_EQ(ibv_post_send(ends_.at(queue_pair).get(), &request, &refused), 0);
  }
  /// Takes all completions. Returns the lanes for which they count.
  std::vector<VerbsLane*> take_all() {
    std::vector<VerbsLane*> lanes;
    do {
      EXPECT_TRUE(rail().fetch(Rail::kBatch));
      for (; rail().holds_completions(); ++rail().next_completion) {
        const ibv_wc& completion = rail().completion();
        if (completion.status == IBV_WC_SUCCESS) rail().recycle(static_cast<std::uint32_t>(completion.wr_id));
        lanes.push_back(rail().lane_of(completion.qp_num));
      }
    } while (rail().completion_count == Rail::kBatch);
    rail().was_emptied();
    rail().repost();
    return lanes;
  }
  /// Returns the lanes whose broken queue pairs were destroyed.
  std::vector<VerbsLane*> destroy_stopped(std::uint64_t now_ns = monotonic_ns()) {
    std::vector<VerbsLane*> drained;
    rail().destroy_stopped(now_ns, [&](VerbsLane& one) { drained.push_back(&one); });
    return drained;
  }
  static void without_last_event() {
    fake_verbs::adjust([](fake_verbs::Config& config) { config.last_wqe_event = false; });
  }

  using Lanes = std::vector<VerbsLane*>;
  VerbsEndpoint peer_{PeerId{1}}, second_peer_{PeerId{2}}, sender_{PeerId{3}};
  VerbsLane& lane_ = peer_.main;
  std::unique_ptr<Rail> rails_[2];
  std::map<std::uint32_t, QueuePair> ends_;  ///< By the number of the rail's queue pair.
  Told told_;
};

TEST_F(Rails, WhatComesThroughAQueuePairIsItsLanes) {
  const QueuePair one = connected(lane_), other = connected(second_peer_.main);
  EXPECT_EQ(rail().lanes().size(), 2u);
  send_to(other->qp_num);
  send_to(one->qp_num);
  EXPECT_EQ(take_all(), (Lanes{&second_peer_.main, &lane_}));
  EXPECT_EQ(rail().lane_of(12345), nullptr);
}

TEST_F(Rails, WhatComesThroughAFinishedOneDoesNotCount) {
  QueuePair queue_pair = connected(lane_);
  const std::uint32_t number = queue_pair->qp_num;
  send_to(number);
  rail().stop(std::move(queue_pair), lane_, Rail::End::kFinished);
  EXPECT_EQ(rail().lane_of(number), nullptr);
  EXPECT_TRUE(rail().lanes().empty());
  EXPECT_EQ(take_all(), Lanes{nullptr});
  EXPECT_TRUE(rail().has_stopped());
}

TEST_F(Rails, AFinishedOneIsDestroyedWithoutAWordToItsLane) {
  QueuePair queue_pair = connected(lane_);
  rail().stop(std::move(queue_pair), lane_, Rail::End::kFinished);
  rail().take_events(told_);
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{});
  EXPECT_FALSE(rail().has_stopped());
  EXPECT_TRUE(told_.failed.empty());
}

/// RULE TAKE ALL FIRST.
TEST_F(Rails, ABrokenOneCountsUntilTheDeviceHasSaidThatNothingMoreComesAndAllWasTaken) {
  QueuePair queue_pair = connected(lane_);
  const std::uint32_t number = queue_pair->qp_num;
  send_to(number);
  rail().stop(std::move(queue_pair), lane_, Rail::End::kBroken);
  EXPECT_EQ(take_all(), Lanes{&lane_}) << "it had arrived before";
  EXPECT_EQ(destroy_stopped(), Lanes{}) << "more may come";
  EXPECT_EQ(rail().lane_of(number), &lane_);
  rail().take_events(told_);
  EXPECT_EQ(destroy_stopped(), Lanes{}) << "what came before the event may not be taken yet";
  EXPECT_EQ(rail().lane_of(number), &lane_);
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{&lane_});
  EXPECT_EQ(rail().lane_of(number), nullptr);
  EXPECT_FALSE(rail().has_stopped());
  EXPECT_EQ(destroy_stopped(), Lanes{}) << "the lane is told once";
}

TEST_F(Rails, ABrokenOneOfADeviceThatNeverTellsHasFiftyMilliseconds) {
  without_last_event();
  QueuePair queue_pair = connected(lane_);
  const std::uint64_t before_ns = monotonic_ns();
  rail().stop(std::move(queue_pair), lane_, Rail::End::kBroken);
  const std::uint64_t after_ns = monotonic_ns();
  rail().take_events(told_);
  take_all();
  EXPECT_EQ(destroy_stopped(before_ns + 50 * kMillisecondNs - 1), Lanes{});
  EXPECT_EQ(destroy_stopped(after_ns + 50 * kMillisecondNs), Lanes{}) << "the last may have come since";
  take_all();
  EXPECT_EQ(destroy_stopped(after_ns + 50 * kMillisecondNs), Lanes{&lane_});
}

TEST_F(Rails, TimeAloneDoesNotDestroyWhatIsNotTaken) {
  without_last_event();
  QueuePair queue_pair = connected(lane_);
  rail().stop(std::move(queue_pair), lane_, Rail::End::kBroken);
  const std::uint64_t late_ns = monotonic_ns() + 3600'000 * kMillisecondNs;
  EXPECT_EQ(destroy_stopped(late_ns), Lanes{});
  take_all();
  EXPECT_EQ(destroy_stopped(late_ns), Lanes{&lane_});
}

TEST_F(Rails, ADeviceThatHasToldBeforeIsGivenASecond) {
  QueuePair first = connected(lane_), second = connected(second_peer_.main);
  rail().stop(std::move(first), lane_, Rail::End::kBroken);
  rail().take_events(told_);
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{&lane_});
  without_last_event();
  const std::uint64_t before_ns = monotonic_ns();
  rail().stop(std::move(second), second_peer_.main, Rail::End::kBroken);
  const std::uint64_t after_ns = monotonic_ns();
  take_all();
  EXPECT_EQ(destroy_stopped(before_ns + 1000 * kMillisecondNs - 1), Lanes{});
  EXPECT_EQ(destroy_stopped(after_ns + 1000 * kMillisecondNs), Lanes{});
  take_all();
  EXPECT_EQ(destroy_stopped(after_ns + 1000 * kMillisecondNs), Lanes{&second_peer_.main});
}

TEST_F(Rails, AnUnusedOneEndsOnceAllIsTaken) {
  without_last_event();
  Result<QueuePair> made = rail().make_queue_pair(lane_);
  ASSERT_TRUE(made.ok());
  rail().stop(std::move(made.value()), lane_, Rail::End::kUnused);
  EXPECT_EQ(destroy_stopped(), Lanes{});
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{&lane_});
}

TEST_F(Rails, ALostDeviceTellsNothingAnyMore) {
  QueuePair first = connected(lane_), second = connected(second_peer_.main);
  send_to(first->qp_num);
  fake_verbs::kill_device("fake0");
  rail().take_events(told_);
  ASSERT_EQ(told_.scopes, std::vector<LogScope>{LogScope::kNode});
  rail().stop(std::move(first), lane_, Rail::End::kBroken);
  EXPECT_EQ(destroy_stopped(), Lanes{});
  EXPECT_FALSE(rail().is_drained());
  EXPECT_EQ(take_all(), Lanes{&lane_}) << "what it had brought counts";
  EXPECT_TRUE(rail().is_drained());
  EXPECT_EQ(destroy_stopped(), Lanes{&lane_});
  rail().stop(std::move(second), second_peer_.main, Rail::End::kBroken);
  EXPECT_EQ(destroy_stopped(), Lanes{&second_peer_.main}) << "nothing is taken from it any more";
  EXPECT_TRUE(rail().request_notification());
}

TEST_F(Rails, EachStoppedOneEndsByItself) {
  QueuePair first = connected(lane_), second = connected(second_peer_.main);
  rail().stop(std::move(first), lane_, Rail::End::kBroken);
  rail().take_events(told_);
  rail().stop(std::move(second), second_peer_.main, Rail::End::kBroken);
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{&lane_});
  EXPECT_TRUE(rail().has_stopped());
  rail().take_events(told_);
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{&second_peer_.main});
}

TEST_F(Rails, AsManyMayBeStoppedAsMayLive) {
  open({.most_queue_pairs = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(rail().has_many_stopped());
    rail().stop(connected(lane_), lane_, Rail::End::kFinished);
  }
  EXPECT_TRUE(rail().has_many_stopped());
  rail().take_events(told_);
  take_all();
  destroy_stopped();
  EXPECT_FALSE(rail().has_many_stopped());
}

TEST_F(Rails, AQueuePairThatTheDeviceStoppedIsReported) {
  QueuePair queue_pair = connected(lane_);
  ASSERT_TRUE(fake_verbs::kill_queue_pair("fake0", queue_pair->qp_num));
  told_.reaction = [&](VerbsLane& lane) {
    if (queue_pair != nullptr) rail().stop(std::move(queue_pair), lane, Rail::End::kBroken);
  };
  rail().take_events(told_);
  EXPECT_EQ(told_.failed, Lanes{&lane_});
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{&lane_}) << "the same events said that nothing more comes";
}

/// A receive that is too short stops a queue pair. The event that its last receive is used is all that says
/// so.
TEST_F(Rails, TheLastReceiveOfALiveOneIsItsFailureToo) {
  open({.slot_bytes = 512});
  QueuePair queue_pair = connected(lane_);
  send_to(queue_pair->qp_num, 1024);
  told_.reaction = [&](VerbsLane& lane) { rail().stop(std::move(queue_pair), lane, Rail::End::kBroken); };
  rail().take_events(told_);
  EXPECT_EQ(told_.failed, Lanes{&lane_});
  EXPECT_EQ(told_.reasons, std::vector<std::string>{ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED)});
  take_all();
  EXPECT_EQ(destroy_stopped(), Lanes{&lane_});
}

TEST_F(Rails, EventsOfAFinishedOneAreNobodysFailure) {
  QueuePair queue_pair = connected(lane_);
  const std::uint32_t number = queue_pair->qp_num;
  rail().stop(std::move(queue_pair), lane_, Rail::End::kFinished);
  ASSERT_TRUE(fake_verbs::kill_queue_pair("fake0", number));
  rail().take_events(told_);
  EXPECT_TRUE(told_.failed.empty());
}

TEST_F(Rails, EventsOfItsPortAreTold) {
  fake_verbs::set_link("fake0", false);
  fake_verbs::set_link("fake0", true);
  fake_verbs::raise_event("fake0", IBV_EVENT_PORT_ERR, 2);
  rail().take_events(told_);
  EXPECT_EQ(told_.ports, (std::vector<bool>{false, true}));
}

TEST_F(Rails, NotificationComesForTheNextCompletion) {
  const QueuePair queue_pair = connected(lane_);
  send_to(queue_pair->qp_num);
  EXPECT_FALSE(rail().take_completion_events()) << "nobody asked";
  take_all();
  ASSERT_TRUE(rail().request_notification());
  EXPECT_FALSE(rail().take_completion_events());
  send_to(queue_pair->qp_num);
  EXPECT_TRUE(rail().take_completion_events());
  EXPECT_FALSE(rail().take_completion_events());
}

TEST_F(Rails, ReceiveSlotsAreUsedAgain) {
  open({.slots_per_slab = 8, .most_receive_slots = 8});
  const QueuePair queue_pair = connected(lane_);
  for (int i = 0; i < 60; ++i) {  // The sender's queue is not emptied.
    send_to(queue_pair->qp_num);
    EXPECT_EQ(take_all(), Lanes{&lane_}) << i;
  }
  EXPECT_EQ(fake_verbs::counters().receiver_not_ready, 0u);
  EXPECT_FALSE(rail().broken());
}

TEST_F(Rails, ADeviceThatTakesNoReceivesIsBroken) {
  const QueuePair queue_pair = connected(lane_);
  send_to(queue_pair->qp_num);
  fake_verbs::fail_call("ibv_post_srq_recv", 1, EIO);
  EXPECT_FALSE(rail().broken());
  take_all();
  EXPECT_TRUE(rail().broken());
}

TEST_F(Rails, CreditIsCoveredByReceiveSlots) {
  open({.slots_per_slab = 8, .most_receive_slots = 32});
  // Half a slab is for what nobody has credit for.
  EXPECT_TRUE(rail().make_room_for_credit(4, 0));
  EXPECT_EQ(rail().receive_slots().count(), 8u);
  EXPECT_TRUE(rail().make_room_for_credit(5, 0));
  EXPECT_EQ(rail().receive_slots().count(), 16u);
  rail().change_credit(12);
  EXPECT_TRUE(rail().make_room_for_credit(0, 0));
  EXPECT_EQ(rail().receive_slots().count(), 16u);
  EXPECT_TRUE(rail().make_room_for_credit(1, 0));
  EXPECT_EQ(rail().receive_slots().count(), 24u);
  rail().change_credit(-12);
  EXPECT_TRUE(rail().make_room_for_credit(12, 0));
  EXPECT_EQ(rail().receive_slots().count(), 24u);
  EXPECT_EQ(rail().receive_slots().free_count(), 0u) << "the device has all of them";
}

TEST_F(Rails, CreditBeyondTheBoundOfThePoolIsRefused) {
  open({.slots_per_slab = 8, .most_receive_slots = 32});
  EXPECT_FALSE(rail().make_room_for_credit(29, 0));
  EXPECT_FALSE(rail().make_room_for_credit(8, 21));
  EXPECT_EQ(rail().receive_slots().count(), 8u) << "what is refused adds no slabs";
  EXPECT_TRUE(rail().make_room_for_credit(8, 20));
  EXPECT_EQ(rail().receive_slots().count(), 16u);
  EXPECT_TRUE(rail().make_room_for_credit(28, 0));
  EXPECT_EQ(rail().receive_slots().count(), 32u);
}

TEST_F(Rails, CreditForWhichASlabIsRefusedIsRefused) {
  open({.slots_per_slab = 8, .most_receive_slots = 32});
  fake_verbs::fail_call("ibv_reg_mr", 1, ENOMEM);
  EXPECT_FALSE(rail().make_room_for_credit(12, 0));
  EXPECT_EQ(rail().receive_slots().count(), 8u);
  EXPECT_TRUE(rail().make_room_for_credit(12, 0)) << "the next try may have it";
  EXPECT_FALSE(rail().broken());
}

TEST_F(Rails, AReceiveQueueThatRunsLowGetsASlab) {
  open({.slots_per_slab = 8, .most_receive_slots = 16});
  const QueuePair queue_pair = connected(lane_);
  for (int i = 0; i < 6; ++i) send_to(queue_pair->qp_num);
  rail().take_events(told_);
  EXPECT_EQ(rail().receive_slots().count(), 8u) << "a quarter is left";
  send_to(queue_pair->qp_num);
  rail().take_events(told_);
  EXPECT_EQ(rail().receive_slots().count(), 16u);
  take_all();
}

/// What a queue pair was told of its way to its peer.
ibv_qp_attr way_of(ibv_qp* queue_pair) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(queue_pair, &attributes, IBV_QP_AV | IBV_QP_PKEY_INDEX, &init), 0);
  return attributes;
}

/// Two ports of InfiniBand.
fake_verbs::Config infiniband() {
  fake_verbs::Config fake = timeless();
  fake.devices.resize(2);
  for (std::uint16_t i = 0; i < 2; ++i) {
    fake.devices[i].name = "fake" + std::to_string(i);
    fake.devices[i].ports[0] = fake_verbs::infiniband_port(static_cast<std::uint16_t>(5 + i));
    fake.devices[i].ports[0].gids[0].value = fake_verbs::prefix_gid(0xFE80'0000'0000'0000u, 5u + i);
  }
  return fake;
}

class RailAddressing : public FakeRails {
 protected:
  /// Connects a queue pair of the first rail with one of the second, and shows what the first was told.
  ibv_qp_attr connect(const RailConfig& config = {}) {
    rails_ = open_rails(config);
    if (rails_.size() != 2) return {};
    QueuePair mine = std::move(rails_[0]->make_queue_pair(lanes_.main).value());
    QueuePair theirs = std::move(rails_[1]->make_queue_pair(lanes_.main).value());
    EXPECT_TRUE(rails_[0]->connect(mine.get(), 0, offer_of(*rails_[1], *theirs)));
    EXPECT_TRUE(rails_[1]->connect(theirs.get(), 0, offer_of(*rails_[0], *mine)));
    const ibv_qp_attr way = way_of(mine.get());
    rails_[0]->stop(std::move(mine), lanes_.main, Rail::End::kUnused);
    rails_[1]->stop(std::move(theirs), lanes_.main, Rail::End::kUnused);
    return way;
  }
  VerbsEndpoint lanes_{PeerId{1}};
  std::vector<std::unique_ptr<Rail>> rails_;
};

TEST_F(RailAddressing, RoceHasTrafficClassAndPriority) {
  fake_verbs::reset(timeless(fake_verbs::two_rails()));
  RailConfig config;
  config.traffic_class = 106;
  config.service_level = 3;
  const ibv_qp_attr way = connect(config);
  EXPECT_EQ(way.ah_attr.is_global, 1);
  EXPECT_EQ(way.ah_attr.grh.traffic_class, 106);
  EXPECT_EQ(way.ah_attr.sl, 3);
  EXPECT_EQ(connect().ah_attr.grh.traffic_class, 0);
}

TEST_F(RailAddressing, InfiniBandHasAServiceLevelAndNoGlobalRoute) {
  fake_verbs::reset(infiniband());
  RailConfig config;
  config.service_level = 5;
  config.traffic_class = 106;
  const ibv_qp_attr way = connect(config);
  EXPECT_EQ(way.ah_attr.sl, 5);
  EXPECT_EQ(way.ah_attr.is_global, 0);
  EXPECT_EQ(way.ah_attr.dlid, 6);
  EXPECT_EQ(way.pkey_index, 0);
}

TEST_F(RailAddressing, APortThatDemandsAGlobalRouteGetsIt) {
  fake_verbs::Config fake = infiniband();
  for (fake_verbs::DeviceConfig& device : fake.devices) device.ports[0].needs_global_route = true;
  fake_verbs::reset(fake);
  RailConfig config;
  config.traffic_class = 106;
  const ibv_qp_attr way = connect(config);
  EXPECT_EQ(way.ah_attr.is_global, 1);
  EXPECT_EQ(way.ah_attr.dlid, 6);
  EXPECT_EQ(way.ah_attr.grh.traffic_class, 106);
  EXPECT_EQ(way.ah_attr.grh.dgid.global.interface_id, fake_verbs::prefix_gid(0, 6).global.interface_id);
}

TEST_F(RailAddressing, QueuePairsAreInThePartition) {
  fake_verbs::Config fake = infiniband();
  fake.devices[0].ports[0].partition_keys = {0x7FFF, 0, 0x8001};
  fake.devices[1].ports[0].partition_keys = {0x8001};
  fake_verbs::reset(fake);
  EXPECT_EQ(connect().pkey_index, 2);
}

TEST_F(RailAddressing, WhatTheSubnetManagerChangesHoldsForNewQueuePairs) {
  fake_verbs::reset(infiniband());
  connect();
  Told told;
  fake_verbs::adjust([](fake_verbs::Config& config) {
    config.devices[0].ports[0].lid = 50;
    config.devices[0].ports[0].partition_keys = {0x7FFF, 0xFFFF};
    config.devices[0].ports[0].gids[0].value = fake_verbs::prefix_gid(0xFEC0'0000'0000'0000u, 5);
  });
  for (const ibv_event_type event : {IBV_EVENT_LID_CHANGE, IBV_EVENT_GID_CHANGE, IBV_EVENT_PKEY_CHANGE,
                                     IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER})
    fake_verbs::raise_event("fake0", event);
  rails_[0]->take_events(told);
  EXPECT_EQ(told.changes.size(), 1u);  // The first event tells it all.
  EXPECT_EQ(rails_[0]->port().lid, 50);
  EXPECT_EQ(rails_[0]->port().partition_index, 1);
  EXPECT_EQ(rails_[0]->port().gid.global.subnet_prefix,
            fake_verbs::prefix_gid(0xFEC0'0000'0000'0000u, 5).global.subnet_prefix);
  QueuePair later = std::move(rails_[0]->make_queue_pair(lanes_.main).value());
  EXPECT_EQ(way_of(later.get()).pkey_index, 1);
  rails_[0]->stop(std::move(later), lanes_.main, Rail::End::kUnused);
  // What is gone, or another port's, changes nothing.
  fake_verbs::adjust([](fake_verbs::Config& config) {
    config.devices[0].ports[0].lid = 0;
    config.devices[0].ports[0].partition_keys = {0x8009};
    config.devices[0].ports[0].gids[0].value = {};
  });
  fake_verbs::raise_event("fake0", IBV_EVENT_LID_CHANGE);
  rails_[0]->take_events(told);
  EXPECT_EQ(told.changes.size(), 1u);
  EXPECT_EQ(rails_[0]->port().lid, 50);
}

}  // namespace
}  // namespace ch3_offload
