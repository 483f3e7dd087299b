/*
 * The ch3:offload channel: MPI_Barrier within a node.
 */

#include "mpidi_ch3_impl.h"

#include <unistd.h>

/* TRUE: this node has more processes than processors. All processes of the node have the same value, since it
 * depends on the job and on the node alone: not on affinity, in which processes may differ. */
static int processes_take_turns = FALSE;

/* The choice of the user stays. All ranks of a job choose the same. */
void MPIDI_CH3I_Barrier_init(void)
{
    if (MPIR_CVAR_BARRIER_INTRA_ALGORITHM != MPIR_CVAR_BARRIER_INTRA_ALGORITHM_auto ||
        *MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE != '\0')
        return;
    processes_take_turns = MPIR_Process.local_size > sysconf(_SC_NPROCESSORS_ONLN);
    /* On one node, MPICH's own choice is a dissemination barrier and then a broadcast, which only several
     * nodes need. */
    if (MPIR_Process.num_nodes == 1)
        MPIR_CVAR_BARRIER_INTRA_ALGORITHM = MPIR_CVAR_BARRIER_INTRA_ALGORITHM_dissemination;
}

/* One step of a collective operation has ended with mpi_errno: notes an error, and goes on. */
static void note_error(int mpi_errno, int *all_errors, MPIR_Errflag_t * errflag)
{
    int errclass;

    if (mpi_errno == MPI_SUCCESS)
        return;
    *errflag = MPIR_ERR_GET_CLASS(mpi_errno) == MPIX_ERR_PROC_FAILED ? MPIR_ERR_PROC_FAILED : MPIR_ERR_OTHER;
    errclass = MPIDI_CH3I_ERRFLAG_CLASS(*errflag);
    MPIR_ERR_SET(mpi_errno, errclass, "**fail");
    MPIR_ERR_ADD(*all_errors, mpi_errno);
}

static int tell(MPIR_Comm * comm, int rank, MPIR_Errflag_t * errflag)
{
    return MPIC_Send(NULL, 0, MPIR_BYTE_INTERNAL, rank, MPIR_BARRIER_TAG, comm,
                     MPIDI_CH3I_ERRFLAG_ARG(*errflag));
}

static int hear(MPIR_Comm * comm, int rank, MPIR_Errflag_t * errflag ATTRIBUTE((unused)))
{
    return MPIC_Recv(NULL, 0, MPIR_BYTE_INTERNAL, rank, MPIR_BARRIER_TAG, comm,
                     MPI_STATUS_IGNORE MPIDI_CH3I_COMMA_ERRFLAG(*errflag));
}

/* Where tags have no error bits, as in MPICH 4.3 and 5.0, a process that went on would tell the others that
 * all is well. So it leaves, as the algorithms of MPICH do. */
#ifdef HAVE_TAG_ERROR_BITS
#define GOES_ON(errno_) TRUE
#else
#define GOES_ON(errno_) ((errno_) == MPI_SUCCESS)
#endif

/* Everybody tells rank 0, which then tells everybody. A process that waits has given its processor away, and
 * goes on when the others have had their turns. Two such turns suffice here, with any number of processes. A
 * dissemination barrier can take as many as it has rounds. */
static int barrier_in_two_turns(MPIR_Comm * comm, MPIR_Errflag_t * errflag)
{
    int mpi_errno = MPI_SUCCESS;
    int errclass;
    int i;

    if (comm->rank == 0) {
        for (i = 1; i < comm->local_size && GOES_ON(mpi_errno); i++)
            note_error(hear(comm, i, errflag), &mpi_errno, errflag);
        for (i = 1; i < comm->local_size && GOES_ON(mpi_errno); i++)
            note_error(tell(comm, i, errflag), &mpi_errno, errflag);
    } else {
        note_error(tell(comm, 0, errflag), &mpi_errno, errflag);
        if (GOES_ON(mpi_errno))
            note_error(hear(comm, 0, errflag), &mpi_errno, errflag);
    }
    errclass = MPIDI_CH3I_ERRFLAG_CLASS(*errflag);
    if (mpi_errno == MPI_SUCCESS && *errflag != MPIR_ERR_NONE)
        MPIR_ERR_SET(mpi_errno, errclass, "**coll_fail");
    return mpi_errno;
}

int MPIDI_CH3I_Barrier(MPIR_Comm * comm, MPIDI_CH3I_Errflag_arg_t errflag)
{
    MPIR_Errflag_t flag = MPIDI_CH3I_ERRFLAG_OF(errflag);
    int mpi_errno;
    int is_within_node = MPIR_Process.num_nodes == 1 ||
        (comm->context_id & MPIR_CONTEXT_SUBCOMM_MASK) == MPIR_CONTEXT_INTRANODE_OFFSET;

    /* Two processes need one turn by dissemination. */
    if (!processes_take_turns || !is_within_node || comm->comm_kind != MPIR_COMM_KIND__INTRACOMM ||
        comm->local_size <= 2 || (MPIDI_CH3I_knows_others && !MPIDI_CH3I_Is_of_one_world(comm)))
        return MPIDI_CH3I_Stock_barrier(comm, errflag);
    mpi_errno = barrier_in_two_turns(comm, &flag);
    MPIDI_CH3I_ERRFLAG_NOTE(errflag, flag);
    return mpi_errno;
}
