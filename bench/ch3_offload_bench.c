/* MPI benchmarks in the table format of the Intel MPI Benchmarks (IMB-MPI1), for those without IMB, and three
 * of our own: how matching costs grow with queue depth, and what a flood of unexpected messages does.
 *
 * Plain MPI, C99 and Linux, so that it compiles with any MPI. ch3-offload-perf compiles and runs it. usage() has the
 * options. Times are per iteration: each rank measures its own mean, the table shows the least, the greatest and the
 * mean over the ranks. Exit status: 0, or 1 when a data check failed or the options were wrong. */
#define _GNU_SOURCE             /* sched_getaffinity() */
#include <mpi.h>

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    kMaxSizes = 64,
    kTagData = 1,
    kTagNoise = 1 << 10,        /* noise tags start here, one per message */
    kWarmUp = 10,
    kMaxWindow = 1024,
    kPlaceLength = 128,         /* of the text that says where a rank may run */
    kPlacesShown = 16,
    kPageBytes = 4096,
};

/* -memory: where buffers are from. kOfWindow: what a window exposes is from MPI_Win_allocate, all else from
 * MPI_Alloc_mem. */
typedef enum { kOfHeap, kOfMpi, kOfWindow } memory_t;
static const char *const memory_names[] = { "heap", "mpi", "window" };

typedef struct {
    int min_ranks;              /* -npmin: smallest group; groups double up to all ranks */
    size_t min_length_bytes;    /* -minlen: shorter ones are left out, 0 bytes too */
    size_t max_length_bytes;    /* -msglen */
    int iterations;             /* -iter: for small messages; fewer for large ones */
    size_t volume_bytes;        /* -vol: at most this much per size, as IMB has it */
    int window;                 /* -window: messages in flight one way, or operations for each flush */
    memory_t memory;            /* -memory */
    size_t skew_bytes;          /* -skew: buffers begin so far behind the begin of a page */
    bool pairs;                 /* -pairs: all ranks take part in the benchmarks of two */
    bool check;                 /* -check: verify the data of every iteration */
    int depth;                  /* -depth: of the posted-depth and unexpected-depth benchmarks */
    int flood_messages;         /* -flood-messages */
    size_t flood_length_bytes;  /* -flood-length */
} options_t;

static options_t options = {
    .min_ranks = 2,
    .max_length_bytes = (size_t) 4 << 20,
    .iterations = 1000,
    .volume_bytes = (size_t) 40 << 20,
    .window = 64,
    .depth = 10000,
    .flood_messages = 20000,
    .flood_length_bytes = 4096,
};

static int world_rank, world_size;
static long errors_found;

static void usage(FILE * out)
{
    fputs("usage: mpiexec -n N ch3_offload_bench [options] [benchmark ...]\n"
          "\n"
          "benchmarks (default: the first seven):\n"
          "  PingPong SendRecv Exchange Allreduce Bcast Alltoall Barrier\n"
          "  Reduce Allgather\n"
          "  PingPing          two ranks send to each other at the same time\n"
          "  OneWay            rank 0 sends, rank 1 receives, without an answer\n"
          "  Stream            one way, -window messages in flight, then an answer: message rate, bandwidth\n"
          "  BiStream          the same in both directions at once\n"
          "  Put Get           one-sided, each flushed; after a Put a message of 0 bytes tells the target\n"
          "  Unidir_put Bidir_put Unidir_get Bidir_get\n"
          "                    as IMB-RMA: one operation, and a flush; by rank 0, or by both at once.\n"
          "                    Unidir_get is Get.\n"
          "  Unidir_puts Bidir_puts Unidir_gets Bidir_gets\n"
          "                    likewise, -window operations for each flush\n"
          "  Accumulate        as Put: the sum of 64-bit integers\n"
          "  Fetch_and_op      one-sided, flushed: the sum of one 64-bit integer\n"
          "  posted-depth      8-byte ping-pong with -depth receives posted that do not match\n"
          "  unexpected-depth  8-byte ping-pong with -depth unexpected messages queued\n"
          "  flood             rank 0 sends -flood-messages before rank 1 receives the first\n"
          "\n"
          "options:\n"
          "  -list                print the names of the benchmarks\n"
          "  -npmin N             smallest number of ranks; groups double from there (default 2)\n"
          "  -minlen BYTES        shortest message (default 0)\n"
          "  -msglen BYTES        longest message (default 4194304; K and M may follow)\n"
          "  -iter N              iterations of small messages (default 1000)\n"
          "  -vol BYTES           at most so many bytes per message size, fewer iterations (default 40M)\n"
          "  -window N            messages in flight one way in Stream, BiStream, operations for each flush\n"
          "                       (default 64, at most 1024)\n"
          "  -memory KIND         of buffers: heap (the default), mpi (MPI_Alloc_mem), or window: as mpi, and what\n"
          "                       a window exposes is of MPI_Win_allocate\n"
          "  -skew BYTES          buffers begin so far behind the begin of a page (default 0, at most 4095):\n"
          "                       a long one of malloc() begins at 16\n"
          "  -pairs               benchmarks of two ranks: rank i with rank i + N/2, all at once; the times are\n"
          "                       the slowest pair's, the rates are sums\n"
          "  -check               verify every byte received (slower)\n"
          "  -depth N             queue depth (default 10000)\n"
          "  -flood-messages N    (default 20000)\n"
          "  -flood-length BYTES  (default 4096)\n", out);
}

/* ---- Data: every byte follows from (seed, position), so that a wrong, missing or shifted one shows ---- */

static void fill(unsigned char *buffer, size_t length_bytes, unsigned seed)
{
    for (size_t i = 0; i < length_bytes; i++)
        buffer[i] = (unsigned char) (seed * 31u + i * 7u + (i >> 8));
}

static void verify(const unsigned char *buffer, size_t length_bytes, unsigned seed, const char *what)
{
    for (size_t i = 0; i < length_bytes; i++) {
        if (buffer[i] == (unsigned char) (seed * 31u + i * 7u + (i >> 8)))
            continue;
        if (errors_found++ < 5)
            fprintf(stderr, "rank %d: %s: wrong byte at %zu of %zu\n", world_rank, what, i, length_bytes);
        return;
    }
}

static void *allocate(size_t length_bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, length_bytes ? length_bytes : 1)) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", world_rank, length_bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(memory, 0, length_bytes);
    return memory;
}

/* A buffer of the benchmarks, by -memory. */
static unsigned char *make_buffer(size_t length_bytes)
{
    void *memory = NULL;
    length_bytes += options.skew_bytes;
    if (options.memory == kOfHeap) {
        memory = allocate(length_bytes);
    } else {
        MPI_Alloc_mem((MPI_Aint) (length_bytes ? length_bytes : 1), MPI_INFO_NULL, &memory);
        memset(memory, 0, length_bytes);
    }
    return (unsigned char *) memory + options.skew_bytes;
}

static void free_buffer(unsigned char *buffer)
{
    if (buffer == NULL)
        return;
    buffer -= options.skew_bytes;
    if (options.memory == kOfHeap)
        free(buffer);
    else
        MPI_Free_mem(buffer);
}

/* ---- The IMB-like benchmarks ---- */

typedef struct {
    MPI_Comm comm;
    int rank, size;             /* in comm */
    MPI_Comm all;               /* comm, or with -pairs the ranks of all pairs: begin together, and share a table */
    int pairs;                  /* in `all`; 1 without -pairs */
    size_t length_bytes;
    int iterations;
    const struct benchmark *benchmark;
    unsigned char *send, *receive;      /* length_bytes each; times `size` for Alltoall */
    MPI_Win window;             /* of the one-sided ones: the target's `receive`; its `send` for gets */
} run_t;

/* Runs once; the seed of the data is the iteration. */
typedef void (*iteration_fn) (const run_t * run, int iteration);

typedef struct benchmark {
    const char *name;
    iteration_fn run;
    double bytes_per_iteration; /* what Mbytes/sec counts, in message lengths; 0: no such column */
    bool two_ranks;             /* only ranks 0 and 1 take part */
    bool half_time;             /* the time of one way */
    size_t min_length_bytes;
    bool no_sizes;
    bool has_window;            /* an iteration is a window of messages: the rate of these is shown, too */
    bool is_one_sided;
    bool both_ways;             /* of those: both ranks are origins */
    bool gets;                  /* what a window exposes is `send` */
} benchmark_t;

static void ping_pong(const run_t * run, int iteration)
{
    const int length = (int) run->length_bytes;
    (void) iteration;
    if (run->rank == 0) {
        MPI_Send(run->send, length, MPI_BYTE, 1, kTagData, run->comm);
        MPI_Recv(run->receive, length, MPI_BYTE, 1, kTagData, run->comm, MPI_STATUS_IGNORE);
    } else if (run->rank == 1) {
        MPI_Recv(run->receive, length, MPI_BYTE, 0, kTagData, run->comm, MPI_STATUS_IGNORE);
        MPI_Send(run->send, length, MPI_BYTE, 0, kTagData, run->comm);
    }
}

/* Both begin to send before either receives. */
static void ping_ping(const run_t * run, int iteration)
{
    const int length = (int) run->length_bytes;
    MPI_Request request;
    (void) iteration;
    if (run->rank > 1)
        return;
    MPI_Isend(run->send, length, MPI_BYTE, 1 - run->rank, kTagData, run->comm, &request);
    MPI_Recv(run->receive, length, MPI_BYTE, 1 - run->rank, kTagData, run->comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Nobody answers: the sender runs ahead as far as it may. */
static void one_way(const run_t * run, int iteration)
{
    const int length = (int) run->length_bytes;
    (void) iteration;
    if (run->rank == 0)
        MPI_Send(run->send, length, MPI_BYTE, 1, kTagData, run->comm);
    else if (run->rank == 1)
        MPI_Recv(run->receive, length, MPI_BYTE, 0, kTagData, run->comm, MPI_STATUS_IGNORE);
}

/* All messages of a window land in the same buffer. */
static void stream(const run_t * run, int iteration)
{
    const int length = (int) run->length_bytes;
    MPI_Request requests[kMaxWindow];
    (void) iteration;
    if (run->rank > 1)
        return;
    for (int i = 0; i < options.window; i++)
        if (run->rank == 0)
            MPI_Isend(run->send, length, MPI_BYTE, 1, kTagData, run->comm, &requests[i]);
        else
            MPI_Irecv(run->receive, length, MPI_BYTE, 0, kTagData, run->comm, &requests[i]);
    MPI_Waitall(options.window, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, 1 - run->rank, kTagData, NULL, 0, MPI_BYTE, 1 - run->rank, kTagData, run->comm,
                 MPI_STATUS_IGNORE);
}

/* A window of messages each way. */
static void stream_both_ways(const run_t * run, int iteration)
{
    const int length = (int) run->length_bytes, other = 1 - run->rank;
    MPI_Request requests[2 * kMaxWindow];
    (void) iteration;
    if (run->rank > 1)
        return;
    for (int i = 0; i < options.window; i++)
        MPI_Irecv(run->receive, length, MPI_BYTE, other, kTagData, run->comm, &requests[i]);
    for (int i = 0; i < options.window; i++)
        MPI_Isend(run->send, length, MPI_BYTE, other, kTagData, run->comm, &requests[options.window + i]);
    MPI_Waitall(2 * options.window, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, other, kTagData, NULL, 0, MPI_BYTE, other, kTagData, run->comm,
                 MPI_STATUS_IGNORE);
}

/* How Put and Accumulate begin. With -check, the target has looked at what came before, and clears it. */
static void await_target(const run_t * run)
{
    if (!options.check)
        return;
    if (run->rank == 1) {
        memset(run->receive, 0xA5, run->length_bytes);
        MPI_Win_sync(run->window);
        MPI_Send(NULL, 0, MPI_BYTE, 0, kTagData, run->comm);
    } else if (run->rank == 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, 1, kTagData, run->comm, MPI_STATUS_IGNORE);
    }
}

/* How they end: what was moved is there, and the target learns of it. */
static void tell_target(const run_t * run)
{
    if (run->rank == 0) {
        MPI_Win_flush(1, run->window);
        MPI_Send(NULL, 0, MPI_BYTE, 1, kTagData, run->comm);
    } else if (run->rank == 1) {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, kTagData, run->comm, MPI_STATUS_IGNORE);
        MPI_Win_sync(run->window);
    }
}

static void put(const run_t * run, int iteration)
{
    const int length = (int) run->length_bytes;
    (void) iteration;
    await_target(run);
    if (run->rank == 0)
        MPI_Put(run->send, length, MPI_BYTE, 1, 0, length, MPI_BYTE, run->window);
    tell_target(run);
}

static void accumulate(const run_t * run, int iteration)
{
    const int count = (int) (run->length_bytes / sizeof(uint64_t));
    (void) iteration;
    await_target(run);
    if (run->rank == 0)
        MPI_Accumulate(run->send, count, MPI_UINT64_T, 1, 0, count, MPI_UINT64_T, MPI_SUM, run->window);
    tell_target(run);
}

/* Counts up; `receive` has what was there before. */
static void fetch_and_op(const run_t * run, int iteration)
{
    static const uint64_t one = 1;
    (void) iteration;
    if (run->rank == 0) {
        MPI_Fetch_and_op(&one, run->receive, MPI_UINT64_T, 1, 0, MPI_SUM, run->window);
        MPI_Win_flush(1, run->window);
    }
}

/* One operation, or -window of them, and a flush. With -check, nobody goes on before all is verified. */
static void put_or_get(const run_t * run, int iteration)
{
    const int length = (int) run->length_bytes, other = 1 - run->rank;
    const int count = run->benchmark->has_window ? options.window : 1;
    (void) iteration;
    if (options.check)
        MPI_Barrier(run->comm);
    if (run->rank == 0 || run->benchmark->both_ways) {
        for (int i = 0; i < count; i++)
            if (run->benchmark->gets)
                MPI_Get(run->receive, length, MPI_BYTE, other, 0, length, MPI_BYTE, run->window);
            else
                MPI_Put(run->send, length, MPI_BYTE, other, 0, length, MPI_BYTE, run->window);
        MPI_Win_flush(other, run->window);
    }
    if (options.check) {
        MPI_Barrier(run->comm);
        MPI_Win_sync(run->window);
    }
}

static void send_receive(const run_t * run, int iteration)
{
    const int right = (run->rank + 1) % run->size, left = (run->rank + run->size - 1) % run->size;
    (void) iteration;
    MPI_Sendrecv(run->send, (int) run->length_bytes, MPI_BYTE, right, kTagData, run->receive,
                 (int) run->length_bytes, MPI_BYTE, left, kTagData, run->comm, MPI_STATUS_IGNORE);
}

static void exchange(const run_t * run, int iteration)
{
    const int right = (run->rank + 1) % run->size, left = (run->rank + run->size - 1) % run->size;
    const int length = (int) run->length_bytes;
    MPI_Request sends[2];
    (void) iteration;
    MPI_Isend(run->send, length, MPI_BYTE, right, kTagData, run->comm, &sends[0]);
    MPI_Isend(run->send, length, MPI_BYTE, left, kTagData, run->comm, &sends[1]);
    MPI_Recv(run->receive, length, MPI_BYTE, left, kTagData, run->comm, MPI_STATUS_IGNORE);
    MPI_Recv(run->receive, length, MPI_BYTE, right, kTagData, run->comm, MPI_STATUS_IGNORE);
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
}

static void allreduce(const run_t * run, int iteration)
{
    (void) iteration;
    MPI_Allreduce(run->send, run->receive, (int) (run->length_bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                  run->comm);
}

static void broadcast(const run_t * run, int iteration)
{
    const int root = iteration % run->size;
    MPI_Bcast(run->rank == root ? run->send : run->receive, (int) run->length_bytes, MPI_BYTE, root,
              run->comm);
}

static void all_to_all(const run_t * run, int iteration)
{
    (void) iteration;
    MPI_Alltoall(run->send, (int) run->length_bytes, MPI_BYTE, run->receive, (int) run->length_bytes,
                 MPI_BYTE, run->comm);
}

static void reduce(const run_t * run, int iteration)
{
    MPI_Reduce(run->send, run->receive, (int) (run->length_bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
               iteration % run->size, run->comm);
}

static void all_gather(const run_t * run, int iteration)
{
    (void) iteration;
    MPI_Allgather(run->send, (int) run->length_bytes, MPI_BYTE, run->receive, (int) run->length_bytes,
                  MPI_BYTE, run->comm);
}

static void barrier(const run_t * run, int iteration)
{
    (void) iteration;
    MPI_Barrier(run->comm);
}

/* What a rank sends is filled with its rank; so what must have arrived follows from the pattern. */
static void prepare(const run_t * run, iteration_fn function, size_t copies)
{
    if (function == allreduce || function == reduce) {
        float *values = (float *) run->send;
        for (size_t i = 0; i < run->length_bytes / sizeof(float); i++)
            values[i] = (float) ((i + (size_t) run->rank) % 1024);
        return;
    }
    if (function == accumulate) {       /* rank 1 sends nothing: it has what rank 0 adds, to check the sums */
        fill(run->send, run->length_bytes, 0);
        return;
    }
    for (size_t i = 0; i < copies; i++)
        fill(run->send + i * run->length_bytes, run->length_bytes,
             (unsigned) run->rank + (copies > 1 ? (unsigned) i * 1000u : 0u));
}

/* What rank 0 sends was added to the words that await_target() has set. */
static void verify_sum(const run_t * run)
{
    const uint64_t *sums = (const uint64_t *) run->receive, *added = (const uint64_t *) run->send;
    for (size_t i = 0; i < run->length_bytes / sizeof *sums; i++) {
        if (sums[i] == added[i] + 0xA5A5A5A5A5A5A5A5u)
            continue;
        if (errors_found++ < 5)
            fprintf(stderr, "rank %d: Accumulate: word %zu is wrong\n", world_rank, i);
        return;
    }
}

static void verify_count(const run_t * run, int iteration)
{
    const uint64_t counted = *(const uint64_t *) run->receive;
    const int expected = iteration + (run->iterations < kWarmUp ? run->iterations : kWarmUp);
    if (counted != (uint64_t) expected && errors_found++ < 5)
        fprintf(stderr, "rank %d: Fetch_and_op: %llu, not %d\n", world_rank, (unsigned long long) counted,
                expected);
}

static void check(const run_t * run, iteration_fn function, int iteration)
{
    const int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    if (function == ping_pong && run->rank < 2)
        verify(run->receive, run->length_bytes, (unsigned) (1 - run->rank), "PingPong");
    if (function == ping_ping && run->rank < 2)
        verify(run->receive, run->length_bytes, (unsigned) (1 - run->rank), "PingPing");
    if (function == one_way && run->rank == 1)
        verify(run->receive, run->length_bytes, 0, "OneWay");
    if (function == stream && run->rank == 1)
        verify(run->receive, run->length_bytes, 0, "Stream");
    if (function == stream_both_ways && run->rank < 2)
        verify(run->receive, run->length_bytes, (unsigned) (1 - run->rank), "BiStream");
    if (function == accumulate && run->rank == 1)
        verify_sum(run);
    if (function == fetch_and_op && run->rank == 0)
        verify_count(run, iteration);
    if (function == put_or_get && (run->benchmark->both_ways || run->rank == (run->benchmark->gets ? 0 : 1)))
        verify(run->receive, run->length_bytes, (unsigned) (1 - run->rank), run->benchmark->name);
    if (function == put && run->rank == 1)
        verify(run->receive, run->length_bytes, 0, "Put");
    if (function == send_receive)
        verify(run->receive, run->length_bytes, (unsigned) left, "SendRecv");
    if (function == exchange)
        verify(run->receive, run->length_bytes, (unsigned) right, "Exchange");
    if (function == broadcast && run->rank != iteration % run->size)
        verify(run->receive, run->length_bytes, (unsigned) (iteration % run->size), "Bcast");
    if (function == all_to_all)
        for (int i = 0; i < run->size; i++)
            verify(run->receive + (size_t) i * run->length_bytes, run->length_bytes,
                   (unsigned) i + (unsigned) run->rank * 1000u, "Alltoall");
    if (function == all_gather)
        for (int i = 0; i < run->size; i++)
            verify(run->receive + (size_t) i * run->length_bytes, run->length_bytes, (unsigned) i, "Allgather");
    if (function == allreduce || (function == reduce && run->rank == iteration % run->size)) {
        const float *values = (const float *) run->receive;
        for (size_t i = 0; i < run->length_bytes / sizeof(float); i++) {
            float sum = 0;
            for (int rank = 0; rank < run->size; rank++)
                sum += (float) ((i + (size_t) rank) % 1024);
            if (values[i] == sum)
                continue;
            if (errors_found++ < 5)
                fprintf(stderr, "rank %d: %s: element %zu is %g, not %g\n", world_rank,
                        function == reduce ? "Reduce" : "Allreduce", i, (double) values[i], (double) sum);
            break;
        }
    }
    if (function != barrier && function != fetch_and_op && function != put && function != accumulate) {
        const bool from_all = function == all_to_all || function == all_gather;
        memset(run->receive, 0xA5, run->length_bytes * (from_all ? (size_t) run->size : 1));
    }
}

/* Microseconds per iteration on this rank. */
static double measure(const run_t * run, iteration_fn function)
{
    double inside = 0;
    for (int i = 0; i < kWarmUp && i < run->iterations; i++)
        function(run, i);
    MPI_Barrier(run->all);
    if (!options.check) {
        const double begin = MPI_Wtime();
        for (int i = 0; i < run->iterations; i++)
            function(run, i);
        inside = MPI_Wtime() - begin;
    } else {
        for (int i = 0; i < run->iterations; i++) {
            const double begin = MPI_Wtime();
            function(run, i);
            inside += MPI_Wtime() - begin;
            check(run, function, i);
        }
    }
    return inside * 1e6 / run->iterations;
}

static const benchmark_t benchmarks[] = {
    {"PingPong", ping_pong, 1, .two_ranks = true, .half_time = true},
    {"SendRecv", send_receive, .bytes_per_iteration = 2},
    {"Exchange", exchange, .bytes_per_iteration = 4},
    {"Allreduce", allreduce, .min_length_bytes = sizeof(float)},
    {"Bcast", broadcast, .bytes_per_iteration = 0},
    {"Alltoall", all_to_all, .bytes_per_iteration = 0},
    {"Barrier", barrier, .no_sizes = true},
    {"Reduce", reduce, .min_length_bytes = sizeof(float)},
    {"Allgather", all_gather, .bytes_per_iteration = 0},
    {"PingPing", ping_ping, 1, .two_ranks = true},
    {"OneWay", one_way, 1, .two_ranks = true},
    {"Stream", stream, 1, .two_ranks = true, .has_window = true},
    {"BiStream", stream_both_ways, 2, .two_ranks = true, .has_window = true},
    {"Put", put, 1, .two_ranks = true, .is_one_sided = true},
    {"Get", put_or_get, 1, .two_ranks = true, .is_one_sided = true, .gets = true},
    {"Unidir_put", put_or_get, 1, .two_ranks = true, .is_one_sided = true},
    {"Bidir_put", put_or_get, 2, .two_ranks = true, .is_one_sided = true, .both_ways = true},
    {"Unidir_get", put_or_get, 1, .two_ranks = true, .is_one_sided = true, .gets = true},
    {"Bidir_get", put_or_get, 2, .two_ranks = true, .is_one_sided = true, .both_ways = true, .gets = true},
    {"Unidir_puts", put_or_get, 1, .two_ranks = true, .has_window = true, .is_one_sided = true},
    {"Bidir_puts", put_or_get, 2, .two_ranks = true, .has_window = true, .is_one_sided = true, .both_ways = true},
    {"Unidir_gets", put_or_get, 1, .two_ranks = true, .has_window = true, .is_one_sided = true, .gets = true},
    {"Bidir_gets", put_or_get, 2, .two_ranks = true, .has_window = true, .is_one_sided = true, .both_ways = true,
     .gets = true},
    {"Accumulate", accumulate, 1, .two_ranks = true, .is_one_sided = true,
     .min_length_bytes = sizeof(uint64_t)},
    {"Fetch_and_op", fetch_and_op, 0, .two_ranks = true, .no_sizes = true, .is_one_sided = true},
};

enum { kDefaultBenchmarks = 7 };        /* the first of them */

static void print_head(const benchmark_t * benchmark, int ranks, int pairs)
{
    puts("\n#----------------------------------------------------------------");
    printf("# Benchmarking %s\n# #processes = %d\n", benchmark->name, ranks);
    if (pairs > 1)
        printf("# ( %d pairs at once: rank i and rank i + %d; times of the slowest pair, rates of all)\n", pairs,
               world_size / 2);
    if (ranks < world_size)
        printf("# ( %d additional processes waiting in MPI_Barrier)\n", world_size - ranks);
    puts("#----------------------------------------------------------------");
    if (benchmark->half_time)
        printf("%13s %13s %13s %13s\n", "#bytes", "#repetitions", "t[usec]", "Mbytes/sec");
    else if (benchmark->no_sizes)
        printf("%13s %13s %13s %13s\n", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]");
    else
        printf("%13s %13s %13s %13s %13s%s%s\n", "#bytes", "#repetitions", "t_min[usec]", "t_max[usec]",
               "t_avg[usec]", benchmark->has_window ? " messages/usec" : "",
               benchmark->bytes_per_iteration > 0 ? "    Mbytes/sec" : "");
}

static void print_row(const benchmark_t * benchmark, const run_t * run, double least, double greatest,
                      double mean)
{
    const double messages = benchmark->bytes_per_iteration * (benchmark->has_window ? options.window : 1) * run->pairs;
    const double rate = greatest > 0 ? (double) run->length_bytes * messages / greatest : 0;
    if (benchmark->half_time)
        printf("%13zu %13d %13.2f %13.2f\n", run->length_bytes, run->iterations, greatest, rate);
    else if (benchmark->no_sizes)
        printf("%13d %13.2f %13.2f %13.2f\n", run->iterations, least, greatest, mean);
    else if (benchmark->has_window)
        printf("%13zu %13d %13.2f %13.2f %13.2f %13.3f %13.2f\n", run->length_bytes, run->iterations, least,
               greatest, mean, greatest > 0 ? messages / greatest : 0, rate);
    else if (benchmark->bytes_per_iteration > 0)
        printf("%13zu %13d %13.2f %13.2f %13.2f %13.2f\n", run->length_bytes, run->iterations, least,
               greatest, mean, rate);
    else
        printf("%13zu %13d %13.2f %13.2f %13.2f\n", run->length_bytes, run->iterations, least, greatest,
               mean);
    fflush(stdout);
}

/* A window that exposes the buffer, or one of its own in the buffer's place. */
static void make_window(run_t * run, unsigned char **buffer, size_t bytes)
{
    if (options.memory == kOfWindow) {
        free_buffer(*buffer);
        MPI_Win_allocate((MPI_Aint) bytes, 1, MPI_INFO_NULL, run->comm, buffer, &run->window);
        memset(*buffer, 0, bytes);
    } else {
        MPI_Win_create(*buffer, (MPI_Aint) bytes, 1, MPI_INFO_NULL, run->comm, &run->window);
    }
}

/* One size of one benchmark on the ranks of run->comm. Collective there. */
static void run_size(const benchmark_t * benchmark, run_t * run)
{
    const size_t copies = benchmark->run == all_to_all ? (size_t) run->size : 1;
    const size_t volume = run->length_bytes * copies;
    const size_t received = benchmark->run == fetch_and_op ? sizeof(uint64_t)
        : benchmark->run == all_gather ? volume * (size_t) run->size : volume;
    const size_t moved = volume * (benchmark->has_window ? (size_t) options.window : 1);
    double mine, least, greatest, sum;
    run->iterations = options.iterations;
    if (moved > 0 && options.volume_bytes / moved < (size_t) run->iterations)
        run->iterations = (int) (options.volume_bytes / moved);
    if (run->iterations < 4)
        run->iterations = 4;
    run->benchmark = benchmark;
    run->send = make_buffer(volume);
    run->receive = make_buffer(received);
    if (benchmark->is_one_sided)
        make_window(run, benchmark->gets ? &run->send : &run->receive, benchmark->gets ? volume : received);
    prepare(run, benchmark->run, copies);
    if (benchmark->is_one_sided)
        MPI_Win_lock_all(MPI_MODE_NOCHECK, run->window);
    mine = measure(run, benchmark->run);
    if (benchmark->is_one_sided) {
        MPI_Win_unlock_all(run->window);
        MPI_Win_free(&run->window);
        if (options.memory == kOfWindow && benchmark->gets)
            run->send = NULL;
        else if (options.memory == kOfWindow)
            run->receive = NULL;
    }
    if (benchmark->half_time)
        mine /= 2;
    if (benchmark->run == fetch_and_op || (benchmark->run == put_or_get && !benchmark->both_ways))
        /* the target has no part in it */
        MPI_Bcast(&mine, 1, MPI_DOUBLE, 0, run->comm);
    MPI_Reduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, 0, run->all);
    MPI_Reduce(&mine, &greatest, 1, MPI_DOUBLE, MPI_MAX, 0, run->all);
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, run->all);
    if (world_rank == 0)
        print_row(benchmark, run, least, greatest, sum / (run->size * run->pairs));
    free_buffer(run->send);
    free_buffer(run->receive);
}

/* The ranks below `ranks`, together or in pairs. Collective over MPI_COMM_WORLD. */
static void run_group(const benchmark_t * benchmark, int ranks)
{
    run_t run = {.pairs = benchmark->two_ranks ? ranks / 2 : 1 };
    MPI_Comm_split(MPI_COMM_WORLD, world_rank < ranks ? 0 : MPI_UNDEFINED, world_rank, &run.all);
    if (run.all != MPI_COMM_NULL) {
        MPI_Comm_split(run.all, run.pairs > 1 ? world_rank % run.pairs : 0, world_rank, &run.comm);
        MPI_Comm_rank(run.comm, &run.rank);
        MPI_Comm_size(run.comm, &run.size);
        if (world_rank == 0)
            print_head(benchmark, ranks, run.pairs);
        if (benchmark->no_sizes) {
            run_size(benchmark, &run);
        } else {
            if (options.min_length_bytes == 0)
                run_size(benchmark, &run);      /* 0 bytes */
            for (size_t length = benchmark->min_length_bytes ? benchmark->min_length_bytes : 1;
                 length <= options.max_length_bytes; length *= 2) {
                if (length < options.min_length_bytes)
                    continue;
                run.length_bytes = length;
                run_size(benchmark, &run);
            }
        }
        MPI_Comm_free(&run.comm);
        MPI_Comm_free(&run.all);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void run_benchmark(const benchmark_t * benchmark)
{
    if (benchmark->two_ranks) {
        run_group(benchmark, options.pairs ? world_size / 2 * 2 : 2);
        return;
    }
    for (int ranks = options.min_ranks; ranks < world_size; ranks *= 2)
        run_group(benchmark, ranks);
    run_group(benchmark, world_size);
}

/* ---- Queue depth ---- */

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *) left, b = *(const double *) right;
    return (a > b) - (a < b);
}

/* Half round trips of 8 bytes, in blocks: the median block is robust against other load. Microseconds. */
static double median_ping_pong_us(int iterations)
{
    enum { kBlocks = 20 };
    double blocks[kBlocks];
    uint64_t word = 0;
    const int per_block = iterations / kBlocks > 0 ? iterations / kBlocks : 1;
    const int peer = 1 - world_rank;
    for (int block = -1; block < kBlocks; block++) {
        const double begin = MPI_Wtime();
        for (int i = 0; i < per_block; i++) {
            if (world_rank == 0) {
                MPI_Send(&word, 8, MPI_BYTE, peer, kTagData, MPI_COMM_WORLD);
                MPI_Recv(&word, 8, MPI_BYTE, peer, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(&word, 8, MPI_BYTE, peer, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(&word, 8, MPI_BYTE, peer, kTagData, MPI_COMM_WORLD);
            }
        }
        if (block >= 0)         /* the first warms up */
            blocks[block] = (MPI_Wtime() - begin) * 1e6 / per_block / 2;
    }
    qsort(blocks, kBlocks, sizeof blocks[0], compare_doubles);
    return blocks[kBlocks / 2];
}

static void print_depth_head(const char *name)
{
    if (world_rank == 0)
        printf("\n# Benchmarking %s: 8-byte ping-pong, one way, median\n%13s %13s\n", name, "#depth",
               "t[usec]");
}

static void print_depth_row(int depth, double time_us)
{
    if (world_rank == 0) {
        printf("%13d %13.2f\n", depth, time_us);
        fflush(stdout);
    }
}

/* Ranks 0 and 1: `depth` receives posted whose tags match nothing that is sent. */
static void posted_depth(void)
{
    const int depths[] = { 0, options.depth };
    print_depth_head("posted-depth");
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
        MPI_Request *requests = allocate((size_t) depths[d] * sizeof *requests);
        uint64_t *words = allocate((size_t) depths[d] * sizeof *words);
        for (int i = 0; i < depths[d]; i++)
            MPI_Irecv(&words[i], 8, MPI_BYTE, 1 - world_rank, kTagNoise + i, MPI_COMM_WORLD, &requests[i]);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, 1 - world_rank, 0, NULL, 0, MPI_BYTE, 1 - world_rank, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        print_depth_row(depths[d], median_ping_pong_us(options.iterations * 10));
        for (int i = 0; i < depths[d]; i++)
            MPI_Cancel(&requests[i]);
        MPI_Waitall(depths[d], requests, MPI_STATUSES_IGNORE);
        free(requests);
        free(words);
    }
}

/* Ranks 0 and 1: `depth` messages from the peer wait in the unexpected queue; afterwards all are received. */
static void unexpected_depth(void)
{
    const int depths[] = { 0, options.depth };
    const int peer = 1 - world_rank;
    print_depth_head("unexpected-depth");
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
        MPI_Request *requests = allocate((size_t) depths[d] * sizeof *requests);
        uint64_t *words = allocate((size_t) depths[d] * sizeof *words);
        for (int i = 0; i < depths[d]; i++) {
            words[i] = (uint64_t) i;
            MPI_Isend(&words[i], 8, MPI_BYTE, peer, kTagNoise + i, MPI_COMM_WORLD, &requests[i]);
        }
        /* Messages of one pair arrive in order: after this they are all in the peer's queue. */
        MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 0, NULL, 0, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        print_depth_row(depths[d], median_ping_pong_us(options.iterations * 10));
        for (int i = depths[d] - 1; i >= 0; i--) {
            uint64_t word = ~(uint64_t) 0;
            MPI_Recv(&word, 8, MPI_BYTE, peer, kTagNoise + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (word != (uint64_t) i && errors_found++ < 5)
                fprintf(stderr, "rank %d: unexpected-depth: message %d holds %llu\n", world_rank, i,
                        (unsigned long long) word);
        }
        MPI_Waitall(depths[d], requests, MPI_STATUSES_IGNORE);
        free(requests);
        free(words);
    }
}

/* ---- Flood ---- */

/* Resident bytes that are this process's own or shared memory it touched: /proc/self/statm, field 2. */
static long long resident_bytes(void)
{
    long long pages = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%lld %lld", &pages, &resident) != 2)
        resident = 0;
    if (statm)
        fclose(statm);
    return resident * sysconf(_SC_PAGESIZE);
}

/* Rank 0 starts all sends; rank 1 keeps the library running (a probe for what never comes) until they were all
 * offered or two seconds passed, notes what it grew by, then receives them all, the last first. */
static void flood(void)
{
    const int messages = options.flood_messages;
    const size_t length = options.flood_length_bytes;
    const double mib = 1024.0 * 1024.0;
    if (world_rank == 0) {
        MPI_Request *requests = allocate((size_t) messages * sizeof *requests);
        unsigned char *payloads = allocate((size_t) messages * length);
        for (int i = 0; i < messages; i++)
            fill(payloads + (size_t) i * length, length, (unsigned) i);
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < messages; i++)
            MPI_Isend(payloads + (size_t) i * length, (int) length, MPI_BYTE, 1, kTagNoise + i,
                      MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
        printf("\n# Benchmarking flood: %d messages of %zu bytes, none expected\n", messages, length);
        printf("# sender: %.1f ms until all sends were complete\n", (MPI_Wtime() - begin) * 1e3);
        fflush(stdout);
        free(requests);
        free(payloads);
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    if (world_rank == 1) {
        unsigned char *payload = allocate(length);
        MPI_Barrier(MPI_COMM_WORLD);
        const long long before = resident_bytes();
        long long peak = before;
        const double begin = MPI_Wtime();
        int found = 0;
        for (int round = 0; MPI_Wtime() - begin < 2.0; round++) {
            MPI_Iprobe(0, kTagNoise - 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
            if (round % 1000 == 0) {
                const long long now = resident_bytes();
                peak = now > peak ? now : peak;
            }
        }
        const double receiving = MPI_Wtime();
        for (int i = messages - 1; i >= 0; i--) {
            MPI_Recv(payload, (int) length, MPI_BYTE, 0, kTagNoise + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            verify(payload, length, (unsigned) i, "flood");
            if (i % 256 == 0) {
                const long long now = resident_bytes();
                peak = now > peak ? now : peak;
            }
        }
        const double end = MPI_Wtime();
        MPI_Barrier(MPI_COMM_WORLD);
        printf("# receiver: grew by %.2f MiB, received all in %.1f ms, %ld wrong payloads\n",
               (double) (peak - before) / mib, (end - receiving) * 1e3, errors_found);
        fflush(stdout);
        free(payload);
        return;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- Options ---- */

static bool parse_number(const char *text, long long least, long long *value)
{
    char *end = NULL;
    long long number = strtoll(text, &end, 10);
    if (end == text || number < 0)
        return false;
    if (strcasecmp(end, "K") == 0)
        number <<= 10;
    else if (strcasecmp(end, "M") == 0)
        number <<= 20;
    else if (*end != '\0')
        return false;
    *value = number;
    return number >= least;
}

static void give_up(const char *format, const char *detail)
{
    if (world_rank == 0) {
        fputs("ch3_offload_bench: ", stderr);
        fprintf(stderr, format, detail);
        fputs(" (-help lists the options)\n", stderr);
    }
    MPI_Finalize();
    exit(1);
}

/* Returns true if argv[i] took a value. */
static bool parse_option(const char *name, const char *text)
{
    long long value = 0;
    const long long least = strcmp(name, "-npmin") == 0 ? 2 : strcmp(name, "-iter") == 0 ? 1 : 0;
    if (strcmp(name, "-check") == 0) {
        options.check = true;
        return false;
    }
    if (strcmp(name, "-pairs") == 0) {
        options.pairs = true;
        return false;
    }
    if (strcmp(name, "-memory") == 0) {
        for (int kind = kOfHeap; text && kind <= kOfWindow; kind++)
            if (strcmp(text, memory_names[kind]) == 0) {
                options.memory = (memory_t) kind;
                return true;
            }
        give_up("%s takes heap, mpi or window", name);
    }
    if (!text || !parse_number(text, least, &value) || (value > INT32_MAX && strcmp(name, "-vol") != 0))
        give_up("%s needs a number", name);
    if (strcmp(name, "-npmin") == 0)
        options.min_ranks = (int) value;
    else if (strcmp(name, "-msglen") == 0)
        options.max_length_bytes = (size_t) value;
    else if (strcmp(name, "-minlen") == 0)
        options.min_length_bytes = (size_t) value;
    else if (strcmp(name, "-iter") == 0)
        options.iterations = (int) value;
    else if (strcmp(name, "-vol") == 0)
        options.volume_bytes = (size_t) value;
    else if (strcmp(name, "-window") == 0 && value >= 1 && value <= kMaxWindow)
        options.window = (int) value;
    else if (strcmp(name, "-skew") == 0 && value < kPageBytes)
        options.skew_bytes = (size_t) value;
    else if (strcmp(name, "-depth") == 0)
        options.depth = (int) value;
    else if (strcmp(name, "-flood-messages") == 0)
        options.flood_messages = (int) value;
    else if (strcmp(name, "-flood-length") == 0)
        options.flood_length_bytes = (size_t) value;
    else
        give_up("unknown option %s", name);
    return true;
}

typedef struct {
    const char *name;
    void (*run) (void);
    bool on_all_ranks;          /* else on ranks 0 and 1 */
} special_t;

static const special_t specials[] = {
    {"posted-depth", posted_depth, false},
    {"unexpected-depth", unexpected_depth, false},
    {"flood", flood, true},
};

static void list_names(void)
{
    for (size_t i = 0; i < sizeof benchmarks / sizeof benchmarks[0]; i++)
        puts(benchmarks[i].name);
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        puts(specials[i].name);
}

static void run_named(const char *name)
{
    for (size_t i = 0; i < sizeof benchmarks / sizeof benchmarks[0]; i++) {
        if (strcasecmp(name, benchmarks[i].name) == 0) {
            run_benchmark(&benchmarks[i]);
            return;
        }
    }
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        if (strcasecmp(name, specials[i].name) == 0) {
            if (specials[i].on_all_ranks || world_rank < 2)
                specials[i].run();
            MPI_Barrier(MPI_COMM_WORLD);
            return;
        }
    }
    give_up("unknown benchmark %s", name);
}

/* ---- What was measured, and where ---- */

/* The driver of ch3:offload, as its control variable has it. Another device of a tree that was grafted has that
 * variable, too, and no driver. */
static bool read_driver(char *text, size_t capacity)
{
    int provided, index, count = 0;
    bool found = false;
    MPI_T_cvar_handle handle;
    text[0] = '\0';
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
        return false;
    if (MPI_T_cvar_get_index("MPIR_CVAR_CH3_OFFLOAD_NIC", &index) == MPI_SUCCESS
        && MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
        found = (size_t) count <= capacity && MPI_T_cvar_read(handle, text) == MPI_SUCCESS;
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
    return found;
}

/* "HOST: processors 0,2-3": where this rank may run. */
static void describe_place(char *text, size_t capacity)
{
    enum { kMostProcessors = 4096 };
    char host[MPI_MAX_PROCESSOR_NAME];
    int host_length = 0;
    size_t length;
    cpu_set_t *set = CPU_ALLOC(kMostProcessors);
    const size_t bytes = CPU_ALLOC_SIZE(kMostProcessors);
    MPI_Get_processor_name(host, &host_length);
    length = (size_t) snprintf(text, capacity, "%.60s: processors", host);
    if (set && sched_getaffinity(0, bytes, set) == 0) {
        const char *separator = " ";
        for (int first = 0, last; first < kMostProcessors && length < capacity; first = last + 1) {
            for (last = first; last < kMostProcessors && CPU_ISSET_S(last, bytes, set); last++);
            if (last == first)
                continue;
            length += (size_t) snprintf(text + length, capacity - length, last == first + 1 ? "%s%d" : "%s%d-%d",
                                        separator, first, last - 1);
            separator = ",";
        }
    }
    CPU_FREE(set);
}

/* One line where all ranks may run on the same processors, else a line for each of the first ranks. Collective. */
static void print_places(void)
{
    char mine[kPlaceLength];
    char *places = allocate((size_t) world_size * kPlaceLength);
    bool all_equal = true;
    memset(mine, 0, sizeof mine);
    describe_place(mine, sizeof mine);
    MPI_Gather(mine, kPlaceLength, MPI_CHAR, places, kPlaceLength, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 1; i < world_size; i++)
        all_equal = all_equal && strcmp(places, places + (size_t) i * kPlaceLength) == 0;
    if (world_rank == 0 && all_equal)
        printf("# binding: none, every rank on %s (mpiexec -bind-to core binds them)\n", places);
    else if (world_rank == 0)
        for (int i = 0; i < world_size && i < kPlacesShown; i++)
            printf("# binding: rank %d on %s\n", i, places + (size_t) i * kPlaceLength);
    if (world_rank == 0 && world_size > kPlacesShown && !all_equal)
        printf("# binding: and %d ranks more\n", world_size - kPlacesShown);
    free(places);
}

/* Collective. */
static void print_machine(void)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING], driver[1024];
    int length = 0;
    bool is_mpich = false, is_offload = false;
    if (world_rank == 0) {
        MPI_Get_library_version(library, &length);
        printf("# ch3_offload_bench: %d processes, %ld cores on the node of rank 0\n", world_size,
               sysconf(_SC_NPROCESSORS_ONLN));
        for (char *line = strtok(library, "\n"); line; line = strtok(NULL, "\n")) {
            if (strncmp(line, "MPICH Version", 13) == 0 || strncmp(line, "MPICH Device", 12) == 0) {
                printf("# %s\n", line);
                is_mpich = true;
                is_offload = is_offload || strstr(line, "ch3:offload") != NULL;
            }
        }
        if (!is_mpich)
            printf("# library: %s\n", library);        /* its first line */
        if (is_offload && read_driver(driver, sizeof driver))
            printf("# driver: %s (MPIR_CVAR_CH3_OFFLOAD_NIC)\n", driver);
    }
    print_places();
    if (world_rank == 0)
        fflush(stdout);
}

int main(int argc, char **argv)
{
    int first_name = 0;
    long all_errors = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "-help") == 0 || strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        }
        if (strcmp(argv[i], "-list") == 0) {
            list_names();
            return 0;
        }
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            first_name = first_name ? first_name : i;
            continue;
        }
        if (parse_option(argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
            argv[i][0] = '-';
            argv[i + 1][0] = '-';       /* so that the loop below takes it for no name */
            i++;
        }
    }
    if (world_size < 2)
        give_up("at least 2 processes are needed%s", "");
    print_machine();
    if (first_name == 0) {
        for (size_t i = 0; i < kDefaultBenchmarks; i++)
            run_benchmark(&benchmarks[i]);
    } else {
        for (int i = first_name; i < argc; i++)
            if (argv[i][0] != '-')
                run_named(argv[i]);
    }
    MPI_Allreduce(&errors_found, &all_errors, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0 && (options.check || all_errors > 0))
        printf("\n# data check: %ld errors\n", all_errors);
    MPI_Finalize();
    return all_errors > 0;
}
