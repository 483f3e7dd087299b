/* For test/over-mpi/run: the rank argv[1] has the driver argv[2] (host, thread, process) of the port, and the
 * two ranks reach each other. */
#include "over_mpi.h"

#include <dirent.h>

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    for (struct dirent *one; tasks != NULL && (one = readdir(tasks)) != NULL;)
        count += one->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Counts what this process has given to a ring. */
static unsigned long long count_commands(void)
{
    unsigned long long commands = 0;
    int provided, index, count;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    if (MPI_T_pvar_get_index("ch3_offload_ring_commands", MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS ||
        MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) != MPI_SUCCESS)
        fail("no counter of commands");
    MPI_T_pvar_read(session, handle, &commands);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    return commands;
}

int main(int argc, char **argv)
{
    int number, other = -1;
    const char *driver;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(doing, sizeof doing, "drivers");
    number = rank;
    MPI_Sendrecv(&number, 1, MPI_INT, 1 - rank, 0, &other, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (other != 1 - rank)
        fail("the message says %d", other);
    driver = count_commands() == 0 ? "host" : count_threads() > 1 ? "thread" : "process";
    if (argc == 3 && rank == atoi(argv[1]) && strcmp(driver, argv[2]) != 0)
        fail("it has the driver '%s' instead of '%s'", driver, argv[2]);
    MPI_Finalize();
    printf("done\n");
    return 0;
}
