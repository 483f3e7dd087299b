/*
 * The ch3:offload channel: put, get and accumulate on windows that the network processor serves.
 *
 * An operation is cut into parts, each for contiguous memory of the target, or for runs of equal length and
 * distance:
 *
 *   put, get            a part for each run of the target's datatype; what the processor carries out at
 *                       once may be many runs
 *   accumulate, and     the same, and no part is longer than that. So the parts take effect in order, and
 *   what fetches        each element is changed at once
 *
 * MPI_REPLACE is a put, or a swap where what was there is wanted. MPI_NO_OP is an atomic operation that
 * changes nothing, since a get has no order with accumulates.
 *
 * Memory of this process that is not contiguous, or that ch3_offload_window_stages() names, is staged: the
 * source is packed before, the result unpacked at the end. So the gaps that elements of pair types
 * (MPI_MINLOC, MPI_MAXLOC) may have are not touched here.
 */

#include "ch3_window_ops.h"

/* ---- this process's memory ---- */

/* The address of its first byte, if it needs no staging; else NULL. */
static char *in_place(const MPIDI_CH3I_Buffer_t * buffer, ch3_offload_window_access_t access)
{
    int is_contiguous;
    MPI_Aint size, true_lb;
    MPIR_Datatype *pointer;
    char *first;

    MPIDI_Datatype_get_info(buffer->count, buffer->type, is_contiguous, size, pointer, true_lb);
    first = (char *) buffer->address + true_lb;
    if (!is_contiguous || ch3_offload_window_stages(MPIDI_CH3I_channel, first, size, access))
        return NULL;
    return first;
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

/* Where the bytes of a source are: there, or in a copy of the operation's. `count` elements of `type`,
 * which is predefined, take `bytes`. */
static int stage_source(MPIDI_CH3I_Window_op * op, const MPIDI_CH3I_Buffer_t * source, MPI_Aint count,
                        MPI_Datatype type, size_t bytes, const char **address)
{
    op->source = MPIDI_CH3I_Alloc_mem(bytes, NULL);
    if (op->source == NULL)
        return MPIDI_CH3I_No_memory();
    *address = op->source;
    return MPIR_Localcopy(source->address, source->count, source->type, op->source, count, type);
}

/* The same for a result: the copy is unpacked when the operation is over. */
static int stage_result(MPIDI_CH3I_Window_op * op, const MPIDI_CH3I_Buffer_t * result, MPI_Aint count,
                        MPI_Datatype type, size_t bytes, char **address)
{
    op->result = MPIDI_CH3I_Alloc_mem(bytes, NULL);
    if (op->result == NULL)
        return MPIDI_CH3I_No_memory();
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

/* ---- parts ---- */

/* What changes nothing. */
static const char zeros[1 << 16];

/* What the processor does with each part of an operation. */
typedef struct {
    uint8_t kind;               /* ch3_offload_window_kind_t */
    uint8_t atomic;
    uint8_t type;
    int uses_source;            /* FALSE: whatever it says */
    int is_whole;               /* a run is a part, however long it is */
    size_t element_bytes;       /* with the gap of a pair */
} action_t;

/* The parts of an operation, which begin as the runs of the target's memory are added. */
typedef struct {
    MPIDI_CH3I_Window_op *op;
    action_t action;
    const char *from;           /* the data of what has not begun */
    char *to;
    const void *compare;
    size_t at_once;             /* bytes: what the processor carries out at once, in whole elements */
    /* Runs that have not begun. They become one part. */
    size_t count;
    size_t block;
    uint64_t first, last;       /* where those begin */
    uint64_t stride;            /* with more than one */
} parts_t;

static void parts_begin(parts_t * parts, MPIDI_CH3I_Window_op * op, const action_t * action, const char *from,
                        char *to)
{
    const size_t most = MPL_MIN(ch3_offload_window_atomic_bytes(MPIDI_CH3I_channel), sizeof(zeros));

    memset(parts, 0, sizeof(*parts));
    parts->op = op;
    parts->action = *action;
    parts->from = from;
    parts->to = to;
    parts->at_once = most - most % action->element_bytes;
}

/* One part, of one run or of runs (block > 0). */
static int begin_part(parts_t * parts, uint64_t offset, size_t length, size_t block, uint64_t stride)
{
    const action_t *action = &parts->action;
    ch3_offload_window_operation_t part;

    memset(&part, 0, sizeof(part));
    part.kind = action->kind;
    part.atomic = action->atomic;
    part.type = action->type;
    part.compare = parts->compare;
    part.offset_bytes = offset;
    part.length_bytes = length;
    part.source = parts->from;
    part.result = parts->to;
    if (action->uses_source && parts->from != NULL)
        parts->from += length;
    if (parts->to != NULL)
        parts->to += length;
    return MPIDI_CH3I_Window_begin_runs(parts->op, &part, block, stride);
}

/* Begins what was added. */
static int parts_end(parts_t * parts)
{
    int mpi_errno = MPI_SUCCESS;
    const size_t most = parts->action.is_whole ? SIZE_MAX : parts->at_once;
    uint64_t offset = parts->first;
    size_t length = parts->block * parts->count;

    if (parts->count > 1 && parts->stride > parts->block) {
        mpi_errno = begin_part(parts, offset, length, parts->block, parts->stride);
        MPIR_ERR_CHECK(mpi_errno);
        length = 0;
    }
    while (length > 0) {
        const size_t share = MPL_MIN(length, most);

        mpi_errno = begin_part(parts, offset, share, 0, 0);
        MPIR_ERR_CHECK(mpi_errno);
        offset += share;
        length -= share;
    }
    parts->count = 0;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Adds a run: to those before it, if it is as long and as far from the last as they are from each other. */
static int add_run(parts_t * parts, uint64_t offset, size_t length)
{
    int mpi_errno = MPI_SUCCESS;

    if (parts->count > 0 && length == parts->block && length * (parts->count + 1) <= parts->at_once &&
        offset >= parts->last + length && (parts->count == 1 || offset - parts->last == parts->stride)) {
        parts->stride = offset - parts->last;
    } else {
        mpi_errno = parts_end(parts);
        MPIR_ERR_CHECK(mpi_errno);
        parts->first = offset;
        parts->block = length;
    }
    parts->last = offset;
    parts->count++;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- put and get ---- */

static void runs_begin(MPIDI_CH3I_Runs_t * runs, const MPIR_Win * win, int rank, MPI_Aint displacement,
                       MPI_Aint count, MPI_Datatype type)
{
    runs->count = count;
    runs->type = type;
    runs->base = (uint64_t) win->basic_info_table[rank].disp_unit * displacement;
    runs->position = 0;
    runs->bytes = MPIDI_CH3I_Size_of(count, type);
    runs->known = runs->next = 0;
}

/* Exactly one of `source` and `result`. */
static int move(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                MPI_Aint displacement, MPI_Aint count, MPI_Datatype type, MPIR_Win * win,
                MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const MPIDI_CH3I_Buffer_t *here = source != NULL ? source : result;
    const action_t action = {
        .kind = source != NULL ? CH3_OFFLOAD_WINDOW_PUT : CH3_OFFLOAD_WINDOW_GET,.uses_source = TRUE,
        .is_whole = TRUE,.element_bytes = 1
    };
    parts_t parts;
    MPIDI_CH3I_Window_op *op;
    MPIDI_CH3I_Runs_t runs;
    MPI_Aint bytes;
    uint64_t offset;
    size_t length;
    const char *from = NULL;
    char *to = NULL;

    bytes = MPIDI_CH3I_Size_of(here->count, here->type);
    op = MPIDI_CH3I_Window_op_make(win, rank, request);
    if (op == NULL)
        return MPIDI_CH3I_No_memory();
    if (source != NULL && (from = in_place(source, CH3_OFFLOAD_WINDOW_SOURCE)) == NULL)
        mpi_errno = stage_source(op, source, bytes, MPIR_BYTE_INTERNAL, bytes, &from);
    if (result != NULL && (to = in_place(result, CH3_OFFLOAD_WINDOW_RESULT)) == NULL)
        mpi_errno = stage_result(op, result, bytes, MPIR_BYTE_INTERNAL, bytes, &to);
    parts_begin(&parts, op, &action, from, to);
    runs_begin(&runs, win, rank, displacement, count, type);
    while (mpi_errno == MPI_SUCCESS && bytes > 0 && MPIDI_CH3I_Next_run(&runs, &offset, &length)) {
        length = MPL_MIN(length, (size_t) bytes);
        mpi_errno = add_run(&parts, offset, length);
        bytes -= length;
    }
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = parts_end(&parts);
    MPIDI_CH3I_Window_part_over(op, mpi_errno == MPI_SUCCESS ? CH3_OFFLOAD_OK : CH3_OFFLOAD_FAILED);
    return mpi_errno;
}

/* MPI_ERR_RMA_RANGE: the window has mapped memory, and does not have all of that there. Beyond its end may be
 * other memory of the target, or none, so this process would end by a signal. */
static int check_range(const MPIR_Win * win, int rank, MPI_Aint displacement, MPI_Aint count,
                       MPI_Datatype type)
{
    int mpi_errno = MPI_SUCCESS;
    MPI_Aint begin, end, extent, true_lb, true_extent;

    if (!win->ch.is_mapped || !MPIDI_CH3I_Window_is_near(win, rank) || count == 0)
        goto fn_exit;
    MPIR_Datatype_get_extent_macro(type, extent);
    MPIR_Type_get_true_extent_impl(type, &true_lb, &true_extent);
    begin = win->basic_info_table[rank].disp_unit * displacement + true_lb;
    end = begin + true_extent;
    if (extent > 0)
        end += (count - 1) * extent;
    else
        begin += (count - 1) * extent;
    MPIR_ERR_CHKANDJUMP1(begin < 0 || end > win->basic_info_table[rank].size, mpi_errno, MPI_ERR_RMA_RANGE,
                         "**ch3|offload|range", "**ch3|offload|range %d", rank);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* What most puts and gets are: contiguous at both ends, and loads and stores reach the target. FALSE: it is
 * anything else, and nothing was done. */
static inline int move_near(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                            MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, const MPIR_Win * win,
                            MPIR_Request * request)
{
    const MPIDI_CH3I_Buffer_t *here = source != NULL ? source : result;
    const MPI_Aint offset = win->basic_info_table[rank].disp_unit * displacement;
    MPI_Aint bytes;
    char *there;

    if (!MPIDI_CH3I_Window_is_near(win, rank) || win->states.access_state == MPIDI_RMA_NONE ||
        request != NULL || !HANDLE_IS_BUILTIN(type) || !HANDLE_IS_BUILTIN(here->type))
        return FALSE;
    bytes = MPIR_Datatype_get_basic_size(type) * (MPI_Aint) count;
    if (bytes != MPIR_Datatype_get_basic_size(here->type) * here->count ||
        (win->ch.is_mapped && (offset < 0 || bytes > win->basic_info_table[rank].size - offset)))
        return FALSE;
    there = (char *) win->shm_base_addrs[MPIDI_CH3I_NODE_RANK(win->comm_ptr, rank)] + offset;
    if (source != NULL)
        ch3_offload_copy(there, source->address, bytes);
    else
        ch3_offload_copy((void *) result->address, there, bytes);
    MPIDI_CH3I_silent_work += (size_t) bytes / MPIDI_CH3I_SILENT_BYTES;
    return TRUE;
}

/* Likewise, in an epoch, by whoever does it. */
static int put_or_get(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                      MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                      MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const MPIDI_CH3I_Buffer_t *here = source != NULL ? source : result;

    mpi_errno = MPIDI_CH3I_Window_enter(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    if (move_near(source, result, rank, displacement, count, type, win, request))
        goto fn_exit;
    mpi_errno = check_range(win, rank, displacement, count, type);
    MPIR_ERR_CHECK(mpi_errno);
    if (win->ch.served != MPIDI_CH3I_SERVED_ALL || MPIDI_CH3I_Window_is_reached(win, rank) ||
        MPIDI_CH3I_Size_of(here->count, here->type) == 0)
        mpi_errno = MPIDI_CH3I_Stock_move(source, result, rank, displacement, count, type, win, request);
    else
        mpi_errno = move(source, result, rank, displacement, count, type, win, request);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_put(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type, int rank,
                          MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request)
{
    const MPIDI_CH3I_Buffer_t source = { origin, origin_count, origin_type };

    return put_or_get(&source, NULL, rank, displacement, count, type, win, request);
}

int MPIDI_CH3I_Window_get(void *origin, RMA_count_t origin_count, MPI_Datatype origin_type, int rank,
                          MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request)
{
    const MPIDI_CH3I_Buffer_t result = { origin, origin_count, origin_type };

    return put_or_get(NULL, &result, rank, displacement, count, type, win, request);
}

/* ---- accumulate ---- */

static int wants_pairs(MPI_Op op)
{
    return op == MPI_MINLOC || op == MPI_MAXLOC;
}

static int is_pair(MPI_Datatype basic)
{
    return MPIDI_CH3I_Pair_type(basic) != CH3_OFFLOAD_NO_TYPE;
}

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
        action->type = MPIDI_CH3I_Element_type(basic);
        MPIR_ERR_CHKANDJUMP1(!MPIDI_CH3I_Atomic_of(op, &action->atomic) ||
                             action->type == CH3_OFFLOAD_NO_TYPE || wants_pairs(op) != is_pair(basic) ||
                             !ch3_offload_window_can(action->atomic, action->type), mpi_errno, MPI_ERR_OP,
                             "**opundefined", "**opundefined %s", "accumulate");
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* A run may end inside a pair, where that has a gap. So each pair is a run of its own: it begins where the
 * packed data so far is that of whole pairs. */
static int add_pairs(parts_t * parts, MPIDI_CH3I_Runs_t * runs, MPI_Datatype basic)
{
    int mpi_errno = MPI_SUCCESS;
    uint64_t offset;
    size_t length;
    size_t seen = 0, next = 0;  /* in the packed data: the end of the runs so far, and the next element */
    const size_t packed = MPIDI_CH3I_Size_of(1, basic);

    while (MPIDI_CH3I_Next_run(runs, &offset, &length)) {
        while (next < seen + length) {
            mpi_errno = add_run(parts, offset + (next - seen), parts->action.element_bytes);
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

/* What an accumulate's data is made of. Where pairs with gaps are only moved, bytes: a gap is nobody's. */
static MPI_Datatype elements_of(MPI_Datatype type, MPI_Op op)
{
    const MPI_Datatype basic = MPIDI_CH3I_Basic_of(type);

    return (op == MPI_REPLACE || op == MPI_NO_OP) && MPIDI_CH3I_Has_gap(basic) ? MPIR_BYTE_INTERNAL : basic;
}

/* `result` NULL: what was there is not wanted. */
static int accumulate(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                      MPI_Aint displacement, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPIR_Win * win,
                      MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const MPI_Datatype basic = elements_of(type, op);
    /* What nobody wants to know and nothing changes is nothing. */
    const MPI_Aint elements = result == NULL && op == MPI_NO_OP ? 0 :
        MPIDI_CH3I_Size_of(count, type) / MPIDI_CH3I_Size_of(1, basic);
    const char *from = NULL;
    char *to = NULL;
    action_t action;
    parts_t parts;
    MPIDI_CH3I_Runs_t runs;
    MPIDI_CH3I_Window_op *operation = NULL;
    size_t bytes, length;
    uint64_t offset;

    mpi_errno = choose_action(op, basic, result != NULL, &action);
    MPIR_ERR_CHECK(mpi_errno);
    bytes = elements * action.element_bytes;
    operation = MPIDI_CH3I_Window_op_make(win, rank, request);
    if (operation == NULL) {
        mpi_errno = MPIDI_CH3I_No_memory();
        goto fn_fail;
    }
    if (!action.uses_source)
        from = zeros;
    else if ((from = in_place(source, CH3_OFFLOAD_WINDOW_SOURCE)) == NULL)
        mpi_errno = stage_source(operation, source, elements, basic, bytes, &from);
    if (mpi_errno == MPI_SUCCESS && result != NULL &&
        (to = in_place(result, CH3_OFFLOAD_WINDOW_RESULT)) == NULL)
        mpi_errno = stage_result(operation, result, elements, basic, bytes, &to);
    runs_begin(&runs, win, rank, displacement, elements == 0 ? 0 : count, type);
    parts_begin(&parts, operation, &action, from, to);
    if (mpi_errno == MPI_SUCCESS && type == basic && bytes > 0) {
        mpi_errno = add_run(&parts, runs.base, bytes);
    } else if (mpi_errno == MPI_SUCCESS && is_pair(basic)) {
        mpi_errno = add_pairs(&parts, &runs, basic);
    } else {
        while (mpi_errno == MPI_SUCCESS && MPIDI_CH3I_Next_run(&runs, &offset, &length))
            mpi_errno = add_run(&parts, offset, length);
    }
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = parts_end(&parts);
    MPIDI_CH3I_Window_part_over(operation, mpi_errno == MPI_SUCCESS ? CH3_OFFLOAD_OK : CH3_OFFLOAD_FAILED);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIDI_CH3I_Window_settle_own(win, rank);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Likewise, in an epoch, by whoever does it. */
static int combine(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                   MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPI_Op op, MPIR_Win * win,
                   MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const int is_nothing = result == NULL ? MPIDI_CH3I_Size_of(source->count, source->type) == 0 :
        MPIDI_CH3I_Size_of(count, type) == 0;

    mpi_errno = MPIDI_CH3I_Window_enter(win, rank);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = check_range(win, rank, displacement, count, type);
    MPIR_ERR_CHECK(mpi_errno);
    if (win->ch.served != MPIDI_CH3I_SERVED_ALL || is_nothing)
        mpi_errno = MPIDI_CH3I_Stock_combine(source, result, rank, displacement, count, type, op, win,
                                             request);
    else
        mpi_errno = accumulate(source, result, rank, displacement, count, type, op, win, request);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Window_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                 int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                 MPI_Op op, MPIR_Win * win, MPIR_Request * request)
{
    const MPIDI_CH3I_Buffer_t source = { origin, origin_count, origin_type };

    return combine(&source, NULL, rank, displacement, count, type, op, win, request);
}

int MPIDI_CH3I_Window_get_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                     void *address, RMA_count_t result_count, MPI_Datatype result_type,
                                     int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                     MPI_Op op, MPIR_Win * win, MPIR_Request * request)
{
    const MPIDI_CH3I_Buffer_t source = { origin, origin_count, origin_type };
    const MPIDI_CH3I_Buffer_t result = { address, result_count, result_type };

    return combine(&source, &result, rank, displacement, count, type, op, win, request);
}

/* CH3's function does nothing if the origin's size is 0. MPI_NO_OP ignores the origin (MPI 4.0, section
 * 12.3.4), so CH3's function is given the target's count and type in its place. */
int MPIDI_CH3I_Window_rget_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                      void *address, RMA_count_t result_count, MPI_Datatype result_type,
                                      int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                      MPI_Op op, MPIR_Win * win, MPIR_Request ** request)
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

    if (win->ch.served != MPIDI_CH3I_SERVED_ALL && !MPIDI_CH3I_Has_gap(type)) {
        mpi_errno = check_range(win, rank, displacement, 1, type);
        MPIR_ERR_CHECK(mpi_errno);
        mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);
        MPIR_ERR_CHECK(mpi_errno);
        mpi_errno = MPIDI_CH3I_Stock_fetch_and_op(origin, result, type, rank, displacement, op, win);
        MPIDI_CH3I_Turn_give(&turn);
        goto fn_exit;
    }
    mpi_errno = MPIDI_CH3I_Window_get_accumulate(origin, 1, type, result, 1, type, rank, displacement, 1,
                                                 type, op, win, NULL);

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
    const MPIDI_CH3I_Buffer_t there = { result, 1, type };
    char *to;
    const action_t action = {
        .kind = CH3_OFFLOAD_WINDOW_COMPARE_SWAP,.type = MPIDI_CH3I_Integer_type(bytes,
                                                                                FALSE),.uses_source = TRUE,
        .element_bytes = bytes
    };
    MPIDI_CH3I_Window_op *operation;
    parts_t parts;

    if (win->ch.served != MPIDI_CH3I_SERVED_ALL) {
        MPIDI_CH3I_Turn_t turn;

        mpi_errno = check_range(win, rank, displacement, 1, type);
        MPIR_ERR_CHECK(mpi_errno);
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
        mpi_errno = MPIDI_CH3I_No_memory();
        goto fn_fail;
    }
    if ((to = in_place(&there, CH3_OFFLOAD_WINDOW_RESULT)) == NULL)
        mpi_errno = stage_result(operation, &there, 1, type, bytes, &to);
    parts_begin(&parts, operation, &action, origin, to);
    parts.compare = compare;
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = begin_part(&parts, (uint64_t) win->basic_info_table[rank].disp_unit * displacement,
                               bytes, 0, 0);
    MPIDI_CH3I_Window_part_over(operation, mpi_errno == MPI_SUCCESS ? CH3_OFFLOAD_OK : CH3_OFFLOAD_FAILED);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIDI_CH3I_Window_settle_own(win, rank);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
