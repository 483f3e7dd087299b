// How a client and the network processor of its node (ch3-offload-nicd) find each other, and what they say
// before the rings are there.
//
// The processor listens on a Unix-domain socket (rdma/shm/unix_socket.h). Its name has the user in it, and
// for one that serves a single job a hash of the job's secret. A lone process is of no job: it knows others
// by physical ids (process_book.h). The secret that it says is that of the user's key, which all lone
// processes of the user have.
//
//   client  ── NicdHello ───────────────────────▶ processor
//   client  ◀─ NicdWelcome, with the files ────── processor: the client's rings and bells, or why not
//   client  ── NicdShare, with a file ──────────▶ processor, and then CommandKind::kShare in the ring
//   client  ── CommandKind::kAttachTargets ─────▶ processor, in the ring
//   client  ◀─ NicdTargets, with the files ────── processor: the rings and bells of its second client
//   client  ── CommandKind::kReachForeign ──────▶ processor, in the ring
//   client  ◀─ NicdForeign ────────────────────── processor: how foreign processes reach the client
//   client  ◀─ a line, then the end ───────────── processor refuses the client later
//
// The end of the connection means that the other process has ended. Each side checks the user of the other
// (SO_PEERCRED). The hello proves that the client knows the job's secret: processes that say the same secret
// are of one job, but for lone ones.
//
// Threads: any; nothing here has state. For set-up only.

#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/targets/target_key.h"
#include "nic/nic_records.h"
#include "nic/port_memory.h"
#include "nic/user_key.h"
#include "rdma/file_descriptor.h"
#include "rdma/job_secret.h"
#include "rdma/status.h"

namespace ch3_offload {

inline constexpr std::size_t kNicdSettingsBytes = 8192;
inline constexpr std::size_t kNicdTextBytes = 2048;

struct NicdHello {
  static constexpr std::uint64_t kMagic = 0x6c65'6863'696e'3301;

  std::uint64_t magic = kMagic;
  std::uint32_t version = kNicInterfaceVersion;
  std::uint32_t rank = 0;
  std::uint32_t job_size = 1;
  std::uint32_t local_rank = 0;
  std::uint32_t local_size = 1;  ///< 0: not known.
  std::uint64_t always_ignored_bits = 0;
  std::uint64_t channel_bits = 0;
  /// Of a word of the client that holds kMagic: the processor reads it, and so knows that it can.
  std::uint64_t probe_address = 0;
  JobSecret secret{};
  // Of a lone process. Its rank is its engine's number for itself.
  std::uint8_t is_lone = 0;
  std::uint8_t key_proves = 0;  ///< UserKey::proves().
  std::uint16_t pid = 0;        ///< The wanted one. 0: any.
  std::uint32_t nid = 0;
  std::array<std::byte, UserKey::kBytes> key{};
  std::array<char, kNicdSettingsBytes> settings{};  ///< Lines "VARIABLE=value", ended by a zero.
};

struct NicdWelcome {
  static constexpr std::uint64_t kMagic = 0x6d6f'636c'696e'3301;

  std::uint64_t magic = kMagic;
  std::int32_t pid = 0;
  std::uint8_t is_refused = 0;  ///< Then there are no files.
  /// The processor may not copy from and to the client's memory: only what is shared with it can be sent and
  /// received.
  std::uint8_t must_share = 0;
  std::uint16_t slot_bytes = 0;  ///< What a message to any peer has room for, at least.
  /// If it is refused. kAgain: another process of the node has the pid that a lone process wants. Whatever it
  /// is, the text says why.
  Status refusal = Status::kOk;
  ProcessId process{};                      ///< A lone process.
  std::array<char, kNicdTextBytes> text{};  ///< The engine's card, or why the client is refused.
};

/// A file that is the client's memory: sealed, on tmpfs, and exactly so long.
struct NicdShare {
  static constexpr std::uint64_t kMagic = 0x6572'6168'736e'3301;

  std::uint64_t magic = kMagic;
  std::uint64_t address = 0;  ///< In the client.
  std::uint64_t length_bytes = 0;
};

/// The files are those of PortMemory.
struct NicdTargets {
  static constexpr std::uint64_t kMagic = 0x7374'6567'7261'7401;

  std::uint64_t magic = kMagic;
};

struct NicdForeign {
  static constexpr std::uint64_t kMagic = 0x6e67'6965'726f'6601;

  std::uint64_t magic = kMagic;
  Status refusal = Status::kOk;
  std::array<char, kNicdTextBytes> text{};  ///< The card of the client's engine for them, or why not.
};

/// The name of the processor that the user `uid` has started for all jobs, and of that of one job.
std::string nicd_name(uid_t uid);
std::string nicd_name(uid_t uid, const JobSecret& secret);

// Of the sockets, which carry whole messages.

/// kPeerFailed: somebody listens under that name.
Result<FileDescriptor> listen_as_nicd(std::string_view name);
/// Does not block. kUnreachable: nobody listens. kAgain: the listener's queue is full, and whose it is
/// cannot be seen. kUnsupported: another user listens.
Result<FileDescriptor> connect_to_nicd(std::string_view name);

/// Text in an array of fixed size: cut, and ended by a zero.
void set_text(std::span<char> array, std::string_view text) noexcept;
std::string_view text_of(std::span<const char> array) noexcept;

}  // namespace ch3_offload
