/*
 * The ch3:offload channel: put, get and accumulate on windows that the network processor serves.
 *
 * An operation is cut into parts, each for contiguous memory of the target:
 *
 *   put, get            a part for each run of the target's datatype
 *   accumulate, and     the same, and no part is longer than what the processor carries out at once. So the
 *   what fetches        parts take effect in order, and each element is changed at once
 *
 * MPI_REPLACE is a put, or a swap where what was there is wanted. MPI_NO_OP is an atomic operation that changes
 * nothing, since a get has no order with accumulates.
 *
 * Memory of this process that is not contiguous is staged: the source is packed before, the result unpacked at
 * the end. So the gaps that elements of pair types (MPI_MINLOC, MPI_MAXLOC) may have are not touched here.
 */

#include "mpidi_ch3_impl.h"
#include "mpidrma.h"
#include "mpir_op_util.h"

#define RUNS_AT_ONCE 64

/* ---- types and operations ---- */

static int integer_type(size_t bytes, int is_signed)
{
    switch (bytes) {
        case 1:
            return is_signed ? CH3_OFFLOAD_INT8 : CH3_OFFLOAD_UINT8;
        case 2:
            return is_signed ? CH3_OFFLOAD_INT16 : CH3_OFFLOAD_UINT16;
        case 4:
            return is_signed ? CH3_OFFLOAD_INT32 : CH3_OFFLOAD_UINT32;
        case 8:
            return is_signed ? CH3_OFFLOAD_INT64 : CH3_OFFLOAD_UINT64;
        default:
            return CH3_OFFLOAD_NO_TYPE;
    }
}

static int floating_type(size_t bytes)
{
    return bytes == sizeof(float) ? CH3_OFFLOAD_FLOAT : bytes == sizeof(double) ? CH3_OFFLOAD_DOUBLE :
        bytes == sizeof(long double) ? CH3_OFFLOAD_LONG_DOUBLE : CH3_OFFLOAD_NO_TYPE;
}

static int complex_type(size_t bytes)
{
    return bytes == 2 * sizeof(float) ? CH3_OFFLOAD_FLOAT_COMPLEX :
        bytes == 2 * sizeof(double) ? CH3_OFFLOAD_DOUBLE_COMPLEX :
        bytes == 2 * sizeof(long double) ? CH3_OFFLOAD_LONG_DOUBLE_COMPLEX : CH3_OFFLOAD_NO_TYPE;
}

static int pair_type(MPI_Datatype type)
{
    switch (type) {
        case MPI_SHORT_INT:
            return CH3_OFFLOAD_SHORT_INT;
        case MPI_2INT:
            return CH3_OFFLOAD_INT_INT;
        case MPI_LONG_INT:
            return CH3_OFFLOAD_LONG_INT;
        case MPI_FLOAT_INT:
            return CH3_OFFLOAD_FLOAT_INT;
        case MPI_DOUBLE_INT:
            return CH3_OFFLOAD_DOUBLE_INT;
        case MPI_LONG_DOUBLE_INT:
            return CH3_OFFLOAD_LONG_DOUBLE_INT;
#ifdef HAVE_FORTRAN_BINDING
        case MPI_2INTEGER:
            return CH3_OFFLOAD_INT_INT;
        case MPI_2REAL:
            return CH3_OFFLOAD_FLOAT_FLOAT;
        case MPI_2DOUBLE_PRECISION:
            return CH3_OFFLOAD_DOUBLE_DOUBLE;
#endif
        default:
            return CH3_OFFLOAD_NO_TYPE;
    }
}

#define IS_SIGNED(c_type_) ((c_type_) -1 < (c_type_) 1)

/* Of a predefined datatype. */
static int type_of(MPI_Datatype type)
{
    switch (type) {
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return integer_type(sizeof(c_type_), IS_SIGNED(c_type_));
        MPIR_OP_TYPE_GROUP(C_INTEGER)
        MPIR_OP_TYPE_GROUP(C_INTEGER_EXTRA)
        MPIR_OP_TYPE_GROUP(FORTRAN_INTEGER)
        MPIR_OP_TYPE_GROUP(FORTRAN_INTEGER_EXTRA)
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return integer_type(sizeof(c_type_), FALSE);
        MPIR_OP_TYPE_GROUP(LOGICAL)
        MPIR_OP_TYPE_GROUP(BYTE)
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return floating_type(sizeof(c_type_));
        MPIR_OP_TYPE_GROUP(FLOATING_POINT)
        MPIR_OP_TYPE_GROUP(FLOATING_POINT_EXTRA)
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return complex_type(sizeof(c_type_));
        MPIR_OP_TYPE_GROUP(COMPLEX)
        MPIR_OP_TYPE_GROUP(COMPLEX_EXTRA)
#undef MPIR_OP_TYPE_MACRO
        default:
            return pair_type(type);
    }
}

/* FALSE: it is none of the processor's. */
static int atomic_of(MPI_Op op, uint8_t * atomic)
{
    static const struct {
        MPI_Op op;
        uint8_t atomic;
    } all[] = {
        {MPI_SUM, CH3_OFFLOAD_SUM},
        {MPI_MAX, CH3_OFFLOAD_MAX},
        {MPI_MIN, CH3_OFFLOAD_MIN},
        {MPI_PROD, CH3_OFFLOAD_PROD},
        {MPI_LAND, CH3_OFFLOAD_LAND},
        {MPI_BAND, CH3_OFFLOAD_BAND},
        {MPI_LOR, CH3_OFFLOAD_LOR},
        {MPI_BOR, CH3_OFFLOAD_BOR},
        {MPI_LXOR, CH3_OFFLOAD_LXOR},
        {MPI_BXOR, CH3_OFFLOAD_BXOR},
        {MPI_MINLOC, CH3_OFFLOAD_MIN},
        {MPI_MAXLOC, CH3_OFFLOAD_MAX}
    };
    size_t i;

    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].op == op) {
            *atomic = all[i].atomic;
            return TRUE;
        }
    }
    return FALSE;
}

/* ---- the target's memory ---- */

/* The contiguous runs of a target's memory, in the order of the datatype. */
typedef struct {
    MPI_Aint count;             /* of the datatype */
    MPI_Datatype type;
    uint64_t base;              /* where the first element is in the window */
    MPI_Aint position;          /* in the packed data: what was looked at */
    MPI_Aint bytes;             /* of the packed data */
    MPI_Aint known, next;       /* of `iov` */
    struct iovec iov[RUNS_AT_ONCE];
} runs_t;

static MPI_Aint size_of(MPI_Aint count, MPI_Datatype type)
{
    MPI_Aint size;

    MPIR_Datatype_get_size_macro(type, size);
    return count * size;
}

static void runs_begin(runs_t * runs, const MPIR_Win * win, int rank, MPI_Aint displacement, MPI_Aint count,
                       MPI_Datatype type)
{
    runs->count = count;
    runs->type = type;
    runs->base = (uint64_t) win->basic_info_table[rank].disp_unit * displacement;
    runs->position = 0;
    runs->bytes = size_of(count, type);
    runs->known = runs->next = 0;
}

/* FALSE: there is no other run. */
static int next_run(runs_t * runs, uint64_t * offset, size_t * length)
{
    int is_contiguous;
    MPI_Aint size, true_lb, bytes;
    MPIR_Datatype *pointer;

    for (;;) {
        if (runs->next < runs->known) {
            const struct iovec *run = &runs->iov[runs->next++];

            *offset = runs->base + (uintptr_t) run->iov_base;
            *length = run->iov_len;
            if (run->iov_len > 0)
                return TRUE;
            continue;
        }
        if (runs->position == runs->bytes)
            return FALSE;
        MPIDI_Datatype_get_info(runs->count, runs->type, is_contiguous, size, pointer, true_lb);
        if (is_contiguous) {
            runs->iov[0].iov_base = (void *) (uintptr_t) true_lb;
            runs->iov[0].iov_len = size;
            runs->known = 1;
            bytes = size;
        } else {
            MPIR_Typerep_to_iov(NULL, runs->count, runs->type, runs->position, runs->iov, RUNS_AT_ONCE,
                                runs->bytes - runs->position, &runs->known, &bytes);
            if (bytes == 0)
                return FALSE;
        }
        runs->next = 0;
        runs->position += bytes;
    }
}

/* ---- this process's memory ---- */

/* A buffer of the user's. */
typedef struct {
    const void *address;
    MPI_Aint count;
    MPI_Datatype type;
} buffer_t;

/* The address of its first byte, if it is contiguous; else NULL. */
static char *contiguous(const buffer_t * buffer)
{
    int is_contiguous;
    MPI_Aint size, true_lb;
    MPIR_Datatype *pointer;

    MPIDI_Datatype_get_info(buffer->count, buffer->type, is_contiguous, size, pointer, true_lb);
    return is_contiguous ? (char *) buffer->address + true_lb : NULL;
}

static int unstage(MPIDI_CH3I_Window_op * op, int is_ok)
{
    int mpi_errno = MPI_SUCCESS;

    if (is_ok)
        mpi_errno = MPIR_Localcopy(op->result, op->staged_count, op->staged_type, op->place, op->place_count,
                                   op->place_type);
    MPIR_Datatype_release_if_not_builtin(op->place_type);
    return mpi_errno;
}

static int no_memory(void)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    return mpi_errno;
}

/* Where the bytes of a source are: there, or in a copy of the operation's. `count` elements of `type`, which is
 * predefined, take `bytes`. */
static int stage_source(MPIDI_CH3I_Window_op * op, const buffer_t * source, MPI_Aint count, MPI_Datatype type,
                        size_t bytes, const char **address)
{
    op->source = MPL_malloc(bytes, MPL_MEM_RMA);
    if (op->source == NULL)
        return no_memory();
    *address = op->source;
    return MPIR_Localcopy(source->address, source->count, source->type, op->source, count, type);
}

/* The same for a result: the copy is unpacked when the operation is over. */
static int stage_result(MPIDI_CH3I_Window_op * op, const buffer_t * result, MPI_Aint count, MPI_Datatype type,
                        size_t bytes, char **address)
{
    op->result = MPL_malloc(bytes, MPL_MEM_RMA);
    if (op->result == NULL)
        return no_memory();
    op->staged_count = count;
    op->staged_type = type;
    op->place = (void *) result->address;
    op->place_count = result->count;
    op->place_type = result->type;
    MPIR_Datatype_add_ref_if_not_builtin(result->type);
    op->end = unstage;
    *address = op->result;
    return MPI_SUCCESS;
}

/* ---- put and get ---- */

/* Exactly one of `source` and `result`. */
static int move(const buffer_t * source, const buffer_t * result, int rank, MPI_Aint displacement,
                MPI_Aint count, MPI_Datatype type, MPIR_Win * win, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const buffer_t *here = source != NULL ? source : result;
    ch3_offload_window_operation_t part;
    MPIDI_CH3I_Window_op *op;
    runs_t runs;
    MPI_Aint bytes;
    const char *from = NULL;
    char *to = NULL;
    char *in_place = contiguous(here);

    bytes = size_of(here->count, here->type);
    op = MPIDI_CH3I_Window_op_make(win, rank, request);
    if (op == NULL)
        return no_memory();
    if (source != NULL && in_place == NULL)
        mpi_errno = stage_source(op, source, bytes, MPI_BYTE, bytes, &from);
    else if (source != NULL)
        from = in_place;
    else if (in_place == NULL)
        mpi_errno = stage_result(op, result, bytes, MPI_BYTE, bytes, &to);
    else
        to = in_place;
    memset(&part, 0, sizeof(part));
    part.kind = source != NULL ? CH3_OFFLOAD_WINDOW_PUT : CH3_OFFLOAD_WINDOW_GET;
    runs_begin(&runs, win, rank, displacement, count, type);
    while (mpi_errno == MPI_SUCCESS && bytes > 0 && next_run(&runs, &part.offset_bytes, &part.length_bytes)) {
        part.length_bytes = MPL_MIN(part.length_bytes, (size_t) bytes);
        part.source = from;
        part.result = to;
        mpi_errno = MPIDI_CH3I_Window_begin(op, &part);
        if (from != NULL)
            from += part.length_bytes;
        if (to != NULL)
            to += part.length_bytes;
        bytes -= part.length_bytes;
    }
    MPIDI_CH3I_Window_part_over(op, mpi_errno == MPI_SUCCESS ? CH3_OFFLOAD_OK : CH3_OFFLOAD_FAILED);
    return mpi_errno;
}

/* Whether loads and stores reach it, and CH3 does them. */
static int is_put_near(const MPIR_Win * win, int rank)
{
    return rank == win->comm_ptr->rank || MPIDI_CH3I_Window_is_near(win, rank);
}

/* A request that CH3 has finished within the call: who makes one after another, and waits for it, polls nothing. */
static int poke_if_over(MPIR_Win * win, int rank, MPIR_Request * request)
{
    return request != NULL && is_put_near(win, rank) ? MPID_Progress_test(NULL) : MPI_SUCCESS;
}

static int stock_move(const buffer_t * source, const buffer_t * result, int rank, MPI_Aint displacement, int count,
                      MPI_Datatype type, MPIR_Win * win, MPIR_Request * request)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);

    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    if (source != NULL)
        mpi_errno = MPIDI_CH3I_Stock_put(source->address, source->count, source->type, rank, displacement, count,
                                         type, win, request);
    else
        mpi_errno = MPIDI_CH3I_Stock_get((void *) result->address, result->count, result->type, rank, displacement,
                                         count, type, win, request);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno == MPI_SUCCESS ? poke_if_over(win, rank, request) : mpi_errno;
}

int MPIDI_CH3I_Window_put(const void *origin, int origin_count, MPI_Datatype origin_type, int rank,
                          MPI_Aint displacement, int count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const buffer_t source = { origin, origin_count, origin_type };

    mpi_errno = MPIDI_CH3I_Window_enter(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    if (win->ch.served != MPIDI_CH3I_SERVED_ALL || is_put_near(win, rank) ||
        size_of(origin_count, origin_type) == 0)
        mpi_errno = stock_move(&source, NULL, rank, displacement, count, type, win, request);
    else
        mpi_errno = move(&source, NULL, rank, displacement, count, type, win, request);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_get(void *origin, int origin_count, MPI_Datatype origin_type, int rank,
                          MPI_Aint displacement, int count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const buffer_t result = { origin, origin_count, origin_type };

    mpi_errno = MPIDI_CH3I_Window_enter(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    if (win->ch.served != MPIDI_CH3I_SERVED_ALL || is_put_near(win, rank) ||
        size_of(origin_count, origin_type) == 0)
        mpi_errno = stock_move(NULL, &result, rank, displacement, count, type, win, request);
    else
        mpi_errno = move(NULL, &result, rank, displacement, count, type, win, request);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- accumulate ---- */

/* What changes nothing. */
static const char zeros[1 << 16];

static int wants_pairs(MPI_Op op)
{
    return op == MPI_MINLOC || op == MPI_MAXLOC;
}

static int is_pair(MPI_Datatype basic)
{
    return pair_type(basic) != CH3_OFFLOAD_NO_TYPE;
}

/* What the processor does with each part of an accumulate. */
typedef struct {
    uint8_t kind;               /* ch3_offload_window_kind_t */
    uint8_t atomic;
    uint8_t type;
    int uses_source;            /* FALSE: whatever it says */
    size_t element_bytes;       /* with the gap of a pair */
} action_t;

/* `fetches`: what was there is wanted. */
static int choose_action(MPI_Op op, MPI_Datatype basic, int fetches, action_t * action)
{
    int mpi_errno = MPI_SUCCESS;
    MPI_Aint extent;

    memset(action, 0, sizeof(*action));
    MPIR_Datatype_get_extent_macro(basic, extent);
    action->element_bytes = extent;
    action->uses_source = op != MPI_NO_OP;
    action->type = CH3_OFFLOAD_UINT8;
    if (op == MPI_NO_OP) {
        action->kind = CH3_OFFLOAD_WINDOW_FETCH;
        action->atomic = CH3_OFFLOAD_BOR;       /* with zeros */
    } else if (op == MPI_REPLACE) {
        action->kind = fetches ? CH3_OFFLOAD_WINDOW_SWAP : CH3_OFFLOAD_WINDOW_PUT;
    } else {
        action->kind = fetches ? CH3_OFFLOAD_WINDOW_FETCH : CH3_OFFLOAD_WINDOW_ATOMIC;
        action->type = type_of(basic);
        MPIR_ERR_CHKANDJUMP1(!atomic_of(op, &action->atomic) || action->type == CH3_OFFLOAD_NO_TYPE ||
                             wants_pairs(op) != is_pair(basic) ||
                             !ch3_offload_window_can(action->atomic, action->type), mpi_errno, MPI_ERR_OP,
                             "**opundefined", "**opundefined %s", "accumulate");
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Begins the parts of one run of elements. `from` and `to` move on. */
static int begin_run(MPIDI_CH3I_Window_op * op, const action_t * action, uint64_t offset, size_t length,
                     const char **from, char **to, const void *compare)
{
    int mpi_errno = MPI_SUCCESS;
    const size_t most = MPL_MIN(ch3_offload_window_atomic_bytes(MPIDI_CH3I_channel), sizeof(zeros));
    const size_t share = most - most % action->element_bytes;
    ch3_offload_window_operation_t part;

    memset(&part, 0, sizeof(part));
    part.kind = action->kind;
    part.atomic = action->atomic;
    part.type = action->type;
    part.compare = compare;
    while (length > 0) {
        part.offset_bytes = offset;
        part.length_bytes = MPL_MIN(length, share);
        part.source = *from;
        part.result = *to;
        mpi_errno = MPIDI_CH3I_Window_begin(op, &part);
        MPIR_ERR_CHECK(mpi_errno);
        offset += part.length_bytes;
        length -= part.length_bytes;
        if (action->uses_source)
            *from += part.length_bytes;
        if (*to != NULL)
            *to += part.length_bytes;
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* A run may end inside a pair, where that has a gap. So each pair is a part of its own: it begins where the packed
 * data so far is that of whole pairs. */
static int begin_pairs(MPIDI_CH3I_Window_op * op, const action_t * action, runs_t * runs, MPI_Datatype basic,
                       const char **from, char **to)
{
    int mpi_errno = MPI_SUCCESS;
    uint64_t offset;
    size_t length;
    size_t seen = 0, next = 0;  /* in the packed data: the end of the runs so far, and the next element */
    const size_t packed = size_of(1, basic);

    while (next_run(runs, &offset, &length)) {
        while (next < seen + length) {
            mpi_errno = begin_run(op, action, offset + (next - seen), action->element_bytes, from, to, NULL);
            MPIR_ERR_CHECK(mpi_errno);
            next += packed;
        }
        seen += length;
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static MPI_Datatype basic_of(MPI_Datatype type)
{
    MPIR_Datatype *pointer;

    if (MPIR_DATATYPE_IS_PREDEFINED(type))
        return type;
    MPIR_Datatype_get_ptr(type, pointer);
    return pointer->basic_type;
}

/* What an accumulate's data is made of. Where pairs with gaps are only moved, bytes: a gap is nobody's. */
static MPI_Datatype elements_of(MPI_Datatype type, MPI_Op op)
{
    MPI_Datatype basic = basic_of(type);
    MPI_Aint extent;

    MPIR_Datatype_get_extent_macro(basic, extent);
    return (op == MPI_REPLACE || op == MPI_NO_OP) && extent != size_of(1, basic) ? MPI_BYTE : basic;
}

/* `result` NULL: what was there is not wanted. */
static int accumulate(const buffer_t * source, const buffer_t * result, int rank, MPI_Aint displacement,
                      MPI_Aint count, MPI_Datatype type, MPI_Op op, MPIR_Win * win, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const MPI_Datatype basic = elements_of(type, op);
    /* What nobody wants to know and nothing changes is nothing. */
    const MPI_Aint elements = result == NULL && op == MPI_NO_OP ? 0 : size_of(count, type) / size_of(1, basic);
    const char *from = NULL;
    char *to = NULL;
    action_t action;
    runs_t runs;
    MPIDI_CH3I_Window_op *operation = NULL;
    size_t bytes, length;
    uint64_t offset;

    mpi_errno = choose_action(op, basic, result != NULL, &action);
    MPIR_ERR_CHECK(mpi_errno);
    bytes = elements * action.element_bytes;
    operation = MPIDI_CH3I_Window_op_make(win, rank, request);
    if (operation == NULL) {
        mpi_errno = no_memory();
        goto fn_fail;
    }
    if (!action.uses_source)
        from = zeros;
    else if ((from = contiguous(source)) == NULL)
        mpi_errno = stage_source(operation, source, elements, basic, bytes, &from);
    if (mpi_errno == MPI_SUCCESS && result != NULL && (to = contiguous(result)) == NULL)
        mpi_errno = stage_result(operation, result, elements, basic, bytes, &to);
    runs_begin(&runs, win, rank, displacement, elements == 0 ? 0 : count, type);
    if (mpi_errno == MPI_SUCCESS && type == basic) {
        mpi_errno = begin_run(operation, &action, runs.base, bytes, &from, &to, NULL);
    } else if (mpi_errno == MPI_SUCCESS && is_pair(basic)) {
        mpi_errno = begin_pairs(operation, &action, &runs, basic, &from, &to);
    } else {
        while (mpi_errno == MPI_SUCCESS && next_run(&runs, &offset, &length))
            mpi_errno = begin_run(operation, &action, offset, length, &from, &to, NULL);
    }
    MPIDI_CH3I_Window_part_over(operation, mpi_errno == MPI_SUCCESS ? CH3_OFFLOAD_OK : CH3_OFFLOAD_FAILED);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIDI_CH3I_Window_settle_own(win, rank);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- accumulate, by CH3 ---- */

static int has_gap(MPI_Datatype basic)
{
    MPI_Aint extent;

    MPIR_Datatype_get_extent_macro(basic, extent);
    return extent != size_of(1, basic);
}

/* Makes a derived datatype of one element. */
static int derive(MPI_Datatype basic, MPI_Datatype * derived)
{
    int mpi_errno = MPIR_Type_contiguous_impl(1, basic, derived);
    return mpi_errno == MPI_SUCCESS ? MPIR_Type_commit_impl(derived) : mpi_errno;
}

/* Makes a copy of the buffer, in memory of its own, as `count` elements of its basic datatype. */
static int copy_elements(buffer_t * buffer, char **copy)
{
    const MPI_Datatype basic = basic_of(buffer->type);
    const MPI_Aint count = size_of(buffer->count, buffer->type) / size_of(1, basic);
    const buffer_t from = *buffer;
    MPI_Aint extent;

    MPIR_Datatype_get_extent_macro(basic, extent);
    *copy = MPL_malloc(count * extent, MPL_MEM_RMA);
    if (*copy == NULL)
        return no_memory();
    buffer->address = *copy;
    buffer->count = count;
    buffer->type = basic;
    return MPIR_Localcopy(from.address, from.count, from.type, *copy, count, basic);
}

static int call_stock(const buffer_t * source, const buffer_t * result, int rank, MPI_Aint displacement, int count,
                      MPI_Datatype type, MPI_Op op, MPIR_Win * win, MPIR_Request * request)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);

    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    if (result == NULL)
        mpi_errno = MPIDI_CH3I_Stock_accumulate(source->address, source->count, source->type, rank, displacement,
                                                count, type, op, win, request);
    else
        mpi_errno = MPIDI_CH3I_Stock_get_accumulate(source->address, source->count, source->type,
                                                    (void *) result->address, result->count, result->type, rank,
                                                    displacement, count, type, op, win, request);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno;
}

/* Where the pairs of a buffer begin, from its address. The caller frees it. NULL: no memory. */
static MPI_Aint *places_of_pairs(MPI_Aint count, MPI_Datatype type, MPI_Datatype basic)
{
    const MPI_Aint packed = size_of(1, basic);
    MPI_Aint *places = MPL_malloc(size_of(count, type) / packed * sizeof(MPI_Aint), MPL_MEM_RMA);
    MPI_Aint seen = 0, next = 0;        /* in the packed data, as in begin_pairs() */
    uint64_t offset;
    size_t length;
    runs_t runs = {.count = count,.type = type,.bytes = size_of(count, type) };

    while (places != NULL && next_run(&runs, &offset, &length)) {
        for (; next < seen + (MPI_Aint) length; next += packed)
            places[next / packed] = (MPI_Aint) offset + (next - seen);
        seen += length;
    }
    return places;
}

/* MPI_Get_accumulate of pairs with gaps, in parts. The parts end in their order, so the last ends the request. */
static int cut_pairs(const buffer_t * source, const buffer_t * result, int rank, MPI_Aint displacement, int count,
                     MPI_Datatype type, MPI_Op op, MPIR_Win * win, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    enum { SOURCE, RESULT, TARGET, ALL };
    const MPI_Datatype basic = basic_of(type);
    const MPI_Aint elements = size_of(count, type) / size_of(1, basic);
    const int begin = op == MPI_NO_OP ? RESULT : SOURCE;
    const buffer_t whole[ALL] = { *source, *result, { NULL, count, type } };
    buffer_t part[ALL] = { *source, *result, { NULL, count, type } };
    MPI_Aint *places[ALL] = { NULL, NULL, NULL };
    MPI_Aint extent, first, n;
    int i;

    MPIR_Datatype_get_extent_macro(basic, extent);
    for (i = begin; i < ALL; i++) {
        places[i] = places_of_pairs(whole[i].count, whole[i].type, basic);
        if (places[i] == NULL)
            mpi_errno = no_memory();
    }
    for (first = 0; mpi_errno == MPI_SUCCESS && first < elements; first += n) {
        n = MPL_MIN(elements - first, MPIDI_CH3U_Acc_stream_size / extent);
        for (i = begin; i < ALL; i++) {
            part[i].count = 1;
            part[i].type = MPI_DATATYPE_NULL;
        }
        for (i = begin; mpi_errno == MPI_SUCCESS && i < ALL; i++) {
            mpi_errno = MPIR_Type_create_hindexed_block_impl((int) n, 1, &places[i][first], basic, &part[i].type);
            if (mpi_errno == MPI_SUCCESS)
                mpi_errno = MPIR_Type_commit_impl(&part[i].type);
        }
        if (mpi_errno == MPI_SUCCESS)
            mpi_errno = call_stock(&part[SOURCE], &part[RESULT], rank, displacement, 1, part[TARGET].type, op, win,
                                   first + n == elements ? request : NULL);
        for (i = begin; i < ALL; i++)
            if (part[i].type != MPI_DATATYPE_NULL)
                MPIR_Type_free_impl(&part[i].type);
    }
    for (i = 0; i < ALL; i++)
        MPL_free(places[i]);
    return mpi_errno;
}

/* CH3 with what it does not bear in another form:
 *
 *   An operation of several stream units that also asks for the lock is waited for in vain (issue_get_acc_op()). CH3
 *   looks at the length of the origin, which MPI_NO_OP does not have. No lock is asked for with an operation that has
 *   derived datatypes.
 *
 *   Pairs with gaps that wait packed for a lock, or were packed from a derived datatype, are read as if they still
 *   had their gaps (do_accumulate_op()). So they ask for no lock, and those that CH3 applies itself are not packed.
 *
 *   The last stream unit of an answer with such pairs is too long (MPIDI_CH3_ReqHandler_GaccumRecvComplete()). So there
 *   is only one.
 *
 * `result` NULL: what was there is not wanted. */
static int stock_accumulate(const buffer_t * source, const buffer_t * result, int rank, MPI_Aint displacement,
                            int count, MPI_Datatype type, MPI_Op op, MPIR_Win * win, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const int is_near = is_put_near(win, rank);
    const MPI_Datatype basic = basic_of(type);
    const int is_gapped = basic != MPI_DATATYPE_NULL && has_gap(basic);
    MPI_Datatype derived_source = MPI_DATATYPE_NULL, derived_result = MPI_DATATYPE_NULL;
    buffer_t origin = *source;
    buffer_t place = result != NULL ? *result : *source;
    char *copy = NULL;
    MPI_Aint extent = 0;

    if (is_gapped)
        MPIR_Datatype_get_extent_macro(basic, extent);
    if (is_gapped && !is_near && result != NULL &&
        size_of(count, type) / size_of(1, basic) * extent > MPIDI_CH3U_Acc_stream_size)
        return cut_pairs(source, result, rank, displacement, count, type, op, win, request);
    if (is_gapped && op != MPI_NO_OP) {
        if (is_near && !MPIR_DATATYPE_IS_PREDEFINED(origin.type)) {
            mpi_errno = copy_elements(&origin, &copy);
        } else if (!is_near && MPIR_DATATYPE_IS_PREDEFINED(origin.type)) {
            mpi_errno = derive(origin.type, &derived_source);
            origin.type = derived_source;
        }
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (!is_near && result != NULL && MPIR_DATATYPE_IS_PREDEFINED(place.type) &&
        (is_gapped || size_of(count, type) > MPIDI_CH3U_Acc_stream_size)) {
        mpi_errno = derive(place.type, &derived_result);
        place.type = derived_result;
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = call_stock(&origin, result != NULL ? &place : NULL, rank, displacement, count, type, op, win, request);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = poke_if_over(win, rank, request);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    if (derived_source != MPI_DATATYPE_NULL)
        MPIR_Type_free_impl(&derived_source);
    if (derived_result != MPI_DATATYPE_NULL)
        MPIR_Type_free_impl(&derived_result);
    MPL_free(copy);
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_accumulate(const void *origin, int origin_count, MPI_Datatype origin_type, int rank,
                                 MPI_Aint displacement, int count, MPI_Datatype type, MPI_Op op,
                                 MPIR_Win * win, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const buffer_t source = { origin, origin_count, origin_type };

    mpi_errno = MPIDI_CH3I_Window_enter(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    if (win->ch.served != MPIDI_CH3I_SERVED_ALL || size_of(origin_count, origin_type) == 0)
        mpi_errno = stock_accumulate(&source, NULL, rank, displacement, count, type, op, win, request);
    else
        mpi_errno = accumulate(&source, NULL, rank, displacement, count, type, op, win, request);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_get_accumulate(const void *origin, int origin_count, MPI_Datatype origin_type,
                                     void *address, int result_count, MPI_Datatype result_type, int rank,
                                     MPI_Aint displacement, int count, MPI_Datatype type, MPI_Op op,
                                     MPIR_Win * win, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const buffer_t source = { origin, origin_count, origin_type };
    const buffer_t result = { address, result_count, result_type };

    mpi_errno = MPIDI_CH3I_Window_enter(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    if (win->ch.served != MPIDI_CH3I_SERVED_ALL || size_of(count, type) == 0)
        mpi_errno = stock_accumulate(&source, &result, rank, displacement, count, type, op, win, request);
    else
        mpi_errno = accumulate(&source, &result, rank, displacement, count, type, op, win, request);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* CH3's function does nothing if the origin's size is 0. MPI_NO_OP ignores the origin (MPI 4.0, section 12.3.4),
 * so CH3's function is given the target's count and type in its place. */
int MPIDI_CH3I_Window_rget_accumulate(const void *origin, int origin_count, MPI_Datatype origin_type,
                                      void *address, int result_count, MPI_Datatype result_type, int rank,
                                      MPI_Aint displacement, int count, MPI_Datatype type, MPI_Op op,
                                      MPIR_Win * win, MPIR_Request ** request)
{
    const int has_origin = op != MPI_NO_OP;

    return MPIDI_CH3I_Stock_rget_accumulate(origin, has_origin ? origin_count : count,
                                            has_origin ? origin_type : type, address, result_count,
                                            result_type, rank, displacement, count, type, op, win, request);
}

int MPIDI_CH3I_Window_fetch_and_op(const void *origin, void *result, MPI_Datatype type, int rank,
                                   MPI_Aint displacement, MPI_Op op, MPIR_Win * win)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno = MPI_SUCCESS;

    if (win->ch.served != MPIDI_CH3I_SERVED_ALL && !has_gap(type)) {
        mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);
        MPIR_ERR_CHECK(mpi_errno);
        mpi_errno = MPIDI_CH3I_Stock_fetch_and_op(origin, result, type, rank, displacement, op, win);
        MPIDI_CH3I_Turn_give(&turn);
        goto fn_exit;
    }
    mpi_errno = MPIDI_CH3I_Window_get_accumulate(origin, 1, type, result, 1, type, rank, displacement, 1, type, op,
                                            win, NULL);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_compare_and_swap(const void *origin, const void *compare, void *result,
                                       MPI_Datatype type, int rank, MPI_Aint displacement, MPIR_Win * win)
{
    int mpi_errno = MPI_SUCCESS;
    const size_t bytes = MPIR_Datatype_get_basic_size(type);
    const action_t action = {
        .kind = CH3_OFFLOAD_WINDOW_COMPARE_SWAP,.type = integer_type(bytes, FALSE),.uses_source = TRUE,
        .element_bytes = bytes
    };
    const char *from = origin;
    char *to = result;
    MPIDI_CH3I_Window_op *operation;

    if (win->ch.served != MPIDI_CH3I_SERVED_ALL) {
        MPIDI_CH3I_Turn_t turn;

        mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);
        MPIR_ERR_CHECK(mpi_errno);
        mpi_errno = MPIDI_CH3I_Stock_compare_and_swap(origin, compare, result, type, rank, displacement, win);
        MPIDI_CH3I_Turn_give(&turn);
        goto fn_exit;
    }
    mpi_errno = MPIDI_CH3I_Window_enter(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    operation = MPIDI_CH3I_Window_op_make(win, rank, NULL);
    if (operation == NULL) {
        mpi_errno = no_memory();
        goto fn_fail;
    }
    mpi_errno = begin_run(operation, &action, (uint64_t) win->basic_info_table[rank].disp_unit * displacement,
                          bytes, &from, &to, compare);
    MPIDI_CH3I_Window_part_over(operation, mpi_errno == MPI_SUCCESS ? CH3_OFFLOAD_OK : CH3_OFFLOAD_FAILED);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIDI_CH3I_Window_settle_own(win, rank);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
