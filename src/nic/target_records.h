// What crosses between the engine's second client and its network processor: commands, in a ring of records
// as those of nic_records.h, and the words of the answers.
//
// Events and counts do not cross here: they are on the board (target_board.h). Addresses are the client's.
//
// Trust: the processor checks the kind of each command, its length, the number of its interface and the range
// of each enumeration, and refuses the client with the first wrong one. It checks the addresses of a client
// in another process (target_addresses.h).
//
// Threads: as for nic_records.h.

#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/target_request.h"
#include "engine/targets/target_board.h"
#include "engine/targets/target_counters.h"
#include "engine/targets/target_interface.h"

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

struct TargetCommandRecord {
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
static_assert(sizeof(TargetCommandRecord) == 56);

}  // namespace ch3_offload
