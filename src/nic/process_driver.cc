#include "nic/process_driver.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rdma/monotonic_clock.h"
#include "rdma/shm/bulk_copy.h"
#include "rdma/shm/unix_socket.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kTurnsBeforeYield = 200;
constexpr std::uint32_t kTurnsBeforeCheck = 1u << 14;
/// What part of the patience is for a processor of the user that accepts no connections, before the job's is
/// started: another user may listen under that name.
constexpr std::uint64_t kBusyPart = 6;

/// A lone process starts another processor if none has come for so long.
constexpr std::uint64_t kStartAgainNs = 1'000'000'000;
/// So often a lone process greets a processor, if one after the other ends instead of an answer.
constexpr int kGreetings = 50;
constexpr useconds_t kGreetingUs = 20'000;

constinit const std::uint64_t probe_word = NicdHello::kMagic;

/// In the child of a fork: becomes the processor. Nothing but system calls.
[[noreturn]] void become(const char* program, char* const* arguments, int status, int most_descriptors,
                         const cpu_set_t* processors) {
  // Not a session of its own: Linux may share the cores among sessions, and its clients give it theirs.
  ::setpgid(0, 0);  // What a terminal or Hydra signals are its client's group.
  if (::fork() != 0) ::_exit(0);  // So that it is nobody's child.
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard < 3; ++standard) ::dup2(null, standard);
  const int kept = ::dup2(status, 3);
  ::fcntl(kept, F_SETFD, FD_CLOEXEC);
  if (::syscall(SYS_close_range, 4u, ~0u, 0u) != 0)  // Linux before 5.9, or a filter.
    for (int other = 4; other < most_descriptors; ++other) ::close(other);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (processors != nullptr) ::sched_setaffinity(0, sizeof *processors, processors);
  if (::chdir("/") == 0) ::execv(program, arguments);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(kept, &error, sizeof error);
  ::_exit(1);
}

std::optional<Error> start_nicd(const NicdStart& start, const std::string& name) {
  std::string program = start.program, its_name = name, option = "--job";
  char* const arguments[] = {program.data(), option.data(), its_name.data(), nullptr};
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (const std::uint32_t processor : start.processors)
    if (processor < CPU_SETSIZE) CPU_SET(processor, &processors);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return system_error("starting " + program, errno);
  FileDescriptor reads(pipe[0]), writes(pipe[1]);
  rlimit limit{};
  const bool has_limit = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  const int most_descriptors = has_limit ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) : 1024;
  const pid_t child = ::fork();
  if (child < 0) return system_error("starting " + program, errno);
  if (child == 0)
    become(program.c_str(), arguments, writes.get(), most_descriptors,
           start.processors.empty() ? nullptr : &processors);
  writes.reset();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  int error = 0;
  if (::read(reads.get(), &error, sizeof error) != sizeof error) return {};  // It runs.
  return Error{Status::kUnreachable, error,
               "MPIR_CVAR_CH3_OFFLOAD_NIC=process: cannot run " + program + ": " + std::strerror(error) +
                   " (MPIR_CVAR_CH3_OFFLOAD_NICD names the program)"};
}

/// Connects to the processor that serves this job, or lone processes, and starts it if nobody has.
Result<FileDescriptor> find_nicd(const NicdHello& hello, const NicdStart& start) {
  const std::string of_user = nicd_name(::geteuid());
  const std::string of_job = nicd_name(::geteuid(), hello.secret);
  const bool is_lone = hello.is_lone != 0;
  bool starts = is_lone || hello.local_rank == 0;
  const std::uint64_t begin = monotonic_ns();
  std::uint64_t started_ns = begin;
  for (useconds_t wait_us = 500;; wait_us = std::min<useconds_t>(wait_us * 2, 20'000)) {
    std::string obstacle;
    bool is_busy = false;
    // Others of the job must not choose another than the one that started: they look for the job's first.
    for (const std::string* const name : {starts ? &of_user : &of_job, starts ? &of_job : &of_user}) {
      Result<FileDescriptor> socket = connect_to_nicd(*name);
      if (socket.ok() || (socket.error().status == Status::kUnsupported && name == &of_job)) return socket;
      is_busy = is_busy || socket.error().status == Status::kAgain;
      if (socket.error().status != Status::kUnreachable) obstacle += "; " + socket.error().message;
    }
    const std::uint64_t now_ns = monotonic_ns();
    const std::uint64_t waited_ns = now_ns - begin;
    // One of lone processes may have ended before this process came. Only one can listen: the others end.
    if (is_lone && !starts && now_ns - started_ns > kStartAgainNs) starts = true;
    if (starts && !(is_busy && waited_ns < start.patience_ns / kBusyPart)) {
      starts = false;
      started_ns = now_ns;
      if (std::optional<Error> error = start_nicd(start, of_job)) return std::move(*error);
    }
    if (waited_ns > start.patience_ns)
      return Error{Status::kUnreachable, 0,
                   "MPIR_CVAR_CH3_OFFLOAD_NIC=process: no network processor came up on this node within " +
                       std::to_string(start.patience_ns / 1'000'000'000) + " s (" +
                       (is_lone ? "this process" : "local rank 0") + " starts " + start.program + ")" +
                       obstacle};
    ::usleep(wait_us);
  }
}

/// Whether a client does something else then than to say the text.
bool has_own_code(Status refusal) noexcept {
  return refusal == Status::kAgain || refusal == Status::kNoMemory;
}

/// Says hello and waits for the welcome.
Receipt greet(const FileDescriptor& socket, const NicdHello& hello, const NicdStart& start,
              NicdWelcome& welcome, std::span<FileDescriptor> files) {
  if (!send_with_files(socket, std::as_bytes(std::span(&hello, 1)), {})) return Receipt::kClosed;
  pollfd entry{socket.get(), POLLIN, 0};
  while (::poll(&entry, 1, static_cast<int>(start.patience_ns / 1'000'000)) < 0 && errno == EINTR) {
  }
  return receive_with_files(socket, std::as_writable_bytes(std::span(&welcome, 1)), files);
}

}  // namespace

Result<std::unique_ptr<ProcessDriver>> ProcessDriver::create(const NicdHello& hello, const NicdStart& start,
                                                             const Trace* clock) {
  let_peers_write();
  auto said = std::make_unique<NicdHello>(hello);
  said->magic = NicdHello::kMagic;
  said->version = kNicInterfaceVersion;
  if (said->probe_address == 0) said->probe_address = reinterpret_cast<std::uint64_t>(&probe_word);
  auto welcome = std::make_unique<NicdWelcome>();
  std::array<FileDescriptor, PortMemory::kFiles> files;
  Result<FileDescriptor> socket = FileDescriptor();
  Receipt receipt = Receipt::kClosed;
  // The processor of lone processes ends with the last of them, which may be just now.
  const int greetings = hello.is_lone != 0 ? kGreetings : 1;
  for (int greeted = 0; receipt == Receipt::kClosed && greeted < greetings; ++greeted) {
    if (greeted > 0) ::usleep(kGreetingUs);
    socket = find_nicd(hello, start);
    if (!socket.ok()) return socket.error();
    receipt = greet(socket.value(), *said, start, *welcome, files);
  }
  if (receipt == Receipt::kNoDescriptor)
    return system_error("taking the rings of the node's network processor (ch3-offload-nicd)", EMFILE);
  if ((receipt != Receipt::kMessage && receipt != Receipt::kWithoutFiles) ||
      welcome->magic != NicdWelcome::kMagic)
    return Error{Status::kUnreachable, 0,
                 receipt == Receipt::kNothing
                     ? "the node's network processor (ch3-offload-nicd) does not answer"
                     : "the node's network processor (ch3-offload-nicd) has ended, or is of another version"};
  if (welcome->is_refused != 0)
    return Error{has_own_code(welcome->refusal) ? welcome->refusal : Status::kUnsupported, 0,
                 "the node's network processor (ch3-offload-nicd): " + std::string(text_of(welcome->text))};
  if (receipt == Receipt::kWithoutFiles)
    return Error{Status::kProtocol, 0, "the node's network processor (ch3-offload-nicd) sent no rings"};
  Result<PortMemory> memory = PortMemory::attach(std::move(files));
  if (!memory.ok()) return memory.error();
  return std::unique_ptr<ProcessDriver>(
      new ProcessDriver(std::make_unique<PortMemory>(std::move(memory.value())), std::move(socket.value()),
                        *welcome, PeerId{hello.rank}, clock));
}

ProcessDriver::ProcessDriver(std::unique_ptr<PortMemory> memory, FileDescriptor socket,
                             const NicdWelcome& welcome, PeerId self, const Trace* clock)
    : RingPort(*memory, clock, welcome.must_share != 0 ? Staging::kAll : Staging::kSmallPieces, self),
      memory_(std::move(memory)),
      socket_(std::move(socket)),
      fork_closing_(socket_.get()),
      card_(text_of(welcome.text)),
      pid_(welcome.pid),
      must_share_(welcome.must_share != 0),
      slot_bytes_(welcome.slot_bytes),
      process_(welcome.process),
      descriptors_{memory_->client_bell().sleeper, socket_.get()} {}

ProcessDriver::~ProcessDriver() = default;

Result<TargetPort*> ProcessDriver::attach_targets() {
  if (must_share_)
    return Error{
        Status::kUnsupported, 0,
        "the network processor (ch3-offload-nicd) may not read the memory of this process: it serves "
        "no target entries of it"};
  const Error no_memory{
      Status::kNoMemory, 0,
      "no memory or no descriptors (ulimit -n) for a second client of the network processor"};
  if (ask(CommandKind::kAttachTargets) == 0) return no_memory;
  Result<PortMemory> memory = receive_targets();
  try {
    if (memory.ok()) {
      second_ = std::make_unique<SecondClient>(std::move(memory.value()), static_cast<NicdProcess&>(*this),
                                               static_cast<SharesMemory&>(*this));
      return static_cast<TargetPort*>(&second_->port);
    }
  } catch (const std::bad_alloc&) {
    memory = no_memory;
  }
  ask(CommandKind::kDetachTargets);
  return memory.error();
}

/// What the processor has sent before its answer.
Result<PortMemory> ProcessDriver::receive_targets() noexcept {
  NicdTargets targets{0};
  std::array<FileDescriptor, PortMemory::kFiles> files;
  const Receipt receipt = receive_with_files(socket_, std::as_writable_bytes(std::span(&targets, 1)), files);
  if (receipt == Receipt::kMessage && targets.magic == NicdTargets::kMagic)
    return PortMemory::attach(std::move(files));
  std::byte rest;
  // Without descriptors for the files, the message is still there.
  if (receipt == Receipt::kNoDescriptor)
    static_cast<void>(::recv(socket_.get(), &rest, sizeof rest, MSG_DONTWAIT) < 0);
  return Error{Status::kNoMemory, 0, "no descriptors for the rings of the network processor's second client"};
}

void ProcessDriver::detach_targets() noexcept {
  if (second_ == nullptr) return;
  ask(CommandKind::kDetachTargets);
  second_.reset();
}

/// As NicdProcess's. Also ends this process if the processor gives it rubbish.
void ProcessDriver::check_processor() noexcept {
  if (reads_rubbish()) {
    std::fprintf(
        stderr,
        "ch3:offload: the ring of events from the node's network processor (ch3-offload-nicd, process "
        "%d) holds rubbish: its memory was overwritten\n",
        static_cast<int>(pid_));
    std::_Exit(EXIT_FAILURE);
  }
  std::array<char, kNicdTextBytes> text{};
  const ssize_t length = ::recv(socket_.get(), text.data(), text.size() - 1, MSG_DONTWAIT | MSG_PEEK);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  NicdTargets targets{0};
  if (length == sizeof targets) std::memcpy(&targets, text.data(), sizeof targets);
  if (targets.magic == NicdTargets::kMagic) return;  // receive_targets() takes it.
  if (length > 0)
    std::fprintf(stderr, "ch3:offload: the node's network processor refuses this process: %s\n", text.data());
  else
    std::fprintf(
        stderr,
        "ch3:offload: the node's network processor (ch3-offload-nicd, process %d) has ended: this process "
        "cannot go on without it\n",
        static_cast<int>(pid_));
  std::_Exit(EXIT_FAILURE);
}

void ProcessDriver::wait_for_processor(std::uint32_t turns) noexcept {
  if (turns < kTurnsBeforeYield) return;
  sched_yield();
  if (turns % 1024 == 0) check_processor();
}

bool ProcessDriver::send_share(const NicdShare& share, const FileDescriptor& file) noexcept {
  const int files[] = {file.get()};
  return send_with_files(socket_, std::as_bytes(std::span(&share, 1)), files);
}

std::size_t ProcessDriver::progress() noexcept {
  const std::size_t happened = RingPort::progress();
  if (happened > 0) {
    fruitless_ = 0;
  } else if (++fruitless_ >= kTurnsBeforeCheck) {
    fruitless_ = 0;
    check_processor();
  }
  return happened;
}

bool ProcessDriver::arm() noexcept {
  check_processor();
  return RingPort::arm();
}

}  // namespace ch3_offload
