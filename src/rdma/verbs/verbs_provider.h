// The InfiniBand and RoCE provider, over libibverbs.
//
// Each pair of processes that talk has one RC queue pair, made on first use and kept while it is used (at most
// RailConfig::most_queue_pairs live at once; the least recently used one is parked). All share one completion queue
// and one shared receive queue (rail.h). What is sent is numbered and kept until acknowledged (link.h), so a queue
// pair that breaks is replaced and nothing is lost. Queue pairs are set up over a TCP connection (frames.h,
// control_channel.h), whose end is also how a peer's death is known.
//
// Several rails: two processes with two pairs of rails in common have two lanes, each a link of its own. The main lane
// takes messages and parts of writes, the second one parts of long writes. Each lane has a home among the pairs of
// rails, by which peers are spread over the rails, and its links move to the other pair when they break there: what
// one rail has lost is sent again over the other.
//
//   verbs_endpoint.h      what it knows of one peer
//   verbs_provider.cc     making it, its end, connect, registering memory
//   verbs_datapath.cc     reserve, commit, write, poll, arm
//   verbs_completions.cc  what arrived, and what the peers' devices have
//   verbs_links.cc        queue pairs: set-up, loss, parking, credit windows
//   verbs_channels.cc     TCP: accepting, introductions, frames; time-outs
//   verbs_failures.cc     events of the device, deaths
//
// Threads: as rdma/provider.h says. fork: a child must not use the provider.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rdma/provider.h"
#include "rdma/verbs/control_channel.h"
#include "rdma/verbs/rail.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/verbs_config.h"
#include "rdma/verbs/verbs_endpoint.h"

namespace ch3_offload {

/// What tests and tools ask for; not part of the provider interface.
struct VerbsFigures {
  std::size_t registered_slot_bytes = 0;
  std::size_t registrations = 0;  ///< Of the caller's memory, live.
  std::uint32_t send_slots_taken = 0;
  std::uint32_t queue_pairs = 0;  ///< Live.
  std::uint64_t links_made = 0;
  std::uint64_t links_lost = 0;
  std::uint64_t links_parked = 0;
  std::uint64_t items_sent_again = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t writes_posted = 0;  ///< Parts.
  std::uint64_t credit_messages = 0;
};

/// For a process that may lock little memory: few and short slots, one rail. From 1 MiB on they take a quarter of
/// `lockable_bytes` at most; else they begin with 32 KiB, and grow while there is room. Some systems and containers
/// allow 64 KiB.
VerbsConfig frugal_config(const VerbsConfig& config, std::size_t lockable_bytes);

class VerbsProvider final : public Provider {
 public:
  /// kUnsupported: this node has no usable port; kNoMemory, kDeviceFailed. The message says what is missing.
  /// Where little memory can be locked, it makes do with few and short slots, and logs so.
  static Result<std::unique_ptr<VerbsProvider>> create(const VerbsConfig& config);
  /// Waits, 2 s at most, until the peers' devices have what was sent, and says goodbye.
  ~VerbsProvider() override;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return address_text_; }
  bool reaches(std::string_view address) const noexcept override;
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override;
  Result<Endpoint*> connect(PeerId peer, std::string_view address) override;
  std::string address_of(PeerId peer) const override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override;
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool end(PeerId peer) noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  int descriptor() const noexcept override { return epoll_.get(); }

  ProviderCounters counters() const noexcept override;

  VerbsFigures figures() const noexcept;
  /// The ports in use.
  std::size_t rail_count() const noexcept { return rails_.size(); }
  const VerbsPort& port(std::size_t rail = 0) const noexcept { return rails_[rail].rail->port(); }
  /// Ends without waiting and without a goodbye, as a killed process would: for tests.
  void abandon() noexcept { abandoned_ = true; }

 private:
  /// A rail and what uses it.
  struct RailUse {
    std::unique_ptr<Rail> rail;
    std::unordered_map<std::uint32_t, VerbsLane*> links;  ///< By the number of their queue pair.
    std::uint32_t windows_total = 0;                      ///< Of all these.
    std::string host;      ///< Address of the port's network interface; empty: it has none, or is not used.
    bool up = true;        ///< The port, as far as we were told.
    bool lost = false;     ///< The device failed.
    bool drained = false;  ///< Lost, and what its completion queue held was taken.
    std::array<ibv_wc, 16> completions{};  ///< Taken from the queue at once; handled up to next_completion.
    std::size_t next_completion = 0;
    std::size_t completion_count = 0;
    bool holds_completions() const noexcept { return next_completion < completion_count; }
  };

  /// A write whose source is still read.
  struct Write {
    WorkId work{};
    VerbsEndpoint* peer = nullptr;
    const std::byte* source = nullptr;
    std::size_t length_bytes = 0;
    std::size_t region = 0;  ///< In registrations_.
    RemoteMemory destination{};
    std::uint64_t part_bytes = 0;  ///< Of each part but the last.
    Immediate immediate{};
    bool striped = false;  ///< Over both lanes.
    std::uint32_t parts = 0;
    std::uint32_t parts_pushed = 0;
    std::uint32_t parts_retired = 0;
  };
  static constexpr std::uint32_t kMostWrites = 256;

  /// A queue pair that is stopped, until nothing of it can be in the completion queue any more.
  struct Zombie {
    QueuePair queue_pair;
    const VerbsEndpoint* peer;
    std::uint64_t since_ns;
    std::uint64_t since_poll;  ///< polls_ at that time.
  };

  explicit VerbsProvider(const VerbsConfig& config) : config_(config) {}
  static Result<std::unique_ptr<VerbsProvider>> create_exactly(const VerbsConfig& config);
  std::optional<Error> set_up();
  [[gnu::format(printf, 2, 3)]] void log(const char* format, ...) const noexcept;

  /// REQUIRES: connect() of this provider returned it.
  static VerbsEndpoint& of(Endpoint& endpoint) noexcept { return static_cast<VerbsEndpoint&>(endpoint); }

  // verbs_provider.cc
  VerbsEndpoint* find(PeerId peer) const noexcept {
    const std::uint32_t index = index_of(peer);
    return index < peers_.size() ? peers_[index].get() : nullptr;
  }
  void make_room_for_lane();
  VerbsEndpoint& find_or_make(PeerId peer);
  VerbsLane& second_lane(VerbsEndpoint& peer);
  void set_address(VerbsEndpoint& peer, VerbsAddress address);
  Result<std::monostate> open_rails();
  static Result<RailUse> open_rail(const VerbsPort& port, const RailConfig& config);
  Result<std::monostate> listen();
  std::size_t working_rails() const noexcept;
  bool has_working_rail(const VerbsEndpoint& peer) const noexcept;
  void linger() noexcept;

  // verbs_datapath.cc
  Status no_room(VerbsEndpoint& peer) noexcept;
  bool has_room(const VerbsEndpoint& peer) const noexcept;
  std::size_t unblock() noexcept;
  std::uint32_t take_send_slot() noexcept;
  void push_message(VerbsLane& lane, std::uint32_t slot, std::uint8_t kind,
                    std::size_t payload_bytes) noexcept;
  VerbsLane* lane_for_part(VerbsEndpoint& peer, const Write& write) noexcept;
  void push_parts(VerbsEndpoint& peer) noexcept;
  void pump(VerbsLane& lane) noexcept;
  int post(VerbsLane& lane) noexcept;
  bool send_credit(VerbsLane& lane) noexcept;
  void flush_tail(VerbsLane& lane) noexcept;
  void send_due_credit() noexcept;
  bool request_notification() noexcept;

  // verbs_completions.cc
  bool poll_all_completions(std::size_t budget) noexcept;
  bool poll_completions(RailUse& use, std::size_t budget) noexcept;
  bool handle_completions(RailUse& use) noexcept;
  void on_receive(RailUse& use, const ibv_wc& completion) noexcept;
  void release_held() noexcept;
  bool deliver(VerbsLane& lane, const ibv_wc& completion, const std::byte* slot) noexcept;
  void on_send_completion(const ibv_wc& completion) noexcept;
  void retire(VerbsLane& lane, std::uint64_t up_to) noexcept;

  // verbs_links.cc
  void want_link(VerbsLane& lane) noexcept;
  void make_wanted_links(std::uint64_t now_ns) noexcept;
  std::uint8_t rail_of(const VerbsLane& lane, std::uint32_t link_number) const noexcept;
  bool is_home(const VerbsLane& lane) const noexcept;
  std::uint32_t next_number(const VerbsLane& lane) const noexcept;
  bool propose(VerbsLane& lane, std::uint64_t now_ns) noexcept;
  QueuePair make_queue_pair(RailUse& use, VerbsLane& lane) noexcept;
  static bool may_make_link(const RailUse& use, bool is_answer) noexcept;
  void retry_link(VerbsLane& lane, std::uint64_t now_ns) noexcept;
  void bind(VerbsLane& lane) noexcept;
  void excuse_waiting(VerbsEndpoint& peer) noexcept;
  void send_connect(VerbsLane& lane) noexcept;
  void send_ready(VerbsLane& lane) noexcept;
  void on_connect_frame(VerbsLane& lane, const ConnectBody& body) noexcept;
  void on_ready_frame(VerbsLane& lane, const LinkBody& body) noexcept;
  void on_park_frame(VerbsLane& lane, const LinkBody& body) noexcept;
  enum class Cause : std::uint8_t {
    kFailure,
    kStall,    ///< Its device says nothing: no word about the peer.
    kRenewal,  ///< By the peer, or because the port was down.
  };
  void lose_link(VerbsLane& lane, const char* why, Cause cause = Cause::kFailure) noexcept;
  void finish_draining() noexcept;
  void bury(VerbsLane& lane) noexcept;
  void destroy_zombies(std::uint64_t now_ns) noexcept;
  void look_for_stalls(std::uint64_t now_ns) noexcept;
  std::uint64_t stall_look_ns() const noexcept;
  bool stalled_for_good(const VerbsLane& lane) const noexcept;
  void park_least_used(RailUse& use, std::uint64_t now_ns) noexcept;
  void begin_to_park(VerbsLane& lane, std::uint64_t now_ns) noexcept;
  void send_park(VerbsLane& lane) noexcept;
  void try_to_park(VerbsLane& lane) noexcept;
  void widen(VerbsLane& lane) noexcept;
  static bool make_room_for_window(RailUse& use, std::uint32_t more, std::uint32_t kept_free) noexcept;

  // verbs_channels.cc
  enum class WatchKind : std::uint32_t { kListener, kNewcomer, kChannel, kCompletions, kDevice, kAlarm };
  bool watch(int descriptor, WatchKind kind, std::uint32_t index, std::uint32_t events) noexcept;
  void unwatch(int descriptor) noexcept;
  void update_watch(VerbsEndpoint& peer) noexcept;
  void send_frame(VerbsEndpoint& peer, const Frame& frame) noexcept;
  bool keep_house() noexcept;
  bool take_completion_events(std::uint32_t rail) noexcept;
  void accept_all(std::uint32_t listener) noexcept;
  bool evict_newcomer() noexcept;
  void retry_listeners() noexcept;
  void refuse_backlog(FileDescriptor& listener) noexcept;
  VerbsEndpoint* check_introduction(ControlChannel& channel, const IntroduceBody& body) noexcept;
  VerbsEndpoint* introduced_peer(ControlChannel& channel, const IntroduceBody& body);
  void hear_newcomer(std::uint32_t index) noexcept;
  void adopt(ControlChannel channel, const IntroduceBody& body) noexcept;
  void refuse(ControlChannel& channel, Refusal reason, const char* why) noexcept;
  void log_refused(const char* why) noexcept;
  void log_shortage(const char* what, int error_number) noexcept;
  void hear_peer(VerbsEndpoint& peer) noexcept;
  void on_frame(VerbsEndpoint& peer, const Frame& frame) noexcept;
  void on_lane_frame(VerbsEndpoint& peer, const Frame& frame) noexcept;
  void on_answer(VerbsEndpoint& peer, const IntroduceBody& body) noexcept;
  void on_refusal(VerbsEndpoint& peer, Refusal reason) noexcept;
  void refused_at_host(VerbsEndpoint& peer) noexcept;
  void dial(VerbsEndpoint& peer) noexcept;
  void dial_next_host(VerbsEndpoint& peer);
  void introduce(VerbsEndpoint& peer) noexcept;
  void channel_opened(VerbsEndpoint& peer) noexcept;
  static bool links_are_well(const VerbsEndpoint& peer) noexcept;
  void lose_channel(VerbsEndpoint& peer, int error_number) noexcept;
  void close_channel(VerbsEndpoint& peer) noexcept;
  void trouble(VerbsEndpoint& peer, bool is_lost = true) noexcept;
  void tend_troubled(std::uint64_t now_ns) noexcept;
  bool tend(VerbsEndpoint& peer, std::uint64_t now_ns) noexcept;
  bool is_overdue(const VerbsEndpoint& peer) const noexcept;

  // verbs_failures.cc
  void on_device_events(RailUse& use) noexcept;
  void on_port_event(RailUse& use, bool up) noexcept;
  void log_port_event(const RailUse& use, bool up, bool others_work) const noexcept;
  void on_device_lost(RailUse& use, const char* what) noexcept;
  void set_alarm() noexcept;
  void start_dying(VerbsEndpoint& peer, Status reason) noexcept;
  void deliver_deaths() noexcept;

  // Set-up: constant after create().
  VerbsConfig config_;
  Capabilities capabilities_;
  VerbsAddress address_;
  std::string address_text_;
  std::uint64_t part_bytes_ = 0;           ///< Longest part of a write.
  std::vector<FileDescriptor> listeners_;  ///< One for each of address_.hosts.
  FileDescriptor epoll_;
  FileDescriptor alarm_;
  std::vector<RailUse> rails_;
  std::unique_ptr<SlotPool> send_slots_;  ///< Of all rails. Gone before them.

  // Data path.
  std::vector<std::unique_ptr<VerbsEndpoint>> peers_;  ///< By PeerId, up to the greatest one met.
  std::size_t lanes_ = 0;  ///< Of all peers. The lists of lanes and peers have room for so many.
  std::vector<Write> writes_;
  std::vector<std::uint32_t> free_writes_;
  std::vector<std::array<Registration, VerbsAddress::kMostRails>> registrations_;  ///< One for each rail.
  std::vector<std::uint32_t> free_registrations_;
  std::vector<VerbsLane*> credit_due_;
  bool held_ = false;  ///< The Sink still reads the latest message (Delivery::kHeld):
  Rail* held_rail_ = nullptr;
  std::uint32_t held_slot_ = 0;  ///< Of held_rail_.
  Sink* sink_ = nullptr;         ///< During poll().
  std::size_t delivered_ = 0;    ///< By this poll().
  std::uint64_t polls_ = 0;
  std::uint64_t emptied_poll_ = 0;  ///< polls_ when the completion queue was last seen empty.
  bool armed_ = false;
  bool alarm_is_set_ = false;
  bool abandoned_ = false;
  std::vector<VerbsEndpoint*> blocked_;

  // Links.
  std::vector<VerbsLane*> draining_;  ///< Links in kDraining.
  std::vector<Zombie> zombies_;
  std::vector<VerbsLane*> waiting_;     ///< `proposal_waits`.
  std::vector<VerbsLane*> being_made_;  ///< make_wanted_links() only.

  // Housekeeping.
  std::uint64_t last_housekeeping_ = 0;      ///< CycleClock. 0: due now.
  std::uint64_t housekeeping_interval_ = 0;  ///< In its ticks.
  std::uint32_t busy_polls_ = 0;
  std::uint64_t last_tick_ns_ = 0;
  std::uint64_t last_look_for_stalls_ns_ = 0;
  /// Advances like the clock while this process looks after what is troubled, and hardly while it does not poll:
  /// what took no try is no failure. Starts so late that there is a time before.
  std::uint64_t patience_ns_ = std::uint64_t{1} << 50;
  std::vector<ControlChannel> newcomers_;  ///< By watch index; a closed one is free.
  std::vector<VerbsEndpoint*> troubled_;
  std::vector<VerbsEndpoint*> dying_;
  bool listeners_paused_ = false;      ///< No descriptor was left; tried again at the next tick.
  std::uint64_t paused_since_ns_ = 0;  ///< In patience_ns_; 0: they are not.
  FileDescriptor spare_;               ///< Given up for a moment to refuse those that wait.
  std::size_t next_evicted_ = 0;       ///< In newcomers_, modulo its size.
  std::uint32_t port_events_ = 0;      ///< The first few are logged.
  std::uint64_t refused_ = 0;          ///< Connections refused; the first is logged.
  bool loss_logged_ = false;
  bool dial_logged_ = false;
  bool shortage_logged_ = false;
  bool queue_pair_logged_ = false;
  VerbsFigures figures_;
};

}  // namespace ch3_offload
