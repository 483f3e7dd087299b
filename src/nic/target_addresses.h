// What a second client in another process names by its addresses, as its processor reaches it.
//
//   the client names                               the processor
//   a board, a ring of events                      finds it in what the client shares, and keeps it mapped
//                                                  until the interface is closed or the queue is freed
//   the memory of an entry, or of a request        makes it a payload (ClientMemory), which lasts as long as
//                                                  the entry or the request
//   a list of ranks                                copies it
//
// What the client shares it can change at any time. So the processor reads there only counts and positions of
// which any value harms nobody but the client, and keeps copies of all else.
//
// Threads: one. Allocation: all of it.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/target_request.h"
#include "engine/targets/target_board.h"
#include "engine/targets/target_interface.h"
#include "nic/client_memory.h"
#include "rdma/status.h"

namespace ch3_offload {

class TargetAddresses {
 public:
  /// Queues of an interface.
  static constexpr std::size_t kMostQueues = 4096;
  /// Ranks in a list, and each of the limits of an interface.
  static constexpr std::size_t kMost = std::size_t{1} << 20;

  /// `client`: null: it is in this process, and its addresses are good.
  explicit TargetAddresses(ClientMemory* client) noexcept : client_(client) {}

  struct FoundRing {
    ClientShares::Found words;
    ClientShares::Found slots;
  };
  /// Null: the processor does not see it, or the limits are too high.
  TargetBoard* find_board(std::uint64_t address, const TargetInterfaceConfig& config,
                          ClientShares::Found& found) const noexcept;
  /// Makes `ring` what the processor sees. False: it does not see it, or the interface has as many as may be.
  bool find_ring(unsigned number, TargetEventRing& ring, FoundRing& found) const noexcept;
  /// `copies` keeps what `ranks` are if they are not in this process. kNoMemory: they are too many, too.
  /// kUnsupported: the processor does not see them. Throws std::bad_alloc.
  Status find_ranks(std::uint64_t address, std::uint64_t length, std::vector<ProcessId>& copies,
                    std::span<const ProcessId>& ranks) const;
  /// The interface is open, or the queue is made. False: no memory.
  void keep(unsigned number, ClientShares::Found board) noexcept { told_[number].board = std::move(board); }
  bool keep(unsigned number, QueueId queue, FoundRing ring) noexcept;
  /// The interface is closed, or the queue is freed.
  void forget(unsigned number) noexcept { told_[number] = {}; }
  void forget(unsigned number, QueueId queue) noexcept { told_[number].rings.erase(queue); }

  enum class Taken : std::uint8_t {
    kTaken,
    kNoMemory,
    kRubbish,  ///< No client of ours names that.
  };
  /// Makes `reach` the entry's memory. What the description says of the memory is then for its events only.
  Taken take(TargetDescription& description, TargetReach& reach) noexcept;
  /// Makes the memory of the request what `hold` keeps.
  Taken take(TargetRequest& request, TargetHold& hold) noexcept;

 private:
  /// Where the client is told of an interface.
  struct Told {
    ClientShares::Found board;
    std::map<QueueId, FoundRing> rings;
  };

  ClientMemory* const client_;
  std::array<Told, kTargetInterfaces> told_;
};

}  // namespace ch3_offload
