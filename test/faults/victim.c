/* For test/faults/run: rank `victim` says its process id on stdout and sleeps for good; the others wait for it in
 * the way that argv[1] names. They say "waiting" when they do, and "error CLASS" if the wait returns one. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kVictim = 1, kLarge = 8 << 20 };

int main(int argc, char **argv)
{
    int rank, error = MPI_SUCCESS, class = MPI_SUCCESS;
    const char *how = argc > 1 ? argv[1] : "recv";
    char *buffer = calloc(1, kLarge);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    /* Everybody has spoken to the victim: connections are up. */
    MPI_Allreduce(MPI_IN_PLACE, buffer, 1024, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD);
    if (rank == kVictim) {
        printf("victim %d\n", (int) getpid());
        fflush(stdout);
        sleep(600);
        return 0;
    }
    printf("waiting\n");
    fflush(stdout);
    if (strcmp(how, "recv") == 0)
        error = MPI_Recv(buffer, kLarge, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(how, "anysource") == 0)
        error = MPI_Recv(buffer, kLarge, MPI_CHAR, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(how, "send") == 0)
        error = MPI_Send(buffer, kLarge, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD);
    else if (strcmp(how, "ssend") == 0)
        error = MPI_Ssend(buffer, 1, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD);
    else if (strcmp(how, "probe") == 0)
        error = MPI_Probe(kVictim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(how, "barrier") == 0)
        error = MPI_Barrier(MPI_COMM_WORLD);
    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &class);
    printf("error %d\n", class);
    fflush(stdout);
    /* No MPI_Finalize: it is collective, and one rank is gone. */
    _exit(error == MPI_SUCCESS ? 0 : 3);
}
