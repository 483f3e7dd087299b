#include "portals/memory_descriptor.h"

#include "portals/iovec.h"
#include "portals/translation.h"

namespace ch3_offload::portals {

MemoryDescriptor::MemoryDescriptor(const ptl_md_t& md, const Reports& reports)
    : options_(md.options),
      origin_options_(origin_options(md.options)),
      reports_(reports),
      start_((md.options & PTL_IOVEC) != 0 ? nullptr : static_cast<std::byte*>(md.start)),
      length_bytes_(md.length) {
  if (!has(PTL_IOVEC)) return;
  length_bytes_ = 0;
  const Piece* const parts = pieces_of(md.start);
  for (ptl_size_t i = 0; i < md.length; ++i) {
    if (parts[i].length_bytes == 0) continue;
    pieces_.push_back(parts[i]);
    length_bytes_ += parts[i].length_bytes;
  }
}

TargetOrigin MemoryDescriptor::origin(std::uint64_t offset_bytes, std::uint64_t length_bytes) {
  TargetOrigin origin;
  origin.memory = payload(offset_bytes, length_bytes);
  origin.options = origin_options_;
  origin.queue = reports_.queue;
  origin.counter = reports_.counter;
  return origin;
}

Payload MemoryDescriptor::payload(std::uint64_t offset_bytes, std::uint64_t length_bytes) {
  Payload payload;
  payload.length_bytes = length_bytes;
  if (length_bytes == 0) return payload;
  if (!has(PTL_IOVEC)) {
    // The descriptor may begin at null and cover the whole address space: then the offset is the address.
    payload.address = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(start_) + offset_bytes);
    return payload;
  }
  std::uint64_t skipped = offset_bytes;
  const Piece* piece = pieces_.data();
  for (; skipped >= piece->length_bytes; ++piece) skipped -= piece->length_bytes;
  if (length_bytes <= piece->length_bytes - skipped) {
    payload.address = reinterpret_cast<std::byte*>(piece->offset_bytes + static_cast<std::intptr_t>(skipped));
    return payload;
  }
  payload.layout = &layout_behind(offset_bytes);
  return payload;
}

const PayloadLayout& MemoryDescriptor::layout_behind(std::uint64_t offset_bytes) {
  if (const auto known = tails_.find(offset_bytes); known != tails_.end()) return known->second.layout;
  Tail tail;
  std::uint64_t skipped = offset_bytes;
  for (const Piece& piece : pieces_) {
    if (skipped >= piece.length_bytes) {
      skipped -= piece.length_bytes;
      continue;
    }
    tail.pieces.push_back(
        {piece.offset_bytes + static_cast<std::ptrdiff_t>(skipped), piece.length_bytes - skipped});
    skipped = 0;
  }
  tail.layout.kind = PayloadLayout::Kind::kPieces;
  tail.layout.piece_count = static_cast<std::uint32_t>(tail.pieces.size());
  tail.layout.pieces = tail.pieces.data();  // Stays where it is when the vector moves.
  tail.layout.element_bytes = length_bytes_ - offset_bytes;
  return tails_.emplace(offset_bytes, std::move(tail)).first->second.layout;
}

}  // namespace ch3_offload::portals
