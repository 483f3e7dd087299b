// What a process may say of itself with its first message over shared memory.

#include <gtest/gtest.h>

#include "rdma/provider_contract.h"
#include "rdma/shm/shm_connection.h"
#include "rdma/shm/shm_world.h"

namespace ch3_offload {
namespace {

constexpr std::uint32_t kPeers = 4;

Hello hello_to(PeerId receiver) {
  Hello hello;
  hello.sender = index_of(kB);
  hello.receiver = index_of(receiver);
  hello.secret = test_secret();
  return hello;
}

/// What kA answers.
std::string_view refusal_of(const Hello& hello) {
  Hello taken;
  return check_hello(std::as_bytes(std::span(&hello, 1)), test_secret(), kA, kPeers, taken);
}

TEST(ShmHello, ARightOneIsTaken) { EXPECT_EQ(refusal_of(hello_to(kA)), ""); }

TEST(ShmHello, AnotherLengthIsRefused) {
  const Hello hello = hello_to(kA);
  Hello taken;
  EXPECT_EQ(check_hello(std::as_bytes(std::span(&hello, 1)).first(sizeof hello - 1), test_secret(), kA,
                        kPeers, taken),
            "its first message has the wrong length");
}

TEST(ShmHello, EachWrongFieldIsRefused) {
  Hello hello = hello_to(kA);
  hello.secret[0] ^= std::byte{1};
  EXPECT_EQ(refusal_of(hello), "it does not know the job's secret");
  hello = hello_to(kA);
  ++hello.magic;
  EXPECT_EQ(refusal_of(hello), "it speaks another protocol");
  hello = hello_to(kA);
  --hello.size_bytes;
  EXPECT_EQ(refusal_of(hello), "it speaks another protocol");
  hello = hello_to(kA);
  ++hello.version;
  EXPECT_EQ(refusal_of(hello), "it speaks another version of the protocol");
  EXPECT_EQ(refusal_of(hello_to(kB)), "it looks for another process");
  hello = hello_to(kA);
  hello.sender = kPeers;
  EXPECT_EQ(refusal_of(hello), "its number is out of range");
}

TEST(ShmHello, NobodyHasTheNumberOfTheProcessItself) {
  Hello hello = hello_to(kA);
  hello.sender = index_of(kA);
  EXPECT_EQ(refusal_of(hello), "it calls itself by this process's number");
}

}  // namespace
}  // namespace ch3_offload
