/* Modules in the network processors, from a program of MPI: loading, broadcast, reduction, a counter, what happens
 * when one stops, and that processors work while their processes compute.
 *
 * usage: mpiexec -n N modules PROGRAM
 *   all        2 ranks or more
 *   timers     timers fire while the processes wait
 *   limited    with MODULE_INSTRUCTIONS=1000
 *   refused    with MODULE_SHARE=0
 *   computes   rank 1 of 3 or more does not call MPI while a broadcast passes through its processor */
#include <ch3_offload_modules.h>
#include <unistd.h>

#include "over_mpi.h"

static ch3_offload_modules_t *modules;

#define must(condition) \
    do { \
        if (!(condition)) \
            fail("line %d: %s", __LINE__, #condition); \
    } while (0)

static const char broadcast[] =
    "function on_message(m) for _, child in ipairs(tree.children(m.root, 1)) do m:send(child) end "
    "if rank ~= m.root then m:deliver() end end";
static const char reduce[] =
    "local one = {} function on_message(m) local s = one[m.tag] "
    "if s == nil then s = {left = #tree.knomial_children(m.root, 2), sum = m:keep()} one[m.tag] = s "
    "else s.sum:view('float64'):combine('sum', m:view('float64')) s.left = s.left - 1 end "
    "if s.left > 0 then return end one[m.tag] = nil "
    "local parent = tree.knomial_parent(m.root, 2) "
    "if parent == nil then s.sum:deliver() else s.sum:send(parent) end s.sum:release() end";

static void load(const char *name, const char *text)
{
    char problem[CH3_OFFLOAD_MODULE_PROBLEM_BYTES];

    if (ch3_offload_module_load(modules, name, text, problem) != MPI_SUCCESS)
        fail("%s: %s", name, problem);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void broadcasts(void)
{
    static unsigned char bytes[1 << 20];
    static const int lengths[] = { 0, 1, 64, 1000, 5000, 70000, 1 << 20 };
    int i, j, root;

    load("broadcast", broadcast);
    for (root = 0; root < size; root++)
        for (i = 0; i < (int) (sizeof lengths / sizeof lengths[0]); i++) {
            MPI_Status status;
            int count;
            for (j = 0; j < lengths[i]; j++)
                bytes[j] = (unsigned char) (rank == root ? j * 7 + i + root : 255);
            if (rank == root) {
                must(ch3_offload_module_send(modules, "broadcast", bytes, lengths[i], root, root, i) == MPI_SUCCESS);
                memset(bytes, 0, sizeof bytes);         /* it was copied */
                continue;
            }
            if (root % 2 == 0)
                must(ch3_offload_module_recv(modules, bytes, sizeof bytes, root, i, &status) == MPI_SUCCESS);
            else
                MPI_Recv(bytes, sizeof bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, ch3_offload_modules_comm(modules),
                         &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            must(status.MPI_SOURCE == root && status.MPI_TAG == i && count == lengths[i]);
            for (j = 0; j < count; j++)
                must(bytes[j] == (unsigned char) (j * 7 + i + root));
        }
}

static void reductions(void)
{
    double values[100];
    int tag, i;

    load("reduce", reduce);
    for (tag = 0; tag < 50; tag++) {
        int root = tag % size;
        for (i = 0; i < 100; i++)
            values[i] = rank * tag + i;
        must(ch3_offload_module_send(modules, "reduce", values, sizeof values, rank, root, tag) == MPI_SUCCESS);
    }
    for (tag = 0; tag < 50; tag++) {
        if (rank != tag % size)
            continue;
        must(ch3_offload_module_recv(modules, values, sizeof values, rank, tag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        for (i = 0; i < 100; i++)
            must(values[i] == tag * (size * (size - 1) / 2.0) + (double) size * i);
    }
}

static void wrong_arguments(void)
{
    char problem[CH3_OFFLOAD_MODULE_PROBLEM_BYTES], text[1000], small[4];
    char byte = 0;

    must(ch3_offload_module_load(modules, "wrong", "x = = 1", problem) == MPI_ERR_ARG);
    must(strstr(problem, "wrong:1:") != NULL);
    must(ch3_offload_module_load(modules, "a b", broadcast, problem) == MPI_ERR_ARG);
    must(ch3_offload_module_load(modules, "", broadcast, NULL) == MPI_ERR_ARG);
    must(ch3_offload_module_remove(modules, "nothing") == MPI_ERR_ARG);
    must(ch3_offload_module_send(modules, "broadcast", NULL, 1, 0, 0, 0) == MPI_ERR_ARG);
    must(ch3_offload_module_send(modules, "broadcast", &byte, 1, size, 0, 0) == MPI_ERR_ARG);
    must(ch3_offload_module_send(modules, "broadcast", &byte, 1, 0, -1, 0) == MPI_ERR_ARG);
    must(ch3_offload_module_send(modules, "broadcast", &byte, 1, 0, 0, -1) == MPI_ERR_ARG);
    must(ch3_offload_module_send(modules, "broadcast", &byte, CH3_OFFLOAD_MODULE_MOST_BYTES + 1, 0, 0, 0) ==
           MPI_ERR_ARG);
    must(ch3_offload_modules_open(MPI_COMM_NULL, NULL) == MPI_ERR_ARG);
    must(ch3_offload_module_list(modules, text, sizeof text) == MPI_SUCCESS);
    must(strstr(text, "broadcast\truns\t") != NULL && strstr(text, "reduce\truns\t") != NULL);
    must(ch3_offload_module_list(modules, small, sizeof small) == MPI_SUCCESS && strcmp(small, "bro") == 0);
    must(ch3_offload_module_remove(modules, "reduce") == MPI_SUCCESS);
    must(ch3_offload_module_list(modules, text, sizeof text) == MPI_SUCCESS && strstr(text, "reduce") == NULL);
}

/* Each process that waits for a delivery hears of it. */
static void troubles(void)
{
    char bytes[8];

    load("bad", "function on_message(m) if rank == size - 1 then error('on purpose') end m:send(size - 1) end");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        must(ch3_offload_module_send(modules, "bad", NULL, 0, 0, 0, 0) == MPI_SUCCESS);
    must(ch3_offload_module_recv(modules, bytes, sizeof bytes, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_STATUS_IGNORE) ==
           MPI_ERR_OTHER);
    must(strstr(ch3_offload_modules_problem(modules), "on purpose") != NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    load("bad", "function on_message(m) m:deliver() end");
    must(ch3_offload_module_send(modules, "bad", "1234567", 8, (rank + 1) % size, rank, 1) == MPI_SUCCESS);
    must(ch3_offload_module_recv(modules, bytes, 4, MPI_ANY_SOURCE, 1, MPI_STATUS_IGNORE) == MPI_ERR_TRUNCATE);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Groups of communicators whose ranks are others, beside the group of all. */
static void subgroups(void)
{
    ch3_offload_modules_t *all = modules;
    MPI_Comm half;
    int own, count, value = -1;

    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &own);
    MPI_Comm_size(half, &count);
    must(ch3_offload_modules_open(half, &modules) == MPI_SUCCESS);
    load("pass", "function on_message(m) if rank + 1 < size then m:send(rank + 1) else m:deliver() end end");
    value = rank % 2;
    if (own == 0)
        must(ch3_offload_module_send(modules, "pass", &value, sizeof value, 0, 0, 4) == MPI_SUCCESS);
    value = -1;
    if (own == count - 1) {
        must(ch3_offload_module_recv(modules, &value, sizeof value, 0, 4, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        must(value == rank % 2);
    }
    must(ch3_offload_modules_close(&modules) == MPI_SUCCESS && modules == NULL);
    MPI_Comm_free(&half);
    modules = all;
}

/* From rank 0 through the processor of rank 1, which computes, to rank 2, which then says so without MPI's help of
 * rank 1: rank 1 waits for a file of rank 2's. */
static void computes(void)
{
    const char *path = "modules.passed";
    char byte = 1;
    int i;

    load("broadcast", broadcast);
    if (rank == 1) {
        for (i = 0; i < 6000 && access(path, F_OK) != 0; i++)
            usleep(10000);
        must(access(path, F_OK) == 0);
    }
    if (rank == 0)
        must(ch3_offload_module_send(modules, "broadcast", &byte, 1, 0, 0, 0) == MPI_SUCCESS);
    if (rank > 0)
        must(ch3_offload_module_recv(modules, &byte, 1, 0, 0, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    if (rank == 2) {
        FILE *file = fopen(path, "w");
        must(file != NULL && fclose(file) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2)
        unlink(path);
}

/* Whoever waits may sleep, and is woken by its timer. Each rank's module sends to the next one, five times. */
static void timers(void)
{
    long beats[1];
    int i;

    load("beat", "local n = 0 timer(2) function on_message(m) m:deliver() end function on_timer() n = n + 1 "
         "local m = new(8, 7) m:view('int64')[1] = n m:send((rank + 1) % size) if n < 5 then timer(2) end end");
    for (i = 1; i <= 5; i++) {
        MPI_Status status;
        must(ch3_offload_module_recv(modules, beats, sizeof beats, MPI_ANY_SOURCE, 7, &status) == MPI_SUCCESS);
        must(status.MPI_SOURCE == (rank + size - 1) % size && beats[0] == i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* By MPIR_CVAR_CH3_OFFLOAD_MODULE_INSTRUCTIONS. */
static void limited(void)
{
    char problem[CH3_OFFLOAD_MODULE_PROBLEM_BYTES];

    must(ch3_offload_module_load(modules, "loop", "while true do end", problem) == MPI_ERR_ARG);
    must(strstr(problem, "its 1000 instructions") != NULL);
    must(ch3_offload_module_load(modules, "good", broadcast, problem) == MPI_SUCCESS);
}

/* By MPIR_CVAR_CH3_OFFLOAD_MODULE_SHARE. */
static void refused(void)
{
    char problem[CH3_OFFLOAD_MODULE_PROBLEM_BYTES];

    must(ch3_offload_module_load(modules, "good", broadcast, problem) == MPI_ERR_ARG);
    must(strstr(problem, "MPIR_CVAR_CH3_OFFLOAD_MODULE_SHARE is 0") != NULL);
}

static void with_group(void (*part) (void))
{
    must(ch3_offload_modules_open(MPI_COMM_WORLD, &modules) == MPI_SUCCESS);
    part();
    must(ch3_offload_modules_close(&modules) == MPI_SUCCESS);
}

static void run_timers(void)
{
    with_group(timers);
}

static void run_limited(void)
{
    with_group(limited);
}

static void run_refused(void)
{
    with_group(refused);
}

static void all_parts(void)
{
    broadcasts();
    reductions();
    wrong_arguments();
    subgroups();
    troubles();
}

static void run_all(void)
{
    with_group(all_parts);
}

static void run_computing(void)
{
    with_group(computes);
}

int main(int argc, char **argv)
{
    const program_t programs[] = { {"all", run_all}, {"timers", run_timers}, {"computes", run_computing},
        {"limited", run_limited}, {"refused", run_refused}
    };
    return run_program(argc, argv, programs, 5);
}
