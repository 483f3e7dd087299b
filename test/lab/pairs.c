/* For test/lab: every rank exchanges a message with every other. Then each creates the file argv[1]/rankN, and
 * waits until the file argv[1]/over is there: so that somebody can count the connections. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size, i, wrong = 0;
    int *given, *taken;
    char name[4096];
    FILE *file;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    given = malloc(size * sizeof *given);
    taken = malloc(size * sizeof *taken);
    for (i = 0; i < size; i++)
        given[i] = 1000 * rank + i;
    MPI_Alltoall(given, 1, MPI_INT, taken, 1, MPI_INT, MPI_COMM_WORLD);
    for (i = 0; i < size; i++)
        wrong += taken[i] != 1000 * i + rank;
    snprintf(name, sizeof name, "%s/rank%d", argc > 1 ? argv[1] : ".", rank);
    file = fopen(name, "w");
    if (file == NULL || fclose(file) != 0) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    snprintf(name, sizeof name, "%s/over", argc > 1 ? argv[1] : ".");
    for (i = 0; i < 6000 && access(name, F_OK) != 0; i++)
        usleep(20000);
    MPI_Finalize();
    free(given);
    free(taken);
    return wrong != 0;
}
