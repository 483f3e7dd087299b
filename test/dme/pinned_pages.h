// A registrar that pins pages as a device does, without one: it puts them into a pipe (vmsplice), which keeps the pages themselves,
// whatever the address space does afterwards. What the pipe shows later is what a device would read.

#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "dme/pages_under_test.h"

namespace ch3_offload {

class PinnedPages final : public PagesUnderTest {
 public:
  /// What a pipe takes. Longer regions are refused.
  static constexpr std::size_t kMostPages = 16;

  ~PinnedPages() override {
    for (const auto& [key, pinned] : pinned_) close_pipes(pinned);
  }

  Status register_memory(void* address, std::size_t length_bytes, Access,
                         MemoryRegion& region) noexcept override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto* const begin = static_cast<std::byte*>(address);
    Pinned pinned{begin, length_bytes / page, {-1, -1}, {-1, -1}};
    if (pinned.pages == 0 || pinned.pages > kMostPages || pipe2(pinned.pipe, O_CLOEXEC) != 0)
      return Status::kUnsupported;
    if (pipe2(pinned.copy, O_CLOEXEC) != 0) {
      close_pipes(pinned);
      return Status::kNoMemory;
    }
    const iovec whole{begin, pinned.pages * page};
    // As for a device that will write: each page is the process's own, not the kernel's page of zeros (Linux 5.14).
    if (madvise(begin, whole.iov_len, MADV_POPULATE_WRITE) != 0 ||
        vmsplice(pinned.pipe[1], &whole, 1, SPLICE_F_NONBLOCK) != static_cast<ssize_t>(whole.iov_len)) {
      close_pipes(pinned);
      return Status::kUnsupported;
    }
    const std::lock_guard guard(lock_);
    pinned_[++last_key_] = pinned;
    region = {begin, length_bytes, RemoteKey{last_key_}, last_key_};
    return Status::kOk;
  }

  void deregister_memory(MemoryRegion& region) noexcept override {
    const std::lock_guard guard(lock_);
    const auto found = pinned_.find(region.local_key);
    if (found == pinned_.end()) return;
    close_pipes(found->second);
    pinned_.erase(found);
    region = {};
  }

  bool meets_memory(const MemoryRegion& region, std::byte* address, std::size_t length_bytes) override {
    const std::lock_guard guard(lock_);
    const Pinned& pinned = pinned_.at(region.local_key);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t length = pinned.pages * page;
    std::unique_ptr<std::byte[]> seen(new std::byte[length]);
    if (tee(pinned.pipe[0], pinned.copy[1], length, 0) != static_cast<ssize_t>(length)) return false;
    for (std::size_t done = 0; done < length;) {
      const ssize_t count = read(pinned.copy[0], seen.get() + done, length - done);
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return std::memcmp(seen.get() + (address - pinned.address), address, length_bytes) == 0;
  }

 private:
  struct Pinned {
    std::byte* address;
    std::size_t pages;
    int pipe[2];  ///< Holds the pages.
    int copy[2];  ///< Empty; what tee() fills and read() empties.
  };

  static void close_pipes(const Pinned& pinned) noexcept {
    for (const int descriptor : {pinned.pipe[0], pinned.pipe[1], pinned.copy[0], pinned.copy[1]})
      if (descriptor >= 0) close(descriptor);
  }

  std::mutex lock_;
  std::map<std::uint64_t, Pinned> pinned_;
  std::uint64_t last_key_ = 0;
};

}  // namespace ch3_offload
