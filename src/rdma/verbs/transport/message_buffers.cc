#include "rdma/verbs/transport/message_buffers.h"

#include <cstring>
#include <exception>
#include <new>

namespace ch3_offload {

std::uint32_t MessageBuffers::take_slot(SlotUse use) noexcept {
  if (use == SlotUse::kMessage && !may_take_slot()) [[unlikely]]
    return kNone;
  const std::uint32_t slot = slots_.take();
  if (slot != kNone || slots_.count() == slots_.most()) [[likely]]
    return slot;
  try {
    if (slots_.grow()) slots_.stop_growing();  // Refused: what is there has to do.
  } catch (const std::exception&) {
    slots_.stop_growing();
  }
  return use == SlotUse::kCredit || may_take_slot() ? slots_.take() : kNone;
}

std::uint32_t MessageBuffers::take_memory(std::size_t length_bytes) noexcept {
  try {
    if (free_places_.empty()) {
      if (waiting_.size() == waiting_.capacity()) waiting_.reserve(2 * waiting_.size() + 1);
      free_places_.reserve(waiting_.capacity());  // give_back() must not allocate.
      waiting_.emplace_back();
      free_places_.push_back(static_cast<std::uint32_t>(waiting_.size() - 1));
    }
    const std::uint32_t place = free_places_.back();
    waiting_[place] = std::make_unique<std::byte[]>(length_bytes);
    free_places_.pop_back();
    return place;
  } catch (const std::bad_alloc&) {
    return kNone;
  }
}

void MessageBuffers::move(Item& item, Item to) noexcept {
  to.length_bytes = item.length_bytes;
  std::memcpy(address(to), address(item), item.length_bytes);
  give_back(item);
  item = to;
}

bool MessageBuffers::move_to_slot(Item& item) noexcept {
  const std::uint32_t slot = take_slot(SlotUse::kMessage);
  if (slot == kNone) return false;
  move(item, {Item::Kind::kMessage, slot});
  return true;
}

void MessageBuffers::move_from_slots(Link& link) noexcept {
  for (std::uint64_t number = link.retired(); number < link.next(); ++number) {
    Item& item = link.item(number);
    if (item.kind != Item::Kind::kMessage) continue;
    const std::uint32_t place = take_memory(item.length_bytes);
    if (place == kNone) return;
    move(item, {Item::Kind::kWaitingMessage, place});
  }
}

}  // namespace ch3_offload
