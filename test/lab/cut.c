/* For test/lab/two-nodes: four ranks, two on each node, while the link that introductions go over is cut.
 * By files in the directory argv[1] the script and the ranks tell each other what has happened.
 *
 * Ranks 0 and 2 exchange messages all the time. Ranks 1 and 3 exchange one each, and then do not call MPI
 * before the file "healed" is there. When the file "cut" is there, rank 0 begins to send to rank 3; these
 * two have no link yet. After the cut, ranks 1 and 3 talk again, and ranks 1 and 2 for the first time.
 *
 * Each rank writes to argv[1]/rankN: "started", and at its end "well, TURNS turns, longest pause MS ms",
 * or "error ...". */
#include "told_by_files.h"

#include <stdlib.h>
#include <string.h>

enum { kLong = 100000, kTraffic = 1, kFirst = 2, kPauseUs = 50000 };

static const char *directory;
static FILE *words;
static int rank;
static unsigned char mine[kLong], others[kLong];

static void fill(unsigned char *bytes, int length, int sender, int turn)
{
    int i;
    for (i = 0; i < length; i++)
        bytes[i] = (unsigned char) (turn * 13 + sender * 101 + i * 7 + (i >> 8));
}

static void check(int error, int length, int sender, int turn)
{
    static unsigned char right[kLong];
    int class;

    fill(right, length, sender, turn);
    if (error == MPI_SUCCESS && memcmp(others + 1, right + 1, (size_t) length - 1) == 0)
        return;
    MPI_Error_class(error, &class);
    fprintf(words, "error %d (0: a wrong byte) with rank %d in turn %d\n", class, sender, turn);
    _exit(3);
}

/* One message each way. Byte 0 is `more`. Returns whether both ranks want more. */
static int exchange(int peer, int length, int turn, int more)
{
    int error;

    fill(mine, length, rank, turn);
    mine[0] = (unsigned char) more;
    error = MPI_Sendrecv(mine, length, MPI_BYTE, peer, kTraffic, others, length, MPI_BYTE, peer, kTraffic,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(error, length, peer, turn);
    return mine[0] && others[0];
}

/* Ranks 0 and 2. Returns the number of turns. */
static int talk(double *longest_pause)
{
    static unsigned char first[kLong];
    MPI_Request request = MPI_REQUEST_NULL;
    int turn, more = 1, error;
    double last = MPI_Wtime(), now;

    for (turn = 0; more; turn++) {
        more = exchange(2 - rank, turn % 2 ? kLong : 1000, turn, !is_there(directory, "healed"));
        now = MPI_Wtime();
        if (turn > 0 && now - last > *longest_pause)
            *longest_pause = now - last;
        if (turn == 1)
            fprintf(words, "started\n");
        if (rank == 0 && request == MPI_REQUEST_NULL && is_there(directory, "cut")) {
            fill(first, kLong, rank, 0);
            MPI_Isend(first, kLong, MPI_BYTE, 3, kFirst, MPI_COMM_WORLD, &request);
        }
        last = MPI_Wtime();
        usleep(kPauseUs);
    }
    error = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS)
        check(error, 1, 3, 0);
    return turn;
}

int main(int argc, char **argv)
{
    int turns = 0;
    double pause = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    directory = argc > 1 ? argv[1] : ".";
    words = create_own(directory, rank);
    if (rank % 2 == 0) {
        turns = talk(&pause);
    } else {
        exchange(4 - rank, kLong, turns++, 1);
        fprintf(words, "started\n");
        while (!is_there(directory, "healed"))
            usleep(kPauseUs);
        exchange(4 - rank, kLong, turns++, 1);
    }
    if (rank == 3)
        check(MPI_Recv(others, kLong, MPI_BYTE, 0, kFirst, MPI_COMM_WORLD, MPI_STATUS_IGNORE), kLong, 0, 0);
    if (rank == 1 || rank == 2)
        exchange(3 - rank, kLong, 0, 1);
    fprintf(words, "well, %d turns, longest pause %.0f ms\n", turns, pause * 1e3);
    MPI_Finalize();
    return 0;
}
