#include "nic/nic_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "nic/placement.h"
#include "rdma/cycle_clock.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// How often a busy thread tells the counters of its works.
constexpr std::uint64_t kCountersInterval = 50 * CycleClock::kAbout20Microseconds;

/// The one whose thread this is.
thread_local const NicThread* thread_here = nullptr;

}  // namespace

Result<std::shared_ptr<NicThread>> NicThread::start(const WaitPolicy& wait) {
  FileDescriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) return system_error("eventfd of the network processor's thread", errno);
  std::shared_ptr<NicThread> made(new NicThread(wait, std::move(bell)));
  sigset_t all, before;
  sigfillset(&all);
  // A fault in a buffer of the program is the program's to handle.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    made->thread_ = std::thread(&NicThread::run, made.get());
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return system_error("the network processor's thread", error);
  pthread_setname_np(made->thread_.native_handle(), "ch3-offload-nic");
  return made;
}

/// A thread that shares its core sleeps often, and a fence of the sleeper alone costs it much.
NicThread::NicThread(const WaitPolicy& wait, FileDescriptor bell)
    : fencing_(wait.is_crowded() ? Fencing::kFull : fencing_of_threads()),
      bell_(std::move(bell)),
      wait_(wait) {}

NicThread::~NicThread() {
  if (!thread_.joinable()) return;
  ends_.store(true, std::memory_order_relaxed);
  ring();
  thread_.join();
}

std::optional<Error> NicThread::bind(const ProcessorSet& processors) {
  const int error = bind_thread(thread_.native_handle(), processors);
  if (error == 0) return {};
  return system_error("binding the network processor's thread to processors " + to_text(processors), error);
}

std::optional<Error> NicThread::add(NicWork& work) {
  const std::scoped_lock lock(changing_);
  Works& next = spare();
  next = *offered_.load(std::memory_order_relaxed);
  if (next.count == kMostWorks)
    return Error{Status::kNoMemory, 0, "the network processor's thread runs too many engines"};
  next.works[next.count++] = &work;
  offer(next);
  return {};
}

void NicThread::remove(NicWork& work) noexcept {
  const std::scoped_lock lock(changing_);
  Works& next = spare();
  next = *offered_.load(std::memory_order_relaxed);
  NicWork** const end = next.works.data() + next.count;
  if (std::remove(next.works.data(), end, &work) == end) return;
  --next.count;
  offer(next);
}

/// Returns when the thread runs these, and nothing else any more.
void NicThread::offer(const Works& works) noexcept {
  // Release, with the acquire in run(): the thread sees what was made before.
  offered_.store(&works, std::memory_order_release);
  ring();
  // Acquire, with the release in run(): the thread has done with what it ran before.
  while (runs_.load(std::memory_order_acquire) != &works) sched_yield();
}

/// After the store that the thread is to see.
void NicThread::ring() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

bool NicThread::runs_here() const noexcept { return thread_here == this; }

void NicThread::run() noexcept {
  thread_here = this;
  std::uint64_t told_at = CycleClock::now();
  bool is_told = true;
  std::size_t happened = 0;  // Instead of a sleep.
  wait_.begin();
  while (!ends_.load(std::memory_order_relaxed)) {
    if (const Works* const offered = offered_.load(std::memory_order_acquire);
        offered != runs_.load(std::memory_order_relaxed)) [[unlikely]]
      runs_.store(offered, std::memory_order_release);
    if (std::exchange(happened, 0) + turn() > 0) {
      wait_.found();
      is_told = false;
      if (const std::uint64_t now = CycleClock::now(); now - told_at > kCountersInterval) {
        told_at = now;
        tell_counters();
      }
      continue;
    }
    if (!is_told) {
      is_told = true;
      tell_counters();
    }
    switch (wait_.next()) {
      case WaitPolicy::Step::kPoll:
      case WaitPolicy::Step::kLook: break;
      case WaitPolicy::Step::kYield: sched_yield(); break;
      case WaitPolicy::Step::kSleep: happened = sleep(); break;
    }
  }
}

/// A turn of all. Returns how many things happened.
std::size_t NicThread::turn() noexcept {
  std::size_t happened = 0;
  for (NicWork* const work : runs_.load(std::memory_order_relaxed)->all()) happened += work->turn();
  return happened;
}

void NicThread::tell_counters() noexcept {
  for (NicWork* const work : runs_.load(std::memory_order_relaxed)->all()) work->tell_counters();
}

/// Sleeps until something wakes one of the works, or the bell rings. Does not if there is work: then it
/// returns how many things happened.
std::size_t NicThread::sleep() noexcept {
  wait_.sleeps(monotonic_ns());
  const std::span<NicWork* const> works = runs_.load(std::memory_order_relaxed)->all();
  const auto refuses = std::ranges::find_if_not(works, [](NicWork* one) { return one->arm(); });
  // Once more after arming: no wake-up is lost. Nothing is added or removed meanwhile.
  const bool is_armed = refuses == works.end();
  const std::size_t happened = is_armed ? turn() : 0;
  if (is_armed && happened == 0) wait_for_bell();
  std::for_each(works.begin(), refuses, [](NicWork* one) { one->disarm(); });
  wait_.wakes(monotonic_ns());
  return happened;
}

/// The bell stays readable from the change that it tells of until it is read here, behind the poll. So a
/// change that run() has not seen ends the next poll at once.
void NicThread::wait_for_bell() noexcept {
  constexpr std::size_t kMostDescriptors = 128;
  std::array<pollfd, kMostDescriptors> descriptors;
  std::size_t count = 0;
  descriptors[count++] = {bell_.get(), POLLIN, 0};
  std::uint64_t due_ns = UINT64_MAX;
  for (const NicWork* const work : runs_.load(std::memory_order_relaxed)->all()) {
    count += work->descriptors(std::span(descriptors).subspan(count));
    due_ns = std::min(due_ns, work->next_due_ns());
  }
  if (::poll(descriptors.data(), count, poll_ms(due_ns)) <= 0 || descriptors[0].revents == 0) return;
  std::uint64_t rings;
  [[maybe_unused]] const ssize_t drained = ::read(bell_.get(), &rings, sizeof rings);
}

}  // namespace ch3_offload
