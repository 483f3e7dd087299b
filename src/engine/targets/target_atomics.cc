#include "engine/targets/target_atomics.h"

#include <algorithm>
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

template <class T>
T combined(AtomicOperation operation, T source, T target) noexcept {
  const bool source_is_true = source != T{};
  const bool target_is_true = target != T{};
  switch (operation) {
    case AtomicOperation::kSum: return sum(source, target);
    case AtomicOperation::kProduct: return product(source, target);
    case AtomicOperation::kLogicalOr: return static_cast<T>(source_is_true || target_is_true);
    case AtomicOperation::kLogicalAnd: return static_cast<T>(source_is_true && target_is_true);
    case AtomicOperation::kLogicalXor: return static_cast<T>(source_is_true != target_is_true);
    default: break;
  }
  if constexpr (!kIsComplex<T>) {
    if (operation == AtomicOperation::kMin) return std::min(target, source);
    if (operation == AtomicOperation::kMax) return std::max(target, source);
  }
  if constexpr (std::is_integral_v<T>) {
    if (operation == AtomicOperation::kBitOr) return static_cast<T>(source | target);
    if (operation == AtomicOperation::kBitAnd) return static_cast<T>(source & target);
    if (operation == AtomicOperation::kBitXor) return static_cast<T>(source ^ target);
  }
  return source;  // kSwap.
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
    for (std::size_t at = 0; at < target.size(); at += sizeof(T)) {
      const T mine = load<T>(source.data() + at);
      const T theirs = load<T>(target.data() + at);
      if (takes_operand(operation) && !swaps(operation, load<T>(operand.data()), theirs)) continue;
      const T result = takes_operand(operation) ? mine : combined(operation, mine, theirs);
      std::memcpy(target.data() + at, &result, sizeof result);
    }
  });
}

}  // namespace ch3_offload
