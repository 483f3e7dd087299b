// What a Portals library asks of its network processor: commands, as plain data. With the thread and process
// drivers they cross a ring of records as those of nic_records.h; with the host driver they are handed over.
//
// Events and counts are no answers: they are on the board (target_board.h). Addresses are the client's.
//
// Trust: who carries out a command checks its kind, its length, the number of its interface and the range of
// each enumeration, and refuses the client with the first wrong one. It checks the addresses of a client in
// another process (target_addresses.h).
//
// Threads: as for nic_records.h.

#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/target_request.h"
#include "engine/targets/target_board.h"
#include "engine/targets/target_counters.h"
#include "engine/targets/target_interface.h"
#include "rdma/status.h"

namespace ch3_offload {

/// Questions are answered: a Status, and a name where one is made. What follows the head is in brackets.
enum class TargetCommandKind : std::uint8_t {
  kOpen = 1,         ///< address: TargetBoard. [TargetInterfaceConfig] Question.
  kClose,            ///< Question. kOk: closed. kAgain: not yet.
  kSetRanks,         ///< address, length: of ProcessId. Question.
  kMakeQueue,        ///< [TargetEventRing] Question; name: QueueId.
  kFreeQueue,        ///< name: QueueId. Question: the ring is the client's again.
  kMakeCounter,      ///< Question; name: CounterId.
  kFreeCounter,      ///< name: CounterId. Question.
  kChangeCounter,    ///< [TargetCountChange] Question.
  kCancelTriggered,  ///< name: CounterId. Question.
  kMakeTable,        ///< table; name: QueueId; option: has flow control. Question.
  kFreeTable,        ///< table. Question.
  kEnableTable,      ///< table. Question.
  kDisableTable,     ///< table. Question. kOk: nothing is in flight. kAgain: something is.
  kAppend,           ///< table; option: TargetListKind. [TargetDescription] Question; name: TargetId.
  kSearch,           ///< table; option: SearchMode. [TargetDescription] Question.
  kUnlink,           ///< table; name: TargetId. Question; name: TargetTable::Unlinked.
  kRequest,          ///< process. [TargetRequest]
  kTriggerRequest,   ///< process, trigger. [TargetRequest] Question.
  kTriggerCount,     ///< trigger. [TargetCountChange] Question.
  kTriggerAppend,    ///< As kAppend; trigger.
  kTriggerUnlink,    ///< table, trigger; name: TargetId. Question.
};

struct TargetCommand {
  TargetCommandKind kind{};
  std::uint8_t interface = 0;
  std::uint8_t option = 0;
  std::uint8_t reserved = 0;
  std::uint32_t table = 0;
  ProcessId process{};
  CounterId counter = kNoCounter;  ///< Of a trigger.
  std::uint64_t threshold = 0;     ///< Likewise.
  std::uint64_t name = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(TargetCommand) == 56);

/// The answer to a question. kUnsupported: the interface is not open, or there is no such table in it.
struct TargetAnswer {
  Status status = Status::kUnsupported;
  std::uint64_t name = 0;
};

}  // namespace ch3_offload
