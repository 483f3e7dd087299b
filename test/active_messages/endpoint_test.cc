// Endpoints: each function of ch3_offload_am.h and its codes, order, room, answers and death.

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "active_messages/endpoint_world.h"
#include "active_messages/inbox.h"
#include "active_messages/message.h"
#include "active_messages/send_stream.h"

namespace ch3_offload::active_messages {
namespace {

using portals::Driver;
using portals::driver_name;
using portals::world;

class AmEndpoint : public portals::PortalsTest {};
PORTALS_INSTANTIATE(AmEndpoint);

void ignore(void*, ch3_offload_am_message_t*, ch3_offload_am_reader_t*) {}

// Open, close, address.

TEST_P(AmEndpoint, OpensAndCloses) {
  ch3_offload_am_t* am = nullptr;
  ASSERT_EQ(ch3_offload_am_open(nullptr, nullptr, &am), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_close(am), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_open(nullptr, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_close(nullptr), CH3_OFFLOAD_AM_INVALID);
}

TEST_P(AmEndpoint, OpensNowhereWithoutANetwork) {
  ch3_offload_am_t* am = nullptr;
  world.failure = Status::kDeviceFailed;
  EXPECT_EQ(ch3_offload_am_open(nullptr, nullptr, &am), CH3_OFFLOAD_AM_FAIL);
  EXPECT_EQ(am, nullptr);
}

TEST_P(AmEndpoint, OpensNowhereWhereMessagesWouldLoseTheirOrder) {
  ch3_offload_am_t* am = nullptr;
  world.limits.most_ordered_bytes = kMostMessageBytes - 1;
  EXPECT_EQ(ch3_offload_am_open(nullptr, nullptr, &am), CH3_OFFLOAD_AM_NO_MEMORY);
}

TEST_P(AmEndpoint, OpensNowhereWhereTheInterfaceHasTooLittle) {
  ptl_ni_limits_t limits{};
  limits.max_entries = limits.max_list_size = 300;
  limits.max_mds = limits.max_eqs = 10;
  limits.max_msg_size = limits.max_waw_ordered_size = 1 << 20;
  const auto open_with = [](const ptl_ni_limits_t& wanted) {
    ch3_offload_am_t* am = nullptr;
    ptl_handle_ni_t ni;
    EXPECT_EQ(
        PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, &wanted, nullptr, &ni),
        PTL_OK);
    const int code = ch3_offload_am_open(nullptr, nullptr, &am);
    if (code == CH3_OFFLOAD_AM_OK) {
      EXPECT_EQ(ch3_offload_am_close(am), CH3_OFFLOAD_AM_OK);
    }
    EXPECT_EQ(PtlNIFini(ni), PTL_OK);
    return code;
  };
  EXPECT_EQ(open_with(limits), CH3_OFFLOAD_AM_OK);
  for (int most = 0; most < 250; most += 50) {
    ptl_ni_limits_t few = limits;
    few.max_entries = most;
    EXPECT_EQ(open_with(few), CH3_OFFLOAD_AM_NO_MEMORY);
  }
  for (int most = 0; most < 3; ++most) {
    ptl_ni_limits_t few = limits;
    few.max_mds = most;
    EXPECT_EQ(open_with(few), CH3_OFFLOAD_AM_NO_MEMORY);
    few = limits;
    few.max_eqs = most;
    EXPECT_EQ(open_with(few), CH3_OFFLOAD_AM_NO_MEMORY);
  }
}

TEST_P(AmEndpoint, AddressesDiffer) {
  Node first, second;
  const ch3_offload_am_address_t one = first.address(), other = second.address();
  EXPECT_NE(std::memcmp(&one, &other, sizeof one), 0);
  ch3_offload_am_address_t address;
  EXPECT_EQ(ch3_offload_am_address(nullptr, &address), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_address(first.am, nullptr), CH3_OFFLOAD_AM_INVALID);
}

// Register, number, find_peer.

TEST_P(AmEndpoint, RegistersANameOnce) {
  Node node;
  EXPECT_EQ(ch3_offload_am_register(node.am, "f", ignore, nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_register(node.am, "g", ignore, nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_register(node.am, "f", ignore, &node), CH3_OFFLOAD_AM_IN_USE);
  EXPECT_EQ(ch3_offload_am_register(node.am, "", ignore, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_register(node.am, nullptr, ignore, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_register(node.am, "h", nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_register(nullptr, "h", ignore, nullptr), CH3_OFFLOAD_AM_INVALID);
}

TEST_P(AmEndpoint, ANumberIsTheHashOfTheName) {
  EXPECT_EQ(ch3_offload_am_number(nullptr), 0U);
  EXPECT_EQ(ch3_offload_am_number(""), 0xcbf29ce484222325U);
  EXPECT_EQ(ch3_offload_am_number("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(ch3_offload_am_number("foobar"), 0x85944171f73967e8U);
}

TEST_P(AmEndpoint, AnAddressHasOnePeer) {
  Node node, other;
  ch3_offload_am_peer_t* const peer = node.peer(other);
  EXPECT_EQ(node.peer(other), peer);
  EXPECT_NE(node.peer(node), peer);
  ch3_offload_am_address_t its{};
  const ch3_offload_am_address_t expected = other.address();
  EXPECT_EQ(ch3_offload_am_peer_address(peer, &its), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(std::memcmp(&its, &expected, sizeof its), 0);
  ch3_offload_am_peer_t* found;
  EXPECT_EQ(ch3_offload_am_find_peer(nullptr, &its, &found), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_find_peer(node.am, nullptr, &found), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_find_peer(node.am, &its, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_peer_address(nullptr, &its), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_peer_address(peer, nullptr), CH3_OFFLOAD_AM_INVALID);
}

TEST_P(AmEndpoint, TheNumberOfPeersIsBounded) {
  Node node;
  ch3_offload_am_address_t address{};
  ch3_offload_am_peer_t* found;
  for (std::uint32_t i = 0; i < 65'536; ++i) {
    std::memcpy(address.bytes, &i, sizeof i);
    ASSERT_EQ(ch3_offload_am_find_peer(node.am, &address, &found), CH3_OFFLOAD_AM_OK);
  }
  ch3_offload_am_peer_t* const last = found;
  address.bytes[23] = 1;
  EXPECT_EQ(ch3_offload_am_find_peer(node.am, &address, &found), CH3_OFFLOAD_AM_NO_MEMORY);
  // One that is dead, and that the program does not use any more, makes room.
  EXPECT_TRUE(poll_until(
      {&node}, [&] { return ch3_offload_am_send(last, "f", nullptr) == CH3_OFFLOAD_AM_PEER_DEAD; }));
  EXPECT_EQ(ch3_offload_am_find_peer(node.am, &address, &found), CH3_OFFLOAD_AM_NO_MEMORY);
  ch3_offload_am_release(nullptr);
  ch3_offload_am_release(last);
  EXPECT_TRUE(poll_until(
      {&node}, [&] { return ch3_offload_am_find_peer(node.am, &address, &found) == CH3_OFFLOAD_AM_OK; }));
}

// Send, reply, sender.

TEST_P(AmEndpoint, AMessageRunsAFunctionThatAnswers) {
  Node asker, server;
  std::uint64_t answer = 0;
  ch3_offload_am_peer_t* its_sender = nullptr;
  server.add("square", [&](ch3_offload_am_message_t* message, ch3_offload_am_reader_t* arguments) {
    const std::uint64_t number = number_in(arguments);
    its_sender = ch3_offload_am_sender(message);
    const ch3_offload_am_arguments_t result = arguments_with(number * number);
    EXPECT_EQ(ch3_offload_am_reply(message, "result", &result), CH3_OFFLOAD_AM_OK);
  });
  asker.add("result", [&](ch3_offload_am_message_t* message, ch3_offload_am_reader_t* arguments) {
    answer = number_in(arguments);
    EXPECT_EQ(ch3_offload_am_sender(message), asker.peer(server));
  });
  const ch3_offload_am_arguments_t question = arguments_with(12);
  ASSERT_EQ(ch3_offload_am_send(asker.peer(server), "square", &question), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&asker, &server}, [&] { return answer != 0; }));
  EXPECT_EQ(answer, 144U);
  EXPECT_EQ(its_sender, server.peer(asker));
  EXPECT_EQ(ch3_offload_am_sender(nullptr), nullptr);
}

TEST_P(AmEndpoint, AnEndpointSendsToItself) {
  Node node;
  int calls = 0;
  node.add("f", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t* arguments) {
    EXPECT_EQ(ch3_offload_am_read_end(arguments), CH3_OFFLOAD_AM_OK);
    ++calls;
  });
  EXPECT_EQ(ch3_offload_am_send(node.peer(node), "f", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&node}, [&] { return calls == 1; }));
}

TEST_P(AmEndpoint, TheLongestArgumentsArrive) {
  Node from, to;
  std::string received;
  to.add("f", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t* arguments) {
    const char* string = nullptr;
    EXPECT_EQ(ch3_offload_am_read_string(arguments, &string), CH3_OFFLOAD_AM_OK);
    received = string;
  });
  const std::string sent(CH3_OFFLOAD_AM_MOST_BYTES - 6, 'x');
  ch3_offload_am_arguments_t arguments;
  ch3_offload_am_begin(&arguments);
  ASSERT_EQ(ch3_offload_am_append_string(&arguments, sent.c_str()), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_send(from.peer(to), "f", &arguments), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&from, &to}, [&] { return !received.empty(); }));
  EXPECT_EQ(received, sent);
}

TEST_P(AmEndpoint, WrongArgumentsOfASendAreRefused) {
  Node node;
  ch3_offload_am_peer_t* const peer = node.peer(node);
  ch3_offload_am_arguments_t arguments;
  ch3_offload_am_begin(&arguments);
  EXPECT_EQ(ch3_offload_am_send(nullptr, "f", nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_send(peer, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_send(peer, "", nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_bytes(&arguments, "", 1 << 20), CH3_OFFLOAD_AM_END);
  EXPECT_EQ(ch3_offload_am_send(peer, "f", &arguments), CH3_OFFLOAD_AM_INVALID);
  ch3_offload_am_begin(&arguments);
  arguments.length = CH3_OFFLOAD_AM_MOST_BYTES + 1;
  EXPECT_EQ(ch3_offload_am_send(peer, "f", &arguments), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_reply(nullptr, "f", nullptr), CH3_OFFLOAD_AM_INVALID);
}

TEST_P(AmEndpoint, AMessageIsAnsweredOnceAndAnAnswerIsNot) {
  Node asker, server;
  bool is_done = false;
  server.add("ask", [&](ch3_offload_am_message_t* message, ch3_offload_am_reader_t*) {
    EXPECT_EQ(ch3_offload_am_reply(message, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
    EXPECT_EQ(ch3_offload_am_reply(message, "", nullptr), CH3_OFFLOAD_AM_INVALID);
    EXPECT_EQ(ch3_offload_am_reply(message, "answer", nullptr), CH3_OFFLOAD_AM_OK);
    EXPECT_EQ(ch3_offload_am_reply(message, "answer", nullptr), CH3_OFFLOAD_AM_INVALID);
  });
  asker.add("answer", [&](ch3_offload_am_message_t* message, ch3_offload_am_reader_t*) {
    EXPECT_FALSE(is_done);
    EXPECT_EQ(ch3_offload_am_reply(message, "ask", nullptr), CH3_OFFLOAD_AM_INVALID);
    is_done = true;
  });
  ASSERT_EQ(ch3_offload_am_send(asker.peer(server), "ask", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&asker, &server}, [&] { return is_done; }));
  for (int i = 0; i < 20; ++i) poll_until({&asker, &server}, [] { return true; });
}

TEST_P(AmEndpoint, AHandlerMaySendAndMayNotPoll) {
  Node node;
  int calls = 0;
  node.add("f", [&](ch3_offload_am_message_t* message, ch3_offload_am_reader_t*) {
    EXPECT_EQ(ch3_offload_am_poll(node.am, 0), CH3_OFFLOAD_AM_INVALID);
    EXPECT_EQ(ch3_offload_am_flush(node.am, 0), CH3_OFFLOAD_AM_INVALID);
    EXPECT_EQ(ch3_offload_am_close(node.am), CH3_OFFLOAD_AM_INVALID);
    if (++calls < 10) {
      EXPECT_EQ(ch3_offload_am_send(ch3_offload_am_sender(message), "f", nullptr), CH3_OFFLOAD_AM_OK);
    }
  });
  ASSERT_EQ(ch3_offload_am_send(node.peer(node), "f", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&node}, [&] { return calls == 10; }));
}

// Room.

TEST_P(AmEndpoint, ASenderWithoutRoomIsToldToTryAgain) {
  Node from, to;
  ch3_offload_am_peer_t* const peer = from.peer(to);
  std::size_t sent = 0;
  while (sent < 1000 && ch3_offload_am_send(peer, "f", nullptr) == CH3_OFFLOAD_AM_OK) ++sent;
  EXPECT_EQ(sent, SendStream::kWindow);
  EXPECT_EQ(ch3_offload_am_send(peer, "f", nullptr), CH3_OFFLOAD_AM_AGAIN);
  to.add("f", [](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) {});
  EXPECT_TRUE(
      poll_until({&from, &to}, [&] { return ch3_offload_am_send(peer, "f", nullptr) == CH3_OFFLOAD_AM_OK; }));
}

TEST_P(AmEndpoint, NothingIsLostWhenTheReceiverHasNoRoom) {
  Node from, to;
  std::uint64_t expected = 0;
  to.add("f", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t* arguments) {
    EXPECT_EQ(number_in(arguments), expected++);
  });
  ch3_offload_am_peer_t* const peer = from.peer(to);
  std::uint64_t sent = 0;
  const auto send_all = [&](std::uint64_t most) {
    while (sent < most) {
      const ch3_offload_am_arguments_t arguments = arguments_with(sent);
      const int code = ch3_offload_am_send(peer, "f", &arguments);
      if (code == CH3_OFFLOAD_AM_AGAIN) return;
      ASSERT_EQ(code, CH3_OFFLOAD_AM_OK);
      ++sent;
    }
  };
  // The receiver does not poll, so messages are refused and sent again.
  for (int i = 0; i < 200; ++i) {
    send_all(1000);
    from.poll();
  }
  EXPECT_TRUE(portals::eventually([&] {
    send_all(1000);
    from.poll();
    return sent == Inbox::kEntries + SendStream::kWindow;
  }));
  for (int i = 0; i < 50; ++i) {
    send_all(1000);
    from.poll(1);
  }
  EXPECT_EQ(sent, Inbox::kEntries + SendStream::kWindow);
  EXPECT_EQ(ch3_offload_am_flush(from.am, 5), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_TRUE(poll_until({&from, &to}, [&] {
    send_all(1000);
    return expected == 1000;
  }));
  EXPECT_EQ(ch3_offload_am_flush(from.am, -1), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(from.failures.empty());
}

TEST_P(AmEndpoint, AMessageWaitsUntilItsAnswerHasRoom) {
  Node asker, server;
  std::size_t handled = 0, answered = 0;
  server.add("ask", [&](ch3_offload_am_message_t* message, ch3_offload_am_reader_t*) {
    ++handled;
    EXPECT_EQ(ch3_offload_am_reply(message, "answer", nullptr), CH3_OFFLOAD_AM_OK);
  });
  asker.add("answer", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) { ++answered; });
  ch3_offload_am_peer_t* const peer = asker.peer(server);
  const std::size_t most = 2 * (Inbox::kEntries + SendStream::kWindow);
  std::size_t asked = 0;
  EXPECT_TRUE(poll_until({&asker, &server}, [&] {
    while (asked < most && ch3_offload_am_send(peer, "ask", nullptr) == CH3_OFFLOAD_AM_OK) ++asked;
    return answered == most;
  }));
  EXPECT_EQ(handled, most);
}

// With one channel, each would wait for room at the other one.
TEST_P(AmEndpoint, TwoThatFloodEachOtherEnd) {
  Node left, right;
  constexpr int kMessages = 1000;
  struct Side {
    Node& node;
    ch3_offload_am_peer_t* peer;
    int asked = 0;
    int answered = 0;
  };
  Side sides[] = {{left, left.peer(right)}, {right, right.peer(left)}};
  for (Side& side : sides) {
    side.node.add("ask", [](ch3_offload_am_message_t* message, ch3_offload_am_reader_t*) {
      EXPECT_EQ(ch3_offload_am_reply(message, "answer", nullptr), CH3_OFFLOAD_AM_OK);
    });
    side.node.add("answer", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) { ++side.answered; });
  }
  EXPECT_TRUE(portals::eventually([&] {
    for (Side& side : sides) {
      // As much as there is room for, and more than one turn takes.
      for (int i = 0; i < 20; ++i) {
        while (side.asked < kMessages && ch3_offload_am_send(side.peer, "ask", nullptr) == CH3_OFFLOAD_AM_OK)
          ++side.asked;
        side.node.poll();
      }
    }
    return left.failures.empty() && sides[0].answered == kMessages && sides[1].answered == kMessages;
  }));
}

// Unknown functions.

TEST_P(AmEndpoint, TheSenderHearsOfAFunctionThatThePeerDoesNotHave) {
  Node from, to;
  ASSERT_EQ(ch3_offload_am_send(from.peer(to), "nobody", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&from, &to}, [&] { return !from.failures.empty(); }));
  EXPECT_EQ(from.failures[0].peer, from.peer(to));
  EXPECT_EQ(from.failures[0].code, CH3_OFFLOAD_AM_UNKNOWN);
  EXPECT_EQ(from.failures[0].function, ch3_offload_am_number("nobody"));
  EXPECT_TRUE(to.failures.empty());
}

TEST_P(AmEndpoint, WhoIsAnsweredByAFunctionThatItDoesNotHaveHearsOfIt) {
  Node asker, server;
  server.add("ask", [](ch3_offload_am_message_t* message, ch3_offload_am_reader_t*) {
    EXPECT_EQ(ch3_offload_am_reply(message, "nobody", nullptr), CH3_OFFLOAD_AM_OK);
  });
  ASSERT_EQ(ch3_offload_am_send(asker.peer(server), "ask", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&asker, &server}, [&] { return !asker.failures.empty(); }));
  EXPECT_EQ(asker.failures[0].peer, asker.peer(server));
  EXPECT_EQ(asker.failures[0].code, CH3_OFFLOAD_AM_UNKNOWN);
  EXPECT_EQ(asker.failures[0].function, ch3_offload_am_number("nobody"));
}

// Death.

TEST_P(AmEndpoint, APeerWhoseEndpointIsClosedIsDead) {
  Node from;
  auto to = std::make_unique<Node>();
  to->add("f", [](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) {});
  ch3_offload_am_peer_t* const peer = from.peer(*to);
  ASSERT_EQ(ch3_offload_am_send(peer, "f", nullptr), CH3_OFFLOAD_AM_OK);
  ASSERT_TRUE(
      poll_until({&from, to.get()}, [&] { return ch3_offload_am_flush(from.am, 0) == CH3_OFFLOAD_AM_OK; }));
  to.reset();
  Node successor;  // It takes the same tables.
  int calls = 0;
  successor.add("f", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) { ++calls; });
  EXPECT_EQ(ch3_offload_am_send(peer, "f", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&from, &successor}, [&] { return !from.failures.empty(); }));
  EXPECT_EQ(from.failures[0].peer, peer);
  EXPECT_EQ(from.failures[0].code, CH3_OFFLOAD_AM_PEER_DEAD);
  EXPECT_EQ(from.failures[0].function, 0U);
  EXPECT_EQ(ch3_offload_am_send(peer, "f", nullptr), CH3_OFFLOAD_AM_PEER_DEAD);
  EXPECT_EQ(ch3_offload_am_check(peer), CH3_OFFLOAD_AM_PEER_DEAD);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(ch3_offload_am_flush(from.am, 1000), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(from.failures.size(), 1U);
}

TEST_P(AmEndpoint, AProcessThatDoesNotExistIsDead) {
  Node node;
  Address address = read(node.address());
  address.pid = 1;
  address.nid = 0x0a000063;
  ch3_offload_am_peer_t* const peer = node.peer(write(address));
  const int code = ch3_offload_am_send(peer, "f", nullptr);
  EXPECT_TRUE(code == CH3_OFFLOAD_AM_OK || code == CH3_OFFLOAD_AM_PEER_DEAD);
  EXPECT_TRUE(poll_until({&node}, [&] { return !node.failures.empty(); }));
  EXPECT_EQ(node.failures[0].code, CH3_OFFLOAD_AM_PEER_DEAD);
  EXPECT_EQ(ch3_offload_am_send(peer, "f", nullptr), CH3_OFFLOAD_AM_PEER_DEAD);
}

TEST_P(AmEndpoint, AnAddressThatIsRubbishIsDead) {
  Node node;
  for (const unsigned char byte : {0x00, 0xff, 0x80, 0x7f}) {
    ch3_offload_am_address_t address;
    std::memset(&address, byte, sizeof address);
    ch3_offload_am_peer_t* const peer = node.peer(address);
    static_cast<void>(ch3_offload_am_send(peer, "f", nullptr));
    EXPECT_TRUE(poll_until(
        {&node}, [&] { return ch3_offload_am_send(peer, "f", nullptr) == CH3_OFFLOAD_AM_PEER_DEAD; }));
  }
}

TEST_P(AmEndpoint, ACheckFindsOutWhetherAPeerLives) {
  Node node;
  auto other = std::make_unique<Node>();
  ch3_offload_am_peer_t* const peer = node.peer(*other);
  EXPECT_EQ(ch3_offload_am_check(nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_check(peer), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_check(peer), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&node, other.get()},
                         [&] { return ch3_offload_am_flush(node.am, 0) == CH3_OFFLOAD_AM_OK; }));
  EXPECT_TRUE(node.failures.empty());
  EXPECT_TRUE(other->failures.empty()) << "a check names no function";
  other.reset();
  EXPECT_EQ(ch3_offload_am_check(peer), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&node}, [&] { return !node.failures.empty(); }));
  EXPECT_EQ(node.failures[0].code, CH3_OFFLOAD_AM_PEER_DEAD);
}

TEST_P(AmEndpoint, ClosesWithMessagesUnderWay) {
  Node from, to;
  ch3_offload_am_peer_t* const peer = from.peer(to);
  while (ch3_offload_am_send(peer, "f", nullptr) == CH3_OFFLOAD_AM_OK) {
  }
  from.close();
  EXPECT_EQ(to.poll(), CH3_OFFLOAD_AM_OK);
}

TEST_P(AmEndpoint, ClosesOnlyWhenItsMessagesHaveEnded) {
  Node from, to;
  ASSERT_NE(world.port, nullptr);
  world.port->hold();
  ASSERT_EQ(ch3_offload_am_send(from.peer(to), "f", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_close(from.am), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_EQ(ch3_offload_am_poll(from.am, 0), CH3_OFFLOAD_AM_FAIL);
  EXPECT_EQ(ch3_offload_am_send(from.peer(to), "f", nullptr), CH3_OFFLOAD_AM_FAIL);
  world.port->release();
  from.close();
}

// Poll, flush.

TEST_P(AmEndpoint, APollWaitsForItsTimeOnly) {
  Node node;
  EXPECT_EQ(node.poll(0), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_EQ(node.poll(20), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_EQ(ch3_offload_am_flush(node.am, 0), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_flush(node.am, -1), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_poll(nullptr, 0), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_flush(nullptr, 0), CH3_OFFLOAD_AM_INVALID);
}

TEST_P(AmEndpoint, APollWithoutLimitEndsWhenAMessageComes) {
  Node node, other;
  int calls = 0;
  node.add("f", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) { ++calls; });
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(ch3_offload_am_send(other.peer(node.address()), "f", nullptr), CH3_OFFLOAD_AM_OK);
  });
  while (calls == 0) ASSERT_EQ(node.poll(-1), CH3_OFFLOAD_AM_OK);
  sender.join();
}

TEST_P(AmEndpoint, APollFailsAfterPtlAbort) {
  Node node;
  PtlAbort();
  EXPECT_EQ(node.poll(-1), CH3_OFFLOAD_AM_FAIL);
}

// What a process of this user can put to an endpoint.

class AmHostile : public portals::PortalsTest {
 protected:
  void SetUp() override {
    PortalsTest::SetUp();
    ni_ = open_matching();
    eq_ = make_queue(ni_);
  }
  void TearDown() override {
    EXPECT_EQ(PtlNIFini(ni_), PTL_OK);
    PortalsTest::TearDown();
  }
  /// Puts bytes as a message. Returns how many were taken.
  ptl_size_t put(const Address& to, std::vector<unsigned char> bytes, ptl_size_t remote_offset = 0,
                 Channel channel = Channel::kRequests) {
    const ptl_handle_md_t md =
        bind(ni_, bytes.data(), bytes.size(), eq_, PTL_CT_NONE, PTL_MD_EVENT_SEND_DISABLE);
    ptl_process_t process;
    process.phys = {to.nid, to.pid};
    const ptl_pt_index_t table = channel == Channel::kRequests ? to.requests_table : to.replies_table;
    EXPECT_EQ(PtlPut(md, 0, bytes.size(), PTL_ACK_REQ, process, table, to.key, remote_offset, nullptr, 0),
              PTL_OK);
    const ptl_event_t ack = next(eq_, PTL_EVENT_ACK);
    EXPECT_EQ(PtlMDRelease(md), PTL_OK);
    return ack.mlength;
  }
  static std::vector<unsigned char> message(std::uint64_t function, std::uint64_t sequence, std::uint64_t key,
                                            std::size_t arguments = 0) {
    std::vector<unsigned char> bytes(kHeaderBytes + arguments);
    MessageHeader header;
    header.function = function;
    header.sequence = sequence;
    header.sender_key = key;
    header.requests_table = 200;
    header.replies_table = 201;
    header.arguments_bytes = static_cast<std::uint32_t>(arguments);
    write(header, std::span<unsigned char, kHeaderBytes>(bytes.data(), kHeaderBytes));
    return bytes;
  }

  ptl_handle_ni_t ni_ = PTL_INVALID_HANDLE;
  ptl_handle_eq_t eq_ = PTL_EQ_NONE;
};
PORTALS_INSTANTIATE(AmHostile);

TEST_P(AmHostile, WhatIsNoMessageIsIgnored) {
  Node node, friendly;
  int calls = 0;
  node.add("f", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) { ++calls; });
  const Address to = read(node.address());
  const std::uint64_t f = ch3_offload_am_number("f");
  std::vector<unsigned char> wrong_version = message(f, 0, 1);
  wrong_version[0] = 9;
  std::vector<unsigned char> too_short = message(f, 0, 1);
  too_short.pop_back();
  std::vector<unsigned char> wrong_length = message(f, 0, 1, 8);
  wrong_length.push_back(0);
  put(to, wrong_version);
  put(to, too_short);
  put(to, wrong_length);
  put(to, {1});
  put(to, message(f, 1, 1));                                 // not its first
  put(to, message(f, UINT64_MAX, 1));                        //
  put(to, message(f, 0, 1, CH3_OFFLOAD_AM_MOST_BYTES + 1));  // longer than an entry
  put(to, message(f, 0, 1), 4);                              // behind the beginning of an entry
  put(to, std::vector<unsigned char>(100'000, 0xff));        // by rendezvous
  for (int i = 0; i < 20; ++i) EXPECT_LE(node.poll(1), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_EQ(calls, 0);
  put(to, message(f, 0, 1));
  EXPECT_TRUE(poll_until({&node}, [&] { return calls == 1; }));
  put(to, message(f, 0, 1));  // a second time
  ASSERT_EQ(ch3_offload_am_send(friendly.peer(node), "f", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&node, &friendly}, [&] { return calls == 2; }));
  EXPECT_TRUE(node.failures.empty());
}

TEST_P(AmHostile, AnotherKeyFindsNobody) {
  Node node;
  Address to = read(node.address());
  ++to.key;
  EXPECT_EQ(put(to, message(2, 0, 1)), Inbox::kNotHere);
}

TEST_P(AmHostile, AnEndpointThatIsFullSaysSo) {
  Node node;
  const Address to = read(node.address());
  std::uint64_t sequence = 0;
  for (; sequence < Inbox::kEntries; ++sequence) ASSERT_EQ(put(to, message(2, sequence, 1)), kHeaderBytes);
  EXPECT_EQ(put(to, message(2, sequence, 1)), Inbox::kNoRoom);
}

// What an endpoint keeps does not grow with the number of those that have sent to it and are gone.
TEST_P(AmHostile, StrangersThatAreDeadAreForgotten) {
  Node node;
  int calls = 0;
  node.add("f", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) { ++calls; });
  ch3_offload_am_address_t address{};
  for (std::uint32_t i = 0; i < 65'500; ++i) {
    std::memcpy(address.bytes, &i, sizeof i);
    ch3_offload_am_peer_t* found;
    ASSERT_EQ(ch3_offload_am_find_peer(node.am, &address, &found), CH3_OFFLOAD_AM_OK);
  }
  const Address to = read(node.address());
  const std::uint64_t f = ch3_offload_am_number("f");
  for (int i = 1; i <= 300; ++i) {
    put(to, message(f, 0, static_cast<std::uint64_t>(i)));
    ASSERT_TRUE(poll_until({&node}, [&] { return calls == i || !node.failures.empty(); }));
    for (int turns = 0; turns < 10; ++turns) EXPECT_LE(node.poll(), CH3_OFFLOAD_AM_AGAIN);
  }
  EXPECT_EQ(calls, 300);
  EXPECT_TRUE(node.failures.empty()) << "nothing was sent to them but checks";
}

// Answers go to tables that nobody has: the sender that was invented is dead, and the endpoint works.
TEST_P(AmHostile, InventedSendersDoNotStopAnEndpoint) {
  Node node, friendly;
  int calls = 0, answers = 0;
  node.add("f", [&](ch3_offload_am_message_t* message, ch3_offload_am_reader_t*) {
    ++calls;
    static_cast<void>(ch3_offload_am_reply(message, "answer", nullptr));
  });
  friendly.add("answer", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) { ++answers; });
  const Address to = read(node.address());
  const std::uint64_t f = ch3_offload_am_number("f");
  for (std::uint64_t key = 1; key <= 300; ++key) {
    put(to, message(f, 0, key));
    EXPECT_LE(node.poll(), CH3_OFFLOAD_AM_AGAIN);
  }
  ASSERT_EQ(ch3_offload_am_send(friendly.peer(node), "f", nullptr), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({&node, &friendly}, [&] { return answers == 1 && calls == 301; }));
  EXPECT_TRUE(poll_until({&node}, [&] { return node.failures.size() == 300; }));
  for (const Node::Failure& failure : node.failures) EXPECT_EQ(failure.code, CH3_OFFLOAD_AM_PEER_DEAD);
}

TEST_P(AmHostile, MessagesOfTheLibraryAreChecked) {
  Node node;
  const Address to = read(node.address());
  put(to, message(kUnknownFunction, 0, 1, 8));                        // as a request
  put(to, message(kUnknownFunction, 0, 2, 7), 0, Channel::kReplies);  // too short
  put(to, message(kNothing, 1, 1, 8));
  for (int i = 0; i < 20; ++i) EXPECT_LE(node.poll(1), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_TRUE(node.failures.empty());
  put(to, message(kUnknownFunction, 1, 2, 8), 0, Channel::kReplies);
  EXPECT_TRUE(poll_until({&node}, [&] { return node.failures.size() == 1; }));
  EXPECT_EQ(node.failures[0].code, CH3_OFFLOAD_AM_UNKNOWN);
}

}  // namespace
}  // namespace ch3_offload::active_messages
