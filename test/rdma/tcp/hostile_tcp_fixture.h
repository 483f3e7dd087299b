// Providers that a hostile peer meets: 0 is attacked, 1 stands by.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rdma/tcp/hostile_tcp_peer.h"
#include "rdma/tcp/tcp_fixture.h"

namespace ch3_offload {

class TcpPeersThatLie : public TcpProviders {
 protected:
  static constexpr std::uint32_t kHostile = 5;
  using Peer = std::unique_ptr<HostileTcpPeer>;

  Peer make_hostile(std::uint32_t id = kHostile) {
    return std::make_unique<HostileTcpPeer>(PeerId{id}, tcp_test_secret());
  }
  /// Polls until the attacked one has said something. Nothing: it closed the connection.
  std::optional<Frame> answer(HostileTcpPeer& peer) {
    std::optional<Frame> frame;
    EXPECT_TRUE(run_until([&] { return (frame = peer.receive()) || peer.closed; }));
    return frame;
  }
  std::optional<std::vector<std::byte>> answer_bytes(HostileTcpPeer& peer, std::size_t length) {
    std::optional<std::vector<std::byte>> bytes;
    EXPECT_TRUE(run_until([&] { return (bytes = peer.receive_bytes(length)) || peer.closed; }));
    return bytes;
  }
  void expect_answer(HostileTcpPeer& peer, FrameKind kind) {
    const std::optional<Frame> frame = answer(peer);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->kind, kind);
  }
  /// It dials, and its connection stands.
  void dial(HostileTcpPeer& peer) {
    peer.dial(at(0).local_address());
    peer.send(peer.hello(PeerId{0}));
    ASSERT_NO_FATAL_FAILURE(expect_answer(peer, FrameKind::kHello));
    peer.send(make_frame(kTcpProtocol, FrameKind::kOffer));
    ASSERT_NO_FATAL_FAILURE(expect_answer(peer, FrameKind::kOffer));
    peer.send(make_frame(kTcpProtocol, FrameKind::kReady));
    const auto welcome = answer_bytes(peer, sizeof(TcpRecord));
    ASSERT_TRUE(welcome);
    EXPECT_EQ(*welcome, bytes_of(make_tcp_record(0, TcpRecordKind::kWelcome)));
  }
  Peer make_dialled(std::uint32_t id = kHostile) {
    Peer peer = make_hostile(id);
    dial(*peer);
    return peer;
  }
  /// Process 0 dials it, and has said that it is ready.
  void be_dialled(HostileTcpPeer& peer) {
    peer.target_instance = TcpAddress::parse(at(0).local_address())->instance;
    ASSERT_TRUE(run_until([&] { return peer.accept(); }));
    ASSERT_NO_FATAL_FAILURE(expect_answer(peer, FrameKind::kHello));
    peer.send(peer.hello(PeerId{0}));
    ASSERT_NO_FATAL_FAILURE(expect_answer(peer, FrameKind::kOffer));
    peer.send(make_frame(kTcpProtocol, FrameKind::kOffer));
    ASSERT_NO_FATAL_FAILURE(expect_answer(peer, FrameKind::kReady));
  }
  /// One that process 0 has dialled. It has not sent its welcome.
  Peer make_acceptor() {
    Peer peer = make_hostile();
    connect(0, kHostile, peer->address.to_string());
    be_dialled(*peer);
    return peer;
  }
  static void welcome(const HostileTcpPeer& peer) {
    peer.send(bytes_of(make_tcp_record(0, TcpRecordKind::kWelcome)));
  }

  /// Process 0 is told once that the hostile peer is down, and logs as many lines.
  void expect_down(Status reason, std::size_t lines) {
    ASSERT_TRUE(run_until([&] { return sink(0).count(Kind::kPeerDown) != 0; }));
    EXPECT_EQ(sink(0).events.back().kind, Kind::kPeerDown);
    EXPECT_EQ(sink(0).events.back().peer, PeerId{kHostile});
    EXPECT_EQ(sink(0).events.back().status, reason) << status_name(sink(0).events.back().status);
    for (int i = 0; i < 20; ++i) poll_now(0);
    EXPECT_EQ(sink(0).count(Kind::kPeerDown), 1u);
    EXPECT_EQ(world_->lines.size(), lines) << (world_->lines.empty() ? "" : world_->lines.back());
  }
  void expect_violation() {
    expect_down(Status::kProtocol, 1);
    EXPECT_EQ(lines_with("peer 5 does not follow the protocol"), 1u);
  }
  void expect_bystander_unharmed() {
    establish(0, 1);
    EXPECT_EQ(sink(0).count(Kind::kPeerDown, PeerId{1}), 0u);
    EXPECT_EQ(sink(1).count(Kind::kPeerDown), 0u);
  }
};

}  // namespace ch3_offload
