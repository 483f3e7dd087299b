// Tests whether two nodes reach each other over one provider, and how well: ch3-offload-info --check.
//
// A process on each of them has a PairTester. One begins. First the two exchange a message, then short ones
// whose time is taken, then each writes to the other's memory as long messages do.
//
// Threads: one at a time, that of the provider.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rdma/provider.h"

namespace ch3_offload {

/// How far a pair has come. A test that fails has failed there.
enum class PairStage : std::uint8_t {
  kFirst,  ///< The first message and its answer.
  kShort,
  kLong,
  kOver,
};

struct PairResult {
  PairStage stage = PairStage::kFirst;  ///< kOver: all is well.
  std::string why;                      ///< What ended it. Empty where all is well.
  std::uint64_t latency_ns = 0;         ///< Half of a round trip of a short message, median. 0: not measured.
  std::uint64_t bytes_per_s = 0;        ///< From this process to the other. 0: not measured.

  bool ok() const noexcept { return stage == PairStage::kOver; }
};

/// PairResult::why where the other process has given the test up, or has died.
inline constexpr std::string_view kConnectionBroke = "the connection broke";

class PairTester final : private Sink {
 public:
  /// `provider`: outlives this object, and is only used by it. `self`: the provider's own number, by which
  /// the others know it, too. `limit_ms`: if nothing comes for so long, a test has failed.
  PairTester(Provider& provider, PeerId self, int limit_ms);
  ~PairTester() override;

  /// Tests the way to `peer`, whose PairTester does the same. Waits. A peer can be tested once.
  PairResult test(PeerId peer, std::string_view address, bool begins);

  /// What is left of tests that are over: to be called every few milliseconds.
  void turn() noexcept;

  const Provider& provider() const noexcept { return provider_; }

 private:
  enum class Kind : std::uint32_t { kPing = 1, kPong, kSent, kGot, kTurn, kOver };
  struct Message {
    Kind kind{};
    std::uint32_t number = 0;
    std::uint64_t count_bytes = 0;       ///< kSent: of all writes until now.
    std::uint64_t address = 0, key = 0;  ///< kPing and kPong: where the sender takes writes.
  };
  struct Letter {
    PeerId from;
    Message message;
  };
  static constexpr std::size_t kMemoryBytes = std::size_t{1} << 20;
  static_assert(sizeof(Message) <= kLeastSlotBytes);

  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override;
  void on_write_arrived(PeerId peer, Immediate immediate, std::size_t length_bytes) noexcept override;
  std::optional<PeerId> writer_of(Immediate immediate) const noexcept override {
    return PeerId{static_cast<std::uint32_t>(immediate)};
  }
  void on_write_done(PeerId peer, WorkId work, Status status) noexcept override;
  void on_peer_down(PeerId peer, Status reason) noexcept override;

  void begin();
  void answer();
  void measure_latency();
  void measure_bandwidth();
  void stream(std::size_t length_bytes);
  void send(Message message);
  Message expect(Kind kind);
  std::optional<Message> handle_letter(Kind wanted);
  void step();

  Provider& provider_;
  const PeerId self_;
  const int limit_ms_;
  const std::unique_ptr<std::byte[]> source_, destination_;
  MemoryRegion source_region_, destination_region_;
  std::string lacks_memory_;  ///< Why the memory cannot be registered. Empty: it is.

  // Of the pair that is being tested.
  PeerId peer_{};
  Endpoint* endpoint_ = nullptr;
  PairResult result_;
  RemoteMemory its_memory_;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t due_bytes_ = 0;  ///< Of the peer's writes that have to arrive before it gets a kGot. 0: none.
  std::uint32_t writes_ = 0;     ///< Under way.
  std::uint64_t last_event_ns_ = 0;  ///< When something has come or left last.

  // Of all.
  std::deque<Letter> inbox_;
  std::vector<std::uint64_t> arrived_bytes_;  ///< By peer.
  std::vector<bool> is_down_;                 ///< By peer.
};

}  // namespace ch3_offload
