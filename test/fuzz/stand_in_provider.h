// A provider that does what a fuzz input says: the engine's only neighbour in test/fuzz.
//
// Unlike the fake (test/rdma) it has no clock, no order of its own and no honest other end: its owner puts
// into the inbox whatever a peer might send, decides when there is room and how writes end, and sees what the
// engine sent. It keeps to provider.h itself, and requires the same of the engine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "rdma/provider.h"

namespace ch3_offload::fuzz {

class StandInProvider final : public Provider {
 public:
  StandInProvider(std::uint32_t peers, const Capabilities& capabilities);

  // What the owner decides.
  std::size_t room_slots = SIZE_MAX;  ///< So many more commits; then reserve() and write() say kAgain.
  bool refuses_registration = false;
  bool carries_messages = true;  ///< The engine's: what a CTS grants is looked at.
  Status connect_answer = Status::kOk;
  PeerId reached{UINT32_MAX};         ///< connect() never gives this one an answer that would be its end.
  Status write_answer = Status::kOk;  ///< Of write(); kOk: it is posted.

  /// Told of each message as it leaves the engine, and of each event just before the engine sees it.
  std::function<void(PeerId to, std::span<const std::byte> message)> committed;
  /// Told when there was no room.
  std::function<void(PeerId to)> refused;
  std::function<void(PeerId from, std::span<const std::byte> message)> delivering;
  std::function<void(PeerId from, Immediate immediate, std::size_t length_bytes)> delivering_write;

  // What happens to the engine at its next poll. Nothing more comes from a peer that is down.
  void message(PeerId from, std::span<const std::byte> bytes);
  void write_arrived(PeerId from, Immediate immediate, std::size_t length_bytes);
  /// Ends the oldest write that is posted, if there is one.
  void end_write(Status status);
  void peer_down(PeerId peer, Status reason);

  /// A peer writes into memory that the engine has granted it, if that is still granted. `which`: of the
  /// grants.
  void remote_write(std::size_t which, std::byte value) noexcept;

  // What the engine did.
  /// The heads of what was sent to `peer`, oldest first.
  const std::vector<Bytes>& sent_to(PeerId peer) const noexcept { return ends_[index_of(peer)].sent; }
  bool is_down(PeerId peer) const noexcept { return ends_[index_of(peer)].down; }
  std::size_t regions() const noexcept { return regions_.size(); }
  std::size_t posted_writes() const noexcept { return writes_.size(); }
  /// on_peer_down() is in the inbox.
  bool will_end(PeerId peer) const noexcept;
  bool registered(const std::byte* address, std::size_t length_bytes) const noexcept;

  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string local_address() const override { return "stand-in"; }
  bool reaches(std::string_view address) const noexcept override;
  using Provider::connect;
  Result<Endpoint*> connect(PeerId peer, std::string_view address,
                            const std::optional<PeerNames>& names) override;
  std::string address_of(PeerId peer) const override;
  Status register_memory(void* address, std::size_t length_bytes, Access access,
                         MemoryRegion& region) noexcept override;
  void deregister_memory(MemoryRegion& region) noexcept override;
  Status reserve(Endpoint& endpoint, std::size_t length_bytes, std::span<std::byte>& slot) noexcept override;
  void commit(Endpoint& endpoint, std::size_t length_bytes) noexcept override;
  bool end(PeerId peer) noexcept override;
  Status write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
               const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
               WorkId work) noexcept override;
  std::size_t poll(Sink& sink, std::size_t budget) noexcept override;
  bool arm() noexcept override { return inbox_.empty(); }
  void disarm() noexcept override {}
  int descriptor() const noexcept override { return -1; }

 private:
  struct End final : Endpoint {
    PeerId peer{};
    bool connected = false;
    bool heard = false;                 ///< Something of it was delivered.
    bool down = false;                  ///< on_peer_down() was called, or is in the inbox.
    std::unique_ptr<std::byte[]> slot;  ///< Between reserve() and commit(): exactly what was asked for.
    std::size_t slot_bytes = 0;
    std::vector<Bytes> sent;
  };
  enum class ItemKind : std::uint8_t { kMessage, kWriteArrived, kWriteDone, kPeerDown };
  struct Item {
    ItemKind kind{};
    PeerId peer{};
    std::unique_ptr<std::byte[]> bytes;  ///< kMessage. Freed after its call.
    std::size_t length_bytes = 0;
    Immediate immediate{};
    WorkId work{};
    Status status = Status::kOk;
  };
  struct Region {
    std::byte* address;
    std::size_t length_bytes;
  };
  struct Write {
    PeerId peer;
    const std::byte* source;
    std::size_t length_bytes;
    std::uint64_t key;
    WorkId work;
  };

  End& end_of(PeerId peer);
  static End& of(Endpoint& endpoint) noexcept { return static_cast<End&>(endpoint); }
  void finish(const Write& write, Status status);

  const Capabilities capabilities_;
  std::vector<End> ends_;  ///< By PeerId.
  std::deque<Item> inbox_;
  std::unique_ptr<std::byte[]> held_;  ///< The message that the Sink still reads (Delivery::kHeld).
  std::deque<Write> writes_;
  std::map<std::uint64_t, Region> regions_;  ///< By key.
  std::uint64_t next_key_ = 1;
  std::vector<std::uint64_t> granted_keys_;  ///< That a CTS told a peer.
  bool polling_ = false;
};

}  // namespace ch3_offload::fuzz
