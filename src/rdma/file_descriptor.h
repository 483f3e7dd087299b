// An owned file descriptor.

#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace ch3_offload {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) noexcept : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const noexcept { return number_; }
  bool valid() const noexcept { return number_ >= 0; }
  void reset() noexcept {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;  ///< -1: none.
};

/// Returns another descriptor of the same file, or an invalid one (errno says why) if none is left.
inline FileDescriptor duplicate(const FileDescriptor& descriptor) noexcept {
  return FileDescriptor(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
}

}  // namespace ch3_offload
