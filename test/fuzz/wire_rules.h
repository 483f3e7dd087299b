// What docs/wire-format.md forbids, as seen from outside of the engine: whether a message of one peer surely
// ends its connection. An oracle for the engine's fuzz target: one-sided, because what the engine knows
// beyond the wire (byte credit, what was cancelled) it may refuse too.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "engine/wire.h"

namespace ch3_offload::fuzz {

/// One peer's connection. After the first true answer the connection is over, and the answers mean nothing.
class WireRules {
 public:
  /// The engine sent this to the peer. False: it may not, now.
  bool sent(std::span<const std::byte> message);
  /// There was no room for a message to the peer. From now on the engine may await answers to what has not left
  /// it, and it may believe a peer that guesses: only that peer is harmed. What answers control messages is no
  /// longer judged.
  void held_back() { held_back_ = true; }
  /// The peer sent this: true if it must be refused.
  bool breaks(std::span<const std::byte> message);
  /// A write of the peer's arrived with this immediate.
  bool write_breaks(std::uint32_t transfer, std::size_t length_bytes);
  /// What is still to come of a transfer; 1: there is none.
  std::size_t left_of(std::uint32_t transfer) const;

 private:
  struct Announced {
    std::uint64_t total_bytes;
    bool payload;  ///< It went along: an ACK may be the answer.
    bool part;     ///< Of a packet.
  };
  struct Transfer {
    std::uint64_t wanted_bytes;
    std::uint64_t received_bytes;
    bool writable;
    bool written = false;  ///< A part was: no kData may come any more.
  };
  struct Stream {
    std::uint64_t total_bytes;
    std::uint64_t received_bytes;
  };

  static bool target_breaks(const wire::CommonHeader& common, std::span<const std::byte> message);
  bool eager_breaks(std::uint64_t total_bytes, std::size_t part_bytes);
  bool part_breaks(std::size_t part_bytes);
  bool cts_breaks(const wire::CtsHeader& header);
  bool ack_breaks(const wire::AckHeader& header);
  bool reply_breaks(const wire::CancelReplyHeader& header);
  bool part_offer_breaks(const wire::RtsHeader& header, std::size_t payload_bytes);
  void end_transfer(std::uint32_t transfer);
  bool data_breaks(const wire::DataHeader& header, std::size_t part_bytes);

  std::map<std::uint32_t, Announced> announced_;  ///< By operation: an RTS without its answer.
  std::multiset<std::uint32_t> acks_due_;         ///< Operations: synchronous eager messages.
  std::map<std::uint32_t, Transfer> transfers_;   ///< By transfer: a CTS whose payload is due.
  std::map<std::uint32_t, std::uint32_t>
      cancels_;                      ///< Token without its reply, operation (0: a send id was named).
  std::set<std::uint32_t> matched_;  ///< Operations that a CTS has answered.
  std::size_t recalls_ = 0;          ///< Without their return.
  bool held_back_ = false;
  std::optional<Stream> incoming_;  ///< An eager message whose parts are due.
  std::set<std::uint32_t> parts_;   ///< Operations: parts of packets that the peer takes; one ACK is due.
  std::optional<std::uint32_t>
      offered_;  ///< The operation of a part that the peer offered, until it is answered.
  std::optional<std::uint32_t> placing_;  ///< The transfer of one that was taken.
};

}  // namespace ch3_offload::fuzz
