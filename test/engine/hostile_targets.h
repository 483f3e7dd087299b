// A victim with target entries, its honest neighbour, and an attacker: a bare provider, whose messages are the
// test's.

#pragma once

#include "engine/forged_messages.h"
#include "engine/target_world.h"
#include "engine/wire.h"
#include "rdma/contract_world.h"

namespace ch3_offload {

class HostileTargets : public TargetWorld {
 protected:
  static constexpr std::uint32_t kVictim = 0;
  static constexpr std::uint32_t kNeighbour = 1;
  static constexpr std::uint32_t kAttacker = 2;
  static constexpr std::size_t kEntryBytes = 50'000;
  static constexpr std::size_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0xA5};
  using Bytes = forged::Bytes;

  /// The victim has an entry for whatever comes, in the middle of `memory`.
  void make_three() {
    make(3);
    memory.assign(kEntryBytes + 2 * kGuardBytes, kGuard);
    TargetDescription entry = entry_of(memory);
    entry.start += kGuardBytes;
    entry.length_bytes = kEntryBytes;
    id = append(kVictim, entry);
    at(kAttacker).engine.reset();
    ASSERT_TRUE(at(kAttacker).provider->connect(PeerId{kVictim}, at(kVictim).provider->local_address()).ok());
    heard = {};
  }
  void attack(const Bytes& message) { network->inject(PeerId{kAttacker}, PeerId{kVictim}, message); }

  static wire::TargetRequestHeader request_header(wire::Kind kind, std::uint64_t length_bytes,
                                                  unsigned flags = 0) {
    wire::TargetRequestHeader header;
    header.common = {kind, static_cast<std::uint8_t>(flags), wire::kTargetClient};
    header.length_bytes = length_bytes;
    header.operation = 1;
    header.transfer = 1;
    header.table = kTable;
    header.atomic_operation = static_cast<std::uint8_t>(AtomicOperation::kSum);
    header.atomic_type = static_cast<std::uint8_t>(AtomicType::kUint8);
    return header;
  }
  template <class Header>
  static Bytes with_data(const Header& header, std::size_t data_bytes) {
    Bytes bytes(sizeof header + data_bytes, std::byte{0x5A});
    wire::put(std::span(bytes), header);
    return bytes;
  }
  /// What an initiator sends of such a header, and data.
  static Bytes with_data(const wire::TargetRequestHeader& header, std::size_t data_bytes) {
    const std::size_t length = wire::request_header_bytes(header.common.kind, header.common.flags);
    Bytes bytes(length + data_bytes, std::byte{0x5A});
    wire::put_request(std::span(bytes), header);
    return bytes;
  }
  static Bytes answer_of(wire::Kind kind, std::uint32_t operation, std::uint64_t length_bytes,
                         TargetFailure failure = TargetFailure::kNone, unsigned flags = 0,
                         std::size_t data_bytes = 0) {
    wire::TargetAnswerHeader header;
    header.common = {kind, static_cast<std::uint8_t>(flags), wire::kTargetClient};
    header.operation = operation;
    header.failure = static_cast<std::uint16_t>(failure);
    header.length_bytes = length_bytes;
    return with_data(header, data_bytes);
  }

  bool victim_has_failed_the_attacker() { return at(kVictim).failures.count(kAttacker) != 0; }
  void expect_refused(const char* what) {
    settle();
    EXPECT_EQ(at(kVictim).failures, (std::map<std::uint32_t, Status>{{kAttacker, Status::kProtocol}}))
        << what;
    expect_unharmed();
  }
  /// The memory around the entry is whole, nothing is in flight, and the neighbour is served.
  void expect_unharmed() {
    EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + kGuardBytes, is_guard));
    EXPECT_TRUE(std::all_of(memory.end() - kGuardBytes, memory.end(), is_guard));
    EXPECT_EQ(table(kVictim).in_flight(), 0u);
    EXPECT_EQ(at(kVictim).failures.count(kNeighbour), 0u);
    take(kNeighbour, at(kNeighbour).initiator_queue);
    for (const std::size_t length : {std::size_t{100}, kEntryBytes}) {
      auto data = pattern(length, length);
      std::vector<std::byte> copy(length);
      ASSERT_EQ(start(kNeighbour, kVictim, put_from(kNeighbour, data)), Status::kOk);
      settle();
      ASSERT_EQ(start(kNeighbour, kVictim, get_from(kNeighbour, copy)), Status::kOk);
      settle();
      const std::string bytes = std::to_string(length);
      EXPECT_EQ(begun(kNeighbour), "send 0, ack " + bytes + ", reply " + bytes);
      EXPECT_EQ(copy, data);
    }
    EXPECT_EQ(at(kVictim).provider->regions(), 0u);
  }
  /// The last message of that kind that the victim sent to the attacker.
  template <class Header>
  Header last_heard(wire::Kind kind) {
    at(kAttacker).provider->poll(heard, 1000);
    for (auto event = heard.events.rbegin(); event != heard.events.rend(); ++event) {
      Header header;
      if (event->kind == RecordingSink::Kind::kMessage && read(event->bytes, header) &&
          header.common.kind == kind)
        return header;
    }
    ADD_FAILURE() << "no such message was sent";
    return {};
  }

  template <class Header>
  static bool read(std::span<const std::byte> message, Header& header) {
    return wire::get(message, header);
  }
  static bool read(std::span<const std::byte> message, wire::TargetRequestHeader& header) {
    return wire::get_request(message, header);
  }
  static bool is_guard(std::byte byte) { return byte == kGuard; }

  std::vector<std::byte> memory;
  TargetId id{};
  RecordingSink heard;
};

}  // namespace ch3_offload
