// A peer as the TCP provider knows it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "rdma/fork_closing.h"
#include "rdma/introduction/introducer.h"
#include "rdma/provider.h"
#include "rdma/tcp/tcp_address.h"
#include "rdma/tcp/tcp_frames.h"
#include "rdma/tcp/tcp_outbox.h"
#include "rdma/tcp/tcp_silence.h"

namespace ch3_offload {

/// Of the record that is arriving.
struct TcpArrival {
  std::array<std::byte, sizeof(TcpWriteRecord)>
      head{};  ///< The first bytes of one whose header is not whole.
  std::size_t head_bytes = 0;
  TcpWriteRecord record;       ///< Of which `at` is the payload. Of a message, only `record.record` is used.
  std::byte* at = nullptr;     ///< Where the next byte of the payload goes.
  std::size_t left_bytes = 0;  ///< Of the payload. 0: none is under way.
  std::unique_ptr<std::byte[]> slot;  ///< For a message that comes in several pieces.

  /// After so many messages in a row no part is expected. Between two parts there are a few messages, by
  /// which the engine announces and answers other long ones.
  static constexpr std::uint32_t kMessagesBetweenWrites = 16;
  std::uint32_t messages_in_row = kMessagesBetweenWrites;  ///< Since a part began; saturated.
  /// Whether a part of a write may be next. If so, little is read ahead of its header, so that the part goes
  /// from the socket to its place.
  bool awaits_write() const noexcept { return messages_in_row < kMessagesBetweenWrites; }
  /// Whether a part of a write has begun to arrive, and is not whole yet.
  bool is_in_write() const noexcept { return left_bytes > 0 && record.record.kind == TcpRecordKind::kWrite; }
};

struct TcpEndpoint final : Endpoint, Introducer::Contact {
  explicit TcpEndpoint(PeerId peer) noexcept : id(peer) {}

  enum class State : std::uint8_t {
    kApart,    ///< There is no connection. It is sought if there is a use for one.
    kWelcome,  ///< We have dialled, and the peer may not have taken the end of the introduction yet.
    kUp,
    kDying,  ///< In TcpProvider::dying_: on_peer_down() is due.
    kDown,   ///< on_peer_down() was called, or end() before the two met.
  };
  bool is_over() const noexcept { return state == State::kDying || state == State::kDown; }
  bool has_socket() const noexcept { return socket.valid(); }

  const PeerId id;
  State state = State::kApart;
  bool connected = false;        ///< connect() was called.
  bool has_address = false;      ///< `names` and `address` are known; they stay as they are.
  bool is_blocked = false;       ///< The socket is watched for room.
  int send_error = 0;            ///< errno of the send that has failed: what had arrived is still read.
  bool lacks_slot = false;       ///< In TcpProvider::lacking_: a message has found no room.
  bool lacks_write = false;      ///< Likewise, a write.
  bool has_part = false;         ///< In TcpProvider::with_parts_, until its death is told.
  bool has_done = false;         ///< In TcpProvider::done_: writes have left, which is to be told.
  bool is_ending = false;        ///< In TcpProvider::ending_: end() was called, and what had arrived is read.
  std::size_t ending_bytes = 0;  ///< What of it is still to be read.
  Status reason = Status::kPeerFailed;
  ForkClosedDescriptor socket;
  /// From connect() or the first introduction on.
  std::unique_ptr<TcpOutbox> outbox;
  TcpArrival arrival;

  PeerNames names;
  TcpAddress address;

  TcpSilence silence;
};

}  // namespace ch3_offload
