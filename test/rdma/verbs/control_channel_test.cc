// Frames over TCP, and how a connection ends.

#include "rdma/verbs/control_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

namespace ch3_offload {
namespace {

using Receipt = ControlChannel::Receipt;

class Channels : public testing::Test {
 protected:
  Channels() {
    Result<FileDescriptor> listening = listen_for_channels("127.0.0.1", port_);
    EXPECT_TRUE(listening.ok());
    listener_ = std::move(listening.value());
  }
  ControlChannel dial() {
    Result<ControlChannel> channel = ControlChannel::dial(*socket_address("127.0.0.1", port_), 1000);
    EXPECT_TRUE(channel.ok());
    return std::move(channel.value());
  }
  ControlChannel accept() {
    for (int i = 0; i < 1000; ++i) {
      int error = 0;
      FileDescriptor socket = accept_channel(listener_, error);
      EXPECT_EQ(error, 0);
      if (socket.valid()) return ControlChannel(std::move(socket), 1000);
      pause();
    }
    ADD_FAILURE() << "nobody came";
    return {};
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  /// Waits for something.
  static Receipt receive(ControlChannel& channel, Frame& frame) {
    for (int i = 0; i < 3000; ++i) {
      const Receipt receipt = channel.receive(frame);
      if (receipt != Receipt::kNothing) return receipt;
      pause();
    }
    return Receipt::kNothing;
  }
  static Frame ready(std::uint32_t link) {
    Frame frame = make_frame(FrameKind::kReady);
    frame.link.link = link;
    return frame;
  }

  std::uint16_t port_ = 0;
  FileDescriptor listener_;
};

TEST_F(Channels, FramesArriveInOrder) {
  ControlChannel one = dial();
  one.send(ready(1));  // Before the connection is made.
  ControlChannel other = accept();
  one.send(ready(2));
  Frame frame;
  for (std::uint32_t link = 1; link <= 2; ++link) {
    ASSERT_EQ(receive(other, frame), Receipt::kFrame);
    EXPECT_EQ(frame.link.link, link);
  }
  EXPECT_EQ(other.receive(frame), Receipt::kNothing);
  other.send(ready(3));
  ASSERT_EQ(receive(one, frame), Receipt::kFrame);
  EXPECT_EQ(frame.link.link, 3u);
  EXPECT_FALSE(one.is_connecting());
}

TEST_F(Channels, WhatTheSocketDoesNotTakeIsQueued) {
  ControlChannel one = dial();
  ControlChannel other = accept();
  std::uint32_t sent = 0;
  while (!one.wants_write() && sent < 200'000) one.send(ready(++sent));
  ASSERT_TRUE(one.wants_write());
  for (int i = 0; i < 10; ++i) one.send(ready(++sent));
  Frame frame;
  for (std::uint32_t link = 1; link <= sent; ++link) {
    one.flush();
    ASSERT_EQ(receive(other, frame), Receipt::kFrame);
    ASSERT_EQ(frame.link.link, link);
  }
  EXPECT_FALSE(one.wants_write());
}

TEST_F(Channels, WhatCameBeforeTheEndCounts) {
  ControlChannel one = dial();
  ControlChannel other = accept();
  one.send(ready(1));
  one.close();
  EXPECT_FALSE(one.is_open());
  Frame frame;
  pause();
  for (int i = 0; i < 3; ++i) other.send(ready(9));  // Its own sending meets the end first.
  const Receipt first = receive(other, frame);
  EXPECT_EQ(first, Receipt::kFrame);
  EXPECT_EQ(receive(other, frame), Receipt::kClosed);
  EXPECT_EQ(receive(other, frame), Receipt::kClosed) << "and stays so";
}

TEST_F(Channels, AnOrderlyEndHasNoError) {
  ControlChannel one = dial();
  ControlChannel other = accept();
  one.send(ready(1));
  Frame frame;
  ASSERT_EQ(receive(other, frame), Receipt::kFrame);
  one.close();
  ASSERT_EQ(receive(other, frame), Receipt::kClosed);
  EXPECT_EQ(other.error(), 0);
  other.send(ready(1));  // No SIGPIPE.
}

TEST_F(Channels, HalfAFrameBeforeTheEndIsNone) {
  ControlChannel one = dial();
  ControlChannel other = accept();
  while (one.is_connecting()) one.flush();
  ASSERT_EQ(::send(one.socket().get(), "c3ov", 4, 0), 4);
  one.close();
  Frame frame;
  EXPECT_EQ(receive(other, frame), Receipt::kClosed);
}

TEST_F(Channels, ReportsGarbageAndOtherVersions) {
  ControlChannel one = dial();
  ControlChannel other = accept();
  Frame frame = ready(1);
  frame.version = 9;
  one.send(frame);
  EXPECT_EQ(receive(other, frame), Receipt::kVersion);
  frame = ready(0);
  one.send(frame);
  EXPECT_EQ(receive(other, frame), Receipt::kMalformed);
}

TEST_F(Channels, WhereNobodyListensIsTold) {
  listener_.reset();
  Result<ControlChannel> channel = ControlChannel::dial(*socket_address("127.0.0.1", port_), 1000);
  if (!channel.ok()) {
    EXPECT_EQ(channel.error().status, Status::kPeerFailed);
    return;
  }
  channel.value().send(ready(1));
  Frame frame;
  EXPECT_EQ(receive(channel.value(), frame), Receipt::kClosed);
  EXPECT_EQ(channel.value().error(), ECONNREFUSED);
}

TEST_F(Channels, ACloseChannelDoesNothing) {
  ControlChannel closed;
  Frame frame;
  closed.send(ready(1));
  closed.flush();
  EXPECT_EQ(closed.receive(frame), Receipt::kNothing);
  EXPECT_FALSE(closed.wants_write());
}

TEST(ListenForChannels, SaysWhatIsWrongWithAnAddress) {
  std::uint16_t port = 0;
  const Result<FileDescriptor> no_address = listen_for_channels("localhost", port);
  ASSERT_FALSE(no_address.ok());
  EXPECT_NE(no_address.error().message.find("'localhost' is not an IP address"), std::string::npos);
  const Result<FileDescriptor> not_ours = listen_for_channels("192.0.2.1", port);
  if (!not_ours.ok()) {
    EXPECT_NE(not_ours.error().message.find("192.0.2.1"), std::string::npos);
  }
}

}  // namespace
}  // namespace ch3_offload
