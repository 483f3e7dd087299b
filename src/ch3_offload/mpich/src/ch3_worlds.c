/*
 * The ch3:offload channel: processes of other MPI worlds (MPI_Comm_spawn, MPI_Comm_connect, MPI_Comm_accept).
 *
 * What MPI asks for, CH3 does (ch3u_port.c): two roots connect, exchange the process groups of their
 * communicators, and each side makes virtual connections to the processes of the other. What it needs of the
 * channel is here, in ch3_foreign.c (numbers) and in ch3_roots.c (the connection of two roots).
 *
 * Names. A process of another world is reached by its name, which ch3_offload_find() turns into a number. The
 * processes of a communicator tell each other their names before it is connected, and CH3's description of
 * a process group, which the roots exchange, has them in place of business cards ("-": not known). The groups
 * of MPI_Intercomm_create tell each other theirs. A process gets its number when something is sent to it.
 */

#include "ch3_foreign.h"

#define MESSAGE_BYTES 512
#define NO_NAME "-"

int MPIDI_CH3I_knows_others = FALSE;

static int (*stock_open_port) (MPIR_Info *, char *);
static int (*stock_accept) (const char *, MPIR_Info *, int, MPIR_Comm *, MPIR_Comm **);
static int (*stock_connect) (const char *, MPIR_Info *, int, MPIR_Comm *, MPIR_Comm **);

/* ---- names and process groups ---- */

static int learn_name(MPIDI_PG_t * pg, int rank, const char *name)
{
    int mpi_errno = MPI_SUCCESS;

    if (pg->ch.names == NULL) {
        pg->ch.names = MPL_calloc(pg->size, CH3_OFFLOAD_NAME_BYTES, MPL_MEM_DYNAMIC);
        MPIR_ERR_CHKANDJUMP(pg->ch.names == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    }
    MPL_strncpy(MPIDI_CH3I_Name_in(pg, rank), name, CH3_OFFLOAD_NAME_BYTES);

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
        const int is_known = pg->ch.names != NULL && MPIDI_CH3I_Name_in(pg, rank)[0] != '\0';
        const char *name = is_known ? MPIDI_CH3I_Name_in(pg, rank) : NO_NAME;

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
    coll_errno = MPIDI_CH3I_Allgather(names, CH3_OFFLOAD_NAME_BYTES, MPIR_CHAR_INTERNAL, comm);
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
    MPIDI_CH3I_CHKLMEM_DECL();

    MPIDI_CH3I_CHKLMEM_MALLOC(names, (size_t) comm->local_size * CH3_OFFLOAD_NAME_BYTES);
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
static MPIDI_VC_t *find_by_lpid(MPIR_Lpid lpid)
{
    MPIDI_PG_iterator iterator;
    MPIDI_PG_t *pg;
    int rank;

    MPIDI_PG_Get_iterator(&iterator);
    while (MPIDI_PG_Has_next(&iterator)) {
        MPIDI_PG_Get_next(&iterator, &pg);
        for (rank = 0; rank < pg->size; rank++)
            if ((MPIR_Lpid) pg->vct[rank].lpid == lpid)
                return &pg->vct[rank];
    }
    MPIR_Assert(0);
    return NULL;
}

/* Whether those of the two groups are all of one world: the same answer on both sides. */
static int are_of_one_world(MPIR_Comm * comm, const MPIR_Lpid * lpids, int count)
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

/* CH3 has found the processes of the other group, some of which may never have met some of this one: the
 * groups exchange their names. MPICH compares numbers that each process has for itself to say which group is
 * the low one, so that both may be: the names are the same on both sides. */
static int exchange_names(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm, int remote_leader, int tag,
                          int remote_size, const MPIR_Lpid * remote_lpids, int *is_low_group)
{
    MPIR_Errflag_t flag ATTRIBUTE((unused)) = MPIR_ERR_NONE;
    char *names = NULL, *theirs = NULL;
    int i, mpi_errno = MPI_SUCCESS;
    MPIDI_CH3I_CHKLMEM_DECL();

    if (are_of_one_world(comm, remote_lpids, remote_size)) {
        *is_low_group = (MPIR_Lpid) comm->dev.vcrt->vcr_table[0]->lpid < remote_lpids[0];
        goto fn_exit;
    }
    MPIDI_CH3I_CHKLMEM_MALLOC(names, (size_t) comm->local_size * CH3_OFFLOAD_NAME_BYTES);
    MPIDI_CH3I_CHKLMEM_MALLOC(theirs, (size_t) remote_size * CH3_OFFLOAD_NAME_BYTES);
    mpi_errno = gather_names(comm, names);
    MPIR_ERR_CHECK(mpi_errno);
    if (comm->rank == leader) {
        mpi_errno = MPIC_Sendrecv(names, comm->local_size * CH3_OFFLOAD_NAME_BYTES, MPIR_CHAR_INTERNAL,
                                  remote_leader, tag, theirs, remote_size * CH3_OFFLOAD_NAME_BYTES,
                                  MPIR_CHAR_INTERNAL, remote_leader, tag, peer_comm, MPI_STATUS_IGNORE,
                                  MPIDI_CH3I_ERRFLAG_ARG(flag));
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = MPIDI_CH3I_Bcast(theirs, (MPI_Aint) remote_size * CH3_OFFLOAD_NAME_BYTES, MPIR_CHAR_INTERNAL,
                                 leader, comm);
    MPIR_ERR_CHECK(mpi_errno);
    for (i = 0; i < remote_size; i++) {
        MPIDI_VC_t *vc = find_by_lpid(remote_lpids[i]);

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

#if MPIDI_CH3I_MPICH_IS(5, 0)
/* MPICH asks for it after each exchange, before anything else can happen. */
static int is_in_low_group;

int MPIDI_CH3I_Intercomm_exchange(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm, int remote_leader,
                                  int tag, int context_id, int *remote_context_id, int *remote_size,
                                  MPIR_Lpid ** remote_lpids, int timeout)
{
    int mpi_errno = MPIDI_CH3I_Stock_intercomm_exchange(comm, leader, peer_comm, remote_leader, tag,
                                                        context_id, remote_context_id, remote_size,
                                                        remote_lpids, timeout);

    return mpi_errno != MPI_SUCCESS ? mpi_errno :
        exchange_names(comm, leader, peer_comm, remote_leader, tag, *remote_size, *remote_lpids,
                       &is_in_low_group);
}

int MPIDI_CH3I_Determine_low_group(MPIR_Lpid remote_lpid ATTRIBUTE((unused)), bool * is_low_group)
{
    *is_low_group = is_in_low_group;
    return MPI_SUCCESS;
}
#else
int MPIDI_CH3I_Intercomm_exchange_map(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm, int remote_leader,
                                      int *remote_size, uint64_t ** remote_lpids, int *is_low_group)
{
    enum { TAG = 0 };
    int mpi_errno = MPIDI_CH3I_Stock_intercomm_exchange_map(comm, leader, peer_comm, remote_leader,
                                                            remote_size, remote_lpids, is_low_group);

    return mpi_errno != MPI_SUCCESS ? mpi_errno :
        exchange_names(comm, leader, peer_comm, remote_leader, TAG | MPIR_TAG_COLL_BIT, *remote_size,
                       *remote_lpids, is_low_group);
}
#endif

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
                         MPL_str_add_string_arg(&value, &length, MPIDI_CH3I_NAME_KEY, name) != MPL_SUCCESS,
                         mpi_errno, MPI_ERR_OTHER, "**ch3|offload|worlds", "**ch3|offload|worlds %s",
                         message);

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
    if (vc->ch.peer != MPIDI_CH3I_NO_PEER || vc->ch.peer_failed)
        return;
    /* If the process is dead, an event says so, also if one has said it before. */
    MPIDI_CH3I_Greet(MPIDI_CH3I_Peer(vc));
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
    MPIDI_CH3I_Foreign_t *process = MPIDI_CH3I_Find_foreign(peer);
    MPIDI_VC_t *vc = process == NULL ? NULL : process->vc;

    MPIDI_CH3I_Drop_foreign(peer);
    mpi_errno = MPIDI_CH3I_Break_roots(peer);
    MPIR_ERR_CHECK(mpi_errno);
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
    MPIDI_CH3I_Drop_foreigners();
}
