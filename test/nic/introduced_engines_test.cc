// Engines whose processes have no common numbers: they meet by physical ids, over shared memory, and exchange
// messages and operations on target entries.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/target_request.h"
#include "engine/targets/target_event_ring.h"
#include "engine/targets/target_interface.h"
#include "nic/introductions.h"
#include "nic/introductions_world.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload {
namespace {

/// One process, as a driver of Portals has it. All have the number 0 for themselves.
struct Node final : ProcessBook::Listener {
  explicit Node(std::uint32_t place) {
    const UserKey key = UserKey::of_user(UserId{::geteuid()});
    ShmConfig fabric;
    fabric.job_secret = key.provider_secret();
    fabric.peer_limit = kPeerLimit;
    provider = std::move(ShmProvider::create(fabric).value());
    EngineConfig settings;
    settings.senders = 16;
    Provider* const providers[] = {provider.get()};
    engine = std::make_unique<Engine>(settings, providers);
    interface = engine->open_targets(0, {}, *board);
    queue = interface->make_queue(events->ring);
    Introductions::Config config;
    config.nid = kLoopback1;
    config.card = engine->card();
    config.first_peer = PeerId{1 + 7 * place};
    config.peer_limit = kPeerLimit;
    book = std::move(Introductions::create(config).value());
  }
  void on_process(PeerId peer, ProcessId process, UserId user) noexcept override {
    EXPECT_TRUE(interface->identify(slot_of(peer), process, user));
    processes[index_of(peer)] = process;
  }
  void on_card(PeerId peer, std::string_view card) noexcept override { engine->introduce(peer, card); }
  void on_replaced(PeerId peer) noexcept override { engine->fail_peer(peer); }
  bool on_unused(PeerId peer) noexcept override {
    ++unused;
    const bool is_forgotten = engine->forget_peer(peer);
    forgotten += is_forgotten;
    return is_forgotten;
  }
  PeerId find(const Node& other) const {
    PeerId peer{};
    EXPECT_EQ(book->find(other.book->self(), peer), Status::kOk);
    return peer;
  }
  void progress() {
    book->poll(*this);
    take_news();
    engine->progress();
    take_news();
  }
  void take_news() {
    Event event;
    while (engine->next_event(event)) {
      if (event.kind == Event::Kind::kPeerFailed) {
        failed[index_of(event.peer)] = event.status;
        book->forget(event.peer);
      }
      if (event.kind == Event::Kind::kSendDone) ++sends_done;
      if (event.kind == Event::Kind::kReceiveDone) ++receives_done;
    }
  }

  static constexpr std::uint32_t kPeerLimit = 4096;
  const std::unique_ptr<TargetBoard> board = std::make_unique<TargetBoard>();
  const std::unique_ptr<TargetEventMemory> events = TargetEventMemory::make(64, 1);
  std::unique_ptr<ShmProvider> provider;
  std::unique_ptr<Engine> engine;
  TargetInterface* interface = nullptr;
  QueueId queue{};
  std::unique_ptr<Introductions> book;
  std::map<std::uint32_t, ProcessId> processes;
  std::map<std::uint32_t, Status> failed;
  int sends_done = 0;
  int receives_done = 0;
  int unused = 0;     ///< How often the engine was asked to forget a process.
  int forgotten = 0;  ///< How often it has.
};

class IntroducedEngines : public testing::Test {
 protected:
  static constexpr std::uint16_t kTable = 3;
  static constexpr int kTag = 77;

  IntroducedEngines() {
    for (std::uint32_t i = 0; i < 3; ++i) nodes.push_back(std::make_unique<Node>(i));
  }
  template <class Condition>
  bool run_until(Condition done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done() && std::chrono::steady_clock::now() < end) {
      for (const auto& node : nodes)
        if (node != nullptr) node->progress();
    }
    return done();
  }
  void send(Node& from, Node& to, std::vector<std::byte>& bytes) {
    OperationId operation{};
    Status status = Status::kOk;
    const Progressed progressed =
        from.engine->send(from.find(to), SendMode::kStandard, make_match_key(1, 2, kTag),
                          {bytes.data(), bytes.size(), nullptr}, 0, nullptr, operation, status);
    EXPECT_NE(progressed, Progressed::kFailed);
    from.sends_done += progressed == Progressed::kDone;
  }
  void receive(Node& at, std::vector<std::byte>& bytes) {
    OperationId operation{};
    Envelope envelope;
    const Progressed progressed =
        at.engine->post_receive(make_match_key(1, 2, kTag), kIgnoreNothing,
                                {bytes.data(), bytes.size(), nullptr}, nullptr, operation, envelope);
    at.receives_done += progressed == Progressed::kDone;
  }
  static std::vector<std::byte> pattern(std::size_t length, int seed) {
    std::vector<std::byte> bytes(length);
    for (std::size_t i = 0; i < length; ++i)
      bytes[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed)) >> 3);
    return bytes;
  }

  std::vector<std::unique_ptr<Node>> nodes;
};

TEST_F(IntroducedEngines, ExchangeMessagesOfAllLengths) {
  for (const std::size_t length : {std::size_t{8}, std::size_t{20'000}, std::size_t{1} << 20}) {
    for (std::size_t from = 0; from < nodes.size(); ++from) {
      for (std::size_t to = 0; to < nodes.size(); ++to) {
        if (from == to) continue;
        Node& sender = *nodes[from];
        Node& receiver = *nodes[to];
        std::vector<std::byte> sent = pattern(length, static_cast<int>(from)), got(length);
        sender.sends_done = receiver.receives_done = 0;
        receive(receiver, got);
        send(sender, receiver, sent);
        ASSERT_TRUE(run_until([&] { return sender.sends_done == 1 && receiver.receives_done == 1; }))
            << length << " from " << from << " to " << to;
        EXPECT_EQ(got, sent);
      }
    }
  }
}

TEST_F(IntroducedEngines, BothSendAtOnce) {
  Node& a = *nodes[0];
  Node& b = *nodes[1];
  std::vector<std::byte> from_a = pattern(1000, 1), from_b = pattern(1000, 2), at_a(1000), at_b(1000);
  receive(a, at_a);
  receive(b, at_b);
  send(a, b, from_a);
  send(b, a, from_b);
  ASSERT_TRUE(run_until([&] { return a.receives_done == 1 && b.receives_done == 1; }));
  EXPECT_EQ(at_a, from_b);
  EXPECT_EQ(at_b, from_a);
}

TEST_F(IntroducedEngines, PutIntoEachOthersEntries) {
  Node& a = *nodes[0];
  Node& b = *nodes[2];
  std::vector<std::byte> memory(100), data = pattern(100, 5);
  ASSERT_EQ(b.interface->make_table(kTable, b.queue, /*has_flow_control=*/false), Status::kOk);
  TargetDescription entry;
  entry.start = memory.data();
  entry.length_bytes = memory.size();
  entry.options = kAllowPut;
  entry.key.initiator = a.book->self();  // Nobody else may put there.
  entry.ignore.initiator = kExactProcess;
  entry.user = a.book->user();
  TargetId id{};
  ASSERT_EQ(b.interface->table(kTable)->append(entry, TargetListKind::kPriority, id), Status::kOk);
  TargetRequest request;
  request.table = kTable;
  request.acknowledgement = TargetAcknowledgement::kFull;
  request.source = {{data.data(), data.size(), nullptr}, 0, a.queue, kNoCounter};
  ASSERT_EQ(a.engine->request(a.find(b), request), Status::kOk);
  ASSERT_TRUE(run_until([&] { return memory == data; }));
  TargetEventReader told(a.events->ring);
  TargetEvent event;
  bool lost = false;
  while (event.kind != TargetEventKind::kAck) {
    ASSERT_TRUE(run_until([&] { return !told.empty(); }));
    ASSERT_TRUE(told.take(event, lost));
  }
  EXPECT_EQ(event.failure, TargetFailure::kNone);
}

TEST_F(IntroducedEngines, AProcessThatHasEndedFailsAndItsSuccessorIsAnotherOne) {
  Node& a = *nodes[0];
  std::vector<std::byte> sent = pattern(8, 1), got(8);
  receive(*nodes[1], got);
  send(a, *nodes[1], sent);
  ASSERT_TRUE(run_until([&] { return nodes[1]->receives_done == 1; }));
  const ProcessId gone = nodes[1]->book->self();
  const PeerId before = a.find(*nodes[1]);
  nodes[1].reset();
  ASSERT_TRUE(run_until([&] { return a.failed.count(index_of(before)) == 1; }));
  PeerId after{};
  ASSERT_EQ(a.book->find(gone, after), Status::kOk);
  EXPECT_NE(after, before);
  ASSERT_TRUE(run_until([&] { return a.failed.count(index_of(after)) == 1; }));
  EXPECT_EQ(a.failed[index_of(after)], Status::kUnreachable);
}

/// As MPI_Mprobe, a sender that ends, MPI_Mrecv.
TEST_F(IntroducedEngines, AProcessIsNotForgottenWhileSomebodyHasAMessageOfIt) {
  Node& a = *nodes[0];
  std::vector<std::byte> sent = pattern(1 << 20, 1), got(1 << 20);
  send(*nodes[1], a, sent);
  MessageId message{};
  Envelope envelope;
  bool is_taken = false;
  ASSERT_TRUE(run_until([&] {
    is_taken =
        is_taken || a.engine->matched_probe(make_match_key(1, 2, kTag), kIgnoreNothing, message, envelope);
    return is_taken;
  }));
  nodes[1].reset();
  ASSERT_TRUE(run_until([&] { return a.failed.size() == 1; }));
  ASSERT_TRUE(run_until([&] { return a.unused > 0; }));
  EXPECT_EQ(a.forgotten, 0);
  EXPECT_EQ(a.engine->receive_matched(message, {got.data(), got.size(), nullptr}, nullptr, envelope),
            Progressed::kDone);
  EXPECT_EQ(envelope.status, Status::kPeerFailed);
  EXPECT_TRUE(run_until([&] { return a.forgotten == 1; }));
}

/// What a process keeps of others does not grow with the number of those that were.
TEST_F(IntroducedEngines, ManyProcessesThatComeAndGoLeaveNothing) {
  const auto mappings = [] {
    std::ifstream file("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
  };
  Node& a = *nodes[0];
  nodes.resize(1);
  PeerId first{};
  std::set<std::uint32_t> slots;
  std::ptrdiff_t before = 0;
  for (int i = 0; i < 150; ++i) {
    nodes.push_back(std::make_unique<Node>(1));
    std::vector<std::byte> sent = pattern(8, i), got(8);
    const int received = a.receives_done;
    receive(a, got);
    send(*nodes[1], a, sent);
    ASSERT_TRUE(run_until([&] { return a.receives_done == received + 1; }));
    EXPECT_EQ(got, sent);
    const PeerId peer = a.find(*nodes[1]);
    if (i == 0) first = peer;
    EXPECT_EQ(a.failed.count(index_of(peer)), 0u) << "nobody had that number";
    slots.insert(slot_of(peer));
    nodes.pop_back();
    ASSERT_TRUE(run_until([&] { return a.failed.count(index_of(peer)) == 1; }));
    if (i == 100) before = mappings();
  }
  EXPECT_LT(slots.size(), 100u);
  EXPECT_LE(mappings(), before + 4);
  TargetRequest late;
  late.table = kTable;
  EXPECT_EQ(a.engine->request(first, late), Status::kPeerFailed) << "as a triggered operation may";
}

}  // namespace
}  // namespace ch3_offload
