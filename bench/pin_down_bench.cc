// The pin-down cache and UCX's registration cache (ucs_rcache of libucs) on the same accesses, in one run.
//
// Registering costs nothing here, for both: what is measured is the caches. Regions are 64 KiB, 64 KiB apart;
// which one an access takes is random but where it says so, the same for both. Neither watches memory events.
// One thread uses the cache, as the engine does, and a second thread sleeps. An access begins when the one
// before has ended: between two hits of a program lies a transfer.
//
//   exact      the whole of a region that is there
//   in turn    the same, the regions one after another, as programs with many buffers do
//   sub-range  4 KiB somewhere in a region that is there
//   miss       a region that is not there, and its registration
//   churn      twice as many regions as the cache may hold, one after another: each access evicts
//
// Beside the two runs a "floor": an array that knows by arithmetic where each region's counter is, and goes up and down by one
// there. It does what any cache must do for a hit, so what it takes more with many regions is the processor's memory.
//
// usage: pin_down_bench [Google Benchmark's options]; bench/pin-down prints the two side by side.

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

extern "C" {
#include <ucs/memory/rcache.h>
}

#include "dme/pin_down_cache.h"

namespace {

using ch3_offload::Access;
using ch3_offload::MemoryRegion;
using ch3_offload::PinDownCache;
using ch3_offload::PinDownConfig;
using ch3_offload::Region;
using ch3_offload::Registrar;
using ch3_offload::RemoteKey;
using ch3_offload::Status;

constexpr std::size_t kRegionBytes = 64 * 1024;
constexpr std::size_t kStrideBytes = 2 * kRegionBytes;
constexpr std::size_t kMostRegions = 200'000;

/// Addresses only: nothing is ever there.
std::byte* memory() {
  static void* const reserved = mmap(nullptr, kMostRegions * kStrideBytes, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    std::perror("pin_down_bench: reserving addresses");
    std::exit(1);
  }
  return static_cast<std::byte*>(reserved);
}

std::byte* region_address(std::size_t index) { return memory() + index * kStrideBytes; }

class FreeRegistrar final : public Registrar {
 public:
  Status register_memory(void* address, std::size_t length_bytes, Access,
                         MemoryRegion& region) noexcept override {
    region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{1}, 1};
    return Status::kOk;
  }
  void deregister_memory(MemoryRegion&) noexcept override {}
};

class Ours {
 public:
  explicit Ours(std::size_t most_regions) : cache_(registrar_, {.most_regions = most_regions}) {}

  std::uint64_t use(std::byte* address, std::size_t length_bytes) {
    Region* region = nullptr;
    if (cache_.acquire(address, length_bytes, Access::kWrite, region) != Status::kOk) std::abort();
    std::uint64_t seen = region->memory.local_key - 1;
    benchmark::DoNotOptimize(seen);
    cache_.release(*region);
    return seen;
  }

 private:
  FreeRegistrar registrar_;
  PinDownCache cache_;
};

class Ucs {
 public:
  explicit Ucs(std::size_t most_regions) {
    static const ucs_rcache_ops_t operations = {
        .mem_reg = [](void*, ucs_rcache_t*, void*, ucs_rcache_region_t*, std::uint16_t) { return UCS_OK; },
        .mem_dereg = [](void*, ucs_rcache_t*, ucs_rcache_region_t*) {},
        .dump_region = [](void*, ucs_rcache_t*, ucs_rcache_region_t*, char* text,
                          std::size_t) { *text = '\0'; }};
    ucs_rcache_params_t parameters{};
    parameters.region_struct_size = sizeof(ucs_rcache_region_t);
    parameters.alignment = UCS_RCACHE_MIN_ALIGNMENT;
    parameters.max_alignment = 4096;
    parameters.ops = &operations;
    parameters.max_regions = most_regions;
    parameters.max_size = SIZE_MAX;
    parameters.max_unreleased = SIZE_MAX;
    if (ucs_rcache_create(&parameters, "bench", nullptr, &cache_) != UCS_OK) {
      std::fprintf(stderr, "pin_down_bench: ucs_rcache_create failed\n");
      std::exit(1);
    }
  }
  Ucs(const Ucs&) = delete;
  Ucs& operator=(const Ucs&) = delete;
  ~Ucs() { ucs_rcache_destroy(cache_); }

  std::uint64_t use(std::byte* address, std::size_t length_bytes) {
    ucs_rcache_region_t* region = nullptr;
    if (ucs_rcache_get(cache_, address, length_bytes, PROT_READ | PROT_WRITE, nullptr, &region) != UCS_OK)
      std::abort();
    auto seen = static_cast<std::uint64_t>(region->status);
    benchmark::DoNotOptimize(seen);
    ucs_rcache_region_put(cache_, region);
    return seen;
  }

 private:
  ucs_rcache_t* cache_ = nullptr;
};

class Floor {
 public:
  explicit Floor(std::size_t) : users_(kMostRegions) {}

  std::uint64_t use(const std::byte* address, std::size_t) {
    Line& line = users_[static_cast<std::size_t>(address - memory()) / kStrideBytes];
    line.users.fetch_add(1, std::memory_order_acquire);
    std::uint64_t seen = line.key;
    benchmark::DoNotOptimize(seen);
    line.users.fetch_sub(1, std::memory_order_release);
    return seen;
  }

 private:
  struct alignas(64) Line {
    std::atomic<std::uint64_t> users{0};
    std::uint64_t key = 0;
  };
  std::vector<Line> users_;
};

/// xorshift64: a few cycles.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E37'79B9'7F4A'7C15U + 1) {}
  std::size_t below(std::size_t bound) noexcept {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::size_t>((static_cast<unsigned __int128>(state_) * bound) >> 64);
  }
  /// Lets the next value wait until `zero` is known.
  void depend_on(std::uint64_t zero) noexcept { state_ ^= zero; }

 private:
  std::uint64_t state_;
};

/// Filled before a run and emptied after it by Google Benchmark's set-up.
template <class Cache>
std::unique_ptr<Cache> shared;

template <class Cache>
void fill(const benchmark::State& state) {
  const auto regions = static_cast<std::size_t>(state.range(0));
  shared<Cache> = std::make_unique<Cache>(SIZE_MAX);
  for (std::size_t i = 0; i < regions; ++i) shared<Cache>->use(region_address(i), kRegionBytes);
}

template <class Cache>
void drop(const benchmark::State&) {
  shared<Cache>.reset();
}

/// A region at random, and `length_bytes` of it from one of 16 places that are `step_bytes` apart.
template <class Cache>
void hit(benchmark::State& state, std::size_t step_bytes, std::size_t length_bytes) {
  const auto regions = static_cast<std::size_t>(state.range(0));
  Random random(1);
  // Not constants to the compiler: exact hits and others take the same instructions here.
  benchmark::DoNotOptimize(step_bytes);
  benchmark::DoNotOptimize(length_bytes);
  for (auto _ : state) {
    const std::size_t draw = random.below(regions * 16);
    random.depend_on(shared<Cache>->use(region_address(draw / 16) + draw % 16 * step_bytes, length_bytes));
  }
}

template <class Cache>
void exact(benchmark::State& state) {
  hit<Cache>(state, 0, kRegionBytes);
}

template <class Cache>
void in_turn(benchmark::State& state) {
  const auto regions = static_cast<std::size_t>(state.range(0));
  std::size_t next = 0;
  for (auto _ : state) {
    next += 1 + shared<Cache>->use(region_address(next), kRegionBytes);
    if (next == regions) next = 0;
  }
}

template <class Cache>
void sub_range(benchmark::State& state) {
  constexpr std::size_t kLength = 4096;
  hit<Cache>(state, (kRegionBytes - kLength) / 16, kLength);
}

template <class Cache>
void miss(benchmark::State& state) {
  const auto regions = static_cast<std::size_t>(state.range(0));
  std::unique_ptr<Cache> cache;
  std::size_t next = regions;
  for (auto _ : state) {
    if (next == regions) {
      state.PauseTiming();
      cache.reset();
      cache = std::make_unique<Cache>(SIZE_MAX);
      next = 0;
      state.ResumeTiming();
    }
    cache->use(region_address(next++), kRegionBytes);
  }
}

template <class Cache>
void churn(benchmark::State& state) {
  const auto regions = static_cast<std::size_t>(state.range(0));
  Cache cache(regions);
  for (std::size_t i = 0; i < regions; ++i) cache.use(region_address(i), kRegionBytes);
  std::size_t next = regions;
  for (auto _ : state) {
    cache.use(region_address(next), kRegionBytes);
    if (++next == 2 * regions) next = 0;
  }
}

template <class Cache>
void add(const std::string& name) {
  const auto with_sizes = [](benchmark::internal::Benchmark* one) { one->Arg(10)->Arg(1000)->Arg(100'000); };
  for (const auto& [what, run] : {std::pair("exact", &exact<Cache>), std::pair("in turn", &in_turn<Cache>),
                                  std::pair("sub-range", &sub_range<Cache>)})
    with_sizes(benchmark::RegisterBenchmark((std::string(what) + "/" + name).c_str(), run)
                   ->Setup(&fill<Cache>)
                   ->Teardown(&drop<Cache>)
                   ->UseRealTime());
  if (std::is_same_v<Cache, Floor>) return;
  with_sizes(benchmark::RegisterBenchmark(("miss/" + name).c_str(), &miss<Cache>));
  with_sizes(benchmark::RegisterBenchmark(("churn/" + name).c_str(), &churn<Cache>));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  // In a process with one thread, the C library's mutexes need no atomic operations.
  std::atomic<bool> done{false};
  std::thread second([&done] { done.wait(false); });
  add<Ours>("ours");
  add<Ucs>("ucs_rcache");
  add<Floor>("floor");
  benchmark::RunSpecifiedBenchmarks();
  done.store(true);
  done.notify_one();
  second.join();
  return 0;
}
