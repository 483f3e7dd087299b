// What goes over a TCP connection: first the frames of an introduction (rdma/introduction/frames.h) with the
// body below, then records until the end. docs/wire-format.md has them as tables.
//
// Records follow each other without gaps. Numbers are little-endian. RULE: use no field of a record before
// check_tcp_record() or check_write() has accepted it.
//
// Threads: any. Nothing blocks or allocates.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "rdma/introduction/frames.h"
#include "rdma/provider.h"

namespace ch3_offload {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

/// Of a Hello. An Offer says nothing.
struct TcpHello {
  std::uint32_t sender = 0;           ///< PeerId of who speaks, at the other.
  std::uint32_t receiver = 0;         ///< PeerId of who is meant, at that process itself.
  std::uint64_t sender_instance = 0;  ///< TcpAddress::instance of the sender.
  std::uint64_t receiver_instance = 0;
  std::uint32_t own = 0;            ///< PeerId of who speaks, at itself.
  std::uint32_t known_as = 0;       ///< PeerId of who is meant, at the one who speaks.
  std::array<char, 160> address{};  ///< The sender's TcpAddress, padded with zeros.
};
static_assert(sizeof(TcpHello) == 192 && offsetof(TcpHello, sender_instance) == 8 &&
              offsetof(TcpHello, own) == 24 && offsetof(TcpHello, address) == 32);

/// Introductions of connections.
inline constexpr std::uint32_t kTcpMagic = 0x7430'3363;  // "c30t"
inline constexpr std::uint16_t kTcpVersion = 1;

inline bool check_tcp_body(const Frame& frame) noexcept {
  return frame.kind != FrameKind::kHello || frame.as<TcpHello>().address.back() == '\0';
}
inline constexpr Protocol kTcpProtocol{kTcpMagic, kTcpVersion, check_tcp_body};

/// The names by which who says hello is answered.
inline PeerNames names_in(const TcpHello& body) noexcept { return {PeerId{body.known_as}, PeerId{body.own}}; }

enum class TcpRecordKind : std::uint8_t {
  kWelcome = 1,  ///< The acceptor's first record: the connection stands. Nothing follows.
  kSlot,         ///< A message follows.
  kWrite,        ///< The rest of a TcpWriteRecord follows, then a part of a write.
  kEnd
};

struct TcpRecord {
  std::uint32_t length_bytes = 0;  ///< Of the message, or of the part of a write.
  TcpRecordKind kind{};
  std::array<std::uint8_t, 3> reserved{};
};

struct TcpWriteRecord {
  TcpRecord record;
  std::uint32_t immediate = 0;
  std::uint32_t reserved = 0;
  std::uint64_t remote_key = 0;
  std::uint64_t address = 0;  ///< In the receiver's memory.
};
static_assert(sizeof(TcpRecord) == 8 && sizeof(TcpWriteRecord) == 32 &&
              offsetof(TcpWriteRecord, immediate) == 8 && offsetof(TcpWriteRecord, remote_key) == 16 &&
              offsetof(TcpWriteRecord, address) == 24);

/// Of a write, so much goes at once: a message that comes meanwhile goes before the rest.
inline constexpr std::uint32_t kMostTcpPartBytes = 256 * 1024;

/// Whether a record may follow. `is_first`: it is the first that the process which dialled hears.
inline bool check_tcp_record(const TcpRecord& record, std::size_t slot_bytes, bool is_first) noexcept {
  if (record.reserved != std::array<std::uint8_t, 3>{}) return false;
  if (is_first) return record.kind == TcpRecordKind::kWelcome && record.length_bytes == 0;
  if (record.kind == TcpRecordKind::kSlot)
    return record.length_bytes >= 1 && record.length_bytes <= slot_bytes;
  return record.kind == TcpRecordKind::kWrite && record.length_bytes <= kMostTcpPartBytes;
}

}  // namespace ch3_offload
