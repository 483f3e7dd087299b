/*
 * The ch3:offload channel: revocations of communicators (MPIX_Comm_revoke) that come from other processes.
 *
 * Processes finish making a communicator at different times. One that has it may revoke it before another one
 * has it. There the revocation waits, until a communicator is made that has its context and its sender. This
 * is the revoked one: until then, that context is in use, and no other communicator gets it.
 */

#include "mpidi_ch3_impl.h"

/* Of one sender: there are no more contexts. */
enum { MOST_EARLY = MPIR_MAX_CONTEXT_MASK * MPIR_CONTEXT_INT_BITS };

typedef struct early {
    struct early *next;
    int context_id;
    MPIDI_VC_t *sender;
} early_t;

static early_t *all_early = NULL;

static int keep(MPIDI_VC_t * vc, int context_id)
{
    int mpi_errno = MPI_SUCCESS;
    int count = 0;
    early_t *early;

    for (early = all_early; early != NULL; early = early->next) {
        if (early->sender != vc)
            continue;
        if (early->context_id == context_id)
            goto fn_exit;
        count++;
    }
    MPIR_ERR_CHKANDJUMP1(count == MOST_EARLY, mpi_errno, MPI_ERR_OTHER, "**ch3|offload|protocol",
                         "**ch3|offload|protocol %d", vc->pg_rank);
    early = MPL_malloc(sizeof(*early), MPL_MEM_COMM);
    MPIR_ERR_CHKANDJUMP(early == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    early->next = all_early;
    early->context_id = context_id;
    early->sender = vc;
    all_early = early;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* In place of CH3's handler, which fails without the communicator, and does not say that it takes no data. */
int MPIDI_CH3I_Take_revocation(MPIDI_VC_t * vc, const MPIDI_CH3_Pkt_revoke_t * pkt)
{
    MPIR_Comm *comm = MPIDI_CH3I_Find_communicator(MPIDI_CH3I_REVOKED_CONTEXT(pkt));

    return comm != NULL && MPIDI_CH3I_Has_member(comm, vc) ? MPID_Comm_revoke(comm, TRUE) :
        keep(vc, MPIDI_CH3I_REVOKED_CONTEXT(pkt));
}

/* Up to MPICH 4.3, node_comm and node_roots_comm are made after the communicator that has them. Those of 5.0
 * are revoked with it. */
static int is_part_of_revoked(const MPIR_Comm * comm)
{
    const MPIR_Comm *whole;

    if (MPIR_CONTEXT_READ_FIELD(SUBCOMM, comm->context_id) == 0)
        return FALSE;
    whole = MPIDI_CH3I_Find_communicator(comm->recvcontext_id & ~MPIR_CONTEXT_SUBCOMM_MASK);
    return whole != NULL && whole->revoked;
}

int MPIDI_CH3I_Revoke_created(MPIR_Comm * comm)
{
    int mpi_errno = MPI_SUCCESS;
    early_t **place = &all_early;

    comm->revoked |= is_part_of_revoked(comm);
    while (*place != NULL) {
        early_t *early = *place;
        int is_counted;

        if (early->context_id != comm->recvcontext_id || !MPIDI_CH3I_Has_member(comm, early->sender)) {
            place = &early->next;
            continue;
        }
        *place = early->next;
        /* MPID_Comm_revoke counts a dead sender itself, since no packet leaves to it. */
        is_counted = !early->sender->ch.peer_failed;
        MPL_free(early);
        mpi_errno = MPID_Comm_revoke(comm, is_counted);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Forget_revocations(const MPIDI_VC_t * vc)
{
    early_t **place = &all_early;

    while (*place != NULL) {
        early_t *early = *place;

        if (vc == NULL || early->sender == vc) {
            *place = early->next;
            MPL_free(early);
        } else {
            place = &early->next;
        }
    }
}
