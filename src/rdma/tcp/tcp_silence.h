// How long the host at the other end of a connection has been silent, from what the kernel says of it
// (TCP_INFO): evidence of a host's death that a process which computes, or reads nothing, does not give.
//
// A *try* is a segment that the kernel has sent again, or a probe, and that had no answer. An outage that is
// shorter than the time-out is not taken for a death, though a link that works again shows that only at the
// next try, and the times between tries double: after the time-out, one more try is waited for. An outage of
// more than twice the time-out is. While the peer has no room, the tries are probes of its window, of which the
// kernel may wait two minutes for the next.
//
// Threads: one at a time. Nothing allocates.

#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstdint>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {

class TcpSilence {
 public:
  /// One look, of those that come at intervals of more than a round trip. Returns whether the host counts as
  /// dead. `now_ns` is of monotonic_ns().
  bool is_death(const tcp_info& info, std::uint64_t now_ns, std::uint64_t timeout_ns) noexcept {
    const std::uint32_t tries = std::uint32_t{info.tcpi_retransmits} + info.tcpi_probes;
    const std::uint64_t silent_ns = elapsed_ns(now_ns, since_ns_);
    const std::uint64_t since_answer_ns = std::uint64_t{info.tcpi_last_ack_recv} * 1'000'000;
    // An idle connection has had no answer for long: what counts is the time since a try.
    if (tries == 0 || stage_ == Stage::kNone || since_answer_ns < silent_ns + kKernelTickNs) {
      stage_ = tries == 0 ? Stage::kNone : Stage::kSilent;
      since_ns_ = now_ns;
      return false;
    }
    if (stage_ == Stage::kSilent) {
      if (silent_ns < timeout_ns) return false;
      stage_ = Stage::kLate;
      tries_ = tries;
      return false;
    }
    if (stage_ == Stage::kTriedLate) return true;
    // The answer to a try that was just made may be on its way. Kernels before Linux 5.1 do not count segments
    // that they could not send. Probes of a window may come two minutes apart.
    const bool is_uncounted = info.tcpi_probes == 0 && silent_ns >= 3 * timeout_ns;
    if (tries != tries_ || is_uncounted) stage_ = Stage::kTriedLate;
    return false;
  }

 private:
  /// The kernel counts the time since an acknowledgement in ticks of up to 10 ms.
  static constexpr std::uint64_t kKernelTickNs = 20'000'000;

  enum class Stage : std::uint8_t {
    kNone,       ///< No try is without an answer.
    kSilent,     ///< One is, at `since_ns_` and until now.
    kLate,       ///< The time-out has passed since then, with `tries_` tries.
    kTriedLate,  ///< There was another one.
  };
  Stage stage_ = Stage::kNone;
  std::uint32_t tries_ = 0;
  std::uint64_t since_ns_ = 0;
};

}  // namespace ch3_offload
