#include "nic/process_driver.h"

#include <fcntl.h>
#include <poll.h>
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
#include <filesystem>
#include <system_error>

#include "rdma/monotonic_clock.h"
#include "rdma/shm/bulk_copy.h"
#include "rdma/shm/unix_socket.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kTurnsBeforeCheck = 1u << 14;
/// What part of the patience is for a processor of the user that accepts no connections, before the job's is
/// started: another user may listen under that name.
constexpr std::uint64_t kBusyPart = 6;

/// A lone process starts another processor if none has come for so long.
constexpr std::uint64_t kStartAgainNs = 1'000'000'000;
/// So often a lone process greets a processor, if one after the other ends instead of an answer.
constexpr int kGreetings = 50;
/// Between two greetings.
constexpr useconds_t kGreetingUs = 20'000;

/// Programs that a lone process starts and that end without serving: others may have started one, too, and
/// only one can listen.
constexpr int kMostStarts = 5;
/// A process that waits for so long says what for. The second is for one that is not the first to say it.
constexpr std::uint64_t kSaysNs = 1'500'000'000;
constexpr std::uint64_t kOthersSayNs = 10'000'000'000;

/// What a rank has open: standard streams, the process manager's, its rings, and those of its windows.
constexpr int kDescriptorsOfARank = 24;

constinit const std::uint64_t probe_word = NicdHello::kMagic;

/// `what` needs descriptors that the limit does not allow.
Error no_descriptors(const std::string& what) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return {Status::kNoMemory, EMFILE,
          "no descriptors for " + what + ": RLIMIT_NOFILE of this process is " +
              std::to_string(limit.rlim_cur) + ", and with MPIR_CVAR_CH3_OFFLOAD_NIC=process it needs some " +
              std::to_string(kDescriptorsOfARank) + ": raise it with ulimit -n"};
}

/// In the child of a fork: becomes the processor. Nothing but system calls. `life` is the program's as long
/// as it lives; it is told why the program cannot be run.
[[noreturn]] void become(const char* program, char* const* arguments, int life, int most_descriptors,
                         const cpu_set_t* processors) {
  constexpr int kLife = 3, kFirstOther = 4;
  // Not a session of its own: Linux may share the cores among sessions, and its clients give it theirs.
  ::setpgid(0, 0);                // What a terminal or Hydra signals are its client's group.
  if (::fork() != 0) ::_exit(0);  // So that it is nobody's child.
  ::dup2(life, kLife);
  ::fcntl(kLife, F_SETFD, 0);
  if (::syscall(SYS_close_range, unsigned{kFirstOther}, ~0u, 0u) != 0)  // Linux before 5.9, or a filter.
    for (int other = kFirstOther; other < most_descriptors; ++other) ::close(other);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int standard = 0; standard < kLife; ++standard)
    if (::dup2(null, standard) == null) ::fcntl(null, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (processors != nullptr) ::sched_setaffinity(0, sizeof *processors, processors);
  if (::chdir("/") == 0) ::execv(program, arguments);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(kLife, &error, sizeof error);
  ::_exit(1);
}

/// Starts the processor. Returns the end of a pipe whose other end it has until it ends.
Result<FileDescriptor> start_nicd(const std::string& path, const NicdStart& start, const std::string& name) {
  std::string program = path, its_name = name, option = "--job";
  char* const arguments[] = {program.data(), option.data(), its_name.data(), nullptr};
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (const std::uint32_t processor : start.processors)
    if (processor < CPU_SETSIZE) CPU_SET(processor, &processors);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return errno == EMFILE ? no_descriptors("starting " + program)
                           : system_error("starting " + program, errno);
  FileDescriptor life(pipe[0]), its_life(pipe[1]);
  rlimit limit{};
  const bool has_limit = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  const int most_descriptors = has_limit ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) : 1024;
  const pid_t child = ::fork();
  if (child < 0) return system_error("starting " + program, errno);
  if (child == 0)
    become(program.c_str(), arguments, its_life.get(), most_descriptors,
           start.processors.empty() ? nullptr : &processors);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return life;
}

/// What has become of the program at the other end of its pipe. Of a processor that was not started: kRuns.
struct Fate {
  enum { kRuns, kNotRun, kEnded } is = kRuns;
  int error = 0;  ///< kNotRun: why not.
};
Fate fate_of(const FileDescriptor& life) noexcept {
  Fate fate;
  if (!life.valid()) return fate;
  const ssize_t length = ::read(life.get(), &fate.error, sizeof fate.error);
  if (length == sizeof fate.error) fate.is = Fate::kNotRun;
  if (length == 0) fate.is = Fate::kEnded;
  return fate;
}

/// Says once what this process waits for, if it has waited for long.
class PatienceSaid {
 public:
  PatienceSaid(const NicdHello& hello, const NicdStart& start) noexcept
      : due_ns_(hello.is_lone != 0 || hello.local_rank <= 1 ? kSaysNs : kOthersSayNs),
        patience_s_(start.patience_ns / 1'000'000'000) {}

  std::uint64_t due_ns() const noexcept { return due_ns_; }
  void waited(std::uint64_t waited_ns, const std::string& what) {
    if (waited_ns < due_ns_) return;
    due_ns_ = UINT64_MAX;
    std::fprintf(
        stderr, "ch3:offload: MPIR_CVAR_CH3_OFFLOAD_NIC=process: this process waits for %s, at most %llu s\n",
        what.c_str(), static_cast<unsigned long long>(patience_s_));
  }

 private:
  std::uint64_t due_ns_;
  const std::uint64_t patience_s_;
};

/// Connects to the processor that serves this job, or lone processes, and starts it if nobody has. Patience
/// ends by `begin`, a time of monotonic_ns().
Result<FileDescriptor> find_nicd(const NicdHello& hello, const NicdStart& start, std::uint64_t begin,
                                 PatienceSaid& said) {
  // It runs in another directory than this process.
  std::error_code none;
  std::string program = std::filesystem::absolute(start.program, none).lexically_normal().string();
  if (none) program = start.program;
  const std::string of_user = nicd_name(::geteuid());
  const std::string of_job = nicd_name(::geteuid(), hello.secret);
  const bool is_lone = hello.is_lone != 0;
  bool starts = is_lone || hello.local_rank == 0;
  std::uint64_t started_ns = monotonic_ns();
  FileDescriptor life;
  int ends = 0;
  for (useconds_t wait_us = 500;; wait_us = std::min<useconds_t>(wait_us * 2, 20'000)) {
    std::string obstacle;
    bool is_busy = false;
    const Fate fate = fate_of(life);  // Before the look: it may have served others.
    // Others of the job must not choose another than the one that started: they look for the job's first.
    for (const std::string* const name : {starts ? &of_user : &of_job, starts ? &of_job : &of_user}) {
      Result<FileDescriptor> socket = connect_to_nicd(*name);
      if (socket.ok() || (socket.error().status == Status::kUnsupported && name == &of_job)) return socket;
      is_busy = is_busy || socket.error().status == Status::kAgain;
      if (socket.error().status != Status::kUnreachable) obstacle += "; " + socket.error().message;
    }
    const std::uint64_t now_ns = monotonic_ns();
    const std::uint64_t waited_ns = now_ns - begin;
    if (fate.is == Fate::kNotRun)
      return Error{Status::kUnreachable, fate.error,
                   "MPIR_CVAR_CH3_OFFLOAD_NIC=process: cannot run " + program + ": " +
                       std::strerror(fate.error) + " (MPIR_CVAR_CH3_OFFLOAD_NICD names the program)"};
    if (fate.is == Fate::kEnded) {
      life.reset();
      if (!is_lone || ++ends == kMostStarts)
        return Error{Status::kUnreachable, 0,
                     "MPIR_CVAR_CH3_OFFLOAD_NIC=process: " + program +
                         " has ended instead of serving this process: MPIR_CVAR_CH3_OFFLOAD_NICD names the "
                         "program, which must be a ch3-offload-nicd" +
                         obstacle};
    }
    // One of lone processes may have ended before this process came. Only one can listen: the others end.
    if (is_lone && !starts && (fate.is == Fate::kEnded || now_ns - started_ns > kStartAgainNs)) starts = true;
    if (starts && !(is_busy && waited_ns < start.patience_ns / kBusyPart)) {
      starts = false;
      started_ns = now_ns;
      Result<FileDescriptor> started = start_nicd(program, start, of_job);
      if (!started.ok()) return started.error();
      life = std::move(started.value());
    }
    said.waited(waited_ns,
                (life.valid() ? program + ", which it has started, to serve this node"
                              : std::string("local rank 0 to start the node's network processor")) +
                    obstacle);
    if (waited_ns > start.patience_ns)
      return Error{Status::kUnreachable, 0,
                   "MPIR_CVAR_CH3_OFFLOAD_NIC=process: no network processor came up on this node within " +
                       std::to_string(start.patience_ns / 1'000'000'000) + " s (" +
                       (is_lone ? "this process" : "local rank 0") + " starts " + program + ")" + obstacle};
    ::usleep(wait_us);
  }
}

/// Whether a client does something else then than to say the text.
bool has_own_code(Status refusal) noexcept {
  return refusal == Status::kAgain || refusal == Status::kNoMemory;
}

/// What came of a hello.
struct Answer {
  Receipt receipt;
  bool is_unheard = false;  ///< kClosed: the processor has closed the connection, and not read the hello.
};

/// Says hello and waits for the welcome.
Answer greet(const FileDescriptor& socket, const NicdHello& hello, const NicdStart& start,
             std::uint64_t begin_ns, PatienceSaid& said, NicdWelcome& welcome,
             std::span<FileDescriptor> files) {
  if (!send_with_files(socket, std::as_bytes(std::span(&hello, 1)), {})) return {Receipt::kClosed, true};
  pollfd entry{socket.get(), POLLIN, 0};
  for (;;) {
    const std::uint64_t waited_ns = monotonic_ns() - begin_ns;
    if (waited_ns >= start.patience_ns) break;
    said.waited(waited_ns, "an answer of the node's network processor (ch3-offload-nicd, process " +
                               std::to_string(peer_credentials(socket).pid) + ")");
    const std::uint64_t next_ns = std::min(start.patience_ns, said.due_ns());
    if (::poll(&entry, 1, static_cast<int>((next_ns - waited_ns) / 1'000'000 + 1)) > 0) break;
  }
  // The kernel resets a connection that is closed with bytes in it.
  const bool is_reset = (entry.revents & POLLERR) != 0;
  return {receive_with_files(socket, std::as_writable_bytes(std::span(&welcome, 1)), files), is_reset};
}

std::string closed_unheard(int connections) {
  return "closed " + std::to_string(connections) + " connections of this process before it read from them";
}

/// Why there is no welcome. `unheard`: connections that the processor has closed before it read the hello.
std::string without_welcome(Receipt receipt, int unheard) {
  const std::string processor = "the node's network processor (ch3-offload-nicd) ";
  if (unheard == 0)
    return processor +
           (receipt == Receipt::kNothing ? "does not answer" : "has ended, or is of another version");
  return processor + "has " + closed_unheard(unheard) +
         ". Either it ends each time, or many processes of this user connect to it and say nothing: ss -xp "
         "shows them; end them and start this program again";
}

}  // namespace

Result<std::unique_ptr<ProcessDriver>> ProcessDriver::create(const NicdHello& hello, const NicdStart& start,
                                                             const WaitPolicy& wait, const Trace* clock) {
  let_peers_write();
  auto said = std::make_unique<NicdHello>(hello);
  said->magic = NicdHello::kMagic;
  said->version = kNicInterfaceVersion;
  if (said->probe_address == 0) said->probe_address = reinterpret_cast<std::uint64_t>(&probe_word);
  auto welcome = std::make_unique<NicdWelcome>();
  std::array<FileDescriptor, PortMemory::kFiles> files;
  PatienceSaid patience(hello, start);
  Result<FileDescriptor> socket = FileDescriptor();
  Receipt receipt = Receipt::kClosed;
  // The processor of lone processes ends with the last of them, which may be just now.
  int greetings = hello.is_lone != 0 ? kGreetings : 1, unheard = 0;
  for (const std::uint64_t begin_ns = monotonic_ns();; ::usleep(kGreetingUs)) {
    socket = find_nicd(hello, start, begin_ns, patience);
    if (!socket.ok()) return socket.error();
    const Answer answer = greet(socket.value(), *said, start, begin_ns, patience, *welcome, files);
    receipt = answer.receipt;
    if (receipt != Receipt::kClosed) break;
    // The processor had to close connections that had said nothing, and this one was among them.
    unheard += answer.is_unheard;
    if (!answer.is_unheard && --greetings == 0) break;
    const std::uint64_t waited_ns = monotonic_ns() - begin_ns;
    if (waited_ns >= start.patience_ns) break;
    patience.waited(waited_ns,
                    "the node's network processor (ch3-offload-nicd), which has " + closed_unheard(unheard));
  }
  if (receipt == Receipt::kNoDescriptor) return no_descriptors("the rings of the node's network processor");
  if ((receipt != Receipt::kMessage && receipt != Receipt::kWithoutFiles) ||
      welcome->magic != NicdWelcome::kMagic)
    return Error{Status::kUnreachable, 0, without_welcome(receipt, unheard)};
  if (welcome->is_refused != 0)
    return Error{has_own_code(welcome->refusal) ? welcome->refusal : Status::kUnsupported, 0,
                 "the node's network processor (ch3-offload-nicd): " + std::string(text_of(welcome->text))};
  if (receipt == Receipt::kWithoutFiles)
    return Error{Status::kProtocol, 0, "the node's network processor (ch3-offload-nicd) sent no rings"};
  Result<PortMemory> memory = PortMemory::attach(std::move(files));
  if (!memory.ok()) return memory.error();
  return std::unique_ptr<ProcessDriver>(
      new ProcessDriver(std::make_unique<PortMemory>(std::move(memory.value())), std::move(socket.value()),
                        *welcome, PeerId{hello.rank}, wait, clock));
}

ProcessDriver::ProcessDriver(std::unique_ptr<PortMemory> memory, FileDescriptor socket,
                             const NicdWelcome& welcome, PeerId self, const WaitPolicy& wait,
                             const Trace* clock)
    : RingPort(*memory, wait, clock, welcome.must_share != 0 ? Staging::kAll : Staging::kSmallPieces, self),
      memory_(std::move(memory)),
      socket_(std::move(socket)),
      fork_closing_(socket_.get()),
      card_(text_of(welcome.text)),
      pid_(welcome.pid),
      must_share_(welcome.must_share != 0),
      wait_(wait),
      slot_bytes_(welcome.slot_bytes),
      process_(welcome.process),
      descriptors_{memory_->client_bell().sleeper, socket_.get()} {}

ProcessDriver::~ProcessDriver() = default;

Result<TargetPort*> ProcessDriver::attach_targets() {
  const Error no_memory{
      Status::kNoMemory, 0,
      "the network processor (ch3-offload-nicd) has no memory or no descriptors for a second "
      "client of this process"};
  const std::uint64_t answer = must_share_ ? kTargetsRefused : ask(CommandKind::kAttachTargets);
  if (answer == kTargetsRefused)
    return Error{
        Status::kUnsupported, 0,
        "the network processor (ch3-offload-nicd) may not read the memory of this process: it serves "
        "no target entries of it"};
  if (answer == 0) return no_memory;
  Result<PortMemory> memory = receive_targets();
  try {
    if (memory.ok()) {
      second_ =
          std::make_unique<SecondClient>(std::move(memory.value()), wait_, static_cast<NicdProcess&>(*this),
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
  return no_descriptors("the rings of the network processor's second client");
}

void ProcessDriver::detach_targets() noexcept {
  if (second_ == nullptr) return;
  ask(CommandKind::kDetachTargets);
  second_.reset();
}

Result<std::string> ProcessDriver::reach_foreign(const UserKey& key) {
  CommandRecord question;
  question.kind = CommandKind::kReachForeign;
  question.bits = key.proves();
  const bool is_reached = ask(question, key.bytes()) != 0;
  auto answer = std::make_unique<NicdForeign>();
  answer->magic = 0;
  const Receipt receipt = receive_with_files(socket_, std::as_writable_bytes(std::span(answer.get(), 1)), {});
  if (receipt != Receipt::kMessage || answer->magic != NicdForeign::kMagic)
    return Error{Status::kProtocol, 0,
                 "the network processor (ch3-offload-nicd) does not say how others reach this process"};
  const std::string text(text_of(answer->text));
  if (is_reached) return text;
  return Error{answer->refusal, 0, "the network processor (ch3-offload-nicd): " + text};
}

bool ProcessDriver::forget_peer(PeerId peer) noexcept {
  CommandRecord question;
  question.kind = CommandKind::kForgetPeer;
  question.peer = index_of(peer);
  return ask(question) != 0;
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
  ssize_t length;
  for (;;) {
    length = ::recv(socket_.get(), text.data(), text.size() - 1, MSG_DONTWAIT | MSG_PEEK);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    std::uint64_t magic = 0;
    if (length >= static_cast<ssize_t>(sizeof magic)) std::memcpy(&magic, text.data(), sizeof magic);
    if (magic != NicdTargets::kMagic && magic != NicdForeign::kMagic) break;
    // Who has asked for it takes it, if the processor lives to answer.
    pollfd entry{socket_.get(), POLLRDHUP, 0};
    if (::poll(&entry, 1, 0) <= 0) return;
    static_cast<void>(::recv(socket_.get(), text.data(), text.size() - 1, MSG_DONTWAIT));
    text = {};
  }
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

void ProcessDriver::rest_in(ProcessorWait& wait) noexcept {
  if (wait.rest()) check_processor();
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
