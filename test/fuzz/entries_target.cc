// What one peer can do to a process with target entries, and to its requests: messages of the engine's second
// client, writes, silence and death. Input: one byte of settings, then steps, each a byte and its arguments.
//
// Entries and requests have memory of their own in exact heap blocks. A request's block is freed with its
// last event, so that a late access shows.

#include <array>
#include <memory>
#include <vector>

#include "engine/card.h"
#include "engine/engine.h"
#include "engine/target_request.h"
#include "engine/targets/target_interface.h"
#include "engine/wire.h"
#include "fuzz/stand_in_provider.h"
#include "fuzz/target.h"

namespace ch3_offload::fuzz {
namespace entries_target {

constexpr PeerId kPeer{1};
constexpr std::uint16_t kTable = 1;
constexpr std::size_t kMostSteps = 300;
constexpr std::size_t kLengths[] = {0, 1, 8, 64, 100, 1000, 5000, 30'000};

enum class Step : std::uint8_t {
  kMessage,
  kRequest,
  kProgress,
  kRoom,
  kWriteArrived,
  kWriteDone,
  kRemoteWrite,
  kRefuseRegistration,
  kAppend,
  kSearch,
  kUnlink,
  kEnable,
  kCount
};

/// A request of this process that is not over.
struct Begun {
  bool is_over = false;
  bool wants_answer = false;
  std::unique_ptr<std::byte[]> source, destination;
};

class Process {
 public:
  explicit Process(std::span<const std::byte> bytes)
      : input_(bytes), settings_(input_.u8()), provider_(2, capabilities(settings_)) {
    Provider* const providers[] = {&provider_};
    EngineConfig config;
    config.senders = 2;
    engine_ = std::make_unique<Engine>(config, providers);
    interface_ = engine_->open_targets(0, {{20, 20, 20}, 4, UserId{}}, *board_);
    require(interface_ != nullptr, "there is an interface");
    initiator_ = interface_->make_queue(initiator_memory_->ring);
    target_ = interface_->make_queue(target_memory_->ring);
    counter_ = interface_->make_counter();
    require(interface_->make_table(kTable, target_, (settings_ & 4) != 0) == Status::kOk, "there is a table");
  }

  void run() {
    for (std::size_t steps = 0; !input_.empty() && steps < kMostSteps; ++steps)
      take(Step{input_.below(static_cast<std::uint8_t>(Step::kCount))});
    end();
  }

 private:
  static Capabilities capabilities(std::uint8_t settings) {
    return {"stand-in", (settings & 1) != 0 ? std::size_t{128} : 4096, (settings & 2) != 0, 64};
  }
  TargetTable& table() { return *interface_->table(kTable); }
  std::size_t length() { return kLengths[input_.u8() % std::size(kLengths)]; }

  void take(Step step) {
    switch (step) {
      case Step::kMessage: return message();
      case Step::kRequest: return request();
      case Step::kProgress: return progress();
      case Step::kRoom: provider_.room_slots = input_.flag() ? SIZE_MAX : input_.u8() % 4; return;
      case Step::kWriteArrived: provider_.write_arrived(kPeer, Immediate{input_.u8()}, length()); return;
      case Step::kWriteDone: provider_.end_write(input_.flag() ? Status::kOk : Status::kUnsupported); return;
      case Step::kRemoteWrite: provider_.remote_write(input_.u8(), std::byte{7}); return;
      case Step::kRefuseRegistration: provider_.refuses_registration = input_.flag(); return;
      case Step::kAppend: return append();
      case Step::kSearch:
        return table().search(
            description(), input_.flag() ? TargetTable::SearchMode::kOnly : TargetTable::SearchMode::kDelete);
      case Step::kUnlink: return unlink();
      default: input_.flag() ? table().enable() : table().disable();
    }
  }

  void message() {
    const auto head = input_.bytes(input_.below(104));
    Bytes bytes(head.begin(), head.end());
    bytes.resize(std::min<std::size_t>(bytes.size() + length(), provider_.capabilities().max_slot_bytes));
    wire::TargetAnswerHeader answer;
    if (wire::get(bytes, answer) && answer.common.kind == wire::Kind::kTargetAck &&
        answer.failure == static_cast<std::uint16_t>(TargetFailure::kUntold))
      has_forged_untold_ = true;
    if (!bytes.empty()) provider_.message(kPeer, bytes);
  }

  TargetDescription description() {
    TargetDescription entry;
    entry.key = {MatchBits{input_.below(4)}, make_logical_id(1)};
    entry.ignore = {MatchBits{input_.below(4)}, input_.flag() ? kAnyProcess : kExactProcess};
    entry.options = kAllowPut | kAllowGet | input_.u16();
    // By bits that were there before it, so that the corpus keeps its meaning.
    if ((entry.options & (kCountOverflow | kCountBytes)) == (kCountOverflow | kCountBytes))
      entry.options |= kNoAcknowledgement;
    entry.length_bytes = length();
    entry.min_free_bytes = input_.u8();
    entry.counter = counter_;
    memories_.push_back(std::make_unique<std::byte[]>(entry.length_bytes));
    entry.start = memories_.back().get();
    return entry;
  }
  void append() {
    TargetId id{};
    const TargetListKind list = input_.flag() ? TargetListKind::kPriority : TargetListKind::kOverflow;
    static_cast<void>(table().append(description(), list, id));
    if (id != kNoTarget) linked_.push_back(id);
  }
  void unlink() {
    if (linked_.empty()) return;
    static_cast<void>(table().unlink(linked_[input_.u8() % linked_.size()]));
  }

  void request() {
    TargetRequest request;
    Begun begun;
    const std::size_t bytes = length();
    request.operation = TargetOperation{input_.below(5)};
    request.acknowledgement = TargetAcknowledgement{input_.below(2)};
    request.atomic_operation = AtomicOperation{input_.below(18)};
    request.atomic_type = AtomicType{input_.below(14)};
    request.table = kTable;
    request.bits = MatchBits{input_.below(4)};
    if (!request.is_get()) begun.source = std::make_unique<std::byte[]>(bytes);
    if (request.returns_data()) begun.destination = std::make_unique<std::byte[]>(bytes);
    if (!request.is_get()) request.source = {{begun.source.get(), bytes, nullptr}, 0, initiator_, counter_};
    if (request.returns_data())
      request.destination = {{begun.destination.get(), bytes, nullptr}, 0, initiator_, counter_};
    begun.wants_answer = request.returns_data() || request.acknowledgement != TargetAcknowledgement::kNone;
    request.cookie = reinterpret_cast<void*>(begun_.size());
    begun_.push_back(std::move(begun));
    if (engine_->request(kPeer, request) != Status::kOk) begun_.pop_back();
    take_events();
  }

  void progress() {
    take_news();
    engine_->progress();
    take_news();
    take_events();
  }
  void take_news() {
    Event event;
    while (engine_->next_event(event)) {
      if (event.kind == Event::Kind::kCardWanted)
        engine_->introduce(event.peer, card_version() + ";stand-in");
    }
  }
  void take_events() {
    TargetEvent event;
    bool lost = false;
    while (TargetEventReader(target_memory_->ring).take(event, lost))
      require(event.table == kTable, "an event has a table");
    while (TargetEventReader(initiator_memory_->ring).take(event, lost)) {
      Begun& begun = begun_.at(reinterpret_cast<std::uintptr_t>(event.cookie));
      require(!lost && !begun.is_over, "nothing is told of a request that is over");
      if (event.kind == TargetEventKind::kSend && begun.wants_answer) continue;
      require((event.kind == TargetEventKind::kSend) != begun.wants_answer, "the last event is as awaited");
      begun.is_over = true;
      begun.source.reset();
      begun.destination.reset();
    }
  }

  void end() {
    provider_.room_slots = SIZE_MAX;
    provider_.peer_down(kPeer, Status::kPeerFailed);
    for (int i = 0; i < 5; ++i) progress();
    engine_->fail_peer(kPeer);
    for (int i = 0; i < 5; ++i) progress();
    for (const Begun& begun : begun_)
      require(begun.is_over || (has_forged_untold_ && begun.wants_answer), "every request ends");
    require(table().in_flight() == 0, "no operation is in flight");
    require(provider_.regions() == 0, "nothing is registered");
    table().search({}, TargetTable::SearchMode::kDelete);
    for (const TargetId id : linked_)
      require(table().unlink(id) != TargetTable::Unlinked::kInUse, "no entry is in use");
    require(interface_->free_table(kTable) == Status::kOk, "nothing uses the table");
  }

  Input input_;
  const std::uint8_t settings_;
  StandInProvider provider_;
  const std::unique_ptr<TargetBoard> board_ = std::make_unique<TargetBoard>();
  const std::unique_ptr<TargetEventMemory> initiator_memory_ = TargetEventMemory::make(1000, 4);
  const std::unique_ptr<TargetEventMemory> target_memory_ = TargetEventMemory::make(4, 4);
  std::unique_ptr<Engine> engine_;
  TargetInterface* interface_ = nullptr;
  bool has_forged_untold_ = false;  ///< The peer has ended a request of which nothing is told.
  QueueId initiator_{}, target_{};
  CounterId counter_{};
  std::vector<std::unique_ptr<std::byte[]>> memories_;
  std::vector<TargetId> linked_;
  std::vector<Begun> begun_;
};

void run(std::span<const std::byte> bytes) { Process(bytes).run(); }

Seed& add(Seed& seed, Step step) { return seed.u8(static_cast<std::uint8_t>(step)); }

/// An entry of 30,000 bytes for anything.
void add_entry(Seed& seed) { add(seed, Step::kAppend).u8(1).u8(0).u8(3).u8(1).u16(0).u8(7).u8(0); }

template <class Header>
void add_message(Seed& seed, const Header& header, std::uint8_t data_length) {
  add(seed, Step::kMessage).u8(sizeof header);
  seed.bytes(std::as_bytes(std::span(&header, 1))).u8(data_length);
  add(seed, Step::kProgress);
}

void add_message(Seed& seed, const wire::TargetRequestHeader& header, std::uint8_t data_length) {
  const std::size_t length = wire::request_header_bytes(header.common.kind, header.common.flags);
  add(seed, Step::kMessage).u8(static_cast<std::uint8_t>(length));
  seed.bytes(std::as_bytes(std::span(&header, 1)).first(length)).u8(data_length);
  add(seed, Step::kProgress);
}

wire::TargetRequestHeader request_header(wire::Kind kind, unsigned flags, std::uint64_t length_bytes) {
  wire::TargetRequestHeader header;
  header.common = {kind, static_cast<std::uint8_t>(flags), wire::kTargetClient};
  header.length_bytes = length_bytes;
  header.operation = header.transfer = 1;
  header.table = kTable;
  header.atomic_operation = static_cast<std::uint8_t>(AtomicOperation::kSum);
  header.atomic_type = static_cast<std::uint8_t>(AtomicType::kUint8);
  return header;
}

/// Each kind of request to an entry, and each kind of request answered.
std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  using wire::Kind;
  for (std::uint8_t settings = 0; settings < 8; ++settings) {
    Seed served;
    served.u8(settings);
    add_entry(served);
    add_message(served, request_header(Kind::kPut, wire::kPayload | wire::kWantAck, 8), 2);
    add_message(served, request_header(Kind::kPut, wire::kWantAck, 5000), 0);
    const wire::DataHeader data{.common = {Kind::kData}, .transfer = 1};
    add_message(served, data, 3);
    const wire::TargetAbandonHeader abandon{.common = {Kind::kTargetAbandon, 0, wire::kTargetClient},
                                            .transfer = 1};
    add_message(served, abandon, 0);
    add_message(served, request_header(Kind::kGet, wire::kWritable, 5000), 0);
    for (const Kind kind : {Kind::kAtomic, Kind::kFetchAtomic})
      add_message(served, request_header(kind, 0, 8), 2);
    auto swap = request_header(Kind::kSwap, 0, 8);
    swap.atomic_operation = static_cast<std::uint8_t>(AtomicOperation::kSwap);
    add_message(served, swap, 2);
    all.push_back(served.done());

    Seed answered;
    answered.u8(settings);
    for (std::uint8_t operation = 0; operation < 5; ++operation) {
      const std::uint8_t atomic = operation == 4 ? 10 : 2;
      add(answered, Step::kRequest).u8(operation < 2 ? 6 : 2).u8(operation).u8(1).u8(atomic).u8(1).u8(0);
      add(answered, Step::kProgress);
    }
    const wire::CtsHeader cts{.common = {Kind::kCts}, .operation = 1, .transfer = 5, .wanted_bytes = 5000};
    add_message(answered, cts, 0);
    for (std::uint32_t operation = 1; operation <= 5; ++operation) {
      const bool is_ack = operation == 1 || operation == 3;
      wire::TargetAnswerHeader answer;
      answer.common = {is_ack ? Kind::kTargetAck : Kind::kTargetReply,
                       static_cast<std::uint8_t>(is_ack ? 0 : wire::kPayload), wire::kTargetClient};
      answer.operation = operation;
      answer.length_bytes = 8;
      add_message(answered, answer, is_ack ? 0 : 2);
    }
    all.push_back(answered.done());
  }
  return all;
}

const Target kTarget("entries", run, seeds);

}  // namespace entries_target
}  // namespace ch3_offload::fuzz
