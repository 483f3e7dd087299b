// One TCP connection on which two processes exchange frames (frames.h). Never blocks.
//
// It lives as long as both processes: its end is how the death of a process, or of its node (keep-alive), is
// noticed. It carries no messages.
//
// Threads: as rdma/provider.h says.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rdma/file_descriptor.h"
#include "rdma/status.h"
#include "rdma/verbs/frames.h"
#include "rdma/verbs/verbs_address.h"

namespace ch3_offload {

class ControlChannel {
 public:
  ControlChannel() = default;
  /// Takes an accepted socket, which does not block. A silent peer is noticed after about `timeout_ms`.
  ControlChannel(FileDescriptor socket, int timeout_ms) noexcept;
  /// Begins to connect; frames may be queued at once. kPeerFailed: nobody listens there. kNoMemory: descriptors.
  static Result<ControlChannel> dial(const SocketAddress& to, int timeout_ms);

  bool is_open() const noexcept { return socket_.valid(); }
  /// The other side's kernel has not answered yet.
  bool is_connecting() const noexcept { return connecting_; }
  const FileDescriptor& socket() const noexcept { return socket_; }
  /// The IP address at our end; empty: there is none yet.
  std::string local_host() const;
  void close() noexcept;

  /// Queues a frame and sends what the socket takes. Does nothing if the channel is closed or broken: receive() tells.
  /// A frame for which there is no memory breaks the channel.
  void send(const Frame& frame) noexcept;
  /// Sends what is queued; for when the socket became writable.
  void flush() noexcept;
  /// Something is queued, or the connection is not made yet: the socket is to be watched for writing.
  bool wants_write() const noexcept { return is_open() && (connecting_ || !outgoing_.empty()); }

  enum class Receipt {
    kFrame,      ///< `frame` is a valid one.
    kNothing,    ///< No whole frame is here.
    kClosed,     ///< The connection ended or broke: error() says how (0: orderly).
    kVersion,    ///< A frame of another version.
    kMalformed,  ///< No frame.
  };
  Receipt receive(Frame& frame) noexcept;
  /// errno of the failure that kClosed told of. ECONNREFUSED, ECONNRESET: the process is gone.
  int error() const noexcept { return error_; }

 private:
  void fail(int error_number) noexcept;

  FileDescriptor socket_;
  bool connecting_ = false;
  int error_ = 0;
  bool failed_ = false;
  std::array<std::byte, sizeof(Frame)> incoming_{};
  std::size_t incoming_bytes_ = 0;
  std::vector<std::byte> outgoing_;
};

/// A socket that listens at `host`, an IP address of this node, at `port`; 0: the kernel chooses, and `port` tells.
Result<FileDescriptor> listen_for_channels(const std::string& host, std::uint16_t& port);

/// Takes one connection. None: nobody waits (error 0) or accepting failed (its errno).
FileDescriptor accept_channel(const FileDescriptor& listener, int& error_number) noexcept;

}  // namespace ch3_offload
