// The inputs of the engine's fuzz target: a configuration, then steps until the input ends. Shared by the
// target and by its seeds.

#pragma once

#include <cstdint>

namespace ch3_offload::fuzz {

/// One process is the engine's own, two are hostile, one is the neighbour whom nothing of that may concern.
inline constexpr std::uint32_t kSelf = 0;
inline constexpr std::uint32_t kHostile = 1;
inline constexpr std::uint32_t kOtherHostile = 2;
inline constexpr std::uint32_t kNeighbour = 3;
inline constexpr std::uint32_t kJobSize = 4;

// The configuration: one byte of these.
inline constexpr std::uint8_t kSmallSlots = 1;   ///< Of 256 bytes, else 4096.
inline constexpr std::uint8_t kWrites = 2;       ///< The provider has writes, from 100 bytes on.
inline constexpr std::uint8_t kSmallBudget = 4;  ///< 20,000 bytes, else 1 MiB.
inline constexpr std::uint8_t kNoBudget = 8;
inline constexpr std::uint8_t kSendBuffer = 16;    ///< 20,000 bytes, else none.
inline constexpr std::uint8_t kSmallEager = 32;    ///< Eager up to 1000 bytes, else 16 KiB.
inline constexpr std::uint8_t kLittleCredit = 64;  ///< The hostile ones lend 1000 bytes, else 100,000.
inline constexpr std::uint8_t kTraced = 128;

/// Lengths of payloads and messages, by index.
inline constexpr std::uint32_t kLengths[] = {0,    1,    8,    40,   100,  128,    129,    200,
                                             1000, 4000, 4096, 5000, 9999, 16'384, 16'385, 60'000};

/// What follows the step's own byte is written behind it: p a hostile peer (1 byte), l an index of kLengths
/// (1), b match bits (1), n a number (1), or a number of that many bits.
enum class Step : std::uint8_t {
  // The peers'.
  kMessage,  ///< p, n header bytes, the bytes, l or kFill16 and 16 bits: payload behind them
  kAnswer,   ///< as kMessage, n: its id comes from what was sent to p, so many answerable ones ago
  kWriteArrived,  ///< p, n: the transfer of a CTS sent to p, so many ago; bit 7: half of what is left of it, else all
  kStrayWrite,   ///< p, 32 bits: the immediate; its length follows from that
  kRemoteWrite,  ///< n: of the memory that was granted, value
  // The provider's.
  kRoom,         ///< n: so many slots; 255: no end
  kEndWrite,     ///< n: index of kEnds
  kWriteAnswer,  ///< n: index of kEnds
  kRefuse,       ///< n: bit 0 registration, bits 1-2 connections
  kPeerDown,     ///< p, n: index of kEnds
  // The program's.
  kProgress,          ///< n: so many times, at most 8
  kSend,              ///< p, n: mode, l, b, n: send id; bit 2 of the mode: strided
  kReceive,           ///< b, n: what is ignored, l; bit 7 of b: strided
  kSendPacket,        ///< p, l, l
  kCancelSend,        ///< n: of all requests, the latest first
  kCancelReceive,     ///< n: likewise
  kProbe,             ///< b, n: what is ignored
  kMatchedProbe,      ///< b, n: likewise
  kReceiveMatched,    ///< n: of those taken, l
  kSendToSelf,        ///< b, l, n: bit 0 synchronous
  kTakeEvents,        ///< Takes them; what has arrived meanwhile is not looked at.
  kPurge,             ///< n: bit 0 everything, else the context of bit 1
  kFailPeer,          ///< p
  kClosePeer,         ///< p
  kReenter,           ///< n: behind each of the next so many events comes a step of the program's
  kCount
};

/// Added to a number of messages ago: of those sent to the other hostile peer.
inline constexpr std::uint8_t kOfTheOther = 128;

/// In the place of an l: 16 bits follow.
inline constexpr std::uint8_t kFill16 = 255;

}  // namespace ch3_offload::fuzz
