/*
 * What the pin-down cache does for four habits of programs: two ranks on different nodes (or with
 * MPIR_CVAR_CH3_OFFLOAD_FABRIC=verbs on one) exchange messages, and rank 0 prints for each habit the bandwidth and what the cache
 * counted. docs/pin-down-cache.md explains the table.
 *
 *   mpicc -O2 -o pin_down_demo bench/pin_down_demo.c
 *   mpiexec -hosts node1,node2 -n 2 ./pin_down_demo [BYTES [ROUNDS]]
 *   MPIR_CVAR_CH3_OFFLOAD_PIN_CACHE=off mpiexec ...       (without the cache)
 *   MPIR_CVAR_CH3_OFFLOAD_PIN_BYTES=8M mpiexec ...        (with little room)
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kBuffers = 32, kCounters = 4 };

static const char *const counter_names[kCounters] = { "ch3_offload_pin_hits", "ch3_offload_pin_misses",
    "ch3_offload_pin_evictions", "ch3_offload_pin_invalidations"
};

static int rank, rounds = 200;
static size_t length = 1 << 20;
static char *buffers[kBuffers];
static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[kCounters];

static void die(const char *what)
{
    fprintf(stderr, "pin_down_demo: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *checked(void *memory)
{
    if (memory == NULL || memory == MAP_FAILED)
        die("no memory");
    return memory;
}

static void exchange(void *memory)
{
    if (rank == 0) {
        MPI_Send(memory, (int) length, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(memory, (int) length, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(memory, (int) length, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(memory, (int) length, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

static void one_buffer(int round)
{
    (void) round;
    exchange(buffers[0]);
}

static void many_buffers(int round)
{
    exchange(buffers[round % kBuffers]);
}

static void malloc_each_time(int round)
{
    char *memory = checked(malloc(length));

    (void) round;
    memset(memory, 1, length);
    exchange(memory);
    free(memory);
}

static void map_each_time(int round)
{
    char *memory = checked(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

    (void) round;
    memset(memory, 1, length);
    exchange(memory);
    munmap(memory, length);
}

static const struct {
    const char *name;
    void (*run) (int round);
} habits[] = {
    {"one buffer", one_buffer},
    {"32 buffers in turn", many_buffers},
    {"malloc, free", malloc_each_time},
    {"mmap, munmap", map_each_time},
};

static void read_counters(unsigned long long *values)
{
    int i;

    for (i = 0; i < kCounters; i++)
        MPI_T_pvar_read(session, handles[i], &values[i]);
}

int main(int argc, char **argv)
{
    unsigned long long before[kCounters], after[kCounters];
    int size, provided, index, count, i;
    size_t habit;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        length = strtoul(argv[1], NULL, 10);
    if (argc > 2)
        rounds = atoi(argv[2]);
    if (size != 2 || length == 0 || length > 1 << 30 || rounds < 1)
        die("usage: mpiexec -n 2 pin_down_demo [BYTES [ROUNDS]], BYTES up to 1073741824");
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    for (i = 0; i < kCounters; i++) {
        if (MPI_T_pvar_get_index(counter_names[i], MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS)
            die("this MPI has no ch3_offload_pin_ counters: it is not MPICH over ch3:offload");
        MPI_T_pvar_handle_alloc(session, index, NULL, &handles[i], &count);
    }
    for (i = 0; i < kBuffers; i++)
        memset(buffers[i] = checked(malloc(length)), 1, length);

    if (rank == 0)
        printf("%d round trips of %zu bytes each; counted at rank 0, for both directions\n"
               "%-20s %10s %10s %10s %10s %10s\n", rounds, length, "habit", "MB/s", "found", "registered", "evicted",
               "gone");
    for (habit = 0; habit < sizeof habits / sizeof habits[0]; habit++) {
        double seconds;

        habits[habit].run(0);   /* connections are up */
        MPI_Barrier(MPI_COMM_WORLD);
        read_counters(before);
        seconds = MPI_Wtime();
        for (i = 0; i < rounds; i++)
            habits[habit].run(i);
        seconds = MPI_Wtime() - seconds;
        read_counters(after);
        if (rank == 0)
            printf("%-20s %10.1f %10llu %10llu %10llu %10llu\n", habits[habit].name,
                   2.0 * rounds * (double) length / seconds / 1e6, after[0] - before[0], after[1] - before[1],
                   after[2] - before[2], after[3] - before[3]);
    }
    for (i = 0; i < kBuffers; i++)
        free(buffers[i]);
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
