#include "node_probe.h"

#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "ch3_offload/node_settings.h"
#include "ch3_offload/settings.h"
#include "nic/cores.h"
#include "nic/nicd_protocol.h"
#include "rdma/file_descriptor.h"
#include "rdma/shm/bulk_copy.h"
#include "rdma/shm/shm_provider.h"
#include "rdma/tcp/tcp_address.h"
#include "rdma/tcp/tcp_config.h"
#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {
namespace {

std::string describe(int error_number) { return std::generic_category().message(error_number); }

/// The number behind `label` in a text file of the kernel. An empty label: the file is the number.
std::optional<int> read_number(const char* path, const std::string& label = {}) {
  std::ifstream file(path);
  std::string word;
  int value = 0;
  while (!label.empty() && file >> word && word != label) {
  }
  if (file >> value) return value;
  return {};
}

/// Whether this process has the capability CAP_IPC_LOCK.
bool may_lock_all() {
  std::ifstream file("/proc/self/status");
  std::string word;
  std::uint64_t capabilities = 0;
  while (file >> word && word != "CapEff:") {
  }
  constexpr int kIpcLock = 14;
  return file >> std::hex >> capabilities && (capabilities >> kIpcLock & 1) != 0;
}

std::string probe_events() {
  const FileDescriptor descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return descriptor.valid() ? "" : describe(errno);
}

/// Waits for a child and returns its exit status; -1: it has none.
int status_of(pid_t child) noexcept {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// What ranks do: one child writes into the memory of another, which is no descendant of its. The answer is an
/// errno; 0: it may.
int probe_remote_copy() {
  static std::array<std::byte, 64> memory{};  // At the same address in both children.
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return errno;
  const FileDescriptor its_end(ends[0]);
  FileDescriptor our_end(ends[1]);
  const pid_t target = fork();
  if (target < 0) return errno;
  char byte = 0;
  if (target == 0) {  // Lives until our end is closed.
    our_end.reset();
    let_peers_write();
    [[maybe_unused]] const ssize_t told = write(its_end.get(), &byte, 1);
    [[maybe_unused]] const ssize_t end = read(its_end.get(), &byte, 1);
    _exit(0);
  }
  [[maybe_unused]] const ssize_t is_ready = read(our_end.get(), &byte, 1);
  const pid_t writer = fork();
  const int fork_error = errno;
  if (writer == 0) {
    constexpr std::array<std::byte, 64> kSource{};
    const RemoteCopy result = copy_to_process(target, reinterpret_cast<std::uintptr_t>(memory.data()),
                                              kSource.data(), kSource.size());
    _exit(result == RemoteCopy::kDone ? 0 : errno);
  }
  const int answer = writer < 0 ? fork_error : status_of(writer);
  our_end.reset();
  status_of(target);
  return answer;
}

void probe_shm(const ch3_offload_config_t& config, NodeFacts& facts) {
  auto provider = ShmProvider::create(shm_config(config));
  if (provider.ok()) {
    facts.shm_address = provider.value()->local_address();
    facts.shm = provider.value()->capabilities();
  } else {
    facts.shm_error = provider.error().message;
  }
}

void probe_nic(const ch3_offload_config_t& config, NodeFacts& facts) {
  auto choice = choose_nic_here(config);
  if (choice.ok())
    facts.nic = std::move(choice.value());
  else
    facts.nic_error = choice.error().message;
  if (!facts.nic.has_process) return;
  facts.user_runs_nicd = connect_to_nicd(nicd_name(::geteuid())).ok();
  facts.nicd_error = obstacle_to_program(config);
}

void probe_verbs(const ch3_offload_config_t& config, NodeFacts& facts) {
  facts.verbs_ports = describe_verbs_ports(verbs_config(config));
  auto provider = make_verbs_provider(verbs_config(config));
  if (provider.ok()) {
    if (const auto address = VerbsAddress::parse(provider.value()->local_address()))
      facts.verbs_host = fmt::format("{}", fmt::join(address->hosts, " and "));
    facts.verbs = provider.value()->capabilities();
  } else {
    facts.verbs_error = provider.error();
  }
}

void probe_tcp(const ch3_offload_config_t& config, NodeFacts& facts) {
  auto provider = make_tcp_provider(tcp_config(config));
  if (provider.ok()) {
    if (const auto address = TcpAddress::parse(provider.value()->local_address()))
      facts.tcp_host = address->host;
    facts.tcp = provider.value()->capabilities();
  } else {
    facts.tcp_error = provider.error();
  }
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> facts.congestion_control;
}

}  // namespace

std::string NodeFacts::used_port() const {
  std::string names;
  for (const VerbsPortDescription& port : verbs_ports)
    if (!port.why_used.empty()) names += (names.empty() ? "" : " and ") + port.name;
  return names;
}

NodeFacts probe_node(const ch3_offload_config_t& config) {
  NodeFacts facts;
  facts.cores = usable_cores().of_node;
  probe_nic(config, facts);
  facts.meaningless = meaningless_here(
      config, {.cores = std::string_view(config.nic) != "host", .nicd = facts.nic.has_process});
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.descriptors = limit.rlim_max;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    facts.locked_bytes = limit.rlim_cur;
  facts.may_lock_all = may_lock_all();
  facts.event_error = probe_events();
  if (const int error_number = probe_remote_copy(); error_number != 0)
    facts.remote_copy_error = error_number < 0 ? "the attempt was killed" : describe(error_number);
  facts.ptrace_scope = read_number("/proc/sys/kernel/yama/ptrace_scope");
  facts.seccomp = read_number("/proc/self/status", "Seccomp:");
  probe_shm(config, facts);
  probe_verbs(config, facts);
  probe_tcp(config, facts);
  return facts;
}

}  // namespace ch3_offload
