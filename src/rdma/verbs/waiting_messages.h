// Messages for links that are not up. They wait in ordinary memory, so that peers that do not answer take
// none of the registered send slots: those are for links on which they come back soon.
//
// RULE ONLY LIVE LINKS HOLD SLOTS. A message takes a send slot when it is posted to a link that is up. When a
// link is buried, its messages go back to ordinary memory.
//
// Threads: as rdma/provider.h says.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace ch3_offload {

class WaitingMessages {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// Makes room for a message. Returns its index, or kNone if there is no memory.
  std::uint32_t take(std::size_t length_bytes) noexcept {
    try {
      if (free_.empty()) {
        messages_.emplace_back();
        free_.reserve(messages_.capacity());  // give_back() must not allocate.
        free_.push_back(static_cast<std::uint32_t>(messages_.size() - 1));
      }
      const std::uint32_t index = free_.back();
      messages_[index] = std::make_unique<std::byte[]>(length_bytes);
      free_.pop_back();
      return index;
    } catch (const std::bad_alloc&) {
      return kNone;
    }
  }
  std::byte* address(std::uint32_t index) const noexcept { return messages_[index].get(); }
  void give_back(std::uint32_t index) noexcept {
    messages_[index].reset();
    free_.push_back(index);
  }
  std::size_t count() const noexcept { return messages_.size() - free_.size(); }

 private:
  std::vector<std::unique_ptr<std::byte[]>> messages_;
  std::vector<std::uint32_t> free_;
};

}  // namespace ch3_offload
