/* For test/lab: two ranks exchange long messages, and put into each other's windows, in memory that comes and goes by every call there is for that, and check every
 * byte. Where a network device keeps memory registered, a message that it took from, or put into, pages that are gone would
 * show. Says "N exchanges, M KiB put in place" and, of rank 0, how often memory was found registered, registered, and seen to go. */
#define _GNU_SOURCE     /* mremap() */

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

enum { kBytes = 256 << 10, kRounds = 12 };

static int rank, exchanges;

static void fail(const char *what)
{
    printf("rank %d, exchange %d: %s\n", rank, exchanges, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int sender, size_t i)
{
    return (unsigned char) (i * 5 + (i >> 9) + (size_t) exchanges * 31 + (size_t) sender * 101);
}

/* Sends the memory to the other rank and receives into it. */
static void exchange(void *memory)
{
    unsigned char *bytes = memory;
    size_t i, half = kBytes / 2;
    MPI_Win window;

    exchanges++;
    for (i = 0; i < half; i++)
        bytes[i] = byte_of(rank, i);
    memset(bytes + half, 0, half);
    MPI_Sendrecv(bytes, (int) half, MPI_BYTE, 1 - rank, 0, bytes + half, (int) half, MPI_BYTE, 1 - rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (i = 0; i < half; i++)
        if (bytes[half + i] != byte_of(1 - rank, i))
            fail("a wrong byte");

    exchanges++;
    for (i = 0; i < half; i++)
        bytes[i] = byte_of(rank, i);
    MPI_Win_create(bytes + half, (MPI_Aint) half, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(bytes, (int) half, MPI_BYTE, 1 - rank, 0, (int) half, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    for (i = 0; i < half; i++)
        if (bytes[half + i] != byte_of(1 - rank, i))
            fail("a wrong byte was put");
    MPI_Win_free(&window);
}

static void *map(void *where, int flags)
{
    void *memory = mmap(where, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    if (memory == MAP_FAILED)
        fail("mmap");
    return memory;
}

static void each_way(void *lasting)
{
    void *memory, *moved;
    int segment;

    memory = malloc(kBytes);
    exchange(memory);
    memory = realloc(memory, 3 * kBytes);
    exchange(memory);
    free(memory);

    memory = map(NULL, 0);
    exchange(memory);
    munmap(memory, kBytes);

    exchange(map(lasting, MAP_FIXED));
    madvise(lasting, kBytes, MADV_DONTNEED);
    exchange(lasting);

    memory = map(NULL, 0);
    strcpy(memory, "moved");
    moved = mremap(memory, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, lasting);
    if (moved != lasting || strcmp(lasting, "moved") != 0)
        fail("mremap(MREMAP_FIXED) did not do it");
    exchange(lasting);

    segment = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
    memory = segment < 0 ? (void *) -1 : shmat(segment, NULL, 0);
    if (segment >= 0)
        shmctl(segment, IPC_RMID, NULL);
    if (memory != (void *) -1) {
        exchange(memory);
        shmdt(memory);
    }
}

static unsigned long long counter(const char *wanted)
{
    unsigned long long value = 0;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    int index, count;

    if (MPI_T_pvar_get_index(wanted, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS)
        return 0;
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count);
    MPI_T_pvar_read(session, handle, &value);
    MPI_T_pvar_handle_free(session, &handle);
    MPI_T_pvar_session_free(&session);
    return value;
}

int main(int argc, char **argv)
{
    int i, provided;
    void *lasting;

    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    lasting = map(NULL, 0);
    for (i = 0; i < kRounds; i++)
        each_way(lasting);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d exchanges, %llu KiB put in place: found %llu, registered %llu, gone %llu, refused %llu\n", exchanges,
               counter("ch3_offload_packet_bytes_placed") >> 10, counter("ch3_offload_pin_hits"), counter("ch3_offload_pin_misses"),
               counter("ch3_offload_pin_invalidations"), counter("ch3_offload_pin_refused"));
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
