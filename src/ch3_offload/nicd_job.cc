#include "ch3_offload/nicd_job.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "ch3_offload/making.h"
#include "ch3_offload/settings.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

/// What the processes of a job have given to the network may leave for so long after the last has ended.
constexpr std::uint64_t kLastFramesNs = 1'000'000'000;
/// Lines that are kept for clients that come later. The first ones say how the network was made.
constexpr std::size_t kMostLines = 64;
/// Of a process's message to itself, what is copied in its turn.
constexpr std::size_t kSelfCopyBytes = std::size_t{64} << 10;

/// Why the kernel does not let this process read the other's word, which holds kMagic: errno. 0: it does.
int kernel_copies_refusal(pid_t pid, std::uint64_t probe_address) noexcept {
  std::uint64_t word = 0;
  const iovec local{&word, sizeof word};
  const iovec remote{reinterpret_cast<void*>(probe_address), sizeof word};
  if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != sizeof word) return errno;
  return word == NicdHello::kMagic ? 0 : ESRCH;  // That of another process with this number.
}

}  // namespace

// A client.

NicdClient::NicdClient(FileDescriptor socket, PortMemory memory, pid_t pid, KernelCopies copies,
                       std::unique_ptr<ExchangePort> port, const EngineConfig& config,
                       std::unique_ptr<Trace> trace)
    : socket_(std::move(socket)),
      memory_(std::move(memory)),
      trace_(std::move(trace)),
      port_(std::move(port)),
      data_(pid, socket_, config.senders, *port_, copies),
      providers_{port_.get()},
      driver_(config, providers_),
      server_(driver_, memory_, trace_.get(), &data_, this) {
  server_.tell_counters();
}

const char* NicdClient::complaint() const noexcept {
  if (server_.is_refused()) return "its ring of commands holds rubbish: its memory was overwritten";
  if (targets_ != nullptr && targets_->server.is_refused())
    return "its ring of commands for target entries holds rubbish: its memory was overwritten";
  if (!data_.is_broken()) return nullptr;
  return data_.reason().empty() ? "its memory cannot be read" : data_.reason().c_str();
}

std::size_t NicdClient::turn() noexcept {
  std::size_t happened = server_.turn();
  if (targets_ != nullptr) happened += targets_->server.turn();
  return happened;
}

bool NicdClient::has_commands() const noexcept {
  return server_.has_commands() || (targets_ != nullptr && targets_->server.has_commands());
}

bool NicdClient::arm() noexcept {
  // While events wait for room, its engine does not work, whatever there is to do.
  return (server_.is_blocked() || driver_.arm()) && server_.arm() &&
         (targets_ == nullptr || targets_->server.arm());
}

void NicdClient::disarm() noexcept {
  if (targets_ != nullptr) targets_->server.disarm();
  server_.disarm();
  driver_.disarm();
}

void NicdClient::add_descriptors(std::vector<pollfd>& descriptors) const {
  descriptors.push_back({memory_.nic_bell().sleeper, POLLIN, 0});
  descriptors.push_back({socket_.get(), POLLIN, 0});
  if (targets_ != nullptr) descriptors.push_back({targets_->server.bell(), POLLIN, 0});
}

bool NicdClient::attach_targets() noexcept {
  if (targets_ != nullptr || !data_.may_copy()) return false;
  try {
    Result<PortMemory> memory = PortMemory::make();
    if (!memory.ok()) return false;
    const RankBook book(data_.rank(), data_.peer_limit(), UserId{::geteuid()});
    targets_ = std::make_unique<Targets>(std::move(memory.value()), driver_, book, data_);
  } catch (const std::bad_alloc&) {
    return false;
  }
  const NicdTargets message;
  const bool is_sent =
      send_with_files(socket_, std::as_bytes(std::span(&message, 1)), targets_->memory.files());
  targets_->memory.close_files();
  if (!is_sent) targets_.reset();
  return is_sent;
}

void NicdClient::detach_targets() noexcept { targets_.reset(); }

// Hellos.

NicdHello make_hello(const ch3_offload_config_t& config) {
  NicdHello hello;
  hello.rank = config.rank;
  hello.job_size = config.job_size;
  hello.local_rank = config.local_rank;
  hello.local_size = config.local_size;
  hello.always_ignored_bits = config.always_ignored_bits;
  hello.channel_bits = config.channel_bits;
  static_assert(sizeof hello.secret == sizeof config.secret);
  std::memcpy(hello.secret.data(), config.secret, sizeof config.secret);
  std::string text;
  for (const Setting& setting : settings())
    text += std::string(setting.variable) + "=" + to_string(setting, config) + "\n";
  set_text(hello.settings, text);
  return hello;
}

std::optional<std::string> read_hello(const NicdHello& hello, std::vector<std::string>& values,
                                      ch3_offload_config_t& config) {
  ch3_offload_config_default(&config);
  config.rank = hello.rank;
  config.job_size = hello.job_size;
  config.local_rank = hello.local_rank;
  config.local_size = hello.local_size;
  config.always_ignored_bits = hello.always_ignored_bits;
  config.channel_bits = hello.channel_bits;
  std::memcpy(config.secret, hello.secret.data(), sizeof config.secret);
  std::string_view text = text_of(hello.settings);
  values.clear();
  values.reserve(settings().size());  // The pointers into them stay.
  for (const Setting& setting : settings()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string prefix = std::string(setting.variable) + "=";
    if (!line.starts_with(prefix) || line.size() == text.size())
      return "its settings are cut: it is of another version, or they are too long";
    values.emplace_back(line.substr(prefix.size()));
    text.remove_prefix(line.size() + 1);
    if (auto why = set_from_text(setting, values.back().c_str(), config)) return why;
  }
  std::array<char, 512> message;
  if (ch3_offload_config_check(&config, message.data(), message.size()) != 0) return message.data();
  return {};
}

// A job.

NicdJob::~NicdJob() { clients_.clear(); }

/// Tells every client: each knows whether it is the one that says the line. Those that come later, too.
void NicdJob::log_line(void* context, LogScope scope, const char* line) {
  auto& job = *static_cast<NicdJob*>(context);
  // This process is the node's.
  if (scope == LogScope::kProcess) scope = LogScope::kNode;
  for (const auto& client : job.clients_) client->server().warn(scope, line);
  try {
    if (job.lines_.size() < kMostLines) job.lines_.emplace_back(scope, line);
  } catch (const std::bad_alloc&) {  // Those that come later miss a line.
  }
}

Result<std::unique_ptr<NicdJob>> NicdJob::create(const NicdHello& hello) {
  ch3_offload_config_t config;
  std::vector<std::string> values;
  if (auto why = read_hello(hello, values, config)) return Error{Status::kProtocol, 0, *why};
  std::unique_ptr<NicdJob> job(new NicdJob(hello.secret));
  job->size_ = config.job_size;
  job->spin_us_ = config.spin_us;
  job->local_size_ = std::max<std::uint32_t>(config.local_size, 1);  // 0: not known.
  const std::string_view fabric = config.fabric;
  if (fabric != "shm" && has_others_elsewhere(config)) {
    auto network = make_network(config, PeerId{config.rank}, &NicdJob::log_line, job.get());
    if (network.ok())
      job->network_ = std::move(network.value());
    else if (fabric == "verbs")
      return network.error();
    else  // Without a network the processes of this node can still talk to each other.
      log_line(job.get(), LogScope::kNode, network.error().message.c_str());
  }
  job->exchange_ = std::make_unique<Exchange>(PeerId{config.rank}, config.job_size, job->network_.get());
  return job;
}

std::optional<Error> NicdJob::admit(FileDescriptor socket, pid_t pid, const NicdHello& hello) {
  ch3_offload_config_t config;
  std::vector<std::string> values;
  if (auto why = read_hello(hello, values, config)) return Error{Status::kProtocol, 0, *why};
  if (config.job_size != size_)
    return Error{Status::kProtocol, 0, "other processes of the job say that it has another size"};

  const int refusal = kernel_copies_refusal(pid, hello.probe_address);
  const KernelCopies copies = refusal == 0 ? KernelCopies::kAllowed : KernelCopies::kRefused;

  EngineConfig engine = engine_config(config);
  engine.self_copy_bytes = kSelfCopyBytes;
  std::unique_ptr<ExchangePort> port = exchange_->attach(PeerId{config.rank}, engine.traffic_class);
  if (port == nullptr) return Error{Status::kProtocol, 0, "its rank was here before"};
  Result<PortMemory> memory = PortMemory::make();
  if (!memory.ok()) return memory.error();
  std::unique_ptr<Trace> trace;
  if (config.trace != nullptr && *config.trace != '\0')
    trace =
        std::make_unique<Trace>(engine.self, config.job_size, static_cast<std::size_t>(config.trace_events));
  engine.trace = trace.get();
  auto client = std::make_unique<NicdClient>(std::move(socket), std::move(memory.value()), pid, copies,
                                             std::move(port), engine, std::move(trace));
  auto welcome = std::make_unique<NicdWelcome>();
  welcome->pid = ::getpid();
  welcome->must_share = copies == KernelCopies::kRefused;
  welcome->slot_bytes =
      static_cast<std::uint16_t>(std::min<std::size_t>(exchange_->least_slot_bytes(), UINT16_MAX));
  set_text(welcome->text, client->card());
  if (!send_with_files(client->socket(), std::as_bytes(std::span(welcome.get(), 1)),
                       client->memory().files()))
    return Error{Status::kPeerFailed, 0, "it has ended"};
  client->memory().close_files();
  if (copies == KernelCopies::kRefused && !std::exchange(refusal_told_, true)) {
    const std::string line =
        std::string("the network processor may not read the memory of its processes (process_vm_readv: ") +
        std::strerror(refusal) +
        "): messages outside of MPI_Alloc_mem are copied once more, in calls of MPI. To permit it, "
        "kernel.yama.ptrace_scope must be 0 or 1, and a container needs CAP_SYS_PTRACE";
    log_line(this, LogScope::kNode, line.c_str());
  }
  for (const auto& [scope, line] : lines_) client->server().warn(scope, line);
  clients_.push_back(std::move(client));
  return {};
}

void NicdJob::drop(std::size_t index, std::string_view why) noexcept {
  if (!why.empty())
    static_cast<void>(send_with_files(clients_[index]->socket(), std::as_bytes(std::span(why)), {}));
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
}

std::size_t NicdJob::turn() noexcept {
  if (is_leaving_) return 0;
  std::size_t happened = exchange_->poll();
  for (std::size_t i = 0; i < clients_.size();) {
    happened += clients_[i]->turn();
    if (const char* const why = clients_[i]->complaint()) [[unlikely]] {
      drop(i, why);
      ++happened;
    } else {
      ++i;
    }
  }
  return happened;
}

void NicdJob::tell_counters() noexcept {
  for (const auto& client : clients_) client->server().tell_counters();
}

void NicdJob::look_at_sockets() noexcept {
  for (std::size_t i = 0; i < clients_.size();) {
    const Receipt receipt = clients_[i]->shares().listen();
    if (receipt == Receipt::kNothing || receipt == Receipt::kMessage) {
      ++i;
    } else {
      // What it gave before it ended, first. No more than its ring holds: others may write to that, too.
      NicdClient& client = *clients_[i];
      for (std::size_t turns = 0; turns <= kCommandRingBytes / kLineBytes; ++turns) {
        static_cast<void>(client.turn());
        if (!client.has_commands() || client.complaint() != nullptr) break;
      }
      drop(i, receipt == Receipt::kClosed ? "" : "it speaks out of turn");
    }
  }
}

bool NicdJob::is_over(std::uint64_t now_ns) noexcept {
  if (!clients_.empty()) {
    alone_since_ns_ = 0;
    return false;
  }
  if (alone_since_ns_ == 0) alone_since_ns_ = now_ns;
  is_leaving_ = is_leaving_ || exchange_->at_rest() || now_ns - alone_since_ns_ > kLastFramesNs;
  return is_leaving_ && (network_ == nullptr || network_->leave());
}

bool NicdJob::arm() noexcept {
  if (is_leaving_) return true;
  bool is_armed = network_ == nullptr || network_->arm();
  for (const auto& client : clients_) is_armed = is_armed && client->arm();
  return is_armed;
}

void NicdJob::disarm() noexcept {
  if (is_leaving_) return;
  if (network_ != nullptr) network_->disarm();
  for (const auto& client : clients_) client->disarm();
}

void NicdJob::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (is_leaving_) return;
  if (network_ != nullptr) descriptors.push_back({network_->descriptor(), POLLIN, 0});
  for (const auto& client : clients_) client->add_descriptors(descriptors);
}

}  // namespace ch3_offload
