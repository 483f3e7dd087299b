#include "rdma/verbs/devices/slot_pool.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace ch3_offload {

std::string locked_memory_remedy() {
  return "raise it (ulimit -l unlimited, or memlock in /etc/security/limits.conf, and the same for the"
         " daemon that starts jobs)";
}

Error registration_error(std::size_t length_bytes, int error_number) {
  std::string text = "verbs: registering " + std::to_string(length_bytes) +
                     " bytes failed: " + std::generic_category().message(error_number);
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += "; RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur) + " bytes: " + locked_memory_remedy();
  return {Status::kNoMemory, error_number, std::move(text)};
}

std::optional<Error> SlotPool::grow() {
  if (slabs_.size() == most_slabs_)
    return Error{Status::kAgain, 0, "verbs: the pool of slots is as large as it may be"};
  Slab slab;
  slab.memory.length = slot_bytes_ * slots_per_slab_;
  void* const address =
      ::mmap(nullptr, slab.memory.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return Error{Status::kNoMemory, errno,
                 "verbs: no memory for " + std::to_string(slab.memory.length) + " bytes of slots"};
  slab.memory.address = static_cast<std::byte*>(address);
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (domains_[i] == nullptr) continue;
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;  // The macro wants a number.
    slab.registrations[i].reset(ibv_reg_mr(domains_[i], address, slab.memory.length, kAccess));
    if (slab.registrations[i] == nullptr) return registration_error(slab.memory.length, errno);
  }
  const std::uint32_t first = count();
  slabs_.push_back(std::move(slab));
  for (std::uint32_t slot = first + slots_per_slab_; slot > first; --slot) free_.push_back(slot - 1);
  return {};
}

}  // namespace ch3_offload
