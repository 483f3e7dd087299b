#include "nic/kernel_reach.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rdma/file_descriptor.h"

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

namespace ch3_offload {
namespace {

constexpr std::size_t kPage = 4096;

/// Pages of this process, of which the kernel copies some for nobody.
class Pages {
 public:
  explicit Pages(std::size_t count) : bytes_(count * kPage) {
    memory_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Pages() { ::munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* at(std::size_t page) const { return memory_ + page * kPage; }
  /// False: this system has no secret memory for this user.
  bool make_secret(std::size_t page) {
    const FileDescriptor secret(static_cast<int>(::syscall(SYS_memfd_secret, 0)));
    return secret.valid() && ::ftruncate(secret.get(), kPage) == 0 &&
           ::mmap(at(page), kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, secret.get(), 0) == at(page);
  }

 private:
  const std::size_t bytes_;
  std::byte* memory_;
};

TEST(KernelReach, OrdinaryMemoryIsReached) {
  const Pages pages(3);
  EXPECT_TRUE(is_in_kernel_reach(pages.at(0), 3 * kPage));
  EXPECT_TRUE(is_in_kernel_reach(pages.at(1) + 17, 1));
  EXPECT_TRUE(is_in_kernel_reach(nullptr, 0));
}

TEST(KernelReach, MemoryThatIsNotThereIsNot) {
  const Pages pages(2);
  ASSERT_EQ(::mprotect(pages.at(1), kPage, PROT_NONE), 0);
  EXPECT_TRUE(is_in_kernel_reach(pages.at(0), kPage));
  EXPECT_FALSE(is_in_kernel_reach(pages.at(0), kPage + 1)) << "the last byte";
  EXPECT_FALSE(is_in_kernel_reach(pages.at(1), 1)) << "the first byte";
}

TEST(KernelReach, SecretMemoryIsNot) {
  Pages pages(3);
  if (!pages.make_secret(1)) GTEST_SKIP() << "no memfd_secret here";
  EXPECT_FALSE(is_in_kernel_reach(pages.at(1), kPage));
  EXPECT_FALSE(is_in_kernel_reach(pages.at(1), 2 * kPage));
  EXPECT_FALSE(is_in_kernel_reach(pages.at(0), 2 * kPage));
  EXPECT_TRUE(is_in_kernel_reach(pages.at(2), kPage));
}

}  // namespace
}  // namespace ch3_offload
