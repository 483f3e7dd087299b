/*
 * The ch3:offload channel: memory of MPI_Alloc_mem. If a process of the node runs the engine, it maps that
 * memory, and messages in it move without a copy by the kernel.
 */

#include "mpidi_ch3_impl.h"

void *MPIDI_CH3I_Alloc_mem(MPI_Aint size, MPIR_Info * info_ptr ATTRIBUTE((unused)))
{
    void *memory = ch3_offload_alloc_memory(MPIDI_CH3I_channel, (size_t) size);

    return memory != NULL ? memory : MPL_malloc((size_t) size, MPL_MEM_USER);
}

int MPIDI_CH3I_Free_mem(void *ptr)
{
    if (!ch3_offload_free_memory(MPIDI_CH3I_channel, ptr))
        MPL_free(ptr);
    return MPI_SUCCESS;
}
