// Messages with files over Unix-domain sockets.

#include "rdma/shm/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace ch3_offload {
namespace {

using Message = std::array<std::byte, 16>;

class UnixSocketTest : public testing::Test {
 protected:
  UnixSocketTest() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    one_ = FileDescriptor(pair[0]);
    other_ = FileDescriptor(pair[1]);
    sent_.fill(std::byte{7});
  }
  void send(std::span<const std::byte> message, std::size_t files) {
    std::vector<int> numbers(files, other_.get());
    ASSERT_TRUE(send_with_files(one_, message, numbers));
  }
  template <std::size_t kFiles>
  Receipt receive(std::array<FileDescriptor, kFiles>& files) {
    return receive_with_files(other_, received_, files);
  }

  FileDescriptor one_, other_;
  Message sent_{}, received_{};
};

TEST_F(UnixSocketTest, AMessageComesWithItsFiles) {
  std::array<FileDescriptor, kMostFiles> files;
  EXPECT_EQ(receive(files), Receipt::kNothing);
  send(sent_, kMostFiles);
  EXPECT_EQ(receive(files), Receipt::kMessage);
  EXPECT_EQ(received_, sent_);
  for (const FileDescriptor& file : files) {
    EXPECT_TRUE(file.valid());
    EXPECT_NE(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(receive(files), Receipt::kNothing);
}

TEST_F(UnixSocketTest, AMessageWithoutItsFilesIsTold) {
  std::array<FileDescriptor, 2> files;
  send(sent_, 0);
  EXPECT_EQ(receive(files), Receipt::kWithoutFiles);
  EXPECT_EQ(received_, sent_);
}

TEST_F(UnixSocketTest, AnotherNumberOfFilesIsInvalidAndLeavesNone) {
  for (const std::size_t count : {1U, 3U}) {
    std::array<FileDescriptor, 2> files;
    send(sent_, count);
    EXPECT_EQ(receive(files), Receipt::kInvalid);
    for (const FileDescriptor& file : files) EXPECT_FALSE(file.valid());
  }
  std::array<FileDescriptor, 0> none;
  send(sent_, 1);
  EXPECT_EQ(receive(none), Receipt::kInvalid);
}

TEST_F(UnixSocketTest, AnotherLengthIsInvalid) {
  std::array<FileDescriptor, 0> none;
  const std::array<std::byte, 17> longer{};
  send(std::span(longer).first(15), 0);
  EXPECT_EQ(receive(none), Receipt::kInvalid);
  send(longer, 0);
  EXPECT_EQ(receive(none), Receipt::kInvalid);
  EXPECT_EQ(receive(none), Receipt::kNothing) << "it was taken";
}

TEST_F(UnixSocketTest, TheEndIsTold) {
  std::array<FileDescriptor, 0> none;
  one_.reset();
  EXPECT_EQ(receive(none), Receipt::kClosed);
  EXPECT_FALSE(send_with_files(other_, sent_, {}));
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(UnixSocketTest, ThePeerIsThisProcess) {
  const PeerCredentials peer = peer_credentials(one_);
  EXPECT_EQ(peer.uid, ::geteuid());
  EXPECT_EQ(peer.pid, ::getpid());
}

TEST(AbstractAddress, HasTheNameBehindAZeroAndCutsALongOne) {
  sockaddr_un address;
  const socklen_t length = abstract_address("a name", address);
  EXPECT_EQ(length, offsetof(sockaddr_un, sun_path) + 1 + 6);
  EXPECT_EQ(address.sun_family, AF_UNIX);
  EXPECT_EQ(address.sun_path[0], 0);
  EXPECT_EQ(std::memcmp(address.sun_path + 1, "a name", 6), 0);
  EXPECT_EQ(abstract_address(std::string(500, 'x'), address), sizeof address);
}

}  // namespace
}  // namespace ch3_offload
