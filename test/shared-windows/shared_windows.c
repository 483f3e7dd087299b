/*
 * Windows whose memory the processes of a node share. Each check is called by name, on all ranks, and prints
 * "done" on each of them; see run for the ranks and settings that each takes.
 */

#define _GNU_SOURCE
#include <mpi.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int rank, ranks;

#define REQUIRE(condition_)                                                                     \
    do {                                                                                        \
        if (!(condition_)) {                                                                    \
            fprintf(stderr, "rank %d: line %d: not so: %s\n", rank, __LINE__, #condition_);     \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                       \
        }                                                                                       \
    } while (0)

static int class_of(int error)
{
    int class = MPI_SUCCESS;

    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &class);
    return class;
}

static unsigned char pattern(int owner, MPI_Aint i)
{
    return (unsigned char) (owner * 37 + i * 7 + 1);
}

/* The communicator of a node has that size (0: any), and the order of the keys. */
static void split(int size)
{
    MPI_Comm node, none, world;
    int node_size, node_rank, i;
    int *members = malloc(ranks * sizeof(int));

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &node_size);
    MPI_Comm_rank(node, &node_rank);
    REQUIRE(size == 0 || node_size == size);
    size = node_size;
    MPI_Allgather(&rank, 1, MPI_INT, members, 1, MPI_INT, node);
    REQUIRE(members[node_rank] == rank);
    for (i = 1; i < node_size; i++)
        REQUIRE(members[i] < members[i - 1]);   /* the keys fall as the ranks rise */
    MPI_Comm_free(&node);

    /* Some stay out. */
    MPI_Comm_split_type(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &none);
    REQUIRE((none == MPI_COMM_NULL) == (rank == 0));
    if (rank != 0)
        MPI_Comm_free(&none);

    /* A window of the node's communicator works whatever its size. */
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int *mine, *first, unit;
    MPI_Aint bytes;
    MPI_Win win;
    MPI_Comm_rank(node, &node_rank);
    MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, node, &mine, &win);
    MPI_Win_shared_query(win, 0, &bytes, &unit, &first);
    *mine = node_rank;
    MPI_Win_fence(0, win);
    for (i = 0; i < size; i++)
        REQUIRE(first[i] == i);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Comm_free(&node);

    /* A shared window does not span nodes; an allocated one does. */
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (size < ranks)
        REQUIRE(class_of(MPI_Win_allocate_shared(8, 1, MPI_INFO_NULL, world, &mine, &win)) ==
                MPI_ERR_RMA_SHARED);
    MPI_Win_allocate(ranks * sizeof(int), sizeof(int), MPI_INFO_NULL, world, &mine, &win);
    MPI_Win_fence(0, win);
    for (i = 0; i < ranks; i++)
        MPI_Put(&rank, 1, MPI_INT, i, rank, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (i = 0; i < ranks; i++)
        REQUIRE(mine[i] == i);
    MPI_Win_fence(0, win);
    for (i = 0; i < ranks; i++)
        MPI_Accumulate(&rank, 1, MPI_INT, i, 0, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    REQUIRE(mine[0] == ranks * (ranks - 1) / 2);
    MPI_Win_free(&win);
    MPI_Comm_free(&world);
    free(members);
}

/* Each rank's part holds its pattern, seen by loads of all; sizes differ and some are 0. */
static void layout(int noncontiguous)
{
    static const MPI_Aint sizes[][4] = {
        {1, 5, 4096, 70000}, {0, 13, 0, 1}, {3, 0, 0, 0}, {0, 0, 0, 9}, {0, 0, 0, 0}
    };
    MPI_Info info;
    int c, i;

    MPI_Info_create(&info);
    if (noncontiguous)
        MPI_Info_set(info, "alloc_shared_noncontig", "true");
    for (c = 0; c < (int) (sizeof(sizes) / sizeof(sizes[0])); c++) {
        unsigned char *mine, *part, *next = NULL, *query;
        MPI_Aint bytes, k;
        int unit, first = -1;
        MPI_Win win;

        REQUIRE(ranks == 4);
        MPI_Win_allocate_shared(sizes[c][rank], rank + 1, info, MPI_COMM_WORLD, &mine, &win);
        for (k = 0; k < sizes[c][rank]; k++)
            mine[k] = pattern(rank, k);
        MPI_Win_fence(0, win);
        for (i = 0; i < ranks; i++) {
            MPI_Win_shared_query(win, i, &bytes, &unit, &part);
            REQUIRE(bytes == sizes[c][i] && unit == i + 1);
            if (bytes == 0)
                continue;
            if (first < 0)
                first = i;
            if (i == rank)
                REQUIRE(part == mine);
            if (noncontiguous)
                REQUIRE((uintptr_t) part % sysconf(_SC_PAGESIZE) == 0);
            else if (next != NULL)
                REQUIRE(part == next);
            next = part + bytes;
            for (k = 0; k < bytes; k++)
                REQUIRE(part[k] == pattern(i, k));
        }
        MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &query);
        if (first < 0) {
            REQUIRE(bytes == 0 && query == NULL);
        } else {
            MPI_Win_shared_query(win, first, &k, &unit, &part);
            REQUIRE(bytes == sizes[c][first] && query == part);
        }
        /* The last rank writes the first one's part through RMA, the first one sees it by a load. */
        MPI_Win_fence(0, win);
        if (first >= 0 && rank == ranks - 1) {
            unsigned char value = 200;
            MPI_Put(&value, 1, MPI_UNSIGNED_CHAR, first, 0, 1, MPI_UNSIGNED_CHAR, win);
        }
        MPI_Win_fence(0, win);
        if (rank == first)
            REQUIRE(mine[0] == 200);
        MPI_Win_fence(0, win);
        MPI_Win_free(&win);
    }
    MPI_Info_free(&info);
}

/* Every rank adds to every other's counter while its owner watches by loads and makes no call of MPI: what
 * does not go by loads and stores does not get there. `win`'s memory is at `mine`, 3 long integers for
 * each rank. */
static void add_beside_loads(MPI_Win win, volatile long *mine)
{
    enum { kAdditions = 2000 };
    long one = 1, old, seen = 0;
    int i, k;

    mine[0] = mine[1] = mine[2] = 0;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        double end = MPI_Wtime() + 30;
        while (seen < (ranks - 1) * (long) kAdditions && MPI_Wtime() < end) {
            long now = __atomic_load_n(&mine[0], __ATOMIC_ACQUIRE);
            REQUIRE(now >= seen);
            seen = now;
            usleep(10);
        }
        REQUIRE(seen == (ranks - 1) * (long) kAdditions);
    } else {
        for (k = 0; k < kAdditions; k++)
            MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (k = 0; k < kAdditions; k++)
        for (i = 0; i < ranks; i++) {
            long compare = k;
            MPI_Accumulate(&one, 1, MPI_LONG, i, 1, 1, MPI_LONG, MPI_SUM, win);
            MPI_Compare_and_swap(&rank, &compare, &old, MPI_LONG, i, 2, win);
            if (k % 100 == 0)
                MPI_Get_accumulate(&one, 1, MPI_LONG, &old, 1, MPI_LONG, i, 1, 1, MPI_LONG, MPI_NO_OP, win);
        }
    MPI_Win_flush_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE(mine[1] == ranks * (long) kAdditions);
    MPI_Win_unlock_all(win);
}

static void atomics(void)
{
    long *mine, *again;
    MPI_Win win, second;
    MPI_Info info;

    MPI_Win_allocate_shared(3 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    add_beside_loads(win, mine);

    /* Another window over the same memory. */
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shm", "true");
    MPI_Win_create(mine, 3 * sizeof(long), sizeof(long), info, MPI_COMM_WORLD, &second);
    add_beside_loads(second, mine);
    MPI_Win_free(&second);
    /* One process's memory is not shared: the window works, by messages. */
    again = calloc(3, sizeof(long));
    MPI_Win_create(rank == 1 ? again : mine, 3 * sizeof(long), sizeof(long), info, MPI_COMM_WORLD, &second);
    MPI_Win_fence(0, second);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, second);
    MPI_Win_fence(0, second);
    REQUIRE(*(int *) (rank == 1 ? again : mine) == (rank + ranks - 1) % ranks);
    MPI_Win_free(&second);
    free(again);
    MPI_Info_free(&info);
    MPI_Win_free(&win);

    MPI_Win_allocate(3 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    add_beside_loads(win, mine);
    MPI_Win_free(&win);
}

/* Loads and stores between all of MPI's ways to synchronise. */
static void epochs(void)
{
    volatile int *mine, *fenced_mine, *left;
    int unit, i, k, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Aint bytes;
    MPI_Win win, fenced;
    MPI_Group world, origin, target;

    /* Not both on one window: MPI_Win_complete of MPICH 4.0.2's CH3 may wait for ever if MPI_Win_start
     * comes before the end of a fence's barrier, which does not grant the epoch. With any channel. */
    MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &fenced_mine, &fenced);
    MPI_Win_shared_query(fenced, from, &bytes, &unit, &left);
    MPI_Win_allocate_shared(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    mine[0] = mine[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &from, &origin);
    MPI_Group_incl(world, 1, &to, &target);
    for (k = 1; k <= 100; k++) {
        int value = k * 100 + rank;

        MPI_Win_fence(0, fenced);
        MPI_Put(&value, 1, MPI_INT, to, 0, 1, MPI_INT, fenced);
        MPI_Win_fence(0, fenced);
        REQUIRE(fenced_mine[0] == k * 100 + from && left[0] == k * 100 + (from + ranks - 1) % ranks);

        MPI_Win_post(origin, 0, win);
        MPI_Win_start(target, 0, win);
        MPI_Put(&value, 1, MPI_INT, to, 1, 1, MPI_INT, win);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
        REQUIRE(mine[1] == k * 100 + from);
        MPI_Barrier(MPI_COMM_WORLD);
        mine[0] = mine[1] = 0;
        MPI_Barrier(MPI_COMM_WORLD);

        for (i = 0; i < ranks; i++) {
            int sum;
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, i, 0, win);
            MPI_Get(&sum, 1, MPI_INT, i, 0, 1, MPI_INT, win);
            MPI_Win_flush(i, win);
            sum += rank + 1;
            MPI_Put(&sum, 1, MPI_INT, i, 0, 1, MPI_INT, win);
            MPI_Win_unlock(i, win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
        MPI_Win_sync(win);
        REQUIRE(mine[0] == ranks * (ranks + 1) / 2);
        MPI_Win_unlock(rank, win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Group_free(&world);
    MPI_Group_free(&origin);
    MPI_Group_free(&target);
    MPI_Win_free(&win);
    MPI_Win_free(&fenced);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);

    REQUIRE(entries != NULL);
    while (readdir(entries) != NULL)
        count++;
    closedir(entries);
    return count;
}

static int count_window_maps(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    REQUIRE(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "ch3-offload-window") != NULL;
    fclose(maps);
    return count;
}

/* Windows that come and go leave no descriptor and no mapping, nor do those that live hold descriptors. */
static void many(int count)
{
    enum { kAlive = 10 };
    MPI_Win alive[kAlive];
    char *mine;
    int i, descriptors, partners[64] = { 0 };

    REQUIRE(ranks <= 64);
    /* Every process is connected to every other from here on. */
    MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, partners, 1, MPI_INT, MPI_COMM_WORLD);
    for (i = 0; i < kAlive; i++)
        MPI_Win_allocate_shared(100 + i, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &alive[i]);
    descriptors = count_entries("/proc/self/fd");
    for (i = 0; i < count; i++) {
        MPI_Win_free(&alive[i % kAlive]);
        MPI_Win_allocate_shared(i % 3 == 0 ? 0 : 5000, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine,
                                &alive[i % kAlive]);
    }
    REQUIRE(count_entries("/proc/self/fd") == descriptors);
    REQUIRE(count_window_maps() == kAlive);
    for (i = 0; i < kAlive; i++)
        MPI_Win_free(&alive[i]);
    REQUIRE(count_entries("/proc/self/fd") == descriptors);
    REQUIRE(count_window_maps() == 0);
}

static size_t address_space_bytes(void)
{
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");

    REQUIRE(statm != NULL && fscanf(statm, "%zu", &pages) == 1);
    fclose(statm);
    return pages * sysconf(_SC_PAGESIZE);
}

static MPI_Info make_info(const char *key, const char *value)
{
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    return info;
}

/* MPI_Win_allocate where one rank after the other has no memory: MPI_ERR_NO_MEM on all, and all go on. */
static void memory_of_one(void)
{
    enum { kBytes = 64 << 20 };
    MPI_Info infos[] = { MPI_INFO_NULL, make_info("alloc_shm", "false") };
    MPI_Comm world;
    MPI_Win win;
    int *mine;
    int i, who, error;

    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    for (i = 0; i < 2; i++)
        for (who = 0; who < ranks; who++) {
            struct rlimit before, limit;

            /* Before and after: what MPI keeps of its first window is there, and the refusal leaves nothing. */
            MPI_Win_allocate(kBytes, 1, infos[i], world, &mine, &win);
            MPI_Win_free(&win);
            getrlimit(RLIMIT_AS, &before);
            limit = before;
            limit.rlim_cur = address_space_bytes() + (1 << 20);
            if (rank == who)
                REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
            error = MPI_Win_allocate(kBytes, 1, infos[i], world, &mine, &win);
            if (rank == who)
                setrlimit(RLIMIT_AS, &before);
            REQUIRE(class_of(error) == MPI_ERR_NO_MEM);

            REQUIRE(MPI_Win_allocate(kBytes, 1, infos[i], world, &mine, &win) == MPI_SUCCESS);
            MPI_Win_fence(0, win);
            MPI_Put(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, win);
            MPI_Win_fence(0, win);
            REQUIRE(*mine == (rank + ranks - 1) % ranks);
            MPI_Win_free(&win);
        }
    MPI_Info_free(&infos[1]);
    MPI_Comm_free(&world);
}

/* What fails on one rank is the same error on all, and the next window works. */
static void refusals(void)
{
    MPI_Comm world;
    MPI_Win win;
    char *mine;
    int who, i, error;
    static int files[65536];
    int file_count = 0;

    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Win_allocate_shared(1, 1, MPI_INFO_NULL, world, &mine, &win);   /* everybody is connected now */
    MPI_Win_free(&win);

    /* More than there is. */
    error = MPI_Win_allocate_shared((MPI_Aint) 1 << 60, 1, MPI_INFO_NULL, world, &mine, &win);
    REQUIRE(class_of(error) == MPI_ERR_NO_MEM);
    error = MPI_Win_allocate_shared(PTRDIFF_MAX, 1, MPI_INFO_NULL, world, &mine, &win);
    REQUIRE(class_of(error) == MPI_ERR_NO_MEM);

    for (who = 0; who < 2; who++) {
        struct rlimit before, limit;

        /* No address space on one rank. */
        getrlimit(RLIMIT_AS, &before);
        if (rank == who) {
            limit = before;
            limit.rlim_cur = address_space_bytes() + (1 << 20);
            REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
        }
        error = MPI_Win_allocate_shared(1 << 20, 1, MPI_INFO_NULL, world, &mine, &win);
        if (rank == who)
            setrlimit(RLIMIT_AS, &before);
        REQUIRE(class_of(error) == MPI_ERR_NO_MEM);

        /* Files may not be so long. */
        getrlimit(RLIMIT_FSIZE, &before);
        if (rank == 0) {
            limit = before;
            limit.rlim_cur = 100000;
            REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        }
        error = MPI_Win_allocate(1 << 20, 1, MPI_INFO_NULL, world, &mine, &win);
        if (rank == 0)
            setrlimit(RLIMIT_FSIZE, &before);
        REQUIRE(class_of(error) == MPI_ERR_NO_MEM);

        /* No descriptor on one rank. MPI_Win_allocate does without. */
        getrlimit(RLIMIT_NOFILE, &before);
        if (rank == who) {
            limit = before;
            limit.rlim_cur = 256;
            REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
            while ((files[file_count] = open("/dev/null", O_RDONLY)) >= 0)
                file_count++;
        }
        error = MPI_Win_allocate_shared(1 << 20, 1, MPI_INFO_NULL, world, &mine, &win);
        REQUIRE(class_of(error) == MPI_ERR_RMA_SHARED);
        REQUIRE(MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, world, &mine, &win) == MPI_SUCCESS);
        while (file_count > 0)
            close(files[--file_count]);
        if (rank == who)
            setrlimit(RLIMIT_NOFILE, &before);
        MPI_Win_fence(0, win);
        MPI_Put(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, win);
        MPI_Win_fence(0, win);
        REQUIRE(*(int *) mine == (rank + ranks - 1) % ranks);
        MPI_Win_free(&win);

        MPI_Win_allocate_shared(1 << 20, 1, MPI_INFO_NULL, world, &mine, &win);
        for (i = 0; i < 1 << 20; i += 4096)
            mine[i] = 1;
        MPI_Win_free(&win);
    }
    REQUIRE(count_window_maps() == 0);
    MPI_Comm_free(&world);
}

/* Rank 1 dies in the middle of an accumulate, while it holds the window's mutex. The others' accumulates
 * go on. */
static void death(void)
{
    long *mine, old, one = 1;
    MPI_Win win;
    int k;

    MPI_Win_allocate_shared(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        struct rlimit no_core = { 0, 0 };
        long *hole = mmap(NULL, sizeof(long), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        setrlimit(RLIMIT_CORE, &no_core);
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 1, MPI_SUM, win);     /* to be seen that it got so far */
        MPI_Accumulate(hole, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
        REQUIRE(!"it is dead");
    }
    for (k = 0; k < 600; k++) {
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, win);
        usleep(500);
    }
    MPI_Get_accumulate(NULL, 0, MPI_LONG, &old, 1, MPI_LONG, 0, 1, 1, MPI_LONG, MPI_NO_OP, win);
    REQUIRE(old == 1);
    printf("done\n");
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int number = argc > 2 ? atoi(argv[2]) : 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (strcmp(what, "split") == 0)
        split(number);
    else if (strcmp(what, "contiguous") == 0)
        layout(0);
    else if (strcmp(what, "noncontiguous") == 0)
        layout(1);
    else if (strcmp(what, "atomics") == 0)
        atomics();
    else if (strcmp(what, "epochs") == 0)
        epochs();
    else if (strcmp(what, "many") == 0)
        many(number);
    else if (strcmp(what, "refusals") == 0)
        refusals();
    else if (strcmp(what, "memory-of-one") == 0)
        memory_of_one();
    else if (strcmp(what, "death") == 0)
        death();
    else
        REQUIRE(!"a known name");
    MPI_Finalize();
    printf("done\n");
    return 0;
}
