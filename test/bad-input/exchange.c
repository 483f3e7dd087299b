/* For test/bad-input/run: every rank exchanges 1 MiB with every other, so that each pair's connection is set up. Every byte
 * follows from its sender, its receiver and its position, and is checked. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWords = (1 << 20) / sizeof(uint32_t) };

static uint32_t word_at(int from, int to, uint32_t position)
{
    return ((uint32_t) (from * 1000 + to) * 2654435761u) ^ (position * 2246822519u);
}

int main(int argc, char **argv)
{
    int rank, size;
    uint32_t *sent = malloc(kWords * sizeof *sent), *received = malloc(kWords * sizeof *received);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int distance = 1; distance < size; distance++) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size;
        for (uint32_t i = 0; i < kWords; i++)
            sent[i] = word_at(rank, to, i);
        memset(received, 0, kWords * sizeof *received);
        MPI_Sendrecv(sent, kWords, MPI_UINT32_T, to, 0, received, kWords, MPI_UINT32_T, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (uint32_t i = 0; i < kWords; i++) {
            if (received[i] != word_at(from, rank, i)) {
                fprintf(stderr, "rank %d: word %u from rank %d is wrong\n", rank, (unsigned) i, from);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("exchanged\n");
    MPI_Finalize();
    return 0;
}
