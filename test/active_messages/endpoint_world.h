// Endpoints of one process that talk to each other over libportals, and what their tests want again and again.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "active_messages/ch3_offload_am.h"
#include "portals/portals_world.h"

namespace ch3_offload::active_messages {

/// An endpoint and what it has heard.
class Node {
 public:
  struct Failure {
    ch3_offload_am_peer_t* peer;
    int code;
    std::uint64_t function;
  };
  using Handler = std::function<void(ch3_offload_am_message_t*, ch3_offload_am_reader_t*)>;

  Node() { EXPECT_EQ(ch3_offload_am_open(&Node::failed, this, &am), CH3_OFFLOAD_AM_OK); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { close(); }

  void close() {
    if (am == nullptr) return;
    int code = CH3_OFFLOAD_AM_AGAIN;
    EXPECT_TRUE(portals::eventually([&] {
      code = ch3_offload_am_close(am);
      return code != CH3_OFFLOAD_AM_AGAIN;
    }));
    EXPECT_EQ(code, CH3_OFFLOAD_AM_OK);
    am = nullptr;
  }

  int add(const char* name, Handler handler) {
    handlers_.push_back(std::make_unique<Handler>(std::move(handler)));
    return ch3_offload_am_register(am, name, &Node::call, handlers_.back().get());
  }
  ch3_offload_am_address_t address() const {
    ch3_offload_am_address_t its{};
    EXPECT_EQ(ch3_offload_am_address(am, &its), CH3_OFFLOAD_AM_OK);
    return its;
  }
  ch3_offload_am_peer_t* peer(const ch3_offload_am_address_t& of) const {
    ch3_offload_am_peer_t* found = nullptr;
    EXPECT_EQ(ch3_offload_am_find_peer(am, &of, &found), CH3_OFFLOAD_AM_OK);
    return found;
  }
  ch3_offload_am_peer_t* peer(const Node& other) const { return peer(other.address()); }
  int poll(int timeout_ms = 0) { return ch3_offload_am_poll(am, timeout_ms); }

  ch3_offload_am_t* am = nullptr;
  std::vector<Failure> failures;

 private:
  static void failed(void* context, ch3_offload_am_peer_t* peer, int code, std::uint64_t function) {
    static_cast<Node*>(context)->failures.push_back({peer, code, function});
  }
  static void call(void* context, ch3_offload_am_message_t* message, ch3_offload_am_reader_t* arguments) {
    (*static_cast<Handler*>(context))(message, arguments);
  }

  std::vector<std::unique_ptr<Handler>> handlers_;
};

/// Polls the nodes until that holds.
template <class Holds>
bool poll_until(std::initializer_list<Node*> nodes, Holds holds) {
  return portals::eventually([&] {
    for (Node* node : nodes) EXPECT_LE(node->poll(), CH3_OFFLOAD_AM_AGAIN);
    return holds();
  });
}

inline ch3_offload_am_arguments_t arguments_with(std::uint64_t number) {
  ch3_offload_am_arguments_t arguments;
  ch3_offload_am_begin(&arguments);
  EXPECT_EQ(ch3_offload_am_append_u64(&arguments, number), CH3_OFFLOAD_AM_OK);
  return arguments;
}

inline std::uint64_t number_in(ch3_offload_am_reader_t* arguments) {
  std::uint64_t number = 0;
  EXPECT_EQ(ch3_offload_am_read_u64(arguments, &number), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_read_end(arguments), CH3_OFFLOAD_AM_OK);
  return number;
}

}  // namespace ch3_offload::active_messages
