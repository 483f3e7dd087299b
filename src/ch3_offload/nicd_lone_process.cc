#include "ch3_offload/nicd_lone_process.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ch3_offload/lone_process.h"
#include "ch3_offload/making.h"
#include "ch3_offload/nicd_hello.h"
#include "nic/introductions.h"

namespace ch3_offload {

void NicdLoneProcess::log_line(void* process, LogScope scope, const char* line) {
  static_cast<NicdLoneProcess*>(process)->tell(scope, line);
}

Result<std::unique_ptr<NicdLoneProcess>> NicdLoneProcess::create(const NicdHello& hello,
                                                                 MemoryCopier& copier) {
  std::unique_ptr<NicdLoneProcess> process(
      new NicdLoneProcess(UserKey::of_bytes(hello.key, hello.key_proves != 0), copier));
  std::vector<std::string> values;
  ch3_offload_config_t config;
  if (auto why = read_hello(hello, values, config)) return Error{Status::kProtocol, 0, *why};
  // To choose one may take long.
  if (hello.nid == 0) return Error{Status::kProtocol, 0, "it does not say its nid"};
  config.rank = index_of(kLoneSelf);
  process->spin_us_ = config.spin_us;
  process->own_ = std::make_shared<OwnProviders>(std::move(values), config, index_of(kFirstLonePeer));
  return process;
}

std::optional<Error> NicdLoneProcess::admit(FileDescriptor socket, pid_t pid, const NicdHello& hello) {
  if (const int refusal = kernel_copies_refusal(pid, hello.probe_address); refusal != 0)
    return Error{Status::kUnsupported, refusal,
                 std::string("it may not read the memory of this process (process_vm_readv: ") +
                     std::strerror(refusal) + "). " + kHowToPermitCopies};
  if (auto error = own_->make(key_, {&NicdLoneProcess::log_line, this})) return error;
  const std::vector<Provider*> providers = own_->providers();
  Result<PortMemory> memory = PortMemory::make();
  if (!memory.ok()) return memory.error();

  NicdClient::Parts parts;
  parts.config = lone_engine_config(own_->config());
  parts.config.self_copy_bytes = kSharedSelfCopyBytes;
  parts.own = own_;
  std::size_t slot_bytes = UINT16_MAX;
  for (const Provider* const provider : providers)
    slot_bytes = std::min(slot_bytes, provider->capabilities().max_slot_bytes);
  auto client = std::make_unique<NicdClient>(std::move(socket), std::move(memory.value()), pid,
                                             KernelCopies::kAllowed, copier_, std::move(parts));
  Introductions::Config introductions =
      introductions_config(own_->config(), key_, client->card(), {&NicdLoneProcess::log_line, this});
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
