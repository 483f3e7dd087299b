#include "ch3_offload/nicd_lone_process.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ch3_offload/lone_process.h"
#include "nic/introductions.h"

namespace ch3_offload {
namespace {

UserKey key_of(const NicdHello& hello) noexcept {
  return UserKey::of_bytes(hello.key, hello.key_proves != 0);
}

/// As read_hello() does.
std::optional<std::string> read_lone_hello(const NicdHello& hello, std::vector<std::string>& values,
                                           ch3_offload_config_t& config) {
  if (auto why = read_hello(hello, values, config)) return why;
  if (hello.nid == 0) return "it does not say its nid";  // To choose one may take long.
  set_lone(config, key_of(hello));
  return {};
}

}  // namespace

NicdLoneProcess::NicdLoneProcess() : silence_(kLoneSelf) {}

Result<std::unique_ptr<NicdLoneProcess>> NicdLoneProcess::create(const NicdHello& hello) {
  ch3_offload_config_t config;
  std::vector<std::string> values;
  if (auto why = read_lone_hello(hello, values, config)) return Error{Status::kProtocol, 0, *why};
  std::unique_ptr<NicdLoneProcess> process(new NicdLoneProcess);
  process->spin_us_ = config.spin_us;
  auto providers = make_lone_providers(config, key_of(hello), {&NicdGroup::log_line, process.get()});
  if (!providers.ok()) return providers.error();
  process->providers_ = std::move(providers.value());
  return process;
}

std::optional<Error> NicdLoneProcess::admit(FileDescriptor socket, pid_t pid, const NicdHello& hello) {
  ch3_offload_config_t config;
  std::vector<std::string> values;
  if (auto why = read_lone_hello(hello, values, config)) return Error{Status::kProtocol, 0, *why};
  if (const int refusal = kernel_copies_refusal(pid, hello.probe_address); refusal != 0)
    return Error{Status::kUnsupported, refusal,
                 std::string("it may not read the memory of this process (process_vm_readv: ") +
                     std::strerror(refusal) +
                     "): kernel.yama.ptrace_scope must be 0 or 1, and a container needs CAP_SYS_PTRACE"};
  Result<PortMemory> memory = PortMemory::make();
  if (!memory.ok()) return memory.error();

  NicdClient::Parts parts;
  parts.config = lone_engine_config(config);
  parts.config.self_copy_bytes = kNicdSelfCopyBytes;
  parts.outlet = &silence_;
  std::size_t slot_bytes = UINT16_MAX;
  for (const auto& provider : providers_) {
    slot_bytes = std::min(slot_bytes, provider->capabilities().max_slot_bytes);
    parts.providers.push_back(std::make_unique<SilencedProvider>(*provider, silence_));
  }
  auto client = std::make_unique<NicdClient>(std::move(socket), std::move(memory.value()), pid,
                                             KernelCopies::kAllowed, std::move(parts));
  Introductions::Config introductions =
      introductions_config(config, key_of(hello), client->card(), {&NicdGroup::log_line, this});
  introductions.nid = hello.nid;
  introductions.pid = hello.pid;
  auto book = Introductions::create(introductions);
  if (!book.ok()) return book.error();
  auto welcome = std::make_unique<NicdWelcome>();
  welcome->slot_bytes = static_cast<std::uint16_t>(slot_bytes);
  welcome->process = book.value()->self();
  client->set_book(std::move(book.value()));
  if (!client->welcome(*welcome)) return Error{Status::kPeerFailed, 0, "it has ended"};
  add(std::move(client));
  return {};
}

}  // namespace ch3_offload
