/* For test/faults/run: the first thread of each process ends (pthread_exit). Another one calls
 * MPI_Init_thread, before that or after it (argv[1]: "before" or "after"), and exchanges messages of all
 * lengths and one-sided operations. The kernel then knows the process by its other threads only: /proc/self
 * and the process's pid lead to the one that has ended. Rank 0 says "well". */
#define _GNU_SOURCE
#include <mpi.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLongest = 1 << 20 };

static pthread_t first;
static sem_t initialized;
static int inits_before;
static char sent[kLongest], received[kLongest];

static void stop(const char *what)
{
    fprintf(stderr, "main_ends: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* pthread_join() returns a moment before the kernel has ended the thread. */
static void await_first(void)
{
    pthread_join(first, NULL);
    usleep(50000);
}

static void exchange(int rank, int size)
{
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Win window;
    long one = 1;
    long *memory = calloc(kLongest, 1);
    int length;

    for (length = 1; length <= kLongest; length *= 4) {
        memset(sent, rank + 1, sizeof sent);
        memset(received, 0, sizeof received);
        MPI_Sendrecv(sent, length, MPI_CHAR, next, 0, received, length, MPI_CHAR, previous, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (received[0] != previous + 1 || received[length - 1] != previous + 1)
            stop("a message came with other bytes");
    }
    MPI_Win_create(memory, kLongest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    MPI_Accumulate(&one, 1, MPI_LONG, next, 0, 1, MPI_LONG, MPI_SUM, window);
    MPI_Put(sent, kLongest - 8, MPI_CHAR, next, 8, kLongest - 8, MPI_CHAR, window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (memory[0] != 1 || memcmp(memory + 1, received, kLongest - 8) != 0)
        stop("a window has other bytes");
    MPI_Win_free(&window);
    free(memory);
}

static void *run(void *unused)
{
    int provided, rank, size;

    (void) unused;
    if (!inits_before)
        await_first();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    sem_post(&initialized);
    if (inits_before)
        await_first();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    exchange(rank, size);
    if (rank == 0)
        puts("well");
    fflush(stdout);
    MPI_Finalize();
    exit(0);
}

int main(int argc, char **argv)
{
    pthread_t other;

    inits_before = argc > 1 && strcmp(argv[1], "before") == 0;
    first = pthread_self();
    sem_init(&initialized, 0, 0);
    if (pthread_create(&other, NULL, run, NULL) != 0)
        return 2;
    if (inits_before)
        sem_wait(&initialized);
    pthread_exit(NULL);
}
