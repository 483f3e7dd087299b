/* For test/over-mpi/run: nonblocking and persistent collective operations, of which several are under way at
 * once, on several communicators. All members draw the same random numbers, so each knows every result. */
#include "over_mpi.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kMost = 6, kMostElements = 40000 };

static uint64_t state = 1;

static uint32_t draw(uint32_t limit)
{
    return next_random(&state, limit);
}

/* ---- one operation ---- */

typedef struct {
    MPI_Comm comm;
    int members, me;
    int kind;
    int root;
    int count;                  /* of elements, of each member */
    uint32_t seed;
    MPI_Op op;
    MPI_Datatype type;          /* MPI_INT64_T or MPI_DOUBLE, or a type of such elements with gaps */
    int is_strided;
    int is_in_place;            /* of MPI_Iscatter: at the root */
    void *in, *out;
    MPI_Request request;
} operation_t;

enum { kBarrier, kBcast, kReduce, kAllreduce, kAllgather, kAllgatherv, kAlltoall, kGather, kScatter, kScan,
    kReduceScatter, kKinds
};

static int is_combined(int kind)
{
    return kind == kReduce || kind == kAllreduce || kind == kScan || kind == kReduceScatter;
}

/* Whole numbers, which are exact as doubles, too. */
static int64_t value(const operation_t * one, int member, int64_t i)
{
    return (int64_t) (word_at(one->seed + (uint32_t) member, (uint64_t) i) % 1000) - 300;
}

static int is_double(const operation_t * one)
{
    return one->type == MPI_DOUBLE;
}

static void put(const operation_t * one, void *memory, int64_t i, int64_t what)
{
    const int64_t at = one->is_strided ? 2 * i : i;
    if (is_double(one))
        ((double *) memory)[at] = (double) what;
    else
        ((int64_t *) memory)[at] = what;
}

static void expect_value(const operation_t * one, int64_t i, int64_t what)
{
    const int64_t at = one->is_strided ? 2 * i : i;
    const int64_t is = is_double(one) ? (int64_t) ((double *) one->out)[at] : ((int64_t *) one->out)[at];
    if (is != what)
        fail("operation %d, %d of %d elements at member %d of %d: element %lld is %lld instead of %lld", one->kind,
             one->count, kMostElements, one->me, one->members, (long long) i, (long long) is, (long long) what);
}

static int64_t combine(const operation_t * one, int64_t a, int64_t b)
{
    return one->op == MPI_SUM ? a + b : one->op == MPI_MAX ? (a > b ? a : b) : a < b ? a : b;
}

static int64_t combined(const operation_t * one, int members, int64_t i)
{
    int64_t result = value(one, 0, i);
    int member;
    for (member = 1; member < members; member++)
        result = combine(one, result, value(one, member, i));
    return result;
}

static MPI_Datatype strided_type(void)
{
    static MPI_Datatype type = MPI_DATATYPE_NULL;
    if (type == MPI_DATATYPE_NULL) {
        MPI_Type_create_resized(MPI_INT64_T, 0, 2 * sizeof(int64_t), &type);
        MPI_Type_commit(&type);
    }
    return type;
}

static void make(operation_t * one, MPI_Comm comm, int kind)
{
    static const int counts[] = { 0, 1, 3, 100, 2000, kMostElements };
    const MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_MIN };
    int i, elements;
    size_t bytes;

    one->comm = comm;
    MPI_Comm_size(comm, &one->members);
    MPI_Comm_rank(comm, &one->me);
    one->kind = kind;
    one->root = (int) draw((uint32_t) one->members);
    one->count = counts[draw(sizeof counts / sizeof counts[0])];
    one->seed = draw(1u << 30);
    one->op = ops[draw(3)];
    one->type = draw(2) == 0 ? MPI_DOUBLE : MPI_INT64_T;
    one->is_strided = draw(3) == 0 && !is_combined(kind);
    if (one->is_strided)
        one->type = strided_type();
    elements = one->count * one->members;
    bytes = (size_t) (one->is_strided ? 2 : 1) * sizeof(int64_t) * (size_t) elements;
    one->is_in_place = draw(3) == 0 && (kind == kAllreduce || kind == kAllgather || kind == kAllgatherv ||
                                        kind == kScan || (kind == kScatter && one->me == one->root));
    one->in = allocate(bytes);
    one->out = allocate(bytes);
    memset(one->in, 0, bytes);
    memset(one->out, 0x55, bytes);
    for (i = 0; i < elements; i++)
        put(one, one->in, i, value(one, one->me, i));
    if (kind == kBcast && one->me == one->root)
        for (i = 0; i < one->count; i++)
            put(one, one->out, i, value(one, one->root, i));
}

static void start(operation_t * one)
{
    static int counts[64], places[64];
    const int n = one->count;
    void *in = one->is_in_place && one->kind != kScatter ? MPI_IN_PLACE : one->in;
    void *out = one->is_in_place && one->kind == kScatter ? MPI_IN_PLACE : one->out;
    int i;

    for (i = 0; in == MPI_IN_PLACE && i < n; i++)
        put(one, one->out, is_combined(one->kind) ? i : (int64_t) one->me * n + i, value(one, one->me, i));

    switch (one->kind) {
        case kBarrier:
            MPI_Ibarrier(one->comm, &one->request);
            break;
        case kBcast:
            MPI_Ibcast(one->out, n, one->type, one->root, one->comm, &one->request);
            break;
        case kReduce:
            MPI_Ireduce(one->in, one->out, n, one->type, one->op, one->root, one->comm, &one->request);
            break;
        case kAllreduce:
            MPI_Iallreduce(in, one->out, n, one->type, one->op, one->comm, &one->request);
            break;
        case kAllgather:
            MPI_Iallgather(in, n, one->type, one->out, n, one->type, one->comm, &one->request);
            break;
        case kAllgatherv:
            for (i = 0; i < one->members; i++) {
                counts[i] = n;
                places[i] = i * n;
            }
            MPI_Iallgatherv(in, n, one->type, one->out, counts, places, one->type, one->comm,
                            &one->request);
            break;
        case kAlltoall:
            MPI_Ialltoall(one->in, n, one->type, one->out, n, one->type, one->comm, &one->request);
            break;
        case kGather:
            MPI_Igather(one->in, n, one->type, one->out, n, one->type, one->root, one->comm, &one->request);
            break;
        case kScatter:
            MPI_Iscatter(one->in, n, one->type, out, n, one->type, one->root, one->comm, &one->request);
            break;
        case kScan:
            MPI_Iscan(in, one->out, n, one->type, one->op, one->comm, &one->request);
            break;
        case kReduceScatter:
            MPI_Ireduce_scatter_block(one->in, one->out, n, one->type, one->op, one->comm, &one->request);
            break;
    }
}

static void judge(operation_t * one)
{
    const int n = one->count;
    int i, member;

    for (i = 0; i < n; i++) {
        switch (one->kind) {
            case kBcast:
                expect_value(one, i, value(one, one->root, i));
                break;
            case kReduce:
                if (one->me == one->root)
                    expect_value(one, i, combined(one, one->members, i));
                break;
            case kAllreduce:
                expect_value(one, i, combined(one, one->members, i));
                break;
            case kScan:
                expect_value(one, i, combined(one, one->me + 1, i));
                break;
            case kReduceScatter:
                expect_value(one, i, combined(one, one->members, (int64_t) one->me * n + i));
                break;
            case kScatter:
                if (!one->is_in_place)
                    expect_value(one, i, value(one, one->root, (int64_t) one->me * n + i));
                break;
            case kGather:
            case kAllgather:
            case kAllgatherv:
            case kAlltoall:
                for (member = 0; member < one->members; member++)
                    if (one->kind != kGather || one->me == one->root)
                        expect_value(one, (int64_t) member * n + i,
                                     value(one, member, one->kind == kAlltoall ? (int64_t) one->me * n + i : i));
                break;
        }
    }
    free(one->in);
    free(one->out);
}

/* ---- programs ---- */

static unsigned long long count_schedules(void);

/* Several at once, on two communicators, which end in another order at each member. On the first one, members
 * with odd ranks keep their part from the processor. */
static void random_ones(void)
{
    operation_t all[kMost];
    MPI_Comm comms[2];
    MPI_Request requests[kMost];
    MPI_Info info;
    uint64_t own = 77 + (uint64_t) rank;
    int rounds = is_long() ? 3000 : 60, round, count, i, index;

    MPI_Info_create(&info);
    MPI_Info_set(info, "ch3_offload_collectives", rank % 2 == 0 ? "true" : "false");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comms[0]);
    MPI_Info_free(&info);
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &comms[1]);
    for (round = 0; round < rounds; round++) {
        snprintf(doing, sizeof doing, "random operations, round %d", round);
        count = 1 + (int) draw(kMost);
        for (i = 0; i < count; i++) {
            make(&all[i], comms[draw(2)], (int) draw(kKinds));
            start(&all[i]);
            requests[i] = all[i].request;
            if (next_random(&own, 8) == 0)
                usleep(next_random(&own, 2000));
        }
        for (i = 0; i < count; i++) {
            if (next_random(&own, 2) == 0)
                MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
            else
                for (int done = 0; !done;)
                    MPI_Testany(count, requests, &index, &done, MPI_STATUS_IGNORE);
            judge(&all[index]);
        }
    }
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
}

/* A communicator is freed while an operation on it is under way, and so is a datatype. */
static void freed(void)
{
    int round, i;

    for (round = 0; round < 20; round++) {
        MPI_Comm comm;
        MPI_Datatype type;
        MPI_Request requests[2];
        int in[3 * 500], sum[1] = { rank }, result = -1;

        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Type_vector(500, 1, 3, MPI_INT, &type);
        MPI_Type_commit(&type);
        for (i = 0; i < 3 * 500; i++)
            in[i] = rank == 0 ? round + i : -1;
        MPI_Ibcast(in, 1, type, 0, comm, &requests[0]);
        MPI_Iallreduce(sum, &result, 1, MPI_INT, MPI_SUM, comm, &requests[1]);
        MPI_Type_free(&type);
        MPI_Comm_free(&comm);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (result != size * (size - 1) / 2)
            fail("the sum is %d", result);
        for (i = 0; i < 500; i++)
            if (in[3 * i] != round + 3 * i || (rank != 0 && i > 0 && in[3 * i - 1] != -1))
                fail("element %d is %d", 3 * i, in[3 * i]);
    }
}

static int is_driver(const char *driver)
{
    const char *nic = getenv("MPIR_CVAR_CH3_OFFLOAD_NIC");
    return strcmp(nic == NULL ? "host" : nic, driver) == 0;
}

/* The processor has got so many operations. With the host driver, none. */
static void expect_schedules(unsigned long long got, unsigned long long wanted)
{
    if (is_driver("host"))
        wanted = 0;
    if (got != wanted)
        fail("the processor has got %llu operations instead of %llu", got, wanted);
}

static void persistent(void)
{
    double in[1000], out[1000];
    int64_t word = 0;
    MPI_Request requests[3];
    int round, i;
    const unsigned long long before = count_schedules();

    MPI_Allreduce_init(in, out, 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Bcast_init(&word, 1, MPI_INT64_T, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
    for (round = 0; round < 100; round++) {
        for (i = 0; i < 1000; i++)
            in[i] = rank + i + round;
        word = rank == size - 1 ? round * 5 : -1;
        MPI_Startall(3, requests);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        for (i = 0; i < 1000; i++)
            if (out[i] != (double) size * (i + round) + size * (size - 1) / 2)
                fail("round %d: element %d is %g", round, i, out[i]);
        if (word != round * 5)
            fail("round %d: the word is %lld", round, (long long) word);
    }
    for (i = 0; i < 3; i++)
        MPI_Request_free(&requests[i]);
    expect_schedules(count_schedules() - before, 300);
}

/* Functions of the user, which only MPICH can call; pairs; intercommunicators. */
static void add(void *in, void *inout, int *count, MPI_Datatype * type)
{
    int i;
    (void) type;
    for (i = 0; i < *count; i++)
        ((int *) inout)[i] += ((int *) in)[i];
}

static void mixed(void)
{
    MPI_Comm half, inter;
    MPI_Op op;
    MPI_Request request;
    int round, in = rank + 1, out, color = rank % 2, group;
    unsigned long long before;
    struct {
        double value;
        int place;
    } pair = { (double) ((rank * 7) % size), rank }, best;

    MPI_Op_create(add, 1, &op);
    MPI_Comm_split(MPI_COMM_WORLD, color, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - color, 5, &inter);
    MPI_Comm_remote_size(inter, &group);
    before = count_schedules();
    for (round = 0; round < 20; round++) {
        MPI_Iallreduce(&in, &out, 1, MPI_INT, op, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (out != size * (size + 1) / 2)
            fail("the user's sum is %d", out);
        best = pair;            /* MPICH copies what has gaps: so there is nothing to copy */
        MPI_Iallreduce(MPI_IN_PLACE, &best, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (best.value != 0 || (best.place * 7) % size != 0)
            fail("the least is %g at %d", best.value, best.place);
        MPI_Iallreduce(&color, &out, 1, MPI_INT, MPI_SUM, inter, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (out != (1 - color) * group)
            fail("the other group's sum is %d", out);
        MPI_Ibarrier(inter, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    /* A processor in another process has none of datatypes with gaps. */
    expect_schedules(count_schedules() - before, is_driver("process") ? 40 : 60);
    MPI_Op_free(&op);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* ---- the processor works while the program does not call MPI ---- */

static unsigned long long count_schedules(void)
{
    static MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
    static MPI_T_pvar_handle handle;
    unsigned long long schedules = 0;
    int provided, index, count;

    if (session == MPI_T_PVAR_SESSION_NULL) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        MPI_T_pvar_session_create(&session);
        if (MPI_T_pvar_get_index("ch3_offload_ring_schedules", MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS ||
            MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) != MPI_SUCCESS)
            fail("no counter of schedules");
    }
    MPI_T_pvar_read(session, handle, &schedules);
    return schedules;
}

/* One member at a time calls MPI no more, from the start of an operation until all others have ended theirs. */
static void computes(void)
{
    static const int kinds[] = { kBarrier, kBcast, kReduce, kAllreduce, kAllgather, kAllgatherv, kAlltoall, kGather,
        kScatter, kScan, kReduceScatter
    };
    enum { kSeconds = 60 };
    volatile int *ended;
    char name[] = "/tmp/ch3-offload-collectives-XXXXXX";
    int which, file, round = 0;
    const int rounds = 2 * (int) (sizeof kinds / sizeof kinds[0]) * size;
    unsigned long long started = 0;
    const size_t bytes = (size_t) rounds * sizeof(int);

    /* No window: MPICH may take these processes for two nodes. */
    file = rank == 0 ? mkstemp(name) : -1;
    if (rank == 0 && (file < 0 || ftruncate(file, (off_t) bytes) != 0))
        fail("no file %s", name);
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank != 0)
        file = open(name, O_RDWR);
    ended = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || ended == MAP_FAILED)
        fail("cannot map %s", name);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        unlink(name);
    for (round = 0; round < rounds; round++) {
        operation_t one;
        const int is_long = round % 2, kind = kinds[round / 2 / size];

        which = round / 2 % size;
        for (;;) {
            make(&one, MPI_COMM_WORLD, kind);
            if (!one.is_strided && one.count > 0 && (one.count > 1000) == is_long)
                break;
            free(one.in);
            free(one.out);
        }
        snprintf(doing, sizeof doing, "operation %d of %d elements, root %d, member %d computes", kind, one.count,
                 one.root, which);
        MPI_Barrier(MPI_COMM_WORLD);
        start(&one);
        /* In this one, MPICH uses datatypes with gaps at some members. */
        started += kind != kReduceScatter;
        if (rank == which) {
            const double end = MPI_Wtime() + kSeconds;
            while (ended[round] < size - 1)
                if (MPI_Wtime() > end)
                    fail("the others wait for its calls");
        }
        MPI_Wait(&one.request, MPI_STATUS_IGNORE);
        if (rank != which)
            __atomic_add_fetch((int *) &ended[round], 1, __ATOMIC_SEQ_CST);
        judge(&one);
    }
    if (count_schedules() < started)
        fail("the processor has got %llu operations of %llu", count_schedules(), started);
    munmap((void *) ended, bytes);
    close(file);
}

/* Info of a communicator decides, too, each process for itself. */
static void by_info(void)
{
    MPI_Comm comm;
    MPI_Info info;
    MPI_Request request;
    char value[20] = "";
    int is_given;
    const unsigned long long before = count_schedules();

    MPI_Info_create(&info);
    MPI_Info_set(info, "ch3_offload_collectives", rank == 0 ? "false" : "true");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    MPI_Comm_get_info(comm, &info);
    MPI_Info_get(info, "ch3_offload_collectives", sizeof value - 1, value, &is_given);
    if (!is_given || strcmp(value, rank == 0 ? "false" : "true") != 0)
        fail("the value is '%s'", value);
    MPI_Info_free(&info);
    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (count_schedules() - before != (rank == 0 ? 0 : 1))
        fail("the processor has got %llu operations", count_schedules() - before);
    MPI_Comm_free(&comm);
}

/* None is left to the processor. */
static void counted(void)
{
    random_ones();
    if (count_schedules() != 0)
        fail("the processor has got %llu operations", count_schedules());
}

int main(int argc, char **argv)
{
    static const program_t programs[] = {
        {"random", random_ones}, {"freed", freed}, {"persistent", persistent}, {"mixed", mixed},
        {"computes", computes}, {"info", by_info}, {"not-offloaded", counted}
    };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
