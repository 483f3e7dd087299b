// A process's end of the exchange.

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "nic/exchange.h"

namespace ch3_offload {
namespace {

/// What one process of the node may have sent to another that has not taken it. One more is always allowed.
/// It is little, because it is in order: classes count among what waits at the sender.
constexpr std::uint32_t kMostQueued = 32;
constexpr std::size_t kMostQueuedBytes = std::size_t{128} << 10;

/// Before each message to another node.
constexpr std::size_t kFrameBytes = sizeof(ExchangeFrame);

}  // namespace

std::size_t Exchange::least_slot_bytes() const noexcept {
  if (network_ == nullptr) return kLocalSlotBytes;
  return std::min(kLocalSlotBytes, network_->capabilities().max_slot_bytes - kFrameBytes);
}

ExchangePort::ExchangePort(Exchange& exchange, PeerId rank, std::uint32_t number, std::int64_t quantum_bytes)
    : exchange_(exchange),
      rank_(rank),
      number_(number),
      quantum_bytes_(quantum_bytes),
      remains_(std::make_unique<ExchangeRemains>()) {
  capabilities_.name = "nicd";
  capabilities_.max_slot_bytes = Exchange::kLocalSlotBytes;
  capabilities_.write = true;
  if (exchange.network_ == nullptr) return;
  const Capabilities& network = exchange.network_->capabilities();
  capabilities_.max_slot_bytes = std::max(capabilities_.max_slot_bytes, network.max_slot_bytes - kFrameBytes);
  capabilities_.write_threshold_bytes = network.write_threshold_bytes;
  capabilities_.registering_costs = network.registering_costs;
  capabilities_.most_regions = network.most_regions;
  capabilities_.registrations = network.registrations;
  capabilities_.on_demand = network.on_demand;
}

ExchangePort::~ExchangePort() {
  say_ended();
  for (const auto& peer : peers_)
    if (peer != nullptr) drop_reserved(*peer);
  if (held_ != nullptr) release(*std::exchange(held_, nullptr));
  while (first_ != nullptr) {
    ExchangeItem& item = *std::exchange(first_, first_->next);
    if (item.kind != ExchangeItem::Kind::kEnd) release(item);
  }
  exchange_.disown_works(*this);
  exchange_.go(*this);
  exchange_.take_remains(*this);
}

void ExchangePort::say_ended() noexcept {
  Exchange::Seat& seat = exchange_.seats_[index_of(rank_)];
  if (seat.port == nullptr) return;
  seat.ended = std::exchange(seat.port, nullptr);
  is_silent_ = true;
  for (const auto& peer : peers_)
    if (peer != nullptr && !peer->ends) {
      part(*peer);
      if (peer->node != nullptr) put_end(*peer, Status::kPeerFailed);
    }
}

void ExchangePort::be_late() noexcept {
  was_late_ = true;
  for (const auto& peer : peers_)
    if (peer != nullptr && peer->node != nullptr && peer->node->reserved_by == peer.get())
      peer->node->is_slot_late = true;
}

std::string ExchangePort::local_address() const {
  return ExchangeAddress{index_of(exchange_.leader_), index_of(rank_), exchange_.node_address()}.to_string();
}

bool ExchangePort::reaches(std::string_view text) const noexcept {
  const auto address = ExchangeAddress::parse(text);
  if (!address || address->rank >= exchange_.peer_limit_) return false;
  if (PeerId{address->leader} != exchange_.leader_)
    return exchange_.network_ != nullptr && exchange_.network_->reaches(address->node);
  try {
    return address->node == exchange_.node_address();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

ExchangeEndpoint* ExchangePort::find(PeerId peer) const noexcept {
  return index_of(peer) < peers_.size() ? peers_[index_of(peer)].get() : nullptr;
}

/// Throws std::bad_alloc.
ExchangeEndpoint& ExchangePort::find_or_make(PeerId peer) {
  const std::size_t index = index_of(peer);
  if (index >= peers_.size()) peers_.resize(index + 1);
  if (peers_[index] == nullptr) peers_[index] = std::make_unique<ExchangeEndpoint>(peer);
  return *peers_[index];
}

Result<Endpoint*> ExchangePort::connect(PeerId id, std::string_view text,
                                        const std::optional<PeerNames>& names) {
  const auto address = ExchangeAddress::parse(text);
  const PeerNames common{rank_, id};
  if (!address || names.value_or(common) != common || address->rank != index_of(id) || !reaches(text))
    return Error{Status::kUnreachable, 0, "'" + std::string(text) + "' is not its address"};
  ExchangeEndpoint& peer = find_or_make(id);
  const Error failed{Status::kPeerFailed, 0, "the process has ended"};
  if (peer.is_down) return failed;
  if (peer.is_connected) return static_cast<Endpoint*>(&peer);
  if (PeerId{address->leader} == exchange_.leader_) {
    ExchangePort* const there = exchange_.port(id);
    if (there == nullptr) return failed;
    ExchangeEndpoint& self = there->find_or_make(rank_);
    self.is_known = true;
    if (self.ends) put_end(peer, Status::kPeerFailed);  // It wants nothing of this process.
  } else {
    ExchangeNode& node = exchange_.find_or_make(PeerId{address->leader});
    if (node.is_down) return failed;
    if (node.address.empty()) node.address = address->node;
    if (node.endpoint == nullptr) {
      Result<Endpoint*> connected = exchange_.network_->connect(node.leader, node.address);
      if (!connected.ok()) return connected.error();
      node.endpoint = connected.value();
    }
    peer.node = &node;
    peer.share = &Exchange::share_of(node, rank_, quantum_bytes_);
    exchange_.tell(node, ExchangeFrame::Kind::kKnock, rank_, id);
  }
  peer.is_known = peer.is_connected = true;
  return static_cast<Endpoint*>(&peer);
}

std::string ExchangePort::address_of(PeerId id) const {
  const ExchangeEndpoint* const peer = find(id);
  const bool is_known = peer != nullptr && peer->is_known;
  // Nobody needs to be asked for a process of this node: its client may compute.
  if (is_known ? peer->node == nullptr : exchange_.port(id) != nullptr)
    return ExchangeAddress{index_of(exchange_.leader_), index_of(id), exchange_.node_address()}.to_string();
  if (!is_known) return {};
  if (peer->node->address.empty()) peer->node->address = exchange_.network_->address_of(peer->node->leader);
  if (peer->node->address.empty()) return {};
  return ExchangeAddress{index_of(peer->node->leader), index_of(id), peer->node->address}.to_string();
}

std::size_t ExchangePort::max_slot_bytes(Endpoint& endpoint) const noexcept {
  const ExchangeEndpoint& peer = of(endpoint);
  if (peer.node == nullptr || peer.node->endpoint == nullptr) return Exchange::kLocalSlotBytes;
  return exchange_.network_->max_slot_bytes(*peer.node->endpoint) - kFrameBytes;
}

ProviderCounters ExchangePort::counters() const noexcept {
  return exchange_.network_ == nullptr ? ProviderCounters{} : exchange_.network_->counters();
}

// Sending.

/// Takes back a slot that was not committed.
void ExchangePort::drop_reserved(ExchangeEndpoint& peer) noexcept {
  if (peer.reserved != nullptr) exchange_.free_item(*std::exchange(peer.reserved, nullptr));
  peer.reserved_slot = {};
  if (peer.node != nullptr && peer.node->reserved_by == &peer) peer.node->reserved_by = nullptr;
}

Status ExchangePort::reserve(Endpoint& endpoint, std::size_t length_bytes,
                             std::span<std::byte>& slot) noexcept {
  ExchangeEndpoint& peer = of(endpoint);
  drop_reserved(peer);
  if (peer.ends) return Status::kPeerFailed;
  return peer.node == nullptr ? reserve_here(peer, length_bytes, slot)
                              : reserve_over_network(peer, length_bytes, slot);
}

/// In a block that will be the receiver's.
Status ExchangePort::reserve_here(ExchangeEndpoint& peer, std::size_t length_bytes,
                                  std::span<std::byte>& slot) noexcept {
  const ExchangePort* const there = exchange_.port(peer.id);
  if (there == nullptr) return Status::kPeerFailed;
  const ExchangeEndpoint* const self = there->find(rank_);
  if (self->queued >= kMostQueued || self->queued_bytes >= kMostQueuedBytes) return Status::kAgain;
  peer.reserved = exchange_.make_item(length_bytes);
  if (peer.reserved == nullptr) return Status::kAgain;
  slot = {peer.reserved->bytes(), length_bytes};
  return Status::kOk;
}

Status ExchangePort::reserve_over_network(ExchangeEndpoint& peer, std::size_t length_bytes,
                                          std::span<std::byte>& slot) noexcept {
  ExchangeNode& node = *peer.node;
  if (node.is_down) return Status::kPeerFailed;
  if (index_of(peer.id) < node.stopped.size() && node.stopped[index_of(peer.id)]) return Status::kAgain;
  exchange_.attend(node);
  if (peer.share->left_bytes <= 0) {
    node.is_denied = true;
    return Status::kAgain;
  }
  peer.share->refused_at = exchange_.turn_;  // Unless there is room.
  exchange_.flush(node);
  const bool is_free = node.reserved_by == nullptr;
  if (is_free && !node.waiting.empty()) return Status::kAgain;
  if (!is_free || was_late_) {
    // Another slot to that node is being filled, and this one follows it; or to fill it may take long.
    peer.reserved = exchange_.make_item(length_bytes);
    if (peer.reserved == nullptr) return Status::kAgain;
    slot = {peer.reserved->bytes(), length_bytes};
    peer.share->refused_at = 0;
    return Status::kOk;
  }
  std::span<std::byte> whole;
  const Status status = exchange_.network_->reserve(*node.endpoint, length_bytes + kFrameBytes, whole);
  if (status != Status::kOk) return status;
  peer.share->refused_at = 0;
  peer.reserved_slot = whole;
  node.reserved_by = &peer;
  slot = whole.subspan(kFrameBytes);
  return Status::kOk;
}

void ExchangePort::send_reserved(ExchangeEndpoint& peer, std::size_t length_bytes, bool is_part) noexcept {
  if (is_silent_ || peer.ends) return drop_reserved(peer);
  if (peer.node == nullptr) {
    ExchangePort* const there = exchange_.port(peer.id);
    if (there == nullptr || peer.reserved == nullptr) return drop_reserved(peer);
    ExchangeItem& item = *std::exchange(peer.reserved, nullptr);
    item.from = there->find(rank_);
    if (item.from->ends) return exchange_.free_item(item);
    item.length_bytes = length_bytes;
    return there->put(item);
  }
  const ExchangeFrame frame = ExchangeFrame::make(ExchangeFrame::Kind::kMessage, rank_, peer.id);
  peer.share->left_bytes -= static_cast<std::int64_t>(length_bytes + kFrameBytes);
  ExchangeNode& node = *peer.node;
  if (!peer.reserved_slot.empty()) {
    std::memcpy(peer.reserved_slot.data(), &frame, sizeof frame);
    const auto send = is_part ? &Provider::commit_part : &Provider::commit;
    (exchange_.network_->*send)(*node.endpoint, length_bytes + kFrameBytes);
    peer.reserved_slot = {};
    if (node.reserved_by == &peer) node.reserved_by = nullptr;
  } else if (peer.reserved != nullptr) {
    try {
      std::vector<std::byte> bytes(length_bytes + kFrameBytes);
      std::memcpy(bytes.data(), &frame, sizeof frame);
      std::memcpy(bytes.data() + sizeof frame, peer.reserved->bytes(), length_bytes);
      node.waiting.push_back(std::move(bytes));
    } catch (const std::bad_alloc&) {
      node.fails = true;
    }
    exchange_.attend(node);
    drop_reserved(peer);
  }
  exchange_.flush(node);
}

// The inbox.

void ExchangePort::put(ExchangeItem& item) noexcept {
  item.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &item;
  last_ = &item;
  if (item.kind != ExchangeItem::Kind::kMessage) return;
  ++item.from->queued;
  item.from->queued_bytes += item.length_bytes;
  if (item.is_remote) remote_bytes_ += item.length_bytes;
}

/// The connection with the peer ends: told after what came before, and after both sides' last writes.
void ExchangePort::put_end(ExchangeEndpoint& peer, Status reason) noexcept {
  if (!std::exchange(peer.ends, true)) peer.reason = reason;
  go_on_ending(peer);
}

/// The next step, once nothing of this process is under way to the peer.
void ExchangePort::go_on_ending(ExchangeEndpoint& peer) noexcept {
  if (peer.node != nullptr && !peer.node->is_down) {
    if (peer.writes > 0) return;
    ExchangeNode& node = *peer.node;
    if (std::exchange(peer.must_end, false)) exchange_.tell(node, ExchangeFrame::Kind::kEnd, rank_, peer.id);
    if (std::exchange(peer.must_answer, false))
      exchange_.tell(node, ExchangeFrame::Kind::kEnded, rank_, peer.id);
    if (!peer.writes_no_more) return;
  }
  if (!std::exchange(peer.is_told, true)) put(peer.end);
}

/// The peer is told that the connection ends.
void ExchangePort::part(ExchangeEndpoint& peer) noexcept {
  if (!peer.is_known) return;
  if (peer.node != nullptr) {
    peer.must_end = true;  // put_end() follows.
    return;
  }
  ExchangePort* const there = exchange_.port(peer.id);
  ExchangeEndpoint* const self = there == nullptr ? nullptr : there->find(rank_);
  if (self != nullptr && self->is_known) there->put_end(*self, Status::kPeerFailed);
}

bool ExchangePort::end(PeerId id) noexcept {
  ExchangeEndpoint* peer = find(id);
  if (peer == nullptr || !peer->is_known) {
    try {
      peer = &find_or_make(id);
    } catch (const std::bad_alloc&) {
      return false;
    }
    // It is told when it connects.
    peer->ends = peer->is_down = peer->is_told = true;
    return false;
  }
  if (peer->is_down) return false;
  if (!peer->ends) {
    part(*peer);
    put_end(*peer, Status::kPeerFailed);
  }
  return true;
}

/// The engine has read it.
void ExchangePort::release(ExchangeItem& item) noexcept {
  if (item.kind == ExchangeItem::Kind::kWrote) {
    --network_writes_;
    return exchange_.free_work(static_cast<ExchangeWork&>(item));
  }
  if (item.kind == ExchangeItem::Kind::kMessage) {
    --item.from->queued;
    item.from->queued_bytes -= item.length_bytes;
    if (item.is_remote) remote_bytes_ -= item.length_bytes;
  }
  exchange_.free_item(item);
}

std::size_t ExchangePort::poll(Sink& sink, std::size_t budget) noexcept {
  if (held_ != nullptr) release(*std::exchange(held_, nullptr));
  std::size_t delivered = move_writes(sink);
  while (delivered < budget && first_ != nullptr && held_ == nullptr) {
    ExchangeItem& item = *std::exchange(first_, first_->next);
    ++delivered;
    switch (item.kind) {
      case ExchangeItem::Kind::kEnd:
        item.from->is_down = true;
        drop_reserved(*item.from);
        end_writes(*item.from, sink);
        sink.on_peer_down(item.from->id, item.from->reason);
        continue;
      case ExchangeItem::Kind::kWritten: deliver_write(item, sink); break;
      case ExchangeItem::Kind::kWrote: {
        const auto& over = static_cast<const ExchangeWork&>(item);
        sink.on_write_done(over.peer, over.work, over.status);
        break;
      }
      case ExchangeItem::Kind::kMessage:
        if (sink.on_message(item.from->id, {item.bytes(), item.length_bytes}) == Delivery::kHeld) {
          held_ = &item;
          continue;
        }
        break;
    }
    release(item);
  }
  exchange_.go(*this);
  return delivered;
}

}  // namespace ch3_offload
