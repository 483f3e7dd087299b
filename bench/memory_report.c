/* For bench/lab-memory: each rank exchanges a message with its neighbours in a ring (and with argv[1] "all", with
 * everybody), then says what it holds: resident, pinned and locked KiB, from /proc/self/status. Rank 0 prints the
 * median and the greatest. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long long status_kib(const char *key)
{
    char line[256];
    long long value = 0;
    FILE *file = fopen("/proc/self/status", "r");

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %lld", &value);
    if (file)
        fclose(file);
    return value;
}

static int compare(const void *left, const void *right)
{
    const long long a = *(const long long *) left, b = *(const long long *) right;
    return (a > b) - (a < b);
}

static void report(const char *what, long long mine, int rank, int size)
{
    long long *all = malloc((size_t) size * sizeof *all);

    MPI_Gather(&mine, 1, MPI_LONG_LONG, all, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(all, (size_t) size, sizeof *all, compare);
        printf(" %s %lld/%lld", what, all[size / 2], all[size - 1]);
    }
    free(all);
}

int main(int argc, char **argv)
{
    static char data[4096], received[4096];
    int rank, size, i;
    long long before, pinned, resident, anonymous;

    before = status_kib("VmRSS");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (i = 0; i < 10; i++)
        MPI_Sendrecv(data, sizeof data, MPI_BYTE, (rank + 1) % size, 0, received, sizeof received, MPI_BYTE,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        for (i = 1; i < size; i++)
            MPI_Sendrecv(data, sizeof data, MPI_BYTE, (rank + i) % size, 0, received, sizeof received, MPI_BYTE,
                         (rank + size - i) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    pinned = status_kib("VmPin");
    resident = status_kib("VmRSS");
    anonymous = status_kib("RssAnon");
    if (rank == 0)
        printf("%d ranks:", size);
    report("registered KiB", pinned, rank, size);
    report("resident KiB", resident, rank, size);
    report("of it anonymous KiB", anonymous, rank, size);
    report("resident before MPI_Init KiB", before, rank, size);
    if (rank == 0)
        printf(" (median/greatest)\n");
    MPI_Finalize();
    return 0;
}
