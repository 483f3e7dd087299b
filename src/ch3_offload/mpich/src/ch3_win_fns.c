/*
 * The ch3:offload channel: windows. CH3's defaults serve, over packets.
 */

#include "mpidi_ch3_impl.h"

int MPIDI_CH3_Win_fns_init(MPIDI_CH3U_Win_fns_t * win_fns ATTRIBUTE((unused)))
{
    return MPI_SUCCESS;
}

int MPIDI_CH3_Win_hooks_init(MPIDI_CH3U_Win_hooks_t * win_hooks ATTRIBUTE((unused)))
{
    return MPI_SUCCESS;
}

int MPIDI_CH3_Win_pkt_orderings_init(MPIDI_CH3U_Win_pkt_ordering_t * win_pkt_orderings)
{
    /* One ordered stream of packets to each peer. */
    win_pkt_orderings->am_flush_ordered = 1;
    return MPI_SUCCESS;
}
