/*
 * The ch3:offload channel: what it does for windows. Memory that the processes of a node share is
 * ch3_shared_windows.c's; CH3's defaults, over packets, serve for all else.
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
