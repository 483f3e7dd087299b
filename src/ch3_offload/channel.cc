#include "ch3_offload/channel.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "ch3_offload/environment.h"
#include "ch3_offload/launcher.h"
#include "ch3_offload/making.h"
#include "ch3_offload/nicd_hello.h"
#include "ch3_offload/node_settings.h"
#include "ch3_offload/process_thread.h"
#include "ch3_offload/settings.h"
#include "engine/card.h"
#include "nic/host_driver.h"
#include "nic/process_driver.h"
#include "nic/traced_port.h"
#include "rdma/checked/checked_frames.h"
#include "rdma/memcheck.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// Processes that leave MPI_Init's barrier together meet within a fraction of it.
constexpr std::uint64_t kMostMeetingNs = 3'000'000;

/// How a thread in MPI waits.
WaitPolicy client_wait(const ch3_offload_config_t& config, const NicChoice& nic) noexcept {
  return wait_policy(config, nic.has_thread && nic.placement.client_shares, nic.has_process);
}

}  // namespace

Channel::Channel(const ch3_offload_config_t& config, const NicChoice& nic)
    : config_(config),
      self_(PeerId{config.rank}),
      is_first_of_node_(config.local_rank == 0),
      traffic_class_(ch3_offload::traffic_class(config.traffic_class)),
      takes_schedules_(std::string_view(config.collectives) == "auto"),
      waiter_(client_wait(config, nic)),
      ranks_(self_, config.job_size, UserId{::geteuid()}) {
  if (config.trace != nullptr && *config.trace != '\0') {
    // Absolute: the processor of a node writes its side's, and runs elsewhere.
    trace_prefix_ = (nic.has_process ? std::filesystem::absolute(config.trace).string() : config.trace) +
                    "." + std::to_string(config.rank);
    const auto events = static_cast<std::size_t>(config.trace_events);
    engine_trace_ = std::make_unique<Trace>(self_, config.job_size, events);
    client_trace_ =
        std::make_unique<Trace>(self_, config.job_size, events, Trace::monotonic_ns, TraceSide::kClient);
  }
}

Result<std::unique_ptr<Channel>> Channel::create(const ch3_offload_config_t& config) {
  if (std::optional<Error> error = checksums_missing(config)) return std::move(*error);
  Result<NicChoice> nic = choose_nic_here(config);
  if (!nic.ok()) return nic.error();
  if (std::string_view(config.nic) == "auto" && nic.value().has_process) nic.value() = {};  // Not agreed.
  std::unique_ptr<Channel> channel(new Channel(config, nic.value()));
  channel->wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (channel->wake_descriptor_ < 0) return system_error("eventfd", errno);

  if (!nic.value().has_process)
    if (std::optional<Error> error = channel->make_providers(config)) return std::move(*error);

  EngineConfig engine = engine_config(config);
  if (nic.value().has_thread) engine.self_copy_bytes = kSharedSelfCopyBytes;
  engine.pin_down = pin_down_config(config, channel->providers_);
  engine.trace = channel->engine_trace_.get();
  if (std::optional<Error> error = channel->make_port(config, engine, nic.value())) return std::move(*error);
  channel->port_->events().others = 1;  // There may be warnings.
  channel->watch_memory();
  channel->warn_of_environment(config);
  channel->card_ = channel->port_->card();
  channel->note_care();
  add_mover(*channel);
  return channel;
}

std::optional<Error> Channel::make_port(const ch3_offload_config_t& config, const EngineConfig& engine,
                                        const NicChoice& nic) {
  std::vector<Provider*> providers;
  for (const auto& one : providers_) providers.push_back(one.get());
  if (nic.has_process) {
    auto driver = ProcessDriver::create(make_hello(config), {nicd_program(config), nic.process_processors},
                                        client_wait(config, nic), client_trace_.get());
    if (!driver.ok()) return driver.error();
    process_driver_ = driver.value().get();
    port_ = std::move(driver.value());
  } else if (nic.has_thread) {
    auto thread = find_or_start_process_thread(wait_policy(config, nic.placement.thread_shares));
    if (!thread.ok()) return thread.error();
    auto driver =
        ThreadDriver::create(engine, providers, std::move(thread.value()), client_wait(config, nic));
    if (!driver.ok()) return driver.error();
    thread_driver_ = driver.value().get();
    port_ = std::move(driver.value());
    if (std::optional<Error> error = thread_driver_->start()) return error;
    if (std::optional<Error> error = bind_thread(nic)) return error;
  } else {
    port_ = std::make_unique<HostDriver>(engine, providers);
    looks_over_ = providers.front();
  }
  if (client_trace_ != nullptr) port_ = std::make_unique<TracedPort>(std::move(port_), *client_trace_);
  return {};
}

std::optional<Error> Channel::bind_thread(const NicChoice& nic) {
  NicThread& thread = thread_driver_->thread();
  if (!nic.warning.empty() && NicThread::first_to_say()) warn(LogScope::kNode, nic.warning);
  std::string warning;
  std::optional<Error> error = bind_nic_thread(thread, nic, warning);
  if (!warning.empty()) warn(LogScope::kNode, warning);
  return error;
}

void Channel::report(const ch3_offload_config_t& config, std::span<const ReportedNode> nodes) {
  std::vector<Capabilities> own;
  for (const auto& one : providers_) own.push_back(one->capabilities());
  const char* const driver = process_driver_ != nullptr  ? "process"
                             : thread_driver_ != nullptr ? "thread"
                                                         : "host";
  for (const std::string& line : job_report(config, own, driver, nodes)) warn(LogScope::kJob, line);
}

/// Of those that nobody else would speak of.
void Channel::warn_of_environment(const ch3_offload_config_t& config) {
  if (index_of(self_) == 0)
    for (const std::string& line : find_warnings()) warn(LogScope::kJob, line);
  if (config.job_size == 1)
    if (const std::string line = singleton_complaint(); !line.empty()) warn(LogScope::kJob, line);
  if (!is_first_of_node_) return;
  const FabricChoice fabric = fabric_choice(config.fabric);
  const bool uses_network = fabric.has_network() && (!fabric.shm || has_others_elsewhere(config));
  const bool uses_verbs = uses_network && fabric.verbs;
  const bool uses_cores = std::string_view(config.nic) != "host";
  for (const std::string& line :
       meaningless_here(config, {uses_verbs, uses_network, uses_cores, process_driver_ != nullptr}))
    warn(LogScope::kNode, line);
}

void Channel::watch_memory() {
  std::string warning;
  memory_events_ = ch3_offload::watch_memory(*port_, warning);
  // By what the program and the library were built from, or by the environment.
  if (!warning.empty()) warn(LogScope::kJob, warning);
}

/// Node-local first: the engine takes the first provider that reaches a peer.
std::optional<Error> Channel::make_providers(const ch3_offload_config_t& config) {
  const FabricChoice fabric = fabric_choice(config.fabric);
  if (fabric.shm)
    if (std::optional<Error> error = make_shm(config)) return error;
  if (!fabric.has_network() || (fabric.shm && !has_others_elsewhere(config))) return {};
  auto networks = make_networks(config, self_, &Channel::log_line, this);
  if (networks.ok())
    std::ranges::move(networks.value(), std::back_inserter(providers_));
  else if (!fabric.is_auto)
    return networks.error();
  else  // Without a network the processes of this node can still talk to each other.
    warn(LogScope::kNode, without_network(networks.error()));
  return {};
}

std::optional<Error> Channel::make_shm(const ch3_offload_config_t& config) {
  Result<std::unique_ptr<ShmProvider>> provider = make_node_provider(config, self_, &Channel::log_line, this);
  if (!provider.ok()) return provider.error();
  node_provider_ = provider.value().get();
  providers_.push_back(with_chosen_checksums(config, std::move(provider.value()), /*is_network=*/false,
                                             Log(&Channel::log_line, this)));
  // memcheck finds more in what malloc() returns.
  if (config.local_size > 1 && !under_memcheck()) own_arena_.emplace(shared_with_neighbours_);
  return {};
}

void Channel::introduce(PeerId peer, std::string_view card) {
  const std::optional<Card> parsed = parse_card(card);
  const bool is_ours = thread_driver_ == nullptr && node_provider_ != nullptr;  // Not its thread's.
  if (is_ours && parsed && !parsed->names && parsed->version == card_version()) {
    for (std::string_view addresses = parsed->addresses; !addresses.empty();) {
      const std::string_view address = next_piece(addresses, ';');
      // The first provider is node_provider_, or has it below.
      if (providers_.front()->reaches(address)) node_provider_->prepare(peer, address_below(address));
    }
  }
  port_->introduce(peer, card);
}

void Channel::meet_node() noexcept {
  if (thread_driver_ != nullptr || node_provider_ == nullptr) return;
  const std::uint64_t begin_ns = monotonic_ns();
  while (!node_provider_->meet_prepared() && elapsed_ns(monotonic_ns(), begin_ns) < kMostMeetingNs)
    ::sched_yield();
}

void Channel::log_line(void* context, LogScope scope, const char* line) {
  auto& channel = *static_cast<Channel*>(context);
  if (channel.thread_driver_ != nullptr && channel.thread_driver_->thread().runs_here())
    channel.thread_driver_->log_line(scope, line);
  else
    channel.warn(scope, line);
}

void Channel::warn(LogScope scope, std::string_view text) noexcept {
  if (!says(scope, is_first_of_node_, index_of(self_) == 0)) return;
  try {
    warnings_.emplace_back(text);
    if (port_ != nullptr) port_->events().others = 1;
  } catch (const std::bad_alloc&) {  // A line less.
  }
}

Channel::~Channel() {
  remove_mover(*this);
  memory_events_.reset();  // It calls the port.
  windows_.reset();
  detach_targets();
  if (foreign_ != nullptr) foreign_->close();
  if (thread_driver_ != nullptr) thread_driver_->stop();
  thread_driver_ = nullptr;
  port_.reset();
  if (wake_descriptor_ >= 0) close(wake_descriptor_);
}

void Channel::trace(TraceEvent event) noexcept {
  if (client_trace_ != nullptr) client_trace_->record(event, self_, 0, 0);
}

std::size_t Channel::progress() noexcept {
  Port* const port = plain_port_.load(std::memory_order_relaxed);
  if (port == nullptr) [[unlikely]]
    return progress_with_care();
  const std::size_t happened = port->progress();
  if (happened == 0) return 0;
  waiter_.found();
  return happened;
}

/// There are windows or another client to be moved, or the process is armed for a sleep.
std::size_t Channel::progress_with_care() noexcept {
  const bool own = is_last_look_;
  is_last_look_ = false;
  std::size_t happened = port_->progress();
  if (foreign_ != nullptr) happened += foreign_->poll();
  if (windows_ != nullptr) {
    happened += windows_->port().progress();
    if (windows_->has_news()) port_->events().others = 1;
  }
  if (CallDriven* const other = call_driven(); other != nullptr)
    happened += other->work_for_other();
  else if (!armed_ && windows_ == nullptr && foreign_ == nullptr)
    note_care();  // It has gone.
  if (happened == 0) return 0;
  waiter_.found();
  // Another thread's call during a sleep: it has read what would have ended the sleep, and more may wait.
  if (armed_ && !own) [[unlikely]]
    wake();
  return happened;
}

void Channel::note_care() noexcept {
  const bool is_plain = !armed_ && windows_ == nullptr && foreign_ == nullptr;
  plain_port_.store(is_plain ? port_.get() : nullptr, std::memory_order_seq_cst);
  // Pairs with set_call_driven(), which stores that before it calls call_driven_came().
  if (call_driven() != nullptr) plain_port_.store(nullptr, std::memory_order_relaxed);
}

/// Another thread's call. A sleeper has to know of it.
void Channel::call_driven_came() noexcept {
  plain_port_.store(nullptr, std::memory_order_seq_cst);
  wake();
}

bool Channel::next_event(Event& event) noexcept {
  if (!warnings_.empty()) [[unlikely]] {
    if (std::exchange(warning_told_, false)) warnings_.pop_front();
  }
  while (port_->next_event(event)) {
    // Foreign processes are sought when they are named, and their cards come from there.
    if (event.kind == Event::Kind::kCardWanted && is_foreign(event.peer)) continue;
    if (event.kind == Event::Kind::kPeerFailed) {
      if (is_foreign(event.peer)) foreign_->failed(event.peer);
      write_trace();  // The last seconds before it are what one wants to see.
    }
    if (event.kind != Event::Kind::kWarning) [[likely]]
      return true;
    warn(event.scope, {reinterpret_cast<const char*>(event.bytes), event.length_bytes});
  }
  for (; !warnings_.empty(); warnings_.pop_front()) {
    const std::string& text = warnings_.front();
    try {
      if (!warnings_said_.insert(text).second) continue;
    } catch (const std::bad_alloc&) {  // It may be said again.
    }
    warning_told_ = true;
    port_->events().others = 1;  // The port, which has none, has said 0.
    event = {.kind = Event::Kind::kWarning,
             .length_bytes = text.size(),
             .bytes = reinterpret_cast<const std::byte*>(text.data())};
    return true;
  }
  if (PeerId peer{}; foreign_ != nullptr && foreign_->next_failed(peer)) {
    port_->events().others = 1;  // There may be more.
    event = {.kind = Event::Kind::kPeerFailed, .status = Status::kPeerFailed, .peer = peer};
    return true;
  }
  return windows_ != nullptr && next_of_windows(event);
}

bool Channel::next_of_windows(Event& event) noexcept {
  Windows::Done done;
  if (!windows_->next(done)) return false;
  event = {.kind = Event::Kind::kWindowDone, .status = done.status, .cookie = done.cookie};
  port_->events().others = 1;  // There may be more.
  return true;
}

Result<ForeignProcesses*> Channel::foreign() {
  if (foreign_ != nullptr) return foreign_.get();
  auto made = ForeignProcesses::create(config_, *port_, process_driver_, {&Channel::log_line, this});
  if (!made.ok()) return made.error();
  foreign_ = std::move(made.value());
  note_care();
  if (armed_) wake();  // Another thread sleeps, and knows nothing of them.
  return foreign_.get();
}

Windows* Channel::windows() noexcept {
  const bool works_alone = thread_driver_ != nullptr || process_driver_ != nullptr;
  if (std::exchange(has_tried_windows_, true) || !works_alone) return windows_.get();
  try {
    Result<std::unique_ptr<Windows>> made = make_windows();
    if (made.ok())
      windows_ = std::move(made.value());
    else
      warn(LogScope::kNode,
           made.error().message + ": MPI windows are served by MPICH, and only in its calls");
  } catch (const std::bad_alloc&) {
    detach_targets();
  }
  note_care();
  if (armed_) wake();  // Another thread sleeps, and knows nothing of them.
  return windows_.get();
}

Result<std::unique_ptr<Windows>> Channel::make_windows() {
  Result<TargetPort*> port =
      thread_driver_ != nullptr ? thread_driver_->attach_targets(ranks_) : process_driver_->attach_targets();
  if (!port.ok()) return port.error();
  const std::size_t most =
      process_driver_ != nullptr ? atomic_bytes(process_driver_->slot_bytes()) : atomic_bytes(providers_);
  Result<std::unique_ptr<Windows>> made = Windows::create(*port.value(), most, port_->arena());
  if (!made.ok()) detach_targets();
  return made;
}

void Channel::detach_targets() noexcept {
  if (thread_driver_ != nullptr) thread_driver_->detach_targets();
  if (process_driver_ != nullptr) process_driver_->detach_targets();
}

bool Channel::may_have_work() noexcept {
  return port_->may_have_work() || (windows_ != nullptr && windows_->has_news()) || call_driven() != nullptr;
}

int Channel::write_trace() noexcept {
  if (client_trace_ == nullptr) return 0;
  try {
    const std::string engines = trace_prefix_ + ".ch3trace";
    const std::string clients = trace_prefix_ + ".client.ch3trace";
    const int engine_error = trace_written(port_->write_trace(engines), engines);
    const int client_error = trace_written(client_trace_->write(clients), clients);
    return engine_error != 0 ? engine_error : client_error;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int Channel::trace_written(int error, const std::string& path) noexcept {
  try {
    if (error != 0)
      warn(LogScope::kProcess, "cannot write the trace " + path + ": " + std::strerror(error) +
                                   " (MPIR_CVAR_CH3_OFFLOAD_TRACE names a prefix in a writable folder)");
  } catch (const std::bad_alloc&) {  // The caller has the error.
  }
  return error;
}

void Channel::look() noexcept {
  if (looks_over_ != nullptr) parting_.look(looks_over_->waiting_places());
}

/// If it does not arm, it also undoes what a wait has armed within whose last look this one is.
WaitPolicy::Step Channel::arm() noexcept {
  const bool are_armed = arm_ports();
  if (!are_armed || !tell_other_of_sleep()) {
    disarm();
    // The other client may be in another thread's call, which wants the core.
    return are_armed ? WaitPolicy::Step::kYield : WaitPolicy::Step::kPoll;
  }
  armed_ = true;
  note_care();
  is_last_look_ = true;
  trace(TraceEvent::kSleep);
  return WaitPolicy::Step::kSleep;
}

bool Channel::arm_ports() noexcept {
  if (!port_->arm()) return false;
  SleepSet& set = waiter_.sleep_set();
  set.clear();
  set.add(wake_descriptor_);
  set.add(port_->descriptors());
  set.end_after(port_->next_due_ns());
  if (foreign_ != nullptr) {
    set.add(foreign_->descriptor());
    set.end_after(foreign_->next_due_ns());
  }
  if (windows_ == nullptr) return true;
  set.add(windows_->port().descriptors());
  return windows_->port().arm() && !windows_->has_news();
}

/// Returns false if there is a client to be moved that cannot sleep. A wait within the last look of another
/// one tells it anew: the outer wait does not sleep then.
bool Channel::tell_other_of_sleep() noexcept {
  end_sleep_of_other();
  CallDriven* const other = call_driven();
  if (other == nullptr) return true;
  if (!other->begin_sleep(waiter_.sleep_set())) return false;
  sleeping_for_ = other;
  return true;
}

void Channel::end_sleep_of_other() noexcept {
  if (CallDriven* const other = std::exchange(sleeping_for_, nullptr); other != nullptr) other->end_sleep();
}

void Channel::disarm() noexcept {
  armed_ = false;
  note_care();
  is_last_look_ = false;
  end_sleep_of_other();
  if (windows_ != nullptr) windows_->port().disarm();
  port_->disarm();
}

/// Other threads may use this object meanwhile. Returns at once if a wait within the last look has disarmed.
void Channel::sleep(int timeout_ms) noexcept {
  if (!armed_ || !waiter_.sleep_set().sleep(timeout_ms)) return;
  std::uint64_t wakes;
  [[maybe_unused]] const ssize_t drained = read(wake_descriptor_, &wakes, sizeof wakes);
}

void Channel::awake() noexcept {
  if (!armed_) return;
  waiter_.end_sleep(*this);
  trace(TraceEvent::kWake);
}

void Channel::wake() noexcept {
  const int kept = errno;  // We may be in a signal handler.
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_descriptor_, &one, sizeof one);
  errno = kept;
}

}  // namespace ch3_offload
