// The network that fake verbs devices hang on: all objects, and all that happens between them. For the fake's
// own sources; tests include fake_verbs.h.

#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "rdma/verbs/fake_verbs_objects.h"

namespace ch3_offload::fake_verbs {

class Network {
 public:
  static Network& get();
  ~Network();

  // fake_verbs_control.cc
  void reset(Config config);
  Device* find_device(std::string_view name) noexcept;
  const DeviceConfig& config_of(const Device& device) const noexcept { return config_.devices[device.index]; }
  void violation(std::string what) { violations_.push_back(std::move(what)); }

  // fake_verbs_events.cc
  void add_event(Context& context, ibv_event_type type, void* element);
  void add_port_event(Device& device, ibv_event_type type, std::uint8_t port);
  /// Events of an object that is destroyed are not delivered any more.
  void forget_events(Context& context, const void* element);

  // fake_verbs_memory.cc
  /// Where the bytes are; null if no live region of that domain and access holds them all.
  std::byte* find_local(std::uint32_t key, const ibv_pd* domain, std::uint64_t address,
                        std::uint64_t length_bytes, unsigned access) const noexcept;
  std::byte* find_remote(std::uint32_t key, const ibv_pd* domain, std::uint64_t address,
                         std::uint64_t length_bytes, unsigned access) const noexcept;

  // fake_verbs_completion.cc
  void complete(CompletionQueue& queue, const Completion& completion, bool solicited);
  void complete_send(QueuePair& pair, const SendRequest& request, ibv_wc_status status);
  /// A receive that ends without a message.
  void complete_receive(QueuePair& pair, std::uint64_t id, ibv_wc_status status);
  void complete_arrival(QueuePair& pair, std::uint64_t id, const Config::Transfer& transfer,
                        std::size_t length_bytes, bool solicited);
  /// Its completions lose their queue pair, or vanish.
  void forget_completions(QueuePair& pair, bool purge);

  // fake_verbs_receive.cc
  int post_receives(Receives& receives, ibv_recv_wr* list, ibv_recv_wr** bad);
  void check_limit(ReceiveQueue& queue);

  // fake_verbs_queue_pair.cc
  void enter_error(QueuePair& pair);
  /// Forgets what it was to send; nothing completes.
  void clear_sends(QueuePair& pair);
  /// It is not pending any more.
  void unlist(QueuePair& pair);

  // fake_verbs_transport.cc
  /// Tries what is pending. Called by whatever may have made it possible.
  void progress();
  /// After something was posted.
  void start(QueuePair& pair);

  // fake_verbs_progress.cc
  void stop_pump(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  Config config_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<DeviceHandle>> handles_;
  int device_lists_ = 0;
  Owned<Context> contexts_;
  Owned<Domain> domains_;
  Owned<Region> regions_;
  std::unordered_map<std::uint32_t, Region*> local_keys_;
  std::unordered_map<std::uint32_t, Region*> remote_keys_;
  std::uint32_t next_key_ = 0;
  std::uint32_t next_handle_ = 0;
  Owned<Channel> channels_;
  Owned<CompletionQueue> completion_queues_;
  Owned<ReceiveQueue> receive_queues_;
  Owned<QueuePair> queue_pairs_;
  Counters counters_;
  std::vector<std::string> violations_;
  unsigned drops_ = 0;
  Loss drop_kind_ = Loss::kOnce;

  struct Failure {
    unsigned skip;   ///< Calls that work first.
    unsigned times;  ///< Calls that fail then.
    int error;
  };
  std::map<std::string, Failure, std::less<>> failures_;

 private:
  enum class Outcome : std::uint8_t { kDelivered, kLost, kNotReady, kFailed };
  void advance(QueuePair& pair, Clock::time_point now);
  void transfer_all(QueuePair& pair, Clock::time_point now);
  void acknowledge(QueuePair& pair, Clock::time_point now);
  void expire(QueuePair& pair, Clock::time_point now);
  void fail(QueuePair& pair, ibv_wc_status status);
  Outcome transfer(QueuePair& pair, SendRequest& request, ibv_wc_status& status);
  Outcome deliver(QueuePair& pair, SendRequest& request, QueuePair& peer, ibv_wc_status& status);
  Outcome refuse(QueuePair& peer, ibv_event_type event, ibv_wc_status answer, ibv_wc_status& status);
  void write_first_packet(QueuePair& pair, SendRequest& request);
  bool readable(const QueuePair& pair, const SendRequest& request) const;
  bool gather(const QueuePair& pair, const SendRequest& request);
  bool scatter(const Receives& receives, const ReceiveRequest& receive);
  QueuePair* find_peer(const QueuePair& pair);
  bool strike(QueuePair& pair, SendRequest& request);
  std::uint64_t digest() const noexcept;
  void run_pump();
  void wake_pump();

  std::vector<QueuePair*> pending_;
  std::vector<std::byte> message_;  ///< The bytes in flight, while they are.
  std::thread pump_;
  std::condition_variable pump_wake_;
  bool pump_sleeps_ = false;
  bool pump_stops_ = false;
};

/// One call of the API: holds the lock, and knows whether it is to fail.
class Call {
 public:
  explicit Call(std::string_view function);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// The errno of fail_call(), or 0.
  int error() const noexcept { return error_; }
  std::unique_lock<std::mutex>& lock() noexcept { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
  int error_ = 0;
};

// The calls that libibverbs makes through ibv_context::ops.
int poll_cq(ibv_cq* queue, int capacity, ibv_wc* completions);
int req_notify_cq(ibv_cq* queue, int solicited_only);
int post_srq_recv(ibv_srq* queue, ibv_recv_wr* list, ibv_recv_wr** bad);
int post_recv(ibv_qp* pair, ibv_recv_wr* list, ibv_recv_wr** bad);
int post_send(ibv_qp* pair, ibv_send_wr* list, ibv_send_wr** bad);

/// Whether a path leads to that port.
bool leads_to(const ibv_ah_attr& path, const PortConfig& port) noexcept;

/// Sets errno; null, for the functions that return a pointer.
std::nullptr_t failed(int error) noexcept;

}  // namespace ch3_offload::fake_verbs
