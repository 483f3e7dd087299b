// Messages of the wire protocol, made by hand: what a hostile peer may send.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine_world.h"
#include "engine/wire.h"

namespace ch3_offload::forged {

using Bytes = std::vector<std::byte>;

template <class Header>
Bytes message(const Header& header, std::size_t payload_bytes = 0) {
  Bytes bytes(sizeof header + payload_bytes, std::byte{0x42});
  wire::put(bytes, header);
  return bytes;
}

/// Nothing but the common header, and bytes.
inline Bytes plain(wire::Kind kind, std::size_t payload_bytes = 0, std::uint8_t flags = 0) {
  return message(wire::CommonHeader{kind, flags}, payload_bytes);
}
inline Bytes eager(std::size_t payload_bytes, std::uint8_t flags = 0) {
  return message(wire::EagerHeader{.common = {wire::Kind::kEager, flags},
                                   .bits = kKey.bits,
                                   .send_id = 1,
                                   .initiator = kKey.initiator},
                 payload_bytes);
}
inline Bytes eager_first(std::uint64_t total_bytes, std::size_t part_bytes) {
  return message(
      wire::EagerFirstHeader{
          .eager = {.common = {wire::Kind::kEagerFirst}, .bits = kKey.bits, .initiator = kKey.initiator},
          .total_bytes = total_bytes},
      part_bytes);
}
inline Bytes eager_next(std::size_t part_bytes) { return plain(wire::Kind::kEagerNext, part_bytes); }
inline Bytes rts(std::uint64_t total_bytes, std::uint8_t flags = 0, std::size_t payload_bytes = 0) {
  return message(wire::RtsHeader{.common = {wire::Kind::kRts, flags},
                                 .bits = kKey.bits,
                                 .total_bytes = total_bytes,
                                 .operation = 1,
                                 .initiator = kKey.initiator},
                 payload_bytes);
}
inline Bytes cts(std::uint32_t operation, std::uint64_t wanted_bytes, std::uint8_t flags = 0) {
  return message(wire::CtsHeader{.common = {wire::Kind::kCts, flags}, .operation = operation, .transfer = 1,
                                 .wanted_bytes = wanted_bytes, .address = 64, .remote_key = 9});
}
inline Bytes data(std::uint32_t transfer, std::uint64_t offset_bytes, std::size_t part_bytes) {
  return message(wire::DataHeader{.common = {wire::Kind::kData}, .transfer = transfer,
                                  .offset_bytes = offset_bytes},
                 part_bytes);
}
inline Bytes ack(std::uint32_t operation) {
  return message(wire::AckHeader{.common = {wire::Kind::kAck}, .operation = operation});
}
inline Bytes recall(std::uint64_t bytes) {
  return message(wire::RecallHeader{.common = {wire::Kind::kRecall}, .bytes = bytes});
}
inline Bytes credit_return(std::uint64_t bytes) {
  return message(wire::RecallHeader{.common = {wire::Kind::kReturn}, .bytes = bytes});
}
inline Bytes cancel(std::uint32_t send_id, std::uint32_t token, std::uint8_t flags = 0) {
  return message(wire::CancelHeader{.common = {wire::Kind::kCancel, flags},
                                    .bits = kKey.bits,
                                    .send_id = send_id,
                                    .token = token,
                                    .initiator = kKey.initiator});
}
inline Bytes cancel_reply(std::uint32_t token, bool cancelled) {
  const std::uint8_t flags = cancelled ? wire::kCancelled : 0;
  return message(wire::CancelReplyHeader{.common = {wire::Kind::kCancelReply, flags}, .token = token});
}

}  // namespace ch3_offload::forged
