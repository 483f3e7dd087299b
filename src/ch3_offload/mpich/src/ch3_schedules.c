/*
 * The ch3:offload channel: nonblocking and persistent collective operations that the network processor
 * carries out.
 *
 * MPICH makes a schedule for each such operation (mpidu_sched.h): sends, receives, reductions and copies, and
 * which of them wait for which. Its own MPIDU_Sched_start would carry out the entries in calls of progress.
 * Here they become the steps of one command, as far as the processor can do all of them; mpidi_ch3_post.h has
 * MPICH call MPIDI_CH3I_Sched_start instead. MPICH keeps what needs the process:
 *
 *   operations and datatypes that are the user's, but for datatypes of few pieces in messages
 *   callbacks and lengths that are known late, but for the checks of MPI_Ibcast, and for ch3_collectives.c
 *   operations that make communicators, and the few that are point-to-point messages
 *
 * The algorithm and its choice stay MPICH's. A member that leaves its part to the processor and one that does
 * not send the same messages.
 */

#include "mpidi_ch3_impl.h"
#include "ch3_window_ops.h"
#include "ibcast.h"

/* What messages carry in their tags after a failure. */
#ifdef HAVE_TAG_ERROR_BITS
#define FAILED_BITS ((uint64_t) (uint32_t) MPIR_TAG_ERROR_BIT)
#define PEER_FAILED_BITS ((uint64_t) (uint32_t) (MPIR_TAG_ERROR_BIT | MPIR_TAG_PROC_FAILURE_BIT))
#else
#define FAILED_BITS 0
#define PEER_FAILED_BITS 0
#endif

/* Which of comm->hints says whether the processor may have them; 0: none yet. It stays for the life of the
 * process. */
static int hint = 0;

void MPIDI_CH3I_Schedules_init(void)
{
    if (hint == 0)
        hint = MPIR_Comm_register_hint(0, "ch3_offload_collectives", NULL, MPIR_COMM_HINT_TYPE_BOOL,
                                       MPIR_COMM_HINT_ATTR_LOCAL, TRUE);
}

/* The steps of the schedule that is being translated. */
static ch3_offload_step_t *steps = NULL;
static size_t step_room = 0;
static size_t step_count = 0;
static int has_messages = FALSE;

/* NULL: there is no memory. */
static ch3_offload_step_t *add_step(int kind)
{
    ch3_offload_step_t *step;

    if (step_count == step_room) {
        size_t room = step_room == 0 ? 64 : 2 * step_room;
        ch3_offload_step_t *larger = MPL_realloc(steps, room * sizeof(steps[0]), MPL_MEM_COMM);
        if (larger == NULL)
            return NULL;
        steps = larger;
        step_room = room;
    }
    step = &steps[step_count++];
    memset(step, 0, sizeof(*step));
    step->kind = kind;
    return step;
}

/* FALSE: the step cannot be the processor's. Rank is in comm, and not MPI_PROC_NULL. */
static int add_message(int kind, const void *buf, MPI_Aint count, MPI_Datatype type, int rank,
                       MPIR_Comm * comm)
{
    ch3_offload_payload_t payload;
    ch3_offload_step_t *step;
    MPIDI_VC_t *vc;

    if (count < 0 || comm->revoked || !MPIDI_CH3I_Plain_payload(buf, count, type, &payload))
        return FALSE;
    MPIDI_Comm_get_vc_set_active(comm, rank, &vc);
    if (vc->ch.peer_failed || vc->pg != MPIDI_Process.my_pg)
        return FALSE;
    /* The processor cannot ask for it while this process computes. */
    if (kind != CH3_OFFLOAD_STEP_RECEIVE && !vc->ch.is_introduced && vc->pg_rank != MPIR_Process.rank)
        MPIDI_CH3I_Card_wanted(vc->pg_rank);
    step = add_step(kind);
    if (step == NULL)
        return FALSE;
    step->peer = vc->pg_rank;
    step->length_bytes = payload.length_bytes;
    step->layout = payload.layout;
    if (kind == CH3_OFFLOAD_STEP_RECEIVE)
        step->to = payload.address;
    else
        step->from = payload.address;
    has_messages = TRUE;
    return TRUE;
}

static int add_send(const struct MPIDU_Sched_send *send, int tag)
{
    const int kind = MPIDI_CH3I_IS_SYNC(send) ? CH3_OFFLOAD_STEP_SYNCHRONOUS_SEND : CH3_OFFLOAD_STEP_SEND;

    if (send->count_p != NULL)
        return FALSE;
    if (send->dest == MPI_PROC_NULL)
        return TRUE;
    if (!add_message(kind, send->buf, send->count, send->datatype, send->dest, send->comm))
        return FALSE;
    steps[step_count - 1].match =
        MPIDI_CH3I_Match(send->comm->context_id + MPIR_CONTEXT_COLL_OFFSET, send->comm->rank, tag);
    return TRUE;
}

static int add_receive(const struct MPIDU_Sched_recv *receive, int tag)
{
    if (receive->src == MPI_PROC_NULL)
        return TRUE;
    if (!add_message(CH3_OFFLOAD_STEP_RECEIVE, receive->buf, receive->count, receive->datatype, receive->src,
                     receive->comm))
        return FALSE;
    steps[step_count - 1].match =
        MPIDI_CH3I_Match(receive->comm->recvcontext_id + MPIR_CONTEXT_COLL_OFFSET, receive->src, tag);
    return TRUE;
}

static int add_reduction(const struct MPIDU_Sched_reduce *reduce)
{
    const int type = MPIDI_CH3I_Element_type(reduce->datatype);
    ch3_offload_step_t *step;
    MPI_Aint extent;
    uint8_t operation;

    if (type == CH3_OFFLOAD_NO_TYPE || !MPIDI_CH3I_Atomic_of(reduce->op, &operation) ||
        !ch3_offload_window_can(operation, type))
        return FALSE;
    step = add_step(CH3_OFFLOAD_STEP_COMBINE);
    if (step == NULL)
        return FALSE;
    MPIR_Datatype_get_extent_macro(reduce->datatype, extent);
    step->operation = operation;
    step->type = type;
    step->from = reduce->inbuf;
    step->to = reduce->inoutbuf;
    step->length_bytes = reduce->count * extent;
    return TRUE;
}

static int add_copy(const struct MPIDU_Sched_copy *copy)
{
    ch3_offload_payload_t from, to;
    ch3_offload_step_t *step;

    if (!MPIDI_CH3I_Plain_payload(copy->inbuf, copy->incount, copy->intype, &from) ||
        !MPIDI_CH3I_Plain_payload(copy->outbuf, copy->outcount, copy->outtype, &to) ||
        from.layout != NULL || to.layout != NULL || from.length_bytes > to.length_bytes)
        return FALSE;
    step = add_step(CH3_OFFLOAD_STEP_COPY);
    if (step == NULL)
        return FALSE;
    step->from = from.address;
    step->to = to.address;
    step->length_bytes = from.length_bytes;
    return TRUE;
}

MPIR_Sched_cb_t *MPIDI_CH3I_Known_callback(const char *name, MPIR_Sched_cb_t * callback)
{
    return strcmp(name, "&sched_test_length") == 0 ? MPII_Ibcast_sched_test_length : callback;
}

static int add_count(int kind, MPI_Aint bytes)
{
    ch3_offload_step_t *step = add_step(kind);

    if (step == NULL)
        return FALSE;
    step->length_bytes = bytes;
    return TRUE;
}

/* The checks of MPI_Ibcast are all that is done without a callback. */
static int add_callback(const struct MPIDU_Sched_cb *cb)
{
    const struct MPII_Ibcast_state *state = cb->cb_state;

    if (cb->cb_type != MPIDU_SCHED_CB_TYPE_1)
        return FALSE;
    if (cb->u.cb_p == MPII_Ibcast_sched_test_length)
        return add_count(CH3_OFFLOAD_STEP_COUNT, 0) && add_count(CH3_OFFLOAD_STEP_COUNT_RECEIVED, 0) &&
            add_count(CH3_OFFLOAD_STEP_CHECK_COUNT, state->n_bytes);
    if (cb->u.cb_p == MPII_Ibcast_sched_init_length)
        return add_count(CH3_OFFLOAD_STEP_COUNT, state->initial_bytes);
    if (cb->u.cb_p == MPII_Ibcast_sched_add_length)
        return add_count(CH3_OFFLOAD_STEP_COUNT_RECEIVED, 0);
    if (cb->u.cb_p == MPII_Ibcast_sched_test_curr_length)
        return add_count(CH3_OFFLOAD_STEP_CHECK_COUNT, state->n_bytes);
    return FALSE;
}

static int add_entry(const struct MPIDU_Sched_entry *entry, int tag)
{
    switch (entry->type) {
        case MPIDU_SCHED_ENTRY_SEND:
            return add_send(&entry->u.send, tag);
        case MPIDU_SCHED_ENTRY_RECV:
            return add_receive(&entry->u.recv, tag);
        case MPIDU_SCHED_ENTRY_REDUCE:
            return add_reduction(&entry->u.reduce);
        case MPIDU_SCHED_ENTRY_COPY:
            return add_copy(&entry->u.copy);
        case MPIDU_SCHED_ENTRY_CB:
            return add_callback(&entry->u.cb);
        case MPIDU_SCHED_ENTRY_NOP:
            return TRUE;
        default:
            return FALSE;
    }
}

/* Makes steps of all entries. FALSE: MPICH must carry them out. */
static int translate(const struct MPIDU_Sched *s)
{
    const size_t most = ch3_offload_most_steps(MPIDI_CH3I_channel);
    int i;

    if (s->kind == MPIR_SCHED_KIND_GENERALIZED || (size_t) s->num_entries > most)
        return FALSE;
    step_count = 0;
    has_messages = FALSE;
    for (i = 0; i < s->num_entries; i++) {
        if (!add_entry(&s->entries[i], s->tag) || step_count > most)
            return FALSE;
        if (s->entries[i].is_barrier && step_count > 0)
            steps[step_count - 1].is_barrier = TRUE;
    }
    return has_messages;
}

/* In place of MPIDU_Sched_start (mpidi_ch3_post.h). */
int MPIDI_CH3I_Sched_start(struct MPIDU_Sched *s, MPIR_Comm * comm, MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Request *req;

    if (!comm->hints[hint] || !translate(s))
        return MPIDU_Sched_start(s, comm, request);
    *request = NULL;
    req = MPIR_Request_create(MPIR_REQUEST_KIND__COLL);
    MPIR_ERR_CHKANDJUMP(req == NULL, mpi_errno, MPI_ERR_OTHER, "**nomem");
    if (!ch3_offload_schedule(MPIDI_CH3I_channel, steps, step_count, FAILED_BITS, PEER_FAILED_BITS, s)) {
        MPIR_Request_free(req);
        return MPIDU_Sched_start(s, comm, request);
    }
    MPIR_Comm_add_ref(comm);
    req->comm = comm;
    MPIR_Request_add_ref(req);  /* the schedule's */
    s->req = req;
    *request = req;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Schedule_done(struct MPIDU_Sched *s, int status)
{
    MPIR_Request *req = s->req;
    /* A persistent one may be freed as soon as it is complete. */
    const int is_persistent = s->kind == MPIR_SCHED_KIND_PERSISTENT;

    if (status == CH3_OFFLOAD_PEER_FAILED)
        MPIR_ERR_SET(req->status.MPI_ERROR, MPIX_ERR_PROC_FAILED, "**proc_failed");
    else if (status != CH3_OFFLOAD_OK)
        MPIR_ERR_SET(req->status.MPI_ERROR, MPI_ERR_OTHER, "**coll_fail");
    MPIDI_CH3I_Defer_error(MPID_Request_complete(req));
    if (!is_persistent)
        MPIDU_Sched_free(s);
}

void MPIDI_CH3I_Schedules_finalize(void)
{
    MPL_free(steps);
    steps = NULL;
    step_room = 0;
}
