/* What the programs of test/over-mpi share: how they fail, random numbers that follow from a seed, and
 * data in which every 32-bit word follows from a seed and its position, so that a byte that is wrong,
 * missing or misplaced shows. */
#ifndef OVER_MPI_H
#define OVER_MPI_H

#include <mpi.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
/* What the program is doing, for the message of fail(). */
static char doing[200];

static inline void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static inline void fail(const char *format, ...)
{
    va_list arguments;
    char text[400];

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "rank %d: %s: %s\n", rank, doing, text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static inline void *allocate(size_t length_bytes)
{
    void *memory = malloc(length_bytes > 0 ? length_bytes : 1);
    if (memory == NULL)
        fail("no memory for %zu bytes", length_bytes);
    return memory;
}

/* The 32-bit word at that position of the data of that seed. */
static inline uint32_t word_at(uint32_t seed, uint64_t position)
{
    uint64_t x = position * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (uint32_t) (x >> 32);
}

/* Fills memory, whose first byte is at position first_byte of the data of that seed. */
static inline void fill_from(void *memory, size_t length_bytes, uint32_t seed, uint64_t first_byte)
{
    unsigned char *bytes = memory;
    size_t done = 0;

    while (done < length_bytes) {
        uint64_t at = first_byte + done;
        uint32_t word = word_at(seed, at / 4);
        size_t skip = at % 4, n = 4 - skip;
        if (n > length_bytes - done)
            n = length_bytes - done;
        memcpy(bytes + done, (char *) &word + skip, n);
        done += n;
    }
}

static inline void fill(void *memory, size_t length_bytes, uint32_t seed)
{
    fill_from(memory, length_bytes, seed, 0);
}

/* Fails unless memory is as fill_from() leaves it. */
static inline void expect_from(const void *memory, size_t length_bytes, uint32_t seed, uint64_t first_byte,
                               const char *what)
{
    const unsigned char *bytes = memory;
    size_t done = 0;

    while (done < length_bytes) {
        unsigned char wanted[4096];
        size_t n = length_bytes - done < sizeof wanted ? length_bytes - done : sizeof wanted, i;
        fill_from(wanted, n, seed, first_byte + done);
        for (i = 0; memcmp(bytes + done, wanted, n) != 0 && i < n; i++)
            if (bytes[done + i] != wanted[i])
                fail("%s: byte %zu of %zu is %d instead of %d", what, done + i, length_bytes, bytes[done + i],
                     wanted[i]);
        done += n;
    }
}

static inline void expect(const void *memory, size_t length_bytes, uint32_t seed, const char *what)
{
    expect_from(memory, length_bytes, seed, 0, what);
}

/* The next number of a sequence, below limit. */
static inline uint32_t next_random(uint64_t * state, uint32_t limit)
{
    *state += 0x9e3779b97f4a7c15u;
    return (uint32_t) (((uint64_t) word_at(7, *state) * limit) >> 32);
}

/* A program of a file: argv[1] names it. */
typedef struct {
    const char *name;
    void (*run) (void);
} program_t;

/* 1 if the programs are to take minutes: `quickstart check --all`. */
static inline int is_long(void)
{
    const char *value = getenv("CH3_OFFLOAD_CHECK_ALL");
    return value != NULL && strcmp(value, "1") == 0;
}

static inline int run_program(int argc, char **argv, const program_t * programs, int count)
{
    int i, is_over;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (i = 0; i < count; i++) {
        if (argc == 2 && strcmp(argv[1], programs[i].name) == 0) {
            snprintf(doing, sizeof doing, "%s", argv[1]);
            programs[i].run();
            MPI_Finalized(&is_over);
            if (!is_over)
                MPI_Finalize();
            printf("done\n");
            return 0;
        }
    }
    snprintf(doing, sizeof doing, "usage");
    fail("%s PROGRAM", argv[0]);
}

#endif
