#include "nic/thread_driver.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "rdma/cycle_clock.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// An answer takes some hundred nanoseconds of a processor that runs on another core.
constexpr std::uint32_t kTurnsBeforeYield = 200;

/// How often a busy thread tells its counters.
constexpr std::uint64_t kCountersInterval = 50 * CycleClock::kAbout20Microseconds;

/// The driver whose thread this is.
thread_local const ThreadDriver* driver_here = nullptr;

}  // namespace

Result<std::unique_ptr<ThreadDriver>> ThreadDriver::create(const EngineConfig& config,
                                                           std::span<Provider* const> providers,
                                                           const WaitPolicy& wait) {
  Result<PortMemory> memory = PortMemory::make();
  if (!memory.ok()) return memory.error();
  memory.value().close_files();
  // A thread that shares its core sleeps often.
  if (!wait.is_crowded()) memory.value().set_fencing(fencing_of_threads());
  return std::unique_ptr<ThreadDriver>(
      new ThreadDriver(std::make_unique<PortMemory>(std::move(memory.value())), config, providers, wait));
}

std::optional<Error> ThreadDriver::start() {
  server_.tell_counters();
  sigset_t all, before;
  sigfillset(&all);
  // A fault in a buffer of the program is the program's to handle.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    thread_ = std::thread(&ThreadDriver::run, this);
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return system_error("the network processor's thread", error);
  pthread_setname_np(thread_.native_handle(), "ch3-offload-nic");
  return {};
}

std::optional<Error> ThreadDriver::bind(const ProcessorSet& processors) {
  const int error = bind_thread(thread_.native_handle(), processors);
  if (error == 0) return {};
  return system_error("binding the network processor's thread to processors " + to_text(processors), error);
}

ThreadDriver::ThreadDriver(std::unique_ptr<PortMemory> memory, const EngineConfig& config,
                           std::span<Provider* const> providers, const WaitPolicy& wait)
    : RingPort(*memory, config.trace),
      memory_(std::move(memory)),
      port_(config, providers),
      server_(port_, *memory_, config.trace),
      keeps_memory_(port_.keeps_memory()),
      card_(port_.card()),
      wait_(wait) {}

void ThreadDriver::stop() noexcept {
  if (!thread_.joinable()) return;
  ends_.store(true, std::memory_order_seq_cst);
  PortMemory::ring(memory_->words().nic_sleeps, memory_->nic_bell(),
                   memory_->ring_counters().client.bells_rung);
  thread_.join();
}

void ThreadDriver::wait_for_processor(std::uint32_t turns) noexcept {
  if (turns >= kTurnsBeforeYield) sched_yield();
}

Result<TargetPort*> ThreadDriver::attach_targets(ProcessBook& book) {
  Result<PortMemory> memory = PortMemory::make();
  if (!memory.ok()) return memory.error();
  memory.value().close_files();
  memory.value().set_fencing(memory_->fencing());
  try {
    second_ = std::make_unique<SecondClient>(std::move(memory.value()), port_, book);
  } catch (const std::bad_alloc&) {
    return Error{Status::kNoMemory, 0, "no memory for a second client of the network processor"};
  }
  offer(&second_->server);
  return static_cast<TargetPort*>(&second_->port);
}

void ThreadDriver::detach_targets() noexcept {
  if (second_ == nullptr) return;
  offer(nullptr);
  second_.reset();
}

/// Returns when the thread serves that, and nothing else any more.
void ThreadDriver::offer(TargetServer* targets) noexcept {
  // Pairs with the load in turn(): the thread sees what was made before.
  offered_.store(targets, std::memory_order_seq_cst);
  PortMemory::ring(memory_->words().nic_sleeps, memory_->nic_bell(),
                   memory_->ring_counters().client.bells_rung);
  // Acquire: pairs with the store in turn(): the thread has done with what it served before.
  for (std::uint32_t turns = 0; thread_.joinable() && serving_.load(std::memory_order_acquire) != targets;
       ++turns)
    wait_for_processor(turns);
}

bool ThreadDriver::runs_here() const noexcept { return driver_here == this; }

void ThreadDriver::run() noexcept {
  driver_here = this;
  std::uint64_t told_at = CycleClock::now();
  bool is_told = true;
  wait_.begin();
  while (!ends_.load(std::memory_order_relaxed)) {
    const TargetServer* const targets = serving_.load(std::memory_order_relaxed);
    if (server_.is_refused() || (targets != nullptr && targets->is_refused())) [[unlikely]] {
      // Both ends are this process: nobody could go on.
      std::fputs("ch3:offload: the ring of commands holds rubbish: this process's memory was overwritten\n",
                 stderr);
      std::abort();
    }
    if (turn() > 0) {
      wait_.found();
      is_told = false;
      if (const std::uint64_t now = CycleClock::now(); now - told_at > kCountersInterval) {
        told_at = now;
        server_.tell_counters();
      }
      continue;
    }
    if (!is_told) {
      is_told = true;
      server_.tell_counters();
    }
    switch (wait_.next()) {
      case WaitPolicy::Step::kPoll: break;
      case WaitPolicy::Step::kYield: sched_yield(); break;
      case WaitPolicy::Step::kSleep: sleep(); break;
    }
  }
}

/// A turn of both servers. Returns how many things happened.
std::size_t ThreadDriver::turn() noexcept {
  std::size_t happened = server_.turn();
  TargetServer* const targets = offered_.load(std::memory_order_acquire);
  if (targets != serving_.load(std::memory_order_relaxed)) {
    serving_.store(targets, std::memory_order_release);
    ++happened;
  }
  if (targets != nullptr) happened += targets->turn();
  return happened;
}

/// Sleeps until a client, a provider or the end of the driver wakes the thread. Does not if there is work.
void ThreadDriver::sleep() noexcept {
  wait_.sleeps(monotonic_ns());
  // While events wait for room, the engine must not work.
  const bool is_blocked = server_.is_blocked();
  if (is_blocked || port_.arm()) {
    // Once more after arming, both ways: no wake-up is lost.
    if (server_.arm()) {
      TargetServer* const targets = serving_.load(std::memory_order_relaxed);
      if (targets == nullptr || targets->arm()) {
        const bool is_over =
            ends_.load(std::memory_order_seq_cst) || offered_.load(std::memory_order_seq_cst) != targets;
        if (!is_over && turn() == 0) wait_for_bell(is_blocked, targets);
        // If it was taken away meanwhile, its memory is gone.
        if (targets != nullptr && serving_.load(std::memory_order_relaxed) == targets) targets->disarm();
      }
      server_.disarm();
    }
    port_.disarm();
  }
  wait_.wakes(monotonic_ns());
}

void ThreadDriver::wait_for_bell(bool is_blocked, const TargetServer* targets) noexcept {
  constexpr std::size_t kMostDescriptors = 8;
  pollfd descriptors[kMostDescriptors + 3];
  std::size_t count = 0;
  int timeout_ms = -1;
  if (targets != nullptr) {
    descriptors[count++] = {targets->bell(), POLLIN, 0};
    descriptors[count++] = {targets->book_descriptor(), POLLIN, 0};  // -1 is passed over.
    timeout_ms = poll_ms(targets->next_due_ns());
  }
  descriptors[count++] = {memory_->nic_bell().sleeper, POLLIN, 0};
  for (const int descriptor : port_.descriptors())
    if (!is_blocked && count < kMostDescriptors + 3) descriptors[count++] = {descriptor, POLLIN, 0};
  static_cast<void>(::poll(descriptors, count, timeout_ms));
}

}  // namespace ch3_offload
