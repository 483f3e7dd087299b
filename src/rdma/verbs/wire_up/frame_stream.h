// One TCP connection on which two processes exchange the frames of an introduction (frames.h). Never blocks.
//
// Threads: as rdma/provider.h says.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rdma/file_descriptor.h"
#include "rdma/fork_closing.h"
#include "rdma/status.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/wire_up/frames.h"

namespace ch3_offload {

class FrameStream {
 public:
  FrameStream() = default;
  /// Takes an accepted socket, which does not block. The kernel notices a host that is silent for about
  /// `timeout_ms`. Throws std::bad_alloc.
  FrameStream(FileDescriptor socket, int timeout_ms);
  /// Begins to connect; frames may be queued at once. kPeerFailed: nobody listens there. kNoMemory:
  /// descriptors. Throws std::bad_alloc.
  static Result<FrameStream> dial(const SocketAddress& to, int timeout_ms);

  bool is_open() const noexcept { return socket_.valid(); }
  /// Returns whether the other side's kernel has taken the connection, and it has not failed since.
  bool is_connected() const noexcept { return is_open() && !connecting_ && !failed_; }
  const FileDescriptor& socket() const noexcept { return socket_; }
  void close() noexcept;

  /// Queues a frame and sends what the socket takes. Has no effect on a stream that is closed or broken:
  /// receive() tells. If there is no memory for the frame, the stream breaks.
  void send(const Frame& frame) noexcept;
  /// Sends what is queued; for when the socket became writable.
  void flush() noexcept;
  /// Returns whether the socket is to be watched for writing: something is queued, or the connection is not
  /// made yet.
  bool wants_write() const noexcept { return is_open() && (connecting_ || !outgoing_.empty()); }

  enum class Receipt {
    kFrame,      ///< `frame` is a valid one.
    kNothing,    ///< No whole frame is here.
    kClosed,     ///< The connection ended or broke: error() says how (0: orderly).
    kVersion,    ///< A frame of another version.
    kMalformed,  ///< No frame.
  };
  Receipt receive(Frame& frame) noexcept;
  /// errno of the failure that kClosed told of. ECONNREFUSED: no process listens there.
  int error() const noexcept { return error_; }

 private:
  void fail(int error_number) noexcept;

  FileDescriptor socket_;
  ForkClosing closing_;  ///< Of the socket.
  bool connecting_ = false;
  int error_ = 0;
  bool failed_ = false;
  std::array<std::byte, sizeof(Frame)> incoming_{};
  std::size_t incoming_bytes_ = 0;
  std::vector<std::byte> outgoing_;
};

/// Makes a socket that listens at `host`, an IP address of this node, at `port`. 0: the kernel chooses, and
/// sets `port`.
Result<FileDescriptor> listen_for_streams(const std::string& host, std::uint16_t& port);

/// Takes one connection. Returns none if nobody waits (then `error_number` is 0) or accepting failed (its
/// errno).
FileDescriptor accept_stream(const FileDescriptor& listener, int& error_number) noexcept;

}  // namespace ch3_offload
