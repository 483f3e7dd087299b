// N engines over a fake network in one address space, running a random MPI-like program by seed, with an
// oracle that judges every result.
//
// simulation.cc: the world, its motion, rest and the final drain. simulation_program.cc: the random
// commands. simulation_results.cc: what comes back. Threads: one. Nothing here depends on addresses or
// real time, so that a seed replays exactly.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/engine.h"
#include "engine/event_handler.h"
#include "nic/exchange.h"
#include "nic/port.h"
#include "nic/stepped_rings.h"
#include "engine/oracle.h"
#include "engine/page_arena.h"
#include "engine/payload_buffer.h"
#include "engine/simulation_config.h"
#include "engine/trace.h"
#include "rdma/checked/checked_provider.h"
#include "rdma/fake_provider.h"

namespace ch3_offload {

/// Something with a cookie. Lives until nobody can ask about it any more (Simulation::reap).
struct Record {
  enum class Kind : std::uint8_t { kSend, kReceive, kPacket, kCancel };
  Record(Kind the_kind, std::uint32_t the_owner) : kind(the_kind), owner(the_owner) {}
  virtual ~Record() = default;

  const Kind kind;
  const std::uint32_t owner;  ///< The process.
  bool done = false;          ///< No event may come (any more).
  bool touched = false;       ///< In Simulation::touched_.
  std::size_t index = 0;      ///< In Simulation::records_.
};

struct SendRecord final : Record, SentMessage {
  explicit SendRecord(std::uint32_t process) : Record(Kind::kSend, process) {}
  std::unique_ptr<PayloadBuffer> buffer;  ///< Null once the engine gave it back.
  OperationId operation = kNoOperation;
  std::uint32_t send_id = 0;
  bool cancelling = false;
};

struct ReceiveRecord final : Record, PostedReceive {
  explicit ReceiveRecord(std::uint32_t process) : Record(Kind::kReceive, process) {}
  std::unique_ptr<PayloadBuffer> buffer;
  OperationId operation = kNoOperation;
  SendRecord* taken = nullptr;     ///< Receives a message that matched_probe took.
  SendRecord* expected = nullptr;  ///< What a probe just said it would get.
};

struct PacketRecord final : Record {
  PacketRecord(std::uint32_t process, std::uint32_t peer) : Record(Kind::kPacket, process), to(peer) {}
  const std::uint32_t to;
  std::vector<std::unique_ptr<PayloadBuffer>> parts;
};

struct CancelRecord final : Record {
  CancelRecord(std::uint32_t process, SendRecord& the_send) : Record(Kind::kCancel, process), send(the_send) {}
  SendRecord& send;
};

/// Memory of a process that it shares with its processor, or other memory if that is used up.
class SharedResource final : public std::pmr::memory_resource {
 public:
  explicit SharedResource(std::pmr::memory_resource& other) noexcept : other_(other) {}
  SharedArena* arena = nullptr;  ///< Null: there is none, or none any more.

 private:
  void* do_allocate(std::size_t length_bytes, std::size_t alignment) override {
    std::byte* const block = arena->allocate(length_bytes);
    if (block == nullptr) return other_.allocate(length_bytes, alignment);
    blocks_.insert(block);
    return block;
  }
  void do_deallocate(void* memory, std::size_t length_bytes, std::size_t alignment) override {
    auto* const block = static_cast<std::byte*>(memory);
    if (blocks_.erase(block) == 0)
      other_.deallocate(memory, length_bytes, alignment);
    else if (arena != nullptr)
      static_cast<void>(arena->give_back(block));
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource& other_;
  std::unordered_set<const std::byte*> blocks_;
};

class Simulation {
 public:
  explicit Simulation(const SimulationConfig& config);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// Runs the program to its end, drains and checks. False: report() says what is wrong.
  bool run();
  std::string report() const;

  std::uint64_t commands_given() const noexcept { return commands_; }
  /// Sums over the living processes: which paths were taken.
  Counters totals() const;
  /// Messages for which OfferedCopies was used. Likewise.
  std::uint64_t copied_by_receivers() const;
  const FakeNetwork& network() const noexcept { return network_; }
  /// Messages and writes that the checksums have found to be damaged. Likewise.
  std::uint64_t found_damaged() const;

 private:
  struct Process final : EventHandler {
    Process(Simulation& simulation, std::uint32_t self)
        : world(simulation), id(self), shared(simulation.arena_) {}
    void on_send_done(Cookie cookie, Status status) noexcept override;
    void on_receive_done(Cookie cookie, const Envelope& envelope) noexcept override;
    void on_cancel_done(Cookie cookie, bool cancelled) noexcept override;
    void on_packet(PeerId peer, std::span<const std::byte> bytes) noexcept override;
    Payload on_packet_offer(PeerId peer, std::size_t length_bytes) noexcept override;
    void on_packet_placed(PeerId peer, std::size_t length_bytes) noexcept override;
    void on_peer_failed(PeerId peer, Status reason) noexcept override;
    std::string on_card_wanted(PeerId peer) override;
    void on_warning(LogScope, std::string_view text) noexcept override { world.warnings_.emplace_back(text); }

    Simulation& world;
    const std::uint32_t id;
    bool alive = true;
    std::unique_ptr<FakeProvider> provider;     ///< Null with kProcess, and when it is dead.
    std::unique_ptr<CheckedProvider> checked;   ///< Over it. Null: without checksums.
    std::unique_ptr<Trace> trace;
    std::unique_ptr<ExchangePort> exchange;     ///< With kProcess, as the next one.
    std::unique_ptr<OtherProcess> memory;
    std::unique_ptr<Port> engine;
    SharedResource shared;                      ///< Memory that the processor of kProcess maps.
    struct Taken {
      MessageId message;
      SendRecord* send;
    };
    std::vector<Taken> taken;
    std::vector<bool> told_failed;               ///< kPeerFailed came, by peer.
    std::vector<std::uint64_t> packet_bytes_out; ///< By peer.
    std::vector<std::uint64_t> packet_bytes_in;
    std::map<std::uint32_t, std::unique_ptr<PayloadBuffer>> places;  ///< By peer: for a part of a packet.
    OperationId stale_receive = kNoOperation;    ///< Of a receive that is over.
  };
  struct Node {
    std::unique_ptr<FakeProvider> network;
    std::unique_ptr<CheckedProvider> checked;  ///< Over it. Null: without checksums.
    std::unique_ptr<Exchange> exchange;
  };
  struct LogLine {
    std::uint64_t time_ns;
    const char* what;
    std::uint32_t process;
    std::uint32_t peer;
    std::uint64_t first;
    std::uint64_t second;
  };

  // simulation.cc
  void unmap(const std::byte* address, std::size_t length_bytes);
  void make_nodes();
  void make_engine(Process& process, const EngineConfig& engine);
  Node& node_of(std::uint32_t process) { return nodes_[process % nodes_.size()]; }
  bool move_nodes();
  std::unique_ptr<CheckedProvider> with_checksums(FakeProvider& provider);
  bool is_settled() const;
  void step_motion();
  bool progress_once(Process& process);
  void come_to_rest();
  void check_at_rest();
  void check_probe_at_rest(Process& process);
  void drain();
  void check_end();
  void reap();
  template <class R>
  R& adopt(std::unique_ptr<R> record);
  void touch(Record& record);
  bool finished_with(const Record& record) const;
  void log(const char* what, std::uint32_t process, std::uint32_t peer, std::uint64_t first = 0,
           std::uint64_t second = 0);
  void fail(const std::string& what) { oracle_.fail(what); }
  bool failed() const { return !oracle_.failures().empty() || !network_.violations().empty(); }
  static std::uint64_t clock() noexcept;

  // simulation_program.cc
  void command(Process& process);
  void nested_command(Process& process);
  void command_send(Process& process);
  void command_packet(Process& process);
  void command_receive(Process& process);
  void command_probe(Process& process);
  void command_matched_probe(Process& process);
  void command_receive_matched(Process& process);
  void command_cancel_receive(Process& process);
  void command_cancel_send(Process& process);
  void command_purge(Process& process);
  void command_classify(Process& process);
  void check_given_back(const ReceiveRecord& receive);
  void kill(Process& process);
  void kill_node(Node& node);
  void break_connection(std::uint32_t one, std::uint32_t other);
  void announce_death(std::uint32_t dead);
  void post(Process& process, MatchKey key, MatchKey ignore, std::size_t capacity, SendRecord* expected);
  void choose_request(Process& process, MatchKey& key, MatchKey& ignore, std::size_t& capacity);
  std::unique_ptr<PayloadBuffer> make_buffer(Process& process, std::size_t length);
  std::pmr::memory_resource& memory_of(Process& process);
  std::size_t choose_length();
  MatchKey random_mask();
  MatchKey choose_key(std::uint32_t from, std::uint64_t number);
  std::uint32_t rank_of(std::uint32_t process, std::uint32_t context) const;
  Process* choose_alive();
  template <class Keep>
  Record* choose_record(Keep keep);

  // simulation_results.cc
  void send_over(SendRecord& send, Status status);
  void receive_over(ReceiveRecord& receive, const Envelope& envelope);
  void receive_returned(ReceiveRecord& receive);
  void cancel_over(SendRecord& send, bool cancelled);
  SendRecord* identify(const Process& process, const Envelope& envelope, const PayloadBuffer* buffer);
  template <class R>
  R* live(Cookie cookie, Record::Kind kind, const char* event);

  const SimulationConfig config_;
  SeededRandom random_;
  SeededRandom memory_random_;
  PageArena arena_;  ///< All processes' buffers: outlives them.
  FakeNetwork network_;
  Oracle oracle_;
  std::vector<Node> nodes_;  ///< With kProcess.
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::string> cards_;
  std::vector<std::string> warnings_;
  std::vector<std::unique_ptr<Record>> records_;
  std::unordered_set<const void*> live_;  ///< The cookies of records_.
  std::vector<Record*> touched_;          ///< May be ready to be freed.
  std::uint64_t next_seed_ = 1;
  std::vector<std::uint64_t> next_number_;  ///< By ordered pair.
  std::uint32_t next_send_id_ = 1;
  std::uint64_t commands_ = 0;
  int depth_ = 0;           ///< Commands on the stack.
  bool calm_ = false;       ///< No commands between events: the end is wanted.
  std::vector<LogLine> log_;
  std::uint64_t logged_ = 0;
};

template <class R>
R& Simulation::adopt(std::unique_ptr<R> record) {
  R& result = *record;
  result.index = records_.size();
  live_.insert(static_cast<Record*>(&result));
  records_.push_back(std::move(record));
  return result;
}

/// Cookies are Record pointers, so that one check serves all kinds.
template <class R>
R* Simulation::live(Cookie cookie, Record::Kind kind, const char* event) {
  if (live_.count(cookie) == 0) {
    fail(std::string(event) + " with a cookie that is unknown or long over");
    return nullptr;
  }
  auto* const record = static_cast<Record*>(cookie);
  if (record->kind != kind || record->done) {
    fail(std::string(event) + (record->done ? " for something that is over" : " with a cookie of another kind"));
    return nullptr;
  }
  return static_cast<R*>(record);
}

/// Adds the counters that make sense as sums; not the levels.
void add(Counters& sum, const Counters& each);

}  // namespace ch3_offload
