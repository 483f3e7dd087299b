/*
 * Programs with an error each, which the channel meets in the program's memory: the sanitizers must report
 * it.
 */

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kShort = 64, kLong = 100000 };

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    char *memory;
    int rank, other;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(what, "sends-beyond") == 0) {
        memory = malloc(kShort - 1);
        memset(memory, 1, kShort - 1);
        if (rank == 0)
            MPI_Send(memory, kShort, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(malloc(kShort), kShort, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (strcmp(what, "receives-into-freed") == 0) {
        MPI_Request request;
        memory = malloc(kShort);
        if (rank == 1)
            MPI_Irecv(memory, kShort, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &request);
        if (rank == 1) {
            free(memory);
            MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&other, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(memory, kShort, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        }
    } else if (strcmp(what, "puts-into-freed") == 0) {
        MPI_Win win;
        memory = malloc(kLong);
        memset(memory, 1, kLong);
        MPI_Win_create(memory, kLong, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        if (rank == 1)
            free(memory);
        MPI_Win_fence(0, win);
        if (rank == 0)
            MPI_Put(memory, kLong, MPI_CHAR, 1, 0, kLong, MPI_CHAR, win);
        MPI_Win_fence(0, win);
    }
    MPI_Finalize();
    printf("done\n");
    return 0;
}
