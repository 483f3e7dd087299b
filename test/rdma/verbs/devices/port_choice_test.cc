// Which of the usable ports a process takes.

#include "rdma/verbs/devices/port_choice.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "rdma/verbs/fake_verbs.h"

namespace ch3_offload {
namespace {

namespace fs = std::filesystem;

VerbsPort port_of(const std::string& device, bool near = true, std::uint64_t network = 1,
                  std::uint32_t rate_gbit = 100) {
  VerbsPort port;
  port.device = device;
  port.near = near;
  port.network = network;
  port.rate_gbit = rate_gbit;
  return port;
}

VerbsConfig process(std::size_t number_on_node, std::uint32_t most_rails, const std::string& device = "") {
  VerbsConfig config;
  config.number_on_node = number_on_node;
  config.most_rails = most_rails;
  config.device = device;
  return config;
}

std::string rails(const std::vector<VerbsPort>& usable, const VerbsConfig& config) {
  std::string names;
  for (const VerbsPort& port : choose_rails(usable, config)) names += port.device;
  return names;
}

TEST(ChooseRails, AProcessUsesAllWhereThereAreNoMore) {
  for (std::size_t number = 0; number < 3; ++number) {
    EXPECT_EQ(rails({port_of("a", false), port_of("b")}, process(number, 2)), "ab") << number;
    EXPECT_EQ(rails({port_of("a")}, process(number, 2)), "a");
  }
}

TEST(ChooseRails, ProcessesOfANodeSpreadOverEqualPorts) {
  const std::vector<VerbsPort> four{port_of("a"), port_of("b"), port_of("c"), port_of("d")};
  const std::vector<std::string> one{"a", "b", "c", "d", "a"};
  const std::vector<std::string> two{"ab", "cd", "ab", "cd", "ab"};
  for (std::size_t number = 0; number < one.size(); ++number) {
    EXPECT_EQ(rails(four, process(number, 1)), one[number]);
    EXPECT_EQ(rails(four, process(number, 2)), two[number]);
  }
  // In one order, so that two processes' first rails reach each other, and their second ones.
  const std::vector<VerbsPort> three{port_of("a"), port_of("b"), port_of("c")};
  EXPECT_EQ(rails(three, process(0, 2)), "ab");
  EXPECT_EQ(rails(three, process(1, 2)), "ac");
  EXPECT_EQ(rails(three, process(2, 2)), "bc");
}

TEST(ChooseRails, TheNearOnesGoFirstIfTheyAreEnough) {
  const std::vector<VerbsPort> four{port_of("a", false), port_of("b", false), port_of("c"), port_of("d")};
  EXPECT_EQ(rails(four, process(0, 2)), "cd");
  EXPECT_EQ(rails(four, process(1, 2)), "cd");
  EXPECT_EQ(rails(four, process(0, 1)), "c");
  EXPECT_EQ(rails(four, process(1, 1)), "d");
  const std::vector<VerbsPort> one_near{port_of("a", false), port_of("b", false), port_of("c")};
  EXPECT_EQ(rails(one_near, process(0, 1)), "c");
  EXPECT_EQ(rails(one_near, process(0, 2)), "ab") << "one near port is not enough for two rails";
}

TEST(ChooseRails, OnlyPortsOfTheSameNetworkStandInForTheFirst) {
  const std::vector<VerbsPort> two_networks{port_of("a", false), port_of("b", true, 2), port_of("c")};
  EXPECT_EQ(rails(two_networks, process(0, 1)), "c");
  EXPECT_EQ(rails(two_networks, process(1, 1)), "c");
  // Whose network is not known may reach nobody that the first one reaches.
  const std::vector<VerbsPort> unknown{port_of("a", false, 0), port_of("b", true, 0), port_of("c", true, 0)};
  for (std::size_t number = 0; number < 3; ++number) {
    EXPECT_EQ(rails(unknown, process(number, 1)), "a");
    EXPECT_EQ(rails(unknown, process(number, 2)), "ab");
  }
}

TEST(ChooseRails, FabricsOfOnePrefixAreToldApartByTheirManagers) {
  std::vector<VerbsPort> two_fabrics{port_of("a"), port_of("b"), port_of("c")};
  two_fabrics[1].manager_lid = 7;
  EXPECT_EQ(rails(two_fabrics, process(0, 1)), "a");
  EXPECT_EQ(rails(two_fabrics, process(1, 1)), "c");
}

TEST(ChooseRails, SlowerPortsAndOtherLinkLayersStayOut) {
  VerbsPort infiniband = port_of("d");
  std::vector<VerbsPort> usable{port_of("a"), port_of("b"), port_of("c", true, 1, 40), infiniband};
  usable[0].ethernet = usable[1].ethernet = usable[2].ethernet = true;
  EXPECT_EQ(rails(usable, process(0, 1)), "a");
  EXPECT_EQ(rails(usable, process(1, 1)), "b");
  EXPECT_EQ(rails(usable, process(2, 1)), "a");
}

TEST(ChooseRails, WhoHasNamedPortsHasChosen) {
  const std::vector<VerbsPort> named{port_of("a", false), port_of("b", true, 1, 40), port_of("c")};
  EXPECT_EQ(rails(named, process(1, 1, "a,b,c")), "a");
  EXPECT_EQ(rails(named, process(1, 2, "a,b,c")), "ab");
}

TEST(ChooseRails, SaysWhy) {
  const auto why = [](const std::vector<VerbsPort>& usable, const VerbsConfig& config) {
    return why_first_rail(usable, config);
  };
  const std::vector<VerbsPort> equal{port_of("a"), port_of("b")};
  EXPECT_EQ(why(equal, process(0, 1)), "it is as fast as b:1, and its name is the first");
  EXPECT_EQ(why(equal, process(1, 1)), "it is as fast as a:1, and the processes of a node take turns");
  const std::vector<VerbsPort> far_first{port_of("a", false), port_of("b")};
  EXPECT_EQ(why(far_first, process(0, 1)), "it is as fast as a:1, and near to this process");
  EXPECT_EQ(why(far_first, process(0, 2)), "it is as fast as b:1, and its name is the first");
  const std::vector<VerbsPort> far_last{port_of("a"), port_of("b", false)};
  EXPECT_EQ(why(far_last, process(1, 1)), "it is as fast as b:1, and near to this process");
  EXPECT_EQ(why({port_of("a"), port_of("b", false, 1, 40)}, process(0, 1)), "it is the fastest usable one");
  EXPECT_EQ(why(equal, process(0, 1, "a")), "it is the first usable one of those asked for");
}

/// A folder as /sys/class/infiniband/DEVICE.
class PortLocality : public testing::Test {
 protected:
  PortLocality() {
    std::string folder = testing::TempDir() + "locality.XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    fs::create_directory(folder_ / "device");
  }
  ~PortLocality() override { fs::remove_all(folder_); }

  bool is_near_with(const std::string& list, const ProcessorSet& processors) {
    std::ofstream(folder_ / "device/local_cpulist") << list;
    ibv_device device{};
    folder_.string().copy(device.ibdev_path, sizeof device.ibdev_path - 1);
    return is_near(device, processors);
  }

  fs::path folder_;
};

TEST_F(PortLocality, HalfOfTheProcessorsAreEnough) {
  EXPECT_TRUE(is_near_with("0-3\n", {1, 2}));
  EXPECT_FALSE(is_near_with("0-3\n", {4, 5}));
  EXPECT_TRUE(is_near_with("0-3\n", {3, 4})) << "a process on both sides is near to both";
  EXPECT_TRUE(is_near_with("0-3,8\n", {8, 9}));
  EXPECT_FALSE(is_near_with("0-3\n", {3, 4, 5}));
}

TEST_F(PortLocality, WhatIsNotKnownIsNear) {
  EXPECT_TRUE(is_near_with("0-3\n", {}));
  EXPECT_TRUE(is_near_with("", {7}));
  EXPECT_TRUE(is_near_with("nonsense\n", {7}));
  ibv_device device{};
  std::string("/nonexistent").copy(device.ibdev_path, sizeof device.ibdev_path - 1);
  EXPECT_TRUE(is_near(device, {7}));
}

/// Four devices at the address that every node has.
TEST(PortChoice, ProcessesOfANodeAreGivenDevicesInTurn) {
  fake_verbs::Config fake;
  fake.devices.clear();
  for (const char* const name : {"a", "b", "c", "d"}) {
    fake.devices.emplace_back();
    fake.devices.back().name = name;
  }
  fake_verbs::reset(fake);
  for (std::size_t number = 0; number < 4; ++number) {
    const std::vector<VerbsPortDescription> ports = describe_verbs_ports(process(number, 1));
    ASSERT_EQ(ports.size(), 4u);
    for (std::size_t i = 0; i < ports.size(); ++i) EXPECT_EQ(ports[i].why_used.empty(), i != number) << i;
  }
}

}  // namespace
}  // namespace ch3_offload
