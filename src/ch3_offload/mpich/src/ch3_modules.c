/*
 * The ch3:offload channel: groups of modules in the network processor (ch3_offload_modules.h, an installed
 * header of libch3offload).
 *
 * What a process asks of its processor is a message to itself with a key that no receive of MPI has, and the
 * answer is a message of MPI. So all drivers do it in the same way. src/modules/module_message.h describes
 * the messages, src/modules/module_runner.h who takes them.
 *
 * The functions are the user's to call, outside the critical section.
 */

#include "mpidi_ch3_impl.h"
#include "ch3_offload_modules.h"

#define EXPORTED __attribute__ ((visibility("default")))

#define MOST_BYTES CH3_OFFLOAD_MODULE_MOST_BYTES
#define PROBLEM_BYTES CH3_OFFLOAD_MODULE_PROBLEM_BYTES
/* Copies that have not left. */
#define MOST_PENDING_BYTES (64 * 1024 * 1024)
#define LAST_TICKET (1 << 20)

struct pending {
    MPIR_Request *request;
    void *memory;
    size_t bytes;
    struct pending *next;
};

struct ch3_offload_modules {
    MPI_Comm data;              /* modules deliver here */
    MPI_Comm control;           /* answers, and troubles */
    int rank;
    int size;
    uint32_t group;
    int ticket;                 /* of the last answer; a tag */
    MPI_Request trouble;
    char trouble_text[PROBLEM_BYTES];
    char problem[PROBLEM_BYTES];
    int is_untold;              /* a trouble was taken, and no call has said so */
    struct pending *pending;    /* oldest first */
    struct pending **newest;    /* where the next one is linked */
    size_t pending_bytes;
};

/* Frees what has left: the oldest, or with `all` also what has overtaken others. */
static void reap(ch3_offload_modules_t * modules, int all)
{
    struct pending **link = &modules->pending;

    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    while (*link != NULL) {
        struct pending *one = *link;
        if (MPIR_Request_is_complete(one->request)) {
            *link = one->next;
            if (one->next == NULL)
                modules->newest = link;
            modules->pending_bytes -= one->bytes;
            MPIR_Request_free(one->request);
            MPL_free(one->memory);
            MPL_free(one);
        } else if (all) {
            link = &one->next;
        } else {
            break;
        }
    }
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
}

/* MPI's own calls are what makes progress, and lets other threads in. */
static int make_progress(ch3_offload_modules_t *modules)
{
    int flag;
    return PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, modules->control, &flag, MPI_STATUS_IGNORE);
}

static int is_name(const char *name)
{
    size_t length = name == NULL ? 0 : strlen(name);
    return length > 0 && length <= sizeof(((ch3_offload_module_header_t *) 0)->name);
}

/* Sends header and payload, in memory that becomes this function's, to a processor. */
static int post(ch3_offload_modules_t * modules, void *memory, size_t bytes, int to, int is_request)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Comm *comm = NULL;
    struct pending *one = MPL_malloc(sizeof(*one), MPL_MEM_OTHER);

    if (one == NULL) {
        MPL_free(memory);
        return MPI_ERR_NO_MEM;
    }
    one->memory = memory;
    one->bytes = bytes;
    one->next = NULL;
    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    MPIR_Comm_get_ptr(modules->control, comm);
    mpi_errno = MPIDI_CH3I_Send_to_module(memory, bytes, to, comm, is_request, &one->request);
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    if (mpi_errno != MPI_SUCCESS) {
        MPL_free(memory);
        MPL_free(one);
        return MPI_ERR_OTHER;
    }
    modules->pending_bytes += bytes;
    *modules->newest = one;
    modules->newest = &one->next;
    reap(modules, FALSE);
    while (modules->pending_bytes > MOST_PENDING_BYTES) {
        if (make_progress(modules) != MPI_SUCCESS)
            return MPI_ERR_OTHER;
        reap(modules, TRUE);
    }
    return MPI_SUCCESS;
}

/* NULL: there is no memory. */
static ch3_offload_module_header_t *new_message(ch3_offload_modules_t *modules, int kind, const char *name,
                                                const void *payload, size_t bytes)
{
    ch3_offload_module_header_t *header = MPL_malloc(sizeof(*header) + bytes, MPL_MEM_OTHER);

    if (header == NULL)
        return NULL;
    memset(header, 0, sizeof(*header));
    header->version = CH3_OFFLOAD_MODULE_VERSION;
    header->kind = (uint8_t) kind;
    header->group = modules->group;
    header->root = header->source = (uint32_t) modules->rank;
    if (name != NULL) {
        header->name_length = (uint8_t) strlen(name);
        memcpy(header->name, name, header->name_length);
    }
    if (bytes > 0)
        memcpy(header + 1, payload, bytes);
    return header;
}

/* Asks the own processor, and waits for the answer: "" is good, all else a text. What does not fit is cut. */
static int ask(ch3_offload_modules_t *modules, int kind, const char *name, const void *payload, size_t bytes,
               char *text, size_t capacity)
{
    int mpi_errno;
    int length = 0;
    char *whole;
    MPI_Status status;
    ch3_offload_module_header_t *header = new_message(modules, kind, name, payload, bytes);

    if (header == NULL)
        return MPI_ERR_NO_MEM;
    modules->ticket = modules->ticket % LAST_TICKET + 1;
    header->tag = (uint32_t) modules->ticket;
    mpi_errno = post(modules, header, sizeof(*header) + bytes, modules->rank, TRUE);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = PMPI_Probe(modules->rank, modules->ticket, modules->control, &status);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = PMPI_Get_count(&status, MPI_CHAR, &length);
    whole = mpi_errno == MPI_SUCCESS ? MPL_malloc((size_t) length + 1, MPL_MEM_OTHER) : NULL;
    if (whole == NULL)
        return mpi_errno == MPI_SUCCESS ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
    mpi_errno = PMPI_Recv(whole, length, MPI_CHAR, modules->rank, modules->ticket, modules->control,
                          MPI_STATUS_IGNORE);
    whole[length] = '\0';
    if (capacity > 0)
        snprintf(text, capacity, "%s", whole);
    MPL_free(whole);
    reap(modules, FALSE);
    return mpi_errno == MPI_SUCCESS ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static int await_trouble(ch3_offload_modules_t *modules)
{
    memset(modules->trouble_text, 0, sizeof(modules->trouble_text));
    return PMPI_Irecv(modules->trouble_text, PROBLEM_BYTES - 1, MPI_CHAR, modules->rank,
                      CH3_OFFLOAD_MODULE_TROUBLE_TAG, modules->control, &modules->trouble);
}

/* A trouble was received: its text is kept, and the next one is awaited. */
static int take_trouble(ch3_offload_modules_t *modules)
{
    memcpy(modules->problem, modules->trouble_text, sizeof(modules->problem));
    return await_trouble(modules);
}

/* The numbers of processes, if these are not the ranks. */
static size_t list_peers(ch3_offload_modules_t *modules, uint32_t * peers)
{
    MPIR_Comm *comm = NULL;
    int is_same = TRUE;
    int rank;

    MPIR_Comm_get_ptr(modules->control, comm);
    for (rank = 0; rank < modules->size; rank++) {
        MPIDI_VC_t *vc;
        MPIDI_Comm_get_vc(comm, rank, &vc);
        peers[rank] = (uint32_t) vc->pg_rank;
        is_same = is_same && vc->pg_rank == rank;
    }
    return is_same ? 0 : (size_t) modules->size;
}

static int tell_processor(ch3_offload_modules_t *modules)
{
    MPIR_Comm *data = NULL;
    MPIR_Comm *control = NULL;
    char text[PROBLEM_BYTES] = "";
    size_t room = sizeof(ch3_offload_module_opening_t) + (size_t) modules->size * sizeof(uint32_t);
    ch3_offload_module_opening_t *opening = MPL_calloc(1, room, MPL_MEM_OTHER);
    int mpi_errno;

    if (opening == NULL)
        return MPI_ERR_NO_MEM;
    MPIR_Comm_get_ptr(modules->data, data);
    MPIR_Comm_get_ptr(modules->control, control);
    opening->data_bits = MPIDI_CH3I_Match(data->context_id, 0, 0).bits;
    opening->control_bits = MPIDI_CH3I_Match(control->context_id, 0, 0).bits;
    opening->rank = (uint32_t) modules->rank;
    opening->size = (uint32_t) modules->size;
    opening->peer_count = (uint32_t) list_peers(modules, (uint32_t *) (opening + 1));
    mpi_errno = ask(modules, CH3_OFFLOAD_MODULE_OPEN, NULL, opening,
                    sizeof(*opening) + opening->peer_count * sizeof(uint32_t), text, sizeof(text));
    MPL_free(opening);
    return mpi_errno == MPI_SUCCESS && text[0] != '\0' ? MPI_ERR_OTHER : mpi_errno;
}

/* What was delivered and not received must not be there when the context is used again. */
static void drop_messages(MPI_Comm comm)
{
    int flag = 0;
    MPI_Status status;

    while (PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status) == MPI_SUCCESS && flag) {
        /* It is shortened to nothing, which is an error that nobody needs to hear of. */
        PMPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, MPI_STATUS_IGNORE);
    }
}

static void end_trouble(ch3_offload_modules_t * modules)
{
    if (modules->trouble == MPI_REQUEST_NULL)
        return;
    PMPI_Cancel(&modules->trouble);
    PMPI_Wait(&modules->trouble, MPI_STATUS_IGNORE);
}

static void free_comm(MPI_Comm * comm)
{
    if (*comm == MPI_COMM_NULL)
        return;
    drop_messages(*comm);
    PMPI_Comm_free(comm);
}

/* Of which the processor knows nothing any more. */
static void free_group(ch3_offload_modules_t *modules)
{
    end_trouble(modules);
    for (reap(modules, TRUE); modules->pending != NULL; reap(modules, TRUE))
        if (make_progress(modules) != MPI_SUCCESS)
            break;
    free_comm(&modules->control);
    free_comm(&modules->data);
    MPL_free(modules);
}

EXPORTED int ch3_offload_modules_open(MPI_Comm comm, ch3_offload_modules_t **modules)
{
    static unsigned opened = 0;
    ch3_offload_modules_t *made;
    MPIR_Comm *opened_on = NULL, *control = NULL;
    unsigned group;
    int is_inter = 1;
    int is_good;
    int is_told = FALSE;
    int mpi_errno;

    if (modules == NULL || comm == MPI_COMM_NULL)
        return MPI_ERR_ARG;
    if (PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return MPI_ERR_ARG;
    *modules = NULL;
    MPIR_Comm_get_ptr(comm, opened_on);
    if (!MPIDI_CH3I_Is_of_one_world(opened_on))
        return MPI_ERR_COMM;
    made = MPL_calloc(1, sizeof(*made), MPL_MEM_OTHER);
    if (made == NULL)
        return MPI_ERR_NO_MEM;
    made->data = made->control = MPI_COMM_NULL;
    made->trouble = MPI_REQUEST_NULL;
    made->newest = &made->pending;
    mpi_errno = PMPI_Comm_dup(comm, &made->data);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = PMPI_Comm_dup(comm, &made->control);
    if (mpi_errno != MPI_SUCCESS)
        goto fn_fail;
    PMPI_Comm_set_errhandler(made->data, MPI_ERRORS_RETURN);
    PMPI_Comm_set_errhandler(made->control, MPI_ERRORS_RETURN);
    PMPI_Comm_rank(made->control, &made->rank);
    PMPI_Comm_size(made->control, &made->size);
    /* A context is used again: its messages of before must not be taken for the new group's. */
    MPIR_Comm_get_ptr(made->control, control);
    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    group = ++opened << 16 | control->context_id;
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    mpi_errno = PMPI_Bcast(&group, 1, MPI_UNSIGNED, 0, made->control);
    made->group = group;
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = tell_processor(made);
    is_told = mpi_errno == MPI_SUCCESS;
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = await_trouble(made);
    /* From here on all processors know the group. */
    is_good = mpi_errno == MPI_SUCCESS;
    if (PMPI_Allreduce(MPI_IN_PLACE, &is_good, 1, MPI_INT, MPI_LAND, made->control) != MPI_SUCCESS)
        is_good = FALSE;
    if (!is_good)
        goto fn_fail;
    *modules = made;
    return MPI_SUCCESS;

  fn_fail:
    if (is_told)
        ask(made, CH3_OFFLOAD_MODULE_CLOSE, NULL, NULL, 0, NULL, 0);
    free_group(made);
    return mpi_errno == MPI_ERR_NO_MEM ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

EXPORTED int ch3_offload_modules_close(ch3_offload_modules_t **modules)
{
    ch3_offload_modules_t *one;
    int mpi_errno;

    if (modules == NULL || *modules == NULL)
        return MPI_ERR_ARG;
    one = *modules;
    /* Nobody gives messages any more. */
    mpi_errno = PMPI_Barrier(one->control);
    if (ask(one, CH3_OFFLOAD_MODULE_CLOSE, NULL, NULL, 0, NULL, 0) != MPI_SUCCESS)
        mpi_errno = MPI_ERR_OTHER;
    free_group(one);
    *modules = NULL;
    return mpi_errno == MPI_SUCCESS ? MPI_SUCCESS : MPI_ERR_OTHER;
}

EXPORTED MPI_Comm ch3_offload_modules_comm(const ch3_offload_modules_t *modules)
{
    return modules == NULL ? MPI_COMM_NULL : modules->data;
}

EXPORTED int ch3_offload_module_load(ch3_offload_modules_t *modules, const char *name, const char *source,
                                     char *problem)
{
    char text[PROBLEM_BYTES] = "a name has 1 to 40 letters, digits, '_', '-' and '.'";
    int mpi_errno = MPI_ERR_ARG;

    if (modules != NULL && source != NULL && is_name(name)) {
        size_t length = strlen(source);
        mpi_errno = length > MOST_BYTES ? MPI_ERR_ARG
            : ask(modules, CH3_OFFLOAD_MODULE_LOAD, name, source, length, text, sizeof(text));
        if (mpi_errno == MPI_SUCCESS && text[0] != '\0')
            mpi_errno = MPI_ERR_ARG;
    }
    if (problem != NULL)
        snprintf(problem, PROBLEM_BYTES, "%s", mpi_errno == MPI_SUCCESS ? "" : text);
    return mpi_errno;
}

EXPORTED int ch3_offload_module_remove(ch3_offload_modules_t *modules, const char *name)
{
    char text[PROBLEM_BYTES] = "";
    int mpi_errno;

    if (modules == NULL || !is_name(name))
        return MPI_ERR_ARG;
    mpi_errno = ask(modules, CH3_OFFLOAD_MODULE_REMOVE, name, NULL, 0, text, sizeof(text));
    return mpi_errno == MPI_SUCCESS && text[0] != '\0' ? MPI_ERR_ARG : mpi_errno;
}

EXPORTED int ch3_offload_module_list(ch3_offload_modules_t *modules, char *text, size_t capacity_bytes)
{
    if (modules == NULL || text == NULL || capacity_bytes == 0)
        return MPI_ERR_ARG;
    text[0] = '\0';
    return ask(modules, CH3_OFFLOAD_MODULE_LIST, NULL, NULL, 0, text, capacity_bytes);
}

EXPORTED int ch3_offload_module_send(ch3_offload_modules_t *modules, const char *name, const void *payload,
                                     size_t length_bytes, int to, int root, int tag)
{
    ch3_offload_module_header_t *header;

    if (modules == NULL || !is_name(name) || (payload == NULL && length_bytes > 0))
        return MPI_ERR_ARG;
    if (length_bytes > MOST_BYTES || to < 0 || to >= modules->size || root < 0 || root >= modules->size ||
        tag < 0)
        return MPI_ERR_ARG;
    header = new_message(modules, CH3_OFFLOAD_MODULE_DATA, name, payload, length_bytes);
    if (header == NULL)
        return MPI_ERR_NO_MEM;
    header->root = (uint32_t) root;
    header->tag = (uint32_t) tag;
    return post(modules, header, sizeof(*header) + length_bytes, to, FALSE);
}

/* Waits until one of the two is complete, and says whether the first one is. MPI_Waitany() would call the
 * error handler of MPI_COMM_WORLD. */
static int await_either(MPI_Request first, MPI_Request second, int *is_first)
{
    int mpi_errno = MPI_SUCCESS;
    MPID_Progress_state state;
    MPIR_Request *one = NULL;
    MPIR_Request *other = NULL;

    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    MPIR_Request_get_ptr(first, one);
    MPIR_Request_get_ptr(second, other);
    MPID_Progress_start(&state);
    while (mpi_errno == MPI_SUCCESS && !MPIR_Request_is_complete(one) && !MPIR_Request_is_complete(other))
        mpi_errno = MPID_Progress_wait(&state);
    MPID_Progress_end(&state);
    *is_first = MPIR_Request_is_complete(one);
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    return mpi_errno;
}

/* What is delivered goes before a trouble; the trouble is the next call's then. */
EXPORTED int ch3_offload_module_recv(ch3_offload_modules_t * modules, void *payload, size_t capacity_bytes,
                                     int root, int tag, MPI_Status * status)
{
    MPI_Request request;
    MPI_Status own_status;
    int is_here = FALSE;
    int is_troubled = 0;
    int is_cancelled = 0;
    int error_class = MPI_ERR_OTHER;
    int mpi_errno;

    if (modules == NULL || (payload == NULL && capacity_bytes > 0) || capacity_bytes > INT_MAX)
        return MPI_ERR_ARG;
    if (status == MPI_STATUS_IGNORE)
        status = &own_status;
    reap(modules, FALSE);
    if (modules->is_untold) {
        modules->is_untold = FALSE;
        return MPI_ERR_OTHER;
    }
    if (modules->trouble == MPI_REQUEST_NULL && await_trouble(modules) != MPI_SUCCESS)
        return MPI_ERR_NO_MEM;
    mpi_errno = PMPI_Irecv(payload, (int) capacity_bytes, MPI_BYTE, root, tag, modules->data, &request);
    if (mpi_errno != MPI_SUCCESS) {
        PMPI_Error_class(mpi_errno, &error_class);
        return error_class == MPI_ERR_RANK || error_class == MPI_ERR_TAG ? MPI_ERR_ARG : MPI_ERR_OTHER;
    }
    mpi_errno = await_either(request, modules->trouble, &is_here);
    if (!is_here) {
        if (mpi_errno == MPI_SUCCESS)
            PMPI_Test(&modules->trouble, &is_troubled, MPI_STATUS_IGNORE);
        if (is_troubled && take_trouble(modules) != MPI_SUCCESS)
            modules->trouble = MPI_REQUEST_NULL;
        PMPI_Cancel(&request);
    }
    mpi_errno = PMPI_Wait(&request, status);
    PMPI_Test_cancelled(status, &is_cancelled);
    if (is_cancelled)
        return MPI_ERR_OTHER;
    /* The message has come between. */
    modules->is_untold = is_troubled;
    if (mpi_errno == MPI_SUCCESS)
        return MPI_SUCCESS;
    PMPI_Error_class(mpi_errno, &error_class);
    return error_class == MPI_ERR_TRUNCATE ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
}

EXPORTED const char *ch3_offload_modules_problem(const ch3_offload_modules_t *modules)
{
    return modules == NULL ? "" : modules->problem;
}
