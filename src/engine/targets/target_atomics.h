// The atomic operations of Portals 4.3 (section 3.15.4) on memory of a target entry.
//
// The target's engine carries them out, one after another, so each is atomic to all other operations through
// that engine. Memory need not be aligned. Integer overflow wraps around. Nothing here fails on what a peer
// says: is_supported() and length_of() decide before.
//
// Threads: one. Allocates nothing.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ch3_offload {

/// In the order of Portals' constants.
enum class AtomicOperation : std::uint8_t {
  kMin,
  kMax,
  kSum,
  kProduct,
  kLogicalOr,
  kLogicalAnd,
  kBitOr,
  kBitAnd,
  kLogicalXor,
  kBitXor,
  kSwap,
  kCompareSwap,              ///< Swaps if the operand is equal to the target,
  kCompareSwapNotEqual,      ///< not equal to it,
  kCompareSwapLessOrEqual,   ///< less than or equal to it,
  kCompareSwapLess,          ///< less than it,
  kCompareSwapGreaterEqual,  ///< greater than or equal to it,
  kCompareSwapGreater,       ///< greater than it.
  kMaskedSwap,               ///< Swaps the bits that are set in the operand.
  kEnd
};

/// Portals' types in the order of its constants. Then pairs of a value and a location, as MPI_MINLOC and
/// MPI_MAXLOC have them (MPI 4.0, section 6.9.4): structs of C, on which kMin and kMax look at the value first.
enum class AtomicType : std::uint8_t {
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kFloat,
  kInt64,
  kUint64,
  kDouble,
  kFloatComplex,
  kDoubleComplex,
  kLongDouble,
  kLongDoubleComplex,
  kShortInt,
  kIntInt,
  kLongInt,
  kFloatInt,
  kDoubleInt,
  kLongDoubleInt,
  kFloatFloat,    ///< MPI_2REAL.
  kDoubleDouble,  ///< MPI_2DOUBLE_PRECISION.
  kEnd
};
inline constexpr AtomicType kFirstPairType = AtomicType::kShortInt;

/// The longest element of any type: the operand of a conditional swap has room in it. Bytes.
inline constexpr std::size_t kMostElementBytes = 2 * sizeof(long double);

/// REQUIRES: `type` is one.
std::size_t element_bytes(AtomicType type) noexcept;

/// An operation that needs an operand, and is for one element: kCompareSwap to kMaskedSwap.
constexpr bool takes_operand(AtomicOperation operation) noexcept {
  return operation >= AtomicOperation::kCompareSwap && operation <= AtomicOperation::kMaskedSwap;
}
/// kSwap, and those that take an operand. They are swaps; all others are atomics.
constexpr bool is_swap(AtomicOperation operation) noexcept { return operation >= AtomicOperation::kSwap; }

/// Whether there is such an operation on such a type. Takes whatever a peer says: complex numbers have no
/// order, bits are those of integers, and pairs have kMin, kMax and kSwap only.
bool is_supported(AtomicOperation operation, AtomicType type) noexcept;

/// How much of `length_bytes` the operation changes: whole elements. REQUIRES: is_supported().
std::size_t length_of(AtomicOperation operation, AtomicType type, std::size_t length_bytes) noexcept;

/// Whether the operation changes no target: a bitwise or with zeros, by which MPI_NO_OP reads. Then apply()
/// must not be called: it would write back what it has read, over what the memory's owner has stored since.
inline bool changes_nothing(AtomicOperation operation, std::span<const std::byte> source) noexcept {
  return operation == AtomicOperation::kBitOr &&
         std::ranges::all_of(source, [](std::byte one) { return one == std::byte{0}; });
}

/// Combines each element of `target` with that of `source`. `operand`: an element, for what takes one.
/// REQUIRES: is_supported(); all three have the right lengths, and `target` overlaps none of the others.
void apply(AtomicOperation operation, AtomicType type, std::span<const std::byte> operand,
           std::span<const std::byte> source, std::span<std::byte> target) noexcept;

}  // namespace ch3_offload
