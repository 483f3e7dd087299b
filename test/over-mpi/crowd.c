/* For test/over-mpi/run: far more ranks than cores. All of them do the same random sequence of collectives
 * and messages, blocking and not, on the whole job and on halves of it; every result is checked. */
#include "over_mpi.h"

enum { kLongest = 20000 };      /* 32-bit words */

static uint64_t common = 99;    /* the same numbers on all ranks */
static MPI_Comm comm;           /* of the step */
static int my_rank, ranks;
static int first_tag;           /* of those that only this step uses */
static uint32_t *out, *in;      /* ranks * kLongest words each */

static int random_root(void)
{
    return (int) next_random(&common, ranks);
}

/* Short as a rule. */
static int random_words(int longest)
{
    int is_short = next_random(&common, 4) != 0;
    return 1 + (int) next_random(&common, is_short ? (longest < 64 ? longest : 64) : longest);
}

static void allreduce(uint32_t seed)
{
    int words = random_words(kLongest);

    for (int i = 0; i < words; i++)
        out[i] = word_at(seed, i) + my_rank;
    if (next_random(&common, 2)) {
        MPI_Allreduce(out, in, words, MPI_UINT32_T, MPI_SUM, comm);
    } else {
        MPI_Request request;
        MPI_Iallreduce(out, in, words, MPI_UINT32_T, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < words; i++)
        if (in[i] != ranks * word_at(seed, i) + (uint32_t) (ranks * (ranks - 1) / 2))
            fail("MPI_Allreduce: word %d is wrong", i);
}

static void bcast(uint32_t seed)
{
    int words = random_words(kLongest), root = random_root();

    memset(in, 0, 4 * (size_t) words);
    if (my_rank == root)
        fill(in, 4 * (size_t) words, seed);
    MPI_Bcast(in, words, MPI_UINT32_T, root, comm);
    expect(in, 4 * (size_t) words, seed, "MPI_Bcast");
}

/* Each rank has sent each rank its own data. */
static void expect_from_all(uint32_t seed, int words, const char *what)
{
    for (int r = 0; r < ranks; r++)
        expect_from(in + (size_t) r * words, 4 * (size_t) words, seed + r, 4 * (uint64_t) words * my_rank, what);
}

static void alltoall(uint32_t seed)
{
    int words = random_words(3000);

    fill(out, 4 * (size_t) words * ranks, seed + my_rank);
    if (next_random(&common, 2)) {
        MPI_Alltoall(out, words, MPI_UINT32_T, in, words, MPI_UINT32_T, comm);
    } else {
        /* Beside it a message goes round. */
        MPI_Request requests[3];
        int value = my_rank, got = -1;
        MPI_Ialltoall(out, words, MPI_UINT32_T, in, words, MPI_UINT32_T, comm, &requests[0]);
        MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, first_tag, comm, &requests[1]);
        MPI_Isend(&value, 1, MPI_INT, (my_rank + 1) % ranks, first_tag, comm, &requests[2]);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        if (got != (my_rank + ranks - 1) % ranks)
            fail("the message that went round says %d", got);
    }
    expect_from_all(seed, words, "MPI_Alltoall");
}

static void gather_and_scatter(uint32_t seed)
{
    int words = random_words(kLongest / 4), root = random_root();

    fill(out, 4 * (size_t) words, seed + my_rank);
    MPI_Gather(out, words, MPI_UINT32_T, in, words, MPI_UINT32_T, root, comm);
    for (int r = 0; r < ranks && my_rank == root; r++)
        expect(in + (size_t) r * words, 4 * (size_t) words, seed + r, "MPI_Gather");
    memset(out, 0, 4 * (size_t) words);
    MPI_Scatter(in, words, MPI_UINT32_T, out, words, MPI_UINT32_T, root, comm);
    expect(out, 4 * (size_t) words, seed + my_rank, "MPI_Scatter");
}

static void allgather(uint32_t seed)
{
    int words = random_words(kLongest / 8);

    fill(out, 4 * (size_t) words, seed + my_rank);
    MPI_Allgather(out, words, MPI_UINT32_T, in, words, MPI_UINT32_T, comm);
    for (int r = 0; r < ranks; r++)
        expect(in + (size_t) r * words, 4 * (size_t) words, seed + r, "MPI_Allgather");
}

static void scan(uint32_t seed)
{
    int words = random_words(500);

    for (int i = 0; i < words; i++)
        out[i] = word_at(seed, i) + my_rank;
    MPI_Scan(out, in, words, MPI_UINT32_T, MPI_SUM, comm);
    for (int i = 0; i < words; i++)
        if (in[i] != (my_rank + 1) * word_at(seed, i) + (uint32_t) (my_rank * (my_rank + 1) / 2))
            fail("MPI_Scan: word %d is wrong", i);
}

/* To some ranks at random distances; each knows how many it gets by symmetry. */
static void neighbours(uint32_t seed)
{
    enum { kNeighbours = 6 };
    MPI_Request requests[2 * kNeighbours];
    int words = random_words(kLongest);

    for (int n = 0; n < kNeighbours; n++) {
        int distance = (int) next_random(&common, ranks);
        int from = (my_rank + ranks - distance) % ranks;
        fill(out + n * kLongest, 4 * (size_t) words, seed + n);
        MPI_Irecv(in + n * kLongest, words, MPI_UINT32_T, from, first_tag + n, comm, &requests[2 * n]);
        (n % 2 ? MPI_Isend : MPI_Issend) (out + n * kLongest, words, MPI_UINT32_T, (my_rank + distance) % ranks,
                                          first_tag + n, comm, &requests[2 * n + 1]);
    }
    MPI_Waitall(2 * kNeighbours, requests, MPI_STATUSES_IGNORE);
    for (int n = 0; n < kNeighbours; n++)
        expect(in + n * kLongest, 4 * (size_t) words, seed + n, "a neighbour's message");
}

/* All send to one, who takes them as they come. */
static void all_to_one(uint32_t seed)
{
    int words = random_words(kLongest), root = random_root();

    if (my_rank != root) {
        fill(out, 4 * (size_t) words, seed + my_rank);
        MPI_Send(out, words, MPI_UINT32_T, root, first_tag, comm);
    } else {
        for (int i = 1; i < ranks; i++) {
            MPI_Status status;
            MPI_Recv(in, words, MPI_UINT32_T, MPI_ANY_SOURCE, first_tag, comm, &status);
            expect(in, 4 * (size_t) words, seed + status.MPI_SOURCE, "a message to one");
        }
    }
}

static void crowd(void)
{
    static void (*const steps[]) (uint32_t) = {
        allreduce, bcast, alltoall, gather_and_scatter, allgather, scan, neighbours, all_to_one,
    };
    static const int step_count = sizeof steps / sizeof steps[0];
    MPI_Comm half;
    int count = is_long() ? 20000 : 200;

    out = allocate(4 * (size_t) kLongest * size);
    in = allocate(4 * (size_t) kLongest * size);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    for (int i = 0; i < count; i++) {
        int step = (int) next_random(&common, step_count);
        comm = next_random(&common, 3) == 0 ? half : MPI_COMM_WORLD;
        first_tag = 10 * i;
        MPI_Comm_rank(comm, &my_rank);
        MPI_Comm_size(comm, &ranks);
        snprintf(doing, sizeof doing, "step %d of %d, on %s", i, count, comm == half ? "a half" : "all");
        steps[step] (1000 * i);
    }
    MPI_Comm_free(&half);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = { {"crowd", crowd} };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
