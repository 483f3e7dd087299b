// Atomic operations on memory of a target entry: each operation, each type, and what there is not.

#include "engine/targets/target_atomics.h"

#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <limits>
#include <vector>

namespace ch3_offload {
namespace {

using enum AtomicOperation;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// What is in the target then.
template <class T>
T applied(AtomicOperation operation, AtomicType type, T source, T target, T operand = {}) {
  EXPECT_TRUE(is_supported(operation, type));
  EXPECT_EQ(element_bytes(type), sizeof(T));
  apply(operation, type, bytes_of(operand), bytes_of(source), std::as_writable_bytes(std::span(&target, 1)));
  return target;
}

template <class T>
constexpr AtomicType kTypeOf = AtomicType::kEnd;
template <>
constexpr AtomicType kTypeOf<std::int8_t> = AtomicType::kInt8;
template <>
constexpr AtomicType kTypeOf<std::uint8_t> = AtomicType::kUint8;
template <>
constexpr AtomicType kTypeOf<std::int16_t> = AtomicType::kInt16;
template <>
constexpr AtomicType kTypeOf<std::uint16_t> = AtomicType::kUint16;
template <>
constexpr AtomicType kTypeOf<std::int32_t> = AtomicType::kInt32;
template <>
constexpr AtomicType kTypeOf<std::uint32_t> = AtomicType::kUint32;
template <>
constexpr AtomicType kTypeOf<std::int64_t> = AtomicType::kInt64;
template <>
constexpr AtomicType kTypeOf<std::uint64_t> = AtomicType::kUint64;
template <>
constexpr AtomicType kTypeOf<float> = AtomicType::kFloat;
template <>
constexpr AtomicType kTypeOf<double> = AtomicType::kDouble;
template <>
constexpr AtomicType kTypeOf<long double> = AtomicType::kLongDouble;
template <>
constexpr AtomicType kTypeOf<std::complex<float>> = AtomicType::kFloatComplex;
template <>
constexpr AtomicType kTypeOf<std::complex<double>> = AtomicType::kDoubleComplex;
template <>
constexpr AtomicType kTypeOf<std::complex<long double>> = AtomicType::kLongDoubleComplex;

template <class T>
class AtomicsOnEveryType : public testing::Test {};
template <class T>
class AtomicsOnNumbersWithOrder : public AtomicsOnEveryType<T> {};
template <class T>
class AtomicsOnIntegers : public AtomicsOnEveryType<T> {};

using Integers = testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                                std::uint32_t, std::int64_t, std::uint64_t>;
using WithOrder = testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                                 std::uint32_t, std::int64_t, std::uint64_t, float, double, long double>;
using Every = testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                             std::uint32_t, std::int64_t, std::uint64_t, float, double, long double,
                             std::complex<float>, std::complex<double>, std::complex<long double>>;
TYPED_TEST_SUITE(AtomicsOnEveryType, Every);
TYPED_TEST_SUITE(AtomicsOnNumbersWithOrder, WithOrder);
TYPED_TEST_SUITE(AtomicsOnIntegers, Integers);

TYPED_TEST(AtomicsOnEveryType, Combine) {
  constexpr auto kType = kTypeOf<TypeParam>;
  const TypeParam two(2), three(3), none(0);
  EXPECT_EQ(applied(kSum, kType, two, three), TypeParam(5));
  EXPECT_EQ(applied(kProduct, kType, two, three), TypeParam(6));
  EXPECT_EQ(applied(kLogicalOr, kType, none, three), TypeParam(1));
  EXPECT_EQ(applied(kLogicalOr, kType, none, none), TypeParam(0));
  EXPECT_EQ(applied(kLogicalAnd, kType, two, three), TypeParam(1));
  EXPECT_EQ(applied(kLogicalAnd, kType, two, none), TypeParam(0));
  EXPECT_EQ(applied(kLogicalXor, kType, two, three), TypeParam(0));
  EXPECT_EQ(applied(kLogicalXor, kType, none, three), TypeParam(1));
}

TYPED_TEST(AtomicsOnEveryType, Swap) {
  constexpr auto kType = kTypeOf<TypeParam>;
  const TypeParam two(2), three(3), four(4);
  EXPECT_EQ(applied(kSwap, kType, two, three), two);
  EXPECT_EQ(applied(kCompareSwap, kType, two, three, three), two);
  EXPECT_EQ(applied(kCompareSwap, kType, two, three, four), three);
  EXPECT_EQ(applied(kCompareSwapNotEqual, kType, two, three, four), two);
  EXPECT_EQ(applied(kCompareSwapNotEqual, kType, two, three, three), three);
}

TYPED_TEST(AtomicsOnNumbersWithOrder, CompareTheOperandWithTheTarget) {
  constexpr auto kType = kTypeOf<TypeParam>;
  const TypeParam source(9), target(5);
  const auto swaps = [&](AtomicOperation operation, int operand) {
    return applied(operation, kType, source, target, TypeParam(operand)) == source;
  };
  EXPECT_EQ(applied(kMin, kType, source, target), target);
  EXPECT_EQ(applied(kMax, kType, source, target), source);
  EXPECT_TRUE(swaps(kCompareSwapLessOrEqual, 4) && swaps(kCompareSwapLessOrEqual, 5));
  EXPECT_FALSE(swaps(kCompareSwapLessOrEqual, 6));
  EXPECT_TRUE(swaps(kCompareSwapLess, 4));
  EXPECT_FALSE(swaps(kCompareSwapLess, 5));
  EXPECT_TRUE(swaps(kCompareSwapGreaterEqual, 6) && swaps(kCompareSwapGreaterEqual, 5));
  EXPECT_FALSE(swaps(kCompareSwapGreaterEqual, 4));
  EXPECT_TRUE(swaps(kCompareSwapGreater, 6));
  EXPECT_FALSE(swaps(kCompareSwapGreater, 5));
}

TYPED_TEST(AtomicsOnIntegers, HaveBitsAndWrapAround) {
  constexpr auto kType = kTypeOf<TypeParam>;
  using Limits = std::numeric_limits<TypeParam>;
  EXPECT_EQ(applied(kBitOr, kType, TypeParam(5), TypeParam(3)), TypeParam(7));
  EXPECT_EQ(applied(kBitAnd, kType, TypeParam(5), TypeParam(3)), TypeParam(1));
  EXPECT_EQ(applied(kBitXor, kType, TypeParam(5), TypeParam(3)), TypeParam(6));
  EXPECT_EQ(applied(kMaskedSwap, kType, TypeParam(0x55), TypeParam(0x33), TypeParam(0x0F)), TypeParam(0x35));
  EXPECT_EQ(applied(kSum, kType, TypeParam(1), Limits::max()), Limits::min());
  EXPECT_EQ(applied(kProduct, kType, TypeParam(2), Limits::max()), TypeParam(-2));
}

TEST(TargetAtomics, ThereAreNoBitsOfNumbersWithAPointAndNoOrderOfComplexOnes) {
  EXPECT_FALSE(is_supported(kBitOr, AtomicType::kFloat));
  EXPECT_FALSE(is_supported(kBitAnd, AtomicType::kDouble));
  EXPECT_FALSE(is_supported(kBitXor, AtomicType::kLongDouble));
  EXPECT_FALSE(is_supported(kMaskedSwap, AtomicType::kDoubleComplex));
  for (const auto type :
       {AtomicType::kFloatComplex, AtomicType::kDoubleComplex, AtomicType::kLongDoubleComplex})
    for (const auto operation : {kMin, kMax, kCompareSwapLessOrEqual, kCompareSwapLess,
                                 kCompareSwapGreaterEqual, kCompareSwapGreater})
      EXPECT_FALSE(is_supported(operation, type));
  EXPECT_FALSE(is_supported(AtomicOperation::kEnd, AtomicType::kInt8));
  EXPECT_FALSE(is_supported(kSum, AtomicType::kEnd));
  EXPECT_FALSE(is_supported(AtomicOperation{255}, AtomicType{255}));
}

TEST(TargetAtomics, OnlyWholeElementsChange) {
  EXPECT_EQ(length_of(kSum, AtomicType::kInt32, 11), 8u);
  EXPECT_EQ(length_of(kSwap, AtomicType::kInt32, 3), 0u);
  EXPECT_EQ(length_of(kCompareSwap, AtomicType::kInt64, 64), 8u);
  EXPECT_EQ(length_of(kMaskedSwap, AtomicType::kInt64, 7), 0u);
}

TEST(TargetAtomics, ManyElementsChangeWhereverTheyLie) {
  constexpr std::size_t kElements = 5;
  std::vector<std::byte> memory(kElements * 4 + 1);
  const std::vector<std::int32_t> source{1, 2, 3, 4, 5};
  const std::span target = std::span(memory).subspan(1);
  apply(kSwap, AtomicType::kInt32, {}, std::as_bytes(std::span(source)), target);
  apply(kSum, AtomicType::kInt32, {}, std::as_bytes(std::span(source)), target);
  std::vector<std::int32_t> result(kElements);
  std::memcpy(result.data(), target.data(), target.size());
  EXPECT_EQ(result, (std::vector<std::int32_t>{2, 4, 6, 8, 10}));
  EXPECT_EQ(memory.front(), std::byte{0});
}

struct DoubleInt {
  double value;
  int location;
  bool operator==(const DoubleInt&) const = default;
};

TEST(TargetAtomics, OfPairsTheValueCountsAndThenTheLowerLocation) {
  constexpr auto kType = AtomicType::kDoubleInt;
  EXPECT_EQ(element_bytes(kType), sizeof(DoubleInt));
  EXPECT_EQ(applied(kMin, kType, DoubleInt{1, 9}, DoubleInt{2, 1}), (DoubleInt{1, 9}));
  EXPECT_EQ(applied(kMin, kType, DoubleInt{3, 0}, DoubleInt{2, 1}), (DoubleInt{2, 1}));
  EXPECT_EQ(applied(kMin, kType, DoubleInt{2, 0}, DoubleInt{2, 1}), (DoubleInt{2, 0}));
  EXPECT_EQ(applied(kMax, kType, DoubleInt{3, 9}, DoubleInt{2, 1}), (DoubleInt{3, 9}));
  EXPECT_EQ(applied(kMax, kType, DoubleInt{1, 0}, DoubleInt{2, 1}), (DoubleInt{2, 1}));
  EXPECT_EQ(applied(kMax, kType, DoubleInt{2, 7}, DoubleInt{2, 1}), (DoubleInt{2, 1}));
  EXPECT_EQ(applied(kSwap, kType, DoubleInt{2, 7}, DoubleInt{2, 1}), (DoubleInt{2, 7}));
}

TEST(TargetAtomics, TheGapsOfPairsStayAsTheyAre) {
  struct WithGap {
    double value;
    int location;
    int mine;
  };
  WithGap source{1, 2, 3}, target{5, 6, 7};
  apply(kMin, AtomicType::kDoubleInt, {}, std::as_bytes(std::span(&source, 1)),
        std::as_writable_bytes(std::span(&target, 1)));
  EXPECT_EQ(target.value, 1);
  EXPECT_EQ(target.location, 2);
  EXPECT_EQ(target.mine, 7);
}

TEST(TargetAtomics, PairsAreStructsOfC) {
  EXPECT_EQ(element_bytes(AtomicType::kShortInt), 8u);
  EXPECT_EQ(element_bytes(AtomicType::kIntInt), 8u);
  EXPECT_EQ(element_bytes(AtomicType::kLongInt), 16u);
  EXPECT_EQ(element_bytes(AtomicType::kFloatInt), 8u);
  EXPECT_EQ(element_bytes(AtomicType::kLongDoubleInt), 2 * sizeof(long double));
  EXPECT_EQ(element_bytes(AtomicType::kFloatFloat), 8u);
  EXPECT_EQ(element_bytes(AtomicType::kDoubleDouble), 16u);
  EXPECT_LE(element_bytes(AtomicType::kLongDoubleInt), kMostElementBytes);
  for (auto type = static_cast<int>(kFirstPairType); type < static_cast<int>(AtomicType::kEnd); ++type)
    for (int operation = 0; operation < static_cast<int>(AtomicOperation::kEnd); ++operation) {
      const auto one = static_cast<AtomicOperation>(operation);
      EXPECT_EQ(is_supported(one, static_cast<AtomicType>(type)), one == kMin || one == kMax || one == kSwap);
    }
}

/// Many are combined in another loop than few.
template <class T>
void expect_many_like_each() {
  constexpr std::size_t kCount = 517;
  std::vector<std::byte> memory(1 + 2 * kCount * sizeof(T));  // Not aligned.
  const auto source = std::span(memory).subspan(1, kCount * sizeof(T));
  const auto target = std::span(memory).subspan(1 + kCount * sizeof(T));
  for (auto operation = kMin; operation < kSwap; operation = AtomicOperation(int(operation) + 1)) {
    if (!is_supported(operation, kTypeOf<T>)) continue;
    std::vector<T> sources(kCount), targets(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      sources[i] = static_cast<T>(static_cast<int>(i * 7 % 19) - 9);
      targets[i] = static_cast<T>(static_cast<int>(i * 5 % 23) - 11);
    }
    std::memcpy(source.data(), sources.data(), source.size());
    std::memcpy(target.data(), targets.data(), target.size());
    apply(operation, kTypeOf<T>, {}, source, target);
    for (std::size_t i = 0; i < kCount; ++i) {
      T result;
      std::memcpy(&result, target.data() + i * sizeof(T), sizeof(T));
      ASSERT_EQ(result, applied(operation, kTypeOf<T>, sources[i], targets[i]))
          << "element " << i << ", operation " << int(operation) << ", type " << int(kTypeOf<T>);
    }
  }
}
TEST(TargetAtomics, ManyElementsAreCombinedAsEach) {
  expect_many_like_each<std::int8_t>();
  expect_many_like_each<std::uint8_t>();
  expect_many_like_each<std::int16_t>();
  expect_many_like_each<std::uint16_t>();
  expect_many_like_each<std::int32_t>();
  expect_many_like_each<std::uint32_t>();
  expect_many_like_each<std::int64_t>();
  expect_many_like_each<std::uint64_t>();
  expect_many_like_each<float>();
  expect_many_like_each<double>();
  expect_many_like_each<long double>();
  expect_many_like_each<std::complex<float>>();
  expect_many_like_each<std::complex<double>>();
  expect_many_like_each<std::complex<long double>>();
}

}  // namespace
}  // namespace ch3_offload
