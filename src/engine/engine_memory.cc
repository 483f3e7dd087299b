// Engine: registered memory of transfers, with the pin-down caches where registering costs.

#include <algorithm>
#include <new>
#include <utility>

#include "engine/engine_state.h"

namespace ch3_offload {

std::array<PinDownCache*, 2> Engine::State::caches_of(std::size_t provider) const noexcept {
  if (provider >= first_foreign_provider) return {};
  PinDownCache* const for_reading = caches[2 * provider].get();
  PinDownCache* const for_writing = caches[2 * provider + 1].get();
  return {for_reading, for_writing == nullptr ? for_reading : for_writing};
}

bool Engine::State::hold_memory(Peer& peer, const Payload& payload, std::size_t length_bytes, Access access,
                                HeldMemory& memory) noexcept {
  std::byte* const address = payload.address;
  Status status = Status::kOk;
  if (payload.layout != nullptr) [[unlikely]] {
    status = registrar_of(peer).register_fetched(address, length_bytes, access, memory.region);
    return memory.held = status == Status::kOk;
  }
  PinDownCache* const cache = peer.write_terms.registrar != nullptr
                                  ? nullptr
                                  : caches_of(peer.provider_index)[static_cast<std::size_t>(access)];
  if (cache == nullptr) {
    status = registrar_of(peer).register_memory(address, length_bytes, access, memory.region);
  } else {
    const std::uint64_t misses = cache->misses();
    status = cache->acquire(address, length_bytes, access, memory.kept);
    if (status == Status::kOk) memory.region = memory.kept->memory;
    if (cache->misses() != misses)
      trace(TraceEvent::kMemoryRegistered, peer.id, 0, memory.region.length_bytes);
  }
  memory.held = status == Status::kOk;
  if (memory.held) return true;
  trace(TraceEvent::kMemoryRefused, peer.id, 0, length_bytes);
  if (status == Status::kNoMemory && cache != nullptr && !refusal_told) {
    refusal_told = true;
    try {
      warn(LogScope::kNode,
           "no room to register " + std::to_string(length_bytes) +
               " bytes of a message with the network device: it goes through buffers instead, which is "
               "slower. Raise the limit of locked memory (ulimit -l unlimited); else "
               "MPIR_CVAR_CH3_OFFLOAD_PIN_BYTES, PIN_REGIONS or the device is the limit");
    } catch (const std::bad_alloc&) {
      refusal_told = false;  // The next time.
    }
  }
  return false;
}

void Engine::State::let_go(Peer& peer, HeldMemory& memory) noexcept {
  if (!memory.held) return;
  memory.held = false;
  if (memory.kept == nullptr) return registrar_of(peer).deregister_memory(memory.region);
  Region& region = *std::exchange(memory.kept, nullptr);
  // Where there are two caches, each has regions of its own access only.
  PinDownCache& cache = *caches_of(peer.provider_index)[static_cast<std::size_t>(region.access)];
  // A peer that failed may have something under way that we know nothing of.
  if (peer.doom == Status::kOk) {
    cache.release(region);
  } else {
    cache.discard(region);
  }
}

/// Writes each number once: a reader must not see a part of a sum.
void Engine::State::sum_up_caches() noexcept {
  PinDownStatistics sum;
  for (const auto& cache : caches) {
    if (cache == nullptr) continue;
    const PinDownStatistics one = cache->statistics();
    sum.hits += one.hits;
    sum.misses += one.misses;
    sum.evictions += one.evictions;
    sum.invalidations += one.invalidations;
    sum.refused += one.refused;
    sum.registered_bytes += one.registered_bytes;
    sum.regions += one.regions;
  }
  counters.pin_hits = sum.hits;
  counters.pin_misses = sum.misses;
  counters.pin_evictions = sum.evictions;
  counters.pin_invalidations = sum.invalidations;
  counters.pin_refused = sum.refused;
  counters.pinned_bytes = sum.registered_bytes;
  counters.pinned_regions = sum.regions;
}

void Engine::State::trace_pin_down() noexcept {
  std::uint64_t evictions = 0;
  std::uint64_t invalidations = 0;
  for (const auto& cache : caches) {
    if (cache == nullptr) continue;
    evictions += cache->evictions();
    invalidations += cache->invalidations();
  }
  const std::uint64_t evicted = evictions - std::exchange(evictions_traced, evictions);
  const std::uint64_t gone = invalidations - std::exchange(invalidations_traced, invalidations);
  if (evicted != 0) trace(TraceEvent::kMemoryEvicted, config.self, 0, evicted);
  if (gone != 0) trace(TraceEvent::kMemoryGone, config.self, 0, gone);
}

bool Engine::keeps_memory() const noexcept {
  for (std::size_t i = 0; i < state_->first_foreign_provider; ++i) {
    const PinDownCache* const cache = state_->caches_of(i)[0];
    if (cache != nullptr && cache->keeps() && !state_->providers[i]->capabilities().on_demand) return true;
  }
  return false;
}

void Engine::memory_gone(const void* address, std::size_t length_bytes) noexcept {
  for (const auto& cache : state_->caches)
    if (cache != nullptr) cache->invalidate(address, length_bytes);
}

void Engine::stop_keeping_memory() noexcept {
  for (const auto& cache : state_->caches)
    if (cache != nullptr) cache->stop_keeping();
}

}  // namespace ch3_offload
