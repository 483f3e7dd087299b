// A fabric in one address space under a simulated clock: the provider that the engine is tested with.
//
// FakeNetwork holds the clock and everything in flight; FakeProvider is one process's end of it. All
// that a fabric may do to its users happens here at random, by seed: delay, reorder (all but messages, and writes, of one
// ordered pair of processes among themselves), full queues, refused registrations and connections, writes that
// are unsupported, failed completions, deaths. It also checks its users: see violations().
//
// What makes mistakes show: a write copies when it is delivered, not when it is posted (a source that is
// reused too early arrives corrupted); slots are exact heap blocks, poisoned and freed when their call is
// over (a span that is kept reads rubbish, or trips AddressSanitizer).
//
// Threads: one for all. Time: only advance() moves it. Blocking: none. Nothing is promised about
// allocation; a process that never spoke costs a few hundred bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rdma/provider.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {

struct FakeConfig {
  std::uint64_t seed = 1;
  std::size_t max_slot_bytes = 4096;
  std::size_t odd_slot_bytes = SIZE_MAX;  ///< Of processes with odd numbers, if that is shorter.
  /// Slots of an ordered pair between commit() and the receiver's poll(); then reserve() says kAgain.
  std::uint32_t slots_per_pair = 64;
  std::uint64_t least_delay_ns = 500;
  std::uint64_t most_delay_ns = 3000;
  double slow_probability = 0;  ///< A message that takes slow_delay_ns instead.
  std::uint64_t slow_delay_ns = 1'000'000;
  double again_probability = 0;  ///< reserve() and write() say kAgain though there is room.
  bool write = true;             ///< Capabilities::write.
  std::size_t write_threshold_bytes = 4096;
  bool writes_by_copying = false;             ///< Capabilities: some go through slots.
  bool chooses_writes = false;                ///< WriteTerms::choice, from 1 KiB on.
  double pair_without_write_probability = 0;  ///< Ordered pairs whose write() says kUnsupported.
  double late_unsupported_probability = 0;    ///< Writes whose on_write_done says kUnsupported.
  double split_write_probability = 0.2;       ///< Of one more part of a write.
  double damaged_message_probability = 0;     ///< A bit of it is another one when it arrives.
  double damaged_write_probability = 0;       ///< Likewise.
  bool registering_costs = false;             ///< Capabilities: callers keep registrations.
  bool on_demand = false;                     ///< Capabilities: they are of addresses, not of pages.
  double registration_refused_probability = 0;
  std::size_t pinned_budget_bytes = SIZE_MAX;      ///< A process; more is kNoMemory.
  double pair_without_connection_probability = 0;  ///< Ordered pairs whose connect() is kUnreachable.
  std::uint64_t most_death_notice_delay_ns = 50'000;
};

class FakeProvider;

class FakeNetwork {
 public:
  explicit FakeNetwork(const FakeConfig& config);
  ~FakeNetwork();
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  /// The end of process `self`. One per process, made once. The network must outlive it.
  std::unique_ptr<FakeProvider> make_provider(PeerId self);

  /// Moves the clock to the next event and lets it happen. False: nothing is in flight.
  bool advance();
  bool quiet() const noexcept { return events_.empty(); }
  std::uint64_t now_ns() const noexcept { return now_ns_; }

  /// The process dies: what it had in flight is lost after a random cut, a write that is lost may have
  /// been copied in part, others learn of it after a random delay. Its memory is not touched any more.
  void kill(PeerId peer);
  bool alive(PeerId peer) const;

  /// The connection between two living processes breaks; both learn of it.
  void break_connection(PeerId one, PeerId other);
  /// `by` takes no connection of `of`, whom it never met: that one is told later, or at once.
  void refuse_connections(PeerId by, PeerId of);

  /// Delivers bytes as if `from` had sent them, in order with what it sends. For hostile traffic.
  void inject(PeerId from, PeerId to, std::span<const std::byte> message);
  /// Delivers an immediate, and the length of a write, that no write() was posted for.
  void inject_immediate(PeerId from, PeerId to, Immediate immediate, std::size_t length_bytes);
  /// Asks the receiver's Sink where a write lands (Sink::on_write_shared()), and stores what it says.
  void inject_share(PeerId from, PeerId to, Immediate immediate, std::size_t length_bytes,
                    std::byte*& answer);
  /// Called with every message as it is committed; may change the bytes, or inject() others before it.
  std::function<void(PeerId from, PeerId to, std::span<std::byte>)> tamper;
  /// Writes say kAgain, though there is room.
  bool writes_wait = false;
  /// Called when a write is posted, before write() returns.
  std::function<void(PeerId from, PeerId to)> on_write_posted;

  /// Breaches of provider.h by the network's users. A test ends by checking that there are none.
  const std::vector<std::string>& violations() const noexcept { return violations_; }

  std::uint64_t messages_delivered() const noexcept { return messages_delivered_; }
  std::uint64_t bytes_delivered() const noexcept { return bytes_delivered_; }
  std::uint64_t writes_delivered() const noexcept { return writes_delivered_; }
  std::uint64_t damaged() const noexcept { return damaged_; }

 private:
  friend class FakeProvider;
  struct Item;
  struct Link;
  enum class EventKind : std::uint8_t { kArrival, kWriteArrival, kWriteAcknowledged, kDeathNotice };
  struct Event {
    std::uint64_t time_ns;
    std::uint64_t order;  ///< Breaks ties; unique.
    EventKind kind;
    Link* link;  ///< kDeathNotice: from the survivor to the dead.
    Item* item;  ///< kWriteAcknowledged: owned.
    bool operator>(const Event& other) const noexcept {
      return time_ns != other.time_ns ? time_ns > other.time_ns : order > other.order;
    }
  };

  Link* find_link(PeerId from, PeerId to) noexcept;
  Link& link(PeerId from, PeerId to);
  FakeProvider* process(PeerId peer) const noexcept;
  std::uint64_t delay_ns();
  void schedule(std::uint64_t time_ns, EventKind kind, Link& link, Item* item = nullptr);
  void post(Link& link, Item* item);
  void arrive(Link& link, bool is_write);
  void arrive_write(Link& link, std::unique_ptr<Item> item);
  bool copy_write(const Item& item, std::size_t length_bytes);
  void damage(std::span<std::byte> bytes, double probability);
  void acknowledge(Link& link, std::unique_ptr<Item> write, Status status);
  void sever(Link& link);
  void plan_notice(Link& survivor_to_dead);
  void notice_death(Link& survivor_to_dead);
  void forget(FakeProvider& provider);
  void violation(PeerId who, const std::string& what);

  const FakeConfig config_;
  SeededRandom random_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Link>> links_;  ///< By from << 32 | to.
  std::vector<FakeProvider*> processes_;                            ///< Null: not made, or dead.
  std::vector<std::string> violations_;
  std::uint64_t messages_delivered_ = 0;
  std::uint64_t bytes_delivered_ = 0;
  std::uint64_t writes_delivered_ = 0;
  std::uint64_t damaged_ = 0;
};

class FakeProvider final : public Provider {
 public:
  ~FakeProvider() override;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override;
  bool reaches(std::string_view address) const noexcept override;
  using Provider::connect;
  /// Its processes use the same numbers: other `names` are kUnreachable.
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override;
  std::string address_of(PeerId peer) const override;
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override;
  WriteTerms write_terms(Endpoint& endpoint) noexcept override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override;
  /// Such parts leave as late as the contract allows.
  void commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept override;
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool end(PeerId peer) noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override {}
  int descriptor() const noexcept override { return -1; }
  ProviderCounters counters() const noexcept override { return counted; }

  ProviderCounters counted;  ///< What counters() says: the test's.

  /// These pages of the process are gone: to use a region by them from now on is a violation.
  void memory_gone(const std::byte* address, std::size_t length_bytes);

  std::size_t pinned_bytes() const noexcept { return pinned_bytes_; }
  std::size_t regions() const noexcept { return regions_.size(); }
  /// Whether poll() would deliver something.
  bool has_work() const noexcept { return inbox_head_ != nullptr; }

 private:
  friend class FakeNetwork;
  using Item = FakeNetwork::Item;
  using Link = FakeNetwork::Link;
  struct Region {
    const std::byte* address;
    std::size_t length_bytes;
    std::uint32_t writes_in_flight;  ///< Posted from here, on_write_done not yet called.
    Access access;
    std::vector<std::span<const std::byte>> gone;  ///< Parts whose memory is not there any more.
  };

  FakeProvider(FakeNetwork& network, PeerId self);
  /// An endpoint that this provider did not return is a violation.
  Link& of(Endpoint& endpoint) const noexcept;
  std::size_t max_slot_bytes_to(PeerId peer) const noexcept;
  /// What was reserved becomes a message. Null: a violation.
  std::unique_ptr<Item> take_reserved(Link& link, std::size_t length_bytes) noexcept;
  void post_parts(Link& link) noexcept;
  void post_all_parts() noexcept;
  void enqueue(std::unique_ptr<Item> item) noexcept;
  std::unique_ptr<Item> dequeue() noexcept;
  void drop_inbox() noexcept;
  Delivery deliver(Sink& sink, Item& item) noexcept;
  static void let_go(Item& item) noexcept;
  Region* find_region(std::uint64_t key, const std::byte* address, std::size_t length_bytes) noexcept;

  FakeNetwork& network_;
  const PeerId self_;
  Capabilities capabilities_;
  std::map<std::uint64_t, Region> regions_;  ///< Live ones by key; local and remote key are the same.
  std::size_t pinned_bytes_ = 0;
  std::unique_ptr<Item> held_;  ///< The Sink still reads it (Delivery::kHeld).
  Item* inbox_head_ = nullptr;  ///< Arrived, not polled; owned.
  Item* inbox_tail_ = nullptr;
  bool polling_ = false;
  std::vector<Link*> with_parts_;
};

}  // namespace ch3_offload
