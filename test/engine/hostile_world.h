// A victim, its honest neighbour, and an attacker: a bare provider, whose messages are the test's.

#pragma once

#include "engine/engine_world.h"
#include "engine/forged_messages.h"
#include "engine/wire.h"
#include "rdma/contract_world.h"

namespace ch3_offload {

inline constexpr std::uint32_t kVictim = 0;
inline constexpr std::uint32_t kNeighbour = 1;
inline constexpr std::uint32_t kAttacker = 2;
inline constexpr std::size_t kLong = 100'000;

class HostileWorld : public EngineWorld {
 protected:
  /// The victim knows the others, and all have credit.
  void make_three() {
    make_strangers(3);
    introduce(kVictim, kNeighbour);
    introduce(kVictim, kAttacker);
    at(kAttacker).engine.reset();
    heard = {};
  }
  void make_three_strangers() {
    make_strangers(3);
    at(kAttacker).engine.reset();
    ASSERT_TRUE(at(kAttacker).provider->connect(PeerId{kVictim}, at(kVictim).provider->local_address()).ok());
    heard = {};
  }
  void attack(const forged::Bytes& message) { network->inject(PeerId{kAttacker}, PeerId{kVictim}, message); }
  bool victim_has_failed_the_attacker() { return at(kVictim).failures.count(kAttacker) != 0; }
  /// The attacker's peer failed, and 0 and 1 go on.
  void expect_refused() {
    settle();
    EXPECT_EQ(at(kVictim).failures, (std::map<std::uint32_t, Status>{{kAttacker, Status::kProtocol}}));
    EXPECT_EQ(at(kVictim).counters().failed_peers, 1u);
    attack(forged::eager(10));  // What comes later is not even looked at.
    settle();
    expect_unharmed();
  }
  void expect_unharmed() {
    EXPECT_EQ(at(kVictim).failures.count(kNeighbour), 0u);
    EXPECT_TRUE(at(kNeighbour).failures.empty());
    const MatchKey key = make_match_key(77, 7, 7);
    for (const std::size_t length : {std::size_t{100}, std::size_t{10'000}, kLong}) {
      for (const std::uint32_t from : {kVictim, kNeighbour}) {
        TestSend message(length);
        message.key = key;
        TestReceive request(length);
        receive(1 - from, request, key);
        send(from, 1 - from, message);
        settle();
        expect_received(request, message);
        expect_sent(message);
      }
    }
    EXPECT_EQ(at(kVictim).provider->regions(), 0u);
  }
  /// The last message of that kind that the victim sent to the attacker.
  template <class Header>
  Header answer(wire::Kind kind) {
    at(kAttacker).provider->poll(heard, 1000);
    for (auto event = heard.events.rbegin(); event != heard.events.rend(); ++event) {
      wire::CommonHeader common;
      Header header;
      if (event->kind == RecordingSink::Kind::kMessage && wire::get(event->bytes, common) && common.kind == kind &&
          wire::get(event->bytes, header)) {
        return header;
      }
    }
    ADD_FAILURE() << "no such message was sent";
    return {};
  }
  /// A receive of the victim's that waits for the attacker's payload; its transfer.
  std::uint32_t open_transfer(TestReceive& request) {
    receive(kVictim, request);
    attack(forged::rts(request.buffer.length_bytes()));
    settle();
    return answer<wire::CtsHeader>(wire::Kind::kCts).transfer;
  }
  /// A send of the victim's that waits for the attacker's match; its operation.
  std::uint32_t open_rendezvous(TestSend& message) {
    send(kVictim, kAttacker, message);
    settle();
    return answer<wire::RtsHeader>(wire::Kind::kRts).operation;
  }

  RecordingSink heard;
};

}  // namespace ch3_offload
