/* The Portals 4.3 network programming interface.
 *
 * A program that includes this header and links libportals moves data between processes that the library can
 * reach: over shared memory, InfiniBand or RoCE. docs/portals.md has how to build and run one. Names,
 * constants and behaviour are those of the Portals 4.3 specification, and section numbers are its own. What a
 * number's value is, and what a handle holds, is this library's: a program must be compiled with this header.
 *
 * Units: lengths and offsets are bytes, times are milliseconds.
 *
 * Ownership: memory that is named in a memory descriptor, a list entry or an iovec stays the program's. It
 * must stay valid, and an iovec's array unchanged, until the operations on it have ended. All other arguments
 * are copied during the call.
 *
 * Threads: any number may call any function at any time. A call that waits holds up no other one.
 *
 * Errors: a function that does not return PTL_OK has changed nothing, unless it says otherwise. All but
 * PtlInit(), PtlFini(), PtlAbort() and PtlHandleIsEqual() return PTL_NO_INIT before PtlInit(). Handles that
 * are stale, of a closed interface or of the wrong kind are noticed: PTL_ARG_INVALID. So are null pointers
 * where a result is wanted.
 */
#ifndef PORTALS4_H_INCLUDED
#define PORTALS4_H_INCLUDED

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden symbols; these are the ones that it shows. */
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---- Return codes (section 3.3) ---- */

enum ptl_retvals {
    PTL_OK = 0,
    PTL_ARG_INVALID,            /**< an argument is wrong */
    PTL_CT_NONE_REACHED,        /**< PtlCTPoll(): the time is over */
    PTL_EQ_DROPPED,             /**< an event was returned, and events before it were lost */
    PTL_EQ_EMPTY,               /**< no event is there; PtlEQPoll(): the time is over */
    PTL_FAIL,                   /**< none of the others; a line on standard error says more */
    PTL_IGNORED,                /**< the map of ranks is fixed; this library does not return it */
    PTL_IN_USE,                 /**< operations are pending on it */
    PTL_LIST_TOO_LONG,          /**< the list has as many entries as the limits allow */
    PTL_NO_INIT,                /**< PtlInit() has not been called, or each call was undone by PtlFini() */
    PTL_NO_SPACE,               /**< no memory, or a limit of the interface is reached */
    PTL_PID_IN_USE,             /**< another process of this node has that pid */
    PTL_PT_FULL,                /**< all portal table entries are in use */
    PTL_PT_EQ_NEEDED,           /**< flow control needs an event queue */
    PTL_PT_IN_USE,              /**< that portal table entry is in use */
    PTL_ABORTED,                /**< PtlAbort() has been called */
    PTL_INTERRUPTED             /**< what the call waited for was freed meanwhile; not in 4.3, but in use */
};
#define PTL_STATUS_LAST (PTL_INTERRUPTED + 1)

/* ---- Base types (section 3.2) ---- */

typedef uint64_t ptl_size_t;            /**< bytes, or a count */
typedef uint32_t ptl_pt_index_t;        /**< index of a portal table */
typedef uint64_t ptl_match_bits_t;
typedef uint64_t ptl_hdr_data_t;        /**< data of the program's in the header of an operation */
typedef unsigned int ptl_time_t;        /**< milliseconds */
typedef unsigned int ptl_interface_t;   /**< which network interface: PTL_IFACE_DEFAULT or 0 */
typedef uint32_t ptl_nid_t;             /**< a node: its IPv4 address, most significant byte first */
typedef uint32_t ptl_pid_t;             /**< a process of a node */
typedef uint32_t ptl_rank_t;            /**< a process of a job, on logical interfaces */
typedef uint32_t ptl_uid_t;             /**< a user */

/** A handle names an object from its making until it is freed. An object's number may come again, its handle
 *  does not: stale ones are noticed. Compare by PtlHandleIsEqual(). */
typedef uint64_t ptl_handle_any_t;
typedef ptl_handle_any_t ptl_handle_ni_t;       /**< network interface */
typedef ptl_handle_any_t ptl_handle_eq_t;       /**< event queue */
typedef ptl_handle_any_t ptl_handle_ct_t;       /**< counting event */
typedef ptl_handle_any_t ptl_handle_md_t;       /**< memory descriptor */
typedef ptl_handle_any_t ptl_handle_le_t;       /**< list entry */
typedef ptl_handle_any_t ptl_handle_me_t;       /**< match list entry */

/** Names no object. */
#define PTL_INVALID_HANDLE ((ptl_handle_any_t) 0xffffffffffffffffULL)
/** No event queue: no events. */
#define PTL_EQ_NONE ((ptl_handle_eq_t) 0xfffffffffffffffeULL)
/** No counting event: nothing is counted. */
#define PTL_CT_NONE ((ptl_handle_ct_t) 0xfffffffffffffffdULL)

#define PTL_IFACE_DEFAULT ((ptl_interface_t) 0xffffffffU)
#define PTL_PID_ANY ((ptl_pid_t) 0xffffffffU)   /**< any process of a node; PtlNIInit(): a free pid */
#define PTL_PID_MAX ((ptl_pid_t) 0xffffU)       /**< the greatest pid that a process can have */
#define PTL_NID_ANY ((ptl_nid_t) 0xffffffffU)   /**< any node */
#define PTL_UID_ANY ((ptl_uid_t) 0xffffffffU)   /**< any user */
#define PTL_RANK_ANY ((ptl_rank_t) 0xffffffffU) /**< any rank */
#define PTL_PT_ANY ((ptl_pt_index_t) 0xffffffffU)       /**< PtlPTAlloc(): a free index */
#define PTL_TIME_FOREVER ((ptl_time_t) 0xffffffffU)     /**< no time limit */
#define PTL_SIZE_MAX ((ptl_size_t) 0xffffffffffffffffULL)       /**< with a null start: all memory */

/** A process: by its rank on a logical interface, by nid and pid on a physical one (section 3.8). */
typedef union {
    ptl_rank_t rank;
    struct {
        ptl_nid_t nid;
        ptl_pid_t pid;
    } phys;
} ptl_process_t;

/** A part of memory that is not contiguous. Of an object with PTL_IOVEC, `start` is the array of its parts
 *  and `length` their number; they are used as if they followed each other. At most
 *  ptl_ni_limits_t::max_iovecs. */
typedef struct {
    void *iov_base;
    ptl_size_t iov_len;         /**< bytes; may be 0 */
} ptl_iovec_t;

/* Option of memory descriptors, list entries and match list entries. */
#define PTL_IOVEC (1U << 0)     /**< `start` is an array of ptl_iovec_t */

/* ---- Library (section 3.4) ---- */

/** Makes the library ready. Calls are counted: each one wants a PtlFini(). Returns PTL_OK. */
int PtlInit(void);

/** Undoes one PtlInit(). The last one closes all interfaces, as PtlNIFini() does, and ends the effect of
 *  PtlAbort(). Has no effect before PtlInit(). */
void PtlFini(void);

/** Ends all waiting: calls of PtlEQWait(), PtlEQPoll(), PtlCTWait() and PtlCTPoll() that wait now, and all
 *  later ones, return PTL_ABORTED. When it returns, queues and counting events may be freed. Its effect ends
 *  with the last PtlFini(). May be called by any thread, and not by signal handlers. */
void PtlAbort(void);

/* ---- Network interfaces (section 3.5) ---- */

/* Options of an interface: one of the first two, and one of the others. */
#define PTL_NI_MATCHING (1U << 0)       /**< match list entries: PtlMEAppend() */
#define PTL_NI_NO_MATCHING (1U << 1)    /**< list entries: PtlLEAppend() */
#define PTL_NI_LOGICAL (1U << 2)        /**< processes are ranks: PtlSetMap() */
#define PTL_NI_PHYSICAL (1U << 3)       /**< processes are nid and pid */
#define PTL_NI_INIT_OPTIONS_MASK ((1U << 4) - 1)

/* Features of an interface: ptl_ni_limits_t::features. */
#define PTL_TARGET_BIND_INACCESSIBLE (1U << 0)  /**< entries may name memory that is not mapped yet */
#define PTL_TOTAL_DATA_ORDERING (1U << 1)       /**< the max_*_ordered_size hold for all offsets */
#define PTL_COHERENT_ATOMICS (1U << 2)          /**< PtlAtomicSync() is not needed */

/** What an interface can do (section 3.5). A table can take no more than its interface. */
typedef struct {
    int max_entries;            /**< entries of all portal tables together */
    int max_unexpected_headers; /**< operations that the overflow lists took and no priority entry claimed */
    int max_mds;
    int max_cts;
    int max_eqs;
    int max_pt_index;           /**< the greatest index of a portal table */
    int max_iovecs;             /**< parts of one iovec */
    int max_list_size;          /**< entries of one list */
    int max_triggered_ops;      /**< triggered operations that wait */
    ptl_size_t max_msg_size;    /**< bytes of a put, and of a get */
    ptl_size_t max_atomic_size; /**< bytes of an atomic operation */
    ptl_size_t max_fetch_atomic_size;   /**< bytes of a fetch-atomic, and of a swap */
    ptl_size_t max_waw_ordered_size;    /**< bytes of a put or atomic that keeps its place */
    ptl_size_t max_war_ordered_size;    /**< bytes of a get or fetch-atomic, likewise */
    ptl_size_t max_volatile_size;       /**< bytes of an operation of a descriptor with PTL_MD_VOLATILE */
    unsigned int features;
} ptl_ni_limits_t;

/** Opens an interface, or returns the one of that kind that is open: each such call wants a PtlNIFini(). A
 *  process has one pid for all of its interfaces, and at most one interface of each kind. `iface`:
 *  PTL_IFACE_DEFAULT or 0. `options`: see above. `pid`: the wanted one, or PTL_PID_ANY. `desired`: may be
 *  null; each limit is made as large as wanted or as can be, whichever is less. `actual`: may be null; what
 *  the limits are. Of an interface that is open, `pid` and `desired` are not looked at. PTL_ARG_INVALID: the
 *  options contradict each other; there is no such `iface`; no process can have that pid, or this one has
 *  another; `ni_handle` is null. PTL_PID_IN_USE. PTL_NO_SPACE: no memory. PTL_FAIL: a
 *  setting or the key file is wrong, or no network or network processor is usable; a line says which. */
int PtlNIInit(ptl_interface_t iface, unsigned int options, ptl_pid_t pid, const ptl_ni_limits_t *desired,
              ptl_ni_limits_t *actual, ptl_handle_ni_t *ni_handle);

/** Undoes one PtlNIInit(). The last one frees all objects of the interface, and forgets operations that have
 *  not ended: when it returns, none of them touches memory any more. Threads that wait there return
 *  PTL_INTERRUPTED. */
int PtlNIFini(ptl_handle_ni_t ni_handle);

/** Status registers. */
typedef enum {
    PTL_SR_DROP_COUNT,          /**< operations that no entry took */
    PTL_SR_PERMISSION_VIOLATIONS,       /**< operations of a user for whom the entry is not */
    PTL_SR_OPERATION_VIOLATIONS /**< operations that the entry does not allow */
} ptl_sr_index_t;
#define PTL_SR_LAST (PTL_SR_OPERATION_VIOLATIONS + 1)
typedef int ptl_sr_value_t;

/** Reads a status register. It stays at INT_MAX when it has reached that. */
int PtlNIStatus(ptl_handle_ni_t ni_handle, ptl_sr_index_t status_register, ptl_sr_value_t *status);

/** Returns the interface of any object; of an interface, itself. */
int PtlNIHandle(ptl_handle_any_t handle, ptl_handle_ni_t *ni_handle);

/** Says which process each rank of a logical interface is. Replaces the map that was set
 *  before. Before, no process can be named. `mapping`: `map_size` physical processes, by rank; copied.
 *  PTL_ARG_INVALID: the interface is physical; `map_size` is 0 or `mapping` null. PTL_NO_SPACE. */
int PtlSetMap(ptl_handle_ni_t ni_handle, ptl_size_t map_size, const ptl_process_t *mapping);

/** Returns the map of ranks: at most `map_size` processes in `mapping`, and in `actual_map_size` how many it
 *  has, 0 before PtlSetMap(). `mapping` may be null if `map_size` is 0. PTL_ARG_INVALID: the interface is
 *  physical. */
int PtlGetMap(ptl_handle_ni_t ni_handle, ptl_size_t map_size, ptl_process_t *mapping,
              ptl_size_t *actual_map_size);

/* ---- Users and processes (sections 3.7 and 3.8) ---- */

/** Returns the user of this process. */
int PtlGetUid(ptl_handle_ni_t ni_handle, ptl_uid_t *uid);

/** Returns this process as that interface names it. PTL_ARG_INVALID: on a logical interface, the map of ranks
 *  does not have this process. */
int PtlGetId(ptl_handle_ni_t ni_handle, ptl_process_t *id);

/** Returns nid and pid of this process, on every interface. */
int PtlGetPhysId(ptl_handle_ni_t ni_handle, ptl_process_t *id);

/* ---- Portal tables (section 3.6) ---- */

#define PTL_PT_ONLY_USE_ONCE (1U << 0)  /**< a hint: all entries are used once */
#define PTL_PT_FLOWCTRL (1U << 1)       /**< the table disables itself rather than lose something */
#define PTL_PT_ONLY_TRUNCATE (1U << 2)  /**< a hint: no entry has PTL_ME_NO_TRUNCATE */
#define PTL_PT_MATCH_UNORDERED (1U << 3)        /**< a hint: any entry that matches will do */
#define PTL_PT_ALLOC_DISABLED (1U << 4) /**< it begins disabled */
#define PTL_PT_ALLOC_OPTIONS_MASK ((1U << 5) - 1)

/** Takes an index of the portal table. `eq_handle`: where its events go, or PTL_EQ_NONE. `pt_index_req`: the
 *  wanted index, or PTL_PT_ANY for the least one that is free. PTL_ARG_INVALID: no such index or options.
 *  PTL_PT_FULL. PTL_PT_IN_USE. PTL_PT_EQ_NEEDED: PTL_PT_FLOWCTRL without a queue. PTL_NO_SPACE. */
int PtlPTAlloc(ptl_handle_ni_t ni_handle, unsigned int options, ptl_handle_eq_t eq_handle,
               ptl_pt_index_t pt_index_req, ptl_pt_index_t *pt_index);

/** Gives an index back. PTL_IN_USE: it has entries, or operations are in flight there. */
int PtlPTFree(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index);

/** Refuses all operations from now on. Returns when those in flight have ended and their events are there. */
int PtlPTDisable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index);

/** Accepts operations again, after PtlPTDisable() or PTL_EVENT_PT_DISABLED. */
int PtlPTEnable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index);

/* ---- Memory descriptors (section 3.10) ---- */

#define PTL_MD_EVENT_CT_SEND (1U << 1)  /**< count PTL_EVENT_SEND */
#define PTL_MD_EVENT_CT_REPLY (1U << 2) /**< count PTL_EVENT_REPLY */
#define PTL_MD_EVENT_CT_ACK (1U << 3)   /**< count PTL_EVENT_ACK, and acknowledgements without an event */
#define PTL_MD_UNORDERED (1U << 4)      /**< a hint: its operations need no order */
#define PTL_MD_EVENT_SUCCESS_DISABLE (1U << 5)  /**< events for failures only */
#define PTL_MD_VOLATILE (1U << 6)       /**< the memory may change when a put or atomic has returned */
#define PTL_MD_EVENT_SEND_DISABLE (1U << 7)     /**< no PTL_EVENT_SEND, but for failures */
#define PTL_MD_UNRELIABLE (1U << 8)     /**< a hint: losses do no harm; PTL_ACK_REQ is refused */
#define PTL_MD_EVENT_CT_BYTES (1U << 14)        /**< count bytes of successful operations, not operations */
#define PTL_MD_OPTIONS_MASK (((1U << 9) - 1) | PTL_MD_EVENT_CT_BYTES)

/** Memory of the initiator. */
typedef struct {
    void *start;
    ptl_size_t length;          /**< bytes; with PTL_IOVEC: elements of the array at `start` */
    unsigned int options;
    ptl_handle_eq_t eq_handle;  /**< PTL_EQ_NONE: no events */
    ptl_handle_ct_t ct_handle;  /**< PTL_CT_NONE: nothing is counted */
} ptl_md_t;

/** Makes a memory descriptor. PTL_ARG_INVALID: unknown options, a queue or counting event of another
 *  interface, too long an iovec. PTL_NO_SPACE. */
int PtlMDBind(ptl_handle_ni_t ni_handle, const ptl_md_t *md, ptl_handle_md_t *md_handle);

/** Frees a memory descriptor. REQUIRES: no operation on it is pending, triggered ones included. */
int PtlMDRelease(ptl_handle_md_t md_handle);

/* ---- List entries and match list entries (sections 3.11 and 3.12) ---- */

typedef unsigned char ptl_list_t;
#define PTL_PRIORITY_LIST 0     /**< searched first */
#define PTL_OVERFLOW_LIST 1     /**< for operations that nothing in the priority list takes */

typedef unsigned char ptl_search_op_t;
#define PTL_SEARCH_ONLY 0
#define PTL_SEARCH_DELETE 1     /**< what is found is taken out of the unexpected list */

/* Options of both kinds of entries. PTL_IOVEC is another. */
#define PTL_ME_OP_PUT (1U << 1) /**< allows puts and atomics */
#define PTL_ME_OP_GET (1U << 2) /**< allows gets; with PTL_ME_OP_PUT also fetch-atomics and swaps */
#define PTL_ME_USE_ONCE (1U << 3)       /**< unlinked by its first operation */
#define PTL_ME_UNEXPECTED_HDR_DISABLE (1U << 4) /**< overflow: no later entry finds its operations */
#define PTL_ME_IS_ACCESSIBLE (1U << 5)  /**< a promise: all of the memory is mapped */
#define PTL_ME_EVENT_LINK_DISABLE (1U << 6)     /**< no PTL_EVENT_LINK */
#define PTL_ME_EVENT_COMM_DISABLE (1U << 7)     /**< no events of operations and searches */
#define PTL_ME_EVENT_FLOWCTRL_DISABLE (1U << 8) /**< no PTL_EVENT_PT_DISABLED on its account */
#define PTL_ME_EVENT_SUCCESS_DISABLE (1U << 9)  /**< no events of successful operations */
#define PTL_ME_EVENT_OVER_DISABLE (1U << 10)    /**< no overflow events */
#define PTL_ME_EVENT_UNLINK_DISABLE (1U << 11)  /**< no PTL_EVENT_AUTO_UNLINK and PTL_EVENT_AUTO_FREE */
#define PTL_ME_EVENT_CT_COMM (1U << 12) /**< count operations */
#define PTL_ME_EVENT_CT_OVERFLOW (1U << 13)     /**< count overflow events */
#define PTL_ME_EVENT_CT_BYTES (1U << 14)        /**< count bytes of successful operations, not operations */
/** No acknowledgement of puts and atomics, whatever their initiators ask for: neither event nor count.
 *  Failures are told. Of Portals 4.0 and 4.1; Open MPI uses it. */
#define PTL_ME_ACK_DISABLE (1U << 19)

/* Options of match list entries. */
#define PTL_ME_MANAGE_LOCAL (1U << 15)  /**< operations follow each other in the memory */
#define PTL_ME_NO_TRUNCATE (1U << 16)   /**< what does not fit does not match */
#define PTL_ME_MAY_ALIGN (1U << 17)     /**< a hint: locally managed offsets may be aligned */
#define PTL_ME_LOCAL_INC_UH_RLENGTH (1U << 18)  /**< unexpected operations advance the local offset */
#define PTL_ME_APPEND_OPTIONS_MASK ((1U << 20) - 1)

#define PTL_LE_OP_PUT PTL_ME_OP_PUT
#define PTL_LE_OP_GET PTL_ME_OP_GET
#define PTL_LE_USE_ONCE PTL_ME_USE_ONCE
#define PTL_LE_UNEXPECTED_HDR_DISABLE PTL_ME_UNEXPECTED_HDR_DISABLE
#define PTL_LE_IS_ACCESSIBLE PTL_ME_IS_ACCESSIBLE
#define PTL_LE_EVENT_LINK_DISABLE PTL_ME_EVENT_LINK_DISABLE
#define PTL_LE_EVENT_COMM_DISABLE PTL_ME_EVENT_COMM_DISABLE
#define PTL_LE_EVENT_FLOWCTRL_DISABLE PTL_ME_EVENT_FLOWCTRL_DISABLE
#define PTL_LE_EVENT_SUCCESS_DISABLE PTL_ME_EVENT_SUCCESS_DISABLE
#define PTL_LE_EVENT_OVER_DISABLE PTL_ME_EVENT_OVER_DISABLE
#define PTL_LE_EVENT_UNLINK_DISABLE PTL_ME_EVENT_UNLINK_DISABLE
#define PTL_LE_EVENT_CT_COMM PTL_ME_EVENT_CT_COMM
#define PTL_LE_EVENT_CT_OVERFLOW PTL_ME_EVENT_CT_OVERFLOW
#define PTL_LE_EVENT_CT_BYTES PTL_ME_EVENT_CT_BYTES
#define PTL_LE_ACK_DISABLE PTL_ME_ACK_DISABLE
#define PTL_LE_APPEND_OPTIONS_MASK (((1U << 15) - 1) | PTL_LE_ACK_DISABLE)

/** Memory that other processes may address. */
typedef struct {
    void *start;
    ptl_size_t length;          /**< bytes; with PTL_IOVEC: elements of the array at `start` */
    ptl_handle_ct_t ct_handle;  /**< PTL_CT_NONE: nothing is counted */
    ptl_uid_t uid;              /**< whose operations it takes: a user's, or PTL_UID_ANY */
    unsigned int options;
} ptl_le_t;

/** Memory that other processes may address by match bits. */
typedef struct {
    void *start;
    ptl_size_t length;          /**< as of ptl_le_t */
    ptl_handle_ct_t ct_handle;
    ptl_uid_t uid;
    unsigned int options;
    ptl_process_t match_id;     /**< whose operations match; PTL_RANK_ANY, or PTL_NID_ANY and PTL_PID_ANY */
    ptl_match_bits_t match_bits;
    ptl_match_bits_t ignore_bits;       /**< a bit that is set here may differ */
    ptl_size_t min_free;        /**< with PTL_ME_MANAGE_LOCAL: unlinked when fewer bytes are left; 0: never */
} ptl_me_t;

/** Appends an entry to a list of a portal table; on the priority list, operations that wait in the unexpected
 *  list and match are its own first. `user_ptr` comes back in its events. `le_handle`: PTL_INVALID_HANDLE if
 *  the entry was used up before it linked. PTL_ARG_INVALID: the interface has matching; no such table, list
 *  or option; a counting event of another interface; too long an iovec. PTL_NO_SPACE. PTL_LIST_TOO_LONG. */
int PtlLEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_le_t *le, ptl_list_t ptl_list,
                void *user_ptr, ptl_handle_le_t *le_handle);

/** Takes an entry out. PTL_IN_USE: operations are in flight, or unexpected ones refer to it: try again.
 *  PTL_ARG_INVALID: it is not linked any more. */
int PtlLEUnlink(ptl_handle_le_t le_handle);

/** Looks for operations in the unexpected list as PtlLEAppend() does, and links nothing. What is found, or
 *  that nothing was, comes as an event. */
int PtlLESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_le_t *le,
                ptl_search_op_t ptl_search_op, void *user_ptr);

/** As PtlLEAppend(), on an interface with matching. */
int PtlMEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_me_t *me, ptl_list_t ptl_list,
                void *user_ptr, ptl_handle_me_t *me_handle);

/** As PtlLEUnlink(). */
int PtlMEUnlink(ptl_handle_me_t me_handle);

/** As PtlLESearch(). */
int PtlMESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_me_t *me,
                ptl_search_op_t ptl_search_op, void *user_ptr);

/* ---- Counting events (section 3.14) ---- */

typedef struct {
    ptl_size_t success;         /**< operations, or bytes with an option CT_BYTES */
    ptl_size_t failure;         /**< operations that failed */
} ptl_ct_event_t;

typedef enum {
    PTL_CT_OPERATION,
    PTL_CT_BYTE
} ptl_ct_type_t;

/** Makes a counting event, at 0. PTL_NO_SPACE: there are as many as the limits allow. */
int PtlCTAlloc(ptl_handle_ni_t ni_handle, ptl_handle_ct_t *ct_handle);

/** Frees a counting event, and forgets the triggered operations that wait for it. Operations that would count
 *  there do not any more. Threads that wait for it return PTL_INTERRUPTED. */
int PtlCTFree(ptl_handle_ct_t ct_handle);

/** Forgets the triggered operations that wait for a counting event. */
int PtlCTCancelTriggered(ptl_handle_ct_t ct_handle);

/** Reads a counting event. Takes no lock where the library's processor works by itself. */
int PtlCTGet(ptl_handle_ct_t ct_handle, ptl_ct_event_t *event);

/** Waits until the successes and failures of a counting event are together at least `test`. Returns its
 *  value. PTL_INTERRUPTED. PTL_ABORTED. */
int PtlCTWait(ptl_handle_ct_t ct_handle, ptl_size_t test, ptl_ct_event_t *event);

/** As PtlCTWait(), for any of `size` counting events of one interface. `which`: the index of the one that was
 *  reached first, or of the first one. `timeout`: milliseconds, or PTL_TIME_FOREVER. PTL_CT_NONE_REACHED: the
 *  time is over. PTL_ARG_INVALID: also if `size` is 0. */
int PtlCTPoll(const ptl_handle_ct_t *ct_handles, const ptl_size_t *tests, unsigned int size,
              ptl_time_t timeout, ptl_ct_event_t *event, unsigned int *which);

/** Sets a counting event, and begins what it triggers. */
int PtlCTSet(ptl_handle_ct_t ct_handle, ptl_ct_event_t new_ct);

/** Adds to a counting event, and begins what it triggers. PTL_ARG_INVALID: both numbers of
 *  `increment` are not 0. */
int PtlCTInc(ptl_handle_ct_t ct_handle, ptl_ct_event_t increment);

/* ---- Data movement (section 3.15) ----
 *
 * All of these return at once, and the events or counts of their descriptors say what became of the
 * operation.
 *
 * `local_offset` and `length`: bytes of the memory descriptor. `target_id`, `pt_index`, `match_bits`: the
 * entry; an interface without matching ignores the bits. `remote_offset`: in the entry; an entry with
 * PTL_ME_MANAGE_LOCAL ignores it. `user_ptr` comes back in the initiator's events, `hdr_data` in the
 * target's.
 *
 * PTL_ARG_INVALID: the range is not within the descriptor, or longer than the limits allow; descriptors of
 * different interfaces; no such index; a rank that the map does not have. PTL_NO_SPACE: no memory. PTL_FAIL:
 * the process cannot be reached any more. */

typedef unsigned char ptl_ack_req_t;
#define PTL_NO_ACK_REQ 0
#define PTL_ACK_REQ 1           /**< an event and a count; PTL_ARG_INVALID without an event queue */
#define PTL_CT_ACK_REQ 2        /**< a count: the data is there; PTL_ARG_INVALID without a counting event */
#define PTL_OC_ACK_REQ 3        /**< a count: the operation is over, whatever has become of it */

/** Writes to an entry of another process. */
int PtlPut(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length, ptl_ack_req_t ack_req,
           ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
           ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data);

/** Reads an entry of another process. */
int PtlGet(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length, ptl_process_t target_id,
           ptl_pt_index_t pt_index, ptl_match_bits_t match_bits, ptl_size_t remote_offset, void *user_ptr);

/** Operations. Those before PTL_SWAP are of PtlAtomic() and PtlFetchAtomic(), the others of PtlSwap(). Those
 *  with an operand, from PTL_CSWAP on, are for one element. */
typedef unsigned char ptl_op_t;
#define PTL_MIN 0
#define PTL_MAX 1
#define PTL_SUM 2
#define PTL_PROD 3
#define PTL_LOR 4
#define PTL_LAND 5
#define PTL_BOR 6
#define PTL_BAND 7
#define PTL_LXOR 8
#define PTL_BXOR 9
#define PTL_SWAP 10
#define PTL_CSWAP 11            /**< swap if the operand is equal to the target */
#define PTL_CSWAP_NE 12         /**< if it is not equal */
#define PTL_CSWAP_LE 13         /**< if it is less or equal */
#define PTL_CSWAP_LT 14         /**< if it is less */
#define PTL_CSWAP_GE 15         /**< if it is greater or equal */
#define PTL_CSWAP_GT 16         /**< if it is greater */
#define PTL_MSWAP 17            /**< swap the bits that are set in the operand */
#define PTL_OP_LAST 18

/** Types of elements. Complex numbers have no order, and bits are those of integers: what does not fit is
 *  PTL_ARG_INVALID. */
typedef unsigned char ptl_datatype_t;
#define PTL_INT8_T 0
#define PTL_UINT8_T 1
#define PTL_INT16_T 2
#define PTL_UINT16_T 3
#define PTL_INT32_T 4
#define PTL_UINT32_T 5
#define PTL_FLOAT 6
#define PTL_INT64_T 7
#define PTL_UINT64_T 8
#define PTL_DOUBLE 9
#define PTL_FLOAT_COMPLEX 10
#define PTL_DOUBLE_COMPLEX 11
#define PTL_LONG_DOUBLE 12
#define PTL_LONG_DOUBLE_COMPLEX 13
#define PTL_DATATYPE_LAST 14

/** Combines elements with those of an entry. PTL_ARG_INVALID: also if `length` is not one of whole elements,
 *  or there is no such operation on that type. */
int PtlAtomic(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length, ptl_ack_req_t ack_req,
              ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
              ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data, ptl_op_t operation,
              ptl_datatype_t datatype);

/** As PtlAtomic(), and returns in the memory of `get_md_handle` what was there before. The two ranges must
 *  not overlap. */
int PtlFetchAtomic(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset, ptl_handle_md_t put_md_handle,
                   ptl_size_t local_put_offset, ptl_size_t length, ptl_process_t target_id,
                   ptl_pt_index_t pt_index, ptl_match_bits_t match_bits, ptl_size_t remote_offset,
                   void *user_ptr, ptl_hdr_data_t hdr_data, ptl_op_t operation, ptl_datatype_t datatype);

/** As PtlFetchAtomic(), and swaps. `operand`: an element of that type, copied; PTL_SWAP does not look at it,
 *  all others need it. */
int PtlSwap(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset, ptl_handle_md_t put_md_handle,
            ptl_size_t local_put_offset, ptl_size_t length, ptl_process_t target_id, ptl_pt_index_t pt_index,
            ptl_match_bits_t match_bits, ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data,
            const void *operand, ptl_op_t operation, ptl_datatype_t datatype);

/** When it returns, this process sees all atomic operations on its memory that have ended, and may change
 *  that memory. */
int PtlAtomicSync(void);

/* ---- Events (section 3.13) ---- */

typedef unsigned char ptl_event_kind_t;
#define PTL_EVENT_GET 0         /**< at the target, as those up to PTL_EVENT_FETCH_ATOMIC_OVERFLOW */
#define PTL_EVENT_GET_OVERFLOW 1        /**< overflow: an entry has found an unexpected operation */
#define PTL_EVENT_PUT 2
#define PTL_EVENT_PUT_OVERFLOW 3
#define PTL_EVENT_ATOMIC 4
#define PTL_EVENT_ATOMIC_OVERFLOW 5
#define PTL_EVENT_FETCH_ATOMIC 6        /**< swaps, too */
#define PTL_EVENT_FETCH_ATOMIC_OVERFLOW 7
#define PTL_EVENT_REPLY 8       /**< at the initiator: the data has come */
#define PTL_EVENT_SEND 9        /**< at the initiator: the memory may be used again */
#define PTL_EVENT_ACK 10        /**< at the initiator: the operation is over */
#define PTL_EVENT_PT_DISABLED 11        /**< flow control: a resource has run out, PtlPTEnable() goes on */
#define PTL_EVENT_LINK 12       /**< an entry is in its list */
#define PTL_EVENT_AUTO_UNLINK 13        /**< an entry was used up */
#define PTL_EVENT_AUTO_FREE 14  /**< no more events of an overflow entry that was used up */
#define PTL_EVENT_SEARCH 15     /**< of PTL_SEARCH_ONLY, or PTL_NI_NO_MATCH */

/** Why an operation failed (section 3.13). */
typedef unsigned char ptl_ni_fail_t;
#define PTL_NI_OK 0
#define PTL_NI_UNDELIVERABLE 1  /**< the process could not be reached, or has ended */
#define PTL_NI_DROPPED 2        /**< no entry took it */
#define PTL_NI_PT_DISABLED 3
#define PTL_NI_PERM_VIOLATION 4
#define PTL_NI_OP_VIOLATION 5
#define PTL_NI_NO_MATCH 6       /**< a search has found nothing */
#define PTL_NI_SEGV 7           /**< memory that is not mapped; this library does not return it */

/** An event. What its type does not define is 0:
 *
 *  | type | defined, beside `type` and `ni_fail_type` |
 *  |---|---|
 *  | SEND | user_ptr |
 *  | ACK, REPLY | user_ptr, mlength, remote_offset, ptl_list of one that succeeded |
 *  | operations at the target, overflow, SEARCH | all; atomic_* of atomics and swaps, hdr_data not of GET |
 *  | SEARCH with PTL_NI_NO_MATCH | user_ptr, pt_index |
 *  | LINK, AUTO_UNLINK, AUTO_FREE | user_ptr, pt_index, ptl_list |
 *  | PT_DISABLED | pt_index | */
typedef struct {
    void *start;                /**< where the data is, or with PTL_IOVEC the offset there */
    void *user_ptr;             /**< of the entry, of the search or of the operation */
    ptl_hdr_data_t hdr_data;    /**< not of a get */
    ptl_match_bits_t match_bits;
    ptl_size_t rlength;         /**< bytes that were asked for */
    ptl_size_t mlength;         /**< bytes that were moved */
    ptl_size_t remote_offset;   /**< target: as the initiator asked; initiator: as the target used it */
    ptl_process_t initiator;
    ptl_uid_t uid;              /**< of the initiator */
    ptl_pt_index_t pt_index;
    ptl_event_kind_t type;
    ptl_list_t ptl_list;
    ptl_ni_fail_t ni_fail_type;
    ptl_op_t atomic_operation;
    ptl_datatype_t atomic_type;
} ptl_event_t;

/** Makes an event queue with room for `count` events at least. An event that finds it full is lost, unless
 *  its table has PTL_PT_FLOWCTRL. PTL_NO_SPACE. */
int PtlEQAlloc(ptl_handle_ni_t ni_handle, ptl_size_t count, ptl_handle_eq_t *eq_handle);

/** Frees an event queue. Events that would go there are not told any more. Threads that wait for it return
 *  PTL_INTERRUPTED. */
int PtlEQFree(ptl_handle_eq_t eq_handle);

/** Takes the oldest event. PTL_EQ_EMPTY: there is none. PTL_EQ_DROPPED: as PTL_OK, and events before it were
 *  lost. */
int PtlEQGet(ptl_handle_eq_t eq_handle, ptl_event_t *event);

/** As PtlEQGet(), and waits for an event. PTL_INTERRUPTED. PTL_ABORTED. */
int PtlEQWait(ptl_handle_eq_t eq_handle, ptl_event_t *event);

/** As PtlEQWait(), for any of `size` queues of one interface. `which`: the index of the event's queue.
 *  `timeout`: milliseconds, or PTL_TIME_FOREVER. PTL_EQ_EMPTY: the time is over. PTL_ARG_INVALID: also if
 *  `size` is 0. */
int PtlEQPoll(const ptl_handle_eq_t *eq_handles, unsigned int size, ptl_time_t timeout, ptl_event_t *event,
              unsigned int *which);

/* ---- Triggered operations (section 3.16) ----
 *
 * As the operation of that name, when the successes and failures of `trig_ct_handle` are together at least
 * `threshold`: at once if they are. Operations of one counting event begin in the order of their thresholds,
 * then of these calls. They begin while the program computes, if the library's processor works by itself
 * (docs/portals.md). PTL_NO_SPACE: as many wait as the limits allow. PTL_ARG_INVALID: also for a counting
 * event of another interface. */

int PtlTriggeredPut(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
                    ptl_ack_req_t ack_req, ptl_process_t target_id, ptl_pt_index_t pt_index,
                    ptl_match_bits_t match_bits, ptl_size_t remote_offset, void *user_ptr,
                    ptl_hdr_data_t hdr_data, ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold);

int PtlTriggeredGet(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
                    ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
                    ptl_size_t remote_offset, void *user_ptr, ptl_handle_ct_t trig_ct_handle,
                    ptl_size_t threshold);

int PtlTriggeredAtomic(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
                       ptl_ack_req_t ack_req, ptl_process_t target_id, ptl_pt_index_t pt_index,
                       ptl_match_bits_t match_bits, ptl_size_t remote_offset, void *user_ptr,
                       ptl_hdr_data_t hdr_data, ptl_op_t operation, ptl_datatype_t datatype,
                       ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold);

int PtlTriggeredFetchAtomic(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset,
                            ptl_handle_md_t put_md_handle, ptl_size_t local_put_offset, ptl_size_t length,
                            ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
                            ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data,
                            ptl_op_t operation, ptl_datatype_t datatype, ptl_handle_ct_t trig_ct_handle,
                            ptl_size_t threshold);

int PtlTriggeredSwap(ptl_handle_md_t get_md_handle, ptl_size_t local_get_offset,
                     ptl_handle_md_t put_md_handle, ptl_size_t local_put_offset, ptl_size_t length,
                     ptl_process_t target_id, ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
                     ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data, const void *operand,
                     ptl_op_t operation, ptl_datatype_t datatype, ptl_handle_ct_t trig_ct_handle,
                     ptl_size_t threshold);

int PtlTriggeredCTInc(ptl_handle_ct_t ct_handle, ptl_ct_event_t increment, ptl_handle_ct_t trig_ct_handle,
                      ptl_size_t threshold);

int PtlTriggeredCTSet(ptl_handle_ct_t ct_handle, ptl_ct_event_t new_ct, ptl_handle_ct_t trig_ct_handle,
                      ptl_size_t threshold);

/** As PtlMEAppend(), later. The handle is valid at once. Until the entry links, no operation finds it.
 *  Not of the specification: the reference implementation has it, as the next one. */
int PtlTriggeredMEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, const ptl_me_t *me,
                         ptl_list_t ptl_list, void *user_ptr, ptl_handle_me_t *me_handle,
                         ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold);

/** As PtlMEUnlink(), later. An entry that is in use then stays linked. */
int PtlTriggeredMEUnlink(ptl_handle_me_t me_handle, ptl_handle_ct_t trig_ct_handle, ptl_size_t threshold);

/* ---- Bundles and handles (sections 3.17 and 3.18) ---- */

/** A hint that several operations follow, up to PtlEndBundle(). May be nested. This library sends each
 *  operation at once all the same. */
int PtlStartBundle(ptl_handle_ni_t ni_handle);
int PtlEndBundle(ptl_handle_ni_t ni_handle);

/** Returns 1 if two handles name the same object, else 0. */
int PtlHandleIsEqual(ptl_handle_any_t handle1, ptl_handle_any_t handle2);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* PORTALS4_H_INCLUDED */
