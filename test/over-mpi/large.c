/* For test/over-mpi/run: the limits of docs/mpi.md: messages of more than 2 GiB, between 2 ranks, and as many
 * communicators and windows as there can be. What sends a long message maps one small file again and again, so
 * that only the receiver needs the room. */
#define _GNU_SOURCE
#include "over_mpi.h"

#include <sys/mman.h>
#include <unistd.h>

static const size_t kPeriod = ((size_t) 64 << 20) + 4096;
static const size_t kLength = ((size_t) 2200 << 20) + 12;       /* more than 2^31 */

/* The pattern, for the caller to read: kLength bytes and what is left of the last period. */
static char *map_pattern(void)
{
    size_t periods = (kLength + kPeriod - 1) / kPeriod;
    int file = memfd_create("over-mpi", 0);
    char *memory = mmap(NULL, periods * kPeriod, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (file < 0 || ftruncate(file, kPeriod) != 0 || memory == MAP_FAILED)
        fail("no memory");
    for (size_t i = 0; i < periods; i++)
        if (mmap(memory + i * kPeriod, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            fail("no mapping");
    close(file);
    fill(memory, kPeriod, 77);
    return memory;
}

static char *map_room(size_t length_bytes)
{
    char *memory = mmap(NULL, length_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("no room");
    return memory;
}

static void expect_pattern(const char *memory, const char *pattern, size_t length_bytes)
{
    size_t i = 0;

    if (memcmp(memory, pattern, length_bytes) == 0)
        return;
    while (memory[i] == pattern[i])
        i++;
    fail("byte %zu of %zu is wrong", i, length_bytes);
}

/* A count of bytes that no int holds. */
static void large_count(void)
{
    char *pattern = map_pattern();

    if (rank == 0) {
        MPI_Send_c(pattern, kLength, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    } else if (rank == 1) {
        char *room = map_room(kLength + 64);
        MPI_Status status;
        MPI_Count count;
        MPI_Recv_c(room, kLength + 64, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &status);
        MPI_Get_count_c(&status, MPI_BYTE, &count);
        if (count != (MPI_Count) kLength)
            fail("the status says %lld bytes", (long long) count);
        expect_pattern(room, pattern, kLength);
        for (int i = 0; i < 64; i++)
            if (room[kLength + i] != 0)
                fail("byte %d behind the message was written", i);
    }
}

/* Blocks of 3 MiB with gaps of 4 bytes into one piece, unexpected. */
static void large_vector(void)
{
    char *pattern = map_pattern();
    MPI_Datatype block, type;
    int blocks = 700;
    size_t length = (size_t) blocks * (3 << 20);

    MPI_Type_contiguous((3 << 20) - 4, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, 3 << 20, &type);
    MPI_Type_commit(&type);
    if (rank == 0) {
        MPI_Request request;
        MPI_Isend(pattern, blocks, type, 1, 0, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        char *room = map_room(length);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(room, blocks, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int b = 0; b < blocks; b++) {
            char *at = room + (size_t) b * (3 << 20);
            expect_pattern(at, pattern + (at - room), (3 << 20) - 4);
            expect_pattern(at + (3 << 20) - 4, "\0\0\0", 4);
        }
    }
    MPI_Type_free(&block);
    MPI_Type_free(&type);
}

/* CH3's packets have an int for the count, so MPI_Put_c of that many bytes cannot work. */
static void large_put(void)
{
    char *pattern = map_pattern(), *room = NULL;
    MPI_Win window;
    MPI_Datatype type;
    int blocks = kLength >> 20;
    size_t length = (size_t) blocks << 20;

    if (rank == 1)
        room = map_room(length);
    MPI_Win_create(room, rank == 1 ? length : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Type_contiguous(1 << 20, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Win_fence(0, window);
    if (rank == 0)
        MPI_Put(pattern, blocks, type, 1, 0, blocks, type, window);
    MPI_Win_fence(0, window);
    if (rank == 1)
        expect_pattern(room, pattern, length);
    MPI_Type_free(&type);
    MPI_Win_free(&window);
}

static void large_bcast(void)
{
    char *pattern = map_pattern();

    if (rank == 0) {
        MPI_Bcast_c(pattern, kLength, MPI_BYTE, 0, MPI_COMM_WORLD);
    } else {
        char *room = map_room(kLength);
        MPI_Bcast_c(room, kLength, MPI_BYTE, 0, MPI_COMM_WORLD);
        expect_pattern(room, pattern, kLength);
    }
}

enum { kFewest = 2000, kRoom = 70000 };

static int make_communicators(MPI_Comm *all)
{
    int count = 0;

    while (count < kRoom && MPI_Comm_dup(MPI_COMM_WORLD, &all[count]) == MPI_SUCCESS)
        count++;
    return count;
}

/* Beyond the last one there is an error, and when they are freed there are as many again. */
static void many_communicators(void)
{
    MPI_Comm *all = allocate(kRoom * sizeof *all);
    int count, again, sum = 0;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    count = make_communicators(all);
    if (count < kFewest || count == kRoom)
        fail("there are %d communicators", count);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all[count - 1]);
    if (sum != size * (size - 1) / 2)
        fail("the last one has the sum %d", sum);
    for (int i = 0; i < count; i++)
        MPI_Comm_free(&all[i]);
    again = make_communicators(all);
    if (again != count)
        fail("there are %d communicators, and then %d", count, again);
    for (int i = 0; i < again; i++)
        MPI_Comm_free(&all[i]);
    if (rank == 0)
        printf("%d communicators\n", count);
    free(all);
}

/* Each window has a communicator. In the last one a put arrives. */
static void many_windows(void)
{
    MPI_Win *all = allocate(kRoom * sizeof *all);
    int *parts = allocate(kRoom * sizeof *parts);
    int count = 0, word = 7 + rank;

    memset(parts, 0, kRoom * sizeof *parts);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    while (count < kRoom && MPI_Win_create(&parts[count], sizeof *parts, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                                           &all[count]) == MPI_SUCCESS)
        count++;
    if (count < kFewest || count == kRoom)
        fail("there are %d windows", count);
    MPI_Win_fence(0, all[count - 1]);
    MPI_Put(&word, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, all[count - 1]);
    MPI_Win_fence(0, all[count - 1]);
    if (parts[count - 1] != 7 + (rank + size - 1) % size)
        fail("the last window has %d", parts[count - 1]);
    for (int i = 0; i < count; i++)
        MPI_Win_free(&all[i]);
    if (rank == 0)
        printf("%d windows\n", count);
    free(parts);
    free(all);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = {
        {"large-count", large_count}, {"large-vector", large_vector}, {"large-put", large_put},
        {"large-bcast", large_bcast}, {"communicators", many_communicators}, {"windows", many_windows},
    };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
