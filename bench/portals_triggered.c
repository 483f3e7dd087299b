/* A barrier and a broadcast of triggered operations over a binary tree: once begun, no rank takes part in them with
 * a call. The ranks that have children compute for a while meanwhile. MPI starts the ranks and passes on their ids.
 * All data is checked. usage() says what is measured.
 */

#include <mpi.h>
#include <portals4.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostRounds = 10000, kUp = 0, kDown = 1, kData = 2, kTables = 3 };

static int rank, size, is_one_node;
static ptl_handle_ni_t interface;
static ptl_pt_index_t tables[kTables];
static ptl_handle_ct_t counters[kTables];
static ptl_handle_md_t nothing, data;
static ptl_process_t *ids;
static unsigned char *buffer;
static size_t bytes = 65536;
static long long errors = 0;
static double samples[kMostRounds];

static void usage(FILE *to)
{
    fputs("usage: mpiexec -n N portals_triggered [options]      N: at least 2\n"
          "\n"
          "A barrier and a broadcast of triggered operations over a binary tree. For each, the median and the\n"
          "greatest time from the moment at which the last rank has begun to the moment at which the last\n"
          "leaf has seen the end: once while nobody computes, and once while the ranks with children do.\n"
          "\"early\" counts the rounds that ended before that work did. A dash: the ranks are on several\n"
          "nodes, whose clocks differ.\n"
          "\n"
          "  -rounds N  of each measurement, up to 10000 (default 100)\n"
          "  -bytes B   of the broadcast, 1 to 67108864 (default 65536)\n"
          "  -work MS   how long the ranks with children compute (default 20)\n"
          "  -help      this text\n", to);
}

static void must(int code, const char *call)
{
    if (code == PTL_OK)
        return;
    fprintf(stderr, "portals_triggered: rank %d: %s returned %d\n", rank, call, code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define MUST(call) must(call, #call)

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double) now.tv_sec + 1e-3 * (double) now.tv_nsec;
}

static int parent(void)
{
    return (rank - 1) / 2;
}

static int child(int which)
{
    return 2 * rank + 1 + which;
}

static int children(void)
{
    return (child(0) < size) + (child(1) < size);
}

static void set_up(void)
{
    ptl_process_t mine;
    ptl_md_t descriptor;

    MUST(PtlInit());
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &interface));
    memset(&mine, 0, sizeof mine);
    MUST(PtlGetPhysId(interface, &mine));
    ids = calloc((size_t) size, sizeof *ids);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ids, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    buffer = calloc(1, bytes);
    for (int i = 0; i < kTables; i++) {
        ptl_le_t entry;
        ptl_handle_le_t handle;
        MUST(PtlCTAlloc(interface, &counters[i]));
        MUST(PtlPTAlloc(interface, 0, PTL_EQ_NONE, (ptl_pt_index_t) i, &tables[i]));
        memset(&entry, 0, sizeof entry);
        entry.start = i == kData ? buffer : NULL;
        entry.length = i == kData ? bytes : 0;
        entry.ct_handle = counters[i];
        entry.uid = PTL_UID_ANY;
        entry.options = PTL_LE_OP_PUT | PTL_LE_EVENT_CT_COMM;
        MUST(PtlLEAppend(interface, tables[i], &entry, PTL_PRIORITY_LIST, NULL, &handle));
    }
    memset(&descriptor, 0, sizeof descriptor);
    descriptor.eq_handle = PTL_EQ_NONE;
    descriptor.ct_handle = PTL_CT_NONE;
    MUST(PtlMDBind(interface, &descriptor, &nothing));
    descriptor.start = buffer;
    descriptor.length = bytes;
    MUST(PtlMDBind(interface, &descriptor, &data));
}

/* `round` counts from 1. The puts of the round wait for this rank's counters. */
static void prepare_barrier(int round)
{
    ptl_size_t arrived = (ptl_size_t) round * (ptl_size_t) (children() + 1);

    if (rank > 0)
        MUST(PtlTriggeredPut(nothing, 0, 0, PTL_NO_ACK_REQ, ids[parent()], kUp, 0, 0, NULL, 0, counters[kUp], arrived));
    for (int i = 0; i < children(); i++)
        MUST(PtlTriggeredPut(nothing, 0, 0, PTL_NO_ACK_REQ, ids[child(i)], kDown, 0, 0, NULL, 0,
                             counters[rank > 0 ? kDown : kUp], rank > 0 ? (ptl_size_t) round : arrived));
}

static void begin_barrier(void)
{
    ptl_ct_event_t one = {.success = 1, .failure = 0};
    MUST(PtlCTInc(counters[kUp], one));
}

static void end_barrier(int round)
{
    ptl_ct_event_t event;
    MUST(PtlCTWait(counters[rank > 0 ? kDown : kUp],
                   rank > 0 ? (ptl_size_t) round : (ptl_size_t) round * (ptl_size_t) (children() + 1), &event));
}

static void prepare_broadcast(int round)
{
    for (int i = 0; rank > 0 && i < children(); i++)
        MUST(PtlTriggeredPut(data, 0, bytes, PTL_NO_ACK_REQ, ids[child(i)], kData, 0, 0, NULL, 0, counters[kData],
                             (ptl_size_t) round));
}

static void begin_broadcast(int round)
{
    if (rank > 0)
        return;
    memset(buffer, round & 0xff, bytes);
    for (int i = 0; i < children(); i++)
        MUST(PtlPut(data, 0, bytes, PTL_NO_ACK_REQ, ids[child(i)], kData, 0, 0, NULL, 0));
}

static void end_broadcast(int round)
{
    ptl_ct_event_t event;
    if (rank == 0)
        return;
    MUST(PtlCTWait(counters[kData], (ptl_size_t) round, &event));
    for (size_t i = 0; i < bytes; i += bytes / 16 + 1)
        errors += buffer[i] != (round & 0xff);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* Rounds first + 1 .. first + count. */
static void run(const char *name, int is_barrier, int first, int count, double work_us)
{
    int early = 0;

    for (int i = 0; i < count; i++) {
        int round = first + i + 1;
        double begun, last_begun, ended, last_ended, worked;
        if (is_barrier)
            prepare_barrier(round);
        else
            prepare_broadcast(round);
        MPI_Barrier(MPI_COMM_WORLD);
        begun = now_us();
        if (is_barrier)
            begin_barrier();
        else
            begin_broadcast(round);
        if (children() > 0) {
            while (now_us() < begun + work_us)
                sched_yield();  /* Whoever has fewer cores than ranks lets the others run. */
        }
        worked = now_us();
        if (is_barrier)
            end_barrier(round);
        else
            end_broadcast(round);
        ended = children() > 0 ? 0 : now_us();
        MPI_Allreduce(&begun, &last_begun, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        MPI_Allreduce(&ended, &last_ended, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, &worked, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
        samples[i] = last_ended - last_begun;
        early += last_ended < last_begun + work_us;
    }
    if (rank > 0)
        return;
    printf("%-10s %6d %11.0f %7d", name, size, work_us, count);
    if (!is_one_node) {
        printf(" %13s %15s %6s\n", "-", "-", "-");
        return;
    }
    qsort(samples, (size_t) count, sizeof *samples, by_size);
    printf(" %13.1f %15.1f %6d\n", samples[count / 2], samples[count - 1], early);
}

int main(int argc, char **argv)
{
    int rounds = 100, on_node;
    double work_ms = 20;
    MPI_Comm node;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "-help") == 0 || strcmp(argv[1], "--help") == 0)) {
        if (rank == 0)
            usage(stdout);
        MPI_Finalize();
        return 0;
    }
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "-rounds") == 0)
            rounds = atoi(value);
        else if (strcmp(argv[i], "-bytes") == 0)
            bytes = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "-work") == 0)
            work_ms = atof(value);
        else
            rounds = 0;
    }
    if (rounds < 1 || rounds > kMostRounds || bytes < 1 || bytes > 1 << 26 || size < 2) {
        if (rank == 0)
            usage(stderr);
        MPI_Finalize();
        return 2;
    }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &on_node);
    MPI_Comm_free(&node);
    is_one_node = on_node == size;
    set_up();
    if (rank == 0)
        printf("%-10s %6s %11s %7s %13s %15s %6s\n", "operation", "ranks", "work[usec]", "rounds", "median[usec]",
               "greatest[usec]", "early");
    MPI_Barrier(MPI_COMM_WORLD);
    run("barrier", 1, 0, rounds, 0);
    run("barrier", 1, rounds, rounds, 1000 * work_ms);
    run("broadcast", 0, 0, rounds, 0);
    run("broadcast", 0, rounds, rounds, 1000 * work_ms);
    MPI_Allreduce(MPI_IN_PLACE, &errors, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("data check: %lld errors\n", errors);
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(PtlNIFini(interface));
    PtlFini();
    MPI_Finalize();
    return rank == 0 && errors > 0;
}
