/* Messages and one-sided operations in memory of MPI_Alloc_mem, with every byte checked, for 2 processes.
 *
 * Usage: allocated PART
 *   exchange   messages of 1 B to 8 MiB between allocated memory and any other, in all four ways; to oneself, too
 *   one-copy   a long message between allocated memory is written: the argument of MPI_T says so
 *   windows    puts and gets of 8 B to 4 MiB on windows of allocated memory and of MPI_Win_allocate
 *   placed     long puts between windows of allocated memory are written to their place, and long packets
 *   churn      blocks of all sizes come and go, with messages in them
 *   kept       buffers that a collective operation allocates and frees in each call cause no page faults
 *   staged     messages are staged, but none between allocated memory or memory of a shared window
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int rank;

static void check(int is_so, const char *what, long number)
{
    if (is_so)
        return;
    fprintf(stderr, "rank %d: %s (%ld)\n", rank, what, number);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned char *bytes, long length, long seed)
{
    for (long i = 0; i < length; i++)
        bytes[i] = (unsigned char) (i * 7 + i / 253 + seed);
}

static void expect(const unsigned char *bytes, long length, long seed)
{
    for (long i = 0; i < length; i++)
        check(bytes[i] == (unsigned char) (i * 7 + i / 253 + seed), "a wrong byte", i);
}

static void *allocate(long length, int is_allocated)
{
    void *memory = NULL;

    if (is_allocated)
        MPI_Alloc_mem(length, MPI_INFO_NULL, &memory);
    else
        memory = malloc((size_t) length);
    check(memory != NULL, "no memory", length);
    return memory;
}

static void release(void *memory, int is_allocated)
{
    if (is_allocated)
        MPI_Free_mem(memory);
    else
        free(memory);
}

/* Of the performance variable ch3_offload_<name>, now. */
static unsigned long long counter(const char *name)
{
    char full[100];
    int index, count;
    unsigned long long value = 0;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;

    snprintf(full, sizeof(full), "ch3_offload_%s", name);
    check(MPI_T_pvar_get_index(full, MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS, full, 0);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count);
    MPI_T_pvar_read(session, handle, &value);
    MPI_T_pvar_handle_free(session, &handle);
    MPI_T_pvar_session_free(&session);
    return value;
}

/* What a counter shows is up to a millisecond old. */
static void await_counter(const char *name, unsigned long long wanted)
{
    double end = MPI_Wtime() + 10;
    int flag;

    while (counter(name) != wanted) {
        check(MPI_Wtime() < end, name, (long) counter(name));
        MPI_Iprobe(1 - rank, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

/* One message of `length` from process 0 to `to`. */
static void message(long length, int to, int from_allocated, int to_allocated)
{
    MPI_Request request = MPI_REQUEST_NULL;
    unsigned char *room = NULL, *sent = NULL;
    MPI_Status status;
    int got;

    if (rank == to) {
        room = allocate(length, to_allocated);
        memset(room, 0, (size_t) length);
        MPI_Irecv(room, (int) length, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &request);
    }
    if (rank == 0) {
        sent = allocate(length, from_allocated);
        fill(sent, length, length + to);
        MPI_Send(sent, (int) length, MPI_BYTE, to, 3, MPI_COMM_WORLD);
        memset(sent, 0xEE, (size_t) length);
    }
    if (rank == to) {
        MPI_Wait(&request, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        check(got == length, "a wrong length", got);
        expect(room, length, length + to);
        release(room, to_allocated);
    }
    if (rank == 0)
        release(sent, from_allocated);
}

static void exchange(void)
{
    static const long lengths[] = { 1, 8, 1024, 1025, 30000, 65536, 65537, 100001, 1 << 20, 8 << 20 };

    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (int ways = 0; ways < 4; ways++)
            for (int to = 1; to >= 0; to--)
                message(lengths[i], to, ways & 1, ways >> 1);
}

static void one_copy(void)
{
    unsigned long long before;

    message(1 << 20, 1, 0, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    before = counter("bulk_written");
    for (int i = 0; i < 10; i++)
        message(1 << 20, 1, 1, 1);
    if (rank == 0)
        await_counter("bulk_written", before + 10);
    check(counter("ring_staged") == 0, "something was staged", 0);
}

static void staged(void)
{
    const long length = 1 << 20;
    unsigned long long before;
    unsigned char *memory;
    MPI_Win window;

    exchange();
    check(counter("ring_staged") > 0, "nothing was staged", rank);
    MPI_Barrier(MPI_COMM_WORLD);
    before = counter("ring_staged");
    for (long length = 2000; length < 5000000; length *= 3)
        message(length, 1, 1, 1);
    check(counter("ring_staged") == before, "allocated memory was staged", rank);
    MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    before = counter("ring_staged");
    if (rank == 0)
        MPI_Send(memory, (int) length, MPI_BYTE, 1, 5, MPI_COMM_WORLD);
    else
        MPI_Recv(memory, (int) length, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(counter("ring_staged") == before, "memory of a shared window was staged", rank);
    MPI_Win_free(&window);
}

static void access_window(MPI_Win window, unsigned char *memory, long length)
{
    int other = 1 - rank;
    unsigned char *local = allocate(length, length % 3 == 0);

    memset(memory, 0, (size_t) length);
    MPI_Win_fence(0, window);
    fill(local, length, rank);
    MPI_Put(local, (int) length, MPI_BYTE, other, 0, (int) length, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    expect(memory, length, other);
    memset(local, 0, (size_t) length);
    MPI_Win_fence(0, window);
    MPI_Get(local, (int) length, MPI_BYTE, other, 0, (int) length, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    expect(local, length, rank);
    release(local, length % 3 == 0);
}

static void windows(void)
{
    const long most = 4 << 20;
    unsigned char *memory;
    MPI_Win window;

    for (int kind = 0; kind < 3; kind++) {
        if (kind == 2) {
            MPI_Win_allocate(most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
        } else {
            memory = allocate(most, kind);
            MPI_Win_create(memory, most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        }
        for (long length = 8; length <= most; length = length * 5 + 1)
            access_window(window, memory, length);
        MPI_Win_free(&window);
        if (kind < 2)
            release(memory, kind);
    }
}

static void put_four_times(MPI_Win window, MPI_Aint place, unsigned char *memory, const unsigned char *local,
                           long length)
{
    for (int i = 0; i < 4; i++) {
        memset(memory, 0, (size_t) length);
        MPI_Win_fence(0, window);
        MPI_Put(local, (int) length, MPI_BYTE, 1 - rank, place, (int) length, MPI_BYTE, window);
        MPI_Win_fence(0, window);
        expect(memory, length, 1 - rank);
    }
    MPI_Win_free(&window);
}

static void placed(void)
{
    const long length = 1 << 20;
    unsigned char *memory = allocate(length, 1), *local = allocate(length, 1);
    const unsigned long long before = counter("bulk_written");
    MPI_Aint mine, place;
    MPI_Win window;
    MPI_Info info;

    fill(local, length, rank);
    /* Otherwise the processes map each other's memory. */
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shm", "false");
    MPI_Win_create(memory, length, 1, info, MPI_COMM_WORLD, &window);
    MPI_Info_free(&info);
    put_four_times(window, 0, memory, local, length);
    await_counter("bulk_written", before + 4);
    check(counter("packet_bytes_placed") == 0, "puts went by packets", rank);
    /* Operations on a dynamic window are CH3's packets. */
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_attach(window, memory, length);
    MPI_Get_address(memory, &mine);
    MPI_Sendrecv(&mine, 1, MPI_AINT, 1 - rank, 6, &place, 1, MPI_AINT, 1 - rank, 6, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    put_four_times(window, place, memory, local, length);
    await_counter("packet_bytes_placed", 4ULL * (unsigned long long) length);
    release(memory, 1);
    release(local, 1);
}

static void churn(void)
{
    enum { BLOCKS = 60 };
    unsigned char *blocks[BLOCKS] = { NULL };
    long lengths[BLOCKS];
    unsigned random = 12345u + (unsigned) rank;

    for (int round = 0; round < 2000; round++) {
        int which;

        random = random * 1103515245u + 12345u;
        which = (int) (random >> 16) % BLOCKS;
        if (blocks[which] != NULL) {
            expect(blocks[which], lengths[which], which);
            MPI_Free_mem(blocks[which]);
            blocks[which] = NULL;
        } else {
            lengths[which] = 1L << ((random >> 8) % 22);
            blocks[which] = allocate(lengths[which], 1);
            fill(blocks[which], lengths[which], which);
        }
        if (round % 100 == 0)
            message(50000 + round * 31, 1, 1, 1);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i] != NULL)
            MPI_Free_mem(blocks[i]);
    blocks[0] = allocate(0, 1);
    MPI_Free_mem(blocks[0]);
}

static void kept(void)
{
    enum { LENGTH = 256 << 10, ROUNDS = 100 };
    unsigned char *from = allocate(LENGTH, 0), *to = allocate(LENGTH, 0);
    struct rusage before, after;

    memset(from, 1, LENGTH);
    memset(to, 0, LENGTH);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        if (round == ROUNDS)
            getrusage(RUSAGE_SELF, &before);
        MPI_Reduce(from, to, LENGTH, MPI_BYTE, MPI_BOR, round % 2, MPI_COMM_WORLD);
    }
    getrusage(RUSAGE_SELF, &after);
    check(after.ru_minflt - before.ru_minflt < 4 * ROUNDS, "page faults", after.ru_minflt - before.ru_minflt);
    release(from, 0);
    release(to, 0);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    int provided;

    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(part, "exchange") == 0)
        exchange();
    else if (strcmp(part, "one-copy") == 0)
        one_copy();
    else if (strcmp(part, "windows") == 0)
        windows();
    else if (strcmp(part, "placed") == 0)
        placed();
    else if (strcmp(part, "churn") == 0)
        churn();
    else if (strcmp(part, "kept") == 0)
        kept();
    else if (strcmp(part, "staged") == 0)
        staged();
    else
        check(0, "no such part", 0);
    MPI_T_finalize();
    MPI_Finalize();
    printf("done\n");
    return 0;
}
