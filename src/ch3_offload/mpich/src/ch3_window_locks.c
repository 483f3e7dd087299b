/*
 * The ch3:offload channel: locks of windows that the network processor serves (ch3_windows.c), and which
 * epoch lets a process access a target. Locks of other windows are CH3's.
 *
 * To lock a target is to ask its processor. The answer comes when this process has the lock.
 * MPI_Win_lock_all asks at once where loads and stores reach, and elsewhere at the first operation.
 */

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"

/* The lock of a target, as this process has it. */
enum {
    LOCK_NONE = 0,
    LOCK_ASKED,
    LOCK_UNWANTED,              /* asked, but its waiter has failed: it is given back when it comes */
    LOCK_HELD,
    LOCK_ASSUMED                /* MPI_MODE_NOCHECK: nobody else wants it, so the target is not asked */
};

static int give_back(MPIR_Win * win, int rank);

static void count_question(MPIR_Win * win, int rank, int change)
{
    win->ch.questions += change;
    win->ch.targets[rank].questions += change;
}

/* The question was answered. */
static int lock_answered(MPIDI_CH3I_Window_op * op, int is_ok)
{
    MPIDI_CH3I_Window_target *target = &op->win->ch.targets[op->rank];
    const int is_unwanted = target->lock == LOCK_UNWANTED;

    count_question(op->win, op->rank, -1);
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
        mpi_errno = MPIDI_CH3I_Await_progress();
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
        count_question(win, rank, 1);
    }
    mpi_errno = MPIDI_CH3I_Window_begin(op, &part);
    if (!is_unlock && mpi_errno == MPI_SUCCESS) {
        op->end = lock_answered;
    } else if (!is_unlock) {
        win->ch.targets[rank].lock = LOCK_NONE;
        count_question(win, rank, -1);
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
        mpi_errno = MPIDI_CH3I_Await_progress();
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (win->ch.targets[rank].lock != LOCK_HELD) {
        mpi_errno = MPIDI_CH3I_Window_take_failure(win, rank);
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

int MPIDI_CH3I_Window_enter(MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    if (win->ch.served == MPIDI_CH3I_SERVED_NOT)
        goto fn_exit;
    MPIR_ERR_CHKANDJUMP(win->states.access_state == MPIDI_RMA_NONE ||
                        (win->states.access_state == MPIDI_RMA_PER_TARGET && is_unlocked(win, rank)),
                        mpi_errno, MPI_ERR_RMA_SYNC, "**rmasync");
    while (win->states.access_state == MPIDI_RMA_FENCE_ISSUED ||
           win->states.access_state == MPIDI_RMA_PSCW_ISSUED) {
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
    mpi_errno = MPIDI_CH3I_Window_wait(win, rank);
    error = give_back(win, rank);
    MPIR_ERR_ADD(mpi_errno, error);
    if (rank == win->comm_ptr->rank) {  /* as after a flush */
        error = MPID_Progress_test(NULL);
        MPIR_ERR_ADD(mpi_errno, error);
    }
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
    mpi_errno = MPIDI_CH3I_Window_wait(win, -1);
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
