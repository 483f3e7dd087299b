#include "engine/targets/target_atomics.h"

#include <array>
#include <complex>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace ch3_offload {

namespace {

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

template <class Value, class Location>
struct Pair {
  Value value;
  Location location;
};

/// Calls `visit(T{})` with the C++ type of a pair.
template <class Visit>
auto with_pair_type(AtomicType type, const Visit& visit) noexcept {
  switch (type) {
    case AtomicType::kShortInt: return visit(Pair<short, int>{});
    case AtomicType::kIntInt: return visit(Pair<int, int>{});
    case AtomicType::kLongInt: return visit(Pair<long, int>{});
    case AtomicType::kFloatInt: return visit(Pair<float, int>{});
    case AtomicType::kDoubleInt: return visit(Pair<double, int>{});
    case AtomicType::kLongDoubleInt: return visit(Pair<long double, int>{});
    case AtomicType::kFloatFloat: return visit(Pair<float, float>{});
    default: return visit(Pair<double, double>{});
  }
}

/// Calls `visit(T{})` with the C++ type of one that is no pair.
template <class Visit>
auto with_type(AtomicType type, const Visit& visit) noexcept {
  switch (type) {
    case AtomicType::kInt8: return visit(std::int8_t{});
    case AtomicType::kUint8: return visit(std::uint8_t{});
    case AtomicType::kInt16: return visit(std::int16_t{});
    case AtomicType::kUint16: return visit(std::uint16_t{});
    case AtomicType::kInt32: return visit(std::int32_t{});
    case AtomicType::kUint32: return visit(std::uint32_t{});
    case AtomicType::kFloat: return visit(float{});
    case AtomicType::kInt64: return visit(std::int64_t{});
    case AtomicType::kUint64: return visit(std::uint64_t{});
    case AtomicType::kDouble: return visit(double{});
    case AtomicType::kFloatComplex: return visit(std::complex<float>{});
    case AtomicType::kDoubleComplex: return visit(std::complex<double>{});
    case AtomicType::kLongDouble: return visit((long double){});
    default: return visit(std::complex<long double>{});
  }
}

/// Integers wrap around: unsigned, and no type that is promoted to int.
template <class T>
T wrapped(std::uint64_t value) noexcept {
  return static_cast<T>(value);
}

template <class T>
T sum(T a, T b) noexcept {
  if constexpr (std::is_integral_v<T>) {
    return wrapped<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <class T>
T product(T a, T b) noexcept {
  if constexpr (std::is_integral_v<T>) {
    return wrapped<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

/// Calls `visit` with a function that combines two elements. REQUIRES: is_supported(), and no swap.
template <class T, class Visit>
void with_operation(AtomicOperation operation, const Visit& visit) noexcept {
  switch (operation) {
    case AtomicOperation::kSum: return visit([](T a, T b) { return sum(a, b); });
    case AtomicOperation::kProduct: return visit([](T a, T b) { return product(a, b); });
    case AtomicOperation::kLogicalOr:
      return visit([](T a, T b) { return static_cast<T>(a != T{} || b != T{}); });
    case AtomicOperation::kLogicalAnd:
      return visit([](T a, T b) { return static_cast<T>(a != T{} && b != T{}); });
    case AtomicOperation::kLogicalXor:
      return visit([](T a, T b) { return static_cast<T>((a != T{}) != (b != T{})); });
    default: break;
  }
  if constexpr (!kIsComplex<T>) {
    if (operation == AtomicOperation::kMin) return visit([](T a, T b) { return a < b ? a : b; });
    if (operation == AtomicOperation::kMax) return visit([](T a, T b) { return b < a ? a : b; });
  }
  if constexpr (std::is_integral_v<T>) {
    if (operation == AtomicOperation::kBitOr) return visit([](T a, T b) { return static_cast<T>(a | b); });
    if (operation == AtomicOperation::kBitAnd) return visit([](T a, T b) { return static_cast<T>(a & b); });
    if (operation == AtomicOperation::kBitXor) return visit([](T a, T b) { return static_cast<T>(a ^ b); });
  }
}

/// Combines many elements at once: a loop of known length, which compilers make vectors of.
template <class T, class Combine>
void combine_all(std::span<const std::byte> source, std::span<std::byte> target, Combine combine) noexcept {
  std::array<T, 256 / sizeof(T)> mine, theirs;
  const std::byte* from = source.data();
  std::byte* to = target.data();
  std::size_t left_bytes = target.size();
  for (; left_bytes >= sizeof mine; left_bytes -= sizeof mine) {
    std::memcpy(mine.data(), from, sizeof mine);
    std::memcpy(theirs.data(), to, sizeof theirs);
    for (std::size_t i = 0; i < mine.size(); ++i) theirs[i] = combine(mine[i], theirs[i]);
    std::memcpy(to, theirs.data(), sizeof theirs);
    from += sizeof mine;
    to += sizeof mine;
  }
  for (; left_bytes > 0; left_bytes -= sizeof(T)) {
    std::memcpy(mine.data(), from, sizeof(T));
    std::memcpy(theirs.data(), to, sizeof(T));
    theirs[0] = combine(mine[0], theirs[0]);
    std::memcpy(to, theirs.data(), sizeof(T));
    from += sizeof(T);
    to += sizeof(T);
  }
}

/// Whether a conditional swap swaps.
template <class T>
bool swaps(AtomicOperation operation, T operand, T target) noexcept {
  if (operation == AtomicOperation::kCompareSwap) return operand == target;
  if (operation == AtomicOperation::kCompareSwapNotEqual) return operand != target;
  if constexpr (!kIsComplex<T>) {
    if (operation == AtomicOperation::kCompareSwapLessOrEqual) return operand <= target;
    if (operation == AtomicOperation::kCompareSwapLess) return operand < target;
    if (operation == AtomicOperation::kCompareSwapGreaterEqual) return operand >= target;
    return operand > target;
  }
  return false;
}

template <class T>
T load(const std::byte* address) noexcept {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

/// kMin and kMax. Of equal values, the lower location counts.
template <class T>
bool is_preferred(AtomicOperation operation, const T& source, const T& target) noexcept {
  if (source.value == target.value) return source.location < target.location;
  return operation == AtomicOperation::kMin ? source.value < target.value : source.value > target.value;
}

void apply_to_pairs(AtomicOperation operation, AtomicType type, std::span<const std::byte> source,
                    std::span<std::byte> target) noexcept {
  with_pair_type(type, [&](auto kind) {
    using T = decltype(kind);
    for (std::size_t at = 0; at < target.size(); at += sizeof(T)) {
      const T mine = load<T>(source.data() + at);
      if (!is_preferred(operation, mine, load<T>(target.data() + at))) continue;
      // What is between the two, or behind them, is not the pair's.
      std::memcpy(target.data() + at, &mine.value, sizeof mine.value);
      std::memcpy(target.data() + at + offsetof(T, location), &mine.location, sizeof mine.location);
    }
  });
}

void swap_under_mask(std::span<const std::byte> mask, std::span<const std::byte> source,
                     std::span<std::byte> target) noexcept {
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = (mask[i] & source[i]) | (~mask[i] & target[i]);
}

constexpr bool is_complex(AtomicType type) noexcept {
  return type == AtomicType::kFloatComplex || type == AtomicType::kDoubleComplex ||
         type == AtomicType::kLongDoubleComplex;
}
constexpr bool is_integer(AtomicType type) noexcept {
  return !is_complex(type) && type != AtomicType::kFloat && type != AtomicType::kDouble &&
         type != AtomicType::kLongDouble;
}

}  // namespace

std::size_t element_bytes(AtomicType type) noexcept {
  if (type >= kFirstPairType) return with_pair_type(type, [](auto value) { return sizeof value; });
  return with_type(type, [](auto value) { return sizeof value; });
}

bool is_supported(AtomicOperation operation, AtomicType type) noexcept {
  if (operation >= AtomicOperation::kEnd || type >= AtomicType::kEnd) return false;
  if (type >= kFirstPairType)
    return operation == AtomicOperation::kMin || operation == AtomicOperation::kMax ||
           operation == AtomicOperation::kSwap;
  switch (operation) {
    case AtomicOperation::kBitOr:
    case AtomicOperation::kBitAnd:
    case AtomicOperation::kBitXor:
    case AtomicOperation::kMaskedSwap: return is_integer(type);
    case AtomicOperation::kMin:
    case AtomicOperation::kMax:
    case AtomicOperation::kCompareSwapLessOrEqual:
    case AtomicOperation::kCompareSwapLess:
    case AtomicOperation::kCompareSwapGreaterEqual:
    case AtomicOperation::kCompareSwapGreater: return !is_complex(type);
    default: return true;
  }
}

std::size_t length_of(AtomicOperation operation, AtomicType type, std::size_t length_bytes) noexcept {
  const std::size_t one = element_bytes(type);
  return takes_operand(operation) ? (length_bytes < one ? 0 : one) : length_bytes - length_bytes % one;
}

void apply(AtomicOperation operation, AtomicType type, std::span<const std::byte> operand,
           std::span<const std::byte> source, std::span<std::byte> target) noexcept {
  if (operation == AtomicOperation::kSwap) {
    if (!target.empty()) std::memcpy(target.data(), source.data(), target.size());
    return;
  }
  if (operation == AtomicOperation::kMaskedSwap) return swap_under_mask(operand, source, target);
  if (type >= kFirstPairType) return apply_to_pairs(operation, type, source, target);
  with_type(type, [&](auto kind) {
    using T = decltype(kind);
    if (!takes_operand(operation))
      return with_operation<T>(operation, [&](auto combine) { combine_all<T>(source, target, combine); });
    // One element.
    if (target.empty() || !swaps(operation, load<T>(operand.data()), load<T>(target.data()))) return;
    std::memcpy(target.data(), source.data(), sizeof(T));
  });
}

}  // namespace ch3_offload
