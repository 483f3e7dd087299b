// Remote memory: regions, who maps them, transfers and their ends, and names that lie.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "active_messages/endpoint_world.h"
#include "active_messages/message.h"
#include "active_messages/regions.h"

namespace ch3_offload::active_messages {
namespace {

using portals::Driver;
using portals::driver_name;

class AmRegions : public portals::PortalsTest {
 protected:
  void SetUp() override {
    PortalsTest::SetUp();
    owner_ = std::make_unique<Node>();
    user_ = std::make_unique<Node>();
  }
  void TearDown() override {
    owner_.reset();
    user_.reset();
    PortalsTest::TearDown();
  }

  ch3_offload_am_region_t* allocate(std::size_t length) {
    ch3_offload_am_region_t* region = nullptr;
    EXPECT_EQ(ch3_offload_am_allocate(owner_->am, length, &region), CH3_OFFLOAD_AM_OK);
    return region;
  }
  ch3_offload_am_region_t* expose(void* start, std::size_t length) {
    ch3_offload_am_region_t* region = nullptr;
    EXPECT_EQ(ch3_offload_am_expose(owner_->am, start, length, &region), CH3_OFFLOAD_AM_OK);
    return region;
  }
  static ch3_offload_am_name_t name_of(const ch3_offload_am_region_t* region) {
    ch3_offload_am_name_t name{};
    EXPECT_EQ(ch3_offload_am_name(region, &name), CH3_OFFLOAD_AM_OK);
    return name;
  }
  ch3_offload_am_remote_t* attach(const ch3_offload_am_name_t& name) {
    ch3_offload_am_remote_t* remote = nullptr;
    EXPECT_EQ(ch3_offload_am_attach(user_->am, &name, &remote), CH3_OFFLOAD_AM_OK);
    return remote;
  }
  void free(ch3_offload_am_region_t* region) {
    EXPECT_TRUE(poll_until({owner_.get(), user_.get()},
                           [&] { return ch3_offload_am_free(region) == CH3_OFFLOAD_AM_OK; }));
  }
  static void note(void* context, int code) { static_cast<std::vector<int>*>(context)->push_back(code); }
  bool ends(std::size_t count) {
    return poll_until({owner_.get(), user_.get()}, [&] { return codes_.size() == count; });
  }

  std::unique_ptr<Node> owner_, user_;
  std::vector<int> codes_;
};
PORTALS_INSTANTIATE(AmRegions);

TEST_P(AmRegions, AllocatedMemoryIsMappedOnItsNode) {
  ch3_offload_am_region_t* const region = allocate(100'000);
  auto* const mine = static_cast<char*>(ch3_offload_am_memory(region));
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(mine[0], 0);
  EXPECT_EQ(mine[99'999], 0);
  ch3_offload_am_remote_t* const remote = attach(name_of(region));
  auto* const theirs = static_cast<char*>(ch3_offload_am_mapped(remote));
  ASSERT_NE(theirs, nullptr);
  EXPECT_NE(theirs, mine);
  EXPECT_EQ(ch3_offload_am_length(remote), 100'000U);
  theirs[99'999] = 'x';
  EXPECT_EQ(mine[99'999], 'x');
  mine[0] = 'y';
  EXPECT_EQ(theirs[0], 'y');
  free(region);
  EXPECT_EQ(theirs[0], 'y') << "who has mapped it keeps it";
  EXPECT_EQ(ch3_offload_am_detach(remote), CH3_OFFLOAD_AM_OK);
}

TEST_P(AmRegions, TransfersOfMappedMemoryEndInThePoll) {
  ch3_offload_am_remote_t* const remote = attach(name_of(allocate(64)));
  char in[8] = {};
  EXPECT_EQ(ch3_offload_am_put(remote, 8, "1234567", 8, &AmRegions::note, &codes_), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_get(remote, 8, in, 8, &AmRegions::note, &codes_), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(codes_.empty());
  EXPECT_EQ(ch3_offload_am_detach(remote), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_TRUE(ends(2));
  EXPECT_STREQ(in, "1234567");
  EXPECT_EQ(codes_, std::vector<int>(2, CH3_OFFLOAD_AM_OK));
  EXPECT_EQ(ch3_offload_am_detach(remote), CH3_OFFLOAD_AM_OK);
}

TEST_P(AmRegions, MemoryOfTheProgramIsPutToAndGotFrom) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    std::vector<char> memory(length), out(length), in(length);
    std::iota(out.begin(), out.end(), char{1});
    ch3_offload_am_region_t* const region = expose(memory.data(), length);
    EXPECT_EQ(ch3_offload_am_memory(region), memory.data());
    ch3_offload_am_remote_t* const remote = attach(name_of(region));
    EXPECT_EQ(ch3_offload_am_mapped(remote), nullptr);
    codes_.clear();
    ASSERT_EQ(ch3_offload_am_put(remote, 0, out.data(), length, &AmRegions::note, &codes_),
              CH3_OFFLOAD_AM_OK);
    ASSERT_TRUE(ends(1));
    EXPECT_EQ(memory, out);
    ASSERT_EQ(ch3_offload_am_get(remote, 0, in.data(), length, &AmRegions::note, &codes_), CH3_OFFLOAD_AM_OK);
    ASSERT_TRUE(ends(2));
    EXPECT_EQ(in, out);
    EXPECT_EQ(codes_, std::vector<int>(2, CH3_OFFLOAD_AM_OK));
    EXPECT_EQ(ch3_offload_am_put(remote, length, out.data(), 0, nullptr, nullptr), CH3_OFFLOAD_AM_OK);
    EXPECT_TRUE(poll_until({owner_.get(), user_.get()},
                           [&] { return ch3_offload_am_detach(remote) == CH3_OFFLOAD_AM_OK; }));
    free(region);
  }
}

TEST_P(AmRegions, WrongArgumentsAreRefused) {
  char byte = 0;
  ch3_offload_am_region_t* region = nullptr;
  ch3_offload_am_name_t name{};
  ch3_offload_am_remote_t* remote = nullptr;
  EXPECT_EQ(ch3_offload_am_allocate(nullptr, 1, &region), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_allocate(owner_->am, 1, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_allocate(owner_->am, 0, &region), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_allocate(owner_->am, SIZE_MAX, &region), CH3_OFFLOAD_AM_NO_MEMORY);
  EXPECT_EQ(ch3_offload_am_expose(nullptr, &byte, 1, &region), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_expose(owner_->am, nullptr, 1, &region), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_expose(owner_->am, &byte, 0, &region), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_expose(owner_->am, &byte, 1, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_memory(nullptr), nullptr);
  EXPECT_EQ(ch3_offload_am_name(nullptr, &name), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_free(nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_mapped(nullptr), nullptr);
  EXPECT_EQ(ch3_offload_am_length(nullptr), 0U);
  EXPECT_EQ(ch3_offload_am_detach(nullptr), CH3_OFFLOAD_AM_INVALID);

  region = expose(&byte, 1);
  EXPECT_EQ(ch3_offload_am_name(region, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_attach(user_->am, &name, &remote), CH3_OFFLOAD_AM_INVALID) << "no name";
  name = name_of(region);
  EXPECT_EQ(ch3_offload_am_attach(nullptr, &name, &remote), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_attach(user_->am, nullptr, &remote), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_attach(user_->am, &name, nullptr), CH3_OFFLOAD_AM_INVALID);
  remote = attach(name);
  EXPECT_EQ(ch3_offload_am_put(nullptr, 0, &byte, 1, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_put(remote, 0, nullptr, 1, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_get(nullptr, 0, &byte, 1, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_get(remote, 0, nullptr, 1, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  for (const auto& [offset, length] :
       {std::pair<std::size_t, std::size_t>{0, 2}, {1, 1}, {2, 0}, {SIZE_MAX, 2}, {1, SIZE_MAX}}) {
    EXPECT_EQ(ch3_offload_am_put(remote, offset, &byte, length, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
    EXPECT_EQ(ch3_offload_am_get(remote, offset, &byte, length, nullptr, nullptr), CH3_OFFLOAD_AM_INVALID);
  }
  EXPECT_EQ(ch3_offload_am_flush(user_->am, 0), CH3_OFFLOAD_AM_OK) << "none of them has begun";
}

TEST_P(AmRegions, ManyTransfersAtOnceAreTooMany) {
  std::vector<char> memory(64), out(64);
  ch3_offload_am_remote_t* const remote = attach(name_of(expose(memory.data(), memory.size())));
  portals::world.port->hold();
  std::size_t begun = 0;
  while (begun < 1000 &&
         ch3_offload_am_put(remote, 0, out.data(), 1, &AmRegions::note, &codes_) == CH3_OFFLOAD_AM_OK)
    ++begun;
  EXPECT_EQ(begun, Regions::kMostTransfers);
  EXPECT_EQ(ch3_offload_am_get(remote, 0, out.data(), 1, nullptr, nullptr), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_EQ(ch3_offload_am_detach(remote), CH3_OFFLOAD_AM_AGAIN);
  EXPECT_EQ(ch3_offload_am_close(user_->am), CH3_OFFLOAD_AM_AGAIN);
  portals::world.port->release();
  user_->close();
  EXPECT_EQ(codes_, std::vector<int>(begun, CH3_OFFLOAD_AM_OK)) << "ends are told in close(), too";
}

TEST_P(AmRegions, AMessageThatIsSentByTheEndComesAfterTheData) {
  std::vector<char> memory(4096), out(4096, 'x');
  ch3_offload_am_remote_t* const remote = attach(name_of(expose(memory.data(), memory.size())));
  struct Context {
    ch3_offload_am_peer_t* peer;
    bool is_seen = false;
  } context{user_->peer(*owner_)};
  owner_->add("there", [&](ch3_offload_am_message_t*, ch3_offload_am_reader_t*) {
    EXPECT_EQ(memory, out);
    context.is_seen = true;
  });
  const auto done = [](void* its, int code) {
    EXPECT_EQ(code, CH3_OFFLOAD_AM_OK);
    EXPECT_EQ(ch3_offload_am_send(static_cast<Context*>(its)->peer, "there", nullptr), CH3_OFFLOAD_AM_OK);
  };
  ASSERT_EQ(ch3_offload_am_put(remote, 0, out.data(), out.size(), done, &context), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(poll_until({owner_.get(), user_.get()}, [&] { return context.is_seen; }));
}

TEST_P(AmRegions, ARegionThatIsFreedIsUnknown) {
  std::vector<char> memory(64), out(64);
  ch3_offload_am_region_t* const region = expose(memory.data(), memory.size());
  ch3_offload_am_remote_t* const remote = attach(name_of(region));
  free(region);
  ASSERT_EQ(ch3_offload_am_put(remote, 0, out.data(), 64, &AmRegions::note, &codes_), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_get(remote, 0, out.data(), 64, &AmRegions::note, &codes_), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(ends(2));
  EXPECT_EQ(codes_, std::vector<int>(2, CH3_OFFLOAD_AM_UNKNOWN));
}

TEST_P(AmRegions, AProcessThatDoesNotExistIsDead) {
  char byte = 0;
  RegionName name = *read(name_of(expose(&byte, 1)));
  name.nid = 0x0a000063;
  name.pid = 1;
  ch3_offload_am_remote_t* const remote = attach(write(name));
  ASSERT_EQ(ch3_offload_am_get(remote, 0, &byte, 1, &AmRegions::note, &codes_), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(ends(1));
  EXPECT_EQ(codes_, std::vector<int>(1, CH3_OFFLOAD_AM_PEER_DEAD));
}

TEST_P(AmRegions, ANameThatLiesAboutTheLengthReachesNoMore) {
  std::vector<char> memory(64, 'm'), out(64, 'x');
  RegionName name = *read(name_of(expose(memory.data(), 32)));
  name.length_bytes = 64;
  ch3_offload_am_remote_t* const remote = attach(write(name));
  ASSERT_EQ(ch3_offload_am_put(remote, 0, out.data(), 64, &AmRegions::note, &codes_), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(ends(1));
  EXPECT_EQ(codes_, std::vector<int>(1, CH3_OFFLOAD_AM_FAIL));
  EXPECT_EQ(std::string(memory.data() + 32, 32), std::string(32, 'm'));
}

TEST_P(AmRegions, NothingButTheRegionIsMapped) {
  const RegionName name = *read(name_of(allocate(4096)));
  ASSERT_NE(ch3_offload_am_mapped(attach(write(name))), nullptr);
  const auto is_mapped = [&](auto change) {
    RegionName other = name;
    change(other);
    ch3_offload_am_remote_t* const remote = attach(write(other));
    const bool mapped = ch3_offload_am_mapped(remote) != nullptr;
    EXPECT_EQ(ch3_offload_am_detach(remote), CH3_OFFLOAD_AM_OK);
    return mapped;
  };
  EXPECT_FALSE(is_mapped([](RegionName& one) { ++one.key; }));
  EXPECT_FALSE(is_mapped([](RegionName& one) { one.length_bytes = 70'000; }));
  EXPECT_FALSE(is_mapped([](RegionName& one) { one.length_bytes = UINT64_MAX; }));
  EXPECT_FALSE(is_mapped([](RegionName& one) { ++one.nid; }));
  EXPECT_FALSE(is_mapped([](RegionName& one) { one.os_process = 0; }));
  EXPECT_FALSE(is_mapped([](RegionName& one) { one.file = 1'000'000; }));
  EXPECT_FALSE(is_mapped([](RegionName& one) { one.file = RegionName::kNoFile; }));

  // Files that are none of the library's, though one has the right length and key.
  const std::size_t length = 2 * 65'536;
  int pipes[2];
  ASSERT_EQ(::pipe2(pipes, O_CLOEXEC), 0);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int unsealed = ::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(unsealed, static_cast<off_t>(length)), 0);
  ASSERT_EQ(::pwrite(unsealed, &name.key, sizeof name.key, 0), static_cast<ssize_t>(sizeof name.key));
  const int directory = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (const int file : {pipes[0], pipes[1], null, unsealed, directory}) {
    EXPECT_FALSE(is_mapped([&](RegionName& one) { one.file = static_cast<std::uint32_t>(file); }));
  }
  // It would be mapped if it could not shrink: so it is this that is seen.
  ASSERT_EQ(::fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(is_mapped([&](RegionName& one) { one.file = static_cast<std::uint32_t>(unsealed); }));
  for (const int file : {pipes[0], pipes[1], null, unsealed, directory}) ::close(file);
}

}  // namespace
}  // namespace ch3_offload::active_messages
