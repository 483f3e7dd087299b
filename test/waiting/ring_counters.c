/* Sends kMessages short messages from rank 0 to rank 1, which sleeps in MPI_Recv before the first. Prints, of each rank,
 * what the counters of its rings have grown by: "rank 0: commands 100 ...". */
#include <mpi.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { kMessages = 100, kCounters = 6 };
static const char *const names[kCounters] = {
    "commands", "events", "nic_sleeps", "nic_bells", "client_sleeps", "client_bells"
};

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[kCounters];

static int open_counter(const char *wanted, MPI_T_pvar_handle * handle)
{
    char full[128];
    int index, count;

    snprintf(full, sizeof full, "ch3_offload_ring_%s", wanted);
    return MPI_T_pvar_get_index(full, MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS &&
        MPI_T_pvar_handle_alloc(session, index, NULL, handle, &count) == MPI_SUCCESS;
}

static void read_all(unsigned long long *values)
{
    for (int i = 0; i < kCounters; i++)
        MPI_T_pvar_read(session, handles[i], &values[i]);
}

int main(int argc, char **argv)
{
    unsigned long long before[kCounters], after[kCounters], all[2][kCounters];
    int rank, provided, word = 0;

    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_T_pvar_session_create(&session);
    for (int i = 0; i < kCounters; i++)
        if (!open_counter(names[i], &handles[i]))
            MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Barrier(MPI_COMM_WORLD);        /* they know each other */
    read_all(before);
    if (rank == 0)
        usleep(500000);
    for (int i = 0; i < kMessages; i++) {
        if (rank == 0)
            MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    read_all(after);
    for (int i = 0; i < kCounters; i++)
        after[i] -= before[i];
    /* One process says all: lines of several may be mixed. */
    MPI_Gather(after, kCounters, MPI_UNSIGNED_LONG_LONG, all, kCounters, MPI_UNSIGNED_LONG_LONG, 0,
               MPI_COMM_WORLD);
    for (int from = 0; rank == 0 && from < 2; from++) {
        printf("rank %d:", from);
        for (int i = 0; i < kCounters; i++)
            printf(" %s %llu", names[i], all[from][i]);
        printf("\n");
    }
    fflush(stdout);
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
