#include "rdma/fork_closing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace ch3_offload {
namespace {

constexpr std::string_view kDevices = "/dev/infiniband/uverbs";

/// Never destroyed: a process may fork while it exits.
struct List {
  struct Entry {
    int descriptor;
    ForkClosing::Kind kind;
  };
  std::mutex mutex;
  std::vector<Entry> entries;
};

List& list();

/// What runs in a child may call only what signal handlers may: other threads of the parent may have held
/// the allocator's locks.
void clean_child() {
  bool has_devices = false;
  for (const List::Entry& one : list().entries) {
    ::close(one.descriptor);
    has_devices = has_devices || one.kind == ForkClosing::Kind::kDevice;
  }
  if (has_devices) unmap_files(kDevices);
  list().entries.clear();
  list().mutex.unlock();
}

List& list() {
  static List& only = *[] {
    auto* const made = new List;
    static_cast<void>(
        ::pthread_atfork([] { list().mutex.lock(); }, [] { list().mutex.unlock(); }, &clean_child));
    return made;
  }();
  return only;
}

/// Unmaps what one line of /proc/self/maps names, if its path begins with `path`:
/// "7f0000000000-7f0000001000 rw-s 00000000 00:06 123       /dev/infiniband/uverbs0".
void unmap_line(std::string_view line, std::string_view path) noexcept {
  const std::size_t slash = line.find('/');
  if (slash == std::string_view::npos || !line.substr(slash).starts_with(path)) return;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const char* const last = line.data() + line.size();
  const auto [dash, error] = std::from_chars(line.data(), last, begin, 16);
  if (error != std::errc{} || dash == last) return;
  if (std::from_chars(dash + 1, last, end, 16).ec != std::errc{} || end <= begin) return;
  static_cast<void>(::syscall(SYS_munmap, begin, end - begin));  // munmap() calls hooks, which take locks.
}

}  // namespace

void unmap_files(std::string_view path) noexcept {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  std::array<char, 8192> text;  // Longer than a line: a path has 4096 bytes at most.
  std::size_t length = 0;
  for (;;) {
    const ssize_t count = ::read(maps, text.data() + length, text.size() - length);
    if (count <= 0) break;
    length += static_cast<std::size_t>(count);
    std::string_view rest(text.data(), length);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      unmap_line(rest.substr(0, end), path);
      rest.remove_prefix(end + 1);
    }
    std::copy(rest.begin(), rest.end(), text.begin());
    length = rest.size();
  }
  static_cast<void>(::close(maps));
}

ForkClosing::ForkClosing(int descriptor, Kind kind) {
  const std::lock_guard lock(list().mutex);
  list().entries.push_back({descriptor, kind});
  descriptor_ = descriptor;
}

ForkClosing::ForkClosing(ForkClosing&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ForkClosing& ForkClosing::operator=(ForkClosing&& other) noexcept {
  forget();
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

ForkClosing::~ForkClosing() { forget(); }

void ForkClosing::forget() noexcept {
  if (descriptor_ < 0) return;
  const std::lock_guard lock(list().mutex);
  auto& entries = list().entries;
  // Introductions come and go: theirs are the latest.
  const auto found = std::find_if(entries.rbegin(), entries.rend(),
                                  [this](const List::Entry& one) { return one.descriptor == descriptor_; });
  if (found != entries.rend()) {
    *found = entries.back();
    entries.pop_back();
  }
  descriptor_ = -1;
}

}  // namespace ch3_offload
