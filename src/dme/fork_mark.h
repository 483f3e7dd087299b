// Tells a process from its children after fork(): a page that the kernel gives to children as zeros (MADV_WIPEONFORK,
// Linux 4.14).
//
// Unlike pthread_atfork() this needs no list of those who want to know, and a child knows before its first instruction.

#pragma once

namespace ch3_offload {

class ForkMark {
 public:
  /// Throws std::bad_alloc when there is no page.
  ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  ~ForkMark();

  /// This is the process that made the mark. From any thread.
  bool is_owner() const noexcept { return *page_ != 0; }

  /// Whether the kernel can tell; without, is_owner() is always true.
  bool works() const noexcept { return works_; }

 private:
  volatile const unsigned char* page_ = nullptr;  // Volatile: fork() changes it behind the compiler.
  bool works_ = false;
};

}  // namespace ch3_offload
