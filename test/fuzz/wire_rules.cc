#include "fuzz/wire_rules.h"

#include <algorithm>

namespace ch3_offload::fuzz {

using wire::Kind;

namespace {

template <class Header>
std::optional<Header> read_as(std::span<const std::byte> message) {
  Header header;
  if (!wire::get(message, header)) return {};
  return header;
}

bool erase_one(std::multiset<std::uint32_t>& ids, std::uint32_t id) {
  const auto found = ids.find(id);
  if (found == ids.end()) return false;
  ids.erase(found);
  return true;
}

}  // namespace

bool WireRules::sent(std::span<const std::byte> message) {
  const auto common = read_as<wire::CommonHeader>(message);
  if (!common) return false;
  // Behind a part of a packet comes nothing that has an order until it is refused or there.
  const bool has_order = common->kind == Kind::kEager || common->kind == Kind::kEagerFirst ||
                         common->kind == Kind::kEagerNext || common->kind == Kind::kPacket ||
                         common->kind == Kind::kRts;
  const bool waits =
      !parts_.empty() || std::ranges::any_of(announced_, [](const auto& entry) { return entry.second.part; });
  if (has_order && waits) return false;
  const bool synchronous = (common->flags & wire::kSynchronous) != 0;
  switch (common->kind) {
    case Kind::kEager:
    case Kind::kEagerFirst:
      if (const auto header = read_as<wire::EagerHeader>(message); header && synchronous)
        acks_due_.insert(header->send_id);
      return true;
    case Kind::kRts:
      if (const auto header = read_as<wire::RtsHeader>(message)) {
        matched_.erase(header->operation);
        parts_.erase(header->operation);
        announced_[header->operation] = {header->total_bytes, (common->flags & wire::kPayload) != 0,
                                         (common->flags & wire::kPacketPart) != 0};
      }
      return true;
    case Kind::kCts:
      if (const auto header = read_as<wire::CtsHeader>(message)) {
        if (header->wanted_bytes > 0) {
          transfers_[header->transfer] = {header->wanted_bytes, 0, (common->flags & wire::kWritable) != 0};
          if (offered_ == header->operation) placing_ = header->transfer;
        }
        if (offered_ == header->operation) offered_.reset();
      }
      return true;
    case Kind::kCancel:
      if (const auto header = read_as<wire::CancelHeader>(message)) {
        cancels_[header->token] = (common->flags & wire::kByOperation) != 0 ? header->send_id : 0;
      }
      return true;
    case Kind::kRecall: ++recalls_; return true;
    default: return true;
  }
}

bool WireRules::breaks(std::span<const std::byte> message) {
  const auto common = read_as<wire::CommonHeader>(message);
  if (!common) return true;
  if (common->client != wire::kMessageClient) return target_breaks(*common, message);
  switch (common->kind) {
    case Kind::kEager: {
      const auto header = read_as<wire::EagerHeader>(message);
      const std::size_t payload = header ? message.size() - sizeof *header : 0;
      return !header || eager_breaks(payload, payload);
    }
    case Kind::kEagerFirst: {
      const auto header = read_as<wire::EagerFirstHeader>(message);
      return !header || eager_breaks(header->total_bytes, message.size() - sizeof *header);
    }
    case Kind::kEagerNext: return part_breaks(message.size() - sizeof *common);
    case Kind::kPacket: return placing_.has_value() && !held_back_;
    case Kind::kCredit: return false;
    case Kind::kRts: {
      const auto header = read_as<wire::RtsHeader>(message);
      if (!header || incoming_) return true;
      const std::size_t payload = message.size() - sizeof *header;
      if ((common->flags & wire::kPacketPart) != 0) return part_offer_breaks(*header, payload);
      return payload != ((common->flags & wire::kPayload) != 0 ? header->total_bytes : 0);
    }
    case Kind::kCts: {
      const auto header = read_as<wire::CtsHeader>(message);
      return !header || cts_breaks(*header);
    }
    case Kind::kData: {
      const auto header = read_as<wire::DataHeader>(message);
      return !header || data_breaks(*header, message.size() - sizeof *header);
    }
    case Kind::kAck: {
      const auto header = read_as<wire::AckHeader>(message);
      return !header || ack_breaks(*header);
    }
    case Kind::kRecall: return !read_as<wire::RecallHeader>(message);
    case Kind::kReturn: return !read_as<wire::RecallHeader>(message) || (!held_back_ && recalls_-- == 0);
    case Kind::kCancel: return !read_as<wire::CancelHeader>(message);
    case Kind::kCancelReply: {
      const auto header = read_as<wire::CancelReplyHeader>(message);
      return !header || reply_breaks(*header);
    }
    default: return true;
  }
}

/// The engine under test has asked for nothing of this client, so it awaits no answer.
bool WireRules::target_breaks(const wire::CommonHeader& common, std::span<const std::byte> message) {
  wire::TargetRequestHeader request;
  return common.client != wire::kTargetClient || !wire::get_request(message, request);
}

bool WireRules::eager_breaks(std::uint64_t total_bytes, std::size_t part_bytes) {
  if (incoming_ || total_bytes < part_bytes) return true;
  if (part_bytes < total_bytes) incoming_ = Stream{total_bytes, part_bytes};
  return false;
}

bool WireRules::part_breaks(std::size_t part_bytes) {
  if (!incoming_ || part_bytes == 0 || part_bytes > incoming_->total_bytes - incoming_->received_bytes)
    return true;
  incoming_->received_bytes += part_bytes;
  if (incoming_->received_bytes == incoming_->total_bytes) incoming_.reset();
  return false;
}

bool WireRules::part_offer_breaks(const wire::RtsHeader& header, std::size_t payload_bytes) {
  if (payload_bytes != 0 || header.total_bytes == 0 || (placing_ && !held_back_)) return true;
  offered_ = header.operation;  // It is answered at once, where there is room.
  return false;
}

void WireRules::end_transfer(std::uint32_t transfer) {
  transfers_.erase(transfer);
  if (placing_ == transfer) placing_.reset();
}

bool WireRules::cts_breaks(const wire::CtsHeader& header) {
  const auto found = announced_.find(header.operation);
  if (found == announced_.end() || header.wanted_bytes > found->second.total_bytes) return true;
  if (found->second.part) {
    if (header.wanted_bytes > 0) parts_.insert(header.operation);
  } else {
    matched_.insert(header.operation);
  }
  announced_.erase(found);
  return false;
}

bool WireRules::ack_breaks(const wire::AckHeader& header) {
  if (erase_one(acks_due_, header.operation) || parts_.erase(header.operation) != 0) return false;
  const auto found = announced_.find(header.operation);
  if (found == announced_.end() || !found->second.payload) return true;
  announced_.erase(found);
  return false;
}

bool WireRules::reply_breaks(const wire::CancelReplyHeader& header) {
  if (held_back_) return false;
  const auto found = cancels_.find(header.token);
  if (found == cancels_.end()) return true;
  const bool matched = matched_.count(found->second) != 0;
  cancels_.erase(found);
  return matched && (header.common.flags & wire::kCancelled) != 0;
}

bool WireRules::data_breaks(const wire::DataHeader& header, std::size_t part_bytes) {
  if (held_back_) return false;
  const auto found = transfers_.find(header.transfer);
  if (found == transfers_.end()) return true;
  Transfer& transfer = found->second;
  if (part_bytes == 0 || transfer.written || header.offset_bytes != transfer.received_bytes ||
      part_bytes > transfer.wanted_bytes - transfer.received_bytes) {
    return true;
  }
  transfer.received_bytes += part_bytes;
  if (transfer.received_bytes == transfer.wanted_bytes) end_transfer(header.transfer);
  return false;
}

bool WireRules::write_breaks(std::uint32_t transfer, std::size_t length_bytes) {
  if (held_back_) return false;
  const auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return true;
  Transfer& told = found->second;
  if (!told.writable || (told.received_bytes != 0 && !told.written) || length_bytes == 0 ||
      length_bytes > told.wanted_bytes - told.received_bytes)
    return true;
  told.written = true;
  told.received_bytes += length_bytes;
  if (told.received_bytes == told.wanted_bytes) end_transfer(transfer);
  return false;
}

std::size_t WireRules::left_of(std::uint32_t transfer) const {
  const auto found = transfers_.find(transfer);
  return found == transfers_.end() ? 1 : found->second.wanted_bytes - found->second.received_bytes;
}

}  // namespace ch3_offload::fuzz
