#include "ch3_offload/nicd_client.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <span>
#include <string>

#include "engine/card.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

/// How soon somebody looks for copies that wait for others. Nanoseconds.
constexpr std::uint64_t kAwaitedLookNs = 1'000'000;

std::vector<Provider*> first_providers(const NicdClient::Parts& parts) {
  if (parts.exchange == nullptr) return parts.own->providers();
  return {parts.exchange.get()};
}

}  // namespace

std::string reason_of(const Error& error) {
  if (error.error_number != EMFILE) return error.message;
  constexpr int kOwn = 9, kOfRank = 6, kOfWindows = 3;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return "it has no descriptors left: its RLIMIT_NOFILE, that of the process which started it, is " +
         std::to_string(limit.rlim_cur) + "; it needs " + std::to_string(kOwn) + ", " +
         std::to_string(kOfRank) + " for each process, and " + std::to_string(kOfWindows) +
         " more for each that has windows or Portals: raise it with ulimit -n";
}

int kernel_copies_refusal(pid_t pid, std::uint64_t probe_address) noexcept {
  std::uint64_t word = 0;
  const iovec local{&word, sizeof word};
  const iovec remote{reinterpret_cast<void*>(probe_address), sizeof word};
  if (MemoryCopier::kernel().copy_by_any_thread(pid, local, {&remote, 1}, false) != sizeof word) return errno;
  return word == NicdHello::kMagic ? 0 : ESRCH;  // That of another process with this number.
}

namespace {

/// Nobody hears here when memory of this process's own leaves its address space.
EngineConfig without_own_memory(EngineConfig config) {
  config.program_memory_is_watched = false;
  return config;
}

}  // namespace

NicdClient::NicdClient(FileDescriptor socket, PortMemory memory, pid_t pid, KernelCopies copies,
                       MemoryCopier& copier, Parts parts)
    : socket_(std::move(socket)),
      memory_(std::move(memory)),
      parts_(std::move(parts)),
      outlet_(parts_),
      data_(pid, socket_, parts_.config.senders, outlet_, copies, copier),
      driver_(without_own_memory(parts_.config), first_providers(parts_)),
      server_(driver_, memory_, parts_.trace.get(), &data_, this) {
  server_.tell_counters();
  if (copies == KernelCopies::kAllowed) data_.keep_file(open_memory(pid));
  data_.let_others_copy(open_pages(pid));
}

/// What peers were granted of its memory, they may write to until they have heard of its end.
NicdClient::~NicdClient() {
  detach_targets();
  const std::shared_ptr<const void> memory = data_.shares().leave_mapped();
  if (parts_.exchange != nullptr) parts_.exchange->keep(memory);
  parts_.own->client_ended(memory);
}

bool NicdClient::welcome(NicdWelcome& welcome) noexcept {
  welcome.pid = ::getpid();
  welcome.must_share = !data_.may_copy();
  const bool is_sent = send_with_files(socket_, std::as_bytes(std::span(&welcome, 1)), memory_.files());
  memory_.close_files();
  return is_sent;
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
  if (targets_ != nullptr)
    happened += targets_->server.turn();
  else if (host_ != nullptr)
    happened += host_->serve();
  // Whoever may look into this process would reach the client's memory through it.
  if (data_.uses_file() && !std::exchange(is_undumpable_, true)) ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
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

/// A blocked client's providers are not armed, and what they have is not its processor's business.
void NicdClient::add_to(SleepSet& set) const noexcept {
  set.add(memory_.nic_bell().sleeper);
  set.add(socket_.get());
  if (data_.offers().is_awaited()) set.end_after(kAwaitedLookNs);
  if (!server_.is_blocked()) {
    set.add(driver_.descriptors());
    set.end_after(driver_.next_due_ns());
  }
  if (targets_ != nullptr) targets_->server.add_to(set);
}

bool NicdClient::attach_targets() noexcept {
  if (book_ == nullptr || targets_ != nullptr || !data_.may_copy()) return false;
  try {
    Result<PortMemory> memory = PortMemory::make();
    if (!memory.ok()) {
      const std::string line = "the network processor (ch3-offload-nicd): " + reason_of(memory.error());
      server_.warn(LogScope::kNode, line.c_str());
      return false;
    }
    if (host_ == nullptr) host_ = std::make_unique<HostTargets>(driver_, *book_, &data_);
    targets_ = std::make_unique<Targets>(std::move(memory.value()), *host_);
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

void NicdClient::log_line(void* client, LogScope scope, const char* line) {
  static_cast<NicdClient*>(client)->server_.warn(scope, line);
}

std::optional<Error> NicdClient::make_foreign(const UserKey& key, std::string& card) {
  const Error no_memory{Status::kNoMemory, 0, "it has no memory for the processes of other worlds"};
  if (parts_.exchange == nullptr) return Error{Status::kProtocol, 0, "this process is of no job"};
  try {
    std::optional<Error> error;
    if (!parts_.own->are_made()) error = parts_.own->make(key, {&NicdClient::log_line, this});
    if (error) return error;
    const std::vector<Provider*> providers = parts_.own->providers();
    card = card_of(providers);
    if (!reaches_foreign_ && !driver_.add_providers(providers)) return no_memory;
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
  reaches_foreign_ = true;
  data_.reach_foreign();
  return {};
}

bool NicdClient::reach_foreign(const UserKey& key) noexcept try {
  auto message = std::make_unique<NicdForeign>();
  std::string text;
  const std::optional<Error> error = make_foreign(key, text);
  if (error) {
    message->refusal = error->status;
    text = reason_of(*error);
  }
  set_text(message->text, text);
  return send_with_files(socket_, std::as_bytes(std::span(message.get(), 1)), {}) && !error;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace ch3_offload
