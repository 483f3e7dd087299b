/* For bench/lines: what two processes can do at best that pass cache lines to and fro, without MPI.
 *
 *   lines_bench CORE CORE state | NAME BYTES | stream RING_BYTES
 *
 * Prints half of a round trip in microseconds: of one line (`state`: whether the cores share a cache), or of
 * an exchange of BYTES by the way NAME. ways[] names the functions that say what each does. `stream`: what a
 * message of 16 KiB takes of many in one direction, through a ring of RING_BYTES. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kLine = 64, kMostBytes = 1 << 20, kRingBytes = 16 << 10, kChunk = 8 << 10, kBlocks = 7,
    kStreamed = 16 << 10, kStreamedAtOnce = 4000, kMostSlots = 1024
};

/* What one process writes and the other reads, and what the reader returns. */
typedef struct {
    _Alignas(kLine) _Atomic uint64_t word;
    _Alignas(kLine) _Atomic uint64_t consumed;
    _Alignas(kLine) unsigned char bytes[kMostBytes];
} direction_t;

typedef struct {
    direction_t to[2];          /* to[i] goes to process i */
    _Alignas(kLine) _Atomic uint64_t ball;
    direction_t both;
} shared_t;

static shared_t *shared;
static int self;
static size_t length;
static unsigned char *payload;
static uint64_t sent_bytes, taken_bytes;        /* positions in the rings */

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static void await(_Atomic uint64_t * word, uint64_t value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value);
}

/* One word that both write. */
static void one_line(uint64_t number, int sends)
{
    if (sends)
        atomic_store_explicit(&shared->ball, number, memory_order_release);
    else
        await(&shared->ball, number);
}

/* A word for each direction. */
static void line_each(uint64_t number, int sends)
{
    if (sends)
        atomic_store_explicit(&shared->to[1 - self].word, number, memory_order_release);
    else
        await(&shared->to[self].word, number);
}

/* Where the record after this one begins: what would run over the end of the ring begins at its beginning. */
static uint64_t behind(uint64_t position, size_t size)
{
    position += size;
    const size_t rest = kRingBytes - position % kRingBytes;
    return rest < size ? position + rest : position;
}

/* The protocol of our rings, in a ring as long as their first window: a header of 8 bytes, which is not zero,
 * publishes what is behind it. The header after it is zeroed before. The reader returns its position every
 * 2 KiB. */
static void record(uint64_t number, int sends)
{
    const size_t size = (8 + length + kLine - 1) & ~(size_t) (kLine - 1);
    (void) number;
    if (sends) {
        direction_t *ring = &shared->to[1 - self];
        unsigned char *at = ring->bytes + sent_bytes % kRingBytes;
        while (sent_bytes + size - atomic_load_explicit(&ring->consumed, memory_order_acquire) > kRingBytes / 2);
        memcpy(at + 8, payload, length);
        sent_bytes = behind(sent_bytes, size);
        atomic_store_explicit((_Atomic uint64_t *) (ring->bytes + sent_bytes % kRingBytes), 0, memory_order_relaxed);
        atomic_store_explicit((_Atomic uint64_t *) at, length + 1, memory_order_release);
    } else {
        direction_t *ring = &shared->to[self];
        unsigned char *at = ring->bytes + taken_bytes % kRingBytes;
        await((_Atomic uint64_t *) at, length + 1);
        memcpy(payload, at + 8, length);
        const uint64_t before = taken_bytes;
        taken_bytes = behind(taken_bytes, size);
        if (before / 2048 != taken_bytes / 2048)
            atomic_store_explicit(&ring->consumed, taken_bytes, memory_order_release);
    }
}

/* Each line bears 56 bytes and the number of the exchange: nothing is zeroed and nothing returned. */
static void numbered_lines(uint64_t number, int sends)
{
    for (size_t done = 0, line = 0; done < length || line == 0; done += kLine - 8, line++) {
        const size_t part = length - done < kLine - 8 ? length - done : kLine - 8;
        unsigned char *at = shared->to[sends ? 1 - self : self].bytes + line * kLine;
        if (sends) {
            memcpy(at + 8, payload + done, part);
            atomic_store_explicit((_Atomic uint64_t *) at, number, memory_order_release);
        } else {
            await((_Atomic uint64_t *) at, number);
            memcpy(payload + done, at + 8, part);
        }
    }
}

/* A buffer that is copied into and out of, chunk by chunk; a word says how many bytes are there. */
static void through(direction_t * buffer, uint64_t number, int sends)
{
    for (size_t done = 0; done < length; done += kChunk) {
        const size_t part = length - done < kChunk ? length - done : kChunk;
        if (sends) {
            memcpy(buffer->bytes + done, payload + done, part);
            atomic_store_explicit(&buffer->word, number << 32 | (done + part), memory_order_release);
        } else {
            while (atomic_load_explicit(&buffer->word, memory_order_acquire) < (number << 32 | (done + part)));
            memcpy(payload + done, buffer->bytes + done, part);
        }
    }
}

static void buffer_each(uint64_t number, int sends)
{
    through(&shared->to[sends ? 1 - self : self], number, sends);
}

/* Whoever has just read a line writes it next. */
static void one_buffer(uint64_t number, int sends)
{
    through(&shared->both, number, sends);
}

static const struct {
    const char *name;
    void (*exchange) (uint64_t number, int sends);
} ways[] = {
    {"one-line", one_line}, {"line-each", line_each}, {"record", record}, {"numbered-lines", numbered_lines},
    {"buffer-each", buffer_each}, {"one-buffer", one_buffer},
};

static unsigned char *slots;
static size_t slot_count;         /* 0: no stream */

/* Many messages one way. Who writes a slot fetches its lines from the cache of the reader's core, unless the
 * ring is longer than that cache. */
static void stream(uint64_t number, int sends)
{
    direction_t *state = &shared->both;

    for (uint64_t i = number * kStreamedAtOnce; i < (number + 1) * kStreamedAtOnce; i++) {
        unsigned char *slot = slots + i % slot_count * kStreamed;
        if (sends) {
            while (i - atomic_load_explicit(&state->consumed, memory_order_acquire) >= slot_count);
            memcpy(slot, payload, kStreamed);
            atomic_store_explicit(&state->word, i + 1, memory_order_release);
        } else {
            while (atomic_load_explicit(&state->word, memory_order_acquire) <= i);
            memcpy(payload, slot, kStreamed);
            atomic_store_explicit(&state->consumed, i + 1, memory_order_release);
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void use_core(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("lines_bench: sched_setaffinity");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    void (*exchange) (uint64_t, int) = NULL;
    if (argc == 4 && strcmp(argv[3], "state") == 0) {
        exchange = one_line;
    } else if (argc == 5 && strcmp(argv[3], "stream") == 0) {
        slot_count = strtoul(argv[4], NULL, 10) / kStreamed;
        exchange = slot_count > 0 && slot_count <= kMostSlots ? stream : NULL;
    } else if (argc == 5) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            if (strcmp(argv[3], ways[i].name) == 0)
                exchange = ways[i].exchange;
        length = strtoul(argv[4], NULL, 10);
    }
    if (!exchange || length > (exchange == record ? kRingBytes / 8 : kMostBytes / 2)) {
        fprintf(stderr, "usage: lines_bench CORE CORE state | NAME BYTES | stream RING_BYTES\nNAME:");
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            fprintf(stderr, " %s", ways[i].name);
        fprintf(stderr, "\n");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    payload = aligned_alloc(4096, kMostBytes);
    slots = mmap(NULL, (size_t) kMostSlots * kStreamed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    if (shared == MAP_FAILED || slots == MAP_FAILED || !payload) {
        perror("lines_bench");
        return 1;
    }
    memset(payload, 1, kMostBytes);
    const int rounds = 5000 / (int) (1 + length / 1024) + 10;
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) {
        perror("lines_bench: fork");
        return 1;
    }
    self = child == 0;
    use_core(atoi(argv[1 + self]));
    if (self) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            return 1;
    }
    double figures[kBlocks];
    uint64_t number = 0;
    for (int block = -1; block < kBlocks; block++) {    /* The first is for warming up. */
        const double begin = now_us();
        if (slot_count > 0)
            exchange(number++, self == 0);
        for (int i = 0; i < rounds && slot_count == 0; i++) {
            exchange(++number, self == 0);
            exchange(++number, self == 1);
        }
        if (block >= 0)
            figures[block] = (now_us() - begin) / (slot_count > 0 ? kStreamedAtOnce : 2 * rounds);
    }
    if (self)
        return 0;
    waitpid(child, NULL, 0);
    qsort(figures, kBlocks, sizeof *figures, by_size);
    printf("%.3f\n", figures[kBlocks / 2]);
    return 0;
}
