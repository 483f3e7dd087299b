#include "nic/target_server.h"

#include <atomic>
#include <cstring>

namespace ch3_offload {
namespace {

/// Commands in one turn, so that the engine has its own.
constexpr std::size_t kMostTargetCommands = 32;

}  // namespace

TargetServer::TargetServer(HostTargets& targets, PortMemory& memory) noexcept
    : targets_(targets),
      memory_(memory),
      words_(memory.words()),
      ring_counters_(memory.ring_counters().processor),
      commands_(memory.command_consumer()) {
  words_.idle_at.store(kNotIdle, std::memory_order_relaxed);
}

std::size_t TargetServer::turn() noexcept {
  const std::size_t happened = take_commands() + targets_.serve();
  tell();
  return happened;
}

std::size_t TargetServer::take_commands() noexcept {
  std::size_t taken = 0;
  for (; taken < kMostTargetCommands && !is_refused_; ++taken) {
    const std::uint64_t header = commands_.header();
    if (header == 0) break;
    RingConsumer::Record record;
    is_refused_ =
        !commands_.parse(header, record) || record.kind != RecordKind::kMessage || !execute(record.payload);
    if (is_refused_) break;
    commands_.advance(record);
  }
  if (taken > 0 && commands_.release()) [[unlikely]]
    memory_.wake_from_wait(ring_counters_.bells_rung);
  return taken;
}

bool TargetServer::execute(std::span<const std::byte> record) noexcept {
  TargetCommand command;
  if (record.size() < sizeof command) return false;
  std::memcpy(&command, record.data(), sizeof command);
  TargetAnswer its;
  if (!targets_.execute(command, record.subspan(sizeof command), its)) return false;
  if (command.kind != TargetCommandKind::kRequest) answer(its);
  return true;
}

void TargetServer::answer(const TargetAnswer& answer) noexcept {
  words_.status = answer.status;
  words_.answer = answer.name;
  // Pairs with RingTargets::ask(), which then sees the answer, and what was told before it.
  words_.answered.store(++answered_, std::memory_order_seq_cst);  // "The sleep rule".
  memory_.wake_from_wait(ring_counters_.bells_rung);
}

// What is new, and waiting.

void TargetServer::tell() noexcept {
  bool has_news = false;
  if (const std::uint64_t told = targets_.told(); told != told_) {
    told_ = told;
    words_.told.store(told, std::memory_order_seq_cst);  // "The sleep rule".
    has_news = true;
  }
  const std::uint64_t idle_at = targets_.idle() ? commands_.position() : kNotIdle;
  if (idle_told_ != idle_at) {
    idle_told_ = idle_at;
    words_.idle_at.store(idle_at, std::memory_order_seq_cst);  // "The sleep rule": MPI_Finalize waits for it.
    has_news = has_news || idle_at != kNotIdle;
  }
  if (has_news) PortMemory::ring(words_.client_sleeps, memory_.client_bell(), ring_counters_.bells_rung);
}

bool TargetServer::arm() noexcept {
  PortMemory::count(ring_counters_.sleeps);  // Before: whoever rings finds it counted.
  const bool may_sleep = memory_.announce_nic_sleep();
  if (may_sleep && (is_refused_ || commands_.header(std::memory_order_seq_cst) == 0)) return true;
  disarm();
  return false;
}

void TargetServer::disarm() noexcept { PortMemory::quiet(words_.nic_sleeps, memory_.nic_bell()); }

}  // namespace ch3_offload
