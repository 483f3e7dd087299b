// A process with many local peers: it finds their records by activity bits (activity.h). And one whose peers
// come and go.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "rdma/shm/shm_fixture.h"

namespace ch3_offload {
namespace {

constexpr PeerId kReceiver{0};

/// Checks that each peer's messages arrive in order, each once.
class OrderSink final : public Sink {
 public:
  explicit OrderSink(std::size_t peers) : next_(peers, 0) {}
  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    std::uint32_t number = 0;
    const bool by_lane = message.size() > sizeof number;
    std::memcpy(&number, message.data() + (by_lane ? CH3_OFFLOAD_LANE_MESSAGE_HEADER_BYTES : 0),
                sizeof number);
    EXPECT_EQ(number, next_[index_of(peer)]++) << "of peer " << index_of(peer);
    ++messages;
    return messages % 7 == 0 ? Delivery::kHeld : Delivery::kTaken;
  }
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
  void on_write_done(PeerId, WorkId, Status) noexcept override {}
  void on_peer_down(PeerId, Status) noexcept override { ++downs; }
  std::size_t messages = 0, downs = 0;

 private:
  std::vector<std::uint32_t> next_;
};

/// A sender, of a thread of its own.
class Sender {
 public:
  Sender(PeerId self, const std::string& receiver) : sink_(1) {
    ShmConfig config;
    config.self = self;
    config.job_secret = test_secret();
    config.bulk = BulkMethod::kStream;
    config.memory_bytes = 1;  // The least rings.
    provider_ = make_shm(config);
    Result<Endpoint*> endpoint = provider_->connect(kReceiver, receiver);
    EXPECT_TRUE(endpoint.ok());
    endpoint_ = endpoint.value();
  }
  /// Through the lane and without it, in turn.
  bool send() {
    if (number_ % 2 != 0 && send_by_lane()) return true;
    std::span<std::byte> slot;
    if (provider_->reserve(*endpoint_, sizeof number_, slot) != Status::kOk) return false;
    std::memcpy(slot.data(), &number_, sizeof number_);
    ++number_;
    provider_->commit(*endpoint_, sizeof number_);
    return true;
  }
  void poll() { provider_->poll(sink_, 64); }

 private:
  bool send_by_lane() {
    ch3_offload_lane_t& lane = *provider_->lane(*endpoint_);
    lane.length_limit = 1000;
    lane.books.credit_bytes = 1000;
    lane.sent_short = &sent_short_;
    const int result = ch3_offload_lane_send(&lane, 0, 0, 0, &number_, sizeof number_);
    if (result == CH3_OFFLOAD_LANE_CLOSED) return false;
    if (result == CH3_OFFLOAD_LANE_SENT_TO_SLEEPER) provider_->nudge(*endpoint_);
    ++number_;
    return true;
  }

  std::unique_ptr<ShmProvider> provider_;
  Endpoint* endpoint_ = nullptr;
  OrderSink sink_;
  std::uint32_t number_ = 0;
  std::uint64_t sent_short_ = 0;
};

class ShmManyPeers : public testing::Test {
 protected:
  void make(std::size_t senders) {
    ShmConfig config;
    config.self = kReceiver;
    config.job_secret = test_secret();
    config.bulk = BulkMethod::kStream;
    receiver_ = make_shm(config);
    sink_ = std::make_unique<OrderSink>(senders + 2);
    for (std::size_t i = 0; i < senders; ++i)
      senders_.push_back(
          std::make_unique<Sender>(PeerId{static_cast<std::uint32_t>(i + 1)}, receiver_->local_address()));
  }
  std::size_t poll(std::size_t budget = 64) { return receiver_->poll(*sink_, budget); }
  /// Polls until so many messages have come in all.
  bool poll_until(std::size_t messages, std::size_t budget = 64) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (sink_->messages < messages && std::chrono::steady_clock::now() < end) poll(budget);
    return sink_->messages == messages;
  }
  /// All are accepted, and know the receiver's doorbell.
  void meet() {
    for (const auto& sender : senders_) ASSERT_TRUE(sender->send());
    ASSERT_TRUE(poll_until(senders_.size()));
    // The time may pass without a turn of ours, so turns count, too.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    for (int turns = 0; turns < 1000 || std::chrono::steady_clock::now() < end; ++turns) {
      poll();
      for (const auto& sender : senders_) sender->poll();
    }
  }

  std::unique_ptr<ShmProvider> receiver_;
  std::unique_ptr<OrderSink> sink_;
  std::vector<std::unique_ptr<Sender>> senders_;
};

TEST_F(ShmManyPeers, EachIsHeardWithAnyNumberOfThem) {
  for (const std::size_t count : {8u, 9u, 70u}) {
    senders_.clear();
    make(count);
    meet();
    std::size_t sent = count;
    for (std::size_t i = 0; i < 50 * count; ++i) {
      ASSERT_TRUE(senders_[i * 31 % count]->send());
      ++sent;
      if (i % 5 != 0) continue;
      EXPECT_TRUE(receiver_->may_have_work());
      ASSERT_TRUE(poll_until(sent, 1 + i % 3));
    }
  }
}

/// activity.h: nothing is sought. A poll finds the one that has written, by its bit or its turn.
TEST_F(ShmManyPeers, OnePollFindsWhoHasWritten) {
  make(100);
  meet();
  std::size_t sent = senders_.size();
  for (std::size_t i = 0; i < 500; ++i) {
    poll();
    ASSERT_TRUE(senders_[i * 37 % senders_.size()]->send());
    EXPECT_TRUE(receiver_->may_have_work());
    poll();
    EXPECT_EQ(sink_->messages, ++sent) << i;
  }
}

TEST_F(ShmManyPeers, ABusyPeerDoesNotHideTheOthers) {
  make(20);
  meet();
  const std::size_t before = sink_->messages;
  for (std::size_t i = 1; i < senders_.size(); ++i) ASSERT_TRUE(senders_[i]->send());
  for (int round = 0; round < 200; ++round) {
    while (senders_[0]->send()) {
    }
    poll(4);
    senders_[0]->poll();
  }
  while (poll() != 0) {
  }
  EXPECT_GE(sink_->messages, before + senders_.size() - 1);
  receiver_->disarm();
}

TEST_F(ShmManyPeers, TheEndOfOneLeavesTheOthers) {
  make(20);
  meet();
  senders_[3].reset();
  senders_[11].reset();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (sink_->downs < 2 && std::chrono::steady_clock::now() < end) poll();
  std::size_t sent = sink_->messages;
  for (const auto& sender : senders_)
    if (sender != nullptr) sent += sender->send();
  EXPECT_TRUE(poll_until(sent));
  ASSERT_TRUE(receiver_->arm());
  EXPECT_EQ(poll(), 0u);
  receiver_->disarm();
}

/// activity.h, "Trust".
TEST_F(ShmManyPeers, WhoClearsOrSetsBitsOfOthersLosesNoMessage) {
  make(20);
  meet();
  const PeerId self{21};
  HandMadeSender hostile(receiver_->local_address(), self, kReceiver);
  for (int i = 0; i < 1000 && !hostile.take_welcome(); ++i) poll();
  std::size_t sent = sink_->messages;
  for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    for (const auto& sender : senders_) sent += sender->send();
    for (std::size_t word = 0; word < kActivityBytes / sizeof value; ++word) hostile.bits()[word] = value;
    EXPECT_TRUE(poll_until(sent));
  }
  while (poll() != 0) {
  }
  for (const auto& sender : senders_) sent += sender->send();
  for (std::size_t word = 0; word < 4; ++word) hostile.bits()[word] = 0;
  EXPECT_FALSE(receiver_->arm()) << "before a sleep all rings are looked at";
  receiver_->disarm();
  EXPECT_TRUE(poll_until(sent));
}

/// "The sleep rule", for bits and for sleeps, by threads that race.
TEST_F(ShmManyPeers, NoMessageIsLostInARace) {
  constexpr std::size_t kSenders = 12, kEach = 3000;
  make(kSenders);
  std::vector<std::thread> threads;
  std::atomic<bool> all_came = false;
  for (const auto& sender : senders_)
    threads.emplace_back([&all_came, &sender] {
      for (std::size_t sent = 0; sent < kEach && !all_came;) {
        sent += sender->send();
        if (sent % 5 == 0) sender->poll();
        if (sent % 3 == 0) std::this_thread::yield();
        if (sent % 500 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));  // All may sleep.
      }
      while (!all_came) {
        sender->poll();
        std::this_thread::yield();
      }
    });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (sink_->messages < kSenders * kEach && std::chrono::steady_clock::now() < end) {
    if (poll(8) != 0) continue;
    std::this_thread::yield();
    if (poll(8) != 0 || !receiver_->arm()) {
      receiver_->disarm();
      continue;
    }
    if (receiver_->poll(*sink_, 8) == 0) {
      pollfd entry{receiver_->descriptor(), POLLIN, 0};
      ASSERT_EQ(::poll(&entry, 1, 60'000), 1) << "nobody woke the receiver";
    }
    receiver_->disarm();
  }
  all_came = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sink_->messages, kSenders * kEach);
}

/// How many lines, or names, a file or a directory of /proc has.
std::size_t lines_of(const char* path) {
  std::ifstream file(path);
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}
std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// A server, and clients that come and go. All have the same number for themselves, as processes without a
/// job have.
class ShmComeAndGo : public testing::Test {
 protected:
  static constexpr PeerId kOwn{0}, kServer{1};

  ShmComeAndGo() : server_(make_shm(config())) {}
  static ShmConfig config() {
    ShmConfig config;
    config.self = kOwn;
    config.job_secret = test_secret();
    config.peer_limit = 16;
    return config;
  }
  static void exchange(ShmProvider& from, Endpoint& endpoint, ShmProvider& to, RecordingSink& sink) {
    std::span<std::byte> slot;
    const std::size_t before = sink.events.size();
    ASSERT_EQ(from.reserve(endpoint, 8, slot), Status::kOk);
    from.commit(endpoint, 8);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    RecordingSink ignored;
    while (sink.events.size() == before && std::chrono::steady_clock::now() < end) {
      to.poll(sink, 64);
      from.poll(ignored, 64);
    }
    ASSERT_EQ(sink.events.size(), before + 1);
    EXPECT_EQ(sink.events.back().kind, RecordingSink::Kind::kMessage);
  }
  /// A client that has `number` at the server sends there and back, and ends.
  void come_and_go(PeerId number) {
    std::unique_ptr<ShmProvider> client = make_shm(config());
    RecordingSink at_client;
    const Result<Endpoint*> there =
        client->connect(kServer, server_->local_address(), PeerNames{number, kOwn});
    ASSERT_TRUE(there.ok()) << there.error().message;
    ASSERT_NO_FATAL_FAILURE(exchange(*client, *there.value(), *server_, sink_));
    EXPECT_EQ(sink_.events.back().peer, number);
    const Result<Endpoint*> back = server_->connect(number, server_->address_of(number), {});
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_NO_FATAL_FAILURE(exchange(*server_, *back.value(), *client, at_client));
    EXPECT_FALSE(server_->forget(number)) << "it lives";
    client.reset();
    ASSERT_TRUE(await_end(*server_, sink_, number));
    std::span<std::byte> slot;
    EXPECT_EQ(server_->reserve(*back.value(), 8, slot), Status::kPeerFailed);
  }
  static bool await_end(ShmProvider& provider, RecordingSink& sink, PeerId peer) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (sink.count(RecordingSink::Kind::kPeerDown, peer) == 0 && std::chrono::steady_clock::now() < end)
      provider.poll(sink, 64);
    return sink.count(RecordingSink::Kind::kPeerDown, peer) == 1;
  }

  std::unique_ptr<ShmProvider> server_;
  RecordingSink sink_;
};

TEST_F(ShmComeAndGo, ManyPeersLeaveNoMappingsNorDescriptors) {
  PeerId number{3};
  std::size_t mappings = 0, files = 0;
  for (int round = 0; round < 200; ++round) {
    ASSERT_NO_FATAL_FAILURE(come_and_go(number));
    ASSERT_TRUE(server_->forget(number));
    number = next_generation(number);
    if (round == 20) {
      mappings = lines_of("/proc/self/maps");
      files = open_files();
    }
  }
  EXPECT_LE(lines_of("/proc/self/maps"), mappings + 40);  // A sanitizer's memory grows, too: by 8.
  EXPECT_EQ(open_files(), files);
}

/// Of a job: its numbers are not used again.
TEST_F(ShmComeAndGo, PeersThatAreDownLeaveNoMappingsNorDescriptors) {
  ASSERT_NO_FATAL_FAILURE(come_and_go(PeerId{1}));
  const std::size_t mappings = lines_of("/proc/self/maps"), files = open_files();
  for (std::uint32_t number = 2; number < 16; ++number) ASSERT_NO_FATAL_FAILURE(come_and_go(PeerId{number}));
  EXPECT_LE(lines_of("/proc/self/maps"), mappings + 10);
  EXPECT_EQ(open_files(), files);
}

TEST_F(ShmComeAndGo, NobodyIsTakenForWhoHadTheNumberBefore) {
  const PeerId before{3}, after = next_generation(before);
  for (const PeerId known : {before, after}) {  // Before and after the next one has come.
    ASSERT_NO_FATAL_FAILURE(come_and_go(known));
    ASSERT_TRUE(server_->forget(known));
    const std::size_t told = sink_.events.size();
    std::unique_ptr<ShmProvider> late = make_shm(config());
    const Result<Endpoint*> there = late->connect(kServer, server_->local_address(), PeerNames{before, kOwn});
    ASSERT_TRUE(there.ok());
    RecordingSink at_late;
    std::span<std::byte> slot;
    ASSERT_EQ(late->reserve(*there.value(), 8, slot), Status::kOk);
    late->commit(*there.value(), 8);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (at_late.events.empty() && std::chrono::steady_clock::now() < end) {
      server_->poll(sink_, 64);
      late->poll(at_late, 64);
    }
    ASSERT_EQ(at_late.events.size(), 1u);
    EXPECT_EQ(at_late.events[0].kind, RecordingSink::Kind::kPeerDown);
    EXPECT_EQ(sink_.events.size(), told);
    EXPECT_EQ(server_->connect(before, late->local_address()).error().status, Status::kPeerFailed);
  }
}

}  // namespace
}  // namespace ch3_offload
