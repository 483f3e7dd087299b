// Set-up, the numbers of processes, and what time brings. See introductions.h.

#include "nic/introductions.h"

#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include "engine/card.h"
#include "rdma/descriptor_limit.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"
#include "rdma/verbs/host_address.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
/// Between looks at the sockets, and while nobody is being met. A look is a system call.
constexpr std::uint64_t kLookNs = 20'000;
constexpr std::uint64_t kQuietLookNs = 200'000;
/// Polls without a look at the clock, while nobody is being met and polls follow each other quickly.
constexpr std::uint32_t kMostBlindPolls = 15;
/// Between looks at what has deadlines.
constexpr std::uint64_t kTickNs = 10 * kMillisecondNs;
/// Longer without a poll, and this process was busy elsewhere.
constexpr std::uint64_t kLongestTickNs = 100 * kMillisecondNs;
/// Between dials of one process whose backlog is full, or that has hung up.
constexpr std::uint64_t kRedialNs = 20 * kMillisecondNs;
/// So long after that, the number of such a process is free, and nothing is known of it any more.
constexpr std::uint64_t kRememberedNs = 10'000 * kMillisecondNs;
/// find() seeks a process that could not be reached anew after so long; the first time and at most.
constexpr std::uint64_t kAgainNs = 100 * kMillisecondNs;
constexpr std::uint64_t kMostAgainNs = 1000 * kMillisecondNs;
/// A dial makes way for another one after so long, and is made again after so long.
constexpr std::uint64_t kGraceOfDialNs = 200 * kMillisecondNs;
constexpr std::uint64_t kMadeWayNs = 2000 * kMillisecondNs;
/// Processes that cannot be reached, or are silent, are logged so often.
constexpr std::uint32_t kMostLines = 10;

}  // namespace

Result<std::uint32_t> choose_nid(std::string_view interface) {
  const Result<std::string> address =
      find_host_address(interface, /*loopback_serves=*/true, AddressFamily::kIpv4);
  in_addr nid{htonl(INADDR_LOOPBACK)};
  if (!address.ok() && !interface.empty()) {
    std::string_view why = address.error().message;
    constexpr std::string_view kOther = "verbs: ";  // The provider shares the search for an address.
    if (why.starts_with(kOther)) why.remove_prefix(kOther.size());
    return Error{address.error().status, 0, "choosing the nid of this process: " + std::string(why)};
  }
  if (address.ok() && ::inet_pton(AF_INET, address.value().c_str(), &nid) != 1)
    return Error{Status::kUnsupported, 0,
                 "choosing the nid of this process: '" + address.value() + "' is no IPv4 address"};
  return std::uint32_t{ntohl(nid.s_addr)};
}

Introductions::Introductions(const Config& config)
    : config_(config),
      log_(config.log, config.log_context),
      user_(UserId{::geteuid()}),
      key_(config.key.proves() ? config.key : UserKey::of_user(user_)) {}

Introductions::~Introductions() = default;

Result<std::unique_ptr<Introductions>> Introductions::create(const Config& config) {
  assert(config.own < config.first_peer || index_of(config.own) >= config.peer_limit);
  std::unique_ptr<Introductions> made(new Introductions(config));  // The constructor is private.
  if (std::optional<Error> error = made->set_up()) return std::move(*error);
  return made;
}

std::optional<Error> Introductions::set_up() {
  if (config_.card.empty() || config_.card.size() > kMostProcessCardBytes)
    return Error{Status::kUnsupported, 0,
                 "the card of this process has " + std::to_string(config_.card.size()) + " bytes; 1 to " +
                     std::to_string(kMostProcessCardBytes) + " can be told"};
  raise_descriptor_limit();
  if (::getrandom(&instance_, sizeof instance_, 0) != sizeof instance_)
    return system_error("getrandom", errno);
  const Result<std::uint32_t> nid =
      config_.nid != 0 ? Result<std::uint32_t>(config_.nid) : choose_nid(config_.interface);
  if (!nid.ok()) return nid.error();
  self_ = {nid.value(), config_.pid};
  Result<ProcessListeners> listeners = listen_as(self_, user_);
  if (!listeners.ok()) return listeners.error();
  listeners_ = std::move(listeners.value());
  closing_ = {ForkClosing(listeners_.net.get()), ForkClosing(listeners_.node.get())};
  bell_ = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!bell_.valid() || !epoll_.valid() || !watch(bell_.get(), Tag::kBell, 0, EPOLLIN) ||
      !watch(listeners_.net.get(), Tag::kNet, 0, EPOLLIN) ||
      !watch(listeners_.node.get(), Tag::kNode, 0, EPOLLIN))
    return system_error("watching for processes that introduce themselves", errno);
  last_poll_ns_ = last_tick_ns_ = monotonic_ns();
  return {};
}

// Numbers

std::size_t Introductions::most_processes() const noexcept {
  const std::uint32_t first = index_of(config_.first_peer);
  return config_.peer_limit > first ? config_.peer_limit - first : 0;
}

/// A process gets a number. kNoMemory: nothing was done.
Status Introductions::add(PhysicalId id, std::size_t& index) noexcept {
  const bool is_new = free_count_ <= kLeastFree && processes_.size() < most_processes();
  if (!is_new && first_free_ == SIZE_MAX) return Status::kNoMemory;
  index = is_new ? processes_.size() : first_free_;
  Process made{.id = id, .is_elsewhere = !config_.meets_on_node};
  made.number =
      is_new ? PeerId{index_of(config_.first_peer) + static_cast<std::uint32_t>(index)} : number_of(index);
  made.was_met = std::ranges::find(ended_, id.process()) != ended_.end();
  if (const auto old = by_id_.find(static_cast<std::uint64_t>(id.process())); old != by_id_.end()) {
    made.was_met = made.was_met || processes_[old->second].was_met;
    made.is_logged = processes_[old->second].is_logged;
    made.failures = processes_[old->second].failures;
  }
  try {
    const std::size_t room = index < processes_.capacity() ? processes_.capacity() : 2 * index + 16;
    sought_.reserve(room);
    untold_.reserve(room);
    leaving_.reserve(room);
    processes_.reserve(room);
    by_id_.insert_or_assign(static_cast<std::uint64_t>(id.process()), index);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  if (is_new) {
    processes_.push_back(made);
  } else {
    first_free_ = std::exchange(processes_[index], made).next_free;
    if (first_free_ == SIZE_MAX) last_free_ = SIZE_MAX;
    --free_count_;
  }
  untold_.push_back(index);
  last_found_ = {};  // It may be that process anew.
  return Status::kOk;
}

Status Introductions::find(ProcessId process, PeerId& peer) noexcept {
  if (process == self()) {
    peer = config_.own;
    return Status::kOk;
  }
  if (process == last_found_.process && last_found_.index != SIZE_MAX) {
    peer = number_of(last_found_.index);
    return Status::kOk;
  }
  const auto found = by_id_.find(static_cast<std::uint64_t>(process));
  std::size_t index = found != by_id_.end() ? found->second : 0;
  const bool is_over = found != by_id_.end() && processes_[index].state == State::kForgotten &&
                       monotonic_ns() >= processes_[index].again_at_ns;
  if (found == by_id_.end() || is_over) {
    if (const Status status = add(PhysicalId::of(process), index); status != Status::kOk) return status;
    sought_.push_back(index);
    const std::uint64_t one = 1;
    static_cast<void>(!::write(bell_.get(), &one, sizeof one));
  }
  peer = number_of(index);
  // A number that was forgotten is only given for a while.
  if (processes_[index].state != State::kForgotten) last_found_ = {process, index};
  return Status::kOk;
}

void Introductions::forget(PeerId peer) noexcept {
  const std::size_t index = std::size_t{slot_of(peer)} - index_of(config_.first_peer);
  if (index >= processes_.size() || number_of(index) != peer) return;
  Process& process = processes_[index];
  if (process.state == State::kForgotten || process.state == State::kFree) return;
  if (process.dial != SIZE_MAX) end(process.dial);
  stop_seeking(index);
  std::erase(untold_, index);
  const auto found = by_id_.find(static_cast<std::uint64_t>(process.id.process()));
  const bool is_held = process.state == State::kUnreachable;  // find() still gives this number for a while.
  if (!is_held && found != by_id_.end() && found->second == index) by_id_.erase(found);
  last_found_ = {};
  if (process.was_met) ended_[next_ended_++ % ended_.size()] = process.id.process();
  process.state = State::kForgotten;
  leaving_.push_back(index);
}

/// The numbers of those who have gone, and that nothing uses, become free.
void Introductions::let_go(Listener& listener) noexcept {
  if (leaving_.empty()) return;
  const std::uint64_t now_ns = monotonic_ns();
  std::erase_if(leaving_, [&](std::size_t index) {
    Process& process = processes_[index];
    const auto found = by_id_.find(static_cast<std::uint64_t>(process.id.process()));
    const bool is_known = found != by_id_.end() && found->second == index;
    if (is_known && now_ns < process.again_at_ns + kRememberedNs) return false;
    if (is_known) by_id_.erase(found);
    if (!listener.on_unused(process.number)) return false;
    process = {.id = {}, .number = next_generation(process.number)};
    process.state = State::kFree;
    (last_free_ == SIZE_MAX ? first_free_ : processes_[last_free_].next_free) = index;
    last_free_ = index;
    ++free_count_;
    return true;
  });
}

void Introductions::stop_seeking(std::size_t process) noexcept { std::erase(sought_, process); }

std::size_t Introductions::tell(Listener& listener, std::size_t index) noexcept {
  if (std::exchange(processes_[index].is_told, true)) return 0;
  std::erase(untold_, index);
  listener.on_process(number_of(index), processes_[index].id.process(), user_);
  return 1;
}

std::size_t Introductions::tell_new(Listener& listener) noexcept {
  std::size_t told = 0;
  while (!untold_.empty()) told += tell(listener, untold_.front());
  return told;
}

/// `frame`: the Card of the process, whose proof was verified.
std::size_t Introductions::met(Listener& listener, std::size_t index, const Frame& frame) noexcept {
  Process& process = processes_[index];
  const PeerNames names{PeerId{frame.as<ProcessCard>().known_as}, PeerId{frame.as<ProcessCard>().own}};
  stop_seeking(index);
  if (process.dial != SIZE_MAX) end(process.dial);  // The guest's way was the faster one.
  process.state = State::kMet;
  process.instance = frame.as<ProcessCard>().instance;
  process.known_as = names.known_as;
  process.was_met = true;
  process.is_logged = false;
  process.failures = 0;
  try {
    listener.on_card(number_of(index), card_with_names(card_in(frame), names));
  } catch (const std::bad_alloc&) {
    return unreachable(listener, index, "there is no memory for its card");
  }
  return 1;
}

/// `why`: for the log.
std::size_t Introductions::unreachable(Listener& listener, std::size_t index, std::string_view why) noexcept {
  Process& process = processes_[index];
  stop_seeking(index);
  process.state = State::kUnreachable;
  process.again_at_ns = monotonic_ns() + std::min(kAgainNs << std::min(process.failures, 4u), kMostAgainNs);
  ++process.failures;
  if (!std::exchange(process.is_logged, true)) log_about(process, "cannot be reached", why);
  listener.on_card(number_of(index), {});
  return 1;
}

/// There is no process of that id. One that was met has ended, as processes do: whoever talks to it hears
/// that from the operation.
std::size_t Introductions::nobody_there(Listener& listener, std::size_t index,
                                        std::string_view why) noexcept {
  Process& process = processes_[index];
  if (process.was_met) process.is_logged = true;
  return unreachable(listener, index, why);
}

void Introductions::log_about(const Process& process, const char* what, std::string_view why) noexcept {
  if (lines_ >= kMostLines) return;
  ++lines_;
  const PhysicalId id = process.id;
  log_("the process %u.%u.%u.%u/%u %s: %.*s", id.nid >> 24, id.nid >> 16 & 255, id.nid >> 8 & 255,
       id.nid & 255, id.pid, what, static_cast<int>(why.size()), why.data());
}

// Time

std::uint64_t Introductions::next_due_ns() const noexcept {
  if (!untold_.empty()) return 0;
  return sought_.empty() && dials_ + guests_ == 0 && !paused_ ? UINT64_MAX : kTickNs;
}

std::size_t Introductions::poll(Listener& listener) noexcept {
  std::size_t happened = tell_new(listener);
  const bool is_quiet = happened == 0 && sought_.empty() && dials_ == 0 && guests_ == 0;
  if (is_quiet && blind_polls_ > 0) {
    --blind_polls_;
    return 0;
  }
  const std::uint64_t now_ns = monotonic_ns();
  blind_polls_ = elapsed_ns(now_ns, last_clock_ns_) < kLookNs ? kMostBlindPolls : 0;
  last_clock_ns_ = now_ns;
  const std::uint64_t since_ns = elapsed_ns(now_ns, last_poll_ns_);
  if (happened == 0 && since_ns < (is_quiet ? kQuietLookNs : kLookNs)) return 0;
  patience_ns_ += std::min(since_ns, kLongestTickNs);
  last_poll_ns_ = now_ns;

  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    // An event may be stale, because its slot was used again within this batch: hear() only tries.
    switch (const Tag tag = static_cast<Tag>(data >> 32)) {
      case Tag::kMeeting: happened += hear(listener, data & UINT32_MAX); break;
      case Tag::kNode:
      case Tag::kNet: happened += accept_some(listener, tag); break;
      case Tag::kBell: {
        std::uint64_t rung;
        static_cast<void>(!::read(bell_.get(), &rung, sizeof rung));
        break;
      }
    }
  }
  happened += dial_those_due(listener);
  if (elapsed_ns(now_ns, last_tick_ns_) < kTickNs) return happened;
  last_tick_ns_ = now_ns;
  let_go(listener);
  if (paused_ && guests_ < kMostGuests) resume();
  return happened + look_at_deadlines(listener);
}

/// Goes round, so that each process has its turn.
std::size_t Introductions::dial_those_due(Listener& listener) noexcept {
  std::size_t happened = 0;
  const std::uint64_t now_ns = sought_.empty() ? 0 : monotonic_ns();
  for (std::size_t left = sought_.size(); left > 0 && dials_ < kMostDials; --left) {
    if (next_sought_ >= sought_.size()) next_sought_ = 0;
    const std::size_t index = sought_[next_sought_];
    const Process& process = processes_[index];
    if (process.dial == SIZE_MAX && now_ns >= process.retry_at_ns) happened += dial(listener, index);
    if (process.state == State::kSought) ++next_sought_;  // Otherwise the next one has its place.
  }
  return happened;
}

std::size_t Introductions::dial(Listener& listener, std::size_t index) noexcept {
  Process& process = processes_[index];
  process.was_dialled = true;
  if (!process.id.is_possible()) return unreachable(listener, index, "no process has such an id");
  process.retry_at_ns = monotonic_ns() + kRedialNs;
  FrameStream stream;
  const auto try_at = [&](const SocketAddress& to) {
    try {
      Result<FrameStream> made = FrameStream::dial(to, kProcesses, static_cast<int>(config_.patience_ms / 2));
      if (!made.ok()) return made.error().status;
      stream = std::move(made.value());
      return Status::kOk;
    } catch (const std::bad_alloc&) {
      return Status::kNoMemory;
    }
  };
  Status status = Status::kPeerFailed;
  if (!process.is_elsewhere) {
    status = try_at(process.id.on_node(user_));
    process.is_full = status == Status::kAgain;
    process.is_elsewhere = status != Status::kOk && status != Status::kAgain && status != Status::kNoMemory;
  }
  if (process.is_elsewhere) {
    if (!key_.proves())
      return nobody_there(listener, index,
                          process.id.nid == self_.nid
                              ? "no process of this user has that id"
                              : "no process of this user and node has that id; to meet processes of other "
                                "nodes, all need the same key file");
    status = try_at(process.id.on_net());
    if (status == Status::kPeerFailed) return nobody_there(listener, index, "nobody listens there");
  }
  if (status != Status::kOk) return 0;
  const bool is_on_node = !process.is_elsewhere;
  const std::size_t begun = begin(std::move(stream), /*is_dial=*/true, is_on_node);
  if (begun == SIZE_MAX) return 0;
  process.dial = begun;
  meetings_[begun]->process = index;
  send_hello(*meetings_[begun], process.id);
  update_watch(process.dial);
  return 0;
}

std::size_t Introductions::look_at_deadlines(Listener& listener) noexcept {
  for (std::size_t i = 0; i < meetings_.size(); ++i) {
    const Meeting& meeting = *meetings_[i];
    if (meeting.step != Step::kFree && !meeting.is_dial &&
        patience_ns_ - meeting.since_ns >= kGuestMs * kMillisecondNs)
      end(i);
  }
  make_way();
  const std::uint64_t tick_ns = patience_ns_ - std::exchange(patience_at_tick_ns_, patience_ns_);
  const std::uint64_t most_ns = config_.patience_ms * kMillisecondNs;
  std::size_t happened = 0;
  for (std::size_t i = sought_.size(); i > 0; --i) {
    const std::size_t index = sought_[i - 1];
    Process& process = processes_[index];
    if (!process.was_dialled) continue;
    const bool is_taken =
        process.dial != SIZE_MAX ? meetings_[process.dial]->stream.is_connected() : process.is_full;
    (is_taken ? process.silent_ns : process.unanswered_ns) += tick_ns;
    if (process.silent_ns >= most_ns && !std::exchange(process.is_silence_logged, true))
      log_about(process, "is waited for", "it runs, or hangs, and has not answered yet");
    if (process.unanswered_ns < most_ns) continue;
    if (process.dial != SIZE_MAX) end(process.dial);
    happened += unreachable(listener, index, "it has not answered for too long");
  }
  return happened;
}

/// Ends the oldest dials while all are in use and other processes wait for their turn.
void Introductions::make_way() noexcept {
  if (dials_ < kMostDials) return;
  const std::uint64_t now_ns = monotonic_ns();
  auto waiting = std::ranges::count_if(sought_, [&](std::size_t index) {
    return processes_[index].dial == SIZE_MAX && now_ns >= processes_[index].retry_at_ns;
  });
  for (; waiting > 0; --waiting) {
    std::size_t oldest = SIZE_MAX;
    for (std::size_t i = 0; i < meetings_.size(); ++i) {
      const Meeting& meeting = *meetings_[i];
      if (meeting.step == Step::kFree || !meeting.is_dial || patience_ns_ - meeting.since_ns < kGraceOfDialNs)
        continue;
      if (oldest == SIZE_MAX || meeting.since_ns < meetings_[oldest]->since_ns) oldest = i;
    }
    if (oldest == SIZE_MAX) return;
    processes_[meetings_[oldest]->process].retry_at_ns = now_ns + kMadeWayNs;
    end(oldest);
  }
}

}  // namespace ch3_offload
