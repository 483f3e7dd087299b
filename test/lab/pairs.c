/* For test/lab: every rank exchanges a message with every other. Then each creates the file argv[1]/rankN, and
 * waits until the file argv[1]/over is there: so that somebody can count the connections. */
#include "told_by_files.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, i, wrong = 0;
    int *given, *taken;
    const char *directory = argc > 1 ? argv[1] : ".";

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
    fclose(create_own(directory, rank));
    for (i = 0; i < 6000 && !is_there(directory, "over"); i++)
        usleep(20000);
    MPI_Finalize();
    free(given);
    free(taken);
    return wrong != 0;
}
