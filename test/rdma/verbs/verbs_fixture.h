// What the tests of the verbs provider share: providers over the fake device, random traffic among them that
// checks itself, and the check that nothing is left behind.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "rdma/seeded_random.h"
#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/verbs_world.h"

namespace ch3_offload {

class VerbsProviders : public testing::Test {
 protected:
  using Kind = RecordingSink::Kind;
  static constexpr int kWaitMs = 60'000;  ///< Longer than any loaded machine needs; a hang otherwise.
  static constexpr std::chrono::microseconds kIdle{100};  ///< Between polls while nothing happens.

  ~VerbsProviders() override {
    world_.reset();
    EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks();
    EXPECT_EQ(fake_verbs::violations(), std::vector<std::string>{});
    EXPECT_EQ(fake_verbs::counters().overflows, 0u);
  }

  void make(std::size_t size, VerbsConfig config = {}, const fake_verbs::Config& fake = {},
            const std::function<void(std::size_t, VerbsConfig&)>& adjust = {}) {
    world_.reset();
    fake_verbs::reset(fake);
    world_ = std::make_unique<VerbsWorld>(size, std::move(config), adjust);
    sinks_ = std::vector<RecordingSink>(size);
    endpoints_.clear();
  }

  VerbsProvider& at(std::uint32_t peer) { return world_->at(PeerId{peer}); }
  RecordingSink& sink(std::uint32_t peer) { return sinks_[peer]; }
  bool logged(std::string_view part) const {
    for (const std::string& line : world_->lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }

  /// The scope of the first line that has `part`.
  LogScope scope_of(std::string_view part) const {
    for (std::size_t i = 0; i < world_->scopes.size(); ++i)
      if (world_->lines[i].find(part) != std::string::npos) return world_->scopes[i];
    ADD_FAILURE() << "not logged: " << part;
    return {};
  }

  void connect(std::uint32_t from, std::uint32_t to) {
    ASSERT_TRUE(try_connect(from, to, at(to).local_address()).ok());
  }
  Result<Endpoint*> try_connect(std::uint32_t from, std::uint32_t to, std::string_view address) {
    return endpoints_.connect(at(from), PeerId{from}, PeerId{to}, address);
  }
  /// REQUIRES: `from` has connected to `to`.
  Endpoint& endpoint(std::uint32_t from, std::uint32_t to) const {
    return endpoints_.of(PeerId{from}, PeerId{to});
  }
  void connect_both(std::uint32_t one, std::uint32_t other) {
    connect(one, other);
    connect(other, one);
  }
  std::size_t poll(std::uint32_t peer) { return at(peer).poll(sink(peer), 64); }
  /// Returns how much was found.
  std::size_t poll_all() {
    std::size_t found = 0;
    for (std::uint32_t i = 0; i < world_->size(); ++i)
      if (world_->alive(PeerId{i})) found += poll(i);
    return found;
  }
  /// Polls everybody until `done()`; now and then, while nobody finds anything.
  template <class Condition>
  bool run_until(Condition done, int wait_ms = kWaitMs) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    while (std::chrono::steady_clock::now() < deadline) {
      std::size_t found = 0;
      for (int i = 0; i < 16; ++i) {
        if (done()) return true;
        found += poll_all();
      }
      if (found == 0) std::this_thread::sleep_for(kIdle);
    }
    return done();
  }
  void run_for(int milliseconds) {
    run_until([] { return false; }, milliseconds);
  }

  Status try_send(std::uint32_t from, std::uint32_t to, std::span<const std::byte> message) {
    std::span<std::byte> slot;
    const Status status = at(from).reserve(endpoint(from, to), message.size(), slot);
    if (status != Status::kOk) return status;
    std::memcpy(slot.data(), message.data(), message.size());
    at(from).commit(endpoint(from, to), message.size());
    return Status::kOk;
  }
  void send(std::uint32_t from, std::uint32_t to, std::span<const std::byte> message) {
    Status status = Status::kAgain;
    ASSERT_TRUE(run_until([&] { return (status = try_send(from, to, message)) != Status::kAgain; }));
    ASSERT_EQ(status, Status::kOk);
  }
  /// Both have sent and received something.
  void establish(std::uint32_t one, std::uint32_t other) {
    connect_both(one, other);
    const std::size_t before[2] = {sink(one).count(Kind::kMessage, PeerId{other}),
                                   sink(other).count(Kind::kMessage, PeerId{one})};
    send(one, other, Pattern(1).bytes(8));
    send(other, one, Pattern(2).bytes(8));
    ASSERT_TRUE(run_until([&] {
      return sink(one).count(Kind::kMessage, PeerId{other}) == before[0] + 1 &&
             sink(other).count(Kind::kMessage, PeerId{one}) == before[1] + 1;
    }));
  }

  std::unique_ptr<VerbsWorld> world_;
  std::vector<RecordingSink> sinks_;
  Endpoints endpoints_;
};

/// Messages and writes from one peer to another, each checked when it arrives.
class Flow {
 public:
  static constexpr std::size_t kLanes = 3;  ///< Writes at once.

  /// `endpoint`: the sender's of the receiver.
  Flow(VerbsProvider& from, Endpoint& endpoint, VerbsProvider& to, PeerId sender, PeerId receiver,
       std::size_t most_write_bytes)
      : from_(&from),
        endpoint_(&endpoint),
        to_(&to),
        sender_(sender),
        receiver_(receiver),
        seed_((index_of(sender) * 1000ull + index_of(receiver)) << 32),
        random_(seed_) {
    if (most_write_bytes == 0) return;
    lanes_.resize(kLanes);
    for (Lane& lane : lanes_) {
      lane.source.resize(most_write_bytes);
      lane.target.resize(most_write_bytes);
      EXPECT_EQ(from.register_memory(lane.source.data(), most_write_bytes, Access::kRead, lane.source_region),
                Status::kOk);
      EXPECT_EQ(to.register_memory(lane.target.data(), most_write_bytes, Access::kWrite, lane.target_region),
                Status::kOk);
    }
  }
  /// REQUIRES: both live.
  void release() {
    for (Lane& lane : lanes_) {
      from_->deregister_memory(lane.source_region);
      to_->deregister_memory(lane.target_region);
    }
    lanes_.clear();
  }

  /// Sends what there is room for, at most about `most`.
  void feed(std::uint32_t messages, std::uint32_t writes, int most) {
    for (int i = 0; i < most; ++i) {
      if (sent_ < messages && !send_message()) break;
    }
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      if (!lanes_[i].busy && writes_posted_ < writes) post(i);
  }
  bool done(std::uint32_t messages, std::uint32_t writes) const {
    return sent_ == messages && received_ == messages && writes_finished_ == (lanes_.empty() ? 0 : writes);
  }

  void on_message(std::span<const std::byte> message) {
    const std::vector<std::byte> wanted = Pattern(seed_ + received_).bytes(length_of(received_));
    ASSERT_TRUE(std::ranges::equal(message, wanted)) << "message " << received_ << " of " << name();
    ++received_;
  }
  void on_write_arrived(Immediate immediate, std::size_t length) {
    Lane& lane = lane_of(static_cast<std::uint32_t>(immediate));
    lane.arrived += length;
    ++lane.parts;
    ASSERT_LE(lane.arrived, lane.length) << name();
    finish(lane);
  }
  void on_write_done(WorkId work, Status status) {
    ASSERT_EQ(status, Status::kOk) << name();
    Lane& lane = lane_of(static_cast<std::uint32_t>(work));
    ASSERT_FALSE(lane.done) << name();
    lane.done = true;
    finish(lane);
  }

  std::uint64_t progress() const { return std::uint64_t{received_} + writes_finished_; }
  std::string name() const {
    return std::to_string(index_of(sender_)) + "->" + std::to_string(index_of(receiver_)) + " sent " +
           std::to_string(sent_) + " received " + std::to_string(received_) + " writes " +
           std::to_string(writes_finished_) + "/" + std::to_string(writes_posted_);
  }

 private:
  struct Lane {
    std::vector<std::byte> source, target;
    MemoryRegion source_region, target_region;
    std::uint32_t id = 0;
    std::size_t length = 0, arrived = 0, parts = 0;
    bool busy = false, done = false;
    bool prepared = false;  ///< The next write waits for room.
  };

  std::size_t length_of(std::uint64_t n) const {
    const std::uint64_t random = mix64(seed_ + n);
    const std::size_t most = from_->max_slot_bytes(*endpoint_);
    return 1 + (random % 8 == 0 ? random / 8 % most : random / 8 % std::min<std::size_t>(most, 100));
  }
  bool send_message() {
    const std::size_t length = length_of(sent_);
    std::span<std::byte> slot;
    const Status status = from_->reserve(*endpoint_, length, slot);
    if (status == Status::kAgain) return false;
    EXPECT_EQ(status, Status::kOk) << name();
    if (status != Status::kOk) return false;
    Pattern(seed_ + sent_).fill(slot);
    from_->commit(*endpoint_, length);
    ++sent_;
    return true;
  }
  void prepare(Lane& lane, std::size_t i) {
    lane.length = random_.below(4) == 0 ? random_.below(100) : random_.below(lane.source.size() + 1);
    lane.id = writes_posted_ * kLanes + static_cast<std::uint32_t>(i);
    Pattern(seed_ + lane.id + 7).fill({lane.source.data(), lane.length});
    std::fill(lane.target.begin(), lane.target.end(), std::byte{0xEE});
    lane.arrived = lane.parts = 0;
    lane.done = false;
    lane.prepared = true;
  }
  void post(std::size_t i) {
    Lane& lane = lanes_[i];
    if (!lane.prepared) prepare(lane, i);
    const Status status =
        from_->write(*endpoint_, lane.source.data(), lane.length, lane.source_region,
                     {reinterpret_cast<std::uintptr_t>(lane.target.data()), lane.target_region.remote_key},
                     Immediate{lane.id}, WorkId{lane.id});
    if (status == Status::kAgain) return;
    EXPECT_EQ(status, Status::kOk) << name();
    if (status != Status::kOk) return;
    lane.busy = true;
    lane.prepared = false;
    ++writes_posted_;
  }
  Lane& lane_of(std::uint32_t id) {
    Lane& lane = lanes_.at(id % kLanes);
    EXPECT_TRUE(lane.busy && lane.id == id) << name() << ": write " << id << " is not under way";
    return lane;
  }
  void finish(Lane& lane) {
    if (!lane.done || lane.arrived < lane.length || lane.parts == 0) return;
    EXPECT_EQ(std::memcmp(lane.source.data(), lane.target.data(), lane.length), 0) << name();
    for (std::size_t i = lane.length; i < lane.target.size(); ++i)
      if (lane.target[i] != std::byte{0xEE}) FAIL() << name() << ": written behind the end";
    lane.busy = false;
    ++writes_finished_;
  }

  VerbsProvider* from_;
  Endpoint* endpoint_;
  VerbsProvider* to_;
  PeerId sender_, receiver_;
  std::uint64_t seed_;
  SeededRandom random_;
  std::uint32_t sent_ = 0, received_ = 0, writes_posted_ = 0, writes_finished_ = 0;
  std::vector<Lane> lanes_;
};

/// Flows between all pairs of a world that are given.
class Traffic {
 public:
  Traffic(VerbsWorld& world, std::uint32_t messages, std::uint32_t writes, std::size_t most_write_bytes)
      : world_(world), messages_(messages), writes_(writes), most_write_bytes_(most_write_bytes) {
    for (std::uint32_t i = 0; i < world.size(); ++i)
      sinks_.push_back(std::make_unique<FlowSink>(*this, PeerId{i}));
  }
  ~Traffic() {
    for (auto& [pair, flow] : flows_) flow->release();
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void add(PeerId from, PeerId to) {
    Result<Endpoint*> connected = world_.at(from).connect(to, world_.at(to).local_address());
    ASSERT_TRUE(connected.ok());
    flows_[{from, to}] = std::make_unique<Flow>(world_.at(from), *connected.value(), world_.at(to), from, to,
                                                writes_ == 0 ? 0 : most_write_bytes_);
  }
  /// Runs all of it; calls `disturb` now and then. False: it hangs, or something was wrong.
  bool run(SeededRandom& random, const std::function<void()>& disturb, int wait_ms = 120'000) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    for (int idle = 0;; ++idle) {
      bool done = true;
      for (auto& [pair, flow] : flows_) {
        if (random.below(4) != 0) flow->feed(messages_, writes_, static_cast<int>(random.below(40)));
        done = done && flow->done(messages_, writes_);
      }
      if (done) return !failed();
      for (std::uint32_t i = 0; i < world_.size(); ++i)
        if (random.below(5) != 0 && world_.at(PeerId{i}).poll(*sinks_[i], 1 + random.below(64)) != 0) idle = 0;
      if (idle > 2) std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (disturb) disturb();
      if (failed()) return false;
      if (std::chrono::steady_clock::now() > deadline) {
        for (auto& [pair, flow] : flows_)
          if (!flow->done(messages_, writes_)) ADD_FAILURE() << "not in time: " << flow->name();
        return false;
      }
    }
  }
  void poll(PeerId peer) { world_.at(peer).poll(*sinks_[index_of(peer)], 64); }
  /// What has arrived.
  std::uint64_t progress() const {
    std::uint64_t sum = 0;
    for (const auto& [pair, flow] : flows_) sum += flow->progress();
    return sum;
  }

 private:
  struct FlowSink final : Sink {
    FlowSink(Traffic& owner, PeerId id) : traffic(owner), self(id) {}
    Flow& flow(PeerId from, PeerId to) {
      const auto found = traffic.flows_.find({from, to});
      EXPECT_NE(found, traffic.flows_.end());
      return *found->second;
    }
    Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
      flow(peer, self).on_message(message);
      return Delivery::kTaken;
    }
    void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length) noexcept override {
      flow(peer, self).on_write_arrived(immediate, length);
    }
    void on_write_done(PeerId peer, WorkId work, Status status) noexcept override {
      flow(self, peer).on_write_done(work, status);
    }
    void on_peer_down(PeerId peer, Status status) noexcept override {
      ADD_FAILURE() << index_of(self) << " was told that " << index_of(peer)
                    << " is down: " << status_name(status);
    }
    Traffic& traffic;
    PeerId self;
  };
  static bool failed() { return testing::Test::HasFailure(); }

  VerbsWorld& world_;
  std::uint32_t messages_, writes_;
  std::size_t most_write_bytes_;
  std::map<std::pair<PeerId, PeerId>, std::unique_ptr<Flow>> flows_;
  std::vector<std::unique_ptr<FlowSink>> sinks_;
};

}  // namespace ch3_offload
