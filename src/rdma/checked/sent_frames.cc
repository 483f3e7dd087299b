#include "rdma/checked/sent_frames.h"

#include <cassert>
#include <cstring>

namespace ch3_offload {

SentFrames::SentFrames(std::size_t longest_bytes)
    : bytes_(bytes_for(longest_bytes)), memory_(new std::byte[bytes_]) {}

SentFrames::Record SentFrames::record(std::uint64_t at) const noexcept {
  Record record;
  std::memcpy(&record, place(at), sizeof record);
  return record;
}

void SentFrames::put(std::uint64_t at, Record record) noexcept {
  std::memcpy(place(at), &record, sizeof record);
}

/// Of the cursor's frame, which is there. The cursor moves to it if it stands before the end of the ring.
SentFrames::Record SentFrames::record_of(Cursor& cursor) const noexcept {
  Record its = record(cursor.at);
  if (its.length_bytes == kSkip) {
    cursor.at += bytes_ - cursor.at % bytes_;
    its = record(cursor.at);
  }
  return its;
}

void SentFrames::step(Cursor& cursor) const noexcept {
  const Record its = record_of(cursor);
  cursor.at += record_bytes(its.length_bytes);
  ++cursor.number;
}

std::span<std::byte> SentFrames::reserve(std::size_t length_bytes) noexcept {
  const std::size_t needed = record_bytes(length_bytes);
  const std::size_t left = bytes_ - end_.at % bytes_;
  reserved_at_ = left < needed ? end_.at + left : end_.at;
  if (reserved_at_ + needed - oldest_.at > bytes_) return {};
  return reserved(length_bytes);
}

void SentFrames::commit(std::size_t length_bytes, bool is_part) noexcept {
  if (reserved_at_ != end_.at) put(end_.at, {kSkip, 0});
  put(reserved_at_, {static_cast<std::uint32_t>(length_bytes), is_part});
  end_ = {reserved_at_ + record_bytes(length_bytes), end_.number + 1};
}

std::optional<SentFrames::Frame> SentFrames::unsent() noexcept {
  if (is_all_sent()) return {};
  const Record its = record_of(unsent_);
  return Frame{{place(unsent_.at) + sizeof(Record), its.length_bytes}, its.is_part != 0};
}

void SentFrames::sent() noexcept {
  assert(!is_all_sent());
  step(unsent_);
  if (static_cast<std::int32_t>(unsent_.number - most_sent_) > 0) most_sent_ = unsent_.number;
}

bool SentFrames::received(std::uint32_t number) noexcept {
  const auto count = static_cast<std::int32_t>(number - oldest_.number);
  if (count <= 0) return true;
  if (count > static_cast<std::int32_t>(most_sent_ - oldest_.number)) return false;
  while (oldest_.number != number) step(oldest_);
  if (static_cast<std::int32_t>(oldest_.number - unsent_.number) > 0) unsent_ = oldest_;
  return true;
}

}  // namespace ch3_offload
