// What introductions mean to links: the provider as the client of WireUp. See verbs_provider.h.
//
// Nothing is known of a peer's death but what on_gone() says, and silence after a link to it failed.

#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {

VerbsLane& VerbsProvider::lane_of(const WireUp::Contact& contact) const noexcept {
  VerbsEndpoint& peer = *peers_[index_of(contact.peer)];
  return contact.lane == 0 ? peer.main : *peer.second;
}

WireUp::Contact* VerbsProvider::meet(const HelloBody& body, const VerbsAddress& address) {
  if (body.sender >= config_.peer_limit || !address.same_fabric(address_)) return nullptr;
  VerbsEndpoint& peer = find_or_make(PeerId{body.sender});
  if (peer.dying || peer.down || (peer.has_address && peer.address.instance != address.instance))
    return nullptr;
  set_address(peer, address);
  if (body.lane >= peer.pair_count) return nullptr;
  return &(body.lane == 0 ? peer.main : second_lane(peer)).contact;
}

std::uint32_t VerbsProvider::last_link(const WireUp::Contact& contact) const noexcept {
  return lane_of(contact).link.number;
}

void VerbsProvider::on_answer(WireUp::Contact& contact, std::uint32_t peers_last_link) noexcept {
  VerbsLane& lane = lane_of(contact);
  lane.peers_last_link = peers_last_link;
  lane.may_offer = true;
  want_link(lane);
}

void VerbsProvider::on_offer(WireUp::Contact& contact, const OfferBody& offer, bool is_answer) noexcept {
  VerbsLane& lane = lane_of(contact);
  Link& link = lane.link;
  if (is_answer) {
    if (link.state != LinkState::kProposed || offer.link != link.number) return breach(lane);
    lane.remote = offer;
    if (!bind(lane)) return;
    wire_up_->ready(contact);
    return link_is_up(lane);
  }
  if (offer.link <= link.number) return drop_introductions(lane);  // It has had a link since it said hello.
  lane.may_offer = false;
  lane.remote = offer;
  lane.has_remote = true;
  if (link.state == LinkState::kNone)
    want_link(lane);
  else if (link.state != LinkState::kDraining)
    lose_link(lane, "the peer begins anew", Cause::kRenewal);
}

void VerbsProvider::on_ready(WireUp::Contact& contact) noexcept {
  VerbsLane& lane = lane_of(contact);
  if (lane.link.state == LinkState::kBound) link_is_up(lane);
}

void VerbsProvider::on_broken(WireUp::Contact& contact) noexcept {
  VerbsLane& lane = lane_of(contact);
  lane.may_offer = lane.has_remote = false;
  const LinkState state = lane.link.state;
  if (state == LinkState::kUp) return drop_introductions(lane);  // It needs none any more.
  if (state != LinkState::kProposed && state != LinkState::kBound) return;
  lose_link(lane, "its introduction broke off", Cause::kRenewal);
  // The peer may have died, or may have the link: the next introduction tells.
  lane.wanted = state == LinkState::kBound;
}

void VerbsProvider::on_knock(WireUp::Contact& contact, std::uint32_t peers_last_link) noexcept {
  VerbsLane& lane = lane_of(contact);
  if (peers_last_link < lane.link.number) return;  // It has had its link since.
  // The peer has given up the link that we take for whole.
  if (lane.link.state == LinkState::kUp) lose_link(lane, "the peer begins anew", Cause::kRenewal);
  lane.wanted = true;
  if (lane.link.state == LinkState::kNone) want_link(lane);
}

void VerbsProvider::on_gone(WireUp::Contact& contact, const char* why) noexcept {
  if (why != nullptr) log("verbs: peer %u is not reached any more: %s", index_of(contact.peer), why);
  start_dying(*lane_of(contact).peer, Status::kPeerFailed);
}

void VerbsProvider::on_silence(WireUp::Contact& contact, WireUp::Silence silence) noexcept {
  VerbsEndpoint& peer = *lane_of(contact).peer;
  const int seconds = config_.peer_timeout_ms / 1000;
  const char* const host = peer.address.hosts.front().c_str();
  if (silence == WireUp::Silence::kUnreachable && peer.failed) {
    log("verbs: the connection with peer %u broke, and its host %s has not answered for %d s: it is taken "
        "for dead",
        index_of(peer.id), host, seconds);
    return start_dying(peer, Status::kPeerFailed);
  }
  if (silence_logged_) return;
  silence_logged_ = true;
  if (silence == WireUp::Silence::kUnreachable)
    log("verbs: no connection with peer %u at %s for %d s: its backlog is full, or the network or the host "
        "is down; going on trying (told once; MPIEXEC_TIMEOUT bounds a job's time)",
        index_of(peer.id), host, seconds);
  else
    log("verbs: peer %u at %s has not answered for %d s: it computes without calling MPI, or it hangs; "
        "waiting (told once; MPIEXEC_TIMEOUT bounds a job's time)",
        index_of(peer.id), host, seconds);
}

/// What a process that knows the secret would not say if it followed the protocol.
void VerbsProvider::breach(VerbsLane& lane) noexcept { start_dying(*lane.peer, Status::kProtocol); }

}  // namespace ch3_offload
