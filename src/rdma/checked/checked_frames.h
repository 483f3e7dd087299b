// What CheckedProvider sends in the slots of the provider below: frames with a checksum and a number.
// docs/wire-format.md is the reference. Headers are copied out of a slot before they are read.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ch3_offload {

/// What begins the address of a process with checksums. The rest is the address of the provider below.
inline constexpr std::string_view kCheckedAddress = "crc+";
/// The address of the provider below, or `address` itself.
constexpr std::string_view address_below(std::string_view address) noexcept {
  return address.starts_with(kCheckedAddress) ? address.substr(kCheckedAddress.size()) : address;
}

enum class CheckedKind : std::uint8_t {
  // Numbered, and kept until the peer has them:
  kMessage = 1,  ///< What follows is the caller's.
  kWritten,      ///< CheckedWritten: a write is complete; is it right?
  kRight,        ///< CheckedAnswer: it is.
  kWrong,        ///< CheckedAnswer: it is not, and must be repeated.
  // Without a number of their own:
  kReceived,  ///< Nothing but `received`.
  kRepeat,    ///< Something was damaged: send again what follows `received`.
  kEnd
};
constexpr bool is_numbered(CheckedKind kind) noexcept { return kind <= CheckedKind::kWrong; }

/// The first number. Numbers begin anew soon, so that whatever a test sends does so, not only a job of weeks.
inline constexpr std::uint32_t kFirstFrame = UINT32_MAX - 15;

struct CheckedHeader {
  std::uint32_t checksum = 0;  ///< CRC32C of all that follows it in the slot.
  std::uint32_t number = 0;    ///< Its own; of a frame without one, that of the next one to be sent.
  std::uint32_t received = 0;  ///< The number of the next frame that the sender of this one awaits.
  CheckedKind kind{};
  std::array<std::byte, 3> reserved{};
};

struct CheckedWritten {
  std::uint64_t address = 0;  ///< In the receiver's memory.
  std::uint64_t remote_key = 0;
  std::uint64_t length_bytes = 0;
  std::uint32_t immediate = 0;
  std::uint32_t write = 0;        ///< The sender's, for the answer.
  std::uint32_t checksum = 0;     ///< CRC32C of what was written.
  std::uint32_t is_changing = 0;  ///< 1: its source changes meanwhile, and it is not compared. Else 0.
};

struct CheckedAnswer {
  std::uint32_t write = 0;
  std::uint32_t reserved = 0;
};

static_assert(sizeof(CheckedHeader) == 16 && offsetof(CheckedHeader, kind) == 12);
static_assert(sizeof(CheckedWritten) == 40 && offsetof(CheckedWritten, checksum) == 32);
static_assert(sizeof(CheckedAnswer) == 8);

}  // namespace ch3_offload
