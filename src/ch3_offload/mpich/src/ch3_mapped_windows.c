/*
 * The ch3:offload channel: windows of MPI_Win_create whose memory the processes of a node map.
 *
 * Such a window is given its memory. If that of all processes of a node is of MPI_Alloc_mem, each maps that
 * of the others, and the window is as one of MPI_Win_allocate (ch3_shared_windows.c). Where some process has
 * other memory, or cannot map that of another one, packets do, on all processes of the node.
 *
 * The mutex for accumulates is in memory of the node's first process.
 */

#include "mpidi_ch3_impl.h"

/* What each process of a node tells the others of its memory. */
typedef struct {
    ch3_offload_place_t memory, mutex;  /* `mutex`: the first process's */
    MPI_Aint bytes;
} part_t;

static int is_refused(MPIR_Info * info)
{
    char value[MPI_MAX_INFO_VAL + 1];
    int flag = 0;

    if (info != NULL)
        MPIR_Info_get_impl(info, "alloc_shm", MPI_MAX_INFO_VAL, value, &flag);
    return flag && strcmp(value, "false") == 0;
}

/* Fills in what this process has for the others. FALSE: they cannot have it. */
static int offer_part(MPIR_Win * win, int is_first, part_t * part)
{
    static const ch3_offload_place_t nowhere;

    part->bytes = win->size;
    if (win->size > 0) {
        part->memory = ch3_offload_locate_memory(MPIDI_CH3I_channel, win->base, win->size);
        if (memcmp(&part->memory, &nowhere, sizeof(nowhere)) == 0)
            return FALSE;
    }
    if (!is_first)
        return TRUE;
    win->ch.mutex = ch3_offload_alloc_memory(MPIDI_CH3I_channel, sizeof(*win->ch.mutex));
    if (win->ch.mutex == NULL || MPIDI_CH3I_Segment_init_mutex(win->ch.mutex) != 0)
        return FALSE;
    part->mutex = ch3_offload_locate_memory(MPIDI_CH3I_channel, win->ch.mutex, sizeof(*win->ch.mutex));
    return memcmp(&part->mutex, &nowhere, sizeof(nowhere)) != 0;
}

/* Maps the memory of the others. FALSE: some of it cannot be had. */
static int map_parts(MPIR_Win * win, const part_t * parts)
{
    const MPIR_Comm *node = win->comm_ptr->node_comm;
    int i;

    win->shm_base_addrs[node->rank] = win->base;
    for (i = 0; i < node->local_size; i++) {
        if (i == node->rank || parts[i].bytes == 0)
            continue;
        win->shm_base_addrs[i] = ch3_offload_map_memory(MPIDI_CH3I_channel, &parts[i].memory, parts[i].bytes);
        if (win->shm_base_addrs[i] == NULL)
            return FALSE;
    }
    if (node->rank != 0)
        win->ch.mutex = ch3_offload_map_memory(MPIDI_CH3I_channel, &parts[0].mutex, sizeof(*win->ch.mutex));
    return win->ch.mutex != NULL;
}

void MPIDI_CH3I_Win_unmap(MPIR_Win * win)
{
    const MPIR_Comm *node = win->comm_ptr->node_comm;
    int i;

    for (i = 0; i < node->local_size; i++)
        if (i != node->rank)
            ch3_offload_unmap_memory(MPIDI_CH3I_channel, win->shm_base_addrs[i]);
    if (node->rank != 0)
        ch3_offload_unmap_memory(MPIDI_CH3I_channel, win->ch.mutex);
    else
        ch3_offload_free_memory(MPIDI_CH3I_channel, win->ch.mutex);
    win->ch.mutex = NULL;
    MPL_free(win->shm_base_addrs);
    win->shm_base_addrs = NULL;
    win->shm_allocated = FALSE;
    win->ch.is_mapped = FALSE;
}

int MPIDI_CH3I_Win_map(MPIR_Win * win, MPIR_Info * info)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Comm *node = win->comm_ptr->node_comm;
    MPIDI_CH3I_Worst_t worst;
    part_t *parts = NULL;

    if (!MPIR_Comm_is_parent_comm(win->comm_ptr) || node == NULL)
        goto fn_exit;
    parts = MPL_calloc(node->local_size, sizeof(*parts), MPL_MEM_RMA);
    win->shm_base_addrs = MPL_calloc(node->local_size, sizeof(*win->shm_base_addrs), MPL_MEM_SHM);
    win->ch.is_mapped = win->shm_base_addrs != NULL;
    worst.failure = parts == NULL || !win->ch.is_mapped || is_refused(info) ||
        !offer_part(win, node->rank == 0, &parts[node->rank]);
    mpi_errno = MPIDI_CH3I_Agree(node, &worst);
    MPIR_ERR_CHECK(mpi_errno);
    if (worst.failure)
        goto fn_fail;
    mpi_errno = MPIDI_CH3I_Allgather(parts, sizeof(*parts), MPIR_BYTE_INTERNAL, node);
    MPIR_ERR_CHECK(mpi_errno);
    worst.failure = !map_parts(win, parts);
    /* Others may leave the exchange before, and accumulate to this process while it is in there. */
    win->shm_allocated = !worst.failure;
    mpi_errno = MPIDI_CH3I_Agree(node, &worst);
    MPIR_ERR_CHECK(mpi_errno);
    if (worst.failure)
        goto fn_fail;

  fn_exit:
    MPL_free(parts);
    return mpi_errno;
  fn_fail:
    if (win->ch.is_mapped)
        MPIDI_CH3I_Win_unmap(win);
    goto fn_exit;
}
