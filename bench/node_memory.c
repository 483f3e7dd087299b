/* What many ranks of one node need when all of them talk to each other: MPI_Alltoall with BYTES for each
 * rank, ROUNDS times. Every byte is checked. Rank 0 prints the mean time of a round, the growth of the
 * node's shared memory and page tables (/proc/meminfo, so nothing else should run), and the sum of the
 * ranks' anonymous memory.
 *
 *   mpiexec -n 64 node_memory [BYTES [ROUNDS]]         (default: 1024 100) */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long long kib(const char *name, const char *key)
{
    char line[256];
    long long value = 0;
    FILE *file = fopen(name, "r");

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), "%lld", &value);
    if (file)
        fclose(file);
    return value;
}

int main(int argc, char **argv)
{
    const int bytes = argc > 1 ? atoi(argv[1]) : 1024, rounds = argc > 2 ? atoi(argv[2]) : 100;
    const long long shared = kib("/proc/meminfo", "Shmem:"), tables = kib("/proc/meminfo", "PageTables:");
    long long anonymous, all = 0;
    char *from, *to;
    int rank, size, i;
    double begin, time;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (bytes < 0 || rounds < 1 || (argc > 1 && strspn(argv[1], "0123456789") != strlen(argv[1]))) {
        if (rank == 0)
            fputs("usage: mpiexec -n N node_memory [BYTES [ROUNDS]]      (default: 1024 100)\n"
                  "Prints what MPI_Alltoall among N ranks of one node takes: time, and memory of the node.\n", stderr);
        MPI_Finalize();
        return 2;
    }
    from = calloc((size_t) size + 1, (size_t) bytes + 1);
    to = calloc((size_t) size + 1, (size_t) bytes + 1);
    if (!from || !to)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(from, rank + 1, (size_t) size * bytes);
    MPI_Alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (i = 0; i < rounds; i++)
        MPI_Alltoall(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD);
    time = (MPI_Wtime() - begin) / rounds;
    for (size_t at = 0; at < (size_t) size * bytes; at++) {
        if (to[at] != (char) (at / bytes + 1)) {
            fprintf(stderr, "rank %d: byte %zu is wrong\n", rank, at);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    anonymous = kib("/proc/self/status", "RssAnon:");
    MPI_Reduce(&anonymous, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d bytes: %.0f us a round; shared %lld KiB, page tables %lld KiB, anonymous %lld KiB\n",
               size, bytes, time * 1e6, kib("/proc/meminfo", "Shmem:") - shared,
               kib("/proc/meminfo", "PageTables:") - tables, all);
    MPI_Finalize();
    free(from);
    free(to);
    return 0;
}
