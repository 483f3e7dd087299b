/* Messages of every protocol around a ring of ranks, for the trace: test/trace/run counts them again.
 *
 * The first message of 65536 bytes has no credit yet and goes by rendezvous; the second is eager.
 *
 * Each rank sends to the next: kRounds short messages that are answered, one of each length below, kUnexpected
 * that nobody awaits yet, and one synchronous. So kRounds + lengths + kUnexpected + 1 messages go to the next rank,
 * and kRounds answers come back, beside what MPI itself sends. Rank 0 prints both numbers. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRounds = 3000, kUnexpected = 50, kLongest = 4 << 20 };

static const int lengths[] = { 0, 1, 100, 4000, 20000, 65536, 65536, 65537, 300000, kLongest };
static const int length_count = (int) (sizeof lengths / sizeof lengths[0]);

int main(int argc, char **argv)
{
    int rank, size;
    long word = 0;
    MPI_Request sends[kUnexpected];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *out = calloc(1, kLongest), *in = calloc(1, kLongest);

    for (int i = 0; i < kRounds; i++) {
        MPI_Sendrecv(&word, 8, MPI_BYTE, next, 1, in, 8, MPI_BYTE, previous, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(&word, 8, MPI_BYTE, previous, 2, in, 8, MPI_BYTE, next, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < length_count; i++)
        MPI_Sendrecv(out, lengths[i], MPI_BYTE, next, 3, in, kLongest, MPI_BYTE, previous, 3, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    for (int i = 0; i < kUnexpected; i++)
        MPI_Isend(&word, 8, MPI_BYTE, next, 4, MPI_COMM_WORLD, &sends[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kUnexpected; i++)
        MPI_Recv(in, 8, MPI_BYTE, previous, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(kUnexpected, sends, MPI_STATUSES_IGNORE);
    MPI_Irecv(in, 8, MPI_BYTE, previous, 5, MPI_COMM_WORLD, &sends[0]);
    MPI_Ssend(&word, 8, MPI_BYTE, next, 5, MPI_COMM_WORLD);
    MPI_Wait(&sends[0], MPI_STATUS_IGNORE);

    if (rank == 0)
        printf("to the next %d, back %d\n", kRounds + length_count + kUnexpected + 1, kRounds);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
