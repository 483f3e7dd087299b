// Frames over a connection, and how it ends.

#include "rdma/introduction/frame_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "rdma/introduction/test_protocol.h"

namespace ch3_offload {
namespace {

using Receipt = FrameStream::Receipt;

class FrameStreams : public testing::Test {
 protected:
  FrameStreams() {
    Result<FileDescriptor> listening = listen_for_streams("127.0.0.1", port_);
    EXPECT_TRUE(listening.ok());
    listener_ = std::move(listening.value());
  }
  FrameStream dial() {
    Result<FrameStream> stream = FrameStream::dial(*socket_address("127.0.0.1", port_), kNumbers, 1000);
    EXPECT_TRUE(stream.ok());
    return std::move(stream.value());
  }
  FrameStream accept() {
    for (int i = 0; i < 1000; ++i) {
      int error = 0;
      FileDescriptor socket = accept_stream(listener_, error);
      EXPECT_EQ(error, 0);
      if (socket.valid()) return FrameStream(std::move(socket), kNumbers, 1000);
      pause();
    }
    ADD_FAILURE() << "nobody came";
    return {};
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  /// Waits for something.
  static Receipt receive(FrameStream& stream, Frame& frame) {
    for (int i = 0; i < 3000; ++i) {
      const Receipt receipt = stream.receive(frame);
      if (receipt != Receipt::kNothing) return receipt;
      pause();
    }
    return Receipt::kNothing;
  }
  std::uint16_t port_ = 0;
  FileDescriptor listener_;
};

TEST_F(FrameStreams, FramesArriveInOrder) {
  FrameStream one = dial();
  one.send(number_frame(1));  // Before the connection is made.
  FrameStream other = accept();
  one.send(number_frame(2));
  Frame frame;
  for (std::uint32_t link = 1; link <= 2; ++link) {
    ASSERT_EQ(receive(other, frame), Receipt::kFrame);
    EXPECT_EQ(number_in(frame), link);
  }
  EXPECT_EQ(other.receive(frame), Receipt::kNothing);
  other.send(number_frame(3));
  ASSERT_EQ(receive(one, frame), Receipt::kFrame);
  EXPECT_EQ(number_in(frame), 3u);
  EXPECT_TRUE(one.is_connected());
}

TEST_F(FrameStreams, WhatTheSocketDoesNotTakeIsQueued) {
  FrameStream one = dial();
  FrameStream other = accept();
  std::uint32_t sent = 0;
  while (!one.wants_write() && sent < 200'000) one.send(number_frame(++sent));
  ASSERT_TRUE(one.wants_write());
  one.send(number_frame(++sent));
  Frame frame;
  for (std::uint32_t link = 1; link <= sent; ++link) {
    one.flush();
    ASSERT_EQ(receive(other, frame), Receipt::kFrame);
    ASSERT_EQ(number_in(frame), link);
  }
  EXPECT_FALSE(one.wants_write());
}

TEST_F(FrameStreams, WhatCameBeforeTheEndCounts) {
  FrameStream one = dial();
  FrameStream other = accept();
  one.send(number_frame(1));
  one.close();
  EXPECT_FALSE(one.is_open());
  Frame frame;
  pause();
  for (int i = 0; i < 3; ++i) other.send(number_frame(9));  // Its own sending meets the end first.
  const Receipt first = receive(other, frame);
  EXPECT_EQ(first, Receipt::kFrame);
  EXPECT_EQ(receive(other, frame), Receipt::kClosed);
  EXPECT_EQ(receive(other, frame), Receipt::kClosed) << "and stays so";
}

TEST_F(FrameStreams, AnOrderlyEndHasNoError) {
  FrameStream one = dial();
  FrameStream other = accept();
  one.send(number_frame(1));
  Frame frame;
  ASSERT_EQ(receive(other, frame), Receipt::kFrame);
  one.close();
  ASSERT_EQ(receive(other, frame), Receipt::kClosed);
  EXPECT_EQ(other.error(), 0);
  other.send(number_frame(1));  // No SIGPIPE.
}

TEST_F(FrameStreams, HalfAFrameBeforeTheEndIsNone) {
  FrameStream one = dial();
  FrameStream other = accept();
  while (!one.is_connected()) one.flush();
  ASSERT_EQ(::send(one.socket().get(), "tset", 4, 0), 4);
  one.close();
  Frame frame;
  EXPECT_EQ(receive(other, frame), Receipt::kClosed);
}

TEST_F(FrameStreams, ReportsGarbageAndOtherVersions) {
  FrameStream one = dial();
  FrameStream other = accept();
  Frame frame = number_frame(1);
  while (!one.is_connected()) one.flush();
  frame.version = 9;
  // Such a frame may be shorter than ours.
  ASSERT_EQ(::send(one.socket().get(), &frame, Frame::kHeaderBytes, 0), Frame::kHeaderBytes);
  EXPECT_EQ(receive(other, frame), Receipt::kVersion);
  frame = number_frame(1'000'000);
  one.send(frame);
  EXPECT_EQ(receive(other, frame), Receipt::kMalformed);
}

TEST_F(FrameStreams, WhereNobodyListensIsTold) {
  listener_.reset();
  Result<FrameStream> stream = FrameStream::dial(*socket_address("127.0.0.1", port_), kNumbers, 1000);
  if (!stream.ok()) {
    EXPECT_EQ(stream.error().status, Status::kPeerFailed);
    return;
  }
  stream.value().send(number_frame(1));
  Frame frame;
  EXPECT_EQ(receive(stream.value(), frame), Receipt::kClosed);
  EXPECT_EQ(stream.value().error(), ECONNREFUSED);
}

TEST_F(FrameStreams, AClosedStreamDoesNothing) {
  FrameStream closed;
  Frame frame;
  closed.send(number_frame(1));
  closed.flush();
  EXPECT_EQ(closed.receive(frame), Receipt::kNothing);
  EXPECT_FALSE(closed.wants_write());
}

TEST_F(FrameStreams, ThatConnectedToThemselvesAreRefused) {
  listener_.reset();
  const SocketAddress at = *socket_address("127.0.0.1", port_);
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ASSERT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  ASSERT_EQ(::bind(socket.get(), at.get(), at.length), 0);
  ASSERT_EQ(::connect(socket.get(), at.get(), at.length), 0);
  FrameStream stream(std::move(socket), kNumbers, 1000, /*is_connecting=*/true);
  stream.send(number_frame(1));
  Frame frame;
  EXPECT_EQ(stream.receive(frame), Receipt::kClosed);
  EXPECT_EQ(stream.error(), ECONNREFUSED);
}

TEST_F(FrameStreams, ThatAreNotReadTakeTwoFramesMore) {
  FrameStream one = dial();
  FrameStream other = accept();
  Frame frame;
  for (int sent = 0; sent < 200'000 && one.receive(frame) == Receipt::kNothing; ++sent)
    one.send(number_frame(1));
  EXPECT_EQ(one.receive(frame), Receipt::kClosed);
  EXPECT_EQ(one.error(), EPROTO);
}

TEST(FrameStreamsOnNode, GoByAName) {
  SocketAddress at = address_on_node("ch3-offload-test-" + std::to_string(::getpid()));
  const Result<FrameStream> none = FrameStream::dial(at, kNumbers, 1000);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().status, Status::kPeerFailed);
  const Result<FileDescriptor> listener = listen_for_streams(at);
  ASSERT_TRUE(listener.ok());
  const Result<FileDescriptor> second = listen_for_streams(at);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().error_number, EADDRINUSE);
  Result<FrameStream> one = FrameStream::dial(at, kNumbers, 1000);
  ASSERT_TRUE(one.ok());
  one.value().send(number_frame(5));
  int error = 0;
  FileDescriptor socket = accept_stream(listener.value(), error);
  EXPECT_TRUE(is_stream_on_node(socket));
  FrameStream other(std::move(socket), kNumbers, 1000);
  Frame frame;
  ASSERT_EQ(other.receive(frame), Receipt::kFrame);
  EXPECT_EQ(number_in(frame), 5u);
  ASSERT_EQ(::listen(listener.value().get(), 0), 0);
  const Result<FrameStream> waits = FrameStream::dial(at, kNumbers, 1000);
  const Result<FrameStream> full = FrameStream::dial(at, kNumbers, 1000);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().status, Status::kAgain);
}

TEST(ListenForStreams, SaysWhatIsWrongWithAnAddress) {
  std::uint16_t port = 0;
  const Result<FileDescriptor> no_address = listen_for_streams("localhost", port);
  ASSERT_FALSE(no_address.ok());
  EXPECT_NE(no_address.error().message.find("'localhost' is not an IP address"), std::string::npos);
  const Result<FileDescriptor> not_ours = listen_for_streams("192.0.2.1", port);
  if (!not_ours.ok()) {
    EXPECT_NE(not_ours.error().message.find("192.0.2.1"), std::string::npos);
  }
}

}  // namespace
}  // namespace ch3_offload
