#include "ch3_offload/nicd_job.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ch3_offload/making.h"
#include "ch3_offload/nicd_hello.h"
#include "ch3_offload/settings.h"
#include "nic/rank_book.h"

namespace ch3_offload {

/// The job has this process in common.
void NicdJob::log_line(void* job, LogScope scope, const char* line) {
  static_cast<NicdJob*>(job)->tell(scope == LogScope::kProcess ? LogScope::kNode : scope, line);
}

Result<std::unique_ptr<NicdJob>> NicdJob::create(const NicdHello& hello, MemoryCopier& copier) {
  ch3_offload_config_t config;
  std::vector<std::string> values;
  if (auto why = read_hello(hello, values, config)) return Error{Status::kProtocol, 0, *why};
  if (std::optional<Error> error = checksums_missing(config)) return std::move(*error);
  std::unique_ptr<NicdJob> job(new NicdJob(hello.secret, copier));
  job->job_size_ = config.job_size;
  job->spin_us_ = config.spin_us;
  job->local_size_ = std::max<std::uint32_t>(config.local_size, 1);  // 0: not known.
  // A page that the device would fault in later may be another client's by then.
  if (std::string_view(config.pin_cache) == "on-demand") config.pin_cache = "on";
  const FabricChoice fabric = fabric_choice(config.fabric);
  if (fabric.has_network() && has_others_elsewhere(config)) {
    auto networks = make_networks(config, PeerId{config.rank}, &NicdJob::log_line, job.get(), /*most=*/1);
    if (networks.ok())
      job->providers_.push_back(std::move(networks.value().front()));
    else if (!fabric.is_auto)
      return networks.error();
    else  // Without a network the processes of this node can still talk to each other.
      job->tell(LogScope::kNode, without_network(networks.error()).c_str());
  }
  job->exchange_ = std::make_unique<Exchange>(PeerId{config.rank}, config.job_size, job->network());
  return job;
}

/// The limit of locked memory is this process's. So each client has its part of it, and may ask for less.
PinDownConfig NicdJob::pins_of(const ch3_offload_config_t& config) const {
  const Provider* const device = network();
  const bool has_cache = device != nullptr && device->capabilities().registering_costs;
  const std::size_t registrations = has_cache ? device->capabilities().registrations * local_size_ : 0;
  ch3_offload_config_t unlimited = config;
  unlimited.pin_bytes = unlimited.pin_regions = 0;
  PinDownConfig pins = pin_down_config(unlimited, registrations);
  if (has_cache)
    pins.most_regions = std::min(pins.most_regions, device->capabilities().most_regions / local_size_);
  if (config.pin_bytes != 0)
    pins.most_bytes = std::min(pins.most_bytes, static_cast<std::size_t>(config.pin_bytes));
  if (config.pin_regions != 0)
    pins.most_regions = std::min(pins.most_regions, static_cast<std::size_t>(config.pin_regions));
  return pins;
}

std::optional<Error> NicdJob::admit(FileDescriptor socket, pid_t pid, const NicdHello& hello) {
  ch3_offload_config_t config;
  std::vector<std::string> values;
  if (auto why = read_hello(hello, values, config)) return Error{Status::kProtocol, 0, *why};
  if (config.job_size != job_size_)
    return Error{Status::kProtocol, 0, "other processes of the job say that it has another size"};

  const int refusal = kernel_copies_refusal(pid, hello.probe_address);
  const KernelCopies copies = refusal == 0 ? KernelCopies::kAllowed : KernelCopies::kRefused;

  NicdClient::Parts parts;
  parts.config = engine_config(config);
  parts.config.self_copy_bytes = kSharedSelfCopyBytes;
  std::unique_ptr<ExchangePort> port = exchange_->attach(PeerId{config.rank}, parts.config.traffic_class);
  if (port == nullptr) return Error{Status::kProtocol, 0, "its rank was here before"};
  parts.config.landing_numbers = port->landing_numbers();
  parts.config.pin_down = pins_of(config);
  parts.exchange = std::move(port);
  parts.own = std::make_shared<OwnProviders>(std::move(values), config, config.job_size);
  Result<PortMemory> memory = PortMemory::make();
  if (!memory.ok()) return memory.error();
  if (config.trace != nullptr && *config.trace != '\0')
    parts.trace = std::make_unique<Trace>(parts.config.self, config.job_size,
                                          static_cast<std::size_t>(config.trace_events));
  parts.config.trace = parts.trace.get();
  auto client = std::make_unique<NicdClient>(std::move(socket), std::move(memory.value()), pid, copies,
                                             copier_, std::move(parts));
  client->set_book(std::make_unique<RankBook>(PeerId{config.rank}, config.job_size, UserId{::geteuid()}));
  auto welcome = std::make_unique<NicdWelcome>();
  welcome->slot_bytes =
      static_cast<std::uint16_t>(std::min<std::size_t>(exchange_->least_slot_bytes(), UINT16_MAX));
  set_text(welcome->text, client->card());
  if (!client->welcome(*welcome)) return Error{Status::kPeerFailed, 0, "it has ended"};
  if (copies == KernelCopies::kRefused && !std::exchange(refusal_told_, true)) {
    const std::string line =
        std::string("the network processor may not read the memory of its processes (process_vm_readv: ") +
        std::strerror(refusal) +
        "): messages outside of MPI_Alloc_mem are copied once more, in calls of MPI. " + kHowToPermitCopies;
    tell(LogScope::kNode, line.c_str());
  }
  add(std::move(client));
  return {};
}

}  // namespace ch3_offload
