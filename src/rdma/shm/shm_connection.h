// Addresses, the handshake and the connections of the shm provider.
//
// A process listens on a Unix-domain socket, whose name is a random 128-bit number. Each direction of traffic
// begins with a connection, which the sender makes:
//
//   sender    ── Hello, its ring's file ───────▶ receiver; the Hello says where the sender itself listens
//   sender    ◀─ Welcome, two files ──────────── receiver: its doorbell's, its activity bits'
//   either    ── one byte: a wake-up ──────────▶ the other, at any time afterwards
//
// The end of the connection means that the process at the other end has ended.
//
// RULE ONE CONNECTION: Of two processes that have connected to each other, the one with the smaller socket
// id keeps the connection that it has made. It closes the other one as soon as it has sent its Hello and
// the Welcome. The one with the greater socket id takes the end of its own connection, after the Welcome,
// for that. It then finds the connection that stays in its listener's backlog, if it has not accepted it
// yet. The connection that stays wakes both, and tells both of the other's end. So a peer takes one
// descriptor, and the one with the smaller id never waits with two: however few descriptors there are,
// somebody goes on.
//
// Nothing that was said on the closed connection is missed: its end is a wake-up for both sides, and the one
// with the greater id, which may have found no connection to ring on, rings when it has accepted the other's.
//
// All input is checked: first the user, as the kernel reports it (SO_PEERCRED), then the Hello. For set-up
// only, except send_wake_byte() and drain_wake_bytes(). No function blocks.

#pragma once

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
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {

/// "shm:1:<node id, 16 hex digits>:<socket id, 32 hex digits>"
struct ShmAddress {
  std::uint64_t node_id = 0;  ///< read_node_id(). Only processes with the same id reach the socket.
  std::array<std::uint64_t, 2> socket_id{};

  std::string to_string() const;
  /// Returns nothing for any string that is not an address of this version.
  static std::optional<ShmAddress> parse(std::string_view text) noexcept;
};

/// Returns a hash of the running kernel's boot id and the network namespace, to which abstract sockets
/// belong; of the node's name and interfaces, where there is no /proc.
std::uint64_t read_node_id() noexcept;

/// The first message on a connection, with the sender's ring file attached. In host byte order, because both
/// processes are on one node.
struct Hello {
  static constexpr std::uint32_t kMagic = 0x6F33'6833;  // "3h3o"
  static constexpr std::uint16_t kVersion = 8;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t size_bytes = sizeof(Hello);
  std::uint32_t sender = 0;    ///< PeerId of the process that connects, at the other.
  std::uint32_t receiver = 0;  ///< PeerId of the process that it connects to, at that process itself.
  std::uint64_t ring_bytes = 0;
  JobSecret secret{};
  std::array<std::uint64_t, 2> socket_id{};  ///< ShmAddress::socket_id of the process that connects.
  std::uint32_t own = 0;                     ///< PeerId of the process that connects, at itself.
  std::uint32_t known_as = 0;  ///< PeerId of the process that it connects to, at the one that connects.
  /// Not 0: nobody wants to send yet (ShmProvider::prepare()). Its end is that of a process that was never
  /// met, unless a record comes.
  std::uint32_t is_ahead = 0;
  std::uint32_t reserved = 0;  ///< 0.
};
static_assert(sizeof(Hello) == 72 && offsetof(Hello, sender) == 8 && offsetof(Hello, ring_bytes) == 16 &&
              offsetof(Hello, secret) == 24 && offsetof(Hello, socket_id) == 40 &&
              offsetof(Hello, own) == 56 && offsetof(Hello, known_as) == 60 &&
              offsetof(Hello, is_ahead) == 64);

/// The answer, with two files attached: the receiver's doorbell and its activity bits.
struct Welcome {
  static constexpr std::uint32_t kMagic = 0x6F33'6877;  // "wh3o"

  std::uint32_t magic = kMagic;
  std::uint16_t version = Hello::kVersion;
  std::uint16_t size_bytes = sizeof(Welcome);
  std::uint32_t activity_bit = 0;  ///< The bit of the sender's ring: below kMostActivityBits.
  std::uint32_t reserved = 0;      ///< 0.
};
static_assert(sizeof(Welcome) == 16);

/// Checks a Hello and copies it to `hello`. Returns "" if it is right, otherwise the reason to refuse it.
/// `peer_limit` is the number of peers. The secret is checked before all other fields, in constant time.
std::string_view check_hello(std::span<const std::byte> bytes, const JobSecret& secret, PeerId self,
                             std::uint32_t peer_limit, Hello& hello) noexcept;
/// Checks a Welcome and copies it to `welcome`. Returns whether it is right.
bool check_welcome(std::span<const std::byte> bytes, Welcome& welcome) noexcept;

/// Makes the listening socket of `address`.
Result<FileDescriptor> listen_at(const ShmAddress& address);

/// Makes a non-blocking socket.
Result<FileDescriptor> make_socket();

enum class ConnectProgress { kConnected, kBacklogFull };
/// Connects. kBacklogFull: nothing was done; call again later.
Result<ConnectProgress> connect_to(const FileDescriptor& socket, const ShmAddress& address);

/// Accepts one connection if another descriptor is free for the file of its Hello. Returns an invalid
/// descriptor if no connection waits (`error_number` is 0) or if accepting failed (`error_number` is errno).
FileDescriptor accept_from(const FileDescriptor& listener, int& error_number) noexcept;
/// Accepts one connection even with the last free descriptor. Returns an invalid descriptor if no connection
/// waits or no descriptor is free.
FileDescriptor accept_with_last_descriptor(const FileDescriptor& listener) noexcept;

/// Copies the next message to `message` and leaves it, and its file, in the socket. Returns false if it has
/// not arrived completely.
bool peek(const FileDescriptor& socket, std::span<std::byte> message) noexcept;

/// Wakes the process at the other end. Returns false if the connection has ended, or was not made yet. A full
/// socket holds a wake-up already. A system call, so the message path calls it only if the other side sleeps.
bool send_wake_byte(const FileDescriptor& socket) noexcept;

/// Ends this side's sending: the other end sees the connection as closed. This side can still receive, and
/// still sees the other end's close.
void hang_up(const FileDescriptor& socket) noexcept;

/// Returns whether the other end has closed the connection or hung up. One system call. False for an invalid
/// descriptor.
bool has_hung_up(const FileDescriptor& socket) noexcept;

enum class WakeBytes { kNone, kSome, kClosed };
/// Reads the wake-ups in the socket. kClosed: the connection has ended; wake-ups may have been read before.
WakeBytes drain_wake_bytes(const FileDescriptor& socket) noexcept;

}  // namespace ch3_offload
