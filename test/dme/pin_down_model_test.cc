// The pin-down cache against a model of memory: random maps, unmaps, moves (mremap), registrations, uses and forks, by seed.
//
// A use must never go through a registration that has other pages than the memory has now, budgets hold at every
// moment, and at the end nothing is left registered. A correct program does not unmap what it sends, so pages in use are left
// alone; all else happens at any time, in one thread and in eight.
//
// usage: test/dme/model_tests [GoogleTest's] [--seeds FIRST..LAST] [--steps N]

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dme/modelled_memory.h"
#include "dme/pin_down_cache.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kPage = ModelledMemory::kPageBytes;
constexpr std::size_t kPages = 1200;
constexpr std::size_t kMostUsePages = 24;

struct Options {
  std::uint64_t first_seed = 1;
  std::uint64_t last_seed = 6;
  std::uint64_t steps = 20'000;
};
Options options;

/// Who uses a page, and who changes it: one excludes the other, page by page. Never waits.
class PageGuards {
 public:
  bool begin_use(std::size_t first, std::size_t count) noexcept {
    return for_all(
        first, count,
        [](std::atomic<int>& guard) {
          int users = guard.load();
          while (users >= 0 && !guard.compare_exchange_weak(users, users + 1)) {
          }
          return users >= 0;
        },
        -1);
  }
  void end_use(std::size_t first, std::size_t count) noexcept { add(first, count, -1); }

  bool begin_change(std::size_t first, std::size_t count) noexcept {
    return for_all(
        first, count,
        [](std::atomic<int>& guard) {
          int users = 0;
          return guard.compare_exchange_strong(users, -1);
        },
        1);
  }
  void end_change(std::size_t first, std::size_t count) noexcept { add(first, count, 1); }

 private:
  template <class Take>
  bool for_all(std::size_t first, std::size_t count, Take take, int undo) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      if (take(pages_[first + i])) continue;
      add(first, i, undo);
      return false;
    }
    return true;
  }
  void add(std::size_t first, std::size_t count, int amount) noexcept {
    for (std::size_t i = 0; i < count; ++i) pages_[first + i].fetch_add(amount);
  }

  std::array<std::atomic<int>, kPages> pages_{};  ///< Users; -1: somebody changes it.
};

class World {
 public:
  explicit World(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    memory_.map(0, kPages);
    PinDownConfig config;
    if (random() % 2 == 0) config.most_bytes = (kMostUsePages + random() % kPages) * kPage;
    if (random() % 2 == 0) config.most_regions = 10 + random() % 60;
    if (random() % 3 == 0) memory_.limit_bytes = (kMostUsePages + random() % kPages) * kPage;
    config.keep = random() % 8 != 0;
    memory_.pauses = random() % 2 == 0;
    config_ = config;
    cache_ = std::make_unique<PinDownCache>(memory_, config);
  }

  void run(std::uint64_t seed, std::uint64_t steps) {
    std::mt19937_64 random(seed);
    std::vector<Use> uses;
    for (std::uint64_t step = 0; step < steps && !failed(); ++step) {
      const unsigned what = random() % 1000;
      if (what < 450) {
        begin_use(random, uses);
      } else if (what < 880) {
        if (!uses.empty()) end_use(uses, random() % uses.size());
      } else if (what < 980) {
        change(random);
      } else if (what < 999) {
        cache_->reap();
      } else if (random() % 50 != 0) {
        cache_->flush();
      } else {
        fork_once();
      }
    }
    while (!uses.empty()) end_use(uses, uses.size() - 1);
  }

  /// A child must find nothing that it could use, and must not hang, whatever other threads were at.
  void fork_once() {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      Region* region = nullptr;
      int bad = 0;
      for (std::size_t page = 0; page < kPages; ++page) {
        std::byte* const address = ModelledMemory::address_of(page);
        bad += cache_->acquire(address, kPage, Access::kRead, region) != Status::kUnsupported;
        cache_->invalidate(address, kPage);
      }
      cache_->reap();
      // Not _exit(): ThreadSanitizer would look for the other threads there.
      syscall(SYS_exit_group, bad == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) fail("a child after fork() found a registration, or hung");
  }

  void finish() {
    const PinDownStatistics seen = cache_->statistics();
    EXPECT_EQ(seen.misses, memory_.registered);
    EXPECT_EQ(seen.regions, memory_.live());
    EXPECT_EQ(seen.registered_bytes, memory_.registered_bytes());
    EXPECT_LE(memory_.most_registered_bytes, config_.most_bytes);
    EXPECT_LE(memory_.most_registrations, config_.most_regions);
    cache_.reset();
    EXPECT_EQ(memory_.live(), 0u);
    EXPECT_EQ(memory_.wrong_deregistrations, 0u);
    EXPECT_EQ(failure_, "");
  }

 private:
  struct Use {
    std::byte* address;
    std::size_t length_bytes;
    Access access;
    Region* region;
    std::size_t first_page;
    std::size_t pages;
  };

  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  void fail(const std::string& why) {
    const std::lock_guard guard(failure_lock_);
    failure_ = why;
    failed_.store(true);
  }

  void check(const Use& use, const char* when) {
    const std::string why = memory_.why_wrong(use.address, use.length_bytes, use.access, use.region->memory);
    if (!why.empty()) fail(why + ", " + when);
  }

  /// Somewhere, of a random length; its pages are guarded. False: somebody changes them.
  bool choose(std::mt19937_64& random, Use& use) {
    const std::size_t most = (random() % 4 == 0 ? kMostUsePages : 3) * kPage;
    const std::size_t begin = random() % (kPages * kPage);
    use.length_bytes = 1 + random() % std::min(kPages * kPage - begin, most - begin % kPage);
    use.address = ModelledMemory::address_of(0) + begin;
    use.access = random() % 2 == 0 ? Access::kRead : Access::kWrite;
    use.first_page = begin / kPage;
    use.pages = (begin + use.length_bytes - 1) / kPage + 1 - use.first_page;
    return guards_.begin_use(use.first_page, use.pages);
  }

  void begin_use(std::mt19937_64& random, std::vector<Use>& uses) {
    Use use{};
    if (uses.size() >= kMostUses || !choose(random, use)) return;
    const bool mapped = memory_.is_mapped(use.first_page, use.pages);
    const Status status = cache_->acquire(use.address, use.length_bytes, use.access, use.region);
    check_status(status, mapped);
    if (status != Status::kOk) return guards_.end_use(use.first_page, use.pages);
    check(use, "at its acquisition");
    uses.push_back(use);
  }

  /// `mapped`: all that was asked for.
  void check_status(Status status, bool mapped) {
    const bool has_limits =
        config_.most_bytes != SIZE_MAX || config_.most_regions != SIZE_MAX || memory_.limit_bytes != SIZE_MAX;
    if (status == Status::kOk && !mapped) fail("memory that is not mapped was registered");
    if (status == Status::kUnsupported && mapped) fail("mapped memory could not be registered");
    if (status == Status::kNoMemory && !has_limits) fail("no room, where there is no limit");
  }

  void end_use(std::vector<Use>& uses, std::size_t which) {
    const Use use = uses[which];
    uses[which] = uses.back();
    uses.pop_back();
    check(use, "at its release");
    if (use.length_bytes % 64 == 0)
      cache_->discard(*use.region);
    else
      cache_->release(*use.region);
    guards_.end_use(use.first_page, use.pages);
  }

  /// Unmaps pages, and perhaps maps them anew, or moves them over others.
  void change(std::mt19937_64& random) {
    const std::size_t first = random() % kPages;
    const std::size_t count =
        1 + random() % std::min<std::size_t>(kPages - first, random() % 10 == 0 ? 100 : 10);
    if (!guards_.begin_change(first, count)) return;
    const std::size_t to = random() % (kPages - count + 1);
    if (random() % 4 == 0 && guards_.begin_change(to, count)) {  // Not where they overlap.
      memory_.move(first, to, count, cache_.get());
      guards_.end_change(to, count);
    } else {
      memory_.unmap(first, count, cache_.get());
    }
    if (random() % 8 != 0) memory_.map(first, count);  // Else it stays away until its next turn.
    guards_.end_change(first, count);
  }

  static constexpr std::size_t kMostUses = 8;

  ModelledMemory memory_{kPages};
  PinDownConfig config_;
  std::unique_ptr<PinDownCache> cache_;
  PageGuards guards_;
  std::atomic<bool> failed_{false};
  std::mutex failure_lock_;
  std::string failure_;
};

void run_seed(std::uint64_t seed, unsigned threads) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(threads) + " threads");
  World world(seed);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i)
    others.emplace_back([&world, seed, threads, i] { world.run(seed * 100 + i, options.steps / threads); });
  world.run(seed * 100, options.steps / threads);
  world.fork_once();  // While the others go on.
  for (std::thread& thread : others) thread.join();
  world.finish();
}

void run_all(unsigned threads) {
  for (std::uint64_t seed = options.first_seed; seed <= options.last_seed; ++seed) {
    run_seed(seed, threads);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PinDownModel, OneThread) { run_all(1); }
TEST(PinDownModel, EightThreads) { run_all(8); }

bool parse(std::string_view text, std::uint64_t& value) {
  return std::from_chars(text.data(), text.data() + text.size(), value).ptr == text.data() + text.size() &&
         !text.empty();
}

bool parse_options(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) return false;
    const std::string_view value = argv[i + 1];
    const std::size_t dots = value.find("..");
    if (name == "--steps") {
      if (!parse(value, options.steps)) return false;
    } else if (name == "--seeds" && dots != std::string_view::npos) {
      if (!parse(value.substr(0, dots), options.first_seed) ||
          !parse(value.substr(dots + 2), options.last_seed))
        return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace ch3_offload

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!ch3_offload::parse_options(argc, argv)) {
    std::fprintf(stderr, "usage: %s [--seeds FIRST..LAST] [--steps STEPS OF EACH SEED]\n", argv[0]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
