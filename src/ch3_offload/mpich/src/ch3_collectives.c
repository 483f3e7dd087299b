/*
 * The ch3:offload channel: algorithms of nonblocking collective operations that MPICH has with callbacks.
 *
 * The network processor calls no function of MPICH (ch3_schedules.c). In two algorithms,
 * MPICH learns by callbacks how long a message was, and so how long the next one is, although all lengths
 * follow from the ranks. These are the same algorithms, with the same messages, and know the lengths
 * beforehand. mpidi_ch3_post.h has MPICH call them. The names of MPICH's own are in parentheses here, which
 * keeps the macros from them.
 */

#include "mpidi_ch3_impl.h"

static int is_power_of_two(int number)
{
    return (number & (number - 1)) == 0;
}

/* In place of MPIR_Iallgather_intra_sched_recursive_doubling. */
int MPIDI_CH3I_Iallgather_doubling(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype,
                                   void *recvbuf, MPI_Aint recvcount, MPI_Datatype recvtype,
                                   MPIR_Comm * comm, MPIR_Sched_t s)
{
    int mpi_errno = MPI_SUCCESS;
    const int rank = comm->rank;
    MPI_Aint block;
    int mask;

    if (!is_power_of_two(comm->local_size) || ch3_offload_most_steps(MPIDI_CH3I_channel) == 0)
        return (MPIR_Iallgather_intra_sched_recursive_doubling) (sendbuf, sendcount, sendtype, recvbuf,
                                                                 recvcount, recvtype, comm, s);
    MPIR_Datatype_get_extent_macro(recvtype, block);
    block *= recvcount;
    if (sendbuf != MPI_IN_PLACE) {
        mpi_errno = MPIR_Sched_copy(sendbuf, sendcount, sendtype, (char *) recvbuf + rank * block, recvcount,
                                    recvtype, s);
        MPIR_ERR_CHECK(mpi_errno);
        MPIR_SCHED_BARRIER(s);
    }
    /* Before each step, this process has the blocks of those ranks that differ from its own below mask. */
    for (mask = 1; mask < comm->local_size; mask <<= 1) {
        const int other = rank ^ mask;
        const MPI_Aint mine = rank & ~(mask - 1), theirs = other & ~(mask - 1);

        mpi_errno = MPIR_Sched_send((char *) recvbuf + mine * block, mask * recvcount, recvtype, other, comm,
                                    s);
        MPIR_ERR_CHECK(mpi_errno);
        mpi_errno = MPIR_Sched_recv((char *) recvbuf + theirs * block, mask * recvcount, recvtype, other,
                                    comm, s);
        MPIR_ERR_CHECK(mpi_errno);
        MPIR_SCHED_BARRIER(s);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* What the root sends, in the order of the ranks from the root on. */
static int in_order_from_root(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype, MPI_Aint block,
                              int is_in_place, MPIR_Comm * comm, MPIR_Sched_t s, const char **blocks)
{
    int mpi_errno = MPI_SUCCESS;
    const int rank = comm->rank, behind = comm->local_size - rank;
    const int first = is_in_place ? 1 : 0;      /* its own block stays where it is */
    char *ordered = MPIR_Sched_alloc_state(s, block * comm->local_size);
    MPI_Aint extent;

    MPIR_ERR_CHKANDJUMP(ordered == NULL, mpi_errno, MPI_ERR_OTHER, "**nomem");
    MPIR_Datatype_get_extent_macro(sendtype, extent);
    mpi_errno = MPIR_Sched_copy((const char *) sendbuf + extent * sendcount * (rank + first),
                                sendcount * (behind - first), sendtype, ordered + block * first,
                                block * (behind - first), MPIR_BYTE_INTERNAL, s);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIR_Sched_copy(sendbuf, sendcount * rank, sendtype, ordered + block * behind, block * rank,
                                MPIR_BYTE_INTERNAL, s);
    MPIR_ERR_CHECK(mpi_errno);
    MPIR_SCHED_BARRIER(s);
    *blocks = ordered;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* In place of MPIR_Iscatter_intra_sched_binomial. The process that is `self` behind the root has a subtree of
 * as many as the lowest bit of `self`; its own block comes first. */
int MPIDI_CH3I_Iscatter_binomial(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype,
                                 void *recvbuf, MPI_Aint recvcount, MPI_Datatype recvtype, int root,
                                 MPIR_Comm * comm, MPIR_Sched_t s)
{
    int mpi_errno = MPI_SUCCESS;
    const int size = comm->local_size;
    const int self = (comm->rank - root + size) % size;
    const char *blocks = NULL;  /* of the subtree, as bytes; of root 0: in sendbuf */
    MPI_Aint block, extent = 0;
    int mask;

    if (ch3_offload_most_steps(MPIDI_CH3I_channel) == 0)
        return (MPIR_Iscatter_intra_sched_binomial) (sendbuf, sendcount, sendtype, recvbuf, recvcount,
                                                     recvtype, root, comm, s);
    if (self == 0) {
        MPIR_Datatype_get_size_macro(sendtype, block);
        MPIR_Datatype_get_extent_macro(sendtype, extent);
        block *= sendcount;
    } else {
        MPIR_Datatype_get_size_macro(recvtype, block);
        block *= recvcount;
    }
    for (mask = 1; mask < size && (self & mask) == 0; mask <<= 1);

    if (self == 0 && root != 0) {
        mpi_errno = in_order_from_root(sendbuf, sendcount, sendtype, block, recvbuf == MPI_IN_PLACE, comm, s,
                                       &blocks);
        MPIR_ERR_CHECK(mpi_errno);
    } else if (self != 0) {
        const int parent = (comm->rank - mask + size) % size;
        const int subtree = MPL_MIN(mask, size - self);

        if (mask == 1) {
            mpi_errno = MPIR_Sched_recv(recvbuf, recvcount, recvtype, parent, comm, s);
        } else {
            char *room = MPIR_Sched_alloc_state(s, block * subtree);
            MPIR_ERR_CHKANDJUMP(room == NULL, mpi_errno, MPI_ERR_OTHER, "**nomem");
            blocks = room;
            mpi_errno = MPIR_Sched_recv(room, block * subtree, MPIR_BYTE_INTERNAL, parent, comm, s);
        }
        MPIR_ERR_CHECK(mpi_errno);
        MPIR_SCHED_BARRIER(s);
    }
    for (mask >>= 1; mask > 0; mask >>= 1) {
        const int subtree = MPL_MIN(mask, size - self - mask);
        const int child = (comm->rank + mask) % size;

        if (subtree <= 0)
            continue;
        if (blocks == NULL)
            mpi_errno = MPIR_Sched_send((const char *) sendbuf + extent * sendcount * mask,
                                        sendcount * subtree, sendtype, child, comm, s);
        else
            mpi_errno = MPIR_Sched_send(blocks + block * mask, block * subtree, MPIR_BYTE_INTERNAL, child,
                                        comm, s);
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (recvbuf != MPI_IN_PLACE && (blocks != NULL || self == 0)) {
        if (blocks == NULL)
            mpi_errno = MPIR_Sched_copy(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, s);
        else
            mpi_errno = MPIR_Sched_copy(blocks, block, MPIR_BYTE_INTERNAL, recvbuf, recvcount, recvtype, s);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
