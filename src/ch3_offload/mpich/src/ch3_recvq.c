/*
 * The ch3:offload channel: the receive queue as the rest of CH3 knows it, in place of ch3u_recvq.c.
 *
 * There is no queue here: the engine matches all messages, also those of a process to itself. A receive
 * that the engine finishes at once is returned as "not found, posted" with a request that is complete
 * already, which MPID_Irecv and MPID_Recv take as well.
 */

#include "mpidi_ch3_impl.h"
#include "mpidi_recvq_statistics.h"

#ifdef HAVE_DEBUGGER_SUPPORT
/* Message queues as a debugger wants them. The engine's cannot be shown in that form. */
static MPIR_Request *no_queue = NULL;
MPIR_Request **const MPID_Recvq_posted_head_ptr = &no_queue;
MPIR_Request **const MPID_Recvq_unexpected_head_ptr = &no_queue;
#endif

/* The stock statistics. Lengths come from the engine; it does not search, so that an attempt is one
 * look-up, and no time is spent on failed ones. */
static unsigned long long PVAR_COUNTER_unexpected_recvq_match_attempts ATTRIBUTE((unused));
static MPIR_T_pvar_timer_t PVAR_TIMER_time_failed_matching_postedq ATTRIBUTE((unused));
static MPIR_T_pvar_timer_t PVAR_TIMER_time_matching_unexpectedq ATTRIBUTE((unused));
unsigned long long PVAR_LEVEL_unexpected_recvq_buffer_size ATTRIBUTE((unused));

static unsigned long long counter_value(const char *name)
{
    const uint64_t *counter = MPIDI_CH3I_channel == NULL ? NULL : MPIDI_CH3I_Counter(name);
    return counter == NULL ? 0 : __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void get_posted_length(void *addr ATTRIBUTE((unused)), void *obj ATTRIBUTE((unused)),
                              int count ATTRIBUTE((unused)), void *value)
{
    *(unsigned *) value = (unsigned) counter_value("posted_depth");
}

static void get_unexpected_length(void *addr ATTRIBUTE((unused)), void *obj ATTRIBUTE((unused)),
                                  int count ATTRIBUTE((unused)), void *value)
{
    *(unsigned *) value = (unsigned) counter_value("unexpected_depth");
}

static void get_unexpected_bytes(void *addr ATTRIBUTE((unused)), void *obj ATTRIBUTE((unused)),
                                 int count ATTRIBUTE((unused)), void *value)
{
    *(unsigned long long *) value = counter_value("unexpected_bytes");
}

static void get_posted_attempts(void *addr ATTRIBUTE((unused)), void *obj ATTRIBUTE((unused)),
                                int count ATTRIBUTE((unused)), void *value)
{
    *(unsigned long long *) value =
        counter_value("received_expected") + counter_value("received_unexpected");
}

static void register_dynamic(MPIR_T_pvar_class_t varclass, MPI_Datatype datatype, const char *name,
                             MPIR_T_pvar_get_value_cb get_value, const char *description) ATTRIBUTE((unused));

/* MPICH 4.0.2's MPIR_T_PVAR_LEVEL_REGISTER_DYNAMIC does not compile: one of its arguments is misspelt. */
static void register_dynamic(MPIR_T_pvar_class_t varclass, MPI_Datatype datatype, const char *name,
                             MPIR_T_pvar_get_value_cb get_value, const char *description)
{
    MPIR_T_PVAR_REGISTER_impl(varclass, datatype, name, NULL, 1, MPI_T_ENUM_NULL,
                              MPI_T_VERBOSITY_USER_DETAIL, MPI_T_BIND_NO_OBJECT,
                              MPIR_T_PVAR_FLAG_READONLY | MPIR_T_PVAR_FLAG_CONTINUOUS, get_value, NULL, "CH3",
                              description);
}

/* MPICH_RECVQ variables exist if MPICH was configured with --enable-mpit-pvars=recvq (or all). */
int MPIDI_CH3U_Recvq_init(void)
{
    static int are_registered = FALSE;  /* which they stay */

    MPIDI_CH3I_Recvq_purge_init();
    if (are_registered)
        return MPI_SUCCESS;
    are_registered = TRUE;
    PVAR_GATED_ACTION(RECVQ,
                      register_dynamic(MPI_T_PVAR_CLASS_LEVEL, MPI_UNSIGNED, "posted_recvq_length",
                                       get_posted_length,
                                       "length of the posted message receive queue"));
    PVAR_GATED_ACTION(RECVQ,
                      register_dynamic(MPI_T_PVAR_CLASS_LEVEL, MPI_UNSIGNED, "unexpected_recvq_length",
                                       get_unexpected_length,
                                       "length of the unexpected message receive queue"));
    PVAR_GATED_ACTION(RECVQ,
                      register_dynamic(MPI_T_PVAR_CLASS_COUNTER, MPI_UNSIGNED_LONG_LONG,
                                       "posted_recvq_match_attempts", get_posted_attempts,
                                       "number of search passes on the posted message receive queue"));
    PVAR_GATED_ACTION(RECVQ,
                      register_dynamic(MPI_T_PVAR_CLASS_LEVEL, MPI_UNSIGNED_LONG_LONG,
                                       "unexpected_recvq_buffer_size", get_unexpected_bytes,
                                       "total buffer size allocated in the unexpected receive queue"));
    MPIR_T_PVAR_COUNTER_REGISTER_STATIC(RECVQ, MPI_UNSIGNED_LONG_LONG, unexpected_recvq_match_attempts,
                                        MPI_T_VERBOSITY_USER_DETAIL, MPI_T_BIND_NO_OBJECT,
                                        (MPIR_T_PVAR_FLAG_READONLY | MPIR_T_PVAR_FLAG_CONTINUOUS), "CH3",
                                        "number of search passes on the unexpected message receive queue");
    MPIR_T_PVAR_TIMER_REGISTER_STATIC(RECVQ, MPI_DOUBLE, time_failed_matching_postedq,
                                      MPI_T_VERBOSITY_USER_DETAIL, MPI_T_BIND_NO_OBJECT,
                                      (MPIR_T_PVAR_FLAG_READONLY | MPIR_T_PVAR_FLAG_CONTINUOUS), "CH3",
                                      "total time spent on unsuccessful search passes on the posted "
                                      "receives queue");
    MPIR_T_PVAR_TIMER_REGISTER_STATIC(RECVQ, MPI_DOUBLE, time_matching_unexpectedq,
                                      MPI_T_VERBOSITY_USER_DETAIL, MPI_T_BIND_NO_OBJECT,
                                      (MPIR_T_PVAR_FLAG_READONLY | MPIR_T_PVAR_FLAG_CONTINUOUS), "CH3",
                                      "total time spent on search passes on the unexpected receive queue");
    return MPI_SUCCESS;
}

/* ---- status and completion ---- */

static MPI_Aint capacity_of(MPIR_Request * rreq)
{
    MPI_Aint size;
    MPIR_Datatype_get_size_macro(rreq->dev.datatype, size);
    return size * rreq->dev.user_count;
}

static inline void set_status(MPI_Status * status, ch3_offload_match_t match, MPI_Aint count)
{
    status->MPI_SOURCE = MPIDI_CH3I_Match_source(match);
    status->MPI_TAG = MPIDI_CH3I_Match_tag(match);
    MPIR_STATUS_SET_COUNT(*status, count);
}

/* The sender of a message says what its rank is: it need not be true. The remote size of an intracommunicator
 * is its size. */
static inline int is_rank_of(MPIR_Comm * comm, int source)
{
    return (unsigned) source < (unsigned) comm->remote_size;
}

/* Having heard from a peer opens its virtual connection, as a packet from it would: both sides must go
 * through the close protocol. */
static void set_source_active(MPIR_Comm * comm, int source)
{
    MPIDI_VC_t *vc;

    if (likely(is_rank_of(comm, source)))
        MPIDI_Comm_get_vc_set_active(comm, source, &vc);
}

static int truncation_error(ch3_offload_match_t match, size_t length_bytes, MPI_Aint capacity)
{
    return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__, __LINE__, MPI_ERR_TRUNCATE,
                                "**truncate", "**truncate %d %d %d %d",
                                MPIDI_CH3I_Match_source(match), MPIDI_CH3I_Match_tag(match),
                                (int) length_bytes, (int) capacity);
}

/* How many bytes at the end of a message are no whole basic element of the receive's datatype. 0 if it has
 * basic elements of several kinds: then nobody counts. */
static MPI_Aint bytes_of_cut_element(MPIR_Request * rreq, MPI_Aint length_bytes)
{
    MPIR_Datatype *type;

    if (!rreq->ch.has_layout)
        return 0;
    if (rreq->ch.walk != NULL)
        return MPIDI_CH3I_Bytes_at_edge(rreq->ch.walk);
    MPIR_Datatype_get_ptr(rreq->dev.datatype, type);
    if (type->basic_type == MPI_DATATYPE_NULL || type->builtin_element_size <= 0)
        return 0;
    return length_bytes % type->builtin_element_size;
}

/* Describes the request's buffer to the engine. */
static inline int describe(MPIR_Request * rreq, ch3_offload_payload_t * payload)
{
    int mpi_errno = MPIDI_CH3I_Payload(rreq->dev.user_buf, rreq->dev.user_count, rreq->dev.datatype, rreq,
                                       payload);

    rreq->ch.has_layout = payload->layout != NULL;
    return mpi_errno;
}

/* Of a receive that may not have got what it had room for. *count is the message's length, and then how much
 * it got. */
static int receive_error(MPIR_Request * rreq, ch3_offload_match_t match, int status, MPI_Aint * count)
{
    size_t length_bytes = *count;
    MPI_Aint cut;

    switch (status) {
        case CH3_OFFLOAD_OK:
            cut = bytes_of_cut_element(rreq, *count);
            if (cut == 0)
                return MPI_SUCCESS;
            *count -= cut;
            return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__, __LINE__, MPI_ERR_TYPE,
                                        "**dtypemismatch", 0);
        case CH3_OFFLOAD_TRUNCATED:
            *count = capacity_of(rreq);
            return truncation_error(match, length_bytes, *count);
        default:
            *count = 0;
            return MPIDI_CH3I_Error(status, MPIDI_CH3I_Match_source(match));
    }
}

/* The engine has finished the receive. */
static inline int complete_receive(MPIR_Request * rreq, ch3_offload_match_t match, size_t length_bytes,
                                   int status)
{
    MPI_Aint count = length_bytes;

    rreq->ch.operation = 0;
    rreq->dev.recv_data_sz = count;
    if (unlikely(status != CH3_OFFLOAD_OK || rreq->ch.has_layout)) {
        rreq->status.MPI_ERROR = receive_error(rreq, match, status, &count);
        MPIDI_CH3I_End_walk(rreq);
    }
    set_status(&rreq->status, match, count);
    set_source_active(rreq->comm, rreq->status.MPI_SOURCE);
    return MPID_Request_complete(rreq);
}

/* The engine took a receive out, because of a revoked communicator or a dead process. */
static int fail_receive(MPIR_Request * rreq, int status)
{
    int mpi_errno = MPI_SUCCESS;

    rreq->ch.operation = 0;
    MPIDI_CH3I_End_walk(rreq);
    if (status == CH3_OFFLOAD_REVOKED)
        MPIR_ERR_SETSIMPLE(mpi_errno, MPIX_ERR_REVOKED, "**revoked");
    else
        MPIR_ERR_SETSIMPLE(mpi_errno, MPIX_ERR_PROC_FAILED, "**proc_failed");
    rreq->status.MPI_ERROR = mpi_errno;
    return MPID_Request_complete(rreq);
}

void MPIDI_CH3I_Receive_done(const ch3_offload_event_t * event)
{
    int mpi_errno;

    if (likely(event->status == CH3_OFFLOAD_OK))
        mpi_errno = complete_receive(event->cookie, event->match, event->length_bytes, CH3_OFFLOAD_OK);
    else if (event->is_cancelled)
        mpi_errno = fail_receive(event->cookie, event->status);
    else
        mpi_errno = complete_receive(event->cookie, event->match, event->length_bytes, event->status);
    if (unlikely(mpi_errno != MPI_SUCCESS))
        MPIDI_CH3I_Defer_error(mpi_errno);
}

/* ---- receives ---- */

static MPIR_Request *create_rreq(int source, int tag, int context_id, MPIR_Comm * comm)
{
    int mpi_errno ATTRIBUTE((unused)) = MPI_SUCCESS;
    MPIR_Request *rreq;

    MPIDI_Request_create_rreq(rreq, mpi_errno, return NULL);
    rreq->dev.match.parts.tag = tag;
    rreq->dev.match.parts.rank = source;
    rreq->dev.match.parts.context_id = context_id;
    rreq->comm = comm;
    MPIR_Comm_add_ref(comm);
    return rreq;
}

/* A receive from a dead process, or from any with a dead one among them, for which nothing waits here, or
 * for a communicator that others have given up making: fails at once. */
static int source_is_dead(int source, ch3_offload_match_t match, ch3_offload_match_t ignore, MPIR_Comm * comm,
                          int *mpi_errno)
{
    ch3_offload_envelope_t envelope;

    if (unlikely(MPIDI_CH3I_abandoned > 0) && MPIDI_CH3I_Is_abandoned(comm, MPIDI_CH3I_Match_tag(match))) {
        MPIR_ERR_SETSIMPLE(*mpi_errno, MPIX_ERR_REVOKED, "**revoked");
        return TRUE;
    }
    if (source == MPI_ANY_SOURCE) {
        if (likely(!MPIDI_CH3I_Fails_any_source(comm)))
            return FALSE;
    } else {
        MPIDI_VC_t *vc;
        MPIDI_Comm_get_vc(comm, source, &vc);
        if (likely(!vc->ch.peer_failed))
            return FALSE;
    }
    if (ch3_offload_probe(MPIDI_CH3I_channel, match, ignore, &envelope))
        return FALSE;
    MPIR_ERR_SETSIMPLE(*mpi_errno, MPIX_ERR_PROC_FAILED, "**proc_failed");
    return TRUE;
}

MPIR_Request *MPIDI_CH3U_Recvq_FDU_or_AEP(int source, int tag, int context_id, MPIR_Comm * comm,
                                          void *user_buf, MPI_Aint user_count, MPI_Datatype datatype,
                                          int *foundp)
{
    int mpi_errno = MPI_SUCCESS;
    int progressed;
    ch3_offload_match_t match, ignore;
    ch3_offload_payload_t payload;
    ch3_offload_envelope_t envelope;
    MPIR_Request *rreq;

    *foundp = FALSE;
    rreq = create_rreq(source, tag, context_id, comm);
    if (rreq == NULL)
        return NULL;
    rreq->dev.user_buf = user_buf;
    rreq->dev.user_count = user_count;
    rreq->dev.datatype = datatype;

    match = MPIDI_CH3I_Receive_match(context_id, source, tag, &ignore);
    if (unlikely(source_is_dead(source, match, ignore, comm, &mpi_errno))) {
        rreq->status.MPI_ERROR = mpi_errno;
        MPID_Request_complete(rreq);
        return rreq;
    }

    mpi_errno = describe(rreq, &payload);
    if (unlikely(mpi_errno != MPI_SUCCESS)) {
        rreq->status.MPI_ERROR = mpi_errno;
        MPID_Request_complete(rreq);
        return rreq;
    }
    MPIR_T_PVAR_COUNTER_INC(RECVQ, unexpected_recvq_match_attempts, 1);
    progressed = ch3_offload_post_receive(MPIDI_CH3I_channel, match, ignore, &payload, rreq,
                                          &rreq->ch.operation, &envelope);
    if (progressed == CH3_OFFLOAD_PENDING) {
        if (unlikely(MPIDI_CH3I_knows_others))
            MPIDI_CH3I_Watch(comm, source);
        return rreq;
    }

    complete_receive(rreq, envelope.match, envelope.length_bytes, envelope.status);
    return rreq;
}

/* MPID_Recv (mpidi_ch3_post.h). Without a request if the message is here. */
int MPIDI_CH3I_Recv(void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag, MPIR_Comm * comm,
                    int attr, MPI_Status * status, MPIR_Request ** request)
{
    ch3_offload_pattern_t wanted;
    ch3_offload_payload_t payload;
    ch3_offload_envelope_t envelope;
    MPI_Aint length;
    const int context_offset = MPIR_PT2PT_ATTR_CONTEXT_OFFSET(attr);

    if (unlikely(comm->revoked || !HANDLE_IS_BUILTIN(datatype))) {
        if (datatype == MPI_DATATYPE_NULL)      /* and no elements */
            datatype = MPIR_BYTE_INTERNAL;
        return MPIDI_CH3I_Stock_recv(buf, count, datatype, rank, tag, comm, attr, status, request);
    }
    wanted.match = MPIDI_CH3I_Receive_match(comm->recvcontext_id + context_offset, rank, tag, &wanted.ignore);
    payload.address = buf;
    payload.length_bytes = count * MPIR_Datatype_get_basic_size(datatype);
    payload.layout = NULL;
    if (!ch3_offload_receive_now(MPIDI_CH3I_channel, &wanted, &payload, &envelope))
        return MPIDI_CH3I_Stock_recv(buf, count, datatype, rank, tag, comm, attr, status, request);

    MPIR_T_PVAR_COUNTER_INC(RECVQ, unexpected_recvq_match_attempts, 1);
    *request = NULL;
    length = envelope.length_bytes <= payload.length_bytes ? envelope.length_bytes : payload.length_bytes;
    set_source_active(comm, MPIDI_CH3I_Match_source(envelope.match));
    if (status != MPI_STATUS_IGNORE) {
        set_status(status, envelope.match, length);
        MPIR_STATUS_SET_CANCEL_BIT(*status, FALSE);
        /* MPIC_Recv reads it. The user's is not to be changed (MPI 4.0, 3.2.5). */
        if (context_offset != MPIR_CONTEXT_PT2PT_OFFSET)
            status->MPI_ERROR = MPI_SUCCESS;
    }
    return likely(envelope.status == CH3_OFFLOAD_OK) ? MPI_SUCCESS :
        truncation_error(envelope.match, envelope.length_bytes, length);
}

/* Looks for a message, and writes what it is to *status. FALSE: there is none. */
static int look(int source, int tag, int context_id, MPI_Status * status)
{
    ch3_offload_match_t ignore;
    const ch3_offload_match_t match = MPIDI_CH3I_Receive_match(context_id, source, tag, &ignore);
    ch3_offload_envelope_t envelope;

    if (!ch3_offload_probe(MPIDI_CH3I_channel, match, ignore, &envelope))
        return FALSE;
    if (status != MPI_STATUS_IGNORE) {
        status->MPI_SOURCE = MPIDI_CH3I_Match_source(envelope.match);
        status->MPI_TAG = MPIDI_CH3I_Match_tag(envelope.match);
        MPIR_STATUS_SET_COUNT(*status, envelope.length_bytes);
        MPIR_STATUS_SET_CANCEL_BIT(*status, FALSE);
    }
    return TRUE;
}

int MPIDI_CH3U_Recvq_FU(int source, int tag, int context_id, MPI_Status * s)
{
    MPIR_T_PVAR_COUNTER_INC(RECVQ, unexpected_recvq_match_attempts, 1);
    MPIDI_CH3I_Probe_looks();
    if (!look(source, tag, context_id, s)) {
        MPIDI_CH3I_Probe_found_nothing(source, context_id, MPIDI_CH3I_PROBE_PLAIN);
        return FALSE;
    }
    MPIDI_CH3I_Probe_found_something();
    return TRUE;
}

#if MPIDI_CH3I_MPICH_IS(4, 1)
/* In place of MPID_Iprobe, of a communicator that is freed (mpidi_ch3_post.h). It makes no progress, in which
 * the communicator could be revoked, and fails for nobody's death. Where a process has died, the others
 * cannot know which messages are received: those that have come go, and MPICH calls them no error. */
int MPIDI_CH3I_Iprobe_last(int source, int tag, MPIR_Comm * comm, int attr ATTRIBUTE((unused)), int *flag,
                           MPI_Status * status)
{
    if (MPIDI_CH3I_Has_failed_member(comm))
        MPIDI_CH3I_Drop_all(comm);
    *flag = !comm->revoked && look(source, tag, comm->recvcontext_id + MPIR_CONTEXT_PT2PT_OFFSET, status);
    return MPI_SUCCESS;
}
#endif

MPIR_Request *MPIDI_CH3U_Recvq_FDU_matchonly(int source, int tag, int context_id, MPIR_Comm * comm,
                                             int *foundp)
{
    ch3_offload_match_t match, ignore;
    uint64_t message;
    ch3_offload_envelope_t envelope;
    MPIR_Request *rreq;

    *foundp = FALSE;
    match = MPIDI_CH3I_Receive_match(context_id, source, tag, &ignore);
    MPIR_T_PVAR_COUNTER_INC(RECVQ, unexpected_recvq_match_attempts, 1);
    MPIDI_CH3I_Probe_looks();
    if (!ch3_offload_matched_probe(MPIDI_CH3I_channel, match, ignore, &message, &envelope)) {
        MPIDI_CH3I_Probe_found_nothing(source, context_id, MPIDI_CH3I_PROBE_MATCHED);
        return NULL;
    }

    MPIDI_CH3I_Probe_found_something();
    *foundp = TRUE;
    rreq = create_rreq(MPIDI_CH3I_Match_source(envelope.match), MPIDI_CH3I_Match_tag(envelope.match),
                       context_id, comm);
    MPIR_Assert(rreq != NULL);
    rreq->ch.message = message;
    set_status(&rreq->status, envelope.match, envelope.length_bytes);
    rreq->dev.recv_data_sz = envelope.length_bytes;
    set_source_active(comm, rreq->status.MPI_SOURCE);
    /* MPID_Imrecv looks it up in the table of connections, only to find MPIDI_CH3I_Imrecv. */
    if (unlikely(!is_rank_of(comm, rreq->status.MPI_SOURCE)))
        rreq->status.MPI_SOURCE = 0;
    return rreq;
}

/* MPI_Imrecv returns when a message to oneself is received, as with CH3's other channels: some programs test
 * such a request once, and then free its buffer (mpi4py's tests). This waits for the processor only. */
static int settle_own(MPIR_Request * rreq)
{
    int mpi_errno = MPI_SUCCESS;
    const MPIR_Comm *comm = rreq->comm;

    if (comm->comm_kind != MPIR_COMM_KIND__INTRACOMM || rreq->dev.match.parts.rank != comm->rank)
        return MPI_SUCCESS;
    while (mpi_errno == MPI_SUCCESS && !MPIR_Request_is_complete(rreq))
        mpi_errno = MPIDI_CH3I_Await_progress();
    return mpi_errno;
}

/* MPID_Imrecv: CH3 has put the buffer into the request. */
int MPIDI_CH3I_Imrecv(MPIDI_VC_t * vc ATTRIBUTE((unused)), MPIR_Request * rreq)
{
    int mpi_errno = MPI_SUCCESS;
    int progressed;
    uint64_t message = rreq->ch.message;
    ch3_offload_payload_t payload;
    ch3_offload_envelope_t envelope;

    rreq->ch.message = 0;
    mpi_errno = describe(rreq, &payload);
    if (unlikely(mpi_errno != MPI_SUCCESS)) {
        /* There is no memory to describe the buffer. The message must go, so that its sender ends: it arrives
         * truncated to nothing. MPID_Imrecv ignores what this returns. */
        memset(&payload, 0, sizeof payload);
        mpi_errno = MPI_SUCCESS;
    }
    progressed = ch3_offload_receive_matched(MPIDI_CH3I_channel, message, &payload, rreq, &envelope);
    if (progressed == CH3_OFFLOAD_PENDING) {
        MPIDI_CH3I_Hold_datatype(rreq);
        mpi_errno = settle_own(rreq);
        goto fn_exit;
    }
    mpi_errno = complete_receive(rreq, envelope.match, envelope.length_bytes, envelope.status);

  fn_exit:
    return mpi_errno;
}

int MPIDI_CH3U_Recvq_DP(MPIR_Request * rreq)
{
    if (rreq->ch.operation == 0 || !ch3_offload_cancel_receive(MPIDI_CH3I_channel, rreq->ch.operation))
        return FALSE;
    rreq->ch.operation = 0;
    MPIDI_CH3I_End_walk(rreq);
    return TRUE;
}

/* MPI_Request_free (mpidi_ch3_post.h). Nobody waits for a receive that is freed while it is active, so
 * MPI_Finalize has to. The end of the close protocol with its source says that all messages of the
 * source are here: those that the receive has matched are finished then (MPIDI_CH3I_Progress_drain), and
 * what it has not matched never comes. */
int MPIDI_CH3I_Request_free(MPIR_Request * request)
{
    MPIR_Request *rreq = request->kind == MPIR_REQUEST_KIND__PREQUEST_RECV ? request->u.persist.real_request :
        request;

    if (MPIDI_CH3I_Is_partitioned(request))
        MPIDI_CH3I_Partitioned_freed(request);
    if (rreq != NULL && rreq->kind == MPIR_REQUEST_KIND__RECV && !MPIR_Request_is_complete(rreq) &&
        rreq->comm != NULL) {
        int rank, source = rreq->dev.match.parts.rank;

        if (source != MPI_ANY_SOURCE)
            set_source_active(rreq->comm, source);
        for (rank = 0; source == MPI_ANY_SOURCE && rank < rreq->comm->remote_size; rank++)
            set_source_active(rreq->comm, rank);
    }
    return MPIDI_CH3I_Stock_request_free(request);
}

/* ---- for code of CH3 that this channel never reaches: packets with messages, and its own
 * MPIDI_Isend_self ---- */

MPIR_Request *MPIDI_CH3U_Recvq_FDU(MPI_Request sreq_id ATTRIBUTE((unused)),
                                   MPIDI_Message_match * match ATTRIBUTE((unused)))
{
    return NULL;
}

MPIR_Request *MPIDI_CH3U_Recvq_FDP_or_AEU(MPIDI_Message_match * match ATTRIBUTE((unused)), int *foundp)
{
    *foundp = FALSE;
    return NULL;
}

int MPIDI_CH3U_Recvq_count_unexp(void)
{
    return (int) counter_value("unexpected_depth");
}
