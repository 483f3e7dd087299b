#include "nic/host_driver.h"

#include <algorithm>
#include <new>

namespace ch3_offload {

namespace {

std::vector<int> descriptors_of(std::span<Provider* const> providers) {
  std::vector<int> descriptors;
  for (const Provider* const provider : providers) descriptors.push_back(provider->descriptor());
  return descriptors;
}

EngineConfig with_news(EngineConfig config, bool* program_news) {
  config.program_news = program_news;
  return config;
}

}  // namespace

HostDriver::HostDriver(const EngineConfig& config, std::span<Provider* const> providers)
    : trace_(config.trace),
      providers_(providers.begin(), providers.end()),
      descriptors_(descriptors_of(providers)),
      modules_(engine_, news_, config.senders, config.program_memory_is_watched, budgets_of(config)),
      engine_(with_news(config, &news_.messages), providers) {}

bool HostDriver::add_providers(std::span<Provider* const> providers) noexcept {
  try {
    providers_.reserve(providers_.size() + providers.size());
    descriptors_.reserve(descriptors_.size() + providers.size());
    engine_.add_providers(providers);
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (Provider* const provider : providers) {
    providers_.push_back(provider);
    descriptors_.push_back(provider->descriptor());
  }
  return true;
}

bool HostDriver::may_have_work() noexcept {
  return !at_rest() || std::any_of(providers_.begin(), providers_.end(),
                                   [](Provider* one) { return one->may_have_work(); });
}

bool HostDriver::arm() noexcept {
  if (has_program_work()) return false;
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
