// How the data of a partitioned operation (MPI 4.0, chapter 4) is cut into messages.
//
// Threads: any.

#pragma once

#include <cstdint>

namespace ch3_offload {

/// A message of fewer bytes would cost more than the partitions that it waits for.
inline constexpr std::uint64_t kLeastPartitionedMessageBytes = 16 << 10;
inline constexpr std::uint64_t kMostPartitionedMessages = 1024;

/// Bytes of each message but the last, which may be shorter. A message has whole partitions of the sender, so
/// that it can leave when these are ready, and whole elements of the receiver's datatype, so that it can be
/// received by itself. It is the smallest such message of at least kLeastPartitionedMessageBytes of which there
/// are at most kMostPartitionedMessages; or all bytes, if there is none. 0: there are no bytes.
/// REQUIRES: `bytes` are whole partitions and whole elements, neither of which is empty, unless `bytes` is 0.
std::uint64_t cut_partitions(std::uint64_t bytes, std::uint64_t partition_bytes,
                             std::uint64_t element_bytes) noexcept;

}  // namespace ch3_offload
