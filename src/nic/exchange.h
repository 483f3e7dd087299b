// The exchange of a node: carries messages between the processes that one network processor serves, and
// between them and those of other nodes.
//
// Each process's engine has a provider of its own here, an ExchangePort. Between two ports a message is
// written where the receiver's engine reads it. To another node it goes over the one provider that all
// processes of the node share: so a device is opened once, and a pair of nodes has one connection. A port
// also writes, from memory of this process, which its client shares with it: within the node to memory that
// another port has registered, else by a write of the node's provider. Within the node, what is shared at
// neither end is written, too: by the client that receives it (OfferedCopies).
//
//   exchange.cc         the other nodes: sorting what arrives, frames, flow control between nodes
//   exchange_port.cc    a process's end: slots, and what arrives
//   exchange_writes.cc  its registered memory, and its writes
//
// A write between nodes says by its immediate which port it is for: the ports give their engines numbers of
// their own (landing_numbers()). Whose it is, the engine knows (Sink::writer_of()); the port checks that it
// came from that one's node.
//
// A long write goes in parts, and no more than two of them are under way, so that what others send goes
// between them. A connection of two processes of different nodes ends by two frames, kEnd and kEnded, each of
// which follows the last write of its side. So whoever hears that it is down may reuse what the other one
// might have written to. It hears that only when the other one's processor has answered, or its node is down.
//
// A process that takes nothing harms nobody else. What comes for it from another node waits here; if that
// is much, that node is told to send it no more for a while (kStop, kGo). The connection stays free for the
// others. Where several send to one node and it has no room for all, they take turns: deficit round robin
// (Shreedhar, Varghese, 1995), in which each may send about quantum_bytes() a round.
//
// Others write to the landings of a process that dies until they have heard of it. What it had registered
// with the network stays so, and its memory mapped, until each of them has said that it writes no more, or is
// down (ExchangeRemains). Taken back at once, it would end the connection of the two nodes.
//
// Whose bytes are trusted: frames come from processors that know the job's secret, and are checked.
//
// Threads: one at a time. Allocation: the blocks of messages are kept (PayloadBlocks); first
// contact allocates.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/payload_blocks.h"
#include "nic/client_memory.h"
#include "nic/client_outlet.h"
#include "rdma/provider.h"

namespace ch3_offload {

class Exchange;
class ExchangePort;
struct ExchangeEndpoint;
struct ExchangeNode;
struct ExchangeShare;

/// "nic:2:<leader>:<rank>:<the node's address>"; without a network the last part is empty.
struct ExchangeAddress {
  std::uint32_t leader = 0;  ///< The node: the number under which its provider knows itself.
  std::uint32_t rank = 0;
  std::string_view node;

  std::string to_string() const;
  /// Nothing for any string that is not an address.
  static std::optional<ExchangeAddress> parse(std::string_view text) noexcept;
};

/// What begins each message between nodes. Little-endian, as all that goes over the wire.
struct ExchangeFrame {
  enum class Kind : std::uint32_t {
    kMessage,  ///< From process `source` to `destination`: the rest of the slot.
    kEnd,      ///< `source` ends its connection with `destination`, and writes nothing more. Answered by
               ///< kEnded, when `destination` writes nothing more either.
    kKnock,    ///< `source` has connected to `destination`. Answered by kEnd if that is not here.
    kStop,     ///< Send process `source` no more until kGo.
    kGo,
    kEnded,  ///< `source` has heard that `destination` ends their connection, and writes nothing more.
  };
  static constexpr unsigned kRankBits = 29;
  static constexpr std::uint32_t kRankMask = (1u << kRankBits) - 1;

  std::uint32_t source = 0;
  std::uint32_t kind_and_destination = 0;  ///< Kind above kRankBits.

  static ExchangeFrame make(Kind kind, PeerId source, PeerId destination) noexcept {
    return {index_of(source), static_cast<std::uint32_t>(kind) << kRankBits | index_of(destination)};
  }
  Kind kind() const noexcept { return static_cast<Kind>(kind_and_destination >> kRankBits); }
  PeerId destination() const noexcept { return PeerId{kind_and_destination & kRankMask}; }
};
static_assert(sizeof(ExchangeFrame) == 8);

/// What waits for its receiver. The bytes of a message are behind it.
struct ExchangeItem {
  enum class Kind : std::uint8_t {
    kMessage,
    kWritten,  ///< A write of `length_bytes` is there.
    kWrote,    ///< A write to `from` over the network is over. It is an ExchangeWork, and no block.
    kEnd,      ///< Of the connection. It is the endpoint's own, and no block.
  };

  ExchangeItem* next = nullptr;
  ExchangeEndpoint* from = nullptr;  ///< The receiver's. Of a write over the network: null.
  ExchangeNode* node = nullptr;      ///< Of a write over the network: the other one.
  std::size_t length_bytes = 0;      ///< Of the message, or of the write.
  std::size_t block_bytes = 0;       ///< That were taken for all of it; see PayloadBlocks.
  Immediate immediate{};             ///< Of the write.
  Kind kind = Kind::kMessage;
  bool is_remote = false;

  std::byte* bytes() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

/// A write over the network, as the item that says that it is over. `from`: to whom, while its port lives.
struct ExchangeWork final : ExchangeItem {
  ExchangePort* port = nullptr;  ///< Null: it has gone.
  PeerId rank{}, peer{};         ///< Whose it is, and to whom.
  bool must_end = false;         ///< kEnd follows the last of its writes to that peer.
  bool must_answer = false;      ///< Likewise kEnded.
  bool is_under_way = false;     ///< Its end has not come.
  std::uint32_t index = 0;       ///< Its place in Exchange::works_.
  std::uint32_t parts = 0;       ///< Under way.
  const std::byte* source = nullptr;
  std::size_t posted_bytes = 0;  ///< Of `length_bytes`.
  std::size_t done_bytes = 0;    ///< Likewise.
  MemoryRegion region;
  RemoteMemory destination;
  ExchangeShare* share = nullptr;  ///< Its process's.
  WorkId work{};
  Status status = Status::kOk;  ///< If not kOk, no part of it is posted any more.
  ExchangeWork* next_free = nullptr;
};

/// A process's share of the connection to another node.
struct ExchangeShare {
  PeerId rank{};
  std::int64_t quantum_bytes = 0;
  std::int64_t left_bytes = 0;   ///< Of this round. Below 0: taken in advance.
  std::uint64_t refused_at = 0;  ///< The turn in which there was no room for it at last. 0: there was room.
};

/// Another node.
struct ExchangeNode {
  PeerId leader{};
  Endpoint* endpoint = nullptr;  ///< Null: not connected to it yet.
  std::string address;           ///< Empty: not known yet.
  bool is_down = false;
  bool fails = false;                             ///< It will be ended: a frame for it was lost.
  bool is_busy = false;                           ///< In Exchange::busy_.
  bool is_denied = false;                         ///< Somebody whose share is spent wants to send.
  const ExchangeEndpoint* reserved_by = nullptr;  ///< Whose slot is being filled.
  bool is_slot_late = false;                      ///< Another thread may be filling it: see be_late().
  std::vector<bool> stopped;                      ///< By rank: kStop came.
  std::deque<std::vector<std::byte>> waiting;     ///< Whole frames, before all else.
  std::deque<ExchangeShare> shares;               ///< Of those that have connected to a process there.
  ExchangeWork* writing = nullptr;                ///< With parts to post. They take turns.
  ExchangeWork* last_writing = nullptr;
};

/// What a process's port knows of another process.
struct ExchangeEndpoint final : Endpoint {
  explicit ExchangeEndpoint(PeerId peer) noexcept : id(peer) {
    end.from = this;
    end.kind = ExchangeItem::Kind::kEnd;
  }

  const PeerId id;
  ExchangeNode* node = nullptr;    ///< Null: of this node, if it is_known.
  ExchangeShare* share = nullptr;  ///< Of that node's. Null: not connected, or of this node.
  bool is_known = false;           ///< Its address is: from connect(), or because it came.
  bool is_connected = false;
  bool ends = false;  ///< Nothing is sent any more.
  bool is_down = false;
  std::uint8_t failed_copies = 0;  ///< Of this node: of those that were offered to it, the last ones.
  // Of another node, while `ends`.
  bool must_end = false;        ///< kEnd must be sent, when this process's last write is over.
  bool must_answer = false;     ///< Likewise kEnded.
  bool writes_no_more = false;  ///< The peer has said so.
  bool is_told = false;         ///< `end` waits in the port's inbox, or was taken.
  std::uint32_t writes = 0;     ///< Over the network, under way.
  Status reason = Status::kPeerFailed;
  std::uint32_t queued = 0;            ///< Messages of it in the inbox.
  std::size_t queued_bytes = 0;        ///< Of them.
  ExchangeItem* reserved = nullptr;    ///< A slot in memory of ours.
  std::span<std::byte> reserved_slot;  ///< Of the node's provider, the frame included.
  ExchangeItem end;
};

/// Memory that a process has registered with the network. By key and address: reading needs no key.
using ExchangeRegions = std::map<std::pair<RemoteKey, std::byte*>, MemoryRegion>;

/// What a process that has gone leaves, while others may write to its memory, or parts of its writes are
/// under way.
struct ExchangeRemains {
  PeerId rank{};
  std::vector<std::unique_ptr<ExchangeEndpoint>> peers;  ///< By rank, as it knew them.
  ExchangeRegions regions;
  std::shared_ptr<const void> memory;  ///< Keeps what they lie in.
  std::unique_ptr<ExchangeRemains> next;
};

class ExchangePort final : public Provider, public ClientOutlet {
 public:
  /// The process has gone. Its peers take what it sent, then on_peer_down().
  ~ExchangePort() override;
  /// The process has gone, and `memory` keeps what it has registered: until this port's peers write there no
  /// more.
  void keep(std::shared_ptr<const void> memory) noexcept { memory_ = std::move(memory); }

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override;
  bool reaches(std::string_view address) const noexcept override;
  using Provider::connect;
  /// The processes of a job use the same numbers: other `names` are kUnreachable.
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override;
  std::string address_of(PeerId peer) const override;
  bool end(PeerId peer) noexcept override;
  std::size_t max_slot_bytes(Endpoint& endpoint) const noexcept override;
  /// For writes over the network.
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  WriteTerms write_terms(Endpoint& endpoint) noexcept override;
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    send_reserved(of(endpoint), length_bytes, /*is_part=*/false);
  }
  void commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept override {
    send_reserved(of(endpoint), length_bytes, /*is_part=*/true);
  }
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool may_have_work() noexcept override { return first_ != nullptr || can_go_on_writing(); }
  bool arm() noexcept override { return !may_have_work(); }
  void disarm() noexcept override {}
  int descriptor() const noexcept override { return -1; }
  ProviderCounters counters() const noexcept override;

  PeerId rank() const noexcept override { return rank_; }
  /// Registers memory for writes within the node.
  Registrar& node_memory() noexcept { return node_memory_; }
  /// For its engine's EngineConfig.
  LandingNumbers landing_numbers() const noexcept;

  void silence() noexcept override { is_silent_ = true; }
  void be_late() noexcept override;
  void say_ended() noexcept override;

 private:
  friend class Exchange;
  static constexpr std::size_t kMostWrites = 64;  ///< Within the node, and as many to other nodes.
  static constexpr std::size_t kMostOffered = kMostWrites / 2;

  /// Memory that peers of the node may write to, and what no client shares (ClientMemory::Part). The key is
  /// the place in regions_ and the generation.
  class NodeMemory final : public Registrar {
   public:
    struct Region {
      std::byte* address = nullptr;
      std::size_t length_bytes = 0;  ///< 0: it is free.
      std::uint32_t generation = 1;
      std::uint32_t next_free = 0;      ///< Index + 1; 0: none.
      OfferedCopies* offers = nullptr;  ///< Its client's, which does not share it. Null: it is memory here.
      OfferedCopy copy;                 ///< To it, then.
    };
    /// In MemoryRegion::local_key, of what is not memory here.
    static constexpr std::uint64_t kFetched = 1;

    Status register_memory(void* address, std::size_t length_bytes, Access access,
                           MemoryRegion& region) noexcept override;
    Status register_fetched(std::byte* payload, std::size_t length_bytes, Access access,
                            MemoryRegion& region) noexcept override;
    void deregister_memory(MemoryRegion& region) noexcept override;
    /// Where a peer's write lands. nullptr: nothing so long is registered there under that key.
    Region* find(RemoteMemory memory, std::size_t length_bytes) noexcept;

   private:
    std::deque<Region> regions_;     ///< They stay where they are: `copy` is offered.
    std::uint32_t free_region_ = 0;  ///< Index + 1; 0: none.
  };
  struct Write {
    ExchangeEndpoint* peer = nullptr;
    const std::byte* source = nullptr;
    ClientMemory* client = nullptr;  ///< Its own, if `source` is no memory here.
    std::size_t length_bytes = 0;
    std::size_t written_bytes = 0;
    RemoteMemory destination;
    Immediate immediate{};
    WorkId work{};
  };

  /// `number`: of the ports of this node. Above Exchange::kMostNumbers: nobody writes to it over the network.
  ExchangePort(Exchange& exchange, PeerId rank, std::uint32_t number, std::int64_t quantum_bytes);

  static ExchangeEndpoint& of(Endpoint& endpoint) noexcept {
    return static_cast<ExchangeEndpoint&>(endpoint);
  }
  ExchangeEndpoint* find(PeerId peer) const noexcept;
  ExchangeEndpoint& find_or_make(PeerId peer);
  Status reserve_over_network(ExchangeEndpoint& peer, std::size_t length_bytes,
                              std::span<std::byte>& slot) noexcept;
  Status reserve_here(ExchangeEndpoint& peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept;
  void drop_reserved(ExchangeEndpoint& peer) noexcept;
  void send_reserved(ExchangeEndpoint& peer, std::size_t length_bytes, bool is_part) noexcept;
  ExchangePort* writable_peer(const ExchangeEndpoint& peer) const noexcept;
  NodeMemory::Region* find(const Write& write) const noexcept;
  bool can_go_on_writing() const noexcept;
  bool offer(Write& write, NodeMemory::Region& to) noexcept;
  static Status look_at_copy(const Write& write, NodeMemory::Region& to) noexcept;
  std::size_t move_writes(Sink& sink) noexcept;
  bool announce(const Write& write) noexcept;
  void end_writes(const ExchangeEndpoint& peer, Sink& sink) noexcept;
  void rotate_writes() noexcept;
  void finish_write(Sink& sink, Status status) noexcept;
  void put(ExchangeItem& item) noexcept;
  void put_end(ExchangeEndpoint& peer, Status reason) noexcept;
  void go_on_ending(ExchangeEndpoint& peer) noexcept;
  void part(ExchangeEndpoint& peer) noexcept;
  void deliver_write(ExchangeItem& item, Sink& sink) noexcept;
  void release(ExchangeItem& item) noexcept;

  Exchange& exchange_;
  const PeerId rank_;
  const std::uint32_t number_;
  const std::int64_t quantum_bytes_;
  Capabilities capabilities_;
  std::vector<std::unique_ptr<ExchangeEndpoint>> peers_;  ///< By rank. Null: no contact.
  ExchangeRegions regions_;
  std::shared_ptr<const void> memory_;        ///< Of keep().
  std::unique_ptr<ExchangeRemains> remains_;  ///< Empty: for when the process has gone.
  ExchangeItem* first_ = nullptr;             ///< The inbox, oldest first.
  ExchangeItem* last_ = nullptr;
  ExchangeItem* held_ = nullptr;      ///< The Sink still reads it.
  std::size_t remote_bytes_ = 0;      ///< Of the inbox: from other nodes.
  std::vector<PeerId> told_to_stop_;  ///< Leaders.
  bool is_silent_ = false;
  bool was_late_ = false;  ///< From now on it fills no slot of the network: that may take long.
  NodeMemory node_memory_;
  std::array<Write, kMostWrites> writes_{};  ///< A ring. The first one moves next.
  std::size_t first_write_ = 0;
  std::size_t write_count_ = 0;
  std::size_t offered_writes_ = 0;  ///< Of them. A receiver that takes none leaves the others room.
  std::size_t network_writes_ = 0;  ///< That have not been told as over.
};

class Exchange final : private Sink {
 public:
  /// Of ports that other nodes may write to, and of the landings of each.
  static constexpr std::uint32_t kMostNumbers = (1U << 10) - 1;
  static constexpr unsigned kLandingBits = 22;
  /// Longest slot within the node. Bytes.
  static constexpr std::size_t kLocalSlotBytes = std::size_t{32} << 10;
  /// What a slot to any rank of the job has room for, at least. Bytes.
  std::size_t least_slot_bytes() const noexcept;
  /// What a process of that class may send to another node in a round, if others want to. Bytes.
  static constexpr std::int64_t quantum_bytes(TrafficClass traffic_class) noexcept {
    return 2 * kClassShareBytes[index_of(traffic_class)];
  }

  /// `leader`: the number of this node, one of its processes'. All ranks are below `peer_limit`. `network`:
  /// its provider, whose number is `leader`; null: there is none. Not owned, outlives the exchange.
  Exchange(PeerId leader, std::uint32_t peer_limit, Provider* network);
  /// REQUIRES: no port is left.
  ~Exchange() override = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Takes a process in. Null: it was here before, or the rank is too high. The exchange outlives the port.
  /// Throws std::bad_alloc.
  std::unique_ptr<ExchangePort> attach(PeerId rank, TrafficClass traffic_class = TrafficClass::kDefault);

  /// Polls the network and begins the next turn. Returns how much happened. `is_anyone_late`: a process is in
  /// the midst of its turn; nothing is done while it fills a slot of the network.
  std::size_t poll(bool is_anyone_late = false) noexcept;
  /// Whether, in that case, it fills one.
  bool is_slot_late() const noexcept;
  /// Whether nothing of ours waits to leave the node.
  bool at_rest() const noexcept;

 private:
  friend class ExchangePort;

  Delivery on_message(PeerId leader, std::span<const std::byte> message) noexcept override;
  void on_write_arrived(PeerId leader, Immediate immediate, std::size_t length_bytes) noexcept override;
  void on_write_done(PeerId leader, WorkId work, Status status) noexcept override;
  void on_peer_down(PeerId leader, Status reason) noexcept override;

  void take(ExchangeNode& node, const ExchangeFrame& frame, std::span<const std::byte> bytes);
  void take_end(ExchangeNode& node, PeerId source, PeerId destination);
  void take_message(ExchangeNode& node, PeerId source, PeerId destination, std::span<const std::byte> bytes);
  ExchangeEndpoint* meet(ExchangeNode& node, PeerId source, PeerId destination);
  ExchangePort* port(PeerId rank) const noexcept;
  bool was_here(PeerId rank) const noexcept;
  std::string node_address() const;
  ExchangeNode& find_or_make(PeerId leader);
  ExchangeNode* find(PeerId leader) const noexcept;
  void tell(ExchangeNode& node, ExchangeFrame::Kind kind, PeerId source, PeerId destination) noexcept;
  void flush(ExchangeNode& node) noexcept;
  void attend(ExchangeNode& node) noexcept;
  static ExchangeShare& share_of(ExchangeNode& node, PeerId rank, std::int64_t quantum_bytes);
  bool begin_round(ExchangeNode& node) const noexcept;
  bool connect(ExchangeNode& node);
  Status write(ExchangePort& port, ExchangeEndpoint& peer, std::span<const std::byte> source,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept;
  static void append(ExchangeNode& node, ExchangeWork& work) noexcept;
  std::size_t move_writes(ExchangeNode& node) noexcept;
  enum class Posting : std::uint8_t {
    kPosted,
    kMustWait,  ///< For its own parts, its share, or its process.
    kNoRoom,    ///< For any write to that node.
    kFailed,    ///< Nothing more of it can be posted.
  };
  Posting post_part(ExchangeNode& node, ExchangeWork& work) noexcept;
  void finish(ExchangeWork& work) noexcept;
  ExchangeWork* take_work() noexcept;
  void free_work(ExchangeWork& work) noexcept;
  ExchangeWork* find_work(PeerId rank, PeerId peer) noexcept;
  void disown_works(ExchangePort& port) noexcept;
  void take_remains(ExchangePort& port) noexcept;
  void hear_last_of(ExchangeNode& node, PeerId writer, PeerId of) noexcept;
  bool is_in_use(const ExchangeRemains& remains) const noexcept;
  void clear_remains(std::optional<PeerId> rank) noexcept;
  void distrust(ExchangeNode& node) noexcept;
  void flow(ExchangePort& port, ExchangeNode& node) noexcept;
  void go(ExchangePort& port) noexcept;
  ExchangeItem* make_item(std::size_t length_bytes) noexcept;
  void free_item(ExchangeItem& item) noexcept;

  const PeerId leader_;
  const std::uint32_t peer_limit_;
  Provider* const network_;
  struct Seat {
    ExchangePort* port = nullptr;
    ExchangePort* ended = nullptr;  ///< Instead: its process has gone, and it is not destroyed yet.
    bool was_taken = false;
  };
  std::vector<Seat> seats_;         ///< By rank.
  std::vector<PeerId> numbered_;    ///< Ranks, by the number of their port.
  std::deque<ExchangeWork> works_;  ///< Their WorkId is their place.
  ExchangeWork* free_works_ = nullptr;
  std::map<PeerId, ExchangeNode> nodes_;
  std::unique_ptr<ExchangeRemains> remains_;  ///< A list.
  std::vector<ExchangeNode*> busy_;  ///< Those that the next poll() looks at. Room for all of nodes_.
  std::uint64_t turn_ = 1;           ///< Calls of poll() and one.
  PayloadBlocks blocks_;
};

}  // namespace ch3_offload
