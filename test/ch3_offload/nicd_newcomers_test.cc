#include "ch3_offload/nicd_newcomers.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

#include "rdma/few_descriptors.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

class NicdNewcomersTest : public testing::Test {
 protected:
  FileDescriptor connect() { return std::move(connect_to_nicd(name_).value()); }
  static void say_hello(const FileDescriptor& socket) {
    const auto hello = std::make_unique<NicdHello>();
    EXPECT_TRUE(send_with_files(socket, std::as_bytes(std::span(hello.get(), 1)), {}));
  }
  FileDescriptor connect_and_say_hello() {
    FileDescriptor socket = connect();
    say_hello(socket);
    return socket;
  }
  /// A connection that another process has made.
  FileDescriptor connect_elsewhere() {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t length = abstract_address(name_, address);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length));
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return socket;
  }
  void look(std::uint64_t now_ns = 1) {
    newcomers_.look(now_ns, [this](FileDescriptor socket, const NicdHello&) {
      admitted_.push_back(std::move(socket));
      if (then_) then_();
    });
  }
  static bool is_closed(const FileDescriptor& socket) {
    char byte;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  SleepSet set() const {
    SleepSet set;
    newcomers_.add_to(set);
    return set;
  }
  std::size_t descriptors() const { return set().size(); }

  const std::string name_ = "ch3-offload-newcomers-test." + std::to_string(::getpid());
  NicdNewcomers newcomers_{std::move(listen_as_nicd(name_).value())};
  std::vector<FileDescriptor> admitted_;
  std::function<void()> then_;  ///< Happens when somebody has been admitted.
};

TEST_F(NicdNewcomersTest, WhoSaysHelloIsAdmitted) {
  const FileDescriptor silent = connect();
  const FileDescriptor client = connect_and_say_hello();
  look();
  EXPECT_EQ(admitted_.size(), 1U);
  EXPECT_EQ(descriptors(), 2U);  // The listener's, and that of the silent one.
  EXPECT_FALSE(is_closed(silent));
}

TEST_F(NicdNewcomersTest, WhoIsSilentForTooLongIsClosed) {
  const FileDescriptor silent = connect();
  look(1);
  EXPECT_NE(set().due_ns(), UINT64_MAX);
  look(1 + NicdNewcomers::kSilenceNs);
  EXPECT_FALSE(is_closed(silent));
  look(2 + NicdNewcomers::kSilenceNs);
  EXPECT_TRUE(is_closed(silent));
  EXPECT_EQ(set().due_ns(), UINT64_MAX);
}

/// A client comes behind silent connections, and is not kept waiting by them.
TEST_F(NicdNewcomersTest, SilentConnectionsMakeWay) {
  std::vector<FileDescriptor> silent;
  for (std::size_t i = 0; i < NicdNewcomers::kMostSilent + 10; ++i) silent.push_back(connect());
  const FileDescriptor client = connect_and_say_hello();
  look();
  EXPECT_EQ(admitted_.size(), 1U);
  EXPECT_EQ(descriptors(), 1 + NicdNewcomers::kMostSilent);
  EXPECT_TRUE(is_closed(silent[9]));
  EXPECT_FALSE(is_closed(silent[10]));
}

/// The system may stop a client between its connection and its hello.
TEST_F(NicdNewcomersTest, ASlowClientKeepsItsPlaceBesideThoseOfAnotherProcess) {
  const FileDescriptor client = connect_elsewhere();
  look();
  std::array<FileDescriptor, 2 * NicdNewcomers::kMostSilent> silent;
  for (std::size_t i = 0; i < 1'200; ++i) {
    silent[i % silent.size()] = connect();
    look();
    ASSERT_FALSE(is_closed(client)) << i;
  }
  say_hello(client);
  look();
  EXPECT_EQ(admitted_.size(), 1U);
}

TEST_F(NicdNewcomersTest, WhoIsToGoIsHeardFirst) {
  std::vector<FileDescriptor> silent;
  for (std::size_t i = 0; i < NicdNewcomers::kMostSilent; ++i) silent.push_back(connect());
  look();
  then_ = [&] {
    if (admitted_.size() == 1) say_hello(silent[0]);
  };
  const FileDescriptor client = connect_and_say_hello();
  const FileDescriptor further = connect();
  look();
  EXPECT_EQ(admitted_.size(), 2U);
  EXPECT_EQ(descriptors(), 1 + NicdNewcomers::kMostSilent);
}

TEST_F(NicdNewcomersTest, SilentConnectionsMakeWayForOneWithoutADescriptor) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(connect());
  const FileDescriptor client = connect_and_say_hello();
  const FewDescriptors few(4);
  look();
  EXPECT_EQ(admitted_.size(), 1U);
  EXPECT_TRUE(is_closed(silent[0]));
  EXPECT_FALSE(is_closed(silent[9]));
}

/// A listener that stays readable would end each sleep of the processor.
TEST_F(NicdNewcomersTest, WithoutADescriptorTheListenerIsSetAside) {
  const FileDescriptor client = connect_and_say_hello();
  {
    const FewDescriptors few(0);
    look(1);
  }
  EXPECT_TRUE(admitted_.empty());
  EXPECT_EQ(descriptors(), 0U);
  EXPECT_EQ(set().due_ns(), NicdNewcomers::kAsideNs);
  look(NicdNewcomers::kAsideNs);
  EXPECT_TRUE(admitted_.empty());
  look(1 + NicdNewcomers::kAsideNs);
  EXPECT_EQ(admitted_.size(), 1U);
  EXPECT_EQ(descriptors(), 1U);
}

}  // namespace
}  // namespace ch3_offload
