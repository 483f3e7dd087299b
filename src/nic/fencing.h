// How the client's commands and the sleep of its processor are fenced from each other.
//
// "The sleep rule" (rdma/shm/doorbell.h) needs a full fence on both sides: between what is published and the
// look at the word of sleep, and between that word and the look at what is published. A client pays for its
// own with each command: it waits until its stores have left, behind a line that the processor looks at all
// the time. So an asymmetric fence leaves the whole price to the sleeper: it makes each thread of the process
// that is running pass a full fence (membarrier(2), Linux 4.14). A client's fence is then one of the compiler
// alone. The sleeper's takes microseconds, and tens of them on some virtual machines: so it is for a
// processor that seldom sleeps.
//
// What the program has written by streaming stores is ordered by a fence of stores, which holds back no load.
//
// Threads: all.

#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace ch3_offload {

enum class Fencing : std::uint8_t {
  kFull,        ///< Each side has a full fence.
  kAsymmetric,  ///< Both sides are threads of one process, and the fence is the sleeper's.
};

/// The program's streaming stores (_mm_stream_ps() and its kin) to a buffer that a command names come before
/// the command's own. No others pass a release. A full fence orders them, too.
inline void order_streaming_stores() noexcept {
#if defined(__SSE__)
  _mm_sfence();
#endif
}

/// kAsymmetric, if the kernel has it for the threads of this process.
Fencing fencing_of_threads() noexcept;

/// The sleeper's fence, behind its word's sequentially consistent store. False: there was none, and it must
/// not sleep.
bool fence_sleeper(Fencing fencing) noexcept;

}  // namespace ch3_offload
