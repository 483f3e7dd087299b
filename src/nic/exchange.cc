#include "nic/exchange.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

namespace ch3_offload {
namespace {

constexpr std::size_t kNetworkBudget = 64;
constexpr std::size_t kMostKeptBytes = std::size_t{16} << 20;
/// What waits for one process from other nodes before they are told to stop, and when they may go on.
constexpr std::size_t kStopBytes = std::size_t{1} << 20;
constexpr std::size_t kGoBytes = kStopBytes / 4;

constexpr std::string_view kPrefix = "nic:2:";

/// A number and the colon behind it.
bool read_number(std::string_view& text, std::uint32_t& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ':') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

}  // namespace

std::string ExchangeAddress::to_string() const {
  return std::string(kPrefix) + std::to_string(leader) + ":" + std::to_string(rank) + ":" + std::string(node);
}

std::optional<ExchangeAddress> ExchangeAddress::parse(std::string_view text) noexcept {
  ExchangeAddress address;
  if (!text.starts_with(kPrefix)) return {};
  text.remove_prefix(kPrefix.size());
  if (!read_number(text, address.leader) || !read_number(text, address.rank)) return {};
  address.node = text;
  return address;
}

Exchange::Exchange(PeerId leader, std::uint32_t peer_limit, Provider* network)
    : leader_(leader),
      peer_limit_(std::min(peer_limit, ExchangeFrame::kRankMask)),
      network_(network),
      blocks_(kMostKeptBytes) {}

std::unique_ptr<ExchangePort> Exchange::attach(PeerId rank, TrafficClass traffic_class) {
  const std::uint32_t index = index_of(rank);
  if (index >= peer_limit_) return nullptr;
  if (index >= seats_.size()) seats_.resize(index + 1);
  if (seats_[index].was_taken) return nullptr;
  const auto number = static_cast<std::uint32_t>(numbered_.size());
  std::unique_ptr<ExchangePort> port(new ExchangePort(*this, rank, number, quantum_bytes(traffic_class)));
  if (number <= kMostNumbers) numbered_.push_back(rank);
  seats_[index] = {port.get(), nullptr, true};
  return port;
}

ExchangePort* Exchange::port(PeerId rank) const noexcept {
  const std::uint32_t index = index_of(rank);
  return index < seats_.size() ? seats_[index].port : nullptr;
}

bool Exchange::was_here(PeerId rank) const noexcept {
  return index_of(rank) < seats_.size() && seats_[index_of(rank)].was_taken;
}

/// Throws std::bad_alloc.
ExchangeNode& Exchange::find_or_make(PeerId leader) {
  busy_.reserve(nodes_.size() + 1);  // First: attend() must have room for every node.
  const auto found = nodes_.try_emplace(leader).first;
  found->second.leader = leader;
  return found->second;
}

/// The next poll() looks at it.
void Exchange::attend(ExchangeNode& node) noexcept {
  if (!std::exchange(node.is_busy, true)) busy_.push_back(&node);
}

ExchangeNode* Exchange::find(PeerId leader) const noexcept {
  const auto found = nodes_.find(leader);
  return found == nodes_.end() ? nullptr : const_cast<ExchangeNode*>(&found->second);
}

ExchangeItem* Exchange::make_item(std::size_t length_bytes) noexcept {
  const std::size_t block_bytes = sizeof(ExchangeItem) + length_bytes;
  std::byte* const block = blocks_.take(block_bytes);
  if (block == nullptr) return nullptr;
  auto* const item = new (block) ExchangeItem;
  item->length_bytes = length_bytes;
  item->block_bytes = block_bytes;
  return item;
}

void Exchange::free_item(ExchangeItem& item) noexcept {
  blocks_.give_back(reinterpret_cast<std::byte*>(&item), item.block_bytes);
}

std::string Exchange::node_address() const {
  return network_ == nullptr ? std::string() : network_->local_address();
}

// What arrives.

Delivery Exchange::on_message(PeerId leader, std::span<const std::byte> message) noexcept {
  ExchangeFrame frame;
  ExchangeNode* node = nullptr;
  try {
    node = &find_or_make(leader);
    if (message.size() < sizeof frame) return Delivery::kTaken;
    std::memcpy(&frame, message.data(), sizeof frame);
    take(*node, frame, message.subspan(sizeof frame));
  } catch (const std::bad_alloc&) {
    // A message is lost: whoever waits for it must not wait for ever.
    if (node != nullptr) distrust(*node);
  }
  return Delivery::kTaken;
}

void Exchange::take(ExchangeNode& node, const ExchangeFrame& frame, std::span<const std::byte> bytes) {
  const PeerId source{frame.source};
  if (frame.source >= peer_limit_ || index_of(frame.destination()) >= peer_limit_) return;
  switch (frame.kind()) {
    case ExchangeFrame::Kind::kKnock: static_cast<void>(meet(node, source, frame.destination())); return;
    case ExchangeFrame::Kind::kMessage: return take_message(node, source, frame.destination(), bytes);
    case ExchangeFrame::Kind::kEnd: return take_end(node, source, frame.destination());
    case ExchangeFrame::Kind::kEnded: {
      ExchangePort* const here = port(frame.destination());
      if (here == nullptr) return hear_last_of(node, source, frame.destination());
      ExchangeEndpoint* const peer = here->find(source);
      if (peer == nullptr || peer->node != &node || !peer->ends) return;
      peer->writes_no_more = true;
      return here->go_on_ending(*peer);
    }
    case ExchangeFrame::Kind::kStop:
    case ExchangeFrame::Kind::kGo:
      if (frame.source >= node.stopped.size()) node.stopped.resize(frame.source + 1);
      node.stopped[frame.source] = frame.kind() == ExchangeFrame::Kind::kStop;
  }
}

void Exchange::take_end(ExchangeNode& node, PeerId source, PeerId destination) {
  ExchangePort* const here = port(destination);
  if (here == nullptr) {
    if (ExchangeWork* const last = find_work(destination, source))
      last->must_answer = true;
    else
      tell(node, ExchangeFrame::Kind::kEnded, destination, source);
    return hear_last_of(node, source, destination);
  }
  ExchangeEndpoint& peer = here->find_or_make(source);
  if (peer.is_known ? peer.node != &node : was_here(source))
    return tell(node, ExchangeFrame::Kind::kEnded, destination, source);
  peer.is_known = true;
  peer.node = &node;
  peer.must_answer = peer.writes_no_more = true;
  here->put_end(peer, Status::kPeerFailed);
}

void Exchange::take_message(ExchangeNode& node, PeerId source, PeerId destination,
                            std::span<const std::byte> bytes) {
  ExchangeEndpoint* const peer = bytes.empty() ? nullptr : meet(node, source, destination);
  if (peer == nullptr) return;
  ExchangePort& here = *port(destination);
  ExchangeItem* const item = make_item(bytes.size());
  if (item == nullptr) {
    here.part(*peer);
    return here.put_end(*peer, Status::kNoMemory);
  }
  std::memcpy(item->bytes(), bytes.data(), bytes.size());
  item->from = peer;
  item->is_remote = true;
  here.put(*item);
  flow(here, node);
}

/// What the process `destination` knows of one that has sent to it. Null: it wants, or can have, nothing of
/// that one.
ExchangeEndpoint* Exchange::meet(ExchangeNode& node, PeerId source, PeerId destination) {
  ExchangePort* const here = port(destination);
  ExchangeEndpoint* const peer = here == nullptr ? nullptr : &here->find_or_make(source);
  if (peer != nullptr && peer->ends && peer->node != nullptr) {
    peer->must_end = true;
    here->go_on_ending(*peer);
    return nullptr;
  }
  if (peer == nullptr || peer->ends) {
    if (ExchangeWork* const last = here == nullptr ? find_work(destination, source) : nullptr)
      last->must_end = true;
    else
      tell(node, ExchangeFrame::Kind::kEnd, destination, source);
    return nullptr;
  }
  // A number belongs to one node.
  if (peer->is_known ? peer->node != &node : was_here(source)) return nullptr;
  peer->is_known = true;
  peer->node = &node;
  return peer;
}

void Exchange::on_peer_down(PeerId leader, Status reason) noexcept {
  ExchangeNode* const node = find(leader);
  if (node == nullptr) return;
  node->is_down = true;
  node->waiting.clear();
  static_cast<void>(move_writes(*node));  // They fail.
  for (const Seat& seat : seats_) {
    if (seat.port == nullptr) continue;
    for (const auto& peer : seat.port->peers_)
      if (peer != nullptr && peer->node == node) seat.port->put_end(*peer, reason);
  }
  clear_remains({});
}

// What leaves.

/// Sends a frame without a message, in order with all others, as soon as there is room.
void Exchange::tell(ExchangeNode& node, ExchangeFrame::Kind kind, PeerId source,
                    PeerId destination) noexcept {
  if (node.is_down) return;
  const ExchangeFrame frame = ExchangeFrame::make(kind, source, destination);
  try {
    const auto bytes = std::as_bytes(std::span(&frame, 1));
    node.waiting.emplace_back(bytes.begin(), bytes.end());
  } catch (const std::bad_alloc&) {
    node.fails = true;
  }
  attend(node);
}

/// Connects to a node that has connected to this one. Throws std::bad_alloc.
bool Exchange::connect(ExchangeNode& node) {
  if (node.endpoint != nullptr) return true;
  if (node.address.empty()) node.address = network_->address_of(node.leader);
  if (node.address.empty()) return false;
  Result<Endpoint*> connected = network_->connect(node.leader, node.address);
  if (!connected.ok()) return false;
  node.endpoint = connected.value();
  return true;
}

void Exchange::flush(ExchangeNode& node) noexcept {
  if (node.is_down || node.waiting.empty() || node.reserved_by != nullptr) return;
  try {
    if (!connect(node)) node.fails = true;
  } catch (const std::bad_alloc&) {
    return;  // The next time.
  }
  while (!node.fails && !node.waiting.empty()) {
    const std::vector<std::byte>& frame = node.waiting.front();
    std::span<std::byte> slot;
    if (network_->reserve(*node.endpoint, frame.size(), slot) != Status::kOk) return;
    std::memcpy(slot.data(), frame.data(), frame.size());
    network_->commit(*node.endpoint, frame.size());
    node.waiting.pop_front();
  }
}

bool Exchange::is_slot_late() const noexcept {
  return std::ranges::any_of(
      busy_, [](const ExchangeNode* node) { return node->reserved_by != nullptr && node->is_slot_late; });
}

std::size_t Exchange::poll(bool is_anyone_late) noexcept {
  if (is_anyone_late && is_slot_late()) [[unlikely]]
    return 0;
  std::size_t happened = network_ == nullptr ? 0 : network_->poll(*this, kNetworkBudget);
  ++turn_;
  for (std::size_t i = 0; i < busy_.size();) {
    ExchangeNode& node = *busy_[i];
    node.reserved_by = nullptr;  // What was not committed is given up.
    node.is_slot_late = false;
    flush(node);
    if (std::exchange(node.fails, false) && !node.is_down && !network_->end(node.leader))
      on_peer_down(node.leader, Status::kPeerFailed);
    happened += move_writes(node);
    happened += begin_round(node);
    if (!node.waiting.empty() || node.writing != nullptr) {
      ++i;  // Still.
    } else {
      node.is_busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    }
  }
  return happened;
}

/// A new round if somebody whose share is spent wants to send, and nobody who has some left. Returns whether
/// it is one.
bool Exchange::begin_round(ExchangeNode& node) const noexcept {
  if (!std::exchange(node.is_denied, false)) return false;
  for (const ExchangeShare& share : node.shares)
    if (share.left_bytes > 0 && share.refused_at + 1 == turn_) return false;
  for (ExchangeShare& share : node.shares)
    share.left_bytes = std::min(share.left_bytes + share.quantum_bytes, share.quantum_bytes);
  return true;
}

/// Throws std::bad_alloc.
ExchangeShare& Exchange::share_of(ExchangeNode& node, PeerId rank, std::int64_t quantum_bytes) {
  for (ExchangeShare& share : node.shares)
    if (share.rank == rank) return share;
  return node.shares.emplace_back(ExchangeShare{rank, quantum_bytes, quantum_bytes, 0});
}

bool Exchange::at_rest() const noexcept {
  return std::ranges::all_of(busy_, [](const ExchangeNode* node) { return node->waiting.empty(); });
}

// Flow control between nodes.

/// After a message for the port came from the node.
void Exchange::flow(ExchangePort& port, ExchangeNode& node) noexcept {
  if (port.remote_bytes_ < kStopBytes) return;
  auto& told = port.told_to_stop_;
  if (std::ranges::find(told, node.leader) != told.end()) return;
  try {
    told.push_back(node.leader);
  } catch (const std::bad_alloc&) {
    return;  // With the next message.
  }
  tell(node, ExchangeFrame::Kind::kStop, port.rank_, PeerId{});
}

/// After the port's process has taken a message, or is gone.
void Exchange::go(ExchangePort& port) noexcept {
  if (port.told_to_stop_.empty() || port.remote_bytes_ > kGoBytes) return;
  for (const PeerId leader : port.told_to_stop_)
    if (ExchangeNode* const node = find(leader)) tell(*node, ExchangeFrame::Kind::kGo, port.rank_, PeerId{});
  port.told_to_stop_.clear();
}

}  // namespace ch3_offload
