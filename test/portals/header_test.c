/* portals4.h in C99, with the names that programs use: Sandia OpenSHMEM's transport, Open MPI's mtl, osc and coll. */

#include "portals/portals4.h"

typedef char sixteen_events[PTL_EVENT_SEARCH == 15 ? 1 : -1];
typedef char return_codes[PTL_STATUS_LAST == PTL_INTERRUPTED + 1 ? 1 : -1];

static const ptl_handle_any_t no_handles[] = { PTL_INVALID_HANDLE, PTL_EQ_NONE, PTL_CT_NONE };

int portals_header_test(void);
int portals_header_test(void)
{
    ptl_ni_limits_t limits;
    ptl_md_t md = { 0, PTL_SIZE_MAX, PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_SUCCESS_DISABLE, PTL_EQ_NONE, PTL_CT_NONE };
    ptl_le_t le = { 0, 0, PTL_CT_NONE, PTL_UID_ANY, PTL_LE_OP_PUT | PTL_LE_EVENT_LINK_DISABLE };
    ptl_me_t me = {.ct_handle = PTL_CT_NONE,.uid = PTL_UID_ANY,.match_id.phys = {PTL_NID_ANY, PTL_PID_ANY} };
    ptl_process_t rank = {.rank = PTL_RANK_ANY };
    ptl_handle_ni_t ni = PTL_INVALID_HANDLE;
    ptl_ct_event_t count = { 0, 0 };
    int code = PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_LOGICAL, PTL_PID_ANY, 0, &limits, &ni);
    switch (code) {
        case PTL_OK:
        case PTL_EQ_EMPTY:
        case PTL_IGNORED:
        case PTL_INTERRUPTED:
        case PTL_ABORTED:
            break;
        default:
            return code;
    }
    PtlAtomicSync();
    return (int) (md.options + le.options + me.options + rank.rank + count.success + no_handles[0]);
}
