#include "portals/fabric_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ch3_offload/lone_process.h"
#include "ch3_offload/making.h"
#include "ch3_offload/nicd_hello.h"
#include "ch3_offload/node_settings.h"
#include "ch3_offload/process_thread.h"
#include "ch3_offload/settings.h"
#include "nic/waiter.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload::portals {
namespace {

/// Operations of an interface that wait for counting events.
constexpr std::uint32_t kMostTriggered = 16'384;
/// Longer messages than any memory.
constexpr std::uint64_t kMostMessageBytes = std::uint64_t{1} << 47;

}  // namespace

Result<std::unique_ptr<FabricProcess>> FabricProcess::create(std::optional<std::uint32_t> pid) {
  if (pid && (*pid == 0 || *pid > UINT16_MAX))
    return Error{Status::kUnsupported, 0, "a pid is a TCP port: 1 to 65535, not " + std::to_string(*pid)};
  std::unique_ptr<FabricProcess> process(new FabricProcess);
  Result<UserKey> key = UserKey::of_environment();
  if (!key.ok()) return Error{Status::kDeviceFailed, key.error().error_number, key.error().message};
  const auto port = static_cast<std::uint16_t>(pid.value_or(0));
  std::optional<Error> error = process->read_settings();
  process->environment_.config.rank = index_of(kLoneSelf);
  set_lone(process->environment_.config, key.value());
  if (!error)
    error = process->nic_.has_process ? process->make_elsewhere(key.value(), port)
                                      : process->make_here(key.value(), port);
  if (!error) error = process->make_port();
  if (error) {
    if (error->status == Status::kUnsupported) error->status = Status::kDeviceFailed;  // It is not the pid.
    return std::move(*error);
  }
  process->watch_memory();
  process->warn_of_settings();
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
  const char* const processes = std::getenv("MPI_LOCALNRANKS");
  knows_node_ = processes != nullptr && *processes != '\0';
  if (!knows_node_) config.local_size = 2;  // There is somebody to talk to, and he may be here.
  Result<NicChoice> choice = choose_nic_here(config);
  if (!choice.ok()) return choice.error();
  if (std::string_view(config.nic) == "auto" && !choice.value().has_thread && !choice.value().has_process) {
    // The host driver does not do what Portals promises: nobody gets it without having asked for it.
    config.nic = "thread";
    choice = choose_nic_here(config);
    if (!choice.ok()) return choice.error();
    choice.value().warning.clear();  // There is nothing better to be had.
  }
  nic_ = std::move(choice.value());
  // Others like it may choose the same core.
  if (!knows_node_ && nic_.placement.place != Place::kChosen) nic_.is_bound = false;
  return {};
}

std::optional<Error> FabricProcess::make_here(const UserKey& key, std::uint16_t pid) {
  auto providers = make_lone_providers(environment_.config, key, {&FabricProcess::log_line, this},
                                       index_of(kFirstLonePeer));
  if (!providers.ok()) return providers.error();
  providers_ = std::move(providers.value());
  if (std::optional<Error> error = make_driver()) return error;
  return make_book(key, pid);
}

std::optional<Error> FabricProcess::make_driver() {
  const ch3_offload_config_t& config = environment_.config;
  EngineConfig engine = lone_engine_config(config);
  std::vector<Provider*> providers;
  for (const auto& one : providers_) providers.push_back(one.get());
  engine.pin_down = pin_down_config(config, providers_);
  if (nic_.has_thread) engine.self_copy_bytes = kSharedSelfCopyBytes;
  if (!nic_.has_thread) {
    host_ = std::make_unique<HostDriver>(engine, providers);
    return {};
  }
  auto thread = find_or_start_process_thread(ch3_offload::wait_policy(config, nic_.placement.thread_shares));
  if (!thread.ok()) return thread.error();
  auto driver = ThreadDriver::create(engine, providers, thread.value(), wait_policy());
  if (!driver.ok()) return driver.error();
  thread_ = std::move(driver.value());
  if (std::optional<Error> error = thread_->start()) return error;
  if (!nic_.warning.empty() && knows_node_ && NicThread::first_to_say()) say(LogScope::kNode, nic_.warning);
  std::string warning;
  std::optional<Error> error = bind_nic_thread(*thread.value(), nic_, warning);
  if (!warning.empty()) say(LogScope::kNode, warning);
  return error;
}

std::optional<Error> FabricProcess::make_book(const UserKey& key, std::uint16_t pid) {
  Introductions::Config config =
      introductions_config(environment_.config, key, first_port().card(), {&FabricProcess::log_line, this});
  config.pid = pid;
  Result<std::unique_ptr<Introductions>> book = Introductions::create(config);
  if (!book.ok()) return book.error();
  book_ = std::move(book.value());
  return {};
}

/// The processor makes what make_here() makes.
std::optional<Error> FabricProcess::make_elsewhere(const UserKey& key, std::uint16_t pid) {
  const ch3_offload_config_t& config = environment_.config;
  // Here: it may take long.
  Result<std::uint32_t> nid = choose_nid(config.network_interface);
  if (!nid.ok()) return nid.error();
  auto hello = std::make_unique<NicdHello>(make_hello(config));
  hello->is_lone = 1;
  hello->key_proves = key.proves();
  std::ranges::copy(key.bytes(), hello->key.begin());
  hello->nid = nid.value();
  hello->pid = pid;
  Result<std::unique_ptr<ProcessDriver>> driver =
      ProcessDriver::create(*hello, {nicd_program(config), nic_.process_processors}, wait_policy(), nullptr);
  if (!driver.ok()) return driver.error();
  process_ = std::move(driver.value());
  return {};
}

std::optional<Error> FabricProcess::make_port() {
  if (host_ != nullptr) {
    host_targets_ = std::make_unique<HostTargets>(*host_, *book_);
    port_ = host_targets_.get();
    return {};
  }
  Result<TargetPort*> attached =
      thread_ != nullptr ? thread_->attach_targets(*book_) : process_->attach_targets();
  if (!attached.ok()) return attached.error();
  port_ = attached.value();
  return {};
}

void FabricProcess::watch_memory() {
  std::string warning;
  memory_events_ = ch3_offload::watch_memory(first_port(), warning);
  if (!warning.empty()) say(LogScope::kNode, warning);
}

/// Of those that nobody else would speak of.
void FabricProcess::warn_of_settings() {
  const ch3_offload_config_t& config = environment_.config;
  for (const std::string& line : environment_.warnings) say(LogScope::kJob, line);
  const bool uses_cores = std::string_view(config.nic) != "host";
  const bool uses_verbs = fabric_choice(config.fabric).verbs;
  for (const std::string& line :
       meaningless_here(config, {uses_verbs, /*interfaces=*/true, uses_cores, process_ != nullptr}))
    say(LogScope::kNode, line);
}

void FabricProcess::set_limits() noexcept {
  limits_.most_message_bytes = kMostMessageBytes;
  limits_.most_atomic_bytes =
      process_ != nullptr ? atomic_bytes(process_->slot_bytes()) : atomic_bytes(providers_);
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
  work_until(*port_, [&] {
    say_news();
    return port_->idle() || elapsed_ns(monotonic_ns(), begin_ns) >= most_ns;
  });
}

FabricProcess::~FabricProcess() {
  if (port_ != nullptr) drain();
  memory_events_.reset();  // It calls the port.
  host_targets_.reset();
  if (process_ != nullptr) process_->detach_targets();
  if (thread_ == nullptr) return;
  thread_->detach_targets();
  thread_->stop();
}

Port& FabricProcess::first_port() noexcept {
  if (host_ != nullptr) return *host_;
  if (thread_ != nullptr) return *thread_;
  return *process_;
}

UserId FabricProcess::user() const noexcept { return UserId{::geteuid()}; }

WaitPolicy FabricProcess::wait_policy() const noexcept {
  return ch3_offload::wait_policy(environment_.config, nic_.has_thread && nic_.placement.client_shares,
                                  nic_.has_process);
}

/// A thread with a driver that works alone waits for its processor, and not for a peer.
void FabricProcess::look() noexcept {
  if (host_ != nullptr) parting_.look(providers_.front()->waiting_places());
}

/// The engine's lines for the user come by the port of the first client, which does not exist.
void FabricProcess::say_news() noexcept {
  Port& port = first_port();
  Event event;
  if (host_ == nullptr) static_cast<void>(port.progress());
  while (port.next_event(event))
    if (event.kind == Event::Kind::kWarning)
      say(event.scope, {reinterpret_cast<const char*>(event.bytes), event.length_bytes});
}

/// Its peers have the same driver, as a rule.
void FabricProcess::waits_for_long() noexcept {
  if (host_ == nullptr) return;
  try {
    say(LogScope::kProcess,
        "a call of Portals has waited for seconds. With MPIR_CVAR_CH3_OFFLOAD_NIC=host a process answers in "
        "its own calls of Portals only: one that waits on its memory, or elsewhere, never does. Take thread "
        "or process");
  } catch (const std::bad_alloc&) {  // A line less.
  }
}

/// Nothing of the thread's waits for standard error.
void FabricProcess::log_line(void* process, LogScope scope, const char* line) {
  auto& its = *static_cast<FabricProcess*>(process);
  if (its.thread_ != nullptr && its.thread_->thread().runs_here())
    its.thread_->log_line(scope, line);
  else
    its.say(scope, line);
}

/// Each line once. What concerns the node, its first process says, if there is a job.
void FabricProcess::say(LogScope scope, std::string_view line) noexcept {
  const bool is_first = !knows_node_ || environment_.config.local_rank == 0;
  if (!says(scope, is_first, is_first)) return;
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
