// One port of one device, opened: its protection domain, completion queue, shared receive queue and the slots
// to receive in. Every queue pair of the process on this port uses them.
//
// Receive slots: those that the pool holds are with the device, but for the few between a completion and
// repost(). The pool grows when more credit is wanted than it covers (make_room_for_credit()) and when the
// device says that the queue runs low, up to its bound, which does not depend on the number of processes.
//
// A queue pair is live until stop(). It is destroyed only when the completion queue can hold none of its
// completions. The device may give its number to the next one: by its number, a completion finds its lane.
//
// Threads: as rdma/provider.h says.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rdma/fork_closing.h"
#include "rdma/log_scope.h"
#include "rdma/status.h"
#include "rdma/verbs/devices/port_selection.h"
#include "rdma/verbs/devices/slot_pool.h"
#include "rdma/verbs/devices/verbs_handles.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {

struct VerbsLane;  // What a queue pair is for; a rail does not look into it.

/// The other end of a queue pair, as its process offers it.
struct RemoteQueuePair {
  std::uint32_t number = 0;
  std::uint32_t packet_sequence = 0;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_256;
  ibv_gid gid{};
};

class Rail {
 public:
  /// What the device tells. Calls come from take_events().
  class Client {
   public:
    /// The device has stopped the lane's queue pair.
    virtual void on_queue_pair_failed(VerbsLane& lane, const char* why) noexcept = 0;
    virtual void on_port(Rail& rail, bool is_up) noexcept = 0;
    /// port() has another LID, GID or partition now, for queue pairs that are connected from now on.
    virtual void on_address_changed(Rail& rail, const char* why) noexcept = 0;
    /// The device does not work any more. `scope`: of the line that says so.
    virtual void on_device_failed(Rail& rail, const char* why, LogScope scope) noexcept = 0;

   protected:
    ~Client() = default;
  };

  /// Opens the port. Where the device has less than `config` asks for, it is given less (config() tells),
  /// down to a bare minimum. kUnsupported, kDeviceFailed, kNoMemory: message says what is missing. `index`:
  /// among the rails of the process.
  static Result<std::unique_ptr<Rail>> open(const VerbsPort& port, const RailConfig& config,
                                            std::uint8_t index = 0);

  const VerbsPort& port() const noexcept { return port_; }
  const RailConfig& config() const noexcept { return config_; }
  ibv_context* context() const noexcept { return context_.get(); }
  ibv_pd* domain() const noexcept { return domain_.get(); }
  ibv_comp_channel* events() const noexcept { return events_.get(); }
  const SlotPool& receive_slots() const noexcept { return *receive_slots_; }
  /// Memory regions that the device has, for all processes of the node.
  std::size_t most_regions() const noexcept { return most_regions_; }
  /// Whether it can write from and to memory that was registered with IBV_ACCESS_ON_DEMAND.
  bool faults_pages() const noexcept { return faults_pages_; }
  /// Longest message that is copied into the work request.
  std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }

  const std::uint8_t index;
  const std::string port_name;  ///< For people.
  bool up = true;               ///< The port, as far as the device has told.
  bool lost = false;            ///< The device failed. It is asked nothing any more.

  // Queue pairs.

  /// Makes a queue pair in state INIT: what completes on it is the lane's. Error: the device's limit, or
  /// memory. Throws std::bad_alloc.
  Result<QueuePair> make_queue_pair(VerbsLane& lane);
  /// Makes it ready to receive and send. False: errno says why.
  bool connect(ibv_qp* queue_pair, std::uint32_t packet_sequence, const RemoteQueuePair& remote) noexcept;
  /// The live queue pairs, and the stopped ones through which something may still come: by their numbers.
  const std::unordered_map<std::uint32_t, VerbsLane*>& lanes() const noexcept { return lanes_; }
  /// Returns nullptr if nothing that completes on that queue pair counts any more.
  VerbsLane* lane_of(std::uint32_t queue_pair_number) const noexcept {
    const auto found = lanes_.find(queue_pair_number);
    return found == lanes_.end() ? nullptr : found->second;
  }
  /// How something ended that went over a queue pair.
  enum class End : std::uint8_t {
    kUnused,    ///< Nothing can have come through it.
    kFinished,  ///< Both sides have finished: what still comes does not count.
    kBroken,    ///< What it has received still counts, until destroy_stopped() tells the lane.
  };
  /// From now on the queue pair neither sends nor receives; what it held completes with an error. Takes its
  /// ownership. Does not allocate.
  void stop(QueuePair queue_pair, VerbsLane& lane, End end) noexcept;
  /// Whether more queue pairs have been stopped than may wait for their end.
  bool has_many_stopped() const noexcept { return stopped_.size() >= config_.most_queue_pairs; }
  bool has_stopped() const noexcept { return !stopped_.empty(); }
  /// RULE TAKE ALL FIRST. Destroy a broken queue pair only when nothing more can come through it and all that
  /// came was taken. The lane's next offer tells the peer how many items have arrived: an item that the device
  /// has acknowledged and nobody has counted would be lost.
  /// Calls `on_drained` with the lane of each broken queue pair that it destroys.
  template <class OnDrained>
  void destroy_stopped(std::uint64_t now_ns, OnDrained on_drained) noexcept {
    for (std::size_t i = 0; i < stopped_.size();) {
      if (!is_over(stopped_[i], now_ns)) {
        ++i;
        continue;
      }
      VerbsLane* const lane = stopped_[i].lane;
      if (lane != nullptr) lanes_.erase(stopped_[i].queue_pair->qp_num);
      std::swap(stopped_[i], stopped_.back());
      stopped_.pop_back();
      if (lane != nullptr) on_drained(*lane);
    }
  }

  // Completions.

  /// Takes at most `most` completions from the device. Returns false if the completion queue failed.
  /// REQUIRES: most <= kBatch; the last ones were handled.
  bool fetch(std::size_t most) noexcept;
  /// Completions that were taken and are not handled yet. The caller advances `next_completion`.
  bool holds_completions() const noexcept { return next_completion < completion_count; }
  const ibv_wc& completion() const noexcept { return completions_[next_completion]; }
  static constexpr std::size_t kBatch = 16;  ///< Most that fetch() takes.
  std::size_t next_completion = 0;
  std::size_t completion_count = 0;
  /// The completion queue is empty, and all was handled.
  void was_emptied() noexcept {
    ++emptied_;
    drained_ = lost;
  }
  /// Whether the device failed, and all that it had brought was taken.
  bool is_drained() const noexcept { return drained_; }
  /// Asks for an event at the next completion. Returns false if the device refuses.
  bool request_notification() noexcept;
  /// Reads events of completions. Returns whether there was one.
  bool take_completion_events() noexcept;

  /// Handles what the device tells of queue pairs, ports and itself; none of it is per message.
  void take_events(Client& client) noexcept;

  // Receiving.

  /// A receive slot whose message was delivered: repost() gives it to the device again.
  void recycle(std::uint32_t slot) noexcept {
    recycled_[recycled_count_++] = slot;
    if (recycled_count_ == recycled_.size()) repost();
  }
  void repost() noexcept {
    if (recycled_count_ > 0) repost_recycled();
  }
  /// Sees to it that there are receive slots for `more` items than all credit that is given out, adding slabs
  /// while that leaves room for `kept_free` below the pool's bound. Returns false if there are not so many.
  bool make_room_for_credit(std::uint32_t more, std::uint32_t kept_free) noexcept;
  /// The peers of this rail may send so many items more, or less.
  void change_credit(std::int32_t items) noexcept { credit_ += static_cast<std::uint32_t>(items); }
  /// The device refused a receive slot: it does not work any more.
  bool broken() const noexcept { return broken_; }

 private:
  struct Stopped {
    QueuePair queue_pair;
    VerbsLane* lane;  ///< nullptr: what comes through it does not count.
    std::uint64_t since_ns;
    bool is_empty;                ///< Nothing more comes through it.
    std::uint64_t since_emptied;  ///< emptied_ when that became known: what came before is taken after it.
  };

  Rail(const VerbsPort& port, std::uint8_t number)
      : index(number), port_name(port.to_string()), port_(port) {}
  Result<std::monostate> set_up(const RailConfig& config);
  Result<QueuePair> create_queue_pair();
  void repost_recycled() noexcept;
  bool post(const std::uint32_t* slots, std::size_t count) noexcept;
  bool grow_receive_slots() noexcept;
  void arm_low_water() noexcept;
  bool is_over(Stopped& stopped, std::uint64_t now_ns) const noexcept;
  void on_last_receive(const ibv_qp* queue_pair, Client& client) noexcept;

  static constexpr std::size_t kRepostBatch = 16;

  VerbsPort port_;
  RailConfig config_;
  std::size_t most_regions_ = 0;
  bool faults_pages_ = false;
  DeviceContext context_;
  ProtectionDomain domain_;
  CompletionChannel events_;
  CompletionQueue queue_;
  SharedReceiveQueue receives_;
  std::unique_ptr<SlotPool> receive_slots_;
  std::uint32_t inline_bytes_ = 0;
  bool inline_known_ = false;
  std::array<std::uint32_t, kRepostBatch> recycled_{};
  std::size_t recycled_count_ = 0;
  bool broken_ = false;
  std::uint32_t credit_ = 0;  ///< Items that peers may have under way.
  std::array<ibv_wc, kBatch> completions_{};
  std::uint64_t emptied_ = 0;  ///< Counts was_emptied().
  bool drained_ = false;
  std::unordered_map<std::uint32_t, VerbsLane*> lanes_;
  std::vector<Stopped> stopped_;
  bool tells_last_receive_ = false;   ///< The device raises IBV_EVENT_QP_LAST_WQE_REACHED.
  std::vector<ForkClosing> closing_;  ///< Of the device's descriptors. Gone before these.
};

}  // namespace ch3_offload
