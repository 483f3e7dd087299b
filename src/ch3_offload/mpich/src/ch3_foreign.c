/*
 * The ch3:offload channel: processes of other MPI worlds by their numbers, what waits for them, and what came
 * from them before their process group was known. Names and groups are in ch3_worlds.c.
 */

#include "ch3_foreign.h"

#define MESSAGE_BYTES 512

static MPIDI_CH3I_Foreign_t *foreigners = NULL;    /* the one that was looked for last comes first */

MPIDI_CH3I_Foreign_t *MPIDI_CH3I_Find_foreign(uint32_t peer)
{
    MPIDI_CH3I_Foreign_t **link;

    for (link = &foreigners; *link != NULL; link = &(*link)->next)
        if ((*link)->peer == peer) {
            MPIDI_CH3I_Foreign_t *found = *link;

            *link = found->next;
            found->next = foreigners;
            foreigners = found;
            return found;
        }
    return NULL;
}

/* NULL: no memory. */
static MPIDI_CH3I_Foreign_t *find_or_add(uint32_t peer)
{
    MPIDI_CH3I_Foreign_t *found = MPIDI_CH3I_Find_foreign(peer);

    if (found == NULL) {
        found = MPL_calloc(1, sizeof(*found), MPL_MEM_DYNAMIC);
        if (found == NULL)
            return NULL;
        found->peer = peer;
        found->next = foreigners;
        foreigners = found;
    }
    return found;
}

void MPIDI_CH3I_Drop_foreign(uint32_t peer)
{
    MPIDI_CH3I_Foreign_t *found = MPIDI_CH3I_Find_foreign(peer);

    if (found == NULL)
        return;
    foreigners = found->next;   /* it was found last */
    MPL_free(found->held);
    MPL_free(found->kept);
    MPL_free(found);
}

/* From now on the number is the connection's. */
static void join(MPIDI_CH3I_Foreign_t * process, MPIDI_VC_t * vc)
{
    process->vc = vc;
    vc->ch.peer = process->peer;
    vc->ch.is_introduced = TRUE;
    vc->ch.lane = ch3_offload_lane(MPIDI_CH3I_channel, process->peer);
}

uint32_t MPIDI_CH3I_Find_peer(MPIDI_VC_t * vc)
{
    char message[MESSAGE_BYTES] = "it has no name";
    MPIDI_CH3I_Foreign_t *process = NULL;
    uint32_t peer;

    MPIR_Assert(vc->pg != NULL);
    if (vc->pg->ch.names != NULL && MPIDI_CH3I_Name_in(vc->pg, vc->pg_rank)[0] != '\0' &&
        ch3_offload_find(MPIDI_CH3I_channel, MPIDI_CH3I_Name_in(vc->pg, vc->pg_rank), &peer, message,
                         sizeof(message)) == 0) {
        process = find_or_add(peer);
        if (process == NULL)
            snprintf(message, sizeof(message), "out of memory");
    }
    if (process == NULL)
        MPID_Abort(NULL, MPI_ERR_OTHER, 1, message);
    join(process, vc);
    return peer;
}

/* The connection with the process of that name, if its group is known. A dead one may have had the name. */
static MPIDI_VC_t *find_by_name(const char *name)
{
    MPIDI_PG_iterator iterator;
    MPIDI_PG_t *pg;
    int rank;

    if (name[0] == '\0')
        return NULL;
    MPIDI_PG_Get_iterator(&iterator);
    while (MPIDI_PG_Has_next(&iterator)) {
        MPIDI_PG_Get_next(&iterator, &pg);
        if (pg == MPIDI_Process.my_pg || pg->ch.names == NULL)
            continue;
        for (rank = 0; rank < pg->size; rank++)
            if (!pg->vct[rank].ch.peer_failed && strcmp(MPIDI_CH3I_Name_in(pg, rank), name) == 0)
                return &pg->vct[rank];
    }
    return NULL;
}

MPIDI_VC_t *MPIDI_CH3I_Foreign_vc(uint32_t peer)
{
    char name[CH3_OFFLOAD_NAME_BYTES];
    MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(peer);
    MPIDI_VC_t *vc;

    if (process != NULL && process->vc != NULL)
        return process->vc;
    ch3_offload_name_of(MPIDI_CH3I_channel, peer, name);
    vc = find_by_name(name);
    if (vc == NULL)
        return NULL;
    process = find_or_add(peer);
    if (process != NULL)
        join(process, vc);
    return process == NULL ? NULL : vc;
}

int MPIDI_CH3I_Append(char **to, size_t * to_bytes, const void *bytes, size_t length)
{
    int mpi_errno = MPI_SUCCESS;
    char *longer = MPL_realloc(*to, *to_bytes + length, MPL_MEM_DYNAMIC);

    MPIR_ERR_CHKANDJUMP(longer == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    MPIR_Memcpy(longer + *to_bytes, bytes, length);
    *to = longer;
    *to_bytes += length;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Hold_packets(uint32_t peer, const void *bytes, size_t length)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_CH3I_Foreign_t *process = find_or_add(peer);

    MPIR_ERR_CHKANDJUMP(process == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    mpi_errno = MPIDI_CH3I_Append(&process->held, &process->held_bytes, bytes, length);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Await_last_close(uint32_t peer)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_CH3I_Foreign_t *process = find_or_add(peer);

    MPIR_ERR_CHKANDJUMP(process == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    process->last_closes++;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Is_last_close(uint32_t peer)
{
    MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(peer);

    if (process == NULL || process->last_closes == 0)
        return FALSE;
    process->last_closes--;
    return TRUE;
}

int MPIDI_CH3I_Holds_packets(uint32_t peer)
{
    MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(peer);

    return process != NULL && process->held != NULL;
}

void MPIDI_CH3I_Take_held(void)
{
    MPIDI_CH3I_Foreign_t *process, *next;

    /* What is taken may change the list, and who is looked for becomes its first. */
    for (process = foreigners; process != NULL;) {
        next = process->next;
        if (process->held != NULL && MPIDI_CH3I_Foreign_vc(process->peer) != NULL) {
            char *held = process->held;
            const size_t held_bytes = process->held_bytes;

            process->held = NULL;
            process->held_bytes = 0;
            MPIDI_CH3I_Packet_recv(process->peer, held, held_bytes);
            MPL_free(held);
            process = foreigners;
        } else {
            process = next;
        }
    }
}

void MPIDI_CH3I_Leave_peer(MPIDI_VC_t * vc)
{
    MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(vc->ch.peer);

    if (process != NULL && process->vc == vc)
        process->vc = NULL;
    vc->ch.peer = MPIDI_CH3I_NO_PEER;
    vc->ch.is_introduced = FALSE;
    vc->ch.lane = NULL;
}

/* The connection is freed. The channel may be gone. */
void MPIDI_CH3I_Forget_vc(MPIDI_VC_t * vc)
{
    MPIDI_CH3I_Foreign_t *process;

    for (process = foreigners; process != NULL; process = process->next)
        if (process->vc == vc)
            process->vc = NULL;
    MPIDI_CH3I_Forget_root(vc);
}

void MPIDI_CH3I_Drop_foreigners(void)
{
    while (foreigners != NULL)
        MPIDI_CH3I_Drop_foreign(foreigners->peer);
}
