/* Long messages of two ranks of a node, for each state of the two cores:
 *
 *   mpiexec -n 2 long_messages BYTES WHAT SECONDS
 *
 * WHAT is pingpong (half of a round trip), sendrecv (both send and receive) or window (8 messages one way, and
 * an answer). On a virtual machine, cores that share a cache now may not do so a second later. So the program
 * measures blocks of some milliseconds. For each block rank 0 prints half of a round trip of 8 bytes before it
 * and after it, and the time of one exchange, in microseconds. Plain MPI. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWindow = 8, kAlignment = 4096, kTag = 1, kWarmUp = 20 };

static int self;
static char *from, *to;
static int length;

static void ping_pong(int bytes)
{
    if (self == 0)
        MPI_Send(from, bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
    MPI_Recv(to, bytes, MPI_BYTE, 1 - self, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (self == 1)
        MPI_Send(from, bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
}

static void ping_pong_once(void)
{
    ping_pong(length);
}

static void send_receive(void)
{
    MPI_Sendrecv(from, length, MPI_BYTE, 1 - self, kTag, to, length, MPI_BYTE, 1 - self, kTag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void window(void)
{
    MPI_Request requests[kWindow];
    for (int i = 0; i < kWindow; i++)
        if (self == 0)
            MPI_Isend(from, length, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(to + (size_t) i * length, length, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    if (self == 0)
        MPI_Recv(to, 1, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(from, 1, MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
}

/* Half of a round trip of 8 bytes, us: the least of some means, for the first ones find cold caches. */
static double state_of_cores(void)
{
    enum { kMeans = 12, kEach = 10 };
    double least = 1e9;
    for (int i = 0; i < kMeans; i++) {
        const double begun = MPI_Wtime();
        for (int j = 0; j < kEach; j++)
            ping_pong(8);
        const double mean = (MPI_Wtime() - begun) / kEach / 2 * 1e6;
        if (mean < least)
            least = mean;
    }
    return least;
}

static char *room_for(size_t bytes)
{
    char *const memory = aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (memory == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(memory, 1, bytes);
    return memory;
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *const what = argc > 2 ? argv[2] : "";
    void (*const exchange)(void) = strcmp(what, "pingpong") == 0 ? ping_pong_once
                                   : strcmp(what, "sendrecv") == 0 ? send_receive
                                   : strcmp(what, "window") == 0 ? window : NULL;
    length = argc > 1 ? atoi(argv[1]) : 0;
    const double seconds = argc > 3 ? atof(argv[3]) : 0;
    if (size != 2 || length <= 0 || length > 1 << 27 || exchange == NULL || seconds <= 0) {
        if (self == 0)
            fprintf(stderr, "usage: mpiexec -n 2 long_messages BYTES pingpong|sendrecv|window SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    from = room_for((size_t) length + 8);
    to = room_for((size_t) length * kWindow + 8);
    for (int i = 0; i < kWarmUp; i++)
        (void) state_of_cores();
    const int in_block = 5 + 3000000 / length;
    const double begun = MPI_Wtime();
    for (int is_over = 0; !is_over;) {
        const double before = state_of_cores(), block_begun = MPI_Wtime();
        for (int i = 0; i < in_block; i++)
            exchange();
        const double each = (MPI_Wtime() - block_begun) / in_block / (exchange == ping_pong_once ? 2 : 1) * 1e6;
        const double after = state_of_cores();
        if (self == 0)
            printf("%.3f %.3f %.2f\n", before, after, each);
        is_over = MPI_Wtime() - begun > seconds;
        MPI_Bcast(&is_over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    free(from);
    free(to);
    MPI_Finalize();
    return 0;
}
