#include "nic/thread_driver.h"

#include <cstdio>
#include <cstdlib>
#include <new>

namespace ch3_offload {
namespace {

Result<PortMemory> make_memory(Fencing fencing) {
  Result<PortMemory> memory = PortMemory::make(PortMemory::Client::kHere);
  if (!memory.ok()) return memory;
  memory.value().set_fencing(fencing);
  return memory;
}

/// Both ends are this process: nobody could go on.
[[noreturn]] void end_for_rubbish() noexcept {
  std::fputs("ch3:offload: the ring of commands holds rubbish: this process's memory was overwritten\n",
             stderr);
  std::abort();
}

}  // namespace

Result<std::unique_ptr<ThreadDriver>> ThreadDriver::create(const EngineConfig& config,
                                                           std::span<Provider* const> providers,
                                                           std::shared_ptr<NicThread> thread,
                                                           const WaitPolicy& wait) {
  Result<PortMemory> memory = make_memory(thread->fencing());
  if (!memory.ok()) return memory.error();
  return std::unique_ptr<ThreadDriver>(new ThreadDriver(
      std::make_unique<PortMemory>(std::move(memory.value())), config, providers, std::move(thread), wait));
}

ThreadDriver::ThreadDriver(std::unique_ptr<PortMemory> memory, const EngineConfig& config,
                           std::span<Provider* const> providers, std::shared_ptr<NicThread> thread,
                           const WaitPolicy& wait)
    : RingPort(*memory, wait, config.trace),
      thread_(std::move(thread)),
      memory_(std::move(memory)),
      wait_(wait),
      work_(*memory_, config, providers),
      keeps_memory_(work_.port.keeps_memory()),
      card_(work_.port.card()) {}

std::optional<Error> ThreadDriver::start() {
  work_.tell_counters();
  return thread_->add(work_);
}

void ThreadDriver::stop() noexcept {
  detach_targets();
  thread_->remove(work_);
}

bool ThreadDriver::add_providers(std::span<Provider* const> providers) noexcept {
  const NicThread::Pause pause(*thread_);
  return work_.port.add_providers(providers);
}

bool ThreadDriver::forget_peer(PeerId peer) noexcept {
  const NicThread::Pause pause(*thread_);
  return work_.server.forget_peer(peer);
}

Result<TargetPort*> ThreadDriver::attach_targets(ProcessBook& book) {
  Result<PortMemory> memory = make_memory(memory_->fencing());
  if (!memory.ok()) return memory.error();
  try {
    second_ = std::make_unique<SecondClient>(std::move(memory.value()), work_.port, book, wait_);
  } catch (const std::bad_alloc&) {
    return Error{Status::kNoMemory, 0, "no memory for a second client of the network processor"};
  }
  if (std::optional<Error> error = thread_->add(*second_)) {
    second_.reset();
    return std::move(*error);
  }
  return static_cast<TargetPort*>(&second_->port);
}

void ThreadDriver::detach_targets() noexcept {
  if (second_ == nullptr) return;
  thread_->remove(*second_);
  second_.reset();
}

std::size_t ThreadDriver::EngineWork::turn() noexcept {
  if (server.is_refused()) [[unlikely]]
    end_for_rubbish();
  return server.turn();
}

bool ThreadDriver::EngineWork::arm() noexcept {
  is_blocked = server.is_blocked();
  if (!is_blocked && !port.arm()) return false;
  if (server.arm()) return true;
  if (!is_blocked) port.disarm();
  return false;
}

void ThreadDriver::EngineWork::disarm() noexcept {
  server.disarm();
  if (!is_blocked) port.disarm();
}

void ThreadDriver::EngineWork::add_to(SleepSet& set) const noexcept {
  set.add(memory.nic_bell().sleeper);
  if (is_blocked) return;
  set.add(port.descriptors());
  set.end_after(port.next_due_ns());
}

std::size_t ThreadDriver::SecondClient::turn() noexcept {
  if (server.is_refused()) [[unlikely]]
    end_for_rubbish();
  return server.turn();
}

}  // namespace ch3_offload
