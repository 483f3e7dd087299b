/*
 * A packet of CH3's that its receiver cannot take. Rank 0 must lose its sender, rank 1, and nothing else: it
 * talks with rank 2 before, meanwhile and after. Rank 1's calls must return.
 *
 * packet_errors NUMBER   Rank 0 has no memory for the datatype that comes with rank 1's put. What follows, the
 *                        put's data, looks like other packets if it is taken for packets.
 * packet_errors type     The put is of no type that CH3 knows.
 *
 * Each rank that got through prints "done".
 */

#define _GNU_SOURCE
#include <mpi.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 3000, kRounds = 200 };

/* The datatype's description is longer than kBlocks * 8 bytes. Nothing else of that length is allocated
 * meanwhile. */
static volatile int is_refusing, refused;

extern void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
    if (is_refusing && bytes > kBlocks * 8 && bytes < kBlocks * 64) {
        is_refusing = 0;
        refused = 1;
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(bytes);
}

/* What libmpi sends a packet by: this program's comes first. */
static int is_spoiling;

int ch3_offload_send_packet(void *channel, uint32_t peer, const void *header, size_t header_bytes,
                            const void *iov, size_t iov_count, void *cookie, int *status);
int ch3_offload_send_packet(void *channel, uint32_t peer, const void *header, size_t header_bytes,
                            const void *iov, size_t iov_count, void *cookie, int *status)
{
    int (*const next) (void *, uint32_t, const void *, size_t, const void *, size_t, void *, int *) =
        dlsym(RTLD_NEXT, "ch3_offload_send_packet");
    char spoilt[256];

    if (is_spoiling && header_bytes > 0) {
        is_spoiling = 0;
        memcpy(spoilt, header, header_bytes);
        memset(spoilt, 0x77, sizeof(int));      /* the type */
        header = spoilt;
    }
    return next(channel, peer, header, header_bytes, iov, iov_count, cookie, status);
}

#define REQUIRE(condition_)                                                     \
    do {                                                                        \
        if (!(condition_)) {                                                    \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition_);    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                       \
        }                                                                       \
    } while (0)

/* Ranks 0 and 2 send each other numbers. */
static void talk(int rank, int first)
{
    int i;

    for (i = first; i < first + kRounds; i++) {
        int theirs = -1;
        REQUIRE(MPI_Sendrecv(&i, 1, MPI_INT, 2 - rank, 1, &theirs, 1, MPI_INT, 2 - rank, 1, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE) == MPI_SUCCESS);
        REQUIRE(theirs == i);
    }
}

int main(int argc, char **argv)
{
    static int memory[4 * kBlocks];
    int rank, i, provided, word = argc > 1 ? atoi(argv[1]) : 0;
    const int spoils = argc > 1 && strcmp(argv[1], "type") == 0;
    int *places, *data;
    MPI_Datatype blocks;
    MPI_Win win;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    places = malloc(kBlocks * sizeof(int));
    data = malloc(kBlocks * sizeof(int));
    for (i = 0; i < kBlocks; i++) {
        places[i] = 3 * i + i % 2;
        data[i] = word;
    }
    MPI_Type_create_indexed_block(kBlocks, 1, places, MPI_INT, &blocks);
    MPI_Type_commit(&blocks);
    MPI_Win_create(memory, sizeof(memory), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank != 1)
        talk(rank, 0);
    is_refusing = rank == 0 && !spoils; /* the put may come before the barrier returns */
    MPI_Barrier(MPI_COMM_WORLD);

    if (rank == 1) {
        int error;

        MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOCHECK, win);
        is_spoiling = spoils;
        MPI_Put(data, kBlocks, MPI_INT, 0, 0, 1, blocks, win);
        /* Rank 0 closes the connection. */
        error = MPI_Recv(&i, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        REQUIRE(error != MPI_SUCCESS);
    } else {
        if (rank == 0) {
            int error;

            error = MPI_Recv(&i, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            REQUIRE(refused == !spoils && error != MPI_SUCCESS);
            MPI_Error_class(error, &error);
            REQUIRE(error == MPIX_ERR_PROC_FAILED);
        }
        talk(rank, kRounds);
        for (i = 0; i < 4 * kBlocks; i++)
            REQUIRE(memory[i] == 0);
    }
    printf("done\n");
    fflush(stdout);
    /* A rank that has lost another does not get through MPI_Finalize in good order. */
    _Exit(0);
}
