// Engine: construction, peers, probes and progress. The public functions that concern one side of a
// message are in engine_send.cc, engine_receive.cc and engine_cancel.cc.

#include "engine/engine.h"

#include <string_view>

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// Items a provider may deliver per progress() before the queues that wait for room get their turn.
constexpr std::size_t kPollBudget = 64;

/// Splits `list` at `separator`: returns the first piece and shortens `list` to what follows.
std::string_view next_piece(std::string_view& list, char separator) noexcept {
  const std::size_t end = list.find(separator);
  const std::string_view piece = list.substr(0, end);
  list = end == std::string_view::npos ? std::string_view{} : list.substr(end + 1);
  return piece;
}

/// Two for each provider: for reading and for writing, null where one serves both or none is needed. Two are needed where the
/// device faults pages in: to read from a region that it may write to, it would ask for writable pages.
std::vector<std::unique_ptr<PinDownCache>> make_caches(std::span<Provider* const> providers,
                                                       const PinDownConfig& config) {
  std::vector<std::unique_ptr<PinDownCache>> caches;
  for (Provider* const provider : providers) {
    const Capabilities& can = provider->capabilities();
    PinDownConfig its = config;
    its.most_regions = std::min(its.most_regions, can.most_regions);
    if (can.on_demand) its.most_regions = std::max<std::size_t>(its.most_regions / 2, 1);
    for (const bool needed : {can.registering_costs, can.registering_costs && can.on_demand})
      caches.push_back(needed ? std::make_unique<PinDownCache>(*provider, its) : nullptr);
  }
  return caches;
}

}  // namespace

Engine::State::State(const EngineConfig& settings, std::span<Provider* const> fabrics, Host& caller)
    : config(settings),
      providers(fabrics.begin(), fabrics.end()),
      caches(make_caches(fabrics, settings.pin_down)),
      most_buffered_sends(std::max(kLeastBufferedSends, settings.unexpected_budget_bytes /
                                                            wire::kEnvelopeBytes / settings.job_size)),
      host(caller),
      matcher(settings.always_ignored),
      peers(settings.job_size),
      missed(settings.job_size) {}

Engine::Engine(const EngineConfig& config, std::span<Provider* const> providers, Host& host)
    : state_(std::make_unique<State>(config, providers, host)) {}

Engine::~Engine() = default;

std::string Engine::card() const {
  std::string card = "v=" + std::to_string(wire::kWireVersion);
  for (const Provider* provider : state_->providers) card += ";" + provider->local_address();
  return card;
}

const Counters& Engine::counters() const noexcept {
  Counters& counters = state_->counters;
  counters.posted_depth = state_->matcher.posted_depth();
  counters.unexpected_depth = state_->matcher.unexpected_depth();
  counters.lent_bytes = state_->lent_bytes;
  counters.pending_sends = state_->sends.live();
  state_->add_statistics(counters);
  return counters;
}

Peer* Engine::State::known(PeerId id) noexcept {
  const std::uint32_t index = index_of(id);
  if (index >= peers.size()) return nullptr;
  if (peers[index] == nullptr) {
    peers[index].reset(new (std::nothrow) Peer(id));
    if (peers[index] == nullptr) return nullptr;
    Peer& peer = *peers[index];
    if (missed[index]) {
      missed[index] = false;
      --missed_count;
      doom(peer, Status::kNoMemory);
    }
  }
  return peers[index].get();
}

Status Engine::State::why_unknown(PeerId id) const noexcept {
  return index_of(id) < peers.size() ? Status::kNoMemory : Status::kUnreachable;
}

Peer* Engine::State::met(PeerId id) noexcept {
  Peer* const peer = known(id);
  if (peer == nullptr && index_of(id) < peers.size() && !missed[index_of(id)]) {
    missed[index_of(id)] = true;
    ++missed_count;
  }
  return peer;
}

/// kNoMemory, or the status of a provider that could not connect now: it may be tried again.
Status Engine::State::connect(Peer& peer) noexcept {
  if (peer.doom != Status::kOk) return Status::kPeerFailed;  // It has failed, or will.
  if (peer.state == PeerState::kConnected) return Status::kOk;
  try {
    return make_connection(peer);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
}

Status Engine::State::make_connection(Peer& peer) {
  const std::string card = host.resolve(peer.id);
  std::string_view pieces = card;
  const std::string who = "process " + std::to_string(index_of(peer.id));
  const std::string version = "v=" + std::to_string(wire::kWireVersion);
  if (!card.empty() && next_piece(pieces, ';') != version) {
    host.on_warning(who + " speaks another version of the message protocol (its card: '" + card + "'; here: " +
                    version + "): all processes of a job need the same libch3offload");
    return give_up(peer);
  }
  while (!pieces.empty()) {
    const std::string_view piece = next_piece(pieces, ';');
    for (std::size_t i = 0; i < providers.size(); ++i) {
      Provider* const provider = providers[i];
      if (!provider->reaches(piece)) continue;
      const Result<std::monostate> connected = provider->connect(peer.id, piece);
      if (!connected.ok()) {
        // A process that is gone is told by the operation's error; the user can do something about the others.
        if (connected.error().status != Status::kPeerFailed) {
          host.on_warning("cannot connect to " + who + ": " + connected.error().message);
        }
        const Status status = connected.error().status;
        if (status == Status::kUnreachable || status == Status::kPeerFailed) doom(peer, status);
        return status;
      }
      peer.provider = provider;
      peer.caches = caches_of(i);
      peer.max_slot_bytes = provider->max_slot_bytes(peer.id);
      peer.state = PeerState::kConnected;
      ++counters.connected_peers;
      trace(TraceEvent::kPeerConnected, peer.id, 0, peer.max_slot_bytes);
      return Status::kOk;
    }
  }
  std::string have;
  for (const Provider* provider : providers) {
    have += (have.empty() ? "" : ", ") + std::string(provider->capabilities().name);
  }
  host.on_warning("no provider reaches " + who + " (its address: '" + card + "'; providers here: " +
                  have + "). If it is on another node, that needs a network provider.");
  return give_up(peer);
}

/// Nothing can be sent to the peer, ever: what is posted to receive from it must not wait, either.
Status Engine::State::give_up(Peer& peer) noexcept {
  doom(peer, Status::kUnreachable);
  return Status::kUnreachable;
}

void Engine::State::activate(Peer& peer) noexcept {
  if (!peer.active_hook.linked) active.push_back(peer);
}

void Engine::State::doom(Peer& peer, Status reason) noexcept {
  if (peer.doom == Status::kOk) peer.doom = reason;
  activate(peer);
}

bool Engine::probe(MatchBits bits, MatchBits ignore, Envelope& envelope) noexcept {
  State& state = *state_;
  const auto* const message =
      static_cast<IncomingMessage*>(state.matcher.find_unexpected(bits, ignore));
  state.trace(TraceEvent::kProbe, state.config.self, 0, message != nullptr);
  if (message == nullptr) return false;
  envelope = {message->bits, message->total_bytes, Status::kOk, message->cookie()};
  return true;
}

std::size_t Engine::progress() noexcept {
  State& state = *state_;
  if (state.progressing) return 0;
  state.progressing = true;
  std::size_t happened = 0;
  if (state.missed_count > 0) [[unlikely]]
    for (std::uint32_t i = 0; i < state.peers.size(); ++i)
      if (state.missed[i]) static_cast<void>(state.known(PeerId{i}));
  for (Provider* provider : state.providers) happened += provider->poll(state, kPollBudget);
  for (const auto& cache : state.caches)
    if (cache != nullptr) cache->reap();
  if (state.config.trace != nullptr) state.trace_pin_down();
  if (!state.credit_due.empty()) state.send_due_credit();
  // One turn for each peer that waited when this began; flush() queues it again if it still waits.
  for (std::size_t turns = state.active.size(); turns > 0 && !state.active.empty(); --turns) {
    Peer& peer = *state.active.pop_front();
    if (peer.doom != Status::kOk) {
      state.end(peer);
      ++happened;
    } else {
      happened += state.flush(peer);
    }
  }
  state.progressing = false;
  return happened;
}

bool Engine::idle() const noexcept {
  return state_->active.empty() && state_->writes_in_flight == 0 && state_->queues_waiting == 0;
}

bool Engine::at_rest() const noexcept {
  return state_->active.empty() && state_->writes_in_flight == 0 && state_->credit_due.empty();
}

void Engine::close_peer(PeerId id) noexcept {
  Peer* const peer = state_->known(id);
  if (peer != nullptr) peer->closed = true;
}

void Engine::fail_peer(PeerId id) noexcept {
  State& state = *state_;
  Peer* const peer = state.met(id);
  if (peer == nullptr) return;
  if (state.progressing) return state.doom(*peer, Status::kPeerFailed);  // A Sink's call may be on the stack.
  state.progressing = true;
  state.end(*peer);
  state.progressing = false;
}

void Engine::for_each_posted(void (*visit)(void* context, OperationId operation, Cookie cookie),
                             void* context) const noexcept {
  PostedEntry* next = nullptr;
  for (PostedEntry* entry = state_->matcher.first_posted(); entry != nullptr; entry = next) {
    next = Matcher::next_posted(*entry);
    const auto* const receive = static_cast<ReceiveOperation*>(entry);
    visit(context, OperationId{kReceiveOperation | receive->pool_id}, receive->cookie);
  }
}

void Engine::State::on_message(PeerId id, std::span<const std::byte> message) noexcept {
  Peer* const peer = met(id);
  if (peer == nullptr || peer->doom != Status::kOk) return;
  wire::CommonHeader header;
  bool valid = wire::get(message, header);
  if (valid) {
    peer->credit_bytes += header.credit_bytes;
    switch (header.kind) {
      case wire::Kind::kEager: valid = on_eager(*peer, message, false); break;
      case wire::Kind::kEagerFirst: valid = on_eager(*peer, message, true); break;
      case wire::Kind::kEagerNext: valid = on_eager_next(*peer, message); break;
      case wire::Kind::kPacket: {
        const auto bytes = message.subspan(sizeof header);
        valid = peer->placing == nullptr;
        if (!valid) break;
        counters.packet_bytes_received += bytes.size();
        trace(TraceEvent::kPacketArrived, id, 0, bytes.size());
        host.on_packet(id, bytes);
        break;
      }
      case wire::Kind::kRts: valid = on_rts(*peer, message); break;
      case wire::Kind::kCts: valid = on_cts(*peer, message); break;
      case wire::Kind::kData: valid = on_data(*peer, message); break;
      case wire::Kind::kAck: valid = on_ack(*peer, message); break;
      case wire::Kind::kCredit: break;
      case wire::Kind::kRecall: valid = on_recall(*peer, message); break;
      case wire::Kind::kReturn: valid = on_return(*peer, message); break;
      case wire::Kind::kCancel: valid = on_cancel(*peer, message); break;
      case wire::Kind::kCancelReply: valid = on_cancel_reply(*peer, message); break;
      default: valid = false;
    }
  }
  if (!valid) doom(*peer, Status::kProtocol);
}

}  // namespace ch3_offload
