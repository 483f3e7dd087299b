// CheckedProvider: frames that arrive.

#include "rdma/checked/checked_frames.h"

#include <cstring>

#include "rdma/checked/checked_provider.h"
#include "rdma/checked/checksum.h"

namespace ch3_offload {
namespace {

/// Copies what begins a message. Returns false if it is too short.
template <class T>
bool read(std::span<const std::byte> bytes, T& value) noexcept {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

}  // namespace

Delivery CheckedProvider::on_frame(CheckedEndpoint& peer, std::span<const std::byte> frame,
                                   Sink& sink) noexcept {
  if (peer.state != PeerState::kUp) return Delivery::kTaken;
  peer.heard_in = polls_;
  CheckedHeader header;
  if (!read(frame, header) || header.checksum != checksum(frame.subspan(sizeof header.checksum))) {
    on_damage(peer, "a message");
    ask_again(peer);
    return Delivery::kTaken;
  }
  if (header.kind == Kind{} || header.kind >= Kind::kEnd || (header.received != kFirstFrame && !peer.sent) ||
      (peer.sent && !peer.sent->received(header.received))) {
    fail(peer, "it has sent what makes no sense");
    return Delivery::kTaken;
  }
  if (is_numbered(header.kind)) return on_numbered(peer, header, frame.subspan(sizeof header), sink);
  on_unnumbered(peer, header);
  return Delivery::kTaken;
}

Delivery CheckedProvider::on_numbered(CheckedEndpoint& peer, const CheckedHeader& header,
                                      std::span<const std::byte> body, Sink& sink) noexcept {
  if (header.number != peer.awaited) {
    // One that was repeated although it had come, or one behind a damaged one.
    if (static_cast<std::int32_t>(header.number - peer.awaited) > 0) {
      if (!peer.lacks) ask_again(peer);
    } else {
      peer.must_tell = true;
      attend_to(peer);
    }
    return Delivery::kTaken;
  }
  ++peer.awaited;
  peer.lacks = false;
  peer.asked = 0;
  peer.untold_bytes += sizeof header + body.size();
  attend_to(peer);
  if (header.kind == Kind::kMessage && !body.empty()) return sink.on_message(peer.id, body);
  CheckedWritten written;
  CheckedAnswer answer;
  if (header.kind == Kind::kWritten && read(body, written))
    on_written(peer, written, sink);
  else if ((header.kind == Kind::kRight || header.kind == Kind::kWrong) && read(body, answer))
    on_answer(peer, header.kind, answer, sink);
  else
    fail(peer, "it has sent what makes no sense");
  return Delivery::kTaken;
}

/// `header.number` says whether all has come that was sent before.
void CheckedProvider::on_unnumbered(CheckedEndpoint& peer, const CheckedHeader& header) noexcept {
  if (header.kind == Kind::kRepeat) {
    if (peer.sent) sent_again_ += peer.sent->repeat();
    // What was damaged may have said what was received, or asked. What is repeated says neither anew.
    peer.must_tell = true;
    if (peer.lacks) peer.must_ask = true;
    attend_to(peer);
  }
  if (header.number == peer.awaited) {
    peer.lacks = false;
    peer.asked = 0;
  } else if (static_cast<std::int32_t>(header.number - peer.awaited) > 0 && !peer.lacks) {
    ask_again(peer);
  }
}

void CheckedProvider::on_damage(CheckedEndpoint& peer, const char* what) noexcept {
  ++damaged_;
  if (damaged_ >= next_line_) {
    next_line_ *= 10;
    log_(
        "%s from process %u arrived damaged (its checksum is wrong) and is asked for again; so far "
        "%llu. A node's memory, an adapter, a cable or a driver on the way may be faulty",
        what, index_of(peer.id), static_cast<unsigned long long>(damaged_));
  }
}

/// For what follows the last frame that has come whole. Also if that turns out to be nothing: the damaged one
/// may have been a question of the peer's.
void CheckedProvider::ask_again(CheckedEndpoint& peer) noexcept {
  peer.lacks = peer.must_ask = true;
  attend_to(peer);
}

}  // namespace ch3_offload
