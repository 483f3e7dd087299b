/*
 * The ch3:offload channel: partitioned communication (MPI 4.0, chapter 4), which CH3 does not have.
 *
 * Both sides meet once, when both have initialised their request: the sender's greeting is matched by source
 * and tag, as a message is, and says how its data is partitioned. The receiver answers how all of it is cut
 * into messages: each is some whole partitions of the sender and some whole elements of the receiver's
 * datatype. In each round, the sender sends a message as soon as its partitions are ready, and the receiver
 * posts all of them when it starts, so that they move as other messages do, each while the others are
 * computed.
 *
 * All of these are messages of the engine, in contexts of their own (MPIDI_CH3I_PARTITIONED_GREETING and the
 * next two), and so they match no other receive or probe. A message of data is known by its tag: the receiver
 * has given each of its requests tags that no other has.
 */

#include "mpidi_ch3_impl.h"
#include "utlist.h"

/* Error bits of tags do not take part in matching. */
enum { MOST_TAGS = 1 << 29 };

typedef struct {
    uint64_t bytes;             /* of all partitions */
    uint64_t partition_bytes;
    uint32_t answer_tag;
    uint32_t reserved;          /* 0 */
} greeting_t;

typedef struct {
    uint64_t bytes;             /* of all partitions of the receiver: a sender with others fails */
    uint64_t message_bytes;     /* of each message but the last */
    uint32_t first_tag;
    uint32_t reserved;          /* 0 */
} answer_t;

/* One side of a partitioned operation. */
typedef struct MPIDI_CH3I_Partitioned {
    struct MPIDI_CH3I_Partitioned *next;        /* of all of this process */
    struct MPIDI_CH3I_Partitioned *prev;
    MPIR_Request *request;      /* the user's; NULL: it has been freed */
    MPIR_Request *awaited;      /* the receive of the greeting or the answer; NULL: it is over */
    int unfinished;             /* requests of messages that are under way */
    int is_send;
    char *buf;
    int partitions;
    MPI_Datatype type;
    MPI_Aint extent;            /* of the type, and its size */
    MPI_Aint element_bytes;
    MPI_Aint partition_bytes;
    MPI_Aint bytes;             /* of all partitions */
    MPIR_Comm *comm;
    int rank;                   /* of the other side */
    int tag;
    greeting_t greeting;
    answer_t answer;
    uint32_t first_tag;         /* the tags that this side has chosen */
    uint32_t tags;
    int failure;                /* MPI error: it can never communicate, or not any more */
    int is_met;                 /* both sides know each other, and the next two are known */
    MPI_Aint message_bytes;
    MPI_Aint messages;
    /* The round. */
    int is_active;
    int error;                  /* MPI error: the first one of its messages */
    MPI_Aint left;              /* messages that are not over */
    char *is_ready;             /* send: by partition */
    int *missing;               /* send: by message, partitions that are not ready */
    char *is_here;              /* receive: by message */
} part_t;

static part_t *parts = NULL;
/* Where the search for free tags goes on: tags come back as late as possible. */
static uint32_t next_tag = 0;

static void empty_status(MPIR_Request * request)
{
    MPIR_Status_set_empty(&request->status);
    request->status.MPI_ERROR = MPI_SUCCESS;
}

/* ---- tags ---- */

/* The end of some tags that are taken, of those that begin at `first`; `first`: none is. */
static uint32_t taken_until(uint32_t first, uint32_t count)
{
    const part_t *part;

    DL_FOREACH(parts, part) {
        if (part->tags > 0 && first < part->first_tag + part->tags && part->first_tag < first + count)
            return part->first_tag + part->tags;
    }
    return first;
}

/* REQUIRES: there are fewer requests than tags, by far. */
static void take_tags(part_t * part, uint32_t count)
{
    for (;;) {
        uint32_t end;

        if (next_tag + count > MOST_TAGS)
            next_tag = 0;
        end = taken_until(next_tag, count);
        if (end == next_tag)
            break;
        next_tag = end;
    }
    part->first_tag = next_tag;
    part->tags = count;
    next_tag += count;
}

/* ---- their lives ---- */

static void free_part(part_t * part)
{
    DL_DELETE(parts, part);
    MPIR_Datatype_release_if_not_builtin(part->type);
    MPIR_Comm_release(part->comm);
    MPL_free(part->is_ready);
    MPL_free(part->missing);
    MPL_free(part->is_here);
    MPL_free(part);
}

/* What the user has freed stays as long as messages are under way: they use its memory, and the other side
 * must not meet a later request in its place. */
static void free_if_over(part_t * part)
{
    if (part->request == NULL && part->awaited == NULL && part->unfinished == 0)
        free_part(part);
}

static void end_round(part_t * part)
{
    MPI_Status *status;

    part->is_active = FALSE;
    if (part->request == NULL)
        return;
    status = &part->request->status;
    status->MPI_ERROR = part->failure != MPI_SUCCESS ? part->failure : part->error;
    if (!part->is_send) {
        status->MPI_SOURCE = part->rank;
        status->MPI_TAG = part->rank == MPI_PROC_NULL ? MPI_ANY_TAG : part->tag;
        MPIR_STATUS_SET_COUNT(*status, status->MPI_ERROR == MPI_SUCCESS && part->rank != MPI_PROC_NULL ?
                              part->bytes : 0);
    }
    MPIR_cc_set(part->request->cc_ptr, 0);
    MPIDI_CH3_Progress_signal_completion();
}

/* The other side will not be met, or has said what cannot be. */
static void fail(part_t * part, int mpi_errno)
{
    part->failure = mpi_errno;
    if (part->is_active)
        end_round(part);
}

static void message_over(part_t * part, int mpi_errno)
{
    if (part->error == MPI_SUCCESS)
        part->error = mpi_errno;
    if (--part->left == 0)
        end_round(part);
}

/* ---- messages ---- */

/* Has the callback called when the request is over, which may be now. REQUIRES: nobody else has it. */
static void follow(part_t * part, MPIR_Request * req, int (*callback) (MPIR_Request *))
{
    part->unfinished++;
    req->ch.partitioned = part;
    req->dev.request_completed_cb = callback;
    MPIR_Request_free(req);
}

/* What a callback begins with. Returns whose request is over. */
static part_t *begin_callback(MPIR_Request * req)
{
    req->dev.request_completed_cb = NULL;
    return req->ch.partitioned;
}

/* And what it ends with: until then, the part stays. */
static int end_callback(part_t * part)
{
    part->unfinished--;
    free_if_over(part);
    return MPI_SUCCESS;
}

/* kind: which of the contexts. Returns an MPI error if nothing is under way. */
static int send_message(part_t * part, int kind, const void *buf, MPI_Aint count, MPI_Datatype type,
                        uint32_t tag, int (*callback) (MPIR_Request *))
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_VC_t *vc;
    MPIR_Request *req = NULL;

    MPIR_ERR_CHKANDJUMP(part->comm->revoked, mpi_errno, MPIX_ERR_REVOKED, "**revoked");
    MPIDI_Comm_get_vc_set_active(part->comm, part->rank, &vc);
    mpi_errno = MPIDI_CH3I_comm_ops.isend(vc, buf, count, type, part->rank, (int) tag, part->comm, kind,
                                          &req);
    MPIR_ERR_CHECK(mpi_errno);
    follow(part, req, callback);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int receive_message(part_t * part, int kind, void *buf, MPI_Aint count, MPI_Datatype type,
                           uint32_t tag, int (*callback) (MPIR_Request *), MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS;
    int found;
    MPIR_Request *req;

    MPIR_ERR_CHKANDJUMP(part->comm->revoked, mpi_errno, MPIX_ERR_REVOKED, "**revoked");
    req = MPIDI_CH3U_Recvq_FDU_or_AEP(part->rank, (int) tag, part->comm->recvcontext_id + kind, part->comm,
                                      buf, count, type, &found);
    MPIR_ERR_CHKANDJUMP(req == NULL, mpi_errno, MPI_ERR_OTHER, "**nomemreq");
    if (!MPIR_Request_is_complete(req))
        MPIDI_CH3I_Hold_datatype(req);
    if (request != NULL)
        *request = req;
    follow(part, req, callback);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The elements of a message: where they are, and how many. */
static char *elements_of(const part_t * part, MPI_Aint message, MPI_Aint * count)
{
    const MPI_Aint begin = message * part->message_bytes;
    const MPI_Aint end = MPL_MIN(begin + part->message_bytes, part->bytes);

    if (part->element_bytes == 0) {
        *count = 0;
        return part->buf;
    }
    *count = (end - begin) / part->element_bytes;
    return part->buf + begin / part->element_bytes * part->extent;
}

static int on_message_sent(MPIR_Request * req)
{
    part_t *part = begin_callback(req);

    message_over(part, req->status.MPI_ERROR);
    return end_callback(part);
}

static void send_data(part_t * part, MPI_Aint message)
{
    MPI_Aint count;
    char *buf = elements_of(part, message, &count);
    int mpi_errno = send_message(part, MPIDI_CH3I_PARTITIONED_DATA, buf, count, part->type,
                                 part->answer.first_tag + (uint32_t) message, on_message_sent);

    if (mpi_errno != MPI_SUCCESS)
        message_over(part, mpi_errno);
}

static int on_message_received(MPIR_Request * req)
{
    part_t *part = begin_callback(req);

    part->is_here[(uint32_t) req->dev.match.parts.tag - part->first_tag] = TRUE;
    message_over(part, req->status.MPI_ERROR);
    return end_callback(part);
}

static void receive_data(part_t * part)
{
    MPI_Aint i;

    memset(part->is_here, FALSE, part->messages);
    /* None of them ends the round before the last one has been posted. */
    part->left = part->messages + 1;
    for (i = 0; i < part->messages; i++) {
        MPI_Aint count;
        char *buf = elements_of(part, i, &count);
        int mpi_errno = receive_message(part, MPIDI_CH3I_PARTITIONED_DATA, buf, count, part->type,
                                        part->first_tag + (uint32_t) i, on_message_received, NULL);

        if (mpi_errno != MPI_SUCCESS)
            message_over(part, mpi_errno);
    }
    message_over(part, MPI_SUCCESS);
}

/* ---- ready partitions ---- */

/* The partition is ready, and the sides know each other. */
static void note_ready(part_t * part, int partition)
{
    const MPI_Aint message = part->bytes == 0 ? 0 : partition * part->partition_bytes / part->message_bytes;

    if (--part->missing[message] == 0)
        send_data(part, message);
}

/* The round begins, or has begun before the sides knew each other. */
static void begin_sending(part_t * part)
{
    const MPI_Aint each = part->bytes == 0 ? part->partitions : part->message_bytes / part->partition_bytes;
    MPI_Aint i;

    for (i = 0; i < part->messages; i++)
        part->missing[i] = (int) MPL_MIN(each, part->partitions - i * each);
    part->left = part->messages;
    if (part->partitions == 0)
        send_data(part, 0);
    for (i = 0; i < part->partitions; i++)
        if (part->is_ready[i])
            note_ready(part, (int) i);
}

/* ---- meeting ---- */

/* REQUIRES: the sides know each other, and a round is active. */
static void begin_round(part_t * part)
{
    if (part->is_send)
        begin_sending(part);
    else
        receive_data(part);
}

/* What was awaited is over, with that MPI error, and the callback ends. */
static int end_meeting(part_t * part, int mpi_errno)
{
    if (mpi_errno != MPI_SUCCESS) {
        fail(part, mpi_errno);
    } else {
        part->is_met = TRUE;
        if (part->is_active)
            begin_round(part);
    }
    return end_callback(part);
}

static void set_messages(part_t * part, MPI_Aint message_bytes)
{
    part->message_bytes = message_bytes;
    part->messages = part->bytes == 0 ? 1 : (part->bytes + message_bytes - 1) / message_bytes;
}

static int mismatch(const part_t * part, uint64_t sent, uint64_t received)
{
    char text[128];

    snprintf(text, sizeof(text), "the partitions of the sender have %llu bytes, those of the receiver %llu",
             (unsigned long long) sent, (unsigned long long) received);
    return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__, __LINE__, MPI_ERR_TRUNCATE,
                                "**ch3|offload|partitions", "**ch3|offload|partitions %d %s", part->rank,
                                text);
}

static int misfit(const part_t * part)
{
    return MPIDI_CH3I_Error(CH3_OFFLOAD_PROTOCOL, part->rank);
}

/* What has been awaited is over. Returns its MPI error. */
static int awaited_error(part_t * part, MPIR_Request * req, MPI_Aint bytes)
{
    part->awaited = NULL;
    if (req->status.MPI_ERROR != MPI_SUCCESS)
        return req->status.MPI_ERROR;
    return MPIR_STATUS_GET_COUNT(req->status) == bytes ? MPI_SUCCESS : misfit(part);
}

/* The sender has been told. */
static int take_answer(part_t * part)
{
    const answer_t *answer = &part->answer;
    int mpi_errno = MPI_SUCCESS;

    if (answer->bytes != (uint64_t) part->bytes)
        return mismatch(part, part->bytes, answer->bytes);
    if (part->bytes > 0 && (answer->message_bytes == 0 || answer->message_bytes > answer->bytes ||
                            answer->message_bytes % part->partition_bytes != 0))
        return misfit(part);
    set_messages(part, answer->message_bytes);
    if (answer->first_tag >= MOST_TAGS || part->messages > MOST_TAGS - (MPI_Aint) answer->first_tag)
        return misfit(part);
    part->missing = MPL_malloc(part->messages * sizeof(part->missing[0]), MPL_MEM_COMM);
    MPIR_ERR_CHKANDJUMP(part->missing == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int on_answer(MPIR_Request * req)
{
    part_t *part = begin_callback(req);
    int mpi_errno = awaited_error(part, req, sizeof(part->answer));

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = take_answer(part);
    return end_meeting(part, mpi_errno);
}

static int on_sent(MPIR_Request * req)
{
    part_t *part = begin_callback(req);

    /* Whoever cannot be told does not send either, and the receives fail. */
    return end_callback(part);
}

/* The receiver knows its sender, and decides how the data is cut: part->answer. Returns an MPI error. */
static int cut(part_t * part)
{
    const greeting_t *greeting = &part->greeting;
    int mpi_errno = MPI_SUCCESS;

    part->answer.bytes = part->bytes;
    if (greeting->bytes != (uint64_t) part->bytes)
        return mismatch(part, greeting->bytes, part->bytes);
    if (part->bytes > 0 &&
        (greeting->partition_bytes == 0 || greeting->bytes % greeting->partition_bytes != 0))
        return misfit(part);
    set_messages(part, ch3_offload_cut_partitions(greeting->bytes, greeting->partition_bytes,
                                                  part->element_bytes));
    part->is_here = MPL_malloc(part->messages, MPL_MEM_COMM);
    MPIR_ERR_CHKANDJUMP(part->is_here == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    take_tags(part, (uint32_t) part->messages);
    part->answer.message_bytes = part->message_bytes;
    part->answer.first_tag = part->first_tag;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Answers, after an error too: message_bytes is 0 then, which the sender takes for a failure. */
static int take_greeting(part_t * part)
{
    int mpi_errno, told;

    if (part->greeting.answer_tag >= MOST_TAGS)
        return misfit(part);
    mpi_errno = cut(part);
    told = send_message(part, MPIDI_CH3I_PARTITIONED_ANSWER, &part->answer, sizeof(part->answer), MPI_BYTE,
                        part->greeting.answer_tag, on_sent);
    return mpi_errno != MPI_SUCCESS ? mpi_errno : told;
}

static int on_greeting(MPIR_Request * req)
{
    part_t *part = begin_callback(req);
    int mpi_errno = awaited_error(part, req, sizeof(part->greeting));

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = take_greeting(part);
    return end_meeting(part, mpi_errno);
}

/* ---- what MPICH calls: in place of CH3's functions (mpidi_ch3_post.h), which do nothing but stop ---- */

/* *part: as the user's request wants it, not met, in the list. */
static int make_part(int is_send, const void *buf, int partitions, MPI_Count count, MPI_Datatype type,
                     int rank, int tag, MPIR_Comm * comm, part_t ** new_part)
{
    int mpi_errno = MPI_SUCCESS;
    MPI_Aint partition_bytes, bytes, element_bytes;
    MPIR_Request *req;
    part_t *part = NULL;
    MPIR_CHKPMEM_DECL(2);

    if (type == MPI_DATATYPE_NULL)      /* and no elements */
        type = MPI_BYTE;
    MPIR_Datatype_get_size_macro(type, element_bytes);
    MPIR_ERR_CHKANDJUMP(__builtin_mul_overflow(count, element_bytes, &partition_bytes) ||
                        __builtin_mul_overflow(partition_bytes, partitions, &bytes),
                        mpi_errno, MPI_ERR_COUNT, "**count");
    MPIR_CHKPMEM_CALLOC(part, part_t *, sizeof(*part), mpi_errno, "partitioned operation", MPL_MEM_COMM);
    if (is_send)
        MPIR_CHKPMEM_CALLOC(part->is_ready, char *, MPL_MAX(partitions, 1), mpi_errno, "partitions",
                            MPL_MEM_COMM);
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
    DL_APPEND(parts, part);

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
    *new_part = part;
    MPIR_CHKPMEM_COMMIT();

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
    part_t *part;
    int failure;
    int mpi_errno = make_part(TRUE, buf, partitions, count, type, rank, tag, comm, &part);

    MPIR_ERR_CHECK(mpi_errno);
    *request = part->request;
    if (rank == MPI_PROC_NULL)
        goto fn_exit;
    take_tags(part, 1);
    part->greeting.bytes = part->bytes;
    part->greeting.partition_bytes = part->partition_bytes;
    part->greeting.answer_tag = part->first_tag;
    failure = receive_message(part, MPIDI_CH3I_PARTITIONED_ANSWER, &part->answer, sizeof(part->answer),
                              MPI_BYTE, part->first_tag, on_answer, &part->awaited);
    if (failure == MPI_SUCCESS && part->failure == MPI_SUCCESS)
        failure = send_message(part, MPIDI_CH3I_PARTITIONED_GREETING, &part->greeting, sizeof(part->greeting),
                               MPI_BYTE, (uint32_t) tag, on_sent);
    if (failure != MPI_SUCCESS)
        fail(part, failure);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype type, int rank, int tag,
                          MPIR_Comm * comm, MPIR_Info * info ATTRIBUTE((unused)), MPIR_Request ** request)
{
    part_t *part;
    int failure;
    int mpi_errno = make_part(FALSE, buf, partitions, count, type, rank, tag, comm, &part);

    MPIR_ERR_CHECK(mpi_errno);
    *request = part->request;
    if (rank == MPI_PROC_NULL)
        goto fn_exit;
    failure = receive_message(part, MPIDI_CH3I_PARTITIONED_GREETING, &part->greeting, sizeof(part->greeting),
                              MPI_BYTE, (uint32_t) tag, on_greeting, &part->awaited);
    if (failure != MPI_SUCCESS)
        fail(part, failure);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static void start(part_t * part)
{
    MPIR_Request *req = part->request;

    req->status.MPI_ERROR = MPI_SUCCESS;
    MPIR_Part_request_activate(req);
    MPIR_cc_set(req->cc_ptr, 1);
    part->is_active = TRUE;
    part->error = MPI_SUCCESS;
    if (part->rank == MPI_PROC_NULL || part->failure != MPI_SUCCESS) {
        end_round(part);
        return;
    }
    if (part->is_send)
        memset(part->is_ready, FALSE, part->partitions);
    if (part->is_met)
        begin_round(part);
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

static int make_ready(part_t * part, int partition)
{
    int mpi_errno = MPI_SUCCESS;

    if (part->rank == MPI_PROC_NULL || part->failure != MPI_SUCCESS)
        goto fn_exit;
    MPIR_ERR_CHKANDJUMP1(part->is_ready[partition], mpi_errno, MPI_ERR_ARG, "**ch3|offload|ready",
                         "**ch3|offload|ready %d", partition);
    part->is_ready[partition] = TRUE;
    if (part->is_met)
        note_ready(part, partition);

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

static int has_arrived(const part_t * part, int partition)
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
    const part_t *part = request->ch.partitioned;
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
    part_t *part = request->ch.partitioned;

    request->ch.partitioned = NULL;
    part->request = NULL;
    free_if_over(part);
}

/* TRUE: the user has freed a request of a round that is not over, and has nothing to do for it any more. */
static int must_finish(void)
{
    const part_t *part;
    int i;

    DL_FOREACH(parts, part) {
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
    part_t *part, *next;
    int mpi_errno = MPI_SUCCESS;

    while (must_finish() && mpi_errno == MPI_SUCCESS)
        mpi_errno = MPIDI_CH3I_Await_progress();

    DL_FOREACH_SAFE(parts, part, next) {
        MPIR_Request *req = part->awaited;

        if (req != NULL && MPIDI_CH3U_Recvq_DP(req)) {
            begin_callback(req);
            part->awaited = NULL;
            part->unfinished--;
            MPIDI_CH3I_Defer_error(MPID_Request_complete(req));
        }
        free_if_over(part);
    }
}
