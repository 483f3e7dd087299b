// A process that a network processor serves: its engine, its ring, and the memory that the two share. It may
// have a second port, of target entries.
//
// Threads: one at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ch3_offload/own_providers.h"
#include "engine/trace.h"
#include "nic/client_memory.h"
#include "nic/client_outlet.h"
#include "nic/exchange.h"
#include "nic/host_driver.h"
#include "nic/host_targets.h"
#include "nic/nicd_protocol.h"
#include "nic/port_memory.h"
#include "nic/process_book.h"
#include "nic/ring_server.h"
#include "nic/target_server.h"

namespace ch3_offload {

/// For the user, where the kernel refuses copies.
inline constexpr const char* kHowToPermitCopies =
    "To permit it, kernel.yama.ptrace_scope must be 0 or 1, and a container needs CAP_SYS_PTRACE";

/// Errno of the kernel, which does not let this process read the word of `pid` at that address that holds
/// NicdHello::kMagic. 0: it does.
int kernel_copies_refusal(pid_t pid, std::uint64_t probe_address) noexcept;

/// What a client is told where the processor fails because of `error`.
std::string reason_of(const Error& error);

class NicdClient final : private ClientServices {
 public:
  /// What its engine works with.
  struct Parts {
    /// What it has in common with others of its job. Null: it is alone, and has made its own providers.
    std::unique_ptr<ExchangePort> exchange;
    /// The client's own, or what makes them when it asks for them. They leave when it has ended.
    std::shared_ptr<OwnProviders> own;
    EngineConfig config;
    std::unique_ptr<Trace> trace;  ///< Null: none.
  };
  NicdClient(FileDescriptor socket, PortMemory memory, pid_t pid, KernelCopies copies, MemoryCopier& copier,
             Parts parts);
  ~NicdClient();
  /// Whom its second port knows. Without a book it has none.
  void set_book(std::unique_ptr<ProcessBook> book) noexcept { book_ = std::move(book); }

  /// Answers its hello: `welcome`, completed by what all are told. False: it has ended.
  bool welcome(NicdWelcome& welcome) noexcept;

  /// Serves both ports. Returns how many things happened.
  std::size_t turn() noexcept;
  /// Whether a command of either waits.
  bool has_commands() const noexcept;

  /// Whether another thread is in the midst of its turn: then nobody else may call what follows.
  bool is_late() const noexcept { return data_.is_late(); }
  /// To be called when another thread goes on.
  void be_late() noexcept { data_.be_late(); }
  /// It has ended meanwhile: its peers hear of it.
  void leave() noexcept {
    has_left_ = true;
    outlet_.say_ended();
  }
  bool has_left() const noexcept { return has_left_; }

  RingServer& server() noexcept { return server_; }
  ClientShares& shares() noexcept { return data_.shares(); }
  const FileDescriptor& socket() const noexcept { return socket_; }
  std::string card() const { return driver_.card(); }
  /// To be seen off when the client has gone.
  const std::shared_ptr<OwnProviders>& own_providers() const noexcept { return parts_.own; }

  /// Why it must be dropped. Null: it need not.
  const char* complaint() const noexcept;
  /// Whether the processor may sleep as far as this client is concerned. disarm() follows.
  bool arm() noexcept;
  void disarm() noexcept;
  void add_to(SleepSet& set) const noexcept;

 private:
  /// Its ring, and what serves it.
  struct Targets {
    Targets(PortMemory its_memory, HostTargets& its_host)
        : memory(std::move(its_memory)), host(its_host), server(host, memory) {}
    ~Targets() { host.close_all(); }
    PortMemory memory;
    HostTargets& host;
    TargetServer server;
  };

  /// Through which of its providers ever a message leaves.
  class Outlet final : public ClientOutlet {
   public:
    explicit Outlet(Parts& parts) noexcept : exchange_(parts.exchange.get()), own_(parts.own->silence()) {}
    PeerId rank() const noexcept override { return own_.rank(); }
    void silence() noexcept override {
      own_.silence();
      if (exchange_ != nullptr) exchange_->silence();
    }
    void be_late() noexcept override {
      if (exchange_ != nullptr) exchange_->be_late();
    }
    void say_ended() noexcept override {
      if (exchange_ != nullptr) exchange_->say_ended();
    }

   private:
    ClientOutlet* const exchange_;  ///< Null: there is none.
    ClientOutlet& own_;
  };

  bool attach_targets() noexcept override;
  void detach_targets() noexcept override;
  bool reach_foreign(const UserKey& key) noexcept override;
  /// `card`: by which foreign processes reach the client.
  std::optional<Error> make_foreign(const UserKey& key, std::string& card);
  static void log_line(void* client, LogScope scope, const char* line);

  bool has_left_ = false;
  bool reaches_foreign_ = false;
  bool is_undumpable_ = false;  ///< This process has followed a client that made itself so.
  FileDescriptor socket_;
  PortMemory memory_;
  Parts parts_;
  Outlet outlet_;
  ClientMemory data_;
  HostDriver driver_;
  RingServer server_;
  std::unique_ptr<ProcessBook> book_;
  std::unique_ptr<HostTargets> host_;  ///< Of book_, which tells it once who is who. Null: nobody has asked.
  std::unique_ptr<Targets> targets_;   ///< Null: it has no second port.
};

}  // namespace ch3_offload
