/* Stands in for IMB-MPI1 in the test of ch3-offload-imb: takes its options, does some messages, and prints tables as
 * it prints them. FAULT (environment) makes it go wrong: defects, hang, crash, abort, silent, left-out.
 * Compiled with CHECK it has the column "defects", as IMB has. */
#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *const names[] = { "PingPong", "PingPing", "Sendrecv", "Exchange", "Allreduce", "Reduce",
    "Allgather", "Alltoall", "Gather", "Scatter", "Bcast", "Barrier", "Biband"
};

enum { kNames = sizeof names / sizeof names[0] };

static int rank, size, longest_log = 22, iterations = 1000;
static const char *fault = "";

static int has_fault(const char *name)
{
    return strcmp(fault, name) == 0;
}

/* Microseconds of one way, between ranks 0 and 1; the others wait. */
static double ping_pong(char *buffer, int length)
{
    double begin;

    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (int i = 0; i < iterations && rank < 2; i++) {
        if (rank == 0)
            MPI_Send(buffer, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(buffer, length, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(buffer, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begin) * 1e6 / iterations / 2;
}

static void print_row(const char *name, int length, double time_us)
{
    if (strcmp(name, "Barrier") == 0) {
        printf("%13d %12.2f %12.2f %12.2f\n", iterations, time_us, time_us, time_us);
        return;
    }
    printf("%13d %12d ", length, iterations);
    if (strcmp(name, "Biband") == 0) {
        printf("%12.2f %12.0f\n", 1.0, 1.0);
        return;
    }
    if (has_fault("left-out") && length == 4) {
        printf("out-of-mem.; needed X=   0.000 GB; use flag \"-mem X\" or MAX_MEM_USAGE>=X (IMB_mem_info.h)\n");
        return;
    }
    if (strcmp(name, "PingPong") == 0)
        printf("%12.2f %12.2f", time_us, length / time_us);
    else
        printf("%12.2f %12.2f %12.2f", time_us, time_us + 1, time_us + 0.5);
#ifdef CHECK
    printf(" %12.2f", has_fault("defects") && length == 2 ? 0.5 : 0.0);
#endif
    printf("\n");
}

static void run(const char *name)
{
    const int sizes = strcmp(name, "Barrier") == 0 ? 1 : longest_log + 2;
    char *buffer = calloc(1, (size_t) 1 << longest_log);

    if (rank == 0) {
        printf("\n#---------------------------------------------------\n");
        printf("# Benchmarking %s \n# #processes = %d \n", name, strncmp(name, "Ping", 4) == 0 ? 2 : size);
        printf("#---------------------------------------------------\n");
        if (sizes == 1)
            printf(" #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n");
        else
            printf("       #bytes #repetitions %s\n",
                   strcmp(name, "Biband") == 0 ? "  Mbytes/sec      Msg/sec" :
#ifdef CHECK
                   strcmp(name, "PingPong") == 0 ? "     t[usec]   Mbytes/sec      defects" :
                   " t_min[usec]  t_max[usec]  t_avg[usec]      defects");
#else
                   strcmp(name, "PingPong") == 0 ? "     t[usec]   Mbytes/sec" :
                   " t_min[usec]  t_max[usec]  t_avg[usec]");
#endif
    }
    for (int i = 0; i < sizes; i++) {
        const int length = i == 0 ? 0 : 1 << (i - 1);
        const double time_us = ping_pong(buffer, length);

        if (rank == 0)
            print_row(name, length, time_us);
    }
    fflush(stdout);
    free(buffer);
}

static const char *known(const char *name)
{
    for (int i = 0; i < kNames; i++)
        if (strcasecmp(name, names[i]) == 0)
            return names[i];
    return NULL;
}

int main(int argc, char **argv)
{
    int wanted = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (getenv("FAULT") != NULL)
        fault = getenv("FAULT");
    for (int i = 1; i < argc; i++)
        for (int j = 1; j < i; j++)
            if (argv[i][0] == '-' && strcmp(argv[i], argv[j]) == 0) {
                if (rank == 0)
                    printf("Invalid benchmark name or option %s: it is set twice\n", argv[i]);       /* as IMB 2021 */
                MPI_Finalize();
                return 1;
            }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-msglog") == 0)
            longest_log = atoi(strchr(argv[++i], ':') + 1);
        else if (strcmp(argv[i], "-iter") == 0)
            iterations = atoi(argv[++i]);
        else if (strcmp(argv[i], "-npmin") == 0 || strcmp(argv[i], "-time") == 0)
            i++;
        else if (known(argv[i]) != NULL)
            argv[++wanted] = argv[i];
        else if (rank == 0)
            fprintf(stderr, "Invalid benchmark name %s\n", argv[i]);
    }
    if (iterations > 20)
        iterations = 20;
    if (rank == 0)
        printf("# Intel(R) MPI Benchmarks: a stand-in\n");
    for (int i = 1; i <= wanted && !has_fault("silent"); i++)
        run(known(argv[i]));
    for (int i = 0; i < kNames && wanted == 0 && !has_fault("silent"); i++)
        run(names[i]);
    if (has_fault("hang"))
        for (;;)
            pause();
    if (has_fault("crash") && rank == 1)
        raise(SIGSEGV);
    if (has_fault("abort"))
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Finalize();
    return 0;
}
