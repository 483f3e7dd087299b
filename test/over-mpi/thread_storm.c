/* Threads that call everything: in each process so many threads do the same random operations, each with its
 * counterparts in the other processes, and all of them at once. CH3_OFFLOAD_STORM_SEED says which,
 * CH3_OFFLOAD_STORM_ROUNDS how many, CH3_OFFLOAD_STORM_THREADS in how many threads.
 *
 * Most operations are in a communicator of the thread. Those of shared_messages() are in MPI_COMM_WORLD, where
 * the tag names the thread. All data is looked at. A process that does not end says what its threads do.
 */
#include "over_mpi.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { MOST_THREADS = 16, MOST_BYTES = 150000, REQUESTS = 12, CELLS = 64, PATIENCE_SECONDS = 150 };

typedef struct {
    int index;
    uint64_t random;            /* the same in all processes */
    MPI_Comm comm;
    const char *does;
    int round;
    uint32_t seed;              /* of the data of this round */
    int next, previous;
    char *in, *out;             /* REQUESTS times MOST_BYTES */
} thread_t;

static thread_t all_threads[MOST_THREADS];
static int threads, rounds;
static uint32_t first_seed;

static void explain(int signal_number __attribute__((unused)))
{
    char text[200];
    int i, length;

    for (i = 0; i < threads; i++) {
        length = snprintf(text, sizeof text, "rank %d: thread %d, round %d: %s\n", rank, i, all_threads[i].round,
                          all_threads[i].does);
        if (write(STDERR_FILENO, text, (size_t) length) < 0)
            break;
    }
    _exit(1);
}

static uint32_t draw(thread_t * thread, uint32_t limit)
{
    return next_random(&thread->random, limit);
}

static int draw_length(thread_t * thread)
{
    return (int) (draw(thread, 3) == 0 ? draw(thread, MOST_BYTES) : draw(thread, 2000));
}

/* Of what `from` sends as message number i. */
static uint32_t seed_of(const thread_t * thread, int from, int i)
{
    return thread->seed + (uint32_t) (from * 100 + i);
}

static char *in_of(thread_t * thread, int i)
{
    return thread->in + (size_t) i * MOST_BYTES;
}

static char *out_of(thread_t * thread, int i)
{
    return thread->out + (size_t) i * MOST_BYTES;
}

/* ---- messages ---- */

static void wait_somehow(thread_t * thread, MPI_Request * requests, int count)
{
    /* Each process as it likes. */
    switch (word_at(thread->seed, (uint64_t) rank) % 4) {
        case 0:
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
            break;
        case 1:{
                int i, index;
                for (i = 0; i < count; i++)
                    MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
                break;
            }
        case 2:{
                int done = 0, indices[2 * REQUESTS], some;
                while (done < count) {
                    MPI_Testsome(count, requests, &some, indices, MPI_STATUSES_IGNORE);
                    done += some == MPI_UNDEFINED ? count : some;
                }
                break;
            }
        default:{
                int i, flag = 0;
                for (i = 0; i < count; i++)
                    for (flag = 0; !flag;)
                        MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
            }
    }
}

static void many_messages(thread_t * thread)
{
    MPI_Request requests[2 * REQUESTS];
    int lengths[REQUESTS], count = 1 + (int) draw(thread, REQUESTS), i;
    const int is_synchronous = draw(thread, 3) == 0, is_late = draw(thread, 2) == 0;

    thread->does = "many messages";
    for (i = 0; i < count; i++)
        lengths[i] = draw_length(thread);
    for (i = 0; i < count && !is_late; i++)
        MPI_Irecv(in_of(thread, i), MOST_BYTES, MPI_BYTE, thread->previous, i, thread->comm, &requests[count + i]);
    for (i = 0; i < count; i++) {
        fill(out_of(thread, i), (size_t) lengths[i], seed_of(thread, rank, i));
        if (is_synchronous)
            MPI_Issend(out_of(thread, i), lengths[i], MPI_BYTE, thread->next, i, thread->comm, &requests[i]);
        else
            MPI_Isend(out_of(thread, i), lengths[i], MPI_BYTE, thread->next, i, thread->comm, &requests[i]);
    }
    for (i = 0; i < count && is_late; i++)
        MPI_Irecv(in_of(thread, i), MOST_BYTES, MPI_BYTE, thread->previous, i, thread->comm, &requests[count + i]);
    wait_somehow(thread, requests, 2 * count);
    for (i = 0; i < count; i++)
        expect(in_of(thread, i), (size_t) lengths[i], seed_of(thread, thread->previous, i), "a message");
}

/* In MPI_COMM_WORLD, where all threads look for messages. */
static void shared_messages(thread_t * thread)
{
    const int tag = 1000 + thread->index, length = draw_length(thread), way = (int) draw(thread, 3);
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    int got, flag = 0;

    thread->does = "messages in MPI_COMM_WORLD";
    fill(out_of(thread, 0), (size_t) length, seed_of(thread, rank, 0));
    MPI_Isend(out_of(thread, 0), length, MPI_BYTE, thread->next, tag, MPI_COMM_WORLD, &request);
    if (way == 0) {
        MPI_Mprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(in_of(thread, 0), MOST_BYTES, MPI_BYTE, &message, &status);
    } else if (way == 1) {
        while (!flag)
            MPI_Iprobe(thread->previous, tag, MPI_COMM_WORLD, &flag, &status);
        MPI_Recv(in_of(thread, 0), MOST_BYTES, MPI_BYTE, thread->previous, tag, MPI_COMM_WORLD, &status);
    } else {
        MPI_Recv(in_of(thread, 0), MOST_BYTES, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
    }
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != length || status.MPI_SOURCE != thread->previous)
        fail("a message of %d bytes from %d instead of %d from %d", got, status.MPI_SOURCE, length, thread->previous);
    expect(in_of(thread, 0), (size_t) length, seed_of(thread, thread->previous, 0), "a message in MPI_COMM_WORLD");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Receives that nothing matches, among one that something does. */
static void cancelled_receives(thread_t * thread)
{
    MPI_Request requests[REQUESTS], wanted;
    MPI_Status status;
    int i, flag, value = -1, count = 1 + (int) draw(thread, REQUESTS - 1);

    thread->does = "receives that are cancelled";
    for (i = 0; i < count; i++)
        MPI_Irecv(in_of(thread, i), MOST_BYTES, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : thread->previous, 500 + i,
                  thread->comm, &requests[i]);
    MPI_Irecv(&value, 1, MPI_INT, thread->previous, 499, thread->comm, &wanted);
    for (i = 0; i < count; i++)
        MPI_Cancel(&requests[i]);
    MPI_Send(&rank, 1, MPI_INT, thread->next, 499, thread->comm);
    for (i = 0; i < count; i++) {
        MPI_Wait(&requests[i], &status);
        MPI_Test_cancelled(&status, &flag);
        if (!flag)
            fail("a receive that nothing matches was not cancelled");
    }
    MPI_Wait(&wanted, MPI_STATUS_IGNORE);
    if (value != thread->previous)
        fail("received %d instead of %d", value, thread->previous);
}

static void persistent_messages(thread_t * thread)
{
    MPI_Request requests[2];
    const int length = draw_length(thread), times = 1 + (int) draw(thread, 5);
    int i;

    thread->does = "persistent messages";
    MPI_Recv_init(in_of(thread, 0), MOST_BYTES, MPI_BYTE, thread->previous, 3, thread->comm, &requests[0]);
    MPI_Send_init(out_of(thread, 0), length, MPI_BYTE, thread->next, 3, thread->comm, &requests[1]);
    for (i = 0; i < times; i++) {
        fill(out_of(thread, 0), (size_t) length, seed_of(thread, rank, i));
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect(in_of(thread, 0), (size_t) length, seed_of(thread, thread->previous, i), "a persistent message");
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void partitioned_messages(thread_t * thread)
{
    MPI_Request requests[2];
    const int partitions = 1 + (int) draw(thread, 6);
    const int each = draw_length(thread) / partitions, length = partitions * each;
    int i;

    thread->does = "partitioned messages";
    MPI_Precv_init(in_of(thread, 0), 1, length, MPI_BYTE, thread->previous, 4, thread->comm, MPI_INFO_NULL,
                   &requests[0]);
    MPI_Psend_init(out_of(thread, 0), partitions, each, MPI_BYTE, thread->next, 4, thread->comm, MPI_INFO_NULL,
                   &requests[1]);
    fill(out_of(thread, 0), (size_t) length, seed_of(thread, rank, 0));
    MPI_Startall(2, requests);
    for (i = 0; i < partitions; i++)
        MPI_Pready(i, requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    expect(in_of(thread, 0), (size_t) length, seed_of(thread, thread->previous, 0), "a partitioned message");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

/* ---- collective operations and communicators ---- */

static void expect_sums(const int *sums, int count, int times)
{
    int i;

    for (i = 0; i < count; i++)
        if (sums[i] != times * (size * (size - 1) / 2 + size * i))
            fail("sum %d is %d instead of %d", i, sums[i], times * (size * (size - 1) / 2 + size * i));
}

static void collective_operations(thread_t * thread)
{
    int *in = (int *) thread->in, *out = (int *) thread->out;
    const int count = 1 + (int) draw(thread, 3) * (int) draw(thread, 4000), root = (int) draw(thread, (uint32_t) size);
    MPI_Request request[2];
    int i;

    thread->does = "collective operations";
    for (i = 0; i < count; i++)
        out[i] = rank + i;
    switch (draw(thread, 5)) {
        case 0:
            MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, thread->comm);
            expect_sums(in, count, 1);
            break;
        case 1:
            MPI_Iallreduce(out, in, count, MPI_INT, MPI_SUM, thread->comm, &request[0]);
            MPI_Ibarrier(thread->comm, &request[1]);
            wait_somehow(thread, request, 2);
            expect_sums(in, count, 1);
            break;
        case 2:
            fill(in, sizeof(int) * (size_t) count, rank == root ? seed_of(thread, root, 0) : 0);
            MPI_Bcast(in, count, MPI_INT, root, thread->comm);
            expect(in, sizeof(int) * (size_t) count, seed_of(thread, root, 0), "a broadcast");
            break;
        case 3:
            for (i = 0; i < size; i++)
                fill(out_of(thread, i), 256, seed_of(thread, rank, i));
            for (i = 1; i < size; i++)
                memmove(thread->out + 256 * i, out_of(thread, i), 256);
            MPI_Alltoall(out, 256, MPI_BYTE, in, 256, MPI_BYTE, thread->comm);
            for (i = 0; i < size; i++)
                expect(thread->in + 256 * i, 256, seed_of(thread, i, rank), "an alltoall");
            break;
        default:
            MPI_Barrier(thread->comm);
    }
}

static void new_communicators(thread_t * thread)
{
    MPI_Comm duplicate, part;
    MPI_Request request;
    int sum, one = 1, ranks;

    thread->does = "new communicators";
    if (draw(thread, 2) == 0) {
        MPI_Comm_dup(thread->comm, &duplicate);
    } else {
        MPI_Comm_idup(thread->comm, &duplicate, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_split(duplicate, rank % 2, rank, &part);
    MPI_Comm_free(&duplicate);
    MPI_Comm_size(part, &ranks);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, part);
    if (sum != ranks)
        fail("a part of %d processes sums to %d", ranks, sum);
    MPI_Comm_free(&part);
}

/* ---- windows ---- */

static void windows(thread_t * thread)
{
    int *cells, expected, i, got, one = 1, updates = 1 + (int) draw(thread, 20);
    const int is_allocated = draw(thread, 2) == 0;
    MPI_Win window;

    thread->does = "a window";
    if (is_allocated) {
        MPI_Win_allocate(CELLS * sizeof(int), sizeof(int), MPI_INFO_NULL, thread->comm, &cells, &window);
    } else {
        cells = (int *) thread->in;
        MPI_Win_create(cells, CELLS * sizeof(int), sizeof(int), MPI_INFO_NULL, thread->comm, &window);
    }
    memset(cells, 0, CELLS * sizeof(int));
    MPI_Barrier(thread->comm);
    MPI_Win_lock_all(0, window);
    for (i = 0; i < updates; i++) {
        const int target = (rank + i) % size;
        if (i % 3 == 0) {
            MPI_Fetch_and_op(&one, &got, MPI_INT, target, 0, MPI_SUM, window);
            MPI_Win_flush(target, window);
            if (got < 0 || got >= updates * size)
                fail("a counter is %d", got);
        } else {
            MPI_Accumulate(&one, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, window);
            if (i % 3 == 1)
                MPI_Win_flush_local(target, window);
        }
    }
    MPI_Put(&rank, 1, MPI_INT, thread->next, 1 + rank, 1, MPI_INT, window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(thread->comm);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (expected = 0, i = 0; i < size; i++) {
        int k;
        for (k = 0; k < updates; k++)
            expected += (i + k) % size == rank;
    }
    if (cells[0] != expected || (cells[1 + thread->previous] != thread->previous))
        fail("a window has %d and %d instead of %d and %d", cells[0], cells[1 + thread->previous], expected,
             thread->previous);
    MPI_Win_unlock(rank, window);
    MPI_Win_fence(0, window);
    MPI_Get(&got, 1, MPI_INT, thread->next, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void *storm(void *argument)
{
    static void (*const operations[])(thread_t *) = {
        many_messages, many_messages, shared_messages, shared_messages, cancelled_receives, persistent_messages,
        partitioned_messages, collective_operations, collective_operations, new_communicators, windows
    };
    thread_t *thread = argument;

    for (thread->round = 0; thread->round < rounds; thread->round++) {
        alarm(PATIENCE_SECONDS);        /* of this process, since any of its threads has got on */
        thread->seed = (uint32_t) draw(thread, 1u << 31);
        operations[draw(thread, sizeof operations / sizeof *operations)] (thread);
    }
    thread->does = "nothing any more";
    return NULL;
}

static uint32_t setting(const char *name, uint32_t standard)
{
    const char *value = getenv(name);

    return value != NULL ? (uint32_t) strtoul(value, NULL, 10) : standard;
}

int main(int argc, char **argv)
{
    pthread_t handles[MOST_THREADS];
    int provided, i;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    first_seed = setting("CH3_OFFLOAD_STORM_SEED", 1);
    threads = (int) setting("CH3_OFFLOAD_STORM_THREADS", 8);
    rounds = (int) setting("CH3_OFFLOAD_STORM_ROUNDS", 20);
    snprintf(doing, sizeof doing, "seed %u, %d threads", first_seed, threads);
    if (provided != MPI_THREAD_MULTIPLE || threads > MOST_THREADS || size > REQUESTS)
        fail("MPI_THREAD_MULTIPLE, at most %d threads and %d processes", MOST_THREADS, REQUESTS);
    for (i = 0; i < threads; i++) {
        thread_t *thread = &all_threads[i];
        thread->index = i;
        thread->does = "nothing yet";
        thread->random = (uint64_t) first_seed * 1000 + (uint64_t) i;
        thread->next = (rank + 1) % size;
        thread->previous = (rank + size - 1) % size;
        thread->in = allocate((size_t) REQUESTS * MOST_BYTES);
        thread->out = allocate((size_t) REQUESTS * MOST_BYTES);
        MPI_Comm_dup(MPI_COMM_WORLD, &thread->comm);
    }
    signal(SIGALRM, explain);
    signal(SIGTERM, explain);
    for (i = 0; i < threads; i++)
        if (pthread_create(&handles[i], NULL, storm, &all_threads[i]) != 0)
            fail("no thread");
    for (i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    for (i = 0; i < threads; i++) {
        MPI_Comm_free(&all_threads[i].comm);
        free(all_threads[i].in);
        free(all_threads[i].out);
    }
    MPI_Finalize();
    printf("done\n");
    return 0;
}
