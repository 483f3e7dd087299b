/*
 * The ch3:offload channel: one-sided communication with a process that has died.
 *
 * CH3 counts what a window waits for (acknowledgements, granted locks, the ends of epochs) and knows no way to take a
 * dead process out of the counts. So the wait itself fails, with MPIX_ERR_PROC_FAILED, where a dead process may be what
 * it waits for. What follows such an error is the program's: MPI leaves the window's memory undefined.
 */

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"

static int is_dead(MPIR_Win * win, int rank)
{
    MPIDI_VC_t *vc;

    MPIDI_Comm_get_vc(win->comm_ptr, rank, &vc);
    return vc->ch.peer_failed;
}

static int has_dead_process(MPIR_Win * win)
{
    int rank;

    for (rank = 0; rank < win->comm_ptr->local_size; rank++)
        if (is_dead(win, rank))
            return TRUE;
    return FALSE;
}

static int is_lock_wanted(MPIDI_RMA_Target_t * target)
{
    return target->access_state == MPIDI_RMA_LOCK_CALLED || target->access_state == MPIDI_RMA_LOCK_ISSUED;
}

static int has_unfinished_operations(MPIDI_RMA_Target_t * target)
{
    return target->pending_net_ops_list_head != NULL || target->pending_user_ops_list_head != NULL ||
        target->sync.outstanding_acks > 0 || target->num_pkts_wait_for_local_completion > 0;
}

/* Whether the window waits for something that a dead process may owe it. Who holds a lock is not known here: any lock of
 * the window that was not granted yet may be held by the dead. */
static int may_wait_for_the_dead(MPIR_Win * win)
{
    MPIDI_RMA_Target_t *target;
    int i;

    if (!has_dead_process(win))
        return FALSE;
    /* A fence; MPI_Win_start; MPI_Win_wait; MPI_Win_lock_all. */
    if (win->sync_request_cnt > 0 || win->at_completion_counter > 0 || win->outstanding_locks > 0)
        return TRUE;
    for (i = 0; i < win->num_slots; i++)
        for (target = win->slots[i].target_list_head; target != NULL; target = target->next)
            if (is_lock_wanted(target) ||
                (has_unfinished_operations(target) && is_dead(win, target->target_rank)))
                return TRUE;
    return FALSE;
}

/* An error if a window waits for the dead. Which window this wait is for is not known: a program that waits for one while
 * another one is stuck gets the error there, and then once more. */
static int window_error(void)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Win *heads[2] = { MPIDI_RMA_Win_active_list_head, MPIDI_RMA_Win_inactive_list_head };
    MPIR_Win *win;
    int i;

    if (likely(MPIDI_Failed_vc_count == 0))
        return MPI_SUCCESS;
    for (i = 0; i < 2; i++)
        for (win = heads[i]; win != NULL; win = win->next)
            if (may_wait_for_the_dead(win)) {
                MPIR_ERR_SET(mpi_errno, MPIX_ERR_PROC_FAILED, "**proc_failed");
                return mpi_errno;
            }
    return MPI_SUCCESS;
}

/* A death ends the wait (MPIDI_CH3I_Connection_broken): CH3 looks at its counts and comes here again. */
int MPIDI_CH3I_Progress_wait_rma(MPID_Progress_state * state)
{
    int mpi_errno = window_error();

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = MPIDI_CH3I_Progress(TRUE, state);
    return mpi_errno;
}
