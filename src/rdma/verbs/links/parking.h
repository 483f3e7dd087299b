// Parking: how two processes end a link that works, to make room for others or to move to another rail.
//
// Each side sends SlotHeader::kPark as its last item. Once both have, and all items are acknowledged, the
// link ends and nothing is lost. Which side begins does not matter, nor if both do.
//
// Threads: as rdma/provider.h says. Only make_room() allocates.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/verbs/devices/rail.h"
#include "rdma/verbs/marked_list.h"
#include "rdma/verbs/transport/transport.h"
#include "rdma/verbs/verbs_endpoint.h"

namespace ch3_offload {

class Parking {
 public:
  class Client {
   public:
    /// Both sides have finished: the link is to end, now.
    virtual void on_parked(VerbsLane& lane) noexcept = 0;

   protected:
    ~Client() = default;
  };

  Parking(Transport& transport, Client& client) noexcept : transport_(transport), client_(client) {}

  void make_room(std::size_t lanes) { lanes_.make_room(lanes); }
  /// Parks the least recently used link of the rail, if fewer than `wanted` are on their way out.
  void make_way(const Rail& rail, std::size_t wanted, std::uint64_t now_ns) noexcept;
  /// Parks a link. REQUIRES: it is up, and is not being parked.
  void begin(VerbsLane& lane, std::uint64_t now_ns) noexcept;
  /// The peer sends nothing more on this link.
  void on_heard(VerbsLane& lane) noexcept;
  /// Does what can be done now. Has no effect on a link that is not being parked.
  void advance(VerbsLane& lane) noexcept;
  /// advance() for all: what only time brings.
  void tick() noexcept {
    lanes_.drain([&](VerbsLane& lane) {
      advance(lane);
      if (lane.link.parking) lanes_.add(lane);
    });
  }
  bool is_busy() const noexcept { return !lanes_.empty(); }

 private:
  Transport& transport_;
  Client& client_;
  MarkedList<VerbsLane, &VerbsLane::is_parking> lanes_;  ///< With links that are being parked.
};

}  // namespace ch3_offload
