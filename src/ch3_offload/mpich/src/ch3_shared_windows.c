/*
 * The ch3:offload channel: windows whose memory the processes of a node share.
 *
 * MPI_Win_allocate_shared, and MPI_Win_allocate where several processes of a node take part, get their memory
 * from one segment for each node (ch3_shared_segment.c): the part of each process, in the order of ranks.
 *
 * MPI_Win_create is given its memory: ch3_mapped_windows.c.
 *
 * A failure of one rank is an error on all: before each step that needs what the one before has made, all
 * ranks agree on whether it was made (MPIDI_CH3I_Agree()). No rank leaves before, because others would wait
 * for it.
 *
 * CH3 does loads and stores in place of packets for a window with shm_allocated and shm_base_addrs
 * (mpid_rma_shm.h).
 */

#include "mpidi_ch3_impl.h"
#include "utlist.h"

#define MESSAGE_BYTES 256

static MPIR_Win *shared_windows = NULL; /* those with a segment, linked by ch.next */

/* What a part takes of the segment. MPI_Win_allocate_shared promises that each part begins where the one
 * before ends, unless info says alloc_shared_noncontig=true. */
static size_t room_bytes(const MPIR_Win * win, MPI_Aint size)
{
    if (win->info_args.alloc_shared_noncontig)
        return MPL_ROUND_UP_ALIGN((size_t) size, MPIDI_CH3I_Segment_header_bytes());
    if (win->create_flavor == MPI_WIN_FLAVOR_ALLOCATE)
        return MPL_ROUND_UP_ALIGN((size_t) size, MPL_CACHELINE_SIZE);
    return (size_t) size;
}

/* The size of the segment; 0: no address space has room for it. */
static size_t segment_bytes(const MPIR_Win * win, const MPI_Aint * sizes, int count)
{
    size_t bytes = MPIDI_CH3I_Segment_header_bytes();
    int i;

    for (i = 0; i < count; i++) {
        if (sizes[i] < 0 || sizes[i] > PTRDIFF_MAX / 2 ||
            room_bytes(win, sizes[i]) > (size_t) PTRDIFF_MAX - bytes)
            return 0;
        bytes += room_bytes(win, sizes[i]);
    }
    return bytes;
}

/* The address of each process's part in this process; NULL where it has none. */
static void find_parts(MPIR_Win * win, const MPI_Aint * sizes, int count)
{
    char *address = (char *) win->ch.segment.address + MPIDI_CH3I_Segment_header_bytes();
    int i;

    for (i = 0; i < count; i++) {
        win->shm_base_addrs[i] = sizes[i] > 0 ? address : NULL;
        address += room_bytes(win, sizes[i]);
    }
}

static void release(MPIR_Win * win)
{
    if (win->ch.is_mapped)
        MPIDI_CH3I_Win_unmap(win);
    MPL_free(win->shm_base_addrs);
    win->shm_base_addrs = NULL;
    win->shm_allocated = FALSE;
    win->ch.mutex = NULL;
    MPIDI_CH3I_Segment_release(&win->ch.segment);
}

void MPIDI_CH3I_Win_lock_mutex(MPIR_Win * win)
{
    MPIDI_CH3I_Segment_lock(win->ch.mutex);
}

void MPIDI_CH3I_Win_unlock_mutex(MPIR_Win * win)
{
    MPIDI_CH3I_Segment_unlock(win->ch.mutex);
}

int MPIDI_CH3I_Win_init(MPI_Aint size ATTRIBUTE((unused)), int disp_unit ATTRIBUTE((unused)),
                        int create_flavor ATTRIBUTE((unused)), int model ATTRIBUTE((unused)),
                        MPIR_Info * info ATTRIBUTE((unused)), MPIR_Comm * comm ATTRIBUTE((unused)),
                        MPIR_Win ** win_ptr)
{
    memset(&(*win_ptr)->ch, 0, sizeof((*win_ptr)->ch));
    return MPI_SUCCESS;
}

int MPIDI_CH3I_Agree(MPIR_Comm * comm, MPIDI_CH3I_Worst_t * worst)
{
    int mpi_errno = MPI_SUCCESS;

    worst->rank = comm->rank;
    mpi_errno = MPIDI_CH3I_Allreduce(worst, 1, MPIR_2INT32, MPI_MAXLOC, comm);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The MPI error of a failure that the ranks have agreed on. */
static int failure_error(const MPIDI_CH3I_Worst_t * worst)
{
    int mpi_errno = MPI_SUCCESS;
    char text[MESSAGE_BYTES];

    MPIDI_CH3I_Segment_describe(worst->failure, text, sizeof(text));
    if (MPIDI_CH3I_Segment_lacks_memory(worst->failure)) {
        MPIR_ERR_SET2(mpi_errno, MPI_ERR_NO_MEM, "**ch3|offload|window", "**ch3|offload|window %d %s",
                      worst->rank, text);
    } else {
        MPIR_ERR_SET2(mpi_errno, MPI_ERR_RMA_SHARED, "**ch3|offload|window", "**ch3|offload|window %d %s",
                      worst->rank, text);
    }
    return mpi_errno;
}

static int is_allocated(const MPIR_Win * win)
{
    return win->create_flavor == MPI_WIN_FLAVOR_ALLOCATE || win->create_flavor == MPI_WIN_FLAVOR_SHARED;
}

int MPIDI_CH3I_Win_gather_info(void *base, MPI_Aint size, int disp_unit, MPIR_Info * info,
                               MPIR_Comm * user_comm ATTRIBUTE((unused)), MPIR_Win ** win_ptr)
{
    int mpi_errno = MPI_SUCCESS;
    int i;
    MPIR_Win *win = *win_ptr;
    MPIR_Comm *comm = win->comm_ptr;
    MPIDI_CH3I_Worst_t worst = { 0 };
    int number = -1, is_served = TRUE;
    struct {
        MPI_Aint base, size, disp_unit, handle, number;
    } *all = MPL_malloc(comm->local_size * sizeof(*all), MPL_MEM_RMA);

    win->basic_info_table = MPL_malloc(comm->local_size * sizeof(*win->basic_info_table), MPL_MEM_RMA);
    if (all == NULL || win->basic_info_table == NULL ||
        (is_allocated(win) && size != 0 && base == NULL))
        worst.failure = MPIDI_CH3I_Segment_no_memory();
    mpi_errno = MPIDI_CH3I_Agree(win->comm_ptr, &worst);
    MPIR_ERR_CHECK(mpi_errno);
    if (worst.failure != 0) {
        mpi_errno = failure_error(&worst);
        goto fn_fail;
    }

    all[comm->rank].base = MPIR_Ptr_to_aint(base);
    all[comm->rank].size = size;
    all[comm->rank].disp_unit = disp_unit;
    all[comm->rank].handle = win->handle;
    win->base = base;
    number = MPIDI_CH3I_Window_expose(win);
    all[comm->rank].number = number;
    mpi_errno = MPIDI_CH3I_Allgather(all, 5, MPIR_AINT_INTERNAL, comm);
    MPIR_ERR_CHECK(mpi_errno);
    for (i = 0; i < comm->local_size; i++) {
        win->basic_info_table[i].base_addr = MPIR_Aint_to_ptr(all[i].base);
        win->basic_info_table[i].size = all[i].size;
        win->basic_info_table[i].disp_unit = (int) all[i].disp_unit;
        win->basic_info_table[i].win_handle = (MPI_Win) all[i].handle;
        is_served = is_served && all[i].number >= 0;
        if (number >= 0)
            win->ch.targets[i].number = (uint16_t) all[i].number;
    }
    if (win->create_flavor == MPI_WIN_FLAVOR_CREATE) {
        mpi_errno = MPIDI_CH3I_Win_map(win, info);
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (is_served)
        MPIDI_CH3I_Window_serve(win);
    else
        MPIDI_CH3I_Window_withdraw(win);

  fn_exit:
    MPL_free(all);
    return mpi_errno;
  fn_fail:
    MPIDI_CH3I_Window_withdraw(win);
    MPL_free(win->basic_info_table);
    win->basic_info_table = NULL;
    goto fn_exit;
}

/* Each process's memory is its own. */
static int allocate_unshared(MPI_Aint size, int disp_unit, MPIR_Info * info, MPIR_Comm * user_comm,
                             void *base_ptr, MPIR_Win ** win_ptr)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Win *win = *win_ptr;

    win->base = size > 0 ? MPL_malloc(size, MPL_MEM_RMA) : NULL;
    mpi_errno = MPIDI_CH3I_Win_gather_info(win->base, size, disp_unit, info, user_comm, win_ptr);
    MPIR_ERR_CHECK(mpi_errno);
    *(void **) base_ptr = win->base;

  fn_exit:
    return mpi_errno;
  fn_fail:
    MPL_free(win->base);
    win->base = NULL;
    goto fn_exit;
}

int MPIDI_CH3I_Win_allocate(MPI_Aint size, int disp_unit, MPIR_Info * info, MPIR_Comm * user_comm,
                            void *base_ptr, MPIR_Win ** win_ptr)
{
    int mpi_errno = MPI_SUCCESS;
    int error;
    MPIR_Win *win = *win_ptr;
    MPIR_Comm *comm = win->comm_ptr;
    MPIR_Comm *node = comm->node_comm;
    int node_size = node == NULL ? 1 : node->local_size;
    MPI_Aint *sizes = NULL;
    void *scratch = NULL;
    MPIDI_CH3I_Worst_t worst = { 0 };

    MPIR_ERR_CHKANDJUMP1(win->create_flavor == MPI_WIN_FLAVOR_SHARED && node_size < comm->local_size,
                         mpi_errno, MPI_ERR_RMA_SHARED, "**ch3|offload|nodes", "**ch3|offload|nodes %d",
                         comm->local_size - node_size);
    /* So on all ranks: no node has two of them. */
    if ((win->create_flavor == MPI_WIN_FLAVOR_ALLOCATE && !win->info_args.alloc_shm) ||
        !MPIR_Comm_is_parent_comm(comm))
        goto not_shared;

    if (node != NULL) {
        sizes = MPL_malloc(node_size * sizeof(*sizes), MPL_MEM_RMA);
        scratch = MPL_calloc(node_size, MPIDI_CH3I_Segment_scratch_bytes(), MPL_MEM_SHM);
        win->shm_base_addrs = MPL_malloc(node_size * sizeof(*win->shm_base_addrs), MPL_MEM_SHM);
        if (sizes == NULL || scratch == NULL || win->shm_base_addrs == NULL)
            worst.failure = MPIDI_CH3I_Segment_no_memory();
    }
    mpi_errno = MPIDI_CH3I_Agree(win->comm_ptr, &worst);
    MPIR_ERR_CHECK(mpi_errno);
    if (worst.failure != 0) {
        mpi_errno = failure_error(&worst);
        goto fn_fail;
    }

    if (node != NULL) {
        sizes[node->rank] = size;
        error = MPIDI_CH3I_Allgather(sizes, 1, MPIR_AINT_INTERNAL, node);
        MPIR_ERR_ADD(mpi_errno, error);
        win->ch.segment.bytes = segment_bytes(win, sizes, node_size);
        if (win->ch.segment.bytes == 0)
            worst.failure = MPIDI_CH3I_Segment_no_memory();
        MPIDI_CH3I_Segment_share(node, &win->ch.segment, scratch, &worst.failure, &mpi_errno);
    }
    error = MPIDI_CH3I_Agree(win->comm_ptr, &worst);
    MPIR_ERR_ADD(mpi_errno, error);
    MPIR_ERR_CHECK(mpi_errno);
    if (worst.failure != 0) {
        if (win->create_flavor == MPI_WIN_FLAVOR_SHARED || MPIDI_CH3I_Segment_lacks_memory(worst.failure)) {
            mpi_errno = failure_error(&worst);
            goto fn_fail;
        }
        /* Messages can do what loads and stores cannot. */
        if (worst.rank == comm->rank) {
            char text[MESSAGE_BYTES];

            MPIDI_CH3I_Segment_describe(worst.failure, text, sizeof(text));
            MPIDI_CH3I_Warn(text);
        }
        release(win);
        goto not_shared;
    }
    if (node == NULL)
        goto not_shared;

    find_parts(win, sizes, node_size);
    win->base = win->shm_base_addrs[node->rank];
    /* Others may leave the exchange before, and accumulate to this process while it is in there. */
    win->ch.mutex = win->ch.segment.mutex;
    win->shm_allocated = TRUE;
    mpi_errno = MPIDI_CH3I_Win_gather_info(win->base, size, disp_unit, info, user_comm, win_ptr);
    MPIR_ERR_CHECK(mpi_errno);
    DL_APPEND_NP(shared_windows, win, ch.next, ch.prev);
    *(void **) base_ptr = win->base;

  fn_exit:
    MPL_free(scratch);
    MPL_free(sizes);
    return mpi_errno;
  not_shared:
    mpi_errno = allocate_unshared(size, disp_unit, info, user_comm, base_ptr, win_ptr);
    goto fn_exit;
  fn_fail:
    release(win);
    goto fn_exit;
}

/* MPI_Win_create with info's alloc_shm=true: the memory may be a window's that is shared already, on all
 * processes of the node. */
int MPIDI_CH3I_Win_detect(MPIR_Win ** win_ptr)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Win *win = *win_ptr;
    MPIR_Win *shared, *source = NULL;
    MPIR_Comm *node = win->comm_ptr->node_comm;
    MPI_Aint *offsets = NULL;   /* in the segment, bytes */
    int64_t lowest[2];          /* the segment's number, and its negative; 0: none */
    int i;

    if (node == NULL || win->shm_allocated)
        goto fn_exit;
    offsets = MPL_malloc(node->local_size * sizeof(*offsets), MPL_MEM_RMA);
    win->shm_base_addrs = MPL_malloc(node->local_size * sizeof(*win->shm_base_addrs), MPL_MEM_SHM);

    DL_FOREACH_NP(shared_windows, shared, ch.next, ch.prev) {
        MPI_Aint offset = (char *) win->base - (char *) shared->ch.segment.address;

        if (win->size > 0 && offset >= (MPI_Aint) MPIDI_CH3I_Segment_header_bytes() &&
            win->size <= (MPI_Aint) shared->ch.segment.bytes - offset) {
            source = shared;
            break;
        }
    }
    /* A process without memory for the tables has no segment either: packets do then. */
    lowest[0] = source == NULL || offsets == NULL || win->shm_base_addrs == NULL ? 0 :
        (int64_t) source->ch.segment.number;
    lowest[1] = -lowest[0];
    mpi_errno = MPIDI_CH3I_Allreduce(lowest, 2, MPIR_INT64, MPI_MIN, node);
    MPIR_ERR_CHECK(mpi_errno);
    if (lowest[0] == 0 || lowest[0] != -lowest[1]) {
        MPL_free(win->shm_base_addrs);
        win->shm_base_addrs = NULL;
        goto fn_exit;
    }

    offsets[node->rank] = (char *) win->base - (char *) source->ch.segment.address;
    mpi_errno = MPIDI_CH3I_Allgather(offsets, 1, MPIR_AINT_INTERNAL, node);
    MPIR_ERR_CHECK(mpi_errno);
    for (i = 0; i < node->local_size; i++)
        win->shm_base_addrs[i] = (char *) source->ch.segment.address + offsets[i];
    win->ch.mutex = source->ch.mutex;
    win->shm_allocated = TRUE;
    if (win->ch.served != MPIDI_CH3I_SERVED_NOT)
        MPIDI_CH3I_Window_serve(win);

  fn_exit:
    MPL_free(offsets);
    return mpi_errno;
  fn_fail:
    MPL_free(win->shm_base_addrs);
    win->shm_base_addrs = NULL;
    goto fn_exit;
}

int MPIDI_CH3I_Win_shared_query(MPIR_Win * win, int rank, MPI_Aint * size, int *disp_unit, void *base_ptr)
{
    int mpi_errno = MPI_SUCCESS;
    int i, node_rank;

    MPIR_ERR_CHKANDJUMP(!MPIDI_CH3I_MAY_QUERY(win->create_flavor), mpi_errno, MPI_ERR_RMA_FLAVOR,
                        "**rmaflavor");
    *size = 0;
    *disp_unit = 0;
    *(void **) base_ptr = NULL;
    /* MPI_PROC_NULL: the first rank that has memory. */
    for (i = 0; rank == MPI_PROC_NULL && i < win->comm_ptr->local_size; i++)
        if (win->basic_info_table[i].size > 0)
            rank = i;
    if (rank == MPI_PROC_NULL)
        goto fn_exit;
    node_rank = win->shm_allocated ? MPIDI_CH3I_NODE_RANK(win->comm_ptr, rank) : -1;
    if (node_rank >= 0 || rank == win->comm_ptr->rank) {
        *size = win->basic_info_table[rank].size;
        *disp_unit = win->basic_info_table[rank].disp_unit;
        *(void **) base_ptr = node_rank >= 0 ? win->shm_base_addrs[node_rank] : win->base;
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* All processes have stopped using the window. */
int MPIDI_CH3I_Win_free(MPIR_Win ** win_ptr)
{
    MPIR_Win *win = *win_ptr;
    int was_shared = win->shm_allocated;

    MPIDI_CH3I_Window_withdraw(win);
    if (win->ch.segment.address != NULL)
        DL_DELETE_NP(shared_windows, win, ch.next, ch.prev);
    release(win);
    /* MPID_Win_free would free the memory of a window that is not shared. */
    win->shm_allocated = was_shared;
    return MPI_SUCCESS;
}
