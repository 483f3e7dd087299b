/* For test/faults/run: rank `victim` says its process id and sleeps for good; the others wait for it in the way that
 * argv[1] names. They say "waiting" when they do, and "error CLASS" if the wait returns one. Each says it in its own
 * file in the directory argv[2]: mpiexec may end before it has passed on a survivor's last words. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kVictim = 1, kLarge = 8 << 20 };

/* The error of a probe is the probe's alone: what is done with a living process afterwards succeeds. */
static int probe_until_error(int rank, int is_matched)
{
    int error, flag = 0, value = 0, size;
    MPI_Message message;

    do {
        error = is_matched ?
            MPI_Improbe(kVictim, 0, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE) :
            MPI_Iprobe(kVictim, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    } while (error == MPI_SUCCESS && !flag);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 3 && MPI_Sendrecv(&rank, 1, MPI_INT, 2 - rank, 1, &value, 1, MPI_INT, 2 - rank, 1, MPI_COMM_WORLD,
                                  MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return MPI_SUCCESS;
    return error;
}

int main(int argc, char **argv)
{
    int rank, error = MPI_SUCCESS, class = MPI_SUCCESS;
    const char *how, *directory;
    char name[4096];
    FILE *words;
    char *buffer = calloc(1, kLarge);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc != 3) {
        fprintf(stderr, "usage: victim WAY DIRECTORY\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    how = argv[1];
    directory = argv[2];
    snprintf(name, sizeof name, "%s/rank%d", directory, rank);
    words = fopen(name, "w");
    if (words == NULL) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    setlinebuf(words);

    /* Everybody has spoken to the victim: connections are up. */
    MPI_Allreduce(MPI_IN_PLACE, buffer, 1024, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD);
    if (rank == kVictim) {
        fprintf(words, "victim %d\n", (int) getpid());
        sleep(600);
        return 0;
    }
    fprintf(words, "waiting\n");
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
    else if (strcmp(how, "iprobe") == 0)
        error = probe_until_error(rank, 0);
    else if (strcmp(how, "improbe") == 0)
        error = probe_until_error(rank, 1);
    else if (strcmp(how, "barrier") == 0)
        error = MPI_Barrier(MPI_COMM_WORLD);
    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &class);
    fprintf(words, "error %d\n", class);
    /* No MPI_Finalize: it is collective, and one rank is gone. */
    _exit(error == MPI_SUCCESS ? 0 : 3);
}
