// Peers that know the job's secret and lie, send what is no record, or end in the middle of one.

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>

#include "rdma/seeded_random.h"
#include "rdma/tcp/hostile_tcp_fixture.h"

namespace ch3_offload {
namespace {

using Bytes = std::vector<std::byte>;

Bytes joined(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Introductions

TEST_F(TcpPeersThatLie, WhoIsNoPeerIsTurnedAway) {
  struct Case {
    const char* what;
    std::function<void(TcpHello&)> change;
  };
  const std::vector<Case> cases = {
      {"receiver", [](TcpHello& hello) { hello.receiver = 1; }},
      {"receiver's instance", [](TcpHello& hello) { ++hello.receiver_instance; }},
      {"sender's instance", [](TcpHello& hello) { ++hello.sender_instance; }},
      {"sender is the receiver", [](TcpHello& hello) { hello.sender = 0; }},
      {"sender's number", [](TcpHello& hello) { hello.sender = UINT32_MAX; }},
      {"first number that is too great", [](TcpHello& hello) { hello.sender = 1u << 20; }},
      {"another generation", [](TcpHello& hello) { hello.sender |= 1u << 20; }},
      {"address", [](TcpHello& hello) { hello.address[0] = 'x'; }},
      {"version of the address", [](TcpHello& hello) { hello.address[4] = '2'; }},
      {"no address", [](TcpHello& hello) { hello.address = {}; }},
  };
  make(2);
  for (const Case& one : cases) {
    const Peer peer = make_hostile();
    peer->dial(at(0).local_address());
    Frame frame = peer->hello(PeerId{0});
    one.change(frame.as<TcpHello>());
    peer->send(frame);
    const std::optional<Frame> reply = answer(*peer);
    ASSERT_TRUE(reply) << one.what;
    EXPECT_EQ(reply->kind, FrameKind::kRefuse) << one.what;
    EXPECT_EQ(reply->as<RefuseBody>().reason, static_cast<std::uint32_t>(Refusal::kStranger)) << one.what;
    EXPECT_FALSE(answer(*peer)) << one.what;
  }
  EXPECT_TRUE(sink(0).events.empty());
  EXPECT_EQ(world_->lines.size(), 1u) << "nobody fills the log from outside";
  const Peer real = make_dialled();  // The real one is not harmed.
  real->send(slot_bytes(Pattern(1).bytes(10)));
  ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kMessage, PeerId{kHostile}) == 1; }));
  expect_bystander_unharmed();
}

TEST_F(TcpPeersThatLie, AnAddressWithoutAnEndIsMalformed) {
  make(2);
  const Peer peer = make_hostile();
  peer->dial(at(0).local_address());
  Frame frame = peer->hello(PeerId{0});
  frame.as<TcpHello>().address.fill('1');
  peer->send(frame);
  EXPECT_FALSE(answer(*peer));
  EXPECT_EQ(lines_with("malformed"), 1u);
  expect_bystander_unharmed();
}

TEST_F(TcpPeersThatLie, WhoHasAnotherNameOrInstanceThanBeforeIsTurnedAway) {
  make(2);
  const Peer known = make_hostile();
  connect(0, kHostile, known->address.to_string());  // It never answers.
  const std::function<void(HostileTcpPeer&, TcpHello&)> changes[] = {
      [](HostileTcpPeer&, TcpHello& hello) { hello.own = 77; },
      [](HostileTcpPeer&, TcpHello& hello) { hello.known_as = 77; },
      [](HostileTcpPeer& peer, TcpHello& hello) {
        ++peer.address.instance;
        hello.sender_instance = peer.address.instance;
        std::ranges::copy(peer.address.to_string(), hello.address.begin());
      },
  };
  for (const auto& change : changes) {
    const Peer peer = make_hostile();
    peer->dial(at(0).local_address());
    Frame frame = peer->hello(PeerId{0});
    change(*peer, frame.as<TcpHello>());
    peer->send(frame);
    const std::optional<Frame> reply = answer(*peer);
    ASSERT_TRUE(reply);
    ASSERT_EQ(reply->kind, FrameKind::kRefuse);
    EXPECT_EQ(reply->as<RefuseBody>().reason, static_cast<std::uint32_t>(Refusal::kStranger));
  }
  expect_bystander_unharmed();
}

TEST_F(TcpPeersThatLie, WhoAnswersAsAnotherIsNotThePeer) {
  const std::function<void(TcpHello&)> changes[] = {
      [](TcpHello& hello) { hello.sender = 1; },   [](TcpHello& hello) { ++hello.sender_instance; },
      [](TcpHello& hello) { hello.receiver = 1; }, [](TcpHello& hello) { ++hello.receiver_instance; },
      [](TcpHello& hello) { hello.own = 77; },     [](TcpHello& hello) { hello.known_as = 77; },
  };
  for (const auto& change : changes) {
    make(2);
    const Peer peer = make_hostile();
    connect(0, kHostile, peer->address.to_string());
    peer->target_instance = TcpAddress::parse(at(0).local_address())->instance;
    ASSERT_TRUE(run_until([&] { return peer->accept(); }));
    expect_answer(*peer, FrameKind::kHello);
    Frame frame = peer->hello(PeerId{0});
    change(frame.as<TcpHello>());
    peer->send(frame);
    expect_down(Status::kPeerFailed, 0);
    expect_bystander_unharmed();
  }
}

// Records that are wrong

struct WrongRecord {
  const char* what;
  std::function<Bytes()> bytes;
};

TEST_F(TcpPeersThatLie, WhoSendsWhatIsNoRecordIsCutOff) {
  const Bytes payload = Pattern(1).bytes(100);
  const auto record = [&](std::uint32_t length, std::uint8_t kind, std::size_t byte = 3) {
    TcpRecord wrong = make_tcp_record(length, static_cast<TcpRecordKind>(kind));
    if (byte < 3) wrong.check[byte] ^= 1;
    return bytes_of(wrong, payload);
  };
  const std::uint32_t slot = static_cast<std::uint32_t>(patient_tcp_config().slot_bytes);
  const std::vector<WrongRecord> cases = {
      {"kind 0", [&] { return record(100, 0); }},
      {"kind that is the end", [&] { return record(100, static_cast<std::uint8_t>(TcpRecordKind::kEnd)); }},
      {"kind 255", [&] { return record(100, 255); }},
      {"all zeros", [&] { return Bytes(100); }},
      {"all ones", [&] { return Bytes(100, std::byte{255}); }},
      {"a welcome when none is due", [&] { return record(0, 1); }},
      {"a long welcome", [&] { return record(100, 1); }},
      {"a check with a wrong byte 0", [&] { return record(100, 2, 0); }},
      {"a check with a wrong byte 1", [&] { return record(100, 2, 1); }},
      {"a check with a wrong byte 2", [&] { return record(100, 2, 2); }},
      {"a write's wrong check", [&] { return record(100, 3, 0); }},
      {"a message of nothing", [&] { return record(0, 2); }},
      {"a message that is too long by one", [&] { return record(slot + 1, 2); }},
      {"a message of the greatest length", [&] { return record(UINT32_MAX, 2); }},
      {"a part of a write that is too long by one", [&] { return record(kMostTcpPartBytes + 1, 3); }},
      {"a part of a write of the greatest length", [&] { return record(UINT32_MAX, 3); }},
  };
  for (const WrongRecord& one : cases) {
    SCOPED_TRACE(one.what);
    make(2);
    const Peer peer = make_dialled();
    const Bytes message = Pattern(2).bytes(20);
    peer->send(joined(slot_bytes(message), one.bytes()));
    ASSERT_NO_FATAL_FAILURE(expect_violation());
    ASSERT_EQ(sink(0).events.size(), 2u) << "what came before is delivered";
    EXPECT_EQ(sink(0).events[0].bytes, message);
    EXPECT_EQ(at(0).counters().network_connections, 0u);
    expect_bystander_unharmed();
  }
}

/// Of a network that damages what it carries.
TEST(TcpFrames, EveryBitOfAHeaderIsChecked) {
  const TcpWriteRecord write = sealed({.record = {4096, TcpRecordKind::kWrite, {}},
                                       .immediate = 17,
                                       .remote_key = 0x1'0000'0003,
                                       .address = 0x7f12'3456'7890});
  ASSERT_TRUE(is_sound(write.record) && write.check == check_of(write));
  for (std::size_t bit = 0; bit < 8 * sizeof write; ++bit) {
    std::array<std::byte, sizeof write> bytes;
    std::memcpy(bytes.data(), &write, sizeof write);
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    TcpWriteRecord damaged;
    std::memcpy(&damaged, bytes.data(), sizeof damaged);
    EXPECT_FALSE(is_sound(damaged.record) && damaged.check == check_of(damaged)) << bit;
    if (bit < 8 * sizeof write.record) EXPECT_FALSE(is_sound(damaged.record)) << bit;
  }
}

TEST_F(TcpPeersThatLie, GarbageIsCutOff) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    make(2);
    const Peer peer = make_dialled();
    SeededRandom random(seed);
    peer->send(Pattern(seed).bytes(random.between(8, 10'000)));
    ASSERT_NO_FATAL_FAILURE(expect_violation());
    EXPECT_EQ(sink(0).events.size(), 1u);
  }
}

TEST_F(TcpPeersThatLie, WhoWritesWhereItMayNotIsCutOffAndNothingIsWritten) {
  constexpr std::size_t kLength = 100;
  struct Memory {
    Region writable, readable, old;
  };
  struct Case {
    const char* what;
    std::function<void(TcpWriteRecord&, const Memory&)> change;
  };
  const std::vector<Case> cases = {
      {"a key that nobody has", [](TcpWriteRecord& write, const Memory&) { write.remote_key += 77; }},
      {"another life",
       [](TcpWriteRecord& write, const Memory&) { write.remote_key += std::uint64_t{1} << 32; }},
      {"no key", [](TcpWriteRecord& write, const Memory&) { write.remote_key = UINT64_MAX; }},
      {"an old key",
       [](TcpWriteRecord& write, const Memory& memory) { write.remote_key = memory.old.key(); }},
      {"memory to read from",
       [](TcpWriteRecord& write, const Memory& memory) {
         write.remote_key = memory.readable.key();
         write.address = memory.readable.address();
       }},
      {"before the memory", [](TcpWriteRecord& write, const Memory&) { --write.address; }},
      {"behind the memory", [](TcpWriteRecord& write, const Memory&) { ++write.address; }},
      {"far behind", [](TcpWriteRecord& write, const Memory&) { write.address += kLength; }},
      {"address 0", [](TcpWriteRecord& write, const Memory&) { write.address = 0; }},
      {"an address that overflows",
       [](TcpWriteRecord& write, const Memory&) { write.address = UINT64_MAX - 50; }},
      {"too long", [](TcpWriteRecord& write, const Memory&) { write.record.length_bytes = kLength + 1; }},
      {"nothing, outside",
       [](TcpWriteRecord& write, const Memory&) {
         write.address += kLength + 1;
         write.record.length_bytes = 0;
       }},
      {"nothing, with a key that nobody has",
       [](TcpWriteRecord& write, const Memory&) {
         write.remote_key += 77;
         write.record.length_bytes = 0;
       }},
      {"a wrong check", nullptr},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    make(2);
    const Peer peer = make_dialled();
    Memory memory{.writable = make_region(0, kLength),
                  .readable = make_region(0, kLength, Access::kRead),
                  .old = make_region(0, kLength)};
    at(0).deregister_memory(memory.old.memory);
    TcpWriteRecord write{.record = {kLength, TcpRecordKind::kWrite, {}},
                         .immediate = 1,
                         .remote_key = memory.writable.key(),
                         .address = memory.writable.address()};
    if (one.change) one.change(write, memory);
    write = sealed(write);
    if (!one.change) ++write.check;
    peer->send(bytes_of(write, Bytes(kLength, std::byte{0xEE})));
    ASSERT_NO_FATAL_FAILURE(expect_violation());
    EXPECT_EQ(sink(0).count(Kind::kWriteArrived), 0u);
    for (const Region* const region : {&memory.writable, &memory.readable, &memory.old})
      EXPECT_EQ(region->bytes, Bytes(kLength));
    expect_bystander_unharmed();
  }
}

TEST_F(TcpPeersThatLie, AnAcceptorThatDoesNotBeginWithItsWelcomeIsCutOff) {
  const std::vector<WrongRecord> cases = {
      {"a message", [] { return slot_bytes(Pattern(1).bytes(10)); }},
      {"a write",
       [] {
         return bytes_of(sealed({.record = {0, TcpRecordKind::kWrite, {}}}));
       }},
      {"a long welcome", [] { return bytes_of(make_tcp_record(1, TcpRecordKind::kWelcome)); }},
      {"a wrong check",
       [] {
         TcpRecord welcome = make_tcp_record(0, TcpRecordKind::kWelcome);
         welcome.check[2] ^= 1;
         return bytes_of(welcome);
       }},
      {"zeros", [] { return Bytes(8); }},
      {"two welcomes",
       [] {
         const Bytes one = bytes_of(make_tcp_record(0, TcpRecordKind::kWelcome));
         return joined(one, one);
       }},
  };
  for (const WrongRecord& one : cases) {
    SCOPED_TRACE(one.what);
    make(2);
    const Peer peer = make_acceptor();
    peer->send(one.bytes());
    ASSERT_NO_FATAL_FAILURE(expect_violation());
    EXPECT_EQ(sink(0).events.size(), 1u);
    expect_bystander_unharmed();
  }
}

TEST_F(TcpPeersThatLie, WhoWasCutOffIsNotMetAgain) {
  make(2);
  const Peer peer = make_dialled();
  peer->send(Bytes(8));
  ASSERT_NO_FATAL_FAILURE(expect_violation());
  const Result<Endpoint*> again = at(0).connect(PeerId{kHostile}, peer->address.to_string());
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().status, Status::kPeerFailed);
  peer->dial(at(0).local_address());
  peer->send(peer->hello(PeerId{0}));
  expect_answer(*peer, FrameKind::kRefuse);
  EXPECT_EQ(sink(0).count(Kind::kPeerDown), 1u);
}

// Records in pieces

class TcpPieces : public TcpPeersThatLie {
 protected:
  static constexpr std::size_t kTarget = 40;
  void begin() {
    make(2);
    peer_ = make_dialled();
    target_ = make_region(0, kTarget);
  }
  /// A message, a part of a write, and a message.
  Bytes records(std::uint64_t seed) {
    const TcpWriteRecord write = sealed({.record = {kTarget, TcpRecordKind::kWrite, {}},
                                         .immediate = static_cast<std::uint32_t>(seed),
                                         .remote_key = target_.key(),
                                         .address = target_.address()});
    Bytes bytes = slot_bytes(Pattern(seed).bytes(20));
    bytes = joined(bytes, bytes_of(write, Pattern(seed + 1).bytes(kTarget)));
    return joined(bytes, slot_bytes(Pattern(seed + 2).bytes(1)));
  }
  void send(std::span<const std::byte> bytes) {
    peer_->send(bytes);
    for (int i = 0; i < 3; ++i) poll_now(0);
  }
  void expect_all(std::uint64_t seed) {
    auto& events = sink(0).events;
    ASSERT_TRUE(run_until([&] { return events.size() >= 3; }));
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].bytes, Pattern(seed).bytes(20));
    ASSERT_EQ(events[1].kind, Kind::kWriteArrived);
    EXPECT_EQ(events[1].immediate, Immediate{static_cast<std::uint32_t>(seed)});
    EXPECT_EQ(events[1].length_bytes, kTarget);
    EXPECT_EQ(target_.bytes, Pattern(seed + 1).bytes(kTarget));
    EXPECT_EQ(events[2].bytes, Pattern(seed + 2).bytes(1));
    events.clear();
  }

  Peer peer_;
  Region target_;
};

TEST_F(TcpPieces, CutAtAnyByteRecordsAreDelivered) {
  begin();
  const std::size_t length = records(1).size();
  for (std::size_t cut = 1; cut < length; ++cut) {
    SCOPED_TRACE(cut);
    const std::uint64_t seed = 10 * cut;
    const Bytes bytes = records(seed);
    send(std::span(bytes).first(cut));
    send(std::span(bytes).subspan(cut));
    ASSERT_NO_FATAL_FAILURE(expect_all(seed));
  }
  expect_bystander_unharmed();
}

TEST_F(TcpPieces, ByteByByteRecordsAreDelivered) {
  begin();
  const Bytes bytes = records(1);
  for (const std::byte& byte : bytes) send({&byte, 1});
  ASSERT_NO_FATAL_FAILURE(expect_all(1));
}

TEST_F(TcpPieces, AWelcomeByteByByteIsHeard) {
  make(2);
  peer_ = make_acceptor();
  ASSERT_EQ(try_send(0, kHostile, Pattern(3).bytes(5)), Status::kOk);
  const Bytes bytes = bytes_of(make_tcp_record(0, TcpRecordKind::kWelcome));
  for (const std::byte& byte : bytes) {
    EXPECT_FALSE(peer_->receive_bytes(1)) << "nothing is said before the welcome";
    send({&byte, 1});
  }
  EXPECT_EQ(answer_bytes(*peer_, 13), slot_bytes(Pattern(3).bytes(5)));
}

TEST_F(TcpPieces, AConnectionThatEndsWithinARecordIsAPeerThatFailed) {
  for (const bool resets : {false, true}) {
    begin();
    const std::size_t length = records(1).size();
    for (std::size_t cut = 0; cut <= length; ++cut) {
      SCOPED_TRACE(cut);
      begin();
      const Bytes bytes = records(7);
      send(std::span(bytes).first(cut));
      peer_->close(resets);
      ASSERT_NO_FATAL_FAILURE(expect_down(Status::kPeerFailed, 0));
      const std::size_t whole = (cut < 28 ? 0u : 1u) + (cut < 28 + 72 ? 0u : 1u) + (cut < length ? 0u : 1u);
      EXPECT_EQ(sink(0).events.size(), whole + 1) << "what had come is delivered, and no more";
      EXPECT_EQ(at(0).counters().network_connections_lost, 1u);
    }
    expect_bystander_unharmed();
  }
}

TEST_F(TcpPieces, AConnectionThatEndsWithinALongPartIsAPeerThatFailed) {
  make(2);
  peer_ = make_dialled();
  Region target = make_region(0, kMostTcpPartBytes);
  const TcpWriteRecord write = sealed({.record = {kMostTcpPartBytes, TcpRecordKind::kWrite, {}},
                                       .remote_key = target.key(),
                                       .address = target.address()});
  send(bytes_of(write, Bytes(50'000, std::byte{1})));
  ASSERT_TRUE(run_until([&] { return target.bytes[49'999] == std::byte{1}; }));
  peer_->close();
  ASSERT_NO_FATAL_FAILURE(expect_down(Status::kPeerFailed, 0));
  EXPECT_EQ(sink(0).count(Kind::kWriteArrived), 0u);
}

TEST_F(TcpPieces, MemoryThatIsTakenBackWithinAPartIsNotWrittenToAnyMore) {
  for (const std::size_t here : {std::size_t{0}, std::size_t{1}, std::size_t{400}, std::size_t{999}}) {
    SCOPED_TRACE(here);
    make(2);
    peer_ = make_dialled();
    Region target = make_region(0, 1000);
    const TcpWriteRecord write = sealed({.record = {1000, TcpRecordKind::kWrite, {}},
                                         .remote_key = target.key(),
                                         .address = target.address()});
    const Bytes bytes = bytes_of(write, Bytes(1000, std::byte{1}));
    send(std::span(bytes).first(sizeof write + here));
    ASSERT_TRUE(run_until([&] { return here == 0 || target.bytes[here - 1] == std::byte{1}; }));
    run_a_while();  // With no byte of the part, nothing shows that its header has come.
    at(0).deregister_memory(target.memory);
    std::ranges::fill(target.bytes, std::byte{0xC3});
    send(std::span(bytes).subspan(sizeof write + here));
    ASSERT_NO_FATAL_FAILURE(expect_violation());
    EXPECT_EQ(target.bytes, Bytes(1000, std::byte{0xC3}));
    EXPECT_EQ(sink(0).count(Kind::kWriteArrived), 0u);
    expect_bystander_unharmed();
  }
}

// A flood

/// Holds each message. Expects those of the hostile peer to be numbered.
class HoldingSink final : public Sink {
 public:
  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    ++of_this_poll;
    if (peer != PeerId{5}) {
      ++of_others;
      return Delivery::kHeld;
    }
    std::uint64_t number = 0;
    std::memcpy(&number, message.data(), sizeof number);
    is_in_order &= number == messages++;
    return Delivery::kHeld;
  }
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
  void on_write_done(PeerId, WorkId, Status) noexcept override {}
  void on_peer_down(PeerId peer, Status) noexcept override { down |= 1u << index_of(peer); }

  std::uint64_t messages = 0;
  std::uint64_t of_this_poll = 0;
  std::uint64_t of_others = 0;  ///< Messages.
  std::uint32_t down = 0;       ///< Bit n: process n.
  bool is_in_order = true;
};

class TcpFlood : public TcpPeersThatLie {
 protected:
  static constexpr std::size_t kMessageBytes = 256;

  /// The socket is full of small messages, as far as `most` allows.
  void flood(const HostileTcpPeer& peer, std::uint64_t most = UINT64_MAX) {
    for (;;) {
      if (rest_.empty()) {
        if (begun_ == most) return;
        Bytes message(kMessageBytes);
        std::memcpy(message.data(), &begun_, sizeof begun_);
        ++begun_;
        rest_ = slot_bytes(message);
      }
      rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(peer.send_some(rest_)));
      if (!rest_.empty()) return;
    }
  }
  void poll_holding() {
    flood_.of_this_poll = 0;
    at(0).poll(flood_, kBudget);
    ASSERT_LE(flood_.of_this_poll, 1u) << "a message that is held is the last of its poll";
  }
  static std::size_t resident_bytes() {
    std::size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }
  /// Until `done()`, with the socket always full.
  template <class Condition>
  bool flood_until(const HostileTcpPeer& peer, Condition done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      flood(peer);
      poll_holding();
      if (world_->alive(PeerId{1})) poll(1);
    }
    return true;
  }

  HoldingSink flood_;
  Bytes rest_;  ///< Of the message that has begun to leave.
  std::uint64_t begun_ = 0;
};

TEST_F(TcpFlood, ASinkThatHoldsGetsOneMessageOfAPollAndMemoryStaysBounded) {
  constexpr std::uint64_t kMessages = (std::uint64_t{64} << 20) / (kMessageBytes + sizeof(TcpRecord));
  make(2);
  const Peer peer = make_dialled();
  const std::size_t before_bytes = resident_bytes();
  while (flood_.messages < kMessages) {
    flood(*peer, kMessages);
    for (int i = 0; i < 500; ++i) ASSERT_NO_FATAL_FAILURE(poll_holding());
  }
  EXPECT_TRUE(flood_.is_in_order);
  EXPECT_EQ(flood_.messages, kMessages);
  EXPECT_EQ(flood_.down, 0u);
#if !defined(WITH_ADDRESS_SANITIZER) && !defined(WITH_THREAD_SANITIZER)  // They keep what was freed.
  EXPECT_LT(resident_bytes(), before_bytes + (std::size_t{16} << 20));
#else
  static_cast<void>(before_bytes);
#endif
}

TEST_F(TcpFlood, APeerThatFloodsCanBeEnded) {
  make(2);
  const Peer peer = make_dialled();
  ASSERT_TRUE(flood_until(*peer, [&] { return flood_.messages >= 1000; }));
  EXPECT_TRUE(at(0).end(PeerId{kHostile}));
  EXPECT_TRUE(flood_until(*peer, [&] { return (flood_.down & 1u << kHostile) != 0; }));
  EXPECT_TRUE(flood_.is_in_order);
  expect_bystander_unharmed();
}

TEST_F(TcpFlood, AnotherPeerCanBeEndedMeanwhile) {
  make(2);
  const Peer peer = make_dialled();
  establish(0, 1);
  ASSERT_TRUE(flood_until(*peer, [&] { return flood_.messages >= 1000; }));
  EXPECT_TRUE(at(0).end(PeerId{1}));
  EXPECT_TRUE(flood_until(*peer, [&] { return (flood_.down & 1u << 1) != 0; }));
  EXPECT_EQ(flood_.down & 1u << kHostile, 0u);
}

TEST_F(TcpFlood, AnotherPeerIsHeardMeanwhile) {
  make(3);
  const Peer peer = make_dialled();
  establish(0, 1);
  establish(0, 2);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    for (const std::uint32_t other : {1u, 2u})
      ASSERT_EQ(try_send(other, 0, Pattern(round).bytes(10)), Status::kOk);
    ASSERT_TRUE(flood_until(*peer, [&] { return flood_.of_others == 2 * round; })) << round;
  }
}

TEST_F(TcpFlood, TheDeathOfAnotherPeerIsToldMeanwhile) {
  make(2);
  const Peer peer = make_dialled();
  establish(0, 1);
  ASSERT_TRUE(flood_until(*peer, [&] { return flood_.messages >= 1000; }));
  world_->kill(PeerId{1});
  EXPECT_TRUE(flood_until(*peer, [&] { return (flood_.down & 1u << 1) != 0; }));
  EXPECT_EQ(flood_.down & 1u << kHostile, 0u);
}

}  // namespace
}  // namespace ch3_offload
