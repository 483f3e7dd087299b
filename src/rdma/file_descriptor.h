// An owned file descriptor.

#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
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

/// Reads until the end of the file, or until `into` is full. Returns the number of bytes; -1: errno says why.
inline ssize_t read_all(const FileDescriptor& file, std::span<std::byte> into) noexcept {
  std::size_t length = 0;
  while (length < into.size()) {
    const ssize_t got = ::read(file.get(), into.data() + length, into.size() - length);
    if (got == 0) break;
    if (got > 0)
      length += static_cast<std::size_t>(got);
    else if (errno != EINTR)
      return -1;
  }
  return static_cast<ssize_t>(length);
}

}  // namespace ch3_offload
