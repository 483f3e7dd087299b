// Unix-domain sockets with names in the abstract namespace, so that no file is left behind: who is at the
// other end, and messages that carry files.
//
// Threads: any; nothing here has state. Blocking: none. Sets errno where a function says so.

#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "rdma/file_descriptor.h"

namespace ch3_offload {

/// Fills in the socket address of a name and returns its length. A longer name than fits is cut.
socklen_t abstract_address(std::string_view name, sockaddr_un& address) noexcept;

struct PeerCredentials {
  uid_t uid = static_cast<uid_t>(-1);
  pid_t pid = 0;  ///< 0: not visible in our pid namespace.
};
PeerCredentials peer_credentials(const FileDescriptor& socket) noexcept;

/// Files that a message may carry.
inline constexpr std::size_t kMostFiles = 4;

/// Sends a short message and at most kMostFiles files. Returns false on failure; errno says why.
bool send_with_files(const FileDescriptor& socket, std::span<const std::byte> message,
                     std::span<const int> files) noexcept;

enum class Receipt {
  kMessage,       ///< `message` is full, and exactly the wanted number of files came with it.
  kWithoutFiles,  ///< `message` is full, and no file came, although some were wanted.
  kNothing,       ///< No message has arrived.
  kClosed,        ///< The other side closed the connection.
  kInvalid,       ///< The message has another length, or another number of files.
  kNoDescriptor,  ///< No descriptor is free for a file. The message stays in the socket.
};
/// Receives a message of exactly `message.size()` bytes and its `files.size()` files, at most kMostFiles.
Receipt receive_with_files(const FileDescriptor& socket, std::span<std::byte> message,
                           std::span<FileDescriptor> files) noexcept;

}  // namespace ch3_offload
