// What descriptors and time ask for, off the message path. See verbs_provider.h.
//
// Makes system calls, never blocks.

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "rdma/monotonic_clock.h"
#include "rdma/verbs/verbs_provider.h"

namespace ch3_offload {
namespace {

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

void VerbsProvider::unwatch(int descriptor) noexcept {
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr));
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
      case WatchKind::kWireUp: wire_up_->service(); break;
      case WatchKind::kCompletions: completions |= take_completion_events(index); break;
      case WatchKind::kDevice: on_device_events(rails_[index]); break;
      case WatchKind::kAlarm: {
        std::uint64_t expirations;
        static_cast<void>(!::read(alarm_.get(), &expirations, sizeof expirations));
        alarm_is_set_ = false;
        break;
      }
    }
  }
  const std::uint64_t now_ns = monotonic_ns();
  look_for_stalls(now_ns);
  if (!farewells_.empty()) finish_farewells(now_ns);
  const bool is_round = elapsed_ns(now_ns, last_round_ns_) >= kRoundNs;
  if (!waiting_.empty() && (has_new_wants_ || is_round)) {
    has_new_wants_ = false;
    make_wanted_links(now_ns);
  }
  if (!is_round) return completions;
  last_round_ns_ = now_ns;
  if (!zombies_.empty()) destroy_zombies(now_ns);
  if (!parking_.empty()) go_on_parking();
  wire_up_->tick(now_ns);
  return completions;
}

bool VerbsProvider::take_completion_events(std::uint32_t index) noexcept {
  const Rail& rail = *rails_[index].rail;
  unsigned taken = 0;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(rail.events(), &queue, &context) == 0) ++taken;
  if (taken > 0) ibv_ack_cq_events(rail.completions(), taken);
  return taken > 0;
}

/// During a sleep: what no other descriptor tells of, now or soon.
void VerbsProvider::set_alarm() noexcept {
  std::uint64_t delay_ns = 0;
  if (!dying_.empty())
    delay_ns = 1;
  else if (!waiting_.empty() || !zombies_.empty() || !parking_.empty() || !draining_.empty() ||
           !farewells_.empty())
    delay_ns = kTickNs;
  else
    delay_ns = wire_up_->tick_ns();
  if (delay_ns == 0) {
    // What is set is hardly later than this.
    if (alarm_is_set_ || std::ranges::all_of(rails_, [](const RailUse& use) { return use.links.empty(); }))
      return;
    delay_ns = stall_look_ns();
  }
  itimerspec time{};
  time.it_value.tv_sec = static_cast<time_t>(delay_ns / 1'000'000'000);
  time.it_value.tv_nsec = static_cast<long>(delay_ns % 1'000'000'000);
  alarm_is_set_ = ::timerfd_settime(alarm_.get(), 0, &time, nullptr) == 0;
}

}  // namespace ch3_offload
