// One process's end of the fake network: the calls of provider.h, each checked.

#include "rdma/fake_provider.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>

#include "rdma/fake_network.h"

namespace ch3_offload {

namespace {
constexpr unsigned char kPoison = 0xDB;
constexpr std::size_t kAddressBytes = 5 + 16 + 1 + 8;  // "fake:", network, ':', process

std::string make_address(const FakeNetwork& network, PeerId peer) {
  char text[kAddressBytes + 1];
  std::snprintf(text, sizeof text, "fake:%016llx:%08x",
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(&network)), index_of(peer));
  return text;
}
}  // namespace

FakeProvider::FakeProvider(FakeNetwork& network, PeerId self)
    : network_(network),
      self_(self),
      capabilities_{"fake", network.config_.max_slot_bytes, network.config_.write,
                    network.config_.write ? network.config_.write_threshold_bytes : SIZE_MAX,
                    network.config_.registering_costs} {
  capabilities_.writes_by_copying = network.config_.writes_by_copying;
  capabilities_.on_demand = network.config_.on_demand;
  if (capabilities_.on_demand) capabilities_.registrations = 0;
}

FakeProvider::~FakeProvider() {
  network_.forget(*this);
  drop_inbox();
}

std::string FakeProvider::local_address() const { return make_address(network_, self_); }

bool FakeProvider::reaches(std::string_view address) const noexcept {
  if (address.size() != kAddressBytes) return false;
  // All but the process number is the same for everybody.
  const std::string mine = local_address();
  if (address.substr(0, kAddressBytes - 8) != std::string_view(mine).substr(0, kAddressBytes - 8))
    return false;
  for (const char c : address.substr(kAddressBytes - 8)) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

Result<Endpoint*> FakeProvider::connect(PeerId peer, std::string_view address,
                                        const std::optional<PeerNames>& names) {
  const PeerNames common{self_, peer};
  if (names.value_or(common) != common) {
    return Error{Status::kUnreachable, 0, "the processes of the fake have common numbers"};
  }
  if (address != make_address(network_, peer)) {
    return Error{Status::kUnreachable, 0,
                 "that is not the address of process " + std::to_string(index_of(peer))};
  }
  const std::uint64_t pair = std::uint64_t{index_of(self_)} << 32 | index_of(peer);
  if (SeededRandom(network_.config_.seed + mix64(~pair))
          .chance(network_.config_.pair_without_connection_probability)) {
    return Error{Status::kUnreachable, 0, "this pair cannot connect (by configuration of the fake)"};
  }
  FakeNetwork::Link& link = network_.link(self_, peer);
  if (link.failed) return Error{Status::kPeerFailed, 0, "the process is dead"};
  if (!network_.alive(peer) || link.severed) {
    if (!link.notice_planned && network_.random_.chance(0.5)) {
      return Error{Status::kPeerFailed, 0, "nobody listens there"};
    }
    link.severed = true;
    network_.plan_notice(link);  // Or it is found out later.
  }
  link.connected = true;
  return &link;
}

std::string FakeProvider::address_of(PeerId peer) const {
  const FakeNetwork::Link* const out = network_.find_link(self_, peer);
  const FakeNetwork::Link* const in = network_.find_link(peer, self_);
  const bool is_known = (out != nullptr && out->connected) || (in != nullptr && in->introduced);
  return is_known ? make_address(network_, peer) : std::string();
}

FakeNetwork::Link& FakeProvider::of(Endpoint& endpoint) const noexcept {
  Link& link = static_cast<Link&>(endpoint);
  if (link.from != self_) network_.violation(self_, "used an endpoint of another process's provider");
  return link;
}

WriteTerms FakeProvider::write_terms(Endpoint& endpoint) noexcept {
  const FakeConfig& config = network_.config_;
  return {nullptr, config.write_threshold_bytes, config.chooses_writes ? &of(endpoint).choice : nullptr};
}

std::size_t FakeProvider::max_slot_bytes(Endpoint& endpoint) const noexcept {
  return max_slot_bytes_to(of(endpoint).to);
}

std::size_t FakeProvider::max_slot_bytes_to(PeerId peer) const noexcept {
  const FakeConfig& config = network_.config_;
  return index_of(peer) % 2 == 0 ? config.max_slot_bytes
                                 : std::min(config.max_slot_bytes, config.odd_slot_bytes);
}

Status FakeProvider::register_memory(void* address, std::size_t length_bytes, Access access,
                                     MemoryRegion& region) noexcept {
  const FakeConfig& config = network_.config_;
  if (address == nullptr || length_bytes == 0) {
    network_.violation(self_, "registered nothing");
    return Status::kNoMemory;
  }
  if (network_.random_.chance(config.registration_refused_probability)) return Status::kNoMemory;
  if (length_bytes > config.pinned_budget_bytes ||
      pinned_bytes_ > config.pinned_budget_bytes - length_bytes) {
    return Status::kNoMemory;
  }
  const std::uint64_t key = network_.random_.next();
  regions_[key] = {static_cast<const std::byte*>(address), length_bytes, 0, access, {}};
  pinned_bytes_ += length_bytes;
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{key}, key};
  return Status::kOk;
}

void FakeProvider::deregister_memory(MemoryRegion& region) noexcept {
  const auto found = regions_.find(region.local_key);
  if (found == regions_.end()) {
    network_.violation(self_, "deregistered a region that is not registered");
    return;
  }
  if (found->second.writes_in_flight > 0 && network_.process(self_) == this) {
    network_.violation(self_, "deregistered the source of a write before on_write_done");
  }
  pinned_bytes_ -= found->second.length_bytes;
  regions_.erase(found);
  region = {};
}

void FakeProvider::memory_gone(const std::byte* address, std::size_t length_bytes) {
  if (capabilities_.on_demand) return;
  for (auto& [key, region] : regions_) {
    if (address < region.address + region.length_bytes && region.address < address + length_bytes)
      region.gone.emplace_back(address, length_bytes);
  }
}

/// The live region of that key if it holds all of the range, else null.
FakeProvider::Region* FakeProvider::find_region(std::uint64_t key, const std::byte* address,
                                                std::size_t length_bytes) noexcept {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(found->second.address);
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  if (first < begin || length_bytes > found->second.length_bytes ||
      first - begin > found->second.length_bytes - length_bytes) {
    return nullptr;
  }
  for (const std::span<const std::byte> gone : found->second.gone) {
    if (address < gone.data() + gone.size() && gone.data() < address + length_bytes)
      network_.violation(self_, "used a registration of memory that is gone");
  }
  return &found->second;
}

Status FakeProvider::reserve(Endpoint& endpoint, std::size_t length_bytes,
                             std::span<std::byte>& slot) noexcept {
  Link& link = of(endpoint);
  if (length_bytes == 0 || length_bytes > max_slot_bytes_to(link.to)) {
    network_.violation(self_, "reserve() of " + std::to_string(length_bytes) + " bytes");
    return Status::kAgain;
  }
  link.reserved.reset();
  if (link.failed) return Status::kPeerFailed;
  if (link.slots_in_use >= network_.config_.slots_per_pair ||
      network_.random_.chance(network_.config_.again_probability)) {
    post_parts(link);
    return Status::kAgain;
  }
  link.reserved.reset(new std::byte[length_bytes]);
  link.reserved_bytes = length_bytes;
  std::memset(link.reserved.get(), kPoison, length_bytes);
  slot = {link.reserved.get(), length_bytes};
  return Status::kOk;
}

void FakeProvider::commit(Endpoint& endpoint, std::size_t length_bytes) noexcept {
  Link& link = of(endpoint);
  std::unique_ptr<Item> item = take_reserved(link, length_bytes);
  if (item == nullptr) return;
  post_parts(link);
  network_.post(link, item.release());
}

void FakeProvider::commit_part(Endpoint& endpoint, std::size_t length_bytes) noexcept {
  Link& link = of(endpoint);
  std::unique_ptr<Item> item = take_reserved(link, length_bytes);
  if (item == nullptr) return;
  if (link.parts.empty()) with_parts_.push_back(&link);
  link.parts.push_back(std::move(item));
}

void FakeProvider::post_parts(Link& link) noexcept {
  for (std::unique_ptr<Item>& part : link.parts) network_.post(link, part.release());
  link.parts.clear();
}

void FakeProvider::post_all_parts() noexcept {
  for (Link* const link : with_parts_) post_parts(*link);
  with_parts_.clear();
}

bool FakeProvider::arm() noexcept {
  post_all_parts();
  return inbox_head_ == nullptr;
}

std::unique_ptr<FakeNetwork::Item> FakeProvider::take_reserved(Link& link,
                                                               std::size_t length_bytes) noexcept {
  if (link.reserved == nullptr) {
    network_.violation(self_, "commit() without reserve()");
    return nullptr;
  }
  if (length_bytes == 0 || length_bytes > link.reserved_bytes) {
    network_.violation(self_, "commit() of " + std::to_string(length_bytes) + " bytes, reserved were " +
                                  std::to_string(link.reserved_bytes));
    return nullptr;
  }
  // Copied, so that a sender that writes into the slot later spoils nothing but itself.
  auto item = std::make_unique<Item>();
  item->kind = FakeItemKind::kMessage;
  item->peer = self_;
  item->link = &link;
  item->length_bytes = length_bytes;
  if (length_bytes == link.reserved_bytes) {
    item->bytes = std::move(link.reserved);
  } else {
    item->bytes.reset(new std::byte[length_bytes]);
    std::memcpy(item->bytes.get(), link.reserved.get(), length_bytes);
    link.reserved.reset();
  }
  if (network_.tamper) network_.tamper(self_, link.to, {item->bytes.get(), length_bytes});
  ++link.slots_in_use;
  return item;
}

Status FakeProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                           const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                           WorkId work) noexcept {
  Link& link = of(endpoint);
  link.reserved.reset();
  if (link.failed) return Status::kPeerFailed;
  if (!capabilities_.write || link.without_write) return Status::kUnsupported;
  if (network_.writes_wait) return Status::kAgain;
  Region* const from = find_region(region.local_key, source, length_bytes);
  if (from == nullptr) {
    network_.violation(self_, "write() from memory outside its registration");
    return Status::kUnsupported;
  }
  if (network_.random_.chance(network_.config_.again_probability)) return Status::kAgain;
  ++from->writes_in_flight;
  auto item = std::make_unique<Item>();
  item->kind = FakeItemKind::kWrite;
  item->link = &link;
  item->source = source;
  item->length_bytes = length_bytes;
  item->source_key = region.local_key;
  item->destination = destination;
  item->immediate = immediate;
  item->work = work;
  if (network_.on_write_posted) network_.on_write_posted(self_, link.to);
  network_.post(link, item.release());
  return Status::kOk;
}

bool FakeProvider::end(PeerId peer) noexcept {
  const FakeNetwork::Link* const out = network_.find_link(self_, peer);
  const FakeNetwork::Link* const in = network_.find_link(peer, self_);
  for (const Item* item = inbox_head_; item != nullptr; item = item->next)
    if (item->kind == FakeItemKind::kPeerDown && item->peer == peer) return true;
  const bool is_connected = (out != nullptr && out->connected) || (in != nullptr && in->connected);
  if (out != nullptr && out->failed) return false;
  if (!is_connected) {
    network_.refuse_connections(self_, peer);
    return false;
  }
  network_.break_connection(self_, peer);
  return true;
}

std::size_t FakeProvider::poll(Sink& sink, std::size_t budget) noexcept {
  if (polling_) {
    network_.violation(self_, "poll() inside poll()");
    return 0;
  }
  polling_ = true;
  post_all_parts();
  std::size_t delivered = 0;
  if (held_ != nullptr) let_go(*std::exchange(held_, nullptr));
  while (delivered < budget && inbox_head_ != nullptr && held_ == nullptr) {
    std::unique_ptr<Item> item = dequeue();
    if (deliver(sink, *item) == Delivery::kHeld) held_ = std::move(item);
    ++delivered;
  }
  polling_ = false;
  return delivered;
}

/// The Sink has read a message: from now on an access to it shows.
void FakeProvider::let_go(Item& item) noexcept {
  std::memset(item.bytes.get(), kPoison, item.length_bytes);
  if (!item.injected) --item.link->slots_in_use;
}

Delivery FakeProvider::deliver(Sink& sink, Item& item) noexcept {
  if (item.kind == FakeItemKind::kMessage || item.kind == FakeItemKind::kWriteArrived)
    network_.link(item.peer, self_).introduced = true;
  switch (item.kind) {
    case FakeItemKind::kMessage:
      ++network_.messages_delivered_;
      network_.bytes_delivered_ += item.length_bytes;
      if (sink.on_message(item.peer, {item.bytes.get(), item.length_bytes}) == Delivery::kHeld)
        return Delivery::kHeld;
      let_go(item);
      break;
    case FakeItemKind::kWriteArrived:
      sink.on_write_arrived(item.peer, item.immediate, item.length_bytes);
      break;
    case FakeItemKind::kWriteShared:
      *item.answer = sink.on_write_shared(item.peer, item.immediate, item.length_bytes);
      break;
    case FakeItemKind::kWriteDone: {
      const auto region = regions_.find(item.source_key);
      if (region != regions_.end()) --region->second.writes_in_flight;
      sink.on_write_done(item.peer, item.work, item.status);
      break;
    }
    case FakeItemKind::kPeerDown: sink.on_peer_down(item.peer, item.status); break;
    case FakeItemKind::kWrite: assert(false && "writes do not enter an inbox"); break;
  }
  return Delivery::kTaken;
}

void FakeProvider::enqueue(std::unique_ptr<Item> item) noexcept {
  Item* const added = item.release();
  added->next = nullptr;
  (inbox_tail_ == nullptr ? inbox_head_ : inbox_tail_->next) = added;
  inbox_tail_ = added;
}

std::unique_ptr<FakeNetwork::Item> FakeProvider::dequeue() noexcept {
  std::unique_ptr<Item> item(inbox_head_);
  inbox_head_ = item->next;
  if (inbox_head_ == nullptr) inbox_tail_ = nullptr;
  return item;
}

void FakeProvider::drop_inbox() noexcept {
  while (inbox_head_ != nullptr) dequeue().reset();
}

}  // namespace ch3_offload
