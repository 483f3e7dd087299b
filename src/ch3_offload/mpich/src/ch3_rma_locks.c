/*
 * The ch3:offload channel: locks of windows whose holders have died.
 *
 * CH3 does not keep who holds the lock of a window's memory. So this file notes it for each peer, from the
 * packets that ask for locks and give them back. When a holder dies, the lock is broken: it will not be
 * granted any more, because nobody knows what the holder has left in the memory. Whoever waits for it,
 * then or later, gets a LOCK_ACK packet with MPIDI_CH3I_LOCK_BROKEN, and its target is lost
 * (ch3_rma_failure.c).
 */

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"

/* The lock of `rank`'s memory, which this process waits for, is broken. */
static void refuse_lock(MPIR_Win * win, int rank)
{
    MPIDI_RMA_Target_t *target;

    MPIDI_CH3I_Win_find_target(win, rank, &target);
    if (target == NULL)
        win->ch.is_lock_all_refused = TRUE;
    else
        target->lock_mode |= MPIDI_CH3I_LOCK_BROKEN;
    MPIDI_CH3I_losses++;
    MPIDI_CH3_Progress_signal_completion();
}

void MPIDI_CH3I_Lock_refused(const MPIDI_CH3_Pkt_lock_ack_t * pkt)
{
    MPI_Win handle = pkt->source_win_handle;
    MPIR_Request *req;
    MPIR_Win *win;

    if (handle == MPI_WIN_NULL) {
        MPIR_Request_get_ptr(pkt->request_handle, req);
        handle = req->dev.source_win_handle;
    }
    MPIR_Win_get_ptr(handle, win);
    refuse_lock(win, pkt->target_rank);
}

int MPIDI_CH3I_Refuse_waiters(MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_RMA_Target_lock_entry_t *entry, *next;
    MPIDI_VC_t *own_vc;

    if (!win->ch.is_lock_broken)
        goto fn_exit;
    MPIDI_Comm_get_vc(win->comm_ptr, win->comm_ptr->rank, &own_vc);
    for (entry = (MPIDI_RMA_Target_lock_entry_t *) win->target_lock_queue_head; entry != NULL; entry = next) {
        next = entry->next;
        if (!entry->all_data_recved)
            continue;
        if (entry->vc == own_vc) {
            refuse_lock(win, win->comm_ptr->rank);
        } else {
            MPI_Win source = MPI_WIN_NULL;
            MPI_Request request = MPI_REQUEST_NULL;

            /* A LOCK packet may stand for an operation whose data was discarded. */
            if (entry->pkt.type == MPIDI_CH3_PKT_LOCK) {
                source = entry->pkt.lock.source_win_handle;
                request = entry->pkt.lock.request_handle;
            } else if (MPIDI_CH3I_RMA_PKT_IS_READ_OP(entry->pkt)) {
                MPIDI_CH3_PKT_RMA_GET_REQUEST_HANDLE(entry->pkt, request, mpi_errno);
            } else {
                MPIDI_CH3_PKT_RMA_GET_SOURCE_WIN_HANDLE(entry->pkt, source, mpi_errno);
            }
            MPIR_ERR_CHECK(mpi_errno);
            mpi_errno = MPIDI_CH3I_Send_lock_ack_pkt(entry->vc, win, MPIDI_CH3I_LOCK_BROKEN, source, request);
            MPIR_ERR_CHECK(mpi_errno);
        }
        DL_DELETE(win->target_lock_queue_head, entry);
        MPIDI_CH3I_Win_target_lock_entry_free(win, entry);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static MPIDI_CH3I_Lock *find_lock(MPIDI_VC_t * vc, MPI_Win window)
{
    MPIDI_CH3I_Lock *lock;

    for (lock = vc->ch.locks; lock != NULL && lock->window != window; lock = lock->next)
        continue;
    return lock;
}

int MPIDI_CH3I_Lock_packet(MPIDI_VC_t * vc, MPIDI_CH3_Pkt_t * pkt)
{
    int mpi_errno = MPI_SUCCESS;
    int flags = MPIDI_CH3_PKT_FLAG_NONE;
    MPI_Win window;
    MPIDI_CH3I_Lock *lock;

    switch (pkt->type) {
        case MPIDI_CH3_PKT_UNLOCK:
            flags = MPIDI_CH3_PKT_FLAG_RMA_UNLOCK;
            break;
        case MPIDI_CH3_PKT_LOCK:
        case MPIDI_CH3_PKT_PUT:
        case MPIDI_CH3_PKT_PUT_IMMED:
        case MPIDI_CH3_PKT_GET:
        case MPIDI_CH3_PKT_ACCUMULATE:
        case MPIDI_CH3_PKT_ACCUMULATE_IMMED:
        case MPIDI_CH3_PKT_GET_ACCUM:
        case MPIDI_CH3_PKT_GET_ACCUM_IMMED:
        case MPIDI_CH3_PKT_CAS_IMMED:
        case MPIDI_CH3_PKT_FOP:
        case MPIDI_CH3_PKT_FOP_IMMED:
            MPIDI_CH3_PKT_RMA_GET_FLAGS(*pkt, flags, mpi_errno);
            MPIR_ERR_CHECK(mpi_errno);
            break;
        default:
            break;
    }
    if (!(flags & (MPIDI_CH3_PKT_FLAG_RMA_LOCK_SHARED | MPIDI_CH3_PKT_FLAG_RMA_LOCK_EXCLUSIVE |
                   MPIDI_CH3_PKT_FLAG_RMA_UNLOCK)))
        goto fn_exit;
    MPIDI_CH3_PKT_RMA_GET_TARGET_WIN_HANDLE(*pkt, window, mpi_errno);
    MPIR_ERR_CHECK(mpi_errno);
    lock = find_lock(vc, window);
    if (lock == NULL) {
        lock = MPL_malloc(sizeof(*lock), MPL_MEM_RMA);
        MPIR_ERR_CHKANDJUMP(lock == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
        lock->window = window;
        lock->next = vc->ch.locks;
        vc->ch.locks = lock;
    }
    lock->is_taken = !(flags & MPIDI_CH3_PKT_FLAG_RMA_UNLOCK);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Locks_free(MPIDI_VC_t * vc)
{
    while (vc->ch.locks != NULL) {
        MPIDI_CH3I_Lock *lock = vc->ch.locks;
        vc->ch.locks = lock->next;
        MPL_free(lock);
    }
}

/* Takes a dead process out of the window's queue. Returns whether it was there. */
static int leave_queue(MPIR_Win * win, MPIDI_VC_t * vc)
{
    MPIDI_RMA_Target_lock_entry_t *entry, *next;
    int found = FALSE;

    for (entry = (MPIDI_RMA_Target_lock_entry_t *) win->target_lock_queue_head; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->vc == vc) {
            DL_DELETE(win->target_lock_queue_head, entry);
            MPIDI_CH3I_Win_target_lock_entry_free(win, entry);
            found = TRUE;
        }
    }
    return found;
}

/* Whether the last operation of an epoch, which gives the lock back, is still on its way. */
static int is_unlocking(MPIR_Win * win, MPIDI_VC_t * vc)
{
    MPIR_Request *rreq = vc->ch.recv_active;

    return rreq != NULL && rreq->dev.target_win_handle == win->handle &&
        (rreq->dev.pkt_flags & MPIDI_CH3_PKT_FLAG_RMA_UNLOCK);
}

int MPIDI_CH3I_Locks_fail(MPIDI_VC_t * vc)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Win *win;

    for (win = MPIDI_CH3I_First_window(); win != NULL; win = MPIDI_CH3I_Next_window(win)) {
        MPIDI_CH3I_Lock *lock = find_lock(vc, win->handle);

        if (leave_queue(win, vc) || win->current_lock_type == MPID_LOCK_NONE)
            continue;
        if ((lock != NULL && lock->is_taken) || is_unlocking(win, vc)) {
            win->ch.is_lock_broken = TRUE;
            mpi_errno = MPIDI_CH3I_Refuse_waiters(win);
            MPIR_ERR_CHECK(mpi_errno);
        }
    }

  fn_exit:
    MPIDI_CH3I_Locks_free(vc);
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
