#include "engine/payload_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace ch3_offload {
namespace {

constexpr std::size_t kElements = 3;
constexpr std::size_t kOrigin = 100;  ///< Of the first element, in the memory.

/// Pieces of all lengths that are copied in their own ways, neither in the order of memory nor behind the
/// element's address.
constexpr std::array<Piece, 6> kPieces{{{40, 70}, {0, 3}, {-9, 8}, {4, 5}, {200, 40}, {10, 20}}};
constexpr std::size_t kElementBytes = 70 + 3 + 8 + 5 + 40 + 20;
constexpr PayloadLayout kLayout{.kind = PayloadLayout::Kind::kPieces,
                                .piece_count = kPieces.size(),
                                .pieces = kPieces.data(),
                                .element_bytes = kElementBytes,
                                .extent_bytes = 300};

/// Where each byte of the message is, from the first element's address on.
std::vector<std::ptrdiff_t> places() {
  std::vector<std::ptrdiff_t> result;
  for (std::ptrdiff_t element = 0; element < static_cast<std::ptrdiff_t>(kElements); ++element)
    for (const Piece& piece : kPieces)
      for (std::size_t i = 0; i < piece.length_bytes; ++i)
        result.push_back(element * kLayout.extent_bytes + piece.offset_bytes + static_cast<std::ptrdiff_t>(i));
  return result;
}

std::vector<std::byte> numbered(std::size_t length, std::size_t first) {
  std::vector<std::byte> result(length);
  for (std::size_t i = 0; i < length; ++i) result[i] = static_cast<std::byte>((first + i) * 7 % 251);
  return result;
}

/// What is contiguous is copied by pieces where the destination is close ahead modulo a page.
TEST(Payload, IsCopiedWhereverTheTwoLie) {
  for (const std::size_t length : {2047u, 2048u, 2049u, 2560u, 5000u}) {
    const std::vector<std::byte> message = numbered(length, 1);
    for (std::size_t ahead = 0; ahead <= 20; ++ahead) {
      alignas(4096) std::array<std::byte, 4 * 4096> memory{};
      std::byte* const from = memory.data();
      std::byte* const to = memory.data() + 2 * 4096 + ahead;
      std::ranges::copy(message, from);
      gather({from, length, nullptr}, 0, {to, length});
      EXPECT_TRUE(std::ranges::equal(message, std::span(to, length))) << length << ", " << ahead;
      EXPECT_EQ(to[length], std::byte{0});
      EXPECT_EQ(to[-1], std::byte{0});
      std::ranges::fill(std::span(from, length), std::byte{0});
      scatter({from + ahead, length, nullptr}, 0, {to - ahead, length});
      EXPECT_TRUE(std::ranges::equal(std::span(to - ahead, length), std::span(from + ahead, length)));
    }
  }
}

class Pieces : public testing::Test {
 protected:
  Payload payload() { return {memory.data() + kOrigin, kElements * kElementBytes, &kLayout}; }
  std::byte& at(std::size_t of_message) {
    return memory[static_cast<std::size_t>(static_cast<std::ptrdiff_t>(kOrigin) + place[of_message])];
  }

  std::vector<std::byte> memory = numbered(1000, 3);
  const std::vector<std::ptrdiff_t> place = places();
};

TEST_F(Pieces, EveryRangeIsRead) {
  for (std::size_t begin = 0; begin < place.size(); ++begin) {
    for (std::size_t end = begin + 1; end <= place.size(); end += 1 + end % 5) {
      std::vector<std::byte> out(end - begin);
      gather(payload(), begin, out);
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], at(begin + i)) << begin << " to " << end;
    }
  }
}

TEST_F(Pieces, EveryRangeIsWrittenAndNothingElse) {
  const std::vector<std::byte> before = memory;
  for (std::size_t begin = 0; begin < place.size(); begin += 3) {
    for (std::size_t end = begin + 1; end <= place.size(); end += 1 + end % 7) {
      memory = before;
      const std::vector<std::byte> in = numbered(end - begin, 90);
      scatter(payload(), begin, in);
      std::vector<std::byte> wanted = before;
      wanted.swap(memory);  // `wanted` is what was written, `memory` what it should be.
      for (std::size_t i = 0; i < in.size(); ++i) at(begin + i) = in[i];
      ASSERT_EQ(wanted, memory) << begin << " to " << end;
    }
  }
}

TEST_F(Pieces, WhatIsBeyondTheCapacityIsDropped) {
  Payload cut = payload();
  cut.length_bytes = kElementBytes + 50;
  const std::vector<std::byte> before = memory;
  scatter(cut, kElementBytes + 40, numbered(30, 90));
  std::vector<std::byte> wanted = before;
  wanted.swap(memory);
  for (std::size_t i = 0; i < 10; ++i) at(kElementBytes + 40 + i) = numbered(30, 90)[i];
  EXPECT_EQ(wanted, memory);
  scatter(cut, cut.length_bytes, numbered(1, 0));
  EXPECT_EQ(wanted, memory);
}

/// MPI_BOTTOM: the pieces have the addresses.
TEST_F(Pieces, MayBeAbsolute) {
  std::array<std::byte, 4> value{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  const Piece piece{reinterpret_cast<std::intptr_t>(value.data()), value.size()};
  const PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces,
                             .piece_count = 1,
                             .pieces = &piece,
                             .element_bytes = value.size(),
                             .extent_bytes = 0};
  std::array<std::byte, 3> out{};
  gather({nullptr, value.size(), &layout}, 1, out);
  EXPECT_EQ(out, (std::array<std::byte, 3>{std::byte{2}, std::byte{3}, std::byte{4}}));
}

}  // namespace
}  // namespace ch3_offload
