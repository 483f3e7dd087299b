// Sets of processors, by the kernel's numbers: reading and setting affinity masks, and lists such as "3,7-9".
//
// A processor is what the scheduler runs one thread on. With SMT, a core has several.
//
// Threads: any; nothing here has state.

#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ch3_offload {

using ProcessorSet = std::set<std::uint32_t>;

/// The processors that a process may run on (its main thread; 0: the calling thread). Empty: cannot tell.
ProcessorSet affinity_of(pid_t process);

/// Binds a thread to `processors`. Returns 0 or errno (EINVAL: the control group allows none of them).
int bind_thread(pthread_t thread, const ProcessorSet& processors);

/// The numbers of a list such as "3,7-9", in its order, 65,536 at most. Nothing: it is no list, too long, or
/// empty.
std::optional<std::vector<std::uint32_t>> parse_processors(std::string_view list);

/// The set as such a list: "3,7-9".
std::string to_text(const ProcessorSet& processors);

}  // namespace ch3_offload
