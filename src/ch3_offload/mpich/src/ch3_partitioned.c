/*
 * The ch3:offload channel: partitioned communication (MPI 4.0, chapter 4), which CH3 does not have. What
 * MPICH calls, in place of CH3's functions (mpidi_ch3_post.h), which do nothing but stop. How the two sides
 * meet, and how the data moves, is in ch3_partition_messages.c.
 */

#include "ch3_partitions.h"
#include "utlist.h"

static void empty_status(MPIR_Request * request)
{
    MPIR_Status_set_empty(&request->status);
    request->status.MPI_ERROR = MPI_SUCCESS;
}

/* Makes an operation as the user's request wants it, and lets it meet the other side. */
static int init_part(int is_send, const void *buf, int partitions, MPI_Count count, MPI_Datatype type,
                     int rank, int tag, MPIR_Comm * comm, MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS;
    MPI_Aint partition_bytes, bytes, element_bytes;
    MPIR_Request *req;
    MPIDI_CH3I_Part_t *part = NULL;
    MPIDI_CH3I_CHKPMEM_DECL();

    if (type == MPI_DATATYPE_NULL)      /* and no elements */
        type = MPIR_BYTE_INTERNAL;
    MPIR_Datatype_get_size_macro(type, element_bytes);
    MPIR_ERR_CHKANDJUMP(__builtin_mul_overflow(count, element_bytes, &partition_bytes) ||
                        __builtin_mul_overflow(partition_bytes, partitions, &bytes),
                        mpi_errno, MPI_ERR_COUNT, "**count");
    MPIDI_CH3I_CHKPMEM_CALLOC(part, sizeof(*part));
    if (is_send)
        MPIDI_CH3I_CHKPMEM_CALLOC(part->is_ready, MPL_MAX(partitions, 1));
    req = MPIR_Request_create(is_send ? MPIR_REQUEST_KIND__PART_SEND : MPIR_REQUEST_KIND__PART_RECV);
    MPIR_ERR_CHKANDJUMP(req == NULL, mpi_errno, MPI_ERR_OTHER, "**nomemreq");

    part->is_send = is_send;
    part->buf = (char *) buf;
    part->partitions = partitions;
    part->type = type;
    MPIR_Datatype_get_extent_macro(type, part->extent);
    part->element_bytes = element_bytes;
    part->partition_bytes = partition_bytes;
    part->bytes = bytes;
    part->comm = comm;
    part->rank = rank;
    part->tag = tag;
    part->request = req;
    MPIR_Comm_add_ref(comm);
    MPIR_Datatype_add_ref_if_not_builtin(type);
    DL_APPEND(MPIDI_CH3I_parts, part);

    MPIR_Comm_add_ref(comm);
    req->comm = comm;
    req->u.part.partitions = partitions;
    req->ch.partitioned = part;
    MPIR_Part_request_inactivate(req);
    MPIR_cc_set(req->cc_ptr, 0);
    empty_status(req);
#if MPIDI_CH3I_MPICH_IS(4, 2)
    MPIR_Comm_save_inactive_request(comm, req);
#endif
    *request = req;
    MPIR_CHKPMEM_COMMIT();
    if (rank != MPI_PROC_NULL)
        MPIDI_CH3I_Part_meet(part);

  fn_exit:
    return mpi_errno;
  fn_fail:
    MPIR_CHKPMEM_REAP();
    goto fn_exit;
}

int MPIDI_CH3I_Psend_init(const void *buf, int partitions, MPI_Count count, MPI_Datatype type, int rank,
                          int tag, MPIR_Comm * comm, MPIR_Info * info ATTRIBUTE((unused)),
                          MPIR_Request ** request)
{
    return init_part(TRUE, buf, partitions, count, type, rank, tag, comm, request);
}

int MPIDI_CH3I_Precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype type, int rank, int tag,
                          MPIR_Comm * comm, MPIR_Info * info ATTRIBUTE((unused)), MPIR_Request ** request)
{
    return init_part(FALSE, buf, partitions, count, type, rank, tag, comm, request);
}

static void start(MPIDI_CH3I_Part_t * part)
{
    MPIR_Request *req = part->request;

    req->status.MPI_ERROR = MPI_SUCCESS;
    MPIR_Part_request_activate(req);
    MPIR_cc_set(req->cc_ptr, 1);
    part->is_active = TRUE;
    part->error = MPI_SUCCESS;
    if (part->rank == MPI_PROC_NULL || part->failure != MPI_SUCCESS) {
        MPIDI_CH3I_Part_end_round(part);
        return;
    }
    if (part->is_send)
        memset(part->is_ready, FALSE, part->partitions);
    if (part->is_met)
        MPIDI_CH3I_Part_begin_round(part);
}

int MPIDI_CH3I_Startall(int count, MPIR_Request * requests[])
{
    int mpi_errno = MPI_SUCCESS;
    int i, first = 0;           /* of those that CH3 starts next */

    for (i = 0; i < count; i++) {
        if (!MPIDI_CH3I_Is_partitioned(requests[i]))
            continue;
        if (first < i) {
            mpi_errno = MPIDI_CH3I_Stock_startall(i - first, requests + first);
            MPIR_ERR_CHECK(mpi_errno);
        }
        first = i + 1;
        start(requests[i]->ch.partitioned);
    }
    if (first < count)
        mpi_errno = MPIDI_CH3I_Stock_startall(count - first, requests + first);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int make_ready(MPIDI_CH3I_Part_t * part, int partition)
{
    int mpi_errno = MPI_SUCCESS;

    if (part->rank == MPI_PROC_NULL || part->failure != MPI_SUCCESS)
        goto fn_exit;
    MPIR_ERR_CHKANDJUMP1(part->is_ready[partition], mpi_errno, MPI_ERR_ARG, "**ch3|offload|ready",
                         "**ch3|offload|ready %d", partition);
    part->is_ready[partition] = TRUE;
    if (part->is_met)
        MPIDI_CH3I_Part_ready(part, partition);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Pready_range(int low, int high, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    int i;

    for (i = low; i <= high && mpi_errno == MPI_SUCCESS; i++)
        mpi_errno = make_ready(request->ch.partitioned, i);
    return mpi_errno;
}

int MPIDI_CH3I_Pready_list(int length, const int *partitions, MPIR_Request * request)
{
    int mpi_errno = MPI_SUCCESS;
    int i;

    for (i = 0; i < length && mpi_errno == MPI_SUCCESS; i++)
        mpi_errno = make_ready(request->ch.partitioned, partitions[i]);
    return mpi_errno;
}

static int has_arrived(const MPIDI_CH3I_Part_t * part, int partition)
{
    MPI_Aint i, last;

    if (!part->is_active)
        return TRUE;
    if (!part->is_met)
        return FALSE;
    if (part->bytes == 0)
        return part->is_here[0];
    i = partition * part->partition_bytes / part->message_bytes;
    last = ((partition + 1) * part->partition_bytes - 1) / part->message_bytes;
    while (i <= last && part->is_here[i])
        i++;
    return i > last;
}

int MPIDI_CH3I_Parrived(MPIR_Request * request, int partition, int *flag)
{
    const MPIDI_CH3I_Part_t *part = request->ch.partitioned;
    int mpi_errno = MPI_SUCCESS;

    *flag = has_arrived(part, partition);
    if (!*flag) {
        mpi_errno = MPID_Progress_test(NULL);
        *flag = has_arrived(part, partition);
    }
    return mpi_errno;
}

/* In place of MPIR_Request_get_error: of a request that is complete. */
int MPIDI_CH3I_Request_get_error(MPIR_Request * request)
{
    return MPIDI_CH3I_Is_partitioned(request) ? request->status.MPI_ERROR :
        MPIDI_CH3I_Stock_request_get_error(request);
}

#if !MPIDI_CH3I_MPICH_IS(4, 2)
/* In place of MPIR_Request_get_status_impl. */
int MPIDI_CH3I_Request_get_status(MPIR_Request * request, int *flag, MPI_Status * status)
{
    int mpi_errno = MPI_SUCCESS;

    if (!MPIDI_CH3I_Is_partitioned(request))
        return MPIDI_CH3I_Stock_request_get_status(request, flag, status);
    if (!MPIR_Request_is_complete(request)) {
        mpi_errno = MPID_Progress_test(NULL);
        MPIR_ERR_CHECK(mpi_errno);
    }
    *flag = MPIR_Request_is_complete(request);
    if (*flag) {
        MPIR_Request_extract_status(request, status);
        mpi_errno = request->status.MPI_ERROR;
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
#endif

/* In place of MPIR_Request_completion_processing. An inactive request has an empty status (MPI 4.0, 3.7.3).
 */
int MPIDI_CH3I_Request_completion(MPIR_Request * request, MPI_Status * status)
{
    int mpi_errno;

    if (likely(!MPIDI_CH3I_Is_partitioned(request)))
        return MPIDI_CH3I_Stock_request_completion(request, status);
    mpi_errno = MPIDI_CH3I_Stock_request_completion(request, status);
    empty_status(request);
    return mpi_errno;
}

void MPIDI_CH3I_Partitioned_freed(MPIR_Request * request)
{
    MPIDI_CH3I_Part_t *part = request->ch.partitioned;

    request->ch.partitioned = NULL;
    part->request = NULL;
    MPIDI_CH3I_Part_free_if_over(part);
}

/* TRUE: the user has freed a request of a round that is not over, and has nothing to do for it any more. */
static int must_finish(void)
{
    const MPIDI_CH3I_Part_t *part;
    int i;

    DL_FOREACH(MPIDI_CH3I_parts, part) {
        if (part->request != NULL || !part->is_active)
            continue;
        for (i = 0; part->is_send && i < part->partitions && part->is_ready[i]; i++);
        if (!part->is_send || i == part->partitions)
            return TRUE;
    }
    return FALSE;
}

/* What has never met its other side, and does not have to, will not. */
void MPIDI_CH3I_Partitioned_finalize(void)
{
    MPIDI_CH3I_Part_t *part, *next;
    int mpi_errno = MPI_SUCCESS;

    while (must_finish() && mpi_errno == MPI_SUCCESS)
        mpi_errno = MPIDI_CH3I_Await_progress();

    DL_FOREACH_SAFE(MPIDI_CH3I_parts, part, next)
        MPIDI_CH3I_Part_give_up(part);
}
