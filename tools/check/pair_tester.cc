#include "check/pair_tester.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kWarmUpTrips = 20;
constexpr std::uint32_t kTrips = 200;
constexpr std::uint64_t kLongestTripsNs = 1'000'000'000;
constexpr std::uint32_t kMostWrites = 4;  ///< Under way at a time.
constexpr std::size_t kFirstStreamBytes = std::size_t{64} << 10;
constexpr std::size_t kMostStreamBytes = std::size_t{256} << 20;
/// A stream that takes at least so long is measured well enough.
constexpr std::uint64_t kStreamNs = 50'000'000;
constexpr std::size_t kEventsPerPoll = 64;
/// Peers have the numbers of the nodes of a check.
constexpr std::uint32_t kMostPeers = 1u << 20;

/// Why a test has ended early. Caught by test().
struct TestFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

PairTester::PairTester(Provider& provider, PeerId self, int limit_ms)
    : provider_(provider),
      self_(self),
      limit_ms_(limit_ms),
      source_(std::make_unique<std::byte[]>(kMemoryBytes)),
      destination_(std::make_unique<std::byte[]>(kMemoryBytes)) {
  Status status = provider_.register_memory(source_.get(), kMemoryBytes, Access::kRead, source_region_);
  if (status == Status::kOk)
    status = provider_.register_memory(destination_.get(), kMemoryBytes, Access::kWrite, destination_region_);
  if (status != Status::kOk)
    lacks_memory_ = fmt::format(
        "2 MiB of memory cannot be registered with {} ({}): see the limit of locked "
        "memory (ulimit -l)",
        provider_.capabilities().name, status_name(status));
}

PairTester::~PairTester() {
  if (source_region_.address != nullptr) provider_.deregister_memory(source_region_);
  if (destination_region_.address != nullptr) provider_.deregister_memory(destination_region_);
}

PairResult PairTester::test(PeerId peer, std::string_view address, bool begins) {
  peer_ = peer;
  result_ = {};
  its_memory_ = {};
  sent_bytes_ = due_bytes_ = 0;
  writes_ = 0;
  last_event_ns_ = monotonic_ns();
  try {
    if (!lacks_memory_.empty()) throw TestFailed(lacks_memory_);
    const Result<Endpoint*> connected = provider_.connect(peer, address);
    if (!connected.ok()) throw TestFailed(connected.error().message);
    endpoint_ = connected.value();
    begins ? begin() : answer();
    result_.stage = PairStage::kOver;
  } catch (const TestFailed& failed) {
    result_.why = failed.what();
    static_cast<void>(provider_.end(peer));
  }
  return result_;
}

void PairTester::begin() {
  send({.kind = Kind::kPing});
  expect(Kind::kPong);
  result_.stage = PairStage::kShort;
  measure_latency();
  result_.stage = PairStage::kLong;
  measure_bandwidth();
  send({.kind = Kind::kTurn});
  expect(Kind::kOver);
}

void PairTester::answer() {
  expect(Kind::kPing);
  result_.stage = PairStage::kShort;
  expect(Kind::kTurn);
  result_.stage = PairStage::kLong;
  measure_bandwidth();
  send({.kind = Kind::kOver});
}

void PairTester::measure_latency() {
  std::vector<std::uint64_t> trips_ns;
  const std::uint64_t began_ns = monotonic_ns();
  for (std::uint32_t i = 0; i < kWarmUpTrips + kTrips; ++i) {
    const std::uint64_t sent_ns = monotonic_ns();
    send({.kind = Kind::kPing, .number = i});
    expect(Kind::kPong);
    if (i >= kWarmUpTrips) trips_ns.push_back(elapsed_ns(monotonic_ns(), sent_ns));
    if (i > kWarmUpTrips && elapsed_ns(monotonic_ns(), began_ns) > kLongestTripsNs) break;
  }
  const auto middle = trips_ns.begin() + static_cast<std::ptrdiff_t>(trips_ns.size() / 2);
  std::ranges::nth_element(trips_ns, middle);
  result_.latency_ns = std::max<std::uint64_t>(*middle / 2, 1);
}

/// Streams of growing length, until one takes long enough to be measured.
void PairTester::measure_bandwidth() {
  for (std::size_t length_bytes = kFirstStreamBytes;; length_bytes *= 8) {
    const std::uint64_t began_ns = monotonic_ns();
    stream(length_bytes);
    const std::uint64_t took_ns = std::max<std::uint64_t>(elapsed_ns(monotonic_ns(), began_ns), 1);
    result_.bytes_per_s =
        static_cast<std::uint64_t>(static_cast<double>(length_bytes) * 1e9 / static_cast<double>(took_ns));
    if (took_ns >= kStreamNs || length_bytes * 8 > kMostStreamBytes) return;
  }
}

/// Returns when the peer has all of it.
void PairTester::stream(std::size_t length_bytes) {
  if (!provider_.capabilities().write) throw TestFailed("the provider has no writes");
  for (std::size_t left_bytes = length_bytes; left_bytes > 0;) {
    const std::size_t part_bytes = std::min(left_bytes, kMemoryBytes);
    const Status status =
        writes_ < kMostWrites
            ? provider_.write(*endpoint_, source_.get(), part_bytes, source_region_, its_memory_,
                              Immediate{index_of(self_)}, WorkId{index_of(peer_)})
            : Status::kAgain;
    if (status == Status::kOk) {
      left_bytes -= part_bytes;
      ++writes_;
    } else if (status != Status::kAgain) {
      throw TestFailed(fmt::format("a write failed ({})", status_name(status)));
    } else {
      step();
    }
  }
  sent_bytes_ += length_bytes;
  send({.kind = Kind::kSent, .count_bytes = sent_bytes_});
  expect(Kind::kGot);
  // The peer has them all; the provider may say so later.
  while (writes_ > 0) step();
}

void PairTester::send(Message message) {
  message.address = reinterpret_cast<std::uintptr_t>(destination_.get());
  message.key = static_cast<std::uint64_t>(destination_region_.remote_key);
  std::span<std::byte> slot;
  for (;;) {
    const Status status = provider_.reserve(*endpoint_, sizeof message, slot);
    if (status == Status::kOk) break;
    if (status != Status::kAgain) throw TestFailed("the connection has ended");
    step();
  }
  std::memcpy(slot.data(), &message, sizeof message);
  provider_.commit(*endpoint_, sizeof message);
  last_event_ns_ = monotonic_ns();
}

/// The peer's next message of that kind. What else it wants meanwhile, it gets.
PairTester::Message PairTester::expect(Kind kind) {
  for (;;) {
    if (due_bytes_ > 0 && arrived_bytes_.size() > index_of(peer_) &&
        arrived_bytes_[index_of(peer_)] >= due_bytes_) {
      due_bytes_ = 0;
      send({.kind = Kind::kGot});
    }
    if (const std::optional<Message> message = handle_letter(kind)) return *message;
    step();
  }
}

std::optional<PairTester::Message> PairTester::handle_letter(Kind wanted) {
  const auto letter = std::ranges::find(inbox_, peer_, &Letter::from);
  if (letter == inbox_.end()) return {};
  const Message message = letter->message;
  inbox_.erase(letter);
  switch (message.kind) {
    case Kind::kPing:
    case Kind::kPong: its_memory_ = {message.address, RemoteKey{message.key}}; break;
    case Kind::kSent: due_bytes_ = message.count_bytes; break;
    default: break;
  }
  if (message.kind == Kind::kPing) send({.kind = Kind::kPong, .number = message.number});
  if (message.kind == wanted) return message;
  if (message.kind == Kind::kPing || message.kind == Kind::kSent) return {};
  throw TestFailed("the other node's messages make no sense: is it another version?");
}

/// Moves things on. Throws if nothing has come for too long.
void PairTester::step() {
  if (provider_.poll(*this, kEventsPerPoll) > 0) {
    last_event_ns_ = monotonic_ns();
  } else if (elapsed_ns(monotonic_ns(), last_event_ns_) > static_cast<std::uint64_t>(limit_ms_) * 1'000'000) {
    throw TestFailed(fmt::format("nothing has come for {:g} s", limit_ms_ / 1000.0));
  } else {
    ::sched_yield();
  }
  const bool has_letter = std::ranges::find(inbox_, peer_, &Letter::from) != inbox_.end();
  if (!has_letter && is_down_.size() > index_of(peer_) && is_down_[index_of(peer_)])
    throw TestFailed(std::string(kConnectionBroke));
}

void PairTester::turn() noexcept { static_cast<void>(provider_.poll(*this, kEventsPerPoll)); }

Delivery PairTester::on_message(PeerId peer, std::span<const std::byte> message) noexcept {
  Letter letter{peer, {}};
  if (message.size() != sizeof letter.message || index_of(peer) >= kMostPeers) return Delivery::kTaken;
  std::memcpy(&letter.message, message.data(), sizeof letter.message);
  inbox_.push_back(letter);
  return Delivery::kTaken;
}

void PairTester::on_write_arrived(PeerId peer, Immediate, std::size_t length_bytes) noexcept {
  if (index_of(peer) >= kMostPeers) return;
  if (arrived_bytes_.size() <= index_of(peer)) arrived_bytes_.resize(index_of(peer) + 1);
  arrived_bytes_[index_of(peer)] += length_bytes;
}

void PairTester::on_write_done(PeerId peer, WorkId, Status) noexcept {
  if (peer == peer_ && writes_ > 0) --writes_;
}

void PairTester::on_peer_down(PeerId peer, Status) noexcept {
  if (index_of(peer) >= kMostPeers) return;
  if (is_down_.size() <= index_of(peer)) is_down_.resize(index_of(peer) + 1);
  is_down_[index_of(peer)] = true;
}

}  // namespace ch3_offload
