#include "portals/translation.h"

namespace ch3_offload::portals {

namespace {

struct OptionPair {
  unsigned int theirs;
  std::uint32_t ours;
};

constexpr OptionPair kEntryOptions[] = {
    {PTL_ME_OP_PUT, kAllowPut},
    {PTL_ME_OP_GET, kAllowGet},
    {PTL_ME_USE_ONCE, kUseOnce},
    {PTL_ME_UNEXPECTED_HDR_DISABLE, kNoUnexpectedHeader},
    {PTL_ME_EVENT_LINK_DISABLE, kNoLinkEvent},
    {PTL_ME_EVENT_COMM_DISABLE, kNoCommEvent},
    {PTL_ME_EVENT_FLOWCTRL_DISABLE, kNoFlowControlEvent},
    {PTL_ME_EVENT_SUCCESS_DISABLE, kNoSuccessEvent},
    {PTL_ME_EVENT_OVER_DISABLE, kNoOverflowEvent},
    {PTL_ME_EVENT_UNLINK_DISABLE, kNoUnlinkEvent},
    {PTL_ME_EVENT_CT_COMM, kCountComm},
    {PTL_ME_EVENT_CT_OVERFLOW, kCountOverflow},
    {PTL_ME_EVENT_CT_BYTES, kCountBytes},
    {PTL_ME_MANAGE_LOCAL, kManageLocal},
    {PTL_ME_NO_TRUNCATE, kNoTruncate},
    {PTL_ME_LOCAL_INC_UH_RLENGTH, kAdvanceByUnexpected},
    {PTL_ME_ACK_DISABLE, kNoAcknowledgement},
};

constexpr OptionPair kOriginOptions[] = {
    {PTL_MD_EVENT_CT_SEND, kCountSend},
    {PTL_MD_EVENT_CT_REPLY, kCountReply},
    {PTL_MD_EVENT_CT_ACK, kCountAck},
    {PTL_MD_EVENT_CT_BYTES, kCountOriginBytes},
    {PTL_MD_EVENT_SUCCESS_DISABLE, kNoOriginSuccessEvent},
    {PTL_MD_EVENT_SEND_DISABLE, kNoSendEvent},
    {PTL_MD_VOLATILE, kVolatile},
};

template <std::size_t kPairs>
std::uint32_t translate(unsigned int options, const OptionPair (&pairs)[kPairs]) noexcept {
  std::uint32_t translated = 0;
  for (const OptionPair& pair : pairs)
    if ((options & pair.theirs) != 0) translated |= pair.ours;
  return translated;
}

// These are in the same order on both sides.
static_assert(static_cast<int>(AtomicOperation::kMin) == PTL_MIN &&
              static_cast<int>(AtomicOperation::kBitXor) == PTL_BXOR &&
              static_cast<int>(AtomicOperation::kSwap) == PTL_SWAP &&
              static_cast<int>(AtomicOperation::kMaskedSwap) == PTL_MSWAP &&
              static_cast<int>(AtomicOperation::kEnd) == PTL_OP_LAST);
static_assert(static_cast<int>(AtomicType::kInt8) == PTL_INT8_T &&
              static_cast<int>(AtomicType::kFloat) == PTL_FLOAT &&
              static_cast<int>(AtomicType::kInt64) == PTL_INT64_T &&
              static_cast<int>(AtomicType::kLongDoubleComplex) == PTL_LONG_DOUBLE_COMPLEX &&
              static_cast<int>(kFirstPairType) == PTL_DATATYPE_LAST);
static_assert(static_cast<int>(TargetAcknowledgement::kNone) == PTL_NO_ACK_REQ &&
              static_cast<int>(TargetAcknowledgement::kFull) == PTL_ACK_REQ &&
              static_cast<int>(TargetAcknowledgement::kCounting) == PTL_CT_ACK_REQ &&
              static_cast<int>(TargetAcknowledgement::kCompleted) == PTL_OC_ACK_REQ);
static_assert(static_cast<int>(TargetListKind::kPriority) == PTL_PRIORITY_LIST &&
              static_cast<int>(TargetListKind::kOverflow) == PTL_OVERFLOW_LIST);

constexpr ptl_ni_fail_t kFailures[] = {
    PTL_NI_OK,              // kNone
    PTL_NI_UNDELIVERABLE,   // kUndeliverable
    PTL_NI_DROPPED,         // kDropped
    PTL_NI_PT_DISABLED,     // kTableDisabled
    PTL_NI_PERM_VIOLATION,  // kPermissionViolation
    PTL_NI_OP_VIOLATION,    // kOperationViolation
    PTL_NI_NO_MATCH,        // kNoMatch
    PTL_NI_UNDELIVERABLE,   // kLockBroken
    PTL_NI_OK,              // kUntold: never told
};
static_assert(std::size(kFailures) == static_cast<std::size_t>(TargetFailure::kEnd));

constexpr ptl_event_kind_t kEvents[] = {
    PTL_EVENT_PUT,                    // kPut
    PTL_EVENT_PUT_OVERFLOW,           // kPutOverflow
    PTL_EVENT_GET,                    // kGet
    PTL_EVENT_GET_OVERFLOW,           // kGetOverflow
    PTL_EVENT_ATOMIC,                 // kAtomic
    PTL_EVENT_ATOMIC_OVERFLOW,        // kAtomicOverflow
    PTL_EVENT_FETCH_ATOMIC,           // kFetchAtomic
    PTL_EVENT_FETCH_ATOMIC_OVERFLOW,  // kFetchAtomicOverflow
    PTL_EVENT_LINK,                   // kLink
    PTL_EVENT_AUTO_UNLINK,            // kAutoUnlink
    PTL_EVENT_AUTO_FREE,              // kAutoFree
    PTL_EVENT_SEARCH,                 // kSearch
    PTL_EVENT_PT_DISABLED,            // kTableDisabled
    PTL_EVENT_SEND,                   // kSend
    PTL_EVENT_ACK,                    // kAck
    PTL_EVENT_REPLY,                  // kReply
};
static_assert(std::size(kEvents) == static_cast<std::size_t>(TargetEventKind::kReply) + 1);

/// Fills in what an event of an operation at the target says.
void describe_operation(const TargetEvent& event, bool is_logical, ptl_event_t& out) noexcept {
  const TargetHeader& header = event.header;
  const TargetOperation operation = header.operation;
  out.start = event.start;
  out.match_bits = number_of(header.key.bits);
  out.rlength = header.length_bytes;
  out.mlength = event.length_bytes;
  out.remote_offset = header.offset_bytes;
  out.initiator = process_of(header.key.initiator, is_logical);
  out.uid = static_cast<ptl_uid_t>(header.user);
  out.ptl_list = static_cast<ptl_list_t>(event.list);
  if (operation == TargetOperation::kGet) return;
  out.hdr_data = header.header_data;
  if (operation == TargetOperation::kPut) return;
  out.atomic_operation = header.atomic_operation;
  out.atomic_type = header.atomic_type;
}

}  // namespace

std::uint32_t entry_options(unsigned int options) noexcept { return translate(options, kEntryOptions); }
std::uint32_t origin_options(unsigned int options) noexcept { return translate(options, kOriginOptions); }

TargetAcknowledgement acknowledgement_of(ptl_ack_req_t ack_req) noexcept {
  return static_cast<TargetAcknowledgement>(ack_req);
}
TargetListKind list_of(ptl_list_t list) noexcept { return static_cast<TargetListKind>(list); }
AtomicOperation atomic_operation_of(ptl_op_t operation) noexcept {
  return static_cast<AtomicOperation>(operation);
}
AtomicType atomic_type_of(ptl_datatype_t datatype) noexcept { return static_cast<AtomicType>(datatype); }

ptl_ni_fail_t failure_of(TargetFailure failure) noexcept {
  return kFailures[static_cast<std::size_t>(failure)];
}

ptl_process_t process_of(ProcessId id, bool is_logical) noexcept {
  const std::uint64_t number = number_of(id);
  ptl_process_t process{};
  if (is_logical) {
    process.rank = static_cast<ptl_rank_t>(number);
  } else {
    process.phys.nid = static_cast<ptl_nid_t>(number >> 32);
    process.phys.pid = static_cast<ptl_pid_t>(number);
  }
  return process;
}

ProcessId physical_id_of(const ptl_process_t& process) noexcept {
  return make_physical_id(process.phys.nid, process.phys.pid);
}

ptl_event_t event_of(const TargetEvent& event, bool is_logical) noexcept {
  ptl_event_t out{};
  out.type = kEvents[static_cast<std::size_t>(event.kind)];
  out.ni_fail_type = failure_of(event.failure);
  if (event.kind == TargetEventKind::kTableDisabled) {
    out.pt_index = event.table;
    return out;
  }
  out.user_ptr = event.cookie;
  switch (event.kind) {
    case TargetEventKind::kSend: break;
    case TargetEventKind::kAck:
    case TargetEventKind::kReply:
      out.mlength = event.length_bytes;
      out.remote_offset = event.header.offset_bytes;
      out.ptl_list = static_cast<ptl_list_t>(event.list);
      break;
    case TargetEventKind::kLink:
    case TargetEventKind::kAutoUnlink:
    case TargetEventKind::kAutoFree:
      out.pt_index = event.table;
      out.ptl_list = static_cast<ptl_list_t>(event.list);
      break;
    default:
      out.pt_index = event.table;
      if (event.failure != TargetFailure::kNoMatch) describe_operation(event, is_logical, out);
  }
  return out;
}

}  // namespace ch3_offload::portals
