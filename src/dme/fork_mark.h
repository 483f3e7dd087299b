// Tells a process from its children after fork(). The mark is a page that the kernel fills with zeros in a
// child (MADV_WIPEONFORK, Linux 4.14).
//
// Unlike with pthread_atfork(), there is no list of handlers, and the child sees the zeros from its first
// instruction on.

#pragma once

namespace ch3_offload {

class ForkMark {
 public:
  /// Throws std::bad_alloc if no page can be mapped.
  ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  ~ForkMark();

  /// Returns whether this process made the mark. Always true if works() is false. From any thread.
  bool is_owner() const noexcept { return *page_ != 0; }

  /// Whether the kernel supports MADV_WIPEONFORK.
  bool works() const noexcept { return works_; }

 private:
  volatile const unsigned char* page_ = nullptr;  // Volatile: fork() changes the page.
  bool works_ = false;
};

}  // namespace ch3_offload
