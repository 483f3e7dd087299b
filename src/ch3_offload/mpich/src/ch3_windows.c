/*
 * The ch3:offload channel: windows that the network processor serves. So others put to them, read, change
 * and lock them while their process computes.
 *
 * Who owns what of a window is decided when it is made, for all of its processes alike:
 *
 *   served    locks          accumulates                      put and get
 *   NOT       CH3's packets  CH3, under the segment's mutex   loads and stores within the node, else packets
 *   LOCKS     the processor  CH3, under the segment's mutex   loads and stores: all processes share memory
 *   ALL       the processor  the processor                    loads and stores within the node, else its
 *
 * NOT: some process's driver works only in the process's calls, or the window is dynamic. LOCKS: all
 * processes of the window share its memory. So each element is changed by one party, or under one mutex.
 *
 * An operation on a window that is ALL is cut into parts (ch3_window_ops.c), which the processor carries
 * out. When it is over here, it is over at the target. So flush, unlock, fence and complete wait until no
 * operation is under way. All else of fences and of MPI_Win_post, start, complete and wait is CH3's, which
 * sees no operations.
 *
 * The locks of such windows are ch3_window_locks.c.
 */

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"
#include "utlist.h"

static MPIDI_CH3I_Window_op *free_ops = NULL;
size_t MPIDI_CH3I_silent_work = 0;

/* ---- making and freeing ---- */

int MPIDI_CH3I_Window_expose(MPIR_Win * win)
{
    uint16_t number;

    /* What is attached to a dynamic window, only CH3 knows, and processors serve those of one world. */
    if (win->create_flavor == MPI_WIN_FLAVOR_DYNAMIC || !ch3_offload_window_serves(MPIDI_CH3I_channel) ||
        !MPIDI_CH3I_Is_of_one_world(win->comm_ptr))
        return -1;
    win->ch.targets = MPL_calloc(win->comm_ptr->local_size, sizeof(*win->ch.targets), MPL_MEM_RMA);
    if (win->ch.targets == NULL)
        return -1;
    if (ch3_offload_window_expose(MPIDI_CH3I_channel, win->base, win->size, &number) != CH3_OFFLOAD_OK) {
        MPL_free(win->ch.targets);
        win->ch.targets = NULL;
        return -1;
    }
    win->ch.number = number;
    win->ch.is_exposed = TRUE;
    return number;
}

void MPIDI_CH3I_Window_serve(MPIR_Win * win)
{
    const MPIR_Comm *node = win->comm_ptr->node_comm;
    int is_shared = win->shm_allocated && node != NULL && node->local_size == win->comm_ptr->local_size;

    win->ch.served = is_shared ? MPIDI_CH3I_SERVED_LOCKS : MPIDI_CH3I_SERVED_ALL;
}

void MPIDI_CH3I_Window_withdraw(MPIR_Win * win)
{
    /* Two things may still be under way: the word by which the lock's last holder gives it back, and the
     * answer to a question whose waiter has failed. */
    while (win->ch.under_way > 0 ||
           (win->ch.is_exposed && !ch3_offload_window_withdraw(MPIDI_CH3I_channel, win->ch.number)))
        MPIDI_CH3I_Defer_error(MPID_Progress_test(NULL));
    win->ch.is_exposed = FALSE;
    win->ch.served = MPIDI_CH3I_SERVED_NOT;
    MPL_free(win->ch.targets);
    win->ch.targets = NULL;
}

void MPIDI_CH3I_Windows_finalize(void)
{
    while (free_ops != NULL) {
        MPIDI_CH3I_Window_op *op = free_ops;

        LL_DELETE(free_ops, free_ops, op);
        MPL_free(op);
    }
}

/* ---- operations ---- */

MPIDI_CH3I_Window_op *MPIDI_CH3I_Window_op_make(MPIR_Win * win, int rank, MPIR_Request * request)
{
    MPIDI_CH3I_Window_op *op = free_ops;

    if (op != NULL)
        LL_DELETE(free_ops, free_ops, op);
    else
        op = MPL_malloc(sizeof(*op), MPL_MEM_RMA);
    if (op == NULL)
        return NULL;
    memset(op, 0, sizeof(*op));
    op->win = win;
    op->rank = rank;
    op->request = request;
    op->parts = 1;              /* the caller's own */
    op->status = CH3_OFFLOAD_OK;
    win->ch.under_way++;
    win->ch.targets[rank].under_way++;
    return op;
}

static int error_of(const MPIDI_CH3I_Window_op * op)
{
    int mpi_errno = MPI_SUCCESS;

    if (op->status == CH3_OFFLOAD_TRUNCATED) {
        MPIR_ERR_SET1(mpi_errno, MPI_ERR_RMA_RANGE, "**ch3|offload|range",
                      "**ch3|offload|range %d", op->rank);
        return mpi_errno;
    }
    return op->status == CH3_OFFLOAD_OK ? MPI_SUCCESS : MPIDI_CH3I_Error(op->status, op->rank);
}

void MPIDI_CH3I_Window_part_over(MPIDI_CH3I_Window_op * op, int status)
{
    MPIR_Win *win = op->win;
    int mpi_errno;

    MPIDI_CH3_Progress_signal_completion();     /* also for who waits for room */
    if (op->status == CH3_OFFLOAD_OK)
        op->status = status;
    if (--op->parts > 0)
        return;
    mpi_errno = error_of(op);
    if (op->end != NULL) {
        int error = op->end(op, mpi_errno == MPI_SUCCESS);

        if (mpi_errno == MPI_SUCCESS)
            mpi_errno = error;
    }
    if (op->source != NULL)
        MPIDI_CH3I_Free_mem(op->source);
    if (op->result != NULL)
        MPIDI_CH3I_Free_mem(op->result);
    win->ch.under_way--;
    win->ch.targets[op->rank].under_way--;
    if (op->request != NULL) {
        op->request->status.MPI_ERROR = mpi_errno;
        MPIDI_CH3I_Defer_error(MPID_Request_complete(op->request));
    } else if (mpi_errno != MPI_SUCCESS && win->ch.targets[op->rank].failure == MPI_SUCCESS) {
        win->ch.targets[op->rank].failure = mpi_errno;
        win->ch.failures++;
    }
    LL_PREPEND(free_ops, free_ops, op);
}

int MPIDI_CH3I_Window_begin(MPIDI_CH3I_Window_op * op, ch3_offload_window_operation_t * part)
{
    return MPIDI_CH3I_Window_begin_runs(op, part, 0, 0);
}

int MPIDI_CH3I_Window_begin_runs(MPIDI_CH3I_Window_op * op, ch3_offload_window_operation_t * part,
                                 size_t block_bytes, uint64_t stride_bytes)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_VC_t *vc;
    int status;

    MPIDI_Comm_get_vc(op->win->comm_ptr, op->rank, &vc);
    part->peer = MPIDI_CH3I_Peer(vc);
    part->window = op->win->ch.targets[op->rank].number;
    part->cookie = op;
    op->parts++;
    while ((status = ch3_offload_window_begin_runs(MPIDI_CH3I_channel, part, block_bytes, stride_bytes)) ==
           CH3_OFFLOAD_WINDOW_AGAIN) {
        mpi_errno = MPIDI_CH3I_Await_progress();
        if (mpi_errno != MPI_SUCCESS)
            break;
    }
    if (mpi_errno != MPI_SUCCESS || status != CH3_OFFLOAD_OK || part->kind == CH3_OFFLOAD_WINDOW_UNLOCK)
        op->parts--;            /* it is not told of */
    if (mpi_errno == MPI_SUCCESS && status != CH3_OFFLOAD_OK)
        mpi_errno = MPIDI_CH3I_Error(status, op->rank);
    return mpi_errno;
}

/* ---- waiting ---- */

int MPIDI_CH3I_Window_take_failure(MPIR_Win * win, int rank)
{
    int mpi_errno = win->ch.targets[rank].failure;

    if (mpi_errno != MPI_SUCCESS)
        win->ch.failures--;
    win->ch.targets[rank].failure = MPI_SUCCESS;
    return mpi_errno;
}

/* The failure of the lowest rank; those of all ranks are taken. */
static int take_failures(MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    int rank;

    for (rank = 0; win->ch.failures > 0 && rank < win->comm_ptr->local_size; rank++) {
        int error = MPIDI_CH3I_Window_take_failure(win, rank);

        if (mpi_errno == MPI_SUCCESS)
            mpi_errno = error;
    }
    return mpi_errno;
}

/* How many operations on a target, or on all (rank < 0), are not over. A question for a lock does not count:
 * another thread waits for its answer, and the lock's holder may wait for this thread. */
static int operations_under_way(const MPIR_Win * win, int rank)
{
    if (rank < 0)
        return win->ch.under_way - win->ch.questions;
    return win->ch.targets[rank].under_way - win->ch.targets[rank].questions;
}

int MPIDI_CH3I_Window_wait(MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    while (operations_under_way(win, rank) > 0) {
        mpi_errno = MPIDI_CH3I_Await_progress();
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = rank < 0 ? take_failures(win) : MPIDI_CH3I_Window_take_failure(win, rank);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_settle_own(MPIR_Win * win, int rank)
{
    return rank == win->comm_ptr->rank ? MPIDI_CH3I_Window_wait(win, rank) : MPI_SUCCESS;
}

/* ---- the ends of operations ---- */

/* Where loads and stores reach the target, all operations on it were over when their calls returned. */
static int flush_near(const MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_CHKANDJUMP(win->states.access_state != MPIDI_RMA_PER_TARGET &&
                        win->states.access_state != MPIDI_RMA_LOCK_ALL_CALLED &&
                        win->states.access_state != MPIDI_RMA_LOCK_ALL_ISSUED &&
                        win->states.access_state != MPIDI_RMA_LOCK_ALL_GRANTED, mpi_errno,
                        MPI_ERR_RMA_SYNC, "**rmasync");
    MPL_atomic_read_write_barrier();
    if (++MPIDI_CH3I_silent_work >= MPIDI_CH3I_SILENT_WORK) {
        MPIDI_CH3I_silent_work = 0;
        mpi_errno = MPID_Progress_test(NULL);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Of those on a target, or on all (rank < 0). is_local: what CH3 carries out may still be under way at
 * the target. */
static int flush(MPIR_Win * win, int rank, int is_local)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_CH3I_Turn_t turn;

    if (win->ch.served != MPIDI_CH3I_SERVED_ALL && rank >= 0 && MPIDI_CH3I_Window_is_near(win, rank))
        return flush_near(win);
    if (win->ch.served == MPIDI_CH3I_SERVED_ALL) {
        MPIR_ERR_CHKANDJUMP(win->states.access_state != MPIDI_RMA_PER_TARGET &&
                            win->states.access_state != MPIDI_RMA_LOCK_ALL_GRANTED, mpi_errno,
                            MPI_ERR_RMA_SYNC, "**rmasync");
        MPL_atomic_read_write_barrier();
        mpi_errno = MPIDI_CH3I_Window_wait(win, rank);
    } else {
        mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);
        MPIR_ERR_CHECK(mpi_errno);
        if (rank < 0)
            mpi_errno = is_local ? MPIDI_CH3I_Stock_win_flush_local_all(win) :
                MPIDI_CH3I_Stock_win_flush_all(win);
        else if (is_local)
            mpi_errno = MPIDI_CH3I_Stock_win_flush_local(rank, win);
        else
            mpi_errno = MPIDI_CH3I_Stock_win_flush(rank, win);
        MPIDI_CH3I_Turn_give(&turn);
    }
    MPIR_ERR_CHECK(mpi_errno);
    /* Who synchronises in a loop with itself alone, or where CH3 polls nothing because loads and stores
     * reach the targets, must not keep others waiting. */
    if (rank == win->comm_ptr->rank || (win->ch.served != MPIDI_CH3I_SERVED_ALL && rank < 0))
        mpi_errno = MPID_Progress_test(NULL);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_flush(int rank, MPIR_Win * win)
{
    return flush(win, rank, FALSE);
}

int MPIDI_CH3I_Window_flush_local(int rank, MPIR_Win * win)
{
    return flush(win, rank, TRUE);
}

int MPIDI_CH3I_Window_flush_all(MPIR_Win * win)
{
    return flush(win, -1, FALSE);
}

int MPIDI_CH3I_Window_flush_local_all(MPIR_Win * win)
{
    return flush(win, -1, TRUE);
}

/* Whatever becomes of the processor's operations, CH3 then ends its part of the epoch: others wait for
 * that. */
static int wait_if_served(MPIR_Win * win)
{
    return win->ch.served == MPIDI_CH3I_SERVED_ALL ? MPIDI_CH3I_Window_wait(win, -1) : MPI_SUCCESS;
}

int MPIDI_CH3I_Window_fence(int assert, MPIR_Win * win)
{
    int mpi_errno = wait_if_served(win);
    const int error = MPIDI_CH3I_Stock_win_fence(assert, win);

    MPIR_ERR_ADD(mpi_errno, error);
    return mpi_errno;
}

int MPIDI_CH3I_Window_complete(MPIR_Win * win)
{
    int mpi_errno = wait_if_served(win);
    const int error = MPIDI_CH3I_Stock_win_complete(win);

    MPIR_ERR_ADD(mpi_errno, error);
    return mpi_errno;
}
