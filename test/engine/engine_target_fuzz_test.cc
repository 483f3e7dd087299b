// Hostile bytes at random for operations on target entries: forged requests and answers with numbers and sizes
// near the real ones, and honest messages with flipped bits. By seed: CH3_OFFLOAD_FUZZ_SEEDS runs more.

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/hostile_targets.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace engine_target_fuzz_test {

using wire::Kind;

std::uint64_t last_seed(std::uint64_t by_default) {
  const char* const wanted = std::getenv("CH3_OFFLOAD_FUZZ_SEEDS");
  return wanted == nullptr ? by_default : std::strtoull(wanted, nullptr, 10);
}

class EngineTargetFuzz : public HostileTargets {
 protected:
  void begin(std::uint64_t seed) {
    random = SeededRandom(seed);
    processes.clear();
    cards.clear();
    buffers.clear();
    network_config.seed = seed;
    network_config.slots_per_pair = random.chance(0.5) ? 64 : 2;
    network_config.write_threshold_bytes = random.chance(0.5) ? 4096 : 100;
    network_config.write = random.chance(0.8);
    violations_expected = true;  // Forged addresses make the victim write where it may not.
  }

  std::size_t random_length() {
    const std::size_t lengths[] = {0, 8, 100, 4000, 10'000, 30'000};
    return lengths[random.below(std::size(lengths))];
  }
  std::uint64_t random_size() {
    const std::uint64_t sizes[] = {
        0, 1, 8, 100, 4000, kEntryBytes, kEntryBytes + 1, UINT64_MAX, random.next()};
    return sizes[random.below(std::size(sizes))];
  }
  std::uint32_t random_id() { return static_cast<std::uint32_t>(random.below(12)); }

  /// An operation of one process on the entries of another.
  void command(std::uint32_t from, std::uint32_t to) {
    buffers.push_back(std::make_unique<std::vector<std::byte>>(pattern(random_length())));
    auto& buffer = *buffers.back();
    TargetRequest request = random.chance(0.5) ? put_from(from, buffer) : get_from(from, buffer);
    if (random.chance(0.3)) request.acknowledgement = TargetAcknowledgement::kNone;
    if (random.chance(0.3)) {
      buffer.resize(std::min<std::size_t>(buffer.size(), 100));
      buffers.push_back(std::make_unique<std::vector<std::byte>>(buffer.size()));
      request = put_from(from, buffer);
      request.operation = TargetOperation::kFetchAtomic;
      request.atomic_operation = AtomicOperation::kSum;
      request.atomic_type = AtomicType::kUint8;
      request.destination = origin_of(from, *buffers.back());
    }
    request.offset_bytes = random.below(100);
    static_cast<void>(start(from, to, request));
  }

  Bytes random_message() {
    const std::size_t data = random.chance(0.5) ? random.below(64) : random.below(3000);
    if (random.chance(0.15)) return forged::data(random_id(), random.chance(0.8) ? 0 : random_size(), data);
    if (random.chance(0.15))
      return forged::cts(random_id(), random_size(), random.chance(0.3) ? wire::kWritable : 0);
    if (random.chance(0.3)) {
      const bool has_data = random.chance(0.5);
      return answer_of(random.chance(0.5) ? Kind::kTargetAck : Kind::kTargetReply, random_id(),
                       random.chance(0.8) ? data : random_size(),
                       random.chance(0.7) ? TargetFailure::kNone
                                          : TargetFailure{static_cast<std::uint8_t>(
                                                random.below(static_cast<int>(TargetFailure::kEnd) + 1))},
                       has_data ? wire::kPayload : 0, has_data ? data : 0);
    }
    auto header = request_header(
        Kind{static_cast<std::uint8_t>(14 + random.below(6))}, random.chance(0.7) ? data : random_size(),
        random.chance(0.6) ? wire::kPayload : static_cast<unsigned>(random.below(256)));
    header.offset_bytes = random.chance(0.6) ? 0 : random_size();
    header.operation = random_id();
    header.transfer = random_id();
    header.address = random.next();
    header.atomic_operation = static_cast<std::uint8_t>(random.below(20));
    header.atomic_type = static_cast<std::uint8_t>(random.below(16));
    if (random.chance(0.1)) header.table = static_cast<std::uint16_t>(random.below(5));
    if (random.chance(0.05)) header.interface = static_cast<std::uint8_t>(random.below(6));
    return with_data(header, random.chance(0.2) ? 0 : data);
  }

  /// Every operation of the victim is over, and nothing holds the entry.
  void expect_sane() {
    network->kill(PeerId{kAttacker});
    settle();
    if (!victim_has_failed_the_attacker()) at(kVictim).engine->fail_peer(PeerId{kAttacker});
    settle();
    network->tamper = nullptr;
    expect_unharmed();
    EXPECT_EQ(table(kVictim).unlink(id), TargetTable::Unlinked::kOk);
  }

  SeededRandom random{0};
  std::vector<std::unique_ptr<std::vector<std::byte>>> buffers;
};

TEST_F(EngineTargetFuzz, ForgedMessagesHarmNobodyElse) {
  std::uint64_t refused = 0;
  std::uint64_t attacks = 0;
  const std::uint64_t seeds = last_seed(400);
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    begin(seed);
    make_three();
    for (int i = 0; i < 60 && !victim_has_failed_the_attacker(); ++i) {
      if (random.chance(0.5)) command(kVictim, kAttacker);
      if (random.chance(0.3)) command(kNeighbour, kVictim);
      if (random.chance(0.5)) {
        ++attacks;
        attack(random_message());
      }
      if (random.chance(0.05))
        network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{random_id()},
                                  random.below(5000));
      if (random.chance(0.5)) step();
      if (random.chance(0.3)) at(kAttacker).provider->poll(heard, 100);
    }
    settle();
    refused += victim_has_failed_the_attacker();
    expect_sane();
  }
  EXPECT_GT(refused, seeds / 2);
  EXPECT_LT(refused, attacks / 2);  // Some of them were good enough to be believed for a while.
}

TEST_F(EngineTargetFuzz, HonestMessagesWithFlippedBitsHarmNobodyElse) {
  std::uint64_t refused = 0;
  const std::uint64_t seeds = last_seed(300);
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    begin(seed);
    make(3);
    memory.assign(kEntryBytes + 2 * kGuardBytes, kGuard);
    TargetDescription entry = entry_of(memory);
    entry.start += kGuardBytes;
    entry.length_bytes = kEntryBytes;
    id = append(kVictim, entry);
    std::vector<std::byte> theirs(kEntryBytes);
    append(kAttacker, entry_of(theirs));
    network->tamper = [this](PeerId from, PeerId to, std::span<std::byte> message) {
      if (from != PeerId{kAttacker} || to != PeerId{kVictim} || !random.chance(0.1)) return;
      const std::size_t range =
          random.chance(0.8) ? std::min<std::size_t>(message.size(), 72) : message.size();
      message[random.below(range)] ^= static_cast<std::byte>(1 + random.below(255));
    };
    for (int i = 0; i < 100 && !victim_has_failed_the_attacker(); ++i) {
      random.chance(0.5) ? command(kVictim, kAttacker) : command(kAttacker, kVictim);
      if (random.chance(0.7)) step();
    }
    settle();
    refused += victim_has_failed_the_attacker();
    kill(kAttacker);
    settle();
    expect_sane();
  }
  EXPECT_GT(refused, seeds / 4);
}

}  // namespace engine_target_fuzz_test
}  // namespace ch3_offload
