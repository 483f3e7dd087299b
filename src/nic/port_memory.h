// The memory and the bells between one client and its network processor: nic_records.h says what is in it.
//
// Threads: as for the rings.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nic/fencing.h"
#include "nic/nic_records.h"
#include "nic/port.h"
#include "rdma/file_descriptor.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/shared_memory.h"
#include "rdma/status.h"

namespace ch3_offload {

class PortMemory {
 public:
  /// What the other process needs to map the same memory, in this order.
  enum File : std::size_t { kCommandFile, kEventFile, kClientBell, kNicBell, kFiles };

  /// The process of the client: another one than the processor's, or the same. The same needs no files, and
  /// one descriptor fewer for the client's bell.
  enum class Client : std::uint8_t { kElsewhere, kHere };
  /// For set-up only. kNoMemory: the message says of what.
  static Result<PortMemory> make(Client client = Client::kElsewhere);
  /// That of another process. kProtocol: these are not its files.
  static Result<PortMemory> attach(std::array<FileDescriptor, kFiles> files);
  /// For attach() elsewhere. The memory's own. Who attaches is the client.
  std::array<int, kFiles> files() const noexcept {
    return {command_file_.get(), event_file_.get(), client_bell_.get(), nic_bell_.get()};
  }
  /// Closes the two that are needed for attach() only.
  void close_files() noexcept {
    command_file_.reset();
    event_file_.reset();
  }

  /// Of the commands, and of the processor's sleep. For set-up only: before there is a client or a processor.
  void set_fencing(Fencing fencing) noexcept { fencing_ = fencing; }
  Fencing fencing() const noexcept { return fencing_; }

  RingProducer command_producer() const noexcept {
    return {commands_.address(), kCommandRingBytes, kCommandRingBytes};
  }
  RingConsumer command_consumer() const noexcept { return {commands_.address(), kCommandRingBytes}; }
  RingProducer event_producer() const noexcept {
    return {events_.address(), kEventRingBytes, kEventRingBytes};
  }
  RingConsumer event_consumer() const noexcept { return {events_.address(), kEventRingBytes}; }
  /// Behind the control words of the command ring, in a page of its own, as what follows.
  NicWords& words() const noexcept {
    return *reinterpret_cast<NicWords*>(commands_.address() + kLeastPageBytes);
  }

  /// The engine's counters, as far as they were told.
  CounterPage& counters() const noexcept {
    return *reinterpret_cast<CounterPage*>(commands_.address() + 2 * kLeastPageBytes);
  }

  /// In the next page.
  RingCounters& ring_counters() const noexcept {
    return *reinterpret_cast<RingCounters*>(commands_.address() + 2 * kLeastPageBytes + sizeof(CounterPage));
  }
  /// Adds one to a counter. For its only writer.
  static void count(std::uint64_t& counter) noexcept {
    std::atomic_ref<std::uint64_t>(counter).store(counter + 1, std::memory_order_relaxed);
  }

  /// What wakes a sleeper. A client must not be able to block its processor: O_NONBLOCK belongs to the open
  /// file, so who has that can change it for both. The client's bell is a pipe, of which the processor alone
  /// has the end that it writes to. The processor's is an eventfd, which it reads by a call that never waits.
  /// So is the client's, if it is in the same process.
  struct Bell {
    int sleeper;  ///< Readable once the sleeper has to wake up.
    int ringer;   ///< The other's. -1: the other process has it.
  };
  Bell client_bell() const noexcept {
    return {client_bell_.get(), (is_here_ ? client_bell_ : client_ringer_).get()};
  }
  Bell nic_bell() const noexcept { return {nic_bell_.get(), nic_bell_.get()}; }
  /// Rings if whoever owns the word sleeps. To be called after work was published: "The sleep rule" of
  /// rdma/shm/doorbell.h. A system call only then, which `rung` counts. `rung` has one writer: the caller.
  static void ring(std::atomic<std::uint32_t>& sleeps, Bell bell, std::uint64_t& rung) noexcept;
  /// Publishes the client's command, and rings if the processor sleeps. `rung` as of ring().
  void publish_command(RingProducer& commands, std::size_t length_bytes, std::uint64_t& rung) noexcept;
  /// Announces the processor's sleep: "The sleep rule". False: there was no fence, and it must not sleep.
  bool announce_nic_sleep() noexcept;
  /// Sleeps while `client_waits` is 1, for `most_ns` at most. Returns whether it was rung, or a signal came.
  /// For the client, which has announced that: processor_wait.h.
  bool sleep_in_wait(std::uint64_t most_ns) noexcept;
  /// Ends that sleep. To be called by the processor after it has published an answer, sequentially
  /// consistent, or if RingConsumer::release() says so. A system call only if the client sleeps, which `rung`
  /// counts.
  void wake_from_wait(std::uint64_t& rung) noexcept {
    if (words().client_waits.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      ring_waiting(rung);
  }
  /// Ends the announcement of a sleep.
  static void quiet(std::atomic<std::uint32_t>& sleeps, Bell bell) noexcept;

 private:
  static_assert(sizeof(RingControl) <= kLeastPageBytes &&
                2 * kLeastPageBytes + sizeof(CounterPage) + sizeof(RingCounters) <= kRingControlBytes);

  PortMemory() = default;
  void ring_waiting(std::uint64_t& rung) noexcept;

  FileDescriptor command_file_;
  FileDescriptor event_file_;
  Mapping commands_;
  Mapping events_;
  /// The processor keeps the client's end, too: to ring a client that has closed it is no error, and no
  /// SIGPIPE.
  FileDescriptor client_bell_;
  FileDescriptor client_ringer_;  ///< The processor's. Invalid if is_here_: the bell is an eventfd.
  FileDescriptor nic_bell_;
  bool is_here_ = false;  ///< Client::kHere.
  Fencing fencing_ = Fencing::kFull;
};

}  // namespace ch3_offload
