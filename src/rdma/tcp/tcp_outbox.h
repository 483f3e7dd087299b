// What is to leave to one peer: messages, in their order, and writes, which messages overtake between two
// parts. Between two parts only those messages go that were there when the first had left, so that a write
// leaves, too, while messages keep coming.
//
// Memory: allocated when it is made, and none later. The kernel gives pages for what is used of it.
//
// Threads: one at a time.

#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "rdma/provider.h"
#include "rdma/tcp/tcp_frames.h"

namespace ch3_offload {

class TcpOutbox {
 public:
  static constexpr std::uint32_t kMostWrites = 64;  ///< That are not done, a power of two.
  static constexpr std::size_t kSlots = 4;          ///< Of the longest messages, there is room for so many.

  /// `slot_bytes`: the longest message. Throws std::bad_alloc.
  explicit TcpOutbox(std::size_t slot_bytes)
      : slot_bytes_(slot_bytes),
        capacity_(kSlots * (sizeof(TcpRecord) + slot_bytes)),
        bytes_(std::make_unique_for_overwrite<std::byte[]>(capacity_)) {}

  /// Room for a message, or an empty span. It is where it is until commit() or the next reserve().
  std::span<std::byte> reserve(std::size_t length_bytes) noexcept {
    const std::size_t needed = sizeof(TcpRecord) + length_bytes;
    if (capacity_ - end_ < needed) {
      if (capacity_ - (end_ - begin_) < needed) return {};
      std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      first_end_ -= std::min(first_end_, begin_);
      begin_ = 0;
    }
    return {bytes_.get() + end_ + sizeof(TcpRecord), length_bytes};
  }
  /// The message that was reserved, or its first part. REQUIRES: 1 <= length_bytes <= what was reserved.
  void commit(std::size_t length_bytes) noexcept {
    put(make_tcp_record(static_cast<std::uint32_t>(length_bytes), TcpRecordKind::kSlot));
    end_ += length_bytes;
  }
  /// For the longest message.
  bool has_room() const noexcept { return capacity_ - (end_ - begin_) >= sizeof(TcpRecord) + slot_bytes_; }

  struct Write {
    const std::byte* source = nullptr;
    std::size_t length_bytes = 0;
    RemoteMemory destination;
    Immediate immediate{};
    WorkId work{};
  };
  std::uint32_t write_room() const noexcept { return kMostWrites - (last_write_ - first_write_); }
  /// REQUIRES: write_room() > 0.
  void add(const Write& write) noexcept {
    if (current_write_ == last_write_) first_end_ = end_;
    writes_[last_write_++ % kMostWrites] = write;
  }
  /// The oldest write, if all of it has left, or if `even_unsent`. Nullptr: there is none.
  const Write* done_write(bool even_unsent) const noexcept {
    const std::uint32_t until = even_unsent ? last_write_ : current_write_;
    return first_write_ != until ? &writes_[first_write_ % kMostWrites] : nullptr;
  }
  /// Whether all of the oldest write has left.
  bool has_done_writes() const noexcept { return first_write_ != current_write_; }
  void pop_write() noexcept {
    if (first_write_++ == current_write_) ++current_write_;
  }

  bool empty() const noexcept { return begin_ == end_ && current_write_ == last_write_ && part_left_ == 0; }

  /// What is next, for sendmsg(): 0 to 3 pieces.
  std::span<iovec> next() noexcept {
    std::size_t count = 0;
    const auto add_piece = [&](const std::byte* bytes, std::size_t length_bytes) {
      if (length_bytes > 0) pieces_[count++] = {const_cast<std::byte*>(bytes), length_bytes};
    };
    const bool has_write = current_write_ != last_write_;
    if (part_left_ == 0 && has_write && begin_ >= first_end_) begin_part();
    if (part_left_ == 0 && has_write) {
      add_piece(bytes_.get() + begin_, first_end_ - begin_);
      return {pieces_.data(), count};
    }
    if (part_left_ > 0) {
      add_piece(reinterpret_cast<const std::byte*>(&header_) + header_sent_, sizeof header_ - header_sent_);
      add_piece(part_, header_.record.length_bytes - part_sent_);
    }
    add_piece(bytes_.get() + begin_, end_ - begin_);
    return {pieces_.data(), count};
  }
  /// So much of it has left.
  void left(std::size_t sent_bytes) noexcept {
    if (part_left_ > 0) {
      const std::size_t of_part = sent_bytes < part_left_ ? sent_bytes : part_left_;
      const std::size_t of_header = std::min(of_part, sizeof header_ - header_sent_);
      header_sent_ += of_header;
      part_ += of_part - of_header;
      part_sent_ += of_part - of_header;
      part_left_ -= of_part;
      sent_bytes -= of_part;
      if (part_left_ == 0) end_part();
    }
    begin_ += sent_bytes;
    if (begin_ == end_) begin_ = end_ = first_end_ = 0;
  }

  /// Nothing more leaves: the connection has ended.
  void drop_messages() noexcept {
    begin_ = end_ = first_end_ = 0;
    part_left_ = 0;
  }

 private:
  void put(const TcpRecord& record) noexcept {
    std::memcpy(bytes_.get() + end_, &record, sizeof record);
    end_ += sizeof record;
  }
  void begin_part() noexcept {
    const Write& write = writes_[current_write_ % kMostWrites];
    const auto length = static_cast<std::uint32_t>(
        std::min<std::size_t>(write.length_bytes - announced_bytes_, kMostTcpPartBytes));
    header_ = sealed({.record = {length, TcpRecordKind::kWrite, {}},
                      .immediate = static_cast<std::uint32_t>(write.immediate),
                      .remote_key = static_cast<std::uint64_t>(write.destination.remote_key),
                      .address = write.destination.address + announced_bytes_});
    part_ = write.source + announced_bytes_;
    announced_bytes_ += length;
    header_sent_ = part_sent_ = 0;
    part_left_ = sizeof header_ + length;
  }
  void end_part() noexcept {
    first_end_ = end_;
    if (announced_bytes_ < writes_[current_write_ % kMostWrites].length_bytes) return;
    announced_bytes_ = 0;
    ++current_write_;
  }

  const std::size_t slot_bytes_;
  const std::size_t capacity_;
  const std::unique_ptr<std::byte[]> bytes_;  ///< Messages that have not left, from begin_ to end_.
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t first_end_ = 0;  ///< Messages until there go before the next part.

  std::array<Write, kMostWrites> writes_;  ///< By number modulo its size.
  std::uint32_t first_write_ = 0;          ///< The oldest that is not popped.
  std::uint32_t current_write_ = 0;        ///< The oldest that has not left.
  std::uint32_t last_write_ = 0;           ///< One behind the youngest.
  std::size_t announced_bytes_ = 0;        ///< Of the current write: in parts that have begun.
  TcpWriteRecord header_;                  ///< Of the current part.
  const std::byte* part_ = nullptr;        ///< What of its payload is to leave next.
  std::size_t header_sent_ = 0;
  std::size_t part_sent_ = 0;
  std::size_t part_left_ = 0;  ///< Of header and payload. 0: no part has begun.
  std::array<iovec, 3> pieces_;
};

}  // namespace ch3_offload
