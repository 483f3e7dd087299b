// The objects behind the handles of the fake verbs device. For the fake's own sources; tests include
// fake_verbs.h.
//
// A handle's struct is the base of ours, so that going from one to the other is a cast. Everything here is
// guarded by Network::mutex_.

#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "rdma/verbs/fake_verbs.h"

namespace ch3_offload::fake_verbs {

using Clock = std::chrono::steady_clock;

/// A queue of fixed capacity whose elements are made once and used again.
template <class T>
class Ring {
 public:
  /// Elements of a trivial type stay uninitialized: most of a completion queue is never used.
  explicit Ring(std::size_t capacity = 0)
      : items_(std::make_unique_for_overwrite<T[]>(capacity)), capacity_(capacity) {}
  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  bool full() const noexcept { return count_ == capacity_; }
  T& operator[](std::size_t i) noexcept { return items_[(head_ + i) % capacity_]; }
  T& front() noexcept { return items_[head_]; }
  /// REQUIRES: not full. The element holds what it held when it was popped.
  T& push() noexcept { return items_[(head_ + count_++) % capacity_]; }
  void pop() noexcept {
    head_ = (head_ + 1) % capacity_;
    --count_;
  }
  void clear() noexcept { count_ = 0; }
  std::span<T> storage() noexcept { return {items_.get(), capacity_}; }

 private:
  std::unique_ptr<T[]> items_;
  std::size_t capacity_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

/// The live objects of one kind.
template <class T>
class Owned {
 public:
  T* add(std::unique_ptr<T> item) {
    T* const pointer = item.get();
    items_.emplace(pointer, std::move(item));
    return pointer;
  }
  void remove(T* item) noexcept { items_.erase(item); }
  int size() const noexcept { return static_cast<int>(items_.size()); }
  void clear() noexcept { items_.clear(); }
  template <class Function>
  void for_each(Function&& function) {
    for (auto& [pointer, item] : items_) function(*pointer);
  }
  /// Whether there are `number` or more that match. Does not look at them if there are fewer in all.
  template <class Predicate>
  bool holds(int number, Predicate&& predicate) const {
    if (size() < number) return false;
    int n = 0;
    for (const auto& [pointer, item] : items_) n += predicate(*pointer);
    return n >= number;
  }

 private:
  std::unordered_map<T*, std::unique_ptr<T>> items_;
};

/// A descriptor that is readable while a queue of events is not empty. Whether it blocks is the user's choice
/// (fcntl), as with the kernel's.
class EventDescriptor {
 public:
  EventDescriptor();
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;
  ~EventDescriptor();
  int number() const noexcept { return number_; }
  void add() noexcept;
  /// REQUIRES: an add() that no take() followed.
  void take() noexcept;
  /// Waits, without the lock, until it is readable. False: it does not block, or waiting failed; see errno.
  bool await(std::unique_lock<std::mutex>& lock) const;

 private:
  int number_;
};

struct QueuePair;

/// What ibv_device points to: lives while a list or an open context needs it.
struct Device;
struct DeviceHandle : ibv_device {
  Device* device;
  int references;
};

struct Device {
  struct Port {
    bool down = false;    ///< By set_link().
    bool silent = false;  ///< By set_silent().
  };
  std::size_t index;  ///< In Config::devices.
  std::vector<Port> ports;
  DeviceHandle* handle = nullptr;                   ///< Null: nobody holds one.
  bool dead = false;                                ///< By kill_device().
  std::map<std::uint32_t, QueuePair*> queue_pairs;  ///< By number.
  std::uint32_t next_number = 0;                    ///< Offset in the range.
};

struct Context : verbs_context {
  Context() : verbs_context{} {}
  Device* device = nullptr;
  EventDescriptor descriptor;
  std::deque<ibv_async_event> events;
  int children = 0;  ///< Domains, channels and completion queues.
  std::uint64_t registered_bytes = 0;
};

struct Domain : ibv_pd {
  Domain() : ibv_pd{} {}
  int children = 0;
};

struct Region : ibv_mr {
  Region() : ibv_mr{} {}
  std::uint64_t start = 0;  ///< The address by which work requests name its first byte.
  unsigned access = 0;
};

struct CompletionQueue;

struct Channel : ibv_comp_channel {
  Channel() : ibv_comp_channel{} {}
  EventDescriptor descriptor;
  std::vector<CompletionQueue*> events;  ///< Oldest first; not a deque, which would allocate now and then.
};

struct Completion {
  ibv_wc work;
  QueuePair* queue_pair;   ///< Null: destroyed since.
  std::uint64_t sequence;  ///< Of a send: QueuePair::retired after it was polled.
  bool send;
};

struct CompletionQueue : ibv_cq {
  CompletionQueue() : ibv_cq{} {}
  enum class Armed : std::uint8_t { kNo, kSolicited, kNext };
  Ring<Completion> ring;
  Armed armed = Armed::kNo;
  int vector = 0;
  bool overflowed = false;
  int queue_pairs = 0;             ///< That use it; one counts twice if both ways.
  std::uint32_t events_taken = 0;  ///< By ibv_get_cq_event(); comp_events_completed of them acknowledged.
  std::uint32_t async_taken = 0;   ///< As above, async_events_completed.
};

struct ReceiveRequest {
  std::uint64_t id;
  std::vector<ibv_sge> parts;
};

/// Posted receives, of an SRQ or of one queue pair.
struct Receives {
  Ring<ReceiveRequest> ring;
  std::uint32_t max_scatter = 0;
  ibv_pd* domain = nullptr;
};

struct ReceiveQueue : ibv_srq {
  ReceiveQueue() : ibv_srq{} {}
  Receives receives;
  std::uint32_t limit = 0;  ///< 0: not armed.
  int queue_pairs = 0;
  std::uint32_t async_taken = 0;
};

struct SendRequest {
  std::uint64_t id;
  std::uint64_t sequence;
  ibv_wr_opcode opcode;
  bool signaled;
  bool solicited;
  bool in_line;
  std::uint32_t immediate;  ///< Network order.
  std::uint64_t remote_address;
  std::uint32_t remote_key;
  std::uint64_t length_bytes;
  std::vector<ibv_sge> parts;
  std::vector<std::byte> bytes;  ///< Of an inline one.
  Clock::time_point posted;
  std::optional<Clock::time_point>
      lost_since;  ///< First try that found nobody, since it last found somebody.
  std::optional<Clock::time_point> not_ready_since;  ///< First try that found no receive.
  Clock::time_point delivered;
  std::optional<std::uint64_t> digest;  ///< Of the source's bytes when they were delivered.
};

struct QueuePair : ibv_qp {
  QueuePair() : ibv_qp{} {}
  Context* owner = nullptr;
  CompletionQueue* sends_complete = nullptr;
  CompletionQueue* receives_complete = nullptr;
  ReceiveQueue* shared = nullptr;  ///< Null: it has receives of its own.
  Receives own;
  ibv_qp_init_attr init{};
  ibv_qp_attr attributes{};
  ibv_qp_state now = IBV_QPS_RESET;  ///< ibv_qp::state is what the user was last told.
  std::uint32_t next_send_psn = 0;
  std::uint32_t expected_psn = 0;
  Ring<SendRequest> sends;    ///< Not complete, oldest first.
  std::size_t delivered = 0;  ///< So many of them await their acknowledgement only.
  std::uint64_t posted = 0;
  std::uint64_t retired = 0;  ///< Send queue entries that are free again.
  bool pending = false;       ///< Listed in Network::pending_.
  bool data_lost = false;
  bool acknowledgements_lost = false;
  bool established = false;  ///< IBV_EVENT_COMM_EST was sent.
  std::uint32_t async_taken = 0;

  Receives& receives() noexcept { return shared != nullptr ? shared->receives : own; }
};

inline Context* context_of(ibv_context* context) noexcept {
  return static_cast<Context*>(verbs_get_ctx(context));
}

}  // namespace ch3_offload::fake_verbs
