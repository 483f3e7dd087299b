// The tests of the provider contract, in the order of the interface.

#include "rdma/provider_contract.h"

#include <algorithm>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace ch3_offload {

std::string contract_name(const testing::TestParamInfo<ContractParam>& info) { return info.param.name; }

std::vector<ContractParam> those_with(bool ContractParam::*trait, bool ContractParam::*other,
                                      const std::vector<ContractParam>& configurations) {
  std::vector<ContractParam> those;
  for (const ContractParam& configuration : configurations)
    if (configuration.*trait && configuration.*other) those.push_back(configuration);
  return those;
}

// capabilities, local_address

TEST_P(ProviderContract, CapabilitiesAreUsable) {
  make_world(1);
  const Capabilities& capabilities = at(kA).capabilities();
  EXPECT_FALSE(capabilities.name.empty());
  EXPECT_GE(capabilities.max_slot_bytes, 256u);
  // What the configuration says decides which suites run.
  EXPECT_TRUE(GetParam().writes || GetParam().refuses || !capabilities.write);
  EXPECT_EQ(at(kA).descriptor() != -1, GetParam().sleeps);
  EXPECT_EQ(world_->make_impostor(kA) != nullptr, GetParam().has_secrets);
}

TEST_P(ProviderContract, AddressIsShortPrintableAndConstant) {
  make_world(2);
  const std::string address = at(kA).local_address();
  EXPECT_FALSE(address.empty());
  EXPECT_LE(address.size(), 160u);
  for (const char c : address) EXPECT_TRUE(c > ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_EQ(address, at(kA).local_address());
  EXPECT_NE(address, at(kB).local_address());
}

// reaches

TEST_P(ProviderContract, ReachesItsOwnKind) {
  make_world(2);
  EXPECT_TRUE(at(kA).reaches(at(kB).local_address()));
}

TEST_P(ProviderContract, HostileAddressesAreRefused) {
  make_world(2);
  const std::string good = at(kB).local_address();
  std::vector<std::string> hostile = {"",
                                      ":",
                                      "::::",
                                      "verbs:1:2",
                                      std::string(1 << 20, 'a'),
                                      std::string(3, '\0'),
                                      good + "0",
                                      good + ":",
                                      good + std::string(1, '\0'),
                                      " " + good};
  for (std::size_t length = 0; length < good.size(); ++length) hostile.push_back(good.substr(0, length));
  for (const std::string& address : hostile) {
    EXPECT_FALSE(at(kA).reaches(address)) << address.substr(0, 200);
    const Result<Endpoint*> result = at(kA).connect(kB, address);
    ASSERT_FALSE(result.ok()) << address.substr(0, 200);
    EXPECT_EQ(result.error().status, Status::kUnreachable);
    EXPECT_FALSE(result.error().message.empty());
  }
  Pattern random(3);
  for (int i = 0; i < 2000; ++i) {  // One byte changed: any answer is right, but no crash.
    std::string address = good;
    address[random.next() % address.size()] = static_cast<char>(random.next());
    static_cast<void>(at(kA).reaches(address));
  }
  ASSERT_TRUE(connect(kA, kB).ok()) << "a refused address must not spoil the peer";
}

// connect

TEST_P(ProviderContract, ConnectDoesNotWaitForThePeer) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  const std::vector<std::byte> message = Pattern(1).bytes(100);
  for (int i = 0; i < 100'000; ++i) {  // Only A is polled, as B computes.
    const Status status = try_send(kA, kB, message);
    if (status == Status::kOk) break;
    ASSERT_EQ(status, Status::kAgain);
    ASSERT_LT(i, 99'999);
    poll(kA);
    world_->step();
  }
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kMessage) == 1; }));
  EXPECT_EQ(sink(kB).events.back().bytes, message);
  EXPECT_EQ(sink(kB).events.back().peer, kA);
}

TEST_P(ProviderContract, ConnectTwiceIsHarmless) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  send(kA, kB, Pattern(1).bytes(10));
  ASSERT_TRUE(connect(kA, kB).ok());
  send(kA, kB, Pattern(2).bytes(20));
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kMessage) == 2; }));
  ASSERT_TRUE(connect(kA, kB).ok());
  run_a_while();
  ASSERT_EQ(sink(kB).events.size(), 2u);
  EXPECT_EQ(sink(kB).events[0].bytes, Pattern(1).bytes(10));
  EXPECT_EQ(sink(kB).events[1].bytes, Pattern(2).bytes(20));
}

TEST_P(ProviderContract, APeerHasOneEndpoint) {
  make_world(3);
  Endpoint* const first = connect(kA, kB).value();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(connect(kA, kB).value(), first);
  send(kA, kB, Pattern(1).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kMessage) == 1; }));
  ASSERT_TRUE(connect(kB, kA).ok());
  send(kB, kA, Pattern(1).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kMessage) == 1; }));
  EXPECT_EQ(connect(kA, kB).value(), first);
  EXPECT_NE(connect(kA, kC).value(), first);
  // A peer whose connection came before ours has one, too.
  send(kA, kC, Pattern(1).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kC).count(Kind::kMessage) == 1; }));
  Endpoint* const of_caller = connect(kC, kA).value();
  EXPECT_EQ(connect(kC, kA).value(), of_caller);
}

TEST_P(ProviderContract, AnEndpointStaysWhereItIsWhenOthersAreMade) {
  constexpr std::uint32_t kPeers = 12;
  make_world(kPeers);
  ASSERT_TRUE(connect(kA, kB).ok());
  const std::size_t longest = max_slot(kA, kB);
  for (std::uint32_t i = 2; i < kPeers; ++i) ASSERT_TRUE(connect(kA, PeerId{i}).ok());
  EXPECT_EQ(max_slot(kA, kB), longest);
  for (std::uint32_t i = 1; i < kPeers; ++i) send(kA, PeerId{i}, Pattern(i).bytes(10 + i));
  for (std::uint32_t i = 1; i < kPeers; ++i) {
    ASSERT_TRUE(run_until([&] { return sink(PeerId{i}).events.size() == 1; }));
    EXPECT_EQ(sink(PeerId{i}).events[0].bytes, Pattern(i).bytes(10 + i));
  }
}

TEST_P(ProviderContract, BothSidesMayConnectAtOnce) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(33));
  send(kB, kA, Pattern(2).bytes(44));
  ASSERT_TRUE(run_until([&] { return sink(kA).events.size() == 1 && sink(kB).events.size() == 1; }));
  EXPECT_EQ(sink(kB).events[0].bytes, Pattern(1).bytes(33));
  EXPECT_EQ(sink(kA).events[0].bytes, Pattern(2).bytes(44));
}

// address_of

TEST_P(ProviderContract, WhoHasConnectedCanBeConnectedTo) {
  make_world(3);
  const bool serves_all = GetParam().serves_all;
  EXPECT_EQ(at(kB).address_of(kA), serves_all ? at(kA).local_address() : "");
  ASSERT_TRUE(connect(kA, kB).ok());
  EXPECT_EQ(at(kA).address_of(kB), at(kB).local_address());
  send(kA, kB, Pattern(1).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  const std::string address = at(kB).address_of(kA);
  EXPECT_EQ(address, at(kA).local_address());
  ASSERT_TRUE(endpoints_.connect(at(kB), kB, kA, address).ok());
  send(kB, kA, Pattern(2).bytes(20));
  ASSERT_TRUE(run_until([&] { return sink(kA).events.size() == 1; }));
  EXPECT_EQ(sink(kA).events[0].bytes, Pattern(2).bytes(20));
  EXPECT_EQ(at(kB).address_of(kC), serves_all ? at(kC).local_address() : "");
  EXPECT_EQ(at(kB).address_of(PeerId{UINT32_MAX}), "");
}

TEST_P(ProviderContract, WhoHasConnectedAndIsGoneIsNotConnectedTo) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  send(kA, kB, Pattern(1).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  const std::string address = at(kA).local_address();
  world_->kill(kA);
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kPeerDown) == 1; }));
  const std::string known = at(kB).address_of(kA);
  EXPECT_TRUE(known.empty() || known == address) << known;
  const Result<Endpoint*> result = at(kB).connect(kA, address);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().status, Status::kPeerFailed);
}

TEST_P(ProviderContract, AnswersFromInsideTheSink) {
  make_world(2);
  connect_both(kA, kB);
  int answered = 0;
  sink(kB).reaction = [&](const RecordingSink::Event& event) {
    if (try_send(kB, kA, event.bytes) == Status::kOk) ++answered;
  };
  for (int i = 0; i < 20; ++i) send(kA, kB, Pattern(i).bytes(1 + i));
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kMessage) == 20; }));
  EXPECT_GT(answered, 0);
  ASSERT_TRUE(
      run_until([&] { return sink(kA).count(Kind::kMessage) == static_cast<std::size_t>(answered); }));
}

TEST_P(ProviderContract, ManyPeersTalkToEachOther) {
  constexpr std::uint32_t kPeers = 12;
  constexpr std::uint32_t kMessages = 20;
  make_world(kPeers);
  for (std::uint32_t from = 0; from < kPeers; ++from)
    for (std::uint32_t to = 0; to < kPeers; ++to)
      ASSERT_TRUE(from == to || connect(PeerId{from}, PeerId{to}).ok());
  for (std::uint32_t n = 0; n < kMessages; ++n)
    for (std::uint32_t from = 0; from < kPeers; ++from)
      for (std::uint32_t to = 0; to < kPeers; ++to)
        if (from != to) send(PeerId{from}, PeerId{to}, Pattern(from * 1000 + to * 40 + n).bytes(1 + n * 7));
  ASSERT_TRUE(run_until([&] {
    for (const RecordingSink& s : sinks_)
      if (s.count(Kind::kMessage) != (kPeers - 1) * kMessages) return false;
    return true;
  }));
  for (std::uint32_t to = 0; to < kPeers; ++to) {
    std::vector<std::uint32_t> next(kPeers);
    for (const RecordingSink::Event& event : sink(PeerId{to}).events) {
      const std::uint32_t from = index_of(event.peer);
      ASSERT_LT(from, kPeers);
      const std::uint32_t n = next[from]++;
      ASSERT_EQ(event.bytes, Pattern(from * 1000 + to * 40 + n).bytes(1 + n * 7));
    }
  }
}

TEST_P(ProviderSecrets, WrongSecretIsRefused) {
  make_world(3);
  std::unique_ptr<Provider> impostor = world_->make_impostor(kA);
  ASSERT_NE(impostor, nullptr);
  RecordingSink impostor_sink;
  Result<Endpoint*> connected = impostor->connect(kB, at(kB).local_address());
  if (connected.ok()) {
    Endpoint& endpoint = *connected.value();
    for (int i = 0; i < 100; ++i) {
      std::span<std::byte> slot;
      if (impostor->reserve(endpoint, 8, slot) == Status::kOk) impostor->commit(endpoint, 8);
      impostor->poll(impostor_sink, kBudget);
      poll_all();
    }
  }
  run_a_while();
  EXPECT_TRUE(sink(kB).events.empty()) << "neither a message nor the death of the peer it claimed to be";
  EXPECT_EQ(at(kB).address_of(kA), "");
  connect_both(kA, kB);  // The real one is not harmed.
  send(kA, kB, Pattern(1).bytes(9));
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kMessage) == 1; }));
  EXPECT_EQ(sink(kB).events[0].bytes, Pattern(1).bytes(9));
}

// reserve, commit

TEST_P(ProviderContract, RandomSizesArriveInOrder) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  constexpr std::size_t kMessages = 1500;
  Pattern lengths(11);
  std::vector<std::size_t> sent;
  for (std::size_t n = 0; n < kMessages; ++n) {
    const std::size_t length =
        n % 3 == 0 ? lengths.length_between(1, max_slot(kA, kB)) : lengths.length_between(1, 200);
    send(kA, kB, Pattern(n).bytes(length));
    sent.push_back(length);
    if (n % 97 == 0) poll_all();
  }
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() >= kMessages; }));
  for (std::size_t n = 0; n < kMessages; ++n) {
    ASSERT_EQ(sink(kB).events[n].bytes.size(), sent[n]) << n;
    ASSERT_EQ(sink(kB).events[n].bytes, Pattern(n).bytes(sent[n])) << n;
  }
}

TEST_P(ProviderContract, AHeldMessageEndsThePollAndStaysUntilTheNext) {
  make_world(2);
  connect_both(kA, kB);
  constexpr std::size_t kMessages = 400;  // More than a ring of any kind has entries.
  sink(kB).holds = true;
  std::size_t sent = 0;
  const auto send_some = [&] {
    while (sent < kMessages && try_send(kA, kB, Pattern(sent).bytes(20 + sent % 200)) == Status::kOk) ++sent;
  };
  std::size_t held = 0;
  const auto look = [&] {  // In place of run_until(), which polls B, too.
    send_some();
    poll(kA);
    world_->step();
    poll(kB);
    const std::size_t arrived = sink(kB).events.size();
    ASSERT_LE(arrived - held, 1u) << "a held message is the last of its poll";
    if (arrived == held) return;
    send_some();  // Nothing that arrives now may overwrite it.
    world_->step();
    ASSERT_TRUE(std::ranges::equal(sink(kB).held, Pattern(held).bytes(20 + held % 200)));
    held = arrived;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  while (held < kMessages && std::chrono::steady_clock::now() < deadline && !HasFailure()) look();
  ASSERT_EQ(held, kMessages);
  sink(kB).holds = false;
  send(kA, kB, Pattern(1).bytes(10));
  EXPECT_TRUE(run_until([&] { return sink(kB).events.size() == kMessages + 1; }));
}

TEST_P(ProviderContract, MessagesBehindAHeldOneComeBeforeTheEndOfTheirSender) {
  enum class End { kDeath, kGivenUp, kDeathInASleep };
  for (const End end : {End::kDeath, End::kGivenUp, End::kDeathInASleep}) {
    if (end == End::kDeathInASleep && !GetParam().sleeps) continue;
    SCOPED_TRACE(static_cast<int>(end));
    make_world(3);
    connect_both(kA, kB);
    connect_both(kA, kC);
    send(kC, kA, Pattern(100).bytes(10));
    ASSERT_TRUE(run_until([&] { return sink(kA).events.size() == 1; }));
    sink(kA).events.clear();
    const std::size_t from_b = arrive_unseen();  // A has taken the first.
    ASSERT_EQ(try_send(kC, kA, Pattern(101).bytes(10)), Status::kOk);
    world_->settle();
    sink(kA).holds = true;
    if (end == End::kDeathInASleep) static_cast<void>(at(kA).arm());
    if (end == End::kGivenUp) {
      ASSERT_TRUE(at(kA).end(kB));
    } else {
      world_->kill(kB);
    }
    std::size_t seen = 1;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (sink(kA).count(Kind::kPeerDown) == 0 && std::chrono::steady_clock::now() < deadline) {
      poll(kA);
      world_->step();
      std::size_t messages = 0;
      for (; seen < sink(kA).events.size(); ++seen) {
        if (sink(kA).events[seen].kind != Kind::kMessage) continue;
        ++messages;
        EXPECT_TRUE(std::ranges::equal(sink(kA).held, sink(kA).events[seen].bytes)) << "it is still there";
      }
      ASSERT_LE(messages, 1u) << "a held message is the last of its poll";
    }
    EXPECT_EQ(sink(kA).count(Kind::kPeerDown, kB), 1u);
    EXPECT_EQ(sink(kA).count(Kind::kMessage, kB), from_b) << "nothing that had arrived is lost";
    at(kA).disarm();
    ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kMessage, kC) == 1; }));
  }
}

TEST_P(ProviderContract, EveryShortLengthAndTheLongestArrive) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  std::vector<std::size_t> lengths;
  const std::size_t longest = max_slot(kA, kB);
  EXPECT_GE(longest, 128u);
  EXPECT_LE(longest, at(kA).capabilities().max_slot_bytes);
  for (std::size_t n = 1; n <= std::min<std::size_t>(longest, 260); ++n) lengths.push_back(n);
  for (std::size_t n = 0; n < 20; ++n) lengths.push_back(longest - n);
  for (const std::size_t length : lengths) send(kA, kB, Pattern(length).bytes(length));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == lengths.size(); }));
  for (std::size_t n = 0; n < lengths.size(); ++n)
    ASSERT_EQ(sink(kB).events[n].bytes, Pattern(lengths[n]).bytes(lengths[n]));
}

TEST_P(ProviderContract, CommitMaySendLessThanWasReserved) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  constexpr std::size_t kMessages = 300;
  Pattern lengths(5);
  std::vector<std::size_t> sent;
  for (std::size_t n = 0; n < kMessages; ++n) {
    const std::size_t reserved = lengths.length_between(1, max_slot(kA, kB));
    std::span<std::byte> slot;
    ASSERT_TRUE(run_until([&] { return at(kA).reserve(endpoint(kA, kB), reserved, slot) == Status::kOk; }));
    Pattern(n).fill(slot);
    sent.push_back(lengths.length_between(1, reserved));
    at(kA).commit(endpoint(kA, kB), sent.back());
  }
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == kMessages; }));
  for (std::size_t n = 0; n < kMessages; ++n)
    ASSERT_EQ(sink(kB).events[n].bytes, Pattern(n).bytes(sent[n])) << n;
}

TEST_P(ProviderContract, AnUncommittedSlotIsTakenBack) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  std::span<std::byte> slot;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(
        run_until([&] { return at(kA).reserve(endpoint(kA, kB), max_slot(kA, kB), slot) == Status::kOk; }));
    std::memset(slot.data(), 0xFF, slot.size());  // Must not be taken for a message.
  }
  run_a_while();
  EXPECT_TRUE(sink(kB).events.empty());
  send(kA, kB, Pattern(1).bytes(3));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  EXPECT_EQ(sink(kB).events[0].bytes, Pattern(1).bytes(3));
  run_a_while();
  EXPECT_EQ(sink(kB).events.size(), 1u);
}

TEST_P(ProviderContract, FullThenRoomAgain) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  std::size_t total = 0;
  for (const std::size_t length : {std::size_t{1}, std::size_t{56}, std::size_t{57}, max_slot(kA, kB)}) {
    const std::size_t sent = fill(kA, kB, length);
    ASSERT_GT(sent, 0u);
    total += sent;
    ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == total; }));
    ASSERT_TRUE(run_until([&] {
      std::span<std::byte> slot;
      return at(kA).reserve(endpoint(kA, kB), max_slot(kA, kB), slot) == Status::kOk;
    }));
  }
}

// commit_part

TEST_P(ProviderContract, PartsArriveInTheirOrderWithTheRest) {
  make_world(2);
  connect_both(kA, kB);
  constexpr std::size_t kMessages = 1000;
  Pattern random(5);
  std::vector<std::size_t> lengths;
  const auto send_another = [&] {
    const std::size_t length = random.length_between(1, max_slot(kA, kB));
    const std::vector<std::byte> message = Pattern(lengths.size()).bytes(length);
    const bool is_part = random.next() % 4 != 0 && lengths.size() + 1 < kMessages;
    const Status status = is_part ? try_send_part(kA, kB, message) : try_send(kA, kB, message);
    if (status == Status::kOk) lengths.push_back(length);
    return status;
  };
  ASSERT_TRUE(run_until([&] {
    Status status = Status::kOk;
    while (status == Status::kOk && lengths.size() < kMessages) status = send_another();
    EXPECT_TRUE(status == Status::kOk || status == Status::kAgain) << status_name(status);
    return lengths.size() == kMessages;
  }));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == kMessages; }));
  for (std::size_t n = 0; n < kMessages; ++n)
    ASSERT_EQ(sink(kB).events[n].bytes, Pattern(n).bytes(lengths[n])) << n;
}

TEST_P(ProviderContract, APartThatNothingFollowsLeavesInTheNextPoll) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  ASSERT_EQ(try_send_part(kA, kB, Pattern(2).bytes(100)), Status::kOk);
  poll(kA);
  ASSERT_TRUE(gets_messages(kB, 2));
  EXPECT_EQ(sink(kB).events[1].bytes, Pattern(2).bytes(100));
}

TEST_P(ProviderContract, PartsLeaveWhenThereIsNoMoreRoom) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  send(kB, kA, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kA).events.size() == 1 && sink(kB).events.size() == 1; }));
  std::size_t sent = 1;
  // A provider that has room for as many as are sent here need not be full.
  while (sent < 5000 && try_send_part(kA, kB, Pattern(sent).bytes(max_slot(kA, kB))) == Status::kOk) ++sent;
  if (sent == 5000) poll(kA);
  // The first ones at least, since the rest may need acknowledgements, which A must see.
  ASSERT_TRUE(gets_messages(kB, 2));
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kMessage) == sent; }));
}

TEST_P(ProviderContract, TwoDirectionsAtOnce) {
  make_world(2);
  connect_both(kA, kB);
  constexpr std::size_t kMessages = 2000;
  std::size_t sent[2] = {};
  const auto length_of = [&](std::size_t n) { return 1 + n * 131 % max_slot(kA, kB); };
  ASSERT_TRUE(run_until([&] {
    for (const PeerId from : {kA, kB}) {
      std::size_t& n = sent[index_of(from)];
      while (n < kMessages && try_send(from, from == kA ? kB : kA,
                                       Pattern(n + index_of(from)).bytes(length_of(n))) == Status::kOk)
        ++n;
    }
    return sink(kA).events.size() == kMessages && sink(kB).events.size() == kMessages;
  }));
  for (std::size_t n = 0; n < kMessages; ++n) {
    ASSERT_EQ(sink(kB).events[n].bytes, Pattern(n).bytes(length_of(n)));
    ASSERT_EQ(sink(kA).events[n].bytes, Pattern(n + 1).bytes(length_of(n)));
  }
}

// write

TEST_P(ProviderWrites, WritesOfAllLengthsArriveWholeOnce) {
  make_world(2);
  connect_both(kA, kB);
  ASSERT_NO_FATAL_FAILURE(write_once());
  const std::size_t lengths[] = {0, 1, 7, 64, 4095, 4096, 4097, 100'000, (3u << 20) + 1};
  std::uint32_t id = 100;
  std::size_t parts = 0;
  for (const std::size_t length : lengths) {
    Region source = make_region(kA, length);
    Region target = make_region(kB, length + 16);
    Pattern(id).fill(source.bytes);
    sink(kA).events.clear();
    sink(kB).events.clear();
    ASSERT_EQ(write(kA, kB, source, length, target, id), Status::kOk) << length;
    ASSERT_TRUE(run_until([&] {
      return !sink(kA).events.empty() && !sink(kB).events.empty() && written_bytes(kB, id) >= length;
    })) << length;
    EXPECT_EQ(written_bytes(kB, id), length);
    for (const RecordingSink::Event& event : sink(kB).events) {
      EXPECT_EQ(event.kind, Kind::kWriteArrived);
      EXPECT_EQ(event.peer, kA);
      EXPECT_EQ(event.immediate, Immediate{id});
    }
    parts = sink(kB).events.size();
    ASSERT_EQ(sink(kA).events.size(), 1u);
    EXPECT_EQ(sink(kA).events[0].kind, Kind::kWriteDone);
    EXPECT_EQ(sink(kA).events[0].peer, kB);
    EXPECT_EQ(sink(kA).events[0].work, WorkId{id});
    EXPECT_EQ(sink(kA).events[0].status, Status::kOk);
    EXPECT_EQ(std::memcmp(source.bytes.data(), target.bytes.data(), length), 0) << length;
    for (std::size_t n = length; n < target.bytes.size(); ++n) EXPECT_EQ(target.bytes[n], std::byte{0});
    registrar(kA).deregister_memory(source.memory);
    registrar(kB).deregister_memory(target.memory);
    ++id;
  }
  run_a_while();
  EXPECT_EQ(sink(kA).events.size() + sink(kB).events.size(), 1 + parts) << "exactly once";
}

TEST_P(ProviderWrites, SlotsAndWritesMayBeMixed) {
  make_world(2);
  connect_both(kA, kB);
  ASSERT_NO_FATAL_FAILURE(write_once());
  constexpr std::uint32_t kRounds = 200;
  Region source = make_region(kA, 20'000);
  Region target = make_region(kB, 20'000);
  for (std::uint32_t n = 0; n < kRounds; ++n) {
    send(kA, kB, Pattern(2 * n).bytes(5));
    ASSERT_EQ(write(kA, kB, source, n * 100, target, n), Status::kOk);
    send(kA, kB, Pattern(2 * n + 1).bytes(5));
  }
  ASSERT_TRUE(run_until([&] {
    return sink(kB).count(Kind::kMessage) == 2 * kRounds && sink(kA).count(Kind::kWriteDone) == kRounds &&
           written_bytes(kB, kRounds - 1) == (kRounds - 1) * 100;
  }));
  for (std::uint32_t n = 0; n < kRounds; ++n) EXPECT_EQ(written_bytes(kB, n), n * 100) << n;
  std::uint32_t next = 0;
  for (const RecordingSink::Event& event : sink(kB).events)
    if (event.kind == Kind::kMessage) {
      ASSERT_EQ(event.bytes, Pattern(next++).bytes(5)) << "slots are in order";
    }
}

TEST_P(ProviderWrites, EveryWriteCompletesOnce) {
  make_world(2);
  connect_both(kA, kB);
  ASSERT_NO_FATAL_FAILURE(write_once());
  constexpr std::uint32_t kWrites = 3000;
  Region source = make_region(kA, 64);
  Region target = make_region(kB, 64);
  for (std::uint32_t n = 0; n < kWrites; ++n) ASSERT_EQ(write(kA, kB, source, 8, target, n), Status::kOk);
  std::size_t arrived = 0;
  ASSERT_TRUE(run_until([&] {
    if (sink(kA).count(Kind::kWriteDone) < kWrites || sink(kB).count(Kind::kWriteArrived) < kWrites)
      return false;
    arrived = 0;
    for (const RecordingSink::Event& event : sink(kB).events) arrived += event.length_bytes;
    return arrived >= std::size_t{8} * kWrites;
  }));
  EXPECT_EQ(arrived, std::size_t{8} * kWrites);
  std::vector<int> done(kWrites);
  for (const RecordingSink::Event& event : sink(kA).events) ++done.at(static_cast<std::size_t>(event.work));
  for (const int count : done) ASSERT_EQ(count, 1);
}

// poll

TEST_P(ProviderContract, PollKeepsToItsBudget) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  constexpr std::size_t kBefore = 500;  // Credit may grow with demand.
  constexpr std::size_t kSmallBudget = 4;
  for (std::size_t n = 0; n < kBefore; ++n) send(kA, kB, Pattern(n).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == kBefore; }));
  world_->settle();  // Acknowledgements that are on their way bring room.
  while (poll(kA) != 0) {
  }
  const std::size_t messages = kBefore + fill(kA, kB, 8);
  ASSERT_GT(messages, kBefore + 2 * kSmallBudget);
  world_->settle();
  std::size_t most = 0;
  for (int i = 0; i < 100'000 && sink(kB).events.size() < messages; ++i) {
    const std::size_t before = sink(kB).events.size();
    const std::size_t said = at(kB).poll(sink(kB), kSmallBudget);
    ASSERT_EQ(said, sink(kB).events.size() - before);
    most = std::max(most, said);
    poll(kA);
    world_->step();
  }
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, 3 * kSmallBudget);  // "About": what two ways deliver, and one that was held back.
  EXPECT_EQ(sink(kB).events.size(), messages);
}

TEST_P(ProviderContract, ABusyPeerDoesNotStarveAQuietOne) {
  make_world(3);
  ASSERT_TRUE(connect(kA, kC).ok());
  ASSERT_TRUE(connect(kB, kC).ok());
  ASSERT_TRUE(run_until([&] { return try_send(kA, kC, Pattern(1).bytes(8)) == Status::kOk; }));
  ASSERT_TRUE(run_until([&] { return try_send(kB, kC, Pattern(1).bytes(8)) == Status::kOk; }));
  ASSERT_TRUE(run_until([&] { return sink(kC).events.size() == 2; }));
  fill(kA, kC, 8);
  ASSERT_EQ(try_send(kB, kC, Pattern(2).bytes(9)), Status::kOk);
  bool heard = false;
  for (int i = 0; i < 20'000 && !heard; ++i) {  // A keeps its ring full all the time.
    while (try_send(kA, kC, Pattern(1).bytes(8)) == Status::kOk) {
    }
    poll(kA);
    poll(kB);
    at(kC).poll(sink(kC), 8);
    world_->step();
    heard = sink(kC).count(Kind::kMessage, kB) == 2;
  }
  EXPECT_TRUE(heard);
}

// on_peer_down

TEST_P(ProviderContract, DeathIsToldOnceAfterAllThatHadArrived) {
  make_world(3);
  connect_both(kA, kB);
  connect_both(kA, kC);
  const std::size_t sent = arrive_unseen();
  ASSERT_GT(sent, 1u);
  world_->kill(kB);
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  ASSERT_EQ(sink(kA).events.size(), sent + 1);
  EXPECT_EQ(sink(kA).events.back().kind, Kind::kPeerDown);
  EXPECT_EQ(sink(kA).events.back().peer, kB);
  EXPECT_EQ(sink(kA).events.back().status, Status::kPeerFailed);
  for (std::size_t n = 1; n < sent; ++n) EXPECT_EQ(sink(kA).events[n].bytes, Pattern(n).bytes(100));
  run_a_while();
  EXPECT_EQ(sink(kA).events.size(), sent + 1) << "once";

  expect_takes_nothing(kA, kB);
  send(kA, kC, Pattern(1).bytes(10));  // Nobody else notices.
  ASSERT_TRUE(run_until([&] { return sink(kC).count(Kind::kMessage) == 1; }));
  EXPECT_EQ(sink(kC).count(Kind::kPeerDown), 0u);
}

TEST_P(ProviderWrites, AWriteThatWasPostedIsAnsweredBeforeTheDeathIsTold) {
  for (const bool armed : {false, true}) {
    make_world(3);
    connect_both(kA, kB);
    connect_both(kC, kA);
    ASSERT_NO_FATAL_FAILURE(write_once());
    send(kC, kA, Pattern(1).bytes(8));
    ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kMessage) == 1; }));
    Region source = make_region(kA, 8);
    Region target = make_region(kB, 8);
    sink(kA).reaction = [&](const RecordingSink::Event&) {
      ASSERT_EQ(at(kA).write(endpoint(kA, kB), source.bytes.data(), 8, source.memory, remote(target),
                             Immediate{1}, WorkId{1}),
                Status::kOk);
      world_->kill(kB);
    };
    ASSERT_EQ(try_send(kC, kA, Pattern(1).bytes(8)), Status::kOk);
    if (armed) static_cast<void>(at(kA).arm());
    ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
    EXPECT_EQ(sink(kA).events.back().kind, Kind::kPeerDown);
    EXPECT_EQ(sink(kA).count(Kind::kWriteDone), 1u);
    sink(kA).reaction = nullptr;
  }
}

TEST_P(ProviderContract, DeathOfAPeerThatOnlySendsIsTold) {
  make_world(2);
  ASSERT_TRUE(connect(kB, kA).ok());
  send(kB, kA, Pattern(0).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kA).events.size() == 1; }));
  world_->kill(kB);
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  run_a_while();
  EXPECT_EQ(sink(kA).events.size(), 2u);
}

TEST_P(ProviderContract, DeathOfAPeerThatOnlyReceivesIsTold) {
  make_world(2);
  ASSERT_TRUE(connect(kA, kB).ok());
  send(kA, kB, Pattern(0).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  world_->kill(kB);
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  run_a_while();
  EXPECT_EQ(sink(kA).events.size(), 1u);
}

TEST_P(ProviderContract, ConnectingToADeadProcessFailsOrIsToldLater) {
  make_world(2);
  const std::string address = at(kB).local_address();
  world_->kill(kB);
  const Result<Endpoint*> result = at(kA).connect(kB, address);
  if (!result.ok()) {
    EXPECT_TRUE(result.error().status == Status::kPeerFailed || result.error().status == Status::kUnreachable)
        << status_name(result.error().status);
    EXPECT_FALSE(result.error().message.empty());
  } else {
    EXPECT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  }
}

// end

TEST_P(ProviderContract, WhoIsSaidToBeDeadIsHeardOutFirst) {
  make_world(3);
  connect_both(kA, kB);
  const std::size_t sent = arrive_unseen();
  ASSERT_GT(sent, 1u);
  world_->kill(kB);
  EXPECT_TRUE(at(kA).end(kB));
  EXPECT_FALSE(at(kA).end(kC)) << "it was never met";
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  ASSERT_EQ(sink(kA).events.size(), sent + 1);
  EXPECT_EQ(sink(kA).events.back().kind, Kind::kPeerDown);
  for (std::size_t n = 1; n < sent; ++n) EXPECT_EQ(sink(kA).events[n].bytes, Pattern(n).bytes(100));
  EXPECT_FALSE(at(kA).end(kB));
  run_a_while();
  EXPECT_EQ(sink(kA).events.size(), sent + 1) << "once";
}

TEST_P(ProviderContract, ALivingPeerCanBeEnded) {
  make_world(2);
  connect_both(kA, kB);
  send(kB, kA, Pattern(0).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kMessage) == 1; }));
  EXPECT_TRUE(at(kA).end(kB));
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  EXPECT_EQ(sink(kA).events.back().kind, Kind::kPeerDown);
  EXPECT_TRUE(run_until([&] { return sink(kB).count(Kind::kPeerDown) == 1; })) << "the other learns of it";
}

TEST_P(ProviderContract, TheEndpointOfAnEndedPeerTakesNothing) {
  make_world(2);
  connect_both(kA, kB);
  const std::string address = at(kB).local_address();
  send(kA, kB, Pattern(0).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kMessage) == 1; }));
  std::span<std::byte> slot;
  ASSERT_TRUE(run_until([&] { return at(kA).reserve(endpoint(kA, kB), 8, slot) == Status::kOk; }));
  ASSERT_TRUE(at(kA).end(kB));
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  expect_takes_nothing(kA, kB);
  const Result<Endpoint*> again = at(kA).connect(kB, address);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().status, Status::kPeerFailed);
  ASSERT_TRUE(run_until([&] { return sink(kB).count(Kind::kPeerDown) == 1; }));
  expect_takes_nothing(kB, kA);
}

TEST_P(ProviderContract, WhoIsForgottenIsGoneForEver) {
  make_world(3);
  connect_both(kA, kB);
  connect_both(kA, kC);
  const std::string address = at(kB).local_address();
  send(kA, kB, Pattern(0).bytes(10));
  send(kB, kA, Pattern(0).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kMessage) == 1; }));
  world_->kill(kB);
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  ASSERT_TRUE(run_until([&] { return at(kA).forget(kB); }));
  EXPECT_TRUE(at(kA).forget(kB));
  EXPECT_FALSE(at(kA).end(kB));
  const Result<Endpoint*> again = at(kA).connect(kB, address);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().status, Status::kPeerFailed);
  run_a_while();
  EXPECT_EQ(sink(kA).count(Kind::kPeerDown), 1u);
  send(kA, kC, Pattern(1).bytes(10));
  ASSERT_TRUE(run_until([&] { return sink(kC).count(Kind::kMessage) == 1; }));
}

TEST_P(ProviderContract, WhoWasEndedBeforeTheyMetIsRefused) {
  make_world(2);
  EXPECT_FALSE(at(kA).end(kB));
  const Result<Endpoint*> result = at(kB).connect(kA, at(kA).local_address());
  if (result.ok()) {
    EXPECT_TRUE(run_until([&] { return sink(kB).count(Kind::kPeerDown) == 1; }));
  } else {
    EXPECT_EQ(result.error().status, Status::kPeerFailed) << result.error().message;
  }
  EXPECT_FALSE(at(kA).connect(kB, at(kB).local_address()).ok());
  run_a_while();
  EXPECT_TRUE(sink(kA).events.empty());
}

// arm, disarm, descriptor

TEST_P(ProviderSleep, ASleeperIsWokenByAMessage) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  sink(kB).events.clear();
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(put_to_sleep(kB)) << "an idle provider must come to rest";
    send(kA, kB, Pattern(round).bytes(8));
    // run_until inside send() polls B only when A had no room, which is never here after round 0.
    if (sink(kB).events.size() == static_cast<std::size_t>(round)) {
      ASSERT_TRUE(readable(at(kB).descriptor(), kWaitMs)) << round;
    }
    at(kB).disarm();
    ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == static_cast<std::size_t>(round) + 1; }));
  }
}

TEST_P(ProviderSleep, ASleeperIsWokenByANewConnection) {
  make_world(2);
  ASSERT_TRUE(put_to_sleep(kB));
  ASSERT_TRUE(connect(kA, kB).ok());
  for (int i = 0; i < 1000 && try_send(kA, kB, Pattern(1).bytes(8)) == Status::kAgain; ++i) poll(kA);
  ASSERT_TRUE(readable(at(kB).descriptor(), kWaitMs));
}

TEST_P(ProviderSleep, APartLeavesBeforeItsSenderSleeps) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  send(kB, kA, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kA).events.size() == 1 && sink(kB).events.size() == 1; }));
  ASSERT_EQ(try_send_part(kA, kB, Pattern(2).bytes(100)), Status::kOk);
  static_cast<void>(at(kA).arm());
  ASSERT_TRUE(gets_messages(kB, 2));
  // Another thread sends while the one that has armed sleeps, and the rest finds no room.
  ASSERT_EQ(try_send_part(kA, kB, Pattern(3).bytes(100)), Status::kOk);
  ASSERT_TRUE(gets_messages(kB, 3));
  at(kA).disarm();
}

TEST_P(ProviderSleep, ASleeperIsWokenByADeath) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  send(kB, kA, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kA).events.size() == 1 && sink(kB).events.size() == 1; }));
  ASSERT_TRUE(put_to_sleep(kA));
  world_->kill(kB);
  ASSERT_TRUE(readable(at(kA).descriptor(), kWaitMs));
  at(kA).disarm();
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kPeerDown) == 1; }));
  EXPECT_TRUE(put_to_sleep(kA)) << "a dead peer must not keep the descriptor readable";
}

TEST_P(ProviderSleep, ASleeperIsWokenWhenThereIsRoomAgain) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  for (int round = 0; round < 20; ++round) {
    const std::size_t length = round % 2 == 0 ? 8 : max_slot(kA, kB);
    ASSERT_TRUE(put_full_to_sleep(kA, kB, length, length));
    const std::vector<std::byte> message = Pattern(1).bytes(8);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (!readable(at(kA).descriptor(), 0)) {
      poll(kB);
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "nobody woke the sender; round " << round;
    }
    at(kA).disarm();
    while (poll(kB) != 0) {
    }
    ASSERT_TRUE(run_until([&] { return try_send(kA, kB, message) == Status::kOk; }));
  }
}

TEST_P(ProviderSleep, ASleeperIsWokenForRoomThatWasLackedDuringTheSleep) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(put_to_sleep(kA));
    fill(kA, kB, round % 2 == 0 ? 8 : max_slot(kA, kB));  // Another thread's sends.
    ASSERT_TRUE(readable_while_drained(kA, kB)) << "nobody woke the sender; round " << round;
    at(kA).disarm();
    while (poll(kB) != 0) {
    }
  }
}

TEST_P(ProviderSleep, AWakeUpThatBringsTooLittleRoomIsFollowedByAnother) {
  make_world(2);
  connect_both(kA, kB);
  send(kA, kB, Pattern(1).bytes(8));
  ASSERT_TRUE(run_until([&] { return sink(kB).events.size() == 1; }));
  Pattern random(9);
  const auto has_room = [&] {
    std::span<std::byte> slot;
    return at(kA).reserve(endpoint(kA, kB), max_slot(kA, kB), slot) == Status::kOk;
  };
  for (int round = 0; round < 40; ++round) {
    // Wake-ups come at certain places of the ring: begin anywhere.
    for (std::size_t n = random.length_between(0, 300); n > 0; --n) send(kA, kB, Pattern(n).bytes(8));
    while (poll(kB) != 0) {
    }
    ASSERT_TRUE(put_full_to_sleep(kA, kB, 8, max_slot(kA, kB)));
    for (bool room = false; !room;) {
      ASSERT_TRUE(readable_while_drained(kA, kB)) << "nobody woke the sender; round " << round;
      // Another thread's look takes the wake-up; the sleeper sleeps on. With and without a try to send.
      room = poll(kA) != 0;
      ASSERT_TRUE(!room || has_room());
      if (round % 2 == 0) room = room || has_room();
    }
    at(kA).disarm();
    while (poll(kB) != 0) {
    }
  }
}

TEST_P(ProviderSleepWithWrites, ASleeperIsWokenByAWriteThatWasPostedDuringTheSleep) {
  make_world(2);
  connect_both(kA, kB);
  ASSERT_NO_FATAL_FAILURE(write_once());
  Region source = make_region(kA, 8);
  Region target = make_region(kB, 8);
  ASSERT_TRUE(put_to_sleep(kA));
  ASSERT_EQ(at(kA).write(endpoint(kA, kB), source.bytes.data(), 8, source.memory, remote(target),
                         Immediate{1}, WorkId{1}),
            Status::kOk);  // Another thread's.
  poll(kB);                // A network may need the other side for that.
  ASSERT_TRUE(readable(at(kA).descriptor(), kWaitMs));
  at(kA).disarm();
  ASSERT_TRUE(run_until([&] { return sink(kA).count(Kind::kWriteDone) == 1; }));
}

/// Two threads that sleep whenever they find nothing: every lost wake-up is a time-out.
TEST_P(ProviderSleep, NoWakeUpIsLost) {
  make_world(2);
  connect_both(kA, kB);
  constexpr std::uint32_t kMessages = 4000;
  std::atomic<bool> failed{false};
  std::atomic<int> finished{0};
  // Having received n, a side may have sent at least n + 1: nobody waits for ever. A burst now and then
  // fills the ring.
  const auto side = [&](PeerId self, PeerId other) {
    std::uint32_t sent = 0;
    Pattern random(index_of(self) + 1);
    const auto received = [&] { return sink(self).count(Kind::kMessage); };
    std::size_t have = 0;
    while ((sent < kMessages || have < kMessages) && !failed) {
      bool worked = false;
      while (sent < kMessages && sent < have + 1 + random.next() % 64) {
        if (try_send(self, other, Pattern(sent).bytes(1 + sent * 61 % max_slot(self, other))) != Status::kOk)
          break;
        ++sent;
        worked = true;
      }
      if (poll(self) != 0) {
        have = received();
        worked = true;
      }
      if (worked || (sent >= kMessages && have >= kMessages)) continue;
      // Nothing came, and what may be sent was sent or had no room.
      if (at(self).arm() && poll(self) == 0) {
        if (!readable(at(self).descriptor(), kWaitMs) && !failed.exchange(true))
          ADD_FAILURE() << "slept " << kWaitMs << " ms; sent " << sent << " received " << have;
      }
      at(self).disarm();
      have = received();
    }
    ++finished;
    while (finished < 2 && !failed) poll(self);  // What it has sent may need it to leave.
  };
  std::thread side_of_b(side, kB, kA);
  side(kA, kB);
  side_of_b.join();
  ASSERT_FALSE(failed);
  for (const auto& [self, other] : {std::pair(kA, kB), std::pair(kB, kA)}) {
    ASSERT_EQ(sink(self).events.size(), kMessages);
    for (std::uint32_t n = 0; n < kMessages; ++n)
      ASSERT_EQ(sink(self).events[n].bytes, Pattern(n).bytes(1 + n * 61 % max_slot(other, self))) << n;
  }
}

}  // namespace ch3_offload
