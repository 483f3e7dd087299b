/* Random operations on windows, each result against an oracle. All processes draw the same numbers, so each knows
 * what all others do.
 *
 * The elements of a window are cut into blocks. In an epoch, a block is one origin's, which does to it what it
 * likes, or it is everybody's, and all do the same operation, whose order does not matter. So the end is known, and
 * so is what the owner of a block fetches.
 *
 * Usage: random_windows PART
 *   alone    one thread in each process
 *   threads  three: an element is changed by several threads at once, and they flush at once
 *   forks    the same, and while they do, a child of each process lives
 *
 * CH3_OFFLOAD_WINDOW_SEED: the seed (1). CH3_OFFLOAD_WINDOW_ROUNDS: windows to be made (15; 2,000 with
 * CH3_OFFLOAD_CHECK_ALL=1). A failure names the seed.
 */
#include "over_mpi.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMostRanks = 8, kMostThreads = 3, kSteps = 3, kLongest = 40000 };
static int threads = 1;
static bool spans_nodes;
static unsigned long seed = 1;

/* ---- elements: a number of the oracle, and its form in memory ---- */

/* The pair types, of which most have a gap in the middle, behind, or inside the value. */
#define PAIRS(do_) \
    do_(kShortPair, short, MPI_SHORT_INT) do_(kIntPair, int, MPI_2INT) do_(kLongPair, long, MPI_LONG_INT) \
    do_(kFloatPair, float, MPI_FLOAT_INT) do_(kDoublePair, double, MPI_DOUBLE_INT) \
    do_(kLongDoublePair, long double, MPI_LONG_DOUBLE_INT)

#define NAME(name_, c_type_, mpi_type_) name_,
#define STRUCT(name_, c_type_, mpi_type_) typedef struct { c_type_ value; int place; } name_##_t;
#define BYTES(name_, c_type_, mpi_type_) sizeof(name_##_t),
#define MPI_NAME(name_, c_type_, mpi_type_) mpi_type_,
typedef enum { kInt8, kInt32, kInt64, kDouble, PAIRS(NAME) kTypes } type_t;
PAIRS(STRUCT)
static const size_t bytes_of[] = { 1, 4, 8, 8, PAIRS(BYTES) };
/* A pair is value * kPlaces + place. */
enum { kPlaces = 1 << 16 };

static MPI_Datatype mpi_type(type_t type)
{
    const MPI_Datatype all[] = { MPI_INT8_T, MPI_INT32_T, MPI_INT64_T, MPI_DOUBLE, PAIRS(MPI_NAME) };
    return all[type];
}

static bool is_pair(type_t type)
{
    return type >= kShortPair;
}

static int64_t load(type_t type, const void *from)
{
    int8_t small;
    int32_t middle;
    int64_t large;
    double real;

    switch (type) {
        case kInt8:
            memcpy(&small, from, sizeof small);
            return small;
        case kInt32:
            memcpy(&middle, from, sizeof middle);
            return middle;
        case kInt64:
            memcpy(&large, from, sizeof large);
            return large;
        case kDouble:
            memcpy(&real, from, sizeof real);
            return (int64_t) real;
#define LOAD(name_, c_type_, mpi_type_) \
        case name_: \
            return (int64_t) ((const name_##_t *) from)->value * kPlaces + ((const name_##_t *) from)->place;
            PAIRS(LOAD)
        default:
            fail("type %d", type);
    }
}

static int64_t value_of_pair(int64_t number)
{
    return (number - (number & (kPlaces - 1))) / kPlaces;
}

static void store(type_t type, void *to, int64_t number)
{
    const int8_t small = (int8_t) number;
    const int32_t middle = (int32_t) number;
    const double real = (double) number;

    switch (type) {
        case kInt8:
            memcpy(to, &small, sizeof small);
            break;
        case kInt32:
            memcpy(to, &middle, sizeof middle);
            break;
        case kInt64:
            memcpy(to, &number, sizeof number);
            break;
        case kDouble:
            memcpy(to, &real, sizeof real);
            break;
#define STORE(name_, c_type_, mpi_type_) \
        case name_: \
            ((name_##_t *) to)->value = (c_type_) value_of_pair(number); \
            ((name_##_t *) to)->place = (int) (number & (kPlaces - 1)); \
            break;              /* not its gap */
            PAIRS(STORE)
        default:
            fail("type %d", type);
    }
}

/* A number that the type holds, and for reals sums of a few thousand of them. */
static int64_t some_number(type_t type, uint64_t of, uint64_t position)
{
    const uint64_t bits = word_at((uint32_t) of, position + (of >> 32));

    if (is_pair(type))
        return ((int64_t) (bits % 201) - 100) * kPlaces + (int64_t) (bits >> 8) % kPlaces;
    switch (type) {
        case kInt8:
            return (int8_t) bits;
        case kInt64:
            return (int64_t) (bits * 0x9e3779b97f4a7c15u);
        case kDouble:
            return (int64_t) (bits % 2001) - 1000;
        default:
            return (int32_t) bits;
    }
}

static int64_t wrapped(type_t type, uint64_t number)
{
    return type == kInt8 ? (int8_t) number : type == kInt32 ? (int32_t) number : (int64_t) number;
}

/* ---- operations ---- */

typedef enum { kSum, kMax, kXor, kMaxLocation, kMinLocation, kReplace, kNothing } change_t;

static MPI_Op mpi_op(change_t change)
{
    const MPI_Op all[] = { MPI_SUM, MPI_MAX, MPI_BXOR, MPI_MAXLOC, MPI_MINLOC, MPI_REPLACE, MPI_NO_OP };
    return all[change];
}

static int64_t changed(type_t type, change_t change, int64_t old, int64_t by)
{
    switch (change) {
        case kSum:
            return wrapped(type, (uint64_t) old + (uint64_t) by);
        case kMax:
            return old > by ? old : by;
        case kXor:
            return old ^ by;
        case kMaxLocation:     /* of equal values, the lowest place */
            if (value_of_pair(old) != value_of_pair(by))
                return old > by ? old : by;
            return old < by ? old : by;
        case kMinLocation:
            return old < by ? old : by;
        case kReplace:
            return by;
        default:
            return old;
    }
}

/* `commutes`: its order among others of its kind does not matter. */
static change_t some_change(type_t type, bool commutes, uint64_t * state)
{
    const uint32_t which = next_random(state, commutes ? 2 : 4);

    if (which >= 2)
        return which == 2 ? kReplace : kNothing;
    if (is_pair(type))
        return which == 0 ? kMaxLocation : kMinLocation;
    if (type == kDouble)
        return which == 0 ? kSum : kMax;
    return which == 0 ? kSum : kXor;
}

/* ---- windows and blocks ---- */

/* kMixed: the first process's is private, all others are of MPI_Alloc_mem. */
typedef enum { kPrivate, kAllocMem, kMixed, kAllocated, kShared, kKinds } kind_t;
static const char *const kind_names[] = { "private", "of MPI_Alloc_mem", "mixed", "allocated", "shared" };

typedef struct {
    kind_t kind;
    type_t type;
    MPI_Win window;
    char *memory;
    char *block;                        /* of MPI_Alloc_mem, in which `memory` is */
    int units[kMostRanks];
    int elements;                       /* of each process */
    int64_t *known[kMostRanks];         /* what each has */
} window_t;

typedef enum { kPut, kGet, kChange } action_t;

typedef struct {
    int target, first, count, stride;
    int origin;                         /* negative: everybody */
    action_t action;
    int steps;
    change_t changes[kSteps];
    bool fetches[kSteps];
    bool source_has_gaps, result_has_gaps, uses_request;
    int flush;                          /* afterwards, where the epoch permits it: 0 to 3; others: none */
    uint64_t numbers;
} block_t;

static block_t some_block(const window_t * window, int target, int first, uint64_t * state)
{
    const int left = window->elements - first;
    /* Long ones go in several parts. */
    const int most = next_random(state, 12) == 0 || left > kLongest / 2 ? left : 1 + (int) next_random(state, 40);
    block_t block = {.target = target,.first = first };

    block.stride = 1 + (int) (next_random(state, 3) == 0);
    block.count = 1 + (int) next_random(state, (most < left ? most : left));
    block.count = (block.count + block.stride - 1) / block.stride;
    block.origin = next_random(state, 3) == 0 ? -1 : (int) next_random(state, size);
    block.action = block.origin < 0 ? kChange : (action_t) next_random(state, 3);
    block.steps = block.action == kChange ? 1 + (int) next_random(state, kSteps) : 1;
    for (int step = 0; step < block.steps; step++) {
        block.changes[step] = step > 0 && block.origin < 0 ? block.changes[0] :
            some_change(window->type, block.origin < 0, state);
        block.fetches[step] = block.changes[step] == kNothing || next_random(state, 2) == 0;
    }
    block.source_has_gaps = next_random(state, 3) == 0;
    block.result_has_gaps = next_random(state, 3) == 0;
    block.uses_request = next_random(state, 3) == 0;
    block.flush = (int) next_random(state, 16);
    block.numbers = (uint64_t) next_random(state, UINT32_MAX) << 32 | next_random(state, UINT32_MAX);
    return block;
}

/* What a participant (a thread of a rank, where the block is everybody's) brings to an element in a step. */
static int64_t brought(const window_t * window, const block_t * block, int step, int participant, int i)
{
    return some_number(window->type, block->numbers + 977 * (uint64_t) step + 7919 * (uint64_t) participant,
                       (uint64_t) i);
}

/* What the block does to the oracle. old[step * count + i]: what was there before. */
static void foresee(window_t * window, const block_t * block, int64_t * old)
{
    int64_t *known = window->known[block->target] + block->first;
    const int participants = block->origin < 0 ? size * threads : 1;

    for (int step = 0; step < block->steps; step++)
        for (int i = 0; i < block->count; i++) {
            int64_t *element = &known[i * block->stride];
            old[step * block->count + i] = *element;
            for (int p = 0; p < participants && block->action != kGet; p++)
                *element = changed(window->type, block->action == kPut ? kReplace : block->changes[step], *element,
                                   brought(window, block, step, p, i));
        }
}

/* ---- what is under way ---- */

typedef struct pending {
    struct pending *next;
    int target;
    char *source, *result;              /* NULL: none */
    size_t source_bytes;
    int count, stride;
    int64_t *wanted;                    /* NULL: unknown */
} pending_t;

/* One operation of this thread is over: its source may change, and its result is there. */
static void end_pending(const window_t * window, pending_t * one)
{
    if (one->source != NULL)
        memset(one->source, 0xee, one->source_bytes);
    for (int i = 0; one->wanted != NULL && i < one->count; i++) {
        const int64_t got = load(window->type, one->result + (size_t) i * one->stride * bytes_of[window->type]);
        if (got != one->wanted[i])
            fail("element %d of %d at rank %d: fetched %lld, not %lld", i, one->count, one->target,
                 (long long) got, (long long) one->wanted[i]);
    }
}

/* All operations on that target; negative: on all. */
static void end_all_pending(const window_t * window, pending_t ** list, int target)
{
    while (*list != NULL) {
        pending_t *one = *list;
        if (target >= 0 && one->target != target) {
            list = &one->next;
            continue;
        }
        *list = one->next;
        end_pending(window, one);
        free(one->source);
        free(one->result);
        free(one->wanted);
        free(one);
    }
}

/* ---- carrying a block out ---- */

/* Elements with one between each two. The caller frees it. */
static MPI_Datatype strided_type(type_t type, int count)
{
    MPI_Datatype made;

    MPI_Type_vector(count, 1, 2, mpi_type(type), &made);
    MPI_Type_commit(&made);
    return made;
}

static void issue(const window_t * window, const block_t * block, int step, const pending_t * one,
                  MPI_Request * request)
{
    const MPI_Datatype element = mpi_type(window->type);
    const MPI_Aint at = (MPI_Aint) ((size_t) block->first * bytes_of[window->type] /
                                    (size_t) window->units[block->target]);
    const bool is_target_strided = block->stride == 2;
    const MPI_Datatype gaps = strided_type(window->type, block->count);
    const MPI_Datatype from = block->source_has_gaps ? gaps : element, to = is_target_strided ? gaps : element;
    const MPI_Datatype into = block->result_has_gaps ? gaps : element;
    const int n = block->count;
    /* MPI_NO_OP ignores the origin. */
    const int n_from = one->source == NULL ? 0 : block->source_has_gaps ? 1 : n, n_to = is_target_strided ? 1 : n;
    const int n_into = block->result_has_gaps ? 1 : n;
    const MPI_Op op = mpi_op(block->changes[step]);
    const MPI_Win win = window->window;
    const int target = block->target;

    if (block->action == kPut && request != NULL)
        MPI_Rput(one->source, n_from, from, target, at, n_to, to, win, request);
    else if (block->action == kPut)
        MPI_Put(one->source, n_from, from, target, at, n_to, to, win);
    else if (block->action == kGet && request != NULL)
        MPI_Rget(one->result, n_into, into, target, at, n_to, to, win, request);
    else if (block->action == kGet)
        MPI_Get(one->result, n_into, into, target, at, n_to, to, win);
    else if (block->fetches[step] && request != NULL)
        MPI_Rget_accumulate(one->source, n_from, from, one->result, n_into, into, target, at, n_to, to, op, win,
                            request);
    else if (block->fetches[step] && n == 1)
        MPI_Fetch_and_op(one->source, one->result, element, target, at, op, win);
    else if (block->fetches[step])
        MPI_Get_accumulate(one->source, n_from, from, one->result, n_into, into, target, at, n_to, to, op, win);
    else if (request != NULL)
        MPI_Raccumulate(one->source, n_from, from, target, at, n_to, to, op, win, request);
    else
        MPI_Accumulate(one->source, n_from, from, target, at, n_to, to, op, win);
    MPI_Type_free((MPI_Datatype *) &gaps);
}

static void flush(const window_t * window, int target, int how, pending_t ** list)
{
    switch (how) {
        case 0:
            MPI_Win_flush(target, window->window);
            break;
        case 1:
            MPI_Win_flush_local(target, window->window);
            break;
        case 2:
            MPI_Win_flush_all(window->window);
            break;
        case 3:
            MPI_Win_flush_local_all(window->window);
            break;
        default:
            return;
    }
    end_all_pending(window, list, how < 2 ? target : -1);
}

/* old: as foresee() left it. `is_passive`: the epoch permits requests and flushes. */
static void carry_out(const window_t * window, const block_t * block, int thread, const int64_t * old,
                      bool is_passive, pending_t ** list)
{
    const size_t bytes = bytes_of[window->type];
    const int participant = block->origin < 0 ? rank * threads + thread : 0;

    for (int step = 0; step < block->steps; step++) {
        const bool has_result = block->action == kGet || (block->action == kChange && block->fetches[step]);
        const bool is_known = has_result && block->origin >= 0;
        const int gap = block->source_has_gaps ? 2 : 1;
        pending_t *one = calloc(1, sizeof *one);
        MPI_Request request = MPI_REQUEST_NULL;

        one->target = block->target;
        one->count = block->count;
        one->stride = block->result_has_gaps ? 2 : 1;
        if (block->action == kPut || (block->action == kChange && block->changes[step] != kNothing)) {
            one->source_bytes = (size_t) block->count * gap * bytes;
            one->source = calloc(1, one->source_bytes);
            for (int i = 0; i < block->count; i++)
                store(window->type, one->source + (size_t) i * gap * bytes, brought(window, block, step, participant, i));
        }
        if (has_result)
            one->result = calloc((size_t) block->count * one->stride, bytes);
        if (is_known) {
            one->wanted = allocate(sizeof(int64_t) * (size_t) block->count);
            memcpy(one->wanted, old + (size_t) step * block->count, sizeof(int64_t) * (size_t) block->count);
        }
        one->next = *list;
        *list = one;
        issue(window, block, step, one, is_passive && block->uses_request ? &request : NULL);
        if (request != MPI_REQUEST_NULL)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        /* An operation on oneself is over when its call returns, with every MPI. */
        if (block->target == rank || (is_passive && block->uses_request)) {
            *list = one->next;
            one->next = NULL;
            end_all_pending(window, &one, -1);
        }
        if (is_passive)
            flush(window, block->target, block->flush, list);
    }
}

/* ---- epochs ---- */

typedef enum { kFence, kGroups, kLocks, kLockAll, kLockAllNoCheck, kEpochs } epoch_t;
static const char *const epoch_names[] = { "fence", "groups", "locks", "lock_all", "lock_all, nocheck" };

typedef struct {
    window_t *window;
    const block_t *blocks;
    int64_t *const *old;
    int count, thread, only_target;     /* negative: all */
    bool is_passive;
} work_t;

static void *work(void *argument)
{
    const work_t *part = argument;
    pending_t *list = NULL;

    for (int b = 0; b < part->count; b++) {
        const block_t *block = &part->blocks[b];
        const bool is_mine = block->origin < 0 || (block->origin == rank && b % threads == part->thread);
        if (is_mine && (part->only_target < 0 || part->only_target == block->target))
            carry_out(part->window, block, part->thread, part->old[b], part->is_passive, &list);
    }
    if (part->is_passive) {
        MPI_Win_flush_local_all(part->window->window);
        end_all_pending(part->window, &list, -1);
    }
    return list;
}

/* What is left is over with the epoch. */
static pending_t *all_work(work_t part)
{
    pthread_t ids[kMostThreads];
    work_t parts[kMostThreads];
    pending_t *list;

    for (int t = 1; t < threads; t++) {
        parts[t] = part;
        parts[t].thread = t;
        if (pthread_create(&ids[t], NULL, work, &parts[t]) != 0)
            fail("no thread");
    }
    list = work(&part);
    for (int t = 1; t < threads; t++)
        pthread_join(ids[t], NULL);
    return list;
}

static void run_epoch(window_t * window, epoch_t epoch, work_t part, uint64_t * state)
{
    const uint32_t exclusive = next_random(state, 2);
    const MPI_Win win = window->window;
    pending_t *list = NULL;
    MPI_Group all;

    part.is_passive = epoch >= kLocks;
    part.only_target = -1;
    switch (epoch) {
        case kFence:
            MPI_Win_fence(0, win);
            list = all_work(part);
            MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
            break;
        case kGroups:
            MPI_Win_get_group(win, &all);
            MPI_Win_post(all, 0, win);
            MPI_Win_start(all, 0, win);
            list = all_work(part);
            MPI_Win_complete(win);
            MPI_Win_wait(win);
            MPI_Group_free(&all);
            break;
        case kLocks:
            for (int i = 0; i < size; i++) {
                part.only_target = (rank + i) % size;
                MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, part.only_target, 0, win);
                all_work(part);
                MPI_Win_unlock(part.only_target, win);
            }
            break;
        default:
            MPI_Win_lock_all(epoch == kLockAll ? 0 : MPI_MODE_NOCHECK, win);
            all_work(part);
            MPI_Win_unlock_all(win);
    }
    end_all_pending(window, &list, -1);
}

static void verify(const window_t * window)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window->window);
    for (int i = 0; i < window->elements; i++) {
        const int64_t got = load(window->type, window->memory + (size_t) i * bytes_of[window->type]);
        if (got != window->known[rank][i])
            fail("element %d of %d is %lld, not %lld", i, window->elements, (long long) got,
                 (long long) window->known[rank][i]);
    }
    MPI_Win_unlock(rank, window->window);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* With a message beside it, now and then. */
static void one_epoch(window_t * window, uint64_t * state)
{
    enum { kMessage = 100000 };
    static char out[kMessage], in[kMessage];
    const epoch_t epoch = (epoch_t) next_random(state, kEpochs);
    const bool has_message = next_random(state, 3) == 0;
    MPI_Request requests[2];
    block_t *blocks = NULL;
    int64_t **old = NULL;
    int count = 0;
    work_t part = {.window = window };

    for (int target = 0; target < size; target++)
        for (int at = 0; at < window->elements;) {
            const block_t block = some_block(window, target, at, state);
            at += block.count * block.stride + (int) next_random(state, window->elements > 1000 ? 2000 : 3);
            blocks = realloc(blocks, sizeof *blocks * (size_t) (count + 1));
            old = realloc(old, sizeof *old * (size_t) (count + 1));
            blocks[count] = block;
            old[count] = allocate(sizeof(int64_t) * (size_t) (block.count * block.steps));
            foresee(window, &block, old[count++]);
        }
    part.blocks = blocks;
    part.old = old;
    part.count = count;
    snprintf(doing, sizeof doing, "seed %lu: %d blocks, window %s, type %d, unit %d, %d elements, epoch of %s", seed,
             count, kind_names[window->kind], window->type, window->units[rank], window->elements,
             epoch_names[epoch]);
    if (has_message) {
        fill(out, sizeof out, (uint32_t) rank);
        MPI_Irecv(in, sizeof in, MPI_CHAR, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, sizeof out, MPI_CHAR, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[1]);
    }
    run_epoch(window, epoch, part, state);
    if (has_message) {
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect(in, sizeof in, (uint32_t) ((rank + 1) % size), "the message beside it");
    }
    verify(window);
    while (count > 0)
        free(old[--count]);
    free(old);
    free(blocks);
}

/* ---- rounds ---- */

static window_t some_window(uint64_t * state)
{
    window_t made = {.kind = (kind_t) next_random(state, kKinds),.type = (type_t) next_random(state, kTypes) };
    const size_t element = bytes_of[made.type];
    const uint64_t numbers = next_random(state, UINT32_MAX);
    size_t offset = 0;
    MPI_Aint bytes;
    int unit;

    if (made.kind == kShared && spans_nodes)
        made.kind = kAllocated;
    made.elements = 1 + (int) next_random(state, next_random(state, 4) == 0 ? kLongest : 200);
    for (int r = 0; r < size; r++)
        made.units[r] = next_random(state, 2) == 0 ? 1 : (int) element;
    unit = made.units[rank];
    for (int r = 0; r < size; r++) {
        const size_t draw = next_random(state, 600) * element;
        if (r == rank)
            offset = draw;
    }
    bytes = (MPI_Aint) ((size_t) made.elements * element);
    if (made.kind == kAllocated)
        MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.memory, &made.window);
    else if (made.kind == kShared)
        MPI_Win_allocate_shared(bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.memory, &made.window);
    else if (made.kind == kAllocMem || (made.kind == kMixed && rank > 0))
        MPI_Alloc_mem(bytes + (MPI_Aint) offset, MPI_INFO_NULL, &made.block);
    else
        made.memory = allocate((size_t) bytes);
    if (made.block != NULL)
        made.memory = made.block + offset;
    if (made.kind <= kMixed)
        MPI_Win_create(made.memory, bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &made.window);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, made.window);
    for (int r = 0; r < size; r++) {
        made.known[r] = allocate(sizeof(int64_t) * (size_t) made.elements);
        for (int i = 0; i < made.elements; i++)
            made.known[r][i] = some_number(made.type, numbers + (uint64_t) r, (uint64_t) i);
    }
    for (int i = 0; i < made.elements; i++)
        store(made.type, made.memory + (size_t) i * element, made.known[rank][i]);
    MPI_Win_unlock(rank, made.window);
    MPI_Barrier(MPI_COMM_WORLD);
    return made;
}

static void free_window(window_t * window)
{
    MPI_Win_free(&window->window);
    if (window->block != NULL)
        MPI_Free_mem(window->block);
    else if (window->kind <= kMixed)
        free(window->memory);
    for (int r = 0; r < size; r++)
        free(window->known[r]);
}

static unsigned long number_from(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoul(text, NULL, 10) : otherwise;
}

/* A child that holds what its parent has mapped and opened, and ends in the midst of its operations. */
static pid_t make_child(void)
{
    const pid_t child = fork();

    if (child < 0)
        fail("fork");
    if (child == 0) {
        usleep(3000);
        _exit(0);
    }
    return child;
}

int main(int argc, char **argv)
{
    const bool forks = argc == 2 && strcmp(argv[1], "forks") == 0;
    int provided;
    uint64_t state;

    threads = forks || (argc == 2 && strcmp(argv[1], "threads") == 0) ? kMostThreads : 1;
    MPI_Init_thread(&argc, &argv, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > kMostRanks || (threads > 1 && provided < MPI_THREAD_MULTIPLE))
        fail("at most %d ranks, and MPI_THREAD_MULTIPLE", kMostRanks);
    {
        MPI_Comm node;
        int node_size;

        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Comm_size(node, &node_size);
        spans_nodes = node_size < size;
        MPI_Comm_free(&node);
    }
    seed = state = number_from("CH3_OFFLOAD_WINDOW_SEED", 1);
    for (unsigned long left = number_from("CH3_OFFLOAD_WINDOW_ROUNDS", is_long()? 2000 : 15); left > 0; left--) {
        window_t window = some_window(&state);
        const pid_t child = forks ? make_child() : 0;
        for (uint32_t epochs = 1 + next_random(&state, 4); epochs > 0; epochs--)
            one_epoch(&window, &state);
        if (forks && waitpid(child, NULL, 0) != child)
            fail("waitpid");
        free_window(&window);
    }
    MPI_Finalize();
    printf("done\n");
    return 0;
}
