/* For test/faults/run: the kernel refuses others copies from and to the memory of ranks.
 *
 *   secret  in each driver: the memory of messages, of windows, and of what operations on windows read and
 *           write is memfd_secret, which the kernel copies for nobody, as memory of a device. All bytes
 *           arrive.
 *
 * With the process driver, as a user whom the kernel can refuse something: the ranks make themselves
 * undumpable (PR_SET_DUMPABLE), as libraries that handle keys do.
 *
 *   late    in the middle of the job, first rank 1, then all: messages, and operations on windows of each
 *           kind, made before and after. All bytes arrive.
 *   crowd   before MPI_Init: more receives, sends and blocks of MPI_Alloc_mem at once than a client can share
 *           files for with its processor. Then without descriptors, so that it shares no more memory.
 *
 * Rank 0 says "well", or "skipped: WHY". */
#define _GNU_SOURCE
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

enum { kLongest = 200000, kBuffer = kLongest + 64, kWindows = 4 };
enum { kCrowd = 130, kBlocks = 300, kCrowdBytes = 100000 };

static int rank, size, next, previous;
static const char *phase = "at the start";

static void stop(const char *what, long detail)
{
    fprintf(stderr, "refused: rank %d, %s: %s (%ld)\n", rank, phase, what, detail);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void fill(void *memory, int length, int seed)
{
    unsigned char *const bytes = memory;
    for (int i = 0; i < length; i++)
        bytes[i] = (unsigned char) (i * 7 + (i >> 8) + seed * 31);
}

static int is_filled(const void *memory, int length, int seed)
{
    const unsigned char *const bytes = memory;
    for (int i = 0; i < length; i++)
        if (bytes[i] != (unsigned char) (i * 7 + (i >> 8) + seed * 31))
            return 0;
    return 1;
}

/* Whether the kernel lets rank 0 read a word of rank 1. */
static int can_copy(void)
{
    static long word = 1;
    struct { long pid; void *address; } other = { getpid(), &word };
    long seen = 0;
    int can = 0;

    MPI_Bcast(&other, sizeof other, MPI_BYTE, 1, MPI_COMM_WORLD);
    if (rank == 0) {
        struct iovec here = { &seen, sizeof seen }, there = { other.address, sizeof seen };
        can = process_vm_readv((pid_t) other.pid, &here, 1, &there, 1, 0) > 0;
    }
    MPI_Bcast(&can, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return can;
}

/* ---- late ---- */

static void exchange_messages(char *sent, char *received)
{
    const int lengths[] = { 500, 4096, 100000, kLongest };
    MPI_Datatype pieces;

    for (int i = 0; i < 4; i++) {
        fill(sent, lengths[i], rank + i);
        memset(received, 0, kLongest);
        MPI_Sendrecv(sent, lengths[i], MPI_BYTE, next, i, received, lengths[i], MPI_BYTE, previous, i,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!is_filled(received, lengths[i], previous + i))
            stop("a message came with other bytes", lengths[i]);
    }
    MPI_Type_vector(kLongest / 10000, 5000, 10000, MPI_BYTE, &pieces);
    MPI_Type_commit(&pieces);
    fill(sent, kLongest, rank);
    memset(received, 0, kLongest);
    MPI_Sendrecv(sent, 1, pieces, next, 9, received, 1, pieces, previous, 9, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    fill(sent, kLongest, previous);
    for (int i = 0; i < kLongest; i += 10000)
        if (memcmp(received + i, sent + i, 5000) != 0)
            stop("a message in pieces came with other bytes", i);
    {
        char *const shared = rank == 0 ? sent : received;
        MPI_Request request;

        memset(shared, 0, kLongest);
        if (rank == 0)
            fill(shared, kLongest, 77);
        MPI_Ibcast(shared, kLongest, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (!is_filled(shared, kLongest, 77))
            stop("a broadcast came with other bytes", kLongest);
        memset(shared, 0, kLongest);
        if (rank == 0)
            fill(shared, kLongest, 78);
        MPI_Ibcast(shared, 1, pieces, 0, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank != 0)
            fill(sent, kLongest, 78);
        for (int i = 0; i < kLongest; i += 10000)
            if (memcmp(shared + i, sent + i, 5000) != 0)
                stop("a broadcast in pieces came with other bytes", i);
    }
    MPI_Type_free(&pieces);
}

struct window {
    const char *kind;
    MPI_Win win;
    char *memory;               /* kLongest bytes, and 4 of MPI_LONG */
    MPI_Aint target;            /* the displacement of the next rank's */
};

static void make_windows(struct window *windows)
{
    const MPI_Aint length = kLongest + 4 * sizeof(long);
    MPI_Aint address;

    windows[0].kind = "MPI_Win_allocate";
    MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &windows[0].memory, &windows[0].win);
    windows[1].kind = "MPI_Win_create";
    windows[1].memory = malloc(length);
    MPI_Win_create(windows[1].memory, length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &windows[1].win);
    windows[2].kind = "MPI_Win_create of MPI_Alloc_mem";
    MPI_Alloc_mem(length, MPI_INFO_NULL, &windows[2].memory);
    MPI_Win_create(windows[2].memory, length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &windows[2].win);
    windows[3].kind = "MPI_Win_create_dynamic";
    windows[3].memory = malloc(length);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &windows[3].win);
    MPI_Win_attach(windows[3].win, windows[3].memory, length);
    for (int i = 0; i < kWindows; i++)
        windows[i].target = 0;
    MPI_Get_address(windows[3].memory, &address);
    MPI_Sendrecv(&address, 1, MPI_AINT, previous, 0, &windows[3].target, 1, MPI_AINT, next, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void free_windows(struct window *windows)
{
    MPI_Win_detach(windows[3].win, windows[3].memory);
    for (int i = 0; i < kWindows; i++)
        MPI_Win_free(&windows[i].win);
    free(windows[1].memory);
    MPI_Free_mem(windows[2].memory);
    free(windows[3].memory);
}

/* `sent` and `received` have room for some MPI_LONG beyond kLongest bytes. */
static void use_window(const struct window *one, char *sent, char *received)
{
    long *const add = (long *) (sent + kLongest), *const before = (long *) (received + kLongest);
    long *const compare = add + 4, *const swap = add + 5;
    long *const fetched = before + 4, *const swapped = before + 5;
    const MPI_Aint longs = one->target + kLongest;
    const int lengths[] = { 4096, 100000, kLongest };

    for (int i = 0; i < 4; i++)
        add[i] = i == 0 ? rank + 1 : i + 1;
    *fetched = *swapped = -1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, one->win);
    memset(one->memory, 0, kLongest + 4 * sizeof(long));
    MPI_Win_unlock(rank, one->win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        fill(sent, lengths[i], rank + i);
        memset(received, 0, kLongest);
        MPI_Win_lock(MPI_LOCK_SHARED, next, 0, one->win);
        MPI_Put(sent, lengths[i], MPI_BYTE, next, one->target, lengths[i], MPI_BYTE, one->win);
        MPI_Win_flush(next, one->win);
        MPI_Get(received, lengths[i], MPI_BYTE, next, one->target, lengths[i], MPI_BYTE, one->win);
        MPI_Win_unlock(next, one->win);
        if (!is_filled(received, lengths[i], rank + i))
            stop(one->kind, lengths[i]);
    }
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, one->win);
    MPI_Accumulate(add, 4, MPI_LONG, next, longs, 4, MPI_LONG, MPI_SUM, one->win);
    MPI_Get_accumulate(add, 4, MPI_LONG, before, 4, MPI_LONG, next, longs, 4, MPI_LONG, MPI_SUM, one->win);
    MPI_Win_flush(next, one->win);
    MPI_Fetch_and_op(add, fetched, MPI_LONG, next, longs, MPI_SUM, one->win);
    MPI_Win_flush(next, one->win);
    *compare = 3 * add[0];
    *swap = -add[0];
    MPI_Compare_and_swap(swap, compare, swapped, MPI_LONG, next, longs, one->win);
    MPI_Win_unlock(next, one->win);
    if (memcmp(before, add, 4 * sizeof(long)) != 0 || *fetched != 2 * add[0] || *swapped != 3 * add[0])
        stop(one->kind, *fetched);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, one->win);
    memcpy(before, one->memory + kLongest, 4 * sizeof(long));
    if (!is_filled(one->memory, kLongest, previous + 2) || before[0] != -(previous + 1) || before[3] != 8)
        stop(one->kind, before[0]);
    MPI_Win_unlock(rank, one->win);
}

static const char *refuse_late(void)
{
    char *const sent = malloc(kBuffer), *const received = malloc(kBuffer);
    struct window old[kWindows], made[kWindows];

    make_windows(old);
    for (int i = 0; i < 3; i++) {
        phase = i == 0 ? "dumpable" : i == 1 ? "rank 1 is undumpable" : "all are undumpable";
        MPI_Barrier(MPI_COMM_WORLD);
        if ((i == 1 && rank == 1) || i == 2)
            prctl(PR_SET_DUMPABLE, 0);
        MPI_Barrier(MPI_COMM_WORLD);
        if (i == 1 && can_copy())
            return "the kernel refuses this user nothing";
        for (int j = 0; j < kWindows; j++)
            use_window(&old[j], sent, received);
        exchange_messages(sent, received);
        make_windows(made);
        for (int j = 0; j < kWindows; j++)
            use_window(&made[j], sent, received);
        free_windows(made);
    }
    free_windows(old);
    free(sent);
    free(received);
    return NULL;
}

/* ---- secret ---- */

/* NULL: this kernel has none. */
static char *secret_memory(size_t length)
{
    const int file = (int) syscall(SYS_memfd_secret, 0);
    void *memory = MAP_FAILED;

    if (file >= 0 && ftruncate(file, (off_t) length) == 0)
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return memory == MAP_FAILED ? NULL : memory;
}

static const char *use_secret(void)
{
    char *const sent = secret_memory(kBuffer), *const received = secret_memory(kBuffer);
    char *const exposed = secret_memory(kBuffer);
    int has_all = sent != NULL && received != NULL && exposed != NULL;
    struct window made[kWindows];
    struct window one = { "MPI_Win_create of secret memory of rank 1", MPI_WIN_NULL, NULL, 0 };

    MPI_Allreduce(MPI_IN_PLACE, &has_all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!has_all)
        return "no memfd_secret here, or too little of it (RLIMIT_MEMLOCK)";
    phase = "secret memory";
    exchange_messages(sent, received);
    make_windows(made);
    for (int i = 0; i < kWindows; i++)
        use_window(&made[i], sent, received);
    free_windows(made);
    one.memory = rank == 1 ? exposed : malloc(kBuffer);
    MPI_Win_create(one.memory, kBuffer, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &one.win);
    use_window(&one, sent, received);
    MPI_Win_free(&one.win);
    return NULL;
}

/* ---- crowd ---- */

static void exchange_at_once(int length)
{
    static MPI_Request requests[2 * kCrowd];
    static char *sent[kCrowd], *received[kCrowd];

    for (int i = 0; i < kCrowd; i++) {
        sent[i] = malloc(length);
        received[i] = calloc(length, 1);
        fill(sent[i], length, rank + i);
        MPI_Irecv(received[i], length, MPI_BYTE, previous, i, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kCrowd; i++)
        MPI_Isend(sent[i], length, MPI_BYTE, next, i, MPI_COMM_WORLD, &requests[kCrowd + i]);
    MPI_Waitall(2 * kCrowd, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kCrowd; i++) {
        if (!is_filled(received[i], length, previous + i))
            stop("a message came with other bytes", i);
        free(sent[i]);
        free(received[i]);
    }
}

static void exchange_blocks(void)
{
    static char *blocks[kBlocks], received[kCrowdBytes];

    for (int i = 0; i < kBlocks; i++) {
        MPI_Alloc_mem(kCrowdBytes, MPI_INFO_NULL, &blocks[i]);
        fill(blocks[i], kCrowdBytes, rank + i);
    }
    for (int i = 0; i < kBlocks; i += 10) {
        MPI_Sendrecv(blocks[i], kCrowdBytes, MPI_BYTE, next, 0, received, kCrowdBytes, MPI_BYTE, previous, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!is_filled(received, kCrowdBytes, previous + i))
            stop("a block came with other bytes", i);
    }
    for (int i = 0; i < kBlocks; i++)
        MPI_Free_mem(blocks[i]);
}

static const char *exchange_crowd(void)
{
    struct rlimit none;

    if (can_copy())
        return "the kernel refuses this user nothing";
    exchange_at_once(kCrowdBytes);
    exchange_blocks();
    phase = "without descriptors";
    none.rlim_cur = none.rlim_max = dup(0);
    if (setrlimit(RLIMIT_NOFILE, &none) != 0)
        stop("setrlimit", (long) none.rlim_cur);
    close((int) none.rlim_cur);
    while (dup(0) >= 0)
        continue;
    exchange_at_once(kLongest);
    exchange_blocks();
    return NULL;
}

int main(int argc, char **argv)
{
    const char *const what = argc > 1 ? argv[1] : "late";
    const int is_crowd = strcmp(what, "crowd") == 0;
    const char *why;

    if (is_crowd)
        prctl(PR_SET_DUMPABLE, 0);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    why = is_crowd ? exchange_crowd() : strcmp(what, "secret") == 0 ? use_secret() : refuse_late();
    if (rank == 0)
        printf(why == NULL ? "well\n" : "skipped: %s\n", why);
    fflush(stdout);
    if (why == NULL)
        MPI_Finalize();
    _exit(0);
}
