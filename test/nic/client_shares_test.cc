// Memory that a client shares: here both are this process.

#include "nic/client_shares.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "engine/payload_layout.h"
#include "nic/client_memory.h"
#include "nic/exchange.h"
#include "nic/stepped_rings.h"

namespace ch3_offload {
namespace client_shares_test {

constexpr std::size_t kBytes = 8192;

class ClientSharesTest : public testing::Test {
 protected:
  ClientSharesTest() : file_(std::move(make_shared_file("test", kBytes).value())), shares_(socket_.processor) {
    mapping_ = std::move(map_shared(file_, kBytes, MapAccess::kReadWrite).value());
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(mapping_.address()); }

  template <class Said>
  void say(const Said& said, std::span<const int> files) {
    ASSERT_TRUE(send_with_files(socket_.client, std::as_bytes(std::span(&said, 1)), files));
  }
  void offer(std::uint64_t address, std::uint64_t length_bytes, int file) {
    say(NicdShare{.address = address, .length_bytes = length_bytes}, {&file, 1});
  }
  /// Offers a file, and says in the ring that it is that memory.
  bool share(std::uint64_t address, std::uint64_t length_bytes, int file) {
    offer(address, length_bytes, file);
    return shares_.share(address, length_bytes);
  }

  const ClientSocket socket_;
  const FileDescriptor file_;
  Mapping mapping_;
  ClientShares shares_;
};

TEST_F(ClientSharesTest, SharedMemoryIsFoundAndIsTheClients) {
  ASSERT_TRUE(share(address(), kBytes, file_.get()));
  const ClientShares::Found found = shares_.find(address() + 100, 50);
  ASSERT_NE(found.address, nullptr);
  std::memset(found.address, 0x5A, 50);
  EXPECT_EQ(mapping_.address()[99], std::byte{});
  EXPECT_EQ(mapping_.address()[100], std::byte{0x5A});
  EXPECT_EQ(mapping_.address()[149], std::byte{0x5A});
}

TEST_F(ClientSharesTest, OnlyWhatIsWhollySharedIsFound) {
  EXPECT_EQ(shares_.find(address(), 1).address, nullptr);
  ASSERT_TRUE(share(address(), kBytes, file_.get()));
  EXPECT_NE(shares_.find(address(), kBytes).address, nullptr);
  EXPECT_EQ(shares_.find(address(), kBytes + 1).address, nullptr);
  EXPECT_EQ(shares_.find(address() + 1, kBytes).address, nullptr);
  EXPECT_EQ(shares_.find(address() - 1, 2).address, nullptr);
  EXPECT_EQ(shares_.find(address() + kBytes, 0).address, nullptr);
  EXPECT_EQ(shares_.find(address() + 1, UINT64_MAX).address, nullptr);
}

TEST_F(ClientSharesTest, WhatAClientLeavesStaysMapped) {
  struct Gone {
    static void count(void* context, const void*, std::size_t) noexcept { ++*static_cast<int*>(context); }
  };
  int gone = 0;
  std::shared_ptr<const void> left;
  {
    ClientShares shares(socket_.processor);
    shares.watch({&Gone::count, &gone});
    offer(address(), kBytes, file_.get());
    ASSERT_TRUE(shares.share(address(), kBytes));
    {
      const ClientShares::Found in_use = shares.find(address(), 1);
      ASSERT_TRUE(shares.unshare(address()));
      offer(address(), kBytes, file_.get());
      ASSERT_TRUE(shares.share(address(), kBytes));
      left = shares.leave_mapped();
    }
  }
  EXPECT_EQ(gone, 0) << "what an operation used, too";
  left = nullptr;
  EXPECT_EQ(gone, 2);
}

/// The file may come before its command is taken, and is kept.
TEST_F(ClientSharesTest, AnOfferIsKeptUntilItsCommand) {
  offer(address(), kBytes, file_.get());
  EXPECT_EQ(shares_.listen(), Receipt::kMessage);
  EXPECT_EQ(shares_.listen(), Receipt::kNothing);
  EXPECT_TRUE(shares_.share(address(), kBytes));
}

TEST_F(ClientSharesTest, ASecondOfferBeforeTheCommandIsOutOfTurn) {
  offer(address(), kBytes, file_.get());
  offer(address(), kBytes, file_.get());
  EXPECT_EQ(shares_.listen(), Receipt::kMessage);
  EXPECT_EQ(shares_.listen(), Receipt::kInvalid);
}

TEST_F(ClientSharesTest, WhatIsNoOfferIsOutOfTurn) {
  const int file = file_.get();
  say(std::array<std::byte, 5>{}, {&file, 1});
  EXPECT_EQ(shares_.listen(), Receipt::kInvalid);
  say(NicdShare{.magic = 1}, {&file, 1});
  EXPECT_EQ(shares_.listen(), Receipt::kInvalid);
  say(NicdShare{}, {});
  EXPECT_EQ(shares_.listen(), Receipt::kInvalid);
}

TEST_F(ClientSharesTest, ACommandWithoutItsFileSharesNothing) {
  EXPECT_FALSE(shares_.share(address(), kBytes));
  offer(address(), kBytes, file_.get());
  EXPECT_FALSE(shares_.share(address() + 4096, kBytes));
  EXPECT_EQ(shares_.find(address(), 1).address, nullptr);
  EXPECT_FALSE(shares_.share(address(), kBytes)) << "the offer was taken by the command before";
}

TEST_F(ClientSharesTest, AFileThatMayShrinkIsRefused) {
  const FileDescriptor open_ended(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_ended.get(), kBytes), 0);
  EXPECT_FALSE(share(address(), kBytes, open_ended.get()));
  ASSERT_EQ(::fcntl(open_ended.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(share(address(), kBytes, open_ended.get()));
}

/// To touch a huge page of which none is left would end the processor.
TEST_F(ClientSharesTest, AFileOfHugePagesIsRefused) {
  constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
  const FileDescriptor huge(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge.valid() || ::ftruncate(huge.get(), kHugeBytes) != 0) GTEST_SKIP() << "no file of huge pages here";
  ASSERT_EQ(::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(share(address(), kHugeBytes, huge.get()));
}

TEST_F(ClientSharesTest, AFileOfAnotherLengthIsRefused) {
  EXPECT_FALSE(share(address(), kBytes - 1, file_.get()));
  EXPECT_FALSE(share(address(), kBytes + 1, file_.get()));
  EXPECT_FALSE(share(address(), 0, file_.get()));
  EXPECT_FALSE(share(UINT64_MAX - 10, kBytes, file_.get()));
}

TEST_F(ClientSharesTest, SharedMemoryDoesNotOverlap) {
  ASSERT_TRUE(share(address(), kBytes, file_.get()));
  for (const std::uint64_t other : {address(), address() - 1, address() + 1, address() - kBytes + 1,
                                    address() + kBytes - 1})
    EXPECT_FALSE(share(other, kBytes, file_.get())) << other - address();
  EXPECT_TRUE(share(address() + kBytes, kBytes, file_.get()));
}

TEST_F(ClientSharesTest, WhatWasTakenBackIsNotFound) {
  ASSERT_TRUE(share(address(), kBytes, file_.get()));
  EXPECT_FALSE(shares_.unshare(address() + 1));
  EXPECT_TRUE(shares_.unshare(address()));
  EXPECT_EQ(shares_.find(address(), 1).address, nullptr);
  EXPECT_FALSE(shares_.unshare(address()));
}

/// A client may take memory back that an operation uses. That harms nobody else.
TEST_F(ClientSharesTest, MemoryStaysMappedForAnOperationThatUsesIt) {
  Exchange exchange(PeerId{0}, 1, nullptr);
  const auto port = exchange.attach(PeerId{0});
  ClientMemory memory(::getpid(), socket_.processor, 1, *port);
  offer(address(), kBytes, file_.get());
  ASSERT_TRUE(memory.shares().share(address(), kBytes));
  ClientMemory::Part part;
  ASSERT_TRUE(memory.take({mapping_.address() + 8, 16, nullptr}, part));
  const Payload payload = part.payload();
  EXPECT_EQ(payload.layout, nullptr);
  EXPECT_NE(payload.address, mapping_.address() + 8) << "it is mapped elsewhere, too";
  ASSERT_TRUE(memory.shares().unshare(address()));
  std::memset(payload.address, 0x11, 16);
  EXPECT_EQ(mapping_.address()[8], std::byte{0x11});
}

}  // namespace client_shares_test
}  // namespace ch3_offload
