// At which TCP port a provider listens.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

class Listening : public VerbsProviders {
 protected:
  void SetUp() override { fake_verbs::reset({}); }

  /// A range of `count` ports that are free at 127.0.0.1 and 127.0.0.2.
  static VerbsConfig range_of(std::uint16_t count) {
    VerbsConfig config;
    for (std::uint16_t first = 20000; first < 32000; first = static_cast<std::uint16_t>(first + count)) {
      config.first_port = first;
      config.last_port = static_cast<std::uint16_t>(first + count - 1);
      bool free = true;
      for (std::uint16_t port = first; free && port <= config.last_port; ++port)
        free = take(port).valid() && take(port, "127.0.0.2").valid();
      if (free) return config;
    }
    ADD_FAILURE() << "no free ports";
    return config;
  }
  /// Invalid: it is taken.
  static FileDescriptor take(std::uint16_t port, const char* host = "127.0.0.1") {
    Result<FileDescriptor> listener = listen_for_streams(host, port);
    return listener.ok() ? std::move(listener.value()) : FileDescriptor();
  }
  static std::unique_ptr<VerbsProvider> make_as(std::uint32_t self, VerbsConfig config) {
    config.self = PeerId{self};
    return make_verbs(config);
  }
  static std::uint16_t port_of(const VerbsProvider& provider) {
    return VerbsAddress::parse(provider.local_address())->port;
  }
};

TEST_F(Listening, ProcessesOfANodeBeginAtPortsOfTheirOwn) {
  const VerbsConfig config = range_of(4);
  for (const std::uint32_t self : {0u, 3u, 6u, 0xFFFF'FFFFu})
    EXPECT_EQ(port_of(*make_as(self, config)), config.first_port + self % 4) << self;
}

TEST_F(Listening, APortThatIsTakenIsPassedOverUpToTheEndAndFromTheBeginning) {
  const VerbsConfig config = range_of(3);
  const FileDescriptor last = take(config.last_port);
  ASSERT_TRUE(last.valid());
  const auto first = make_as(2, config);
  const auto second = make_as(2, config);
  EXPECT_EQ(port_of(*first), config.first_port);
  EXPECT_EQ(port_of(*second), config.first_port + 1);
}

TEST_F(Listening, WithoutAFreePortTheErrorSaysWhichRangeItTriedAndWhatToDo) {
  const VerbsConfig config = range_of(2);
  const auto first = make_as(0, config), second = make_as(1, config);
  const Result<std::unique_ptr<VerbsProvider>> third = VerbsProvider::create(config);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().status, Status::kDeviceFailed);
  EXPECT_EQ(
      third.error().message,
      "verbs: no TCP port from " + std::to_string(config.first_port) + " to " +
          std::to_string(config.last_port) +
          " is free at 127.0.0.1 (2 tried): the range needs at least one port for each process on the node");
}

TEST_F(Listening, ThePortIsFreeAtAllAddresses) {
  fake_verbs::reset(fake_verbs::two_rails());
  const VerbsConfig config = range_of(2);
  const FileDescriptor at_second = take(config.first_port, "127.0.0.2");
  ASSERT_TRUE(at_second.valid());
  const auto provider = make_as(0, config);
  ASSERT_NE(provider, nullptr);
  EXPECT_EQ(provider->rail_count(), 2u);
  EXPECT_EQ(VerbsAddress::parse(provider->local_address())->hosts.size(), 2u);
  EXPECT_EQ(port_of(*provider), config.last_port);
  EXPECT_TRUE(take(config.first_port).valid()) << "what was not used is given back";
}

TEST_F(Listening, TheNextJobListensWhereConnectionsHaveJustEnded) {
  const VerbsConfig config = range_of(2);
  for (int job = 0; job < 4; ++job) {
    make(2, config);
    establish(0, 1);
    if (job % 2 == 0) world_->kill(PeerId{1});  // Who closes first keeps the connection for a minute.
  }
}

TEST_F(Listening, WithoutARangeTheKernelChooses) {
  const auto first = make_as(0, {}), second = make_as(0, {});
  EXPECT_NE(port_of(*first), port_of(*second));
}

}  // namespace
}  // namespace ch3_offload
