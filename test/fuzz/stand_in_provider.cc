#include "fuzz/stand_in_provider.h"

#include <algorithm>
#include <cstring>

#include "engine/wire.h"
#include "rdma/shm/shm_connection.h"

namespace ch3_offload::fuzz {

StandInProvider::StandInProvider(std::uint32_t peers, const Capabilities& capabilities)
    : capabilities_(capabilities), ends_(peers) {
  for (std::uint32_t i = 0; i < peers; ++i) ends_[i].peer = PeerId{i};
}

StandInProvider::End& StandInProvider::end_of(PeerId peer) {
  require(index_of(peer) < ends_.size(), "a provider is asked for processes of the job only");
  return ends_[index_of(peer)];
}

void StandInProvider::message(PeerId from, std::span<const std::byte> bytes) {
  if (end_of(from).down) return;
  Item item{.kind = ItemKind::kMessage,
            .peer = from,
            .bytes = std::make_unique<std::byte[]>(bytes.size()),
            .length_bytes = bytes.size()};
  if (!bytes.empty()) std::memcpy(item.bytes.get(), bytes.data(), bytes.size());
  inbox_.push_back(std::move(item));
}

void StandInProvider::write_arrived(PeerId from, Immediate immediate, std::size_t length_bytes) {
  if (end_of(from).down) return;
  inbox_.push_back({.kind = ItemKind::kWriteArrived,
                    .peer = from,
                    .bytes = {},
                    .length_bytes = length_bytes,
                    .immediate = immediate});
}

void StandInProvider::finish(const Write& write, Status status) {
  // The source is the provider's until now: AddressSanitizer tells if it was freed.
  touch({write.source, write.length_bytes});
  require(regions_.count(write.key) != 0, "the source of a write stays registered until on_write_done");
  inbox_.push_back(
      {.kind = ItemKind::kWriteDone, .peer = write.peer, .bytes = {}, .work = write.work, .status = status});
}

void StandInProvider::end_write(Status status) {
  if (writes_.empty()) return;
  finish(writes_.front(), status);
  writes_.pop_front();
}

void StandInProvider::peer_down(PeerId peer, Status reason) {
  End& end = end_of(peer);
  if (end.down) return;
  for (auto write = writes_.begin(); write != writes_.end();) {
    if (write->peer != peer) {
      ++write;
      continue;
    }
    finish(*write, Status::kPeerFailed);
    write = writes_.erase(write);
  }
  end.down = true;
  inbox_.push_back({.kind = ItemKind::kPeerDown, .peer = peer, .bytes = {}, .status = reason});
}

/// As if each peer had connected, so that its end is still to be told unless it was.
bool StandInProvider::end(PeerId peer) noexcept {
  peer_down(peer, Status::kPeerFailed);
  return will_end(peer);
}

void StandInProvider::remote_write(std::size_t which, std::byte value) noexcept {
  if (granted_keys_.empty()) return;
  const auto found = regions_.find(granted_keys_[which % granted_keys_.size()]);
  if (found == regions_.end()) return;
  std::memset(found->second.address, static_cast<int>(value), found->second.length_bytes);
}

bool StandInProvider::registered(const std::byte* address, std::size_t length_bytes) const noexcept {
  return std::any_of(regions_.begin(), regions_.end(), [&](const auto& entry) {
    return entry.second.address < address + length_bytes &&
           address < entry.second.address + entry.second.length_bytes;
  });
}

bool StandInProvider::will_end(PeerId peer) const noexcept {
  return std::any_of(inbox_.begin(), inbox_.end(), [&](const Item& item) {
    return item.kind == ItemKind::kPeerDown && item.peer == peer;
  });
}

/// Its own address, and those that shm understands.
bool StandInProvider::reaches(std::string_view address) const noexcept {
  return address == "stand-in" || ShmAddress::parse(address).has_value();
}

Result<Endpoint*> StandInProvider::connect(PeerId peer, std::string_view address,
                                           const std::optional<PeerNames>&) {
  require(reaches(address), "connect() is called with addresses that are reached");
  End& end = end_of(peer);
  if (end.down) return Error{Status::kPeerFailed, 0, "it is down"};
  const bool ends_it = connect_answer == Status::kUnreachable || connect_answer == Status::kPeerFailed;
  if (connect_answer != Status::kOk && !(ends_it && peer == reached))
    return Error{connect_answer, 0, "the input says no"};
  end.connected = true;
  return &end;
}

std::string StandInProvider::address_of(PeerId peer) const {
  const End& end = ends_.at(index_of(peer));
  return end.connected || end.heard ? local_address() : std::string();
}

Status StandInProvider::register_memory(void* address, std::size_t length_bytes, Access,
                                        MemoryRegion& region) noexcept {
  require(address != nullptr && length_bytes > 0, "nothing is not registered");
  if (refuses_registration) return Status::kNoMemory;
  const std::uint64_t key = next_key_++;
  regions_[key] = {static_cast<std::byte*>(address), length_bytes};
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{key}, key};
  return Status::kOk;
}

void StandInProvider::deregister_memory(MemoryRegion& region) noexcept {
  for (const Write& write : writes_)
    require(write.key != region.local_key, "the source of a write stays registered until on_write_done");
  require(regions_.erase(region.local_key) == 1, "a region is deregistered once");
  region = {};
}

Status StandInProvider::reserve(Endpoint& endpoint, std::size_t length_bytes,
                                std::span<std::byte>& slot) noexcept {
  End& end = of(endpoint);
  require(end.connected, "reserve() comes after connect()");
  require(length_bytes >= 1 && length_bytes <= capabilities_.max_slot_bytes,
          "a slot is 1 .. max_slot_bytes long");
  end.slot.reset();
  if (end.down) return Status::kPeerFailed;
  if (room_slots == 0) {
    if (refused) refused(end.peer);
    return Status::kAgain;
  }
  end.slot = std::make_unique<std::byte[]>(length_bytes);
  end.slot_bytes = length_bytes;
  slot = {end.slot.get(), length_bytes};
  return Status::kOk;
}

void StandInProvider::commit(Endpoint& endpoint, std::size_t length_bytes) noexcept {
  End& end = of(endpoint);
  require(end.slot != nullptr && length_bytes >= 1 && length_bytes <= end.slot_bytes,
          "commit() follows reserve()");
  if (room_slots != SIZE_MAX) --room_slots;
  const std::span<const std::byte> message(end.slot.get(), length_bytes);
  touch(message);
  if (committed) committed(end.peer, message);
  wire::CtsHeader cts;
  if (carries_messages && wire::get(message, cts) && cts.common.kind == wire::Kind::kCts &&
      (cts.common.flags & wire::kWritable) != 0) {
    require(regions_.count(cts.remote_key) != 0, "what a CTS grants is registered");
    granted_keys_.push_back(cts.remote_key);
  }
  const auto head = message.first(std::min(message.size(), wire::kLongestHeaderBytes));
  end.sent.emplace_back(head.begin(), head.end());
  end.slot.reset();
}

Status StandInProvider::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                              const MemoryRegion& region, RemoteMemory, Immediate, WorkId work) noexcept {
  End& end = of(endpoint);
  require(end.connected, "write() comes after connect()");
  require(capabilities_.write, "write() is called where there are writes");
  const auto found = regions_.find(region.local_key);
  require(found != regions_.end() && source >= found->second.address &&
              source + length_bytes <= found->second.address + found->second.length_bytes,
          "a write's source is registered");
  end.slot.reset();
  if (end.down) return Status::kPeerFailed;
  if (room_slots == 0) return Status::kAgain;
  if (write_answer != Status::kOk) return write_answer;
  if (room_slots != SIZE_MAX) --room_slots;
  writes_.push_back({end.peer, source, length_bytes, region.local_key, work});
  return Status::kOk;
}

std::size_t StandInProvider::poll(Sink& sink, std::size_t budget) noexcept {
  require(!polling_, "poll() is not called inside poll()");
  polling_ = true;
  std::size_t delivered = 0;
  held_.reset();
  for (; delivered < budget && !inbox_.empty() && held_ == nullptr; ++delivered) {
    Item item = std::move(inbox_.front());
    inbox_.pop_front();
    if (item.kind != ItemKind::kPeerDown) end_of(item.peer).heard = true;
    switch (item.kind) {
      case ItemKind::kMessage: {
        const std::span<const std::byte> message(item.bytes.get(), item.length_bytes);
        if (delivering) delivering(item.peer, message);
        if (sink.on_message(item.peer, message) == Delivery::kHeld) held_ = std::move(item.bytes);
        break;
      }
      case ItemKind::kWriteArrived:
        if (delivering_write) delivering_write(item.peer, item.immediate, item.length_bytes);
        sink.on_write_arrived(item.peer, item.immediate, item.length_bytes);
        break;
      case ItemKind::kWriteDone: sink.on_write_done(item.peer, item.work, item.status); break;
      case ItemKind::kPeerDown: sink.on_peer_down(item.peer, item.status); break;
    }
  }
  polling_ = false;
  return delivered;
}

}  // namespace ch3_offload::fuzz
