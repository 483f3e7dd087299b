// The constants of portals4.h beside those of the engine: options, operations, acknowledgements, lists,
// failures and events. Each pair is written here once.
//
// Threads: any. Nothing here has state.

#pragma once

#include <cstdint>

#include "engine/target_request.h"
#include "engine/targets/target_events.h"
#include "portals/portals4.h"

namespace ch3_offload::portals {

/// Of a match list entry, or of a list entry. Options that are hints have no counterpart.
std::uint32_t entry_options(unsigned int options) noexcept;
/// Of a memory descriptor.
std::uint32_t origin_options(unsigned int options) noexcept;

/// REQUIRES: it is one, as of all below.
TargetAcknowledgement acknowledgement_of(ptl_ack_req_t ack_req) noexcept;
TargetListKind list_of(ptl_list_t list) noexcept;
AtomicOperation atomic_operation_of(ptl_op_t operation) noexcept;
AtomicType atomic_type_of(ptl_datatype_t datatype) noexcept;

ptl_ni_fail_t failure_of(TargetFailure failure) noexcept;

/// A process, as an interface names it.
ptl_process_t process_of(ProcessId id, bool is_logical) noexcept;
ProcessId physical_id_of(const ptl_process_t& process) noexcept;

/// The event as the program sees it. What its type does not define is 0.
ptl_event_t event_of(const TargetEvent& event, bool is_logical) noexcept;

}  // namespace ch3_offload::portals
