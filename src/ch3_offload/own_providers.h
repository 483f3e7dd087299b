// Providers that a client of a network processor has for itself: all of a lone process (nicd_lone_process.h),
// and of a process of a job those for the processes of other worlds (foreign_processes.h).
//
// Threads: one at a time. Blocking: make(), as far as making providers does.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/lone_process.h"
#include "nic/silenced_provider.h"
#include "nic/user_key.h"

namespace ch3_offload {

class OwnProviders {
 public:
  /// For the client with these settings, and its peers from slot `first_peer` on. `values`: what `config`
  /// points into.
  OwnProviders(std::vector<std::string> values, const ch3_offload_config_t& config,
               std::uint32_t first_peer) noexcept
      : values_(std::move(values)), config_(config), first_peer_(first_peer), silence_(PeerId{config.rank}) {}

  /// Errors as those of make_lone_providers(): nothing is made then. REQUIRES: nothing was. `log`: until
  /// client_ended(). Throws std::bad_alloc.
  std::optional<Error> make(const UserKey& key, const LoneLog& log);
  /// Nobody hears any more what they log. `memory` keeps mapped what the client has registered with them.
  void client_ended(std::shared_ptr<const void> memory) noexcept {
    log_ = {};
    memory_ = std::move(memory);
  }
  bool are_made() const noexcept { return !silenced_.empty(); }

  /// For the client's engine. They outlive it.
  std::vector<Provider*> providers() const;
  Silence& silence() noexcept { return silence_; }
  const ch3_offload_config_t& config() const noexcept { return config_; }

  /// After the engine: as Provider::leave(), of all.
  bool leave() noexcept;

 private:
  static void log_line(void* providers, LogScope scope, const char* line);

  const std::vector<std::string> values_;
  ch3_offload_config_t config_;
  const std::uint32_t first_peer_;
  LoneLog log_;
  Silence silence_;
  std::shared_ptr<const void> memory_;  ///< Of a client that has ended: peers may still write there.
  std::vector<std::unique_ptr<Provider>> providers_;
  std::vector<std::unique_ptr<Provider>> silenced_;  ///< Of providers_.
};

}  // namespace ch3_offload
