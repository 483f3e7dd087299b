/*
 * The ch3:offload channel: packets of CH3 (RMA, close, revoke), going out.
 *
 * The packets to one peer are a stream of bytes: a header (ch3_packet_headers.h) and the data that it
 * announces. A short packet leaves through the peer's lane, without a call of the library. All others go to
 * the engine, which queues and keeps the order, with one exception: a request whose OnDataAvail loads the
 * next part of its data when one part has gone. While such a request is in mid-packet (send_active), what
 * comes behind it waits here (sendq).
 */

#include "ch3_packet_headers.h"
#include "ch3_worlds.h"

/* Requests in all sendqs, and in `unsent`. */
static int waiting = 0;

/* Requests of packets that could not be sent, linked by next. They fail with the next progress. CH3's
 * functions that issue operations or grant locks do not bear an error of the channel: it leaves their
 * static variables (fn_reentrance_check, entered_flag) set, and they do nothing any more. And an error of
 * a packet's handler would close the connection to the sender of the packet, which may be another process
 * than the dead one. */
static MPIR_Request *unsent = NULL;

int MPIDI_CH3I_Packets_idle(void)
{
    return waiting == 0;
}

/* Sends a packet through the peer's lane, if that is possible at once. */
static inline int send_by_lane(MPIDI_VC_t * vc, const void *header, intptr_t header_bytes,
                               const struct iovec *data, int n_data)
{
    ch3_offload_lane_t *lane = vc->ch.lane;
    const MPIDI_CH3I_Header_t *shape = find_header(header);
    size_t length;
    char *out;
    int i;

    MPIR_Assert(shape != NULL);
    if (unlikely(lane == NULL))
        return FALSE;
    length = shape->bytes;
    for (i = 0; i < n_data; i++)
        length += data[i].iov_len;
    out = ch3_offload_lane_begin_packet(lane, length);
    if (unlikely(out == NULL))
        return FALSE;
    put_header(out, shape, header, header_bytes);
    out += shape->bytes;
    for (i = 0; i < n_data; i++) {
        if (data[i].iov_len > 0)
            MPIR_Memcpy(out, data[i].iov_base, data[i].iov_len);
        out += data[i].iov_len;
    }
    if (unlikely(ch3_offload_lane_end_packet(lane, length) == CH3_OFFLOAD_LANE_SENT_TO_SLEEPER))
        ch3_offload_nudge(MPIDI_CH3I_channel, vc->ch.peer);
    return TRUE;
}

static inline int is_dead(MPIDI_VC_t * vc)
{
    return vc->state == MPIDI_VC_STATE_MORIBUND || vc->ch.peer_failed;
}

/* Nothing waits here that has to go before a packet of now. */
static inline int is_next(MPIDI_VC_t * vc)
{
    return vc->ch.send_active == NULL && vc->ch.sendq_head == NULL;
}

static int peer_is_dead(MPIDI_VC_t * vc)
{
    return MPIDI_CH3I_Error(CH3_OFFLOAD_PEER_FAILED, vc->pg_rank);
}

static void add_unsent(MPIDI_VC_t * vc, MPIR_Request * sreq, int mpi_errno)
{
    MPIR_Request_add_ref(sreq);
    sreq->ch.is_packet = TRUE;
    sreq->ch.vc = vc;
    sreq->status.MPI_ERROR = mpi_errno;
    sreq->next = unsent;
    unsent = sreq;
    waiting++;
    MPIDI_CH3I_losses++;
#ifdef MPICH_IS_THREADED
    MPIDI_CH3I_PROGRESS_WAKEUP;
#endif
}

void MPIDI_CH3I_Packets_fail_unsent(void)
{
    while (unsent != NULL) {
        MPIR_Request *sreq = unsent;
        MPIDI_VC_t *vc = sreq->ch.vc;

        unsent = sreq->next;
        sreq->next = NULL;
        waiting--;
        /* The stream of packets has lost one. */
        if (!vc->ch.peer_failed) {
            ch3_offload_fail_peer(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc));
            if (!vc->ch.peer_failed)
                MPIDI_CH3I_Defer_error(MPIDI_CH3I_Connection_broken(vc, CH3_OFFLOAD_PEER_FAILED));
        }
        MPIDI_CH3I_Fail_request(sreq, sreq->status.MPI_ERROR);
        MPIR_Request_free(sreq);
    }
}

/* One part of a packet has gone. Returns TRUE when the request is done, FALSE when its iov has more. */
static int advance(MPIDI_VC_t * vc, MPIR_Request * sreq)
{
    int mpi_errno;
    int complete = TRUE;

    if (sreq->dev.OnDataAvail == NULL) {
        MPIDI_CH3I_Defer_error(MPID_Request_complete(sreq));
        return TRUE;
    }
    mpi_errno = sreq->dev.OnDataAvail(vc, sreq, &complete);
    MPIDI_CH3I_Defer_error(mpi_errno);
    return mpi_errno != MPI_SUCCESS || complete || MPIR_Request_is_complete(sreq);
}

/* Hands the next part of the request's packet to the engine. Returns what came of it. */
static int send_part(MPIDI_VC_t * vc, MPIR_Request * sreq, const void *header, intptr_t header_bytes,
                     int *status)
{
    const struct iovec *data = sreq->dev.iov + sreq->dev.iov_offset;
    const MPIDI_CH3I_Header_t *shape;
    char in_stream[sizeof(MPIDI_CH3_Pkt_t)];

    if (header == NULL)
        return ch3_offload_send_packet(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc), NULL, 0, data,
                                       sreq->dev.iov_count, sreq, status);
    if (likely(send_by_lane(vc, header, header_bytes, data, sreq->dev.iov_count)))
        return CH3_OFFLOAD_DONE;
    shape = find_header(header);
    put_header(in_stream, shape, header, header_bytes);
    return ch3_offload_send_packet(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc), in_stream, shape->bytes, data,
                                   sreq->dev.iov_count, sreq, status);
}

/* Hands parts of the request's packet to the engine until it is done or the engine keeps one. `header` is
 * NULL for a continuation. Takes no reference unless the engine keeps a part. */
static void start_or_continue(MPIDI_VC_t * vc, MPIR_Request * sreq, const void *header, intptr_t header_bytes)
{
    /* A continuation is active already, and its OnDataAvail may be gone by now. */
    int is_active = sreq->dev.OnDataAvail != NULL || header == NULL;

    /* OnDataAvail may free the request or start other packets, which must not come between. */
    MPIR_Request_add_ref(sreq);
    if (is_active)
        vc->ch.send_active = sreq;
    for (;;) {
        int status = CH3_OFFLOAD_OK;
        int progressed = send_part(vc, sreq, header, header_bytes, &status);

        if (progressed == CH3_OFFLOAD_PENDING) {
            sreq->ch.is_pending = TRUE;
            return;             /* keeps the reference, and send_active */
        }
        if (progressed == CH3_OFFLOAD_ERROR) {
            add_unsent(vc, sreq, MPIDI_CH3I_Error(status, vc->pg_rank));
            break;
        }
        if (advance(vc, sreq))
            break;
        header = NULL;
    }
    if (is_active)
        vc->ch.send_active = NULL;
    MPIR_Request_free(sreq);
}

static void drain(MPIDI_VC_t * vc)
{
    if (unlikely(vc->ch.peer >= (uint32_t) MPIDI_Process.my_pg->size) && vc->ch.send_active == NULL)
        MPIDI_CH3I_Send_root_packets(vc->ch.peer);
    while (vc->ch.send_active == NULL && vc->ch.sendq_head != NULL) {
        MPIR_Request *sreq = vc->ch.sendq_head;
        vc->ch.sendq_head = sreq->next;
        if (vc->ch.sendq_head == NULL)
            vc->ch.sendq_tail = NULL;
        sreq->next = NULL;
        waiting--;
        start_or_continue(vc, sreq, &sreq->dev.pending_pkt, sizeof(sreq->dev.pending_pkt));
        MPIR_Request_free(sreq);
    }
}

static void enqueue(MPIDI_VC_t * vc, MPIR_Request * sreq)
{
    MPIR_Request_add_ref(sreq);
    sreq->next = NULL;
    if (vc->ch.sendq_tail != NULL)
        vc->ch.sendq_tail->next = sreq;
    else
        vc->ch.sendq_head = sreq;
    vc->ch.sendq_tail = sreq;
    waiting++;
}

/* The request's iov describes the data. */
static void submit(MPIDI_VC_t * vc, MPIR_Request * sreq, const void *header, intptr_t header_bytes)
{
    sreq->ch.is_packet = TRUE;
    sreq->ch.vc = vc;
    sreq->dev.iov_offset = 0;
    if (!is_next(vc)) {
        MPIR_Assert(header_bytes <= (intptr_t) sizeof(MPIDI_CH3_Pkt_t));
        memset(&sreq->dev.pending_pkt, 0, sizeof(sreq->dev.pending_pkt));
        MPIR_Memcpy(&sreq->dev.pending_pkt, header, header_bytes);
        enqueue(vc, sreq);
    } else {
        start_or_continue(vc, sreq, header, header_bytes);
        drain(vc);
    }
}

/* The engine is through with a part that it had kept (send_done). */
void MPIDI_CH3I_Packet_sent(MPIR_Request * sreq, int status)
{
    MPIDI_VC_t *vc = sreq->ch.vc;
    int was_active = vc->ch.send_active == sreq;

    sreq->ch.is_pending = FALSE;
    if (status != CH3_OFFLOAD_OK)
        MPIDI_CH3I_Fail_request(sreq, MPIDI_CH3I_Error(status, vc->pg_rank));
    else if (!advance(vc, sreq)) {
        start_or_continue(vc, sreq, NULL, 0);
        was_active = FALSE;     /* start_or_continue has seen to it */
    }
    if (was_active)
        vc->ch.send_active = NULL;
    MPIR_Request_free(sreq);
    drain(vc);
}

/* The peer is dead: what waits here will not go. What the engine keeps comes back through send_done. */
void MPIDI_CH3I_Packets_fail(MPIDI_VC_t * vc, int mpi_errno)
{
    while (vc->ch.sendq_head != NULL) {
        MPIR_Request *sreq = vc->ch.sendq_head;
        vc->ch.sendq_head = sreq->next;
        sreq->next = NULL;
        waiting--;
        MPIDI_CH3I_Fail_request(sreq, mpi_errno);
        MPIR_Request_free(sreq);
    }
    vc->ch.sendq_tail = NULL;
}

int MPIDI_CH3_iSendv(MPIDI_VC_t * vc, MPIR_Request * sreq, struct iovec *iov, int n_iov)
{
    int i;

    MPIR_Assert(n_iov >= 1 && n_iov <= MPL_IOV_LIMIT);
    if (is_dead(vc)) {
        add_unsent(vc, sreq, peer_is_dead(vc));
        return MPI_SUCCESS;
    }
    for (i = 1; i < n_iov; i++)
        sreq->dev.iov[i - 1] = iov[i];
    sreq->dev.iov_count = n_iov - 1;
    submit(vc, sreq, iov[0].iov_base, iov[0].iov_len);
    return MPI_SUCCESS;
}

int MPIDI_CH3_iSend(MPIDI_VC_t * vc, MPIR_Request * sreq, void *header, intptr_t header_bytes)
{
    struct iovec iov[1];

    iov[0].iov_base = header;
    iov[0].iov_len = header_bytes;
    return MPIDI_CH3_iSendv(vc, sreq, iov, 1);
}

/* Whether the caller bears an error. MPI_Win_complete learns of the death from nothing else; MPIX_Comm_revoke
 * counts the packets that go out. */
static int bears_error(const MPIDI_CH3_Pkt_t * pkt)
{
    return pkt->type == MPIDI_CH3_PKT_DECR_AT_COUNTER || pkt->type == MPIDI_CH3_PKT_REVOKE ||
        pkt->type == MPIDI_CH3_PKT_CLOSE;
}

/* A packet without a request could not be sent. Returns mpi_errno, or a request that will fail. */
static int start_unsent(MPIDI_VC_t * vc, const MPIDI_CH3_Pkt_t * pkt, int mpi_errno, MPIR_Request ** sreq_ptr)
{
    MPIR_Request *sreq;

    if (bears_error(pkt))
        return mpi_errno;
    sreq = MPIR_Request_create(MPIR_REQUEST_KIND__SEND);
    if (sreq == NULL)
        return mpi_errno;
    MPIR_Object_set_ref(sreq, 2);
    add_unsent(vc, sreq, mpi_errno);
    *sreq_ptr = sreq;
    return MPI_SUCCESS;
}

/* Sends a packet for which the caller has no request; makes one only if the packet has to wait. */
int MPIDI_CH3_iStartMsgv(MPIDI_VC_t * vc, struct iovec *iov, int n_iov, MPIR_Request ** sreq_ptr)
{
    int mpi_errno = MPI_SUCCESS;
    int i;
    MPIR_Request *sreq;

    *sreq_ptr = NULL;
    MPIR_Assert(n_iov >= 1 && n_iov <= MPL_IOV_LIMIT);
    if (is_dead(vc)) {
        mpi_errno = vc->ch.root != NULL ? MPIDI_CH3I_Drop_root_packet(vc, iov[0].iov_base) :
            start_unsent(vc, iov[0].iov_base, peer_is_dead(vc), sreq_ptr);
        goto fn_exit;
    }

    if (likely(is_next(vc) && send_by_lane(vc, iov[0].iov_base, iov[0].iov_len, iov + 1, n_iov - 1)))
        goto fn_exit;
    if (n_iov == 1 && is_next(vc)) {
        /* The engine copies the header, and there is nothing else to keep. */
        const MPIDI_CH3_Pkt_t *pkt = iov[0].iov_base;
        const MPIDI_CH3I_Header_t *shape = find_header(pkt);
        char in_stream[MPIDI_CH3I_ROOT_BYTES + sizeof(MPIDI_CH3_Pkt_t)];
        const size_t before = MPIDI_CH3I_Put_root(vc, in_stream);
        int status = CH3_OFFLOAD_OK;

        put_header(in_stream + before, shape, pkt, iov[0].iov_len);
        if (before > 0 && MPIDI_CH3I_Must_root_wait(vc)) {
            mpi_errno = MPIDI_CH3I_Keep_root_packet(vc, in_stream, before + shape->bytes);
            goto fn_exit;
        }
        if (ch3_offload_send_packet(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc), in_stream, before + shape->bytes,
                                    NULL, 0, NULL, &status) == CH3_OFFLOAD_ERROR) {
            if (vc->ch.root != NULL) {
                mpi_errno = MPIDI_CH3I_Drop_root_packet(vc, pkt);
                goto fn_exit;
            }
            /* Whom to say goodbye to may be gone already: a cancelled receive opens a connection for us
             * only. */
            if (pkt->type == MPIDI_CH3_PKT_CLOSE && status == CH3_OFFLOAD_PEER_FAILED)
                mpi_errno = MPIDI_CH3I_Connection_broken(vc, status);
            else
                mpi_errno = start_unsent(vc, pkt, MPIDI_CH3I_Error(status, vc->pg_rank), sreq_ptr);
        }
        goto fn_exit;
    }

    sreq = MPIR_Request_create(MPIR_REQUEST_KIND__SEND);
    MPIR_ERR_CHKANDJUMP(sreq == NULL, mpi_errno, MPI_ERR_OTHER, "**nomemreq");
    MPIR_Object_set_ref(sreq, 2);
    for (i = 1; i < n_iov; i++)
        sreq->dev.iov[i - 1] = iov[i];
    sreq->dev.iov_count = n_iov - 1;
    submit(vc, sreq, iov[0].iov_base, iov[0].iov_len);
    if (MPIR_Request_is_complete(sreq)) {
        mpi_errno = sreq->status.MPI_ERROR;
        MPIR_Request_free(sreq);
        MPIR_ERR_CHECK(mpi_errno);
    } else {
        *sreq_ptr = sreq;
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3_iStartMsg(MPIDI_VC_t * vc, void *header, intptr_t header_bytes, MPIR_Request ** sreq_ptr)
{
    struct iovec iov[1];

    if (likely(!is_dead(vc) && is_next(vc) && send_by_lane(vc, header, header_bytes, NULL, 0))) {
        *sreq_ptr = NULL;
        return MPI_SUCCESS;
    }
    iov[0].iov_base = header;
    iov[0].iov_len = header_bytes;
    return MPIDI_CH3_iStartMsgv(vc, iov, 1, sreq_ptr);
}
