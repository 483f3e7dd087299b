// Hostile bytes at random: forged messages with ids and sizes near the real ones, and honest messages with
// flipped key. By seed; the sanitizers and the buffers' guards judge memory, EngineProcess that nothing is
// finished twice.

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "engine/forged_messages.h"
#include "engine/hostile_world.h"

namespace ch3_offload {
namespace {

using forged::Bytes;
using wire::Kind;

class EngineFuzz : public HostileWorld {
 protected:
  void begin(std::uint64_t seed) {
    random = SeededRandom(seed);
    network_config.seed = seed;
    network_config.slots_per_pair = random.chance(0.5) ? 64 : 2;
    network_config.write_threshold_bytes = random.chance(0.5) ? 4096 : 100;
    engine_config.unexpected_budget_bytes = random.chance(0.5) ? 1 << 20 : 20'000;
    engine_config.send_buffer_bytes = random.chance(0.5) ? 0 : 20'000;
    violations_expected = true;  // Forged addresses make the victim write where it may not.
    sends.clear();
    receives.clear();
    taken.clear();
    cancels_asked.clear();
    packets.clear();
  }
  /// The victim takes some of what is offered, some of it in part.
  void take_parts() {
    at(kVictim).place_for = [](std::size_t length) { return length % 4 == 0 ? 0 : std::min<std::size_t>(length, 20'000); };
  }

  std::size_t random_length() {
    const std::size_t lengths[] = {0, 8, 100, 4000, 10'000, 30'000};
    return lengths[random.below(std::size(lengths))];
  }
  /// A command of the victim's, as a program under attack gives them.
  void command(std::uint32_t peer) {
    switch (random.below(9)) {
      case 8: {
        packets.push_back(std::make_unique<std::vector<std::byte>>(random_length()));
        const Payload data[] = {{packets.back()->data(), packets.back()->size(), nullptr}};
        Status status = Status::kOk;
        static_cast<void>(at(kVictim)->send_packet(PeerId{peer}, {}, data, packets.back().get(), status));
        break;
      }
      case 0:
      case 1: {
        sends.push_back(std::make_unique<TestSend>(random_length(), sends.size() + 1));
        sends.back()->send_id = static_cast<std::uint32_t>(random.below(3));
        send(kVictim, peer, *sends.back(), SendMode{static_cast<std::uint8_t>(random.below(3))});
        break;
      }
      case 2:
      case 3: {
        receives.push_back(std::make_unique<TestReceive>(random_length(), random.chance(0.3) ? 10 : 0));
        const MatchKey ignore = random.chance(0.5) ? kIgnoreNothing : kIgnoreInitiatorAndTag;
        receive(kVictim, *receives.back(), kKey, ignore);
        break;
      }
      case 4: {
        if (sends.empty()) break;
        TestSend& message = *sends[random.below(sends.size())];
        const bool was_pending = pending(message);
        if (message.to == peer && cancels_asked.emplace(&message, was_pending).second) static_cast<void>(cancel(message));
        break;
      }
      case 5: {
        MessageId id{};
        Envelope envelope;
        if (at(kVictim)->matched_probe(kKey, kIgnoreInitiatorAndTag, id, envelope)) taken.push_back(id);
        break;
      }
      case 6: {
        if (taken.empty()) break;
        receives.push_back(std::make_unique<TestReceive>(random_length()));
        TestReceive& request = *receives.back();
        request.at = kVictim;
        Envelope envelope;
        at(kVictim)->receive_matched(taken.back(), request.buffer.payload(), request.cookie(), envelope);
        taken.pop_back();
        break;
      }
      default:
        if (random.chance(0.1)) {
          at(kVictim)->purge(PurgeScope::kAll, {&kEverything, 1}, {}, Status::kRevoked);
        }
    }
  }
  /// Whatever happened: buffers are whole, and a send is cancelled or done, not both.
  void expect_sane() {
    for (auto& request : receives) {
      ASSERT_EQ(request->buffer.check_guards(), "");
      at(kVictim)->cancel_receive(request->operation);
    }
    for (auto& message : sends) {
      ASSERT_EQ(message->buffer.check_guards(), "");
      ASSERT_FALSE(cancelled(*message) == true && cancels_asked[message.get()] && !pending(*message));
    }
  }

  std::uint64_t random_size() {
    const std::uint64_t window = engine_config.unexpected_budget_bytes / 6;
    const std::uint64_t sizes[] = {0, 1, 8, 100, 4000, window, window + 1, UINT32_MAX, UINT64_MAX, random.next()};
    return sizes[random.below(std::size(sizes))];
  }
  std::uint32_t random_id() {
    if (random.chance(0.05)) return static_cast<std::uint32_t>(random.next());
    return static_cast<std::uint32_t>(random.below(12));
  }
  Bytes random_message() {
    const auto flags = static_cast<std::uint8_t>(random.chance(0.5) ? random.below(128) : 0);
    const std::size_t payload = random.chance(0.5) ? random.below(200) : random.below(4000);
    switch (random.below(14)) {
      case 0: return forged::eager(payload, flags);
      case 1: return forged::eager_first(random.chance(0.7) ? payload + random.below(5000) : random_size(), payload);
      case 2: return forged::eager_next(payload);
      case 3: return forged::plain(Kind::kPacket, payload, flags);
      case 4: return forged::rts(random.chance(0.5) ? payload : random_size(), flags | wire::kPayload, payload);
      case 5: return forged::rts(random_size(), static_cast<std::uint8_t>(flags & ~wire::kPayload));  // Often a part.
      case 6: return forged::cts(random_id(), random_size(), flags);
      case 7: return forged::data(random_id(), random.chance(0.8) ? 0 : random_size(), payload);
      case 8: return forged::ack(random_id());
      case 9: return forged::plain(Kind::kCredit, payload, flags);
      case 10: return random.chance(0.5) ? forged::recall(random_size()) : forged::credit_return(random_size());
      case 11: return forged::cancel(static_cast<std::uint32_t>(random.below(3)), random_id(), flags);
      case 12: return forged::cancel_reply(random_id(), random.chance(0.5));
      default: {
        Bytes noise(random.below(100));
        for (std::byte& byte : noise) byte = static_cast<std::byte>(random.next());
        return noise;
      }
    }
  }

  SeededRandom random{0};
  std::vector<std::unique_ptr<TestSend>> sends;
  std::vector<std::unique_ptr<TestReceive>> receives;
  std::vector<std::unique_ptr<std::vector<std::byte>>> packets;
  std::vector<MessageId> taken;
  std::map<TestSend*, bool> cancels_asked;  ///< Whether it was pending then.
};

/// More, for a long run.
std::uint64_t last_seed(std::uint64_t by_default) {
  const char* const wanted = std::getenv("CH3_OFFLOAD_FUZZ_SEEDS");
  return wanted == nullptr ? by_default : std::strtoull(wanted, nullptr, 10);
}

TEST_F(EngineFuzz, ForgedMessagesHarmNobodyElse) {
  std::uint64_t refused = 0;
  std::uint64_t attacks = 0;
  const std::uint64_t seeds = last_seed(1500);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    begin(seed);
    make_three();
    take_parts();
    for (int i = 0; i < 60 && !victim_has_failed_the_attacker(); ++i) {
      command(kAttacker);
      if (random.chance(0.3)) {
        ++attacks;
        attack(random_message());
        if (random.chance(0.05)) {
          network->inject_immediate(PeerId{kAttacker}, PeerId{kVictim}, Immediate{random_id()},
                                    random.below(5000));
        }
      }
      if (random.chance(0.5)) step();
      if (random.chance(0.3)) at(kAttacker).provider->poll(heard, 100);
    }
    settle();
    refused += victim_has_failed_the_attacker();
    network->kill(PeerId{kAttacker});
    settle();
    if (!victim_has_failed_the_attacker()) at(kVictim)->fail_peer(PeerId{kAttacker});
    at(kVictim)->purge(PurgeScope::kAll, {&kEverything, 1}, {}, Status::kRevoked);
    expect_sane();
    expect_unharmed();
    EXPECT_LE(at(kVictim).counters().unexpected_bytes_peak, engine_config.unexpected_budget_bytes);
    if (HasFailure()) break;
  }
  EXPECT_GT(refused, seeds / 2);
  EXPECT_LT(refused, attacks);  // Some of them were good enough to be believed for a while.
}

TEST_F(EngineFuzz, HonestMessagesWithFlippedBitsHarmNobodyElse) {
  std::uint64_t refused = 0;
  const std::uint64_t seeds = last_seed(800);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    begin(seed);
    make_strangers(3);
    introduce(kVictim, kNeighbour);
    introduce(kVictim, kAttacker);
    take_parts();
    // Only what the victim hears from process 2 is spoiled: most often in its header.
    network->tamper = [this](PeerId from, PeerId to, std::span<std::byte> message) {
      if (from != PeerId{kAttacker} || to != PeerId{kVictim} || !random.chance(0.1)) return;
      const std::size_t range = random.chance(0.8) ? std::min<std::size_t>(message.size(), 40) : message.size();
      message[random.below(range)] ^= static_cast<std::byte>(1 + random.below(255));
    };
    std::vector<std::unique_ptr<TestSend>> theirs;
    std::vector<std::unique_ptr<TestReceive>> their_receives;
    std::vector<std::unique_ptr<std::vector<std::byte>>> their_packets;
    for (int i = 0; i < 100 && !victim_has_failed_the_attacker(); ++i) {
      command(kAttacker);
      if (random.chance(0.2)) {
        their_packets.push_back(std::make_unique<std::vector<std::byte>>(random_length() + random.below(4)));
        const Payload data[] = {{their_packets.back()->data(), their_packets.back()->size(), nullptr}};
        Status status = Status::kOk;
        static_cast<void>(at(kAttacker)->send_packet(PeerId{kVictim}, {}, data, their_packets.back().get(), status));
      } else if (random.chance(0.5)) {
        theirs.push_back(std::make_unique<TestSend>(random_length()));
        send(kAttacker, kVictim, *theirs.back(), SendMode{static_cast<std::uint8_t>(random.below(3))});
      } else {
        their_receives.push_back(std::make_unique<TestReceive>(random_length()));
        receive(kAttacker, *their_receives.back());
      }
      if (random.chance(0.7)) step();
    }
    settle();
    refused += victim_has_failed_the_attacker();
    kill(kAttacker);
    settle();
    if (!victim_has_failed_the_attacker()) at(kVictim)->fail_peer(PeerId{kAttacker});
    at(kVictim)->purge(PurgeScope::kAll, {&kEverything, 1}, {}, Status::kRevoked);
    expect_sane();
    expect_unharmed();
    if (HasFailure()) break;
  }
  EXPECT_GT(refused, seeds / 4);
}

}  // namespace
}  // namespace ch3_offload
