/* A small job for memcheck: messages of each protocol, a collective, and one-sided operations. It branches on each byte
 * that it receives, so that memcheck reports what it takes for uninitialised. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostBytes = 300000 };

int main(int argc, char **argv)
{
    static const int lengths[] = { 8, 5000, kMostBytes };
    int rank, size, left, right, wrong = 0;
    long sum, *memory;
    MPI_Win window;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left = (rank + size - 1) % size;
    right = (rank + 1) % size;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char *out = malloc((size_t) lengths[i]), *in = malloc((size_t) lengths[i]);
        memset(out, rank + 1, (size_t) lengths[i]);
        MPI_Sendrecv(out, lengths[i], MPI_BYTE, right, 7, in, lengths[i], MPI_BYTE, left, 7, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int at = 0; at < lengths[i]; at++)
            if (in[at] != left + 1)
                wrong++;
        free(out);
        free(in);
    }
    {
        int *all = malloc((size_t) size * 500 * sizeof *all), own[500];
        MPI_Request request;
        for (int i = 0; i < 500; i++)
            own[i] = rank + i;
        MPI_Iallgather(own, 500, MPI_INT, all, 500, MPI_INT, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < size * 500; i++)
            if (all[i] != i / 500 + i % 500)
                wrong++;
        free(all);
    }
    sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    *memory = 0;
    MPI_Win_fence(0, window);
    MPI_Accumulate(&sum, 1, MPI_LONG, right, 0, 1, MPI_LONG, MPI_SUM, window);
    MPI_Win_fence(0, window);
    if (*memory != (long) size * (size - 1) / 2)
        wrong++;
    MPI_Win_free(&window);
    if (wrong > 0)
        printf("%d bytes are wrong\n", wrong);
    MPI_Finalize();
    return wrong > 0;
}
