/*
 * The ch3:offload channel: windows that the network processor serves. So others put to them, read, change and lock
 * them while their process computes.
 *
 * Who owns what of a window is decided when it is made, for all of its processes alike:
 *
 *   served    locks          accumulates                      put and get
 *   NOT       CH3's packets  CH3, under the segment's mutex   loads and stores within the node, else packets
 *   LOCKS     the processor  CH3, under the segment's mutex   loads and stores: all processes share the memory
 *   ALL       the processor  the processor                    loads and stores within the node, else the processor
 *
 * NOT: some process's driver works only in the process's calls, or the window is dynamic. LOCKS: all processes
 * of the window share its memory. So each element is changed by one party, or under one mutex.
 *
 * An operation on a window that is ALL is cut into parts (ch3_window_ops.c), which the processor carries out. When
 * it is over here, it is over at the target. So flush, unlock, fence and complete wait until no operation is under
 * way. All else of fences and of MPI_Win_post, start, complete and wait is CH3's, which sees no operations.
 *
 * To lock a target is to ask its processor. The answer comes when this process has the lock. MPI_Win_lock_all asks
 * at once where loads and stores reach, and elsewhere at the first operation.
 */

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"
#include "utlist.h"

/* The lock of a target, as this process has it. */
enum {
    LOCK_NONE = 0,
    LOCK_ASKED,
    LOCK_UNWANTED,              /* asked, but its waiter has failed: it is given back when it comes */
    LOCK_HELD,
    LOCK_ASSUMED                /* MPI_MODE_NOCHECK: nobody else wants it, so the target is not asked */
};

static MPIDI_CH3I_Window_op *free_ops = NULL;

/* ---- making and freeing ---- */

int MPIDI_CH3I_Window_expose(MPIR_Win * win)
{
    uint16_t number;

    /* What is attached to a dynamic window, only CH3 knows. */
    if (win->create_flavor == MPI_WIN_FLAVOR_DYNAMIC || !ch3_offload_window_serves(MPIDI_CH3I_channel))
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
    /* Two things may still be under way: the word by which the lock's last holder gives it back, and the answer
     * to a question whose waiter has failed. */
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
        MPIR_ERR_SET1(mpi_errno, MPI_ERR_RMA_RANGE, "**ch3|offload|range", "**ch3|offload|range %d", op->rank);
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
    MPL_free(op->source);
    MPL_free(op->result);
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
    int mpi_errno = MPI_SUCCESS;
    MPIDI_VC_t *vc;
    int status;

    MPIDI_Comm_get_vc(op->win->comm_ptr, op->rank, &vc);
    part->peer = vc->pg_rank;
    part->window = op->win->ch.targets[op->rank].number;
    part->cookie = op;
    op->parts++;
    while ((status = ch3_offload_window_begin(MPIDI_CH3I_channel, part)) == CH3_OFFLOAD_WINDOW_AGAIN) {
        mpi_errno = MPIDI_CH3I_Window_progress();
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

int MPIDI_CH3I_Window_progress(void)
{
    int mpi_errno;
    MPID_Progress_state state;

    MPID_Progress_start(&state);
    mpi_errno = MPID_Progress_wait(&state);
    MPID_Progress_end(&state);
    return mpi_errno;
}

/* Of an operation that has no request. */
static int take_failure(MPIR_Win * win, int rank)
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
        int error = take_failure(win, rank);

        if (mpi_errno == MPI_SUCCESS)
            mpi_errno = error;
    }
    return mpi_errno;
}

/* Whether this process has asked for the lock of a target, and there is no answer yet. */
static int is_asked(const MPIR_Win * win, int rank)
{
    const int lock = win->ch.targets[rank].lock;

    return lock == LOCK_ASKED || lock == LOCK_UNWANTED;
}

/* How many operations on a target, or on all (rank < 0), are not over. A question for a lock does not count:
 * another thread waits for its answer, and the lock's holder may wait for this thread. */
static int operations_under_way(const MPIR_Win * win, int rank)
{
    if (rank < 0)
        return win->ch.under_way - win->ch.questions;
    return win->ch.targets[rank].under_way - is_asked(win, rank);
}

/* Waits until the operations on a target, or on all (rank < 0), are over. Returns a failure of one. */
static int wait_for_operations(MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    while (operations_under_way(win, rank) > 0) {
        mpi_errno = MPIDI_CH3I_Window_progress();
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = rank < 0 ? take_failures(win) : take_failure(win, rank);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_settle_own(MPIR_Win * win, int rank)
{
    return rank == win->comm_ptr->rank ? wait_for_operations(win, rank) : MPI_SUCCESS;
}

/* What a process does that synchronises with itself alone in a loop must not keep others waiting. */
static int poke_if_own(const MPIR_Win * win, int rank)
{
    return rank == win->comm_ptr->rank ? MPID_Progress_test(NULL) : MPI_SUCCESS;
}

/* ---- locks ---- */

static int give_back(MPIR_Win * win, int rank);

/* The question was answered. */
static int lock_answered(MPIDI_CH3I_Window_op * op, int is_ok)
{
    MPIDI_CH3I_Window_target *target = &op->win->ch.targets[op->rank];
    const int is_unwanted = target->lock == LOCK_UNWANTED;

    op->win->ch.questions--;
    target->lock = is_ok ? LOCK_HELD : LOCK_NONE;
    return is_unwanted ? give_back(op->win, op->rank) : MPI_SUCCESS;
}

/* Whether this process neither has the lock of a target nor waits for it. */
static int is_unlocked(const MPIR_Win * win, int rank)
{
    const int lock = win->ch.targets[rank].lock;

    return lock == LOCK_NONE || lock == LOCK_UNWANTED;
}

/* Waits for an answer that nobody wants any more. To be called before ask(): a target that is asked twice
 * ends the connection. */
static int settle(const MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    while (win->ch.targets[rank].lock == LOCK_UNWANTED) {
        mpi_errno = MPIDI_CH3I_Window_progress();
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Asks for the lock of a target, or gives it back. */
static int ask(MPIR_Win * win, int rank, int kind)
{
    int mpi_errno = MPI_SUCCESS;
    const int is_unlock = kind == CH3_OFFLOAD_WINDOW_UNLOCK;
    ch3_offload_window_operation_t part;
    MPIDI_CH3I_Window_op *op = MPIDI_CH3I_Window_op_make(win, rank, NULL);

    MPIR_ERR_CHKANDJUMP1(op == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem", "**nomem %s", "window operation");
    memset(&part, 0, sizeof(part));
    part.kind = kind;
    /* MPIDI_CH3I_Window_begin() may let another thread run, which must not ask, too. */
    if (!is_unlock) {
        win->ch.targets[rank].lock = LOCK_ASKED;
        win->ch.questions++;
    }
    mpi_errno = MPIDI_CH3I_Window_begin(op, &part);
    if (!is_unlock && mpi_errno == MPI_SUCCESS) {
        op->end = lock_answered;
    } else if (!is_unlock) {
        win->ch.targets[rank].lock = LOCK_NONE;
        win->ch.questions--;
    }
    MPIDI_CH3I_Window_part_over(op, CH3_OFFLOAD_OK);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Waits until a lock that was asked for is this process's. */
static int wait_for_lock(MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    while (win->ch.targets[rank].lock == LOCK_ASKED) {
        mpi_errno = MPIDI_CH3I_Window_progress();
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (win->ch.targets[rank].lock != LOCK_HELD) {
        mpi_errno = take_failure(win, rank);
        if (mpi_errno == MPI_SUCCESS)   /* another thread has taken it */
            mpi_errno = MPIDI_CH3I_Error(CH3_OFFLOAD_PEER_FAILED, rank);
        goto fn_fail;
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int give_back(MPIR_Win * win, int rank)
{
    MPIDI_CH3I_Window_target *target = &win->ch.targets[rank];
    const int is_held = target->lock == LOCK_HELD;

    if (target->lock == LOCK_UNWANTED)
        return MPI_SUCCESS;
    target->lock = target->lock == LOCK_ASKED ? LOCK_UNWANTED : LOCK_NONE;
    return is_held ? ask(win, rank, CH3_OFFLOAD_WINDOW_UNLOCK) : MPI_SUCCESS;
}

/* Takes the lock of a target, and waits until this process has it. */
static int take_lock(MPIR_Win * win, int rank, int lock_type)
{
    int mpi_errno = ask(win, rank, lock_type == MPI_LOCK_EXCLUSIVE ? CH3_OFFLOAD_WINDOW_LOCK_EXCLUSIVE :
                        CH3_OFFLOAD_WINDOW_LOCK_SHARED);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = wait_for_lock(win, rank);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    give_back(win, rank);
    goto fn_exit;
}

static int is_before_epoch(const MPIR_Win * win)
{
    return win->states.access_state == MPIDI_RMA_NONE || win->states.access_state == MPIDI_RMA_FENCE_ISSUED ||
        win->states.access_state == MPIDI_RMA_FENCE_GRANTED;
}

static int is_locked_all(const MPIR_Win * win)
{
    return win->states.access_state == MPIDI_RMA_LOCK_ALL_GRANTED;
}

static int is_passive(const MPIR_Win * win)
{
    return win->states.access_state == MPIDI_RMA_PER_TARGET || is_locked_all(win);
}

int MPIDI_CH3I_Window_enter(MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    if (win->ch.served == MPIDI_CH3I_SERVED_NOT)
        goto fn_exit;
    MPIR_ERR_CHKANDJUMP(win->states.access_state == MPIDI_RMA_NONE ||
                        (win->states.access_state == MPIDI_RMA_PER_TARGET && is_unlocked(win, rank)),
                        mpi_errno, MPI_ERR_RMA_SYNC, "**rmasync");
    while (win->states.access_state == MPIDI_RMA_FENCE_ISSUED || win->states.access_state == MPIDI_RMA_PSCW_ISSUED) {
        mpi_errno = MPIDI_CH3I_Win_wait(win, -1);
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (is_locked_all(win) && !(win->lock_all_assert & MPI_MODE_NOCHECK)) {
        mpi_errno = settle(win, rank);
        MPIR_ERR_CHECK(mpi_errno);
        if (win->ch.targets[rank].lock == LOCK_NONE)
            mpi_errno = take_lock(win, rank, MPI_LOCK_SHARED);
        else if (win->ch.targets[rank].lock == LOCK_ASKED)      /* by another thread */
            mpi_errno = wait_for_lock(win, rank);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_lock(int lock_type, int rank, int assert, MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;

    if (win->ch.served == MPIDI_CH3I_SERVED_NOT)
        return MPIDI_CH3I_Stock_win_lock(lock_type, rank, assert, win);
    MPIR_ERR_CHKANDJUMP(win->lock_epoch_count == 0 ? !is_before_epoch(win) :
                        win->states.access_state != MPIDI_RMA_PER_TARGET, mpi_errno, MPI_ERR_RMA_SYNC,
                        "**rmasync");
    mpi_errno = settle(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    MPIR_ERR_CHKANDJUMP(win->ch.targets[rank].lock != LOCK_NONE, mpi_errno, MPI_ERR_RMA_SYNC, "**rmasync");
    if (assert & MPI_MODE_NOCHECK) {
        win->ch.targets[rank].lock = LOCK_ASSUMED;
    } else {
        mpi_errno = take_lock(win, rank, lock_type);
        MPIR_ERR_CHECK(mpi_errno);
    }
    win->states.access_state = MPIDI_RMA_PER_TARGET;
    win->lock_epoch_count++;
    MPL_atomic_read_write_barrier();

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_unlock(int rank, MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    int error;

    if (win->ch.served == MPIDI_CH3I_SERVED_NOT)
        return MPIDI_CH3I_Stock_win_unlock(rank, win);
    MPIR_ERR_CHKANDJUMP(win->states.access_state != MPIDI_RMA_PER_TARGET || is_unlocked(win, rank),
                        mpi_errno, MPI_ERR_RMA_SYNC, "**rmasync");
    MPL_atomic_read_write_barrier();
    mpi_errno = wait_for_operations(win, rank);
    error = give_back(win, rank);
    MPIR_ERR_ADD(mpi_errno, error);
    error = poke_if_own(win, rank);
    MPIR_ERR_ADD(mpi_errno, error);
    if (--win->lock_epoch_count == 0)
        win->states.access_state = MPIDI_RMA_NONE;
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_lock_all(int assert, MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    int rank;

    if (win->ch.served == MPIDI_CH3I_SERVED_NOT)
        return MPIDI_CH3I_Stock_win_lock_all(assert, win);
    MPIR_ERR_CHKANDJUMP(!is_before_epoch(win), mpi_errno, MPI_ERR_RMA_SYNC, "**rmasync");
    /* What loads and stores reach needs its lock now. */
    for (rank = 0; !(assert & MPI_MODE_NOCHECK) && rank < win->comm_ptr->local_size; rank++) {
        if (rank != win->comm_ptr->rank && !MPIDI_CH3I_Window_is_near(win, rank))
            continue;
        mpi_errno = settle(win, rank);
        MPIR_ERR_CHECK(mpi_errno);
        mpi_errno = ask(win, rank, CH3_OFFLOAD_WINDOW_LOCK_SHARED);
        MPIR_ERR_CHECK(mpi_errno);
    }
    for (rank = 0; rank < win->comm_ptr->local_size; rank++) {
        if (win->ch.targets[rank].lock != LOCK_ASKED)
            continue;
        mpi_errno = wait_for_lock(win, rank);
        MPIR_ERR_CHECK(mpi_errno);
    }
    win->states.access_state = MPIDI_RMA_LOCK_ALL_GRANTED;
    win->lock_all_assert = assert;
    MPL_atomic_read_write_barrier();

  fn_exit:
    return mpi_errno;
  fn_fail:
    for (rank = 0; rank < win->comm_ptr->local_size; rank++)
        give_back(win, rank);
    goto fn_exit;
}

int MPIDI_CH3I_Window_unlock_all(MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    int rank, error;

    if (win->ch.served == MPIDI_CH3I_SERVED_NOT)
        return MPIDI_CH3I_Stock_win_unlock_all(win);
    MPIR_ERR_CHKANDJUMP(!is_locked_all(win), mpi_errno, MPI_ERR_RMA_SYNC, "**rmasync");
    MPL_atomic_read_write_barrier();
    mpi_errno = wait_for_operations(win, -1);
    for (rank = 0; rank < win->comm_ptr->local_size; rank++) {
        error = give_back(win, rank);
        MPIR_ERR_ADD(mpi_errno, error);
    }
    win->states.access_state = MPIDI_RMA_NONE;
    win->lock_all_assert = 0;
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- the ends of operations ---- */

/* rank < 0: of all targets. */
static int flush(MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_CHKANDJUMP(!is_passive(win), mpi_errno, MPI_ERR_RMA_SYNC, "**rmasync");
    MPL_atomic_read_write_barrier();
    mpi_errno = wait_for_operations(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = poke_if_own(win, rank);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* CH3's flushes poll nothing where loads and stores reach the target. rank < 0: of all targets. */
static int poke_if_near(const MPIR_Win * win, int rank)
{
    return rank < 0 || rank == win->comm_ptr->rank || MPIDI_CH3I_Window_is_near(win, rank) ?
        MPID_Progress_test(NULL) : MPI_SUCCESS;
}

int MPIDI_CH3I_Window_flush(int rank, MPIR_Win * win)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno;

    if (win->ch.served == MPIDI_CH3I_SERVED_ALL)
        return flush(win, rank);
    mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = MPIDI_CH3I_Stock_win_flush(rank, win);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno == MPI_SUCCESS ? poke_if_near(win, rank) : mpi_errno;
}

int MPIDI_CH3I_Window_flush_local(int rank, MPIR_Win * win)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno;

    if (win->ch.served == MPIDI_CH3I_SERVED_ALL)
        return flush(win, rank);
    mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = MPIDI_CH3I_Stock_win_flush_local(rank, win);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno == MPI_SUCCESS ? poke_if_near(win, rank) : mpi_errno;
}

int MPIDI_CH3I_Window_flush_all(MPIR_Win * win)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno;

    if (win->ch.served == MPIDI_CH3I_SERVED_ALL)
        return flush(win, -1);
    mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, -1);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = MPIDI_CH3I_Stock_win_flush_all(win);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno == MPI_SUCCESS ? poke_if_near(win, -1) : mpi_errno;
}

int MPIDI_CH3I_Window_flush_local_all(MPIR_Win * win)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno;

    if (win->ch.served == MPIDI_CH3I_SERVED_ALL)
        return flush(win, -1);
    mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, -1);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = MPIDI_CH3I_Stock_win_flush_local_all(win);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno == MPI_SUCCESS ? poke_if_near(win, -1) : mpi_errno;
}

int MPIDI_CH3I_Window_fence(int assert, MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    int error;

    if (win->ch.served == MPIDI_CH3I_SERVED_ALL)
        mpi_errno = wait_for_operations(win, -1);
    /* Others wait for it, whatever has become of the operations. */
    error = MPIDI_CH3I_Stock_win_fence(assert, win);
    MPIR_ERR_ADD(mpi_errno, error);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_complete(MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    int error;

    if (win->ch.served == MPIDI_CH3I_SERVED_ALL)
        mpi_errno = wait_for_operations(win, -1);
    /* Others wait for it, whatever has become of the operations. */
    error = MPIDI_CH3I_Stock_win_complete(win);
    MPIR_ERR_ADD(mpi_errno, error);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
