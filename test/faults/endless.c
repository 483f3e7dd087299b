/* For test/faults/run: ranks 0 and 2 exchange messages for ever, short and long by turns, every byte checked.
 * Rank 0 also sends a word to rank 1 each 100 turns. With the file argv[1]/over, all is
 * received and the job ends.
 *
 * Each rank writes to argv[1]/rankN: "process PID" and "started"; rank 0 then "turns N" each 100 turns. */
#include "../lab/told_by_files.h"

#include <stdlib.h>
#include <string.h>

enum { kLong = 100000, kWord, kLast };

static int length_of(int turn)
{
    return turn % 2 ? kLong : 8 + turn % 64;
}

static void fill(unsigned char *bytes, int turn, int from)
{
    memset(bytes, (turn * 7 + from) & 0xff, length_of(turn));
}

int main(int argc, char **argv)
{
    unsigned char *mine = malloc(kLong), *others = malloc(kLong), *expected = malloc(kLong);
    const char *directory = argc > 1 ? argv[1] : ".";
    int rank, turn, more = 1, words_sent = 0;
    static MPI_Request words[100000];
    static int word = 4711;
    FILE *said;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    said = create_own(directory, rank);
    fprintf(said, "process %d\nstarted\n", (int) getpid());
    for (turn = 0; rank != 1 && more; turn++) {
        const int length = length_of(turn);
        fill(mine, turn, rank);
        fill(expected, turn, 2 - rank);
        MPI_Sendrecv(mine, length, MPI_BYTE, 2 - rank, 0, others, length, MPI_BYTE, 2 - rank, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (memcmp(others, expected, length) != 0) {
            fprintf(said, "wrong bytes in turn %d\n", turn);
            MPI_Abort(MPI_COMM_WORLD, 4);
        }
        if (turn % 100 != 0)
            continue;
        if (rank == 0) {
            fprintf(said, "turns %d\n", turn);
            more = !is_there(directory, "over") && words_sent + 2 < 100000;
            MPI_Isend(&word, 1, MPI_INT, 1, more ? kWord : kLast, MPI_COMM_WORLD, &words[words_sent++]);
        }
        MPI_Sendrecv(&more, 1, MPI_INT, 2 - rank, 1, others, 1, MPI_INT, 2 - rank, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (rank == 2)
            memcpy(&more, others, sizeof more);
    }
    for (turn = 0; rank == 1 && more; turn++) {
        MPI_Status status;
        int got = 0;
        MPI_Recv(&got, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (got != word)
            MPI_Abort(MPI_COMM_WORLD, 4);
        more = status.MPI_TAG != kLast;
    }
    MPI_Waitall(words_sent, words, MPI_STATUSES_IGNORE);
    fprintf(said, "well\n");
    MPI_Finalize();
    return 0;
}
