/*
 * The ch3:offload channel: taking receives and messages out of the engine for reasons of their own, a
 * revoked communicator or a dead process. What is to be taken out is said in patterns of match bits; the
 * engine finishes the receives by events.
 */

#include "mpidi_ch3_impl.h"

/* What tells the kinds of messages of a communicator apart. */
#define KIND_BITS ((uint64_t) (1 | MPIDI_CH3I_PARTITIONED_MASK) << 32)

/* Revocations so far: none is the common case. */
static int revocations = 0;
/* Unexpected messages that ever came, when MPIDI_CH3I_Drop_revoked looked last. */
static uint64_t arrivals_seen = 0;

void MPIDI_CH3I_Recvq_purge_init(void)
{
    revocations = 0;
    arrivals_seen = 0;
}

static ch3_offload_pattern_t all_of_context(int context_id)
{
    ch3_offload_pattern_t pattern = { MPIDI_CH3I_Match(context_id, 0, 0),
        {MPIDI_CH3I_TAG_BITS, MPIDI_CH3I_ANY_RANK}
    };
    return pattern;
}

/* Agreement and shrinking go on after a communicator was revoked. */
static ch3_offload_pattern_t all_of_tag(int tag)
{
    ch3_offload_pattern_t pattern = { MPIDI_CH3I_Match(0, 0, tag),
        {~MPIDI_CH3I_TAG_BITS | MPIDI_CH3I_Error_bits() | (uint32_t) MPIR_TAG_COLL_BIT, MPIDI_CH3I_ANY_RANK}
    };
    return pattern;
}

/* Takes out what ends with comm: its own messages, and those of its node-local and inter-node parts.
 * is_revoked: agreements and shrinking go on. */
static void purge_comm(MPIR_Comm * comm, int is_revoked)
{
    int base = comm->recvcontext_id;
    int count = 0;
    ch3_offload_pattern_t messages = all_of_context(base + MPIR_CONTEXT_PT2PT_OFFSET);
    ch3_offload_pattern_t others[8];
    ch3_offload_pattern_t spared[2] = { all_of_tag(MPIR_AGREE_TAG), all_of_tag(MPIR_SHRINK_TAG) };

    others[count++] = all_of_context(base + MPIR_CONTEXT_COLL_OFFSET);
    others[count++] = all_of_context(base + MPIDI_CH3I_PARTITIONED_GREETING);
    others[count++] = all_of_context(base + MPIDI_CH3I_PARTITIONED_ANSWER);
    others[count++] = all_of_context(base + MPIDI_CH3I_PARTITIONED_DATA);
    if (MPIR_Comm_is_parent_comm(comm)) {
        others[count++] = all_of_context(base + MPIR_CONTEXT_INTRANODE_OFFSET + MPIR_CONTEXT_PT2PT_OFFSET);
        others[count++] = all_of_context(base + MPIR_CONTEXT_INTRANODE_OFFSET + MPIR_CONTEXT_COLL_OFFSET);
        others[count++] = all_of_context(base + MPIR_CONTEXT_INTERNODE_OFFSET + MPIR_CONTEXT_PT2PT_OFFSET);
        others[count++] = all_of_context(base + MPIR_CONTEXT_INTERNODE_OFFSET + MPIR_CONTEXT_COLL_OFFSET);
    }
    ch3_offload_purge(MPIDI_CH3I_channel, CH3_OFFLOAD_PURGE_ALL, &messages, 1, NULL, 0, CH3_OFFLOAD_REVOKED);
    ch3_offload_purge(MPIDI_CH3I_channel, CH3_OFFLOAD_PURGE_ALL, others, count, spared, is_revoked ? 2 : 0,
                      CH3_OFFLOAD_REVOKED);
}

void MPIDI_CH3I_Drop_tagged(MPIR_Comm * comm, int tag)
{
    const int context_id = comm->recvcontext_id + MPIR_CONTEXT_COLL_OFFSET;
    const ch3_offload_pattern_t pattern = { MPIDI_CH3I_Match(context_id, 0, tag),
        {MPIDI_CH3I_Error_bits() | (uint32_t) MPIR_TAG_COLL_BIT, MPIDI_CH3I_ANY_RANK}
    };

    ch3_offload_purge(MPIDI_CH3I_channel, CH3_OFFLOAD_PURGE_ALL, &pattern, 1, NULL, 0, CH3_OFFLOAD_REVOKED);
}

void MPIDI_CH3I_Drop_all(MPIR_Comm * comm)
{
    purge_comm(comm, FALSE);
}

int MPIDI_CH3U_Clean_recvq(MPIR_Comm * comm_ptr)
{
    revocations++;
    purge_comm(comm_ptr, TRUE);
    return MPI_SUCCESS;
}

void MPIDI_CH3I_Drop_revoked(void)
{
    MPIR_Comm *comm;
    uint64_t arrivals;

    if (likely(revocations == 0))
        return;
    arrivals = ch3_offload_arrivals(MPIDI_CH3I_channel);
    if (arrivals == arrivals_seen)
        return;
    arrivals_seen = arrivals;
    for (comm = MPIDI_CH3I_communicators; comm != NULL; comm = comm->dev.ch.next)
        if (comm->revoked)
            purge_comm(comm, TRUE);
}

/* ---- receives from a dead process ---- */

void MPIDI_CH3I_Fail_receives(int context_id, int source)
{
    int scope = source == MPI_ANY_SOURCE ? CH3_OFFLOAD_PURGE_RECEIVES_FROM_ANY :
        CH3_OFFLOAD_PURGE_RECEIVES_FROM_ONE;
    ch3_offload_pattern_t pattern;

    pattern.match = MPIDI_CH3I_Receive_match(context_id, source, MPI_ANY_TAG, &pattern.ignore);
    pattern.ignore.bits |= KIND_BITS;
    ch3_offload_purge(MPIDI_CH3I_channel, scope, &pattern, 1, NULL, 0, CH3_OFFLOAD_PEER_FAILED);
}

int MPIDI_CH3U_Complete_posted_with_error(MPIDI_VC_t * vc)
{
    MPIR_Comm *comm;
    MPIDI_VC_t *other;
    int rank;

    for (comm = MPIDI_CH3I_communicators; comm != NULL; comm = comm->dev.ch.next) {
        for (rank = 0; rank < comm->remote_size; rank++) {
            MPIDI_Comm_get_vc(comm, rank, &other);
            if (other == vc)
                MPIDI_CH3I_Fail_receives(comm->recvcontext_id, rank);
        }
    }
    return MPI_SUCCESS;
}

void MPIDI_CH3I_Fail_any_source(void)
{
    MPIR_Comm *comm;

    for (comm = MPIDI_CH3I_communicators; comm != NULL; comm = comm->dev.ch.next)
        if (MPIDI_CH3I_Fails_any_source(comm))
            MPIDI_CH3I_Fail_receives(comm->recvcontext_id, MPI_ANY_SOURCE);
}

/* ---- for debuggers ---- */

void MPIDI_CH3U_Dbg_print_recvq(FILE * stream);

/* The engine's queues cannot be listed from here. */
void MPIDI_CH3U_Dbg_print_recvq(FILE * stream)
{
    fprintf(stream, "CH3 Posted RecvQ: %llu receives\n",
            (unsigned long long) *MPIDI_CH3I_Counter("posted_depth"));
    fprintf(stream, "CH3 Unexpected RecvQ: %d messages\n", MPIDI_CH3U_Recvq_count_unexp());
}
