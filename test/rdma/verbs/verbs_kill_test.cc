// A peer is killed with SIGKILL in the middle of rendezvous, again and again, while one provider lives
// through it all. The peers are processes of their own, over this machine's own RDMA device: test/lab runs it
// in a guest.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "rdma/contract_world.h"
#include "rdma/verbs/verbs_world.h"

namespace ch3_offload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xC3};
constexpr int kInFlight = 3;
constexpr std::uint32_t kRounds = 100;  ///< Of each role, unless CH3_OFFLOAD_KILL_ROUNDS says otherwise.

/// Both sides of a rendezvous with one peer: RTS, CTS with address and key, write with immediate.
class Party final : public Sink {
 public:
  Party(Provider& provider, PeerId peer) : provider_(provider), peer_(peer) {}

  bool connect(const char* address) {
    Result<Endpoint*> connected = provider_.connect(peer_, address);
    if (connected.ok()) endpoint_ = connected.value();
    return connected.ok();
  }
  /// REQUIRES: connect() has returned true.
  Endpoint& endpoint() const { return *endpoint_; }
  /// Keeps so many transfers to the peer in flight.
  void feed(int transfers, Pattern& random) {
    while (!down_ && static_cast<int>(sources_.size()) < transfers) {
      const std::uint32_t transfer = next_transfer_++;
      Source& source = sources_[transfer];
      source.data = Pattern(transfer).bytes(random.length_between(1, 48) << 12);
      if (provider_.register_memory(source.data.data(), source.data.size(), Access::kRead, source.region) !=
          Status::kOk)
        ++errors_;
      control_.push_back({Kind::kRts, transfer, source.data.size(), 0, 0});
    }
  }
  void poll() {
    send_control();
    for (auto& [transfer, source] : sources_)
      if (source.cleared && !source.posted && !down_) post(transfer, source);
    provider_.poll(*this, 64);
  }

  bool down() const { return down_; }
  int steps() const { return steps_; }    ///< Messages and writes that came, and writes that were done.
  int errors() const { return errors_; }  ///< Wrong bytes, and calls that should not have come.
  int done() const { return done_; }      ///< Whole transfers: written, or arrived and right.
  /// The peer is dead: every write has been answered, and nothing is kept registered.
  void end() {
    for (auto& [transfer, source] : sources_) {
      if (source.posted) ++errors_;
      provider_.deregister_memory(source.region);
    }
    sources_.clear();
    for (auto& [transfer, target] : targets_) {
      provider_.deregister_memory(target.region);
      std::fill(target.data.begin(), target.data.end(), kGuard);
    }
  }
  /// Nobody has written since end().
  bool untouched() const {
    return std::all_of(targets_.begin(), targets_.end(), [](const auto& entry) {
      return std::all_of(entry.second.data.begin(), entry.second.data.end(),
                         [](std::byte byte) { return byte == kGuard; });
    });
  }

 private:
  enum class Kind : std::uint32_t { kRts, kCts };
  struct Control {
    Kind kind;
    std::uint32_t transfer;
    std::uint64_t length_bytes;
    std::uint64_t address;
    std::uint64_t key;
  };
  struct Source {
    std::vector<std::byte> data{};
    MemoryRegion region{};
    RemoteMemory destination{};
    bool cleared = false;
    bool posted = false;
  };
  struct Target {
    std::vector<std::byte> data{};
    MemoryRegion region{};
    std::size_t length_bytes = 0;
    std::size_t arrived_bytes = 0;
  };

  void send_control() {
    while (!control_.empty() && !down_ && endpoint_ != nullptr) {
      std::span<std::byte> slot;
      if (provider_.reserve(*endpoint_, sizeof(Control), slot) != Status::kOk) return;
      std::memcpy(slot.data(), &control_.front(), sizeof(Control));
      provider_.commit(*endpoint_, sizeof(Control));
      control_.pop_front();
    }
  }

  void post(std::uint32_t transfer, Source& source) {
    const Status status = provider_.write(*endpoint_, source.data.data(), source.data.size(), source.region,
                                          source.destination, Immediate{transfer}, WorkId{transfer});
    source.posted = status == Status::kOk;
  }

  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    take(peer, message);
    return Delivery::kTaken;
  }
  void take(PeerId peer, std::span<const std::byte> message) noexcept {
    ++steps_;
    Control control{};
    if (down_ || peer != peer_ || message.size() != sizeof control) {
      ++errors_;
      return;
    }
    std::memcpy(&control, message.data(), sizeof control);
    if (control.kind == Kind::kRts) {
      Target& target = targets_[control.transfer];
      target.length_bytes = control.length_bytes;
      target.data.assign(control.length_bytes + 2 * kGuardBytes, kGuard);
      if (provider_.register_memory(target.data.data() + kGuardBytes, control.length_bytes, Access::kWrite,
                                    target.region) != Status::kOk)
        ++errors_;
      control_.push_back({Kind::kCts, control.transfer, control.length_bytes,
                          reinterpret_cast<std::uintptr_t>(target.data.data() + kGuardBytes),
                          static_cast<std::uint64_t>(target.region.remote_key)});
      return;
    }
    const auto source = sources_.find(control.transfer);
    if (source == sources_.end() || source->second.cleared) {
      ++errors_;
      return;
    }
    source->second.destination = {control.address, RemoteKey{control.key}};
    source->second.cleared = true;
  }

  void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override {
    ++steps_;
    const auto found = targets_.find(static_cast<std::uint32_t>(immediate));
    if (down_ || peer != peer_ || found == targets_.end()) {
      ++errors_;
      return;
    }
    Target& target = found->second;
    target.arrived_bytes += length_bytes;
    if (target.arrived_bytes < target.length_bytes) return;
    const std::span<const std::byte> data(target.data);
    const std::vector<std::byte> expected = Pattern(found->first).bytes(target.length_bytes);
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto before = data.first(kGuardBytes);
    const auto after = data.last(kGuardBytes);
    if (target.arrived_bytes > target.length_bytes ||
        std::memcmp(data.data() + kGuardBytes, expected.data(), expected.size()) != 0 ||
        !std::all_of(before.begin(), before.end(), is_guard) ||
        !std::all_of(after.begin(), after.end(), is_guard))
      ++errors_;
    provider_.deregister_memory(target.region);
    targets_.erase(found);
    ++done_;
  }

  void on_write_done(PeerId peer, WorkId work, Status status) noexcept override {
    ++steps_;
    const auto found = sources_.find(static_cast<std::uint32_t>(work));
    if (down_ || peer != peer_ || found == sources_.end() || !found->second.posted ||
        (status != Status::kOk && status != Status::kPeerFailed)) {
      ++errors_;
      return;
    }
    provider_.deregister_memory(found->second.region);
    sources_.erase(found);
    if (status == Status::kOk) ++done_;
  }

  void on_peer_down(PeerId peer, Status) noexcept override {
    if (down_ || peer != peer_) ++errors_;
    down_ = true;
  }

  Provider& provider_;
  PeerId peer_;
  Endpoint* endpoint_ = nullptr;  ///< The provider's, of the peer. nullptr: not connected.
  std::map<std::uint32_t, Source> sources_;
  std::map<std::uint32_t, Target> targets_;
  std::deque<Control> control_;
  std::uint32_t next_transfer_ = 0;
  int steps_ = 0;
  int errors_ = 0;
  int done_ = 0;
  bool down_ = false;
};

enum class Role : int { kSender, kReceiver };

/// Seen by all processes.
struct Board {
  std::atomic<int> requested;  ///< Number of the peer that is to be started, 0: none, -1: that is all.
  std::atomic<int> role;       ///< Of that peer.
  std::atomic<int> process;    ///< Its process id.
  std::atomic<bool> ready;     ///< peer_address is filled in.
  std::atomic<int> errors;     ///< Met by peers.
  char survivor_address[160];
  char peer_address[160];
};

VerbsConfig config_of(PeerId self) {
  VerbsConfig config;
  config.self = self;
  config.job_secret = verbs_test_secret();
  config.log = [](void*, LogScope, const char* line) { std::fprintf(stderr, "%s\n", line); };
  return config;
}

/// A peer's life, until it is killed.
[[noreturn]] void live(Board& board, PeerId self, Role role) {
  Result<std::unique_ptr<VerbsProvider>> made = VerbsProvider::create(config_of(self));
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    std::_Exit(1);
  }
  VerbsProvider& provider = *made.value();
  std::snprintf(board.peer_address, sizeof board.peer_address, "%s", provider.local_address().c_str());
  board.ready = true;
  Party party(provider, PeerId{0});
  Pattern random(index_of(self));
  if (!party.connect(board.survivor_address)) board.errors = board.errors + 1;
  int told = 0;
  for (;;) {
    if (role == Role::kSender) party.feed(kInFlight, random);
    party.poll();
    if (party.down() || party.errors() > told) {
      board.errors += party.down() + party.errors() - told;
      told = party.errors();
      if (party.down()) std::_Exit(1);
    }
  }
}

/// Forks the peers: without the survivor's devices, which a fork of the survivor itself would inherit.
[[noreturn]] void breed(Board& board) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pid_t child = 0;
  for (;;) {
    const int wanted = board.requested.exchange(0);
    if (wanted < 0) {
      if (child != 0) waitpid(child, nullptr, 0);
      std::_Exit(0);
    }
    if (wanted > 0) {
      if (child != 0) waitpid(child, nullptr, 0);  // Killed by the survivor.
      child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        live(board, PeerId{static_cast<std::uint32_t>(wanted)}, static_cast<Role>(board.role.load()));
      }
      board.process = child;
    }
    usleep(1000);
  }
}

class VerbsDeath : public testing::TestWithParam<Role> {
 protected:
  void SetUp() override {
    void* const memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board{};
    breeder_ = fork();
    ASSERT_GE(breeder_, 0);
    if (breeder_ == 0) breed(*board_);
    provider_ = make_verbs(config_of(PeerId{0}));
    ASSERT_NE(provider_, nullptr);
    std::snprintf(board_->survivor_address, sizeof board_->survivor_address, "%s",
                  provider_->local_address().c_str());
  }
  void TearDown() override {
    if (board_ == nullptr) return;
    board_->requested = -1;
    if (breeder_ > 0) waitpid(breeder_, nullptr, 0);
    provider_.reset();
    munmap(board_, sizeof(Board));
  }

  template <class Condition>
  static bool within(seconds limit, Condition done) {
    const auto deadline = Clock::now() + limit;
    while (!done())
      if (Clock::now() > deadline) return false;
    return true;
  }

  /// A life and a death. `last_wish`: so many whole transfers come first.
  void round(std::uint32_t number, Pattern& random, int last_wish) {
    const PeerId peer{number};
    board_->ready = false;
    board_->process = 0;
    board_->role = static_cast<int>(GetParam());
    board_->requested = static_cast<int>(number);
    Party survivor(*provider_, peer);
    ASSERT_TRUE(within(seconds(60), [&] {
      survivor.poll();
      return board_->ready.load();
    })) << "the peer does not start";
    const pid_t process = board_->process;
    ASSERT_TRUE(survivor.connect(board_->peer_address));

    const bool sends = GetParam() == Role::kReceiver;
    const int steps = static_cast<int>(random.length_between(0, 12));
    ASSERT_TRUE(within(seconds(60),
                       [&] {
                         if (sends) survivor.feed(kInFlight, random);
                         survivor.poll();
                         return survivor.down() ||
                                (survivor.steps() >= steps && survivor.done() >= last_wish);
                       }))
        << "no progress after " << survivor.steps() << " steps";
    const auto moment = Clock::now() + std::chrono::microseconds(random.length_between(0, 5000));
    while (Clock::now() < moment) survivor.poll();
    ASSERT_FALSE(survivor.down()) << "the peer died by itself";

    ASSERT_EQ(kill(process, SIGKILL), 0);
    const auto killed = Clock::now();
    ASSERT_TRUE(within(seconds(30), [&] {
      if (sends) survivor.feed(kInFlight, random);
      survivor.poll();
      return survivor.down();
    })) << "the death is not noticed";
    slowest_ = std::max(slowest_, Clock::now() - killed);
    for (int i = 0; i < 20; ++i) survivor.poll();
    survivor.end();
    EXPECT_EQ(survivor.errors(), 0);
    EXPECT_EQ(provider_->figures().registrations, 0u);
    std::span<std::byte> slot;
    EXPECT_EQ(provider_->reserve(survivor.endpoint(), 1, slot), Status::kPeerFailed);
    whole_ += survivor.done();
    dead_.push_back(std::move(survivor));
    if (dead_.size() > 3) dead_.pop_front();
    for (const Party& one : dead_) EXPECT_TRUE(one.untouched());
  }

  Board* board_ = nullptr;
  pid_t breeder_ = -1;
  std::unique_ptr<VerbsProvider> provider_;
  std::deque<Party> dead_;  ///< Nobody may write to their memory any more.
  Clock::duration slowest_{};
  int whole_ = 0;
};

TEST_P(VerbsDeath, ASurvivorOfManyHasLostNothing) {
  const char* const wish = std::getenv("CH3_OFFLOAD_KILL_ROUNDS");
  const std::uint32_t rounds =
      wish != nullptr ? static_cast<std::uint32_t>(std::max(2, std::atoi(wish))) : kRounds;
  Pattern random(GetParam() == Role::kSender ? 1 : 2);
  std::size_t slot_bytes = 0;
  for (std::uint32_t number = 1; number <= rounds && !HasFatalFailure(); ++number) {
    SCOPED_TRACE("round " + std::to_string(number));
    round(number, random, 0);
    slot_bytes = std::max(slot_bytes, number <= rounds / 2 ? provider_->figures().registered_slot_bytes : 0);
  }
  if (HasFatalFailure()) return;
  // Who lost slots with each death would have had to make more.
  EXPECT_LE(provider_->figures().registered_slot_bytes, slot_bytes);
  round(rounds + 1, random, 50);  // One more is served as if nothing had been.
  EXPECT_EQ(board_->errors, 0) << "met by the peers";
  EXPECT_EQ(provider_->figures().queue_pairs, 0u);
  std::printf(
      "note: %u deaths, %d whole transfers, slowest notice %lld ms\n", rounds + 1, whole_,
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(slowest_).count()));
}

INSTANTIATE_TEST_SUITE_P(Killed, VerbsDeath, testing::Values(Role::kSender, Role::kReceiver),
                         [](const testing::TestParamInfo<Role>& role) {
                           return role.param == Role::kSender ? "sender" : "receiver";
                         });

}  // namespace
}  // namespace ch3_offload
