/*
 * The ch3:offload channel: the connection of two roots that connect (MPI_Comm_connect, MPI_Comm_accept).
 *
 * Two roots that connect have a virtual connection of its own, without a process group. Its packets go
 * in the stream of packets between the two processes, each behind a root_header_t that names the connection.
 *
 *   connector   ── CONNECT, tag of the port ──▶   acceptor: a new connection, in the port's queue
 *               ◀── CONN_ACK, ACCEPT_ACK, CLOSE ──▶
 */

#include "ch3_foreign.h"
#include "mpid_port.h"
#include "utlist.h"

#define MESSAGE_BYTES 512

struct MPIDI_CH3I_Root {
    struct MPIDI_CH3I_Root *next;
    struct MPIDI_CH3I_Root *prev;
    MPIDI_VC_t *vc;
    uint32_t connection;        /* the connector's number of it */
    int is_connector;
    int port_tag;
};

enum { CONNECT, TO_ACCEPTOR, TO_CONNECTOR, GREETING };

/* In front of each packet between roots, and in place of the first. */
typedef struct {
    int32_t type;               /* ROOT_TYPE */
    uint32_t connection;
    int32_t port_tag;
    int32_t kind;
} root_header_t;

#define ROOT_TYPE (MPIDI_CH3_PKT_END_ALL + 1)

static MPIDI_CH3I_Root_t *roots = NULL;
static uint32_t connections = 0;

static MPIDI_VC_t *make_root(uint32_t peer, uint32_t connection, int is_connector, int port_tag)
{
    MPIDI_CH3I_Root_t *root = MPL_calloc(1, sizeof(*root), MPL_MEM_DYNAMIC);
    MPIDI_VC_t *vc = MPL_malloc(sizeof(*vc), MPL_MEM_DYNAMIC);

    if (root == NULL || vc == NULL) {
        MPL_free(root);
        MPL_free(vc);
        return NULL;
    }
    MPIDI_VC_Init(vc, NULL, 0);
    MPIDI_CHANGE_VC_STATE(vc, ACTIVE);
    vc->connreq_obj = NULL;
    root->vc = vc;
    root->connection = connection;
    root->is_connector = is_connector;
    root->port_tag = port_tag;
    vc->ch.peer = peer;
    vc->ch.is_introduced = TRUE;
    vc->ch.root = root;
    DL_APPEND(roots, root);
    return vc;
}

static MPIDI_VC_t *find_root(uint32_t peer, uint32_t connection, int is_connector)
{
    MPIDI_CH3I_Root_t *root;

    DL_FOREACH(roots, root)
        if (root->vc->ch.peer == peer && root->connection == connection && root->is_connector == is_connector)
            return root->vc;
    return NULL;
}

int MPIDI_CH3_Connect_to_root(const char *port_name, MPIDI_VC_t ** new_vc)
{
    int mpi_errno = MPI_SUCCESS;
    char name[CH3_OFFLOAD_NAME_BYTES] = "", message[MESSAGE_BYTES] = "the port's name has no process";
    root_header_t header = { ROOT_TYPE, ++connections, 0, CONNECT };
    int status = CH3_OFFLOAD_OK;
    uint32_t peer;

    *new_vc = NULL;
    mpi_errno = MPIDI_GetTagFromPort(port_name, &header.port_tag);
    MPIR_ERR_CHECK(mpi_errno);
    MPIR_ERR_CHKANDJUMP1(MPL_str_get_string_arg(port_name, MPIDI_CH3I_NAME_KEY, name, sizeof(name)) !=
                         MPL_SUCCESS ||
                         ch3_offload_find(MPIDI_CH3I_channel, name, &peer, message, sizeof(message)) != 0,
                         mpi_errno, MPI_ERR_PORT, "**ch3|offload|worlds", "**ch3|offload|worlds %s", message);
    MPIR_ERR_CHKANDJUMP1(peer == (uint32_t) MPIR_Process.rank, mpi_errno, MPI_ERR_PORT,
                         "**ch3|offload|worlds", "**ch3|offload|worlds %s",
                         "a process cannot connect to a port of its own");
    *new_vc = make_root(peer, header.connection, TRUE, header.port_tag);
    MPIR_ERR_CHKANDJUMP(*new_vc == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    if (MPIDI_CH3I_Must_root_wait(*new_vc)) {
        mpi_errno = MPIDI_CH3I_Keep_root_packet(*new_vc, &header, sizeof(header));
        MPIR_ERR_CHECK(mpi_errno);
    } else if (ch3_offload_send_packet(MPIDI_CH3I_channel, peer, &header, sizeof(header), NULL, 0, NULL,
                                       &status) == CH3_OFFLOAD_ERROR) {
        MPIDI_CH3_VC_Destroy(*new_vc);
        MPL_free(*new_vc);
        *new_vc = NULL;
        mpi_errno = MPIDI_CH3I_Error(status, 0);
        MPIR_ERR_SETANDJUMP(mpi_errno, MPI_ERR_PORT, "**ch3|portclose");
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Must_root_wait(const MPIDI_VC_t * vc)
{
    const MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(vc->ch.peer);

    return process != NULL && (process->kept_bytes > 0 ||
                               (process->vc != NULL && process->vc->ch.send_active != NULL));
}

int MPIDI_CH3I_Keep_root_packet(const MPIDI_VC_t * vc, const void *bytes, size_t length)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(vc->ch.peer);
    char record[sizeof(length) + MPIDI_CH3I_ROOT_BYTES + sizeof(MPIDI_CH3_Pkt_t)];

    MPIR_Assert(length <= sizeof(record) - sizeof(length));
    MPIR_Memcpy(record, &length, sizeof(length));
    MPIR_Memcpy(record + sizeof(length), bytes, length);
    mpi_errno = MPIDI_CH3I_Append(&process->kept, &process->kept_bytes, record, sizeof(length) + length);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* If the process is dead, its roots hear of it from the engine. */
void MPIDI_CH3I_Send_root_packets(uint32_t peer)
{
    MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(peer);
    int status = CH3_OFFLOAD_OK;
    size_t at, length;

    if (process == NULL || process->kept_bytes == 0)
        return;
    for (at = 0; at < process->kept_bytes && status == CH3_OFFLOAD_OK; at += length) {
        MPIR_Memcpy(&length, process->kept + at, sizeof(length));
        at += sizeof(length);
        ch3_offload_send_packet(MPIDI_CH3I_channel, peer, process->kept + at, length, NULL, 0, NULL, &status);
    }
    if (status != CH3_OFFLOAD_OK && status != CH3_OFFLOAD_PEER_FAILED)
        ch3_offload_fail_peer(MPIDI_CH3I_channel, peer);        /* they would wait for what is lost */
    MPL_free(process->kept);
    process->kept = NULL;
    process->kept_bytes = 0;
}

size_t MPIDI_CH3I_Put_root(const MPIDI_VC_t * vc, void *to)
{
    const MPIDI_CH3I_Root_t *root = vc->ch.root;
    root_header_t header = { ROOT_TYPE, 0, 0, TO_ACCEPTOR };

    if (likely(root == NULL))
        return 0;
    MPL_COMPILE_TIME_ASSERT(sizeof(header) == MPIDI_CH3I_ROOT_BYTES);
    header.connection = root->connection;
    if (!root->is_connector)
        header.kind = TO_CONNECTOR;
    MPIR_Memcpy(to, &header, sizeof(header));
    return sizeof(header);
}

int MPIDI_CH3I_Take_root(uint32_t peer, const void *bytes, size_t length, MPIDI_VC_t ** vc, int *has_packet)
{
    int mpi_errno = MPI_SUCCESS;
    root_header_t header;

    *vc = NULL;
    *has_packet = FALSE;
    MPIR_ERR_CHKANDJUMP1(length < sizeof(header), mpi_errno, MPI_ERR_INTERN, "**intern", "**intern %s",
                         "a packet between roots is cut");
    MPIR_Memcpy(&header, bytes, sizeof(header));
    if (header.kind == GREETING)
        goto fn_exit;
    if (header.kind == CONNECT) {
        *vc = make_root(peer, header.connection, FALSE, header.port_tag);
        MPIR_ERR_CHKANDJUMP(*vc == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
        mpi_errno = MPIDI_CH3I_Acceptq_enqueue(*vc, header.port_tag);
        MPIR_ERR_CHECK(mpi_errno);
    } else {
        *vc = find_root(peer, header.connection, header.kind == TO_CONNECTOR);
        *has_packet = TRUE;
        MPIR_ERR_CHKANDJUMP1(*vc == NULL, mpi_errno, MPI_ERR_INTERN, "**intern", "**intern %s",
                             "a packet between roots that are not connected");
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Is_root(const void *bytes, size_t length)
{
    int32_t type;

    if (length < sizeof(type))
        return FALSE;
    MPIR_Memcpy(&type, bytes, sizeof(type));
    return type == ROOT_TYPE;
}

/* CH3 frees such a connection only when it is inactive: once it is closed, in good order or not. */
static int end_root(MPIDI_VC_t * vc)
{
    int mpi_errno = MPIDI_CH3U_Handle_connection(vc, MPIDI_VC_EVENT_TERMINATED);

    MPIDI_CHANGE_VC_STATE(vc, INACTIVE);
    MPIDI_CH3_Progress_signal_completion();
    return mpi_errno;
}

/* What CH3 has of the connection until a communicator is made over it. NULL: that has been done. */
static MPIDI_CH3I_Port_connreq_t *request_of(MPIDI_VC_t * vc)
{
    return MPIR_Object_get_ref(vc) == 0 ? vc->connreq_obj : NULL;
}

/* Fails what is awaited of the other root. CH3 makes a communicator for the two, which MPICH 5.0 has in no
 * list. */
static void fail_receives_from(MPIDI_VC_t * vc)
{
#if MPIDI_CH3I_MPICH_IS(5, 0)
    int context_id = vc->ch.root->port_tag << MPIR_CONTEXT_PREFIX_SHIFT;

    if (MPIR_Object_get_ref(vc) > 0)
        MPIDI_CH3I_Fail_receives(MPIR_CONTEXT_SET_FIELD(DYNAMIC_PROC, context_id, 1), 0);
#else
    MPIDI_CH3U_Complete_posted_with_error(vc);
#endif
}

/* The other root is dead. Who waits for it in MPI_Comm_connect, MPI_Comm_accept or, after a connect that has
 * timed out, in MPI_Finalize must not. */
static int break_root(MPIDI_VC_t * vc)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_CH3I_Port_connreq_t *request = request_of(vc);

    if (vc->ch.peer_failed)
        return MPI_SUCCESS;
    vc->ch.peer_failed = TRUE;
    if (vc->state == MPIDI_VC_STATE_LOCAL_CLOSE || vc->state == MPIDI_VC_STATE_CLOSE_ACKED) {
        mpi_errno = end_root(vc);
        MPIR_ERR_CHECK(mpi_errno);
    } else {
        fail_receives_from(vc);
        if (request != NULL && request->stat == MPIDI_CH3I_PORT_CONNREQ_INITED && vc->ch.root->is_connector)
            MPIDI_CH3I_PORT_CONNREQ_SET_STAT(request, ERR_CLOSE);
        if (request != NULL && (request->stat == MPIDI_CH3I_PORT_CONNREQ_ACCEPT ||
                                request->stat == MPIDI_CH3I_PORT_CONNREQ_REVOKE)) {
            MPIDI_CH3I_PORT_CONNREQ_SET_STAT(request, FREE);
            mpi_errno = MPIDI_CH3I_Port_local_close_vc(vc);
            MPIR_ERR_CHECK(mpi_errno);
        }
    }
    MPIDI_CH3_Progress_signal_completion();

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Drop_root_packet(MPIDI_VC_t * vc, const MPIDI_CH3_Pkt_t * pkt)
{
    int mpi_errno = break_root(vc);
    MPIDI_CH3I_Port_connreq_t *request = request_of(vc);

    MPIR_ERR_CHECK(mpi_errno);
    if (pkt->type == MPIDI_CH3_PKT_CLOSE) {
        if (vc->state != MPIDI_VC_STATE_INACTIVE)
            mpi_errno = end_root(vc);
    } else if (pkt->type == MPIDI_CH3_PKT_CONN_ACK && pkt->conn_ack.ack && request != NULL) {
        MPIDI_CH3I_PORT_CONNREQ_SET_STAT(request, FREE);        /* MPI_Comm_accept takes the next */
        mpi_errno = MPIDI_CH3I_Port_local_close_vc(vc);
    }
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Greet(uint32_t peer)
{
    const root_header_t greeting = { ROOT_TYPE, 0, 0, GREETING };
    int status;

    ch3_offload_send_packet(MPIDI_CH3I_channel, peer, &greeting, sizeof(greeting), NULL, 0, NULL, &status);
}

int MPIDI_CH3I_Break_roots(uint32_t peer)
{
    int mpi_errno = MPI_SUCCESS;
    MPIDI_CH3I_Root_t *root, *next;

    DL_FOREACH_SAFE(roots, root, next) {
        if (root->vc->ch.peer == peer) {
            mpi_errno = break_root(root->vc);
            MPIR_ERR_CHECK(mpi_errno);
        }
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Forget_root(MPIDI_VC_t * vc)
{
    if (vc->ch.root == NULL)
        return;
    DL_DELETE(roots, vc->ch.root);
    MPL_free(vc->ch.root);
    vc->ch.root = NULL;
}
