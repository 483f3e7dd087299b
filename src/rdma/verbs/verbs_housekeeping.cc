// Polling and sleeping, and what descriptors and time ask for, off the message path. See verbs_provider.h.
//
// Makes system calls, never blocks.

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "rdma/cycle_clock.h"
#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

/// A busy poller reads the clock at every so many polls, so that newcomers are not starved.
constexpr std::uint32_t kVerbsPollsPerClock = 256;

/// Housekeeping, a system call most of the time, takes one part in so many of a poller's time: it comes less
/// often where system calls are slow.
constexpr std::uint64_t kHousekeepingShare = 32;
constexpr std::uint64_t kShortestInterval = CycleClock::kAbout20Microseconds;
constexpr std::uint64_t kLongestInterval = 16 * kShortestInterval;

/// Between two rounds of what time brings on.
constexpr std::uint64_t kRoundNs = 1'000'000;
/// Between looks at what only time brings on, during a sleep.
constexpr std::uint64_t kTickNs = 2'000'000;

}  // namespace

bool VerbsProvider::watch(int descriptor, WatchKind kind, std::uint32_t index) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = std::uint64_t{static_cast<std::uint32_t>(kind)} << 32 | index;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

/// Returns false if there are no descriptors for it: errno.
bool VerbsProvider::watch_all() noexcept {
  epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  alarm_ = FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  return epoll_.valid() && alarm_.valid() && introducer_.descriptor() >= 0 &&
         watch(alarm_.get(), WatchKind::kAlarm, 0) &&
         watch(introducer_.descriptor(), WatchKind::kIntroducer, 0) &&
         std::ranges::all_of(rails_, [&](const auto& rail) {
           return watch(rail->events()->fd, WatchKind::kCompletions, rail->index) &&
                  watch(rail->context()->async_fd, WatchKind::kDevice, rail->index);
         });
}

std::size_t VerbsProvider::poll(Sink& sink, std::size_t budget) noexcept {
  transport_.begin_poll(sink);
  bool emptied = transport_.take_completions(budget);
  if (armed_) [[unlikely]] {
    // An event that is read here must not hide what comes after it.
    if (keep_house()) {
      request_notification();
      emptied = transport_.take_completions(budget) && emptied;
    }
  } else if (transport_.found() == 0 || ++busy_polls_ >= kVerbsPollsPerClock) {
    busy_polls_ = 0;
    const std::uint64_t now = CycleClock::now();
    if (now - last_housekeeping_ >= housekeeping_interval_) [[unlikely]] {
      last_housekeeping_ = now;
      static_cast<void>(keep_house());
      housekeeping_interval_ =
          std::clamp((CycleClock::now() - now) * kHousekeepingShare, kShortestInterval, kLongestInterval);
    }
  }
  emptied = emptied && !transport_.holds_message();
  if (!dying_.empty() && emptied) [[unlikely]]
    deliver_deaths();
  std::size_t found = transport_.end_poll();
  if (armed_) [[unlikely]] {
    found += transport_.unblock();
    // What the budget left in the completion queue, or held back, raises no event.
    if (!emptied && found == 0) found = 1;
    set_alarm();
  }
  return found;
}

bool VerbsProvider::request_notification() noexcept {
  return std::ranges::all_of(rails_, [](const auto& rail) { return rail->request_notification(); });
}

bool VerbsProvider::arm() noexcept {
  armed_ = true;
  if (std::ranges::any_of(rails_, [](const auto& rail) { return rail->holds_completions(); })) return false;
  if (!request_notification()) return false;
  set_alarm();
  return transport_.unblock() == 0;
}

void VerbsProvider::disarm() noexcept {
  if (!armed_) return;
  armed_ = false;
  last_housekeeping_ = 0;  // What woke us may be waiting in a socket.
}

/// Returns whether a completion event was read.
bool VerbsProvider::keep_house() noexcept {
  bool completions = false;
  std::array<epoll_event, 8> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    const auto index = static_cast<std::uint32_t>(data);
    switch (static_cast<WatchKind>(data >> 32)) {
      case WatchKind::kIntroducer: introducer_.service(); break;
      case WatchKind::kCompletions: completions |= rails_[index]->take_completion_events(); break;
      case WatchKind::kDevice: rails_[index]->take_events(*this); break;
      case WatchKind::kAlarm: {
        std::uint64_t expirations;
        static_cast<void>(!::read(alarm_.get(), &expirations, sizeof expirations));
        alarm_is_set_ = false;
        break;
      }
    }
  }
  const std::uint64_t now_ns = monotonic_ns();
  look_after_peers(now_ns);
  if (!farewells_.empty()) finish_farewells(now_ns);
  const bool is_round = elapsed_ns(now_ns, last_round_ns_) >= kRoundNs;
  if (links_.has_wanted() && (has_new_wants_ || is_round)) {
    has_new_wants_ = false;
    links_.make_wanted(now_ns);
  }
  if (!is_round) return completions;
  last_round_ns_ = now_ns;
  links_.tick(now_ns);
  introducer_.tick(now_ns);
  return completions;
}

/// A peer that is awaited may have died while there was no link with it, because that was parked: few such
/// peers are dialled at a time.
void VerbsProvider::look_after_peers(std::uint64_t now_ns) noexcept {
  const bool at_once = probe_soon_.load(std::memory_order_relaxed) && probe_soon_.exchange(false);
  if (!at_once && elapsed_ns(now_ns, last_look_ns_) < links_.look_ns()) return;
  last_look_ns_ = now_ns;
  if (links_.look(transport_.sink(), at_once)) probe_soon_ = true;
  std::size_t checks = 0;
  for (std::size_t looked = 0; looked < peers_.size() && checks < SocketIntroducer::kMostChecks; ++looked) {
    VerbsEndpoint* const peer = peers_[next_checked_++ % peers_.size()];
    if (peer != nullptr) checks += links_.check(*peer, transport_.sink());
  }
}

void VerbsProvider::probe_soon() noexcept {
  probe_soon_ = true;
  static_cast<void>(set_alarm(1));
}

void VerbsProvider::on_work() noexcept {
  has_new_wants_ = true;
  last_housekeeping_ = 0;
  if (armed_) set_alarm();
}

/// During a sleep: what no other descriptor tells of, now or soon.
void VerbsProvider::set_alarm() noexcept {
  const bool is_busy = !dying_.empty() || !farewells_.empty() || links_.is_busy();
  std::uint64_t delay_ns = is_busy ? kTickNs : introducer_.tick_ns();
  if (delay_ns == 0) {
    // What is set is hardly later than this. Peers whose links are parked are looked after, too.
    if (alarm_is_set_ || links_.figures().made == 0) return;
    delay_ns = links_.look_ns();
  }
  alarm_is_set_ = set_alarm(delay_ns);
}

bool VerbsProvider::set_alarm(std::uint64_t delay_ns) const noexcept {
  itimerspec time{};
  time.it_value.tv_sec = static_cast<time_t>(delay_ns / 1'000'000'000);
  time.it_value.tv_nsec = static_cast<long>(delay_ns % 1'000'000'000);
  return ::timerfd_settime(alarm_.get(), 0, &time, nullptr) == 0;
}

}  // namespace ch3_offload
