// operator new that counts, and that can run out of memory. A program whose tests look at it links counting_allocator.cc.

#pragma once

#include <atomic>
#include <cstdint>

namespace ch3_offload::allocator {

inline constexpr std::uint64_t kPlenty = UINT64_MAX;

inline constinit std::atomic<std::uint64_t> allocations{0};      ///< All there were, those that failed too.
inline constinit std::atomic<std::uint64_t> allocated_bytes{0};  ///< Likewise.
inline constinit std::atomic<std::int64_t> live_bytes{0};
/// Whether what is allocated now counts in live_bytes_marked, until it is freed. nullptr: it does not.
inline constinit std::atomic<bool (*)() noexcept> marks{nullptr};
inline constinit std::atomic<std::int64_t> live_bytes_marked{0};
inline constinit std::atomic<std::uint64_t> left{kPlenty};  ///< So many more succeed, then all fail. kPlenty: all succeed.

/// For its life so many allocations succeed.
class Shortage {
 public:
  explicit Shortage(std::uint64_t succeed = 0) { left = succeed; }
  ~Shortage() { left = kPlenty; }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
};

}  // namespace ch3_offload::allocator
