// Where messages lie until the peer's device has them: in registered send slots, or, for links that are not
// up, in ordinary memory.
//
// RULE ONLY LIVE LINKS HOLD SLOTS. A message takes a send slot when it is posted to a link that is up. When a
// link ends, its messages go back to ordinary memory. So peers that do not answer take none of the slots:
// those are for links on which they come back soon.
//
// RULE CREDIT GETS THROUGH. The last send slots are for messages of credit, parking and goodbye: without
// these, who waits for credit would hold slots for ever.
//
// Threads: as rdma/provider.h says.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "rdma/verbs/devices/slot_pool.h"
#include "rdma/verbs/transport/link.h"

namespace ch3_offload {

class MessageBuffers {
 public:
  enum class SlotUse : std::uint8_t { kMessage, kCredit };

  explicit MessageBuffers(SlotPool slots) : slots_(std::move(slots)) {}

  /// Slots may be added. Returns kNone if all are taken that are for this use.
  std::uint32_t take_slot(SlotUse use) noexcept;
  /// Whether a message may have a slot, or slots may be added.
  bool may_take_slot() const noexcept { return slots_.may_take(std::min(kCreditSlots, slots_.count() / 4)); }
  /// Slots are short: their completions are to come soon.
  bool is_short() const noexcept { return slots_.free_count() * 2 < slots_.count(); }
  std::uint32_t slots_taken() const noexcept { return slots_.count() - slots_.free_count(); }
  SlotPool& slots() noexcept { return slots_; }
  const SlotPool& slots() const noexcept { return slots_; }

  /// Ordinary memory for a message. Returns kNone if there is none.
  std::uint32_t take_memory(std::size_t length_bytes) noexcept;
  /// Messages in ordinary memory.
  std::size_t waiting() const noexcept { return waiting_.size() - free_places_.size(); }

  /// Where a message lies, with its header. REQUIRES: the item is no part of a write; likewise below.
  std::byte* address(const Item& item) const noexcept {
    return item.kind == Item::Kind::kMessage ? slots_.address(item.index) : waiting_[item.index].get();
  }
  void give_back(const Item& item) noexcept {
    if (item.kind == Item::Kind::kMessage) return slots_.give_back(item.index);
    waiting_[item.index].reset();
    free_places_.push_back(item.index);
  }
  /// Returns false if no slot is free.
  bool move_to_slot(Item& item) noexcept;
  /// Moves the messages of a link that has ended. Without memory, they keep their slots.
  void move_from_slots(Link& link) noexcept;

 private:
  void move(Item& item, Item to) noexcept;

  static constexpr std::uint32_t kCreditSlots = 16;  ///< That messages leave to others.

  SlotPool slots_;
  std::vector<std::unique_ptr<std::byte[]>> waiting_;
  std::vector<std::uint32_t> free_places_;  ///< In waiting_.
};

}  // namespace ch3_offload
