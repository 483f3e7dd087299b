// A client of a node's network processor that may write anything into its rings, and name any memory: the
// process driver's RingServer and ClientMemory, with an engine for it and one for each of two neighbours.
//
// The client's memory is that of a child process, which only sleeps: so a copy that the kernel does shows, and
// hurts nobody. It has one area at a fixed place, and nothing around it.
//
// Required beyond what the sanitizers see: nobody but the client fails; the copies stay within the area; and
// after the client was dropped, its neighbours have heard so, and reach each other.

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>

#include "engine/card.h"
#include "engine/event_handler.h"
#include "fuzz/target.h"
#include "nic/client_memory.h"
#include "nic/exchange.h"
#include "nic/host_driver.h"
#include "nic/port_memory.h"
#include "nic/ring_server.h"
#include "nic/stepped_rings.h"
#include "rdma/peer_table.h"
#include "rdma/shm/ring.h"

namespace ch3_offload::fuzz {
namespace client_target {

constexpr std::uint32_t kRanks = 3;
constexpr std::uint32_t kHostile = 0;
constexpr std::size_t kAreaBytes = 16 << 10;
constexpr std::size_t kMostSteps = 400;
constexpr std::size_t kLastBytes = 5000;

enum class Step : std::uint8_t {
  kCommand,  ///< Fields, see command()
  kInline,   ///< kind, peer (u8), key (u8), the bytes: u8 of them, times 8
  kRaw,      ///< A record of any kind: u8, u8 bytes
  kPlant,    ///< Bytes in the area: offset (u16), u8 bytes
  kLayout,  ///< A layout in the area: offset (u16), element's bytes (u16), pieces (u8), each offset and length (u8)
  kTurn,
  kTake,       ///< The client takes events: u8
  kWord,       ///< It writes one of its words: which (u8), u64
  kNeighbour,  ///< A neighbour sends to it, or receives: u8
  kCount
};

/// A process that has the area, and sleeps.
class Child {
 public:
  static Child& get() {
    static Child child;
    return child;
  }
  pid_t pid() const noexcept { return pid_; }
  std::uint64_t area() const noexcept { return reinterpret_cast<std::uint64_t>(area_); }
  void plant(std::size_t offset, std::span<const std::byte> bytes) {
    offset %= kAreaBytes;
    const std::size_t length = std::min(bytes.size(), kAreaBytes - offset);
    if (length == 0) return;
    const iovec local{const_cast<std::byte*>(bytes.data()), length};
    const iovec remote{area_ + offset, length};
    require(process_vm_writev(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(length),
            "the area of the child can be written");
  }

 private:
  Child() {
    constexpr std::size_t kPage = 4096;
    // Pages that nobody can touch around it.
    void* const all = ::mmap(nullptr, kAreaBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(all != MAP_FAILED, "there is memory for the area");
    area_ = static_cast<std::byte*>(all) + kPage;
    require(::mprotect(area_, kAreaBytes, PROT_READ | PROT_WRITE) == 0, "the area is memory");
    pid_ = ::fork();
    require(pid_ >= 0, "a child can be made");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
  }
  ~Child() { ::kill(pid_, SIGKILL); }

  std::byte* area_ = nullptr;
  pid_t pid_ = 0;
};

/// A process of the same node that behaves.
class Neighbour final : public EventHandler {
 public:
  Neighbour(Exchange& exchange, const EngineConfig& config, const std::array<std::string, kRanks>& cards)
      : self_(config.self),
        cards_(cards),
        port_(exchange.attach(config.self)),
        providers_{port_.get()},
        engine_(config, providers_) {}

  /// `at_end`: with requests that were kept for the end. Does nothing if none is free.
  void receive(std::uint32_t from, bool at_end = false) {
    Request* const found = free_request(at_end);
    if (found == nullptr) return;
    Request& request = *found;
    OperationId operation;
    Envelope envelope;
    const MatchKey ignore{~std::uint64_t{0}, 0};
    if (engine_.post_receive({0, from}, ignore, {request.bytes.data(), request.bytes.size(), nullptr},
                             &request, operation, envelope) != Progressed::kPending)
      receive_done(request, envelope);
  }
  bool send(std::uint32_t to, std::size_t length_bytes, bool at_end = false) {
    Request* const found = free_request(at_end);
    if (found == nullptr) return false;
    Request& request = *found;
    std::ranges::fill(request.bytes, kPattern);
    OperationId operation;
    Status status;
    const Progressed progressed =
        engine_.send(PeerId{to}, SendMode::kStandard, {7, index_of(self_)},
                     {request.bytes.data(), std::min(length_bytes, request.bytes.size()), nullptr}, 1,
                     &request, operation, status);
    if (progressed != Progressed::kPending) request.is_pending = false;
    return progressed != Progressed::kFailed;
  }
  void step() { progress(engine_, *this); }

  /// Whether it has received a message of kLastBytes that a neighbour wrote. The client can say that it is
  /// that one, for all of them are of one job; but it does not have these bytes.
  bool is_reached() const noexcept { return is_reached_; }
  std::string card() const { return engine_.card(); }

  void on_send_done(Cookie cookie, Status) noexcept override { over(cookie); }
  void on_receive_done(Cookie cookie, const Envelope& envelope) noexcept override {
    receive_done(*static_cast<Request*>(cookie), envelope);
  }
  void on_cancel_done(Cookie, bool) noexcept override {}
  void on_packet(PeerId peer, std::span<const std::byte> bytes) noexcept override {
    require(index_of(peer) < kRanks, "a packet is somebody's");
    touch(bytes);
  }
  Payload on_packet_offer(PeerId, std::size_t) noexcept override { return {}; }
  void on_packet_placed(PeerId, std::size_t) noexcept override {}
  void on_peer_failed(PeerId peer, Status) noexcept override {
    require(index_of(peer) == kHostile, "only the client fails");
  }
  std::string on_card_wanted(PeerId peer) override { return cards_[index_of(peer)]; }
  void on_warning(LogScope, std::string_view) noexcept override {}

 private:
  struct Request {
    bool is_pending = false;
    std::vector<std::byte> bytes = std::vector<std::byte>(8192);
  };
  /// Pending from now on.
  Request* free_request(bool at_end) noexcept {
    const auto requests = at_end ? std::span(requests_).last(kKept) : std::span(requests_).first(kKept);
    for (Request& one : requests) {
      if (one.is_pending) continue;
      one.is_pending = true;
      return &one;
    }
    return nullptr;
  }
  void receive_done(Request& request, const Envelope& envelope) noexcept {
    request.is_pending = false;
    is_reached_ = is_reached_ || (envelope.status == Status::kOk && envelope.length_bytes == kLastBytes &&
                                  request.bytes[0] == kPattern && request.bytes[kLastBytes - 1] == kPattern);
    std::ranges::fill(request.bytes, std::byte{0});
  }
  static void over(Cookie cookie) noexcept { static_cast<Request*>(cookie)->is_pending = false; }

  const PeerId self_;
  const std::array<std::string, kRanks>& cards_;
  std::unique_ptr<ExchangePort> port_;
  Provider* providers_[1];
  static constexpr std::size_t kKept = 4;
  static constexpr std::byte kPattern{0x5a};
  bool is_reached_ = false;
  std::array<Request, 2 * kKept> requests_;
  HostDriver engine_;
};

EngineConfig config_of(std::uint32_t rank) {
  EngineConfig config;
  config.self = PeerId{rank};
  config.senders = kRanks;
  config.first_foreign_peer = PeerId{kRanks};
  config.eager_limit_bytes = 2000;
  config.unexpected_budget_bytes = 64 << 10;
  config.send_buffer_bytes = 0;
  return config;
}

/// For processes of other worlds: each takes what it gets, and says nothing. Requires what a provider may.
class Listeners final : public Provider {
 public:
  static constexpr std::string_view kAddress = "listener";

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return std::string(kAddress); }
  bool reaches(std::string_view address) const noexcept override { return address == kAddress; }
  Result<Endpoint*> connect(PeerId peer, std::string_view, const std::optional<PeerNames>&) override {
    require(slot_of(peer) >= kRanks && peers_.is_current(peer), "it is foreign, and not forgotten");
    Listener* const known = peers_.find(peer);
    if (known != nullptr && known->is_down) return Error{Status::kPeerFailed, 0, "down"};
    return static_cast<Endpoint*>(known != nullptr ? known : &peers_.make(peer));
  }
  std::string address_of(PeerId) const override { return {}; }
  bool end(PeerId peer) noexcept override {
    Listener* const known = peers_.find(peer);
    if (known == nullptr || known->is_down) return false;
    ending_.push_back(peer);
    return true;
  }
  bool forget(PeerId peer) noexcept override {
    return std::ranges::find(ending_, peer) == ending_.end() && peers_.forget(peer);
  }
  Status register_memory(void*, std::size_t, Access, MemoryRegion&) noexcept override {
    return Status::kUnsupported;
  }
  void deregister_memory(MemoryRegion&) noexcept override {}
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override {
    if (static_cast<Listener&>(endpoint).is_down) return Status::kPeerFailed;
    require(length_bytes >= 1 && length_bytes <= slot_.size(), "the slot is not too long");
    slot = std::span(slot_).first(length_bytes);
    return Status::kOk;
  }
  void commit(Endpoint&, std::size_t length_bytes) noexcept override {
    touch(std::span(slot_).first(length_bytes));
  }
  Status write(Endpoint&, const std::byte*, std::size_t, const MemoryRegion&, RemoteMemory, Immediate,
               WorkId) noexcept override {
    return Status::kUnsupported;
  }
  std::size_t poll(Sink& sink, std::size_t) noexcept override {
    std::size_t ended = 0;
    for (const PeerId peer : std::exchange(ending_, {})) {
      Listener* const known = peers_.find(peer);
      if (known == nullptr || std::exchange(known->is_down, true)) continue;
      sink.on_peer_down(peer, Status::kPeerFailed);
      ++ended;
    }
    return ended;
  }
  bool arm() noexcept override { return ending_.empty(); }
  void disarm() noexcept override {}
  int descriptor() const noexcept override { return -1; }

 private:
  struct Listener final : Endpoint {
    explicit Listener(PeerId its_id) noexcept : id(its_id) {}
    const PeerId id;
    bool is_down = false;
  };
  const Capabilities capabilities_{.name = "fake", .max_slot_bytes = 1024};
  PeerTable<Listener> peers_;
  std::vector<PeerId> ending_;
  std::array<std::byte, 1024> slot_{};
};

/// The client, as the processor has it (NicdClient).
struct Client final : private ClientServices {
  explicit Client(Exchange& exchange)
      : memory(std::move(PortMemory::make().value())),
        port(exchange.attach(PeerId{kHostile})),
        data(Child::get().pid(), socket.processor, kRanks, *port),
        providers{port.get()},
        engine(config_of(kHostile), providers),
        server(engine, memory, nullptr, &data, this),
        events(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                      memory.files()[PortMemory::kEventFile], 0)) {
    require(events != MAP_FAILED, "the client maps its ring of events");
  }
  ~Client() { ::munmap(events, 4096); }

  bool attach_targets() noexcept override { return false; }
  void detach_targets() noexcept override {}
  bool reach_foreign(const UserKey&) noexcept override {
    if (std::exchange(reaches_foreign, true)) return true;
    Provider* const added[] = {&listeners};
    require(engine.add_providers(added), "there is memory for a provider");
    data.reach_foreign();
    return true;
  }

  PortMemory memory;
  std::unique_ptr<ExchangePort> port;
  ClientSocket socket;
  ClientMemory data;
  Listeners listeners;
  bool reaches_foreign = false;
  Provider* providers[1];
  HostDriver engine;
  RingServer server;
  void* events;  ///< The first page of their ring: RingControl.
};

class Node {
 public:
  explicit Node(std::span<const std::byte> bytes) : input_(bytes), exchange_(PeerId{0}, kRanks, nullptr) {
    client_.emplace(exchange_);
    commands_.emplace(client_->memory.command_producer());
    events_.emplace(client_->memory.event_consumer());
    cards_[kHostile] = client_->engine.card();
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
      cards_[rank] = neighbours_[rank - 1].emplace(exchange_, config_of(rank), cards_).card();
    }
    const std::vector<std::byte> zeros(kAreaBytes);
    Child::get().plant(0, zeros);
  }

  void run() {
    for (std::size_t steps = 0; !input_.empty() && steps < kMostSteps && client_; ++steps) {
      take(Step{input_.below(static_cast<std::uint8_t>(Step::kCount))});
      if (client_->server.is_refused() || client_->data.is_broken()) drop();
    }
    end();
  }

 private:
  void take(Step step) {
    switch (step) {
      case Step::kCommand: return command();
      case Step::kInline: {
        InlineRecord record;
        record.kind = input_.flag() ? CommandKind::kSendInline : CommandKind::kPacketInline;
        record.mode = input_.below(4);
        record.peer = peer();
        record.bits = input_.u8();
        std::vector<std::byte> bytes(sizeof record + std::size_t{8} * input_.u8());
        std::memcpy(bytes.data(), &record, sizeof record);
        return give(RecordKind::kMessage, bytes);
      }
      case Step::kRaw: {
        const auto kind = static_cast<RecordKind>(input_.u8());
        return give(kind, input_.bytes(input_.u8()));
      }
      case Step::kPlant: {
        const std::size_t offset = input_.u16();
        return Child::get().plant(offset, input_.bytes(input_.u8()));
      }
      case Step::kLayout: return layout();
      case Step::kTurn: return turn();
      case Step::kTake: return take_events(input_.u8());
      case Step::kWord: return write_word();
      default: return neighbour();
    }
  }

  /// A rank, a foreign process, or one that has its number after it.
  std::uint32_t peer() {
    const std::uint8_t choice = input_.below(kRanks + 4);
    return choice <= kRanks ? choice : kRanks + (choice - kRanks - 1u) * kPeerSlots;
  }

  /// In the area, in its last bytes, near nothing, or beyond all memory.
  std::uint64_t address() {
    const std::uint8_t choice = input_.below(8);
    const std::uint64_t offset = input_.u16();
    if (choice < 5) return Child::get().area() + offset % kAreaBytes;
    if (choice < 6) return offset;
    return choice < 7 ? std::uint64_t{1} << (offset % 64) : 0 - offset;
  }

  void layout() {
    constexpr std::size_t kPiecesAt = kAreaBytes / 2;
    PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces,
                         .pieces = reinterpret_cast<const Piece*>(Child::get().area() + kPiecesAt)};
    const std::size_t offset = input_.u16();
    layout.element_bytes = input_.u16();
    layout.extent_bytes = static_cast<std::ptrdiff_t>(layout.element_bytes) * 2;
    layout.piece_count = input_.u8();
    for (std::uint32_t i = 0; i < layout.piece_count && i < 16; ++i) {
      const Piece piece{input_.u8(), input_.u8()};
      Child::get().plant(kPiecesAt + i * sizeof piece, std::as_bytes(std::span(&piece, 1)));
    }
    Child::get().plant(offset, std::as_bytes(std::span(&layout, 1)));
  }

  void command() {
    CommandRecord record;
    record.kind = static_cast<CommandKind>(input_.below(29));
    // Its path would be written to.
    if (record.kind == CommandKind::kWriteTrace) record.kind = CommandKind::kProbe;
    record.mode = input_.below(4);
    record.peer = peer();
    record.bits = input_.u8();
    record.initiator = input_.below(kRanks + 1);
    record.operation = OperationId{std::uint64_t{input_.below(3)} << 32 | input_.below(12)};
    record.count = input_.below(70);
    record.send_id = input_.u8();
    record.address = address();
    const std::uint8_t choice = input_.below(8);
    record.length_bytes = choice < 3   ? input_.u8()
                          : choice < 6 ? input_.u16()
                                       : std::uint64_t{1} << (input_.u8() % 64);
    if (input_.below(4) == 0) record.layout = address();
    std::vector<std::byte> bytes(sizeof record);
    std::memcpy(bytes.data(), &record, sizeof record);
    switch (record.kind) {
      case CommandKind::kReceiveMasked:
      case CommandKind::kProbe:
      case CommandKind::kMatchedProbe: {
        const MatchKey mask{input_.flag() ? ~std::uint64_t{0} : 0, input_.flag() ? ~std::uint32_t{0} : 0};
        append(bytes, mask);
        break;
      }
      case CommandKind::kPacket:
        for (std::uint8_t i = 0; i < record.count; ++i)
          append(bytes, Payload{reinterpret_cast<std::byte*>(address()), input_.u16(), nullptr});
        bytes.resize(bytes.size() + record.send_id);
        break;
      case CommandKind::kSchedule:
        for (std::uint8_t i = input_.below(8); i > 0; --i) append(bytes, step_of_schedule());
        break;
      case CommandKind::kIntroduce: {
        const std::string card = record.peer < kRanks
                                     ? cards_[record.peer]
                                     : card_version() + ";" + std::string(Listeners::kAddress);
        const auto text = std::as_bytes(std::span(card));
        bytes.insert(bytes.end(), text.begin(), text.end());
        break;
      }
      case CommandKind::kReachForeign: append(bytes, std::array<std::byte, UserKey::kBytes>{}); break;
      default: break;
    }
    if (input_.below(16) == 0) bytes.resize(bytes.size() + input_.u8());
    give(RecordKind::kMessage, bytes);
  }

  ScheduleStep step_of_schedule() {
    ScheduleStep step;
    step.kind = static_cast<StepKind>(input_.below(9));
    step.is_barrier = input_.below(2);
    step.operation = static_cast<AtomicOperation>(input_.below(12));
    step.type = static_cast<AtomicType>(input_.below(23));
    step.peer = peer();
    step.key = {input_.below(4), input_.below(kRanks)};
    step.from = reinterpret_cast<const std::byte*>(address());
    step.to = reinterpret_cast<std::byte*>(address());
    step.length_bytes = std::size_t{32} * input_.u16();
    if (input_.below(8) == 0) step.layout = reinterpret_cast<const PayloadLayout*>(address());
    return step;
  }

  template <class T>
  static void append(std::vector<std::byte>& bytes, const T& object) {
    const auto its = std::as_bytes(std::span(&object, 1));
    bytes.insert(bytes.end(), its.begin(), its.end());
  }

  void give(RecordKind kind, std::span<const std::byte> bytes) {
    if (bytes.empty() || !commands_->has_room(bytes.size())) return turn();
    std::memcpy(commands_->payload(), bytes.data(), bytes.size());
    commands_->publish(kind, bytes.size());
  }

  void take_events(int most) {
    RingConsumer::Record record;
    for (; most > 0; --most) {
      const std::uint64_t header = events_->header();
      if (header == 0) break;
      const bool is_event = events_->parse(header, record);
      require(is_event || has_lied_, "events are whole");
      if (!is_event) return;
      touch(record.payload);
      events_->advance(record);
    }
    static_cast<void>(events_->release());
  }

  void write_word() {
    const std::uint8_t which = input_.below(4);
    const std::uint64_t value = input_.u64();
    NicWords& words = client_->memory.words();
    switch (which) {
      case 0: words.client_sleeps.store(static_cast<std::uint32_t>(value)); return;
      case 1: words.nic_sleeps.store(static_cast<std::uint32_t>(value)); return;
      case 2: words.idle_at.store(value); return;
      default: {
        // How far it has taken the events.
        static_cast<RingControl*>(client_->events)->consumer_position.store(value);
        has_lied_ = true;
      }
    }
  }

  void neighbour() {
    const std::uint8_t choice = input_.u8();
    Neighbour& one = *neighbours_[choice & 1];
    if ((choice & 2) != 0)
      one.receive(choice & 4 ? kHostile : 1 + (choice >> 3 & 1));
    else
      static_cast<void>(one.send(kHostile, std::size_t{choice} * 64));
  }

  void turn() {
    if (client_) client_->server.turn();
    step_others();
  }
  void step_others() {
    exchange_.poll();
    for (auto& one : neighbours_) one->step();
  }

  void drop() {
    if (client_->data.is_broken()) require(!client_->data.reason().empty(), "who is dropped is told why");
    commands_.reset();
    events_.reset();
    client_.reset();
  }

  void end() {
    for (int i = 0; i < 8 && client_; ++i) {
      turn();
      if (client_->server.is_refused() || client_->data.is_broken()) drop();
    }
    if (client_) drop();
    for (int i = 0; i < 200; ++i) step_others();
    auto& [one, other] = neighbours_;
    require(one->send(2, kLastBytes, true), "a neighbour can send");
    for (std::size_t i = 0; i < 200 + kMostSteps && !other->is_reached(); ++i) {
      other->receive(1, true);
      step_others();
    }
    require(other->is_reached(), "the neighbours reach each other");
  }

  Input input_;
  Exchange exchange_;
  std::optional<Client> client_;
  std::optional<RingProducer> commands_;
  std::optional<RingConsumer> events_;
  std::array<std::optional<Neighbour>, 2> neighbours_;
  std::array<std::string, kRanks> cards_;
  bool has_lied_ = false;  ///< About the events it has taken: those it has not may be overwritten.
};

std::vector<Bytes> seeds() {
  const auto step = [](Seed& seed, Step name) -> Seed& { return seed.u8(static_cast<std::uint8_t>(name)); };
  // A command in the area, up to what kinds have behind it.
  const auto command = [&](Seed& seed, CommandKind kind, std::uint8_t peer, std::uint8_t number,
                           std::uint16_t at, std::uint16_t length, bool has_layout) {
    step(seed, Step::kCommand)
        .u8(static_cast<std::uint8_t>(kind))
        .u8(0)
        .u8(peer)
        .u8(7)
        .u8(peer)
        .u8(1)
        .u8(number);
    seed.u8(1).u8(0).u8(0).u16(at).u8(3).u16(length).u8(has_layout ? 0 : 1);
    if (has_layout) seed.u8(0).u16(0);
  };
  const auto turns = [&](Seed& seed, int count) {
    for (; count > 0; --count) step(seed, Step::kTurn);
  };
  Seed talks;
  for (const std::uint8_t peer : {1, 2}) {
    command(talks, CommandKind::kIntroduce, peer, 0, 0, 0, false);
    talks.u8(1);
  }
  command(talks, CommandKind::kReceive, 1, 1, 100, 500, false);
  talks.u8(1);
  step(talks, Step::kNeighbour).u8(4);
  turns(talks, 3);
  for (const std::uint16_t length : {100, 1500, 8000}) {
    step(talks, Step::kNeighbour).u8(6);
    command(talks, CommandKind::kSend, 1, 2, 200, length, false);
    talks.u8(1);
    turns(talks, 4);
    step(talks, Step::kTake).u8(20);
  }
  Seed pieces;
  command(pieces, CommandKind::kIntroduce, 1, 0, 0, 0, false);
  pieces.u8(1);
  step(pieces, Step::kLayout).u16(0).u16(12).u8(2).u8(0).u8(5).u8(8).u8(7);
  command(pieces, CommandKind::kSend, 1, 1, 1000, 600, true);
  pieces.u8(1);
  turns(pieces, 4);
  step(pieces, Step::kTake).u8(9);
  Seed inlines;
  step(inlines, Step::kInline).u8(1).u8(0).u8(1).u8(7).u8(20).bytes(Bytes(160));
  command(inlines, CommandKind::kIntroduce, 1, 0, 0, 0, false);
  inlines.u8(1);
  turns(inlines, 3);
  step(inlines, Step::kTake).u8(9);
  Seed beyond;
  command(beyond, CommandKind::kIntroduce, 1, 0, 0, 0, false);
  beyond.u8(1);
  command(beyond, CommandKind::kSend, 1, 1, kAreaBytes - 10, 3000, false);
  beyond.u8(1);
  turns(beyond, 3);
  Seed strangers;
  step(strangers, Step::kCommand).u8(static_cast<std::uint8_t>(CommandKind::kReachForeign)).u8(0).u8(0);
  strangers.u8(1).u8(0).u8(0).u8(0).u8(0).u8(0).u8(0).u16(0).u8(0).u8(0).u8(1).u8(1);
  for (const std::uint8_t generation : {4, 5, 6}) {
    command(strangers, CommandKind::kIntroduce, generation, 0, 0, 0, false);
    strangers.u8(1);
    command(strangers, CommandKind::kSend, generation, generation, 200, 1500, false);
    strangers.u8(1);
    turns(strangers, 2);
    for (const CommandKind kind : {CommandKind::kFailPeer, CommandKind::kForgetPeer}) {
      command(strangers, kind, generation, 0, 0, 0, false);
      strangers.u8(1);
      turns(strangers, 3);
    }
    step(strangers, Step::kTake).u8(20);
  }
  Seed lies;
  step(lies, Step::kWord).u8(3).u64(UINT64_MAX);
  command(lies, CommandKind::kIntroduce, 1, 0, 0, 0, false);
  lies.u8(1);
  command(lies, CommandKind::kSend, 1, 1, 0, 3000, false);
  lies.u8(1);
  turns(lies, 3);
  return {talks.done(), pieces.done(), inlines.done(), beyond.done(), strangers.done(), lies.done()};
}

const Target kTarget(
    "client", [](std::span<const std::byte> input) { Node(input).run(); }, seeds);

}  // namespace client_target
}  // namespace ch3_offload::fuzz
