/* Rank 1 sends a message that rank 0 does not wait for, and both wait without end. With an argument, rank 1 writes
 * to an address that is not there instead. */
#include <mpi.h>
#include <stddef.h>

int main(int argc, char **argv)
{
    int rank, value = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        MPI_Send(&value, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
        if (argc > 1)
            *(volatile int *) NULL = 1;
    }
    MPI_Recv(&value, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Finalize();
}
