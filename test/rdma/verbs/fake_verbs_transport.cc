// The fake verbs device: how posted sends and writes get to their peers.
//
// A queue pair that is not done with its sends is listed as pending. Each try goes through its sends in
// order: delivered ones wait for their acknowledgement, the first that cannot be delivered stops the rest.
// Packet sequence numbers are checked as by a device, so that traffic of a queue pair's past does not reach
// its number's next owner.

#include <algorithm>
#include <cstring>

#include "rdma/verbs/fake_verbs_network.h"

namespace ch3_offload::fake_verbs {

namespace {

std::uint32_t mtu_bytes(const QueuePair& pair) noexcept { return 128u << pair.attributes.path_mtu; }

std::uint32_t packets_of(const QueuePair& pair, const SendRequest& request) noexcept {
  const std::uint64_t mtu = mtu_bytes(pair);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (request.length_bytes + mtu - 1) / mtu));
}

bool writes(const SendRequest& request) noexcept {
  return request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool has_immediate(const SendRequest& request) noexcept {
  return request.opcode == IBV_WR_SEND_WITH_IMM || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool passes(const Network& network, const Device& device, std::uint8_t port) noexcept {
  const Device::Port& now = device.ports[port - 1u];
  return !device.dead && !now.down && !now.silent &&
         network.config_of(device).ports[port - 1u].state == IBV_PORT_ACTIVE;
}

/// IBTA 10.9.3: the same partition, and one of them is a full member.
bool share_a_partition(const PortConfig& port, const QueuePair& pair, const PortConfig& peers_port,
                       const QueuePair& peer) noexcept {
  const std::uint16_t one = port.partition_keys[pair.attributes.pkey_index];
  const std::uint16_t other = peers_port.partition_keys[peer.attributes.pkey_index];
  return (one & 0x7FFF) == (other & 0x7FFF) && ((one | other) & 0x8000) != 0;
}

}  // namespace

bool leads_to(const ibv_ah_attr& path, const PortConfig& port) noexcept {
  if (path.is_global == 0) return port.lid != 0 && port.lid == path.dlid;
  return std::any_of(port.gids.begin(), port.gids.end(), [&](const Gid& gid) {
    return std::memcmp(gid.value.raw, path.grh.dgid.raw, sizeof gid.value.raw) == 0;
  });
}

// Null: nobody answers there.
QueuePair* Network::find_peer(const QueuePair& pair) {
  const Device& from = *pair.owner->device;
  const std::uint8_t from_port = pair.attributes.port_num;
  if (!passes(*this, from, from_port)) return nullptr;
  for (const auto& device : devices_) {
    const DeviceConfig& config = config_of(*device);
    for (std::size_t port = 0; port < config.ports.size(); ++port) {
      if (!leads_to(pair.attributes.ah_attr, config.ports[port])) continue;
      const auto found = device->queue_pairs.find(pair.attributes.dest_qp_num);
      if (found == device->queue_pairs.end()) continue;
      QueuePair& peer = *found->second;
      if (peer.now != IBV_QPS_RTR && peer.now != IBV_QPS_RTS) continue;
      if (peer.attributes.port_num != port + 1 || !passes(*this, *device, peer.attributes.port_num)) continue;
      if (!share_a_partition(config_of(from).ports[from_port - 1u], pair, config.ports[port], peer)) continue;
      // A device drops what comes from elsewhere than its peer; the peer's number is not in the packets.
      if (!leads_to(peer.attributes.ah_attr, config_of(from).ports[from_port - 1u])) continue;
      return &peer;
    }
  }
  return nullptr;
}

// Whether all of its source lies in live regions.
bool Network::readable(const QueuePair& pair, const SendRequest& request) const {
  if (request.in_line) return true;
  return std::all_of(request.parts.begin(), request.parts.end(), [&](const ibv_sge& part) {
    return part.length == 0 || find_local(part.lkey, pair.pd, part.addr, part.length, 0) != nullptr;
  });
}

// Fills message_.
bool Network::gather(const QueuePair& pair, const SendRequest& request) {
  if (!readable(pair, request)) return false;
  message_.clear();
  if (request.in_line) {
    message_ = request.bytes;
    return true;
  }
  for (const ibv_sge& part : request.parts) {
    if (part.length == 0) continue;
    const std::byte* const from = find_local(part.lkey, pair.pd, part.addr, part.length, 0);
    message_.insert(message_.end(), from, from + part.length);
  }
  return true;
}

bool Network::scatter(const Receives& receives, const ReceiveRequest& receive) {
  std::size_t done = 0;
  for (const ibv_sge& part : receive.parts) {
    const std::size_t length = std::min<std::size_t>(part.length, message_.size() - done);
    if (length == 0) continue;
    std::byte* const to =
        find_local(part.lkey, receives.domain, part.addr, part.length, IBV_ACCESS_LOCAL_WRITE);
    if (to == nullptr) return false;
    std::memcpy(to, message_.data() + done, length);
    done += length;
  }
  return true;
}

std::uint64_t Network::digest() const noexcept {  // FNV-1a
  std::uint64_t value = 0xCBF2'9CE4'8422'2325u;
  for (const std::byte byte : message_) value = (value ^ static_cast<std::uint64_t>(byte)) * 0x100'0000'01B3u;
  return value;
}

// The peer breaks over what it was sent.
Network::Outcome Network::refuse(QueuePair& peer, ibv_event_type event, ibv_wc_status answer,
                                 ibv_wc_status& status) {
  add_event(*peer.owner, event, &peer);
  enter_error(peer);
  status = answer;
  return Outcome::kFailed;
}

void Network::write_first_packet(QueuePair& pair, SendRequest& request) {
  QueuePair* const peer = find_peer(pair);
  if (!writes(request) || peer == nullptr || packets_of(pair, request) == 1 || !gather(pair, request)) return;
  std::byte* const to = find_remote(request.remote_key, peer->pd, request.remote_address,
                                    request.length_bytes, IBV_ACCESS_REMOTE_WRITE);
  if (to != nullptr) std::memcpy(to, message_.data(), mtu_bytes(pair));
}

// Whether drop_next() keeps this transfer from arriving now.
bool Network::strike(QueuePair& pair, SendRequest& request) {
  if (drops_ == 0) return false;
  --drops_;
  switch (drop_kind_) {
    case Loss::kOnce: break;
    case Loss::kData:
      write_first_packet(pair, request);
      pair.data_lost = true;
      break;
    case Loss::kAcknowledge: pair.acknowledgements_lost = true; return false;
  }
  return true;
}

Network::Outcome Network::deliver(QueuePair& pair, SendRequest& request, QueuePair& peer,
                                  ibv_wc_status& status) {
  const bool write = writes(request);
  std::byte* to = nullptr;
  if (peer.attributes.path_mtu < pair.attributes.path_mtu && request.length_bytes > mtu_bytes(peer)) {
    return refuse(peer, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, status);
  }
  if (write && request.length_bytes > 0) {
    if ((peer.attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0) {
      to = find_remote(request.remote_key, peer.pd, request.remote_address, request.length_bytes,
                       IBV_ACCESS_REMOTE_WRITE);
    }
    if (to == nullptr) return refuse(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, status);
  }
  Receives& receives = peer.receives();
  const bool consumes = !write || has_immediate(request);
  if (consumes && receives.ring.empty()) {
    if (!request.not_ready_since) ++counters_.receiver_not_ready;
    return Outcome::kNotReady;
  }
  gather(pair, request);
  Config::Transfer transfer = {.source = pair.qp_num,
                               .destination = peer.qp_num,
                               .opcode = request.opcode,
                               .immediate = request.immediate,
                               .remote_address = request.remote_address};
  if (config_.acknowledge_delay.count() > 0 && !request.in_line) request.digest = digest();
  if (config_.tamper) config_.tamper(transfer, message_);
  if (to != nullptr) std::memcpy(to, message_.data(), message_.size());
  if (!consumes) return Outcome::kDelivered;

  ReceiveRequest& receive = receives.ring.front();
  const std::uint64_t id = receive.id;
  std::uint64_t room = 0;
  for (const ibv_sge& part : receive.parts) room += part.length;
  ibv_wc_status arrived = IBV_WC_SUCCESS;
  if (!write && message_.size() > room) {
    arrived = IBV_WC_LOC_LEN_ERR;
  } else if (!write && !scatter(receives, receive)) {
    arrived = IBV_WC_LOC_PROT_ERR;
  }
  receives.ring.pop();
  if (peer.shared != nullptr) check_limit(*peer.shared);
  if (arrived != IBV_WC_SUCCESS) {
    complete_receive(peer, id, arrived);
    enter_error(peer);
    status = arrived == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
    return Outcome::kFailed;
  }
  complete_arrival(peer, id, transfer, message_.size(), request.solicited);
  return Outcome::kDelivered;
}

Network::Outcome Network::transfer(QueuePair& pair, SendRequest& request, ibv_wc_status& status) {
  if (!readable(pair, request)) {
    status = IBV_WC_LOC_PROT_ERR;
    return Outcome::kFailed;
  }
  if (request.length_bytes >
      config_of(*pair.owner->device).ports[pair.attributes.port_num - 1u].max_message_bytes) {
    status = IBV_WC_LOC_LEN_ERR;
    return Outcome::kFailed;
  }
  if (pair.data_lost) return Outcome::kLost;
  QueuePair* const peer = find_peer(pair);
  if (peer == nullptr || pair.next_send_psn != peer->expected_psn || strike(pair, request)) {
    if (!request.lost_since) ++counters_.lost;
    return Outcome::kLost;
  }
  const bool first = peer->now == IBV_QPS_RTR && !peer->established;
  const Outcome outcome = deliver(pair, request, *peer, status);
  if (outcome != Outcome::kDelivered) return outcome;
  if (first && config_.communication_established) add_event(*peer->owner, IBV_EVENT_COMM_EST, peer);
  if (first) peer->established = true;
  const std::uint32_t packets = packets_of(pair, request);
  pair.next_send_psn = (pair.next_send_psn + packets) & 0xFF'FFFF;
  peer->expected_psn = (peer->expected_psn + packets) & 0xFF'FFFF;
  // The answer goes to whom the peer takes for its sender.
  if (peer->attributes.dest_qp_num != pair.qp_num) pair.acknowledgements_lost = true;
  counters_.bytes += request.length_bytes;
  counters_.inline_sends += request.in_line;
  if (!writes(request)) {
    ++counters_.sends;
  } else if (has_immediate(request)) {
    ++counters_.writes_with_immediate;
  } else {
    ++counters_.writes;
  }
  return Outcome::kDelivered;
}

}  // namespace ch3_offload::fake_verbs
