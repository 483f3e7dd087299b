/* For test/over-mpi/run: messages of datatypes with more pieces than the glue gives to the engine as a list, so
 * that the engine has them packed and unpacked, in ranges that cut basic elements. With NIC=thread its own
 * thread does that, while this program makes and frees datatypes: ch3_layout.c of the glue says why it may. A
 * program frees each type while its messages are pending. */
#include "over_mpi.h"

enum {
    kBlocks = 300,              /* runs of an element */
    kParts = 3,                 /* basic datatypes of an element: bytes, ints, long doubles */
    kKinds = 4,                 /* see make_type() */
    kAtOnce = 6,                /* messages on their way in each direction */
    kAlive = 1500               /* other types at a time: more than a block of MPICH's objects holds */
};

/* `count` elements of kBlocks runs each. */
typedef struct {
    MPI_Datatype type;
    int count;
    size_t element_bytes, extent_bytes;
    size_t offset_bytes[kBlocks], length_bytes[kBlocks];
} shape_t;

typedef enum { kTyped, kToBytes, kFromBytes } way_t;
static const char *const ways[] = { "typed to typed", "typed to packed", "packed to typed" };

static const size_t basic_bytes[kParts] = { 1, sizeof(int), sizeof(long double) };

static size_t memory_bytes(const shape_t * shape)
{
    return shape->count * shape->extent_bytes;
}

static size_t packed_bytes(const shape_t * shape)
{
    return shape->count * shape->element_bytes;
}

/* Which part a run of an element of that kind belongs to. */
static int part_of(int kind, int run)
{
    return kind < 2 ? kind : run * kParts / kBlocks;
}

/* The runs [first, end) as one datatype. */
static MPI_Datatype make_part(const shape_t * shape, int kind, int first, int end)
{
    const MPI_Datatype basic[kParts] = { MPI_BYTE, MPI_INT, MPI_LONG_DOUBLE };
    const int part = part_of(kind, first);
    int lengths[kBlocks];
    MPI_Aint displacements[kBlocks];
    MPI_Datatype type;

    for (int i = first; i < end; i++) {
        lengths[i - first] = (int) (shape->length_bytes[i] / basic_bytes[part]);
        displacements[i - first] = (MPI_Aint) shape->offset_bytes[i];
    }
    MPI_Type_create_hindexed(end - first, lengths, displacements, basic[part], &type);
    return type;
}

static MPI_Datatype join(MPI_Datatype first, MPI_Datatype second)
{
    const int counts[2] = { 1, 1 };
    const MPI_Aint places[2] = { 0, 0 };
    const MPI_Datatype parts[2] = { first, second };
    MPI_Datatype both;

    MPI_Type_create_struct(2, counts, places, parts, &both);
    MPI_Type_free(&first);
    MPI_Type_free(&second);
    return both;
}

/* Kinds 0 and 1 have one basic datatype, 2 and 3 are structs of structs. The runs' lengths follow from the kind,
 * and their places from the seed: two shapes of a kind have one type signature. */
static void make_shape(shape_t * shape, int kind, int count, uint64_t seed)
{
    uint64_t lengths = 50 + kind, gaps = seed;
    size_t at = 0;
    MPI_Datatype element;

    shape->count = count;
    shape->element_bytes = 0;
    for (int i = 0; i < kBlocks; i++) {
        at += 16 * next_random(&gaps, 3) + basic_bytes[part_of(kind, i)];
        at = (at + 15) / 16 * 16;
        shape->offset_bytes[i] = at;
        shape->length_bytes[i] = basic_bytes[part_of(kind, i)] * (1 + next_random(&lengths, 7));
        at += shape->length_bytes[i];
        shape->element_bytes += shape->length_bytes[i];
    }
    shape->extent_bytes = (at + 31) / 16 * 16;
    if (kind < 2) {
        element = make_part(shape, kind, 0, kBlocks);
    } else {
        const int third = kBlocks / kParts;
        MPI_Datatype bytes = make_part(shape, kind, 0, third);
        MPI_Datatype ints = make_part(shape, kind, third, 2 * third);
        MPI_Datatype longs = make_part(shape, kind, 2 * third, kBlocks);
        element = kind == 2 ? join(join(bytes, ints), longs) : join(bytes, join(ints, longs));
    }
    MPI_Type_create_resized(element, 0, (MPI_Aint) shape->extent_bytes, &shape->type);
    MPI_Type_commit(&shape->type);
    MPI_Type_free(&element);
}

/* Copies the first `length` bytes of a message between its shape and contiguous memory. */
static void copy(const shape_t * shape, unsigned char *memory, unsigned char *packed, size_t length, int to_memory)
{
    for (int element = 0; length > 0; element++) {
        for (int i = 0; i < kBlocks && length > 0; i++) {
            unsigned char *run = memory + element * shape->extent_bytes + shape->offset_bytes[i];
            size_t n = shape->length_bytes[i] < length ? shape->length_bytes[i] : length;
            if (to_memory)
                memcpy(run, packed, n);
            else
                memcpy(packed, run, n);
            packed += n;
            length -= n;
        }
    }
}

/* One message: what it is sent from, received into, and should be there. */
typedef struct {
    shape_t from, to;
    unsigned char *out, *in, *wanted;
    size_t in_bytes;            /* of `in` */
    int is_cut;                 /* longer than the receive */
    MPI_Request send, receive;
} message_t;

static void prepare(message_t * message, way_t way, int kind, int count, int is_cut, uint32_t seed)
{
    const int room = is_cut ? count - 1 : count;
    unsigned char *packed;
    size_t length;

    make_shape(&message->from, kind, count, seed);
    make_shape(&message->to, kind, room, seed + 1);
    message->is_cut = is_cut;
    message->in_bytes = way == kToBytes ? packed_bytes(&message->to) : memory_bytes(&message->to);
    length = packed_bytes(&message->to);
    packed = allocate(packed_bytes(&message->from));
    fill(packed, packed_bytes(&message->from), seed + 1 - rank);
    message->in = allocate(message->in_bytes + 64);
    message->wanted = allocate(message->in_bytes + 64);
    memset(message->in, 0xEE, message->in_bytes + 64);
    memset(message->wanted, 0xEE, message->in_bytes + 64);
    if (way == kToBytes)
        memcpy(message->wanted, packed, length);
    else
        copy(&message->to, message->wanted, packed, length, 1);
    fill(packed, packed_bytes(&message->from), seed + rank);
    if (way == kFromBytes) {
        message->out = packed;
        return;
    }
    message->out = allocate(memory_bytes(&message->from));
    memset(message->out, 0, memory_bytes(&message->from));
    copy(&message->from, message->out, packed, packed_bytes(&message->from), 1);
    free(packed);
}

static void receive(message_t * message, way_t way, int tag)
{
    if (way == kToBytes)
        MPI_Irecv(message->in, (int) message->in_bytes, MPI_PACKED, 1 - rank, tag, MPI_COMM_WORLD,
                  &message->receive);
    else
        MPI_Irecv(message->in, message->to.count, message->to.type, 1 - rank, tag, MPI_COMM_WORLD,
                  &message->receive);
}

static void receive_matched(message_t * message, way_t way, int tag)
{
    MPI_Message matched;

    MPI_Mprobe(1 - rank, tag, MPI_COMM_WORLD, &matched, MPI_STATUS_IGNORE);
    if (way == kToBytes)
        MPI_Imrecv(message->in, (int) message->in_bytes, MPI_PACKED, &matched, &message->receive);
    else
        MPI_Imrecv(message->in, message->to.count, message->to.type, &matched, &message->receive);
}

static void send(message_t * message, way_t way, int tag, int is_sync)
{
    const int count = way == kFromBytes ? (int) packed_bytes(&message->from) : message->from.count;
    const MPI_Datatype type = way == kFromBytes ? MPI_PACKED : message->from.type;

    if (is_sync)
        MPI_Issend(message->out, count, type, 1 - rank, tag, MPI_COMM_WORLD, &message->send);
    else
        MPI_Isend(message->out, count, type, 1 - rank, tag, MPI_COMM_WORLD, &message->send);
}

static void check(message_t * message)
{
    MPI_Status status;
    const int error = MPI_Wait(&message->receive, &status);
    int class, count;

    MPI_Error_class(error, &class);
    if (class != (message->is_cut ? MPI_ERR_TRUNCATE : MPI_SUCCESS))
        fail("a receive ended with error class %d", class);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != (int) packed_bytes(&message->to))
        fail("%d bytes were received instead of %zu", count, packed_bytes(&message->to));
    if (memcmp(message->in, message->wanted, message->in_bytes + 64) != 0)
        fail("what was received is wrong");
    if (MPI_Wait(&message->send, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        fail("a send failed");
    free(message->out);
    free(message->in);
    free(message->wanted);
}

/* Makes and frees datatypes whose objects are those that the messages have freed. */
static void churn(MPI_Datatype * alive, int *next)
{
    for (int i = 0; i < kAlive / 10; i++, ++*next) {
        MPI_Datatype *type = &alive[*next % kAlive];
        if (*type != MPI_DATATYPE_NULL)
            MPI_Type_free(type);
        MPI_Type_vector(1 + *next % 200, 1, 2, MPI_INT, type);
        MPI_Type_commit(type);
    }
}

/* A receive that nothing matches. */
static void cancel_one(message_t * message)
{
    MPI_Request request;
    MPI_Status status;
    int is_cancelled;

    MPI_Irecv(message->in, message->to.count, message->to.type, 1 - rank, 4711, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &is_cancelled);
    if (!is_cancelled)
        fail("a receive that nothing matches was not cancelled");
}

static void exchange(way_t way, int kind, int count, int is_cut, int number, MPI_Datatype * alive, int *next)
{
    message_t messages[kAtOnce];
    const int is_sync = number % 3 == 0, is_posted = number % 2 == 0, is_matched = number % 4 == 1;

    snprintf(doing, sizeof doing, "%s, kind %d, %d elements%s%s%s", ways[way], kind, count, is_cut ? ", cut" : "",
             is_sync ? ", synchronous" : "", is_posted ? ", posted" : is_matched ? ", matched" : "");
    for (int i = 0; i < kAtOnce; i++)
        prepare(&messages[i], way, kind, count, is_cut, 100 * number + 4 * i);
    cancel_one(&messages[0]);
    if (is_posted) {
        for (int i = 0; i < kAtOnce; i++)
            receive(&messages[i], way, i);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < kAtOnce; i++)
        send(&messages[i], way, i, is_sync);
    if (!is_posted)
        for (int i = 0; i < kAtOnce; i++)
            (is_matched ? receive_matched : receive) (&messages[i], way, i);
    for (int i = 0; i < kAtOnce; i++) {
        MPI_Type_free(&messages[i].from.type);  /* the operations hold them */
        MPI_Type_free(&messages[i].to.type);
        churn(alive, next);
    }
    for (int i = 0; i < kAtOnce; i++)
        check(&messages[i]);
}

static void packed(void)
{
    static MPI_Datatype alive[kAlive];
    /* Below the eager limit, above it, and in many slots. */
    static const int counts[] = { 1, 9, 40 };
    int number = 0, next = 0;

    if (size != 2)
        fail("2 ranks are needed");
    for (int i = 0; i < kAlive; i++)
        alive[i] = MPI_DATATYPE_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int round = 0; round < (is_long()? 100 : 1); round++)
        for (int way = 0; way < 3; way++)
            for (int kind = 0; kind < kKinds; kind++)
                for (int c = 0; c < 3; c++)
                    for (int is_cut = 0; is_cut < 2; is_cut++)
                        exchange(way, kind, counts[c], is_cut, ++number, alive, &next);
    for (int i = 0; i < kAlive; i++)
        if (alive[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&alive[i]);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = { {"packed", packed} };
    return run_program(argc, argv, programs, 1);
}
