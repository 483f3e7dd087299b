/* For test/lab: what one message costs. Rank 0 sends one of argv[1] bytes to rank 1, whose receive is posted, and says
 * how both sides' counters moved, as "NAME:RANK0,RANK1" for each that did. Every byte is checked. argv[2]: "mpi":
 * the memory is of MPI_Alloc_mem. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMost = 64, kName = 128 };

static char names[kMost][kName];
static MPI_T_pvar_handle handles[kMost];
static MPI_T_pvar_session session;
static int variables;

static void open_variables(void)
{
    int all, i;

    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&all);
    for (i = 0; i < all && variables < kMost; i++) {
        int name_length = kName, verbosity, class, bind, readonly, continuous, atomic, count;
        MPI_Datatype type;
        MPI_T_enum enumeration;

        MPI_T_pvar_get_info(i, names[variables], &name_length, &verbosity, &class, &type, &enumeration, NULL, NULL,
                            &bind, &readonly, &continuous, &atomic);
        if (strncmp(names[variables], "ch3_offload_", 12) != 0 || class != MPI_T_PVAR_CLASS_COUNTER)
            continue;
        MPI_T_pvar_handle_alloc(session, i, NULL, &handles[variables], &count);
        variables++;
    }
}

static void read_variables(unsigned long long *values)
{
    int i;

    usleep(50000);      /* a processor elsewhere tells its counters about once in a millisecond */
    for (i = 0; i < variables; i++)
        MPI_T_pvar_read(session, handles[i], &values[i]);
}

int main(int argc, char **argv)
{
    unsigned long long before[kMost], after[kMost], other[kMost];
    int rank, provided, i, wrong = 0, length = argc > 1 ? atoi(argv[1]) : 1 << 20;
    unsigned char *data = NULL;

    MPI_Init(&argc, &argv);
    if (argc > 2 && strcmp(argv[2], "mpi") == 0)
        MPI_Alloc_mem(length + 1, MPI_INFO_NULL, &data);
    else
        data = malloc((size_t) length + 1);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    open_variables();
    MPI_Barrier(MPI_COMM_WORLD);        /* connections are up */
    read_variables(before);
    if (rank == 0) {
        for (i = 0; i < length; i++)
            data[i] = (unsigned char) (i * 7 + (i >> 8));
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);   /* the receive is posted */
        MPI_Send(data, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Request request;
        memset(data, 0, (size_t) length);
        MPI_Irecv(data, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (i = 0; i < length; i++)
            wrong += data[i] != (unsigned char) (i * 7 + (i >> 8));
    }
    read_variables(after);
    for (i = 0; i < variables; i++)
        after[i] -= before[i];
    if (rank == 1)
        MPI_Send(after, variables, MPI_UNSIGNED_LONG_LONG, 0, 2, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Recv(other, variables, MPI_UNSIGNED_LONG_LONG, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (i = 0; i < variables; i++)
            if (after[i] != 0 || other[i] != 0)
                printf("%s:%llu,%llu\n", names[i] + 12, after[i], other[i]);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_T_finalize();
    MPI_Finalize();
    return wrong != 0;
}
