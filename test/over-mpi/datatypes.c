/* For test/over-mpi/run: messages of 8 B to 8 MiB between derived datatypes, sent in every mode, expected
 * and unexpected, in both directions at once. Every byte of the receiver's memory is checked: those of the
 * message, and those in the gaps, which must be untouched. */
#include "over_mpi.h"

/* A message of `ints` MPI_INTs spread over memory. */
typedef struct {
    MPI_Datatype type;
    int count;
    MPI_Aint origin_bytes;      /* of the buffer argument, from the start of the memory */
    MPI_Aint memory_bytes;
    MPI_Aint *offset_bytes;     /* of each int, from the start of the memory */
} layout_t;

enum { kMargin = 32 };          /* bytes before and behind what the type spans */

/* Called with the ints' offsets set from the buffer argument: moves them so that the lowest is at kMargin. */
static void place(layout_t * layout, int ints)
{
    MPI_Aint lowest = layout->offset_bytes[0], highest = lowest;

    for (int i = 0; i < ints; i++) {
        lowest = layout->offset_bytes[i] < lowest ? layout->offset_bytes[i] : lowest;
        highest = layout->offset_bytes[i] > highest ? layout->offset_bytes[i] : highest;
    }
    layout->origin_bytes = kMargin - lowest;
    layout->memory_bytes = highest - lowest + 4 + 2 * kMargin;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] += layout->origin_bytes;
}

/* All `ints` are even. Each sets type, count and offset_bytes. */

static void contiguous(layout_t * layout, int ints)
{
    MPI_Type_contiguous(ints, MPI_INT, &layout->type);
    layout->count = 1;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] = 4 * (MPI_Aint) i;
}

static void vector(layout_t * layout, int ints)
{
    MPI_Type_vector(ints / 2, 2, 3, MPI_INT, &layout->type);
    layout->count = 1;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] = 12 * (MPI_Aint) (i / 2) + 4 * (i % 2);
}

/* Backwards in memory. */
static void negative_stride(layout_t * layout, int ints)
{
    MPI_Type_create_hvector(ints / 2, 2, -12, MPI_INT, &layout->type);
    layout->count = 1;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] = -12 * (MPI_Aint) (i / 2) + 4 * (i % 2);
}

/* Blocks of 1, 2 and 3 ints in turn, those of odd number behind those of even number. */
static void indexed(layout_t * layout, int ints)
{
    int *lengths = allocate(sizeof(int) * ints), *displacements = allocate(sizeof(int) * ints);
    int blocks = 0, i = 0;

    for (int left = ints; left > 0; left -= lengths[blocks++])
        lengths[blocks] = blocks % 3 + 1 < left ? blocks % 3 + 1 : left;
    for (int b = 0; b < blocks; b++) {
        displacements[b] = 5 * (b / 2 + (b % 2) * ((blocks + 1) / 2));
        for (int k = 0; k < lengths[b]; k++)
            layout->offset_bytes[i++] = 4 * (MPI_Aint) (displacements[b] + k);
    }
    MPI_Type_indexed(blocks, lengths, displacements, MPI_INT, &layout->type);
    layout->count = 1;
    free(lengths);
    free(displacements);
}

/* Half of the ints in one piece, behind the other half with gaps. */
static void structure(layout_t * layout, int ints)
{
    int front = ints / 2, lengths[2] = { front, 1 };
    MPI_Aint displacements[2] = { 16 * (MPI_Aint) (ints - front) + 4, 8 };
    MPI_Datatype types[2] = { MPI_INT, MPI_DATATYPE_NULL };

    MPI_Type_create_hvector(ints - front, 1, 16, MPI_INT, &types[1]);
    MPI_Type_create_struct(2, lengths, displacements, types, &layout->type);
    MPI_Type_free(&types[1]);
    layout->count = 1;
    for (int i = 0; i < front; i++)
        layout->offset_bytes[i] = displacements[0] + 4 * (MPI_Aint) i;
    for (int i = front; i < ints; i++)
        layout->offset_bytes[i] = displacements[1] + 16 * (MPI_Aint) (i - front);
}

/* Two ints with a gap, and room around them: lower bound -4, extent 20. */
static void resized(layout_t * layout, int ints)
{
    MPI_Datatype pair;

    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, -4, 20, &layout->type);
    MPI_Type_free(&pair);
    layout->count = ints / 2;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] = 20 * (MPI_Aint) (i / 2) + 8 * (i % 2);
}

/* A lower bound of -8 by itself; the extent is 16. */
static void negative_bound(layout_t * layout, int ints)
{
    int lengths[2] = { 1, 1 };
    MPI_Aint displacements[2] = { 4, -8 };

    MPI_Type_create_hindexed(2, lengths, displacements, MPI_INT, &layout->type);
    layout->count = ints / 2;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] = 16 * (MPI_Aint) (i / 2) + displacements[i % 2];
}

/* Each element lies before the one that precedes it. */
static void negative_extent(layout_t * layout, int ints)
{
    MPI_Datatype pair;

    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, -12, &layout->type);
    MPI_Type_free(&pair);
    layout->count = ints / 2;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] = -12 * (MPI_Aint) (i / 2) + 4 * (i % 2);
}

/* Columns 2 and 3 of 5, from row 1 on. */
static void subarray(layout_t * layout, int ints)
{
    int sizes[2] = { ints / 2 + 1, 5 }, subsizes[2] = { ints / 2, 2 }, starts[2] = { 1, 2 };

    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &layout->type);
    layout->count = 1;
    for (int i = 0; i < ints; i++)
        layout->offset_bytes[i] = 4 * (5 * (MPI_Aint) (1 + i / 2) + 2 + i % 2);
}

static const struct {
    const char *name;
    void (*build) (layout_t *, int);
} kinds[] = {
    {"contiguous", contiguous}, {"vector", vector}, {"negative stride", negative_stride}, {"indexed", indexed},
    {"struct", structure}, {"resized", resized}, {"negative lower bound", negative_bound},
    {"negative extent", negative_extent}, {"subarray", subarray},
};
enum { kKinds = sizeof kinds / sizeof kinds[0] };

static const char *modes[] = { "expected", "unexpected", "expected Issend", "unexpected Issend", "Mprobe", "Send",
    "persistent"
};
enum { kExpected, kUnexpected, kExpectedSync, kUnexpectedSync, kMprobe, kBlocking, kPersistent, kModes };

static void exchange(int mode, int other, void *out, const layout_t * from, void *in, const layout_t * to, int ints)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Message message;
    int elements = -1;

    switch (mode) {
        case kExpected:
        case kExpectedSync:
            MPI_Irecv(in, to->count, to->type, other, 0, MPI_COMM_WORLD, &requests[0]);
            MPI_Barrier(MPI_COMM_WORLD);
            (mode == kExpected ? MPI_Isend : MPI_Issend) (out, from->count, from->type, other, 0, MPI_COMM_WORLD,
                                                          &requests[1]);
            MPI_Waitall(2, requests, statuses);
            break;
        case kUnexpected:
        case kUnexpectedSync:
        case kMprobe:
            (mode == kUnexpectedSync ? MPI_Issend : MPI_Isend) (out, from->count, from->type, other, 0,
                                                                MPI_COMM_WORLD, &requests[1]);
            MPI_Barrier(MPI_COMM_WORLD);
            if (mode == kMprobe) {
                MPI_Mprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &message, &statuses[0]);
                MPI_Get_elements(&statuses[0], MPI_INT, &elements);
                if (elements != ints)
                    fail("MPI_Mprobe says %d ints instead of %d", elements, ints);
                MPI_Mrecv(in, to->count, to->type, &message, &statuses[0]);
            } else {
                MPI_Recv(in, to->count, to->type, other, 0, MPI_COMM_WORLD, &statuses[0]);
            }
            MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
            break;
        case kBlocking:
            for (int turn = 0; turn < 2; turn++) {
                if (turn == rank)
                    MPI_Send(out, from->count, from->type, other, 0, MPI_COMM_WORLD);
                else
                    MPI_Recv(in, to->count, to->type, other, 0, MPI_COMM_WORLD, &statuses[0]);
            }
            break;
        default:
            MPI_Recv_init(in, to->count, to->type, other, 0, MPI_COMM_WORLD, &requests[0]);
            MPI_Send_init(out, from->count, from->type, other, 0, MPI_COMM_WORLD, &requests[1]);
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, statuses);
            MPI_Request_free(&requests[0]);
            MPI_Request_free(&requests[1]);
    }
    MPI_Get_elements(&statuses[0], MPI_INT, &elements);
    if (elements != ints)
        fail("the status says %d ints instead of %d", elements, ints);
}

/* One message in each direction, between memories that both ranks lay out alike; checks all of the
 * receiver's memory. */
static void check_pair(int mode, const layout_t * from, const layout_t * to, int ints, uint32_t seed)
{
    int other = 1 - rank;
    char *out = allocate(from->memory_bytes), *in = allocate(to->memory_bytes), *wanted = allocate(to->memory_bytes);

    fill(out, from->memory_bytes, seed + rank);
    fill(in, to->memory_bytes, seed + 2);
    memcpy(wanted, in, to->memory_bytes);
    for (int i = 0; i < ints; i++) {
        uint32_t value = word_at(seed + other, from->offset_bytes[i] / 4);
        memcpy(wanted + to->offset_bytes[i], &value, 4);
    }
    exchange(mode, other, out + from->origin_bytes, from, in + to->origin_bytes, to, ints);
    if (memcmp(in, wanted, to->memory_bytes) != 0) {
        MPI_Aint i = 0;
        while (in[i] == wanted[i])
            i++;
        fail("byte %ld of %ld is wrong", (long) i, (long) to->memory_bytes);
    }
    expect(out, from->memory_bytes, seed + rank, "the sender's memory");
    free(out);
    free(in);
    free(wanted);
}

/* Sparse: each kind is sent once only. */
static void check_length(int ints, int number, int is_sparse)
{
    layout_t layouts[kKinds];
    uint32_t seed = 1000 * number;

    for (int kind = 0; kind < kKinds; kind++) {
        layouts[kind].offset_bytes = allocate(sizeof(MPI_Aint) * ints);
        kinds[kind].build(&layouts[kind], ints);
        place(&layouts[kind], ints);
        MPI_Type_commit(&layouts[kind].type);
    }
    for (int mode = 0; mode < kModes; mode++) {
        for (int from = 0; from < kKinds; from++) {
            for (int to = 0; to < kKinds; to++) {
                /* In short, each kind meets another one in each mode, and has met all after all lengths. */
                if (!is_long() && to != (from + mode + number) % kKinds)
                    continue;
                if (!is_long() && is_sparse && (from + mode) % kModes != 0)
                    continue;
                snprintf(doing, sizeof doing, "%d bytes, %s to %s, %s", 4 * ints, kinds[from].name, kinds[to].name,
                         modes[mode]);
                check_pair(mode, &layouts[from], &layouts[to], ints, seed += 3);
            }
        }
    }
    for (int kind = 0; kind < kKinds; kind++) {
        MPI_Type_free(&layouts[kind].type);
        free(layouts[kind].offset_bytes);
    }
}

static void all_lengths(void)
{
    /* Around the ends of slots (8 KiB, 32 KiB) and of the eager limit (65,536 bytes), and in between. */
    static const int ints[] = { 2, 26, 1000, 2048, 8190, 8192, 16382, 16384, 75000, 262146, 2097152 };

    if (size != 2)
        fail("2 ranks are needed");
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        check_length(ints[i], (int) i, ints[i] > 70000);
}

/* Receives a message that ends inside an element of that many blocks: few are a list of pieces, many are
 * packed. */
static void check_cut_element(int blocks)
{
    MPI_Datatype type;
    MPI_Status status;
    int other = 1 - rank, count;
    int *memory = allocate(sizeof(int) * 2 * blocks);

    snprintf(doing, sizeof doing, "6 bytes into %d blocks", blocks);
    MPI_Type_vector(blocks, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int is_posted = 0; is_posted < 2; is_posted++) {
        MPI_Request request;
        int error, class = MPI_SUCCESS;
        const char bytes[6] = { 1, 2, 3, 4, 5, 6 };

        if (is_posted)
            MPI_Irecv(memory, 1, type, other, 0, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(bytes, 6, MPI_BYTE, other, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        error = is_posted ? MPI_Wait(&request, &status) :
            MPI_Recv(memory, 1, type, other, 0, MPI_COMM_WORLD, &status);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_Error_class(error, &class);
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (class != MPI_ERR_TYPE || count != 4)
            fail("error class %d, %d bytes: MPI_ERR_TYPE and 4 are right", class, count);
    }
    MPI_Type_free(&type);
    free(memory);
}

static void cut_elements(void)
{
    if (size != 2)
        fail("2 ranks are needed");
    check_cut_element(4);
    check_cut_element(1000);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = { {"all-lengths", all_lengths}, {"cut-elements", cut_elements} };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
