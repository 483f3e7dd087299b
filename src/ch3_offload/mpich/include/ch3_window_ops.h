/*
 * The ch3:offload channel: what its files of operations on windows share.
 */

#ifndef CH3_WINDOW_OPS_H_INCLUDED
#define CH3_WINDOW_OPS_H_INCLUDED

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"

/* A buffer of the user's. */
typedef struct {
    const void *address;
    MPI_Aint count;
    MPI_Datatype type;
} MPIDI_CH3I_Buffer_t;

/* ---- ch3_window_types.c: datatypes ---- */

/* The processor's name (ch3_offload_window_type_t) of a predefined datatype; CH3_OFFLOAD_NO_TYPE: it has
 * none. */
int MPIDI_CH3I_Element_type(MPI_Datatype type);
/* Likewise, of pairs alone, and of integers of that size. */
int MPIDI_CH3I_Pair_type(MPI_Datatype type);
int MPIDI_CH3I_Integer_type(size_t bytes, int is_signed);
/* The processor's name of an operation. FALSE: it has none. */
int MPIDI_CH3I_Atomic_of(MPI_Op op, uint8_t * atomic);

/* The bytes of data, without gaps. */
MPI_Aint MPIDI_CH3I_Size_of(MPI_Aint count, MPI_Datatype type);
/* The predefined datatype of all elements. MPI_DATATYPE_NULL: they differ. */
MPI_Datatype MPIDI_CH3I_Basic_of(MPI_Datatype type);
/* Whether a predefined datatype has a gap: some pairs do. */
int MPIDI_CH3I_Has_gap(MPI_Datatype basic);

#define MPIDI_CH3I_RUNS_AT_ONCE 64

/* The contiguous runs of a target's memory, in the order of the datatype. */
typedef struct {
    MPI_Aint count;             /* of the datatype */
    MPI_Datatype type;
    uint64_t base;              /* where the first element is in the window */
    MPI_Aint position;          /* in the packed data: what was looked at */
    MPI_Aint bytes;             /* of the packed data */
    MPI_Aint known, next;       /* of `iov` */
    struct iovec iov[MPIDI_CH3I_RUNS_AT_ONCE];
} MPIDI_CH3I_Runs_t;

/* FALSE: there is no other run. */
int MPIDI_CH3I_Next_run(MPIDI_CH3I_Runs_t * runs, uint64_t * offset, size_t * length);

/* ---- ch3_window_stock.c: CH3's own operations ---- */

/* Whether loads and stores reach it, and CH3 does them. */
static inline int MPIDI_CH3I_Window_is_reached(const MPIR_Win * win, int rank)
{
    return rank == win->comm_ptr->rank || MPIDI_CH3I_Window_is_near(win, rank);
}

/* MPI_Put or MPI_Get: exactly one of `source` and `result`. */
int MPIDI_CH3I_Stock_move(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                          MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request);
/* MPI_Accumulate or MPI_Get_accumulate. `result` NULL: what was there is not wanted. */
int MPIDI_CH3I_Stock_combine(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                             MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPI_Op op,
                             MPIR_Win * win, MPIR_Request * request);

static inline int MPIDI_CH3I_No_memory(void)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    return mpi_errno;
}

#endif /* CH3_WINDOW_OPS_H_INCLUDED */
