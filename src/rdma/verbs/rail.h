// One port of one device, opened: its protection domain, completion queue, shared receive queue and the slots
// to receive in. Every queue pair of the process on this port uses them.
//
// Receive slots: those that the pool holds are with the device, but for the few between a completion and
// repost(). The pool grows when more credit is wanted than it covers (VerbsProvider) and when the device says
// that the queue runs low, up to its bound, which does not depend on the number of processes.
//
// Threads: as rdma/provider.h says.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rdma/fork_closing.h"
#include "rdma/status.h"
#include "rdma/verbs/port_selection.h"
#include "rdma/verbs/slot_pool.h"
#include "rdma/verbs/verbs_config.h"
#include "rdma/verbs/verbs_handles.h"

namespace ch3_offload {

/// The other end of a queue pair, as its Connect frame says.
struct RemoteQueuePair {
  std::uint32_t number = 0;
  std::uint32_t packet_sequence = 0;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_256;
  ibv_gid gid{};
};

class Rail {
 public:
  /// Opens the port. Where the device has less than `config` asks for, it is given less (config() tells),
  /// down to a bare minimum. kUnsupported, kDeviceFailed, kNoMemory: message says what is missing.
  static Result<std::unique_ptr<Rail>> open(const VerbsPort& port, const RailConfig& config);

  const VerbsPort& port() const noexcept { return port_; }
  const RailConfig& config() const noexcept { return config_; }
  ibv_context* context() const noexcept { return context_.get(); }
  ibv_pd* domain() const noexcept { return domain_.get(); }
  ibv_cq* completions() const noexcept { return completions_.get(); }
  ibv_comp_channel* events() const noexcept { return events_.get(); }
  SlotPool& receive_slots() noexcept { return *receive_slots_; }

  /// A queue pair in state INIT. Error: the device's limit, or memory.
  Result<QueuePair> make_queue_pair();
  /// Makes it ready to receive and send. False: errno says why.
  bool connect(ibv_qp* queue_pair, std::uint32_t packet_sequence, const RemoteQueuePair& remote) noexcept;
  /// From now on it neither sends nor receives; what it held completes with an error.
  static void stop(ibv_qp* queue_pair) noexcept;
  /// Longest message that is copied into the work request.
  std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }

  /// A receive slot whose message was delivered: repost() gives it to the device again.
  void recycle(std::uint32_t slot) noexcept {
    recycled_[recycled_count_++] = slot;
    if (recycled_count_ == recycled_.size()) repost();
  }
  void repost() noexcept;
  /// Adds a slab of receive slots and posts them. False: at the bound, or refused.
  bool grow_receive_slots() noexcept;
  /// Asks for IBV_EVENT_SRQ_LIMIT_REACHED when a quarter of the slots is left.
  void arm_low_water() noexcept;
  /// Memory regions that the device has, for all processes of the node.
  std::size_t most_regions() const noexcept { return most_regions_; }
  /// Whether it can write from and to memory that was registered with IBV_ACCESS_ON_DEMAND.
  bool faults_pages() const noexcept { return faults_pages_; }
  /// The device refused a receive slot: it does not work any more.
  bool broken() const noexcept { return broken_; }

 private:
  explicit Rail(const VerbsPort& port) : port_(port) {}
  Result<std::monostate> set_up(const RailConfig& config);
  bool post(const std::uint32_t* slots, std::size_t count) noexcept;

  static constexpr std::size_t kRepostBatch = 16;

  VerbsPort port_;
  RailConfig config_;
  std::size_t most_regions_ = 0;
  bool faults_pages_ = false;
  DeviceContext context_;
  ProtectionDomain domain_;
  CompletionChannel events_;
  CompletionQueue completions_;
  SharedReceiveQueue receives_;
  std::unique_ptr<SlotPool> receive_slots_;
  std::uint32_t inline_bytes_ = 0;
  bool inline_known_ = false;
  std::array<std::uint32_t, kRepostBatch> recycled_{};
  std::size_t recycled_count_ = 0;
  bool broken_ = false;
  std::vector<ForkClosing> closing_;  ///< Of the device's descriptors. Gone before these.
};

}  // namespace ch3_offload
