/*
 * The ch3:offload channel: processes of other MPI worlds (MPI_Comm_spawn, MPI_Comm_connect, MPI_Comm_accept).
 *
 * What MPI asks for, CH3 does (ch3u_port.c): two roots connect, exchange the process groups of their
 * communicators, and each side makes virtual connections to the processes of the other. What it needs of the
 * channel is here.
 *
 * Names. A process of another world is reached by its name, which ch3_offload_find() turns into a number. The
 * processes of a communicator tell each other their names before it is connected, and CH3's description of
 * a process group, which the roots exchange, has them in place of business cards ("-": not known). The groups
 * of MPI_Intercomm_create tell each other theirs. A process gets its number when something is sent to it.
 *
 * Roots. Two roots that connect have a virtual connection of its own, without a process group. Its packets go
 * in the stream of packets between the two processes, each behind a root_header_t that names the connection.
 *
 *   connector   ── CONNECT, tag of the port ──▶   acceptor: a new connection, in the port's queue
 *               ◀── CONN_ACK, ACCEPT_ACK, CLOSE ──▶
 */

#include "ch3_worlds.h"
#include "mpid_port.h"
#include "utlist.h"

#define MESSAGE_BYTES 512
#define NAME_KEY "name"
#define NO_NAME "-"

/* A process with a number behind those of this world. */
typedef struct foreign {
    struct foreign *next;
    uint32_t peer;
    MPIDI_VC_t *vc;             /* NULL: not known, or closed */
    char *held;                 /* of its packets: what came before its process group was known */
    size_t held_bytes;
    char *kept;                 /* root packets behind the parts of another packet; before each, its length */
    size_t kept_bytes;
    int last_closes;            /* of its farewells that were answered here: what has not come yet */
} foreign_t;

struct MPIDI_CH3I_Root {
    struct MPIDI_CH3I_Root *next;
    struct MPIDI_CH3I_Root *prev;
    MPIDI_VC_t *vc;
    uint32_t connection;        /* the connector's number of it */
    int is_connector;
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

int MPIDI_CH3I_knows_others = FALSE;

static foreign_t *foreigners = NULL;    /* the one that was looked for last comes first */
static MPIDI_CH3I_Root_t *roots = NULL;
static uint32_t connections = 0;
static int (*stock_open_port) (MPIR_Info *, char *);
static int (*stock_accept) (const char *, MPIR_Info *, int, MPIR_Comm *, MPIR_Comm **);
static int (*stock_connect) (const char *, MPIR_Info *, int, MPIR_Comm *, MPIR_Comm **);

/* ---- names and process groups ---- */

static char *name_in(MPIDI_PG_t * pg, int rank)
{
    return pg->ch.names + (size_t) rank * CH3_OFFLOAD_NAME_BYTES;
}

static int learn_name(MPIDI_PG_t * pg, int rank, const char *name)
{
    int mpi_errno = MPI_SUCCESS;

    if (pg->ch.names == NULL) {
        pg->ch.names = MPL_calloc(pg->size, CH3_OFFLOAD_NAME_BYTES, MPL_MEM_DYNAMIC);
        MPIR_ERR_CHKANDJUMP(pg->ch.names == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    }
    MPL_strncpy(name_in(pg, rank), name, CH3_OFFLOAD_NAME_BYTES);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* As connInfoToString: the group's name, its size, and the names of its processes. */
static int group_to_string(char **text, int *length, MPIDI_PG_t * pg)
{
    int mpi_errno = MPI_SUCCESS;
    const size_t id_bytes = strlen(pg->id) + 1;
    size_t end;
    int rank;

    *text = MPL_malloc(id_bytes + 16 + (size_t) pg->size * CH3_OFFLOAD_NAME_BYTES, MPL_MEM_DYNAMIC);
    MPIR_ERR_CHKANDJUMP(*text == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    MPIR_Memcpy(*text, pg->id, id_bytes);
    end = id_bytes + snprintf(*text + id_bytes, 16, "%d", pg->size) + 1;
    for (rank = 0; rank < pg->size; rank++) {
        const int is_known = pg->ch.names != NULL && name_in(pg, rank)[0] != '\0';
        const char *name = is_known ? name_in(pg, rank) : NO_NAME;

        MPIR_Memcpy(*text + end, name, strlen(name) + 1);
        end += strlen(name) + 1;
    }
    *length = (int) end;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* CH3's finds or makes the group. One that is here may learn more names. */
int MPIDI_CH3I_PG_from_string(const char *text, MPIDI_PG_t ** pg, int *is_new)
{
    int mpi_errno = MPIDI_CH3I_Stock_pg_from_string(text, pg, is_new);
    const char *name = text;
    int rank;

    MPIR_ERR_CHECK(mpi_errno);
    (*pg)->connInfoToString = group_to_string;
    MPIDI_CH3I_knows_others |= *pg != MPIDI_Process.my_pg;
    name += strlen(name) + 1;   /* the group's */
    name += strlen(name) + 1;   /* its size */
    for (rank = 0; rank < (*pg)->size; rank++, name += strlen(name) + 1) {
        if (strcmp(name, NO_NAME) == 0)
            continue;
        mpi_errno = learn_name(*pg, rank, name);
        MPIR_ERR_CHECK(mpi_errno);
    }
    MPIDI_CH3I_Take_held();

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3_PG_Init(MPIDI_PG_t * pg)
{
    pg->ch.names = NULL;
    return MPI_SUCCESS;
}

/* In place of MPIDI_CH3_PG_Destroy (mpidi_ch3_post.h). */
int MPIDI_CH3I_PG_destroy(struct MPIDI_PG *pg, struct MPIDI_PG **world)
{
    if (*world == pg)
        *world = NULL;
    MPL_free(pg->ch.names);
    pg->ch.names = NULL;
    return MPI_SUCCESS;
}

static const char *nth_name(const char *names, int n)
{
    return names + (size_t) n * CH3_OFFLOAD_NAME_BYTES;
}

/* Collective. From now on all processes of comm can be found by others, and know each other's names. `names`:
 * where they are written, in the order of the ranks. */
static int gather_names(MPIR_Comm * comm, char *names)
{
    int mpi_errno = MPI_SUCCESS, coll_errno;
    char message[MESSAGE_BYTES];
    int rank;

    memset(names, 0, (size_t) comm->local_size * CH3_OFFLOAD_NAME_BYTES);
    /* Who has none says so by an empty one, for the others wait for it. */
    if (ch3_offload_name(MPIDI_CH3I_channel, names + (size_t) comm->rank * CH3_OFFLOAD_NAME_BYTES, message,
                         sizeof(message)) != 0)
        MPIR_ERR_SET1(mpi_errno, MPI_ERR_OTHER, "**ch3|offload|worlds", "**ch3|offload|worlds %s", message);
    coll_errno = MPIDI_CH3I_Allgather(names, CH3_OFFLOAD_NAME_BYTES, MPI_CHAR, comm);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = coll_errno;
    MPIR_ERR_CHECK(mpi_errno);
    for (rank = 0; rank < comm->local_size; rank++) {
        MPIDI_VC_t *vc = comm->dev.vcrt->vcr_table[rank];

        MPIR_ERR_CHKANDJUMP1(nth_name(names, rank)[0] == '\0', mpi_errno, MPI_ERR_OTHER,
                             "**ch3|offload|worlds", "**ch3|offload|worlds %s",
                             "another process of the communicator has said why");
        mpi_errno = learn_name(vc->pg, vc->pg_rank, nth_name(names, rank));
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int share_names(MPIR_Comm * comm)
{
    int mpi_errno = MPI_SUCCESS;
    char *names;
    MPIR_CHKLMEM_DECL(1);

    MPIR_CHKLMEM_MALLOC(names, char *, (size_t) comm->local_size * CH3_OFFLOAD_NAME_BYTES, mpi_errno, "names",
                        MPL_MEM_DYNAMIC);
    mpi_errno = gather_names(comm, names);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- MPI_Intercomm_create ---- */

/* The process with that number of MPICH's; both sides of a new communicator know it. */
static MPIDI_VC_t *find_by_lpid(uint64_t lpid)
{
    MPIDI_PG_iterator iterator;
    MPIDI_PG_t *pg;
    int rank;

    MPIDI_PG_Get_iterator(&iterator);
    while (MPIDI_PG_Has_next(&iterator)) {
        MPIDI_PG_Get_next(&iterator, &pg);
        for (rank = 0; rank < pg->size; rank++)
            if ((uint64_t) pg->vct[rank].lpid == lpid)
                return &pg->vct[rank];
    }
    MPIR_Assert(0);
    return NULL;
}

/* Whether those of the two groups are all of one world: the same answer on both sides. */
static int are_of_one_world(MPIR_Comm * comm, const uint64_t * lpids, int count)
{
    const MPIDI_PG_t *world = comm->dev.vcrt->vcr_table[0]->pg;
    int i;

    if (world == MPIDI_Process.my_pg && world->next == NULL)    /* no other is known */
        return TRUE;
    for (i = 0; i < comm->local_size; i++)
        if (comm->dev.vcrt->vcr_table[i]->pg != world)
            return FALSE;
    for (i = 0; i < count; i++)
        if (find_by_lpid(lpids[i])->pg != world)
            return FALSE;
    return TRUE;
}

/* CH3's finds the processes of the other group. The groups exchange their names: some of their processes may
 * never have met. CH3 compares numbers that each process has for itself to say which group is the low one, so
 * that both may be: the names are the same on both sides. */
int MPIDI_CH3I_Intercomm_exchange_map(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm, int remote_leader,
                                      int *remote_size, uint64_t ** remote_lpids, int *is_low_group)
{
    enum { TAG = 0 };
    MPIR_Errflag_t flag ATTRIBUTE((unused)) = MPIR_ERR_NONE;
    char *names = NULL, *theirs = NULL;
    int i;
    MPIR_CHKLMEM_DECL(2);
    int mpi_errno = MPIDI_CH3I_Stock_intercomm_exchange_map(comm, leader, peer_comm, remote_leader,
                                                            remote_size, remote_lpids, is_low_group);

    MPIR_ERR_CHECK(mpi_errno);
    if (are_of_one_world(comm, *remote_lpids, *remote_size))
        goto fn_exit;
    MPIR_CHKLMEM_MALLOC(names, char *, (size_t) comm->local_size * CH3_OFFLOAD_NAME_BYTES, mpi_errno, "names",
                        MPL_MEM_DYNAMIC);
    MPIR_CHKLMEM_MALLOC(theirs, char *, (size_t) * remote_size * CH3_OFFLOAD_NAME_BYTES, mpi_errno, "theirs",
                        MPL_MEM_DYNAMIC);
    mpi_errno = gather_names(comm, names);
    MPIR_ERR_CHECK(mpi_errno);
    if (comm->rank == leader) {
        mpi_errno = MPIC_Sendrecv(names, comm->local_size * CH3_OFFLOAD_NAME_BYTES, MPI_CHAR, remote_leader,
                                  TAG | MPIR_TAG_COLL_BIT, theirs, *remote_size * CH3_OFFLOAD_NAME_BYTES,
                                  MPI_CHAR, remote_leader, TAG | MPIR_TAG_COLL_BIT, peer_comm,
                                  MPI_STATUS_IGNORE, MPIDI_CH3I_ERRFLAG_ARG(flag));
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = MPIDI_CH3I_Bcast(theirs, (MPI_Aint) * remote_size * CH3_OFFLOAD_NAME_BYTES, MPI_CHAR, leader,
                                 comm);
    MPIR_ERR_CHECK(mpi_errno);
    for (i = 0; i < *remote_size; i++) {
        MPIDI_VC_t *vc = find_by_lpid((*remote_lpids)[i]);

        mpi_errno = learn_name(vc->pg, vc->pg_rank, nth_name(theirs, i));
        MPIR_ERR_CHECK(mpi_errno);
    }
    MPIDI_CH3I_Take_held();
    *is_low_group = strcmp(names, theirs) < 0;

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Is_of_one_world(MPIR_Comm * comm)
{
    MPIDI_VC_t *vc;
    int rank;

    for (rank = 0; rank < comm->local_size; rank++) {
        MPIDI_Comm_get_vc(comm, rank, &vc);
        if (vc->pg != MPIDI_Process.my_pg)
            return FALSE;
    }
    return TRUE;
}

/* Each world numbers its nodes for itself, and worlds share no memory: of a node, the processes of each are
 * apart. */
int MPIDI_CH3I_Split_by_node(MPIDI_CH3I_Split_t * stock, MPIR_Comm * comm, int key, MPIR_Comm ** newcomm)
{
    const MPIDI_PG_t *own = MPIDI_Process.my_pg;
    const int node = own->vct[MPIDI_Process.my_pg_rank].node_id;
    MPIDI_VC_t *vc;
    int color;

    if (!MPIDI_CH3I_knows_others || comm->comm_kind != MPIR_COMM_KIND__INTRACOMM ||
        MPIDI_CH3I_Is_of_one_world(comm))
        return stock(comm, key, newcomm);
    for (color = 0;; color++) {
        MPIDI_Comm_get_vc(comm, color, &vc);
        if (vc->pg == own && vc->node_id == node)       /* at the latest this process */
            return MPIR_Comm_split_impl(comm, color, key, newcomm);
    }
}

/* ---- ports ---- */

static int open_port(MPIR_Info * info, char *port_name)
{
    int mpi_errno = MPI_SUCCESS;
    char name[CH3_OFFLOAD_NAME_BYTES], message[MESSAGE_BYTES];

    MPIR_ERR_CHKANDJUMP1(ch3_offload_name(MPIDI_CH3I_channel, name, message, sizeof(message)) != 0, mpi_errno,
                         MPI_ERR_OTHER, "**ch3|offload|worlds", "**ch3|offload|worlds %s", message);
    mpi_errno = stock_open_port(info, port_name);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int comm_accept(const char *port_name, MPIR_Info * info, int root, MPIR_Comm * comm,
                       MPIR_Comm ** newcomm)
{
    int mpi_errno = share_names(comm);

    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = stock_accept(port_name, info, root, comm, newcomm);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

static int comm_connect(const char *port_name, MPIR_Info * info, int root, MPIR_Comm * comm,
                        MPIR_Comm ** newcomm)
{
    int mpi_errno = share_names(comm);

    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = stock_connect(port_name, info, root, comm, newcomm);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3_PortFnsInit(MPIDI_PortFns * port_fns)
{
    stock_open_port = port_fns->OpenPort;
    stock_accept = port_fns->CommAccept;
    stock_connect = port_fns->CommConnect;
    port_fns->OpenPort = open_port;
    port_fns->CommAccept = comm_accept;
    port_fns->CommConnect = comm_connect;
    return MPI_SUCCESS;
}

/* Nobody is spawned who could not be met, and all processes of comm hear of it. */
int MPIDI_CH3I_Comm_spawn(int count, char **commands, char ***argvs, const int *maxprocs, MPIR_Info ** infos,
                          int root, MPIR_Comm * comm, MPIR_Comm ** intercomm, int *errcodes)
{
    int mpi_errno = share_names(comm);

    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIDI_CH3I_Stock_comm_spawn(count, commands, argvs, maxprocs, infos, root, comm, intercomm,
                                            errcodes);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* What MPI_Open_port puts into the name of a port. */
int MPIDI_CH3_Get_business_card(int my_rank ATTRIBUTE((unused)), char *value, int length)
{
    int mpi_errno = MPI_SUCCESS;
    char name[CH3_OFFLOAD_NAME_BYTES], message[MESSAGE_BYTES];

    MPIR_ERR_CHKANDJUMP1(ch3_offload_name(MPIDI_CH3I_channel, name, message, sizeof(message)) != 0 ||
                         MPL_str_add_string_arg(&value, &length, NAME_KEY, name) != MPL_SUCCESS, mpi_errno,
                         MPI_ERR_OTHER, "**ch3|offload|worlds", "**ch3|offload|worlds %s", message);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- numbers ---- */

static foreign_t *find_foreign(uint32_t peer)
{
    foreign_t **link;

    for (link = &foreigners; *link != NULL; link = &(*link)->next)
        if ((*link)->peer == peer) {
            foreign_t *found = *link;

            *link = found->next;
            found->next = foreigners;
            foreigners = found;
            return found;
        }
    return NULL;
}

/* NULL: no memory. */
static foreign_t *find_or_add(uint32_t peer)
{
    foreign_t *found = find_foreign(peer);

    if (found == NULL) {
        found = MPL_calloc(1, sizeof(*found), MPL_MEM_DYNAMIC);
        if (found == NULL)
            return NULL;
        found->peer = peer;
        found->next = foreigners;
        foreigners = found;
    }
    return found;
}

static void drop_foreign(uint32_t peer)
{
    foreign_t *found = find_foreign(peer);

    if (found == NULL)
        return;
    foreigners = found->next;   /* it was found last */
    MPL_free(found->held);
    MPL_free(found->kept);
    MPL_free(found);
}

/* From now on the number is the connection's. */
static void join(foreign_t * process, MPIDI_VC_t * vc)
{
    process->vc = vc;
    vc->ch.peer = process->peer;
    vc->ch.is_introduced = TRUE;
    vc->ch.lane = ch3_offload_lane(MPIDI_CH3I_channel, process->peer);
}

uint32_t MPIDI_CH3I_Find_peer(MPIDI_VC_t * vc)
{
    char message[MESSAGE_BYTES] = "it has no name";
    foreign_t *process = NULL;
    uint32_t peer;

    MPIR_Assert(vc->pg != NULL);
    if (vc->pg->ch.names != NULL && name_in(vc->pg, vc->pg_rank)[0] != '\0' &&
        ch3_offload_find(MPIDI_CH3I_channel, name_in(vc->pg, vc->pg_rank), &peer, message,
                         sizeof(message)) == 0) {
        process = find_or_add(peer);
        if (process == NULL)
            snprintf(message, sizeof(message), "out of memory");
    }
    if (process == NULL)
        MPID_Abort(NULL, MPI_ERR_OTHER, 1, message);
    join(process, vc);
    return peer;
}

/* The connection with the process of that name, if its group is known. A dead one may have had the name. */
static MPIDI_VC_t *find_by_name(const char *name)
{
    MPIDI_PG_iterator iterator;
    MPIDI_PG_t *pg;
    int rank;

    if (name[0] == '\0')
        return NULL;
    MPIDI_PG_Get_iterator(&iterator);
    while (MPIDI_PG_Has_next(&iterator)) {
        MPIDI_PG_Get_next(&iterator, &pg);
        if (pg == MPIDI_Process.my_pg || pg->ch.names == NULL)
            continue;
        for (rank = 0; rank < pg->size; rank++)
            if (!pg->vct[rank].ch.peer_failed && strcmp(name_in(pg, rank), name) == 0)
                return &pg->vct[rank];
    }
    return NULL;
}

MPIDI_VC_t *MPIDI_CH3I_Foreign_vc(uint32_t peer)
{
    char name[CH3_OFFLOAD_NAME_BYTES];
    foreign_t *process = find_foreign(peer);
    MPIDI_VC_t *vc;

    if (process != NULL && process->vc != NULL)
        return process->vc;
    ch3_offload_name_of(MPIDI_CH3I_channel, peer, name);
    vc = find_by_name(name);
    if (vc == NULL)
        return NULL;
    process = find_or_add(peer);
    if (process != NULL)
        join(process, vc);
    return process == NULL ? NULL : vc;
}

static int append(char **to, size_t * to_bytes, const void *bytes, size_t length)
{
    int mpi_errno = MPI_SUCCESS;
    char *longer = MPL_realloc(*to, *to_bytes + length, MPL_MEM_DYNAMIC);

    MPIR_ERR_CHKANDJUMP(longer == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    MPIR_Memcpy(longer + *to_bytes, bytes, length);
    *to = longer;
    *to_bytes += length;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Hold_packets(uint32_t peer, const void *bytes, size_t length)
{
    int mpi_errno = MPI_SUCCESS;
    foreign_t *process = find_or_add(peer);

    MPIR_ERR_CHKANDJUMP(process == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    mpi_errno = append(&process->held, &process->held_bytes, bytes, length);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Await_last_close(uint32_t peer)
{
    int mpi_errno = MPI_SUCCESS;
    foreign_t *process = find_or_add(peer);

    MPIR_ERR_CHKANDJUMP(process == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    process->last_closes++;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int MPIDI_CH3I_Is_last_close(uint32_t peer)
{
    foreign_t *process = find_foreign(peer);

    if (process == NULL || process->last_closes == 0)
        return FALSE;
    process->last_closes--;
    return TRUE;
}

int MPIDI_CH3I_Holds_packets(uint32_t peer)
{
    foreign_t *process = find_foreign(peer);

    return process != NULL && process->held != NULL;
}

void MPIDI_CH3I_Take_held(void)
{
    foreign_t *process, *next;

    /* What is taken may change the list, and who is looked for becomes its first. */
    for (process = foreigners; process != NULL;) {
        next = process->next;
        if (process->held != NULL && MPIDI_CH3I_Foreign_vc(process->peer) != NULL) {
            char *held = process->held;
            const size_t held_bytes = process->held_bytes;

            process->held = NULL;
            process->held_bytes = 0;
            MPIDI_CH3I_Packet_recv(process->peer, held, held_bytes);
            MPL_free(held);
            process = foreigners;
        } else {
            process = next;
        }
    }
}

void MPIDI_CH3I_Leave_peer(MPIDI_VC_t * vc)
{
    foreign_t *process = find_foreign(vc->ch.peer);

    if (process != NULL && process->vc == vc)
        process->vc = NULL;
    vc->ch.peer = MPIDI_CH3I_NO_PEER;
    vc->ch.is_introduced = FALSE;
    vc->ch.lane = NULL;
}

/* ---- the connection of two roots ---- */

static MPIDI_VC_t *make_root(uint32_t peer, uint32_t connection, int is_connector)
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
    MPIR_ERR_CHKANDJUMP1(MPL_str_get_string_arg(port_name, NAME_KEY, name, sizeof(name)) != MPL_SUCCESS ||
                         ch3_offload_find(MPIDI_CH3I_channel, name, &peer, message, sizeof(message)) != 0,
                         mpi_errno, MPI_ERR_PORT, "**ch3|offload|worlds", "**ch3|offload|worlds %s", message);
    MPIR_ERR_CHKANDJUMP1(peer == (uint32_t) MPIR_Process.rank, mpi_errno, MPI_ERR_PORT,
                         "**ch3|offload|worlds", "**ch3|offload|worlds %s",
                         "a process cannot connect to a port of its own");
    *new_vc = make_root(peer, header.connection, TRUE);
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
    const foreign_t *process = find_foreign(vc->ch.peer);

    return process != NULL && (process->kept_bytes > 0 ||
                               (process->vc != NULL && process->vc->ch.send_active != NULL));
}

int MPIDI_CH3I_Keep_root_packet(const MPIDI_VC_t * vc, const void *bytes, size_t length)
{
    int mpi_errno = MPI_SUCCESS;
    foreign_t *process = find_foreign(vc->ch.peer);
    char record[sizeof(length) + MPIDI_CH3I_ROOT_BYTES + sizeof(MPIDI_CH3_Pkt_t)];

    MPIR_Assert(length <= sizeof(record) - sizeof(length));
    MPIR_Memcpy(record, &length, sizeof(length));
    MPIR_Memcpy(record + sizeof(length), bytes, length);
    mpi_errno = append(&process->kept, &process->kept_bytes, record, sizeof(length) + length);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* If the process is dead, its roots hear of it from the engine. */
void MPIDI_CH3I_Send_root_packets(uint32_t peer)
{
    foreign_t *process = find_foreign(peer);
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
        *vc = make_root(peer, header.connection, FALSE);
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
        MPIDI_CH3U_Complete_posted_with_error(vc);
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

/* ---- ends ---- */

/* The process manager tells nothing of the processes of other worlds. Whoever has a connection with one
 * notices its end. */
static void watch(MPIDI_VC_t * vc)
{
    const root_header_t greeting = { ROOT_TYPE, 0, 0, GREETING };
    int status;

    if (vc->ch.peer != MPIDI_CH3I_NO_PEER || vc->ch.peer_failed)
        return;
    /* If the process is dead, an event says so, also if one has said it before. */
    ch3_offload_send_packet(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc), &greeting, sizeof(greeting), NULL, 0,
                            NULL, &status);
}

void MPIDI_CH3I_Watch(MPIR_Comm * comm, int source)
{
    MPIDI_VC_t *vc;
    int rank;

    if (comm->dev.ch.is_watched)
        return;
    if (source != MPI_ANY_SOURCE) {
        MPIDI_Comm_get_vc(comm, source, &vc);
        watch(vc);
        return;
    }
    comm->dev.ch.is_watched = TRUE;
    for (rank = 0; rank < comm->remote_size; rank++) {
        MPIDI_Comm_get_vc(comm, rank, &vc);
        watch(vc);
    }
}

int MPIDI_CH3I_Foreign_failed(uint32_t peer, int status)
{
    int mpi_errno = MPI_SUCCESS;
    foreign_t *process = find_foreign(peer);
    MPIDI_VC_t *vc = process == NULL ? NULL : process->vc;
    MPIDI_CH3I_Root_t *root, *next;

    drop_foreign(peer);
    DL_FOREACH_SAFE(roots, root, next) {
        if (root->vc->ch.peer == peer) {
            mpi_errno = break_root(root->vc);
            MPIR_ERR_CHECK(mpi_errno);
        }
    }
    if (vc == NULL || vc->ch.peer_failed)
        goto fn_exit;
    /* Of one to which no communicator leads, nobody has to know, unless it is being closed. */
    if (MPIR_Object_get_ref(vc) == 0 && vc->state == MPIDI_VC_STATE_INACTIVE) {
        MPIDI_CH3I_Leave_peer(vc);
        goto fn_exit;
    }
    mpi_errno = MPIDI_CH3I_Connection_broken(vc, status);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The connection is freed. The channel may be gone. */
void MPIDI_CH3I_Forget_vc(MPIDI_VC_t * vc)
{
    foreign_t *process;

    for (process = foreigners; process != NULL; process = process->next)
        if (process->vc == vc)
            process->vc = NULL;
    if (vc->ch.root != NULL) {
        DL_DELETE(roots, vc->ch.root);
        MPL_free(vc->ch.root);
        vc->ch.root = NULL;
    }
}

void MPIDI_CH3I_Worlds_init(MPIDI_PG_t * own)
{
    int rank;

    MPIDI_CH3I_knows_others = FALSE;
    own->connInfoToString = group_to_string;
    for (rank = 0; rank < own->size; rank++)
        own->vct[rank].ch.peer = (uint32_t) rank;
}

void MPIDI_CH3I_Worlds_finalize(void)
{
    while (foreigners != NULL)
        drop_foreign(foreigners->peer);
}
