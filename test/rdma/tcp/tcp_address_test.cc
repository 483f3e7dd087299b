// Addresses of TCP providers as text.

#include "rdma/tcp/tcp_address.h"

#include <gtest/gtest.h>

#include <string>

#include "rdma/introduction/socket_address.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

TcpAddress sample() {
  return {.host = "10.9.0.12", .port = 40001, .slot_bytes = 32768, .instance = 0x0123'4567'89AB'CDEFu};
}

TEST(TcpAddress, TextAndBack) {
  const std::string text = sample().to_string();
  EXPECT_EQ(text, "tcp:1/10.9.0.12/40001/32768/0123456789abcdef");
  const std::optional<TcpAddress> back = TcpAddress::parse(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->host, "10.9.0.12");
  EXPECT_EQ(back->port, 40001);
  EXPECT_EQ(back->slot_bytes, 32768u);
  EXPECT_EQ(back->instance, sample().instance);
}

TEST(TcpAddress, OfIpv6) {
  for (const char* const host : {"::1", "fe80::1", "2001:0db8:1111:2222:3333:4444:5555:6666"}) {
    TcpAddress address = sample();
    address.host = host;
    address.port = 65535;
    address.slot_bytes = TcpAddress::kMostSlotBytes;
    const std::string text = address.to_string();
    EXPECT_LE(text.size(), TcpAddress::kMostBytes);
    const std::optional<TcpAddress> back = TcpAddress::parse(text);
    ASSERT_TRUE(back) << host;
    EXPECT_EQ(back->host, host);
    EXPECT_EQ(back->port, 65535);
    EXPECT_EQ(back->to_string(), text);
  }
}

TEST(TcpAddress, SlotsHaveBounds) {
  TcpAddress address = sample();
  for (const std::uint32_t slot_bytes : {TcpAddress::kLeastSlotBytes, TcpAddress::kMostSlotBytes, 8191u}) {
    address.slot_bytes = slot_bytes;
    const std::optional<TcpAddress> back = TcpAddress::parse(address.to_string());
    ASSERT_TRUE(back) << slot_bytes;
    EXPECT_EQ(back->slot_bytes, slot_bytes);
  }
  for (const std::uint32_t slot_bytes :
       {0u, 1u, TcpAddress::kLeastSlotBytes - 1, TcpAddress::kMostSlotBytes + 1, UINT32_MAX}) {
    address.slot_bytes = slot_bytes;
    EXPECT_FALSE(TcpAddress::parse(address.to_string())) << slot_bytes;
  }
}

TEST(TcpAddress, EverythingElseIsRefused) {
  const std::string good = sample().to_string();
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(TcpAddress::parse(good.substr(0, length))) << length;
  for (const char* const bad : {
           "tcp:2/10.9.0.12/40001/32768/0123456789abcdef",
           "tcp:/10.9.0.12/40001/32768/0123456789abcdef",
           "TCP:1/10.9.0.12/40001/32768/0123456789abcdef",
           " tcp:1/10.9.0.12/40001/32768/0123456789abcdef",
           "verbs:4/r/10.9.0.1/1/8192/0000000000000000/0123456789abcdef",
           "tcp:1/localhost/40001/32768/0123456789abcdef",
           "tcp:1//40001/32768/0123456789abcdef",
           "tcp:1/10.9.0/40001/32768/0123456789abcdef",
           "tcp:1/010.9.0.12/40001/32768/0123456789abcdef",
           "tcp:1/[::1]/40001/32768/0123456789abcdef",
           "tcp:1/10.9.0.12/0/32768/0123456789abcdef",
           "tcp:1/10.9.0.12/65536/32768/0123456789abcdef",
           "tcp:1/10.9.0.12/-1/32768/0123456789abcdef",
           "tcp:1/10.9.0.12/+1/32768/0123456789abcdef",
           "tcp:1/10.9.0.12/ 1/32768/0123456789abcdef",
           "tcp:1/10.9.0.12/01/32768/0123456789abcdef",
           "tcp:1/10.9.0.12/0x9/32768/0123456789abcdef",
           "tcp:1/10.9.0.12//32768/0123456789abcdef",
           "tcp:1/10.9.0.12/40001/032768/0123456789abcdef",
           "tcp:1/10.9.0.12/40001/4294999040/0123456789abcdef",
           "tcp:1/10.9.0.12/40001//0123456789abcdef",
           "tcp:1/10.9.0.12/40001/32768/123456789abcdef",
           "tcp:1/10.9.0.12/40001/32768/00123456789abcdef",
           "tcp:1/10.9.0.12/40001/32768/0123456789ABCDEF",
           "tcp:1/10.9.0.12/40001/32768/0123456789abcdeg",
           "tcp:1/10.9.0.12/40001/32768/0123456789abcdef/",
           "tcp:1/10.9.0.12/40001/32768/0123456789abcdef ",
           "tcp:1/10.9.0.12/40001/32768/0/0123456789abcdef",
       })
    EXPECT_FALSE(TcpAddress::parse(bad)) << bad;
  TcpAddress long_one = sample();
  long_one.host = std::string(TcpAddress::kMostBytes, '1');
  EXPECT_FALSE(TcpAddress::parse(long_one.to_string()));
}

/// What is taken is what would be said, and it can be dialled.
TEST(TcpAddress, BytesThatChangeAreRefusedOrMeanAnotherAddress) {
  const std::string good = sample().to_string();
  const auto expect_sound = [](const std::string& text) {
    const std::optional<TcpAddress> address = TcpAddress::parse(text);
    if (!address) return;
    EXPECT_EQ(address->to_string(), text);
    EXPECT_EQ(address->host.find('\0'), std::string::npos) << text;
    EXPECT_TRUE(socket_address(address->host, address->port)) << text;
    EXPECT_GT(address->port, 0) << text;
  };
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text = good;
      text[at] = static_cast<char>(byte);
      expect_sound(text);
    }
  }
  SeededRandom random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (int n = 0; n < 3; ++n) text[random.below(text.size())] = static_cast<char>(random.next());
    expect_sound(text);
  }
}

}  // namespace
}  // namespace ch3_offload
