/* What the first message of a pair takes, when a pair is connected by it: mpiexec -n N first_message, on one node.
 * Each two ranks have a turn, in which the others sleep. In it, the lower rank sends 8 bytes, and the other one, which
 * waits in MPI_Recv, answers; then once more. Rank 0 prints medians and the tenth and ninetieth percentile. Clocks of
 * one node are one clock. Plain MPI, so that it runs over any MPICH. */
#include <mpi.h>

#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { kMostRanks = 64, kPairs = kMostRanks * kMostRanks / 2, kFigures = 4, kApartUs = 50 };

/* Shared memory of all ranks, so that no message comes before the first ones. */
typedef struct {
    _Atomic int turn, is_waiting;
    double us[kFigures][kPairs];
    double begun_us;
} shared_t;

static const char *const names[kFigures] = { "MPI_Send", "until MPI_Recv ends", "there and back", "the second time" };

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double) now.tv_sec + 1e-3 * (double) now.tv_nsec;
}

static void await_turn(shared_t *shared, int turn)
{
    for (int seen; (seen = atomic_load(&shared->turn)) < turn;)
        syscall(SYS_futex, &shared->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void end_turn(shared_t *shared)
{
    atomic_fetch_add(&shared->turn, 1);
    syscall(SYS_futex, &shared->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void ask(shared_t *shared, int peer, int turn)
{
    char bytes[8] = "";
    double begun, sent, answered;

    while (!atomic_load(&shared->is_waiting));
    for (begun = now_us(); now_us() < begun + kApartUs;);       /* It is in MPI_Recv now. */
    shared->begun_us = begun = now_us();
    MPI_Send(bytes, sizeof bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
    sent = now_us();
    MPI_Recv(bytes, sizeof bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    answered = now_us();
    MPI_Send(bytes, sizeof bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(bytes, sizeof bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    shared->us[0][turn] = sent - begun;
    shared->us[2][turn] = answered - begun;
    shared->us[3][turn] = now_us() - answered;
    atomic_store(&shared->is_waiting, 0);
}

static void answer(shared_t *shared, int peer, int turn)
{
    char bytes[8] = "";

    atomic_store(&shared->is_waiting, 1);
    for (int i = 0; i < 2; i++) {
        MPI_Recv(bytes, sizeof bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (i == 0)
            shared->us[1][turn] = now_us() - shared->begun_us;
        MPI_Send(bytes, sizeof bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
    }
    while (atomic_load(&shared->is_waiting));
    end_turn(shared);
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *) left, b = *(const double *) right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    char name[64];
    int rank, size, pairs, turn = 0;
    shared_t *shared;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 || size < 2 || size > kMostRanks) {
        if (rank == 0)
            fprintf(stderr, "usage: mpiexec -n N first_message      N: 2 to %d, on one node\n", kMostRanks);
        MPI_Finalize();
        return 2;
    }
    snprintf(name, sizeof name, "/first_message-%ld", (long) getppid());    /* Hydra's proxy */
    const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof *shared) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    pairs = size * (size - 1) / 2;
    for (int asks = 0; asks < size; asks++)
        for (int answers = asks + 1; answers < size; answers++, turn++) {
            if (rank != asks && rank != answers)
                continue;
            await_turn(shared, turn);
            if (rank == asks)
                ask(shared, answers, turn);
            else
                answer(shared, asks, turn);
        }
    await_turn(shared, pairs);
    if (rank == 0) {
        shm_unlink(name);
        printf("# first message of each of %d pairs, 8 bytes\n%-22s %12s %12s %12s\n", pairs, "", "10 % [usec]",
               "median[usec]", "90 % [usec]");
        for (int i = 0; i < kFigures; i++) {
            double *us = shared->us[i];
            qsort(us, (size_t) pairs, sizeof *us, compare);
            printf("%-22s %12.2f %12.2f %12.2f\n", names[i], us[pairs / 10], us[pairs / 2], us[pairs * 9 / 10]);
        }
    }
    MPI_Finalize();
    return 0;
}
