/* For test/lab/run: every rank adds up the ranks, and rank 0 says how many there are, their sum, and the seconds that
 * MPI_Init took at worst. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    double begin = seconds(), took, worst = 0;

    MPI_Init(&argc, &argv);
    took = seconds() - begin;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(&took, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("hello from %d ranks, whose sum is %d; MPI_Init took %.2f s\n", size, sum, worst);
    MPI_Finalize();
    return sum == size * (size - 1) / 2 ? 0 : 1;
}
