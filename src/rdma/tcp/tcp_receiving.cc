// What arrives. See tcp_provider.h.
//
// Nothing that a peer sends is believed before it was checked: how long a record is, and whether a write may
// land where it says. A peer that breaks the rules loses its connection.

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/tcp/tcp_provider.h"

namespace ch3_offload {

/// Reads, and takes what came as far as poll() may. Returns how many bytes came.
/// REQUIRES: unparsed_ is empty; peer.has_socket().
std::size_t TcpProvider::receive(TcpEndpoint& peer) noexcept {
  std::size_t came_bytes = 0;
  for (bool is_more = true; is_more;) {
    std::size_t wanted_bytes = 0;
    const std::size_t bytes = receive_once(peer, wanted_bytes);
    came_bytes += bytes;
    // The header of a part came with little behind it. The rest is likely to be there, and goes to its place.
    is_more = bytes == wanted_bytes && peer.has_socket() && unparsed_.empty() && may_take_more() &&
              peer.arrival.is_in_write();
  }
  return came_bytes;
}

/// One system call. `wanted_bytes` becomes how many bytes there was room for.
std::size_t TcpProvider::receive_once(TcpEndpoint& peer, std::size_t& wanted_bytes) noexcept {
  TcpArrival& arrival = peer.arrival;
  // The engine may have taken the memory back since the part began.
  if (arrival.is_in_write() &&
      !landings_.permits(arrival.record.remote_key, reinterpret_cast<std::uintptr_t>(arrival.at),
                         arrival.left_bytes)) {
    violates(peer);
    return 0;
  }
  std::memcpy(buffer_.get(), arrival.head.data(), arrival.head_bytes);
  const std::size_t ahead_bytes = arrival.awaits_write() ? kReceiveAheadBytes : kReceiveBytes;
  std::array<iovec, 2> pieces;
  std::size_t count = 0;
  if (arrival.left_bytes > 0) pieces[count++] = {arrival.at, arrival.left_bytes};
  pieces[count++] = {buffer_.get() + arrival.head_bytes, ahead_bytes - arrival.head_bytes};
  wanted_bytes = arrival.left_bytes + ahead_bytes - arrival.head_bytes;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  ssize_t got = 0;
  do {
    got = ::recvmsg(peer.socket.get(), &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    if (got == 0 || errno != EAGAIN) lose(peer, got == 0 ? 0 : errno);
    return 0;
  }
  hot_ = &peer;
  const auto came_bytes = static_cast<std::size_t>(got);
  const std::size_t of_payload = std::min(arrival.left_bytes, came_bytes);
  unparsed_ = {buffer_.get(), arrival.head_bytes + came_bytes - of_payload};
  unparsed_of_ = &peer;
  arrival.head_bytes = 0;
  if (of_payload > 0) take_payload(peer, of_payload);
  take_records();
  return came_bytes;
}

void TcpProvider::take_payload(TcpEndpoint& peer, std::size_t length_bytes) noexcept {
  TcpArrival& arrival = peer.arrival;
  arrival.at += length_bytes;
  arrival.left_bytes -= length_bytes;
  if (arrival.left_bytes > 0) return;
  if (arrival.record.record.kind == TcpRecordKind::kSlot)
    deliver(peer, {arrival.slot.get(), arrival.record.record.length_bytes});
  else
    deliver_part(peer, arrival.record);
}

/// Takes the records in unparsed_, as far as poll() may.
void TcpProvider::take_records() noexcept {
  while (!unparsed_.empty() && may_take_more()) {
    if (!begin_record(*unparsed_of_)) unparsed_ = {};
  }
}

/// Takes the first record in unparsed_, or what is there of it. Returns false if nothing more is to be taken.
bool TcpProvider::begin_record(TcpEndpoint& peer) noexcept {
  TcpArrival& arrival = peer.arrival;
  const auto wait_for_header = [&] {
    std::memcpy(arrival.head.data(), unparsed_.data(), unparsed_.size());
    arrival.head_bytes = unparsed_.size();
    return false;
  };
  TcpWriteRecord record;
  if (unparsed_.size() < sizeof record.record) return wait_for_header();
  std::memcpy(&record.record, unparsed_.data(), sizeof record.record);
  if (!check_tcp_record(record.record, address_.slot_bytes, peer.state == State::kWelcome)) {
    violates(peer);
    return false;
  }
  const std::size_t length_bytes = record.record.length_bytes;
  if (record.record.kind == TcpRecordKind::kWelcome) {
    unparsed_ = unparsed_.subspan(sizeof record.record);
    peer.state = State::kUp;
    flush(peer);
    return true;
  }
  if (record.record.kind == TcpRecordKind::kSlot) {
    const std::span<std::byte> rest = unparsed_.subspan(sizeof record.record);
    if (rest.size() >= length_bytes) {
      unparsed_ = rest.subspan(length_bytes);
      deliver(peer, rest.first(length_bytes));
      return true;
    }
    std::memcpy(arrival.slot.get(), rest.data(), rest.size());
    arrival.at = arrival.slot.get() + rest.size();
    arrival.left_bytes = length_bytes - rest.size();
    arrival.record = record;
    return false;
  }
  if (unparsed_.size() < sizeof record) return wait_for_header();
  std::memcpy(&record, unparsed_.data(), sizeof record);
  if (record.check != check_of(record) ||
      !landings_.permits(record.remote_key, record.address, length_bytes)) {
    violates(peer);
    return false;
  }
  arrival.messages_in_row = 0;
  const std::span<std::byte> rest = unparsed_.subspan(sizeof record);
  const std::size_t here_bytes = std::min(rest.size(), length_bytes);
  auto* const destination = reinterpret_cast<std::byte*>(record.address);
  if (here_bytes > 0) std::memcpy(destination, rest.data(), here_bytes);
  unparsed_ = rest.subspan(here_bytes);
  arrival.at = destination + here_bytes;
  arrival.left_bytes = length_bytes - here_bytes;
  arrival.record = record;
  if (arrival.left_bytes > 0) return false;
  deliver_part(peer, record);
  return true;
}

void TcpProvider::deliver(TcpEndpoint& peer, std::span<const std::byte> message) noexcept {
  ++found_;
  if (peer.arrival.awaits_write()) ++peer.arrival.messages_in_row;
  holds_ = sink_->on_message(peer.id, message) == Delivery::kHeld;
}

void TcpProvider::deliver_part(TcpEndpoint& peer, const TcpWriteRecord& record) noexcept {
  ++found_;
  sink_->on_write_arrived(peer.id, Immediate{record.immediate}, record.record.length_bytes);
}

void TcpProvider::violates(TcpEndpoint& peer) noexcept {
  log_("tcp: peer %u does not follow the protocol; its connection is closed", index_of(peer.id));
  on_over(peer, Status::kProtocol);
}

}  // namespace ch3_offload
