#include "engine/entry_memory.h"

#include <new>

namespace ch3_offload {

void EntryPart::pack(const void* part, std::size_t offset_bytes, std::byte* destination,
                     std::size_t length_bytes) noexcept {
  const auto& its = *static_cast<const EntryPart*>(part);
  gather(its.memory, its.offset_bytes + offset_bytes, {destination, length_bytes});
}

void EntryPart::unpack(void* part, std::size_t offset_bytes, const std::byte* source,
                       std::size_t length_bytes) noexcept {
  const auto& its = *static_cast<const EntryPart*>(part);
  scatter(its.memory, its.offset_bytes + offset_bytes, {source, length_bytes});
}

Payload payload_of(const TargetPlacement& placement, EntryPart& part) noexcept {
  if (placement.length_bytes == 0) return {};
  const TargetDescription& its = placement.entry->its;
  const TargetReach& reach = placement.entry->reach;
  if (reach != nullptr) {
    part = {reach, *reach, placement.offset_bytes};
    if (reach->layout == nullptr)
      return {reach->address + placement.offset_bytes, placement.length_bytes, nullptr};
  } else {
    if (its.layout == nullptr) return {placement.start(), placement.length_bytes, nullptr};
    part = {nullptr, {its.start, its.length_bytes, its.layout}, placement.offset_bytes};
  }
  static constexpr PayloadLayout kLayout{
      .kind = PayloadLayout::Kind::kPacked, .pack = &EntryPart::pack, .unpack = &EntryPart::unpack};
  return {reinterpret_cast<std::byte*>(&part), placement.length_bytes, &kLayout};
}

EntryMemory::EntryMemory(const TargetPlacement& placement) noexcept
    : payload_(payload_of(placement, part_)), bytes_(payload_.address, payload_.length_bytes) {
  if (payload_.layout == nullptr) return;
  copy_.reset(new (std::nothrow) std::byte[payload_.length_bytes]);
  bytes_ = {copy_.get(), copy_ == nullptr ? 0 : payload_.length_bytes};
  gather(payload_, 0, bytes_);
}

}  // namespace ch3_offload
