/* What the network processor does while the program computes, and what that costs the program. Rank 0 measures
 * and prints; its peer is rank 1. All data is checked. Times are medians in microseconds unless a column says
 * something else. Usage: see usage(). bench/progress runs this under several MPIs.
 *
 * bypass     Both ranks post receives, meet, and send. Rank 0 computes without calling MPI, then waits. The
 *            time of that wait is what was not done meanwhile.
 * overhead   The time inside MPI_Isend and MPI_Irecv: alone after a pause, and in bursts.
 * latency    Half of a ping-pong's round trip.
 * overlap    (pure + computation - both) / min(pure, computation), in percent: how much of an operation is
 *            hidden behind computation of equal length (as in IMB-NBC and the OSU benchmarks).
 * cost       How much slower a loop of rank 0 is while messages arrive.
 */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    kMessages = 10,     /* of a bypass round, each way */
    kBurst = 32,        /* calls of the overhead experiment */
    kPosted = 16,       /* receives that wait for the stream of the cost experiment */
    kWarmUp = 3,
    kMostRounds = 100000,
    kTagData = 1,
    kTagStop = 2,
};

static int rank, size;
static int rounds = 50;
static int tests = 0;
static int only_first = 0;
static int allocated = 0;
static double pause_us = 200;
static long long errors = 0;

static void usage(FILE *to)
{
    fputs("usage: mpiexec -n 2 progress_bench EXPERIMENT [options]\n"
          "\n"
          "  bypass     options: -bytes B -work US[,US...] -tests N (MPI_Test calls inside the work)\n"
          "             -allocated (messages in memory of MPI_Alloc_mem)\n"
          "  overhead   options: -bytes B[,B...] -pause US (before a call that stands alone)\n"
          "  latency    options: -bytes B[,B...]\n"
          "  overlap    options: -bytes B[,B...] -first (only rank 0 computes)\n"
          "  cost       options: -bytes B\n"
          "  -rounds N  of each measurement (default 50)\n"
          "B may end in K or M.\n", to);
}

static void stop(const char *what, const char *value)
{
    if (rank == 0)
        fprintf(stderr, "progress_bench: %s%s%s (-help lists the options)\n", what, value ? ": " : "",
                value ? value : "");
    MPI_Finalize();
    exit(2);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double) now.tv_sec + 1e-3 * (double) now.tv_nsec;
}

static void *allocate(size_t bytes)
{
    void *memory;
    if (posix_memalign(&memory, 4096, bytes > 0 ? bytes : 1) != 0) {
        fprintf(stderr, "progress_bench: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    memset(memory, 0, bytes);
    return memory;
}

/* With -allocated, memory of MPI_Alloc_mem. */
static void *allocate_message(size_t bytes)
{
    void *memory;
    if (!allocated)
        return allocate(bytes);
    MPI_Alloc_mem((MPI_Aint) bytes, MPI_INFO_NULL, &memory);
    memset(memory, 0, bytes);
    return memory;
}

static void free_message(void *memory)
{
    if (allocated)
        MPI_Free_mem(memory);
    else
        free(memory);
}

/* ---- statistics ---- */

static double samples[kMostRounds];

static int by_size(const void *one, const void *other)
{
    double a = *(const double *) one, b = *(const double *) other;
    return (a > b) - (a < b);
}

/* The share `part` of the samples is below the result. Sorts them. */
static double quantile(int count, double part)
{
    qsort(samples, (size_t) count, sizeof samples[0], by_size);
    return samples[(int) (part * (count - 1) + 0.5)];
}

/* ---- data: what message `number` of a round holds ---- */

static unsigned char first_byte(int round, int number, int from)
{
    return (unsigned char) (1 + (round * 31 + number * 7 + from * 3) % 251);
}

/* A byte of each page, and the last one: writing all of it would be most of a round. */
static void fill(unsigned char *bytes, int length, unsigned char first)
{
    for (int i = 0; i < length; i += 4096)
        bytes[i] = (unsigned char) (first + (i >> 12));
    if (length > 0)
        bytes[length - 1] = first;
}

static void check(const unsigned char *bytes, int length, unsigned char first)
{
    for (int i = 0; i < length - 1; i += 4096)
        errors += bytes[i] != (unsigned char) (first + (i >> 12));
    if (length > 0)
        errors += bytes[length - 1] != first;
}

/* ---- work ---- */

static volatile double sink;

/* Computes in registers. */
static void spin_loops(long long loops)
{
    double a = 1.0, b = 1.000001, c = 0.5, d = 0.25;
    for (long long i = 0; i < loops; i++) {
        a = a * b + 1e-9;
        c = c * b + 1e-9;
        d = d * b + 1e-9;
    }
    sink = a + c + d;
}

static double loops_per_us(void)
{
    const long long kLoops = 2000000;
    double best = 1e30;
    for (int i = 0; i < 5; i++) {
        double begin = now_us();
        spin_loops(kLoops);
        double took = now_us() - begin;
        if (took < best)
            best = took;
    }
    return (double) kLoops / best;
}

static void compute_until(double end_us)
{
    while (now_us() < end_us)
        continue;
}

/* ---- bypass ---- */

static double bypass_round(int round, int bytes, double work_us, unsigned char **in, unsigned char **out)
{
    MPI_Request requests[2 * kMessages];
    int peer = 1 - rank, flag;
    double begin, wait = 0;

    for (int i = 0; i < kMessages; i++) {
        fill(out[i], bytes, first_byte(round, i, rank));
        MPI_Irecv(in[i], bytes, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kMessages; i++)
        MPI_Isend(out[i], bytes, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[kMessages + i]);
    if (rank == 0) {
        begin = now_us();
        for (int i = 1; i <= tests; i++) {
            compute_until(begin + work_us * i / (tests + 1));
            MPI_Test(&requests[kMessages - 1], &flag, MPI_STATUS_IGNORE);
        }
        compute_until(begin + work_us);
        wait = now_us();
    }
    MPI_Waitall(2 * kMessages, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        wait = now_us() - wait;
    for (int i = 0; i < kMessages; i++)
        check(in[i], bytes, first_byte(round, i, peer));
    return wait;
}

static void bypass(int bytes, double work_us)
{
    unsigned char *in[kMessages], *out[kMessages];

    for (int i = 0; i < kMessages; i++) {
        in[i] = allocate_message((size_t) bytes);
        out[i] = allocate_message((size_t) bytes);
    }
    for (int round = -kWarmUp; round < rounds; round++) {
        double wait = bypass_round(round + kWarmUp, bytes, work_us, in, out);
        if (round >= 0)
            samples[round] = wait;
    }
    if (rank == 0) {
        double median = quantile(rounds, 0.5);
        printf("bypass %d %d%s %.0f %.2f %.2f\n", bytes, tests, allocated ? "a" : "", work_us, median,
               quantile(rounds, 0.9));
    }
    for (int i = 0; i < kMessages; i++) {
        free_message(in[i]);
        free_message(out[i]);
    }
}

/* ---- overhead ---- */

static double clock_us(void)
{
    for (int i = 0; i < 1000; i++) {
        double begin = now_us();
        samples[i] = now_us() - begin;
    }
    return quantile(1000, 0.5);
}

/* `count` calls of rank 0, whose peer has the other half. Returns the time of one call. */
static double timed_calls(int is_send, int count, int round, int bytes, unsigned char *buffer)
{
    MPI_Request requests[kBurst];
    double begin = 0, took = 0;
    int sends = is_send == (rank == 0);

    fill(buffer, bytes, sends ? first_byte(round, 0, rank) : 0);
    if (!is_send || rank == 1)
        MPI_Barrier(MPI_COMM_WORLD);   /* A receive of rank 0 comes before its message, a send after. */
    if (rank == 1 && is_send) {
        for (int i = 0; i < count; i++)
            MPI_Irecv(buffer, bytes, MPI_BYTE, 0, kTagData, MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == 0 && is_send)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        compute_until(now_us() + pause_us);
        begin = now_us();
        for (int i = 0; i < count; i++) {
            if (is_send)
                MPI_Isend(buffer, bytes, MPI_BYTE, 1, kTagData, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(buffer, bytes, MPI_BYTE, 1, kTagData, MPI_COMM_WORLD, &requests[i]);
        }
        took = now_us() - begin;
    }
    if (!is_send) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            for (int i = 0; i < count; i++)
                MPI_Isend(buffer, bytes, MPI_BYTE, 0, kTagData, MPI_COMM_WORLD, &requests[i]);
        }
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    if (!sends)
        check(buffer, bytes, first_byte(round, 0, 1 - rank));
    return took / count;
}

static void overhead(int bytes)
{
    unsigned char *buffer = allocate((size_t) bytes);
    double clock = clock_us();

    for (int is_send = 1; is_send >= 0; is_send--) {
        double medians[2];
        for (int burst = 0; burst < 2; burst++) {
            int count = burst ? kBurst : 1;
            for (int round = -kWarmUp; round < rounds; round++) {
                double took = timed_calls(is_send, count, round + kWarmUp, bytes, buffer);
                if (round >= 0)
                    samples[round] = took - clock / count;
            }
            medians[burst] = quantile(rounds, 0.5);
        }
        if (rank == 0)
            printf("overhead %s %d %.0f %.0f\n", is_send ? "MPI_Isend" : "MPI_Irecv", bytes, 1e3 * medians[0],
                   1e3 * medians[1]);
    }
    free(buffer);
}

/* ---- latency ---- */

static void latency(int bytes)
{
    const int kTrips = 100;
    unsigned char *buffer = allocate((size_t) bytes);

    for (int round = -kWarmUp; round < rounds; round++) {
        double begin;
        fill(buffer, bytes, rank == 0 ? first_byte(round + kWarmUp, 0, 0) : 0);
        MPI_Barrier(MPI_COMM_WORLD);
        begin = now_us();
        for (int i = 0; i < kTrips; i++) {
            if (rank == 0)
                MPI_Send(buffer, bytes, MPI_BYTE, 1, kTagData, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_BYTE, 1 - rank, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(buffer, bytes, MPI_BYTE, 0, kTagData, MPI_COMM_WORLD);
        }
        if (round >= 0)
            samples[round] = (now_us() - begin) / (2 * kTrips);
        check(buffer, bytes, first_byte(round + kWarmUp, 0, 0));
    }
    if (rank == 0) {
        double median = quantile(rounds, 0.5);
        printf("latency %d %.3f %.3f\n", bytes, median, quantile(rounds, 0.9));
    }
    free(buffer);
}

/* ---- overlap ---- */

enum operation { kExchange, kAlltoall, kAllreduce, kAllgather, kBcast, kBarrier, kOperations };
static const char *const operation_names[kOperations] = {"Isend/Irecv", "Ialltoall", "Iallreduce", "Iallgather",
                                                         "Ibcast", "Ibarrier"};

/* Rank 0's time of an operation with `loops` of work inside. */
static double overlap_round(enum operation operation, int round, int bytes, long long loops, unsigned char *in,
                            unsigned char *out)
{
    MPI_Request requests[2];
    int count = 1, blocks = operation == kAlltoall ? size : 1;
    const int root = size - 1;
    double begin;

    if (operation == kAllreduce) {
        for (int i = 0; i < bytes / (int) sizeof(int); i++)
            ((int *) out)[i] = round + i + rank;
    } else {
        for (int i = 0; i < blocks; i++)
            fill(out + (size_t) i * (size_t) bytes, bytes, first_byte(round, i, rank));
    }
    if (operation == kBcast && rank == root)
        fill(in, bytes, first_byte(round, 0, root));
    MPI_Barrier(MPI_COMM_WORLD);
    begin = now_us();
    if (operation == kExchange) {
        MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, kTagData, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, kTagData, MPI_COMM_WORLD, &requests[1]);
        count = 2;
    } else if (operation == kAlltoall) {
        MPI_Ialltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, requests);
    } else if (operation == kAllreduce) {
        MPI_Iallreduce(out, in, bytes / (int) sizeof(int), MPI_INT, MPI_SUM, MPI_COMM_WORLD, requests);
    } else if (operation == kAllgather) {
        MPI_Iallgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, requests);
    } else if (operation == kBcast) {
        MPI_Ibcast(in, bytes, MPI_BYTE, root, MPI_COMM_WORLD, requests);
    } else {
        MPI_Ibarrier(MPI_COMM_WORLD, requests);
    }
    if (rank == 0 || !only_first)
        spin_loops(loops);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    begin = now_us() - begin;
    if (operation == kExchange) {
        check(in, bytes, first_byte(round, 0, 1 - rank));
    } else if (operation == kAlltoall) {
        for (int i = 0; i < size; i++)
            check(in + (size_t) i * (size_t) bytes, bytes, first_byte(round, rank, i));
    } else if (operation == kAllgather) {
        for (int i = 0; i < size; i++)
            check(in + (size_t) i * (size_t) bytes, bytes, first_byte(round, 0, i));
    } else if (operation == kBcast) {
        check(in, bytes, first_byte(round, 0, root));
    } else if (operation == kAllreduce) {
        for (int i = 0; i < bytes / (int) sizeof(int); i++)
            errors += ((int *) in)[i] != size * (round + i) + size * (size - 1) / 2;
    }
    return begin;
}

static double overlap_time(enum operation operation, int bytes, long long loops, unsigned char *in,
                           unsigned char *out)
{
    for (int round = -kWarmUp; round < rounds; round++) {
        double took = overlap_round(operation, round + kWarmUp, bytes, loops, in, out);
        if (round >= 0)
            samples[round] = took;
    }
    return quantile(rounds, 0.5);
}

static void overlap(int bytes, double speed)
{
    unsigned char *in = allocate((size_t) bytes * (size_t) size), *out = allocate((size_t) bytes * (size_t) size);

    for (enum operation operation = kExchange; operation < kOperations; operation++) {
        double pure = overlap_time(operation, bytes, 0, in, out), computation, both, part, least;
        long long loops = (long long) (pure * speed);
        MPI_Bcast(&loops, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
        for (int round = 0; round < rounds; round++) {
            double begin = now_us();
            spin_loops(loops);
            samples[round] = now_us() - begin;
        }
        computation = quantile(rounds, 0.5);
        both = overlap_time(operation, bytes, loops, in, out);
        least = pure < computation ? pure : computation;
        part = 100 * (pure + computation - both) / least;
        part = part < 0 ? 0 : part > 100 ? 100 : part;
        if (rank == 0)
            printf("overlap %s %d %.1f %.1f %.1f %.0f\n", operation_names[operation], bytes, pure, computation,
                   both, part);
    }
    free(in);
    free(out);
}

/* ---- cost ---- */

enum { kTriadWords = 4 << 20, kPasses = 40 };
static double *triad[3];

static void memory_loop(void)
{
    for (int i = 0; i < kTriadWords; i++)
        triad[0][i] = triad[1][i] + 0.5 * triad[2][i];
    sink = triad[0][kTriadWords / 2];
}

static void one_pass(int is_memory, long long loops)
{
    if (is_memory)
        memory_loop();
    else
        spin_loops(loops);
}

/* Rank 1: sends until rank 0 has enough. An empty message is the last. */
static void stream(unsigned char *buffer, int bytes)
{
    MPI_Request request;
    int is_over = 0;

    MPI_Irecv(NULL, 0, MPI_BYTE, 0, kTagStop, MPI_COMM_WORLD, &request);
    while (!is_over) {
        MPI_Send(buffer, bytes, MPI_BYTE, 0, kTagData, MPI_COMM_WORLD);
        MPI_Test(&request, &is_over, MPI_STATUS_IGNORE);
    }
    MPI_Send(NULL, 0, MPI_BYTE, 0, kTagData, MPI_COMM_WORLD);
}

struct stream_end {
    MPI_Request requests[kPosted];
    unsigned char *buffers[kPosted];
    int messages;
    int is_over;
};

static void post(struct stream_end *to, int i, int bytes)
{
    MPI_Irecv(to->buffers[i], bytes, MPI_BYTE, 1, kTagData, MPI_COMM_WORLD, &to->requests[i]);
}

/* Takes what has arrived, and posts the buffers again. */
static void take(struct stream_end *from, int bytes)
{
    int done, indices[kPosted], length;
    MPI_Status statuses[kPosted];

    MPI_Testsome(kPosted, from->requests, &done, indices, statuses);
    for (int i = 0; done != MPI_UNDEFINED && i < done; i++) {
        MPI_Get_count(&statuses[i], MPI_BYTE, &length);
        if (length == 0) {
            from->is_over = 1;
            continue;
        }
        errors += length != bytes;
        check(from->buffers[indices[i]], bytes, 77);
        from->messages++;
        post(from, indices[i], bytes);
    }
}

static void cost_of(int is_memory, int bytes, double speed)
{
    struct stream_end end = {.messages = 0, .is_over = 0};
    const long long loops = (long long) (5000 * speed);
    double alone, beside, begin, whole, computed = 0;
    int messages;

    for (int i = 0; i < kPasses; i++) {
        begin = now_us();
        one_pass(is_memory, loops);
        samples[i] = now_us() - begin;
    }
    alone = quantile(kPasses, 0.5);
    for (int i = 0; i < kPosted; i++) {
        end.buffers[i] = allocate((size_t) bytes);
        post(&end, i, bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    whole = now_us();
    for (int i = 0; i < kPasses; i++) {
        begin = now_us();
        one_pass(is_memory, loops);
        samples[i] = now_us() - begin;
        computed += samples[i];
        take(&end, bytes);
    }
    whole = now_us() - whole;
    messages = end.messages;
    beside = quantile(kPasses, 0.5);
    MPI_Send(NULL, 0, MPI_BYTE, 1, kTagStop, MPI_COMM_WORLD);
    while (!end.is_over)
        take(&end, bytes);
    for (int i = 0; i < kPosted; i++) {
        if (end.requests[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&end.requests[i]);
            MPI_Wait(&end.requests[i], MPI_STATUS_IGNORE);
        }
        free(end.buffers[i]);
    }
    printf("cost %s %d %.2f %.2f %.2f %.0f %.0f\n", is_memory ? "memory" : "registers", bytes, alone / 1e3,
           beside / 1e3, beside / alone, messages * (double) bytes / whole, 100 * (whole - computed) / whole);
}

static void cost(int bytes, double speed)
{
    for (int i = 0; i < 3; i++)
        triad[i] = allocate(kTriadWords * sizeof(double));
    for (int is_memory = 1; is_memory >= 0; is_memory--) {
        if (rank == 0) {
            cost_of(is_memory, bytes, speed);
        } else {
            unsigned char *buffer = allocate((size_t) bytes);
            fill(buffer, bytes, 77);
            MPI_Barrier(MPI_COMM_WORLD);
            stream(buffer, bytes);
            free(buffer);
        }
    }
    for (int i = 0; i < 3; i++)
        free(triad[i]);
}

/* ---- arguments ---- */

enum { kMostValues = 32 };
struct list {
    int count;
    double values[kMostValues];
};

/* Numbers of at most `most`, with commas between. */
static struct list parse(const char *option, const char *text, double most)
{
    struct list list = {.count = 0};
    const char *rest = text;

    for (;;) {
        char *end;
        double value = strtod(rest, &end);
        if (end == rest || list.count == kMostValues)
            stop(option, text);
        if (*end == 'K' || *end == 'M')
            value *= *end++ == 'K' ? 1024 : 1024 * 1024;
        if (!(value >= 0 && value <= most))
            stop(option, text);
        list.values[list.count++] = value;
        if (*end == '\0')
            return list;
        if (*end != ',')
            stop(option, text);
        rest = end + 1;
    }
}

int main(int argc, char **argv)
{
    struct list lengths = {.count = 0}, works = {.count = 1, .values = {0}};
    const char *experiment;
    long long all_errors = 0;
    double speed;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    experiment = argc > 1 ? argv[1] : "";
    if (strcmp(experiment, "-help") == 0 || strcmp(experiment, "--help") == 0) {
        if (rank == 0)
            usage(stdout);
        MPI_Finalize();
        return 0;
    }
    if (strcmp(experiment, "bypass") != 0 && strcmp(experiment, "overhead") != 0
        && strcmp(experiment, "latency") != 0 && strcmp(experiment, "overlap") != 0
        && strcmp(experiment, "cost") != 0)
        stop("no such experiment", experiment);
    for (int i = 2; i < argc; i++) {
        const char *option = argv[i];
        if (strcmp(option, "-first") == 0) {
            only_first = 1;
            continue;
        }
        if (strcmp(option, "-allocated") == 0) {
            allocated = 1;
            continue;
        }
        if (i + 1 == argc)
            stop("a value is missing, or no such option", option);
        i++;
        if (strcmp(option, "-bytes") == 0)
            lengths = parse(option, argv[i], 64 << 20);
        else if (strcmp(option, "-work") == 0)
            works = parse(option, argv[i], 1e6);
        else if (strcmp(option, "-tests") == 0)
            tests = (int) parse(option, argv[i], 1000).values[0];
        else if (strcmp(option, "-pause") == 0)
            pause_us = parse(option, argv[i], 1e6).values[0];
        else if (strcmp(option, "-rounds") == 0)
            rounds = (int) parse(option, argv[i], kMostRounds).values[0];
        else
            stop("no such option", option);
    }
    if (size != 2)
        stop("two ranks are needed", NULL);
    if (rounds < 1)
        stop("-rounds must be at least", "1");
    if (lengths.count == 0)
        lengths = parse("-bytes", strcmp(experiment, "latency") == 0 ? "8" : "1M", 64 << 20);

    speed = loops_per_us();
    for (int i = 0; i < lengths.count; i++) {
        int bytes = (int) lengths.values[i];
        if (strcmp(experiment, "bypass") == 0) {
            for (int j = 0; j < works.count; j++)
                bypass(bytes, works.values[j]);
        } else if (strcmp(experiment, "overhead") == 0) {
            overhead(bytes);
        } else if (strcmp(experiment, "latency") == 0) {
            latency(bytes);
        } else if (strcmp(experiment, "overlap") == 0) {
            overlap(bytes, speed);
        } else {
            cost(bytes > 0 ? bytes : 1, speed);
        }
    }
    MPI_Reduce(&errors, &all_errors, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("data check: %lld errors\n", all_errors);
    MPI_Finalize();
    return rank == 0 && all_errors > 0;
}
