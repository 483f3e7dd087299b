// Addresses, the handshake and the Unix-domain sockets of the shm provider.
//
// A process listens on a socket in the abstract namespace, named by a random 128-bit number: there is
// no file to leave behind. For each direction of traffic the sender connects, and sends one Hello with
// its ring's file; the receiver answers with one Welcome and its doorbell's file. Afterwards a byte on the
// socket, in either direction, is a wake-up, and its end is the process's end.
//
// Everything that arrives is checked: the user (SO_PEERCRED, by the kernel), then the Hello. Set-up
// only; nothing here blocks.

#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rdma/file_descriptor.h"
#include "rdma/job_secret.h"
#include "rdma/provider.h"

namespace ch3_offload {

/// "shm:1:<node id, 16 hex digits>:<socket id, 32 hex digits>"
struct ShmAddress {
  std::uint64_t node_id = 0;  ///< Hash of what must be equal for the socket to be reached.
  std::array<std::uint64_t, 2> socket_id{};

  std::string to_string() const;
  /// Nothing: not an address of this version. Any input.
  static std::optional<ShmAddress> parse(std::string_view text) noexcept;
};

/// Identifies the running kernel and the network namespace, to which abstract sockets belong.
Result<std::uint64_t> read_node_id();

/// First message on a connection, with the sender's ring file attached. Host byte order: same node.
struct Hello {
  static constexpr std::uint32_t kMagic = 0x6F33'6833;  // "3h3o"
  static constexpr std::uint16_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t size_bytes = sizeof(Hello);
  std::uint32_t sender = 0;    ///< PeerId of who connects.
  std::uint32_t receiver = 0;  ///< PeerId of who is meant.
  std::uint64_t ring_bytes = 0;
  JobSecret secret{};
  std::array<std::byte, 24> reserved{};  ///< Zero.
};
static_assert(sizeof(Hello) == 64 && offsetof(Hello, sender) == 8 && offsetof(Hello, ring_bytes) == 16 &&
              offsetof(Hello, secret) == 24 && offsetof(Hello, reserved) == 40);

/// The answer, with the receiver's doorbell file attached.
struct Welcome {
  static constexpr std::uint32_t kMagic = 0x6F33'6877;  // "wh3o"

  std::uint32_t magic = kMagic;
  std::uint16_t version = Hello::kVersion;
  std::uint16_t size_bytes = sizeof(Welcome);
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Welcome) == 16);

/// Why a Hello was refused; "" when it is right. `peer_limit`: peers are numbered below it. The secret
/// is compared in constant time, and first.
std::string_view check_hello(std::span<const std::byte> bytes, const JobSecret& secret, PeerId self,
                             std::uint32_t peer_limit, Hello& hello) noexcept;
/// Whether these bytes are a Welcome.
bool check_welcome(std::span<const std::byte> bytes) noexcept;

/// Makes the listening socket of `address`.
Result<FileDescriptor> listen_at(const ShmAddress& address);

/// Makes a socket that does not block.
Result<FileDescriptor> make_socket();

enum class ConnectProgress { kConnected, kBacklogFull };
/// kBacklogFull: nothing happened; call again later.
Result<ConnectProgress> connect_to(const FileDescriptor& socket, const ShmAddress& address);

/// Takes one connection, where a second descriptor is left for the file that comes with its Hello; none:
/// nobody waits (error 0) or accepting failed (its errno).
FileDescriptor accept_from(const FileDescriptor& listener, int& error_number) noexcept;
/// Takes one connection, be it with the last descriptor; none: nobody waits, or there is no descriptor.
FileDescriptor accept_with_last_descriptor(const FileDescriptor& listener) noexcept;

struct PeerCredentials {
  uid_t uid = static_cast<uid_t>(-1);
  pid_t pid = 0;  ///< 0: not visible in our pid namespace.
};
PeerCredentials peer_credentials(const FileDescriptor& socket) noexcept;

/// Sends a short message and a file. False: errno says why.
bool send_with_file(const FileDescriptor& socket, std::span<const std::byte> message,
                    const FileDescriptor& file) noexcept;

enum class Receipt {
  kMessage,       ///< `message` is full and exactly one file came with it.
  kNothing,       ///< Not here yet.
  kClosed,        ///< The other side is gone.
  kInvalid,       ///< Too short, or not exactly one file.
  kNoDescriptor,  ///< We have none left for the file: the message stays in the socket.
};
Receipt receive_with_file(const FileDescriptor& socket, std::span<std::byte> message,
                          FileDescriptor& file) noexcept;

/// Fills `message` with what receive_with_file() would, but leaves it, and its file, in the socket. False: it is not here.
bool peek(const FileDescriptor& socket, std::span<std::byte> message) noexcept;

/// Wakes the process at the other end. A full socket holds a wake-up already; a broken one is noticed
/// by its reader. Safe on the message path only when the other side sleeps (a system call).
void send_wake_byte(const FileDescriptor& socket) noexcept;

enum class WakeBytes { kNone, kSome, kClosed };
/// Reads all wake-ups that are there. kClosed may have read some before.
WakeBytes drain_wake_bytes(const FileDescriptor& socket) noexcept;

}  // namespace ch3_offload
