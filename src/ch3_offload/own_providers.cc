#include "ch3_offload/own_providers.h"

#include <algorithm>
#include <utility>

namespace ch3_offload {

std::optional<Error> OwnProviders::make(const UserKey& key, const LoneLog& log) {
  set_lone(config_, key);
  log_ = log;
  auto made = make_lone_providers(config_, key, {&OwnProviders::log_line, this}, first_peer_);
  if (!made.ok()) return made.error();
  std::vector<std::unique_ptr<Provider>> silenced;
  for (const auto& provider : made.value())
    silenced.push_back(std::make_unique<SilencedProvider>(*provider, silence_));
  providers_ = std::move(made.value());
  silenced_ = std::move(silenced);
  return {};
}

void OwnProviders::log_line(void* providers, LogScope scope, const char* line) {
  const LoneLog& log = static_cast<OwnProviders*>(providers)->log_;
  if (log.write != nullptr) log.write(log.context, scope, line);
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
