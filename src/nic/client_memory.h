// The memory of a client in another process: what its network processor reads messages from, and writes them
// to.
//
//   the client's memory         becomes a payload that is         copied
//   shared with the processor   contiguous, where it is mapped    like memory of the processor
//   any other                   kPacked, with functions of ours   by the kernel (process_vm_readv, _writev),
//                                                                 straight from or to a slot
//
// If the kernel refuses that, a client must share whatever it names. A short message for memory that is not
// shared need not be copied there: the event of its receive can take it along (Part::keep_short()).
//
// An address that the client does not have breaks the client, not the processor: reads then give zeros,
// writes do nothing, and is_broken() says so. Whoever runs the engine must drop such a client before
// anything of it leaves (ClientOutlet::silence()).
//
// Threads: one.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "nic/client_outlet.h"
#include "nic/client_shares.h"

namespace ch3_offload {

/// Whether the kernel lets the processor copy from and to a client's memory.
enum class KernelCopies : std::uint8_t { kAllowed, kRefused };

class ClientMemory {
 public:
  /// Of process `pid`, which sends files over `socket`, and whose messages leave through `outlet`. Its peers
  /// are below `peer_limit`.
  ClientMemory(pid_t pid, const FileDescriptor& socket, std::uint32_t peer_limit, ClientOutlet& outlet,
               KernelCopies copies = KernelCopies::kAllowed) noexcept
      : pid_(pid), peer_limit_(peer_limit), outlet_(outlet), copies_(copies), shares_(socket) {}

  ClientShares& shares() noexcept { return shares_; }
  bool may_copy() const noexcept { return copies_ == KernelCopies::kAllowed; }
  PeerId rank() const noexcept { return outlet_.rank(); }
  std::uint32_t peer_limit() const noexcept { return peer_limit_; }
  bool is_broken() const noexcept { return is_broken_; }
  /// Why, for the user.
  const std::string& reason() const noexcept { return reason_; }

  /// A payload of the client, and what its copies need. Stays as it is until its operation is over.
  class Part {
   public:
    Payload payload() noexcept;
    /// From now on, what is written at the beginning and is no longer than `limit_bytes` stays in kept().
    /// What is written after it sends both to the client's memory.
    void keep_short(std::size_t limit_bytes) noexcept { keeps_bytes_ = limit_bytes; }
    /// What was written, and is not in the client's memory: the beginning of the payload.
    std::span<const std::byte> kept() const noexcept { return {kept_.get(), kept_bytes_}; }
    /// Of a payload in pieces: a copy of the client's layout, with the client's addresses. Null: it is not in
    /// pieces.
    const PayloadLayout* layout() const noexcept { return named_.layout; }

   private:
    friend class ClientMemory;
    static void pack(const void* context, std::size_t offset_bytes, std::byte* destination,
                     std::size_t length_bytes) noexcept;
    static void unpack(void* context, std::size_t offset_bytes, const std::byte* source,
                       std::size_t length_bytes) noexcept;
    void move(std::size_t offset_bytes, std::byte* here, std::size_t length_bytes, bool is_write) noexcept;
    void write(std::size_t offset_bytes, const std::byte* source, std::size_t length_bytes) noexcept;
    bool keep(std::size_t offset_bytes, const std::byte* source, std::size_t length_bytes) noexcept;

    ClientMemory* memory_ = nullptr;
    Payload named_;  ///< Address: the client's. Layout: null, or layout_.
    ClientShares::Found shared_;
    PayloadLayout layout_;  ///< Of kind kPieces.
    std::vector<Piece> pieces_;
    std::size_t keeps_bytes_ = 0;  ///< 0: nothing is kept, or it has been written since.
    std::size_t kept_bytes_ = 0;
    std::unique_ptr<std::byte[]> kept_;
  };

  /// Takes what the client has named: address and layout are its own. False: no client of ours names that.
  /// Throws std::bad_alloc.
  bool take(const Payload& named, Part& part);
  /// Likewise of a target entry, which may be longer than the client's memory. Throws std::bad_alloc.
  bool take_entry(const Payload& named, Part& part);
  /// Likewise a place for a peer's writes: of no length, if the client has not shared it.
  Part place(const Payload& named) noexcept;

 private:
  void fail(const char* what, std::uint64_t address, std::size_t length_bytes, int error) noexcept;
  bool read(std::uint64_t address, void* to, std::size_t length_bytes) noexcept;

  const pid_t pid_;
  const std::uint32_t peer_limit_;
  ClientOutlet& outlet_;
  const KernelCopies copies_;
  ClientShares shares_;
  bool is_broken_ = false;
  std::string reason_;
};

}  // namespace ch3_offload
