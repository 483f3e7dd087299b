// What one peer can do to a process with checksums: frames with right and wrong ones, writes, ends of writes,
// no room, death. Input: steps, each a byte and its arguments.
//
// What arrives, and what is compared, is in exact heap blocks, so that a read beyond it shows.

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "fuzz/stand_in_provider.h"
#include "fuzz/target.h"
#include "rdma/checked/checked_provider.h"
#include "rdma/checked/checksum.h"

namespace ch3_offload::fuzz {
namespace checked_target {

constexpr PeerId kPeer{1};
constexpr std::size_t kMostSteps = 300;
constexpr std::size_t kMemoryBytes = 200;

enum class Step : std::uint8_t {
  kDamaged,
  kFrame,
  kWritten,
  kAnswer,
  kWriteArrived,
  kEndWrite,
  kSend,
  kWrite,
  kRoom,
  kPoll,
  kDown,
  kCount
};

class Victim final : public Sink {
 public:
  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    require(peer == kPeer && !message.empty() && !is_down, "a message of the peer, while it is there");
    touch(message);
    return Delivery::kTaken;
  }
  void on_write_arrived(PeerId peer, Immediate, std::size_t) noexcept override {
    require(peer == kPeer && !is_down, "a write of the peer, while it is there");
  }
  bool is_landing(PeerId, Immediate immediate, const std::byte*, std::size_t) const noexcept override {
    return static_cast<std::uint32_t>(immediate) % 4 != 0;
  }
  void on_write_done(PeerId peer, WorkId work, Status) noexcept override {
    require(peer == kPeer && posted.erase(static_cast<std::uint64_t>(work)) == 1, "a write ends once");
  }
  void on_peer_down(PeerId peer, Status) noexcept override {
    require(peer == kPeer && !is_down && posted.empty(), "a peer ends once, and after its writes");
    is_down = true;
  }

  std::set<std::uint64_t> posted;
  bool is_down = false;
};

Capabilities capabilities() {
  Capabilities can;
  can.name = "stand-in";
  can.max_slot_bytes = 400;
  can.write = true;
  can.write_threshold_bytes = 1;
  return can;
}

class Attack {
 public:
  Attack()
      : below_(2, capabilities()),
        checked_(below_, Log(nullptr, nullptr)),
        memory_(new std::byte[kMemoryBytes]()) {
    below_.carries_messages = false;
    require(checked_.register_memory(memory_.get(), kMemoryBytes, Access::kWrite, region_) == Status::kOk,
            "memory can be registered");
  }
  ~Attack() { checked_.deregister_memory(region_); }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  void step(Input& input) {
    switch (static_cast<Step>(input.below(static_cast<std::uint8_t>(Step::kCount)))) {
      case Step::kDamaged: return deliver(input.bytes(input.u8()));
      case Step::kFrame: return frame(input, input.bytes(input.u8()));
      case Step::kWritten: {
        CheckedWritten written;
        written.address = reinterpret_cast<std::uintptr_t>(memory_.get()) + input.u8() - 20;
        written.remote_key = static_cast<std::uint64_t>(region_.remote_key) + input.below(2);
        written.length_bytes = input.flag() ? input.u8() : input.u64();
        written.immediate = input.below(8);
        written.write = input.u8();
        written.checksum = input.flag() ? checksum({memory_.get(), kMemoryBytes}) : input.u32();
        written.is_changing = input.below(4);
        return frame(input, std::as_bytes(std::span(&written, 1)));
      }
      case Step::kAnswer: {
        const CheckedAnswer answer{input.flag() ? input.u8() : input.u32()};
        return frame(input, std::as_bytes(std::span(&answer, 1)));
      }
      case Step::kWriteArrived:
        if (!below_.is_down(kPeer)) below_.write_arrived(kPeer, Immediate{input.below(8)}, input.u8());
        return;
      case Step::kEndWrite: return below_.end_write(input.flag() ? Status::kOk : Status::kUnsupported);
      case Step::kSend: return send(input.bytes(1 + input.u8()));
      case Step::kWrite: return write(input.u8());
      case Step::kRoom: below_.room_slots = input.flag() ? SIZE_MAX : input.below(8); return;
      case Step::kDown:
        if (input.below(8) == 0 && !below_.will_end(kPeer) && !below_.is_down(kPeer))
          below_.peer_down(kPeer, Status::kPeerFailed);
        return;
      default: checked_.poll(sink_, 1 + input.u8());
    }
  }
  void end() {
    if (!below_.will_end(kPeer) && !below_.is_down(kPeer)) below_.peer_down(kPeer, Status::kPeerFailed);
    for (int i = 0; i < 1000 && !sink_.is_down; ++i) checked_.poll(sink_, 64);
    require(sink_.is_down, "the end is told");
  }

 private:
  void deliver(std::span<const std::byte> bytes) {
    if (!below_.is_down(kPeer) && !below_.will_end(kPeer)) below_.message(kPeer, bytes);
  }
  /// With the right checksum, whatever else is in it; often with the next number.
  void frame(Input& input, std::span<const std::byte> body) {
    CheckedHeader header;
    header.number = kFirstFrame + (input.flag() ? next_++ : input.u8());
    header.received = kFirstFrame + (input.flag() ? 0 : input.u8());
    header.kind = static_cast<CheckedKind>(input.below(9));
    std::vector<std::byte> bytes(sizeof header + body.size());
    std::memcpy(bytes.data(), &header, sizeof header);
    if (!body.empty()) std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
    header.checksum = checksum(std::span(bytes).subspan(sizeof header.checksum));
    std::memcpy(bytes.data(), &header.checksum, sizeof header.checksum);
    deliver(bytes);
  }
  Endpoint* endpoint() {
    if (endpoint_ != nullptr) return endpoint_;
    const Result<Endpoint*> made = checked_.connect(kPeer, checked_.local_address());
    if (made.ok()) endpoint_ = made.value();
    return endpoint_;
  }
  void send(std::span<const std::byte> bytes) {
    std::span<std::byte> slot;
    if (bytes.empty() || endpoint() == nullptr) return;
    if (checked_.reserve(*endpoint_, bytes.size(), slot) != Status::kOk) return;
    std::memcpy(slot.data(), bytes.data(), bytes.size());
    if (bytes.size() % 2 == 0)
      checked_.commit(*endpoint_, bytes.size());
    else
      checked_.commit_part(*endpoint_, bytes.size());
  }
  void write(std::uint8_t length) {
    if (endpoint() == nullptr || length > kMemoryBytes) return;
    if (checked_.write(*endpoint_, memory_.get(), length, region_, {4096, RemoteKey{7}}, Immediate{3},
                       WorkId{work_}) == Status::kOk)
      sink_.posted.insert(work_++);
  }

  StandInProvider below_;
  CheckedProvider checked_;
  Victim sink_;
  std::unique_ptr<std::byte[]> memory_;
  MemoryRegion region_;
  Endpoint* endpoint_ = nullptr;
  std::uint32_t next_ = 0;
  std::uint64_t work_ = 1;
};

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  Attack attack;
  for (std::size_t i = 0; i < kMostSteps && !input.empty(); ++i) attack.step(input);
  attack.end();
}

Seed& step(Seed& seed, Step step) { return seed.u8(static_cast<std::uint8_t>(step)); }

std::vector<Bytes> seeds() {
  Seed talk;
  step(talk, Step::kSend).u8(3).text("hey!");
  step(talk, Step::kFrame).u8(3).text("abc").u8(1).u8(0).u8(1).u8(1);
  step(talk, Step::kPoll).u8(3);
  step(talk, Step::kDamaged).u8(20).text("12345678901234567890");
  step(talk, Step::kPoll).u8(3);
  step(talk, Step::kFrame).u8(0).u8(0).u8(1).u8(1).u8(5);
  step(talk, Step::kPoll).u8(3);
  Seed writes;
  step(writes, Step::kWriteArrived).u8(1).u8(200);
  step(writes, Step::kWritten).u8(20).u8(0).u8(1).u8(200).u8(1).u8(0).u8(1).u8(0).u8(1).u8(1).u8(2);
  step(writes, Step::kPoll).u8(3);
  step(writes, Step::kWrite).u8(100);
  step(writes, Step::kEndWrite).u8(1);
  step(writes, Step::kPoll).u8(3);
  step(writes, Step::kAnswer).u8(1).u8(0).u8(1).u8(1).u8(3);
  step(writes, Step::kPoll).u8(3);
  return {talk.done(), writes.done()};
}

const Target kTarget("checked", run, seeds);

}  // namespace checked_target
}  // namespace ch3_offload::fuzz
