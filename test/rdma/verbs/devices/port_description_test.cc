// Which port is chosen, and what ch3-offload-info is told of all of them. Over the fake device.

#include "rdma/verbs/devices/port_selection.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {
namespace {

using fake_verbs::DeviceConfig;

DeviceConfig device(const std::string& name, std::vector<fake_verbs::PortConfig> ports) {
  DeviceConfig config;
  config.name = name;
  config.ports = std::move(ports);
  return config;
}

/// "b0" is InfiniBand; "a0" RoCE, its second port down; "c0" cannot be opened.
void make_three_devices() {
  fake_verbs::Config config;
  fake_verbs::PortConfig down = fake_verbs::ethernet_port();
  down.state = IBV_PORT_DOWN;
  config.devices = {device("a0", {fake_verbs::ethernet_port(), down}),
                    device("b0", {fake_verbs::infiniband_port(7)}),
                    device("c0", {fake_verbs::ethernet_port()})};
  config.devices[2].open_error = EACCES;
  fake_verbs::reset(config);
}

std::vector<std::string> names(const std::vector<VerbsPortDescription>& ports) {
  std::vector<std::string> names;
  for (const VerbsPortDescription& port : ports) names.push_back((port.wanted ? "" : "-") + port.name);
  return names;
}

std::vector<VerbsPortDescription> describe(const std::string& wanted, std::uint32_t most_rails) {
  VerbsConfig config;
  config.device = wanted;
  config.most_rails = most_rails;
  return describe_verbs_ports(config);
}

TEST(DescribeVerbsPorts, ListsTheBestFirstAndTheRejectedBehind) {
  make_three_devices();
  const auto ports = describe("", 2);
  ASSERT_EQ(names(ports), (std::vector<std::string>{"b0:1", "a0:1", "a0:2", "c0"}));
  EXPECT_EQ(ports[0].why_used, "it is as fast as a0:1, and InfiniBand goes before RoCE");
  EXPECT_EQ(ports[0].link, "InfiniBand");
  EXPECT_EQ(ports[1].why_used, "");
  EXPECT_EQ(ports[1].why_not, "");
  EXPECT_EQ(ports[1].link, "RoCE v2");
  EXPECT_EQ(ports[1].gid, "::ffff:127.0.0.1");
  EXPECT_EQ(ports[1].gid_reason, "RoCE v2 with an IPv4 address");
  EXPECT_EQ(ports[1].address, "127.0.0.1");
  EXPECT_EQ(ports[1].mtu_bytes, 4096u);
  EXPECT_EQ(ports[1].max_message_bytes, 1u << 30);
  EXPECT_TRUE(ports[2].why_not.starts_with("the port is down")) << ports[2].why_not;
  EXPECT_TRUE(ports[3].why_not.starts_with("cannot be opened: Permission denied")) << ports[3].why_not;
}

TEST(DescribeVerbsPorts, TheOnlyOneAndTheFirstByName) {
  fake_verbs::reset({});
  EXPECT_EQ(describe("", 2)[0].why_used, "it is the only usable one");
  fake_verbs::Config config;
  config.devices = {device("b0", {fake_verbs::ethernet_port()}), device("a0", {fake_verbs::ethernet_port()})};
  fake_verbs::reset(config);
  EXPECT_EQ(describe("", 2)[0].name, "a0:1");
  EXPECT_EQ(describe("", 2)[0].why_used, "it is as fast as b0:1, and its name is the first");
  EXPECT_EQ(describe("", 2)[1].why_used, "it shares the load of a0:1");
  EXPECT_EQ(describe("", 1)[1].why_used, "");
}

TEST(DescribeVerbsPorts, ThoseNotAskedForComeLast) {
  make_three_devices();
  const auto ports = describe("c0,a0:1:0", 2);
  ASSERT_EQ(names(ports), (std::vector<std::string>{"a0:1", "c0", "-b0:1", "-a0:2"}));
  EXPECT_EQ(ports[0].why_used, "it is the first usable one of those asked for");
  EXPECT_EQ(ports[0].link, "RoCE v1");
  EXPECT_EQ(ports[0].gid_reason, "asked for");
  EXPECT_EQ(ports[2].why_used, "");
}

TEST(DescribeVerbsPorts, AWrongWishLeavesAllPortsUnwanted) {
  make_three_devices();
  for (const char* wish : {"a0:x", "z0"}) {
    EXPECT_EQ(names(describe(wish, 2)), (std::vector<std::string>{"-b0:1", "-a0:1", "-a0:2", "-c0"})) << wish;
  }
}

TEST(DescribeVerbsPorts, NoDeviceNoPorts) {
  fake_verbs::Config config;
  config.devices.clear();
  fake_verbs::reset(config);
  EXPECT_TRUE(describe("", 2).empty());
  EXPECT_TRUE(describe("a0", 2).empty());
}

TEST(SurveyVerbsPorts, APortThatItsDeviceDoesNotHaveIsNamed) {
  make_three_devices();
  Result<VerbsPorts> ports = survey_verbs_ports("b0:2");
  ASSERT_TRUE(ports.ok());
  EXPECT_TRUE(ports.value().usable.empty());
  ASSERT_EQ(ports.value().rejected.size(), 1u);
  EXPECT_EQ(ports.value().rejected[0].name, "b0:2");
  VerbsConfig config;
  config.device = "b0:2";
  const auto provider = make_verbs_provider(config);
  ASSERT_FALSE(provider.ok());
  EXPECT_EQ(provider.error().message,
            "verbs: this node has no usable RDMA port: b0:2: the device has 1 port(s)");
}

}  // namespace
}  // namespace ch3_offload
