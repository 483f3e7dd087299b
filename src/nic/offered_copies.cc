#include "nic/offered_copies.h"

#include <sys/stat.h>

#include <cstdio>
#include <utility>

namespace ch3_offload {
namespace {

/// Within 20 us a client that waits has taken it. A long payload takes the processor some 0.7 ns a byte, so
/// that a fifth of that more is little.
constexpr std::size_t kBytesPer20Microseconds = std::size_t{160} << 10;
/// In a turn of a busy processor the client has its own.
constexpr std::uint64_t kLongTurn = 50 * CycleClock::kAbout20Microseconds;
/// A copy takes less than so many times the patience.
constexpr std::uint64_t kSlowest = 4;

std::uint64_t patience(std::size_t length_bytes) noexcept {
  return CycleClock::kAbout20Microseconds * (1 + length_bytes / kBytesPer20Microseconds);
}

}  // namespace

void OfferedCopies::offer(OfferedCopy& copy) noexcept {
  if (!is_out_ && waiting_.empty()) waiting_until_ = (*clock_)() + kLongTurn;
  copy.state = OfferedCopy::State::kWaiting;
  waiting_.push_back(copy);
}

/// The client has not begun it, and will not any more. False: it has.
bool OfferedCopies::take_back() noexcept {
  std::uint64_t open = number_;
  if (!word_->compare_exchange_strong(open, 0, std::memory_order_acq_rel)) return false;
  is_out_ = false;
  out_ = nullptr;
  return true;
}

void OfferedCopies::withdraw_all() noexcept {
  while (OfferedCopy* const one = waiting_.pop_front()) one->state = OfferedCopy::State::kWithdrawn;
}

void OfferedCopies::expire() noexcept {
  if (!is_out_ && waiting_.empty()) [[likely]]
    return;
  const std::uint64_t now = (*clock_)();
  OfferedCopy* const out = out_;
  if (is_open()) {
    if (word_->load(std::memory_order_acquire) == number_ && now > withdraws_at_ && take_back()) {
      if (out != nullptr) out->state = OfferedCopy::State::kWithdrawn;
      return withdraw_all();
    }
    is_taken_ = word_->load(std::memory_order_acquire) != number_;
    if (is_taken_ && out != nullptr) {
      out->state = OfferedCopy::State::kTaken;
      waiting_until_ = now + kLongTurn + kSlowest * patience(out->length_bytes);
    }
  }
  if (now > waiting_until_) withdraw_all();
}

OfferedCopy::State OfferedCopies::look(OfferedCopy& copy) noexcept {
  if (copy.state == OfferedCopy::State::kOpen || copy.state == OfferedCopy::State::kWaiting) expire();
  return copy.state;
}

void OfferedCopies::withdraw(OfferedCopy& copy) noexcept {
  if (copy.state == OfferedCopy::State::kWaiting) waiting_.remove(copy);
  if (out_ == &copy && !take_back()) {
    is_taken_ = true;
    out_ = nullptr;
  }
  copy.state = OfferedCopy::State::kNone;
}

const OfferedCopy* OfferedCopies::open_next() noexcept {
  if (!has_next()) return nullptr;
  if (word_->load(std::memory_order_relaxed) != number_ || number_ == 0) {
    if (++number_ == 0) ++number_;
    word_->store(number_, std::memory_order_release);
  }
  return waiting_.front();
}

void OfferedCopies::told() noexcept {
  out_ = waiting_.pop_front();
  out_->state = OfferedCopy::State::kOpen;
  is_out_ = true;
  is_taken_ = false;
  withdraws_at_ = (*clock_)() + patience(out_->length_bytes);
  waiting_until_ = withdraws_at_ + kLongTurn;
}

bool OfferedCopies::took_command(std::uint64_t number, std::uint64_t copied_bytes) noexcept {
  const bool is_answer = is_out_ && number == number_ && word_->load(std::memory_order_acquire) != number_;
  OfferedCopy* const copy = is_answer ? std::exchange(out_, nullptr) : nullptr;
  if (!is_answer || (copy != nullptr && copied_bytes > copy->length_bytes)) return false;
  is_out_ = is_taken_ = false;
  word_->store(0, std::memory_order_relaxed);
  waiting_until_ = (*clock_)() + kLongTurn;
  if (copy != nullptr)
    copy->state =
        copied_bytes == copy->length_bytes ? OfferedCopy::State::kDone : OfferedCopy::State::kFailed;
  return true;
}

bool has_our_pids(pid_t process) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/ns/pid", static_cast<int>(process));
  struct stat ours, its;
  return ::stat("/proc/self/ns/pid", &ours) == 0 && ::stat(path, &its) == 0 && ours.st_dev == its.st_dev &&
         ours.st_ino == its.st_ino;
}

}  // namespace ch3_offload
