// Which of two ways long payloads from one peer take where the kernel copies what is written: a write, or
// slots. Which one is faster depends on whether the two cores share a cache, and nobody says that: so the
// receiver, who grants the write, looks at the clock.
//
// Payloads of about one length are timed in runs. A run is one payload, or as many as are under way at the
// same time, and all of it goes one way. The way that takes less time for each byte is preferred, if it does
// so by an eighth. The other one is tried seldom: after 32 runs at first, and after up to 4096 if it remains
// slower.
//
// Threads: one at a time. Nothing blocks or allocates.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rdma/cycle_clock.h"

namespace ch3_offload {

class WriteChoice {
 public:
  using Clock = std::uint64_t() noexcept;
  /// Shorter payloads than `least_bytes` go through slots. From `least_written` on, they are written until
  /// slots have turned out to be faster.
  WriteChoice(std::size_t least_bytes, std::size_t least_written, Clock& clock = CycleClock::now) noexcept;

  std::size_t least_bytes() const noexcept { return least_bytes_; }

  WriteChoice(const WriteChoice&) = delete;
  WriteChoice& operator=(const WriteChoice&) = delete;

  struct Choice {
    bool is_written = false;
    std::uint32_t run = 0;  ///< For end() or drop().
  };
  /// A payload will come, which nothing delays but the peer: says whether it should be written. end() or
  /// drop() follows. REQUIRES: it has least_bytes() or more.
  Choice begin(std::size_t length_bytes) noexcept;
  /// All of it is here. `was_written`: whether it was, whatever begin() has said.
  void end(std::uint32_t run, std::size_t length_bytes, bool was_written) noexcept;
  /// It will not come.
  void drop(std::uint32_t run) noexcept;
  /// The peer has decided so of a payload of this process. Where payloads go both ways, each way delays the
  /// other: so one of the two decides for both. REQUIRES: as begin().
  void follow(std::size_t length_bytes, bool is_written) noexcept;

 private:
  enum class Way : std::uint8_t { kSlots, kWrite };
  static constexpr unsigned index_of(Way way) noexcept { return static_cast<unsigned>(way); }
  static constexpr Way other_than(Way way) noexcept { return way == Way::kSlots ? Way::kWrite : Way::kSlots; }

  /// What is known of payloads of one length, to a factor of two.
  struct Length {
    Way preferred = Way::kSlots;
    std::uint16_t runs = 0;                        ///< Of the preferred way, since the last trial or change.
    std::uint16_t runs_to_trial = 0;               ///< The other way is tried after so many.
    std::uint16_t trials = 0;                      ///< Runs of it.
    Way followed = Way::kSlots;                    ///< What the peer has decided last.
    std::uint8_t follows = 0;                      ///< Payloads for which that counts.
    std::array<std::uint64_t, 2> ticks_per_mib{};  ///< By Way. 0: not known.

    bool is_known() const noexcept { return ticks_per_mib[index_of(preferred)] != 0; }
    bool is_tried() const noexcept {
      return is_known() && ticks_per_mib[index_of(other_than(preferred))] != 0;
    }
    Way next() const noexcept { return runs < runs_to_trial ? preferred : other_than(preferred); }
    void learn(Way way, std::uint64_t ticks) noexcept;
    bool is_much_slower() const noexcept;
    bool change_if_faster() noexcept;
    void end_trial() noexcept;
    void begin_counting(std::uint16_t runs_until_trial) noexcept;
  };
  Length& of(std::size_t length_bytes) noexcept;
  void begin_run(Length& length) noexcept;
  void adopt_shorter(Length& length) noexcept;
  void end_before() noexcept;

  Clock& clock_;
  const std::size_t least_bytes_;
  std::array<Length, 6> lengths_;  ///< The last one is for all that are longer.
  std::uint32_t under_way_ = 0;
  // The run.
  Length* timed_;
  std::uint32_t run_ = 0;  ///< Its number.
  Way way_ = Way::kSlots;
  bool is_pure_ = true;       ///< All that was under way had that length, and went that way.
  std::uint32_t before_ = 0;  ///< Under way since before the run: its time begins when they are here.
  std::uint32_t count_ = 0;   ///< That have come.
  std::size_t bytes_ = 0;     ///< Of them.
  std::uint64_t began_ = 0;
};

}  // namespace ch3_offload
