#include "rdma/verbs/ring_entry.h"

#include <cassert>
#include <cstring>

#include "rdma/verbs/link.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kTrailerWords = sizeof(RingTrailer) / kWord;

/// A check over words, one after the other. Each step is one-to-one in its word, so that a single wrong word is always
/// noticed; any others are missed once in 2^64 times.
class Check {
 public:
  explicit Check(std::uint64_t key) noexcept : sum_(key) {}
  void add(std::uint64_t word) noexcept {
    sum_ = (sum_ ^ word) * 0x9E37'79B9'7F4A'7C15u;
    sum_ ^= sum_ >> 32;
  }
  std::uint64_t sum() const noexcept { return sum_; }

 private:
  std::uint64_t sum_;
};

}  // namespace

std::size_t seal_ring_entry(std::byte* message, std::size_t length_bytes, std::uint64_t key,
                            std::uint64_t number) noexcept {
  const std::size_t words = (length_bytes + kWord - 1) / kWord;
  std::memset(message + length_bytes, 0, words * kWord - length_bytes);
  Check check(key);
  check.add(number);
  check.add(length_bytes);
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, message + i * kWord, kWord);
    check.add(word);
  }
  const RingTrailer trailer{.check = check.sum(),
                            .number = static_cast<std::uint32_t>(number),
                            .length_bytes = static_cast<std::uint16_t>(length_bytes)};
  std::memcpy(message + words * kWord, &trailer, sizeof trailer);
  return words * kWord + sizeof trailer;
}

std::size_t read_ring_entry(RingWords entry, std::uint64_t key, std::uint64_t number,
                            std::span<std::uint64_t> copy) noexcept {
  assert(copy.size() >= entry.size() && entry.size() > kTrailerWords);
  // Relaxed: see may_be_ring_entry().
  const auto load = [&](std::size_t i) {
    return std::atomic_ref(const_cast<std::uint64_t&>(entry[i])).load(std::memory_order_relaxed);
  };
  const std::uint64_t words[kTrailerWords] = {load(entry.size() - 2), load(entry.size() - 1)};
  RingTrailer trailer;
  static_assert(sizeof words == sizeof trailer);
  std::memcpy(&trailer, words, sizeof trailer);
  const std::size_t length_bytes = trailer.length_bytes;
  if (trailer.number != static_cast<std::uint32_t>(number) || trailer.reserved != 0 ||
      length_bytes <= sizeof(SlotHeader) || ring_entry_bytes(length_bytes) > entry.size_bytes())
    return 0;
  const std::size_t count = (length_bytes + kWord - 1) / kWord;
  const std::size_t first = entry.size() - kTrailerWords - count;
  Check check(key);
  check.add(number);
  check.add(length_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    copy[i] = load(first + i);
    check.add(copy[i]);
  }
  return check.sum() == trailer.check ? length_bytes : 0;
}

}  // namespace ch3_offload
