// Engine: the table of peers, introductions, and connections.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "engine/card.h"
#include "engine/engine_state.h"
#include "rdma/checked/checked_frames.h"

namespace ch3_offload {
namespace {

/// The providers of a process, by their addresses: "shm, verbs".
struct ProviderNames {
  void add(std::string_view address) {
    // That of a node's processor has its network's within it.
    for (const std::string_view network : {"verbs:", "tcp:"})
      has_network = has_network || address.find(network) != std::string_view::npos;
    has_checksums = has_checksums || address.find(kCheckedAddress) != std::string_view::npos;
    const std::string_view name = next_piece(address, ':');
    has_process = has_process || name == "nic";
    text.append(text.empty() ? "" : ", ").append(name);
  }
  std::string text;
  bool has_network = false;
  bool has_process = false;
  bool has_checksums = false;
};

/// Why `providers` do not reach a process that has `addresses`, and what can be done.
std::string why_unreachable(std::span<Provider* const> providers, const std::string& who,
                            std::string_view addresses) {
  if (addresses.empty()) return who + " cannot be reached: it has published no address";
  ProviderNames here, there;
  for (const Provider* provider : providers) here.add(provider->local_address());
  const std::string all(addresses);
  while (!addresses.empty()) there.add(next_piece(addresses, ';'));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const std::string text = "no provider reaches " + who + ", which has " + there.text + " ('" + all +
                           "'); this process, on node " + host.data() + ", has " + here.text + ". ";
  if (here.has_process != there.has_process)
    return text +
           "All processes need the same driver: MPIR_CVAR_CH3_OFFLOAD_NIC=process on all nodes, or on "
           "none";
  if (here.has_checksums != there.has_checksums)
    return text + "All processes need the same MPIR_CVAR_CH3_OFFLOAD_CHECKSUM";
  if (here.has_network && there.has_network)
    return text +
           "Both have a network, but not the same one: see ch3-offload-info on both nodes. With "
           "MPIR_CVAR_CH3_OFFLOAD_FABRIC=shm+tcp on all of them they have TCP";
  return text +
         "It is on another node, or in another network namespace: between nodes both sides need a network, "
         "verbs or TCP. MPIR_CVAR_CH3_OFFLOAD_FABRIC may have excluded it, or ch3-offload-info says what " +
         (here.has_network    ? "that node lacks"
          : there.has_network ? "this node lacks"
                              : "both nodes lack");
}

}  // namespace

Peer* Engine::State::make_known(PeerId id) noexcept {
  Peer* made = nullptr;
  try {
    made = &peers.make(id);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  Peer& peer = *made;
  if (missed.take(id)) [[unlikely]]
    doom(peer, Status::kNoMemory);
  return &peer;
}

Status Engine::State::may_send(PeerId id, const Peer* peer) const noexcept {
  if (peer == nullptr) return peers.is_current(id) ? Status::kNoMemory : Status::kPeerFailed;
  return peer->doom == Status::kOk ? Status::kOk : Status::kPeerFailed;
}

Peer* Engine::State::meet(PeerId id) noexcept {
  if (!peers.is_current(id)) return nullptr;
  Peer* const peer = make_known(id);
  if (peer == nullptr) missed.note(id);
  return peer;
}

void Engine::State::know_missed() noexcept {
  while (!missed.empty() && make_known(missed.any()) != nullptr) {
  }
}

/// As connect().
Status Engine::State::connect_by_card(Peer& peer, std::string_view card) {
  const std::string who = "process " + std::to_string(index_of(peer.id));
  const std::string version = card_version();
  const std::optional<Card> parsed = parse_card(card);
  if (!card.empty() && (!parsed || parsed->version != version)) {
    warn(LogScope::kProcess, who + " speaks another version of the message protocol (its card: '" +
                                 std::string(card) + "'; here: " + version +
                                 "): all processes of a job need the same libch3offload");
    return Status::kUnreachable;
  }
  std::string_view addresses = parsed ? parsed->addresses : std::string_view{};
  const auto [first, count] = providers_of(peer.id);
  while (!addresses.empty()) {
    const std::string_view address = next_piece(addresses, ';');
    for (std::size_t i = first; i < first + count; ++i) {
      if (providers[i]->reaches(address)) return connect(peer, i, address, parsed->names);
    }
  }
  // Of a process without a card, its book has said why.
  if (card.empty() && peer.id >= std::min(config.first_book_peer, config.first_foreign_peer))
    return Status::kUnreachable;
  warn(LogScope::kProcess, why_unreachable(std::span(providers).subspan(first, count), who,
                                           parsed ? parsed->addresses : std::string_view{}));
  return Status::kUnreachable;
}

/// kOk; kNoMemory, with which what waits fails; kAgain: it waits on; or another status, with which the peer
/// is doomed. Throws std::bad_alloc.
Status Engine::State::connect(Peer& peer, std::size_t provider_index, std::string_view address,
                              const std::optional<PeerNames>& names) {
  Provider* const provider = providers[provider_index];
  Result<Endpoint*> made = provider->connect(peer.id, address, names);
  if (!made.ok()) {
    // A process that is gone is told by the operation's error; the user can do something about the others.
    if (made.error().status != Status::kPeerFailed && made.error().status != Status::kAgain) {
      warn(LogScope::kProcess,
           "cannot connect to process " + std::to_string(index_of(peer.id)) + ": " + made.error().message);
    }
    return made.error().status;
  }
  peer.provider = provider;
  peer.endpoint = made.value();
  peer.provider_index = static_cast<std::uint32_t>(provider_index);
  peer.max_slot_bytes = static_cast<std::uint32_t>(provider->max_slot_bytes(*peer.endpoint));
  peer.write_terms = provider->write_terms(*peer.endpoint);
  peer.state = PeerState::kConnected;
  ++counters.connected_peers;
  trace(TraceEvent::kPeerConnected, peer.id, 0, peer.max_slot_bytes);
  return Status::kOk;
}

/// Does not connect, because a Sink may call it.
void Engine::State::want_connection(Peer& peer) noexcept {
  if (peer.state != PeerState::kKnown || peer.doom != Status::kOk) return;
  peer.state = PeerState::kWanted;
  ++introductions_due;
  activate(peer);
}

/// A peer that has connected to this process has given its address and its names to the provider: nobody is
/// asked for them, and the answer goes the way by which the peer came. Its version was checked: it would not
/// have connected to an engine of another version.
void Engine::State::seek(Peer& peer) noexcept {
  Status status = Status::kNoMemory;
  try {
    bool is_found = false;
    const auto [first, count] = providers_of(peer.id);
    for (std::size_t i = first; i < first + count && !is_found; ++i) {
      const std::string address = providers[i]->address_of(peer.id);
      is_found = !address.empty();
      if (is_found) status = connect(peer, i, address, {});
    }
    if (!is_found && !peer.card.empty()) {
      status = connect_by_card(peer, peer.card);
    } else if (!is_found) {
      peer.state = PeerState::kAsked;
      peer.wants_card = true;
      ++counters.cards_wanted;
      return tell(peer);
    }
  } catch (const std::bad_alloc&) {
    // As it stands.
  }
  tried_to_connect(peer, status);
}

void Engine::introduce(PeerId id, std::string_view card) noexcept {
  State& state = *state_;
  Peer* const peer = state.met(id);
  if (peer == nullptr || peer->doom != Status::kOk) return;
  if (peer->state == PeerState::kKnown || peer->state == PeerState::kWanted) return state.keep(*peer, card);
  if (peer->state != PeerState::kAsked) return;
  Status status = Status::kNoMemory;
  try {
    status = state.connect_by_card(*peer, card);
    // A shortage may pass. Without memory for the card, it is asked for again.
    if (status == Status::kNoMemory || status == Status::kAgain) peer->card = card;
  } catch (const std::bad_alloc&) {
    // As it stands.
  }
  state.tried_to_connect(*peer, status);
}

/// The card of a peer that has not been asked for. An empty one says that nothing can be sent to it, ever.
void Engine::State::keep(Peer& peer, std::string_view card) noexcept {
  if (card.empty()) return doom(peer, Status::kUnreachable);
  try {
    peer.card = card;
  } catch (const std::bad_alloc&) {
    doom(peer, Status::kNoMemory);
  }
}

void Engine::State::tried_to_connect(Peer& peer, Status status) noexcept {
  if (status == Status::kOk) {
    peer.card = std::string();
    --introductions_due;
    connected(peer);
  } else if (status == Status::kAgain) {
    peer.state = PeerState::kWanted;
    activate(peer);
  } else if (status == Status::kNoMemory) {
    ran_short(peer);
  } else {
    // Nothing can be sent to it, ever: what is posted to receive from it must not wait, either.
    doom(peer, status);
  }
}

/// From here on the books are in the provider's lane.
void Engine::State::adopt_lane(Peer& peer) noexcept {
  ch3_offload_lane_t* const lane = peer.provider->lane(*peer.endpoint);
  if (lane == nullptr) return;
  lane->books = peer.own_books;
  peer.books = &lane->books;
  lane->sent_short = &counters.sent_short;
  lane->packets_sent = &counters.packets_sent;
  peer.lane = lane;
  peer.has_new_lane = true;
  tell(peer);
}

/// The lane is open while a short message or packet may leave at once. The trace would miss it.
void Engine::State::gate(Peer& peer) noexcept {
  if (peer.lane == nullptr) return;
  const bool is_open = peer.state == PeerState::kConnected && peer.doom == Status::kOk && peer.queued == 0 &&
                       config.trace == nullptr;
  const std::size_t longest =
      std::min(config.eager_limit_bytes, peer.max_slot_bytes - sizeof(wire::EagerHeader));
  peer.lane->length_limit = is_open ? std::min<std::size_t>(longest + 1, CH3_OFFLOAD_LANE_MOST_BYTES) : 0;
}

void Engine::State::connected(Peer& peer) noexcept {
  adopt_lane(peer);
  gate(peer);
  for (ReceiveOperation* receive = peer.receives.front(); receive != nullptr;
       receive = decltype(peer.receives)::next(*receive)) {
    const bool waits =
        receive->state == ReceiveState::kLanding && receive->landing.state == LandingState::kAwaitingPeer;
    if (waits) grant(receive->landing);
  }
  for (TargetArrival* arrival = peer.arrivals.front(); arrival != nullptr;
       arrival = decltype(peer.arrivals)::next(*arrival)) {
    if (arrival->landing.state == LandingState::kAwaitingPeer) grant(arrival->landing);
  }
  if (peer.offer.length_bytes > 0) {
    peer.has_offer = true;
    tell(peer);
  }
  flush(peer);
}

/// Sends fail, and may be tried again. An answer that the peer awaits cannot.
void Engine::State::ran_short(Peer& peer) noexcept {
  --introductions_due;
  peer.state = PeerState::kKnown;
  if (!peer.control.empty() || !peer.receives.empty() || !peer.arrivals.empty() || peer.replies > 0 ||
      peer.offer.length_bytes > 0) {
    return doom(peer, Status::kNoMemory);
  }
  while (Outgoing* const outgoing = peer.outgoing.front()) finish_outgoing(*outgoing, Status::kNoMemory);
}

void Engine::State::activate(Peer& peer) noexcept {
  if (!peer.active_hook.linked()) active.push_back(peer);
}

void Engine::State::doom(Peer& peer, Status reason) noexcept {
  if (peer.doom == Status::kOk) peer.doom = reason;
  gate(peer);
  activate(peer);
}

ch3_offload_lane_t* Engine::lane(PeerId id) noexcept {
  const Peer* const peer = state_->known(id);
  return peer == nullptr ? nullptr : peer->lane;
}

void Engine::nudge(PeerId id) noexcept {
  const Peer* const peer = state_->known(id);
  if (peer != nullptr && peer->state == PeerState::kConnected) peer->provider->nudge(*peer->endpoint);
}

void Engine::close_peer(PeerId id) noexcept {
  Peer* const peer = state_->known(id);
  if (peer != nullptr) peer->closed = true;
}

void Engine::fail_peer(PeerId id) noexcept {
  if (id == state_->config.self) return;
  if (Peer* const peer = state_->met(id)) state_->end(*peer);
}

bool Engine::forget_peer(PeerId id) noexcept {
  State& state = *state_;
  if (!state.peers.is_current(id)) return true;
  if (Peer* const peer = state.find(id)) {
    if (peer->state != PeerState::kFailed) return false;
    state.purge_messages_of(*peer);
    if (peer->news_hook.linked() || peer->active_hook.linked() || peer->credit_hook.linked() ||
        peer->borrower_hook.linked() || peer->taken_messages > 0)
      return false;
    peer->books = &peer->own_books;
    peer->lane = nullptr;
    peer->endpoint = nullptr;
    peer->write_terms = {};
  }
  bool is_forgotten = true;
  const auto [first, count] = state.providers_of(id);
  for (Provider* const provider : std::span(state.providers).subspan(first, count))
    is_forgotten &= provider->forget(id);
  static_cast<void>(state.missed.take(id));
  return is_forgotten && state.peers.forget(id);
}

}  // namespace ch3_offload
