// Copies that a processor asks its clients to make. A payload that no client has shared would take two copies
// by the processor, one from each client. The client that receives it can read it from the other one's memory
// by one (process_vm_readv), if it is in a call of its own just then.
//
//   the sender's port       the receiver's server         the receiver
//   offer()
//                           word := number, an event  ──▶ takes it: number with kTaken, if it is still there
//   look(): kOpen           expire(): word := 0
//   look(): kTaken                                        copies
//   look(): kDone           took_command()            ◀── a command says how much was copied
//
// One offer of a client is open at a time; others wait. Who computes takes none: it is withdrawn after about
// as long as it is worth, and with it all that wait. So are those that wait for a client that is stopped, in
// the midst of a copy or before.
//
// Only a receiver is asked, because it reads: it can harm nobody but itself, whatever it does.
//
// Threads: one at a time; the word is shared with the client.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/engine.h"
#include "engine/intrusive_list.h"
#include "rdma/cycle_clock.h"

namespace ch3_offload {

/// One of them. Owned by whoever offers it.
struct OfferedCopy {
  enum class State : std::uint8_t {
    kNone,
    kWaiting,    ///< For others.
    kOpen,       ///< The client may take it.
    kTaken,      ///< It copies.
    kDone,       ///< All of it is there.
    kWithdrawn,  ///< The client has not taken it.
    kFailed,     ///< It could not copy all of it.
  };

  State state = State::kNone;
  pid_t process = 0;          ///< Whose memory it is read from,
  std::uint64_t address = 0;  ///< and where.
  std::size_t length_bytes = 0;
  OperationId receive = kNoOperation;  ///< The client's, to the beginning of whose buffer it goes.
  ListHook<OfferedCopy> among_waiting;
};

/// Those of one client.
class OfferedCopies {
 public:
  using Clock = std::uint64_t() noexcept;
  /// Shorter payloads are not worth the way to the client and back. Bytes.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;
  /// What the client adds to the number.
  static constexpr std::uint64_t kTaken = std::uint64_t{1} << 32;

  OfferedCopies() noexcept = default;
  OfferedCopies(const OfferedCopies&) = delete;
  OfferedCopies& operator=(const OfferedCopies&) = delete;

  /// `word`: NicWords::offered. Null: nothing is offered to this client.
  void use(std::atomic<std::uint64_t>* word) noexcept { word_ = word; }
  bool can_offer() const noexcept { return word_ != nullptr; }
  std::size_t least_bytes() const noexcept { return least_bytes_; }
  /// In place of CycleClock and kLeastBytes. For set-up only.
  void configure(Clock& clock, std::size_t least_bytes) noexcept {
    clock_ = clock;
    least_bytes_ = least_bytes;
  }

  // Of the port that offers.

  /// `copy` stays where it is until withdraw(). REQUIRES: can_offer(); its state is kNone.
  void offer(OfferedCopy& copy) noexcept;
  /// What has become of it.
  OfferedCopy::State look(OfferedCopy& copy) noexcept;
  /// Nobody waits for it any more. If the client copies just then, it does so before it takes another event.
  void withdraw(OfferedCopy& copy) noexcept;

  // Of the server.

  /// Takes back what the client has not taken in time. To be called in each turn.
  void expire() noexcept;
  /// The next one, which the client may take from now on, if it hears of it. Null: there is none. Until
  /// told(), the next call returns the same.
  const OfferedCopy* open_next() noexcept;
  bool has_next() const noexcept { return !is_out_ && !waiting_.empty(); }
  /// Of that one. Not 0.
  std::uint32_t number() const noexcept { return number_; }
  /// The client will hear of it.
  void told() noexcept;
  /// The client says that it has copied so much of the one with that number. False: none of ours says so.
  bool took_command(std::uint64_t number, std::uint64_t copied_bytes) noexcept;
  /// Whether expire() must be called soon: the client may take one.
  bool is_open() const noexcept { return is_out_ && !is_taken_; }
  /// Whether it must be called in a millisecond or so.
  bool is_awaited() const noexcept { return !waiting_.empty(); }

 private:
  void withdraw_all() noexcept;
  bool take_back() noexcept;

  Clock* clock_ = CycleClock::now;
  std::atomic<std::uint64_t>* word_ = nullptr;
  std::size_t least_bytes_ = kLeastBytes;
  IntrusiveList<OfferedCopy, &OfferedCopy::among_waiting> waiting_;
  std::uint32_t number_ = 0;
  bool is_out_ = false;              ///< The client has heard of that number, and has not answered.
  bool is_taken_ = false;            ///< Likewise, and copies.
  OfferedCopy* out_ = nullptr;       ///< Null: nobody waits for it.
  std::uint64_t withdraws_at_ = 0;   ///< If it is not taken.
  std::uint64_t waiting_until_ = 0;  ///< Those that wait.
};

/// Whether that process and this one know each other, and all others, by the same pids.
bool has_our_pids(pid_t process) noexcept;

}  // namespace ch3_offload
