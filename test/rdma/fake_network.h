// The insides that FakeNetwork and FakeProvider share: what travels, and the state of an ordered pair.

#pragma once

#include <deque>
#include <vector>

#include "rdma/fake_provider.h"

namespace ch3_offload {

enum class FakeItemKind : std::uint8_t {
  kMessage,
  kWrite,
  kWriteArrived,
  kWriteShared,
  kWriteDone,
  kPeerDown
};

/// Something on its way to, or in the inbox of, a process.
struct FakeNetwork::Item {
  FakeItemKind kind{};
  bool injected = false;  ///< Came from inject(): holds no slot.
  bool lost = false;      ///< Will not arrive: its link was severed.
  bool flushed = false;   ///< A write whose sender was told already.
  PeerId peer{};          ///< Whom the sink is told.
  Status status = Status::kOk;
  Immediate immediate{};
  WorkId work{};
  std::unique_ptr<std::byte[]> bytes;  ///< kMessage; kWrite of a dead sender (its memory is gone).
  std::size_t length_bytes = 0;
  const std::byte* source = nullptr;  ///< kWrite.
  std::uint64_t source_key = 0;
  RemoteMemory destination{};
  std::byte** answer = nullptr;  ///< kWriteShared.
  Link* link = nullptr;          ///< kMessage: where its slot is returned.
  Item* next = nullptr;          ///< In an inbox.
};

/// The clock of the network that has advanced last.
inline thread_local std::uint64_t simulated_now_ns = 0;

/// From one process to another, and the sender's endpoint of the receiver. Made on first use, kept for the
/// network's life.
struct FakeNetwork::Link final : Endpoint {
  PeerId from{};
  PeerId to{};
  bool connected = false;       ///< `from` called connect().
  bool introduced = false;      ///< `to` has heard of `from`, and knows its address.
  bool severed = false;         ///< Nothing posted from now on arrives.
  bool failed = false;          ///< `from` will be, or was, told that `to` is gone.
  bool notice_planned = false;  ///< A kDeathNotice for `from` is scheduled or happened.
  bool without_write = false;
  /// For what `to` sends to `from`.
  WriteChoice choice{1024, 16384, *+[]() noexcept { return simulated_now_ns; }};
  std::uint32_t slots_in_use = 0;
  std::uint64_t last_acknowledge_ns = 0;
  std::unique_ptr<std::byte[]> reserved;  ///< Between reserve() and commit().
  std::size_t reserved_bytes = 0;
  std::vector<std::unique_ptr<Item>> parts;  ///< Of commit_part(): they leave with what follows.
  /// Messages, and writes: each in order, in no order with the others.
  struct Lane {
    std::deque<std::unique_ptr<Item>> in_flight;  ///< An arrival event takes the front.
    std::uint64_t last_arrival_ns = 0;
  };
  Lane messages, writes;
};

}  // namespace ch3_offload
