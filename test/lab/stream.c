/* For test/lab: rank 0 sends a short message every few ms, without waiting for any, and rank 1 checks
 * them, until argv[1] seconds are over or the file argv[2]/over is there. Each writes to argv[2]/rankN:
 * "started", and at its end "N messages, longest pause MS ms". */
#include "told_by_files.h"

#include <stdlib.h>

enum { kMost = 100000, kPauseUs = 5000 };

static int numbers[kMost];
static MPI_Request requests[kMost];

int main(int argc, char **argv)
{
    int rank, count = 0, more = 1;
    double begin, last, now, pause = 0;
    FILE *words;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    words = create_own(argv[2], rank);
    begin = last = MPI_Wtime();
    for (; more && count < kMost; count++) {
        if (rank == 0) {
            int flag;
            more = count + 1 < kMost && MPI_Wtime() - begin < atof(argv[1]) && !is_there(argv[2], "over");
            numbers[count] = more ? count : -1;
            MPI_Isend(&numbers[count], 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[count]);
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            usleep(kPauseUs);
        } else {
            int number;
            MPI_Recv(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            more = number != -1;
            if (more && number != count) {
                fprintf(words, "message %d in the place of %d\n", number, count);
                MPI_Abort(MPI_COMM_WORLD, 4);
            }
        }
        now = MPI_Wtime();
        if (now - last > pause)
            pause = now - last;
        last = now;
        if (count == 20)
            fprintf(words, "started\n");
    }
    for (int i = 0; rank == 0 && i < count; i++)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    fprintf(words, "%d messages, longest pause %.0f ms\n", count, pause * 1e3);
    MPI_Finalize();
    return 0;
}
