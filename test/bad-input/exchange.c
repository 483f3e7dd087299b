/* For test/bad-input/run: every rank exchanges 1 MiB with every other, so that each pair's connection is set up. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { kLength = 1 << 20 };

int main(int argc, char **argv)
{
    int rank, size;
    char *sent = calloc(1, kLength), *received = calloc(1, kLength);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int distance = 1; distance < size; distance++)
        MPI_Sendrecv(sent, kLength, MPI_CHAR, (rank + distance) % size, 0, received, kLength, MPI_CHAR,
                     (rank + size - distance) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        printf("exchanged\n");
    MPI_Finalize();
    return 0;
}
