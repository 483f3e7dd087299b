#include "ch3_offload/own_providers.h"

#include <algorithm>
#include <utility>

namespace ch3_offload {

std::optional<Error> OwnProviders::make(const UserKey& key, const LoneLog& log) {
  set_lone(config_, key);
  auto made = make_lone_providers(config_, key, log);
  if (!made.ok()) return made.error();
  std::vector<std::unique_ptr<Provider>> silenced;
  for (const auto& provider : made.value())
    silenced.push_back(std::make_unique<SilencedProvider>(*provider, silence_));
  providers_ = std::move(made.value());
  silenced_ = std::move(silenced);
  return {};
}

std::vector<Provider*> OwnProviders::providers() const {
  std::vector<Provider*> pointers;
  for (const auto& one : silenced_) pointers.push_back(one.get());
  return pointers;
}

bool OwnProviders::leave() noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
             providers_, [](const auto& provider) { return provider->leave(); })) == providers_.size();
}

}  // namespace ch3_offload
