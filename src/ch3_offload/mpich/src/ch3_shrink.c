/*
 * The ch3:offload channel: MPIX_Comm_shrink, in place of CH3's (mpidi_ch3_post.h).
 *
 * The processes agree who has failed (ch3_agreement.c), those that live make a communicator, and agree that
 * all of them have made it. If some have not, because another process has died meanwhile, they try once
 * more.
 */

#include "ch3_agreement.h"

/* A communicator that MPIX_Comm_shrink is making in a thread of this process. */
typedef struct making {
    struct making *next;
    const agreements_t *all;    /* of the communicator that is shrunk */
    MPIR_Comm *from;
    MPIR_Comm *comm;            /* NULL: its context is not known yet */
    pthread_t thread;
    int is_abandoned;           /* others have given up */
} making_t;
static making_t *makings = NULL;
int MPIDI_CH3I_abandoned = 0;

/* ---- some cannot make it: then all must give up, for they wait for each other's messages ---- */

/* The tag of what is sent to make a communicator after that agreement. What is left of an attempt does not
 * disturb the next one, and has been dropped before the one behind that (MPIX_Comm_shrink). */
static int tag_after(uint32_t number)
{
    return number % 2 == 0 ? MPIR_AGREE_TAG : MPIR_SHRINK_TAG;
}

/* Its node-local and inter-node parts are made after it, since MPICH 5.0 before it. */
void MPIDI_CH3I_Note_created(MPIR_Comm * comm)
{
    making_t *making;

    if (MPIR_CONTEXT_READ_FIELD(SUBCOMM, comm->context_id) != 0)
        return;
    for (making = makings; making != NULL; making = making->next)
        if (making->comm == NULL && pthread_equal(making->thread, pthread_self()))
            making->comm = comm;
}

static int is_of(const making_t * making, const MPIR_Comm * comm, int tag)
{
    const MPIR_Comm *new_comm = making->comm;

    if (comm == making->from)
        return MPIR_TAG_MASK_ERROR_BITS(tag & ~MPIR_TAG_COLL_BIT) == tag_after(making->all->number);
    return new_comm != NULL && (comm == new_comm || comm == new_comm->node_comm ||
                                comm == new_comm->node_roots_comm);
}

int MPIDI_CH3I_Is_abandoned(const MPIR_Comm * comm, int tag)
{
    const making_t *making;

    for (making = makings; making != NULL; making = making->next)
        if (making->is_abandoned && is_of(making, comm, tag))
            return TRUE;
    return FALSE;
}

/* What this process waits for to make it fails, and what it would wait for (MPIDI_CH3I_Is_abandoned). */
static void abandon(making_t * making)
{
    making->is_abandoned = TRUE;
    MPIDI_CH3I_abandoned++;
    MPIDI_CH3I_Drop_tagged(making->from, tag_after(making->all->number));
    if (making->comm != NULL)
        MPIDI_CH3U_Clean_recvq(making->comm);
}

void MPIDI_CH3I_Take_abandonment(agreements_t * all, uint32_t number)
{
    making_t *making;

    if ((int32_t) (number - all->abandoned) <= 0)
        return;                 /* it is late */
    all->abandoned = number;
    for (making = makings; making != NULL; making = making->next)
        if (making->all == all && number == all->number + 1 && !making->is_abandoned)
            abandon(making);
}

static void begin_making(making_t * making, const agreements_t * all, MPIR_Comm * from)
{
    making->next = makings;
    making->all = all;
    making->from = from;
    making->comm = NULL;
    making->thread = pthread_self();
    making->is_abandoned = all->abandoned == all->number + 1;
    MPIDI_CH3I_abandoned += making->is_abandoned;
    makings = making;
}

static void end_making(making_t * making)
{
    making_t **place;

    for (place = &makings; *place != making; place = &(*place)->next);
    *place = making->next;
    MPIDI_CH3I_abandoned -= making->is_abandoned;
}

/* Tells all that this process has given up. */
static void tell_abandonment(const agreements_t * all, MPIR_Comm * comm)
{
    int i;

    for (i = 0; i < all->size; i++) {
        MPIDI_CH3I_Pkt_agree_t pkt;

        MPIDI_CH3I_Begin_agree_packet(&pkt, all, ABANDONMENT, all->number + 1, comm->rank, i);
        if (i != comm->rank)
            MPIDI_CH3I_Send_agree_packet(MPIDI_CH3I_Member(comm, i), &pkt);
    }
}

/* Makes a communicator of those for which the array has 0. *new_comm is NULL after an error. */
static int make_comm(const agreements_t * all, MPIR_Comm * comm, const char *failed, MPIR_Comm ** new_comm)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Group *alive = NULL;
    making_t making;

    *new_comm = NULL;
    mpi_errno = MPIDI_CH3I_Group_of(comm, failed, FALSE, &alive);
    MPIR_ERR_CHECK(mpi_errno);
    begin_making(&making, all, comm);
    mpi_errno = MPIR_Comm_create_group_impl(comm, alive, tag_after(all->number), new_comm);
    end_making(&making);
    if (mpi_errno != MPI_SUCCESS)
        *new_comm = NULL;       /* MPICH has freed it */
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    if (alive != NULL)
        MPIR_Group_release(alive);
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* In place of MPIR_Comm_shrink_impl. Who fails meanwhile is left out in the next try. */
int MPIDI_CH3I_Comm_shrink(MPIR_Comm * comm, MPIR_Comm ** new_comm)
{
    int mpi_errno = MPI_SUCCESS;
    int has_failed_more = TRUE;
    agreements_t *all;
    char *failed;
    MPIDI_CH3I_CHKLMEM_DECL();

    *new_comm = NULL;
    MPIDI_CH3I_CHKLMEM_MALLOC(failed, comm->local_size);
    mpi_errno = MPIDI_CH3I_Come_to_decision(comm, 1, &all);
    MPIR_ERR_CHECK(mpi_errno);
    while (has_failed_more) {
        int made;

        MPIR_Memcpy(failed, all->failed, all->size);
        made = make_comm(all, comm, failed, new_comm);
        if (made != MPI_SUCCESS)
            tell_abandonment(all, comm);
        /* Nobody begins the next attempt before this process has contributed: this is of the last but one. */
        MPIDI_CH3I_Drop_tagged(comm, tag_after(all->number + 1));
        mpi_errno = MPIDI_CH3I_Come_to_decision(comm, made == MPI_SUCCESS, &all);
        MPIR_ERR_CHECK(mpi_errno);
        if (all->value)
            break;
        /* Not for all: then for nobody. */
        if (*new_comm != NULL)
            MPIR_Comm_release(*new_comm);
        *new_comm = NULL;
        has_failed_more = memcmp(failed, all->failed, all->size) != 0;
        MPIR_ERR_CHKANDJUMP(!has_failed_more, mpi_errno, MPI_ERR_OTHER, "**ch3|offload|shrink");
    }

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
