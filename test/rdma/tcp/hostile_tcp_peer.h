// A peer that knows the secret, is introduced rightly, and then sends the bytes that a test wants.

#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rdma/introduction/frame_stream.h"
#include "rdma/introduction/transcript.h"
#include "rdma/job_secret.h"
#include "rdma/tcp/tcp_address.h"
#include "rdma/tcp/tcp_frames.h"

namespace ch3_offload {

/// The bytes of a record, with what follows it.
template <class Record>
std::vector<std::byte> bytes_of(const Record& record, std::span<const std::byte> payload = {}) {
  const std::span<const std::byte> header = std::as_bytes(std::span(&record, 1));
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}
inline std::vector<std::byte> slot_bytes(std::span<const std::byte> message) {
  return bytes_of(make_tcp_record(static_cast<std::uint32_t>(message.size()), TcpRecordKind::kSlot), message);
}

class HostileTcpPeer {
 public:
  HostileTcpPeer(PeerId id, const JobSecret& secret) : id_(id), secret_(secret) {
    address.host = "127.0.0.1";
    address.slot_bytes = 32768;
    address.instance = 0xBAD0'0000'0000'0000u + index_of(id);
    Result<FileDescriptor> listening = listen_for_streams(address.host, address.port);
    EXPECT_TRUE(listening.ok());
    if (listening.ok()) listener_ = std::move(listening.value());
  }

  /// Connects to a process's port; says nothing yet.
  void dial(std::string_view target) {
    const std::optional<TcpAddress> to = TcpAddress::parse(target);
    ASSERT_TRUE(to);
    target_instance = to->instance;
    const std::optional<SocketAddress> where = socket_address(to->host, to->port);
    begin(FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Speaker::kDialler);
    ASSERT_EQ(::connect(socket.get(), where->get(), where->length), 0) << std::strerror(errno);
  }
  /// Takes the connection of a process that has dialled. Returns false if none has.
  bool accept() {
    int error_number = 0;
    FileDescriptor accepted = accept_stream(listener_, error_number);
    if (!accepted.valid()) return false;
    begin(std::move(accepted), Speaker::kAcceptor);
    return true;
  }

  /// A proper Hello to `receiver`, or the answer to its Hello.
  Frame hello(PeerId receiver) const {
    Frame frame = make_frame(kTcpProtocol, FrameKind::kHello);
    auto& body = frame.as<TcpHello>();
    body.sender = body.own = index_of(id_);
    body.receiver = body.known_as = index_of(receiver);
    body.sender_instance = address.instance;
    body.receiver_instance = target_instance;
    if (role_ == Speaker::kDialler) std::ranges::copy(address.to_string(), body.address.begin());
    return frame;
  }
  /// With its proof.
  void send(Frame frame) {
    transcript_.sign(role_, frame);
    send(std::as_bytes(std::span(&frame, 1)));
  }
  /// All of it. It may have been closed on us: then that is the answer.
  void send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }
  /// As much of it as the socket takes now. Returns how much that was.
  std::size_t send_some(std::span<const std::byte> bytes) const {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
  }

  /// What came, without waiting: a frame, or nothing yet.
  std::optional<Frame> receive() {
    if (!fill(sizeof(Frame))) return {};
    Frame frame;
    EXPECT_EQ(check_frame(incoming_, kTcpProtocol, frame), FrameCheck::kValid);
    incoming_.clear();
    const Speaker other = role_ == Speaker::kDialler ? Speaker::kAcceptor : Speaker::kDialler;
    EXPECT_TRUE(frame.kind == FrameKind::kRefuse || transcript_.verify(other, frame));
    return frame;
  }
  /// Records: as many bytes, or nothing yet.
  std::optional<std::vector<std::byte>> receive_bytes(std::size_t length) {
    if (!fill(length)) return {};
    return std::exchange(incoming_, {});
  }

  /// Closes the connection. `resets`: the other's kernel reports an error, not an end.
  void close(bool resets = false) {
    const linger now{.l_onoff = resets, .l_linger = 0};
    static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now));
    socket.reset();
  }

  TcpAddress address;
  std::uint64_t target_instance = 0;
  FileDescriptor socket;
  bool closed = false;  ///< Nothing more will come.

 private:
  void begin(FileDescriptor connection, Speaker role) {
    socket = std::move(connection);
    role_ = role;
    transcript_ = Transcript(secret_);
    closed = false;
    incoming_.clear();
  }
  bool fill(std::size_t length) {
    while (incoming_.size() < length) {
      std::array<std::byte, 4096> piece;
      const ssize_t got =
          ::recv(socket.get(), piece.data(), std::min(piece.size(), length - incoming_.size()), MSG_DONTWAIT);
      if (got <= 0) {
        closed = got == 0 || errno != EAGAIN;
        return false;
      }
      incoming_.insert(incoming_.end(), piece.begin(), piece.begin() + got);
    }
    return true;
  }

  PeerId id_;
  JobSecret secret_;
  FileDescriptor listener_;
  Speaker role_ = Speaker::kDialler;
  Transcript transcript_{secret_};
  std::vector<std::byte> incoming_;
};

}  // namespace ch3_offload
