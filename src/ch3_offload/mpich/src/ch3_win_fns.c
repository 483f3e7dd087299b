/*
 * The ch3:offload channel: what it does for windows, and for threads at them. Memory that the processes of
 * a node share is ch3_shared_windows.c's; CH3's defaults, over packets, serve for all else.
 */

#include "mpidi_ch3_impl.h"

int MPIDI_CH3_Win_fns_init(MPIDI_CH3U_Win_fns_t * win_fns)
{
    win_fns->gather_info = MPIDI_CH3I_Win_gather_info;
    win_fns->allocate = MPIDI_CH3I_Win_allocate;
    win_fns->allocate_shared = MPIDI_CH3I_Win_allocate;
    win_fns->detect_shm = MPIDI_CH3I_Win_detect;
    win_fns->shared_query = MPIDI_CH3I_Win_shared_query;
    return MPI_SUCCESS;
}

int MPIDI_CH3_Win_hooks_init(MPIDI_CH3U_Win_hooks_t * win_hooks)
{
    win_hooks->win_init = MPIDI_CH3I_Win_init;
    win_hooks->win_free = MPIDI_CH3I_Win_free;
    return MPI_SUCCESS;
}

int MPIDI_CH3_Win_pkt_orderings_init(MPIDI_CH3U_Win_pkt_ordering_t * win_pkt_orderings)
{
    /* One ordered stream of packets to each peer. */
    win_pkt_orderings->am_flush_ordered = 1;
    return MPI_SUCCESS;
}

/* ---- threads at windows that CH3 serves ---- */

/* CH3 keeps one state for each target of a window: what is to be synchronised, what was issued, how many
 * answers are awaited. A thread that adds an operation while another one flushes changes what the other
 * has begun, and each then waits for what neither does. So threads take turns at a target, each for one
 * operation or one flush. MPI promises no order among them. Who waits for a turn has none, and what a
 * thread with a turn waits for comes from the target. */

#ifdef MPICH_IS_THREADED
/* Those that are taken; each is on the stack of its thread. Within the global critical section. */
static MPIDI_CH3I_Turn_t *turns = NULL;
static int waiting = 0;

static int is_taken(const MPIR_Win * win, int rank)
{
    const MPIDI_CH3I_Turn_t *one;

    for (one = turns; one != NULL; one = one->next)
        if (one->win == win && (one->rank == rank || one->rank < 0 || rank < 0))
            return TRUE;
    return FALSE;
}
#endif

int MPIDI_CH3I_Turn_take(MPIDI_CH3I_Turn_t * turn, const MPIR_Win * win, int rank)
{
    int mpi_errno = MPI_SUCCESS;
#ifdef MPICH_IS_THREADED
    MPID_Progress_state state;

    if (!MPIR_IS_THREADED)
        goto fn_exit;
    while (is_taken(win, rank)) {
        MPID_Progress_start(&state);
        waiting++;
        mpi_errno = MPID_Progress_wait(&state);
        waiting--;
        MPID_Progress_end(&state);
        MPIR_ERR_CHECK(mpi_errno);
    }
    turn->win = win;
    turn->rank = rank;
    turn->next = turns;
    turns = turn;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
#else
    return mpi_errno;
#endif
}

void MPIDI_CH3I_Turn_give(MPIDI_CH3I_Turn_t * turn)
{
#ifdef MPICH_IS_THREADED
    MPIDI_CH3I_Turn_t **one = &turns;

    if (!MPIR_IS_THREADED)
        return;
    while (*one != turn)
        one = &(*one)->next;
    *one = turn->next;
    if (waiting > 0)
        MPIDI_CH3_Progress_signal_completion();
#endif
}
