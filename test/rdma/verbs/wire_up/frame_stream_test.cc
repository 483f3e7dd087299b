// Frames over TCP, and how a connection ends.

#include "rdma/verbs/wire_up/frame_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

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
    Result<FrameStream> stream = FrameStream::dial(*socket_address("127.0.0.1", port_), 1000);
    EXPECT_TRUE(stream.ok());
    return std::move(stream.value());
  }
  FrameStream accept() {
    for (int i = 0; i < 1000; ++i) {
      int error = 0;
      FileDescriptor socket = accept_stream(listener_, error);
      EXPECT_EQ(error, 0);
      if (socket.valid()) return FrameStream(std::move(socket), 1000);
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
  static Frame offer(std::uint32_t link) {
    Frame frame = make_frame(FrameKind::kOffer);
    frame.offer = {.link = link, .mtu = 1};
    return frame;
  }

  std::uint16_t port_ = 0;
  FileDescriptor listener_;
};

TEST_F(FrameStreams, FramesArriveInOrder) {
  FrameStream one = dial();
  one.send(offer(1));  // Before the connection is made.
  FrameStream other = accept();
  one.send(offer(2));
  Frame frame;
  for (std::uint32_t link = 1; link <= 2; ++link) {
    ASSERT_EQ(receive(other, frame), Receipt::kFrame);
    EXPECT_EQ(frame.offer.link, link);
  }
  EXPECT_EQ(other.receive(frame), Receipt::kNothing);
  other.send(offer(3));
  ASSERT_EQ(receive(one, frame), Receipt::kFrame);
  EXPECT_EQ(frame.offer.link, 3u);
  EXPECT_TRUE(one.is_connected());
}

TEST_F(FrameStreams, WhatTheSocketDoesNotTakeIsQueued) {
  FrameStream one = dial();
  FrameStream other = accept();
  std::uint32_t sent = 0;
  while (!one.wants_write() && sent < 200'000) one.send(offer(++sent));
  ASSERT_TRUE(one.wants_write());
  for (int i = 0; i < 10; ++i) one.send(offer(++sent));
  Frame frame;
  for (std::uint32_t link = 1; link <= sent; ++link) {
    one.flush();
    ASSERT_EQ(receive(other, frame), Receipt::kFrame);
    ASSERT_EQ(frame.offer.link, link);
  }
  EXPECT_FALSE(one.wants_write());
}

TEST_F(FrameStreams, WhatCameBeforeTheEndCounts) {
  FrameStream one = dial();
  FrameStream other = accept();
  one.send(offer(1));
  one.close();
  EXPECT_FALSE(one.is_open());
  Frame frame;
  pause();
  for (int i = 0; i < 3; ++i) other.send(offer(9));  // Its own sending meets the end first.
  const Receipt first = receive(other, frame);
  EXPECT_EQ(first, Receipt::kFrame);
  EXPECT_EQ(receive(other, frame), Receipt::kClosed);
  EXPECT_EQ(receive(other, frame), Receipt::kClosed) << "and stays so";
}

TEST_F(FrameStreams, AnOrderlyEndHasNoError) {
  FrameStream one = dial();
  FrameStream other = accept();
  one.send(offer(1));
  Frame frame;
  ASSERT_EQ(receive(other, frame), Receipt::kFrame);
  one.close();
  ASSERT_EQ(receive(other, frame), Receipt::kClosed);
  EXPECT_EQ(other.error(), 0);
  other.send(offer(1));  // No SIGPIPE.
}

TEST_F(FrameStreams, HalfAFrameBeforeTheEndIsNone) {
  FrameStream one = dial();
  FrameStream other = accept();
  while (!one.is_connected()) one.flush();
  ASSERT_EQ(::send(one.socket().get(), "c3ov", 4, 0), 4);
  one.close();
  Frame frame;
  EXPECT_EQ(receive(other, frame), Receipt::kClosed);
}

TEST_F(FrameStreams, ReportsGarbageAndOtherVersions) {
  FrameStream one = dial();
  FrameStream other = accept();
  Frame frame = offer(1);
  frame.version = 9;
  one.send(frame);
  EXPECT_EQ(receive(other, frame), Receipt::kVersion);
  frame = offer(0);
  one.send(frame);
  EXPECT_EQ(receive(other, frame), Receipt::kMalformed);
}

TEST_F(FrameStreams, WhereNobodyListensIsTold) {
  listener_.reset();
  Result<FrameStream> stream = FrameStream::dial(*socket_address("127.0.0.1", port_), 1000);
  if (!stream.ok()) {
    EXPECT_EQ(stream.error().status, Status::kPeerFailed);
    return;
  }
  stream.value().send(offer(1));
  Frame frame;
  EXPECT_EQ(receive(stream.value(), frame), Receipt::kClosed);
  EXPECT_EQ(stream.value().error(), ECONNREFUSED);
}

TEST_F(FrameStreams, AClosedStreamDoesNothing) {
  FrameStream closed;
  Frame frame;
  closed.send(offer(1));
  closed.flush();
  EXPECT_EQ(closed.receive(frame), Receipt::kNothing);
  EXPECT_FALSE(closed.wants_write());
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
