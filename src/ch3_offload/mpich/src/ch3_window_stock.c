/*
 * The ch3:offload channel: CH3's own operations on windows, in the forms that CH3 bears:
 *
 *   An operation of several stream units that also asks for the lock is waited for in vain
 *   (issue_get_acc_op()). CH3 looks at the length of the origin, which MPI_NO_OP does not have. No lock is
 *   asked for with an operation that has derived datatypes.
 *
 *   Pairs with gaps that wait packed for a lock, or were packed from a derived datatype, are read as if they
 *   still had their gaps (do_accumulate_op()). So they ask for no lock, and those that CH3 applies itself are
 *   not packed.
 *
 *   The last stream unit of an answer with such pairs is too long
 *   (MPIDI_CH3_ReqHandler_GaccumRecvComplete()). So there is only one.
 */

#include "ch3_window_ops.h"

/* ---- put and get ---- */

/* A request that CH3 has finished within the call: who makes one after another, and waits for it, polls
 * nothing. */
static int poke_if_over(MPIR_Win * win, int rank, MPIR_Request * request)
{
    return request != NULL && MPIDI_CH3I_Window_is_reached(win, rank) ? MPID_Progress_test(NULL) :
        MPI_SUCCESS;
}

int MPIDI_CH3I_Stock_move(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                          MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);

    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    if (source != NULL)
        mpi_errno = MPIDI_CH3I_Stock_put(source->address, source->count, source->type, rank, displacement,
                                         count, type, win, request);
    else
        mpi_errno = MPIDI_CH3I_Stock_get((void *) result->address, result->count, result->type, rank,
                                         displacement, count, type, win, request);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno == MPI_SUCCESS ? poke_if_over(win, rank, request) : mpi_errno;
}

/* ---- accumulate ---- */

/* Makes a derived datatype of one element. */
static int derive(MPI_Datatype basic, MPI_Datatype * derived)
{
    int mpi_errno = MPIR_Type_contiguous_impl(1, basic, derived);
    return mpi_errno == MPI_SUCCESS ? MPIR_Type_commit_impl(derived) : mpi_errno;
}

/* Makes a copy of the buffer, in memory of its own, as `count` elements of its basic datatype. */
static int copy_elements(MPIDI_CH3I_Buffer_t * buffer, char **copy)
{
    const MPI_Datatype basic = MPIDI_CH3I_Basic_of(buffer->type);
    const MPI_Aint count = MPIDI_CH3I_Size_of(buffer->count, buffer->type) / MPIDI_CH3I_Size_of(1, basic);
    const MPIDI_CH3I_Buffer_t from = *buffer;
    MPI_Aint extent;

    MPIR_Datatype_get_extent_macro(basic, extent);
    *copy = MPL_malloc(count * extent, MPL_MEM_RMA);
    if (*copy == NULL)
        return MPIDI_CH3I_No_memory();
    buffer->address = *copy;
    buffer->count = count;
    buffer->type = basic;
    return MPIR_Localcopy(from.address, from.count, from.type, *copy, count, basic);
}

static int call_stock(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                      MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPI_Op op, MPIR_Win * win,
                      MPIR_Request * request)
{
    MPIDI_CH3I_Turn_t turn;
    int mpi_errno = MPIDI_CH3I_Turn_take(&turn, win, rank);

    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    if (result == NULL)
        mpi_errno = MPIDI_CH3I_Stock_accumulate(source->address, source->count, source->type, rank,
                                                displacement, count, type, op, win, request);
    else
        mpi_errno = MPIDI_CH3I_Stock_get_accumulate(source->address, source->count, source->type,
                                                    (void *) result->address, result->count, result->type,
                                                    rank, displacement, count, type, op, win, request);
    MPIDI_CH3I_Turn_give(&turn);
    return mpi_errno;
}

/* Where the pairs of a buffer begin, from its address. The caller frees it. NULL: no memory. */
static MPI_Aint *places_of_pairs(MPI_Aint count, MPI_Datatype type, MPI_Datatype basic)
{
    const MPI_Aint packed = MPIDI_CH3I_Size_of(1, basic);
    MPI_Aint *places = MPL_malloc(MPIDI_CH3I_Size_of(count, type) / packed * sizeof(MPI_Aint), MPL_MEM_RMA);
    MPI_Aint seen = 0, next = 0;        /* in the packed data, as in begin_pairs() */
    uint64_t offset;
    size_t length;
    MPIDI_CH3I_Runs_t runs = {.count = count,.type = type,.bytes = MPIDI_CH3I_Size_of(count, type) };

    while (places != NULL && MPIDI_CH3I_Next_run(&runs, &offset, &length)) {
        for (; next < seen + (MPI_Aint) length; next += packed)
            places[next / packed] = (MPI_Aint) offset + (next - seen);
        seen += length;
    }
    return places;
}

/* MPI_Get_accumulate of pairs with gaps, in parts. The parts end in their order, so the last ends the
 * request. */
static int cut_pairs(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result, int rank,
                     MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPI_Op op, MPIR_Win * win,
                     MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    enum { SOURCE, RESULT, TARGET, ALL };
    const MPI_Datatype basic = MPIDI_CH3I_Basic_of(type);
    const MPI_Aint elements = MPIDI_CH3I_Size_of(count, type) / MPIDI_CH3I_Size_of(1, basic);
    const int begin = op == MPI_NO_OP ? RESULT : SOURCE;
    const MPIDI_CH3I_Buffer_t whole[ALL] = { *source, *result, { NULL, count, type } };
    MPIDI_CH3I_Buffer_t part[ALL] = { *source, *result, { NULL, count, type } };
    MPI_Aint *places[ALL] = { NULL, NULL, NULL };
    MPI_Aint extent, first, n;
    int i;

    MPIR_Datatype_get_extent_macro(basic, extent);
    for (i = begin; i < ALL; i++) {
        places[i] = places_of_pairs(whole[i].count, whole[i].type, basic);
        if (places[i] == NULL)
            mpi_errno = MPIDI_CH3I_No_memory();
    }
    for (first = 0; mpi_errno == MPI_SUCCESS && first < elements; first += n) {
        n = MPL_MIN(elements - first, MPIDI_CH3U_Acc_stream_size / extent);
        for (i = begin; i < ALL; i++) {
            part[i].count = 1;
            part[i].type = MPI_DATATYPE_NULL;
        }
        for (i = begin; mpi_errno == MPI_SUCCESS && i < ALL; i++) {
            mpi_errno = MPIR_Type_create_hindexed_block_impl((int) n, 1, &places[i][first], basic,
                                                             &part[i].type);
            if (mpi_errno == MPI_SUCCESS)
                mpi_errno = MPIR_Type_commit_impl(&part[i].type);
        }
        if (mpi_errno == MPI_SUCCESS)
            mpi_errno = call_stock(&part[SOURCE], &part[RESULT], rank, displacement, 1, part[TARGET].type,
                                   op, win, first + n == elements ? request : NULL);
        for (i = begin; i < ALL; i++)
            if (part[i].type != MPI_DATATYPE_NULL)
                MPIR_Type_free_impl(&part[i].type);
    }
    for (i = 0; i < ALL; i++)
        MPL_free(places[i]);
    return mpi_errno;
}

int MPIDI_CH3I_Stock_combine(const MPIDI_CH3I_Buffer_t * source, const MPIDI_CH3I_Buffer_t * result,
                             int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPI_Op op,
                             MPIR_Win * win, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    const int is_near = MPIDI_CH3I_Window_is_reached(win, rank);
    const MPI_Datatype basic = MPIDI_CH3I_Basic_of(type);
    const int is_gapped = basic != MPI_DATATYPE_NULL && MPIDI_CH3I_Has_gap(basic);
    MPI_Datatype derived_source = MPI_DATATYPE_NULL, derived_result = MPI_DATATYPE_NULL;
    MPIDI_CH3I_Buffer_t origin = *source;
    MPIDI_CH3I_Buffer_t place = result != NULL ? *result : *source;
    char *copy = NULL;
    MPI_Aint extent = 0;

    if (is_gapped)
        MPIR_Datatype_get_extent_macro(basic, extent);
    if (is_gapped && !is_near && result != NULL &&
        MPIDI_CH3I_Size_of(count, type) / MPIDI_CH3I_Size_of(1, basic) * extent > MPIDI_CH3U_Acc_stream_size)
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
        (is_gapped || MPIDI_CH3I_Size_of(count, type) > MPIDI_CH3U_Acc_stream_size)) {
        mpi_errno = derive(place.type, &derived_result);
        place.type = derived_result;
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = call_stock(&origin, result != NULL ? &place : NULL, rank, displacement, count, type, op,
                           win, request);
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
