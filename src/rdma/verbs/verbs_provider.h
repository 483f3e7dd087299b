// The InfiniBand and RoCE provider, over libibverbs.
//
// Each pair of processes that talk has one RC queue pair, made on first use and kept while it is used (at
// most RailConfig::most_queue_pairs live at once; the least recently used one is parked). All share one
// completion queue and one shared receive queue. What is sent is numbered and kept until acknowledged, so a
// queue pair that breaks is replaced and nothing is lost. Queue pairs are introduced to each other over short
// TCP connections. Once a link is up, no connection is left: an idle pair sends nothing.
//
// How a peer's death is known: a dial to it is refused; or a link to it failed, and then no dial is answered.
// A dial is made when a link is wanted, and when one has failed. Who waits for a silent peer probes the link:
// the write fails if the peer's device does not answer.
//
// Several rails: two processes with two pairs of rails in common have two lanes, each a link of its own. The
// main lane takes messages and parts of writes, the second one parts of long writes. Each lane has a home
// among the pairs of rails, by which peers are spread over the rails, and its links move to the other pair
// when they break there: what one rail has lost is sent again over the other.
//
// Rail, Transport, Links and SocketIntroducer do the work (README.md). This class makes them, and knows the
// peers and their ends:
//
//   verbs_provider.cc      making it, connecting
//   verbs_housekeeping.cc  poll, sleep, and what descriptors and time ask for
//   verbs_failures.cc      ports, devices, deaths
//
// Threads: as rdma/provider.h says. fork: a child must not use the provider.

#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rdma/introduction/socket_introducer.h"
#include "rdma/log.h"
#include "rdma/peer_table.h"
#include "rdma/provider.h"
#include "rdma/verbs/devices/rail.h"
#include "rdma/verbs/devices/registrations.h"
#include "rdma/verbs/links/links.h"
#include "rdma/verbs/transport/transport.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/verbs_config.h"
#include "rdma/verbs/verbs_endpoint.h"

namespace ch3_offload {

/// What tests and tools ask for; not part of the provider interface.
struct VerbsFigures {
  std::size_t registered_slot_bytes = 0;
  std::size_t registrations = 0;  ///< Of the caller's memory, live.
  std::uint32_t send_slots_taken = 0;
  std::size_t waiting_messages = 0;  ///< For links that are not up.
  std::size_t queue_pairs = 0;       ///< Live.
  std::uint64_t dials = 0;           ///< Connections begun.
  std::size_t descriptors = 0;       ///< For introductions: listeners and connections.
  Links::Figures links;
  Transport::Figures traffic;
};

class VerbsProvider final : public Provider, private Links::Client, private Rail::Client {
  struct Set;

 public:
  /// kUnsupported: this node has no usable port; kNoMemory, kDeviceFailed. The message says what is missing.
  static Result<std::unique_ptr<VerbsProvider>> create(const VerbsConfig& config);
  /// For create() only.
  VerbsProvider(const VerbsConfig& config, Set&& set);
  /// Waits, for the peer time-out at most, until the peers' devices have what was sent.
  ~VerbsProvider() override;
  bool leave() noexcept override;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return address_.to_string(); }
  bool reaches(std::string_view address) const noexcept override;
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override;
  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override;
  std::string address_of(PeerId peer) const override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override {
    return registrations_.add(address, length_bytes, access, capabilities_.on_demand, region);
  }
  void deregister_memory(MemoryRegion& region) noexcept override { registrations_.remove(region); }
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override {
    assert(length_bytes >= 1 && length_bytes <= max_slot_bytes(endpoint));
    return transport_.reserve(of(endpoint), length_bytes, slot);
  }
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    transport_.commit(of(endpoint), length_bytes);
  }
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool end(PeerId peer) noexcept override;
  bool forget(PeerId peer) noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  int descriptor() const noexcept override { return epoll_.get(); }

  ProviderCounters counters() const noexcept override;

  VerbsFigures figures() const noexcept;
  /// The ports in use.
  std::size_t rail_count() const noexcept { return rails_.size(); }
  const VerbsPort& port(std::size_t rail = 0) const noexcept { return rails_[rail]->port(); }
  /// Ends without waiting, as a killed process would: for tests.
  void abandon() noexcept { abandoned_ = true; }
  /// Lets the next poll() probe all silent peers, as if time had passed: for tests. Any thread.
  void probe_soon() noexcept;

 private:
  /// What create() opens before there is a provider.
  struct Set {
    std::vector<std::unique_ptr<Rail>> rails;
    VerbsAddress address;
    std::vector<FileDescriptor> listeners;
    std::unique_ptr<SlotPool> slots;
  };
  static Result<Set> open(const VerbsConfig& config, const Log& log);

  /// REQUIRES: connect() of this provider returned it.
  static VerbsEndpoint& of(Endpoint& endpoint) noexcept { return static_cast<VerbsEndpoint&>(endpoint); }

  // verbs_provider.cc
  VerbsEndpoint* find(PeerId peer) const noexcept { return peers_.find(peer); }
  void make_room_for_lane();
  VerbsEndpoint& find_or_make(PeerId peer);
  VerbsLane& second_lane(VerbsEndpoint& peer);
  bool second_lane_is_up(VerbsEndpoint& peer) noexcept;
  void set_address(VerbsEndpoint& peer, const VerbsAddress& address, const PeerNames& names);
  VerbsLane* meet(PeerId peer, std::uint32_t lane, const VerbsAddress& address,
                  const PeerNames& names) override;
  bool has_working_rail(const VerbsEndpoint& peer) const noexcept;
  static bool has_unsent(const VerbsEndpoint& peer) noexcept;

  // verbs_housekeeping.cc
  enum class WatchKind : std::uint32_t { kIntroducer, kCompletions, kDevice, kAlarm };
  bool watch_all() noexcept;
  bool watch(int descriptor, WatchKind kind, std::uint32_t index) noexcept;
  bool keep_house() noexcept;
  void look_after_peers(std::uint64_t now_ns) noexcept;
  bool request_notification() noexcept;
  void set_alarm() noexcept;
  bool set_alarm(std::uint64_t delay_ns) const noexcept;
  void on_work() noexcept override;

  // verbs_failures.cc
  void on_queue_pair_failed(VerbsLane& lane, const char* why) noexcept override;
  void on_port(Rail& rail, bool is_up) noexcept override;
  void on_address_changed(Rail& rail, const char* why) noexcept override;
  void on_device_failed(Rail& rail, const char* why, LogScope scope) noexcept override;
  void on_rail_failed(Rail& rail, const char* why) noexcept override {
    on_device_failed(rail, why, LogScope::kProcess);
  }
  void on_peer_over(VerbsEndpoint& peer, Status reason) noexcept override;
  bool say_farewell(VerbsEndpoint& peer) noexcept;
  void finish_farewells(std::uint64_t now_ns) noexcept;
  void deliver_deaths() noexcept;

  const VerbsConfig config_;
  const Log log_;
  const VerbsAddress address_;
  const std::vector<std::unique_ptr<Rail>> rails_;
  Capabilities capabilities_;
  Registrations registrations_;
  Links links_;
  Transport transport_;
  SocketIntroducer introducer_;

  PeerTable<VerbsEndpoint> peers_;
  std::size_t lanes_ = 0;  ///< Of all peers.
  std::size_t room_ = 0;   ///< Lanes that all lists have room for.
  std::vector<VerbsEndpoint*> dying_;
  std::vector<VerbsEndpoint*> farewells_;  ///< `leaving_since_ns` is set.

  FileDescriptor epoll_;
  FileDescriptor alarm_;
  bool armed_ = false;
  bool alarm_is_set_ = false;
  bool abandoned_ = false;
  /// What leave() is at.
  enum class Leaving : std::uint8_t {
    kNot,
    kSending,   ///< What was sent before.
    kFarewell,  ///< The farewells.
    kOver,
  };
  Leaving leaving_ = Leaving::kNot;
  std::uint64_t leaving_until_ns_ = 0;       ///< Unless kNot.
  std::uint64_t last_housekeeping_ = 0;      ///< CycleClock. 0: due now.
  std::uint64_t housekeeping_interval_ = 0;  ///< In its ticks.
  std::uint32_t busy_polls_ = 0;
  std::uint64_t last_round_ns_ = 0;
  std::uint64_t last_look_ns_ = 0;
  std::size_t next_checked_ = 0;  ///< In peers_, modulo its size.
  bool has_new_wants_ = false;    ///< A link was wanted since make_wanted() was called.
  std::atomic<bool> probe_soon_{false};
  std::uint32_t port_events_ = 0;  ///< The first few are logged.
};

}  // namespace ch3_offload
