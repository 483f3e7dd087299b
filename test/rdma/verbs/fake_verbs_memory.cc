// The fake verbs device: protection domains and memory regions.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "rdma/verbs/fake_verbs_network.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#pragma GCC visibility push(default)

namespace ch3_offload::fake_verbs {

namespace {

/// madvise() for whole pages.
bool advise(void* address, std::size_t length_bytes, int advice) {
  static const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(address) % page_bytes;
  return ::madvise(static_cast<std::byte*>(address) - before, length_bytes + before, advice) == 0;
}

/// Whether the kernel could pin the pages; does what pinning does to them.
bool can_pin(void* address, std::size_t length_bytes, bool writable) {
  constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // MADV_POPULATE_*: newer than some C libraries.
  // A kernel without them refuses them for memory that is certainly there.
  static int anything;
  static const bool known = advise(&anything, sizeof anything, kPopulateWrite);
  return !known || advise(address, length_bytes, writable ? kPopulateWrite : kPopulateRead);
}

std::byte* find(const std::unordered_map<std::uint32_t, Region*>& keys, std::uint32_t key,
                const ibv_pd* domain, std::uint64_t address, std::uint64_t length_bytes,
                unsigned access) noexcept {
  const auto found = keys.find(key);
  if (found == keys.end()) return nullptr;
  const Region& region = *found->second;
  if (region.pd != domain || (region.access & access) != access) return nullptr;
  if (address < region.start || length_bytes > region.length) return nullptr;
  if (address - region.start > region.length - length_bytes) return nullptr;
  return static_cast<std::byte*>(region.addr) + (address - region.start);
}

/// errno, or 0.
int check_registration(Network& network, ibv_pd* domain, void* address, std::size_t length_bytes,
                       unsigned access) {
  const Context& context = *context_of(domain->context);
  const DeviceConfig& config = network.config_of(*context.device);
  constexpr unsigned kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  constexpr unsigned kKnown = kRemote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                              IBV_ACCESS_ON_DEMAND | IBV_ACCESS_OPTIONAL_RANGE;
  if (context.device->dead) return EIO;
  if ((access & ~kKnown) != 0) return EOPNOTSUPP;
  if ((access & kRemote) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if (length_bytes == 0 || length_bytes > config.max_region_bytes) return EINVAL;
  if (length_bytes > std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(address)) {
    return EINVAL;
  }
  const auto is_here = [&](const Region& region) {
    return context_of(region.context)->device == context.device;
  };
  if (network.regions_.holds(config.max_regions, is_here)) return ENOMEM;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return config.faults_pages ? 0 : EOPNOTSUPP;
  if (length_bytes > config.registered_bytes_per_context - context.registered_bytes) return ENOMEM;
  if (!can_pin(address, length_bytes, (access & IBV_ACCESS_LOCAL_WRITE) != 0)) return EFAULT;
  return 0;
}

ibv_mr* register_region(Network& network, ibv_pd* domain, void* address, std::size_t length_bytes,
                        std::uint64_t start, unsigned access) {
  const int error = check_registration(network, domain, address, length_bytes, access);
  if (error != 0) return failed(error);
  Region* const region = network.regions_.add(std::make_unique<Region>());
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = length_bytes;
  region->handle = ++network.next_handle_;
  region->start = start;
  region->access = access;
  // Odd and even, and never again.
  network.next_key_ += 2;
  region->lkey = network.next_key_ << 4;
  const bool remote = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) != 0;
  if (network.config_.remote_key_is_local_key) {
    region->rkey = region->lkey;
  } else {
    region->rkey = remote ? (network.next_key_ + 1) << 4 : 0;
  }
  network.local_keys_.emplace(region->lkey, region);
  if (remote) network.remote_keys_.emplace(region->rkey, region);
  static_cast<Domain*>(domain)->children += 1;
  if ((access & IBV_ACCESS_ON_DEMAND) == 0) context_of(domain->context)->registered_bytes += length_bytes;
  Counters& counters = network.counters_;
  ++counters.registrations;
  counters.registered_bytes += length_bytes;
  counters.most_registered_bytes = std::max(counters.most_registered_bytes, counters.registered_bytes);
  return region;
}

}  // namespace

std::byte* Network::find_local(std::uint32_t key, const ibv_pd* domain, std::uint64_t address,
                               std::uint64_t length_bytes, unsigned access) const noexcept {
  return find(local_keys_, key, domain, address, length_bytes, access);
}

std::byte* Network::find_remote(std::uint32_t key, const ibv_pd* domain, std::uint64_t address,
                                std::uint64_t length_bytes, unsigned access) const noexcept {
  return find(remote_keys_, key, domain, address, length_bytes, access);
}

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* handle) {
  const Call call("ibv_alloc_pd");
  if (call.error() != 0) return failed(call.error());
  Network& network = Network::get();
  Context& context = *context_of(handle);
  if (context.device->dead) return failed(EIO);
  const auto is_here = [&](const Domain& domain) {
    return context_of(domain.context)->device == context.device;
  };
  if (network.domains_.holds(network.config_of(*context.device).max_domains, is_here)) return failed(ENOMEM);
  Domain* const domain = network.domains_.add(std::make_unique<Domain>());
  domain->context = handle;
  domain->handle = ++network.next_handle_;
  ++context.children;
  return domain;
}

int ibv_dealloc_pd(ibv_pd* handle) {
  const Call call("ibv_dealloc_pd");
  Network& network = Network::get();
  auto* const domain = static_cast<Domain*>(handle);
  if (call.error() != 0) return call.error();
  if (domain->children > 0) {
    network.violation("ibv_dealloc_pd: the domain has regions, SRQs or queue pairs");
    return EBUSY;
  }
  --context_of(domain->context)->children;
  network.domains_.remove(domain);
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t length_bytes, int access) {
  const Call call("ibv_reg_mr");
  if (call.error() != 0) return failed(call.error());
  return register_region(Network::get(), domain, address, length_bytes,
                         reinterpret_cast<std::uintptr_t>(address), static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* domain, void* address, std::size_t length_bytes, std::uint64_t start,
                        int access) {
  const Call call("ibv_reg_mr");
  if (call.error() != 0) return failed(call.error());
  return register_region(Network::get(), domain, address, length_bytes, start, static_cast<unsigned>(access));
}

// What ibv_reg_mr(), a macro, calls when the access flags are no constant or have an optional one.
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t length_bytes, std::uint64_t start,
                         unsigned access) {
  const Call call("ibv_reg_mr");
  if (call.error() != 0) return failed(call.error());
  return register_region(Network::get(), domain, address, length_bytes, start, access);
}

int ibv_dereg_mr(ibv_mr* handle) {
  const Call call("ibv_dereg_mr");
  Network& network = Network::get();
  auto* const region = static_cast<Region*>(handle);
  if (call.error() != 0) return call.error();
  network.local_keys_.erase(region->lkey);
  if (region->rkey != 0) network.remote_keys_.erase(region->rkey);
  static_cast<Domain*>(region->pd)->children -= 1;
  if ((region->access & IBV_ACCESS_ON_DEMAND) == 0)
    context_of(region->context)->registered_bytes -= region->length;
  network.counters_.registered_bytes -= region->length;
  network.regions_.remove(region);
  return 0;
}

}  // extern "C"

}  // namespace ch3_offload::fake_verbs

#pragma GCC visibility pop
