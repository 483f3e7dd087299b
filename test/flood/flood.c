/* For test/flood/run: senders that flood a receiver which does not receive, and how much memory that takes.
 *   flood growth BYTES COUNT   blocking sends of that length; prints how far each process grew, in KiB, at most
 *   flood tags THREADS         the budget is spent on tag 0, then the threads block in sends of other tags, which are received first
 *   flood crossed BYTES        two processes send to each other, and then receive: they lean on buffering
 * Every payload is checked. Says "done" at the end, once for each rank. */
#include <mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLongest = 65536, kTagFlood = 0, kTagOther = 1, kTagAnswer = 1000, kMostThreads = 64 };

static int rank;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Most resident memory so far, KiB. */
static long peak_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL)
        fail("no /proc");
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmHWM: %ld", &kib);
    fclose(status);
    return kib;
}

static unsigned char byte_of(long message, int i)
{
    return (unsigned char) ((unsigned long) message * 31 + (unsigned) i * 7 + 1);
}

static void fill(unsigned char *buffer, int length, long message)
{
    for (int i = 0; i < length; i++)
        buffer[i] = byte_of(message, i);
}

static void check(const unsigned char *buffer, int length, long message, const MPI_Status * status)
{
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (count != length)
        fail("a message has another length");
    for (int i = 0; i < length; i++) {
        if (buffer[i] != byte_of(message, i))
            fail("a message has other bytes, or is out of order");
    }
}

/* Lets arrive what can: no message has this tag. */
static void probe_for(double seconds)
{
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end) {
        int found = 0;
        MPI_Iprobe(0, kTagOther + kMostThreads, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        if (found)
            fail("a probe found what nobody sent");
    }
}

static void warm_up(unsigned char *buffer, int length)
{
    for (int i = 0; i < 1000; i++) {
        if (rank == 0)
            MPI_Send(buffer, length, MPI_BYTE, 1, kTagAnswer, MPI_COMM_WORLD);
        else
            MPI_Recv(buffer, length, MPI_BYTE, 0, kTagAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void growth(int length, long count)
{
    static unsigned char buffer[kLongest];
    long before;
    if (length > kLongest)
        fail("too long");
    warm_up(buffer, length);
    before = peak_kib();
    if (rank == 0) {
        for (long i = 0; i < count; i++) {
            fill(buffer, length, i);
            MPI_Send(buffer, length, MPI_BYTE, 1, kTagFlood, MPI_COMM_WORLD);
        }
    } else {
        MPI_Status status;
        probe_for(1);
        for (long i = 0; i < count; i++) {
            MPI_Recv(buffer, length, MPI_BYTE, 0, kTagFlood, MPI_COMM_WORLD, &status);
            check(buffer, length, i, &status);
            if (i % 200000 == 50000)
                probe_for(0.1); /* it fills up again */
        }
    }
    printf("%s grew %ld\n", rank == 0 ? "sender" : "receiver", peak_kib() - before);
}

static long flood_count;
static pthread_mutex_t flooded = PTHREAD_MUTEX_INITIALIZER;

/* Floods with tag 0 together with the others, then sends its own tag, and says so. */
static void *flooder(void *argument)
{
    int tag = (int) (long) argument;
    unsigned char own[4096];
    for (;;) {
        MPI_Request request;
        double until = 0;
        int done = 0;
        pthread_mutex_lock(&flooded);
        flood_count++;
        pthread_mutex_unlock(&flooded);
        /* The first send that does not end by itself is the one that found the budget spent. */
        MPI_Isend(NULL, 0, MPI_BYTE, 1, kTagFlood, MPI_COMM_WORLD, &request);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done)
            until = MPI_Wtime() + 1;
        while (!done && MPI_Wtime() < until)
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            continue;
        fill(own, sizeof own, tag);
        MPI_Send(own, sizeof own, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
        MPI_Send(own, sizeof own, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return NULL;
    }
}

static void tags(int threads)
{
    if (threads < 1 || threads > kMostThreads)
        fail("too many threads");
    if (rank == 0) {
        pthread_t thread[kMostThreads];
        long total;
        for (int i = 0; i < threads; i++) {
            if (pthread_create(&thread[i], NULL, flooder, (void *) (long) (kTagOther + i)) != 0)
                fail("no thread");
        }
        for (int i = 0; i < threads; i++)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, kTagAnswer + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        total = flood_count;
        MPI_Send(&total, 1, MPI_LONG, 1, kTagAnswer, MPI_COMM_WORLD);
        for (int i = 0; i < threads; i++)
            pthread_join(thread[i], NULL);
    } else {
        static unsigned char buffer[4096];
        MPI_Status status;
        long total = 0;
        probe_for(0.3);
        for (int round = 0; round < 2; round++) {
            for (int i = threads - 1; i >= 0; i--) {
                MPI_Recv(buffer, sizeof buffer, MPI_BYTE, 0, kTagOther + i, MPI_COMM_WORLD, &status);
                check(buffer, sizeof buffer, kTagOther + i, &status);
            }
        }
        for (int i = 0; i < threads; i++)
            MPI_Send(NULL, 0, MPI_BYTE, 0, kTagAnswer + i, MPI_COMM_WORLD);
        MPI_Recv(&total, 1, MPI_LONG, 0, kTagAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (long i = 0; i < total; i++)
            MPI_Recv(NULL, 0, MPI_BYTE, 0, kTagFlood, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("flood of %ld\n", total);
    }
}

static void crossed(int bytes)
{
    static char sent[kLongest], received[kLongest];

    if (bytes > kLongest)
        fail("too long");
    memset(sent, 1 + rank, bytes);
    MPI_Send(sent, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
    MPI_Recv(received, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; i++) {
        if (received[i] != 2 - rank)
            fail("a wrong byte");
    }
}

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, argc > 1 && strcmp(argv[1], "tags") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc == 4 && strcmp(argv[1], "growth") == 0)
        growth(atoi(argv[2]), atol(argv[3]));
    else if (argc == 3 && strcmp(argv[1], "tags") == 0)
        tags(atoi(argv[2]));
    else if (argc == 3 && strcmp(argv[1], "crossed") == 0)
        crossed(atoi(argv[2]));
    else
        fail("growth BYTES COUNT, tags THREADS, or crossed BYTES");
    MPI_Finalize();
    printf("done\n");
    return 0;
}
