// The timer of a link: how long nothing has moved on it, and what that asks for.
//
//   nothing is owed, the peer is silent            a probe finds out whether it lives
//   something is owed, nothing is acknowledged     first the completion is asked for; then, after the peer
//                                                  time-out, the link is replaced
//
// A device reports that nobody acknowledges, as a rule after half a second. One that does not (it lost its
// timer, or finds no receive there for long) must not make this process wait for ever.
//
// It counts looks, which come an eighth of the peer time-out apart, and not time: each look counts for the
// same time however long this process was elsewhere.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ch3_offload {

/// What a look sees.
struct LinkProgress {
  std::uint64_t acknowledged = 0;  ///< Counts what the peer's device has acknowledged, probes included.
  std::uint64_t received = 0;      ///< Counts what has come.
  bool is_owed = false;            ///< Something is posted that is not acknowledged.
  std::uint64_t owed_bytes = 0;
};

class LinkTimer {
 public:
  enum class Due : std::uint8_t {
    kNothing,
    kFlush,    ///< The completion of the last item may not have been asked for.
    kProbe,    ///< The peer has been silent for a quarter of the time-out.
    kReplace,  ///< Nothing was acknowledged for the time-out and the time that the owed bytes take.
  };

  static constexpr std::uint64_t kLooks = 8;  ///< In a peer time-out.

  /// The link is up, for the first time or again.
  void restart() noexcept { quiet_looks_ = 0; }

  Due look(const LinkProgress& now, std::uint64_t timeout_ms) noexcept {
    const bool moved = std::exchange(acknowledged_, now.acknowledged) != now.acknowledged;
    const bool heard = std::exchange(received_, now.received) != now.received;
    const bool changed = std::exchange(is_owed_, now.is_owed) != now.is_owed;
    if (moved) replaced_ = 0;
    if (moved || changed || (heard && !now.is_owed)) {
      quiet_looks_ = 0;
      return Due::kNothing;
    }
    ++quiet_looks_;
    if (!now.is_owed) return quiet_looks_ >= kLooks / 4 ? Due::kProbe : Due::kNothing;
    if (quiet_looks_ == 1) return Due::kFlush;
    if (quiet_ms(timeout_ms) <= most_quiet_ms(now.owed_bytes, timeout_ms)) return Due::kNothing;
    ++replaced_;
    return Due::kReplace;
  }
  /// How long nothing has moved.
  std::uint64_t quiet_ms(std::uint64_t timeout_ms) const noexcept {
    return quiet_looks_ * timeout_ms / kLooks;
  }

 private:
  /// The time-out, and what the bytes take at a megabyte per second: few networks are slower. Twice as long
  /// each time that a new link did not help.
  std::uint64_t most_quiet_ms(std::uint64_t owed_bytes, std::uint64_t timeout_ms) const noexcept {
    constexpr std::uint64_t kSlowestBytesPerMs = 1000;
    return (timeout_ms + owed_bytes / kSlowestBytesPerMs) << std::min(replaced_, 6u);
  }

  std::uint64_t acknowledged_ = 0;  ///< At the last look; likewise below.
  std::uint64_t received_ = 0;
  bool is_owed_ = false;
  std::uint64_t quiet_looks_ = 0;  ///< In a row that found nothing moved.
  std::uint32_t replaced_ = 0;     ///< Links given up since something moved last.
};

}  // namespace ch3_offload
