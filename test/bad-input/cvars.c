/*
 * Settings through MPI_T. usage: cvars VARIABLE VALUE VARIABLE EXPECTED
 *
 * Writes MPIR_CVAR_CH3_OFFLOAD_VARIABLE before MPI_Init. After it, both variables must be read with their values.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES 65536

static MPI_T_cvar_handle handle_of(const char *suffix)
{
    char name[100];
    int index, count;
    MPI_T_cvar_handle handle;

    snprintf(name, sizeof(name), "MPIR_CVAR_CH3_OFFLOAD_%s", suffix);
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS || count > MOST_BYTES) {
        printf("no variable %s\n", name);
        return MPI_T_CVAR_HANDLE_NULL;
    }
    return handle;
}

int main(int argc, char **argv)
{
    static char text[MOST_BYTES];
    int provided, i, errors = 0;

    if (argc != 5)
        return 2;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_cvar_write(handle_of(argv[1]), argv[2]);
    MPI_Init(&argc, &argv);
    for (i = 1; i < 5; i += 2) {
        MPI_T_cvar_read(handle_of(argv[i]), text);
        if (strcmp(text, argv[i + 1]) != 0) {
            printf("%s is %s, not %s\n", argv[i], text, argv[i + 1]);
            errors = 1;
        }
    }
    MPI_Finalize();
    MPI_T_finalize();
    return errors;
}
