/* For bench/lab-compare: ranks 0 and 1 exchange messages of 8 bytes, argv[1] round trips. Rank 0 prints
 * the median and the minimum of half a round trip in microseconds, as perftest's t_typical and t_min.
 * Other load on the machine changes a median less than a mean. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { kWarmUp = 2000 };

static int compare(const void *left, const void *right)
{
    const double a = *(const double *) left, b = *(const double *) right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    int rank, i, trips = argc > 1 ? atoi(argv[1]) : 10000;
    double *times_us = malloc((size_t) trips * sizeof *times_us);
    char word[8] = "";

    if (trips < 1 || times_us == NULL)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (i = -kWarmUp; rank < 2 && i < trips; i++) {
        const double begin = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(word, sizeof word, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(word, sizeof word, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(word, sizeof word, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(word, sizeof word, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
        if (i >= 0)
            times_us[i] = (MPI_Wtime() - begin) * 1e6 / 2;
    }
    if (rank == 0) {
        qsort(times_us, (size_t) trips, sizeof *times_us, compare);
        printf("%.2f %.2f\n", times_us[trips / 2], times_us[0]);
    }
    MPI_Finalize();
    free(times_us);
    return 0;
}
