// Addresses as text, and what processes of two nodes have in common.

#include "rdma/verbs/verbs_address.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

VerbsAddress sample() {
  VerbsAddress address;
  address.ethernet = true;
  address.hosts = {"10.9.0.1"};
  address.port = 40001;
  address.slot_bytes = 8192;
  address.networks = {0};
  address.instance = 0x0123'4567'89AB'CDEFu;
  return address;
}

TEST(VerbsAddress, TextAndBack) {
  const std::string text = sample().to_string();
  EXPECT_EQ(text, "verbs:4/r/10.9.0.1/40001/8192/0000000000000000/0123456789abcdef");
  const std::optional<VerbsAddress> back = VerbsAddress::parse(text);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->ethernet);
  EXPECT_EQ(back->hosts, std::vector<std::string>{"10.9.0.1"});
  EXPECT_EQ(back->port, 40001);
  EXPECT_EQ(back->slot_bytes, 8192u);
  EXPECT_EQ(back->instance, sample().instance);
  EXPECT_EQ(back->networks, std::vector<std::uint64_t>{0});
}

TEST(VerbsAddress, InfiniBandAndIpv6) {
  VerbsAddress address = sample();
  address.ethernet = false;
  address.hosts = {"2001:0db8:1111:2222:3333:4444:5555:6666", "2001:0db8:1111:2222:3333:4444:5555:7777"};
  address.networks = {0xFE80'0000'0000'0000u, 7};
  const std::string text = address.to_string();
  EXPECT_LE(text.size(), VerbsAddress::kMostBytes);
  const std::optional<VerbsAddress> back = VerbsAddress::parse(text);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->same_fabric(address));
  EXPECT_FALSE(back->same_fabric(sample()));
  address.networks = {7};
  EXPECT_TRUE(back->same_fabric(address)) << "one network in common";
  address.networks = {1};
  EXPECT_FALSE(back->same_fabric(address));
}

TEST(VerbsAddress, EverythingElseIsRefused) {
  const std::string good = sample().to_string();
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(VerbsAddress::parse(good.substr(0, length))) << length;
  for (const char* const bad : {"verbs:4/x/10.9.0.1/1/8192/0000000000000000/0123456789abcdef",
                                "verbs:3/r/10.9.0.1/1/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/localhost/1/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r//1/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/0/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/65536/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/0/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/128/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/8191/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/65600/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/-8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1//0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/-1/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/ 1/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/8192/0000000000000000/123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/8192/0000000000000000/g123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/8192/000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/8192/0000000000000000+/0123456789abcdef",
                                "verbs:4/r/10.9.0.1+/1/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/1.1.1.1+1.1.1.2+1.1.1.3/1/8192/0000000000000000/0123456789abcdef",
                                "verbs:4/r/10.9.0.1/1/8192/0000000000000000/0123456789abcdef/"})
    EXPECT_FALSE(VerbsAddress::parse(bad)) << bad;
  SeededRandom random(2);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (int n = 0; n < 2; ++n) text[random.below(text.size())] = static_cast<char>(random.next());
    if (const std::optional<VerbsAddress> address = VerbsAddress::parse(text)) {
      for (const std::string& host : address->hosts) EXPECT_TRUE(socket_address(host, address->port));
    }
  }
}

TEST(SocketAddress, TakesBothFamiliesAndNoNames) {
  EXPECT_EQ(socket_address("127.0.0.1", 1)->storage.ss_family, AF_INET);
  EXPECT_EQ(socket_address("::1", 1)->storage.ss_family, AF_INET6);
  EXPECT_FALSE(socket_address("localhost", 1));
  EXPECT_FALSE(socket_address("", 1));
  EXPECT_FALSE(socket_address("1.2.3", 1));
}

VerbsAddress with_networks(std::vector<std::uint64_t> networks) {
  VerbsAddress address = sample();
  address.networks = std::move(networks);
  return address;
}

std::vector<std::pair<int, int>> pairs_of(std::vector<std::uint64_t> first,
                                          std::vector<std::uint64_t> second) {
  std::vector<std::pair<int, int>> pairs;
  for (const RailPair& pair : pair_rails(with_networks(std::move(first)), with_networks(std::move(second))))
    pairs.emplace_back(pair.first, pair.second);
  return pairs;
}

TEST(PairRails, ByNetworkAndElseInTheirOrder) {
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(pairs_of({1, 2}, {1, 2}), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pairs_of({1, 2}, {2, 1}), (Pairs{{0, 1}, {1, 0}}));
  EXPECT_EQ(pairs_of({1, 1}, {1, 1}), (Pairs{{0, 0}, {1, 1}})) << "all in one network";
  EXPECT_EQ(pairs_of({1, 2}, {2}), (Pairs{{1, 0}})) << "the peer lacks a rail";
  EXPECT_EQ(pairs_of({1, 2}, {2, 3}), (Pairs{{1, 0}})) << "what reaches each other counts";
  EXPECT_EQ(pairs_of({1, 2}, {3, 4}), (Pairs{{0, 0}, {1, 1}})) << "through routers";
  EXPECT_EQ(pairs_of({1, 2}, {3}), (Pairs{{0, 0}}));
}

TEST(NetworkOfHost, IsThatOfItsInterface) {
  const std::uint64_t loopback = network_of_host("127.0.0.1");
  EXPECT_NE(loopback, 0u);
  EXPECT_EQ(network_of_host("127.0.0.1"), loopback);
  EXPECT_EQ(network_of_host("192.0.2.77"), 0u);
  EXPECT_EQ(network_of_host(""), 0u);
}

}  // namespace
}  // namespace ch3_offload
