// A verbs device in software: libibverbs for programs on machines without RDMA, with faults on demand. This
// is what tests say to it; to its users it is <infiniband/verbs.h>.
//
// The fake's sources define the ibv_* functions. A program that links them gets these instead of
// libibverbs.so's: the linker takes a program's own symbols first.
//
// Devices, limits and behaviour come from Config: reset() before each test, adjust() within one. All devices
// hang on one network: a queue pair finds its peer by GID (or LID) and number. RC queue pairs, with or
// without SRQ; send, RDMA write, both also with immediate; completion channels and asynchronous events over
// real descriptors. Not there: RDMA read, atomics, UD and UC, SQD, memory windows, the extended post and poll
// interfaces (as on a device that lacks them: EOPNOTSUPP or EINVAL).
//
// What makes mistakes show: data is read from its source when it is transferred, not when it is posted, and
// looked at again when it is acknowledged (Config::acknowledge_delay); fields of a completion that the
// standard leaves undefined hold rubbish; lkey and rkey differ; keys are not used again; objects are heap
// blocks of their own, freed when they are destroyed; a destroy that would leave children behind, or would
// wait for an acknowledgement, fails with EBUSY and is a violation(). The post and poll calls do not allocate
// once traffic has flowed, so that tests may count.
//
// Threads: any. One mutex guards everything; no call waits for a peer. A transfer is tried in the call that
// posts it; one that cannot go on is tried again by later calls, and by a thread of the fake
// (Config::pump_interval).

#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ch3_offload::fake_verbs {

struct Gid {
  ibv_gid value{};  ///< All zero: an empty row of the table.
  ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
  std::uint32_t interface_index = 1;  ///< Of the network interface; 0: none.
};

/// ::ffff:a.b.c.d
ibv_gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) noexcept;
/// A subnet prefix (fe80::/64 is the default one) and an interface identifier, in host order.
ibv_gid prefix_gid(std::uint64_t subnet_prefix, std::uint64_t interface_id) noexcept;

struct PortConfig {
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_mtu active_mtu = IBV_MTU_4096;
  std::uint32_t max_message_bytes = 1u << 30;
  std::uint16_t lid = 0;  ///< 0 on Ethernet.
  std::uint16_t sm_lid = 0;
  std::vector<std::uint16_t> partition_keys = {0xFFFF};  ///< 0: an empty row of the table.
  bool needs_global_route = false;                       ///< IBV_QPF_GRH_REQUIRED.
  std::vector<Gid> gids{};
};

/// RoCE: a v1 link-local GID in row 0, v2 ::ffff:127.0.0.1 in row 1.
PortConfig ethernet_port();
/// One GID with the default subnet prefix.
PortConfig infiniband_port(std::uint16_t lid);

struct DeviceConfig {
  std::string name = "fake0";
  std::string sysfs_path{};  ///< ibv_device::ibdev_path; empty: /sys/class/infiniband/ and the name.
  std::vector<PortConfig> ports = {ethernet_port()};
  int open_error = 0;  ///< errno of ibv_open_device(); 0: it works.
  int completion_vectors = 4;
  // Numbers of objects; one more is ENOMEM.
  int max_contexts = 1024;
  int max_domains = 1024;
  int max_regions = 1 << 16;
  int max_completion_queues = 1024;
  int max_receive_queues = 1024;
  int max_queue_pairs = 1024;
  // Sizes; more is EINVAL.
  int max_completions = 1 << 16;  ///< Of a completion queue.
  int max_work_requests = 1 << 14;
  int max_srq_work_requests = 1 << 14;
  int max_scatter = 8;
  std::uint32_t max_inline_bytes = 256;
  std::uint64_t max_region_bytes = std::uint64_t{1} << 40;
  bool faults_pages = false;  ///< IBV_ACCESS_ON_DEMAND works: memory need not be there, and does not count.
  std::uint64_t registered_bytes_per_context = UINT64_MAX;  ///< RLIMIT_MEMLOCK; more is ENOMEM.
  // Queue pair numbers are given out in turn from a range; a small one is used again soon.
  std::uint32_t first_queue_pair_number = 0x11;
  std::uint32_t queue_pair_numbers = 1u << 16;
  bool lowest_number_first = false;  ///< Not in turn: a number is used again at once.
};

struct Config {
  std::vector<DeviceConfig> devices = {DeviceConfig{}};
  int list_error = 0;  ///< errno of ibv_get_device_list(), e.g. ENOSYS: no kernel module; 0: it works.
  ibv_fork_status fork_status = IBV_FORK_UNNEEDED;

  /// So long a transfer is tried again before IBV_WC_RETRY_EXC_ERR (unless the queue pair's timeout is 0: for
  /// ever) or, unless its rnr_retry is 7, IBV_WC_RNR_RETRY_EXC_ERR.
  std::chrono::microseconds retry_timeout{200'000};
  /// Of a send that finds its own port down. rxe: IBV_WC_LOC_QP_OP_ERR, which comes at once.
  ibv_wc_status dead_port_status = IBV_WC_RETRY_EXC_ERR;
  std::chrono::microseconds transfer_delay{0};     ///< From post to delivery.
  std::chrono::microseconds acknowledge_delay{0};  ///< From delivery to the sender's completion.
  /// How often a thread of the fake tries again what could not go on. 0: no thread, later calls only.
  std::chrono::microseconds pump_interval{2'000};

  /// errno of ibv_modify_qp() to RTR when no port has the peer's address, e.g. ETIMEDOUT; 0: it works, sends
  /// time out.
  int unresolved_error = 0;

  bool last_wqe_event = true;              ///< IBV_EVENT_QP_LAST_WQE_REACHED; mlx5 sends it, rxe does not.
  bool communication_established = false;  ///< IBV_EVENT_COMM_EST for traffic in RTR.
  bool limit_event_when_armed = true;      ///< An SRQ below the limit reports it when armed; rxe does not.
  bool purge_destroyed =
      false;  ///< Completions of a destroyed queue pair vanish (mlx5); else they stay (rxe).
  bool remote_key_is_local_key = false;  ///< As on mlx5; else they differ.

  /// Called under the fake's lock with each message and write on delivery, once; may change its bytes and
  /// immediate. It must not call verbs.
  struct Transfer {
    std::uint32_t source;       ///< Queue pair number.
    std::uint32_t destination;  ///< Queue pair number.
    ibv_wr_opcode opcode;
    std::uint32_t immediate;       ///< Network order.
    std::uint64_t remote_address;  ///< Of a write.
  };
  std::function<void(Transfer&, std::span<std::byte>)> tamper{};
};

/// Devices fake0 and fake1 with one RoCE port each, at 127.0.0.1 and 127.0.0.2.
Config two_rails();

/// Since reset(), over all devices.
struct Counters {
  std::uint64_t post_send_calls = 0;  ///< Doorbells.
  std::uint64_t post_receive_calls = 0;
  std::uint64_t notification_requests = 0;
  // Delivered:
  std::uint64_t sends = 0;
  std::uint64_t inline_sends = 0;  ///< Of these, and of the writes.
  std::uint64_t writes = 0;        ///< Without immediate.
  std::uint64_t writes_with_immediate = 0;
  std::uint64_t bytes = 0;
  // What went otherwise:
  std::uint64_t receiver_not_ready = 0;  ///< Transfers that found no receive posted.
  std::uint64_t lost = 0;                ///< Transfers that found no peer, or were lost on demand.
  std::uint64_t send_errors = 0;         ///< Completions with an error that are no flush.
  std::uint64_t flushed = 0;             ///< Work requests, sends and receives.
  std::uint64_t overflows = 0;           ///< Completions for which a queue had no room.
  // Resources:
  std::uint64_t receives_posted = 0;
  std::uint64_t queue_pairs = 0;  ///< Created.
  std::uint64_t registrations = 0;
  std::uint64_t registered_bytes = 0;  ///< Now.
  std::uint64_t most_registered_bytes = 0;
};

/// Live objects.
struct Leaks {
  int device_lists = 0, contexts = 0, domains = 0, regions = 0, channels = 0, completion_queues = 0,
      receive_queues = 0, queue_pairs = 0;
  bool none() const noexcept;
};
std::ostream& operator<<(std::ostream& out, const Leaks& leaks);

struct QueuePairInfo {
  std::string device;
  std::uint32_t number;
  std::uint32_t peer_number;  ///< 0 before RTR.
  ibv_qp_state state;
  std::size_t outstanding;  ///< Sends that are not complete.
  ibv_context* context;
};

enum class Loss {
  /// It is tried again and arrives.
  kOnce,
  /// It and all that this queue pair sends from now on never arrives; of a long write the first packet does.
  kData,
  /// It and all after it arrives, but its sender never learns; it sees IBV_WC_RETRY_EXC_ERR.
  kAcknowledge,
};

/// A new network. Ends what lives on the old one, whose objects must not be used any more.
void reset(Config config = {});
/// Changes the configuration under the fake's lock; applies from the next call on. Devices and ports can be
/// neither added nor removed. `change` must not call this file's functions.
void adjust(const std::function<void(Config&)>& change);

Counters counters();
Leaks leaks();
/// Whether the calling thread is inside a call of the API: for tests that count allocations.
bool is_in_call() noexcept;
/// Misuse that the API does not report, in words. Tests end by checking that there is none.
std::vector<std::string> violations();
std::vector<QueuePairInfo> queue_pairs();
/// Of each completion queue, in no order.
std::vector<int> completion_vectors();

/// The port's link goes down or up; every context gets IBV_EVENT_PORT_ERR or IBV_EVENT_PORT_ACTIVE.
void set_link(std::string_view device, bool up, std::uint8_t port = 1);
/// Nothing passes from or to the device's port, and nobody is told.
void set_silent(std::string_view device, bool silent, std::uint8_t port = 1);
/// The next transfers, of whichever queue pairs.
void drop_next(unsigned transfers, Loss loss);
/// Every context of the device gets an event without object.
void raise_event(std::string_view device, ibv_event_type event, std::uint8_t port = 1);
/// Breaks one queue pair: IBV_EVENT_QP_FATAL and error state. False: there is none of that number.
bool kill_queue_pair(std::string_view device, std::uint32_t number);
/// IBV_EVENT_DEVICE_FATAL; all queue pairs go to error; what makes or posts anything fails with EIO from now
/// on.
void kill_device(std::string_view device);
/// The calls of one function ("ibv_create_qp"; ibv_reg_mr_iova2() counts as "ibv_reg_mr") fail with `error`:
/// the `nth` from now (1: the next), and so many in a row. Another fail_call() for the function replaces
/// this.
void fail_call(std::string_view function, unsigned nth, int error, unsigned times = 1);

}  // namespace ch3_offload::fake_verbs
