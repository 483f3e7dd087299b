// Which address of a node is chosen, of nodes that are lists.

#include "rdma/introduction/host_address.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {
namespace {

/// As getifaddrs() lists them: all of IPv4, then all of IPv6.
HostNetwork cluster_node() {
  HostNetwork node;
  node.interfaces = {{"lo", "127.0.0.1"},       {"eth0", "10.0.0.5"},   {"eth1", "10.1.0.5", false},
                     {"ib0", "169.254.3.4"},    {"ib1", "192.168.1.5"}, {"ib2", "192.168.2.5"},
                     {"docker0", "172.17.0.1"}, {"lo", "::1"},          {"eth0", "2001:db8::5"},
                     {"ib1", "fe80::5"}};
  return node;
}

/// The address, or the error's message.
std::string chosen(std::string_view wanted, const HostNetwork& node = cluster_node(),
                   bool loopback_serves = false) {
  Result<std::string> result = choose_host_address(wanted, node, loopback_serves);
  if (result.ok()) return result.value();
  EXPECT_EQ(result.error().status, Status::kUnsupported);
  return result.error().message;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(ChooseHostAddress, ANameOrAnAddressStandsForItself) {
  EXPECT_EQ(chosen("eth0"), "10.0.0.5");
  EXPECT_EQ(chosen("ib2"), "192.168.2.5");
  EXPECT_EQ(chosen("172.17.0.1"), "172.17.0.1");
  EXPECT_EQ(chosen("2001:db8:0:0::5"), "2001:db8::5") << "in another spelling";
}

TEST(ChooseHostAddress, APatternStandsForItsFirstInterface) {
  EXPECT_EQ(chosen("ib*"), "192.168.1.5") << "ib0 has a link-local address only";
  EXPECT_EQ(chosen("ib[2-9]"), "192.168.2.5");
  EXPECT_EQ(chosen("docker?"), "172.17.0.1");
  EXPECT_EQ(chosen("*"), "10.0.0.5");
}

TEST(ChooseHostAddress, TheFirstEntryThatTheNodeHasDecides) {
  EXPECT_EQ(chosen("mlx*,docker0,eth0"), "172.17.0.1");
  EXPECT_EQ(chosen("192.0.2.1,ib2,*"), "192.168.2.5");
  EXPECT_EQ(chosen("eth1,ib1"), "192.168.1.5") << "eth1 is down";
}

TEST(ChooseHostAddress, WhatIsExcludedIsNotChosenWhereverThatStands) {
  EXPECT_EQ(chosen("ib*,!ib1"), "192.168.2.5");
  EXPECT_EQ(chosen("!ib1,ib*"), "192.168.2.5");
  EXPECT_EQ(chosen("ib*,!192.168.1.5"), "192.168.2.5");
  EXPECT_EQ(chosen("eth0,docker0,!eth*"), "172.17.0.1");
  EXPECT_TRUE(contains(chosen("eth0,!eth0"), "'eth0,!eth0' matches no network interface"));
}

TEST(ChooseHostAddress, ExclusionsAloneStandForAllOthers) {
  EXPECT_EQ(chosen("!docker0"), "10.0.0.5");
  EXPECT_EQ(chosen("!docker*,!eth*"), "192.168.1.5");
  EXPECT_EQ(chosen("!10.0.0.5"), "192.168.1.5") << "in the order of the interfaces";
  EXPECT_TRUE(contains(chosen("!*"), "'!*' matches no network interface"));
}

TEST(ChooseHostAddress, ALoopbackAddressThatIsNamedIsAnError) {
  for (const char* const wanted : {"lo", "127.0.0.1", "127.9.9.9", "::1", "mlx0,lo", "lo,eth0"}) {
    EXPECT_TRUE(contains(chosen(wanted), "stands for a loopback address (")) << chosen(wanted);
    EXPECT_TRUE(contains(chosen(wanted), "name another of eth0 (10.0.0.5)")) << chosen(wanted);
  }
  EXPECT_EQ(chosen("eth0,lo"), "10.0.0.5");
  EXPECT_TRUE(contains(chosen("l*"), "'l*' matches no network interface"));
  EXPECT_TRUE(contains(chosen("l?,127.*"), "matches no network interface"));
  EXPECT_EQ(chosen("lo", cluster_node(), true), "127.0.0.1");
  EXPECT_EQ(chosen("*", cluster_node(), true), "10.0.0.5");

  HostNetwork routed = cluster_node();
  routed.interfaces.push_back({"lo", "10.255.0.1"});
  EXPECT_EQ(chosen("lo", routed), "10.255.0.1") << "a router's address, which others reach";
}

TEST(ChooseHostAddress, ALinkLocalAddressHasToBeNamed) {
  EXPECT_EQ(chosen("ib0"), "169.254.3.4");
  EXPECT_EQ(chosen("169.254.3.4"), "169.254.3.4");
  EXPECT_TRUE(contains(chosen("ib0*"), "matches no network interface"));
  EXPECT_TRUE(contains(chosen("fe80::5"), "matches no network interface"))
      << "it means nothing without a scope";
}

TEST(PlaceInList, IsThatOfTheFirstEntryThatNamesIt) {
  const HostInterface one{"eth0.7", "10.9.7.1"};
  EXPECT_EQ(place_in_list("ib0,eth0.*,10.9.7.1", one), 1u);
  EXPECT_EQ(place_in_list("10.9.7.1", one), 0u);
  EXPECT_EQ(place_in_list("!ib0,eth*", one), 0u) << "exclusions have no place";
  for (const char* const list : {"", "ib0", "eth0", "eth*,!10.9.7.1", "!eth*", "!ib0", "eth*,,ib0"})
    EXPECT_EQ(place_in_list(list, one), std::nullopt) << list;
  for (const char* const list : {"eth*,!10.9.7.1", "!eth*", "!ib0,!eth0.7"})
    EXPECT_TRUE(is_excluded(list, one)) << list;
  for (const char* const list : {"", "ib0", "!eth0"}) EXPECT_FALSE(is_excluded(list, one)) << list;
}

TEST(ChooseHostAddress, WithoutAListTheHostsNameGoesFirst) {
  HostNetwork node = cluster_node();
  node.of_host_name = {"192.168.2.5", "10.0.0.5"};
  EXPECT_EQ(chosen("", node), "192.168.2.5");
  node.of_host_name = {"127.0.1.1"};
  EXPECT_EQ(chosen("", node), "10.0.0.5") << "Debian's /etc/hosts";
  node.of_host_name = {"::1", "fe80::5", "169.254.3.4", "2001:db8::5"};
  EXPECT_EQ(chosen("", node), "2001:db8::5");
  node.of_host_name.clear();
  EXPECT_EQ(chosen("", node), "10.0.0.5");
  node.interfaces = {{"lo", "127.0.0.1"}, {"ib0", "169.254.3.4"}, {"eth0", "10.0.0.5", false}};
  EXPECT_TRUE(contains(chosen("", node), "no IP address at which others could set up connections"));
}

TEST(ChooseHostAddress, AnErrorSaysWhatThereIs) {
  EXPECT_EQ(chosen("mlx*"),
            "'mlx*' matches no network interface, and no address, that is up and that other nodes reach: "
            "this node has eth0 (10.0.0.5), ib1 (192.168.1.5), ib2 (192.168.2.5), docker0 (172.17.0.1), ...");
  EXPECT_TRUE(contains(chosen("mlx0", {}), "this node has none that others reach"));
  for (const char* const wanted : {",", "eth0,", ",eth0", "ib0,,eth0", "!", "eth0,!"})
    EXPECT_TRUE(contains(chosen(wanted), "has an entry without a name between its commas")) << wanted;
}

TEST(FindHostAddress, LooksAtThisNode) {
  Result<std::string> loopback = find_host_address("lo", true);
  ASSERT_TRUE(loopback.ok()) << loopback.error().message;
  EXPECT_EQ(loopback.value(), "127.0.0.1");
  EXPECT_FALSE(find_host_address("lo").ok());
  EXPECT_FALSE(find_host_address("no-such-interface").ok());
  EXPECT_FALSE(find_host_address("192.0.2.77").ok());
  if (Result<std::string> any = find_host_address(""); any.ok()) {
    EXPECT_TRUE(socket_address(any.value(), 1));
    EXPECT_EQ(find_host_address(any.value()).value(), any.value());
  }
}

}  // namespace
}  // namespace ch3_offload
