/* One-sided operations with every byte checked, on windows of memory that is private to each process, of shared memory,
 * and of both.
 *
 * Usage: windows PART
 *   passive      for 2 processes: puts, gets, atomics and locks end while the target computes and calls no MPI
 *   moves        put and get of all lengths, with gaps on either side, in each kind of epoch
 *   accumulates  each operation on each type, against what this process computes alone
 *   polls        a process that looks at its own window in a loop lets others in
 *   counters     all processes change the same elements at once
 *   locks        increments by get and put under a lock; readers beside writers
 *   wrong        what is not allowed is an error, and has no effect
 *   range        so is what does not lie in the window, if a network processor serves it
 *   mapped       windows of MPI_Alloc_mem need no help of the target, and where some memory is not mapped, they work
 *   dynamic      memory that is attached to a window
 *   many         windows come and go, and several live at once
 */
#include "over_mpi.h"

#include <stdbool.h>
#include <sys/resource.h>

/* ---- windows ---- */

typedef enum { kPrivate, kAllocMem, kAllocated, kShared, kKinds } kind_t;
static const char *const kind_names[] = { "private", "of MPI_Alloc_mem", "allocated", "shared" };

typedef struct {
    kind_t kind;
    MPI_Win window;
    char *memory;
    size_t bytes;
} window_t;

static window_t make_window(kind_t kind, size_t bytes, int unit)
{
    window_t made = { kind, MPI_WIN_NULL, NULL, bytes };

    if (kind == kPrivate || kind == kAllocMem) {
        if (kind == kPrivate)
            made.memory = allocate(bytes);
        else
            MPI_Alloc_mem((MPI_Aint) bytes, MPI_INFO_NULL, &made.memory);
        MPI_Win_create(made.memory, (MPI_Aint) bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.window);
    } else if (kind == kAllocated) {
        MPI_Win_allocate((MPI_Aint) bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.memory, &made.window);
    } else {
        MPI_Win_allocate_shared((MPI_Aint) bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.memory,
                                &made.window);
    }
    MPI_Win_set_errhandler(made.window, MPI_ERRORS_ARE_FATAL);
    return made;
}

static void free_window(window_t * window)
{
    MPI_Win_free(&window->window);
    if (window->kind == kPrivate)
        free(window->memory);
    else if (window->kind == kAllocMem)
        MPI_Free_mem(window->memory);
}

/* The kinds of epochs. */
typedef enum { kFence, kGroups, kLock, kLockAll, kEpochs } epoch_t;
static const char *const epoch_names[] = { "fence", "groups", "lock", "lock_all" };

/* All processes call it; each addresses `target`. */
static void begin_epoch(epoch_t epoch, MPI_Win window, int target)
{
    MPI_Group all;

    switch (epoch) {
        case kFence:
            MPI_Win_fence(0, window);
            break;
        case kGroups:
            MPI_Win_get_group(window, &all);
            MPI_Win_post(all, 0, window);
            MPI_Win_start(all, 0, window);
            MPI_Group_free(&all);
            break;
        case kLock:
            MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
            break;
        default:
            MPI_Win_lock_all(0, window);
    }
}

static void end_epoch(epoch_t epoch, MPI_Win window, int target)
{
    switch (epoch) {
        case kFence:
            MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
            break;
        case kGroups:
            MPI_Win_complete(window);
            MPI_Win_wait(window);
            break;
        case kLock:
            MPI_Win_unlock(target, window);
            break;
        default:
            MPI_Win_flush(target, window);
            MPI_Win_unlock_all(window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- passive ---- */

enum { kFetches = 200, kPuts = 10 };

/* assert: of all locks. */
static void be_passive(kind_t kind, int assert)
{
    const size_t bytes = 1 << 20;
    const MPI_Aint counter = (MPI_Aint) (kPuts * bytes), word = counter + (MPI_Aint) sizeof(long);
    window_t data = make_window(kind, kPuts * bytes + 2 * sizeof(long), 1);

    memset(data.memory, 0, data.bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        /* It computes until somebody puts a word there. If its help were needed, this would not end. */
        const volatile long *over = (const volatile long *) (data.memory + word);
        while (!*over) {
        }
    } else {
        char *source = allocate(bytes), *back = allocate(bytes);
        const double begin = MPI_Wtime();
        long one = 1, old;
        int i;

        fill(source, bytes, 1);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, assert, data.window);
        for (i = 0; i < kFetches; i++) {
            MPI_Fetch_and_op(&one, &old, MPI_LONG, 1, counter, MPI_SUM, data.window);
            MPI_Win_flush(1, data.window);
            if (old != i)
                fail("fetch %d got %ld", i, old);
        }
        for (i = 0; i < kPuts; i++)
            MPI_Put(source, (int) bytes, MPI_BYTE, 1, (MPI_Aint) (i * bytes), (int) bytes, MPI_BYTE, data.window);
        MPI_Win_flush(1, data.window);
        MPI_Win_unlock(1, data.window);
        MPI_Win_lock_all(assert, data.window);
        MPI_Get(back, (int) bytes, MPI_BYTE, 1, (MPI_Aint) (3 * bytes), (int) bytes, MPI_BYTE, data.window);
        MPI_Win_unlock_all(data.window);
        printf("%d fetches and %d puts of 1 MiB in %.1f ms\n", kFetches, kPuts, (MPI_Wtime() - begin) * 1e3);
        MPI_Win_lock(MPI_LOCK_SHARED, 1, assert, data.window);
        MPI_Put(&one, 1, MPI_LONG, 1, word, 1, MPI_LONG, data.window);
        MPI_Win_unlock(1, data.window);
        expect(back, bytes, 1, "what was put");
        free(source);
        free(back);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        long count;
        int i;

        for (i = 0; i < kPuts; i++)
            expect(data.memory + i * bytes, bytes, 1, "the target's memory");
        memcpy(&count, data.memory + counter, sizeof count);
        if (count != kFetches)
            fail("counted %ld", count);
    }
    free_window(&data);
}

static void run_passive(void)
{
    be_passive(kPrivate, 0);
}

/* ---- moves ---- */

/* A datatype of `count` words: without gaps, or each third word of a row. */
static MPI_Datatype words(int count, bool has_gaps)
{
    MPI_Datatype type;

    if (has_gaps)
        MPI_Type_vector(count, 1, 3, MPI_INT32_T, &type);
    else
        MPI_Type_contiguous(count, MPI_INT32_T, &type);
    MPI_Type_commit(&type);
    return type;
}

static void spread(int32_t * to, const int32_t * from, int count, bool has_gaps)
{
    int i;

    for (i = 0; i < count; i++)
        to[has_gaps ? 3 * i : i] = from[i];
}

/* Each process puts to the next one's memory, and gets it back. */
static void move(window_t * window, epoch_t epoch, int count, bool gaps_here, bool gaps_there)
{
    const size_t most = 3 * sizeof(int32_t) * (size_t) count;
    const int target = (rank + 1) % size, source = (rank + size - 1) % size;
    int32_t *data = allocate(most), *spread_data = allocate(most), *expected = allocate(most), *back =
        allocate(most), *expected_back = allocate(most);
    MPI_Datatype here = words(count, gaps_here), there = words(count, gaps_there);
    /* At an offset that is aligned to nothing larger than a word. */
    const MPI_Aint offset = 5;

    snprintf(doing, sizeof doing, "moves %s %s, %d words%s%s", kind_names[window->kind], epoch_names[epoch],
             count, gaps_here ? ", gaps here" : "", gaps_there ? ", gaps there" : "");
    fill(data, sizeof(int32_t) * (size_t) count, (uint32_t) (rank + 1));
    memset(spread_data, 0x11, most);
    spread(spread_data, data, count, gaps_here);
    memset(window->memory, 0x22, window->bytes);
    MPI_Win_fence(0, window->window);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window->window);

    begin_epoch(epoch, window->window, target);
    MPI_Put(spread_data, 1, here, target, offset, 1, there, window->window);
    end_epoch(epoch, window->window, target);

    fill(data, sizeof(int32_t) * (size_t) count, (uint32_t) (source + 1));
    memset(expected, 0x22, most);
    spread(expected, data, count, gaps_there);
    if (memcmp(window->memory + offset * sizeof(int32_t), expected, most) != 0)
        fail("wrong bytes were put");
    memset(back, 0x33, most);
    begin_epoch(epoch, window->window, target);
    if (epoch == kLock || epoch == kLockAll) {
        MPI_Request request;

        MPI_Rget(back, 1, here, target, offset, 1, there, window->window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Get(back, 1, here, target, offset, 1, there, window->window);
    }
    end_epoch(epoch, window->window, target);
    fill(data, sizeof(int32_t) * (size_t) count, (uint32_t) (rank + 1));
    memset(expected_back, 0x33, most);
    spread(expected_back, data, count, gaps_here);
    if (memcmp(back, expected_back, most) != 0)
        fail("wrong bytes came back");
    MPI_Type_free(&here);
    MPI_Type_free(&there);
    free(data);
    free(spread_data);
    free(expected);
    free(back);
    free(expected_back);
}

static void run_moves(void)
{
    static const int counts[] = { 1, 3, 17, 700, 5000, 100000 };
    int kind, epoch, gaps;
    size_t i;

    for (kind = 0; kind < kKinds; kind++) {
        window_t window = make_window((kind_t) kind, 3 * sizeof(int32_t) * 100010, sizeof(int32_t));

        for (epoch = 0; epoch < kEpochs; epoch++)
            for (i = 0; i < sizeof counts / sizeof counts[0]; i++)
                for (gaps = 0; gaps < (counts[i] > 5000 ? 2 : 4); gaps++)
                    move(&window, (epoch_t) epoch, counts[i], gaps & 1, gaps & 2);
        free_window(&window);
    }
}

/* ---- accumulates ---- */

typedef struct {
    const char *name;
    MPI_Datatype type;
    enum { kInteger = 1, kReal = 2, kLogical = 4, kComplex = 8, kPair = 16 } group;
} element_t;

typedef struct {
    const char *name;
    MPI_Op op;
    int groups;
} operation_t;

enum { kMostElement = 64 };

/* A small value of the type, so that nothing overflows or rounds. */
static void set_element(const element_t * element, void *to, int value)
{
    int bytes;

    MPI_Type_size(element->type, &bytes);
#define SET(type_, c_type_) if (element->type == type_) { c_type_ x = (c_type_) value; memcpy(to, &x, sizeof x); return; }
    SET(MPI_FLOAT, float) SET(MPI_DOUBLE, double) SET(MPI_LONG_DOUBLE, long double)
#undef SET
#define SET(type_, c_type_) if (element->type == type_) { c_type_ x[2] = { (c_type_) value, (c_type_) (value % 3) }; \
        memcpy(to, x, sizeof x); return; }
    SET(MPI_C_FLOAT_COMPLEX, float) SET(MPI_C_DOUBLE_COMPLEX, double) SET(MPI_C_LONG_DOUBLE_COMPLEX, long double)
#undef SET
#define SET(type_, c_type_) if (element->type == type_) { struct { c_type_ value; int location; } x; \
        memset(&x, 0, sizeof x); x.value = (c_type_) (value % 5); x.location = value; memcpy(to, &x, sizeof x); return; }
    SET(MPI_2INT, int) SET(MPI_SHORT_INT, short) SET(MPI_LONG_INT, long) SET(MPI_FLOAT_INT, float)
        SET(MPI_DOUBLE_INT, double) SET(MPI_LONG_DOUBLE_INT, long double)
#undef SET
    if (element->group == kLogical)
        value = value % 2;
    if (bytes == 1) {
        int8_t x = (int8_t) value;
        memcpy(to, &x, sizeof x);
    } else if (bytes == 2) {
        int16_t x = (int16_t) value;
        memcpy(to, &x, sizeof x);
    } else if (bytes == 4) {
        int32_t x = value;
        memcpy(to, &x, sizeof x);
    } else {
        int64_t x = value;
        memcpy(to, &x, sizeof x);
    }
}

/* Whether the parts of two rows of elements that count are equal: gaps of pairs do not. */
static bool are_equal(const element_t * element, const char *a, const char *b, int count)
{
    int bytes;
    bool result;
    char *packed_a, *packed_b;
    int at_a = 0, at_b = 0;

    /* Of an 80-bit number in 16 bytes, the rest is not defined. */
    if (element->type == MPI_LONG_DOUBLE || element->type == MPI_C_LONG_DOUBLE_COMPLEX) {
        const long double *x = (const long double *) a, *y = (const long double *) b;
        const int numbers = element->type == MPI_LONG_DOUBLE ? count : 2 * count;
        int i;

        for (i = 0; i < numbers; i++)
            if (x[i] != y[i])
                return false;
        return true;
    }
    if (element->type == MPI_LONG_DOUBLE_INT) {
        const struct pair {
            long double value;
            int location;
        } *x = (const struct pair *) a, *y = (const struct pair *) b;
        int i;

        for (i = 0; i < count; i++)
            if (x[i].value != y[i].value || x[i].location != y[i].location)
                return false;
        return true;
    }
    MPI_Pack_size(count, element->type, MPI_COMM_SELF, &bytes);
    packed_a = allocate((size_t) bytes);
    packed_b = allocate((size_t) bytes);
    MPI_Pack(a, count, element->type, packed_a, bytes, &at_a, MPI_COMM_SELF);
    MPI_Pack(b, count, element->type, packed_b, bytes, &at_b, MPI_COMM_SELF);
    result = at_a == at_b && memcmp(packed_a, packed_b, (size_t) at_a) == 0;
    free(packed_a);
    free(packed_b);
    return result;
}

/* Each process accumulates to the next one's memory; what that comes to, it knows. */
static void accumulate(window_t * window, const element_t * element, const operation_t * operation, int count,
                       bool fetches, bool has_gaps)
{
    const int target = (rank + 1) % size, source = (rank + size - 1) % size;
    MPI_Aint lower, extent;
    char *mine, *before, *expected, *result;
    MPI_Datatype gaps;
    size_t bytes;
    int i;

    snprintf(doing, sizeof doing, "accumulates %s %s %s, %d elements%s%s", kind_names[window->kind],
             element->name, operation->name, count, fetches ? ", fetched" : "", has_gaps ? ", gaps" : "");
    MPI_Type_get_extent(element->type, &lower, &extent);
    bytes = (size_t) extent * (size_t) count * 2;
    mine = allocate(bytes);
    before = allocate(bytes);
    expected = allocate(bytes);
    result = allocate(bytes);
    memset(mine, 0, bytes);
    memset(before, 0, bytes);
    memset(result, 0, bytes);
    for (i = 0; i < 2 * count; i++) {
        set_element(element, mine + i * extent, (i * 7 + rank * 3 + 1) % 11 + 1);
        set_element(element, before + i * extent, (i * 5) % 7 + 1);
    }
    memcpy(window->memory, before, bytes);
    memcpy(expected, before, bytes);
    /* Each second element. */
    MPI_Type_vector(count, 1, 2, element->type, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Win_fence(0, window->window);
    if (fetches)
        MPI_Get_accumulate(mine, has_gaps ? 1 : count, has_gaps ? gaps : element->type, result,
                           has_gaps ? 1 : count, has_gaps ? gaps : element->type, target, 0,
                           has_gaps ? 1 : count, has_gaps ? gaps : element->type, operation->op, window->window);
    else
        MPI_Accumulate(mine, has_gaps ? 1 : count, has_gaps ? gaps : element->type, target, 0,
                       has_gaps ? 1 : count, has_gaps ? gaps : element->type, operation->op, window->window);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window->window);

    for (i = 0; i < 2 * count; i++)
        set_element(element, mine + i * extent, (i * 7 + source * 3 + 1) % 11 + 1);
    for (i = 0; i < count; i++) {
        char *to = expected + (has_gaps ? 2 * i : i) * extent;
        const char *from = mine + (has_gaps ? 2 * i : i) * extent;

        if (operation->op == MPI_REPLACE)
            memcpy(to, from, (size_t) extent);
        else if (operation->op != MPI_NO_OP)
            MPI_Reduce_local(from, to, 1, element->type, operation->op);
        if (fetches && !are_equal(element, result + (has_gaps ? 2 * i : i) * extent,
                                  before + (has_gaps ? 2 * i : i) * extent, 1))
            fail("element %d: what was fetched is not what was there", i);
    }
    if (!are_equal(element, window->memory, expected, 2 * count))
        fail("the target has another result");
    MPI_Type_free(&gaps);
    free(mine);
    free(before);
    free(expected);
    free(result);
}

/* More than what CH3 sends in one piece, from a target that is in a call meanwhile, and answers from there. */
static void fetch_long(kind_t kind)
{
    enum { kCount = 40000, kRounds = 3 };
    const size_t bytes = kCount * sizeof(double);
    const int target = (rank + 1) % size;
    window_t window = make_window(kind, bytes, sizeof(double));
    double *result = allocate(bytes), *unused = allocate(2 * bytes);
    MPI_Datatype gaps;

    MPI_Type_vector(kCount, 1, 2, MPI_DOUBLE, &gaps);
    MPI_Type_commit(&gaps);
    fill(window.memory, bytes, (uint32_t) rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 2 * kRounds; round++) {
        const bool has_gaps = round >= kRounds;

        snprintf(doing, sizeof doing, "accumulates %s, MPI_NO_OP of %zu bytes%s", kind_names[kind], bytes,
                 has_gaps ? ", gaps" : "");
        MPI_Win_lock_all(0, window.window);
        if (rank == 1) {
            memset(result, 0, bytes);
            MPI_Get_accumulate(unused, has_gaps ? 1 : kCount, has_gaps ? gaps : MPI_DOUBLE, result, kCount,
                               MPI_DOUBLE, target, 0, kCount, MPI_DOUBLE, MPI_NO_OP, window.window);
            MPI_Win_flush_all(window.window);
            expect(result, bytes, (uint32_t) target, "what was fetched");
        }
        MPI_Win_unlock_all(window.window);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&gaps);
    free_window(&window);
    free(result);
    free(unused);
}

static void run_accumulates(void)
{
    static const element_t elements[] = {
        {"int8", MPI_INT8_T, kInteger}, {"uint8", MPI_UINT8_T, kInteger}, {"int16", MPI_INT16_T, kInteger},
        {"uint16", MPI_UINT16_T, kInteger}, {"int", MPI_INT, kInteger}, {"unsigned", MPI_UNSIGNED, kInteger},
        {"long", MPI_LONG, kInteger}, {"uint64", MPI_UINT64_T, kInteger}, {"aint", MPI_AINT, kInteger},
        {"bool", MPI_C_BOOL, kLogical}, {"float", MPI_FLOAT, kReal}, {"double", MPI_DOUBLE, kReal},
        {"long double", MPI_LONG_DOUBLE, kReal}, {"complex", MPI_C_FLOAT_COMPLEX, kComplex},
        {"double complex", MPI_C_DOUBLE_COMPLEX, kComplex},
        {"long double complex", MPI_C_LONG_DOUBLE_COMPLEX, kComplex}, {"2int", MPI_2INT, kPair},
        {"short_int", MPI_SHORT_INT, kPair}, {"long_int", MPI_LONG_INT, kPair},
        {"float_int", MPI_FLOAT_INT, kPair}, {"double_int", MPI_DOUBLE_INT, kPair},
        {"long_double_int", MPI_LONG_DOUBLE_INT, kPair}
    };
    static const int any = kInteger | kReal | kLogical | kComplex | kPair;
    const operation_t operations[] = {
        {"max", MPI_MAX, kInteger | kReal}, {"min", MPI_MIN, kInteger | kReal},
        {"sum", MPI_SUM, kInteger | kReal | kComplex}, {"prod", MPI_PROD, kInteger | kReal | kComplex},
        {"land", MPI_LAND, kInteger | kLogical}, {"lor", MPI_LOR, kInteger | kLogical},
        {"lxor", MPI_LXOR, kInteger | kLogical}, {"band", MPI_BAND, kInteger}, {"bor", MPI_BOR, kInteger},
        {"bxor", MPI_BXOR, kInteger}, {"minloc", MPI_MINLOC, kPair}, {"maxloc", MPI_MAXLOC, kPair},
        {"replace", MPI_REPLACE, any}, {"no_op", MPI_NO_OP, any}
    };
    /* 20 pairs with gaps are more pieces than CH3 takes at once. */
    static const int counts[] = { 1, 20, 4000 };
    int kind, variant;
    size_t e, o, c;

    for (kind = 0; kind < kKinds; kind++) {
        window_t window = make_window((kind_t) kind, (size_t) kMostElement * 2 * 4000, 1);

        for (e = 0; e < sizeof elements / sizeof elements[0]; e++)
            for (o = 0; o < sizeof operations / sizeof operations[0]; o++)
                for (c = 0; c < sizeof counts / sizeof counts[0]; c++)
                    for (variant = 0; variant < 4; variant++) {
                        const bool fetches = (variant & 1) != 0, has_gaps = (variant & 2) != 0;

                        if ((operations[o].groups & elements[e].group) == 0 ||
                            (operations[o].op == MPI_NO_OP && !fetches) ||
                            /* The long ones, of some types. */
                            (counts[c] > 20 && (e % 5 != 4 || has_gaps)))
                            continue;
                        accumulate(&window, &elements[e], &operations[o], counts[c], fetches, has_gaps);
                    }
        free_window(&window);
        fetch_long((kind_t) kind);
    }
}

/* ---- polls ---- */

/* A way to wait for a word of one's own window. kSync: MPI_Win_sync, a load, and a call of MPI that is none of RMA. */
typedef enum { kFlush, kFlushLocal, kFlushAll, kFlushLocalAll, kByRequest, kUnlock, kSync, kWays } way_t;

static int poll_once(MPI_Win window, MPI_Aint at, const int *word, way_t way)
{
    int got = 0, flag;
    MPI_Request request;

    if (way == kSync) {
        MPI_Win_sync(window);
        MPI_Iprobe(MPI_ANY_SOURCE, 12, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        return *(const volatile int *) word;
    }
    if (way == kUnlock)
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    if (way == kByRequest) {
        MPI_Rget_accumulate(NULL, 0, MPI_INT, &got, 1, MPI_INT, rank, at, 1, MPI_INT, MPI_NO_OP, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return got;
    }
    MPI_Fetch_and_op(NULL, &got, MPI_INT, rank, at, MPI_NO_OP, window);
    if (way == kFlush)
        MPI_Win_flush(rank, window);
    else if (way == kFlushLocal)
        MPI_Win_flush_local(rank, window);
    else if (way == kFlushAll)
        MPI_Win_flush_all(window);
    else if (way == kFlushLocalAll)
        MPI_Win_flush_local_all(window);
    else
        MPI_Win_unlock(rank, window);
    return got;
}

static void poll(MPI_Win window, MPI_Aint at, int *word, way_t way)
{
    const int one = 1;

    *word = 0;
    MPI_Bcast(&at, 1, MPI_AINT, 0, MPI_COMM_WORLD);
    if (way != kUnlock)
        MPI_Win_lock_all(0, window);
    while (rank == 0 && poll_once(window, at, word, way) < 3 * (size - 1)) {
    }
    for (int i = 0; rank != 0 && i < 3; i++) {
        if (way == kUnlock)
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Accumulate(&one, 1, MPI_INT, 0, at, 1, MPI_INT, MPI_SUM, window);
        if (way == kUnlock)
            MPI_Win_unlock(0, window);
        else
            MPI_Win_flush(0, window);
    }
    if (way != kUnlock)
        MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Whoever looks at its own window in a loop lets others in: at one of each kind, and at a dynamic one to which the
 * memory of that is attached. */
static void run_polls(void)
{
    for (int kind = 0; kind < kKinds; kind++)
        for (int way = 0; way < kWays; way++) {
            window_t window = make_window((kind_t) kind, sizeof(int), sizeof(int));
            MPI_Win dynamic;
            MPI_Aint at;

            snprintf(doing, sizeof doing, "polls %s, way %d", kind_names[kind], way);
            poll(window.window, 0, (int *) window.memory, (way_t) way);
            snprintf(doing, sizeof doing, "polls %s, way %d, dynamic", kind_names[kind], way);
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
            MPI_Win_attach(dynamic, window.memory, sizeof(int));
            MPI_Get_address(window.memory, &at);
            poll(dynamic, at, (int *) window.memory, (way_t) way);
            MPI_Win_detach(dynamic, window.memory);
            MPI_Win_free(&dynamic);
            free_window(&window);
        }
}

/* ---- counters ---- */

static void run_counters(void)
{
    enum { kRounds = 300, kElements = 4 };
    int kind, i;

    for (kind = 0; kind < kKinds; kind++) {
        window_t window = make_window((kind_t) kind, kElements * sizeof(int64_t), sizeof(int64_t));
        int64_t one = 1, ones[kElements] = { 1, 1, 1, 1 }, last = -1;

        snprintf(doing, sizeof doing, "counters %s", kind_names[kind]);
        memset(window.memory, 0, window.bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, window.window);
        for (i = 0; i < kRounds; i++) {
            int64_t old, wanted, found;

            /* Its own process takes part. */
            MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, window.window);
            MPI_Win_flush(0, window.window);
            if (old <= last || old >= (int64_t) kRounds * size)
                fail("round %d fetched %lld after %lld", i, (long long) old, (long long) last);
            last = old;
            MPI_Accumulate(ones, kElements - 2, MPI_INT64_T, 0, 1, kElements - 2, MPI_INT64_T, MPI_SUM,
                           window.window);
            /* The last element is counted by compare and swap. */
            MPI_Fetch_and_op(NULL, &found, MPI_INT64_T, 0, kElements - 1, MPI_NO_OP, window.window);
            MPI_Win_flush(0, window.window);
            do {
                wanted = found;
                old = wanted + 1;
                MPI_Compare_and_swap(&old, &wanted, &found, MPI_INT64_T, 0, kElements - 1, window.window);
                MPI_Win_flush(0, window.window);
            } while (found != wanted);
        }
        MPI_Win_unlock_all(window.window);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.window);
        for (i = 0; rank == 0 && i < kElements; i++)
            if (((int64_t *) window.memory)[i] != (int64_t) kRounds * size)
                fail("element %d counted %lld", i, (long long) ((int64_t *) window.memory)[i]);
        MPI_Win_unlock(rank, window.window);
        free_window(&window);
    }
}

/* ---- locks ---- */

static void run_locks(void)
{
    enum { kRounds = 150, kElements = 600 };
    int kind, i, j;

    for (kind = 0; kind < kKinds; kind++) {
        window_t window = make_window((kind_t) kind, kElements * sizeof(int64_t), sizeof(int64_t));
        int64_t *values = allocate(kElements * sizeof *values);

        snprintf(doing, sizeof doing, "locks %s", kind_names[kind]);
        memset(window.memory, 0, window.bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        for (i = 0; i < kRounds; i++) {
            const int target = i % size;
            const bool writes = (i + rank) % 3 != 0;

            MPI_Win_lock(writes ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window.window);
            MPI_Get(values, kElements, MPI_INT64_T, target, 0, kElements, MPI_INT64_T, window.window);
            MPI_Win_flush(target, window.window);
            for (j = 1; j < kElements; j++)
                if (values[j] != values[0])
                    fail("round %d: element %d is %lld, the first %lld", i, j, (long long) values[j],
                         (long long) values[0]);
            for (j = 0; j < kElements; j++)
                values[j]++;
            if (writes)
                MPI_Put(values, kElements, MPI_INT64_T, target, 0, kElements, MPI_INT64_T, window.window);
            MPI_Win_unlock(target, window.window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        {
            int64_t expected = 0;
            int other;

            for (other = 0; other < size; other++)
                for (i = 0; i < kRounds; i++)
                    expected += i % size == rank && (i + other) % 3 != 0;
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window.window);
            if (((int64_t *) window.memory)[kElements - 1] != expected)
                fail("counted %lld instead of %lld", (long long) ((int64_t *) window.memory)[kElements - 1],
                     (long long) expected);
            MPI_Win_unlock(rank, window.window);
        }
        /* Nobody else wants it. */
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, MPI_MODE_NOCHECK, window.window);
        MPI_Win_unlock(rank, window.window);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, window.window);
        MPI_Get(values, 1, MPI_INT64_T, (rank + 1) % size, 0, 1, MPI_INT64_T, window.window);
        MPI_Win_unlock_all(window.window);
        MPI_Barrier(MPI_COMM_WORLD);
        free_window(&window);
        free(values);
    }
}

/* ---- wrong ---- */

static void expect_class(int error, int wanted, const char *what)
{
    int class;

    MPI_Error_class(error, &class);
    if (error == MPI_SUCCESS || class != wanted)
        fail("%s: error class %d instead of %d", what, error == MPI_SUCCESS ? 0 : class, wanted);
}

static void run_wrong(void)
{
    const int target = (rank + 1) % size;
    int kind;

    for (kind = 0; kind < kKinds; kind++) {
        window_t window = make_window((kind_t) kind, 100, 1);
        char byte = 1;

        snprintf(doing, sizeof doing, "wrong %s", kind_names[kind]);
        MPI_Win_set_errhandler(window.window, MPI_ERRORS_RETURN);
        memset(window.memory, 7, window.bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        expect_class(MPI_Put(&byte, 1, MPI_BYTE, target, 0, 1, MPI_BYTE, window.window), MPI_ERR_RMA_SYNC,
                     "a put without an epoch");
        expect_class(MPI_Win_unlock(target, window.window), MPI_ERR_RMA_SYNC, "an unlock without a lock");
        expect_class(MPI_Win_flush(target, window.window), MPI_ERR_RMA_SYNC, "a flush without an epoch");
        expect_class(MPI_Win_unlock_all(window.window), MPI_ERR_RMA_SYNC, "an unlock_all without a lock_all");
        expect_class(MPI_Win_complete(window.window), MPI_ERR_RMA_SYNC, "a complete without a start");
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window.window);
        expect_class(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window.window), MPI_ERR_RMA_SYNC, "a second lock");
        expect_class(MPI_Win_lock_all(0, window.window), MPI_ERR_RMA_SYNC, "a lock_all within a lock");
        expect_class(MPI_Win_fence(0, window.window), MPI_ERR_RMA_SYNC, "a fence within a lock");
        MPI_Win_unlock(target, window.window);
        MPI_Barrier(MPI_COMM_WORLD);
        if (window.memory[0] != 7)
            fail("what was refused had an effect");
        free_window(&window);
    }
}

/* What a processor serves, it checks. */
static void run_range(void)
{
    const int target = (rank + 1) % size;
    window_t window = make_window(kPrivate, 100, 1);
    char bytes[32];

    memset(bytes, 1, sizeof bytes);
    MPI_Win_set_errhandler(window.window, MPI_ERRORS_RETURN);
    memset(window.memory, 7, window.bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window.window);
    MPI_Put(bytes, 32, MPI_BYTE, target, 80, 32, MPI_BYTE, window.window);
    expect_class(MPI_Win_flush(target, window.window), MPI_ERR_RMA_RANGE, "a put beyond the end");
    MPI_Put(bytes, 20, MPI_BYTE, target, 60, 20, MPI_BYTE, window.window);
    if (MPI_Win_unlock(target, window.window) != MPI_SUCCESS)
        fail("an error is told twice");
    MPI_Barrier(MPI_COMM_WORLD);
    if (window.memory[99] != 7 || window.memory[60] != 1)
        fail("the wrong bytes changed");

    /* An error is told of its target, and no lock is lost by it. */
    MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window.window);
    MPI_Put(bytes, 32, MPI_BYTE, target, 80, 32, MPI_BYTE, window.window);
    if (MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.window) != MPI_SUCCESS ||
        MPI_Win_flush(rank, window.window) != MPI_SUCCESS || MPI_Win_unlock(rank, window.window) != MPI_SUCCESS)
        fail("an error of another target");
    expect_class(MPI_Win_unlock(target, window.window), MPI_ERR_RMA_RANGE, "the error of the target");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window.window);
    MPI_Win_unlock(target, window.window);
    MPI_Barrier(MPI_COMM_WORLD);
    free_window(&window);
}

/* ---- mapped ---- */

/* A window on `bytes` at `memory`, with another unit in each process. Each puts a word at `at` to the other one, adds
 * to it, and gets it back. Ends with what is in it known to be right. */
static void use_part(void *memory, size_t bytes, MPI_Info info, int at, const char *what)
{
    const int other = 1 - rank, units[] = { 1, 4 };
    int mine = 100 + rank, one = 1, back = 0, old = 0;
    MPI_Win window;

    snprintf(doing, sizeof doing, "mapped: %s", what);
    MPI_Win_create(memory, (MPI_Aint) bytes, units[rank], info, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    MPI_Put(&mine, 1, MPI_INT, other, at / units[other], 1, MPI_INT, window);
    MPI_Win_flush(other, window);
    MPI_Accumulate(&one, 1, MPI_INT, other, at / units[other], 1, MPI_INT, MPI_SUM, window);
    MPI_Fetch_and_op(&one, &old, MPI_INT, other, at / units[other], MPI_SUM, window);
    MPI_Get(&back, 1, MPI_INT, other, at / units[other], 1, MPI_INT, window);
    MPI_Win_flush(other, window);
    MPI_Get(&back, 1, MPI_INT, other, at / units[other], 1, MPI_INT, window);
    MPI_Win_unlock_all(window);
    if (old != mine + 1 || back != mine + 2)
        fail("fetched %d, and got %d", old, back);
    MPI_Barrier(MPI_COMM_WORLD);
    if (*(int *) ((char *) memory + at) != 102 + other)
        fail("has %d", *(int *) ((char *) memory + at));
    MPI_Win_free(&window);
}

static void expect_out_of_range(char *memory, size_t bytes)
{
    const int other = 1 - rank;
    char some[32] = { 1 };
    long word = 1, old;
    const MPI_Aint behind = -1;
    MPI_Datatype gaps, before;
    MPI_Win window;

    snprintf(doing, sizeof doing, "mapped: beyond the window");
    memset(memory, 7, bytes);
    MPI_Type_vector(2, 1, (int) bytes - 1, MPI_CHAR, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Type_create_hindexed_block(1, 2, &behind, MPI_CHAR, &before);
    MPI_Type_commit(&before);
    MPI_Win_create(memory + 64, (MPI_Aint) bytes - 128, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    MPI_Win_lock_all(0, window);
    expect_class(MPI_Put(some, 32, MPI_BYTE, other, (MPI_Aint) bytes - 150, 32, MPI_BYTE, window), MPI_ERR_RMA_RANGE,
                 "a put");
    expect_class(MPI_Get(some, 8, MPI_BYTE, other, (MPI_Aint) bytes, 8, MPI_BYTE, window), MPI_ERR_RMA_RANGE, "a get");
    expect_class(MPI_Get(some, 2, MPI_BYTE, other, 0, 1, before, window), MPI_ERR_RMA_RANGE, "a get before it");
    expect_class(MPI_Put(some, 2, MPI_BYTE, other, 0, 1, gaps, window), MPI_ERR_RMA_RANGE, "a put with gaps");
    expect_class(MPI_Accumulate(&word, 1, MPI_LONG, other, (MPI_Aint) bytes - 128, 1, MPI_LONG, MPI_SUM, window),
                 MPI_ERR_RMA_RANGE, "an accumulate");
    expect_class(MPI_Fetch_and_op(&word, &old, MPI_LONG, other, (MPI_Aint) bytes, MPI_SUM, window),
                 MPI_ERR_RMA_RANGE, "a fetch_and_op");
    expect_class(MPI_Compare_and_swap(&word, &word, &old, MPI_LONG, other, (MPI_Aint) bytes - 131,
                                      window), MPI_ERR_RMA_RANGE, "a compare_and_swap");
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != 7)
            fail("byte %zu has changed", i);
    MPI_Win_free(&window);
    MPI_Type_free(&gaps);
    MPI_Type_free(&before);
}

static void run_mapped(void)
{
    const size_t bytes = 100000;
    struct rlimit limit, none;
    char *block, *second, *heap = allocate(bytes);
    MPI_Info info;

    be_passive(kAllocMem, MPI_MODE_NOCHECK);
    MPI_Alloc_mem((MPI_Aint) bytes, MPI_INFO_NULL, &block);
    expect_out_of_range(block, bytes);
    use_part(block, bytes, MPI_INFO_NULL, 0, "a block");
    use_part(block + 24 + 4096 * rank, 5000, MPI_INFO_NULL, 4096, "parts of blocks");
    use_part(rank == 0 ? block : heap, bytes, MPI_INFO_NULL, 8, "one process has other memory");
    use_part(heap, bytes, MPI_INFO_NULL, 8, "all have other memory");
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shm", "false");
    use_part(block, bytes, info, 8, "info does not want it");
    MPI_Info_free(&info);
    /* A process that cannot open a file maps nothing, so none does. */
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 0;
    if (rank == 1)
        setrlimit(RLIMIT_NOFILE, &none);
    use_part(block, bytes, MPI_INFO_NULL, 8, "one process cannot map the other's");
    setrlimit(RLIMIT_NOFILE, &limit);
    /* Memory of no bytes needs no mapping. */
    {
        int value = rank;
        MPI_Win window;

        MPI_Win_create(rank == 0 ? block : NULL, rank == 0 ? 4 : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_fence(0, window);
        if (rank == 1)
            MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
        MPI_Win_fence(0, window);
        if (rank == 0 && *(int *) block != 1)
            fail("has %d", *(int *) block);
        /* What is freed before the window is the next one's. */
        MPI_Free_mem(block);
        MPI_Alloc_mem((MPI_Aint) bytes, MPI_INFO_NULL, &second);
        use_part(second, bytes, MPI_INFO_NULL, 12, "a block that was freed within a window");
        MPI_Win_free(&window);
    }
    use_part(second, bytes, MPI_INFO_NULL, 16, "after that window");
    MPI_Free_mem(second);
    free(heap);
}

/* ---- dynamic ---- */

static void run_dynamic(void)
{
    const int target = (rank + 1) % size, source = (rank + size - 1) % size;
    int64_t *memory = allocate(3 * sizeof *memory), value = rank + 1, old;
    MPI_Aint here, there;
    MPI_Win window;

    memset(memory, 0, 3 * sizeof *memory);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_attach(window, memory, 3 * sizeof *memory);
    MPI_Get_address(memory, &here);
    MPI_Sendrecv(&here, 1, MPI_AINT, source, 0, &there, 1, MPI_AINT, target, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
    MPI_Put(&value, 1, MPI_INT64_T, target, there, 1, MPI_INT64_T, window);
    MPI_Accumulate(&value, 1, MPI_INT64_T, target, MPI_Aint_add(there, 8), 1, MPI_INT64_T, MPI_SUM, window);
    MPI_Fetch_and_op(&value, &old, MPI_INT64_T, target, MPI_Aint_add(there, 16), MPI_SUM, window);
    MPI_Win_unlock(target, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    if (memory[0] != source + 1 || memory[1] != source + 1 || memory[2] != source + 1 || old != 0)
        fail("has %d, %d and %d", (int) memory[0], (int) memory[1], (int) memory[2]);
    MPI_Win_unlock(rank, window);
    MPI_Win_detach(window, memory);
    MPI_Win_free(&window);
    free(memory);
}

/* ---- many ---- */

static void run_many(void)
{
    enum { kAtOnce = 20, kRounds = 10 };
    window_t windows[kAtOnce];
    const int target = (rank + 1) % size, source = (rank + size - 1) % size;
    int round, i;

    for (round = 0; round < kRounds; round++) {
        for (i = 0; i < kAtOnce; i++) {
            windows[i] = make_window((kind_t) (i % kKinds), sizeof(int), sizeof(int));
            *(int *) windows[i].memory = -1;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (i = 0; i < kAtOnce; i++) {
            int value = rank * 1000 + i;

            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, windows[i].window);
            MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, windows[i].window);
            MPI_Win_unlock(target, windows[i].window);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (i = 0; i < kAtOnce; i++) {
            MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, windows[i].window);
            if (*(int *) windows[i].memory != source * 1000 + i)
                fail("round %d, window %d has %d", round, i, *(int *) windows[i].memory);
            MPI_Win_unlock(rank, windows[i].window);
        }
        for (i = 0; i < kAtOnce; i++)
            free_window(&windows[(i * 7 + round) % kAtOnce]);
    }
}

int main(int argc, char **argv)
{
    static const program_t programs[] = {
        {"passive", run_passive}, {"moves", run_moves}, {"accumulates", run_accumulates}, {"polls", run_polls},
        {"counters", run_counters}, {"locks", run_locks}, {"wrong", run_wrong}, {"range", run_range},
        {"mapped", run_mapped}, {"dynamic", run_dynamic}, {"many", run_many}
    };

    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
