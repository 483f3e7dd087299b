/*
 * The ch3:offload channel. What its C files share. Everything here is called inside MPICH's global critical
 * section, unless said otherwise.
 */

#ifndef MPIDI_CH3_IMPL_H_INCLUDED
#define MPIDI_CH3_IMPL_H_INCLUDED

#include "mpidimpl.h"
#include <ch3_offload.h>
#include <ch3_offload_windows.h>

#if defined(MPICH_IS_THREADED) && MPICH_THREAD_GRANULARITY != MPICH_THREAD_GRANULARITY__GLOBAL
#error "ch3:offload needs MPICH's global critical section: configure with --enable-thread-cs=global"
#endif

/* CH3's hooks around accumulates, for windows that several processes write directly. */
#define MPIDI_CH3I_SHM_MUTEX_LOCK(win_ptr) MPIDI_CH3I_Win_lock_mutex(win_ptr)
#define MPIDI_CH3I_SHM_MUTEX_UNLOCK(win_ptr) MPIDI_CH3I_Win_unlock_mutex(win_ptr)

/* The engine of this process. NULL before MPIDI_CH3_Init and after MPIDI_CH3_Finalize. */
extern ch3_offload_channel_t *MPIDI_CH3I_channel;
/* Where its completions wait. Valid while there is an engine. */
extern ch3_offload_events_t *MPIDI_CH3I_events;

/* ---- ch3_init.c ---- */

/* Answers the engine. */
void MPIDI_CH3I_Card_wanted(uint32_t peer);
void MPIDI_CH3I_Lane_made(uint32_t peer);
/* Says it on stderr, once. */
void MPIDI_CH3I_Warn(const char *text);

/* ---- ch3_process_manager.c ---- */

#define MPIDI_CH3I_CARD_BYTES 432
/* MPI is initialised, for the first time or once more. Before the others here. */
void MPIDI_CH3I_Process_manager_init(void);
/* Fills bytes with random ones. FALSE: the system has none. */
int MPIDI_CH3I_Random_bytes(unsigned char *bytes, size_t count);
/* Collective: a secret of this job's processes. `nic`, the first letter of this process's
 * MPIR_CVAR_CH3_OFFLOAD_NIC, becomes that of rank 0. */
int MPIDI_CH3I_Share_secret(unsigned char *secret, char *nic);
/* Collective. Replaces "auto" by what is agreed on. `nic` becomes 'p' if that is "process". */
int MPIDI_CH3I_Agree_on_nic(ch3_offload_config_t * config, char *nic);
/* Collective: says by which card this process is reached, and waits until everybody has. */
int MPIDI_CH3I_Publish_card(const char *card);
/* "": it cannot be had. */
void MPIDI_CH3I_Get_card(int peer, char *card);

/* The ranks in MPI_COMM_WORLD of processes that the process manager knows to have failed, as "1,3-5". The
 * caller frees it. NULL: it says nothing. */
char *MPIDI_CH3I_Dead_processes(void);

/* ---- match bits: context << 32 | tag. The initiator is the sender's rank in the communicator. ---- */

#define MPIDI_CH3I_TAG_BITS     UINT64_C(0x00000000FFFFFFFF)
#define MPIDI_CH3I_ANY_RANK     UINT32_MAX      /* in an ignore mask */

/* A context of 16 bits leaves room: the messages of partitioned communication (ch3_partitioned.c) have the
 * communicator's context with one of these. */
#define MPIDI_CH3I_PARTITIONED_GREETING (4 << 28)
#define MPIDI_CH3I_PARTITIONED_ANSWER   (5 << 28)
#define MPIDI_CH3I_PARTITIONED_DATA     (6 << 28)
#define MPIDI_CH3I_PARTITIONED_MASK     (7 << 28)

static inline ch3_offload_match_t MPIDI_CH3I_Match(int context_id, int rank, int tag)
{
    ch3_offload_match_t match = { (uint64_t) (uint32_t) context_id << 32 | (uint32_t) tag, (uint32_t) rank };
    return match;
}

/* What a receive or a probe matches: wildcards become ignored bits. */
static inline ch3_offload_match_t MPIDI_CH3I_Receive_match(int context_id, int source, int tag,
                                                           ch3_offload_match_t * ignore)
{
    ignore->bits = tag == MPI_ANY_TAG ? MPIDI_CH3I_TAG_BITS : 0;
    ignore->initiator = source == MPI_ANY_SOURCE ? MPIDI_CH3I_ANY_RANK : 0;
    return MPIDI_CH3I_Match(context_id, source, tag);
}

#define MPIDI_CH3I_Match_source(match_) ((int) (match_).initiator)
#define MPIDI_CH3I_Match_tag(match_)    ((int) (int32_t) (uint32_t) (match_).bits)

/* The error bits that MPICH hides in tags; they never take part in matching. */
uint64_t MPIDI_CH3I_Error_bits(void);

/* ---- ch3_classes.c ---- */

/* The match bits that name a communicator. */
uint64_t MPIDI_CH3I_Channel_bits(void);
void MPIDI_CH3I_Classes_init(void);
/* The communicator is complete: its class, if it got one before, holds from now on. */
void MPIDI_CH3I_Apply_class(MPIR_Comm * comm);
/* The communicator ends: its context id is another's from now on. */
void MPIDI_CH3I_Forget_class(MPIR_Comm * comm);

/* ---- ch3_layout.c ---- */

/* The same as MPIDI_CH3I_Payload, of any datatype. */
int MPIDI_CH3I_Payload_of_type(const void *buf, MPI_Aint count, MPI_Datatype datatype, MPIR_Request * req,
                               ch3_offload_payload_t * payload);

/* Describes a buffer to the engine. If payload->layout is not NULL, the engine reads parts of the
 * datatype until the operation is over: a request that is pending must hold the datatype
 * (MPIDI_CH3I_Hold_datatype), and MPIDI_CH3I_End_walk must follow the operation. Fails without memory,
 * and has then no effect. */
static inline int MPIDI_CH3I_Payload(const void *buf, MPI_Aint count, MPI_Datatype datatype,
                                     MPIR_Request * req, ch3_offload_payload_t * payload)
{
    if (unlikely(!HANDLE_IS_BUILTIN(datatype)))
        return MPIDI_CH3I_Payload_of_type(buf, count, datatype, req, payload);
    payload->length_bytes = count * MPIR_Datatype_get_basic_size(datatype);
    payload->address = payload->length_bytes == 0 ? NULL : (void *) buf;
    payload->layout = NULL;
    return MPI_SUCCESS;
}

/* The same without a request. FALSE: it is one that has to be packed. Whoever gives the payload to the engine
 * must hold the datatype. */
int MPIDI_CH3I_Plain_payload(const void *buf, MPI_Aint count, MPI_Datatype datatype,
                             ch3_offload_payload_t * payload);

/* Frees the request's walk, if it has one. To be called when its operation is over. */
void MPIDI_CH3I_Free_walk(MPIR_Request * req);
static inline void MPIDI_CH3I_End_walk(MPIR_Request * req)
{
    if (unlikely(req->ch.walk != NULL))
        MPIDI_CH3I_Free_walk(req);
}

/* How many bytes at the end of what was received are no whole basic element, as far as the walk knows. */
MPI_Aint MPIDI_CH3I_Bytes_at_edge(const struct MPIDI_CH3I_Walk *walk);

/* Takes a reference to the request's datatype, so that the user may free it while the request is
 * pending. MPID_Request_destroy_hook gives it back. */
void MPIDI_CH3I_Hold_datatype(MPIR_Request * req);

/* ---- ch3_send.c ---- */

extern MPIDI_Comm_ops_t MPIDI_CH3I_comm_ops;
void MPIDI_CH3I_Send_finalize(void);
void MPIDI_CH3I_Send_done(MPIR_Request * sreq, int status);
void MPIDI_CH3I_Cancel_done(MPIR_Request * sreq, int cancelled);

/* Sends bytes to the programs of a processor, the own one too (ch3_modules.c). They must stay until the
 * request is complete. request_to_own: what a process asks of its own. Fails if the process is dead. */
int MPIDI_CH3I_Send_to_module(const void *buf, MPI_Aint count, int rank, MPIR_Comm * comm, int request_to_own,
                              MPIR_Request ** request);

/* ---- ch3_schedules.c ---- */

void MPIDI_CH3I_Schedules_init(void);
void MPIDI_CH3I_Schedule_done(struct MPIDU_Sched *s, int status);
void MPIDI_CH3I_Schedules_finalize(void);

/* ---- ch3_partitioned.c ---- */

static inline int MPIDI_CH3I_Is_partitioned(const MPIR_Request * request)
{
    return request->kind == MPIR_REQUEST_KIND__PART_SEND || request->kind == MPIR_REQUEST_KIND__PART_RECV;
}

/* The user has freed the request of a partitioned operation. */
void MPIDI_CH3I_Partitioned_freed(MPIR_Request * request);
void MPIDI_CH3I_Partitioned_finalize(void);

/* ---- ch3_recvq.c, ch3_recvq_purge.c ---- */

void MPIDI_CH3I_Receive_done(const ch3_offload_event_t * event);
int MPIDI_CH3I_Imrecv(MPIDI_VC_t * vc, MPIR_Request * rreq);
/* Completes the posted receives from ANY_SOURCE for which MPIDI_CH3I_Fails_any_source() holds. */
void MPIDI_CH3I_Fail_any_source(void);
void MPIDI_CH3I_Recvq_purge_init(void);
/* Drops what has arrived for collectives of comm with that tag, and fails what waits for it. */
void MPIDI_CH3I_Drop_tagged(MPIR_Comm * comm, int tag);
/* Drops what has arrived for comm, and fails what waits for it. */
void MPIDI_CH3I_Drop_all(MPIR_Comm * comm);
/* Fails the receives of all kinds in that context from source, a rank that is dead; MPI_ANY_SOURCE: those
 * that name no source. */
void MPIDI_CH3I_Fail_receives(int context_id, int source);
/* Drops what has arrived for revoked communicators. Cheap when none is. */
void MPIDI_CH3I_Drop_revoked(void);

/* ---- ch3_worlds.c, ch3_foreign.c ---- */

#define MPIDI_CH3I_NO_PEER UINT32_MAX
typedef struct MPIDI_CH3I_Root MPIDI_CH3I_Root_t;
/* Finds the number of a process of another world, which is sought from now on. Without one, ends the job. */
uint32_t MPIDI_CH3I_Find_peer(MPIDI_VC_t * vc);
/* The engine's number of the process. */
static inline uint32_t MPIDI_CH3I_Peer(MPIDI_VC_t * vc)
{
    return likely(vc->ch.peer != MPIDI_CH3I_NO_PEER) ? vc->ch.peer : MPIDI_CH3I_Find_peer(vc);
}

/* TRUE: processes of other worlds are known. */
extern int MPIDI_CH3I_knows_others;
/* A message of that process, or of any, is awaited: from now on its death would be noticed. */
void MPIDI_CH3I_Watch(MPIR_Comm * comm, int source);

/* Whether all processes of an intracommunicator are of this world. */
int MPIDI_CH3I_Is_of_one_world(MPIR_Comm * comm);

/* ---- ch3_comm.c ---- */

void MPIDI_CH3I_Split_type_init(void);

/* As MPI's, of one buffer in place of two. An error of any process is one here, if it became known. */
int MPIDI_CH3I_Allgather(void *all, MPI_Aint count, MPI_Datatype type, MPIR_Comm * comm);
int MPIDI_CH3I_Allreduce(void *values, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPIR_Comm * comm);
int MPIDI_CH3I_Bcast(void *values, MPI_Aint count, MPI_Datatype type, int root, MPIR_Comm * comm);

/* Chooses the algorithm of MPI_Barrier within a node; see ch3_barrier.c. */
void MPIDI_CH3I_Barrier_init(void);

/* ---- ch3_shared_segment.c: memory that the processes of a node share ---- */

/* Collective over the processes of a node. Makes a segment of segment->bytes and maps it in all of them.
 * scratch: MPIDI_CH3I_Segment_scratch_bytes() zeros for each process of the node; the caller's. *failure
 * is what has failed in this process, before or here; 0: nothing. The highest of several is the one to
 * report. Errors of the collectives go to *mpi_errno. Another collective is needed to know whether all
 * processes have the segment. */
void MPIDI_CH3I_Segment_share(MPIR_Comm * node, MPIDI_CH3I_Segment * segment, void *scratch, int *failure,
                              int *mpi_errno);
size_t MPIDI_CH3I_Segment_scratch_bytes(void);
/* The failure of an allocation, or of a size that no memory has. */
int MPIDI_CH3I_Segment_no_memory(void);
/* Whether a failure is about memory, rather than about sharing it. */
int MPIDI_CH3I_Segment_lacks_memory(int failure);
/* What failed, to be put behind "rank N ". */
void MPIDI_CH3I_Segment_describe(int failure, char *text, size_t capacity);
void MPIDI_CH3I_Segment_release(MPIDI_CH3I_Segment * segment);
/* What a segment begins with; a page. */
size_t MPIDI_CH3I_Segment_header_bytes(void);
/* These survive the death of the process that holds the mutex. */
int MPIDI_CH3I_Segment_init_mutex(pthread_mutex_t * mutex);
void MPIDI_CH3I_Segment_lock(pthread_mutex_t * mutex);
void MPIDI_CH3I_Segment_unlock(pthread_mutex_t * mutex);

/* ---- ch3_shared_windows.c: the functions of MPIDI_CH3U_Win_fns_t and MPIDI_CH3U_Win_hooks_t ---- */

int MPIDI_CH3I_Win_init(MPI_Aint size, int disp_unit, int create_flavor, int model, MPIR_Info * info,
                        MPIR_Comm * comm, MPIR_Win ** win_ptr);
/* Windows of MPI_Win_allocate and MPI_Win_allocate_shared. Fails on all ranks if it does on one.
 * MPI_ERR_NO_MEM: there is no memory of that size. MPI_ERR_RMA_SHARED: the processes cannot share it;
 * MPI_Win_allocate does without then. */
int MPIDI_CH3I_Win_allocate(MPI_Aint size, int disp_unit, MPIR_Info * info, MPIR_Comm * user_comm,
                            void *base_ptr, MPIR_Win ** win_ptr);
int MPIDI_CH3I_Win_detect(MPIR_Win ** win_ptr);
/* Collective: the window's table of all processes, for windows of every kind. base == NULL where
 * MPI_Win_allocate needs memory, or no memory for the table: MPI_ERR_NO_MEM on all ranks. */
int MPIDI_CH3I_Win_gather_info(void *base, MPI_Aint size, int disp_unit, MPIR_Info * info,
                               MPIR_Comm * user_comm, MPIR_Win ** win_ptr);
int MPIDI_CH3I_Win_shared_query(MPIR_Win * win, int rank, MPI_Aint * size, int *disp_unit, void *base_ptr);
int MPIDI_CH3I_Win_free(MPIR_Win ** win_ptr);
/* The worst failure of all ranks (ch3_shared_segment.c); 0: none. */
typedef struct {
    int failure;
    int rank;
} MPIDI_CH3I_Worst_t;
/* Collective: all processes of the communicator learn the worst failure of all. */
int MPIDI_CH3I_Agree(MPIR_Comm * comm, MPIDI_CH3I_Worst_t * worst);
/* Around each accumulate into memory that other processes write, too. */
void MPIDI_CH3I_Win_lock_mutex(MPIR_Win * win);
void MPIDI_CH3I_Win_unlock_mutex(MPIR_Win * win);

/* ---- ch3_mapped_windows.c: windows of MPI_Win_create on memory of MPI_Alloc_mem ---- */

/* Collective in each node: loads and stores serve the window there if all of its memory can be mapped. It is
 * no error if not. */
int MPIDI_CH3I_Win_map(MPIR_Win * win, MPIR_Info * info);
/* Ends that. REQUIRES: win->ch.is_mapped. */
void MPIDI_CH3I_Win_unmap(MPIR_Win * win);

/* ---- ch3_rma_failure.c: one-sided communication with a process that has died ---- */

/* All waits of CH3's one-sided communication are calls of wait_progress_engine(). Its definition in mpidrma.h
 * knows neither window nor target. But all its callers have the window as win_ptr (MPID_Win_free: its
 * address), and those that wait for one target have its rank as dest; elsewhere dest is the constant here,
 * or no int. So the calls become calls of MPIDI_CH3I_Win_wait(), and the definition gets another name. */
#define wait_progress_engine(void_) MPIDI_CH3I_WAIT_PROGRESS_ENGINE_##void_
#define MPIDI_CH3I_WAIT_PROGRESS_ENGINE_void MPIDI_CH3I_unused_wait_progress_engine(void)
#define MPIDI_CH3I_WAIT_PROGRESS_ENGINE_                                                                    \
    _Generic((win_ptr), MPIR_Win *: MPIDI_CH3I_Win_wait, MPIR_Win **: MPIDI_CH3I_Win_wait_to_free)          \
        (win_ptr, _Generic((dest), int: (dest), default: -1))
enum { dest = -1 };

/* Waits for progress. MPIX_ERR_PROC_FAILED: what is waited for needs a dead process. target_rank: the wait
 * is for operations and the lock of that process; negative: for everything that the window waits for. */
int MPIDI_CH3I_Win_wait(MPIR_Win * win, int target_rank);
/* As MPIDI_CH3I_Win_wait, in MPI_Win_free, which needs all processes of the window. */
int MPIDI_CH3I_Win_wait_to_free(MPIR_Win ** win, int target_rank);
/* Dead processes, packets that were not sent, and refused locks so far. 0: MPIDI_CH3I_Fail_lost_targets and
 * MPIDI_CH3I_Packets_fail_unsent have nothing to do. */
extern int MPIDI_CH3I_losses;
/* Fails the operations whose target cannot answer any more. Not called inside CH3's functions that issue
 * or handle operations. */
int MPIDI_CH3I_Fail_lost_targets(void);
/* Completes a request of a packet or of the answer to one with an error, and so the user's request of the
 * operation. */
void MPIDI_CH3I_Fail_request(MPIR_Request * req, int mpi_errno);
/* All windows: the active ones, then the others. NULL: there is no other. */
MPIR_Win *MPIDI_CH3I_First_window(void);
MPIR_Win *MPIDI_CH3I_Next_window(MPIR_Win * win);

/* ---- ch3_windows.c, ch3_window_locks.c: windows that the network processor serves ---- */

/* An operation on such a window. */
typedef struct MPIDI_CH3I_Window_op {
    struct MPIDI_CH3I_Window_op *next;  /* of those that are free */
    MPIR_Win *win;
    int rank;
    int parts;                  /* that are not over */
    int status;                 /* ch3_offload_status_t: the first failure */
    MPIR_Request *request;      /* the user's, or NULL */
    /* Called when all parts are over. is_ok: all were done. NULL: there is nothing to do. */
    int (*end) (struct MPIDI_CH3I_Window_op * op, int is_ok);
    void *source;               /* a copy of what was not contiguous, or NULL */
    void *result;               /* likewise, to be unpacked: so many elements of a predefined type */
    MPI_Aint staged_count;
    MPI_Datatype staged_type;
    void *place;                /* where to */
    MPI_Aint place_count;
    MPI_Datatype place_type;
} MPIDI_CH3I_Window_op;

/* Exposes this process's memory of the window. Returns its number; -1: it cannot be served. */
int MPIDI_CH3I_Window_expose(MPIR_Win * win);
/* All processes have exposed theirs: from now on the window is served. Again when it is found to be
 * shared. */
void MPIDI_CH3I_Window_serve(MPIR_Win * win);
/* Ends both. No process uses the window. */
void MPIDI_CH3I_Window_withdraw(MPIR_Win * win);
void MPIDI_CH3I_Windows_finalize(void);

/* A new operation, with one part: the caller's, which ends with MPIDI_CH3I_Window_part_over. NULL: no
 * memory. */
MPIDI_CH3I_Window_op *MPIDI_CH3I_Window_op_make(MPIR_Win * win, int rank, MPIR_Request * request);
/* Begins a part; fills in peer, window and cookie. May make progress first, if many operations are under
 * way. */
int MPIDI_CH3I_Window_begin(MPIDI_CH3I_Window_op * op, ch3_offload_window_operation_t * part);
/* The same, in runs (ch3_offload_window_begin_runs()). */
int MPIDI_CH3I_Window_begin_runs(MPIDI_CH3I_Window_op * op, ch3_offload_window_operation_t * part,
                                 size_t block_bytes, uint64_t stride_bytes);
/* A part is over: the event of the engine says so. With the last one, the operation is, too. */
void MPIDI_CH3I_Window_part_over(MPIDI_CH3I_Window_op * op, int status);
/* Waits until the operations on a target, or on all (rank < 0), are over. Returns a failure of one that
 * has no request. */
int MPIDI_CH3I_Window_wait(MPIR_Win * win, int rank);
/* The failure of such an operation on that target, once. */
int MPIDI_CH3I_Window_take_failure(MPIR_Win * win, int rank);
/* Returns when the epoch lets this process access that target. MPI_ERR_RMA_SYNC: there is no epoch for it. */
int MPIDI_CH3I_Window_enter(MPIR_Win * win, int rank);
/* Operations on oneself are over when their call returns, as CH3's are: a program may free their memory.
 * Waits for them if `rank` is this process. */
int MPIDI_CH3I_Window_settle_own(MPIR_Win * win, int rank);

/* ---- ch3_win_fns.c: threads at windows that CH3 serves ---- */

typedef struct MPIDI_CH3I_Turn {
    struct MPIDI_CH3I_Turn *next;
    const MPIR_Win *win;
    int rank;                   /* negative: all */
} MPIDI_CH3I_Turn_t;
/* Waits until no other thread has a turn at that target of the window (negative: at any), and takes it. */
int MPIDI_CH3I_Turn_take(MPIDI_CH3I_Turn_t * turn, const MPIR_Win * win, int rank);
void MPIDI_CH3I_Turn_give(MPIDI_CH3I_Turn_t * turn);

/* Whether loads and stores of this process reach the memory of another one. */
static inline int MPIDI_CH3I_Window_is_near(const MPIR_Win * win, int rank)
{
    return win->shm_allocated && MPIDI_CH3I_NODE_RANK(win->comm_ptr, rank) >= 0;
}

/* Where loads and stores reach the target, puts, gets and flushes poll nothing. Whoever does them in a loop
 * must not keep others waiting. So a flush polls once in MPIDI_CH3I_SILENT_WORK: each flush counts as 1, and
 * so do MPIDI_CH3I_SILENT_BYTES bytes. Within the global critical section. */
#define MPIDI_CH3I_SILENT_WORK 32
#define MPIDI_CH3I_SILENT_BYTES 4096
extern size_t MPIDI_CH3I_silent_work;

/* ---- ch3_rma_locks.c: locks whose holders have died ---- */

/* In the flags of a LOCK_ACK packet, and in the lock_mode of a target: the lock will not be granted. */
#define MPIDI_CH3I_LOCK_BROKEN (1 << 30)
/* A packet of the peer has come: notes if it asks for a lock or gives it back. MPI_ERR_NO_MEM: no memory
 * for the note. */
int MPIDI_CH3I_Lock_packet(MPIDI_VC_t * vc, MPIDI_CH3_Pkt_t * pkt);
/* The packet says that this process will not get a lock. */
void MPIDI_CH3I_Lock_refused(const MPIDI_CH3_Pkt_lock_ack_t * pkt);
/* If the lock of the window's memory is broken, tells so whoever waits for it. */
int MPIDI_CH3I_Refuse_waiters(MPIR_Win * win);
/* The peer is dead: takes it out of the queues for locks, and breaks those that it held. */
int MPIDI_CH3I_Locks_fail(MPIDI_VC_t * vc);
/* Drops the notes of the peer's locks. */
void MPIDI_CH3I_Locks_free(MPIDI_VC_t * vc);

/* ---- ch3_packets_send.c, ch3_packets_recv.c ---- */

void MPIDI_CH3I_Packet_sent(MPIR_Request * sreq, int status);
/* Completes the requests of packets that could not be sent. */
void MPIDI_CH3I_Packets_fail_unsent(void);
void MPIDI_CH3I_Packets_fail(MPIDI_VC_t * vc, int mpi_errno);
int MPIDI_CH3I_Packets_idle(void);
int MPIDI_CH3I_Packet_recv_init(void);
void MPIDI_CH3I_Packet_recv(uint32_t peer, const void *bytes, size_t length_bytes);
/* Answers the engine: where the next bytes of the stream belong. */
void MPIDI_CH3I_Packet_offered(uint32_t peer);
void MPIDI_CH3I_Packet_placed(uint32_t peer, size_t length_bytes);
void MPIDI_CH3I_Packet_recv_fail(MPIDI_VC_t * vc, int mpi_errno);

/* ---- ch3_progress.c ---- */

int MPIDI_CH3I_Progress_init(void);
int MPIDI_CH3I_Progress_drain(void);
int MPIDI_CH3I_Await_progress(void);    /* waits until something has finished */
/* A probe looks now. If it finds nothing, the next unexpected message makes waiting threads look again. */
void MPIDI_CH3I_Probe_looks(void);
void MPIDI_CH3I_Probe_waits(void);
/* Handles all events of the engine. Returns how many there were. */
size_t MPIDI_CH3I_Take_events(void);
/* Handles the completions that wait in the ring, and no other event. May be called outside of progress. */
void MPIDI_CH3I_Take_completions(void);
/* An error of an event's handler, which cannot return it: the next progress call does. */
void MPIDI_CH3I_Defer_error(int mpi_errno);

/* ---- ch3_agreement.c ---- */

/* Adds its handler of packets. */
void MPIDI_CH3I_Agreement_init(MPIDI_CH3_PktHandler_Fcn ** handlers);
void MPIDI_CH3I_Agreement_finalize(void);

/* ---- ch3_shrink.c ---- */

/* A communicator was made: that of MPIX_Comm_shrink, perhaps. */
void MPIDI_CH3I_Note_created(MPIR_Comm * comm);
/* Communicators that others have given up making, and this process has not yet. */
extern int MPIDI_CH3I_abandoned;
/* Whether the receive is of making one of them: then its message does not come. */
int MPIDI_CH3I_Is_abandoned(const MPIR_Comm * comm, int tag);

/* ---- ch3_revocation.c ---- */

int MPIDI_CH3I_Take_revocation(MPIDI_VC_t * vc, const MPIDI_CH3_Pkt_revoke_t * pkt);
/* A communicator was made: it may have been revoked before. */
int MPIDI_CH3I_Revoke_created(MPIR_Comm * comm);
/* Those that the process has sent, and that wait. NULL: all of them. */
void MPIDI_CH3I_Forget_revocations(const MPIDI_VC_t * vc);

/* ---- ch3_failure.c ---- */

/* The communicator of which this process receives messages with that context. NULL: there is none. */
MPIR_Comm *MPIDI_CH3I_Find_communicator(int context_id);
/* Whether this process knows that one of the processes of comm has failed; in an intercommunicator: one of
 * the remote group. */
int MPIDI_CH3I_Has_failed_member(MPIR_Comm * comm);
/* Whether its processes, of an intercommunicator the remote ones, have that connection. */
int MPIDI_CH3I_Has_member(MPIR_Comm * comm, const MPIDI_VC_t * vc);
/* The MPI error of an engine status (ch3_offload_status_t) in an operation with `rank`. */
int MPIDI_CH3I_Error(int status, int rank);
void MPIDI_CH3I_Peer_failed(uint32_t peer, int status);
/* All communicators, the node-local and inter-node parts of others included; linked by dev.ch.next. */
extern MPIR_Comm *MPIDI_CH3I_communicators;
/* Ends everything with a peer that is gone. */
int MPIDI_CH3I_Connection_broken(MPIDI_VC_t * vc, int status);
int MPIDI_CH3I_Failure_init(void);
void MPIDI_CH3I_Failure_finalize(void);
/* Whether a receive that ANY_SOURCE may complete only if some process of comm is dead and unacknowledged: it
 * fails then (MPIR_CVAR_ENABLE_FT=0), rather than wait for a message that may never come. With
 * MPIR_CVAR_ENABLE_FT=1 MPICH itself makes it MPIX_ERR_PROC_FAILED_PENDING. */
static inline int MPIDI_CH3I_Fails_any_source(const MPIR_Comm * comm)
{
    return unlikely(!comm->dev.anysource_enabled) && !MPIR_CVAR_ENABLE_FT;
}

/* ---- probes; the protocol with CH3's probe functions is described in ch3_failure.c ---- */

typedef enum {
    MPIDI_CH3I_PROBE_NONE,
    MPIDI_CH3I_PROBE_PLAIN,     /* MPID_Probe, MPID_Iprobe */
    MPIDI_CH3I_PROBE_MATCHED    /* MPID_Mprobe, MPID_Improbe */
} MPIDI_CH3I_probe_kind_t;

void MPIDI_CH3I_Probe_found_nothing(int source, int context_id, MPIDI_CH3I_probe_kind_t kind);
void MPIDI_CH3I_Probe_found_something(void);
/* At the begin of a progress call: the error that a probe left for it, and the probe that looked just
 * before. */
int MPIDI_CH3I_Probe_error(MPIDI_CH3I_probe_kind_t * looked);
/* At the end of a progress call that does not block. */
void MPIDI_CH3I_Probe_polled(MPIDI_CH3I_probe_kind_t looked, int mpi_errno);
/* Acts on the process manager's news of dead processes (SIGUSR1). */
int MPIDI_CH3I_Failure_poll(void);

/* ---- ch3_cvars.c, ch3_pvars.c ---- */

/* Fills config from the control variables; on failure *message says which and why. */
int MPIDI_CH3I_Settings(ch3_offload_config_t * config, char *message, size_t capacity);
void MPIDI_CH3I_Pvars_init(void);
void MPIDI_CH3I_Pvars_finalize(void);
/* The counter of that name, or NULL. */
const uint64_t *MPIDI_CH3I_Counter(const char *name);

#endif /* MPIDI_CH3_IMPL_H_INCLUDED */
