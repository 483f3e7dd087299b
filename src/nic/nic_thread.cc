#include "nic/nic_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "nic/placement.h"
#include "rdma/cycle_clock.h"
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
      waiter_(wait) {}

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

NicThread::Pause::Pause(NicThread& thread) noexcept : thread_(thread), lock_(thread.changing_) {
  Works& none = thread_.spare();
  none.count = 0;
  thread_.offer(none);
}

/// What it ran before is in the other list still.
NicThread::Pause::~Pause() { thread_.offer(thread_.spare()); }

/// Returns when the thread runs these, and nothing else any more.
void NicThread::offer(const Works& works) noexcept {
  // Release, with the acquire in run(): the thread sees what was made before.
  offered_.store(&works, std::memory_order_release);
  ring();
  // Acquire, with the release in run(): the thread has done with what it ran before.
  for (const Works* runs; (runs = runs_.load(std::memory_order_acquire)) != &works;)
    runs_.wait(runs, std::memory_order_acquire);
}

/// After the store that the thread is to see.
void NicThread::ring() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

bool NicThread::runs_here() const noexcept { return thread_here == this; }

void NicThread::run() noexcept {
  thread_here = this;
  waiter_.begin();
  while (!ends_.load(std::memory_order_relaxed)) {
    if (const Works* const offered = offered_.load(std::memory_order_acquire);
        offered != runs_.load(std::memory_order_relaxed)) [[unlikely]] {
      runs_.store(offered, std::memory_order_release);
      runs_.notify_all();
    }
    waiter_.round(*this);
  }
}

/// A turn of all. Tells their counters when there is nothing more to do, and now and then.
std::size_t NicThread::turn() noexcept {
  const std::span<NicWork* const> works = runs_.load(std::memory_order_relaxed)->all();
  std::size_t happened = 0;
  for (NicWork* const work : works) happened += work->turn();
  if (happened == 0 && is_told_) return 0;
  is_told_ = happened == 0;
  const std::uint64_t now = CycleClock::now();
  if (!is_told_ && now - told_at_ <= kCountersInterval) return happened;
  told_at_ = now;
  for (NicWork* const work : works) work->tell_counters();
  return happened;
}

/// Nothing is added or removed until the sleep is over.
WaitPolicy::Step NicThread::arm() noexcept {
  const std::span<NicWork* const> works = runs_.load(std::memory_order_relaxed)->all();
  const auto refuses = std::ranges::find_if_not(works, [](NicWork* one) { return one->arm(); });
  if (refuses == works.end()) return WaitPolicy::Step::kSleep;
  std::for_each(works.begin(), refuses, [](NicWork* one) { one->disarm(); });
  return WaitPolicy::Step::kPoll;
}

void NicThread::disarm() noexcept {
  for (NicWork* const work : runs_.load(std::memory_order_relaxed)->all()) work->disarm();
}

/// The bell stays readable from the change that it tells of until it is read here, behind the sleep. So a
/// change that run() has not seen ends the next sleep at once.
void NicThread::sleep(SleepSet& set) noexcept {
  set.add(bell_.get());
  for (const NicWork* const work : runs_.load(std::memory_order_relaxed)->all()) work->add_to(set);
  if (!set.sleep()) return;
  std::uint64_t rings;
  [[maybe_unused]] const ssize_t drained = ::read(bell_.get(), &rings, sizeof rings);
}

}  // namespace ch3_offload
