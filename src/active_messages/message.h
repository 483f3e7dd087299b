// What a message is made of, and how an address and the name of a region are written. All numbers are
// little-endian; docs/active-messages.md has the layouts.
//
// Threads: any.

#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "active_messages/ch3_offload_am.h"

namespace ch3_offload::active_messages {

/// Where an endpoint is.
struct Address {
  std::uint32_t nid = 0;
  std::uint32_t pid = 0;
  std::uint32_t requests_table = 0;  ///< Index of the portal table that takes its requests.
  std::uint32_t replies_table = 0;
  std::uint64_t key = 0;  ///< Random: the match bits of its entries. Another endpoint has another one.

  auto operator<=>(const Address&) const = default;
};

Address read(const ch3_offload_am_address_t& address) noexcept;
ch3_offload_am_address_t write(const Address& address) noexcept;

/// By this a region is reached.
struct RegionName {
  std::uint32_t nid = 0;
  std::uint32_t pid = 0;
  std::uint32_t table = 0;
  std::uint32_t os_process = 0;  ///< Process id in the kernel.
  std::uint64_t key = 0;         ///< Random: its match bits, and the first bytes of its file.
  std::uint64_t length_bytes = 0;
  std::uint32_t file = kNoFile;  ///< Descriptor of its file in that process.

  static constexpr std::uint32_t kNoFile = UINT32_MAX;
};

/// Empty: the bytes are no name.
std::optional<RegionName> read(const ch3_offload_am_name_t& name) noexcept;
ch3_offload_am_name_t write(const RegionName& name) noexcept;

/// Requests may be answered, replies may not. Each has entries, windows and an order of its own.
enum class Channel : std::uint8_t { kRequests, kReplies };
inline constexpr std::size_t kChannels = 2;
inline constexpr std::size_t index_of(Channel channel) noexcept { return static_cast<std::size_t>(channel); }

/// Before the arguments of a message. Which process has sent it, Portals says.
struct MessageHeader {
  std::uint64_t function = 0;
  std::uint64_t sequence = 0;  ///< Counts the messages of an endpoint to another one, in one channel, from 0.
  std::uint64_t sender_key = 0;  ///< This and the next two are of the sender's address.
  std::uint32_t requests_table = 0;
  std::uint32_t replies_table = 0;
  std::uint32_t arguments_bytes = 0;
};

inline constexpr std::size_t kHeaderBytes = 40;
inline constexpr std::size_t kMostMessageBytes = kHeaderBytes + CH3_OFFLOAD_AM_MOST_BYTES;

/// Writes a header to the beginning of a message.
void write(const MessageHeader& header, std::span<unsigned char, kHeaderBytes> to) noexcept;
/// Empty: a message of another version, or not of this length.
std::optional<MessageHeader> read_header(std::span<const unsigned char> message) noexcept;

/// Functions of the library's own.
inline constexpr std::uint64_t kNothing = 0;          ///< A message that tells its sender whether we live.
inline constexpr std::uint64_t kUnknownFunction = 1;  ///< A reply: 8 bytes, the number that its sender named.
inline constexpr std::uint64_t kFirstOfProgram = 2;

/// FNV-1a, 64 bits.
std::uint64_t number_of(std::string_view name) noexcept;

}  // namespace ch3_offload::active_messages
