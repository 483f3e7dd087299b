/* Prints how many messages rank 0 sends for ten MPI_Barrier. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>

static MPI_T_pvar_session session;

static int open_counter(const char *wanted, MPI_T_pvar_handle * handle)
{
    int all, i;

    MPI_T_pvar_get_num(&all);
    for (i = 0; i < all; i++) {
        char name[128];
        int name_length = sizeof(name), verbosity, class, bind, readonly, continuous, atomic, count;
        MPI_Datatype type;
        MPI_T_enum enumeration;

        MPI_T_pvar_get_info(i, name, &name_length, &verbosity, &class, &type, &enumeration, NULL, NULL, &bind,
                            &readonly, &continuous, &atomic);
        if (strcmp(name, wanted) == 0)
            return MPI_T_pvar_handle_alloc(session, i, NULL, handle, &count) == MPI_SUCCESS;
    }
    return 0;
}

/* A message without credit is sent optimistically. Who has lent credit by now depends on the scheduler. */
static MPI_T_pvar_handle with_credit, without_credit;

static unsigned long long messages_sent(void)
{
    unsigned long long with = 0, without = 0;

    MPI_T_pvar_read(session, with_credit, &with);
    MPI_T_pvar_read(session, without_credit, &without);
    return with + without;
}

int main(int argc, char **argv)
{
    unsigned long long before, after;
    int rank, provided, i;

    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_T_pvar_session_create(&session);
    if (!open_counter("ch3_offload_sent_short", &with_credit) ||
        !open_counter("ch3_offload_sent_optimistic", &without_credit))
        MPI_Abort(MPI_COMM_WORLD, 1);
    before = messages_sent();
    for (i = 0; i < 10; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    after = messages_sent();
    if (rank == 0)
        printf("%llu\n", after - before);
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
