/* Modules in the network processor, as NICVM's paper measures them (figures 5 to 9), in microseconds, medians.
 *
 * usage: mpiexec -n 2 modules_bench ping-pong REPETITIONS
 *          half a round trip: of MPI alone; of MPI with modules loaded; there through a module that only
 *          delivers, back by MPI; there and back by a module that returns messages without its host
 *        mpiexec -n N modules_bench broadcast REPETITIONS COMPUTE_US
 *          from the root's call until the last process has the data: by a module over a binary tree, and by
 *          MPI_Bcast; then with all but the root and the last process computing for COMPUTE_US first
 *        mpiexec -n 3 modules_bench abuse REPETITIONS
 *          half a round trip of MPI, of 8 bytes between ranks 0 and 1, while the last rank only waits, computes,
 *          or has modules that go beyond each of their budgets, one after the other
 */
#include <ch3_offload_modules.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 65536
#define SKIPPED 20

static int rank, size, repetitions;
static ch3_offload_modules_t *modules;
static char bytes[MOST];
static double *times;

static void stop(const char *what)
{
    fprintf(stderr, "modules_bench: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void load(const char *name, const char *text)
{
    char problem[CH3_OFFLOAD_MODULE_PROBLEM_BYTES];

    if (ch3_offload_module_load(modules, name, text, problem) != MPI_SUCCESS)
        stop(problem);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void send(const char *name, int length, int to, int root)
{
    if (ch3_offload_module_send(modules, name, bytes, length, to, root, 0) != MPI_SUCCESS)
        stop("the message was refused");
}

static void receive(int root)
{
    if (ch3_offload_module_recv(modules, bytes, MOST, root, 0, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        stop(ch3_offload_modules_problem(modules));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

static double quantile(double part)
{
    qsort(times, repetitions, sizeof times[0], by_value);
    return times[(int) (part * repetitions)] * 1e6;
}

static double median(void)
{
    return quantile(0.5);
}

enum { BY_MPI, THROUGH_MODULE, BY_MODULE };

/* At rank 0: half of a round trip. */
static double ping_pong(int way, int length)
{
    int i;

    MPI_Barrier(MPI_COMM_WORLD);
    for (i = -SKIPPED; i < repetitions; i++) {
        double begin = MPI_Wtime();
        if (rank == 0) {
            if (way == BY_MPI)
                MPI_Send(bytes, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            else
                send(way == THROUGH_MODULE ? "deliver" : "echo", length, 1, 0);
            if (way == BY_MODULE)
                receive(0);
            else
                MPI_Recv(bytes, MOST, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (way != BY_MODULE) {
            if (way == BY_MPI)
                MPI_Recv(bytes, MOST, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                receive(0);
            MPI_Send(bytes, length, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
        if (i >= 0)
            times[i] = (MPI_Wtime() - begin) / 2;
    }
    /* Who has no part in it waits as one does who waits for something else. */
    MPI_Barrier(MPI_COMM_WORLD);
    return median();
}

static void ping_pongs(void)
{
    static const int lengths[] = { 1, 8, 128, 1024, 4096, 65536 };
    double without[6], with[6];
    int i;

    for (i = 0; i < 6; i++)
        without[i] = ping_pong(BY_MPI, lengths[i]);
    load("deliver", "function on_message(m) m:deliver() end");
    load("echo", "function on_message(m) if rank == m.root then m:deliver() else m:send(m.root) end end");
    for (i = 0; i < 6; i++)
        with[i] = ping_pong(BY_MPI, lengths[i]);
    if (rank == 0)
        printf("%8s %10s %10s %10s %10s\n", "bytes", "MPI", "loaded", "no-op", "echo");
    for (i = 0; i < 6; i++) {
        double through = ping_pong(THROUGH_MODULE, lengths[i]);
        double echo = ping_pong(BY_MODULE, lengths[i]);
        if (rank == 0)
            printf("%8d %10.2f %10.2f %10.2f %10.2f\n", lengths[i], without[i], with[i], through, echo);
    }
}

static void compute(double microseconds)
{
    double end = MPI_Wtime() + microseconds * 1e-6;
    while (MPI_Wtime() < end)
        continue;
}

/* At rank 0, the root: until it hears that the last process has the data. */
static double broadcast(int by_module, int length, double compute_us)
{
    int i, last = size - 1;

    for (i = -SKIPPED; i < repetitions; i++) {
        double begin;
        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        if (rank != 0 && rank != last)
            compute(compute_us);
        if (!by_module)
            MPI_Bcast(bytes, length, MPI_BYTE, 0, MPI_COMM_WORLD);
        else if (rank == 0)
            send("broadcast", length, 0, 0);
        else
            receive(0);
        if (rank == last)
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (i >= 0)
            times[i] = MPI_Wtime() - begin;
    }
    return median();
}

static void broadcasts(double compute_us)
{
    static const int lengths[] = { 32, 1024, 4096 };
    int i;

    load("broadcast",
         "function on_message(m) for _, child in ipairs(tree.children(m.root, 2)) do m:send(child) end "
         "if rank ~= m.root then m:deliver() end end");
    if (rank == 0)
        printf("%8s %12s %12s %12s %12s\n", "bytes", "module", "MPI_Bcast", "module, c.", "Bcast, c.");
    for (i = 0; i < 3; i++) {
        double module = broadcast(1, lengths[i], 0), mpi = broadcast(0, lengths[i], 0);
        double module_beside = broadcast(1, lengths[i], compute_us), mpi_beside = broadcast(0, lengths[i], compute_us);
        if (rank == 0)
            printf("%8d %12.2f %12.2f %12.2f %12.2f\n", lengths[i], module, mpi, module_beside, mpi_beside);
    }
}

/* Text NULL: no module. Without a budget to exceed, a module works as long as there are messages for it. */
static const struct {
    const char *name, *text;
} abuses[] = {
    { "nothing", NULL },
    { "computes", NULL },
    { "endless loop", "function on_message() while true do end end" },
    { "work inside of C",
      "local t = {} for i = 1, 10000 do t[i .. ''] = 1 end for k in pairs(t) do t[k] = nil end "
      "function on_message() while true do next(t) end end" },
    { "memory", "function on_message() local s = 'x' while true do s = s .. s end end" },
    { "messages it keeps", "all = {} function on_message() while true do all[#all + 1] = new(1048576) end end" },
    { "sends", "function on_message(m) while true do m:send(rank) end end" },
    { "error", "function on_message() error('on purpose') end" },
    { "sends to itself", "function on_message(m) m:send(rank) end" },
};
#define ABUSES (int) (sizeof abuses / sizeof abuses[0])
#define COMPUTES 1
#define SENDS_TO_ITSELF (ABUSES - 1)

static int is_over(MPI_Request *request)
{
    int is;
    MPI_Test(request, &is, MPI_STATUS_IGNORE);
    return is;
}

/* At the last rank, until rank 0 has what it wants. Returns how often the module was stopped. */
static int abuse(int which, ch3_offload_modules_t *own)
{
    int stops = 0;
    MPI_Request over;

    MPI_Irecv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &over);
    if (abuses[which].text == NULL) {
        while (which == COMPUTES && !is_over(&over))
            compute(1000);
        MPI_Wait(&over, MPI_STATUS_IGNORE);
        return 0;
    }
    do {
        char problem[CH3_OFFLOAD_MODULE_PROBLEM_BYTES];

        if (ch3_offload_module_load(own, "bad", abuses[which].text, problem) != MPI_SUCCESS)
            stop(problem);
        if (ch3_offload_module_send(own, "bad", bytes, 8, 0, 0, 0) != MPI_SUCCESS)
            stop("the message was refused");
        if (which == SENDS_TO_ITSELF)
            MPI_Wait(&over, MPI_STATUS_IGNORE);
        else if (ch3_offload_module_recv(own, bytes, MOST, 0, 0, MPI_STATUS_IGNORE) == MPI_ERR_OTHER)
            stops++;
        else
            stop("a module that goes beyond its budget was not stopped");
    } while (!is_over(&over));
    ch3_offload_module_remove(own, "bad");
    return stops;
}

static void abuses_beside_ping_pong(void)
{
    ch3_offload_modules_t *own;
    int which, i;

    if (ch3_offload_modules_open(MPI_COMM_SELF, &own) != MPI_SUCCESS)
        stop("no modules");
    if (rank == 0)
        printf("%-18s %8s %10s %10s %10s %10s\n", "the last rank", "stops", "median", "99 %", "99.9 %", "longest");
    for (which = 0; which < ABUSES; which++) {
        int stops = 0;

        MPI_Barrier(MPI_COMM_WORLD);
        for (i = -SKIPPED; i < repetitions && rank < 2; i++) {
            double begin = MPI_Wtime();
            if (rank == 0)
                MPI_Send(bytes, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(bytes, 8, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(bytes, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            if (i >= 0)
                times[i] = (MPI_Wtime() - begin) / 2;
        }
        if (rank == size - 1) {
            stops = abuse(which, own);
            MPI_Send(&stops, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
        } else if (rank == 0) {
            MPI_Send(NULL, 0, MPI_BYTE, size - 1, 2, MPI_COMM_WORLD);
            MPI_Recv(&stops, 1, MPI_INT, size - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            printf("%-18s %8d", abuses[which].name, stops);
            printf(" %10.2f %10.2f %10.2f", median(), quantile(0.99), quantile(0.999));
            printf(" %10.2f\n", times[repetitions - 1] * 1e6);
        }
    }
    ch3_offload_modules_close(&own);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    repetitions = argc > 2 ? atoi(argv[2]) : 0;
    if (repetitions < 1 || size < (strcmp(argv[1], "abuse") == 0 ? 3 : 2))
        stop("usage: modules_bench ping-pong REPETITIONS | broadcast REPETITIONS COMPUTE_US, with 2 ranks or more; "
             "or abuse REPETITIONS, with 3");
    times = malloc(repetitions * sizeof times[0]);
    if (times == NULL || ch3_offload_modules_open(MPI_COMM_WORLD, &modules) != MPI_SUCCESS)
        stop("no modules");
    if (strcmp(argv[1], "ping-pong") == 0)
        ping_pongs();
    else if (strcmp(argv[1], "abuse") == 0)
        abuses_beside_ping_pong();
    else
        broadcasts(argc > 3 ? atof(argv[3]) : 5000);
    ch3_offload_modules_close(&modules);
    MPI_Finalize();
    free(times);
    return 0;
}
