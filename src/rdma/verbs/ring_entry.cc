#include "rdma/verbs/ring_entry.h"

#include <cassert>
#include <cstring>

#include "rdma/verbs/link.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kTrailerWords = sizeof(RingTrailer) / kWord;

std::uint64_t mix(std::uint64_t chain, std::uint64_t word) noexcept {
  chain = (chain ^ word) * 0x9E37'79B9'7F4A'7C15u;
  return chain ^ chain >> 32;
}

/// The check of an entry of `words` words, which `word(i)` gives. Two chains, so that the processor works on both at
/// once. Each step is one-to-one in its word, so a single wrong word is always noticed; several are missed once in 2^64
/// times.
template <class Word>
std::uint64_t check_of(std::uint64_t key, std::uint64_t number, std::size_t length_bytes, std::size_t words,
                       Word word) noexcept {
  std::uint64_t even = mix(key, number << 12 | length_bytes);
  std::uint64_t odd = ~even;
  std::size_t i = 0;
  for (; i + 1 < words; i += 2) {
    even = mix(even, word(i));
    odd = mix(odd, word(i + 1));
  }
  if (i < words) even = mix(even, word(i));
  return mix(even, odd);
}
static_assert(kLongestRingEntryBytes <= 1u << 12, "a length fits below the number");

}  // namespace

std::size_t seal_ring_entry(std::byte* message, std::size_t length_bytes, std::uint64_t key,
                            std::uint64_t number) noexcept {
  const std::size_t words = (length_bytes + kWord - 1) / kWord;
  std::memset(message + length_bytes, 0, words * kWord - length_bytes);
  const auto word = [message](std::size_t i) {
    std::uint64_t value;
    std::memcpy(&value, message + i * kWord, kWord);
    return value;
  };
  const RingTrailer trailer{.check = check_of(key, number, length_bytes, words, word),
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
  const auto word = [&](std::size_t i) { return copy[i] = load(first + i); };
  return check_of(key, number, length_bytes, count, word) == trailer.check ? length_bytes : 0;
}

}  // namespace ch3_offload
