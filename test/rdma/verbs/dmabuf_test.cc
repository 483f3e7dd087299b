// Memory whose pages cannot be pinned: another device's, of which there is a dma-buf. A memfd stands in for it.

#include "rdma/verbs/dmabuf.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "rdma/verbs/verbs_fixture.h"

namespace ch3_offload {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::string_view kKind = "/memfd:";

/// Eight pages of a file, mapped from its third page on.
class MappedFile {
 public:
  static constexpr std::size_t kBytes = 8 * kPageBytes;
  static constexpr std::size_t kOffset = 2 * kPageBytes;

  MappedFile() : file_(::memfd_create("pretended", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), kOffset + kBytes), 0);
    void* const memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), static_cast<off_t>(kOffset));
    EXPECT_NE(memory, MAP_FAILED);
    bytes_ = static_cast<std::byte*>(memory);
  }
  ~MappedFile() { ::munmap(bytes_, kBytes); }
  std::byte* bytes() const { return bytes_; }
  void close() { file_.reset(); }

 private:
  FileDescriptor file_;
  std::byte* bytes_ = nullptr;
};

TEST(Dmabuf, IsFoundByItsMapping) {
  MappedFile file;
  for (const std::size_t begin : {std::size_t{0}, std::size_t{100}, MappedFile::kBytes - 1}) {
    const std::optional<DmabufRange> found = find_dmabuf(file.bytes() + begin, 1, kKind);
    ASSERT_TRUE(found) << begin;
    EXPECT_EQ(found->offset_bytes, MappedFile::kOffset + begin);
    const std::byte value{static_cast<unsigned char>(7 + begin)};
    ASSERT_EQ(::pwrite(found->file.get(), &value, 1, static_cast<off_t>(found->offset_bytes)), 1);
    EXPECT_EQ(file.bytes()[begin], value);
  }
  EXPECT_TRUE(find_dmabuf(file.bytes(), MappedFile::kBytes, kKind));
}

TEST(Dmabuf, IsNotFoundWhereThereIsNone) {
  MappedFile file;
  EXPECT_FALSE(find_dmabuf(file.bytes() + 1, MappedFile::kBytes, kKind)) << "beyond its end";
  EXPECT_FALSE(find_dmabuf(file.bytes(), 1)) << "a file of another kind";
  std::byte ordinary{};
  EXPECT_FALSE(find_dmabuf(&ordinary, 1, kKind));
  EXPECT_FALSE(find_dmabuf(nullptr, 1, kKind));
  file.close();
  EXPECT_FALSE(find_dmabuf(file.bytes(), 1, kKind)) << "nobody has its descriptor";
}

class VerbsDmabuf : public VerbsProviders {
 protected:
  void make_pair(bool takes_dmabufs) {
    VerbsConfig config;
    config.dmabuf_kind = kKind;
    fake_verbs::Config fake;
    for (fake_verbs::DeviceConfig& device : fake.devices) device.takes_dmabufs = takes_dmabufs;
    make(2, config, fake);
    establish(0, 1);
    for (int i = 0; i < 2; ++i) sink(static_cast<std::uint32_t>(i)).events.clear();
    fake_verbs::fail_call("ibv_reg_mr", 1, EFAULT, 1'000'000);  // From now on no page can be pinned.
  }
};

TEST_F(VerbsDmabuf, MemoryOfAnotherDeviceIsWrittenFromAndTo) {
  make_pair(true);
  {
    MappedFile source, target;
    constexpr std::size_t kBegin = 100, kLength = 3 * kPageBytes;
    const std::vector<std::byte> bytes = Pattern(5).bytes(kLength);
    std::copy(bytes.begin(), bytes.end(), source.bytes() + kBegin);
    MemoryRegion from, to;
    ASSERT_EQ(at(0).register_memory(source.bytes() + kBegin, kLength, Access::kRead, from), Status::kOk);
    ASSERT_EQ(at(1).register_memory(target.bytes() + kBegin, kLength, Access::kWrite, to), Status::kOk);
    ASSERT_EQ(at(0).write(endpoint(0, 1), source.bytes() + kBegin, kLength, from,
                          {reinterpret_cast<std::uintptr_t>(target.bytes() + kBegin), to.remote_key},
                          Immediate{9}, WorkId{1}),
              Status::kOk);
    ASSERT_TRUE(run_until(
        [&] { return sink(1).count(Kind::kWriteArrived) > 0 && sink(0).count(Kind::kWriteDone) == 1; }));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), target.bytes() + kBegin));
    EXPECT_EQ(target.bytes()[kBegin - 1], std::byte{0});
    EXPECT_EQ(target.bytes()[kBegin + kLength], std::byte{0});
    at(0).deregister_memory(from);
    at(1).deregister_memory(to);
  }
}

TEST_F(VerbsDmabuf, WhatCannotBeRegisteredIsUnsupported) {
  MappedFile file;
  MemoryRegion region;
  make_pair(false);
  EXPECT_EQ(at(0).register_memory(file.bytes(), kPageBytes, Access::kWrite, region), Status::kUnsupported);
  make_pair(true);
  std::vector<std::byte> ordinary(kPageBytes);
  EXPECT_EQ(at(0).register_memory(ordinary.data(), kPageBytes, Access::kWrite, region), Status::kUnsupported);
  file.close();
  EXPECT_EQ(at(0).register_memory(file.bytes(), kPageBytes, Access::kWrite, region), Status::kUnsupported);
}

TEST_F(VerbsDmabuf, WhereThereIsNoRoomForItThatIsSaid) {
  make_pair(true);
  MappedFile file;
  MemoryRegion region;
  fake_verbs::fail_call("ibv_reg_dmabuf_mr", 1, ENOMEM);
  EXPECT_EQ(at(0).register_memory(file.bytes(), kPageBytes, Access::kWrite, region), Status::kNoMemory);
  ASSERT_EQ(at(0).register_memory(file.bytes(), kPageBytes, Access::kWrite, region), Status::kOk);
  at(0).deregister_memory(region);
}

}  // namespace
}  // namespace ch3_offload
