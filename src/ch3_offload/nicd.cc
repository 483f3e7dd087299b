#include "ch3_offload/nicd.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "ch3_offload/nicd_hello.h"
#include "ch3_offload/nicd_job.h"
#include "ch3_offload/nicd_lone_process.h"
#include "rdma/cycle_clock.h"
#include "rdma/descriptor_limit.h"
#include "rdma/monotonic_clock.h"
#include "rdma/shm/unix_socket.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// How often a busy processor looks for newcomers and for clients that have ended, and tells the counters.
constexpr std::uint64_t kHouseInterval = 50 * CycleClock::kAbout20Microseconds;
/// A job's processor without a client ends after this time: nobody came, or all have ended.
constexpr std::uint64_t kAloneAtStartNs = 20'000'000'000;
/// How often a sleeping processor of a job looks whether it is to end, which comes without a descriptor.
constexpr std::uint64_t kQuietPollNs = 1'000'000'000;

std::uint64_t now_ns() noexcept { return monotonic_ns(); }
std::uint64_t no_others() noexcept { return 0; }
std::uint64_t process_switches() noexcept {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_nivcsw);
}

WaitPolicy wait_policy(std::int64_t spin_us, std::uint32_t clients) noexcept {
  return {spin_us, clients + 1, usable_cores(), {now_ns, no_others, process_switches}};
}

}  // namespace

Result<std::unique_ptr<Nicd>> Nicd::create(const Options& options) {
  raise_descriptor_limit();
  Result<FileDescriptor> listener = listen_as_nicd(options.name);
  if (!listener.ok()) return listener.error();
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  FileDescriptor signals(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return system_error("signalfd", errno);
  return std::unique_ptr<Nicd>(new Nicd(options, std::move(listener.value()), std::move(signals)));
}

Nicd::Nicd(const Options& options, FileDescriptor listener, FileDescriptor signals)
    : options_(options),
      signals_(std::move(signals)),
      newcomers_(std::move(listener)),
      waiter_(wait_policy(-1, 1)),
      alone_since_ns_(monotonic_ns()) {}

std::size_t Nicd::turn() noexcept {
  const std::uint64_t takeovers = relay_.takeovers();
  std::size_t happened = 0;
  // By number: during a turn, others may come and go.
  for (std::size_t i = 0; i < groups_.size(); ++i) happened += groups_[i]->turn();
  return happened + (relay_.takeovers() - takeovers);  // Nothing is armed any more.
}

int Nicd::run() {
  relay_.run([this] { return serve(); });
  return 0;
}

/// False: the process ends. True: another thread goes on.
bool Nicd::serve() {
  for (const auto& group : groups_) group->take_over();
  std::uint64_t house_at = CycleClock::now();
  waiter_.begin();
  while (!relay_.is_asked()) {
    waiter_.round(*this);
    if (const std::uint64_t now = CycleClock::now(); now - house_at > kHouseInterval) {
      house_at = now;
      keep_house();
    }
    if (ends_) return false;
  }
  return true;
}

/// May find that the process ends.
void Nicd::keep_house() noexcept {
  signalfd_siginfo signal;
  if (::read(signals_.get(), &signal, sizeof signal) > 0) ends_ = true;
  if (ends_) return;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i]->tell_counters();
    groups_[i]->look_at_sockets();
  }
  newcomers_.look(monotonic_ns(),
                  [this](FileDescriptor socket, const NicdHello& hello) { admit(std::move(socket), hello); });
  if (std::erase_if(groups_, [](const auto& group) { return group->is_over(monotonic_ns()); }) > 0)
    choose_waiting();
  if (!options_.is_of_job) return;
  if (!groups_.empty()) {
    alone_since_ns_ = 0;
    // Memory of those that are left may never come.
    ends_ = std::ranges::all_of(
        groups_, [](const auto& group) { return group->clients() > 0 && group->is_deserted(); });
  } else {
    ends_ = alone_since_ns_ == 0 || monotonic_ns() - alone_since_ns_ > kAloneAtStartNs;
  }
}

/// Without memory the connection ends, and the client says what may be wrong.
void Nicd::admit(FileDescriptor socket, const NicdHello& hello) noexcept try {
  const auto refuse = [&](const FileDescriptor& to, const std::string& why,
                          Status status = Status::kUnsupported) {
    auto welcome = std::make_unique<NicdWelcome>();
    welcome->pid = ::getpid();
    welcome->is_refused = 1;
    welcome->refusal = status;
    set_text(welcome->text, why);
    static_cast<void>(send_with_files(to, std::as_bytes(std::span(welcome.get(), 1)), {}));
  };
  const FileDescriptor answer = duplicate(socket);
  if (hello.magic != NicdHello::kMagic || hello.version != kNicInterfaceVersion)
    return refuse(answer,
                  "it and the library of this process were built of different versions (of the rings: " +
                      std::to_string(kNicInterfaceVersion) + " and " + std::to_string(hello.version) + ")");
  const pid_t pid = peer_credentials(socket).pid;
  if (pid == 0) return refuse(answer, "it cannot see this process: they are in different PID namespaces");
  try {
    if (const std::optional<Error> error = find_or_make_group(hello, pid, std::move(socket)))
      refuse(answer, reason_of(*error), error->status);
  } catch (const std::bad_alloc&) {
    refuse(answer, "it has no memory for another process", Status::kNoMemory);
  }
} catch (const std::bad_alloc&) {
}

/// Takes the process into its job, if it has one.
std::optional<Error> Nicd::find_or_make_group(const NicdHello& hello, pid_t pid, FileDescriptor socket) {
  for (const auto& one : groups_) {
    if (!one->is_of(hello)) continue;
    if (one->is_leaving()) return Error{Status::kPeerFailed, 0, "the job's other processes here have ended"};
    return one->admit(std::move(socket), pid, hello);
  }
  const auto take = [&](auto made) -> std::optional<Error> {
    if (!made.ok()) return made.error();
    groups_.push_back(std::move(made.value()));
    return {};
  };
  std::uint64_t processes = hello.is_lone != 0 ? 0 : hello.job_size;
  for (const auto& one : groups_) processes += one->job_size();
  // A job that is too large alone is refused when it is made.
  if (processes > kMostProcessesOfJobs && hello.job_size <= kMostProcesses)
    return Error{Status::kUnsupported, 0,
                 "with this one, the jobs that it serves have " + std::to_string(processes) +
                     " processes: at most " + std::to_string(kMostProcessesOfJobs) + " are served"};
  std::optional<Error> error = hello.is_lone != 0 ? take(NicdLoneProcess::create(hello, relay_))
                                                  : take(NicdJob::create(hello, relay_));
  if (error) return error;
  choose_waiting();
  return groups_.back()->admit(std::move(socket), pid, hello);
}

/// By all groups: their processes share the node. If they do not agree how long to poll, it adapts.
void Nicd::choose_waiting() noexcept {
  std::uint32_t processes = 0;
  std::int64_t spin_us = groups_.empty() ? -1 : groups_.front()->spin_us();
  for (const auto& group : groups_) {
    processes += group->local_size();
    if (group->spin_us() != spin_us) spin_us = -1;
  }
  waiter_.begin(wait_policy(spin_us, std::max(processes, 1U)));
}

WaitPolicy::Step Nicd::arm() noexcept {
  keep_house();
  if (!ends_ && std::ranges::all_of(groups_, [](const auto& group) { return group->arm(); }))
    return WaitPolicy::Step::kSleep;
  disarm();
  return WaitPolicy::Step::kPoll;
}

void Nicd::disarm() noexcept {
  for (const auto& group : groups_) group->disarm();
}

/// Until a client, a network, a newcomer or a signal wakes it.
void Nicd::sleep(SleepSet& set) noexcept {
  set.add(signals_.get());
  set.add(relay_.descriptor());
  newcomers_.add_to(set);
  for (const auto& group : groups_) group->add_to(set);
  if (options_.is_of_job && groups_.empty()) set.end_after(kQuietPollNs);
  relay_.sleeps();
  static_cast<void>(set.sleep());
  relay_.wakes();
}

}  // namespace ch3_offload
