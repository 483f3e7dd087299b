/* Prints how many messages rank 0 sends for ten MPI_Barrier. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handle;

static int open_counter(const char *wanted)
{
    int all, i;

    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&all);
    for (i = 0; i < all; i++) {
        char name[128];
        int name_length = sizeof(name), verbosity, class, bind, readonly, continuous, atomic, count;
        MPI_Datatype type;
        MPI_T_enum enumeration;

        MPI_T_pvar_get_info(i, name, &name_length, &verbosity, &class, &type, &enumeration, NULL, NULL, &bind,
                            &readonly, &continuous, &atomic);
        if (strcmp(name, wanted) == 0)
            return MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &count) == MPI_SUCCESS;
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long long before = 0, after = 0;
    int rank, provided, i;

    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!open_counter("ch3_offload_sent_short"))
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (i = 0; i < 10; i++)
        MPI_Barrier(MPI_COMM_WORLD);    /* the peers have lent each other credit */
    MPI_T_pvar_read(session, handle, &before);
    for (i = 0; i < 10; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_T_pvar_read(session, handle, &after);
    if (rank == 0)
        printf("%llu\n", after - before);
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
