#include "nic/port_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>
#include <utility>

#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

Result<Mapping> make_ring(const char* name, std::size_t ring_bytes, FileDescriptor& file) {
  Result<FileDescriptor> made = make_reserved_file(name, kRingControlBytes + ring_bytes);
  if (!made.ok()) return made.error();
  file = std::move(made.value());
  return map_mirrored(file, kRingControlBytes, ring_bytes);
}

Result<Mapping> map_ring(const FileDescriptor& file, std::size_t ring_bytes) {
  if (!is_sealed_file(file, kRingControlBytes + ring_bytes))
    return Error{Status::kProtocol, 0, "the network processor's rings have another size"};
  return map_mirrored(file, kRingControlBytes, ring_bytes);
}

/// Not private to the process: the two sides may be in two.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* most = nullptr) noexcept {
  static_assert(sizeof word == sizeof value);
  return ::syscall(SYS_futex, &word, operation, value, most, nullptr, 0);
}

}  // namespace

Result<PortMemory> PortMemory::make(Client client) {
  PortMemory memory;
  Result<Mapping> commands = make_ring("ch3-offload-commands", kCommandRingBytes, memory.command_file_);
  if (!commands.ok()) return commands.error();
  memory.commands_ = std::move(commands.value());
  Result<Mapping> events = make_ring("ch3-offload-events", kEventRingBytes, memory.event_file_);
  if (!events.ok()) return events.error();
  memory.events_ = std::move(events.value());
  if (client == Client::kHere) {
    memory.is_here_ = true;
    memory.close_files();
    memory.client_bell_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!memory.client_bell_.valid()) return system_error("eventfd", errno);
  } else {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) return system_error("pipe2", errno);
    memory.client_bell_ = FileDescriptor(pipe[0]);
    memory.client_ringer_ = FileDescriptor(pipe[1]);
  }
  memory.nic_bell_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!memory.nic_bell_.valid()) return system_error("eventfd", errno);
  return memory;
}

Result<PortMemory> PortMemory::attach(std::array<FileDescriptor, kFiles> files) {
  PortMemory memory;
  Result<Mapping> commands = map_ring(files[kCommandFile], kCommandRingBytes);
  if (!commands.ok()) return commands.error();
  memory.commands_ = std::move(commands.value());
  Result<Mapping> events = map_ring(files[kEventFile], kEventRingBytes);
  if (!events.ok()) return events.error();
  memory.events_ = std::move(events.value());
  memory.client_bell_ = std::move(files[kClientBell]);
  memory.nic_bell_ = std::move(files[kNicBell]);
  return memory;
}

void PortMemory::ring(std::atomic<std::uint32_t>& sleeps, Bell bell, std::uint64_t& rung) noexcept {
  if (sleeps.load(std::memory_order_seq_cst) == 0) [[likely]]
    return;
  if (sleeps.exchange(0, std::memory_order_seq_cst) == 0) return;
  count(rung);
  const std::uint64_t one = 1;
  // A full pipe wakes the sleeper, too.
  [[maybe_unused]] const ssize_t written = ::write(bell.ringer, &one, sizeof one);
}

void PortMemory::publish_command(RingProducer& commands, std::size_t length_bytes,
                                 std::uint64_t& rung) noexcept {
  if (fencing_ == Fencing::kAsymmetric) {
    order_streaming_stores();
    commands.publish_without_fence(RecordKind::kMessage, length_bytes);
    // Pairs with fence_sleeper(): no compiler moves the look before the store.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    commands.publish(RecordKind::kMessage, length_bytes);
  }
  ring(words().nic_sleeps, nic_bell(), rung);
}

bool PortMemory::announce_nic_sleep() noexcept {
  words().nic_sleeps.store(1, std::memory_order_seq_cst);
  return fence_sleeper(fencing_);
}

bool PortMemory::sleep_in_wait(std::uint64_t most_ns) noexcept {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  const timespec most{static_cast<time_t>(most_ns / kSecondNs), static_cast<long>(most_ns % kSecondNs)};
  return futex(words().client_waits, FUTEX_WAIT, 1, &most) == 0 || errno != ETIMEDOUT;
}

void PortMemory::ring_waiting(std::uint64_t& rung) noexcept {
  if (words().client_waits.exchange(0, std::memory_order_seq_cst) == 0) return;
  count(rung);
  futex(words().client_waits, FUTEX_WAKE, INT_MAX);
}

void PortMemory::quiet(std::atomic<std::uint32_t>& sleeps, Bell bell) noexcept {
  sleeps.store(0, std::memory_order_relaxed);
  std::uint64_t rings[8];
  if (bell.sleeper != bell.ringer) {  // A pipe.
    static_cast<void>(!::read(bell.sleeper, rings, sizeof rings));
    return;
  }
  const iovec into{rings, sizeof rings};
  if (::preadv2(bell.sleeper, &into, 1, -1, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP) return;
  // Linux before 5.8.
  pollfd entry{bell.sleeper, POLLIN, 0};
  if (::poll(&entry, 1, 0) == 1) static_cast<void>(!::read(bell.sleeper, rings, sizeof rings));
}

}  // namespace ch3_offload
