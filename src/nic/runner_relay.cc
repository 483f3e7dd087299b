#include "nic/runner_relay.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

namespace ch3_offload {
namespace {

/// A copy that a spare thread has seen twice at this distance is late, if its thread sleeps.
constexpr std::chrono::microseconds kLook = std::chrono::milliseconds(4);
/// Likewise, where the copy is expected to be late: see give_way().
constexpr std::chrono::microseconds kHurriedLook{200};
/// Looks that found the runner asleep, after which the spare thread sleeps, too.
constexpr int kIdleLooks = 25;

}  // namespace

RunnerRelay::RunnerRelay() noexcept : bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

// Copies.

ssize_t RunnerRelay::copy(pid_t thread, const iovec& here, std::span<const iovec> there,
                          bool is_write) noexcept {
  const std::uint64_t number = begin();
  const ssize_t moved = MemoryCopier::copy(thread, here, there, is_write);
  end(number);
  return moved;
}

ssize_t RunnerRelay::copy_by_file(const FileDescriptor& memory, const iovec& here,
                                  std::span<const iovec> there, bool is_write) noexcept {
  const std::uint64_t number = begin();
  const ssize_t moved = MemoryCopier::copy_by_file(memory, here, there, is_write);
  end(number);
  return moved;
}

/// The list of its memory waits for whoever changes that.
bool RunnerRelay::may_have(pid_t pid, const iovec& there, bool is_write) noexcept {
  const std::uint64_t number = begin();
  const bool may = MemoryCopier::may_have(pid, there, is_write);
  end(number);
  return may;
}

std::uint64_t RunnerRelay::begin() noexcept {
  const std::uint64_t number = ++copies_;
  const bool hurries = std::exchange(gives_way_, false);
  copying_.store(number, std::memory_order_release);
  if (hurries) [[unlikely]] {
    const std::scoped_lock lock(mutex_);
    hurried_ = number;
    looks_.notify_one();
  }
  return number;
}

/// Returns when this thread is the runner. Keeps errno.
void RunnerRelay::end(std::uint64_t copy) noexcept {
  if (copying_.compare_exchange_strong(copy, 0, std::memory_order_relaxed)) [[likely]]
    return;
  const int error = errno;
  std::unique_lock lock(mutex_);
  const std::uint64_t turn = ++asked_;
  is_asked_.store(true, std::memory_order_relaxed);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(bell_.get(), &one, sizeof one);
  returns_.wait(lock, [&] { return returned_ >= turn && !ends_; });
  runner_.store(::gettid(), std::memory_order_relaxed);
  errno = error;
}

void RunnerRelay::wakes() noexcept {
  // Pairs with watch(): either it sees that the runner is awake, or this thread sees that it dozes.
  is_asleep_.store(false, std::memory_order_seq_cst);
  if (!is_dozing_.load(std::memory_order_seq_cst)) return;
  const std::scoped_lock lock(mutex_);
  looks_.notify_one();
}

// The threads.

void RunnerRelay::run(Loop loop) {
  loop_ = std::move(loop);
  if (bell_.valid()) {
    const std::scoped_lock lock(mutex_);
    add_spare();
  }
  take_part(true);
  for (std::thread& other : others_) other.join();
}

/// Without a thread, there is no spare one.
void RunnerRelay::add_spare() try {
  others_.emplace_back([this] { take_part(false); });
} catch (const std::bad_alloc&) {
} catch (const std::system_error&) {
}

void RunnerRelay::take_part(bool is_runner) {
  for (; is_runner || become_runner(); is_runner = false) {
    runner_.store(::gettid(), std::memory_order_relaxed);
    if (!loop_()) return end_all();
    give_place();
  }
}

/// Waits until this spare thread is the runner. False: all is over.
bool RunnerRelay::become_runner() {
  std::unique_lock lock(mutex_);
  spares_.wait(lock, [this] { return !is_watched_ || ends_; });
  is_watched_ = true;
  const bool is_runner = watch(lock);
  is_watched_ = false;
  if (!is_runner) return false;
  ++takeovers_;
  // One runs, and one is to look.
  if (++away_ == others_.size()) add_spare();
  spares_.notify_one();
  return true;
}

/// Looks until the runner's copy is late. False: all is over.
bool RunnerRelay::watch(std::unique_lock<std::mutex>& lock) {
  std::uint64_t seen = 0;
  for (int idle = 0; !ends_;) {
    std::uint64_t copy = copying_.load(std::memory_order_acquire);
    const bool is_hurried = copy != 0 && copy == hurried_;
    const bool is_late = copy != 0 && (copy == seen || is_hurried) && runner_sleeps();
    if (is_late && copying_.compare_exchange_strong(copy, 0, std::memory_order_acquire)) return true;
    if (idle >= kIdleLooks) {
      is_dozing_.store(true, std::memory_order_seq_cst);
      if (is_asleep_.load(std::memory_order_seq_cst)) looks_.wait(lock);
      is_dozing_.store(false, std::memory_order_relaxed);
      idle = 0;
    } else if (looks_.wait_for(lock, is_hurried ? kHurriedLook : kLook) == std::cv_status::timeout) {
      seen = copy;
      idle = is_asleep_.load(std::memory_order_relaxed) ? idle + 1 : 0;
    }
  }
  return false;
}

/// Whether the kernel says of the runner's thread that it waits for something. Without /proc: true.
bool RunnerRelay::runner_sleeps() const noexcept {
  std::array<char, 128> line;
  std::snprintf(line.data(), line.size(), "/proc/self/task/%d/stat",
                static_cast<int>(runner_.load(std::memory_order_relaxed)));
  const FileDescriptor file(::open(line.data(), O_RDONLY | O_CLOEXEC));
  const ssize_t length = file.valid() ? ::read(file.get(), line.data(), line.size()) : 0;
  // "PID (NAME) STATE ...", and the name may have any characters: proc(5).
  const std::string_view text(line.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string_view::npos || !text.substr(name_end).starts_with(") R");
}

/// To the thread that has asked first.
void RunnerRelay::give_place() noexcept {
  const std::scoped_lock lock(mutex_);
  ++returned_;
  --away_;
  if (returned_ == asked_) {
    is_asked_.store(false, std::memory_order_relaxed);
    std::uint64_t rung = 0;
    [[maybe_unused]] const ssize_t read = ::read(bell_.get(), &rung, sizeof rung);
  }
  returns_.notify_all();
}

void RunnerRelay::end_all() {
  const std::scoped_lock lock(mutex_);
  if (away_ > 0) std::_Exit(EXIT_SUCCESS);
  ends_ = true;
  looks_.notify_all();
  spares_.notify_all();
}

}  // namespace ch3_offload
