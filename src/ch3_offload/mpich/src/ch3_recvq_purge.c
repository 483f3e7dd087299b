/*
 * The ch3:offload channel: taking receives and messages out of the engine for reasons of their own: a
 * revoked communicator, a dead process; and a listing for debuggers.
 */

#include "mpidi_ch3_impl.h"

/* Revocations so far: none is the common case, and asked for on every self message. */
static int revocations = 0;
/* Unexpected messages that ever came, when MPIDI_CH3I_Drop_revoked looked last. */
static uint64_t unexpected_seen = 0;

void MPIDI_CH3I_Recvq_purge_init(void)
{
    revocations = 0;
    unexpected_seen = 0;
}

/* Agreement and shrinking go on after a communicator was revoked. */
static int survives_revocation(int tag)
{
    tag = MPIR_TAG_MASK_ERROR_BITS(tag) & ~MPIR_TAG_COLL_BIT;
    return tag == MPIR_AGREE_TAG || tag == MPIR_SHRINK_TAG;
}

/* Whether the message is of comm or of its node-local or inter-node part, and ends with it. */
static int is_doomed_by_comm(void *context, uint64_t bits)
{
    MPIR_Comm *comm_ptr = context;
    int context_id = MPIDI_CH3I_Bits_context(bits);
    int base = comm_ptr->recvcontext_id;
    int is_intra = comm_ptr->comm_kind == MPIR_COMM_KIND__INTRACOMM;
    int pt2pt = is_intra ? MPIR_CONTEXT_INTRA_PT2PT : MPIR_CONTEXT_INTER_PT2PT;
    int coll = is_intra ? MPIR_CONTEXT_INTRA_COLL : MPIR_CONTEXT_INTER_COLL;

    if (context_id == base + MPIR_CONTEXT_INTRA_PT2PT)
        return TRUE;
    if (survives_revocation(MPIDI_CH3I_Bits_tag(bits)))
        return FALSE;
    if (context_id == base + MPIR_CONTEXT_INTRA_COLL)
        return TRUE;
    if (!MPIR_Comm_is_parent_comm(comm_ptr))
        return FALSE;
    return context_id == base + MPIR_CONTEXT_INTRANODE_OFFSET + pt2pt ||
        context_id == base + MPIR_CONTEXT_INTRANODE_OFFSET + coll ||
        context_id == base + MPIR_CONTEXT_INTERNODE_OFFSET + pt2pt ||
        context_id == base + MPIR_CONTEXT_INTERNODE_OFFSET + coll;
}

static void fail_receive(void *context, void *cookie)
{
    MPIR_Request *rreq = cookie;

    rreq->ch.operation = 0;
    rreq->status.MPI_ERROR = *(int *) context;
    MPIDI_CH3I_Defer_error(MPID_Request_complete(rreq));
}

struct purge {
    MPIR_Comm *comm;            /* NULL: every revoked communicator */
    int error;
};

static int is_doomed(void *context, uint64_t bits)
{
    struct purge *purge = context;
    return purge->comm != NULL ? is_doomed_by_comm(purge->comm, bits) : MPIDI_CH3I_Is_revoked(bits);
}

static void on_receive(void *context, void *cookie)
{
    fail_receive(&((struct purge *) context)->error, cookie);
}

/* A message to oneself that nobody will receive: its send fails too. */
static void on_external(void *context, void *cookie)
{
    struct purge *purge = context;
    MPIR_Request *rreq = cookie;

    if (rreq->dev.partner_request != NULL)
        fail_receive(&purge->error, rreq->dev.partner_request);
    MPIDI_CH3I_Free_unused_rreq(rreq);
}

int MPIDI_CH3U_Clean_recvq(MPIR_Comm * comm_ptr)
{
    struct purge purge = { comm_ptr, MPI_SUCCESS };

    MPIR_ERR_SETSIMPLE(purge.error, MPIX_ERR_REVOKED, "**revoked");
    revocations++;
    ch3_offload_purge(MPIDI_CH3I_channel, is_doomed, on_receive, on_external, &purge);
    return MPI_SUCCESS;
}

int MPIDI_CH3I_Is_revoked(uint64_t bits)
{
    MPIR_Comm *comm_ptr = NULL;

    if (likely(revocations == 0) || survives_revocation(MPIDI_CH3I_Bits_tag(bits)))
        return FALSE;
    MPIDI_CH3I_Comm_find(MPIDI_CH3I_Bits_context(bits), &comm_ptr);
    return comm_ptr != NULL && comm_ptr->revoked;
}

void MPIDI_CH3I_Drop_revoked(void)
{
    struct purge purge = { NULL, MPI_SUCCESS };
    uint64_t unexpected;

    if (likely(revocations == 0))
        return;
    unexpected = *MPIDI_CH3I_Counter("received_unexpected");
    if (unexpected == unexpected_seen)
        return;
    unexpected_seen = unexpected;
    MPIR_ERR_SETSIMPLE(purge.error, MPIX_ERR_REVOKED, "**revoked");
    ch3_offload_purge(MPIDI_CH3I_channel, is_doomed, on_receive, on_external, &purge);
}

/* ---- receives from a dead process ---- */

struct from_vc {
    MPIDI_VC_t *vc;             /* NULL: any source, in a communicator with a dead process */
    MPIR_Request *head;         /* the receives found, linked by next */
};

static void collect(void *context, uint64_t operation ATTRIBUTE((unused)), void *cookie)
{
    struct from_vc *from = context;
    MPIR_Request *rreq = cookie;
    int is_wanted;

    if (rreq->dev.match.parts.rank == MPI_ANY_SOURCE) {
        is_wanted = from->vc == NULL && MPIDI_CH3I_Fails_any_source(rreq->comm);
    } else {
        MPIDI_VC_t *vc;
        MPIDI_Comm_get_vc(rreq->comm, rreq->dev.match.parts.rank, &vc);
        is_wanted = vc == from->vc;
    }
    if (is_wanted) {
        rreq->next = from->head;
        from->head = rreq;
    }
}

static void fail_posted(MPIDI_VC_t * vc)
{
    struct from_vc from = { vc, NULL };
    int error = MPI_SUCCESS;

    MPIR_ERR_SETSIMPLE(error, MPIX_ERR_PROC_FAILED, "**proc_failed");
    ch3_offload_for_each_posted(MPIDI_CH3I_channel, collect, &from);
    while (from.head != NULL) {
        MPIR_Request *rreq = from.head;
        from.head = rreq->next;
        rreq->next = NULL;
        if (MPIDI_CH3U_Recvq_DP(rreq))
            fail_receive(&error, rreq);
    }
}

int MPIDI_CH3U_Complete_posted_with_error(MPIDI_VC_t * vc)
{
    fail_posted(vc);
    return MPI_SUCCESS;
}

void MPIDI_CH3I_Fail_any_source(void)
{
    fail_posted(NULL);
}

/* ---- for debuggers ---- */

static void print_posted(void *context, uint64_t operation, void *cookie)
{
    MPIR_Request *rreq = cookie;
    fprintf(context, "..[%llu] rreq=%p ctx=%#x rank=%d tag=%d\n", (unsigned long long) operation, (void *) rreq,
            (unsigned) rreq->dev.match.parts.context_id, (int) rreq->dev.match.parts.rank,
            (int) rreq->dev.match.parts.tag);
}

void MPIDI_CH3U_Dbg_print_recvq(FILE * stream);

void MPIDI_CH3U_Dbg_print_recvq(FILE * stream)
{
    fprintf(stream, "========================================\n");
    fprintf(stream, "CH3 Posted RecvQ:\n");
    ch3_offload_for_each_posted(MPIDI_CH3I_channel, print_posted, stream);
    fprintf(stream, "CH3 Unexpected RecvQ: %d messages\n", MPIDI_CH3U_Recvq_count_unexp());
    fprintf(stream, "========================================\n");
}
