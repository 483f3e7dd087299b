// One connection on which two processes exchange the frames of an introduction (frames.h): over TCP, or
// through an abstract Unix socket between processes of one user on one node. Never blocks.
//
// Memory: a stream allocates room for its frames when it opens, and none later. Without memory it is broken
// from the beginning (ENOMEM).
//
// Threads: one at a time.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rdma/file_descriptor.h"
#include "rdma/fork_closing.h"
#include "rdma/introduction/frames.h"
#include "rdma/introduction/socket_address.h"
#include "rdma/status.h"

namespace ch3_offload {

class FrameStream {
 public:
  FrameStream() = default;
  /// Takes a socket that is connected, or being connected, and does not block. `protocol` stays valid. The
  /// kernel notices a host that is silent for about `timeout_ms`.
  FrameStream(FileDescriptor socket, const Protocol& protocol, int timeout_ms,
              bool is_connecting = false) noexcept;
  /// Begins to connect; frames may be queued at once. kPeerFailed: nobody of this user listens there. kAgain:
  /// the backlog of a process of this node is full. kNoMemory: descriptors. Throws std::bad_alloc.
  static Result<FrameStream> dial(const SocketAddress& to, const Protocol& protocol, int timeout_ms);

  bool is_open() const noexcept { return socket_.valid(); }
  /// Returns whether the other side's kernel has taken the connection, and it has not failed since.
  bool is_connected() const noexcept { return is_open() && !connecting_ && !failed_; }
  const FileDescriptor& socket() const noexcept { return socket_; }
  void close() noexcept { *this = FrameStream(); }
  /// Closes the stream and leaves its socket to the caller. What has not left is lost: a frame always leaves
  /// at once from a socket that has just been connected. REQUIRES: the last frame that came was read.
  ForkClosedDescriptor release() noexcept;

  /// Queues a frame and sends what the socket takes. Has no effect on a stream that is closed or broken:
  /// receive() tells. REQUIRES: less than two frames were queued before.
  void send(const Frame& frame) noexcept;
  /// Sends what is queued; for when the socket became writable.
  void flush() noexcept;
  /// Returns whether the socket is to be watched for writing: something is queued, or the connection is not
  /// made yet.
  bool wants_write() const noexcept { return is_open() && (connecting_ || out_begin_ < out_end_); }

  enum class Receipt {
    kFrame,      ///< `frame` is a valid one.
    kNothing,    ///< No whole frame is here.
    kClosed,     ///< The connection ended or broke: error() says how (0: orderly).
    kVersion,    ///< A frame of another version, of whatever length.
    kMalformed,  ///< No frame.
  };
  Receipt receive(Frame& frame) noexcept;
  /// errno of the failure that kClosed told of. ECONNREFUSED: no process listens there.
  int error() const noexcept { return error_; }

 private:
  void look_at_connection() noexcept;
  void fail(int error_number) noexcept;

  struct Room {
    std::array<std::byte, sizeof(Frame)> in;
    std::array<std::byte, 2 * sizeof(Frame)> out;
  };

  ForkClosedDescriptor socket_;
  const Protocol* protocol_ = nullptr;
  std::unique_ptr<Room> room_;  ///< nullptr only while failed_ or closed.
  bool connecting_ = false;
  bool failed_ = false;
  int error_ = 0;
  std::size_t in_bytes_ = 0;
  std::size_t out_begin_ = 0;
  std::size_t out_end_ = 0;
};

/// Makes the kernel notice a silent peer: idle, after keep-alive probes; with data under way, after a time-out.
/// Has no effect on a socket of the node.
void watch_for_silence(int socket, int timeout_ms) noexcept;

/// Makes a socket that listens at `at`, an address of this node. Port 0: the kernel chooses, and sets it. The
/// error number is EADDRINUSE if the address is taken.
Result<FileDescriptor> listen_for_streams(SocketAddress& at);
/// The same at an IP address in numbers.
Result<FileDescriptor> listen_for_streams(const std::string& host, std::uint16_t& port);

/// Takes one connection; on the node, only of a process of this user. Returns none if nobody waits (then
/// `error_number` is 0) or accepting failed (its errno).
FileDescriptor accept_stream(const FileDescriptor& listener, int& error_number) noexcept;
/// Whether the other side is on this node and, as the kernel says, of this user.
bool is_stream_on_node(const FileDescriptor& socket) noexcept;

}  // namespace ch3_offload
