/*
 * The ch3:offload channel: revocations of communicators (MPIX_Comm_revoke) that come from other processes.
 *
 * To make a communicator does not end everywhere at once. Who has it already may revoke it before others have
 * it: there the revocation waits. It is meant for the next communicator with that context that has its sender
 * as a member. For the sender keeps the context until all others that live have revoked, too
 * (MPID_Comm_revoke). That of an intercommunicator is the receiver's, which keeps it while it makes that.
 */

#include "mpidi_ch3_impl.h"

/* More of one sender are no honest ones: one communicator is made at a time by each thread. */
enum { MOST_EARLY = 1024 };

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

/* The one in which this process receives with that context: what its peers send with. NULL: there is none. */
static MPIR_Comm *find_receiving(int context_id)
{
    MPIR_Comm *comm;

    for (comm = MPIDI_CH3I_communicators; comm != NULL; comm = comm->dev.ch.next)
        if (comm->recvcontext_id == context_id)
            break;
    return comm;
}

static int has_member(MPIR_Comm * comm, const MPIDI_VC_t * vc)
{
    MPIDI_VC_t *other;
    int rank;

    for (rank = 0; rank < comm->remote_size; rank++) {
        MPIDI_Comm_get_vc(comm, rank, &other);
        if (other == vc)
            return TRUE;
    }
    return FALSE;
}

/* In place of CH3's handler, which fails without the communicator, and does not say that it takes no data. */
int MPIDI_CH3I_Take_revocation(MPIDI_VC_t * vc, const MPIDI_CH3_Pkt_revoke_t * pkt)
{
    MPIR_Comm *comm = find_receiving(pkt->revoked_comm);

    return comm != NULL && has_member(comm, vc) ? MPID_Comm_revoke(comm, TRUE) :
        keep(vc, pkt->revoked_comm);
}

/* The processes of one node, or one of each node, of a communicator: they are made behind it. */
static int is_part_of_revoked(const MPIR_Comm * comm)
{
    const MPIR_Comm *whole;

    if (MPIR_CONTEXT_READ_FIELD(SUBCOMM, comm->context_id) == 0)
        return FALSE;
    whole = find_receiving(comm->recvcontext_id & ~MPIR_CONTEXT_SUBCOMM_MASK);
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

        if (early->context_id != comm->recvcontext_id || !has_member(comm, early->sender)) {
            place = &early->next;
            continue;
        }
        *place = early->next;
        /* The answer to a dead sender does not leave, and so MPID_Comm_revoke does not count on its word. */
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
