/* MPI that begins and ends several times in one process: sessions (MPI 4.0, section 11.3), with and without
 * MPI_Init, and the tools interface (chapter 15) before, between and after.
 *
 * Usage: sessions PART
 *   rounds      sessions one after the other, around MPI_Init and MPI_Finalize too, with traffic in each: they leave
 *               no descriptor, mapping or thread behind
 *   nested      sessions in each other and beside MPI_COMM_WORLD
 *   tools       MPI_T in any order with MPI
 *   leaves      a child of fork() exits, and its parent goes on
 *   finalized   without a session, a process may end by _exit() after MPI_Finalize
 *   late        and can open none any more: the job ends
 */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "over_mpi.h"

enum { LONG_BYTES = 1 << 20, TAG = 3 };

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    if (directory == NULL)
        fail("no %s", path);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static int count_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    int count = 0, c;

    if (file == NULL)
        fail("no %s", path);
    while ((c = getc(file)) != EOF)
        count += c == '\n';
    fclose(file);
    return count;
}

/* Messages, collectives and a window among all processes of comm. */
static void communicate(MPI_Comm comm, uint32_t seed)
{
    int me, all, sum, from, to, i;
    char *sent = allocate(LONG_BYTES), *received = allocate(LONG_BYTES);
    int *memory;
    MPI_Win win;
    MPI_Request request;

    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &all);
    to = (me + 1) % all;
    from = (me + all - 1) % all;
    for (i = 8; i <= LONG_BYTES; i *= 8) {
        fill(sent, (size_t) i, seed + (uint32_t) me);
        MPI_Irecv(received, i, MPI_BYTE, from, TAG, comm, &request);
        MPI_Send(sent, i, MPI_BYTE, to, TAG, comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(received, (size_t) i, seed + (uint32_t) from, "a message");
    }
    MPI_Iallreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (sum != all * (all - 1) / 2)
        fail("a sum of %d", sum);
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &memory, &win);
    *memory = 0;
    MPI_Win_fence(0, win);
    MPI_Accumulate(&me, 1, MPI_INT, to, 0, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    if (*memory != from)
        fail("a window with %d", *memory);
    MPI_Win_free(&win);
    MPI_Barrier(comm);
    free(sent);
    free(received);
}

static MPI_Session open_session(MPI_Comm * comm)
{
    MPI_Session session;
    MPI_Group group;

    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, comm);
    MPI_Group_free(&group);
    return session;
}

static void close_session(MPI_Session * session, MPI_Comm * comm)
{
    MPI_Comm_free(comm);
    MPI_Session_finalize(session);
}

static void one_session(uint32_t seed)
{
    MPI_Comm comm;
    MPI_Session session = open_session(&comm);

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    communicate(comm, seed);
    close_session(&session, &comm);
}

static void rounds(void)
{
    const int count = is_long() ? 200 : 32;     /* More than the 28 that MPICH bears without the graft. */
    int i, descriptors = 0, mappings = 0, threads = 0;

    for (i = 0; i < count; i++) {
        snprintf(doing, sizeof doing, "session %d", i);
        if (i == 1) {
            MPI_Init(NULL, NULL);
            communicate(MPI_COMM_WORLD, (uint32_t) i);
            MPI_Finalize();
        } else {
            one_session((uint32_t) i);
        }
        if (i == 3) {
            descriptors = count_entries("/proc/self/fd");
            threads = count_entries("/proc/self/task");
            mappings = count_lines("/proc/self/maps");
        }
    }
    if (count_entries("/proc/self/fd") > descriptors)
        fail("%d descriptors, and %d after the fourth", count_entries("/proc/self/fd"), descriptors);
    if (count_entries("/proc/self/task") > threads)
        fail("%d threads, and %d after the fourth", count_entries("/proc/self/task"), threads);
    /* The heap may have grown; that of AddressSanitizer always does. */
    if (getenv("CH3_OFFLOAD_SANITIZED") == NULL && count_lines("/proc/self/maps") > mappings + 4)
        fail("%d mappings, and %d after the fourth", count_lines("/proc/self/maps"), mappings);
}

static void nested(void)
{
    MPI_Session outer, inner;
    MPI_Comm outer_comm, inner_comm;

    outer = open_session(&outer_comm);
    MPI_Comm_rank(outer_comm, &rank);
    MPI_Comm_size(outer_comm, &size);
    MPI_Init(NULL, NULL);
    inner = open_session(&inner_comm);
    communicate(outer_comm, 1);
    communicate(MPI_COMM_WORLD, 2);
    communicate(inner_comm, 3);
    close_session(&outer, &outer_comm);
    communicate(MPI_COMM_WORLD, 4);
    MPI_Finalize();
    communicate(inner_comm, 5);
    close_session(&inner, &inner_comm);
    one_session(6);
}

/* ---- tools ---- */

static int tools_level;

static void begin_tools(void)
{
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &tools_level) != MPI_SUCCESS)
        fail("no MPI_T");
}

/* Reads all control variables; returns how many have ch3_offload in their name. */
static int read_controls(void)
{
    int count, i, ours = 0;

    MPI_T_cvar_get_num(&count);
    for (i = 0; i < count; i++) {
        char name[200], value[1000];
        int name_length = sizeof name, verbosity, bind, scope, length;
        MPI_Datatype type;
        MPI_T_cvar_handle handle;

        if (MPI_T_cvar_get_info(i, name, &name_length, &verbosity, &type, NULL, NULL, NULL, &bind, &scope) !=
            MPI_SUCCESS)
            fail("no control variable %d", i);
        if (MPI_T_cvar_handle_alloc(i, NULL, &handle, &length) != MPI_SUCCESS || length > 1000)
            fail("no handle of %s", name);
        MPI_T_cvar_read(handle, value);
        if (type == MPI_CHAR && strnlen(value, sizeof value) == sizeof value)
            fail("%s has no end", name);
        MPI_T_cvar_handle_free(&handle);
        ours += strstr(name, "CH3_OFFLOAD") != NULL;
    }
    return ours;
}

/* Reads the performance variable of that name. -1: there is none. */
static long read_variable(const char *wanted)
{
    int count, i;

    MPI_T_pvar_get_num(&count);
    for (i = 0; i < count; i++) {
        char name[200];
        int length = sizeof name, verbosity, class, bind, readonly, continuous, atomic, elements;
        unsigned long long value = 0;
        MPI_Datatype type;
        MPI_T_pvar_session session;
        MPI_T_pvar_handle handle;

        MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, NULL, NULL, NULL, &bind, &readonly,
                            &continuous, &atomic);
        if (strcmp(name, wanted) != 0)
            continue;
        MPI_T_pvar_session_create(&session);
        MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &elements);
        MPI_T_pvar_read(session, handle, &value);
        MPI_T_pvar_handle_free(session, &handle);
        MPI_T_pvar_session_free(&session);
        return (long) value;
    }
    return -1;
}

static void tools(void)
{
    static const char variable[] = "ch3_offload_sent_buffered";
    int ours, i;
    long before;

    for (i = 0; i < 2; i++) {   /* without MPI */
        begin_tools();
        if (read_controls() == 0)
            fail("no control variables of ch3:offload before MPI");
        MPI_T_finalize();
    }
    one_session(1);
    begin_tools();
    ours = read_controls();
    before = read_variable(variable);
    if (before < 0)
        fail("no variable %s after a session", variable);
    one_session(2);
    if (read_controls() != ours)
        fail("other control variables after a second session");
    MPI_Init(NULL, NULL);
    communicate(MPI_COMM_WORLD, 3);
    if (read_variable(variable) < 0)
        fail("no variable %s in MPI", variable);
    MPI_T_finalize();
    communicate(MPI_COMM_WORLD, 4);
    begin_tools();
    MPI_Finalize();
    if (read_controls() != ours || read_variable(variable) < 0)
        fail("other variables after MPI_Finalize");
    one_session(5);
    MPI_T_finalize();
    one_session(6);
    begin_tools();
    if (read_controls() != ours)
        fail("other control variables at the end");
    MPI_T_finalize();
}

/* ---- leaves ---- */

static void leaves(void)
{
    pid_t child;
    int status = 0;

    one_session(1);
    child = fork();
    if (child == 0)
        exit(0);                /* its parent is still known to the process manager */
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fail("a child of fork() ended with %d", status);
    one_session(2);
}

static void finalized(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    communicate(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    printf("done\n");
    fflush(stdout);
    if (rank != 0)
        usleep(300000);
    _exit(0);
}

static void late(void)
{
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    one_session(1);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = {
        {"rounds", rounds}, {"nested", nested}, {"tools", tools}, {"leaves", leaves},
        {"finalized", finalized}, {"late", late}
    };
    size_t i;

    for (i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        if (argc == 2 && strcmp(argv[1], programs[i].name) == 0) {
            snprintf(doing, sizeof doing, "%s", argv[1]);
            programs[i].run();
            printf("done\n");
            return 0;
        }
    }
    fprintf(stderr, "usage: %s PROGRAM\n", argv[0]);
    return 2;
}
