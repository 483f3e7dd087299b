// A port through rings whose processor runs in the same thread, in turns that a seed chooses: what the thread
// driver and the process driver do, but so that it can be replayed.

#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "nic/client_memory.h"
#include "nic/client_outlet.h"
#include "nic/host_driver.h"
#include "nic/ring_port.h"
#include "nic/ring_server.h"
#include "nic/short_wait.h"
#include "rdma/fake_provider.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {

/// The socket between a client and its processor.
struct ClientSocket {
  ClientSocket() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    client = FileDescriptor(ends[0]);
    processor = FileDescriptor(ends[1]);
  }
  FileDescriptor client;
  FileDescriptor processor;
};

/// A kernel that refuses copies.
class RefusingCopier final : public MemoryCopier {
 public:
  ssize_t copy(pid_t pid, const iovec& here, std::span<const iovec> there, bool is_write) noexcept override {
    ++copies;
    if (copies > allowed && (is_write ? refuses_writes : refuses_reads) && random.chance(chance)) {
      errno = error;
      return -1;
    }
    return MemoryCopier::copy(pid, here, there, is_write);
  }

  bool refuses_reads = true, refuses_writes = true;
  int error = EPERM;
  int allowed = INT_MAX;  ///< So many, before it begins to refuse.
  double chance = 1;
  int copies = 0;
  SeededRandom random{1};
};

/// The memory of this process, as a processor in another one sees it.
struct OtherProcess {
  OtherProcess(std::uint32_t peer_limit, ClientOutlet& outlet,
               KernelCopies the_copies = KernelCopies::kAllowed)
      : copies(the_copies), memory(::getpid(), socket.processor, peer_limit, outlet, the_copies, kernel) {
    memory.let_others_copy(open_pages(::getpid()));
  }
  ClientSocket socket;
  const KernelCopies copies;
  RefusingCopier kernel;
  Staging staging = Staging::kPacked;  ///< Of the client, where copies are allowed.
  bool shares_nothing = false;         ///< Its processor can map no more files.
  double failed_copies = 0;            ///< Of those that it is asked to make, the kernel refuses so many.
  int copies_asked = 0;
  ClientMemory memory;
};

class SteppedRings final : public RingPort {
 public:
  /// `client`: null: the processor is in this process.
  SteppedRings(const EngineConfig& config, std::span<Provider* const> providers, std::uint64_t seed,
               OtherProcess* client = nullptr)
      : SteppedRings(std::make_unique<PortMemory>(std::move(PortMemory::make().value())), config, providers,
                     seed, client) {}

  /// The processor has a turn, or not. It has one of two.
  std::size_t progress() noexcept override {
    rests_ = !rests_ && random_.chance(0.4);
    return (rests_ ? 0 : server.turn()) + RingPort::progress();
  }
  bool keeps_memory() const noexcept override { return host.keeps_memory(); }
  void memory_gone(const void* address, std::size_t length_bytes) noexcept override {
    host.memory_gone(address, length_bytes);
  }
  std::string card() const override { return host.card(); }
  const CounterPage& counters() const noexcept override { return host.counters(); }

 private:
  SteppedRings(std::unique_ptr<PortMemory> its_memory, const EngineConfig& config,
               std::span<Provider* const> providers, std::uint64_t seed, OtherProcess* client)
      : RingPort(*its_memory, short_wait(), config.trace, staging_of(client), config.self),
        memory(std::move(its_memory)),
        host(config, providers),
        server(host, *memory, config.trace, client == nullptr ? nullptr : &client->memory),
        client_(client),
        random_(seed) {}

  static Staging staging_of(const OtherProcess* client) noexcept {
    if (client == nullptr) return Staging::kNone;
    return client->copies == KernelCopies::kAllowed ? client->staging : Staging::kAll;
  }
  bool send_share(const NicdShare& share, const FileDescriptor& file) noexcept override {
    const int files[] = {file.get()};
    return client_ != nullptr && !client_->shares_nothing &&
           send_with_files(client_->socket.client, std::as_bytes(std::span(&share, 1)), files);
  }

  bool copy_from(pid_t process, std::uint64_t address, std::byte* to,
                 std::size_t length_bytes) noexcept override {
    ++client_->copies_asked;
    return !random_.chance(client_->failed_copies) && RingPort::copy_from(process, address, to, length_bytes);
  }
  void rest_in(ProcessorWait&) noexcept override {
    static_cast<void>(server.turn());
    if (!server.is_refused()) return;
    std::fputs("the processor refuses its client, which waits for it\n", stderr);
    std::abort();
  }

 public:
  const std::unique_ptr<PortMemory> memory;
  HostDriver host;
  RingServer server;

 private:
  OtherProcess* const client_;
  SeededRandom random_;
  bool rests_ = false;
};

}  // namespace ch3_offload
