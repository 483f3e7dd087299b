#include "nic/host_driver.h"

#include <algorithm>

namespace ch3_offload {

namespace {

std::vector<int> descriptors_of(std::span<Provider* const> providers) {
  std::vector<int> descriptors;
  for (const Provider* const provider : providers) descriptors.push_back(provider->descriptor());
  return descriptors;
}

}  // namespace

HostDriver::HostDriver(const EngineConfig& config, std::span<Provider* const> providers)
    : trace_(config.trace),
      providers_(providers.begin(), providers.end()),
      descriptors_(descriptors_of(providers)),
      engine_(config, providers) {}

bool HostDriver::may_have_work() noexcept {
  return !engine_.at_rest() || std::any_of(providers_.begin(), providers_.end(),
                                           [](Provider* one) { return one->may_have_work(); });
}

bool HostDriver::arm() noexcept {
  for (Provider* const provider : providers_) {
    if (provider->arm()) continue;
    disarm();
    return false;
  }
  return true;
}

void HostDriver::disarm() noexcept {
  for (Provider* const provider : providers_) provider->disarm();
}

}  // namespace ch3_offload
