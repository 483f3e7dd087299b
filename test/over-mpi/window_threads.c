/* Threads: locks of windows, and requests. With 3 processes:
 *
 * window_threads lock_all     Threads of rank 0 put to rank 2 in an epoch of lock_all. While rank 1 has an
 *                             exclusive lock there, no put takes effect, whichever thread has asked for rank
 *                             0's lock.
 * window_threads flush_all    A thread of rank 0 waits for the lock of rank 1's memory. Rank 1 keeps that lock
 *                             until rank 0's other thread has flushed what it put to rank 2.
 * window_threads testany      Threads test many receives and sends. No memory stays behind.
 */
#include "over_mpi.h"

#include <pthread.h>
#include <time.h>

enum { kThreads = 4, kRounds = 30 };

static MPI_Win window;
static int memory[kThreads];

static void *put(void *place)
{
    const int value = 7;

    MPI_Put(&value, 1, MPI_INT, 2, (int *) place - memory, 1, MPI_INT, window);
    MPI_Win_flush(2, window);
    return NULL;
}

/* Rank 0's. */
static void put_in_threads(void)
{
    pthread_t threads[kThreads];

    MPI_Win_lock_all(0, window);
    for (int i = 0; i < kThreads; i++)
        if (pthread_create(&threads[i], NULL, put, &memory[i]) != 0)
            fail("no thread");
    for (int i = 0; i < kThreads; i++)
        pthread_join(threads[i], NULL);
    MPI_Win_unlock_all(window);
}

/* Rank 1's. MPI_Win_lock() may return before the lock is granted. Once a get has ended, it is. */
static void take_lock(void)
{
    int got;

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 2, 0, window);
    MPI_Get(&got, 1, MPI_INT, 2, 0, 1, MPI_INT, window);
    MPI_Win_flush(2, window);
}

/* Rank 1's: the lock is its own until it ends. */
static void expect_zeros(void)
{
    int got[kThreads];
    const struct timespec while_they_ask = {.tv_nsec = 2000000};

    nanosleep(&while_they_ask, NULL);
    MPI_Get(got, kThreads, MPI_INT, 2, 0, kThreads, MPI_INT, window);
    MPI_Win_unlock(2, window);
    for (int i = 0; i < kThreads; i++)
        if (got[i] != 0)
            fail("the put of thread %d arrived within the lock of another process", i);
}

static void run_lock_all(void)
{
    for (int round = 0; round < kRounds; round++) {
        if (rank == 1)
            take_lock();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            put_in_threads();
        if (rank == 1)
            expect_zeros();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 2) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 2, 0, window);
            for (int i = 0; i < kThreads; i++) {
                if (memory[i] != 7)
                    fail("the put of thread %d is not there", i);
                memory[i] = 0;
            }
            MPI_Win_unlock(2, window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Of rank 1's memory, whose lock rank 1 has. */
static void *add_there(void *unused)
{
    const int one = 1;

    (void) unused;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
    MPI_Accumulate(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_unlock(1, window);
    return NULL;
}

static void flush_while_a_thread_waits(int round)
{
    const struct timespec while_it_asks = {.tv_nsec = 2000000};
    pthread_t thread;

    MPI_Win_lock(MPI_LOCK_SHARED, 2, 0, window);
    if (pthread_create(&thread, NULL, add_there, NULL) != 0)
        fail("no thread");
    nanosleep(&while_it_asks, NULL);
    MPI_Put(&round, 1, MPI_INT, 2, 0, 1, MPI_INT, window);
    if (round % 2 == 0)
        MPI_Win_flush_all(window);
    else
        MPI_Win_flush_local_all(window);
    MPI_Send(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    pthread_join(thread, NULL);
    MPI_Win_unlock(2, window);
}

static void run_flush_all(void)
{
    for (int round = 0; round < kRounds; round++) {
        if (rank == 1)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            flush_while_a_thread_waits(round);
        if (rank == 1) {
            MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (memory[0] != round)
                fail("rank 0's thread has added in round %d while rank 1 had the lock", round);
            MPI_Win_unlock(1, window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank > 0) {
            MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
            if (memory[0] != (rank == 1 ? round + 1 : round))
                fail("memory is %d after round %d", memory[0], round);
            MPI_Win_unlock(rank, window);
        }
    }
}

/* Many requests. */

enum { kTesters = 3, kSlots = 30, kExchanges = 60 };

/* In each slot a receive, and at most one send more than was received. So what comes ahead of its receive is
 * bounded. */
static void *test_slots(void *number)
{
    const int thread = (int) (intptr_t) number, behind = (rank + 1) % size, before = (rank + size - 1) % size;
    long in[kSlots][64], out[kSlots][64];
    MPI_Request receives[kSlots], sends[kSlots];
    int sent[kSlots] = { 0 }, received[kSlots] = { 0 }, slot, flag;

    for (slot = 0; slot < kSlots; slot++) {
        MPI_Irecv(in[slot], sizeof in[slot], MPI_BYTE, before, thread * kSlots + slot, MPI_COMM_WORLD,
                  &receives[slot]);
        sends[slot] = MPI_REQUEST_NULL;
    }
    for (int left = kSlots * kExchanges; left > 0;) {
        MPI_Testany(kSlots, receives, &slot, &flag, MPI_STATUS_IGNORE);
        if (flag && slot != MPI_UNDEFINED) {
            left--;
            if (in[slot][0] != received[slot] || in[slot][63] != thread)
                fail("thread %d, slot %d: message %ld, not %d", thread, slot, in[slot][0], received[slot]);
            if (++received[slot] < kExchanges)
                MPI_Irecv(in[slot], sizeof in[slot], MPI_BYTE, before, thread * kSlots + slot, MPI_COMM_WORLD,
                          &receives[slot]);
        }
        for (slot = 0; slot < kSlots; slot++) {
            if (sends[slot] != MPI_REQUEST_NULL || sent[slot] == kExchanges || sent[slot] > received[slot])
                continue;
            out[slot][0] = sent[slot]++;
            out[slot][63] = thread;
            MPI_Isend(out[slot], sizeof out[slot], MPI_BYTE, behind, thread * kSlots + slot, MPI_COMM_WORLD,
                      &sends[slot]);
        }
        MPI_Testany(kSlots, sends, &slot, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Waitall(kSlots, sends, MPI_STATUSES_IGNORE);
    return NULL;
}

static size_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        fail("cannot read /proc/self/statm");
    fclose(file);
    return (size_t) pages * 4096;
}

static void run_testany(void)
{
    enum { kRounds = 30, kFirst = 10, kMostBytes = 2 << 20 };
    size_t before = 0;

    for (int round = 0; round < kRounds; round++) {
        pthread_t threads[kTesters];

        for (int i = 0; i < kTesters; i++)
            if (pthread_create(&threads[i], NULL, test_slots, (void *) (intptr_t) i) != 0)
                fail("no thread");
        for (int i = 0; i < kTesters; i++)
            pthread_join(threads[i], NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        if (round == kFirst)
            before = resident_bytes();
    }
    /* That is 20 bytes for each message. */
    if (resident_bytes() > before + kMostBytes)
        fail("memory grew from %zu to %zu bytes", before, resident_bytes());
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(doing, sizeof doing, "threads and %s", part);
    if (provided != MPI_THREAD_MULTIPLE || size != 3)
        fail("it needs threads and 3 processes");
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (strcmp(part, "lock_all") == 0)
        run_lock_all();
    else if (strcmp(part, "flush_all") == 0)
        run_flush_all();
    else if (strcmp(part, "testany") == 0)
        run_testany();
    else
        fail("no such part");
    MPI_Win_free(&window);
    MPI_Finalize();
    puts("done");
    return 0;
}
