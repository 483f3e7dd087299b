// Real memory that comes and goes under the pin-down cache, with whatever malloc the process has (LD_PRELOAD): is a registration
// that is found ever one of pages that are gone?
//
// Each pattern gets memory, uses it through the cache, gives it back and gets other memory, often at the same address. A use
// writes what was never there before and compares it with what the pinned pages show (pinned_pages.h), or lets an RDMA
// device write, and compares (device_pages.h).
//
// usage: real_memory [--blind] [--device DEVICE] [--rounds N]
// --blind: without memory events. Then stale registrations must show: it proves that the others look.
// Prints a table; exit status 1 when a use was stale, 2 when memory cannot be watched or got.

#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "dme/memory_events.h"
#include "dme/pages_under_test.h"
#include "dme/pin_down_cache.h"

namespace ch3_offload {
namespace {

const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
constexpr std::size_t kMostPages = 8;

/// One thread's use of the cache.
class User {
 public:
  User(PinDownCache& cache, PagesUnderTest& pages, unsigned seed)
      : random(seed), cache_(cache), pages_(pages) {}

  void use(void* memory, std::size_t length_bytes) {
    auto* const address = static_cast<std::byte*>(memory);
    Region* region = nullptr;
    if (cache_.acquire(address, length_bytes, Access::kWrite, region) != Status::kOk) {
      ++refused;
      return;
    }
    for (std::size_t at = 0; at < length_bytes; at += 64) {
      const std::uint64_t news = random();
      std::memcpy(address + at, &news, std::min(sizeof news, length_bytes - at));
    }
    ++uses;
    if (!pages_.meets_memory(region->memory, address, length_bytes)) ++stale;
    cache_.release(*region);
  }

  std::mt19937_64 random;
  std::size_t uses = 0;
  std::size_t stale = 0;
  std::size_t refused = 0;

 private:
  PinDownCache& cache_;
  PagesUnderTest& pages_;
};

std::size_t some_bytes(User& user) { return 1 + user.random() % (kMostPages * kPage); }

/// Ends the program where `memory` is none.
void* mapped(void* memory, const char* call) {
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "real_memory: %s: %s\n", call, std::strerror(errno));
    std::exit(2);
  }
  return memory;
}

void* map(std::size_t length, void* where = nullptr, int flags = 0) {
  return mapped(mmap(where, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0),
                "mmap");
}

void malloc_and_free(User& user, std::size_t rounds) {
  std::vector<void*> held(32);
  for (std::size_t i = 0; i < rounds; ++i) {
    void*& one = held[user.random() % held.size()];
    free(one);
    const std::size_t length = some_bytes(user);
    one = malloc(length);
    if (one != nullptr) user.use(one, length);
  }
  for (void* one : held) free(one);
}

void malloc_large(User& user, std::size_t rounds) {
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::size_t length = (std::size_t{33} << 20) + user.random() % (std::size_t{8} << 20);
    auto* const memory = static_cast<std::byte*>(malloc(length));
    if (memory == nullptr) continue;
    user.use(memory, kMostPages * kPage);
    user.use(memory + length / 2, kPage);
    free(memory);
  }
}

void realloc_up_and_down(User& user, std::size_t rounds) {
  void* memory = nullptr;
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::size_t length = user.random() % 8 == 0 ? std::size_t{3} << 20 : some_bytes(user);
    void* const moved = realloc(memory, length);
    if (moved == nullptr) continue;
    memory = moved;
    user.use(memory, std::min(length, kMostPages * kPage));
  }
  free(memory);
}

void mmap_and_munmap(User& user, std::size_t rounds) {
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::size_t length = (1 + user.random() % kMostPages) * kPage;
    void* const memory = map(length);
    user.use(memory, length);
    munmap(memory, length);
  }
}

void unmap_a_part(User& user, std::size_t rounds) {
  auto* const memory = static_cast<std::byte*>(map(kMostPages * kPage));
  for (std::size_t i = 0; i < rounds; ++i) {
    user.use(memory, kMostPages * kPage);
    std::byte* const part = memory + user.random() % kMostPages * kPage;
    munmap(part, kPage);
    map(kPage, part, MAP_FIXED_NOREPLACE);
  }
  munmap(memory, kMostPages * kPage);
}

void map_fixed(User& user, std::size_t rounds) {
  auto* const memory = static_cast<std::byte*>(map(kMostPages * kPage));
  for (std::size_t i = 0; i < rounds; ++i) {
    user.use(memory, kMostPages * kPage);
    map(kPage, memory + user.random() % kMostPages * kPage, MAP_FIXED);
  }
  munmap(memory, kMostPages * kPage);
}

void remap(User& user, std::size_t rounds) {
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::size_t length = kMostPages / 2 * kPage;
    void* memory = map(length);
    user.use(memory, length);
    memory = mapped(mremap(memory, length, 2 * length, MREMAP_MAYMOVE), "mremap");
    user.use(memory, 2 * length);
    memory = mapped(mremap(memory, 2 * length, kPage, 0), "mremap");
    user.use(memory, kPage);
    munmap(memory, kPage);
  }
}

void remap_fixed(User& user, std::size_t rounds) {
  void* const target = map(kPage);
  for (std::size_t i = 0; i < rounds; ++i) {
    user.use(target, kPage);
    void* const memory = map(kPage);
    user.use(memory, kPage);
    if (MemoryEvents::remap(memory, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target) != target) {
      std::fprintf(stderr, "real_memory: mremap(MREMAP_FIXED) does not work\n");
      std::exit(2);
    }
  }
  munmap(target, kPage);
}

void advise(User& user, std::size_t rounds, void* memory, int advice) {
  for (std::size_t i = 0; i < rounds; ++i) {
    user.use(memory, kMostPages * kPage);
    madvise(static_cast<std::byte*>(memory) + user.random() % kMostPages * kPage, kPage, advice);
  }
  munmap(memory, kMostPages * kPage);
}

void advise_dontneed(User& user, std::size_t rounds) {
  advise(user, rounds, map(kMostPages * kPage), MADV_DONTNEED);
}

void advise_remove(User& user, std::size_t rounds) {
  const int file = memfd_create("real_memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kMostPages * kPage)) != 0) return;
  void* const memory = mmap(nullptr, kMostPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory != MAP_FAILED) advise(user, rounds, memory, MADV_REMOVE);
}

void attach_and_detach(User& user, std::size_t rounds) {
  for (std::size_t i = 0; i < rounds; ++i) {
    const int segment = shmget(IPC_PRIVATE, kMostPages * kPage, IPC_CREAT | 0600);
    if (segment < 0) return;  // None here (IPC namespace).
    void* const memory = shmat(segment, nullptr, 0);
    shmctl(segment, IPC_RMID, nullptr);
    if (memory == reinterpret_cast<void*>(-1)) return;
    user.use(memory, kMostPages * kPage);
    shmdt(memory);
  }
}

/// The top of the heap, as long as nobody else moves it.
void move_the_break(User& user, std::size_t rounds) {
  const auto step = static_cast<std::intptr_t>(kMostPages * kPage);
  for (std::size_t i = 0; i < rounds; ++i) {
    void* const memory = sbrk(step);
    if (memory == reinterpret_cast<void*>(-1)) return;
    user.use(memory, kMostPages * kPage);
    if (sbrk(0) != static_cast<std::byte*>(memory) + step) return;
    if (i % 2 == 0)
      sbrk(-step);
    else if (brk(memory) != 0)
      return;
  }
}

struct Pattern {
  const char* name;
  void (*run)(User& user, std::size_t rounds);
  unsigned threads;
  bool always_moves;      ///< Blind, it must show stale uses, whatever malloc there is.
  bool may_lack = false;  ///< Not every place has it.
};

constexpr Pattern kPatterns[] = {
    {"malloc, free", malloc_and_free, 1, false},
    {"malloc, free, 4 threads", malloc_and_free, 4, false},
    {"malloc, free of 40 MB", malloc_large, 1, false},
    {"malloc, free of 40 MB, 4 threads", malloc_large, 4, false},
    {"realloc", realloc_up_and_down, 1, false},
    {"mmap, munmap", mmap_and_munmap, 1, true},
    {"mmap, munmap, 4 threads", mmap_and_munmap, 4, true},
    {"munmap of a part", unmap_a_part, 1, true},
    {"mmap(MAP_FIXED)", map_fixed, 1, true},
    {"mremap", remap, 1, true},
    {"mremap(MREMAP_FIXED)", remap_fixed, 1, true},
    {"madvise(MADV_DONTNEED)", advise_dontneed, 1, true},
    {"madvise(MADV_REMOVE)", advise_remove, 1, true, true},
    {"shmat, shmdt", attach_and_detach, 1, true, true},
    {"sbrk, brk", move_the_break, 1, true, true},
};

/// How many patterns came out as they should not.
int run_all(PinDownCache& cache, PagesUnderTest& pages, bool blind, std::size_t rounds) {
  int wrong = 0;
  std::printf("%-38s %8s %8s %8s %8s %8s\n", "pattern", "uses", "hits", "gone", "refused", "stale");
  for (const Pattern& pattern : kPatterns) {
    const PinDownStatistics before = cache.statistics();
    std::vector<User> users;
    for (unsigned i = 0; i < pattern.threads; ++i) users.emplace_back(cache, pages, i + 1);
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < pattern.threads; ++i)
      threads.emplace_back([&, i] { pattern.run(users[i], rounds); });
    pattern.run(users[0], rounds);
    for (std::thread& thread : threads) thread.join();
    const PinDownStatistics after = cache.statistics();
    for (unsigned i = 1; i < pattern.threads; ++i) {
      users[0].uses += users[i].uses;
      users[0].stale += users[i].stale;
      users[0].refused += users[i].refused;
    }
    const User& all = users[0];
    const bool was_tried = all.uses > 0 || (pattern.may_lack && all.refused == 0);
    const bool expected =
        was_tried && (blind ? all.stale > 0 || !pattern.always_moves || all.uses == 0 : all.stale == 0);
    std::printf("%-38s %8zu %8llu %8llu %8zu %8zu%s\n", pattern.name, all.uses,
                static_cast<unsigned long long>(after.hits - before.hits),
                static_cast<unsigned long long>(after.invalidations - before.invalidations), all.refused,
                all.stale,
                expected     ? ""
                : !was_tried ? "   <- nothing was tried"
                : blind      ? "   <- should show"
                             : "   <- STALE");
    wrong += expected ? 0 : 1;
    cache.flush();
  }
  return wrong;
}

int run(std::string_view device, bool blind, std::size_t rounds) {
  const std::unique_ptr<PagesUnderTest> made = make_pages_under_test(device);
  if (made == nullptr) return 2;
  PagesUnderTest& pages = *made;
  PinDownCache cache(pages, {.most_regions = 200});
  std::unique_ptr<MemoryEvents> events;
  if (!blind) {
    auto watched = MemoryEvents::watch(
        [](void* of, const void* address, std::size_t length) noexcept {
          static_cast<PinDownCache*>(of)->invalidate(address, length);
        },
        &cache);
    if (!watched.ok()) {
      std::fprintf(stderr, "real_memory: %s\n", watched.error().message.c_str());
      return 2;
    }
    events = std::move(watched.value());
  }
  const int wrong = run_all(cache, pages, blind, rounds);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ch3_offload

int main(int argc, char** argv) {
  bool blind = false;
  std::string_view device;
  std::size_t rounds = 300;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--blind") {
      blind = true;
    } else if (option == "--device" && !value.empty()) {
      device = value;
      ++i;
    } else if (option == "--rounds" &&
               std::from_chars(value.data(), value.data() + value.size(), rounds).ptr ==
                   value.data() + value.size() &&
               !value.empty()) {
      ++i;
    } else {
      std::fprintf(stderr, "usage: %s [--blind] [--device DEVICE] [--rounds N]\n", argv[0]);
      return 2;
    }
  }
  return ch3_offload::run(device, blind, rounds);
}
