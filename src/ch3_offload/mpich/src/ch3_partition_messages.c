/*
 * The ch3:offload channel: the two sides of a partitioned operation: how they meet, and how the data moves.
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

#include "ch3_partitions.h"
#include "utlist.h"

/* Error bits of tags do not take part in matching. */
enum { MOST_TAGS = 1 << 29 };

MPIDI_CH3I_Part_t *MPIDI_CH3I_parts = NULL;
/* Where the search for free tags goes on: tags come back as late as possible. */
static uint32_t next_tag = 0;

/* ---- tags ---- */

/* The end of some tags that are taken, of those that begin at `first`; `first`: none is. */
static uint32_t taken_until(uint32_t first, uint32_t count)
{
    const MPIDI_CH3I_Part_t *part;

    DL_FOREACH(MPIDI_CH3I_parts, part) {
        if (part->tags > 0 && first < part->first_tag + part->tags && part->first_tag < first + count)
            return part->first_tag + part->tags;
    }
    return first;
}

/* REQUIRES: there are fewer requests than tags, by far. */
static void take_tags(MPIDI_CH3I_Part_t * part, uint32_t count)
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

static void free_part(MPIDI_CH3I_Part_t * part)
{
    DL_DELETE(MPIDI_CH3I_parts, part);
    MPIR_Datatype_release_if_not_builtin(part->type);
    MPIR_Comm_release(part->comm);
    MPL_free(part->is_ready);
    MPL_free(part->missing);
    MPL_free(part->is_here);
    MPL_free(part);
}

void MPIDI_CH3I_Part_free_if_over(MPIDI_CH3I_Part_t * part)
{
    if (part->request == NULL && part->awaited == NULL && part->unfinished == 0)
        free_part(part);
}

void MPIDI_CH3I_Part_end_round(MPIDI_CH3I_Part_t * part)
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
static void fail(MPIDI_CH3I_Part_t * part, int mpi_errno)
{
    part->failure = mpi_errno;
    if (part->is_active)
        MPIDI_CH3I_Part_end_round(part);
}

static void message_over(MPIDI_CH3I_Part_t * part, int mpi_errno)
{
    if (part->error == MPI_SUCCESS)
        part->error = mpi_errno;
    if (--part->left == 0)
        MPIDI_CH3I_Part_end_round(part);
}

/* ---- messages ---- */

/* Has the callback called when the request is over, which may be now. REQUIRES: nobody else has it. */
static void follow(MPIDI_CH3I_Part_t * part, MPIR_Request * req, int (*callback) (MPIR_Request *))
{
    part->unfinished++;
    req->ch.partitioned = part;
    req->dev.request_completed_cb = callback;
    MPIR_Request_free(req);
}

/* What a callback begins with. Returns whose request is over. */
static MPIDI_CH3I_Part_t *begin_callback(MPIR_Request * req)
{
    req->dev.request_completed_cb = NULL;
    return req->ch.partitioned;
}

/* And what it ends with: until then, the part stays. */
static int end_callback(MPIDI_CH3I_Part_t * part)
{
    part->unfinished--;
    MPIDI_CH3I_Part_free_if_over(part);
    return MPI_SUCCESS;
}

/* kind: which of the contexts. Returns an MPI error if nothing is under way. */
static int send_message(MPIDI_CH3I_Part_t * part, int kind, const void *buf, MPI_Aint count,
                        MPI_Datatype type, uint32_t tag, int (*callback) (MPIR_Request *))
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

static int receive_message(MPIDI_CH3I_Part_t * part, int kind, void *buf, MPI_Aint count, MPI_Datatype type,
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
static char *elements_of(const MPIDI_CH3I_Part_t * part, MPI_Aint message, MPI_Aint * count)
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
    MPIDI_CH3I_Part_t *part = begin_callback(req);

    message_over(part, req->status.MPI_ERROR);
    return end_callback(part);
}

static void send_data(MPIDI_CH3I_Part_t * part, MPI_Aint message)
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
    MPIDI_CH3I_Part_t *part = begin_callback(req);

    part->is_here[(uint32_t) req->dev.match.parts.tag - part->first_tag] = TRUE;
    message_over(part, req->status.MPI_ERROR);
    return end_callback(part);
}

static void receive_data(MPIDI_CH3I_Part_t * part)
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

void MPIDI_CH3I_Part_ready(MPIDI_CH3I_Part_t * part, int partition)
{
    const MPI_Aint message = part->bytes == 0 ? 0 : partition * part->partition_bytes / part->message_bytes;

    if (--part->missing[message] == 0)
        send_data(part, message);
}

/* The round begins, or has begun before the sides knew each other. */
static void begin_sending(MPIDI_CH3I_Part_t * part)
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
            MPIDI_CH3I_Part_ready(part, (int) i);
}

/* ---- meeting ---- */

void MPIDI_CH3I_Part_begin_round(MPIDI_CH3I_Part_t * part)
{
    if (part->is_send)
        begin_sending(part);
    else
        receive_data(part);
}

/* What was awaited is over, with that MPI error, and the callback ends. */
static int end_meeting(MPIDI_CH3I_Part_t * part, int mpi_errno)
{
    if (mpi_errno != MPI_SUCCESS) {
        fail(part, mpi_errno);
    } else {
        part->is_met = TRUE;
        if (part->is_active)
            MPIDI_CH3I_Part_begin_round(part);
    }
    return end_callback(part);
}

static void set_messages(MPIDI_CH3I_Part_t * part, MPI_Aint message_bytes)
{
    part->message_bytes = message_bytes;
    part->messages = part->bytes == 0 ? 1 : (part->bytes + message_bytes - 1) / message_bytes;
}

static int mismatch(const MPIDI_CH3I_Part_t * part, uint64_t sent, uint64_t received)
{
    char text[128];

    snprintf(text, sizeof(text), "the partitions of the sender have %llu bytes, those of the receiver %llu",
             (unsigned long long) sent, (unsigned long long) received);
    return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__, __LINE__, MPI_ERR_TRUNCATE,
                                "**ch3|offload|partitions", "**ch3|offload|partitions %d %s", part->rank,
                                text);
}

static int misfit(const MPIDI_CH3I_Part_t * part)
{
    return MPIDI_CH3I_Error(CH3_OFFLOAD_PROTOCOL, part->rank);
}

/* What has been awaited is over. Returns its MPI error. */
static int awaited_error(MPIDI_CH3I_Part_t * part, MPIR_Request * req, MPI_Aint bytes)
{
    part->awaited = NULL;
    if (req->status.MPI_ERROR != MPI_SUCCESS)
        return req->status.MPI_ERROR;
    return MPIR_STATUS_GET_COUNT(req->status) == bytes ? MPI_SUCCESS : misfit(part);
}

/* The sender has been told. */
static int take_answer(MPIDI_CH3I_Part_t * part)
{
    const MPIDI_CH3I_Part_answer_t *answer = &part->answer;
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
    MPIDI_CH3I_Part_t *part = begin_callback(req);
    int mpi_errno = awaited_error(part, req, sizeof(part->answer));

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = take_answer(part);
    return end_meeting(part, mpi_errno);
}

static int on_sent(MPIR_Request * req)
{
    MPIDI_CH3I_Part_t *part = begin_callback(req);

    /* Whoever cannot be told does not send either, and the receives fail. */
    return end_callback(part);
}

/* The receiver knows its sender, and decides how the data is cut: part->answer. Returns an MPI error. */
static int cut(MPIDI_CH3I_Part_t * part)
{
    const MPIDI_CH3I_Part_greeting_t *greeting = &part->greeting;
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
static int take_greeting(MPIDI_CH3I_Part_t * part)
{
    int mpi_errno, told;

    if (part->greeting.answer_tag >= MOST_TAGS)
        return misfit(part);
    mpi_errno = cut(part);
    told = send_message(part, MPIDI_CH3I_PARTITIONED_ANSWER, &part->answer, sizeof(part->answer),
                        MPIR_BYTE_INTERNAL, part->greeting.answer_tag, on_sent);
    return mpi_errno != MPI_SUCCESS ? mpi_errno : told;
}

static int on_greeting(MPIR_Request * req)
{
    MPIDI_CH3I_Part_t *part = begin_callback(req);
    int mpi_errno = awaited_error(part, req, sizeof(part->greeting));

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = take_greeting(part);
    return end_meeting(part, mpi_errno);
}

static void meet_receiver(MPIDI_CH3I_Part_t * part)
{
    int failure;

    take_tags(part, 1);
    part->greeting.bytes = part->bytes;
    part->greeting.partition_bytes = part->partition_bytes;
    part->greeting.answer_tag = part->first_tag;
    failure = receive_message(part, MPIDI_CH3I_PARTITIONED_ANSWER, &part->answer, sizeof(part->answer),
                              MPIR_BYTE_INTERNAL, part->first_tag, on_answer, &part->awaited);
    if (failure == MPI_SUCCESS && part->failure == MPI_SUCCESS)
        failure = send_message(part, MPIDI_CH3I_PARTITIONED_GREETING, &part->greeting, sizeof(part->greeting),
                               MPIR_BYTE_INTERNAL, (uint32_t) part->tag, on_sent);
    if (failure != MPI_SUCCESS)
        fail(part, failure);
}

static void meet_sender(MPIDI_CH3I_Part_t * part)
{
    const int failure =
        receive_message(part, MPIDI_CH3I_PARTITIONED_GREETING, &part->greeting, sizeof(part->greeting),
                        MPIR_BYTE_INTERNAL, (uint32_t) part->tag, on_greeting, &part->awaited);

    if (failure != MPI_SUCCESS)
        fail(part, failure);
}

void MPIDI_CH3I_Part_meet(MPIDI_CH3I_Part_t * part)
{
    if (part->is_send)
        meet_receiver(part);
    else
        meet_sender(part);
}

void MPIDI_CH3I_Part_give_up(MPIDI_CH3I_Part_t * part)
{
    MPIR_Request *req = part->awaited;

    if (req != NULL && MPIDI_CH3U_Recvq_DP(req)) {
        begin_callback(req);
        part->awaited = NULL;
        part->unfinished--;
        MPIDI_CH3I_Defer_error(MPID_Request_complete(req));
    }
    MPIDI_CH3I_Part_free_if_over(part);
}
