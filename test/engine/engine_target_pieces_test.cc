// Entries whose memory is in pieces: every operation, short and long, at every kind of offset, by a peer and
// by the process itself. What does not fit a slot goes through slots, also where a provider could write.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/target_world.h"

namespace ch3_offload {
namespace {

/// Memory in pieces of different lengths with gaps between them, in an order of their own.
class PieceMemory {
 public:
  static constexpr std::byte kGap{0xA5};

  explicit PieceMemory(std::vector<std::size_t> lengths) : lengths_(std::move(lengths)) {
    std::size_t end = 0;
    for (const std::size_t length : lengths_) end += length + kGapBytes;
    memory.assign(end, kGap);
    for (const std::size_t length : lengths_) {
      end -= length + kGapBytes;  // The first piece is the last in memory.
      pieces_.push_back({static_cast<std::ptrdiff_t>(end), length});
      length_bytes += length;
    }
    layout_ = {.kind = PayloadLayout::Kind::kPieces,
               .piece_count = static_cast<std::uint32_t>(pieces_.size()),
               .pieces = pieces_.data(),
               .element_bytes = length_bytes,
               .extent_bytes = static_cast<std::ptrdiff_t>(memory.size())};
    write(std::vector<std::byte>(length_bytes));
  }
  PieceMemory(const PieceMemory&) = delete;
  PieceMemory& operator=(const PieceMemory&) = delete;

  void describe(TargetDescription& entry) {
    entry.start = memory.data();
    entry.length_bytes = length_bytes;
    entry.layout = &layout_;
  }
  void write(const std::vector<std::byte>& bytes) {
    auto from = bytes.begin();
    for (const Piece& piece : pieces_) {
      std::copy(from, from + static_cast<std::ptrdiff_t>(piece.length_bytes),
                memory.begin() + piece.offset_bytes);
      from += static_cast<std::ptrdiff_t>(piece.length_bytes);
    }
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes;
    for (const Piece& piece : pieces_)
      bytes.insert(bytes.end(), memory.begin() + piece.offset_bytes,
                   memory.begin() + piece.offset_bytes + static_cast<std::ptrdiff_t>(piece.length_bytes));
    return bytes;
  }
  std::byte* at(std::size_t offset) {
    for (const Piece& piece : pieces_) {
      if (offset < piece.length_bytes) return memory.data() + piece.offset_bytes + offset;
      offset -= piece.length_bytes;
    }
    return nullptr;
  }
  void expect_gaps_untouched() const {
    std::vector<bool> is_piece(memory.size());
    for (const Piece& piece : pieces_)
      for (std::size_t i = 0; i < piece.length_bytes; ++i)
        is_piece[static_cast<std::size_t>(piece.offset_bytes) + i] = true;
    for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_TRUE(is_piece[i] || memory[i] == kGap) << i;
  }

  std::vector<std::byte> memory;
  std::size_t length_bytes = 0;
  PayloadLayout layout_{};

 private:
  static constexpr std::size_t kGapBytes = 5;
  std::vector<std::size_t> lengths_;
  std::vector<Piece> pieces_;
};

class EngineTargetPieces : public TargetWorld, public testing::WithParamInterface<bool> {
 protected:
  EngineTargetPieces() {
    network_config.max_slot_bytes = 2048;
    network_config.write_threshold_bytes = 500;
  }
  static std::vector<std::byte> part(const std::vector<std::byte>& bytes, std::size_t offset,
                                     std::size_t length) {
    return {bytes.begin() + static_cast<std::ptrdiff_t>(offset),
            bytes.begin() + static_cast<std::ptrdiff_t>(offset + length)};
  }
  std::uint32_t initiator() { return GetParam() ? 1 : 0; }

  PieceMemory memory{{1, 700, 3, 8, 64, 2000, 5, 3000, 13}};
};

INSTANTIATE_TEST_SUITE_P(By, EngineTargetPieces, testing::Bool(),
                         [](const auto& one) { return one.param ? "Itself" : "APeer"; });

TEST_P(EngineTargetPieces, PutsAndGetsAtAllOffsets) {
  make();
  TargetDescription entry;
  entry.options = kAllowPut | kAllowGet | kNoLinkEvent;
  memory.describe(entry);
  append(1, entry);
  std::vector<std::byte> expected(memory.length_bytes);
  for (const std::size_t length : {1UL, 12UL, 700UL, 1900UL, 4000UL, memory.length_bytes}) {
    for (const std::size_t offset : {0UL, 1UL, 2UL, 703UL, 780UL, 2775UL}) {
      if (offset + length > memory.length_bytes) continue;
      SCOPED_TRACE(std::to_string(length) + " bytes at " + std::to_string(offset));
      std::vector<std::byte> data = pattern(length, offset + length), got(length);
      std::copy(data.begin(), data.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
      TargetRequest put = put_from(initiator(), data);
      put.offset_bytes = offset;
      ASSERT_EQ(start(initiator(), 1, put), Status::kOk);
      settle();
      ASSERT_EQ(memory.read(), expected);
      TargetRequest get = get_from(initiator(), got);
      get.offset_bytes = offset;
      ASSERT_EQ(start(initiator(), 1, get), Status::kOk);
      settle();
      ASSERT_EQ(got, data);
      const auto events = take(1, at(1).target_queue);
      ASSERT_EQ(events.size(), 2u);
      EXPECT_EQ(events[0].start, memory.at(offset));
      EXPECT_EQ(events[1].start, memory.at(offset));
    }
  }
  memory.expect_gaps_untouched();
  EXPECT_EQ(at(1).provider->regions(), 0u);
}

TEST_P(EngineTargetPieces, WhatDoesNotFitIsCut) {
  make();
  TargetDescription entry;
  entry.options = kAllowPut | kAllowGet | kNoLinkEvent;
  memory.describe(entry);
  append(1, entry);
  std::vector<std::byte> data = pattern(4000);
  TargetRequest put = put_from(initiator(), data);
  put.offset_bytes = memory.length_bytes - 20;
  ASSERT_EQ(start(initiator(), 1, put), Status::kOk);
  settle();
  EXPECT_EQ(begun(initiator()), "send 0, ack 20");
  EXPECT_EQ(part(memory.read(), memory.length_bytes - 20, 20), part(data, 0, 20));
  put.offset_bytes = memory.length_bytes + 5;
  ASSERT_EQ(start(initiator(), 1, put), Status::kOk);
  settle();
  EXPECT_EQ(begun(initiator()), "send 0, ack 0");
  memory.expect_gaps_untouched();
}

/// Elements lie across the pieces.
TEST_P(EngineTargetPieces, AtomicsCombineWhatLiesAcrossThem) {
  make();
  TargetDescription entry;
  entry.options = kAllowPut | kAllowGet | kNoLinkEvent;
  memory.describe(entry);
  append(1, entry);
  std::vector<std::uint64_t> before(100), operand(100), expected(100);
  for (std::uint64_t i = 0; i < 100; ++i) before[i] = i << 40 | i, operand[i] = 3 * i + 1;
  for (std::uint64_t i = 0; i < 100; ++i) expected[i] = before[i] + operand[i];
  const auto bytes_of = [](const std::vector<std::uint64_t>& words) {
    const auto bytes = std::as_bytes(std::span(words));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  std::vector<std::byte> all(memory.length_bytes), data = bytes_of(operand), old(800);
  const std::vector<std::byte> image = bytes_of(before);
  std::copy(image.begin(), image.end(), all.begin() + 2);
  memory.write(all);
  TargetRequest request = put_from(initiator(), data);
  request.operation = TargetOperation::kFetchAtomic;
  request.atomic_operation = AtomicOperation::kSum;
  request.atomic_type = AtomicType::kUint64;
  request.destination = origin_of(initiator(), old);
  request.offset_bytes = 2;
  ASSERT_EQ(start(initiator(), 1, request), Status::kOk);
  settle();
  EXPECT_EQ(begun(initiator()), "send 0, reply 800");
  EXPECT_EQ(old, image);
  EXPECT_EQ(part(memory.read(), 2, 800), bytes_of(expected));
  memory.expect_gaps_untouched();
}

TEST_P(EngineTargetPieces, ALayoutThatIsNoListOfPiecesIsRefused) {
  make();
  TargetId id{};
  const auto refused = [&](const PayloadLayout& layout) {
    TargetDescription entry;
    memory.describe(entry);
    entry.layout = &layout;
    return table(1).append(entry, TargetListKind::kPriority, id);
  };
  PayloadLayout layout = memory.layout_;
  EXPECT_EQ(refused(layout), Status::kOk);
  layout.kind = PayloadLayout::Kind::kPacked;
  EXPECT_EQ(refused(layout), Status::kUnsupported);
  layout = memory.layout_;
  layout.piece_count = 0;
  EXPECT_EQ(refused(layout), Status::kUnsupported);
  layout.piece_count = kMostEntryPieces + 1;
  EXPECT_EQ(refused(layout), Status::kUnsupported);
  layout = memory.layout_;
  --layout.element_bytes;
  EXPECT_EQ(refused(layout), Status::kUnsupported);
}

}  // namespace
}  // namespace ch3_offload
