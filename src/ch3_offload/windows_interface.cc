// The C interface of windows: converts types and calls Windows. No logic.

#include <cstring>

#include "ch3_offload/ch3_offload_windows.h"
#include "ch3_offload/channel.h"

using namespace ch3_offload;

namespace {

Channel& channel_of(ch3_offload_channel_t* channel) noexcept { return *reinterpret_cast<Channel*>(channel); }

constexpr TargetOperation kOperations[] = {
    TargetOperation::kPut,         TargetOperation::kGet,           TargetOperation::kAtomic,
    TargetOperation::kFetchAtomic, TargetOperation::kSwap,          TargetOperation::kSwap,
    TargetOperation::kLockShared,  TargetOperation::kLockExclusive, TargetOperation::kUnlock};
static_assert(std::size(kOperations) == CH3_OFFLOAD_WINDOW_UNLOCK + 1);
static_assert(static_cast<int>(AtomicOperation::kMin) == CH3_OFFLOAD_MIN &&
              static_cast<int>(AtomicOperation::kSum) == CH3_OFFLOAD_SUM &&
              static_cast<int>(AtomicOperation::kLogicalOr) == CH3_OFFLOAD_LOR &&
              static_cast<int>(AtomicOperation::kBitOr) == CH3_OFFLOAD_BOR &&
              static_cast<int>(AtomicOperation::kBitXor) == CH3_OFFLOAD_BXOR);
static_assert(static_cast<int>(AtomicType::kInt8) == CH3_OFFLOAD_INT8 &&
              static_cast<int>(AtomicType::kFloat) == CH3_OFFLOAD_FLOAT &&
              static_cast<int>(AtomicType::kDouble) == CH3_OFFLOAD_DOUBLE &&
              static_cast<int>(AtomicType::kLongDoubleComplex) == CH3_OFFLOAD_LONG_DOUBLE_COMPLEX &&
              static_cast<int>(kFirstPairType) == CH3_OFFLOAD_SHORT_INT &&
              static_cast<int>(AtomicType::kDoubleInt) == CH3_OFFLOAD_DOUBLE_INT &&
              static_cast<int>(AtomicType::kEnd) == CH3_OFFLOAD_NO_TYPE);

static_assert(static_cast<int>(Windows::Access::kSource) == CH3_OFFLOAD_WINDOW_SOURCE &&
              static_cast<int>(Windows::Access::kResult) == CH3_OFFLOAD_WINDOW_RESULT);

Payload memory_at(const void* address, std::size_t length_bytes) noexcept {
  return {static_cast<std::byte*>(const_cast<void*>(address)), length_bytes, nullptr};
}

}  // namespace

extern "C" {

int ch3_offload_window_serves(ch3_offload_channel_t* channel) {
  return channel_of(channel).windows() != nullptr ? 1 : 0;
}

int ch3_offload_window_can(uint8_t atomic, uint8_t type) {
  return is_supported(AtomicOperation{atomic}, AtomicType{type}) ? 1 : 0;
}

size_t ch3_offload_window_atomic_bytes(ch3_offload_channel_t* channel) {
  return channel_of(channel).windows()->atomic_bytes();
}

int ch3_offload_window_stages(ch3_offload_channel_t* channel, const void* address, size_t bytes,
                              ch3_offload_window_access_t access) {
  return channel_of(channel).windows()->should_stage(address, bytes, static_cast<Windows::Access>(access)) ? 1 : 0;
}

int ch3_offload_window_expose(ch3_offload_channel_t* channel, void* address, size_t bytes, uint16_t* window) {
  return static_cast<int>(
      channel_of(channel).windows()->expose({static_cast<std::byte*>(address), bytes}, *window));
}

int ch3_offload_window_withdraw(ch3_offload_channel_t* channel, uint16_t window) {
  return channel_of(channel).windows()->withdraw(window) == Status::kAgain ? 0 : 1;
}

int ch3_offload_window_begin(ch3_offload_channel_t* channel,
                             const ch3_offload_window_operation_t* operation) {
  return ch3_offload_window_begin_runs(channel, operation, 0, 0);
}

int ch3_offload_window_begin_runs(ch3_offload_channel_t* channel,
                                  const ch3_offload_window_operation_t* operation, uint64_t block_bytes,
                                  uint64_t stride_bytes) {
  TargetRequest request;
  request.operation = kOperations[operation->kind];
  request.atomic_operation = AtomicOperation{operation->atomic};
  if (request.operation == TargetOperation::kSwap) request.atomic_operation = AtomicOperation::kSwap;
  request.atomic_type = AtomicType{operation->type};
  request.offset_bytes = operation->offset_bytes;
  request.runs = {block_bytes, stride_bytes};
  request.source.memory = memory_at(operation->source, operation->length_bytes);
  request.destination.memory = memory_at(operation->result, operation->length_bytes);
  request.cookie = operation->cookie;
  if (operation->kind == CH3_OFFLOAD_WINDOW_COMPARE_SWAP) {
    request.atomic_operation = AtomicOperation::kCompareSwap;
    std::memcpy(request.operand.data(), operation->compare, operation->length_bytes);
  }
  const Status status = channel_of(channel).windows()->begin(operation->peer, operation->window, request);
  channel_of(channel).commanded();
  return static_cast<int>(status);
}

}  // extern "C"
