// System calls of this program that fail when a test wants it (shm_fixture.h).

#include "rdma/shm/shm_fixture.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>

namespace ch3_offload {

Failure failing_poll;
Failure failing_copy;
Failure failing_read;
Failure failing_connect;
Failure failing_populate;
Failure failing_send;
Failure failing_watch;
int opened_to_all = 0;
long pretended_page_bytes = 0;
std::function<void()> at_copy;
std::function<void()> at_read;

}  // namespace ch3_offload

using namespace ch3_offload;  // NOLINT: of a program's own symbols.

// The runtime of ThreadSanitizer calls sysconf() and prctl() before it is ready: nothing here may call it.
#ifdef __clang__
#pragma clang attribute push(__attribute__((disable_sanitizer_instrumentation)), apply_to = function)
#endif

namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE

template <class Function>
Function* real(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  // Of the library's own calls, which do not wait; the tests themselves use poll() too.
  if (timeout_ms == 0 && count == 1 && failing_poll.strikes()) return -1;
  static auto* const call = real<int(pollfd*, nfds_t, int)>("poll");
  return call(entries, count, timeout_ms);
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  if (failing_send.strikes()) return -1;
  static auto* const call = real<ssize_t(int, const msghdr*, int)>("sendmsg");
  return call(socket, message, flags);
}

int connect(int socket, const sockaddr* address, socklen_t length) {
  if (failing_connect.strikes()) return -1;
  static auto* const call = real<int(int, const sockaddr*, socklen_t)>("connect");
  return call(socket, address, length);
}

int madvise(void* address, std::size_t length, int advice) noexcept {
  if (advice == kPopulateWrite && failing_populate.strikes()) return -1;
  return static_cast<int>(::syscall(SYS_madvise, address, length, advice));
}

int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  if (operation == EPOLL_CTL_ADD && failing_watch.strikes()) return -1;
  static auto* const call = real<int(int, int, int, epoll_event*)>("epoll_ctl");
  return call(epoll, operation, descriptor, event);
}

int prctl(int option, ...) noexcept {
  va_list list;
  va_start(list, option);
  unsigned long rest[4];
  for (unsigned long& argument : rest) argument = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_PTRACER) {
    opened_to_all += rest[0] == PR_SET_PTRACER_ANY;
    return 0;
  }
  static int (*call)(int, ...) = nullptr;  // Its guard would be the runtime's, too.
  if (call == nullptr) call = real<int(int, ...)>("prctl");
  return call(option, rest[0], rest[1], rest[2], rest[3]);
}

long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE && pretended_page_bytes != 0) return pretended_page_bytes;
  static long (*call)(int) = nullptr;
  if (call == nullptr) call = real<long(int)>("sysconf");
  return call(name);
}

ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count, const iovec* remote,
                          unsigned long remote_count, unsigned long flags) noexcept {
  if (failing_copy.strikes()) return -1;
  if (at_copy) at_copy();
  using Call = ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  static auto* const call = real<Call>("process_vm_writev");
  return call(pid, local, local_count, remote, remote_count, flags);
}

ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long local_count, const iovec* remote,
                         unsigned long remote_count, unsigned long flags) noexcept {
  if (at_read) at_read();
  if (failing_read.strikes()) return -1;
  using Call = ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  static auto* const call = real<Call>("process_vm_readv");
  return call(pid, local, local_count, remote, remote_count, flags);
}

}  // extern "C"

#ifdef __clang__
#pragma clang attribute pop
#endif
