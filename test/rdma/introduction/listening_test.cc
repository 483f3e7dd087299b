// Where a process listens for introductions: its port, at all of its addresses. Over loopback.

#include "rdma/introduction/listening.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "rdma/introduction/frame_stream.h"

namespace ch3_offload {
namespace {

constexpr const char* kFirstHost = "127.0.0.1";
constexpr const char* kSecondHost = "127.0.0.2";
constexpr const char* kNoHost = "192.0.2.1";  ///< TEST-NET-1 (RFC 5737): no interface has it.

class Listening : public testing::Test {
 protected:
  using Listeners = std::vector<FileDescriptor>;

  /// A range of `count` ports that are free at both hosts.
  static ListeningConfig range_of(std::uint16_t count) {
    ListeningConfig config;
    for (std::uint16_t first = 20000; first < 32000; first = static_cast<std::uint16_t>(first + count)) {
      config.first_port = first;
      config.last_port = static_cast<std::uint16_t>(first + count - 1);
      bool free = true;
      for (std::uint16_t port = first; free && port <= config.last_port; ++port)
        free = take(port).valid() && take(port, kSecondHost).valid();
      if (free) return config;
    }
    ADD_FAILURE() << "no free ports";
    return config;
  }
  /// Invalid: it is taken.
  static FileDescriptor take(std::uint16_t port, const char* host = kFirstHost) {
    Result<FileDescriptor> listener = listen_for_streams(host, port);
    return listener.ok() ? std::move(listener.value()) : FileDescriptor();
  }
  Result<Listeners> listen(std::uint32_t self, ListeningConfig config) {
    config.place = self;
    config.name = "test: ";
    const auto log = [](void* test, LogScope scope, const char* line) {
      EXPECT_EQ(scope, LogScope::kNode);
      static_cast<Listening*>(test)->lines_.push_back(line);
    };
    return listen_for_introductions(config, Log(log, this), hosts_, port_);
  }
  Listeners listen_well(std::uint32_t self, const ListeningConfig& config) {
    Result<Listeners> listeners = listen(self, config);
    EXPECT_TRUE(listeners.ok()) << listeners.error().message;
    return listeners.ok() ? std::move(listeners.value()) : Listeners();
  }
  FileDescriptor dial(std::size_t host = 0) const {
    const SocketAddress to = *socket_address(hosts_[host], port_);
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), to.get(), to.length), 0);
    return socket;
  }

  std::vector<std::string> hosts_{kFirstHost};
  std::uint16_t port_ = 0;
  std::vector<std::string> lines_;
};

TEST_F(Listening, ProcessesOfANodeBeginAtPortsOfTheirOwn) {
  const ListeningConfig config = range_of(4);
  for (const std::uint32_t self : {0u, 3u, 6u, 0xFFFF'FFFFu}) {
    const Listeners listeners = listen_well(self, config);
    EXPECT_EQ(listeners.size(), 1u);
    EXPECT_EQ(port_, config.first_port + self % 4) << self;
  }
}

TEST_F(Listening, APortThatIsTakenIsPassedOverUpToTheEndAndFromTheBeginning) {
  const ListeningConfig config = range_of(3);
  const FileDescriptor last = take(config.last_port);
  ASSERT_TRUE(last.valid());
  const Listeners first = listen_well(2, config);
  EXPECT_EQ(port_, config.first_port);
  const Listeners second = listen_well(2, config);
  EXPECT_EQ(port_, config.first_port + 1);
}

TEST_F(Listening, WithoutAFreePortTheErrorSaysWhichRangeItTriedAndWhatToDo) {
  const ListeningConfig config = range_of(2);
  const Listeners first = listen_well(0, config), second = listen_well(1, config);
  const Result<Listeners> third = listen(0, config);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().status, Status::kDeviceFailed);
  EXPECT_EQ(
      third.error().message,
      "test: no TCP port from " + std::to_string(config.first_port) + " to " +
          std::to_string(config.last_port) +
          " is free at 127.0.0.1 (2 tried): the range needs at least one port for each process on the node");
}

TEST_F(Listening, ThePortIsFreeAtAllAddresses) {
  const ListeningConfig config = range_of(2);
  const FileDescriptor at_second = take(config.first_port, kSecondHost);
  ASSERT_TRUE(at_second.valid());
  hosts_ = {kFirstHost, kSecondHost};
  const Listeners listeners = listen_well(0, config);
  EXPECT_EQ(listeners.size(), 2u);
  EXPECT_EQ(hosts_.size(), 2u);
  EXPECT_EQ(port_, config.last_port);
  EXPECT_TRUE(take(config.first_port).valid()) << "what was not used is given back";
  for (const std::size_t host : {0u, 1u}) EXPECT_TRUE(dial(host).valid());
}

TEST_F(Listening, AnAddressBehindTheFirstThatDoesNotWorkIsLoggedAndTakenOut) {
  hosts_ = {kFirstHost, kNoHost};
  const Listeners listeners = listen_well(0, {});
  EXPECT_EQ(listeners.size(), 1u);
  EXPECT_EQ(hosts_, std::vector<std::string>{kFirstHost});
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("192.0.2.1"), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[0].find("; going on without this address"), std::string::npos) << lines_[0];
}

TEST_F(Listening, WithoutTheFirstAddressThereIsNoListener) {
  hosts_ = {kNoHost, kFirstHost};
  const Result<Listeners> listeners = listen(0, {});
  ASSERT_FALSE(listeners.ok());
  EXPECT_NE(listeners.error().message.find("192.0.2.1"), std::string::npos) << listeners.error().message;
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Listening, TheNextJobListensWhereConnectionsHaveJustEnded) {
  const ListeningConfig config = range_of(1);
  for (int job = 0; job < 3; ++job) {
    const Listeners listeners = listen_well(0, config);
    ASSERT_EQ(listeners.size(), 1u);
    const FileDescriptor dialled = dial();
    // The kernel keeps the connection of who closes first for a minute.
    FileDescriptor accepted;
    while (!accepted.valid())
      accepted = FileDescriptor(::accept4(listeners[0].get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
}

TEST_F(Listening, WithoutARangeTheKernelChooses) {
  const Listeners first = listen_well(0, {});
  const std::uint16_t port = port_;
  const Listeners second = listen_well(0, {});
  EXPECT_NE(port, 0);
  EXPECT_NE(port_, port);
}

}  // namespace
}  // namespace ch3_offload
