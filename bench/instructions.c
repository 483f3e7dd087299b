/* What bench/instructions runs under valgrind's callgrind, on two ranks of one node. Counts the instructions
 * of one message for each operation that bench/instructions names.
 *
 * instructions STEPS BYTES ...: STEPS is a file of 4096 zero bytes, in which the ranks tell each other how
 * far they are.
 *
 * The counts do not depend on the machine's load. While a rank is measured, the other is outside of MPI, and
 * each message that the measured rank receives has arrived before. */

#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

enum {
    BATCH = 32,                 /* messages between two steps: fewer than a ring or a queue holds */
    WARM_UP = 8,                /* batches that are not counted: connections are made, credit grows */
    COUNTED = 32                /* batches */
};

static int rank, length_bytes;
static char *buffers[BATCH];
static MPI_Request requests[BATCH];
static uint32_t *steps;         /* by rank: how many it has ended */

/* Ends a step. Returns when the other rank has ended it, too. */
static void step(void)
{
    const uint32_t done = __atomic_add_fetch(&steps[rank], 1, __ATOMIC_SEQ_CST);

    while (__atomic_load_n(&steps[1 - rank], __ATOMIC_SEQ_CST) < done)
        usleep(100);
}

static void send_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MPI_Send(buffers[i], length_bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
}

static void isend_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MPI_Isend(buffers[i], length_bytes, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(BATCH, requests, MPI_STATUSES_IGNORE);
}

static void post_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MPI_Irecv(buffers[i], length_bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD, &requests[i]);
}

static void complete_batch(void)
{
    MPI_Waitall(BATCH, requests, MPI_STATUSES_IGNORE);
}

static void receive_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MPI_Recv(buffers[i], length_bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void self_batch(void)
{
    MPI_Request both[2];

    for (int i = 0; i < BATCH; i++) {
        MPI_Irecv(buffers[i], length_bytes, MPI_BYTE, rank, 7, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(buffers[BATCH - 1 - i], length_bytes, MPI_BYTE, rank, 7, MPI_COMM_WORLD, &both[1]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    }
}

static void no_batch(void)
{
}

static void run(void (*batch) (void), int is_counted)
{
    if (is_counted)
        CALLGRIND_TOGGLE_COLLECT;
    batch();
    if (is_counted)
        CALLGRIND_TOGGLE_COLLECT;
}

/* Rank 0 sends by `send`. Rank 1 calls `prepare` before, and receives by `receive`. Dumps the count of the
 * rank `measured` under the title "NAME BYTES MESSAGES". */
static void measure(const char *name, int measured, void (*send) (void), void (*prepare) (void),
                    void (*receive) (void))
{
    char title[64];

    for (int i = 0; i < WARM_UP + COUNTED; i++) {
        const int is_counted = rank == measured && i >= WARM_UP;

        if (rank == 1 && prepare != NULL)
            prepare();
        step();                 /* the receives are posted */
        if (rank == 0)
            run(send, is_counted);
        step();                 /* the messages have arrived */
        if (rank == 1)
            run(receive, is_counted);
        step();
        MPI_Barrier(MPI_COMM_WORLD);    /* the credit has come back */
    }
    snprintf(title, sizeof title, "%s %d %d", name, length_bytes, BATCH * COUNTED);
    if (rank == measured)
        CALLGRIND_DUMP_STATS_AT(title);
}

int main(int argc, char **argv)
{
    int size, file;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    file = argc > 1 ? open(argv[1], O_RDWR) : -1;
    if (size != 2 || file < 0) {
        fprintf(stderr, "usage: %s STEPS BYTES ..., on two ranks\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (steps == MAP_FAILED) {
        perror(argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CALLGRIND_START_INSTRUMENTATION;
    for (int i = 2; i < argc; i++) {
        length_bytes = atoi(argv[i]);
        for (int j = 0; j < BATCH; j++)
            buffers[j] = calloc(1, (size_t) length_bytes + 1);
        measure("send", 0, send_batch, NULL, receive_batch);
        measure("isend", 0, isend_batch, NULL, receive_batch);
        measure("posted", 1, send_batch, post_batch, complete_batch);
        measure("waiting", 1, send_batch, NULL, receive_batch);
        measure("self", 0, self_batch, NULL, no_batch);
        for (int j = 0; j < BATCH; j++)
            free(buffers[j]);
    }
    MPI_Finalize();
    return 0;
}
