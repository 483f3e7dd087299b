/* For bench/waiting: what waits cost. Plain MPI, so that it runs over any MPICH. argv[1] names a program. Rank
 * 0 prints one figure in microseconds, the median of kBlocks blocks, or of "token" the mean. */
#include <mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBlocks = 5, kLateMessages = 10, kLateBytes = 50000, kLateRepetitions = 40 };

static int rank, size;

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);      /* one clock for all processes of a node */
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static void work(double length_us)
{
    double began_us = now_us();
    while (now_us() - began_us < length_us);
}

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Each rank passes a byte to its right neighbour. */
static void start_shift(char *bytes, MPI_Request * requests)
{
    MPI_Irecv(&bytes[0], 1, MPI_CHAR, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&bytes[1], 1, MPI_CHAR, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
}

static void shift_by_wait(void)
{
    char bytes[2] = { 0, 0 };
    MPI_Request requests[2];
    start_shift(bytes, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void shift_by_test(void)
{
    char bytes[2] = { 0, 0 };
    MPI_Request requests[2];
    int flag = 0;
    start_shift(bytes, requests);
    while (!flag)
        MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
}

static void shift_by_probe(void)
{
    char bytes[2] = { 0, 0 };
    MPI_Request request;
    int flag = 0;
    MPI_Isend(&bytes[1], 1, MPI_CHAR, (rank + 1) % size, 0, MPI_COMM_WORLD, &request);
    while (!flag)
        MPI_Iprobe((rank + size - 1) % size, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Recv(&bytes[0], 1, MPI_CHAR, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* As ROMIO's nonblocking collectives wait. */
static void collective_by_test(void)
{
    int one = 1, sum = 0, flag = 0;
    MPI_Request request;
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    while (!flag)
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    if (sum != size)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *) a > *(const double *) b) - (*(const double *) a < *(const double *) b);
}

static void print_median(double *block_us)
{
    if (rank != 0)
        return;
    qsort(block_us, kBlocks, sizeof block_us[0], by_value);
    printf("%.2f\n", block_us[kBlocks / 2]);
}

/* The mean time of one step in each block. About 100 ms a block, 2000 steps at most. */
static void time_steps(void (*step) (void))
{
    double block_us[kBlocks];
    int iterations = 20;

    MPI_Barrier(MPI_COMM_WORLD);
    double began_us = now_us();
    for (int i = 0; i < iterations; i++)
        step();
    double mean_us = (now_us() - began_us) / iterations;
    iterations = mean_us > 1e5 / 2000 ? (int) (1e5 / mean_us) + 5 : 2000;
    MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int block = 0; block < kBlocks; block++) {
        began_us = now_us();
        for (int i = 0; i < iterations; i++)
            step();
        block_us[block] = (now_us() - began_us) / iterations;
    }
    print_median(block_us);
}

/* Rank 0 works for 5 ms, sends ten messages to rank 1, which waits for them, and gets an answer. The figure is
 * the time from the first send to the answer. */
static void late_partner(void)
{
    static char buffers[kLateMessages][kLateBytes];
    double block_us[kBlocks];
    char answer = 0;

    for (int block = 0; block < kBlocks; block++) {
        double sum_us = 0;
        for (int i = 0; i < kLateRepetitions && rank < 2; i++) {
            MPI_Request requests[kLateMessages];
            if (rank == 0)
                work(5000);
            double began_us = now_us();
            for (int j = 0; j < kLateMessages; j++) {
                if (rank == 0)
                    MPI_Isend(buffers[j], kLateBytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[j]);
                else
                    MPI_Irecv(buffers[j], kLateBytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &requests[j]);
            }
            MPI_Waitall(kLateMessages, requests, MPI_STATUSES_IGNORE);
            if (rank == 0)
                MPI_Recv(&answer, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                MPI_Send(&answer, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
            sum_us += now_us() - began_us;
        }
        block_us[block] = sum_us / kLateRepetitions;
    }
    print_median(block_us);
}

/* Eight bytes go round all ranks for 1.5 s. The figure is the mean time from one rank to the next, so that a
 * bad spell counts as long as it lasts. */
static void token(void)
{
    const double length_us = 1.5e6;
    long rounds = 0, goes_on = 1;

    MPI_Barrier(MPI_COMM_WORLD);
    double began_us = now_us();
    while (goes_on) {
        if (rank == 0) {
            if (++rounds % 64 == 0 || size > 2)
                goes_on = now_us() - began_us < length_us;
            MPI_Send(&goes_on, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
        }
        MPI_Recv(&goes_on, 1, MPI_LONG, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(&goes_on, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%.3f\n", (now_us() - began_us) / (double) rounds / size);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*step) (void);
    } steps[] = {
        {"barrier", barrier},
        {"shift-by-wait", shift_by_wait},
        {"shift-by-test", shift_by_test},
        {"shift-by-probe", shift_by_probe},
        {"collective-by-test", collective_by_test},
    };
    const char *name = argc == 2 ? argv[1] : "";
    bool is_known = false;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(name, "late-partner") == 0 && size >= 2) {
        is_known = true;
        late_partner();
    }
    if (strcmp(name, "token") == 0 && size >= 2) {
        is_known = true;
        token();
    }
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (strcmp(name, steps[i].name) == 0) {
            is_known = true;
            time_steps(steps[i].step);
        }
    }
    if (!is_known && rank == 0)
        fputs("usage: waiting_bench late-partner|barrier|shift-by-wait|shift-by-test|shift-by-probe|"
              "collective-by-test|token\n", stderr);
    MPI_Finalize();
    return is_known ? 0 : 2;
}
