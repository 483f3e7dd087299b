/* For test/lab: ranks 0 and 1 exchange messages, short and long by turns, every byte checked, until MPI
 * returns an error, or argv[1] seconds are over, or the file argv[2]/over is there. Each writes to
 * argv[2]/rankN: "started", and at its end "error CLASS after MS ms" (since the last success) or "no
 * error, longest pause MS ms". */
#include "told_by_files.h"

#include <stdlib.h>
#include <string.h>

enum { kLong = 300000 };

static unsigned char byte_of(int turn, int rank, int i)
{
    return (unsigned char) (turn * 13 + rank * 101 + i * 7 + (i >> 8));
}

int main(int argc, char **argv)
{
    unsigned char *mine = malloc(kLong), *others = malloc(kLong);
    double begin, last, now, pause = 0;
    int rank, turn, i, class = 0, error = MPI_SUCCESS;
    FILE *words;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    words = create_own(argv[2], rank);
    begin = last = MPI_Wtime();
    for (turn = 0; rank < 2; turn++) {
        const int length = turn % 2 ? kLong : 1000 + turn % 5000;
        int more = 1;
        for (i = 1; i < length; i++)
            mine[i] = byte_of(turn, rank, i);
        mine[0] = (unsigned char) (MPI_Wtime() - begin < atof(argv[1]) && !is_there(argv[2], "over"));
        error = MPI_Sendrecv(mine, length, MPI_BYTE, 1 - rank, turn % 1000, others, length, MPI_BYTE, 1 - rank,
                             turn % 1000, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        now = MPI_Wtime();
        if (error != MPI_SUCCESS)
            break;
        if (turn == 1)
            fprintf(words, "started\n");
        for (i = 1; i < length; i++)
            if (others[i] != byte_of(turn, 1 - rank, i)) {
                fprintf(words, "wrong byte %d of %d in turn %d\n", i, length, turn);
                MPI_Abort(MPI_COMM_WORLD, 4);
            }
        if (now - last > pause)
            pause = now - last;
        last = now;
        more = mine[0] && others[0];    /* both agree */
        if (!more)
            break;
    }
    if (error != MPI_SUCCESS) {
        MPI_Error_class(error, &class);
        fprintf(words, "error %d after %.0f ms\n", class, (MPI_Wtime() - last) * 1e3);
        _exit(3);       /* MPI_Finalize is collective, and one rank is gone */
    }
    fprintf(words, "no error, %d turns, longest pause %.0f ms\n", turn, pause * 1e3);
    MPI_Finalize();
    return 0;
}
