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
#include <vector>

#include "nic/client_memory.h"
#include "nic/host_targets.h"

namespace ch3_offload {

class TargetAddresses {
 public:
  /// Queues of an interface.
  static constexpr std::size_t kMostQueues = 4096;
  /// Ranks in a list, and each of the limits of an interface.
  static constexpr std::size_t kMost = std::size_t{1} << 20;

  /// `client`: null: it is in this process, and its addresses are good.
  explicit TargetAddresses(ClientMemory* client) noexcept : client_(client) {}

  // As of HostTargets. What the processor does not see is kUnsupported, or kNoQueue.
  Status open(HostTargets& targets, unsigned number, const TargetInterfaceConfig& config,
              std::uint64_t board) noexcept;
  QueueId make_queue(HostTargets& targets, unsigned number, const TargetEventRing& ring) noexcept;
  Status set_ranks(HostTargets& targets, unsigned number, std::uint64_t address,
                   std::uint64_t length) noexcept;
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
    struct Ring {
      ClientShares::Found words;
      ClientShares::Found slots;
    };
    std::map<QueueId, Ring> rings;
  };

  ClientMemory* const client_;
  std::array<Told, kTargetInterfaces> told_;
};

}  // namespace ch3_offload
