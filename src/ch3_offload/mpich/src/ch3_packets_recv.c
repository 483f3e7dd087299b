/*
 * The ch3:offload channel: packets of CH3, coming in.
 *
 * The engine delivers the stream of packets of a peer in chunks. Headers are whole, the data may be cut
 * anywhere. CH3's handler of a packet gets what data there is and either takes it all or returns a
 * request whose iov wants the rest, as often as its OnDataAvail says so. Where that iov wants a long run of
 * bytes at one place, the engine may put them there itself.
 */

#include "ch3_packet_headers.h"
#include "ch3_worlds.h"

static MPIDI_CH3_PktHandler_Fcn *handlers[MPIDI_CH3_PKT_END_ALL + 1];

int MPIDI_CH3I_Packet_recv_init(void)
{
    int mpi_errno = MPI_SUCCESS;

    mpi_errno = MPIDI_CH3_PktHandler_Init(handlers, MPIDI_CH3_PKT_END_ALL + 1);
    MPIR_ERR_CHECK(mpi_errno);
    MPIDI_CH3I_Agreement_init(handlers);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int no_bytes_wanted(MPIR_Request * rreq)
{
    int i;

    for (i = 0; i < rreq->dev.iov_count; i++)
        if (rreq->dev.iov[rreq->dev.iov_offset + i].iov_len > 0)
            return FALSE;
    return TRUE;
}

/* The data of an accumulate goes to a buffer of CH3's, element by element. An element with a gap takes
 * two entries of an iov, and CH3 loads no second one for those that find no room in the first
 * (MPIDI_CH3_ReqHandler_AccumMetadataRecvComplete). That is made up for here: OnDataAvail loads the
 * next, and CH3's, which is kept in OnFinal, comes after the last. */
static int load_elements(MPIDI_VC_t * vc ATTRIBUTE((unused)), MPIR_Request * rreq, int *complete)
{
    MPI_Datatype basic = MPIR_DATATYPE_IS_PREDEFINED(rreq->dev.datatype) ? rreq->dev.datatype :
        rreq->dev.datatype_ptr->basic_type;
    MPI_Aint size, entries, bytes;

    MPIR_Datatype_get_size_macro(basic, size);
    MPIR_Typerep_to_iov(rreq->dev.tmpbuf, rreq->dev.recv_data_sz / size, basic, rreq->dev.msg_offset,
                        rreq->dev.iov, MPL_IOV_LIMIT, rreq->dev.recv_data_sz - rreq->dev.msg_offset,
                        &entries, &bytes);
    MPIR_Assert(bytes > 0);
    rreq->dev.iov_count = (int) entries;
    rreq->dev.iov_offset = 0;
    rreq->dev.msg_offset += bytes;
    if (rreq->dev.msg_offset == rreq->dev.recv_data_sz)
        rreq->dev.OnDataAvail = rreq->dev.OnFinal;
    *complete = FALSE;
    return MPI_SUCCESS;
}

/* CH3 has given the request an iov. */
static void iov_is_new(MPIR_Request * rreq)
{
    intptr_t bytes = 0;
    int i;

    rreq->dev.iov_offset = 0;
    if (likely(rreq->dev.OnDataAvail != MPIDI_CH3_ReqHandler_AccumRecvComplete &&
               rreq->dev.OnDataAvail != MPIDI_CH3_ReqHandler_GaccumRecvComplete))
        return;
    /* Only the first iov of such a buffer begins where it does. */
    if (rreq->dev.iov_count < MPL_IOV_LIMIT || rreq->dev.iov[0].iov_base != rreq->dev.tmpbuf)
        return;
    for (i = 0; i < rreq->dev.iov_count; i++)
        bytes += rreq->dev.iov[i].iov_len;
    if (bytes == rreq->dev.recv_data_sz)
        return;
    rreq->dev.msg_offset = bytes;
    rreq->dev.OnFinal = rreq->dev.OnDataAvail;
    rreq->dev.OnDataAvail = load_elements;
}

/* The iov of the active request is full. */
static int iov_is_full(MPIDI_VC_t * vc)
{
    int mpi_errno = MPI_SUCCESS;
    int complete = TRUE;
    MPIR_Request *rreq = vc->ch.recv_active;

    if (rreq->dev.OnDataAvail == NULL)
        mpi_errno = MPID_Request_complete(rreq);
    else
        mpi_errno = rreq->dev.OnDataAvail(vc, rreq, &complete);
    if (complete)
        vc->ch.recv_active = NULL;
    else
        iov_is_new(rreq);
    return mpi_errno;
}

/* Moves bytes into the iov of the active request; NULL: they are there already. Returns how many. */
static size_t fill_iov(MPIR_Request * rreq, const char *bytes, size_t length)
{
    size_t taken = 0;

    while (rreq->dev.iov_count > 0) {
        struct iovec *iov = &rreq->dev.iov[rreq->dev.iov_offset];
        size_t n = MPL_MIN(iov->iov_len, length - taken);

        if (n > 0 && bytes != NULL && !rreq->dev.drop_data)
            MPIR_Memcpy(iov->iov_base, bytes + taken, n);
        taken += n;
        iov->iov_base = (char *) iov->iov_base + n;
        iov->iov_len -= n;
        if (iov->iov_len > 0)
            break;
        rreq->dev.iov_offset++;
        rreq->dev.iov_count--;
    }
    return taken;
}

/* The active request got bytes: it may be done, or want others. */
static int resume_request(MPIDI_VC_t * vc)
{
    int mpi_errno = MPI_SUCCESS;

    while (vc->ch.recv_active != NULL && no_bytes_wanted(vc->ch.recv_active)) {
        mpi_errno = iov_is_full(vc);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* A packet could not be taken. Where the next header begins is unknown then, so the connection is at its
 * end: this process goes on without the peer. */
static void give_up(MPIDI_VC_t * vc, int mpi_errno)
{
    char reason[MPI_MAX_ERROR_STRING] = "";
    char text[MPI_MAX_ERROR_STRING + 100];

    MPIR_Err_get_string(mpi_errno, reason, sizeof(reason), NULL);
    snprintf(text, sizeof(text), "closes the connection to rank %d, because it could not take a "
                 "packet: %s", vc->pg_rank, reason);
    MPIDI_CH3I_Warn(text);
    vc->ch.is_given_up = TRUE;  /* what else it has sent is dropped */
    ch3_offload_fail_peer(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc));
}

static int is_farewell(const MPIDI_CH3_Pkt_t * pkt)
{
    return pkt->type == MPIDI_CH3_PKT_CLOSE && !pkt->close.ack;
}

/* A late farewell to a process that never knew of the connection and is finalizing: it gets the answer that
 * ends it at once. Anything else from there is ignored. */
static int answer_late_close(MPIDI_VC_t * vc, const MPIDI_CH3_Pkt_t * pkt)
{
    int mpi_errno = MPI_SUCCESS;

    if (is_farewell(pkt)) {
        MPIDI_CH3_Pkt_t answer;
        MPIR_Request *sreq;

        MPIDI_Pkt_init(&answer.close, MPIDI_CH3_PKT_CLOSE);
        answer.close.ack = TRUE;
        mpi_errno = MPIDI_CH3_iStartMsg(vc, &answer, sizeof(answer.close), &sreq);
        if (sreq != NULL)
            MPIR_Request_free(sreq);
    }
    return mpi_errno;
}

#define HAS_FLAGS_WHERE_PUT_HAS_THEM(packet) \
    MPL_COMPILE_TIME_ASSERT(offsetof(MPIDI_CH3_Pkt_t, packet.pkt_flags) == \
                            offsetof(MPIDI_CH3_Pkt_t, put.pkt_flags))

/* FALSE: MPIDI_CH3I_Lock_packet has nothing to do. */
static inline int may_concern_lock(const MPIDI_CH3_Pkt_t * pkt)
{
    HAS_FLAGS_WHERE_PUT_HAS_THEM(lock);
    HAS_FLAGS_WHERE_PUT_HAS_THEM(get);
    HAS_FLAGS_WHERE_PUT_HAS_THEM(accum);
    HAS_FLAGS_WHERE_PUT_HAS_THEM(get_accum);
    HAS_FLAGS_WHERE_PUT_HAS_THEM(cas);
    HAS_FLAGS_WHERE_PUT_HAS_THEM(fop);
    return pkt->type == MPIDI_CH3_PKT_UNLOCK ||
        (pkt->put.pkt_flags & (MPIDI_CH3_PKT_FLAG_RMA_LOCK_SHARED | MPIDI_CH3_PKT_FLAG_RMA_LOCK_EXCLUSIVE |
                               MPIDI_CH3_PKT_FLAG_RMA_UNLOCK));
}

/* Calls the handler of a packet with the data behind its header. Returns an error, and in *taken how much of
 * the data it took. */
static int handle_header(MPIDI_VC_t * vc, MPIDI_CH3_Pkt_t * pkt, const char *data, size_t length,
                         size_t * taken)
{
    int mpi_errno = MPI_SUCCESS;
    intptr_t data_bytes = length;
    MPIR_Request *rreq = NULL;
    int type = pkt->type;

    *taken = 0;
    if (vc->state == MPIDI_VC_STATE_INACTIVE_CLOSED) {
        mpi_errno = answer_late_close(vc, pkt);
        MPIR_ERR_CHECK(mpi_errno);
        goto fn_exit;
    }
    if (unlikely(may_concern_lock(pkt))) {
        mpi_errno = MPIDI_CH3I_Lock_packet(vc, pkt);
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (type == MPIDI_CH3_PKT_LOCK_ACK && (pkt->lock_ack.pkt_flags & MPIDI_CH3I_LOCK_BROKEN)) {
        MPIDI_CH3I_Lock_refused(&pkt->lock_ack);
        goto fn_exit;
    }
    if (type == MPIDI_CH3_PKT_REVOKE) {
        mpi_errno = MPIDI_CH3I_Take_revocation(vc, &pkt->revoke);
        MPIR_ERR_CHECK(mpi_errno);
        goto fn_exit;
    }
    mpi_errno = handlers[type] (vc, pkt, (void *) data, &data_bytes, &rreq);
    MPIR_ERR_CHECK(mpi_errno);
    *taken = data_bytes;
    if (rreq != NULL) {
        iov_is_new(rreq);
        vc->ch.recv_active = rreq;
        mpi_errno = resume_request(vc);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The engine delivers what the peer's CH3 has given it, so the peer broke no rule of the channel. */
static const char stream_is_lost[] = "CH3 cannot tell packets apart any more, although all of their "
    "bytes came in order. It is a fault of CH3, here or there, or of two MPICHs that differ";

/* A packet begins with these bytes, and its header is whole. *taken: what of them is the packet's. */
static int handle_packet(MPIDI_VC_t * vc, const char *bytes, size_t length, size_t * taken)
{
    int mpi_errno = MPI_SUCCESS;
    const MPIDI_CH3I_Header_t *header = NULL;
    MPIDI_CH3_Pkt_t pkt;        /* the bytes may be unaligned */
    size_t data_taken;

    *taken = 0;
    if (length >= sizeof(MPIDI_CH3_Pkt_type_t))
        header = find_header(bytes);
    MPIR_ERR_CHKANDJUMP1(header == NULL || header->bytes > length, mpi_errno, MPI_ERR_INTERN,
                         "**intern", "**intern %s", stream_is_lost);
    get_header(&pkt, header, bytes);
    mpi_errno = handle_header(vc, &pkt, bytes + header->bytes, length - header->bytes, &data_taken);
    MPIR_ERR_CHECK(mpi_errno);
    *taken = header->bytes + data_taken;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The next bytes of the stream. *taken: how many of them. */
static int take_bytes(MPIDI_VC_t * vc, const char *bytes, size_t length, size_t * taken)
{
    if (vc->ch.recv_active == NULL)
        return handle_packet(vc, bytes, length, taken);
    *taken = fill_iov(vc->ch.recv_active, bytes, length);
    return resume_request(vc);
}

/* A process of another world that has opened the connection for itself only (by a receive that it cancelled)
 * says farewell. If nothing here is of that connection, it gets the answer at once, and the connection stays
 * as it is: no communicator leads there any more, or none does yet. It answers that as it would any other.
 * `vc`: NULL if the process is not known. *taken: 0, or the packet. */
static int close_forgotten(uint32_t peer, const MPIDI_VC_t * vc, const char *in, size_t left, size_t * taken)
{
    int mpi_errno = MPI_SUCCESS;
    const MPIDI_CH3I_Header_t *header = left < sizeof(MPIDI_CH3_Pkt_type_t) ? NULL : find_header(in);
    const int is_forgotten = vc == NULL ||
        (vc->state == MPIDI_VC_STATE_INACTIVE && MPIR_Object_get_ref(vc) == 0);
    char answer[sizeof(MPIDI_CH3_Pkt_t)];
    MPIDI_CH3_Pkt_t pkt;
    int status = CH3_OFFLOAD_OK;

    *taken = 0;
    if (header == NULL || header->bytes > left)
        goto fn_exit;
    get_header(&pkt, header, in);
    if (pkt.type != MPIDI_CH3_PKT_CLOSE)
        goto fn_exit;
    if (pkt.close.ack) {
        if (MPIDI_CH3I_Is_last_close(peer))
            *taken = header->bytes;
        goto fn_exit;
    }
    if (!is_forgotten)
        goto fn_exit;
    *taken = header->bytes;
    mpi_errno = MPIDI_CH3I_Await_last_close(peer);
    MPIR_ERR_CHECK(mpi_errno);
    pkt.close.ack = TRUE;
    put_header(answer, header, &pkt, sizeof(pkt.close));
    /* If it is dead by now, it waits for no answer. */
    if (ch3_offload_send_packet(MPIDI_CH3I_channel, peer, answer, header->bytes, NULL, 0, NULL, &status) ==
        CH3_OFFLOAD_ERROR && status != CH3_OFFLOAD_PEER_FAILED)
        mpi_errno = MPIDI_CH3I_Error(status, 0);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The stream of a process of another world. Packets between roots come between the others. */
static void foreign_packet_recv(uint32_t peer, const char *in, size_t left)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_VC_t *vc = NULL;

    while (left > 0) {
        const int holds = MPIDI_CH3I_Holds_packets(peer);
        size_t taken = 0;

        vc = holds ? NULL : MPIDI_CH3I_Foreign_vc(peer);
        if (!holds && (vc == NULL || vc->ch.recv_active == NULL) && MPIDI_CH3I_Is_root(in, left)) {
            int has_packet;

            mpi_errno = MPIDI_CH3I_Take_root(peer, in, left, &vc, &has_packet);
            MPIR_ERR_CHECK(mpi_errno);
            in += MPIDI_CH3I_ROOT_BYTES;
            left -= MPIDI_CH3I_ROOT_BYTES;
            if (has_packet)
                mpi_errno = handle_packet(vc, in, left, &taken);
            MPIDI_CH3_Progress_signal_completion();     /* who waits in MPI_Comm_accept looks again */
        } else if (holds) {
            mpi_errno = MPIDI_CH3I_Hold_packets(peer, in, left);
            taken = left;
        } else if (vc != NULL && vc->ch.is_given_up) {
            break;
        } else {
            if (vc == NULL || vc->ch.recv_active == NULL)
                mpi_errno = close_forgotten(peer, vc, in, left, &taken);
            MPIR_ERR_CHECK(mpi_errno);
            if (taken == 0 && vc == NULL) {
                mpi_errno = MPIDI_CH3I_Hold_packets(peer, in, left);
                taken = left;
            } else if (taken == 0) {
                if (vc->state == MPIDI_VC_STATE_INACTIVE)
                    MPIDI_CHANGE_VC_STATE(vc, ACTIVE);
                mpi_errno = take_bytes(vc, in, left, &taken);
            }
        }
        MPIR_ERR_CHECK(mpi_errno);
        in += taken;
        left -= taken;
    }

  fn_exit:
    return;
  fn_fail:
    if (vc != NULL && vc->ch.root == NULL)
        give_up(vc, mpi_errno);
    else
        ch3_offload_fail_peer(MPIDI_CH3I_channel, peer);
    goto fn_exit;
}

void MPIDI_CH3I_Packet_recv(uint32_t peer, const void *bytes, size_t length_bytes)
{
    int mpi_errno = MPI_SUCCESS;
    const char *in = bytes;
    size_t left = length_bytes;
    size_t taken;
    MPIDI_VC_t *vc;

    if (unlikely(peer >= (uint32_t) MPIDI_Process.my_pg->size)) {
        foreign_packet_recv(peer, bytes, length_bytes);
        return;
    }
    MPIDI_PG_Get_vc_set_active(MPIDI_Process.my_pg, peer, &vc);

    while (left > 0 && !vc->ch.is_given_up) {
        mpi_errno = take_bytes(vc, in, left, &taken);
        MPIR_ERR_CHECK(mpi_errno);
        in += taken;
        left -= taken;
    }

  fn_exit:
    return;
  fn_fail:
    give_up(vc, mpi_errno);
    goto fn_exit;
}

/* Where the next bytes of the stream belong, and how many go there in one run. NULL: nobody knows. */
static void *find_place(uint32_t peer, size_t * capacity_bytes)
{
    MPIDI_VC_t *vc = MPIDI_CH3I_Vc(peer);
    MPIR_Request *rreq = vc == NULL ? NULL : vc->ch.recv_active;
    int i;

    *capacity_bytes = 0;
    if (rreq == NULL || rreq->dev.drop_data || vc->ch.is_given_up)
        return NULL;
    for (i = rreq->dev.iov_offset; i < rreq->dev.iov_offset + rreq->dev.iov_count; i++)
        if (rreq->dev.iov[i].iov_len > 0) {
            *capacity_bytes = rreq->dev.iov[i].iov_len;
            return rreq->dev.iov[i].iov_base;
        }
    return NULL;
}

void MPIDI_CH3I_Packet_offered(uint32_t peer)
{
    size_t capacity_bytes;
    void *place = find_place(peer, &capacity_bytes);

    ch3_offload_place_packet(MPIDI_CH3I_channel, peer, place, capacity_bytes);
}

/* They are there. */
void MPIDI_CH3I_Packet_placed(uint32_t peer, size_t length_bytes)
{
    MPIDI_VC_t *vc = MPIDI_CH3I_Vc(peer);
    int mpi_errno;

    if (vc == NULL || vc->ch.recv_active == NULL)       /* it failed meanwhile */
        return;
    fill_iov(vc->ch.recv_active, NULL, length_bytes);
    mpi_errno = resume_request(vc);
    if (mpi_errno != MPI_SUCCESS)
        give_up(vc, mpi_errno);
}

/* The peer is dead: the rest of the packet will not come. */
void MPIDI_CH3I_Packet_recv_fail(MPIDI_VC_t * vc, int mpi_errno)
{
    MPIR_Request *rreq = vc->ch.recv_active;

    if (rreq != NULL) {
        vc->ch.recv_active = NULL;
        MPIDI_CH3I_Fail_request(rreq, mpi_errno);
    }
}
