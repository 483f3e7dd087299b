/* For programs of test/lab and test/faults, to which a script talks by files in a directory. */
#include <mpi.h>

#include <stdio.h>
#include <unistd.h>

/* Begins a file, for whole lines. Ends the job if it cannot. */
static inline FILE *create(const char *directory, const char *name)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    setlinebuf(file);
    return file;
}

/* Begins the file rankN. */
static inline FILE *create_own(const char *directory, int rank)
{
    char name[16];

    snprintf(name, sizeof name, "rank%d", rank);
    return create(directory, name);
}

static inline int is_there(const char *directory, const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}
