// portals4.h: put, get, atomic, fetch-atomic and swap, now or when a counting event triggers them.

#include <atomic>
#include <cstring>
#include <span>

#include "engine/payload_layout.h"
#include "portals/call.h"
#include "portals/translation.h"

using namespace ch3_offload;
using namespace ch3_offload::portals;

namespace {

/// What the operations say of their target.
struct Target {
  ptl_process_t process;
  ptl_pt_index_t table;
  ptl_match_bits_t bits;
  ptl_size_t offset_bytes;
  void* cookie;
  ptl_hdr_data_t header_data = 0;
};

/// A range of a memory descriptor.
struct Range {
  ptl_handle_md_t descriptor;
  ptl_size_t offset_bytes;
};

/// When it begins. `counter`: PTL_INVALID_HANDLE: now.
struct Start {
  ptl_handle_ct_t counter = PTL_INVALID_HANDLE;
  ptl_size_t threshold = 0;

  bool is_now() const noexcept { return counter == PTL_INVALID_HANDLE; }
};

/// A triggered operation without a counting event is not one that begins now.
Start when(ptl_handle_ct_t counter, ptl_size_t threshold) noexcept {
  return {counter == PTL_INVALID_HANDLE ? PTL_CT_NONE : counter, threshold};
}

struct AtomicKind {
  ptl_op_t operation;
  ptl_datatype_t datatype;
  bool swaps;
};

/// Returns null if the range is not one of that interface's, or too long.
MemoryDescriptor* find_range(Interface& interface, const Range& range, ptl_size_t length,
                             ptl_size_t most) noexcept {
  MemoryDescriptor* const found = interface.descriptors.find(range.descriptor);
  return found != nullptr && length <= most && found->contains(range.offset_bytes, length) ? found : nullptr;
}

bool may_write(const Interface& interface, const MemoryDescriptor& source, ptl_size_t length) noexcept {
  return !source.has(PTL_MD_VOLATILE) || length <= interface.limits().max_volatile_size;
}

bool may_acknowledge(const MemoryDescriptor& source, ptl_ack_req_t ack_req) noexcept {
  switch (ack_req) {
    case PTL_NO_ACK_REQ: return true;
    case PTL_ACK_REQ: return source.has_queue() && !source.has(PTL_MD_UNRELIABLE);
    case PTL_CT_ACK_REQ: return source.has_counter();
    case PTL_OC_ACK_REQ: return true;
    default: return false;
  }
}

/// Whether there is such an operation on so many bytes of that type.
bool is_atomic(const AtomicKind& kind, ptl_size_t length) noexcept {
  if (kind.operation >= PTL_OP_LAST || kind.datatype >= PTL_DATATYPE_LAST) return false;
  const AtomicOperation operation = atomic_operation_of(kind.operation);
  const AtomicType type = atomic_type_of(kind.datatype);
  return is_swap(operation) == kind.swaps && is_supported(operation, type) &&
         length_of(operation, type, length) == length;
}

void set_atomic(const AtomicKind& kind, TargetRequest& request) noexcept {
  request.atomic_operation = atomic_operation_of(kind.operation);
  request.atomic_type = atomic_type_of(kind.datatype);
}

/// Copies a source that may change when the call has returned.
void keep_volatile(TargetRequest& request) noexcept {
  if ((request.source.options & kVolatile) == 0) return;
  gather(request.source.memory, 0,
         std::span(request.volatile_bytes).first(request.source.memory.length_bytes));
}

/// Fills in the target, and gives the request to the port.
int submit(Library& library, Interface& interface, const Target& target, const Start& start,
           TargetRequest& request) noexcept {
  const std::optional<ProcessId> process = interface.find_process(target.process);
  if (!process || target.table >= interface.most_tables()) return PTL_ARG_INVALID;
  request.interface = static_cast<std::uint8_t>(interface.number());
  request.table = static_cast<std::uint16_t>(target.table);
  request.bits = MatchBits{interface.has_matching() ? target.bits : 0};
  request.offset_bytes = target.offset_bytes;
  request.header_data = target.header_data;
  request.cookie = target.cookie;
  if (start.is_now()) {
    keep_volatile(request);
    return code_of(library.port().request(*process, request));
  }
  request.source.options &= ~kVolatile;  // Its memory is read when it begins.
  const CounterId counter = interface.counters.id_of(start.counter);
  if (counter == kNoCounter) return PTL_ARG_INVALID;
  return code_of(library.port().trigger({counter, start.threshold}, *process, request));
}

int put(const Range& from, ptl_size_t length, ptl_ack_req_t ack_req, const Target& target,
        const Start& start) noexcept {
  return with_interface_of(
      from.descriptor, [&](Library& library, Library::Lock&, Interface& interface) -> int {
        MemoryDescriptor* const source = find_range(interface, from, length, interface.limits().max_msg_size);
        if (source == nullptr || !may_acknowledge(*source, ack_req) || !may_write(interface, *source, length))
          return PTL_ARG_INVALID;
        TargetRequest request;
        request.operation = TargetOperation::kPut;
        request.acknowledgement = acknowledgement_of(ack_req);
        request.source = source->origin(from.offset_bytes, length);
        return submit(library, interface, target, start, request);
      });
}

int get(const Range& to, ptl_size_t length, const Target& target, const Start& start) noexcept {
  return with_interface_of(to.descriptor, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    MemoryDescriptor* const destination = find_range(interface, to, length, interface.limits().max_msg_size);
    if (destination == nullptr) return PTL_ARG_INVALID;
    TargetRequest request;
    request.operation = TargetOperation::kGet;
    request.destination = destination->origin(to.offset_bytes, length);
    return submit(library, interface, target, start, request);
  });
}

int combine(const Range& from, ptl_size_t length, ptl_ack_req_t ack_req, const AtomicKind& kind,
            const Target& target, const Start& start) noexcept {
  return with_interface_of(from.descriptor,
                           [&](Library& library, Library::Lock&, Interface& interface) -> int {
                             MemoryDescriptor* const source =
                                 find_range(interface, from, length, interface.limits().max_atomic_size);
                             if (source == nullptr || !is_atomic(kind, length) ||
                                 !may_acknowledge(*source, ack_req) || !may_write(interface, *source, length))
                               return PTL_ARG_INVALID;
                             TargetRequest request;
                             request.operation = TargetOperation::kAtomic;
                             request.acknowledgement = acknowledgement_of(ack_req);
                             set_atomic(kind, request);
                             request.source = source->origin(from.offset_bytes, length);
                             return submit(library, interface, target, start, request);
                           });
}

/// Fetch-atomic and swap. `operand`: null: none was given.
int fetch(const Range& to, const Range& from, ptl_size_t length, const void* operand, const AtomicKind& kind,
          const Target& target, const Start& start) noexcept {
  return with_interface_of(to.descriptor, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    const ptl_size_t most = interface.limits().max_fetch_atomic_size;
    MemoryDescriptor* const destination = find_range(interface, to, length, most);
    MemoryDescriptor* const source = find_range(interface, from, length, most);
    if (destination == nullptr || source == nullptr || !is_atomic(kind, length) ||
        !may_write(interface, *source, length))
      return PTL_ARG_INVALID;
    TargetRequest request;
    request.operation = kind.swaps ? TargetOperation::kSwap : TargetOperation::kFetchAtomic;
    set_atomic(kind, request);
    if (takes_operand(request.atomic_operation)) {
      if (operand == nullptr) return PTL_ARG_INVALID;
      std::memcpy(request.operand.data(), operand, element_bytes(request.atomic_type));
    }
    request.destination = destination->origin(to.offset_bytes, length);
    request.source = source->origin(from.offset_bytes, length);
    return submit(library, interface, target, start, request);
  });
}

}  // namespace

int PtlPut(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length, ptl_ack_req_t ack_req,
           ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
           ptl_size_t remote_offset, void* user_ptr, ptl_hdr_data_t hdr_data) {
  return put({md_handle, local_offset}, length, ack_req,
             {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data}, {});
}

int PtlGet(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length, ptl_process_t target_id,
           ptl_pt_index_t pt_index, ptl_match_bits_t match_bits, ptl_size_t remote_offset, void* user_ptr) {
  return get({md_handle, local_offset}, length, {target_id, pt_index, match_bits, remote_offset, user_ptr},
             {});
}

int PtlAtomic(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length, ptl_ack_req_t ack_req,
              ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
              ptl_size_t remote_offset, void* user_ptr, ptl_hdr_data_t hdr_data, ptl_op_t operation,
              ptl_datatype_t datatype) {
  return combine({md_handle, local_offset}, length, ack_req, {operation, datatype, false},
                 {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data}, {});
}

int PtlFetchAtomic(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset, ptl_handle_md_t put_md_handle,
                   ptl_size_t local_put_offset, ptl_size_t length, ptl_process_t target_id,
                   ptl_pt_index_t pt_index, ptl_match_bits_t match_bits, ptl_size_t remote_offset,
                   void* user_ptr, ptl_hdr_data_t hdr_data, ptl_op_t operation, ptl_datatype_t datatype) {
  return fetch({get_md_handle, local_get_offset}, {put_md_handle, local_put_offset}, length, nullptr,
               {operation, datatype, false},
               {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data}, {});
}

int PtlSwap(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset, ptl_handle_md_t put_md_handle,
            ptl_size_t local_put_offset, ptl_size_t length, ptl_process_t target_id, ptl_pt_index_t pt_index,
            ptl_match_bits_t match_bits, ptl_size_t remote_offset, void* user_ptr, ptl_hdr_data_t hdr_data,
            const void* operand, ptl_op_t operation, ptl_datatype_t datatype) {
  return fetch({get_md_handle, local_get_offset}, {put_md_handle, local_put_offset}, length, operand,
               {operation, datatype, true},
               {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data}, {});
}

int PtlAtomicSync(void) {
  if (!Library::instance().is_ready()) return PTL_NO_INIT;
  // The target's engine works with the host's own instructions, so its caches are the host's. What is left is
  // the order of this thread's own accesses: nothing is moved across. (ThreadSanitizer knows no fences.)
  static std::atomic<unsigned> order{0};
  order.fetch_add(1, std::memory_order_seq_cst);
  return PTL_OK;
}

int PtlTriggeredPut(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
                    ptl_ack_req_t ack_req, ptl_process_t target_id, ptl_pt_index_t pt_index,
                    ptl_match_bits_t match_bits, ptl_size_t remote_offset, void* user_ptr,
                    ptl_hdr_data_t hdr_data, ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold) {
  return put({md_handle, local_offset}, length, ack_req,
             {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data},
             when(trig_ct_handle, threshold));
}

int PtlTriggeredGet(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
                    ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
                    ptl_size_t remote_offset, void* user_ptr, ptl_handle_ct_t trig_ct_handle,
                    ptl_size_t threshold) {
  return get({md_handle, local_offset}, length, {target_id, pt_index, match_bits, remote_offset, user_ptr},
             when(trig_ct_handle, threshold));
}

int PtlTriggeredAtomic(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
                       ptl_ack_req_t ack_req, ptl_process_t target_id, ptl_pt_index_t pt_index,
                       ptl_match_bits_t match_bits, ptl_size_t remote_offset, void* user_ptr,
                       ptl_hdr_data_t hdr_data, ptl_op_t operation, ptl_datatype_t datatype,
                       ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold) {
  return combine({md_handle, local_offset}, length, ack_req, {operation, datatype, false},
                 {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data},
                 when(trig_ct_handle, threshold));
}

int PtlTriggeredFetchAtomic(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset,
                            ptl_handle_md_t put_md_handle, ptl_size_t local_put_offset, ptl_size_t length,
                            ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
                            ptl_size_t remote_offset, void* user_ptr, ptl_hdr_data_t hdr_data,
                            ptl_op_t operation, ptl_datatype_t datatype, ptl_handle_ct_t trig_ct_handle,
                            ptl_size_t threshold) {
  return fetch({get_md_handle, local_get_offset}, {put_md_handle, local_put_offset}, length, nullptr,
               {operation, datatype, false},
               {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data},
               when(trig_ct_handle, threshold));
}

int PtlTriggeredSwap(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset,
                     ptl_handle_md_t put_md_handle, ptl_size_t local_put_offset, ptl_size_t length,
                     ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
                     ptl_size_t remote_offset, void* user_ptr, ptl_hdr_data_t hdr_data, const void* operand,
                     ptl_op_t operation, ptl_datatype_t datatype, ptl_handle_ct_t trig_ct_handle,
                     ptl_size_t threshold) {
  return fetch({get_md_handle, local_get_offset}, {put_md_handle, local_put_offset}, length, operand,
               {operation, datatype, true},
               {target_id, pt_index, match_bits, remote_offset, user_ptr, hdr_data},
               when(trig_ct_handle, threshold));
}
