/*
 * The ch3:offload channel: communicators of the processes that share memory, and collectives of the glue.
 */

#include "mpidi_ch3_impl.h"

/* Collective over comm. MPI_COMM_TYPE_SHARED: one communicator for each world on each node, as the process
 * manager numbers the nodes, or for each part of a node that info's key "shmem_topo" names. MPICH knows how
 * to do the other types. */
static int split_type(MPIR_Comm * comm, int type, int key, MPIR_Info * info, MPIR_Comm ** new_comm)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Comm *taking_part = NULL;

    if (type != MPI_COMM_TYPE_SHARED) {
        mpi_errno = MPIR_Comm_split_type(comm, type, key, info, new_comm);
        MPIR_ERR_CHECK(mpi_errno);
        goto fn_exit;
    }
    /* MPIR_Comm_split_type makes this split, too: other processes may be in it with MPI_UNDEFINED. */
    mpi_errno = MPIR_Comm_split_impl(comm, 0, key, &taking_part);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIR_Comm_split_type_node_topo(taking_part, key, info, new_comm);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    if (taking_part != NULL)
        MPIR_Comm_free_impl(taking_part);
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static MPIR_Commops comm_fns = {
    .split_type = split_type
};

void MPIDI_CH3I_Split_type_init(void)
{
    MPIR_Comm_fns = &comm_fns;
}

#if !MPIDI_CH3I_MPICH_IS(4, 2)
/* In place of MPIR_Free_contextid (mpidi_ch3_post.h). */
void MPIDI_CH3I_Free_contextid(MPIR_Context_id_t id)
{
    enum { RESERVED = 3 };      /* MPI_COMM_WORLD, MPI_COMM_SELF, and what some devices have besides */

    if (MPIR_CONTEXT_READ_FIELD(PREFIX, id) >= RESERVED || MPIR_CONTEXT_READ_FIELD(DYNAMIC_PROC, id))
        MPIDI_CH3I_Stock_free_contextid(id);
}
#endif

/* In place of MPIR_Err_combine_codes (mpidi_ch3_post.h). */
int MPIDI_CH3I_More_telling(int error, int other)
{
    return error == MPI_SUCCESS || (MPIR_ERR_GET_CLASS(error) == MPI_ERR_OTHER && other != MPI_SUCCESS) ?
        other : error;
}

#if !MPIDI_CH3I_MPICH_IS(4, 2)
/* In place of the algorithms of MPI_Allreduce (mpidi_ch3_post.h). They note that a process has failed, or
 * that another process has noted so, go on, and return success. All other collective operations return the
 * error. */
int MPIDI_CH3I_Allreduce_by(MPIDI_CH3I_Allreduce_t * algorithm, const void *sendbuf, void *recvbuf,
                            MPI_Aint count, MPI_Datatype type, MPI_Op op, MPIR_Comm * comm,
                            MPIR_Errflag_t * errflag)
{
    int mpi_errno = algorithm(sendbuf, recvbuf, count, type, op, comm, errflag);
    const int errclass = comm->revoked ? MPIX_ERR_REVOKED : (int) *errflag;

    if (mpi_errno == MPI_SUCCESS && *errflag != MPIR_ERR_NONE)
        MPIR_ERR_SET(mpi_errno, errclass, "**coll_fail");
    return mpi_errno;
}
#endif

int MPIDI_CH3I_Allgather(void *all, MPI_Aint count, MPI_Datatype type, MPIR_Comm * comm)
{
    MPIR_Errflag_t flag = MPIR_ERR_NONE;

    return MPIR_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, type, comm,
                          MPIDI_CH3I_ERRFLAG_ARG(flag));
}

int MPIDI_CH3I_Allreduce(void *values, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPIR_Comm * comm)
{
    MPIR_Errflag_t flag = MPIR_ERR_NONE;

    return MPIR_Allreduce(MPI_IN_PLACE, values, count, type, op, comm, MPIDI_CH3I_ERRFLAG_ARG(flag));
}

int MPIDI_CH3I_Bcast(void *values, MPI_Aint count, MPI_Datatype type, int root, MPIR_Comm * comm)
{
    MPIR_Errflag_t flag = MPIR_ERR_NONE;

    return MPIR_Bcast(values, count, type, root, comm, MPIDI_CH3I_ERRFLAG_ARG(flag));
}
