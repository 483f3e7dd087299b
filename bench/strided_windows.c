/* What MPI_Put, MPI_Get and MPI_Accumulate to many short runs of another rank's window take, by their number:
 * mpiexec -n 2 strided_windows [BLOCK [STRIDE [MOST]]]. Runs of BLOCK words of 8 bytes (1), STRIDE words from one's
 * beginning to the next one's (2), up to MOST of them (1,000,000), in private memory. Rank 0 prints the least of a few
 * times until the target has all, ms. Plain MPI, so that it runs over any MPICH. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { kPut, kGet, kAccumulate, kOperations };

static void begin(int operation, long *data, int words, MPI_Datatype runs, MPI_Win window)
{
    if (operation == kPut)
        MPI_Put(data, words, MPI_LONG, 1, 0, 1, runs, window);
    else if (operation == kGet)
        MPI_Get(data, words, MPI_LONG, 1, 0, 1, runs, window);
    else
        MPI_Accumulate(data, words, MPI_LONG, 1, 0, 1, runs, MPI_SUM, window);
}

int main(int argc, char **argv)
{
    const int block = argc > 1 ? atoi(argv[1]) : 1, stride = argc > 2 ? atoi(argv[2]) : 2;
    const int most = argc > 3 ? atoi(argv[3]) : 1000000;
    const MPI_Aint bytes = (MPI_Aint) most * stride * (MPI_Aint) sizeof(long);
    long *memory = calloc(1, (size_t) bytes), *data = calloc((size_t) most * block, sizeof *data);
    MPI_Win window;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_create(memory, bytes, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (rank == 0)
        printf("%10s %10s %10s %10s\n", "runs", "put", "get", "accumulate");
    for (int count = 10000; count <= most; count *= 10) {
        double best[kOperations] = { 1e9, 1e9, 1e9 };
        MPI_Datatype runs;

        MPI_Type_vector(count, block, stride, MPI_LONG, &runs);
        MPI_Type_commit(&runs);
        for (int turn = 0; turn < 5 * kOperations; turn++) {
            const int operation = turn % kOperations;
            double time;

            MPI_Barrier(MPI_COMM_WORLD);
            time = MPI_Wtime();
            MPI_Win_fence(0, window);
            if (rank == 0)
                begin(operation, data, count * block, runs, window);
            MPI_Win_fence(0, window);
            MPI_Barrier(MPI_COMM_WORLD);
            time = 1e3 * (MPI_Wtime() - time);
            if (time < best[operation])
                best[operation] = time;
        }
        if (rank == 0)
            printf("%10d %10.2f %10.2f %10.2f\n", count, best[kPut], best[kGet], best[kAccumulate]);
        MPI_Type_free(&runs);
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    free(memory);
    free(data);
    return 0;
}
