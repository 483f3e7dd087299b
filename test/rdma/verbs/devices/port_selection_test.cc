// Which port is chosen, and what is said of the others.

#include "rdma/verbs/devices/port_selection.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "rdma/verbs/fake_verbs.h"

namespace ch3_offload {
namespace {

using fake_verbs::DeviceConfig;
using fake_verbs::Gid;

class PortSelection : public testing::Test {
 protected:
  ~PortSelection() override { EXPECT_TRUE(fake_verbs::leaks().none()) << fake_verbs::leaks(); }

  static void devices(std::vector<DeviceConfig> list) {
    fake_verbs::Config config;
    config.devices = std::move(list);
    fake_verbs::reset(config);
  }
  static DeviceConfig ethernet(std::string name, std::vector<Gid> gids) {
    DeviceConfig device;
    device.name = std::move(name);
    device.ports[0].gids = std::move(gids);
    return device;
  }
  static VerbsPorts survey(std::string_view wanted = {}) {
    Result<VerbsPorts> ports = survey_verbs_ports(wanted);
    EXPECT_TRUE(ports.ok()) << (ports.ok() ? "" : ports.error().message);
    return ports.ok() ? std::move(ports.value()) : VerbsPorts{};
  }
  /// The only line, of the only port.
  static std::string rejection() {
    const VerbsPorts ports = survey();
    EXPECT_TRUE(ports.usable.empty());
    EXPECT_EQ(ports.rejected.size(), 1u);
    return ports.rejected.empty() ? "" : ports.rejected[0].name + ": " + ports.rejected[0].why;
  }
  static bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }
  static constexpr ibv_gid kNone{};
};

TEST_F(PortSelection, NoDeviceIsNoError) {
  devices({});
  const VerbsPorts ports = survey();
  EXPECT_TRUE(ports.usable.empty() && ports.rejected.empty());
}

TEST_F(PortSelection, RoCEv2WithIpv4IsTheBestGid) {
  const Gid v1{fake_verbs::prefix_gid(0xFE80'0000'0000'0000u, 5), IBV_GID_TYPE_ROCE_V1};
  const Gid local{fake_verbs::prefix_gid(0xFE80'0000'0000'0000u, 5), IBV_GID_TYPE_ROCE_V2};
  const Gid global{fake_verbs::prefix_gid(0x2001'0DB8'0000'0000u, 5), IBV_GID_TYPE_ROCE_V2};
  const Gid ipv4_v1{fake_verbs::ipv4_gid(10, 9, 0, 1), IBV_GID_TYPE_ROCE_V1};
  const Gid ipv4{fake_verbs::ipv4_gid(10, 9, 0, 1), IBV_GID_TYPE_ROCE_V2};
  const Gid empty{kNone, IBV_GID_TYPE_ROCE_V2};
  struct Case {
    std::vector<Gid> gids;
    int index;
    const char* address;
    const char* reason;
  };
  const Case cases[] = {
      {{v1, local, global, ipv4_v1, ipv4}, 4, "10.9.0.1", "RoCE v2 with an IPv4 address"},
      {{empty, v1, local, global}, 3, "2001:db8::5", "global IPv6"},
      {{v1, local}, 1, "", "link-local"},
      {{v1, empty}, 0, "", "RoCE v1"},
  };
  for (const Case& one : cases) {
    devices({ethernet("mlx5_0", one.gids)});
    const VerbsPorts ports = survey();
    ASSERT_EQ(ports.usable.size(), 1u) << one.reason;
    EXPECT_EQ(ports.usable[0].gid_index, one.index);
    EXPECT_EQ(ports.usable[0].network_address(), one.address);
    EXPECT_TRUE(contains(ports.usable[0].reason, one.reason)) << ports.usable[0].reason;
    EXPECT_TRUE(ports.usable[0].ethernet);
    EXPECT_TRUE(contains(ports.usable[0].to_string(), "mlx5_0:1:" + std::to_string(one.index)));
  }
}

TEST_F(PortSelection, AGidOfAnInterfaceThatIsNamedGoesBeforeTheOthers) {
  const Gid v1{fake_verbs::ipv4_gid(10, 9, 7, 1), IBV_GID_TYPE_ROCE_V1};
  const Gid first{fake_verbs::ipv4_gid(10, 9, 0, 1), IBV_GID_TYPE_ROCE_V2};
  const Gid vlan{fake_verbs::ipv4_gid(10, 9, 7, 1), IBV_GID_TYPE_ROCE_V2};
  const Gid ipv6{fake_verbs::prefix_gid(0x2001'0DB8'0000'0000u, 5), IBV_GID_TYPE_ROCE_V2};
  const Gid local{fake_verbs::prefix_gid(0xFE80'0000'0000'0000u, 5), IBV_GID_TYPE_ROCE_V2};
  devices({ethernet("mlx5_0", {v1, first, vlan, ipv6, local})});
  const auto chosen = [](std::string_view interface, std::string_view wanted = {}) {
    return survey_verbs_ports(wanted, 0, {}, interface).value().usable.at(0);
  };
  EXPECT_EQ(chosen("10.9.7.1").gid_index, 2) << "of the two with this address, RoCE v2";
  EXPECT_EQ(chosen("10.9.7.1").network_address(), "10.9.7.1");
  EXPECT_EQ(chosen("10.9.7.1").reason, "of an interface that INTERFACE names");
  EXPECT_EQ(chosen("eth77,2001:db8::5,10.9.7.1").gid_index, 3) << "the first entry that a GID has";
  EXPECT_EQ(chosen("!10.9.0.1").gid_index, 2);
  EXPECT_EQ(chosen("!10.9.0.1").reason, "RoCE v2 with an IPv4 address");
  EXPECT_EQ(chosen("!10.9.0.1,!10.9.7.1").gid_index, 3);
  EXPECT_EQ(chosen("eth77").gid_index, 1) << "no GID has it: the best";
  EXPECT_EQ(chosen("eth77").reason, "RoCE v2 with an IPv4 address");
  EXPECT_EQ(chosen("fe80::5").gid_index, 1) << "nobody connects to a link-local address";
  EXPECT_EQ(chosen("10.9.7.1", "mlx5_0:1:1").gid_index, 1) << "an index is more exact";
  EXPECT_EQ(chosen("lo").gid_index, 1);
}

TEST_F(PortSelection, SaysWhyAPortIsOfNoUse) {
  DeviceConfig device;
  device.ports[0].state = IBV_PORT_DOWN;
  devices({device});
  EXPECT_TRUE(contains(rejection(), "fake0:1: the port is down (no cable"));
  device.ports[0].state = IBV_PORT_INIT;
  devices({device});
  EXPECT_TRUE(contains(rejection(), "subnet manager (is opensm running?)"));
  device.ports[0].state = IBV_PORT_ACTIVE_DEFER;
  devices({device});
  EXPECT_TRUE(contains(rejection(), "not active"));
  devices({ethernet("fake0", {})});
  EXPECT_TRUE(contains(rejection(), "no GID (does its network interface have an address?)"));
  devices({ethernet("fake0", {{kNone, IBV_GID_TYPE_ROCE_V2}})});
  EXPECT_TRUE(contains(rejection(), "no GID"));
  device = {};
  device.open_error = EACCES;
  devices({device});
  EXPECT_TRUE(contains(rejection(), "fake0: cannot be opened: Permission denied"));
  EXPECT_TRUE(contains(rejection(), "read and write permission on /dev/infiniband/uverbs"));
  device.open_error = ENODEV;
  devices({device});
  EXPECT_TRUE(contains(rejection(), "cannot be opened"));
  EXPECT_FALSE(contains(rejection(), "permission on"));
  device.open_error = ENOENT;  // Where the file is there, too: test/lab has that.
  devices({device});
  EXPECT_TRUE(contains(rejection(), "is there a /dev/infiniband/"));
}

TEST_F(PortSelection, OnInfiniBandTheFirstGidCounts) {
  DeviceConfig device;
  device.ports = {fake_verbs::infiniband_port(17)};
  devices({device});
  const VerbsPorts ports = survey();
  ASSERT_EQ(ports.usable.size(), 1u);
  EXPECT_FALSE(ports.usable[0].ethernet);
  EXPECT_EQ(ports.usable[0].lid, 17);
  EXPECT_EQ(ports.usable[0].network_address(), "");
  EXPECT_TRUE(contains(ports.usable[0].to_string(), "InfiniBand"));
}

TEST_F(PortSelection, AmongEqualsInfiniBandComesFirstThenTheName) {
  DeviceConfig b, a, ib;
  b.name = "b";
  a.name = "a";
  ib.name = "z";
  ib.ports = {fake_verbs::infiniband_port(3)};
  devices({b, ib, a});
  const VerbsPorts ports = survey();
  ASSERT_EQ(ports.usable.size(), 3u);
  EXPECT_EQ(ports.usable[0].device, "z");
  EXPECT_EQ(ports.usable[1].device, "a");
  EXPECT_EQ(ports.usable[2].device, "b");
}

TEST_F(PortSelection, AWishIsFollowed) {
  DeviceConfig two;
  two.name = "two";
  two.ports = {fake_verbs::ethernet_port(), fake_verbs::ethernet_port()};
  DeviceConfig other;
  other.name = "other";
  devices({two, other});
  EXPECT_EQ(survey().usable.size(), 3u);
  EXPECT_EQ(survey("two").usable.size(), 2u);
  EXPECT_EQ(survey("two:2").usable.at(0).port, 2);
  const VerbsPort picked = survey("two:2:0").usable.at(0);
  EXPECT_EQ(picked.gid_index, 0);
  EXPECT_EQ(picked.reason, "asked for");
  const VerbsPorts list = survey("other,two:1");
  ASSERT_EQ(list.usable.size(), 2u);
  EXPECT_EQ(list.usable[0].device, "other");
  EXPECT_EQ(list.usable[1].device, "two");
  const VerbsPorts none = survey("two:1:9");
  EXPECT_TRUE(none.usable.empty());
  ASSERT_EQ(none.rejected.size(), 1u);
  EXPECT_TRUE(contains(none.rejected[0].why, "GID index 9"));
  // A port that the device does not have must not be passed over in silence.
  const VerbsPorts third = survey("two:3");
  EXPECT_TRUE(third.usable.empty());
  ASSERT_EQ(third.rejected.size(), 1u);
  EXPECT_TRUE(contains(third.rejected[0].name, "two:3")) << third.rejected[0].why;
}

TEST_F(PortSelection, AWishThatIsNoneIsExplained) {
  devices({DeviceConfig{}});
  for (const char* const bad : {":", ":1", "fake0:0", "fake0:256", "fake0:x", "fake0:1:x", "fake0:1:-1",
                                "fake0:1:2:3", ",", "fake0,", "fake0,,fake0", "fake0:1 "}) {
    const Result<VerbsPorts> ports = survey_verbs_ports(bad);
    if (std::string_view(bad) == "fake0,") continue;  // A comma at the end is forgiven.
    ASSERT_FALSE(ports.ok()) << bad;
    EXPECT_EQ(ports.error().status, Status::kUnsupported);
    EXPECT_TRUE(contains(ports.error().message, "DEVICE[:PORT[:GID_INDEX]]")) << ports.error().message;
  }
  const Result<VerbsPorts> unknown = survey_verbs_ports("mlx5_7");
  ASSERT_FALSE(unknown.ok());
  EXPECT_TRUE(contains(unknown.error().message, "no RDMA device is called 'mlx5_7': there is fake0"));
}

TEST_F(PortSelection, OpeningByName) {
  devices({DeviceConfig{}});
  EXPECT_TRUE(open_verbs_device("fake0").ok());
  const Result<DeviceContext> unknown = open_verbs_device("x");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().status, Status::kUnsupported);
  fake_verbs::adjust([](fake_verbs::Config& config) { config.devices[0].open_error = EACCES; });
  const Result<DeviceContext> refused = open_verbs_device("fake0");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, Status::kDeviceFailed);
  EXPECT_EQ(refused.error().error_number, EACCES);
}

TEST_F(PortSelection, ThePartitionIsTheFirstWithFullMembershipOrTheOneThatIsWanted) {
  const auto ports = [](std::vector<std::uint16_t> keys, std::uint16_t wanted) {
    DeviceConfig device;
    device.ports[0] = fake_verbs::infiniband_port(5);
    device.ports[0].partition_keys = std::move(keys);
    devices({device});
    return survey_verbs_ports({}, wanted).value();
  };
  struct Case {
    std::vector<std::uint16_t> keys;
    std::uint16_t wanted;
    int index;  ///< -1: none.
    std::uint16_t key;
  };
  for (const Case& one :
       {Case{{0xFFFF}, 0, 0, 0xFFFF}, Case{{0x7FFF, 0, 0x8001}, 0, 2, 0x8001},
        Case{{0x7FFF, 0x0001}, 0, -1, 0}, Case{{0xFFFF, 0x8001, 0x8002}, 0x8002, 2, 0x8002},
        // By value, whichever membership the user wrote or the table has first.
        Case{{0xFFFF, 0x0002, 0x8002}, 0x0002, 2, 0x8002}, Case{{0xFFFF, 0x0002}, 0x8002, 1, 0x0002},
        Case{{0xFFFF, 0x8001}, 0x8002, -1, 0}, Case{{}, 0, -1, 0}}) {
    const VerbsPorts found = ports(one.keys, one.wanted);
    ASSERT_EQ(found.usable.size(), one.index >= 0 ? 1u : 0u) << one.wanted;
    if (one.index < 0) {
      EXPECT_TRUE(contains(found.rejected[0].why,
                           one.wanted == 0 ? "a full member of no partition" : "not in partition 0x8002"))
          << found.rejected[0].why;
      continue;
    }
    EXPECT_EQ(found.usable[0].partition_index, one.index);
    EXPECT_EQ(found.usable[0].partition_key, one.key);
  }
}

TEST_F(PortSelection, ARocePortHasOnePartition) {
  devices({ethernet("fake0", {Gid{fake_verbs::ipv4_gid(10, 9, 0, 1), IBV_GID_TYPE_ROCE_V2}})});
  const VerbsPorts ports = survey_verbs_ports({}, 0x8002).value();
  ASSERT_EQ(ports.usable.size(), 1u);
  EXPECT_EQ(ports.usable[0].partition_index, 0);
}

}  // namespace
}  // namespace ch3_offload
