/*
 * The ch3:offload channel: sends and their cancellation, which CH3 hands over through vc->comm_ops before it
 * creates a request.
 *
 * A blocking send that the engine finishes at once needs no request: it is offered with a spare one,
 * which becomes the request of the first send that has to wait.
 */

#include "mpidi_ch3_impl.h"

static MPIR_Request *spare_sreq = NULL;

/* Sends a message through the peer's lane, if that is possible at once. */
static inline int send_by_lane(MPIDI_VC_t * vc, ch3_offload_match_t match, uint32_t send_id, const void *buf,
                               MPI_Aint count, MPI_Datatype datatype)
{
    ch3_offload_lane_t *lane = vc->ch.lane;
    int sent;

    if (unlikely(lane == NULL || !HANDLE_IS_BUILTIN(datatype)))
        return FALSE;
    sent = ch3_offload_lane_send(lane, match.bits, match.initiator, send_id, buf,
                                 count * MPIR_Datatype_get_basic_size(datatype));
    if (unlikely(sent == CH3_OFFLOAD_LANE_SENT_TO_SLEEPER))
        ch3_offload_nudge(MPIDI_CH3I_channel, vc->ch.peer);
    return sent != CH3_OFFLOAD_LANE_CLOSED;
}

static int blocking_send(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype,
                         int rank, int tag, MPIR_Comm * comm, int context_offset, int mode,
                         MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS;
    int status = CH3_OFFLOAD_OK;
    int progressed;
    ch3_offload_match_t match = MPIDI_CH3I_Match(comm->context_id + context_offset, comm->rank, tag);
    ch3_offload_payload_t payload;
    MPIR_Request *sreq;

    *request = NULL;
    if (spare_sreq == NULL) {
        spare_sreq = MPIR_Request_create(MPIR_REQUEST_KIND__SEND);
        MPIR_ERR_CHKANDJUMP(spare_sreq == NULL, mpi_errno, MPI_ERR_OTHER, "**nomemreq");
    }
    sreq = spare_sreq;

    if (unlikely(vc->ch.peer_failed)) {
        mpi_errno = MPIDI_CH3I_Error(CH3_OFFLOAD_PEER_FAILED, rank);
        goto fn_fail;
    }
    mpi_errno = MPIDI_CH3I_Payload(buf, count, datatype, sreq, &payload);
    MPIR_ERR_CHECK(mpi_errno);
    progressed = ch3_offload_send(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc), mode, match, &payload, 0, sreq,
                                  &sreq->ch.operation, &status);
    if (likely(progressed == CH3_OFFLOAD_DONE)) {
        MPIDI_CH3I_End_walk(sreq);
        goto fn_exit;
    }
    if (progressed == CH3_OFFLOAD_ERROR) {
        MPIDI_CH3I_End_walk(sreq);
        mpi_errno = MPIDI_CH3I_Error(status, rank);
        goto fn_fail;
    }

    /* What MPIDI_Request_create_sreq does. */
    spare_sreq = NULL;
    if (payload.layout != NULL) {
        sreq->dev.datatype = datatype;
        MPIDI_CH3I_Hold_datatype(sreq);
    }
    MPIR_Object_set_ref(sreq, 2);
    sreq->comm = comm;
    MPIR_Comm_add_ref(comm);
    sreq->dev.partner_request = NULL;
    sreq->dev.match.parts.rank = rank;
    sreq->dev.match.parts.tag = tag;
    sreq->dev.match.parts.context_id = comm->context_id + context_offset;
    sreq->ch.vc = vc;
    sreq->ch.is_pending = TRUE;
    *request = sreq;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int nonblocking_send(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype,
                            int rank, int tag, MPIR_Comm * comm, int context_offset, int mode,
                            int request_type, MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS;
    int status = CH3_OFFLOAD_OK;
    int progressed;
    ch3_offload_match_t match = MPIDI_CH3I_Match(comm->context_id + context_offset, comm->rank, tag);
    ch3_offload_payload_t payload;
    MPIR_Request *sreq;

    MPIDI_Request_create_sreq(sreq, mpi_errno, goto fn_fail);
    MPIDI_Request_set_type(sreq, request_type);
    *request = sreq;
    sreq->ch.vc = vc;

    if (likely(mode != CH3_OFFLOAD_SYNCHRONOUS &&
               send_by_lane(vc, match, sreq->handle, buf, count, datatype))) {
        mpi_errno = MPID_Request_complete(sreq);
        goto fn_exit;
    }
    if (unlikely(vc->ch.peer_failed))
        mpi_errno = MPIDI_CH3I_Error(CH3_OFFLOAD_PEER_FAILED, rank);
    else
        mpi_errno = MPIDI_CH3I_Payload(buf, count, datatype, sreq, &payload);
    if (unlikely(mpi_errno != MPI_SUCCESS)) {
        sreq->status.MPI_ERROR = mpi_errno;
        mpi_errno = MPID_Request_complete(sreq);
        goto fn_exit;
    }
    progressed = ch3_offload_send(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc), mode, match, &payload,
                                  sreq->handle, sreq, &sreq->ch.operation, &status);
    if (progressed == CH3_OFFLOAD_PENDING) {
        sreq->ch.is_pending = TRUE;
        MPIDI_CH3I_Hold_datatype(sreq);
        goto fn_exit;
    }
    sreq->ch.operation = 0;
    MPIDI_CH3I_End_walk(sreq);
    /* A send that failed is told by the request, when the user waits for it. */
    if (progressed == CH3_OFFLOAD_ERROR)
        sreq->status.MPI_ERROR = MPIDI_CH3I_Error(status, rank);
    mpi_errno = MPID_Request_complete(sreq);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int offload_send(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest,
                        int tag, MPIR_Comm * comm, int context_offset, MPIR_Request ** request)
{
    ch3_offload_match_t match = MPIDI_CH3I_Match(comm->context_id + context_offset, comm->rank, tag);

    if (likely(send_by_lane(vc, match, 0, buf, count, datatype))) {
        *request = NULL;
        return MPI_SUCCESS;
    }
    return blocking_send(vc, buf, count, datatype, dest, tag, comm, context_offset, CH3_OFFLOAD_STANDARD,
                         request);
}

static int offload_rsend(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest,
                         int tag, MPIR_Comm * comm, int context_offset, MPIR_Request ** request)
{
    return blocking_send(vc, buf, count, datatype, dest, tag, comm, context_offset, CH3_OFFLOAD_READY,
                         request);
}

static int offload_ssend(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest,
                         int tag, MPIR_Comm * comm, int context_offset, MPIR_Request ** request)
{
    return blocking_send(vc, buf, count, datatype, dest, tag, comm, context_offset,
                         CH3_OFFLOAD_SYNCHRONOUS, request);
}

static int offload_isend(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest,
                         int tag, MPIR_Comm * comm, int context_offset, MPIR_Request ** request)
{
    return nonblocking_send(vc, buf, count, datatype, dest, tag, comm, context_offset,
                            CH3_OFFLOAD_STANDARD, MPIDI_REQUEST_TYPE_SEND, request);
}

static int offload_irsend(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest,
                          int tag, MPIR_Comm * comm, int context_offset, MPIR_Request ** request)
{
    return nonblocking_send(vc, buf, count, datatype, dest, tag, comm, context_offset, CH3_OFFLOAD_READY,
                            MPIDI_REQUEST_TYPE_RSEND, request);
}

static int offload_issend(MPIDI_VC_t * vc, const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest,
                          int tag, MPIR_Comm * comm, int context_offset, MPIR_Request ** request)
{
    return nonblocking_send(vc, buf, count, datatype, dest, tag, comm, context_offset,
                            CH3_OFFLOAD_SYNCHRONOUS, MPIDI_REQUEST_TYPE_SSEND, request);
}

/* In place of MPIDI_Isend_self (mpidi_ch3_post.h): the engine matches these messages, too. */
int MPIDI_CH3I_Isend_self(const void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag,
                          MPIR_Comm * comm, int context_offset, int request_type, MPIR_Request ** request)
{
    int mode = request_type == MPIDI_REQUEST_TYPE_SSEND ? CH3_OFFLOAD_SYNCHRONOUS :
        request_type == MPIDI_REQUEST_TYPE_RSEND ? CH3_OFFLOAD_READY : CH3_OFFLOAD_STANDARD;
    int mpi_errno;
    MPIDI_VC_t *vc;

    MPIDI_Comm_get_vc_set_active(comm, rank, &vc);
    mpi_errno = nonblocking_send(vc, buf, count, datatype, rank, tag, comm, context_offset, mode,
                                 request_type, request);
    /* If the receive was posted, it is finished now. Then a wait for it takes no turn of progress. */
    MPIDI_CH3I_Take_completions();
    return mpi_errno;
}

int MPIDI_CH3I_Send_to_module(const void *buf, MPI_Aint count, int rank, MPIR_Comm * comm, int request_to_own,
                              MPIR_Request ** request)
{
    const MPI_Datatype datatype = MPIR_BYTE_INTERNAL;
    const int tag = 0;
    const int context_offset = 0;
    int mpi_errno = MPI_SUCCESS;
    int status = CH3_OFFLOAD_OK;
    int progressed;
    ch3_offload_match_t match = { CH3_OFFLOAD_MODULE_BITS, request_to_own ? 1 : 0 };
    ch3_offload_payload_t payload = { (void *) buf, (size_t) count, NULL };
    MPIDI_VC_t *vc;
    MPIR_Request *sreq;

    MPIDI_Comm_get_vc_set_active(comm, rank, &vc);
    MPIDI_Request_create_sreq(sreq, mpi_errno, goto fn_fail);
    MPIDI_Request_set_type(sreq, MPIDI_REQUEST_TYPE_SEND);
    *request = sreq;
    sreq->ch.vc = vc;
    progressed = ch3_offload_send(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc), CH3_OFFLOAD_STANDARD, match,
                                  &payload, 0, sreq, &sreq->ch.operation, &status);
    if (progressed == CH3_OFFLOAD_PENDING) {
        sreq->ch.is_pending = TRUE;
        goto fn_exit;
    }
    sreq->ch.operation = 0;
    mpi_errno = MPID_Request_complete(sreq);
    if (progressed == CH3_OFFLOAD_ERROR) {
        MPIR_Request_free(sreq);
        mpi_errno = MPIDI_CH3I_Error(status, rank);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* A send, or the part of a packet that was handed over last, is finished. */
void MPIDI_CH3I_Send_done(MPIR_Request * sreq, int status)
{
    if (sreq == NULL)           /* a packet without data */
        return;
    if (sreq->ch.is_packet) {
        MPIDI_CH3I_Packet_sent(sreq, status);
        return;
    }
    sreq->ch.is_pending = FALSE;
    sreq->ch.operation = 0;
    MPIDI_CH3I_End_walk(sreq);
    if (status != CH3_OFFLOAD_OK)
        sreq->status.MPI_ERROR = MPIDI_CH3I_Error(status, sreq->dev.match.parts.rank);
    MPIDI_CH3I_Defer_error(MPID_Request_complete(sreq));
}

/* The completion counter holds one more while the cancellation is undecided, so that the request lives
 * until then, whatever the user does. */
static int cancel_decided(MPIR_Request * sreq, int cancelled)
{
    MPIR_STATUS_SET_CANCEL_BIT(sreq->status, cancelled ? TRUE : FALSE);
    if (cancelled && sreq->ch.is_pending) {
        /* The send_done that will not come. */
        sreq->ch.is_pending = FALSE;
        sreq->ch.operation = 0;
        MPIDI_CH3I_End_walk(sreq);
        MPIDI_CH3U_Request_dec_cc(sreq);
    }
    return MPID_Request_complete(sreq);
}

static int offload_cancel_send(MPIDI_VC_t * vc, MPIR_Request * sreq)
{
    int mpi_errno = MPI_SUCCESS;
    int was_incomplete;
    int progressed;
    ch3_offload_match_t match;

    MPIDI_CH3U_Request_increment_cc(sreq, &was_incomplete);
    if (!was_incomplete)
        MPIR_Request_add_ref(sreq);

    if (unlikely(vc->ch.peer_failed)) {
        mpi_errno = cancel_decided(sreq, FALSE);
        goto fn_exit;
    }
    /* A request's context id has as few bits as it needs, and may have a sign. */
    match = MPIDI_CH3I_Match(sreq->dev.match.parts.context_id & ((1 << MPIR_CONTEXT_ID_BITS) - 1),
                             sreq->comm->rank, sreq->dev.match.parts.tag);
    progressed = ch3_offload_cancel_send(MPIDI_CH3I_channel, sreq->ch.is_pending ? sreq->ch.operation : 0,
                                         MPIDI_CH3I_Peer(vc), match, sreq->handle, sreq);
    if (progressed != CH3_OFFLOAD_PENDING) {
        mpi_errno = cancel_decided(sreq, progressed == CH3_OFFLOAD_DONE);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Cancel_done(MPIR_Request * sreq, int cancelled)
{
    MPIDI_CH3I_Defer_error(cancel_decided(sreq, cancelled));
}

void MPIDI_CH3I_Send_finalize(void)
{
    if (spare_sreq != NULL) {
        MPIR_Request_free(spare_sreq);
        spare_sreq = NULL;
    }
}

/* What is NULL ends in one of the others or in the receive queue, whatever the peer. */
MPIDI_Comm_ops_t MPIDI_CH3I_comm_ops = {
    .send = offload_send,
    .rsend = offload_rsend,
    .ssend = offload_ssend,
    .isend = offload_isend,
    .irsend = offload_irsend,
    .issend = offload_issend,
    .cancel_send = offload_cancel_send,
    .imrecv = MPIDI_CH3I_Imrecv,
};
