#include "rdma/verbs/simulated_descriptors.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <queue>
#include <utility>

#include "rdma/monotonic_clock.h"

namespace ch3_offload::simulated_descriptors {
namespace {

/// Numbers of simulated descriptors begin here, above those of the kernel.
constexpr int kFirst = 1 << 28;

struct Watched {
  int descriptor;
  epoll_event event;
};

struct Descriptor {
  enum class Kind : std::uint8_t { kFree, kEpoll, kTimer, kCounter };
  Kind kind = Kind::kFree;
  std::uint32_t process = 0;
  int flags = 0;                   ///< F_GETFL.
  std::vector<Watched> watched{};  ///< kEpoll.
  std::uint64_t count = 0;         ///< kCounter.
  std::uint64_t expiry_ns = 0;     ///< kTimer. 0: it is not set.
};

struct Expiry {
  std::uint64_t at_ns;
  int timer;  ///< Stale if the timer's expiry is another one by now.
  bool operator<(const Expiry& other) const noexcept { return at_ns > other.at_ns; }
};

struct State {
  std::optional<std::uint32_t> current;  ///< The process that the program acts as.
  std::vector<Descriptor> descriptors;
  std::vector<int> free;
  std::priority_queue<Expiry> expiries;
  std::vector<std::uint32_t> woken;
  std::vector<bool> is_woken;  ///< By process.
  int sockets = -1;  ///< The kernel's epoll instance of all that simulated ones watch in the kernel.
};

/// Never destroyed: descriptors are closed while the program ends.
State& state() {
  static State& only = *new State;
  return only;
}

bool is_simulated(int number) noexcept { return number >= kFirst; }

/// Null, and errno says so: there is none of that number and kind.
Descriptor* find(int number, Descriptor::Kind kind) noexcept {
  const auto index = static_cast<std::size_t>(number - kFirst);
  if (is_simulated(number) && index < state().descriptors.size() && state().descriptors[index].kind == kind)
    return &state().descriptors[index];
  errno = EBADF;
  return nullptr;
}

int make(Descriptor::Kind kind, int flags) {
  State& now = state();
  if (now.free.empty()) {
    now.descriptors.emplace_back();
    now.free.push_back(kFirst + static_cast<int>(now.descriptors.size() - 1));
  }
  const int number = now.free.back();
  now.free.pop_back();
  Descriptor& made = now.descriptors[static_cast<std::size_t>(number - kFirst)];
  made = {};
  made.kind = kind;
  made.process = *now.current;
  made.flags = flags;
  return number;
}

void wake(std::uint32_t process) {
  State& now = state();
  if (now.is_woken.size() <= process) now.is_woken.resize(process + 1);
  if (now.is_woken[process]) return;
  now.is_woken[process] = true;
  now.woken.push_back(process);
}

bool has_expired(const Descriptor& timer) noexcept {
  return timer.expiry_ns != 0 && monotonic_ns() >= timer.expiry_ns;
}

bool is_readable(const Descriptor& epoll);

/// Of a simulated descriptor.
bool is_readable(int number) {
  const Descriptor& one = state().descriptors[static_cast<std::size_t>(number - kFirst)];
  switch (one.kind) {
    case Descriptor::Kind::kEpoll: return is_readable(one);
    case Descriptor::Kind::kTimer: return has_expired(one);
    case Descriptor::Kind::kCounter: return one.count > 0;
    case Descriptor::Kind::kFree: break;
  }
  return false;
}

/// Calls `report` with each descriptor that is ready, and its events, until that returns false.
template <class Report>
void for_each_ready(const Descriptor& epoll, Report report) {
  std::vector<pollfd> sockets;
  std::vector<const Watched*> sockets_watched;
  for (const Watched& one : epoll.watched) {
    if (is_simulated(one.descriptor)) {
      if (is_readable(one.descriptor) && !report(one, std::uint32_t{EPOLLIN})) return;
    } else {
      sockets.push_back({one.descriptor, static_cast<short>(one.event.events), 0});
      sockets_watched.push_back(&one);
    }
  }
  if (sockets.empty() || ::poll(sockets.data(), sockets.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    const auto events = static_cast<std::uint32_t>(static_cast<std::uint16_t>(sockets[i].revents));
    if (events != 0 && !report(*sockets_watched[i], events)) return;
  }
}

bool is_readable(const Descriptor& epoll) {
  bool is_any = false;
  for_each_ready(epoll, [&](const Watched&, std::uint32_t) {
    is_any = true;
    return false;
  });
  return is_any;
}

int real_epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, descriptor, event));
}

int control(Descriptor& epoll, int operation, int descriptor, const epoll_event* event) {
  State& now = state();
  auto found = epoll.watched.begin();
  while (found != epoll.watched.end() && found->descriptor != descriptor) ++found;
  const bool is_there = found != epoll.watched.end();
  if (operation == EPOLL_CTL_ADD ? is_there : !is_there) {
    errno = is_there ? EEXIST : ENOENT;
    return -1;
  }
  if (!is_simulated(descriptor)) {
    if (now.sockets < 0) now.sockets = static_cast<int>(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
    epoll_event copy{};
    if (event != nullptr) copy.events = event->events;
    copy.data.u32 = epoll.process;
    if (real_epoll_ctl(now.sockets, operation, descriptor, &copy) != 0) return -1;
  }
  switch (operation) {
    case EPOLL_CTL_ADD: epoll.watched.push_back({descriptor, *event}); break;
    case EPOLL_CTL_MOD: found->event = *event; break;
    default: epoll.watched.erase(found); break;
  }
  return 0;
}

}  // namespace

Process::Process(std::uint32_t number) noexcept : before_(std::exchange(state().current, number)) {}
Process::~Process() { state().current = before_; }

void find_woken(std::vector<std::uint32_t>& processes) {
  State& now = state();
  std::array<epoll_event, 256> events;
  const long count = now.sockets < 0 ? 0
                                     : ::syscall(SYS_epoll_pwait, now.sockets, events.data(),
                                                 static_cast<int>(events.size()), 0, nullptr, 8);
  for (long i = 0; i < count; ++i) wake(events[static_cast<std::size_t>(i)].data.u32);
  while (!now.expiries.empty() && now.expiries.top().at_ns <= monotonic_ns()) {
    const Expiry expiry = now.expiries.top();
    now.expiries.pop();
    const Descriptor* const timer = find(expiry.timer, Descriptor::Kind::kTimer);
    if (timer != nullptr && timer->expiry_ns == expiry.at_ns) wake(timer->process);
  }
  processes.swap(now.woken);
  now.woken.clear();
  for (const std::uint32_t process : processes) now.is_woken[process] = false;
}

}  // namespace ch3_offload::simulated_descriptors

using namespace ch3_offload::simulated_descriptors;
using Kind = Descriptor::Kind;

#pragma GCC visibility push(default)

extern "C" {

int epoll_create1(int flags) noexcept {
  if (state().current) return make(Kind::kEpoll, 0);
  return static_cast<int>(::syscall(SYS_epoll_create1, flags));
}

int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  if (!is_simulated(epoll)) return real_epoll_ctl(epoll, operation, descriptor, event);
  Descriptor* const found = find(epoll, Kind::kEpoll);
  return found == nullptr ? -1 : control(*found, operation, descriptor, event);
}

int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  if (!is_simulated(epoll))
    return static_cast<int>(::syscall(SYS_epoll_pwait, epoll, events, most, timeout_ms, nullptr, 8));
  const Descriptor* const found = find(epoll, Kind::kEpoll);
  if (found == nullptr || timeout_ms != 0) return -1;
  int count = 0;
  for_each_ready(*found, [&](const Watched& one, std::uint32_t ready) {
    events[count].events = ready;
    events[count].data = one.event.data;
    return ++count < most;
  });
  return count;
}

int timerfd_create(clockid_t clock, int flags) noexcept {
  if (state().current) return make(Kind::kTimer, O_NONBLOCK);
  return static_cast<int>(::syscall(SYS_timerfd_create, clock, flags));
}

int timerfd_settime(int timer, int flags, const itimerspec* time, itimerspec* old) noexcept {
  if (!is_simulated(timer)) return static_cast<int>(::syscall(SYS_timerfd_settime, timer, flags, time, old));
  Descriptor* const found = find(timer, Kind::kTimer);
  if (found == nullptr) return -1;
  const std::uint64_t delay_ns = static_cast<std::uint64_t>(time->it_value.tv_sec) * 1'000'000'000 +
                                 static_cast<std::uint64_t>(time->it_value.tv_nsec);
  found->expiry_ns = delay_ns == 0 ? 0 : ch3_offload::monotonic_ns() + delay_ns;
  if (delay_ns != 0) state().expiries.push({found->expiry_ns, timer});
  return 0;
}

int eventfd(unsigned count, int flags) noexcept {
  if (state().current) return make(Kind::kCounter, 0);
  return static_cast<int>(::syscall(SYS_eventfd2, count, flags));
}

int eventfd_write(int counter, eventfd_t value) {
  if (!is_simulated(counter)) return ::write(counter, &value, sizeof value) == sizeof value ? 0 : -1;
  Descriptor* const found = find(counter, Kind::kCounter);
  if (found == nullptr) return -1;
  found->count += value;
  wake(found->process);
  return 0;
}

int eventfd_read(int counter, eventfd_t* value) {
  if (!is_simulated(counter)) return ::read(counter, value, sizeof *value) == sizeof *value ? 0 : -1;
  Descriptor* const found = find(counter, Kind::kCounter);
  if (found == nullptr || found->count == 0) return -1;
  --found->count;
  *value = 1;
  return 0;
}

ssize_t read(int number, void* to, size_t length_bytes) {
  if (!is_simulated(number)) return ::syscall(SYS_read, number, to, length_bytes);
  Descriptor* const timer = find(number, Kind::kTimer);
  if (timer == nullptr || length_bytes < sizeof(std::uint64_t)) return -1;
  if (!has_expired(*timer)) {
    errno = EAGAIN;
    return -1;
  }
  const std::uint64_t expirations = 1;
  std::memcpy(to, &expirations, sizeof expirations);
  timer->expiry_ns = 0;
  return sizeof expirations;
}

int fcntl(int number, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  if (!is_simulated(number)) return static_cast<int>(::syscall(SYS_fcntl, number, command, argument));
  Descriptor& found = state().descriptors[static_cast<std::size_t>(number - kFirst)];
  if (command == F_GETFL) return found.flags;
  if (command == F_SETFL) found.flags = static_cast<int>(argument);
  return 0;
}

int close(int number) {
  if (!is_simulated(number)) return static_cast<int>(::syscall(SYS_close, number));
  state().descriptors[static_cast<std::size_t>(number - kFirst)] = {};
  state().free.push_back(number);
  return 0;
}

}  // extern "C"

#pragma GCC visibility pop
