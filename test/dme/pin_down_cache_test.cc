#include "dme/pin_down_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "dme/modelled_memory.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kPage = ModelledMemory::kPageBytes;

class PinDownCacheTest : public testing::Test {
 protected:
  PinDownCacheTest() { memory_.map(0, kPages); }

  void TearDown() override {
    const bool made = cache_ != nullptr;
    cache_.reset();
    if (made) {
      EXPECT_EQ(memory_.live(), 0u);
    }
    EXPECT_EQ(memory_.wrong_deregistrations, 0u);
  }

  PinDownCache& make(PinDownConfig config = {}) {
    cache_ = std::make_unique<PinDownCache>(memory_, config);
    return *cache_;
  }

  static std::byte* at(std::size_t page) { return ModelledMemory::address_of(page); }

  /// Acquires, checks that it may be used, releases.
  Status use(std::byte* address, std::size_t length_bytes, Access access = Access::kRead) {
    Region* region = nullptr;
    const Status status = cache_->acquire(address, length_bytes, access, region);
    if (status == Status::kOk) {
      EXPECT_EQ(memory_.why_wrong(address, length_bytes, access, region->memory), "");
      cache_->release(*region);
    }
    return status;
  }

  /// Whether a use is a hit. What is not registered is from then on.
  bool is_hit(std::byte* address, std::size_t length_bytes, Access access = Access::kRead) {
    const std::uint64_t misses = cache_->misses();
    EXPECT_EQ(use(address, length_bytes, access), Status::kOk);
    return cache_->misses() == misses;
  }

  static constexpr std::size_t kPages = 4096;
  ModelledMemory memory_{kPages};
  std::unique_ptr<PinDownCache> cache_;
};

TEST_F(PinDownCacheTest, TheSameAgainIsAHit) {
  make();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(use(at(3) + 17, 10000), Status::kOk);
  EXPECT_EQ(memory_.registered, 1u);
  const PinDownStatistics seen = cache_->statistics();
  EXPECT_EQ(seen.hits, 4u);
  EXPECT_EQ(seen.misses, 1u);
  EXPECT_EQ(seen.regions, 1u);
  EXPECT_EQ(seen.registered_bytes, 3 * kPage);
}

TEST_F(PinDownCacheTest, ARequestInsideIsAHitWhereverItBegins) {
  make();
  EXPECT_EQ(use(at(10), 100 * kPage), Status::kOk);
  for (std::size_t page = 10; page < 110; ++page) EXPECT_EQ(use(at(page) + 5, kPage - 5), Status::kOk);
  EXPECT_EQ(use(at(109) + 4095, 1), Status::kOk);
  EXPECT_EQ(memory_.registered, 1u);
}

TEST_F(PinDownCacheTest, WholePagesAreRegistered) {
  make();
  EXPECT_EQ(use(at(10) + 100, 8), Status::kOk);
  EXPECT_EQ(use(at(10), kPage), Status::kOk);
  EXPECT_EQ(memory_.registered, 1u);
  EXPECT_EQ(memory_.registered_bytes(), kPage);
}

TEST_F(PinDownCacheTest, WhatOverlapsBecomesOneRegion) {
  make();
  EXPECT_EQ(use(at(10), 4 * kPage), Status::kOk);
  EXPECT_EQ(use(at(20), 4 * kPage), Status::kOk);
  EXPECT_EQ(use(at(12), 10 * kPage), Status::kOk);
  EXPECT_EQ(memory_.live(), 1u);
  EXPECT_EQ(memory_.registered_bytes(), 14 * kPage);
  EXPECT_EQ(use(at(10), 14 * kPage), Status::kOk);
  EXPECT_EQ(memory_.registered, 3u);
}

TEST_F(PinDownCacheTest, WhatIsInUseStaysRegisteredWhenItIsReplaced) {
  make();
  Region* old = nullptr;
  ASSERT_EQ(cache_->acquire(at(10), 4 * kPage, Access::kRead, old), Status::kOk);
  EXPECT_EQ(use(at(12), 4 * kPage), Status::kOk);
  EXPECT_EQ(memory_.live(), 2u);
  EXPECT_EQ(memory_.why_wrong(at(10), 4 * kPage, Access::kRead, old->memory), "");
  cache_->release(*old);
  EXPECT_EQ(memory_.live(), 1u);
}

TEST_F(PinDownCacheTest, WritingNeedsARegionForWriting) {
  make();
  EXPECT_EQ(use(at(1), 8 * kPage, Access::kRead), Status::kOk);
  EXPECT_EQ(use(at(2), kPage, Access::kWrite), Status::kOk);
  EXPECT_EQ(memory_.registered, 2u);
  EXPECT_EQ(use(at(1), 8 * kPage, Access::kWrite), Status::kOk);
  EXPECT_EQ(use(at(1), 8 * kPage, Access::kRead), Status::kOk);
  EXPECT_EQ(memory_.registered, 2u);
}

TEST_F(PinDownCacheTest, WhatCannotBeRegisteredTogetherIsRegisteredApart) {
  memory_.read_only_pages = 5;
  make();
  EXPECT_EQ(use(at(3), 4 * kPage, Access::kRead), Status::kOk);
  EXPECT_EQ(use(at(6), 2 * kPage, Access::kWrite), Status::kOk);
  EXPECT_EQ(memory_.registered_bytes(), 2 * kPage);
  EXPECT_EQ(use(at(2), 2 * kPage, Access::kWrite), Status::kUnsupported);
  EXPECT_EQ(cache_->statistics().refused, 1u);
}

TEST_F(PinDownCacheTest, InvalidatedMemoryIsRegisteredAnew) {
  make();
  EXPECT_EQ(use(at(10), 10 * kPage), Status::kOk);
  memory_.unmap(19, 1, cache_.get());
  memory_.map(19, 1);
  EXPECT_EQ(use(at(10), 10 * kPage), Status::kOk);
  EXPECT_EQ(memory_.registered, 2u);
  EXPECT_EQ(cache_->statistics().invalidations, 1u);
}

TEST_F(PinDownCacheTest, TheModelSeesAMissedInvalidation) {
  make();
  EXPECT_EQ(use(at(10), 10 * kPage), Status::kOk);
  memory_.unmap(19, 1, nullptr);
  memory_.map(19, 1);
  Region* region = nullptr;
  ASSERT_EQ(cache_->acquire(at(10), 10 * kPage, Access::kRead, region), Status::kOk);
  EXPECT_EQ(memory_.why_wrong(at(10), 10 * kPage, Access::kRead, region->memory), "a stale page");
  cache_->release(*region);
}

TEST_F(PinDownCacheTest, InvalidationNextDoorHarmsNothing) {
  make();
  EXPECT_EQ(use(at(10), 10 * kPage), Status::kOk);
  cache_->invalidate(at(9), kPage);
  cache_->invalidate(at(20), kPage);
  cache_->invalidate(at(12), 0);
  EXPECT_EQ(use(at(10), 10 * kPage), Status::kOk);
  EXPECT_EQ(memory_.registered, 1u);
}

TEST_F(PinDownCacheTest, AnInvalidationOfAllMemoryIsOne) {
  make();
  for (std::size_t page = 0; page < kPages; page += 2) EXPECT_EQ(use(at(page), kPage), Status::kOk);
  cache_->invalidate(nullptr, SIZE_MAX);
  cache_->reap();
  EXPECT_EQ(memory_.live(), 0u);
  EXPECT_EQ(cache_->statistics().invalidations, kPages / 2);
}

TEST_F(PinDownCacheTest, InvalidatedInUseLivesUntilItsLastRelease) {
  make();
  Region* first = nullptr;
  Region* second = nullptr;
  ASSERT_EQ(cache_->acquire(at(10), kPage, Access::kRead, first), Status::kOk);
  ASSERT_EQ(cache_->acquire(at(10), kPage, Access::kRead, second), Status::kOk);
  EXPECT_EQ(first, second);
  cache_->invalidate(at(10), kPage);
  cache_->release(*first);
  EXPECT_EQ(memory_.live(), 1u);
  cache_->release(*second);
  EXPECT_EQ(memory_.live(), 0u);
}

TEST_F(PinDownCacheTest, ReapDeregistersWhatWasInvalidated) {
  make();
  EXPECT_EQ(use(at(10), kPage), Status::kOk);
  cache_->invalidate(at(10), kPage);
  EXPECT_EQ(memory_.live(), 1u);
  cache_->reap();
  EXPECT_EQ(memory_.live(), 0u);
}

TEST_F(PinDownCacheTest, WhatIsDiscardedIsNotFoundAgain) {
  make();
  Region* first = nullptr;
  Region* second = nullptr;
  ASSERT_EQ(cache_->acquire(at(10), kPage, Access::kWrite, first), Status::kOk);
  ASSERT_EQ(cache_->acquire(at(10), kPage, Access::kWrite, second), Status::kOk);
  cache_->discard(*first);
  EXPECT_EQ(memory_.live(), 1u);
  cache_->discard(*second);
  EXPECT_EQ(memory_.live(), 0u);
  EXPECT_FALSE(is_hit(at(10), kPage));
}

TEST_F(PinDownCacheTest, MemoryThatGoesWhileItIsRegisteredIsNotFoundAgain) {
  /// Memory that overlaps what is being registered goes away in the middle of it, as when another thread unmaps.
  struct Interrupting : ModelledMemory {
    using ModelledMemory::ModelledMemory;
    Status register_memory(void* address, std::size_t length_bytes, Access access,
                           MemoryRegion& region) noexcept override {
      const Status status = ModelledMemory::register_memory(address, length_bytes, access, region);
      if (interrupt != nullptr) {
        unmap(10, 1, interrupt);
        map(10, 1);
        interrupt = nullptr;
      }
      return status;
    }
    PinDownCache* interrupt = nullptr;
  };
  Interrupting memory(64);
  memory.map(0, 64);
  PinDownCache cache(memory, {});
  Region* region = nullptr;
  ASSERT_EQ(cache.acquire(at(10), 2 * kPage, Access::kRead, region), Status::kOk);
  cache.release(*region);
  memory.interrupt = &cache;
  ASSERT_EQ(cache.acquire(at(11), 2 * kPage, Access::kRead, region),
            Status::kOk);  // One region over 10 .. 12.
  EXPECT_EQ(memory.why_wrong(at(11), 2 * kPage, Access::kRead, region->memory), "");
  cache.release(*region);
  ASSERT_EQ(cache.acquire(at(10), kPage, Access::kRead, region), Status::kOk);
  EXPECT_EQ(memory.why_wrong(at(10), kPage, Access::kRead, region->memory), "");
  cache.release(*region);
}

TEST_F(PinDownCacheTest, MemoryThatGoesInAnotherThreadStaysRegisteredForItsUser) {
  make();
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done.load()) cache_->invalidate(at(11), kPage);
  });
  for (int i = 0; i < 20'000 || cache_->invalidations() < 100; ++i) {
    ASSERT_EQ(use(at(10), 3 * kPage), Status::kOk);
    if (i % 7 == 0) cache_->reap();
  }
  done.store(true);
  other.join();
  EXPECT_EQ(cache_->statistics().regions, memory_.live());
}

TEST_F(PinDownCacheTest, TheByteBudgetIsKept) {
  make({.most_bytes = 10 * kPage});
  for (std::size_t page = 0; page < 100; page += 4) EXPECT_EQ(use(at(page), 3 * kPage), Status::kOk);
  EXPECT_LE(memory_.most_registered_bytes, 10 * kPage);
  EXPECT_EQ(cache_->statistics().evictions, 22u);
  EXPECT_EQ(use(at(200), 11 * kPage), Status::kNoMemory);
  EXPECT_EQ(memory_.live(), 3u);  // What can never fit costs the others nothing.
}

TEST_F(PinDownCacheTest, TheRegionBudgetIsKept) {
  make({.most_regions = 3});
  for (std::size_t page = 0; page < 100; page += 2) EXPECT_EQ(use(at(page), kPage), Status::kOk);
  EXPECT_EQ(memory_.most_registrations, 3u);
}

TEST_F(PinDownCacheTest, WhatIsInUseIsNotEvicted) {
  make({.most_regions = 2});
  Region* held[2];
  ASSERT_EQ(cache_->acquire(at(0), kPage, Access::kRead, held[0]), Status::kOk);
  ASSERT_EQ(cache_->acquire(at(2), kPage, Access::kRead, held[1]), Status::kOk);
  EXPECT_EQ(use(at(4), kPage), Status::kNoMemory);
  cache_->release(*held[0]);
  EXPECT_EQ(use(at(4), kPage), Status::kOk);
  EXPECT_EQ(memory_.why_wrong(at(2), kPage, Access::kRead, held[1]->memory), "");
  cache_->release(*held[1]);
}

TEST_F(PinDownCacheTest, WhatWasUsedAgainIsKeptLonger) {
  make({.most_regions = 4});
  for (const std::size_t page : {0, 2, 4, 6}) EXPECT_EQ(use(at(page), kPage), Status::kOk);
  EXPECT_EQ(use(at(0), kPage), Status::kOk);
  EXPECT_EQ(use(at(8), kPage), Status::kOk);
  EXPECT_EQ(use(at(10), kPage), Status::kOk);
  EXPECT_TRUE(is_hit(at(0), kPage));
  EXPECT_TRUE(is_hit(at(6), kPage));
  EXPECT_FALSE(is_hit(at(2), kPage));
  EXPECT_FALSE(is_hit(at(4), kPage));
}

TEST_F(PinDownCacheTest, ARefusedRegistrationIsTriedAgainWithFewerRegions) {
  memory_.limit_bytes = 20 * kPage;
  make();
  for (std::size_t page = 0; page < 40; page += 2) EXPECT_EQ(use(at(page), kPage), Status::kOk);
  EXPECT_EQ(memory_.live(), 20u);
  EXPECT_EQ(use(at(100), 15 * kPage), Status::kOk);
  EXPECT_GE(memory_.live(), 2u);
  EXPECT_EQ(cache_->statistics().refused, 0u);
}

TEST_F(PinDownCacheTest, AHopelessRequestFlushesTheCacheOnceOnly) {
  memory_.limit_bytes = 20 * kPage;
  make();
  EXPECT_EQ(use(at(0), kPage), Status::kOk);
  EXPECT_EQ(use(at(100), 21 * kPage), Status::kNoMemory);
  EXPECT_EQ(use(at(0), kPage), Status::kOk);
  EXPECT_EQ(use(at(100), 21 * kPage), Status::kNoMemory);
  EXPECT_EQ(use(at(100), 30 * kPage), Status::kNoMemory);
  EXPECT_TRUE(is_hit(at(0), kPage));
  EXPECT_EQ(cache_->statistics().refused, 3u);
}

TEST_F(PinDownCacheTest, AShortageThatPassesIsForgotten) {
  make();
  EXPECT_EQ(use(at(0), kPage), Status::kOk);
  memory_.limit_bytes = 0;  // Others have it all.
  EXPECT_EQ(use(at(100), kPage), Status::kNoMemory);
  memory_.limit_bytes = 2 * kPage;
  for (const std::size_t page : {10, 20}) EXPECT_EQ(use(at(page), kPage), Status::kOk);
  int refused = 0;
  while (refused < 1000 && use(at(200), 2 * kPage) != Status::kOk) ++refused;
  EXPECT_LT(refused, 100);  // Then it gives up the two for it.
}

TEST_F(PinDownCacheTest, WhatCanNeverFitReplacesNothing) {
  make({.most_bytes = 4 * kPage});
  EXPECT_EQ(use(at(0), 2 * kPage), Status::kOk);
  EXPECT_EQ(use(at(0), 5 * kPage), Status::kNoMemory);
  EXPECT_TRUE(is_hit(at(0), 2 * kPage));
}

TEST_F(PinDownCacheTest, WithoutKeepingEachUseRegistersWhatItNames) {
  make({.keep = false});
  Region* region = nullptr;
  ASSERT_EQ(cache_->acquire(at(0) + 5, 100, Access::kWrite, region), Status::kOk);
  EXPECT_EQ(memory_.registered_bytes(), 100u);
  EXPECT_EQ(use(at(0) + 5, 100), Status::kOk);
  EXPECT_EQ(memory_.live(), 1u);
  cache_->release(*region);
  EXPECT_EQ(memory_.live(), 0u);
  EXPECT_EQ(memory_.registered, 2u);
}

TEST_F(PinDownCacheTest, KeepingCanStopAtAnyTime) {
  make();
  Region* region = nullptr;
  ASSERT_EQ(cache_->acquire(at(0), kPage, Access::kWrite, region), Status::kOk);
  EXPECT_EQ(use(at(2), kPage), Status::kOk);
  cache_->stop_keeping();
  EXPECT_EQ(memory_.live(), 1u);
  EXPECT_EQ(use(at(0), kPage), Status::kOk);
  cache_->release(*region);
  EXPECT_EQ(memory_.live(), 0u);
}

TEST_F(PinDownCacheTest, FlushGivesUpWhatIsNotInUse) {
  make();
  Region* region = nullptr;
  ASSERT_EQ(cache_->acquire(at(0), kPage, Access::kWrite, region), Status::kOk);
  EXPECT_EQ(use(at(2), kPage), Status::kOk);
  cache_->flush();
  EXPECT_EQ(memory_.live(), 1u);
  EXPECT_TRUE(is_hit(at(0), kPage, Access::kWrite));
  cache_->release(*region);
}

TEST_F(PinDownCacheTest, NonsenseIsRefused) {
  make();
  Region* region = nullptr;
  const auto address = [](std::uintptr_t value) { return reinterpret_cast<const void*>(value); };
  EXPECT_EQ(cache_->acquire(at(0), 0, Access::kRead, region), Status::kUnsupported);
  EXPECT_EQ(cache_->acquire(address(UINTPTR_MAX - 5), 100, Access::kRead, region), Status::kUnsupported);
  EXPECT_EQ(cache_->acquire(address(std::uintptr_t{1} << 60), 100, Access::kRead, region),
            Status::kUnsupported);
  cache_->invalidate(address(UINTPTR_MAX - 5), 100);
  cache_->invalidate(address(std::uintptr_t{1} << 60), 100);
  EXPECT_EQ(memory_.registered, 0u);
}

TEST_F(PinDownCacheTest, AChildOwnsNothing) {
  make();
  EXPECT_EQ(use(at(0), kPage), Status::kOk);
  const pid_t child = fork();
  if (child == 0) {
    Region* region = nullptr;
    const bool refused = cache_->acquire(at(0), kPage, Access::kRead, region) == Status::kUnsupported;
    cache_->invalidate(at(0), kPage);
    cache_->reap();
    cache_->flush();
    const std::size_t live = memory_.live();
    cache_.reset();
    _exit(refused && live == 1 && memory_.live() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(use(at(0), kPage), Status::kOk);
  EXPECT_EQ(memory_.registered, 1u);
}

}  // namespace
}  // namespace ch3_offload
