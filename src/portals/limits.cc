#include "portals/limits.h"

#include <algorithm>
#include <climits>
#include <cstdint>

#include "engine/targets/target_board.h"
#include "portals/handle.h"

namespace ch3_offload::portals {

namespace {

constexpr int kMostObjects = static_cast<int>(kMostHandles);  ///< Entries, descriptors.
constexpr int kMostHeaders = 16'384;                          ///< Allocated when the interface opens.
constexpr int kMostQueues = 1024;
constexpr int kMostTableIndex = 255;  ///< An entry's handle has 8 bits for it.
constexpr int kLeastTableIndex = 63;  ///< Of the specification.
constexpr int kMostPieces = 1024;     ///< As IOV_MAX of Linux.

unsigned int features_of(const ProcessLimits& process) noexcept {
  unsigned int features = 0;
  if (process.binds_inaccessible) features |= PTL_TARGET_BIND_INACCESSIBLE;
  if (process.orders_all) features |= PTL_TOTAL_DATA_ORDERING;
  if (process.has_coherent_atomics) features |= PTL_COHERENT_ATOMICS;
  return features;
}

ptl_ni_limits_t most(const ProcessLimits& process) noexcept {
  ptl_ni_limits_t limits{};
  limits.max_entries = kMostObjects;
  limits.max_unexpected_headers = kMostHeaders;
  limits.max_mds = kMostObjects;
  limits.max_cts = static_cast<int>(kMostTargetCounters);
  limits.max_eqs = kMostQueues;
  limits.max_pt_index = kMostTableIndex;
  limits.max_iovecs = kMostPieces;
  limits.max_list_size = kMostObjects;
  limits.max_triggered_ops = static_cast<int>(std::min<std::uint32_t>(process.most_triggered, INT_MAX));
  limits.max_msg_size = process.most_message_bytes;
  limits.max_atomic_size = process.most_atomic_bytes;
  limits.max_fetch_atomic_size = process.most_fetch_atomic_bytes;
  limits.max_waw_ordered_size = process.most_ordered_bytes;
  limits.max_war_ordered_size = process.most_ordered_bytes;
  limits.max_volatile_size = process.most_volatile_bytes;
  limits.features = features_of(process);
  return limits;
}

}  // namespace

ptl_ni_limits_t negotiate(const ptl_ni_limits_t* desired, const ProcessLimits& process) noexcept {
  ptl_ni_limits_t limits = most(process);
  if (desired == nullptr) return limits;
  constexpr int ptl_ni_limits_t::*kNumbers[] = {
      &ptl_ni_limits_t::max_entries,       &ptl_ni_limits_t::max_unexpected_headers,
      &ptl_ni_limits_t::max_mds,           &ptl_ni_limits_t::max_cts,
      &ptl_ni_limits_t::max_eqs,           &ptl_ni_limits_t::max_pt_index,
      &ptl_ni_limits_t::max_iovecs,        &ptl_ni_limits_t::max_list_size,
      &ptl_ni_limits_t::max_triggered_ops,
  };
  constexpr ptl_size_t ptl_ni_limits_t::*kSizes[] = {
      &ptl_ni_limits_t::max_msg_size,          &ptl_ni_limits_t::max_atomic_size,
      &ptl_ni_limits_t::max_fetch_atomic_size, &ptl_ni_limits_t::max_waw_ordered_size,
      &ptl_ni_limits_t::max_war_ordered_size,  &ptl_ni_limits_t::max_volatile_size,
  };
  for (const auto number : kNumbers) limits.*number = std::clamp(desired->*number, 0, limits.*number);
  for (const auto size : kSizes) limits.*size = std::min(desired->*size, limits.*size);
  limits.max_pt_index = std::max(limits.max_pt_index, kLeastTableIndex);
  return limits;
}

TargetInterfaceConfig interface_config(const ptl_ni_limits_t& limits, UserId user) noexcept {
  TargetInterfaceConfig config;
  config.limits.most_entries = static_cast<std::size_t>(limits.max_entries);
  config.limits.most_headers = static_cast<std::size_t>(limits.max_unexpected_headers);
  config.limits.most_list_entries = static_cast<std::size_t>(limits.max_list_size);
  config.limits.most_triggered = static_cast<std::size_t>(limits.max_triggered_ops);
  config.most_tables = static_cast<std::uint32_t>(limits.max_pt_index) + 1;
  config.user = user;
  return config;
}

}  // namespace ch3_offload::portals
