/*
 * The ch3:offload channel: one-sided communication with a process that has died.
 *
 * CH3 counts what a window waits for (acknowledgements, granted locks, the ends of epochs) and knows no
 * way to take a dead process out of the counts. This file does two things instead:
 *
 * 1. A target is lost if its process is dead, or if its lock is refused because its holder is dead
 *    (ch3_rma_locks.c). All operations of a lost target fail, the user's requests (MPI_Rget, ...)
 *    included. The target stays in the state MPIDI_RMA_LOCK_ISSUED: CH3 issues nothing to it and never
 *    finds it complete.
 * 2. A wait fails with MPIX_ERR_PROC_FAILED if it needs a lost target, or an epoch that needs a dead process.
 *
 * What follows such an error is the program's: MPI leaves the window's memory undefined.
 */

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"

int MPIDI_CH3I_losses = 0;

static int process_failed(void)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_SET(mpi_errno, MPIX_ERR_PROC_FAILED, "**proc_failed");
    return mpi_errno;
}

MPIR_Win *MPIDI_CH3I_First_window(void)
{
    return MPIDI_RMA_Win_active_list_head != NULL ? MPIDI_RMA_Win_active_list_head :
        MPIDI_RMA_Win_inactive_list_head;
}

MPIR_Win *MPIDI_CH3I_Next_window(MPIR_Win * win)
{
    if (win->next != NULL)
        return win->next;
    return win->active ? MPIDI_RMA_Win_inactive_list_head : NULL;
}

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

static MPIDI_RMA_Target_t *find_target(MPIR_Win * win, int rank)
{
    MPIDI_RMA_Target_t *target;

    MPIDI_CH3I_Win_find_target(win, rank, &target);
    return target;
}

static int is_lock_wanted(MPIDI_RMA_Target_t * target)
{
    return target->access_state == MPIDI_RMA_LOCK_CALLED || target->access_state == MPIDI_RMA_LOCK_ISSUED;
}

/* ---- operations of lost targets ---- */

static int is_lost(MPIR_Win * win, MPIDI_RMA_Target_t * target)
{
    return is_dead(win, target->target_rank) ||
        (is_lock_wanted(target) && (target->lock_mode & MPIDI_CH3I_LOCK_BROKEN));
}

void MPIDI_CH3I_Fail_request(MPIR_Request * req, int mpi_errno)
{
    req->status.MPI_ERROR = mpi_errno;
    if (req->dev.request_completed_cb == MPIDI_CH3_Req_handler_rma_op_complete &&
        req->dev.request_handle != MPI_REQUEST_NULL) {
        MPIR_Request *user_req;

        MPIR_Request_get_ptr(req->dev.request_handle, user_req);
        user_req->status.MPI_ERROR = mpi_errno;
    }
    MPIDI_CH3I_Defer_error(MPID_Request_complete(req));
}

static void release_datatype(MPI_Datatype datatype)
{
    if (datatype != MPI_DATATYPE_NULL)
        MPIR_Datatype_release_if_not_builtin(datatype);
}

/* Issued operations have passed them on. */
static void release_datatypes(MPIDI_RMA_Op_t * op)
{
    int mpi_errno = MPI_SUCCESS;
    MPI_Datatype target_datatype = MPI_DATATYPE_NULL;

    MPIDI_CH3_PKT_RMA_GET_TARGET_DATATYPE(op->pkt, target_datatype, mpi_errno);
  fn_fail:
    MPIDI_CH3I_Defer_error(mpi_errno);
    release_datatype(target_datatype);
    release_datatype(op->origin_datatype);
    release_datatype(op->result_datatype);
}

/* An operation that was not issued, or issued with a request for the lock that was not granted. */
static void fail_operation(MPIR_Win * win, MPIDI_RMA_Op_t * op, int mpi_errno)
{
    int i;

    for (i = 0; i < op->reqs_size; i++) {
        MPIR_Request *req = op->reqs_size == 1 ? op->single_req : op->multi_reqs[i];

        if (req == NULL)
            continue;
        /* Requests of packets come to their end by themselves, answers do not. */
        if (MPIDI_CH3I_RMA_PKT_IS_READ_OP(op->pkt) && !MPIR_Request_is_complete(req))
            MPIDI_CH3I_Fail_request(req, mpi_errno);
        MPIR_Request_free(req);
    }
    if (op->reqs_size == 0 && op->issued_stream_count == 0)
        release_datatypes(op);
    if (op->ureq != NULL) {
        op->ureq->status.MPI_ERROR = mpi_errno;
        MPIDI_CH3I_Defer_error(MPID_Request_complete(op->ureq));
    }
    MPIDI_CH3I_Win_op_free(win, op);
}

static int fail_operations(MPIR_Win * win, MPIDI_RMA_Op_t ** head, int mpi_errno)
{
    int count = 0;

    while (*head != NULL) {
        MPIDI_RMA_Op_t *op = *head;
        DL_DELETE(*head, op);
        fail_operation(win, op, mpi_errno);
        count++;
    }
    return count;
}

/* Fails `count` requests at `req` as far as they are for an answer of the target. */
static void fail_answers_among(MPIR_Request * req, int count, MPIDI_RMA_Target_t * target, int mpi_errno)
{
    for (; count > 0; count--, req++)
        if (MPIR_Object_get_ref(req) > 0 && req->kind == MPIR_REQUEST_KIND__UNDEFINED &&
            req->dev.request_completed_cb == MPIDI_CH3_Req_handler_rma_op_complete &&
            req->dev.rma_target_ptr == target && !MPIR_Request_is_complete(req))
            MPIDI_CH3I_Fail_request(req, mpi_errno);
}

/* Fails the operations that await the target's answer. CH3 has no list of them, so this looks at all
 * requests. */
static void fail_answers(MPIDI_RMA_Target_t * target, int mpi_errno)
{
    int i;

    fail_answers_among(MPIR_Request_direct, MPIR_REQUEST_PREALLOC, target, mpi_errno);
    for (i = 0; i < MPIR_Request_mem[0].indirect_size; i++)
        fail_answers_among(MPIR_Request_mem[0].indirect[i], REQUEST_NUM_INDICES, target, mpi_errno);
}

static void fail_target(MPIR_Win * win, MPIDI_RMA_Target_t * target)
{
    int mpi_errno = process_failed();

    target->access_state = MPIDI_RMA_LOCK_ISSUED;
    target->next_op_to_issue = NULL;
    fail_operations(win, &target->pending_user_ops_list_head, mpi_errno);
    if (fail_operations(win, &target->pending_net_ops_list_head, mpi_errno) > 0) {
        win->num_targets_with_pending_net_ops--;
        if (win->num_targets_with_pending_net_ops == 0)
            MPIDI_CH3I_Win_set_inactive(win);
    }
    if (target->num_pkts_wait_for_local_completion > 0)
        fail_answers(target, mpi_errno);
    win->outstanding_acks -= target->sync.outstanding_acks;
    target->sync.outstanding_acks = 0;
}

int MPIDI_CH3I_Fail_lost_targets(void)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Win *win, *next;
    MPIDI_RMA_Target_t *target;
    int i;

    for (win = MPIDI_CH3I_First_window(); win != NULL; win = next) {
        next = MPIDI_CH3I_Next_window(win);
        mpi_errno = MPIDI_CH3I_Refuse_waiters(win);
        MPIR_ERR_CHECK(mpi_errno);
        for (i = 0; i < win->num_slots; i++)
            for (target = win->slots[i].target_list_head; target != NULL; target = target->next)
                if (is_lost(win, target))
                    fail_target(win, target);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- waits ---- */

/* MPI_Win_start has named a dead process. */
static int has_started_dead(MPIR_Win * win)
{
    int i;

    for (i = 0; i < win->start_grp_size; i++)
        if (is_dead(win, win->start_ranks_in_win_grp[i]))
            return TRUE;
    return FALSE;
}

/* MPI_Win_lock_all waits for the locks of this process, and of its node if the window is shared. When CH3
 * runs short of targets, it waits for those of all processes. */
static int locks_all_of_dead(MPIR_Win * win)
{
    MPIDI_VC_t *own_vc, *vc;
    int rank;

    MPIDI_Comm_get_vc(win->comm_ptr, win->comm_ptr->rank, &own_vc);
    for (rank = 0; rank < win->comm_ptr->local_size; rank++) {
        MPIDI_Comm_get_vc(win->comm_ptr, rank, &vc);
        if (vc->ch.peer_failed && (win->states.access_state == MPIDI_RMA_LOCK_ALL_ISSUED ||
                                   (win->shm_allocated && vc->node_id == own_vc->node_id)))
            return TRUE;
    }
    return win->ch.is_lock_all_refused;
}

/* target_rank < 0: for everything that the window waits for. */
static int waits_for_dead(MPIR_Win * win, int target_rank)
{
    MPIDI_RMA_Target_t *target;
    int i;

    if (target_rank >= 0) {
        target = find_target(win, target_rank);
        return target != NULL && is_lost(win, target);
    }
    for (i = 0; i < win->num_slots; i++)
        for (target = win->slots[i].target_list_head; target != NULL; target = target->next)
            if (is_lost(win, target))
                return TRUE;
    if (win->outstanding_locks > 0 && locks_all_of_dead(win))
        return TRUE;
    if (win->states.access_state == MPIDI_RMA_PSCW_ISSUED) {
        if (has_started_dead(win))
            return TRUE;
    } else if (win->sync_request_cnt > 0 && has_dead_process(win)) {    /* a fence */
        return TRUE;
    }
    /* Whom MPI_Win_post has named is not known. */
    return win->at_completion_counter > 0 && has_dead_process(win);
}

/* CH3 grants an epoch of MPI_Win_start when the last message of its targets comes. If a fence before it has a
 * barrier that ends later, CH3 does not look again (fence_barrier_complete()). Returns TRUE if the epoch is
 * granted now. */
static int grant_late(MPIR_Win * win, int *mpi_errno)
{
    if (win->states.access_state != MPIDI_RMA_PSCW_ISSUED || win->sync_request_cnt > 0)
        return FALSE;
    win->states.access_state = MPIDI_RMA_PSCW_GRANTED;
    if (win->num_targets_with_pending_net_ops > 0)
        *mpi_errno = MPIDI_CH3I_Win_set_active(win);
    return TRUE;
}

int MPIDI_CH3I_Win_wait(MPIR_Win * win, int target_rank)
{
    int mpi_errno = MPI_SUCCESS;
    MPID_Progress_state state;

    if (grant_late(win, &mpi_errno))
        return mpi_errno;
    MPID_Progress_start(&state);
    if (unlikely(MPIDI_CH3I_losses > 0)) {
        mpi_errno = MPIDI_CH3I_Fail_lost_targets();
        MPIR_ERR_CHECK(mpi_errno);
        if (waits_for_dead(win, target_rank)) {
            win->ch.is_lock_all_refused = FALSE;
            mpi_errno = process_failed();
            goto fn_fail;
        }
    }
    /* A death or a refused lock ends this wait, too: CH3 looks at its counts and comes here again. */
    mpi_errno = MPID_Progress_wait(&state);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    MPID_Progress_end(&state);
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Win_wait_to_free(MPIR_Win ** win, int target_rank ATTRIBUTE((unused)))
{
    /* A barrier follows. */
    if (MPIDI_CH3I_losses > 0 && has_dead_process(*win))
        return process_failed();
    return MPIDI_CH3I_Win_wait(*win, -1);
}
