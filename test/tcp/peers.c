/* Messages between two nodes over TCP: mpiexec -n N peers MODE [ARGUMENT]. Says "done" at each rank that found all
 * well.
 *
 *   talk        all pairs exchange messages of many lengths in both directions at once, with checked contents, and
 *               the ranks use collectives and a window
 *   long S      rank 0 and the last rank send each other messages for S seconds
 *   death       the last rank kills itself; rank 0 waits for a message of it, and must get an error
 *   midst MODE  the last rank kills itself while it "sends" a long message to rank 0, or "receives" one of
 *               it. Rank 0 must get an error. The others exchange messages meanwhile, and afterwards
 *   lost        likewise, but nobody dies: the network goes away. "here" is said when it may
 *   flood       the last rank sends long messages to rank 0 when the network goes away, and must get an error */
#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void require(int is_so, const char *what, int line)
{
    if (is_so)
        return;
    printf("rank %d, line %d: not so: %s\n", rank, line, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define REQUIRE(condition) require(condition, #condition, __LINE__)

static unsigned char pattern(int from, size_t length, size_t at)
{
    return (unsigned char) (from * 31 + length * 7 + at * 13 + at / 251);
}

static void fill(unsigned char *bytes, int from, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = pattern(from, length, i);
}

static int holds(const unsigned char *bytes, int from, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != pattern(from, length, i))
            return 0;
    return 1;
}

static void talk(void)
{
    static const size_t lengths[] = { 0, 1, 100, 8192, 32768, 32769, 65536, 65537, 262144, 1000001, 5 << 20 };
    enum { kLengths = sizeof lengths / sizeof lengths[0] };
    for (int k = 0; k < kLengths; k++) {
        size_t length = lengths[k];
        unsigned char *out = malloc(length + 1), *in = malloc((length + 1) * (size_t) size);
        MPI_Request requests[2 * size];
        int count = 0;
        fill(out, rank, length);
        for (int peer = 0; peer < size; peer++) {
            if (peer == rank)
                continue;
            MPI_Irecv(in + (length + 1) * (size_t) peer, (int) length, MPI_BYTE, peer, k, MPI_COMM_WORLD,
                      &requests[count++]);
            MPI_Isend(out, (int) length, MPI_BYTE, peer, k, MPI_COMM_WORLD, &requests[count++]);
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        for (int peer = 0; peer < size; peer++)
            REQUIRE(peer == rank || holds(in + (length + 1) * (size_t) peer, peer, length));
        free(out);
        free(in);
    }
    /* In order, also where the receiver comes late. */
    for (int i = 0; i < 3000; i++) {
        int to = (rank + 1) % size, from = (rank + size - 1) % size, got = -1;
        if (rank % 2 == 0)
            MPI_Send(&i, 1, MPI_INT, to, 100, MPI_COMM_WORLD);
        if (i == 10)
            usleep(20000);
        MPI_Recv(&got, 1, MPI_INT, from, 100, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank % 2 != 0)
            MPI_Send(&i, 1, MPI_INT, to, 100, MPI_COMM_WORLD);
        REQUIRE(got == i);
    }
    long sum = 0, own = rank + 1;
    MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    REQUIRE(sum == (long) size * (size + 1) / 2);
    long *memory;
    MPI_Win window;
    MPI_Win_allocate(1000 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_lock_all(0, window);
    memset(memory, 0, 1000 * sizeof(long));
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int peer = 0; peer < size; peer++)
        for (int i = 0; i < 100; i++)
            MPI_Accumulate(&own, 1, MPI_LONG, peer, i % 10, 1, MPI_LONG, MPI_SUM, window);
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
    REQUIRE(memory[3] == 10 * sum);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

/* Between this rank and `peer`; `first` of them says when it is over. */
static void exchange_for(double seconds, int first, int peer)
{
    enum { kLong = 1 << 20 };
    unsigned char *bytes = malloc(kLong);
    double end = MPI_Wtime() + seconds;
    int goes_on = 1;
    for (int i = 0; goes_on; i++) {
        size_t length = i % 50 == 0 ? kLong : 64;
        if (rank == first) {
            goes_on = MPI_Wtime() < end;
            MPI_Send(&goes_on, 1, MPI_INT, peer, 0, MPI_COMM_WORLD);
            fill(bytes, i, length);
            MPI_Send(bytes, (int) length, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
            MPI_Recv(bytes, kLong, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&goes_on, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(bytes, kLong, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(bytes, (int) length, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
        }
        REQUIRE(holds(bytes, i, length));
    }
    free(bytes);
}

/* One side of the long message. `sends`: whether the last rank, which dies, sends it. */
static void die_in_the_midst(int sends)
{
    enum { kLong = 256 << 20 };
    MPI_Request request;
    char *bytes;
    MPI_Alloc_mem(kLong, MPI_INFO_NULL, &bytes);
    memset(bytes, rank, kLong);
    int peer = rank == 0 ? size - 1 : 0, is_over = 0, error;
    if (sends == (rank != 0))
        MPI_Isend(bytes, kLong, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
    else
        MPI_Irecv(bytes, kLong, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
    if (rank == 0) {
        error = MPI_Wait(&request, MPI_STATUS_IGNORE);
        int class;
        MPI_Error_class(error, &class);
        REQUIRE(class == MPIX_ERR_PROC_FAILED);
        printf("done\n");
        fflush(stdout);
        return;
    }
    double end = MPI_Wtime() + 0.02;
    while (MPI_Wtime() < end)
        MPI_Test(&request, &is_over, MPI_STATUS_IGNORE);
    REQUIRE(!is_over);
    kill(getpid(), SIGKILL);
}

/* What a call says that needs the other rank, which cannot be reached. */
static void expect_failure(int error)
{
    int class;
    MPI_Error_class(error, &class);
    REQUIRE(class == MPIX_ERR_PROC_FAILED);
    printf("done\n");
    fflush(stdout);
    _exit(0);   /* MPI_Finalize would wait for the other one. */
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *mode = argc > 1 ? argv[1] : "";
    int last = size - 1, word = 0;
    if (strcmp(mode, "talk") == 0) {
        talk();
    } else if (strcmp(mode, "long") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("here\n"), fflush(stdout);
        if (rank == 0 || rank == last)
            exchange_for(atof(argv[2]), 0, rank == 0 ? last : 0);
    } else {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (rank == last)
            MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&word, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        if (strcmp(mode, "death") == 0) {
            if (rank == last)
                kill(getpid(), SIGKILL);
            if (rank == 0)
                expect_failure(MPI_Recv(&word, 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else if (strcmp(mode, "midst") == 0) {
            if (rank == 0 || rank == last) {
                die_in_the_midst(strcmp(argv[2], "sends") == 0);
            } else {
                exchange_for(2, 1, rank == 1 ? 2 : 1);
                printf("done\n");
                fflush(stdout);
            }
        } else if (strcmp(mode, "lost") == 0) {
            printf("here\n");
            fflush(stdout);
            if (rank == 0 || rank == last)
                expect_failure(MPI_Recv(&word, 1, MPI_INT, rank == 0 ? last : 0, 1, MPI_COMM_WORLD,
                                        MPI_STATUS_IGNORE));
        } else if (strcmp(mode, "flood") == 0) {
            enum { kLong = 1 << 20 };
            char *bytes = calloc(1, kLong);
            printf("here\n");
            fflush(stdout);
            for (;;) {
                int error = rank == last ? MPI_Send(bytes, kLong, MPI_BYTE, 0, 1, MPI_COMM_WORLD)
                                         : MPI_Recv(bytes, kLong, MPI_BYTE, last, 1, MPI_COMM_WORLD,
                                                    MPI_STATUS_IGNORE);
                if (error != MPI_SUCCESS)
                    expect_failure(error);
            }
        } else {
            REQUIRE(!"a mode");
        }
        _exit(0);
    }
    MPI_Finalize();
    printf("done\n");
    return 0;
}
