// A job that a network processor serves on its node: the exchange between its processes, the network to those
// of other nodes, and an engine for each process.
//
// Threads: one at a time.

#pragma once

#include <memory>

#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/nicd_group.h"
#include "nic/exchange.h"
#include "rdma/job_secret.h"

namespace ch3_offload {

class NicdJob final : public NicdGroup {
 public:
  /// For the processes that say this hello. The error's message is for the user.
  static Result<std::unique_ptr<NicdJob>> create(const NicdHello& hello, MemoryCopier& copier);
  ~NicdJob() override { clients_.clear(); }

  bool is_of(const NicdHello& hello) const noexcept override {
    return hello.is_lone == 0 && equal_in_constant_time(secret_, hello.secret);
  }
  std::optional<Error> admit(FileDescriptor socket, pid_t pid, const NicdHello& hello) override;

 private:
  NicdJob(const JobSecret& secret, MemoryCopier& copier) : NicdGroup(copier), secret_(secret) {}
  PinDownConfig pins_of(const ch3_offload_config_t& config) const;
  static void log_line(void* job, LogScope scope, const char* line);
  Provider* network() const noexcept { return providers_.empty() ? nullptr : providers_.front().get(); }
  std::size_t poll_network() noexcept override { return exchange_->poll(has_late()); }
  bool arm_network() noexcept override { return network() == nullptr || network()->arm(); }
  void disarm_network() noexcept override {
    if (network() != nullptr) network()->disarm();
  }
  void add_network(SleepSet& set) const noexcept override {
    if (network() != nullptr && !(has_late() && exchange_->is_slot_late())) set.add(network()->descriptor());
  }
  bool is_network_at_rest() const noexcept override {
    return exchange_->at_rest() || (has_late() && exchange_->is_slot_late());
  }

  const JobSecret secret_;
  std::unique_ptr<Exchange> exchange_;
  bool refusal_told_ = false;  ///< That the kernel does not let it copy.
};

}  // namespace ch3_offload
