// The memory of a client in another process: what its network processor reads messages from, and writes them
// to.
//
//   the client's memory         becomes a payload that is         copied
//   shared with the processor   contiguous, where it is mapped    like memory of the processor
//   any other                   kFetched, with functions of ours  by the kernel (process_vm_readv, _writev),
//                                                                 straight from or to a slot
//
// The kernel may refuse a copy, from the start or at any time: the client has made itself undumpable, its
// memory is a device's, a filter forbids the call.
//
// - If it refuses the client's memory as a whole, what was opened while it did not refuse still leads there:
//   the file /proc/PID/mem (keep_file()). It serves both of the client's ports, by a slower copy.
// - Without that file, and for the memory of a device, the client copies. A message that it sends waits in
//   the engine until the client has given its bytes (next_wanted(), Part::give()). A message that it receives
//   is kept here, and the events of its receive take it along (Part::kept()). If the refusal is one of the
//   client's memory as a whole, all of that is so from then on (is_refused()).
//
// A short message for memory that is not shared is kept in any case (Part::keep_short()): its event costs
// less than the kernel's copy.
//
// The pid of a client may become that of another program: by exec(), or when the client has ended. Its socket
// is closed before that, or within exec(). So the socket is looked at before each write, and after each read,
// whose bytes are thrown away if it has closed. docs/attacks.md says what is left.
//
// The memory of a second client (target entries, requests) cannot wait: refused, it breaks the client. So
// does an address that the client does not have: reads then give zeros, writes do nothing, and is_broken()
// says so. From then on nothing may be told to the client, and nothing of it may leave
// (ClientOutlet::silence()).
//
// What is not shared can still be copied once instead of twice, if the receiver is another client here: it is
// asked to (OfferedCopies).
//
// A page may come late. Then the kernel's copy takes long, and the processor's loop may go on meanwhile in
// another thread (RunnerRelay): it leaves this client alone, whose turn goes on after the copy (is_late()).
//
// Threads: one at a time.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/targets/target_runs.h"
#include "nic/client_outlet.h"
#include "nic/client_shares.h"
#include "nic/offered_copies.h"

namespace ch3_offload {

/// Whether the kernel lets the processor copy from and to a client's memory.
enum class KernelCopies : std::uint8_t { kAllowed, kRefused };

/// Copies between this process and another one.
class MemoryCopier {
 public:
  virtual ~MemoryCopier() = default;
  /// As process_vm_readv() and process_vm_writev(). Also after the first thread of the process has ended.
  ssize_t copy_by_any_thread(pid_t pid, const iovec& here, std::span<const iovec> there,
                             bool is_write) noexcept;
  /// One call of the kernel, which knows the process by one of its threads.
  virtual ssize_t copy(pid_t thread, const iovec& here, std::span<const iovec> there, bool is_write) noexcept;
  /// The same through the file of open_memory().
  virtual ssize_t copy_by_file(const FileDescriptor& memory, const iovec& here, std::span<const iovec> there,
                               bool is_write) noexcept;
  /// Whether the process has all of that memory, and may itself read it, or write it. True: not known.
  virtual bool may_have(pid_t pid, const iovec& there, bool is_write) noexcept;
  /// The next copy is expected to take long.
  virtual void give_way() noexcept {}
  static MemoryCopier& kernel() noexcept;
};

/// Opens the memory of a process as a file, also after its first thread has ended. None: the kernel refuses.
/// The file is of the program that the process runs now: after exec(), and when the process has ended, copies
/// fail, whoever has its pid.
FileDescriptor open_memory(pid_t pid) noexcept;

/// Opens the list of its pages, likewise. None: the kernel refuses, or other processes do not know it by that
/// pid (has_our_pids()).
FileDescriptor open_pages(pid_t pid) noexcept;

class ClientMemory {
 public:
  /// Of process `pid`, which sends files over `socket`, and whose messages leave through `outlet`. Its peers
  /// are below `peer_limit`. Throws std::bad_alloc.
  ClientMemory(pid_t pid, const FileDescriptor& socket, std::uint32_t peer_limit, ClientOutlet& outlet,
               KernelCopies copies = KernelCopies::kAllowed, MemoryCopier& copier = MemoryCopier::kernel())
      : pid_(pid),
        peer_limit_(peer_limit),
        outlet_(outlet),
        copier_(copier),
        copies_(copies),
        socket_(socket),
        shares_(socket) {}

  /// Of open_memory(): for what the kernel refuses otherwise.
  void keep_file(FileDescriptor memory) noexcept { file_ = std::move(memory); }
  /// Whether it was needed.
  bool uses_file() const noexcept { return uses_file_; }

  ClientShares& shares() noexcept { return shares_; }
  /// Those that this client is asked to make.
  OfferedCopies& offers() noexcept { return offers_; }
  const OfferedCopies& offers() const noexcept { return offers_; }
  /// Of open_pages(): if it is valid, other clients may be asked to copy from this one. For set-up only.
  void let_others_copy(FileDescriptor pages) noexcept { pages_ = std::move(pages); }
  pid_t pid() const noexcept { return pid_; }
  /// Whether all of that memory of the client is there: who reads it waits for no page.
  bool is_present(std::uint64_t address, std::size_t length_bytes) const noexcept;
  /// Whether it has, or now runs another program: then its pid may be another's, and nothing of it leaves any
  /// more.
  bool has_ended() noexcept;
  /// As the client was told.
  bool may_copy() const noexcept { return copies_ == KernelCopies::kAllowed; }
  PeerId rank() const noexcept { return outlet_.rank(); }
  /// From now on it has foreign peers, too, in the slots behind its others.
  void reach_foreign() noexcept { reaches_foreign_ = true; }
  bool is_foreign(std::uint32_t peer) const noexcept {
    const std::uint32_t slot = slot_of(PeerId{peer});
    return reaches_foreign_ && slot >= peer_limit_ && slot - peer_limit_ < kMostForeignPeers;
  }
  /// Whether it may name that peer.
  bool may_name(std::uint32_t peer) const noexcept { return peer < peer_limit_ || is_foreign(peer); }
  bool is_broken() const noexcept { return is_broken_; }
  /// The same, as it is at any time.
  const bool& broken() const noexcept { return is_broken_; }
  /// Why, for the user.
  const std::string& reason() const noexcept { return reason_; }

  /// Bytes that a message needs: of part `part` of an operation, from `offset_bytes` on.
  struct Wanted {
    OperationId operation = kNoOperation;
    std::uint32_t part = 0;
    std::size_t offset_bytes = 0;
  };

  /// A payload of the client, and what its copies need. Stays as it is until its operation is over.
  class Part {
   public:
    Payload payload() noexcept;
    /// It is part `part` of a message: its copies may wait for the client.
    void belong_to(OperationId operation, std::uint32_t part) noexcept { wanted_ = {operation, part, 0}; }
    /// From now on, what is written at the beginning and is no longer than `limit_bytes` stays in kept().
    /// What is written after it sends both to the client's memory.
    void keep_short(std::size_t limit_bytes) noexcept { keeps_bytes_ = limit_bytes; }
    /// What was written, and is not in the client's memory: bytes of the payload from kept_from() on.
    std::span<const std::byte> kept() const noexcept { return kept_; }
    std::size_t kept_from() const noexcept { return kept_from_; }
    /// What was written is lost, because there was no memory to keep it.
    bool is_lost() const noexcept { return is_lost_; }
    /// The client's bytes from `offset_bytes` on are at `address`, in memory that it shares. False: they are
    /// not. Throws std::bad_alloc.
    bool give(std::size_t offset_bytes, std::uint64_t address, std::uint64_t length_bytes);
    /// The same without memory that is shared: `bytes` are the client's from `offset_bytes` on. They are kept
    /// until they have been read. Others than were asked for last are ignored. Throws std::bad_alloc.
    void give(std::size_t offset_bytes, std::span<const std::byte> bytes);
    /// Where it is, in the client. Nothing: other clients could not copy it, or it is no message's.
    struct Place {
      ClientMemory* memory;
      std::uint64_t address;
      OperationId operation;
    };
    std::optional<Place> place() const noexcept;
    /// Of a payload in pieces: a copy of the client's layout, with the client's addresses. Null: it is not in
    /// pieces.
    const PayloadLayout* layout() const noexcept { return named_.layout; }

   private:
    friend class ClientMemory;
    static bool try_pack(const void* context, std::size_t offset_bytes, std::byte* destination,
                         std::size_t length_bytes) noexcept;
    static void pack(const void* context, std::size_t offset_bytes, std::byte* destination,
                     std::size_t length_bytes) noexcept;
    static void unpack(void* context, std::size_t offset_bytes, const std::byte* source,
                       std::size_t length_bytes) noexcept;
    static void pack_runs(const void* context, std::size_t first_bytes, const TargetRuns& runs,
                          std::size_t offset_bytes, std::byte* destination,
                          std::size_t length_bytes) noexcept;
    static void unpack_runs(void* context, std::size_t first_bytes, const TargetRuns& runs,
                            std::size_t offset_bytes, const std::byte* source,
                            std::size_t length_bytes) noexcept;
    bool read_between(std::size_t first_bytes, const TargetRuns& runs, std::size_t offset_bytes,
                      std::byte* here, std::size_t length_bytes) noexcept;
    /// A range of the payload, or of the data in `runs` of it, whose first begins at `first_bytes`.
    bool move(std::size_t first_bytes, const TargetRuns& runs, std::size_t offset_bytes, std::byte* here,
              std::size_t length_bytes, bool is_write) noexcept;
    bool read(std::size_t offset_bytes, std::byte* destination, std::size_t length_bytes) noexcept;
    std::size_t drop_read(std::size_t offset_bytes) noexcept;
    void write(std::size_t offset_bytes, const std::byte* source, std::size_t length_bytes) noexcept;
    bool keep_first(std::size_t offset_bytes, const std::byte* source, std::size_t length_bytes) noexcept;
    void keep(std::size_t offset_bytes, const std::byte* source, std::size_t length_bytes) noexcept;
    bool is_message() const noexcept { return wanted_.operation != kNoOperation; }

    ClientMemory* memory_ = nullptr;
    Payload named_;  ///< Address: the client's. Layout: null, or layout_.
    ClientShares::Found shared_;
    PayloadLayout layout_;  ///< Of kind kPieces.
    std::vector<Piece> pieces_;
    Wanted wanted_;           ///< The last that was asked for. No operation: it is no message's.
    bool is_away_ = false;    ///< The kernel has refused: only the client can copy.
    bool is_wanted_ = false;  ///< `wanted_` was asked for, and has not come.
    bool is_lost_ = false;
    ClientShares::Found given_;  ///< What the client gave last, or held_.
    std::size_t given_from_ = 0;
    std::size_t given_bytes_ = 0;
    std::vector<std::byte> held_;  ///< What was given without shared memory, and not read yet.
    std::size_t keeps_bytes_ = 0;  ///< 0: nothing short is kept, or it has been written since.
    std::size_t kept_from_ = 0;
    std::vector<std::byte> kept_;
  };

  /// Takes what the client has named: address and layout are its own. False: no client of ours names that.
  /// Throws std::bad_alloc.
  bool take(const Payload& named, Part& part);
  /// Likewise of a target entry, which may be longer than the client's memory. Throws std::bad_alloc.
  bool take_entry(const Payload& named, Part& part);
  /// Likewise a place for a peer's writes: of no length, if the client has not shared it.
  Part place(const Payload& named) noexcept;

  /// Whether the client should stage all that it names from now on.
  bool is_refused() const noexcept { return is_refused_; }
  /// The oldest that has not been told to the client. Null: none.
  const Wanted* next_wanted() const noexcept { return wanted_.empty() ? nullptr : &wanted_.front(); }
  void told_wanted() noexcept { wanted_.pop_front(); }

  /// The client cannot go on: nothing of it leaves any more.
  void fail(std::string_view reason) noexcept;

  /// Whether another thread is in the midst of a turn of this client.
  bool is_late() const noexcept { return is_copying_; }
  /// To be called when another thread goes on.
  void be_late() noexcept {
    was_late_ = true;
    outlet_.be_late();
  }

 private:
  enum class Copied : std::uint8_t {
    kDone,
    kRefused,  ///< By the kernel. The client can copy.
    kBroken,   ///< The client has no such memory.
  };
  Copied copy(const iovec& here, std::span<const iovec> there, bool is_write) noexcept;
  ssize_t move(const iovec& here, std::span<const iovec> there, bool is_write) noexcept;
  bool read(std::uint64_t address, void* to, std::size_t length_bytes) noexcept;
  void fail_to(const char* do_what, std::uint64_t address, std::size_t length_bytes) noexcept;

  const pid_t pid_;
  const std::uint32_t peer_limit_;
  bool reaches_foreign_ = false;
  ClientOutlet& outlet_;
  MemoryCopier& copier_;
  const KernelCopies copies_;  ///< As the client was told.
  bool is_refused_ = false;    ///< All of its memory, since then.
  int refusal_ = 0;            ///< Errno of the last refusal.
  FileDescriptor file_;        ///< Of open_memory(). Not valid: there is none.
  bool uses_file_ = false;     ///< All copies go through it, since the kernel has refused another.
  const FileDescriptor& socket_;
  FileDescriptor pages_;  ///< Of open_pages().
  bool is_copying_ = false;
  bool was_late_ = false;         ///< The copy that is under way, or was the last.
  std::uint64_t slow_until_ = 0;  ///< CycleClock time: until then, late pages are expected. 0: none are.
  ClientShares shares_;
  OfferedCopies offers_;
  bool is_broken_ = false;
  std::string reason_;
  std::deque<Wanted> wanted_;
};

}  // namespace ch3_offload
