// The entries of a polled ring: messages that a peer writes straight into memory that its receiver polls
// (verbs_rings.cc). Only their form; docs/wire-format.md.
//
// A ring has one entry for each item that may be on its way (link.h): item n goes to entry n modulo kRingEntries. A
// message lies at the entry's end: SlotHeader and payload, zeros up to a multiple of 8 bytes, RingTrailer. So what most
// devices write last is at a fixed place, and the receiver polls that.
//
// RULE WHOLE OR NOTHING. Nothing is assumed about the order in which the bytes of a write become visible. An entry counts
// only if it names the number that is next, and its check fits what was copied out of it: of every bit of the entry,
// the whole number, and a key that the receiver draws at random for each opening of the ring. So a part of a write does
// not count yet, and what an earlier owner, an earlier opening or an earlier lap left there never does. The copy is what is
// checked and delivered: a peer may change the entry at any time.
//
// Threads: none of their own. Neither function allocates.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ch3_offload {

/// At the end of every entry. Little-endian.
struct RingTrailer {
  std::uint64_t check = 0;
  std::uint32_t number = 0;        ///< Of the item; its lower 32 bits.
  std::uint16_t length_bytes = 0;  ///< Of the message, with its SlotHeader, without the zeros.
  std::uint16_t reserved = 0;      ///< 0.
};
static_assert(sizeof(RingTrailer) == 16 && offsetof(RingTrailer, number) == 8 &&
              offsetof(RingTrailer, length_bytes) == 12);

/// Behind the SlotHeader of the messages that open and close rings. Little-endian.
struct RingBody {
  std::uint64_t address = 0;      ///< Of entry 0. 0 but in kRingOpen,
  std::uint64_t key = 0;          ///< Of this opening; goes into every check.
  std::uint32_t remote_key = 0;   ///< like this,
  std::uint32_t entry_bytes = 0;  ///< and this.
  std::uint32_t link = 0;         ///< The link's number: a later one has sent this again when it is another.
  std::uint32_t reserved = 0;     ///< 0.
};
static_assert(sizeof(RingBody) == 32 && offsetof(RingBody, key) == 8 &&
              offsetof(RingBody, remote_key) == 16 && offsetof(RingBody, link) == 24);

inline constexpr std::uint32_t kRingEntries = 64;
/// Of our own rings. What fits is copied into the work request by most devices, too.
inline constexpr std::uint32_t kRingEntryBytes = 256;
/// Of a ring that a peer offers: a multiple of 64 up to this.
inline constexpr std::uint32_t kLongestRingEntryBytes = 4096;
inline constexpr std::size_t kRingBytes = std::size_t{kRingEntries} * kRingEntryBytes;

/// What an entry of `length_bytes`, SlotHeader included, takes.
constexpr std::size_t ring_entry_bytes(std::size_t length_bytes) noexcept {
  return (length_bytes + 7) / 8 * 8 + sizeof(RingTrailer);
}

/// Makes an entry of the message at `message`, which is aligned to 8 bytes and has room for ring_entry_bytes(); returns
/// that.
std::size_t seal_ring_entry(std::byte* message, std::size_t length_bytes, std::uint64_t key,
                            std::uint64_t number) noexcept;

/// The words of an entry, as its owner's peer writes them.
using RingWords = std::span<const std::uint64_t>;

/// Whether the entry may be that of item `number`: all that is looked at while nothing comes.
inline bool may_be_ring_entry(RingWords entry, std::uint64_t number) noexcept {
  // Relaxed: no order is relied upon (RULE WHOLE OR NOTHING). On the other side is a device, no thread.
  const std::uint64_t last =
      std::atomic_ref(const_cast<std::uint64_t&>(entry.back())).load(std::memory_order_relaxed);
  return static_cast<std::uint32_t>(last) == static_cast<std::uint32_t>(number) && last >> 32 != 0;
}

/// Copies the message of item `number` to `copy`, if it is in `entry` and whole. Returns its length, more than a SlotHeader and
/// at most copy.size_bytes() - sizeof(RingTrailer); 0: it is not there. Any content.
/// REQUIRES: `copy` is as large as the entry.
std::size_t read_ring_entry(RingWords entry, std::uint64_t key, std::uint64_t number,
                            std::span<std::uint64_t> copy) noexcept;

}  // namespace ch3_offload
