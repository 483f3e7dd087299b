#include "rdma/verbs/links/parking.h"

#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

/// A peer that takes longer to park is busy: another one is asked, too.
constexpr std::uint64_t kPatienceNs = 10'000'000;

/// A link is not parked before it had time for what it was made for.
constexpr std::uint64_t kLeastUpNs = 2'000'000;

}  // namespace

void Parking::make_way(const Rail& rail, std::size_t wanted, std::uint64_t now_ns) noexcept {
  VerbsLane* victim = nullptr;
  std::size_t leaving = 0;
  for (const auto& [number, lane] : rail.lanes()) {
    if (lane->link.parking) {
      leaving += elapsed_ns(now_ns, lane->parking_since_ns) < kPatienceNs;
      continue;
    }
    if (lane->link.state != LinkState::kUp || lane->peer->unfinished_write != kNone) continue;
    if (elapsed_ns(now_ns, lane->up_since_ns) < kLeastUpNs) continue;
    if (victim == nullptr || lane->last_used < victim->last_used) victim = lane;
  }
  if (victim != nullptr && leaving < wanted) begin(*victim, now_ns);
}

void Parking::on_heard(VerbsLane& lane) noexcept {
  lane.link.park_heard = true;
  if (lane.link.parking)
    advance(lane);
  else
    begin(lane, monotonic_ns());
}

void Parking::begin(VerbsLane& lane, std::uint64_t now_ns) noexcept {
  lane.link.parking = true;
  lane.parking_since_ns = now_ns;
  lanes_.add(lane);
  advance(lane);
}

void Parking::advance(VerbsLane& lane) noexcept {
  Link& link = lane.link;
  if (!link.parking || link.state != LinkState::kUp) return;
  if (!link.park_sent && link.takes_last_item()) {
    link.park_sent = transport_.push_notice(lane, SlotHeader::kPark);
    if (link.state != LinkState::kUp) return;  // Posting it failed.
  }
  if (!link.all_retired()) {
    if (!link.tail_is_signaled()) transport_.flush_tail(lane);
  } else if (link.park_sent && link.park_heard) {
    client_.on_parked(lane);
  }
}

}  // namespace ch3_offload
