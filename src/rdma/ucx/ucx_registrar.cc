#include "rdma/ucx/ucx_registrar.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <string>

#include "rdma/rdma_devices.h"

namespace ch3_offload {

namespace {

/// The object to which MemoryRegion::local_key points. UCX owns its parts; deregister_memory() returns them.
struct UcxRegistration {
  ucp_mem_h memory = nullptr;
  void* key = nullptr;
  std::size_t key_bytes = 0;
};

UcxRegistration& registration_of(const MemoryRegion& region) noexcept {
  return *reinterpret_cast<UcxRegistration*>(region.local_key);  // NOLINT(performance-no-int-to-ptr)
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const noexcept { ucp_config_release(config); }
};

Error failed(const char* what, ucs_status_t status) {
  return {status == UCS_ERR_NO_MEMORY ? Status::kNoMemory : Status::kUnsupported, 0,
          std::string("ucx: ") + what + ": " + ucs_status_string(status)};
}

/// Returns whether UCX's verbs transports have a cache of their own (before 1.16) and a device. Otherwise UCX
/// would warn that the setting is unused.
bool verbs_has_a_cache() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return major == 1 && minor < 16 && has_rdma_device();
}

ucs_status_t switch_caches_off(ucp_config_t* config) {
  const ucs_status_t status = ucp_config_modify(config, "RCACHE_ENABLE", "n");
  if (status != UCS_OK || !verbs_has_a_cache()) return status;
  return ucp_config_modify(config, "REG_METHODS", "direct");
}

/// Returns whether the process can write to both ends of the range. True if Linux cannot tell (before 5.14).
bool is_writable(const void* address, std::size_t length_bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address) / page * page;
  const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(address) + length_bytes - 1) / page * page;
  const auto populate = [](std::uintptr_t begin, std::size_t bytes) {
    auto* const pages = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr)
    return madvise(pages, bytes, MADV_POPULATE_WRITE) == 0;
  };
  const bool can_tell = populate(first, 0);
  return !can_tell || (populate(first, page) && populate(last, page));
}

}  // namespace

Result<std::unique_ptr<UcxRegistrar>> UcxRegistrar::open(std::uint64_t features) {
  ucp_config_t* read = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &read);
  if (status != UCS_OK) return failed("its settings cannot be read (UCX_* in the environment)", status);
  const std::unique_ptr<ucp_config_t, ConfigRelease> config(read);
  status = switch_caches_off(config.get());
  if (status != UCS_OK) return failed("its registration caches cannot be switched off", status);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = features | UCP_FEATURE_RMA;
  params.mt_workers_shared = 1;  // Makes UCX lock around registration.
  ucp_context_h made = nullptr;
  status = ucp_init(&params, config.get(), &made);
  if (status != UCS_OK) return failed("no usable transport (UCX_TLS, UCX_NET_DEVICES; ucx_info -d)", status);
  Context context(made);
  ucp_context_attr_t got{};
  got.field_mask = UCP_ATTR_FIELD_THREAD_MODE;
  status = ucp_context_query(context.get(), &got);
  if (status != UCS_OK || got.thread_mode != UCS_THREAD_MODE_MULTI)
    return failed("it was built without support for threads", UCS_ERR_UNSUPPORTED);
  return std::unique_ptr<UcxRegistrar>(new UcxRegistrar(std::move(context)));
}

Status UcxRegistrar::register_memory(void* address, std::size_t length_bytes, Access,
                                     MemoryRegion& region) noexcept {
  std::unique_ptr<UcxRegistration> made(new (std::nothrow) UcxRegistration);
  if (made == nullptr) return Status::kNoMemory;
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = address;
  params.length = length_bytes;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_t status = ucp_mem_map(context(), &params, &made->memory);
  if (status == UCS_ERR_NO_MEMORY) return Status::kNoMemory;
  // UCX reports every refusal of a verbs device with this status.
  if (status == UCS_ERR_IO_ERROR)
    return is_writable(address, length_bytes) ? Status::kNoMemory : Status::kUnsupported;
  if (status != UCS_OK) return Status::kUnsupported;
  const ucs_status_t packed = ucp_rkey_pack(context(), made->memory, &made->key, &made->key_bytes);
  if (packed != UCS_OK) {
    ucp_mem_unmap(context(), made->memory);
    return packed == UCS_ERR_NO_MEMORY ? Status::kNoMemory : Status::kUnsupported;
  }
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{},
            reinterpret_cast<std::uintptr_t>(made.release())};
  return Status::kOk;
}

void UcxRegistrar::deregister_memory(MemoryRegion& region) noexcept {
  const std::unique_ptr<UcxRegistration> made(&registration_of(region));
  ucp_rkey_buffer_release(made->key);
  ucp_mem_unmap(context(), made->memory);
  region = {};
}

std::span<const std::byte> UcxRegistrar::packed_key(const MemoryRegion& region) noexcept {
  const UcxRegistration& made = registration_of(region);
  return {static_cast<const std::byte*>(made.key), made.key_bytes};
}

}  // namespace ch3_offload
