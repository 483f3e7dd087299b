#include "portals/fabric_process.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ch3_offload/making.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload::portals {
namespace {

/// A process is number 0 to itself.
constexpr PeerId kSelf{0};
/// Processes that one can meet, itself included. Each that has gone keeps its number.
constexpr std::uint32_t kMostProcesses = 1U << 20;
/// Operations of an interface that wait for counting events.
constexpr std::uint32_t kMostTriggered = 16'384;
/// Longer messages than any memory.
constexpr std::uint64_t kMostMessageBytes = std::uint64_t{1} << 47;

Result<UserKey> read_key() {
  if (const char* const named = std::getenv("CH3_OFFLOAD_KEY_FILE"); named != nullptr && *named != '\0')
    return UserKey::read(named);
  const char* const home = std::getenv("HOME");
  const std::string path = std::string(home == nullptr ? "" : home) + "/.ch3-offload-key";
  struct stat status {};
  if (home != nullptr && stat(path.c_str(), &status) == 0) return UserKey::read(path);
  return UserKey::of_user(UserId{geteuid()});
}

}  // namespace

Result<std::unique_ptr<FabricProcess>> FabricProcess::create(std::optional<std::uint32_t> pid) {
  if (pid && (*pid == 0 || *pid > UINT16_MAX))
    return Error{Status::kUnsupported, 0, "a pid is a TCP port: 1 to 65535, not " + std::to_string(*pid)};
  std::unique_ptr<FabricProcess> process(new FabricProcess);
  Result<UserKey> key = read_key();
  if (!key.ok()) return key.error();
  std::optional<Error> error = process->read_settings();
  if (!error) error = process->make_providers(key.value());
  if (!error) error = process->make_driver();
  if (!error) error = process->make_book(key.value(), pid);
  if (!error) error = process->make_port();
  if (error) {
    if (error->status == Status::kUnsupported) error->status = Status::kDeviceFailed;  // It is not the pid.
    return std::move(*error);
  }
  process->watch_memory();
  process->set_limits();
  return process;
}

std::optional<Error> FabricProcess::read_settings() {
  environment_ = read_environment();
  for (const SettingState& state : environment_.settings)
    if (state.complaint) return Error{Status::kDeviceFailed, 0, *state.complaint};
  const auto nic =
      std::find_if(environment_.settings.begin(), environment_.settings.end(), [](const SettingState& state) {
        return std::string_view(state.setting->variable) == "MPIR_CVAR_CH3_OFFLOAD_NIC";
      });
  ch3_offload_config_t& config = environment_.config;
  if (nic->source.empty()) config.nic = "thread";
  if (std::string_view(config.nic) == "process")
    return Error{
        Status::kDeviceFailed, 0,
        nic->source + "=process: a Portals process has its own network processor: it takes thread or host"};
  config.rank = index_of(kSelf);
  config.job_size = kMostProcesses;
  const char* const processes = std::getenv("MPI_LOCALNRANKS");
  knows_node_ = processes != nullptr && *processes != '\0';
  if (!knows_node_) config.local_size = 2;  // There is somebody to talk to, and he may be here.
  Result<NicChoice> choice = choose_nic_here(config);
  if (!choice.ok()) return choice.error();
  nic_ = std::move(choice.value());
  // Others like it may choose the same core.
  if (!knows_node_ && nic_.placement.place != Place::kChosen) nic_.is_bound = false;
  return {};
}

/// Over the network, a process without a key would believe whoever calls itself by the user's name.
std::optional<Error> FabricProcess::make_providers(const UserKey& key) {
  ch3_offload_config_t& config = environment_.config;
  const JobSecret secret = key.provider_secret();
  std::memcpy(config.secret, secret.data(), sizeof config.secret);
  const std::string_view fabric = config.fabric;
  if (fabric != "verbs") {
    Result<std::unique_ptr<Provider>> node =
        make_node_provider(config, kSelf, &FabricProcess::log_line, this);
    if (!node.ok()) return node.error();
    providers_.push_back(std::move(node.value()));
  }
  if (fabric == "shm" || (fabric == "auto" && !key.proves())) return {};
  if (!key.proves())
    return Error{
        Status::kDeviceFailed, 0,
        "MPIR_CVAR_CH3_OFFLOAD_FABRIC=verbs needs a key file: see CH3_OFFLOAD_KEY_FILE in docs/portals.md"};
  Result<std::unique_ptr<Provider>> network = make_network(config, kSelf, &FabricProcess::log_line, this);
  if (network.ok())
    providers_.push_back(std::move(network.value()));
  else if (fabric == "verbs")
    return network.error();
  else
    say(network.error().message);  // The processes of this node can still talk to each other.
  return {};
}

std::optional<Error> FabricProcess::make_driver() {
  const ch3_offload_config_t& config = environment_.config;
  EngineConfig engine = engine_config(config);
  engine.first_book_peer = PeerId{index_of(kSelf) + 1};
  engine.senders = 1;
  std::vector<Provider*> providers;
  for (const auto& one : providers_) providers.push_back(one.get());
  engine.pin_down = pin_down_config(config, providers_);
  if (!nic_.has_thread) {
    host_ = std::make_unique<HostDriver>(engine, providers);
    return {};
  }
  auto driver =
      ThreadDriver::create(engine, providers, ch3_offload::wait_policy(config, nic_.placement.thread_shares));
  if (!driver.ok()) return driver.error();
  thread_ = std::move(driver.value());
  if (std::optional<Error> error = thread_->start()) return error;
  if (!nic_.warning.empty() && knows_node_ && config.local_rank == 0) say(nic_.warning);
  std::string warning;
  std::optional<Error> error = bind_thread_driver(*thread_, nic_, warning);
  if (!warning.empty()) say(warning);
  return error;
}

std::optional<Error> FabricProcess::make_book(const UserKey& key, std::optional<std::uint32_t> pid) {
  Introductions::Config config;
  config.interface = environment_.config.network_interface;
  config.pid = static_cast<std::uint16_t>(pid.value_or(0));
  config.key = key;
  config.card = first_port().card();
  config.own = kSelf;
  config.first_peer = PeerId{index_of(kSelf) + 1};
  config.peer_limit = kMostProcesses;
  config.patience_ms = 3'000 * static_cast<std::uint64_t>(environment_.config.peer_timeout_s);
  config.log = &FabricProcess::log_line;
  config.log_context = this;
  Result<std::unique_ptr<Introductions>> book = Introductions::create(config);
  if (!book.ok()) return book.error();
  book_ = std::move(book.value());
  return {};
}

std::optional<Error> FabricProcess::make_port() {
  if (host_ != nullptr) {
    host_targets_ = std::make_unique<HostTargets>(*host_, *book_);
    port_ = host_targets_.get();
    return {};
  }
  Result<TargetPort*> attached = thread_->attach_targets(*book_);
  if (!attached.ok()) return attached.error();
  port_ = attached.value();
  return {};
}

void FabricProcess::watch_memory() {
  std::string warning;
  memory_events_ = ch3_offload::watch_memory(first_port(), warning);
  if (!warning.empty()) say(warning);
}

void FabricProcess::set_limits() noexcept {
  limits_.most_message_bytes = kMostMessageBytes;
  limits_.most_atomic_bytes = atomic_bytes(providers_);
  limits_.most_fetch_atomic_bytes = limits_.most_atomic_bytes;
  limits_.most_ordered_bytes = limits_.most_atomic_bytes + kMostElementBytes;
  limits_.most_volatile_bytes = kMostVolatileBytes;
  limits_.most_triggered = kMostTriggered;
  limits_.binds_inaccessible = true;
}

/// What peers wait for leaves: answers to operations that have ended here.
void FabricProcess::drain() noexcept {
  const std::uint64_t begin_ns = monotonic_ns();
  const std::uint64_t most_ns =
      1'000'000'000 * static_cast<std::uint64_t>(environment_.config.peer_timeout_s);
  while (!port_->idle() && elapsed_ns(monotonic_ns(), begin_ns) < most_ns) {
    if (port_->progress() == 0) sched_yield();
    say_news();
  }
}

FabricProcess::~FabricProcess() {
  if (port_ != nullptr) drain();
  memory_events_.reset();  // It calls the port.
  host_targets_.reset();
  if (thread_ == nullptr) return;
  thread_->detach_targets();
  thread_->stop();
}

Port& FabricProcess::first_port() noexcept {
  if (host_ != nullptr) return *host_;
  return *thread_;
}

WaitPolicy FabricProcess::wait_policy() const noexcept {
  return ch3_offload::wait_policy(environment_.config, nic_.has_thread && nic_.placement.client_shares);
}

/// The engine's lines for the user come by the port of the first client, which does not exist.
void FabricProcess::say_news() noexcept {
  Port& port = first_port();
  Event event;
  if (thread_ != nullptr) static_cast<void>(port.progress());
  while (port.next_event(event))
    if (event.kind == Event::Kind::kWarning)
      say({reinterpret_cast<const char*>(event.bytes), event.length_bytes});
}

/// Nothing of the thread's waits for standard error.
void FabricProcess::log_line(void* process, LogScope scope, const char* line) {
  auto& its = *static_cast<FabricProcess*>(process);
  if (its.thread_ != nullptr && its.thread_->runs_here())
    its.thread_->log_line(scope, line);
  else
    its.say(line);
}

/// Each line once.
void FabricProcess::say(std::string_view line) noexcept {
  const std::scoped_lock lock(said_lock_);
  try {
    if (!said_.emplace(line).second) return;
  } catch (const std::bad_alloc&) {  // It may be said again.
  }
  static_cast<void>(std::fprintf(stderr, "ch3:offload: %.*s\n", static_cast<int>(line.size()), line.data()));
}

Result<std::unique_ptr<PortalsProcess>> make_portals_process(std::optional<std::uint32_t> pid) {
  try {
    Result<std::unique_ptr<FabricProcess>> made = FabricProcess::create(pid);
    if (!made.ok()) return made.error();
    return std::unique_ptr<PortalsProcess>(std::move(made.value()));
  } catch (const std::bad_alloc&) {
    return Error{Status::kNoMemory, 0, "out of memory"};
  }
}

}  // namespace ch3_offload::portals
