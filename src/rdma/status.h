// Result codes of the core library, and the error type of set-up functions.
//
// The data path returns Status. Set-up functions return Result<T>: a value, or an Error with a status, errno
// and a message that a user can act on. Nothing here allocates except Error::message.

#pragma once

#include <cerrno>
#include <string>
#include <utility>
#include <variant>

namespace ch3_offload {

/// The result of an operation. kOk and kAgain are not failures. All others are; the comment names what has
/// failed: the request, the connection or the device.
enum class [[nodiscard]] Status : unsigned char {
  kOk = 0,
  kAgain,        ///< Nothing was done: a queue is full or credit is missing. Retry after poll().
  kTruncated,    ///< Request: the message was longer than the buffer; its first part was delivered.
  kUnsupported,  ///< Request: this provider, node or peer cannot do it; use another protocol.
  kNoMemory,     ///< Request: memory or a registration was refused.
  kRevoked,      ///< Request: its owner withdrew it, with others of its kind.
  kUnreachable,  ///< Connection: no provider reaches the peer.
  kPeerFailed,   ///< Connection: the peer died or the connection broke.
  kProtocol,     ///< Connection: the peer violated the protocol.
  kDeviceFailed, ///< Device: no connection of this provider works any more.
};

/// Returns the constant's name without its k, for logs: "PeerFailed".
const char* status_name(Status status) noexcept;

/// Why a set-up function failed.
struct Error {
  Status status = Status::kDeviceFailed;
  int error_number = 0;  ///< errno, or 0 when no system call failed.
  std::string message;   ///< What happened, where, and what the user can do. One line, no newline.
};

/// A value, or an Error. Check ok() before value() or error().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return std::holds_alternative<T>(state_); }
  T& value() noexcept { return *std::get_if<T>(&state_); }
  const T& value() const noexcept { return *std::get_if<T>(&state_); }
  const Error& error() const noexcept { return *std::get_if<Error>(&state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace ch3_offload
