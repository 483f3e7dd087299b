#include "portals/library.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace ch3_offload::portals {

Library& Library::instance() noexcept {
  static Library& library = *new Library;  // NOLINT: see its declaration.
  return library;
}

int Library::init() noexcept {
  if (!fork_mark_.is_owner()) return PTL_FAIL;
  const Lock locked = lock();
  if (!wake_descriptor_.valid()) wake_descriptor_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_descriptor_.valid()) return PTL_FAIL;
  init_count_.fetch_add(1, std::memory_order_relaxed);
  return PTL_OK;
}

void Library::fini() noexcept {
  if (!is_ready()) return;
  Lock locked = lock();
  const unsigned count = init_count_.load(std::memory_order_relaxed);
  if (count == 0) return;
  init_count_.store(count - 1, std::memory_order_relaxed);
  if (count > 1) return;
  for (unsigned number = 0; number < kInterfaces; ++number) {
    Interface* const interface = interface_at(number);
    if (interface == nullptr || !interface->is_open()) continue;
    interface->uses = 1;
    release_interface(locked, *interface);
  }
  is_aborted_.store(false, std::memory_order_relaxed);
}

void Library::abort() noexcept {
  Lock locked = lock();
  if (!is_ready()) return;
  is_aborted_.store(true, std::memory_order_relaxed);
  wake();
  left_.wait(locked, [this] { return waiters_ == 0; });
}

int Library::open_interface(Lock& lock, unsigned number, std::optional<std::uint32_t> pid,
                            const ptl_ni_limits_t* desired, Interface*& opened) {
  opened = interface_at(number);
  if (opened == nullptr) {
    opened = new Interface(number);
    // Release, with the acquire of interface_at(): it has been made.
    interfaces_[number].store(opened, std::memory_order_release);
  }
  left_.wait(lock, [this, opened] { return !opened->is_closing() && !is_ending_; });
  if (opened->is_open()) {
    ++opened->uses;
    return PTL_OK;
  }
  const bool is_first = process_ == nullptr;
  if (is_first) {
    Result<std::unique_ptr<PortalsProcess>> made = make_portals_process(pid);
    if (!made.ok()) return code_of(made.error());
    process_ = std::move(made.value());
    ++processes_made_;
    works_alone_.store(process_->works_alone(), std::memory_order_relaxed);
    if (!works_alone()) set_call_driven(*this);
  } else if (pid && make_physical_id(0, *pid) != (ProcessId{number_of(process_->self()) & UINT32_MAX})) {
    return PTL_ARG_INVALID;
  }
  int code = PTL_NO_SPACE;
  try {
    code = opened->open(*process_, desired);
  } catch (const std::bad_alloc&) {  // As PTL_NO_SPACE.
  }
  if (code == PTL_OK) opened->uses = 1;
  if (code != PTL_OK && is_first) end_process(lock);
  return code;
}

int Library::code_of(const Error& error) noexcept {
  if (error.status == Status::kAgain) return PTL_PID_IN_USE;
  if (error.status == Status::kUnsupported) return PTL_ARG_INVALID;
  static_cast<void>(std::fprintf(stderr, "libportals: %s\n", error.message.c_str()));
  return error.status == Status::kNoMemory ? PTL_NO_SPACE : PTL_FAIL;
}

void Library::release_interface(Lock& lock, Interface& interface) noexcept {
  if (--interface.uses > 0) return;
  interface.close();
  wake();
  // A transfer that a peer or a device carries out cannot be revoked: its memory is in use until it has
  // ended.
  while (!port().close(interface.number())) work_and_yield(lock);
  interface.end();
  left_.notify_all();
  const auto is_open = [](const std::atomic<Interface*>& one) {
    const Interface* const made = one.load(std::memory_order_relaxed);
    return made != nullptr && (made->is_open() || made->is_closing());
  };
  if (std::none_of(interfaces_.begin(), interfaces_.end(), is_open)) end_process(lock);
}

/// Its sleepers poll its descriptors, so it outlives them.
void Library::end_process(Lock& lock) noexcept {
  reset_call_driven();
  is_ending_ = true;
  wake();
  left_.wait(lock, [this] { return sleepers_ == 0; });
  process_.reset();
  works_alone_.store(false, std::memory_order_relaxed);
  is_ending_ = false;
  left_.notify_all();
}

Interface* Library::find_interface(ptl_handle_ni_t handle) noexcept {
  Interface* const interface = interface_with(handle);
  return interface != nullptr && interface->handle() == handle ? interface : nullptr;
}

Interface* Library::interface_with(ptl_handle_any_t handle) noexcept {
  Interface* const interface = interface_at(interface_of(handle));
  return interface != nullptr && interface->is_open() ? interface : nullptr;
}

std::size_t Library::work() noexcept {
  const std::size_t happened = port().progress();
  process_->say_news();
  // It has read what would have ended their sleep.
  if (happened > 0) wake();
  return happened;
}

void Library::work_and_yield(Lock& lock) noexcept {
  if (work() > 0) return;
  lock.unlock();
  sched_yield();
  lock.lock();
}

void Library::wake() noexcept {
  if (sleepers_ == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_descriptor_.get(), &one, sizeof one);
}

Waiter& Library::waiter_of_this_thread() noexcept {
  // Of the process that there was when this thread waited last: another one may wait in another way.
  thread_local std::optional<Waiter> waiter;
  thread_local std::uint64_t made_for = 0;
  if (made_for != processes_made_) {
    waiter.emplace(process_->wait_policy());
    made_for = processes_made_;
  }
  return *waiter;
}

Library::Wait::Wait(Library& library, Lock& lock, ptl_time_t timeout) noexcept
    : library_(library),
      lock_(lock),
      waiter_(library.waiter_of_this_thread()),
      deadline_ns_(timeout == PTL_TIME_FOREVER ? kNoDeadline
                                               : monotonic_ns() + std::uint64_t{timeout} * 1'000'000),
      is_said_(library.works_alone()) {
  ++library_.waiters_;
  waiter_.begin();
}

Library::Wait::~Wait() {
  if (--library_.waiters_ == 0) library_.left_.notify_all();
}

void Library::enter_sleep(SleepSet& set) noexcept {
  set.add(wake_descriptor_.get());
  set.add(port().descriptors());
  set.end_after(port().next_due_ns());
  ++sleepers_;
}

void Library::leave_sleep() noexcept {
  if (--sleepers_ > 0) return wake();
  std::uint64_t wakes;
  [[maybe_unused]] const ssize_t drained = read(wake_descriptor_.get(), &wakes, sizeof wakes);
  left_.notify_all();
}

/// In a call of MPI. Whoever has the lock works, too. In a child of fork(), the port is its parent's.
std::size_t Library::work_for_other() noexcept {
  if (!fork_mark_.is_owner()) return 0;
  const Lock locked(mutex_, std::try_to_lock);
  return !locked || process_ == nullptr ? 0 : work();
}

bool Library::begin_sleep(SleepSet& set) noexcept {
  if (!fork_mark_.is_owner()) return true;
  const Lock locked(mutex_, std::try_to_lock);
  if (!locked || process_ == nullptr || is_ending_ || !arm()) return false;
  const bool may_sleep = work() == 0;  // "The sleep rule": its caller's last look may find the lock taken.
  if (may_sleep)
    enter_sleep(set);
  else
    disarm();
  return may_sleep;
}

void Library::end_sleep() noexcept {
  if (!fork_mark_.is_owner()) return;
  const Lock locked = lock();
  leave_sleep();
  disarm();
}

bool Library::may_await_answers() noexcept {
  return std::ranges::any_of(interfaces_, [](const std::atomic<Interface*>& one) {
    const Interface* const interface = one.load(std::memory_order_relaxed);
    return interface != nullptr && interface->descriptors.live() > 0;
  });
}

void Library::Wait::sleep(SleepSet& set) noexcept {
  library_.enter_sleep(set);
  const std::uint64_t now_ns = monotonic_ns();
  if (first_sleep_ns_ == 0) first_sleep_ns_ = now_ns;
  if (!is_said_ && elapsed_ns(now_ns, first_sleep_ns_) >= kLongNs) {
    is_said_ = true;
    if (library_.may_await_answers()) library_.process().waits_for_long();
  }
  if (deadline_ns_ != kNoDeadline) set.end_after(elapsed_ns(deadline_ns_, now_ns));
  if (!is_said_) set.end_after(kLongNs - elapsed_ns(now_ns, first_sleep_ns_));
  lock_.unlock();
  static_cast<void>(set.sleep());
  lock_.lock();
  library_.leave_sleep();
}

}  // namespace ch3_offload::portals
