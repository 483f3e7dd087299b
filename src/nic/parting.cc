#include "nic/parting.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

/// Whoever said his processor in this time is there still. Longer than the time between two looks of a wait
/// (WaitPolicy), and shorter than that between two moves of a process by the scheduler.
constexpr std::uint64_t kRecentNs = 2'000'000;
/// Two that meet again sooner were not helped by their move.
constexpr std::uint64_t kHelpedNs = 5'000'000;
constexpr std::uint64_t kShortestPauseNs = 1'000'000;
constexpr std::uint64_t kLongestPauseNs = 1'000'000'000;
/// A move that took longer met a program that does not share its processor, or more of them than one.
constexpr std::uint64_t kLongMoveNs = 50'000'000;
/// Each costs a cache miss. Where there are more, each look takes the next ones.
constexpr std::size_t kMostPeersInALook = 16;

std::optional<std::uint32_t> processor_here() noexcept {
  const int number = ::sched_getcpu();
  if (number < 0) return {};
  return static_cast<std::uint32_t>(number);
}

bool move_here(std::uint32_t processor, const ProcessorSet& allowed) noexcept {
  try {
    if (bind_thread(::pthread_self(), {processor}) != 0) return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  // It fails if a control group allows none of them any more. The kernel has chosen the mask then.
  static_cast<void>(bind_thread(::pthread_self(), allowed));
  return true;
}

/// The first of `allowed` behind `here`, in a circle, where none of `peers` has waited. So pairs that part on
/// different processors at the same time go to different ones. Nothing: there is none.
std::optional<std::uint32_t> free_processor(const ProcessorSet& allowed, std::uint32_t here,
                                            std::span<const WaitingPlace* const> peers) {
  ProcessorSet free = allowed;
  free.erase(here);
  for (const WaitingPlace* const peer : peers)
    if (const std::optional<std::uint32_t> taken = peer->processor()) free.erase(*taken);
  if (free.empty()) return {};
  const auto behind = free.upper_bound(here);
  return behind != free.end() ? *behind : *free.begin();
}

}  // namespace

const Parting::Machine& Parting::this_machine() noexcept {
  static constexpr Machine kThis{monotonic_ns, processor_here, [] { return affinity_of(0); }, move_here};
  return kThis;
}

bool Parting::look(const WaitingPlaces& places) noexcept {
  if (places.own == nullptr || places.peers.empty()) return false;
  const std::optional<std::uint32_t> here = machine_.processor();
  if (!here) return false;
  const std::uint64_t now_ns = machine_.now_ns();
  places.own->say(*here, now_ns);
  if (!meets_one(places.peers, *here, now_ns) || !may_move(now_ns)) return false;
  try {
    return move(places, *here, now_ns);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool Parting::meets_one(std::span<const WaitingPlace* const> peers, std::uint32_t here,
                        std::uint64_t now_ns) noexcept {
  for (std::size_t count = std::min(peers.size(), kMostPeersInALook); count > 0; --count)
    if (peers[next_peer_++ % peers.size()]->processor_since(now_ns, kRecentNs) == here) return true;
  return false;
}

bool Parting::may_move(std::uint64_t now_ns) noexcept {
  if (tried_at_ns_ == 0) return true;
  const std::uint64_t passed_ns = now_ns - tried_at_ns_;
  if (!std::exchange(has_met_since_, true))
    pause_ns_ = passed_ns >= kHelpedNs ? 0 : std::clamp(2 * pause_ns_, kShortestPauseNs, kLongestPauseNs);
  return passed_ns >= pause_ns_;
}

bool Parting::move(const WaitingPlaces& places, std::uint32_t here, std::uint64_t now_ns) {
  tried_at_ns_ = now_ns;
  has_met_since_ = false;
  const ProcessorSet allowed = machine_.allowed();
  const std::optional<std::uint32_t> there = free_processor(allowed, here, places.peers);
  if (!there) return false;
  places.own->say(*there, now_ns);  // First: the peer that gets this processor next is not to move, too.
  if (machine_.move(*there, allowed)) {
    ++partings_;
    if (const std::uint64_t moved_at_ns = machine_.now_ns(); moved_at_ns - now_ns > kLongMoveNs) {
      tried_at_ns_ = moved_at_ns;
      pause_ns_ = kLongestPauseNs;
      has_met_since_ = true;  // So the pause stays.
    }
    return true;
  }
  places.own->say(here, now_ns);
  return false;
}

}  // namespace ch3_offload
