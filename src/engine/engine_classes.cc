// Engine: which class a message is of. Who goes next is in peer.h (Peer::next_backlog()).
//
// RULE CHANNEL ORDER. A message gets its class when it is queued. As long as messages of a channel wait, they
// are in one queue, in order: a new class takes along those that wait. Only a message of which parts have
// left stays, and all others wait for it anyway.

#include <new>

#include "engine/engine_state.h"

namespace ch3_offload {

namespace {

/// More than MPI has communicators. A client that names more has no more of them classified.
constexpr std::size_t kMostChannels = std::size_t{1} << 16;

}  // namespace

TrafficClass Engine::State::class_of(std::uint64_t bits) const noexcept {
  if (classes.empty()) return config.traffic_class;
  const auto found = classes.find(bits & config.channel_bits);
  return found == classes.end() ? config.traffic_class : found->second;
}

void Engine::classify(std::uint64_t channel, TrafficClass traffic_class) noexcept {
  State& state = *state_;
  channel &= state.config.channel_bits;
  if (traffic_class == state.config.traffic_class) {
    if (state.classes.erase(channel) == 0) return;
  } else {
    if (state.classes.size() >= kMostChannels && !state.classes.contains(channel)) return;
    try {
      if (const auto [entry, is_new] = state.classes.try_emplace(channel, traffic_class); !is_new) {
        if (entry->second == traffic_class) return;
        entry->second = traffic_class;
      }
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  const auto moves = [&](const Peer& peer, const Outgoing& one) {
    return one.kind == Operation::Kind::kSend && &one != peer.streaming &&
           (static_cast<const SendOperation&>(one).key.bits & state.config.channel_bits) == channel;
  };
  for (const auto& peer : state.peers) {
    if (peer == nullptr || peer->queued == 0) continue;
    bool has_moved = false;
    for (std::size_t i = 0; i < kTrafficClasses; ++i) {
      if (i == index_of(traffic_class)) continue;
      auto& queue = peer->backlogs[i].queue;
      for (Outgoing* one = queue.front(); one != nullptr;) {
        Outgoing* const next = decltype(Backlog::queue)::next(*one);
        if (moves(*peer, *one)) {
          queue.remove(*one);
          one->traffic_class = traffic_class;
          peer->backlogs[index_of(traffic_class)].queue.push_back(*one);
          has_moved = true;
        }
        one = next;
      }
    }
    // In its old class it may have waited behind a part of a packet.
    if (has_moved && peer->state == PeerState::kConnected) state.activate(*peer);
  }
}

}  // namespace ch3_offload
