/* For test/lab/two-nodes: rank 1 kills itself while rank 0 waits for it in MPI_Recv. If argv[2] is "fork",
 * it has forked a child, which lives on and holds what it has inherited until the file argv[1]/over is
 * there.
 *
 * Rank 0 writes "error PROC_FAILED after MS ms" to argv[1]/rank0, and rank 1 "killed" to argv[1]/rank1. The
 * child writes "child PID: uverbs MAPPINGS mapped, DESCRIPTORS open" to argv[1]/child before its parent
 * ends. */
#include "told_by_files.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int uverbs_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int count = 0;

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "uverbs") != NULL;
    fclose(maps);
    return count;
}

static int uverbs_open(void)
{
    DIR *descriptors = opendir("/proc/self/fd");
    struct dirent *entry;
    char path[300], target[4096];
    int count = 0;

    while (descriptors != NULL && (entry = readdir(descriptors)) != NULL) {
        ssize_t length;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = '\0';
        count += strstr(target, "uverbs") != NULL || strstr(target, "infinibandevent") != NULL;
    }
    closedir(descriptors);
    return count;
}

/* Does not return. */
static void live_on(const char *directory, int tell)
{
    FILE *words = create(directory, "child");
    int i;

    fprintf(words, "child %d: uverbs %d mapped, %d open\n", (int) getpid(), uverbs_mapped(), uverbs_open());
    if (write(tell, "", 1) != 1)
        _exit(1);
    for (i = 0; i < 600 && !is_there(directory, "over"); i++)
        usleep(100000);
    _exit(0);
}

int main(int argc, char **argv)
{
    int rank, error, class, number = 0, told[2];
    const char *directory = argc > 1 ? argv[1] : ".";
    double begin;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1) {
        char byte;
        if (MPI_Sendrecv(&number, 1, MPI_INT, 0, 0, &number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE) != MPI_SUCCESS)
            _exit(4);
        if (argc > 2 && strcmp(argv[2], "fork") == 0) {
            if (pipe(told) != 0)
                MPI_Abort(MPI_COMM_WORLD, 2);
            if (fork() == 0)
                live_on(directory, told[1]);
            if (read(told[0], &byte, 1) != 1)
                MPI_Abort(MPI_COMM_WORLD, 2);
        }
        fprintf(create(directory, "rank1"), "killed\n");
        kill(getpid(), SIGKILL);
    }
    if (rank == 0) {
        FILE *words = create(directory, "rank0");
        if (MPI_Sendrecv(&number, 1, MPI_INT, 1, 0, &number, 1, MPI_INT, 1, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE) != MPI_SUCCESS)
            _exit(4);
        begin = MPI_Wtime();
        error = MPI_Recv(&number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Error_class(error, &class);
        fprintf(words, "error %s after %.0f ms\n",
                class == MPIX_ERR_PROC_FAILED ? "PROC_FAILED" : "of another class",
                (MPI_Wtime() - begin) * 1e3);
    }
    _exit(3);   /* MPI_Finalize is collective, and one rank is gone */
}
