#include "dme/memory_events.h"

#include <dlfcn.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <ucm/api/ucm.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>

#include "dme/tcmalloc_calls.h"

namespace ch3_offload {

namespace {

// UNMAPPED is reported before memory is unmapped. MAPPED is reported after memory was mapped; it covers the
// pages that mremap(MREMAP_FIXED) replaced.
constexpr int kEvents = UCM_EVENT_VM_UNMAPPED | UCM_EVENT_VM_MAPPED;

/// The functions of libucm that this file calls.
struct Ucm {
  decltype(&ucm_set_event_handler) set_handler = nullptr;
  decltype(&ucm_unset_event_handler) unset_handler = nullptr;
  decltype(&ucm_set_external_event) set_external = nullptr;
  decltype(&ucm_vm_munmap) vm_unmap = nullptr;
  decltype(&ucm_vm_mmap) vm_map = nullptr;
};

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // Linux 5.7
#endif
constexpr int kFiveArguments = MREMAP_FIXED | MREMAP_DONTUNMAP;

using MremapCall = void* (*)(void*, std::size_t, std::size_t, int, ...);

/// The C library's mremap(), which libucm hooks. The name may lead a program to another function, such as
/// that of ch3_mremap.c in the glue. Looked up when this library is loaded: a later look-up would run inside
/// a caller's mremap(). Null: not found, or this initializer has not run yet.
const MremapCall c_library_mremap = [] {
  void* const library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<MremapCall>(dlsym(library, "mremap"));
}();

/// Null until libucm is loaded. The store is a release and all loads are acquires, so that a thread that sees
/// the pointer sees the functions.
std::atomic<const Ucm*> loaded_ucm{nullptr};

/// Restores the program's signal handlers. UCX replaces some of them when it is loaded.
class SignalsKept {
 public:
  SignalsKept() noexcept {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      static_cast<void>(sigaction(kSignals[i], nullptr, &before_[i]));
  }
  SignalsKept(const SignalsKept&) = delete;
  SignalsKept& operator=(const SignalsKept&) = delete;
  ~SignalsKept() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction now {};
      if (sigaction(kSignals[i], nullptr, &now) == 0 && now.sa_handler != before_[i].sa_handler)
        static_cast<void>(sigaction(kSignals[i], &before_[i], nullptr));
    }
  }

 private:
  static constexpr std::array kSignals{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// Loads libucs, which loads libucm. Returns null if that fails; then dlerror() says why, or returns null if
/// the library lacks a function.
const Ucm* load_ucm() {
  static constexpr const char* kLibrary = "libucs.so.0";
  static Ucm ucm;
  if (const Ucm* const before = loaded_ucm.load(std::memory_order_acquire)) return before;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  const bool is_ours = library == nullptr;  // Otherwise the program or another library uses UCX already.
  if (is_ours) {
    const SignalsKept kept;
    library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (library == nullptr) return nullptr;
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  };
  auto* const options = static_cast<ucm_global_config_t*>(dlsym(library, "ucm_global_opts"));
  if (options == nullptr || !find(ucm.set_handler, "ucm_set_event_handler") ||
      !find(ucm.unset_handler, "ucm_unset_event_handler") ||
      !find(ucm.set_external, "ucm_set_external_event") || !find(ucm.vm_unmap, "ucm_vm_munmap") ||
      !find(ucm.vm_map, "ucm_vm_mmap"))
    return nullptr;
  if (is_ours) {
    // Leave malloc() and its settings alone. Its calls of mmap(), munmap(), brk() and so on are seen anyway.
    options->enable_malloc_hooks = 0;
    options->enable_malloc_reloc = 0;
    options->enable_dynamic_mmap_thresh = 0;
  }
  loaded_ucm.store(&ucm, std::memory_order_release);
  return &ucm;
}

constexpr int kBefore = -1;  // libucm's priority: handlers below 0 run before the call.

/// Adds a handler. If libucm cannot install all hooks, tcmalloc's hooks may report the missing events; the
/// self-test shows whether they do.
ucs_status_t add_handler(const Ucm& ucm, ucm_event_callback_t handler, void* argument) {
  const ucs_status_t status = ucm.set_handler(kEvents, kBefore, handler, argument);
  if (status == UCS_OK) return status;
  static const bool is_watched = watch_tcmalloc(ucm.vm_unmap, ucm.vm_map);
  if (!is_watched) return status;
  ucm.set_external(kEvents);
  return ucm.set_handler(kEvents, kBefore, handler, argument);
}

/// An address of the self-test, and whether an event was reported for it.
struct Probe {
  std::atomic<std::uintptr_t> address{0};
  std::atomic<bool> seen{false};

  static void on_event(ucm_event_type_t, ucm_event_t* event, void* self) {
    auto& probe = *static_cast<Probe*>(self);
    static_assert(sizeof event->vm_mapped == sizeof event->vm_unmapped);  // The same members.
    const auto begin = reinterpret_cast<std::uintptr_t>(event->vm_unmapped.address);
    const std::uintptr_t wanted = probe.address.load();
    if (begin <= wanted && wanted - begin < event->vm_unmapped.size) probe.seen.store(true);
  }

  /// Returns whether `call` causes an event that covers `where`.
  template <class Call>
  bool sees(const void* where, Call call) {
    address.store(reinterpret_cast<std::uintptr_t>(where));
    seen.store(false);
    call();
    return seen.load();
  }
};

std::byte* map_pages(std::size_t length_bytes) noexcept {
  void* const memory =
      mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

bool has_one_thread() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return !error && std::distance(begin(tasks), end(tasks)) == 1;
}

/// Tests all hooked calls. Returns the name of the first that is not seen, or null.
const char* first_unseen(Probe& probe) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::byte* memory = map_pages(4 * page);
  std::byte* const other = map_pages(4 * page);
  if (memory == nullptr || other == nullptr) return "mmap (no memory to try it with)";
  const char* unseen = nullptr;
  const auto expect = [&](const char* name, const void* where, auto call) {
    if (!probe.sees(where, call) && unseen == nullptr) unseen = name;
  };
  for (const int advice : {MADV_DONTNEED, MADV_REMOVE})
    expect("madvise", memory + page, [&] { madvise(memory + page, page, advice); });
  expect("mmap(MAP_FIXED)", memory + page, [&] {
    mmap(memory + page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  });
  expect("munmap", memory + 3 * page, [&] { munmap(memory + 3 * page, page); });
  expect("mremap", memory, [&] {
    // The same function that malloc() calls.
    void* const moved = c_library_mremap != nullptr ? c_library_mremap(memory, page, 2 * page, MREMAP_MAYMOVE)
                                                    : mremap(memory, page, 2 * page, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return;
    munmap(memory + page, 2 * page);
    munmap(other, 4 * page);
    munmap(moved, 2 * page);
  });
  const int segment = shmget(IPC_PRIVATE, page, IPC_CREAT | 0600);
  void* const attached = segment < 0 ? reinterpret_cast<void*>(-1) : shmat(segment, nullptr, 0);
  if (segment >= 0) shmctl(segment, IPC_RMID, nullptr);
  // A system without System V shared memory needs no test of shmdt().
  if (attached != reinterpret_cast<void*>(-1)) expect("shmdt", attached, [&] { shmdt(attached); });
  // With several threads, another thread's malloc() could move the program break between these calls. Then
  // the test that libucm made when it was loaded must suffice.
  if (has_one_thread()) {
    const auto step = static_cast<std::intptr_t>(page);
    void* const grown = sbrk(step);
    if (grown != reinterpret_cast<void*>(-1)) expect("sbrk", grown, [&] { sbrk(-step); });
    void* const again = sbrk(step);
    if (again != reinterpret_cast<void*>(-1))
      expect("brk", again, [&] {
        if (brk(again) != 0) return;
      });
  }
  return unseen;
}

/// Returns the name of the sanitizer of this process, if that sanitizer replaces malloc, or null.
const char* sanitizer_name() noexcept {
  for (const auto& [symbol, name] :
       {std::pair("__asan_init", "AddressSanitizer"), std::pair("__tsan_init", "ThreadSanitizer"),
        std::pair("__msan_init", "MemorySanitizer"), std::pair("__hwasan_init", "HWAddressSanitizer")})
    if (dlsym(RTLD_DEFAULT, symbol) != nullptr) return name;
  return nullptr;
}

}  // namespace

struct UcmHooks {
  static void on_event(ucm_event_type_t, ucm_event_t* event, void* self) {
    const auto& events = *static_cast<const MemoryEvents*>(self);
    events.unmapped_(events.argument_, event->vm_unmapped.address, event->vm_unmapped.size);
  }
};

Result<std::unique_ptr<MemoryEvents>> MemoryEvents::watch(Unmapped unmapped, void* argument) {
  if (const char* const sanitizer = sanitizer_name())
    return Error{
        Status::kUnsupported, 0,
        std::string(sanitizer) + "'s malloc gives memory back past the C library, where nobody sees it"};
  const Ucm* const ucm = load_ucm();
  if (ucm == nullptr) {
    const char* const why = dlerror();
    return Error{Status::kUnsupported, 0,
                 "UCX's libucm could not be loaded (" +
                     std::string(why == nullptr ? "another version" : why) +
                     "); install it (Debian: libucx0)"};
  }
  Probe probe;
  ucs_status_t status = add_handler(*ucm, &Probe::on_event, &probe);
  if (status != UCS_OK)
    return Error{Status::kUnsupported, 0,
                 "UCX's libucm cannot intercept calls that free memory (code " + std::to_string(status) +
                     "); UCX_MEM_LOG_LEVEL=debug tells why"};
  const char* unseen = nullptr;
  try {
    unseen = first_unseen(probe);
  } catch (const std::exception&) {
    unseen = "anything (no memory to try it with)";
  }
  ucm->unset_handler(kEvents, &Probe::on_event, &probe);
  if (unseen != nullptr)
    return Error{
        Status::kUnsupported, 0,
        std::string("UCX's libucm does not see ") + unseen + "(); another library (LD_PRELOAD?) replaces it"};
  std::unique_ptr<MemoryEvents> events(new MemoryEvents(unmapped, argument));
  status = add_handler(*ucm, &UcmHooks::on_event, events.get());
  if (status != UCS_OK)
    return Error{Status::kNoMemory, 0, "UCX's libucm takes no handler (code " + std::to_string(status) + ")"};
  return events;
}

MemoryEvents::~MemoryEvents() {
  if (const Ucm* const ucm = loaded_ucm.load(std::memory_order_acquire))
    ucm->unset_handler(kEvents, &UcmHooks::on_event, this);
}

void* MemoryEvents::remap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags,
                          void* new_address) noexcept {
  // libucm's hook passes four arguments on correctly.
  if ((flags & kFiveArguments) == 0 && c_library_mremap != nullptr)
    return c_library_mremap(address, old_bytes, new_bytes, flags);
  const Ucm* const ucm = loaded_ucm.load(std::memory_order_acquire);
  if (ucm != nullptr) {
    ucm->vm_unmap(address, old_bytes);
    if ((flags & MREMAP_FIXED) != 0) ucm->vm_unmap(new_address, new_bytes);
  }
  const long result = syscall(SYS_mremap, address, old_bytes, new_bytes, flags, new_address);
  void* const moved = reinterpret_cast<void*>(result);  // NOLINT(performance-no-int-to-ptr)
  if (ucm != nullptr && moved != MAP_FAILED) ucm->vm_map(moved, new_bytes);
  return moved;
}

}  // namespace ch3_offload
