// A second client in another process that may write anything into its ring and into the memory that it shares,
// and name any memory: TargetServer with an engine for it, and one for a neighbour that behaves.
//
// The client's memory is that of a child process, which only sleeps. So a copy that the kernel does hurts
// nobody here. It has one area of its own at a fixed place, and one that it shares with the processor.
//
// Required beyond what the sanitizers see: each request of the neighbour ends, whatever becomes of the client.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/targets/target_event_ring.h"
#include "nic/exchange.h"
#include "nic/rank_book.h"
#include "nic/stepped_rings.h"
#include "nic/target_server.h"
#include "rdma/fake_provider.h"
#include "rdma/seeded_random.h"
#include "rdma/shm/shared_memory.h"

namespace ch3_offload {
namespace {

constexpr std::uint16_t kTables = 4;

/// A process that sleeps, and its areas.
class Child {
 public:
  static constexpr std::size_t kOwnBytes = 16 << 10;
  static constexpr std::size_t kSharedBytes = 512 << 10;
  static_assert(kSharedBytes > sizeof(TargetBoard));

  static Child& get() {
    static Child child;
    return child;
  }
  pid_t pid() const noexcept { return pid_; }
  std::uint64_t own() const noexcept { return reinterpret_cast<std::uint64_t>(own_); }
  /// Where it has what it shares. Nothing is there here.
  std::uint64_t shared() const noexcept { return std::uint64_t{1} << 40; }

 private:
  Child() {
    // Pages that nobody can touch around its own.
    constexpr std::size_t kPage = 4096;
    void* const all = ::mmap(nullptr, kOwnBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    own_ = static_cast<std::byte*>(all) + kPage;
    if (::mprotect(own_, kOwnBytes, PROT_READ | PROT_WRITE) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ < 0) std::abort();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    // Its private copy stays there; this process must not be able to use the addresses.
    if (::munmap(all, kOwnBytes + 2 * kPage) != 0) std::abort();
    if (::mmap(all, kOwnBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != all)
      std::abort();
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  std::byte* own_ = nullptr;
  pid_t pid_ = 0;
};

EngineConfig config_of(std::uint32_t rank) {
  EngineConfig config;
  config.self = PeerId{rank};
  config.senders = 2;
  config.self_copy_bytes = 2000;  // So that much of what goes to itself takes turns.
  return config;
}

/// The client, as its processor has it.
struct Client {
  explicit Client(Provider& provider)
      : port(exchange.attach(PeerId{0})),
        data(Child::get().pid(), socket.processor, 2, *port),
        providers{&provider},
        driver(config_of(0), providers),
        book(PeerId{0}, 2, UserId{7}),
        targets(driver, book, &data),
        server(targets, memory) {
    Result<FileDescriptor> file = make_shared_file("hostile", Child::kSharedBytes);
    EXPECT_TRUE(file.ok());
    const NicdShare share{.address = Child::get().shared(), .length_bytes = Child::kSharedBytes};
    const int files[] = {file.value().get()};
    EXPECT_TRUE(send_with_files(socket.client, std::as_bytes(std::span(&share, 1)), files));
    EXPECT_TRUE(data.shares().share(share.address, share.length_bytes));
    shared = std::move(map_shared(file.value(), Child::kSharedBytes, MapAccess::kReadWrite).value());
  }
  ~Client() { targets.close_all(); }

  Exchange exchange{PeerId{0}, 2, nullptr};
  std::unique_ptr<ExchangePort> port;
  ClientSocket socket;
  ClientMemory data;
  Provider* providers[1];
  HostDriver driver;
  RankBook book;
  HostTargets targets;
  PortMemory memory = std::move(PortMemory::make().value());
  TargetServer server;
  RingProducer commands = memory.command_producer();
  Mapping shared;  ///< As the client has it.
};

class HostileTargets : public testing::Test {
 protected:
  void run(std::uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_ = SeededRandom(seed);
    FakeConfig config;
    config.seed = seed;
    network_ = std::make_unique<FakeNetwork>(config);
    client_provider_ = network_->make_provider(PeerId{0});
    provider_ = network_->make_provider(PeerId{1});
    client_ = std::make_unique<Client>(*client_provider_);
    Provider* const providers[] = {provider_.get()};
    neighbour_ = std::make_unique<HostDriver>(config_of(1), providers);
    TargetInterface* const interface = neighbour_->engine().open_targets(0, {}, *board_);
    ASSERT_NE(interface, nullptr);
    queue_ = interface->make_queue(events_->ring);
    begun_ = ended_ = 0;
    begin();
    const bool is_long = random_.chance(0.1);
    for (int steps = is_long ? 2000 : 200; steps > 0 && client_ != nullptr; --steps) step();
    finish();
  }

 private:
  /// What lets more than the first wrong command be tried.
  void begin() {
    TargetCommand head = command(TargetCommandKind::kOpen);
    head.address = Child::get().shared();
    give(head, TargetInterfaceConfig{});
    give(command(TargetCommandKind::kMakeQueue), ring());
    give(command(TargetCommandKind::kMakeCounter));
    queues_[0] = QueueId{answer()};
    for (std::uint16_t table = 0; table < kTables; ++table) {
      head = command(TargetCommandKind::kMakeTable);
      head.table = table;
      head.name = 0;
      give(head);
    }
  }
  void step() {
    const std::uint64_t what = random_.below(100);
    if (what < 45)
      any_command();
    else if (what < 60)
      spoil();
    else if (what < 80)
      ask_client();
    else
      turn();
    drop_if_hostile();
  }
  /// As whoever runs the processor does.
  void drop_if_hostile() {
    if (client_ != nullptr && (client_->server.is_refused() || client_->data.is_broken())) drop();
  }

  TargetCommand command(TargetCommandKind kind) {
    TargetCommand head;
    head.kind = kind;
    return head;
  }
  std::uint64_t answer() {
    turn();
    return client_->memory.words().answer;
  }
  void give(std::span<const std::byte> bytes) {
    if (!client_->commands.has_room(bytes.size())) return turn();
    std::memcpy(client_->commands.payload(), bytes.data(), bytes.size());
    client_->commands.publish(RecordKind::kMessage, bytes.size());
  }
  void give(const TargetCommand& head) { give(std::as_bytes(std::span(&head, 1))); }
  template <class T>
  void give(const TargetCommand& head, const T& more) {
    std::vector<std::byte> bytes(sizeof head + sizeof more);
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, &more, sizeof more);
    if (random_.chance(0.003)) bytes.resize(random_.below(bytes.size()) + 1);
    give(bytes);
  }

  /// In one of the areas, at their ends, or anywhere.
  std::uint64_t address() {
    const std::uint64_t what = random_.below(100);
    if (what < 45) return Child::get().own() + random_.below(Child::kOwnBytes);
    if (what < 90) return Child::get().shared() + random_.below(Child::kSharedBytes) / 64 * 64;
    if (what < 95) return Child::get().shared() + Child::kSharedBytes - random_.below(64);
    return std::uint64_t{1} << random_.below(64);
  }
  std::uint64_t length() {
    const std::uint64_t what = random_.below(100);
    if (what < 60) return random_.below(200);
    if (what < 97) return random_.below(Child::kOwnBytes);
    return random_.next() >> random_.below(64);
  }
  template <class T>
  T* pointer() {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address()));
  }
  const PayloadLayout* layout() { return random_.chance(0.98) ? nullptr : pointer<const PayloadLayout>(); }
  /// Of a queue or a counting event: one that is, or was, or none.
  std::uint64_t name() {
    if (random_.chance(0.05)) return random_.next();
    if (random_.chance(0.5)) return static_cast<std::uint64_t>(queues_[random_.below(std::size(queues_))]);
    return (1 + 2 * random_.below(3)) << 32 | (1 + random_.below(4));
  }
  TargetEventRing ring() {
    TargetEventRing one;
    one.words = pointer<TargetEventWords>();
    one.slots = pointer<TargetEventRing::Slot>();
    one.reservable = random_.chance(0.9) ? 1 + random_.below(30) : random_.next() >> random_.below(64);
    one.capacity = random_.chance(0.9) ? one.reservable + random_.below(8) : random_.next();
    return one;
  }
  TargetDescription description() {
    TargetDescription entry;
    entry.key.bits = MatchBits{random_.below(4)};
    if (random_.chance(0.8)) entry.ignore = {MatchBits{0}, kAnyProcess};
    entry.start = pointer<std::byte>();
    entry.length_bytes = length();
    entry.layout = layout();
    entry.min_free_bytes = length();
    // Each operation of the neighbour is told.
    entry.options = static_cast<std::uint32_t>(random_.next()) & ~kNoAcknowledgement;
    if (random_.chance(0.8)) entry.options |= kAllowPut | kAllowGet;
    entry.counter = CounterId{name()};
    return entry;
  }
  TargetCountChange change() {
    TargetCountChange one;
    one.kind = static_cast<TargetCountChange::Kind>(random_.below(random_.chance(0.98) ? 2 : 3));
    one.counter = CounterId{name()};
    one.amount = {random_.below(10), random_.next()};
    return one;
  }
  TargetRequest request() {
    TargetRequest one;
    one.operation = static_cast<TargetOperation>(random_.below(random_.chance(0.99) ? 5 : 6));
    one.acknowledgement = static_cast<TargetAcknowledgement>(random_.below(random_.chance(0.99) ? 4 : 5));
    one.atomic_operation = static_cast<AtomicOperation>(random_.below(20));
    one.atomic_type = static_cast<AtomicType>(random_.below(16));
    one.table = static_cast<std::uint16_t>(random_.below(kTables + 1));
    one.bits = MatchBits{random_.below(4)};
    one.offset_bytes = length();
    for (TargetOrigin* const origin : {&one.source, &one.destination}) {
      origin->memory = {pointer<std::byte>(), random_.chance(0.5) ? 8 : length(), layout()};
      origin->options = static_cast<std::uint32_t>(random_.next());
      origin->queue = QueueId{name()};
      origin->counter = CounterId{name()};
    }
    return one;
  }

  void any_command() {
    TargetCommand head = command(static_cast<TargetCommandKind>(
        1 + random_.below(static_cast<std::uint64_t>(TargetCommandKind::kTriggerUnlink) +
                          (random_.chance(0.01) ? 1 : 0))));
    if (head.kind == TargetCommandKind::kClose && random_.chance(0.8)) head.kind = TargetCommandKind::kAppend;
    head.interface = static_cast<std::uint8_t>(random_.chance(0.95) ? 0 : random_.below(6));
    head.option = static_cast<std::uint8_t>(random_.below(random_.chance(0.99) ? 2 : 3));
    head.table = static_cast<std::uint32_t>(random_.chance(0.9) ? random_.below(kTables) : random_.next());
    head.process = ProcessId{random_.chance(0.95) ? random_.below(2) : random_.next()};
    head.counter = CounterId{name()};
    head.threshold = random_.below(20);
    head.name = random_.chance(0.5) ? name() : (1 + 2 * random_.below(3)) << 32 | random_.below(20);
    head.address = address();
    head.length = random_.chance(0.9) ? random_.below(100) : random_.next();
    switch (head.kind) {
      case TargetCommandKind::kOpen:
        if (random_.chance(0.8)) head.address = Child::get().shared();
        return give(head, TargetInterfaceConfig{});
      case TargetCommandKind::kMakeQueue:
        give(head, ring());
        queues_[random_.below(std::size(queues_))] = QueueId{answer()};
        return;
      case TargetCommandKind::kChangeCounter:
      case TargetCommandKind::kTriggerCount: return give(head, change());
      case TargetCommandKind::kAppend:
      case TargetCommandKind::kTriggerAppend:
      case TargetCommandKind::kSearch: return give(head, description());
      case TargetCommandKind::kRequest:
      case TargetCommandKind::kTriggerRequest: return give(head, request());
      default: return give(head);
    }
  }

  /// Writes rubbish into what it shares, or takes all of it back.
  void spoil() {
    if (random_.chance(0.002)) client_->data.shares().unshare(Child::get().shared());
    std::byte* const shared = client_->shared.address();
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t word = random_.chance(0.5) ? random_.next() : random_.below(40);
      std::memcpy(shared + random_.below(Child::kSharedBytes / 8) * 8, &word, sizeof word);
    }
  }

  /// The neighbour asks something of the client's entries.
  void ask_client() {
    TargetRequest one;
    one.operation = static_cast<TargetOperation>(random_.below(4));
    one.atomic_operation = AtomicOperation::kSum;
    one.atomic_type = AtomicType::kUint8;
    one.acknowledgement = TargetAcknowledgement::kFull;
    one.table = static_cast<std::uint16_t>(random_.below(kTables));
    one.bits = MatchBits{random_.below(4)};
    one.offset_bytes = random_.below(300);
    const bool is_long = one.operation < TargetOperation::kAtomic && random_.chance(0.3);
    const std::size_t bytes = is_long ? memory_.size() : random_.below(100);
    one.source.memory = one.destination.memory = {memory_.data(), bytes, nullptr};
    one.source.options = kNoSendEvent;
    one.source.queue = one.destination.queue = queue_;
    if (one.operation == TargetOperation::kFetchAtomic) one.destination.memory.address = back_.data();
    if (neighbour_->engine().request(PeerId{0}, one) == Status::kOk) ++begun_;
  }

  void turn() {
    network_->advance();
    if (client_ != nullptr) {
      client_->server.turn();
      work(client_->driver, client_->data.is_broken());
      client_->server.turn();
    }
    work(*neighbour_, false);
    TargetEvent event;
    bool lost = false;
    for (TargetEventReader reader(events_->ring); reader.take(event, lost);) {
      EXPECT_FALSE(lost);
      ended_ += event.kind == TargetEventKind::kAck || event.kind == TargetEventKind::kReply;
      EXPECT_TRUE(event.kind != TargetEventKind::kSend || event.failure != TargetFailure::kNone);
    }
  }
  void work(HostDriver& driver, bool is_broken) {
    for (Event event; driver.next_event(event);)
      if (event.kind == Event::Kind::kCardWanted)
        driver.introduce(event.peer, event.peer == PeerId{0} ? client_card() : neighbour_->card());
    if (!is_broken) static_cast<void>(driver.progress());
  }
  std::string client_card() { return client_ == nullptr ? "" : client_->driver.card(); }

  void drop() {
    network_->kill(PeerId{0});
    client_.reset();
    client_provider_.reset();
    ++dropped_;
  }
  void finish() {
    for (int i = 0; i < 200'000 && ended_ < begun_; ++i) {
      turn();
      drop_if_hostile();
    }
    EXPECT_EQ(ended_, begun_);
    if (client_ != nullptr) {
      client_->targets.close_all();
      for (int i = 0; i < 100; ++i) turn();
    }
    client_.reset();
    client_provider_.reset();
    neighbour_.reset();
    provider_.reset();
  }

 protected:
  unsigned dropped_ = 0;

 private:
  SeededRandom random_{0};
  std::unique_ptr<FakeNetwork> network_;
  std::unique_ptr<FakeProvider> client_provider_, provider_;
  std::unique_ptr<TargetBoard> board_ = std::make_unique<TargetBoard>();
  std::unique_ptr<TargetEventMemory> events_ = TargetEventMemory::make(10'000, 1);
  std::vector<std::byte> memory_ = std::vector<std::byte>(20'000);
  std::vector<std::byte> back_ = std::vector<std::byte>(20'000);
  std::unique_ptr<Client> client_;  ///< Null: it was dropped.
  std::unique_ptr<HostDriver> neighbour_;
  QueueId queue_{};
  QueueId queues_[3]{};
  std::uint64_t begun_ = 0, ended_ = 0;
};

/// CH3_OFFLOAD_TARGET_SEEDS=N runs seeds 1 to N.
TEST_F(HostileTargets, HarmOnlyThemselves) {
  const char* const text = std::getenv("CH3_OFFLOAD_TARGET_SEEDS");
  const std::uint64_t seeds = text == nullptr ? 200 : std::strtoull(text, nullptr, 10);
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) run(seed);
  EXPECT_GT(dropped_, 0u);
  EXPECT_LT(dropped_, seeds) << "some last to the end";
}

}  // namespace
}  // namespace ch3_offload
