// Addresses as text, and this node's own.

#include "rdma/verbs/verbs_address.h"

#include <gtest/gtest.h>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

VerbsAddress sample() {
  VerbsAddress address;
  address.ethernet = true;
  address.host = "10.9.0.1";
  address.port = 40001;
  address.instance = 0x0123'4567'89AB'CDEFu;
  return address;
}

TEST(VerbsAddress, TextAndBack) {
  const std::string text = sample().to_string();
  EXPECT_EQ(text, "verbs:1/r/10.9.0.1/40001/0123456789abcdef/0000000000000000");
  const std::optional<VerbsAddress> back = VerbsAddress::parse(text);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->ethernet);
  EXPECT_EQ(back->host, "10.9.0.1");
  EXPECT_EQ(back->port, 40001);
  EXPECT_EQ(back->instance, sample().instance);
  EXPECT_EQ(back->subnet_prefix, 0u);
}

TEST(VerbsAddress, InfiniBandAndIpv6) {
  VerbsAddress address = sample();
  address.ethernet = false;
  address.host = "2001:0db8:1111:2222:3333:4444:5555:6666";
  address.subnet_prefix = 0xFE80'0000'0000'0000u;
  const std::string text = address.to_string();
  EXPECT_LE(text.size(), VerbsAddress::kMostBytes);
  const std::optional<VerbsAddress> back = VerbsAddress::parse(text);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->same_fabric(address));
  EXPECT_FALSE(back->same_fabric(sample()));
  address.subnet_prefix = 1;
  EXPECT_FALSE(back->same_fabric(address));
}

TEST(VerbsAddress, EverythingElseIsRefused) {
  const std::string good = sample().to_string();
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(VerbsAddress::parse(good.substr(0, length))) << length;
  for (const char* const bad : {"verbs:1/x/10.9.0.1/1/0123456789abcdef/0000000000000000",
                                "verbs:2/r/10.9.0.1/1/0123456789abcdef/0000000000000000",
                                "verbs:1/r/localhost/1/0123456789abcdef/0000000000000000",
                                "verbs:1/r//1/0123456789abcdef/0000000000000000",
                                "verbs:1/r/10.9.0.1/0/0123456789abcdef/0000000000000000",
                                "verbs:1/r/10.9.0.1/65536/0123456789abcdef/0000000000000000",
                                "verbs:1/r/10.9.0.1/-1/0123456789abcdef/0000000000000000",
                                "verbs:1/r/10.9.0.1/ 1/0123456789abcdef/0000000000000000",
                                "verbs:1/r/10.9.0.1/1/123456789abcdef/0000000000000000",
                                "verbs:1/r/10.9.0.1/1/g123456789abcdef/0000000000000000",
                                "verbs:1/r/10.9.0.1/1/0123456789abcdef/0000000000000000/"})
    EXPECT_FALSE(VerbsAddress::parse(bad)) << bad;
  SeededRandom random(2);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (int n = 0; n < 2; ++n) text[random.below(text.size())] = static_cast<char>(random.next());
    if (const std::optional<VerbsAddress> address = VerbsAddress::parse(text)) {
      EXPECT_TRUE(socket_address(address->host, address->port));
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

TEST(FindHostAddress, TakesAnInterfaceOrAnAddressOfThisNode) {
  EXPECT_EQ(find_host_address("lo"), "127.0.0.1");
  EXPECT_EQ(find_host_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(find_host_address("no-such-interface"), "");
  EXPECT_EQ(find_host_address("192.0.2.77"), "");
  const std::string any = find_host_address("");
  EXPECT_TRUE(any.empty() || socket_address(any, 1)) << any;
}

}  // namespace
}  // namespace ch3_offload
