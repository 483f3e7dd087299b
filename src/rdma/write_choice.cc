#include "rdma/write_choice.h"

#include <algorithm>
#include <bit>

namespace ch3_offload {
namespace {

/// Runs before the first trial, before the first one where shorter payloads have had one, and at most.
constexpr std::uint16_t kFirstRuns = 32, kTriedRuns = 64, kMostRuns = 4096;
/// Runs of a trial. The first ones take up to four times as long as later ones, because what they touch is
/// in no cache. What is still much slower after a third of them is given up.
constexpr std::uint16_t kTrialRuns = 48;
/// What the peer has decided holds for so many payloads.
constexpr std::uint8_t kFollows = 4;
/// Payloads of a run, if there is no end of them.
constexpr std::uint32_t kMostInRun = 16;

/// Follows what becomes faster at once, and what becomes slower in steps of at most an eighth: a process that
/// has lost its core for a moment says nothing about the way.
std::uint64_t smoothed(std::uint64_t so_far, std::uint64_t ticks) noexcept {
  if (so_far == 0) return ticks;
  if (ticks < so_far) return so_far - (so_far - ticks) / 2;
  return so_far + (std::min(ticks, 2 * so_far) - so_far + 7) / 8;
}

}  // namespace

WriteChoice::WriteChoice(std::size_t least_bytes, std::size_t least_written, Clock& clock) noexcept
    : clock_(clock), least_bytes_(least_bytes), timed_(&lengths_[0]) {
  for (Length& one : lengths_) {
    one.runs_to_trial = kFirstRuns;
    if (&one >= &of(least_written)) one.preferred = Way::kWrite;
  }
}

WriteChoice::Length& WriteChoice::of(std::size_t length_bytes) noexcept {
  const auto place = static_cast<std::size_t>(std::bit_width(length_bytes) - std::bit_width(least_bytes_));
  return lengths_[std::min(place, lengths_.size() - 1)];
}

/// Begins with what is known of the next shorter payloads, if these have had a trial.
void WriteChoice::adopt_shorter(Length& length) noexcept {
  if (&length == lengths_.data()) return;
  const Length& shorter = *(&length - 1);
  if (!shorter.is_tried()) return;
  length.preferred = shorter.preferred;
  length.begin_counting(kTriedRuns);
}

/// Of what is under way, nothing belongs to it.
void WriteChoice::begin_run(Length& length) noexcept {
  timed_ = &length;
  ++run_;
  if (!length.is_known()) adopt_shorter(length);
  way_ = length.next();
  is_pure_ = true;
  before_ = under_way_;
  count_ = 0;
  bytes_ = 0;
  began_ = clock_();
}

void WriteChoice::follow(std::size_t length_bytes, bool is_written) noexcept {
  Length& length = of(length_bytes);
  length.followed = is_written ? Way::kWrite : Way::kSlots;
  length.follows = kFollows;
}

WriteChoice::Choice WriteChoice::begin(std::size_t length_bytes) noexcept {
  Length& length = of(length_bytes);
  if (under_way_ == 0) begin_run(length);
  ++under_way_;
  Way way = &length == timed_ ? way_ : length.preferred;
  if (length.follows > 0) {
    --length.follows;
    way = length.followed;
    is_pure_ = false;
  }
  is_pure_ = is_pure_ && &length == timed_;
  return {way == Way::kWrite, run_};
}

void WriteChoice::end(std::uint32_t run, std::size_t length_bytes, bool was_written) noexcept {
  --under_way_;
  if (run != run_) return end_before();
  if (before_ > 0) return;  // It has overtaken what came before: there is no time yet.
  is_pure_ = is_pure_ && was_written == (way_ == Way::kWrite);
  bytes_ += length_bytes;
  if (++count_ < kMostInRun && under_way_ > 0) return;
  if (is_pure_) {
    constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
    timed_->learn(way_, std::max<std::uint64_t>((clock_() - began_) * kMib / bytes_, 1));
  } else if (way_ != timed_->preferred && timed_->follows == 0) {
    timed_->end_trial();
  }
  if (under_way_ > 0) begin_run(of(length_bytes));
}

void WriteChoice::drop(std::uint32_t run) noexcept {
  --under_way_;
  is_pure_ = false;
  if (run != run_) end_before();
}

/// Of what was under way before the run, one has come.
void WriteChoice::end_before() noexcept {
  if (--before_ == 0) began_ = clock_();
}

/// A run of that way has taken so many ticks for a mebibyte.
void WriteChoice::Length::learn(Way way, std::uint64_t ticks) noexcept {
  const bool is_trial = way != preferred;
  std::uint64_t& known = ticks_per_mib[index_of(way)];
  known = smoothed(is_trial && trials == 0 ? 0 : known, ticks);
  if (!is_trial) {
    ++runs;
    static_cast<void>(change_if_faster());
    return;
  }
  ++trials;
  if (trials == kTrialRuns || (trials == kTrialRuns / 3 && is_much_slower())) end_trial();
}

/// Whether the way that is tried is much slower than the preferred one.
bool WriteChoice::Length::is_much_slower() const noexcept {
  return ticks_per_mib[index_of(other_than(preferred))] * 2 > ticks_per_mib[index_of(preferred)] * 3;
}

/// Prefers the other way if it is known to be faster by an eighth.
bool WriteChoice::Length::change_if_faster() noexcept {
  const std::uint64_t other = ticks_per_mib[index_of(other_than(preferred))];
  if (other == 0 || other * 8 >= ticks_per_mib[index_of(preferred)] * 7) return false;
  preferred = other_than(preferred);
  begin_counting(kFirstRuns);
  return true;
}

/// If the preferred way stays, the other one is tried again after twice as many runs, or four times if it
/// is much slower.
void WriteChoice::Length::end_trial() noexcept {
  if (change_if_faster()) return;
  begin_counting(std::min<std::uint16_t>(runs_to_trial * (is_much_slower() ? 4 : 2), kMostRuns));
}

void WriteChoice::Length::begin_counting(std::uint16_t runs_until_trial) noexcept {
  runs = trials = 0;
  runs_to_trial = runs_until_trial;
}

}  // namespace ch3_offload
