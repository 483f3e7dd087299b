/* For bench/waiting: a dissemination barrier of bare processes over shared memory, without MPI. It shows what
 * the scheduler gives to processes that outnumber the cores, when they sleep or when they give their core away.
 *
 *   bare_barrier PROCESSES futex|yield
 *
 * Prints the mean time of a barrier in microseconds, the median of kBlocks blocks. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMostProcesses = 256, kMostRounds = 8, kBlocks = 5, kIterations = 1000, kWarmUp = 200 };

/* What one process waits for. */
typedef struct {
    _Alignas(64) struct {
        _Atomic int arrived;    /* the number of the barrier */
        char rest_of_line[60];
    } rounds[kMostRounds];
    _Atomic unsigned events;    /* the futex */
    _Atomic bool is_asleep;
} mailbox_t;

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static void wait_for(mailbox_t * own, int round, int number, bool sleeps)
{
    while (atomic_load(&own->rounds[round].arrived) < number) {
        if (!sleeps) {
            sched_yield();
            continue;
        }
        unsigned events = atomic_load(&own->events);
        atomic_store(&own->is_asleep, true);
        if (atomic_load(&own->rounds[round].arrived) < number)
            syscall(SYS_futex, &own->events, FUTEX_WAIT, events, NULL, NULL, 0);
        atomic_store(&own->is_asleep, false);
    }
}

static void barrier(mailbox_t * boxes, int self, int processes, int number, bool sleeps)
{
    for (int distance = 1, round = 0; distance < processes; distance *= 2, round++) {
        mailbox_t *to = &boxes[(self + distance) % processes];
        atomic_store(&to->rounds[round].arrived, number);
        if (sleeps) {
            atomic_fetch_add(&to->events, 1);
            if (atomic_load(&to->is_asleep))
                syscall(SYS_futex, &to->events, FUTEX_WAKE, 1, NULL, NULL, 0);
        }
        wait_for(&boxes[self], round, number, sleeps);
    }
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *) a > *(const double *) b) - (*(const double *) a < *(const double *) b);
}

int main(int argc, char **argv)
{
    int processes = argc == 3 ? atoi(argv[1]) : 0;
    bool sleeps = argc == 3 && strcmp(argv[2], "futex") == 0;
    if (processes < 1 || processes > kMostProcesses || (!sleeps && strcmp(argv[2], "yield") != 0)) {
        fprintf(stderr, "usage: bare_barrier PROCESSES futex|yield (1 to %d processes)\n", kMostProcesses);
        return 2;
    }
    mailbox_t *boxes = mmap(NULL, sizeof(mailbox_t) * (size_t) processes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (boxes == MAP_FAILED) {
        perror("bare_barrier");
        return 1;
    }
    int self = 0;
    for (int i = 1; i < processes && self == 0; i++) {
        pid_t child = fork();
        if (child < 0) {
            perror("bare_barrier");
            return 1;
        }
        if (child == 0) {
            self = i;
            prctl(PR_SET_PDEATHSIG, SIGKILL);   /* bench/waiting ends what takes too long */
        }
    }

    int number = 0;
    for (int i = 0; i < kWarmUp; i++)
        barrier(boxes, self, processes, ++number, sleeps);
    double block_us[kBlocks];
    for (int block = 0; block < kBlocks; block++) {
        double began_us = now_us();
        for (int i = 0; i < kIterations; i++)
            barrier(boxes, self, processes, ++number, sleeps);
        block_us[block] = (now_us() - began_us) / kIterations;
    }
    if (self != 0)
        return 0;
    qsort(block_us, kBlocks, sizeof block_us[0], by_value);
    printf("%.2f\n", block_us[kBlocks / 2]);
    while (wait(NULL) > 0);
    return 0;
}
