// Memory of simulated programs, in whole pages of a range of its own: which pages a buffer gets depends on nothing but the
// requests before it, so that a seed replays, and pages that are freed come back soon, as they do in real programs.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory_resource>
#include <vector>

namespace ch3_offload {

class PageArena final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;
  ~PageArena() override;

  /// Called with pages that a buffer gave back.
  std::function<void(const std::byte* address, std::size_t length_bytes)> on_free;

 private:
  void* do_allocate(std::size_t length_bytes, std::size_t alignment) override;
  void do_deallocate(void* address, std::size_t length_bytes, std::size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::byte* begin_;
  std::size_t used_bytes_ = 0;
  std::map<std::size_t, std::vector<std::byte*>> free_;  ///< By length in pages; the latest is taken first.
};

}  // namespace ch3_offload
