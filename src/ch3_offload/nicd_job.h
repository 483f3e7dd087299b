// A job that a network processor serves on its node: the exchange between its processes, the network to those
// of other nodes, and an engine for each process.
//
// Threads: one.

#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "engine/trace.h"
#include "nic/client_memory.h"
#include "nic/exchange.h"
#include "nic/host_driver.h"
#include "nic/host_targets.h"
#include "nic/nicd_protocol.h"
#include "nic/port_memory.h"
#include "nic/rank_book.h"
#include "nic/ring_server.h"
#include "nic/target_server.h"
#include "rdma/job_secret.h"

namespace ch3_offload {

/// A process that is served. It may have a second port, of target entries.
class NicdClient final : private AttachesTargets {
 public:
  NicdClient(FileDescriptor socket, PortMemory memory, pid_t pid, KernelCopies copies,
             std::unique_ptr<ExchangePort> port, const EngineConfig& config, std::unique_ptr<Trace> trace);
  ~NicdClient() { detach_targets(); }

  /// Serves both ports. Returns how many things happened.
  std::size_t turn() noexcept;
  /// Whether a command of either waits.
  bool has_commands() const noexcept;

  RingServer& server() noexcept { return server_; }
  ClientShares& shares() noexcept { return data_.shares(); }
  const FileDescriptor& socket() const noexcept { return socket_; }
  PortMemory& memory() noexcept { return memory_; }
  std::string card() const { return driver_.card(); }

  /// Why it must be dropped. Null: it need not.
  const char* complaint() const noexcept;
  /// Whether the processor may sleep as far as this client is concerned. disarm() follows.
  bool arm() noexcept;
  void disarm() noexcept;
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  /// Its ring, and what serves it.
  struct Targets {
    Targets(PortMemory its_memory, HostDriver& driver, const RankBook& its_book, ClientMemory& client)
        : memory(std::move(its_memory)), book(its_book), host(driver, book), server(host, memory, &client) {}
    ~Targets() { server.close(); }
    PortMemory memory;
    RankBook book;
    HostTargets host;
    TargetServer server;
  };

  bool attach_targets() noexcept override;
  void detach_targets() noexcept override;

  FileDescriptor socket_;
  PortMemory memory_;
  std::unique_ptr<Trace> trace_;  ///< Null: none.
  std::unique_ptr<ExchangePort> port_;
  ClientMemory data_;
  Provider* providers_[1];
  HostDriver driver_;
  RingServer server_;
  std::unique_ptr<Targets> targets_;  ///< Null: it has no second port.
};

class NicdJob {
 public:
  /// For the processes that say this hello. The error's message is for the user.
  static Result<std::unique_ptr<NicdJob>> create(const NicdHello& hello);
  ~NicdJob();

  bool is_of(const NicdHello& hello) const noexcept { return equal_in_constant_time(secret_, hello.secret); }
  /// Takes a process in and answers it. The error's message is for the user.
  std::optional<Error> admit(FileDescriptor socket, pid_t pid, const NicdHello& hello);

  std::size_t turn() noexcept;
  void tell_counters() noexcept;
  /// Drops the clients whose sockets have ended.
  void look_at_sockets() noexcept;
  std::size_t clients() const noexcept { return clients_.size(); }
  /// MPIR_CVAR_CH3_OFFLOAD_SPIN, as the first process said it.
  std::int64_t spin_us() const noexcept { return spin_us_; }
  /// Its processes on the node, as the first one said it.
  std::uint32_t local_size() const noexcept { return local_size_; }
  /// Whether its processes have ended, and what they had to say has left the node, or cannot. Does not wait,
  /// and brings that forward: to be called every few milliseconds while is_leaving().
  bool is_over(std::uint64_t now_ns) noexcept;
  /// Its processes have ended, and its network says farewell. It takes none in any more.
  bool is_leaving() const noexcept { return is_leaving_; }

  bool arm() noexcept;
  void disarm() noexcept;
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  explicit NicdJob(const JobSecret& secret) : secret_(secret) {}
  static void log_line(void* job, LogScope scope, const char* line);
  void drop(std::size_t index, std::string_view why) noexcept;

  const JobSecret secret_;
  std::uint32_t size_ = 0;
  std::int64_t spin_us_ = -1;
  std::uint32_t local_size_ = 1;
  std::vector<std::pair<LogScope, std::string>> lines_;  ///< What was logged: for clients that come later.
  std::unique_ptr<Provider> network_;                    ///< Null: none.
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<NicdClient>> clients_;
  bool refusal_told_ = false;         ///< That the kernel does not let it copy.
  std::uint64_t alone_since_ns_ = 0;  ///< 0: it has clients.
  bool is_leaving_ = false;           ///< Nothing but Provider::leave() is called of the network.
};

/// What a hello says. `settings` keeps the text that `config` points into. Nothing, or why it is refused.
std::optional<std::string> read_hello(const NicdHello& hello, std::vector<std::string>& settings,
                                      ch3_offload_config_t& config);
/// The hello of a process with these settings.
NicdHello make_hello(const ch3_offload_config_t& config);

}  // namespace ch3_offload
