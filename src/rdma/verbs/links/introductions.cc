// What introductions mean to links. See links.h.
//
// Nothing is known of a peer's death but what on_gone() says, and silence after a link to it failed.

#include <algorithm>

#include "rdma/introduction/first_of_two.h"
#include "rdma/verbs/links/links.h"

namespace ch3_offload {

VerbsLane& Links::lane_of(Introducer::Contact& contact) noexcept { return static_cast<VerbsLane&>(contact); }
const VerbsLane& Links::lane_of(const Introducer::Contact& contact) noexcept {
  return static_cast<const VerbsLane&>(contact);
}

// What is said

std::size_t Links::addresses(const Introducer::Contact& contact) const noexcept {
  return lane_of(contact).peer->address.hosts.size();
}

SocketAddress Links::address(const Introducer::Contact& contact, std::size_t index) const noexcept {
  const VerbsAddress& peers = lane_of(contact).peer->address;
  return *socket_address(peers.hosts[index], peers.port);
}

bool Links::our_dial_counts(const Introducer::Contact& contact) const noexcept {
  const VerbsEndpoint& peer = *lane_of(contact).peer;
  return comes_first(config_.self, config_.address.instance, peer.id, peer.names, peer.address.instance);
}

void Links::fill_in(HelloBody& body, const VerbsLane& lane) const noexcept {
  const VerbsEndpoint& peer = *lane.peer;
  body.sender = index_of(peer.names.known_as);
  body.receiver = index_of(peer.names.own);
  body.sender_instance = config_.address.instance;
  body.receiver_instance = peer.address.instance;
  body.last_link = lane.link.number;
  body.lane = lane.index;
  body.own = index_of(config_.self);
  body.known_as = index_of(peer.id);
}

void Links::say_hello(const Introducer::Contact& contact, Frame& hello) const noexcept {
  auto& body = hello.as<HelloBody>();
  fill_in(body, lane_of(contact));
  std::ranges::copy(std::string_view(address_text_).substr(0, body.address.size() - 1), body.address.begin());
}

// What is heard

std::optional<Refusal> Links::meet(const Frame& hello, Introducer::Guest& guest, Frame& answer) {
  const auto& body = hello.as<HelloBody>();
  if (body.receiver != index_of(config_.self) || body.receiver_instance != config_.address.instance ||
      body.sender == index_of(config_.self))
    return Refusal::kStranger;
  const std::optional<VerbsAddress> address = VerbsAddress::parse(body.address.data());
  if (!address || address->instance != body.sender_instance) return Refusal::kStranger;
  VerbsLane* const lane = client_.meet(PeerId{body.sender}, body.lane, *address, names_in(body));
  if (lane == nullptr) return Refusal::kStranger;
  guest = {lane, body.last_link};
  fill_in(answer.as<HelloBody>(), *lane);
  return {};
}

/// The Hello tells it.
std::optional<Refusal> Links::identify(const Frame&, Introducer::Guest&) noexcept {
  return Refusal::kStranger;
}

bool Links::on_answer(Introducer::Contact& contact, const Frame& hello) noexcept {
  const auto& body = hello.as<HelloBody>();
  VerbsLane& lane = lane_of(contact);
  const VerbsEndpoint& peer = *lane.peer;
  if (body.sender != index_of(peer.id) || body.sender_instance != peer.address.instance ||
      body.receiver != index_of(config_.self) || body.receiver_instance != config_.address.instance ||
      body.lane != lane.index || names_in(body) != peer.names)
    return false;
  lane.peers_last_link = body.last_link;
  lane.may_offer = true;
  want_link(lane);
  return true;
}

void Links::on_offer(Introducer::Contact& contact, const Frame& frame, bool is_answer) noexcept {
  const auto& offer = frame.as<OfferBody>();
  VerbsLane& lane = lane_of(contact);
  Link& link = lane.link;
  if (is_answer) {
    if (link.state != LinkState::kProposed || offer.link != link.number)
      return client_.on_peer_over(*lane.peer, Status::kProtocol);
    lane.remote = offer;
    if (!bind(lane)) return;
    introducer_->ready(contact);
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

void Links::on_ready(Introducer::Contact& contact) noexcept {
  VerbsLane& lane = lane_of(contact);
  if (lane.link.state == LinkState::kBound) link_is_up(lane);
}

void Links::on_broken(Introducer::Contact& contact) noexcept {
  VerbsLane& lane = lane_of(contact);
  lane.may_offer = lane.has_remote = false;
  const LinkState state = lane.link.state;
  if (state == LinkState::kUp) return drop_introductions(lane);  // It needs none any more.
  if (state != LinkState::kProposed && state != LinkState::kBound) return;
  lose_link(lane, "its introduction broke off", Cause::kRenewal);
  // The peer may have died, or may have the link: the next introduction tells.
  lane.wanted = state == LinkState::kBound;
}

void Links::on_knock(Introducer::Contact& contact, std::uint32_t peers_last_link) noexcept {
  VerbsLane& lane = lane_of(contact);
  if (peers_last_link < lane.link.number) return;  // It has had its link since.
  // The peer has given up the link that we take for whole.
  if (lane.link.state == LinkState::kUp) lose_link(lane, "the peer begins anew", Cause::kRenewal);
  lane.wanted = true;
  if (lane.link.state == LinkState::kNone) want_link(lane);
}

void Links::on_gone(Introducer::Contact& contact, Refusal reason) noexcept {
  VerbsEndpoint& peer = *lane_of(contact).peer;
  if (reason == Refusal::kVersion)
    log_("verbs: peer %u is not reached any more: %s", index_of(peer.id), kAnotherVersion);
  client_.on_peer_over(peer, Status::kPeerFailed);
}

void Links::on_silence(Introducer::Contact& contact, Introducer::Silence silence) noexcept {
  VerbsEndpoint& peer = *lane_of(contact).peer;
  const auto seconds = static_cast<int>(config_.peer_timeout_ms / 1000);
  const char* const host = peer.address.hosts.front().c_str();
  if (silence == Introducer::Silence::kUnreachable && peer.failed) {
    log_(
        "verbs: the connection with peer %u broke, and its host %s has not answered for %d s: it is taken "
        "for dead",
        index_of(peer.id), host, seconds);
    return client_.on_peer_over(peer, Status::kPeerFailed);
  }
  if (silence_logged_) return;
  silence_logged_ = true;
  if (silence == Introducer::Silence::kUnreachable)
    log_(
        "verbs: no connection with peer %u at %s for %d s: its backlog is full, or the network or the host "
        "is down; going on trying (told once; MPIEXEC_TIMEOUT bounds a job's time)",
        index_of(peer.id), host, seconds);
  else
    log_(
        "verbs: peer %u at %s has not answered for %d s: it computes without calling MPI, or it hangs; "
        "waiting (told once; MPIEXEC_TIMEOUT bounds a job's time)",
        index_of(peer.id), host, seconds);
}

}  // namespace ch3_offload
