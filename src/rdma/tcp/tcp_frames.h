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
#include <initializer_list>

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
inline constexpr std::uint16_t kTcpVersion = 2;

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
  std::array<std::uint8_t, 3> check{};  ///< tcp_check() of the others, of which it has the lower bytes.
};

struct TcpWriteRecord {
  TcpRecord record;
  std::uint32_t immediate = 0;
  std::uint32_t check = 0;  ///< tcp_check() of all others.
  std::uint64_t remote_key = 0;
  std::uint64_t address = 0;  ///< In the receiver's memory.
};
static_assert(sizeof(TcpRecord) == 8 && sizeof(TcpWriteRecord) == 32 &&
              offsetof(TcpWriteRecord, immediate) == 8 && offsetof(TcpWriteRecord, remote_key) == 16 &&
              offsetof(TcpWriteRecord, address) == 24);

/// What was damaged on its way is not taken for another length or place. Each step is a bijection, so that
/// one value that differs makes a difference of 64 bits, of which 32 are kept.
constexpr std::uint32_t tcp_check(std::initializer_list<std::uint64_t> values) noexcept {
  std::uint64_t sum = 0;
  for (const std::uint64_t value : values) {
    sum = (sum ^ value) * 0x9E37'79B9'7F4A'7C15;
    sum ^= sum >> 32;
  }
  return static_cast<std::uint32_t>(sum);
}

inline TcpRecord make_tcp_record(std::uint32_t length_bytes, TcpRecordKind kind) noexcept {
  const std::uint32_t check = tcp_check({length_bytes, static_cast<std::uint64_t>(kind)});
  const auto byte = [check](unsigned number) { return static_cast<std::uint8_t>(check >> 8 * number); };
  return {length_bytes, kind, {byte(0), byte(1), byte(2)}};
}
inline bool is_sound(const TcpRecord& record) noexcept {
  return record.check == make_tcp_record(record.length_bytes, record.kind).check;
}

inline std::uint32_t check_of(const TcpWriteRecord& write) noexcept {
  return tcp_check({write.record.length_bytes, write.immediate, write.remote_key, write.address});
}
/// With the checks that belong to the other fields.
inline TcpWriteRecord sealed(TcpWriteRecord write) noexcept {
  write.record = make_tcp_record(write.record.length_bytes, write.record.kind);
  write.check = check_of(write);
  return write;
}

/// Of a write, so much goes at once: a message that comes meanwhile goes before the rest.
inline constexpr std::uint32_t kMostTcpPartBytes = 256 * 1024;

/// Whether a record may follow. `is_first`: it is the first that the process which dialled hears.
inline bool check_tcp_record(const TcpRecord& record, std::size_t slot_bytes, bool is_first) noexcept {
  if (!is_sound(record)) return false;
  if (is_first) return record.kind == TcpRecordKind::kWelcome && record.length_bytes == 0;
  if (record.kind == TcpRecordKind::kSlot)
    return record.length_bytes >= 1 && record.length_bytes <= slot_bytes;
  return record.kind == TcpRecordKind::kWrite && record.length_bytes <= kMostTcpPartBytes;
}

}  // namespace ch3_offload
