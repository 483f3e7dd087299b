// Engine: construction, probes and progress. The public functions that concern one side of a message are in
// engine_send.cc, engine_receive.cc and engine_cancel.cc.

#include "engine/engine.h"

#include <cassert>

#include "engine/card.h"
#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// Items a provider may deliver per progress() before the queues that wait for room get their turn.
constexpr std::size_t kPollBudget = 64;

/// Of the budget for unexpected messages, so much is kept for the next payloads when it is free again.
constexpr std::size_t kBudgetPerKeptByte = 16;

/// Two for each provider: for reading and for writing, null where one serves both or none is needed. Two are
/// needed where the device faults pages in: to read from a region that it may write to, it would ask for
/// writable pages.
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

Engine::State::State(const EngineConfig& settings, std::span<Provider* const> fabrics)
    : config(settings),
      providers(fabrics.begin(), fabrics.end()),
      first_foreign_provider(providers.size()),
      caches(make_caches(fabrics, settings.pin_down)),
      has_caches(std::ranges::any_of(caches, [](const auto& cache) { return cache != nullptr; })),
      most_buffered_sends(std::max(
          kLeastBufferedSends, settings.unexpected_budget_bytes / wire::kEnvelopeBytes / settings.senders)),
      matcher(settings.always_ignored),
      blocks(settings.unexpected_budget_bytes / kBudgetPerKeptByte) {}

Engine::Engine(const EngineConfig& config, std::span<Provider* const> providers)
    : state_(std::make_unique<State>(config, providers)) {}

Engine::~Engine() = default;

void Engine::add_providers(std::span<Provider* const> providers) {
  state_->providers.insert(state_->providers.end(), providers.begin(), providers.end());
}

std::string Engine::card() const {
  return card_of(std::span(state_->providers).first(state_->first_foreign_provider));
}

const CounterPage& Engine::counters() const noexcept {
  CounterPage& counters = state_->counters;
  counters.posted_depth = state_->matcher.posted_depth();
  counters.unexpected_depth = state_->matcher.unexpected_depth();
  counters.pending_sends = state_->sends.live() + state_->packets.live();
  state_->sum_up_caches();
  ProviderCounters sum;
  for (const Provider* const provider : state_->providers) sum += provider->counters();
  counters.providers = sum;
  return counters;
}

bool Engine::probe(const MatchKey& key, const MatchKey& ignore, Envelope& envelope) noexcept {
  State& state = *state_;
  const auto* const message = static_cast<IncomingMessage*>(state.matcher.find_unexpected(key, ignore));
  state.trace(TraceEvent::kProbe, state.config.self, 0, message != nullptr);
  if (message == nullptr) return false;
  envelope = {message->key, message->total_bytes, Status::kOk};
  return true;
}

std::size_t Engine::progress() noexcept {
  State& state = *state_;
  assert(!state.has_events());
  std::size_t happened = 0;
  if (!state.missed.empty()) [[unlikely]]
    state.know_missed();
  for (std::size_t left = state.providers.size(); left > 0 && state.events.packet == nullptr; --left) {
    happened += state.providers[state.provider_turn]->poll(state, kPollBudget);
    if (++state.provider_turn == state.providers.size()) state.provider_turn = 0;
  }
  if (state.has_caches) {
    for (const auto& cache : state.caches)
      if (cache != nullptr) cache->reap();
  }
  if (state.config.trace != nullptr) state.trace_pin_down();
  if (!state.credit_due.empty()) state.send_due_credit();
  if (state.own_work != 0) [[unlikely]]
    happened += state.do_own_work();
  // One turn for each peer that waited when this began; flush() queues it again if it still waits.
  for (std::size_t turns = state.active.size(); turns > 0 && !state.active.empty(); --turns) {
    Peer& peer = *state.active.pop_front();
    if (peer.doom != Status::kOk) {
      state.end(peer);
      ++happened;
    } else if (peer.state == PeerState::kWanted) {
      state.seek(peer);
      ++happened;
    } else {
      happened += state.flush(peer);
    }
  }
  // Another one is first in the next turn, where they share what they leave through.
  if (state.active.size() > 1) state.active.push_back(*state.active.pop_front());
  return happened;
}

bool Engine::idle() const noexcept {
  return state_->active.empty() && state_->writes_in_flight == 0 && state_->queues_waiting == 0 &&
         state_->introductions_due == 0 && state_->receives_under_way == 0;
}

bool Engine::at_rest() const noexcept {
  return state_->active.empty() && state_->writes_in_flight == 0 && state_->credit_due.empty() &&
         state_->own_work == 0 && !state_->has_events();
}

/// What needs no peer: a part of a message to oneself, and triggered operations.
std::size_t Engine::State::do_own_work() noexcept {
  return (self_copies.empty() ? 0 : copy_to_self()) + run_triggered();
}

/// All kinds but kEager, which on_message() takes itself. Those of the second client come last, so that
/// MPI's do not pay for them.
Delivery Engine::State::dispatch(Peer& peer, std::span<const std::byte> message) noexcept {
  wire::CommonHeader header;
  bool valid = wire::get(message, header);
  const bool is_message = valid && header.client == wire::kMessageClient;
  if (is_message && header.kind == wire::Kind::kPacket)
    return on_packet(peer, header, message.subspan(sizeof header));
  if (is_message) {
    peer.books->credit_bytes += header.credit_bytes;
    switch (header.kind) {
      case wire::Kind::kEager: valid = false; break;  // Its header is cut.
      case wire::Kind::kEagerFirst: valid = on_eager_first(peer, message); break;
      case wire::Kind::kEagerNext: valid = on_eager_next(peer, message); break;
      case wire::Kind::kRts: valid = on_rts(peer, message); break;
      case wire::Kind::kCts: valid = on_cts(peer, message); break;
      case wire::Kind::kData: valid = on_data(peer, message); break;
      case wire::Kind::kAck: valid = on_ack(peer, message); break;
      case wire::Kind::kCredit: break;
      case wire::Kind::kRecall: valid = on_recall(peer, message); break;
      case wire::Kind::kReturn: valid = on_return(peer, message); break;
      case wire::Kind::kCancel: valid = on_cancel(peer, message); break;
      case wire::Kind::kCancelReply: valid = on_cancel_reply(peer, message); break;
      default: valid = false;
    }
  } else if (valid) {
    valid = on_target_message(peer, header, message);
  }
  if (!valid) doom(peer, Status::kProtocol);
  return Delivery::kTaken;
}

}  // namespace ch3_offload
