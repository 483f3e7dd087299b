// The InfiniBand and RoCE provider, over libibverbs.
//
// Each pair of processes that talk has one RC queue pair, made on first use and kept while it is used (at
// most RailConfig::most_queue_pairs live at once; the least recently used one is parked). All share one
// completion queue and one shared receive queue (rail.h). What is sent is numbered and kept until
// acknowledged (link.h), so a queue pair that breaks is replaced and nothing is lost. Queue pairs are
// introduced to each other over short TCP connections (wire_up/wire_up.h). Once a link is up, no connection
// is left: an idle pair sends nothing.
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
//   verbs_endpoint.h      what it knows of one peer
//   verbs_provider.cc     making it, its end, connect, registering memory
//   verbs_datapath.cc     reserve, commit, write, poll, arm
//   verbs_completions.cc  what arrived, and what the peers' devices have
//   verbs_links.cc        queue pairs: set-up, loss, parking, credit windows
//   verbs_wire_up.cc      what introductions mean to links
//   verbs_housekeeping.cc what descriptors and time ask for
//   verbs_failures.cc     events of the device, deaths
//
// Threads: as rdma/provider.h says. fork: a child must not use the provider.

#pragma once

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rdma/provider.h"
#include "rdma/verbs/rail.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/verbs_config.h"
#include "rdma/verbs/verbs_endpoint.h"
#include "rdma/verbs/wire_up/wire_up.h"

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
  std::size_t waiting_messages = 0;  ///< For links that are not up.
  std::uint64_t probes = 0;          ///< Writes of nothing that asked whether a silent peer lives.
  std::uint64_t dials = 0;           ///< Connections begun.
  std::size_t descriptors = 0;       ///< For introductions: listeners and connections.
};

class VerbsProvider final : public Provider, private WireUp::Client {
 public:
  /// kUnsupported: this node has no usable port; kNoMemory, kDeviceFailed. The message says what is missing.
  static Result<std::unique_ptr<VerbsProvider>> create(const VerbsConfig& config);
  /// Waits, for the peer time-out at most, until the peers' devices have what was sent.
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
  /// Ends without waiting, as a killed process would: for tests.
  void abandon() noexcept { abandoned_ = true; }
  /// Lets the next poll() probe all silent peers, as if time had passed: for tests. Any thread.
  void probe_soon() noexcept;

 private:
  /// A rail and what uses it.
  struct RailUse {
    std::unique_ptr<Rail> rail;
    std::unordered_map<std::uint32_t, VerbsLane*> links;  ///< By the number of their queue pair.
    std::uint32_t zombies = 0;                            ///< In zombies_.
    std::uint32_t windows_total = 0;                      ///< Of all these.
    bool up = true;        ///< The port, as far as we were told.
    bool lost = false;     ///< The device failed.
    bool drained = false;  ///< Lost, and what its completion queue held was taken.
    bool tells_last_receive = false;       ///< The device raises IBV_EVENT_QP_LAST_WQE_REACHED.
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
    std::uint8_t rail;
    std::uint64_t since_ns;    ///< Since then it is stopped.
    std::uint64_t since_poll;  ///< polls_ when it was buried, or when the device said that it is empty.
    bool is_empty;             ///< The device has said so.
  };

  explicit VerbsProvider(const VerbsConfig& config) : config_(config) {}
  std::optional<Error> set_up();
  /// Logs a line about this process; with a scope, one of that scope.
  [[gnu::format(printf, 2, 3)]] void log(const char* format, ...) const noexcept;
  [[gnu::format(printf, 3, 4)]] void log(LogScope scope, const char* format, ...) const noexcept;
  void log_line(LogScope scope, const char* format, va_list arguments) const noexcept;

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
  Result<bool> listen_at(std::uint16_t port, std::vector<FileDescriptor>& listeners);
  std::size_t working_rails() const noexcept;
  bool has_working_rail(const VerbsEndpoint& peer) const noexcept;
  void linger(std::uint64_t deadline_ns) noexcept;

  // verbs_datapath.cc
  Status no_room(VerbsEndpoint& peer) noexcept;
  bool has_room(const VerbsEndpoint& peer) const noexcept;
  std::size_t unblock() noexcept;
  /// RULE CREDIT GETS THROUGH. The last send slots are for messages of credit, parking and goodbye: without
  /// these, who waits for credit would hold slots for ever.
  enum class SlotUse : std::uint8_t { kMessage, kCredit };
  std::uint32_t take_send_slot(SlotUse use) noexcept;
  bool may_take_send_slot() const noexcept;
  Status reserve_waiting(VerbsEndpoint& peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept;
  void push_message(VerbsLane& lane, Item::Kind item_kind, std::uint32_t index, std::uint8_t kind,
                    std::size_t payload_bytes) noexcept;
  bool push_notice(VerbsLane& lane, std::uint8_t kind) noexcept;
  std::byte* message_at(const Item& item) const noexcept;
  bool move_to_slot(VerbsLane& lane, Item& item) noexcept;
  void move_from_slots(Link& link) noexcept;
  void give_back_message(const Item& item) noexcept;
  void give_back_reserved(VerbsEndpoint& peer) noexcept;
  void pump_lacking() noexcept;
  VerbsLane* lane_for_part(VerbsEndpoint& peer, const Write& write) noexcept;
  void push_parts(VerbsEndpoint& peer) noexcept;
  void pump(VerbsLane& lane) noexcept;
  int post(VerbsLane& lane) noexcept;
  bool send_credit(VerbsLane& lane) noexcept;
  void flush_tail(VerbsLane& lane) noexcept;
  bool post_empty_write(VerbsLane& lane) noexcept;
  void probe(VerbsLane& lane) noexcept;
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
  void drop_introductions(VerbsLane& lane) noexcept;
  QueuePair make_queue_pair(RailUse& use, VerbsLane& lane) noexcept;
  static bool may_make_link(const RailUse& use, bool is_answer) noexcept;
  OfferBody offer_of(VerbsLane& lane) noexcept;
  bool bind(VerbsLane& lane) noexcept;
  void forget_parking(VerbsLane& lane) noexcept;
  void link_is_up(VerbsLane& lane) noexcept;
  enum class Cause : std::uint8_t {
    kFailure,
    kStall,    ///< Its device says nothing: no word about the peer.
    kRenewal,  ///< By the peer, or because the port was down.
  };
  void lose_link(VerbsLane& lane, const char* why, Cause cause = Cause::kFailure) noexcept;
  void on_last_receive(RailUse& use, const ibv_qp* queue_pair) noexcept;
  static std::uint64_t most_stop_ns(const RailUse& use) noexcept;
  static bool is_needed(const VerbsLane& lane) noexcept;
  void finish_draining() noexcept;
  void bury(VerbsLane& lane) noexcept;
  void destroy_zombies(std::uint64_t now_ns) noexcept;
  void look_for_stalls(std::uint64_t now_ns) noexcept;
  void look_for_stall(VerbsLane& lane, bool probes) noexcept;
  void check_peers_without_link() noexcept;
  std::uint64_t stall_look_ns() const noexcept;
  bool stalled_for_good(const VerbsLane& lane) const noexcept;
  void park_least_used(RailUse& use, std::uint64_t now_ns) noexcept;
  void on_park(VerbsLane& lane) noexcept;
  void begin_to_park(VerbsLane& lane, std::uint64_t now_ns) noexcept;
  void try_to_park(VerbsLane& lane) noexcept;
  void go_on_parking() noexcept;
  void widen(VerbsLane& lane) noexcept;
  static bool make_room_for_window(RailUse& use, std::uint32_t more, std::uint32_t kept_free) noexcept;

  // verbs_wire_up.cc
  VerbsLane& lane_of(const WireUp::Contact& contact) const noexcept;
  WireUp::Contact* meet(const HelloBody& body, const VerbsAddress& address) override;
  std::uint32_t last_link(const WireUp::Contact& contact) const noexcept override;
  void on_answer(WireUp::Contact& contact, std::uint32_t peers_last_link) noexcept override;
  void on_offer(WireUp::Contact& contact, const OfferBody& offer, bool is_answer) noexcept override;
  void on_ready(WireUp::Contact& contact) noexcept override;
  void on_broken(WireUp::Contact& contact) noexcept override;
  void on_knock(WireUp::Contact& contact, std::uint32_t peers_last_link) noexcept override;
  void on_gone(WireUp::Contact& contact, const char* why) noexcept override;
  void on_silence(WireUp::Contact& contact, WireUp::Silence silence) noexcept override;
  void breach(VerbsLane& lane) noexcept;

  // verbs_housekeeping.cc
  enum class WatchKind : std::uint32_t { kWireUp, kCompletions, kDevice, kAlarm };
  bool watch(int descriptor, WatchKind kind, std::uint32_t index) noexcept;
  void unwatch(int descriptor) noexcept;
  bool keep_house() noexcept;
  bool take_completion_events(std::uint32_t rail) noexcept;
  void set_alarm() noexcept;

  // verbs_failures.cc
  void on_device_events(RailUse& use) noexcept;
  void on_port_event(RailUse& use, bool up) noexcept;
  void log_port_event(const RailUse& use, bool up, bool others_work) const noexcept;
  void on_device_lost(RailUse& use, const char* what, LogScope scope = LogScope::kProcess) noexcept;
  void start_dying(VerbsEndpoint& peer, Status reason) noexcept;
  void stop_links(VerbsEndpoint& peer) noexcept;
  bool say_farewell(VerbsEndpoint& peer) noexcept;
  void finish_farewells(std::uint64_t now_ns) noexcept;
  void deliver_deaths() noexcept;

  // Set-up: constant after create().
  VerbsConfig config_;
  Capabilities capabilities_;
  VerbsAddress address_;
  std::string address_text_;
  std::uint64_t part_bytes_ = 0;  ///< Longest part of a write.
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
  WaitingMessages waiting_messages_;
  std::vector<VerbsLane*> lacking_;  ///< `lacks_slot`.
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
  bool leaving_ = false;  ///< In the destructor.
  std::vector<VerbsEndpoint*> blocked_;

  // Links.
  std::vector<VerbsLane*> draining_;  ///< Links in kDraining.
  std::vector<Zombie> zombies_;
  std::vector<VerbsLane*> waiting_;     ///< `waits`.
  std::vector<VerbsLane*> being_made_;  ///< make_wanted_links() only.
  std::vector<VerbsLane*> parking_;     ///< `is_parking`.
  std::unique_ptr<WireUp> wire_up_;
  std::size_t wire_up_room_ = 0;  ///< Contacts that it has room for.

  // Housekeeping.
  std::uint64_t last_housekeeping_ = 0;      ///< CycleClock. 0: due now.
  std::uint64_t housekeeping_interval_ = 0;  ///< In its ticks.
  std::uint32_t busy_polls_ = 0;
  std::uint64_t last_round_ns_ = 0;
  std::uint64_t last_look_for_stalls_ns_ = 0;
  std::size_t next_checked_ = 0;  ///< In peers_, modulo its size.
  bool has_new_wants_ = false;    ///< Somebody has joined waiting_ since it was looked at.
  std::atomic<bool> probe_soon_{false};
  std::vector<VerbsEndpoint*> dying_;
  std::vector<VerbsEndpoint*> farewells_;  ///< `leaving_since_ns` is set.
  std::uint32_t port_events_ = 0;          ///< The first few are logged.
  bool loss_logged_ = false;
  bool silence_logged_ = false;
  bool queue_pair_logged_ = false;
  VerbsFigures figures_;
};

}  // namespace ch3_offload
