// One connection on which two processes exchange the frames of an introduction (process_frames.h), and the
// sockets at which a process listens for them: an abstract Unix socket for processes of its node, and TCP for
// all others. Never blocks.
//
// Memory: a stream holds room for its frames, and allocates none.
//
// Threads: one at a time.

#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/targets/target_entry.h"
#include "nic/process_frames.h"
#include "rdma/file_descriptor.h"
#include "rdma/status.h"

namespace ch3_offload {

/// nid: an IPv4 address in host byte order. pid: the TCP port.
struct PhysicalId {
  std::uint32_t nid = 0;
  std::uint32_t pid = 0;

  static constexpr PhysicalId of(ProcessId process) noexcept {
    const auto bits = static_cast<std::uint64_t>(process);
    return {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
  }
  constexpr ProcessId process() const noexcept { return make_physical_id(nid, pid); }
  /// Whether a process can have it.
  constexpr bool is_possible() const noexcept { return nid != 0 && pid >= 1 && pid <= 65535; }
  std::string to_string() const;  ///< "10.0.0.5/4711"
};

class ProcessStream {
 public:
  ProcessStream() = default;
  /// Takes a socket that is connected, or being connected, and does not block.
  ProcessStream(FileDescriptor socket, bool is_connecting) noexcept
      : socket_(std::move(socket)), connecting_(is_connecting) {}

  bool is_open() const noexcept { return socket_.valid(); }
  const FileDescriptor& socket() const noexcept { return socket_; }
  /// Whether the other side's kernel has not taken the connection yet.
  bool is_connecting() const noexcept { return connecting_; }
  void close() noexcept { *this = ProcessStream(); }

  /// Queues a frame and sends what the socket takes. REQUIRES: less than two frames were queued before.
  void send(const ProcessFrame& frame) noexcept;
  /// Whether the socket is to be watched for writing.
  bool wants_write() const noexcept { return connecting_ || out_begin_ < out_end_; }

  enum class Receipt {
    kFrame,      ///< `frame` is a valid one.
    kNothing,    ///< No whole frame is here.
    kClosed,     ///< The connection ended or broke: error() says how (0: orderly).
    kVersion,    ///< A frame of another version.
    kMalformed,  ///< No frame.
  };
  /// Also sends what is queued.
  Receipt receive(ProcessFrame& frame) noexcept;
  int error() const noexcept { return error_; }

 private:
  void flush() noexcept;
  bool is_of_self(const sockaddr_storage& peer) const noexcept;
  void fail(int error_number) noexcept;

  FileDescriptor socket_;
  bool connecting_ = false;
  bool failed_ = false;
  int error_ = 0;
  std::array<std::byte, sizeof(ProcessFrame)> in_{};
  std::size_t in_bytes_ = 0;
  std::array<std::byte, 2 * sizeof(ProcessFrame)> out_{};
  std::size_t out_begin_ = 0;
  std::size_t out_end_ = 0;
};

/// Where a process listens. The TCP port holds the pid, also where nobody may come by TCP.
struct ProcessListeners {
  FileDescriptor net;
  FileDescriptor node;
};

/// Listens at `id`; pid 0: the kernel chooses one, and sets it. Errors: kAgain, the pid is taken; others: the
/// message says what to do.
Result<ProcessListeners> listen_as(PhysicalId& id, UserId user);

/// Dials the process of this user and this node with that id. kPeerFailed: there is none. kAgain: its backlog
/// is full. Others: this process lacks something.
Status dial_on_node(PhysicalId id, UserId user, ProcessStream& stream) noexcept;
/// Dials over TCP. kPeerFailed: the host says that nobody listens. kUnreachable: the host cannot be reached
/// now. Others: this process lacks something.
Status dial_over_net(PhysicalId id, ProcessStream& stream) noexcept;

}  // namespace ch3_offload
