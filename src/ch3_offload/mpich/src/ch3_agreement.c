/*
 * The ch3:offload channel: MPIX_Comm_agree, MPIX_Comm_shrink, MPIX_Comm_failure_ack and _get_acked, in place
 * of CH3's (mpidi_ch3_post.h). CH3 asks the process manager who has died, which hears of it later or never,
 * and all its agreements need rank 0.
 *
 * The processes of a communicator agree on a value, and on the set of those that have failed. The lowest rank
 * that is alive coordinates. Each process sends it a contribution. It waits for those of all that are alive,
 * decides, and sends the decision to all. If it dies, the next one takes over, and asks all: who knows a
 * decision answers with it, and that is the decision, too. Who has answered a coordinator, or sent it a
 * contribution, takes no decision from a lower rank any more. So two coordinators never decide differently,
 * as far as anybody lives to tell (this is consensus with a rotating coordinator: Chandra and Toueg, JACM 43,
 * 1996).
 *
 * A process answers when packets come (take_packet()), whatever it does itself. It may not have
 * begun the agreement, or may have left it: so it keeps its last decision, even when the communicator has
 * been freed. It cannot be two agreements ahead of a live process, because each needs the contributions of
 * all.
 */

#include "mpidi_ch3_impl.h"

enum { CONTRIBUTION, QUESTION, DECISION, ABANDONMENT };

/* A packet that speaks of more is no good: tables are made for what it says. */
enum { MOST_MEMBERS = 1 << 20 };

/* What this process, if it coordinates, has of one agreement. */
typedef struct {
    char *has;                  /* by rank: its contribution is here */
    int *acknowledged;          /* by rank: how many failures it has acknowledged */
    char *failed;               /* by rank: somebody knows that it has failed */
    int value;                  /* of the contributions, combined */
    int coordinator;            /* the highest that has or wants this process's contribution; -1: none */
} gathering_t;

/* The agreements of a communicator, one after the other. */
typedef struct agreements {
    struct agreements *next;
    int context;
    uint64_t members;           /* who they are: so that a context may be used again */
    int size;
    uint32_t number;            /* of the last one that this process has begun */
    uint32_t decided;           /* the last one of which the decision is known: `number`, or the one before */
    int value;                  /* that decision */
    int is_acknowledged;        /* all had acknowledged all failures */
    char *failed;               /* by rank */
    char *announced;            /* likewise, of a decision that has come in part, from `announcer` */
    int announcer;
    uint32_t abandoned;         /* before this one, somebody has given up making a communicator */
    gathering_t gatherings[2];  /* of agreement i: i % 2 */
} agreements_t;

static agreements_t *all_agreements = NULL;

/* A communicator that MPIX_Comm_shrink is making in a thread of this process. */
typedef struct making {
    struct making *next;
    const agreements_t *all;    /* of the communicator that is shrunk */
    MPIR_Comm *from;
    MPIR_Comm *comm;            /* NULL: its context is not known yet */
    pthread_t thread;
    int is_abandoned;           /* others have given up */
} making_t;
static making_t *makings = NULL;
int MPIDI_CH3I_abandoned = 0;

/* ---- who has failed, and who knows ---- */

static uint32_t failures = 0;

void MPIDI_CH3I_Note_failure(MPIDI_VC_t * vc)
{
    vc->ch.failed_at = ++failures;
}

static MPIDI_VC_t *member(MPIR_Comm * comm, int rank)
{
    MPIDI_VC_t *vc;

    MPIDI_Comm_get_vc(comm, rank, &vc);
    return vc;
}

static int is_dead(MPIR_Comm * comm, int rank)
{
    return rank != comm->rank && member(comm, rank)->ch.peer_failed;
}

static int is_acknowledged(MPIR_Comm * comm, int rank)
{
    const uint32_t failed_at = member(comm, rank)->ch.failed_at;

    return failed_at != 0 && failed_at <= comm->dev.ch.acknowledged;
}

/* The processes of comm for which the array has not 0. Of an intercommunicator: of the remote group. */
static int make_group(MPIR_Comm * comm, const char *is_in, MPIR_Group ** new_group)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Group *group = NULL;
    int *ranks;
    int i, count = 0;
    MPIR_CHKLMEM_DECL(1);

    MPIR_CHKLMEM_MALLOC(ranks, int *, comm->remote_size * sizeof(int), mpi_errno, "ranks", MPL_MEM_COMM);
    if (comm->comm_kind == MPIR_COMM_KIND__INTERCOMM)
        mpi_errno = MPIR_Comm_remote_group_impl(comm, &group);
    else
        mpi_errno = MPIR_Comm_group_impl(comm, &group);
    MPIR_ERR_CHECK(mpi_errno);
    for (i = 0; i < comm->remote_size; i++)
        if (is_in[i])
            ranks[count++] = i;
    mpi_errno = MPIR_Group_incl_impl(group, count, ranks, new_group);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    if (group != NULL)
        MPIR_Group_release(group);
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* In place of MPID_Comm_failure_ack. */
int MPIDI_CH3I_Failure_ack(MPIR_Comm * comm)
{
    comm->dev.ch.acknowledged = failures;
    comm->dev.anysource_enabled = TRUE;
    return MPI_SUCCESS;
}

/* In place of MPID_Comm_failure_get_acked. */
int MPIDI_CH3I_Failure_get_acked(MPIR_Comm * comm, MPIR_Group ** new_group)
{
    int mpi_errno = MPI_SUCCESS;
    char *is_in;
    int i;
    MPIR_CHKLMEM_DECL(1);

    MPIR_CHKLMEM_MALLOC(is_in, char *, comm->remote_size, mpi_errno, "failed processes", MPL_MEM_COMM);
    for (i = 0; i < comm->remote_size; i++)
        is_in[i] = is_acknowledged(comm, i);
    mpi_errno = make_group(comm, is_in, new_group);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- the agreements of a communicator ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);    /* FNV-1a */
}

static uint64_t name_members(MPIR_Comm * comm)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    int i;

    for (i = 0; i < comm->local_size; i++) {
        const MPIDI_VC_t *vc = member(comm, i);
        const char *c;

        for (c = vc->pg->id; *c != '\0'; c++)
            hash = mix(hash, (unsigned char) *c);
        hash = mix(hash, (uint64_t) vc->pg_rank + 256);
    }
    return hash;
}

static gathering_t *gathering_of(agreements_t * all, uint32_t number)
{
    return &all->gatherings[number % 2];
}

static void clear_gathering(agreements_t * all, uint32_t number)
{
    gathering_t *gathering = gathering_of(all, number);

    gathering->value = ~0;
    gathering->coordinator = -1;
    memset(gathering->has, FALSE, all->size);
    memset(gathering->failed, FALSE, all->size);
}

static void free_agreements(agreements_t * all)
{
    int i;

    for (i = 0; i < 2; i++) {
        MPL_free(all->gatherings[i].has);
        MPL_free(all->gatherings[i].failed);
        MPL_free(all->gatherings[i].acknowledged);
    }
    MPL_free(all->failed);
    MPL_free(all->announced);
    MPL_free(all);
}

/* Finds them, or makes those of a communicator of which nothing was heard. NULL: no memory. */
static agreements_t *find_agreements(int context, uint64_t members, int size)
{
    agreements_t *all;
    int i, is_complete;

    for (all = all_agreements; all != NULL; all = all->next)
        if (all->context == context && all->members == members && all->size == size)
            return all;
    all = MPL_calloc(1, sizeof(*all), MPL_MEM_COMM);
    if (all == NULL)
        return NULL;
    all->context = context;
    all->members = members;
    all->size = size;
    all->failed = MPL_calloc(size, 1, MPL_MEM_COMM);
    all->announced = MPL_calloc(size, 1, MPL_MEM_COMM);
    is_complete = all->failed != NULL && all->announced != NULL;
    for (i = 0; i < 2; i++) {
        gathering_t *gathering = &all->gatherings[i];

        gathering->has = MPL_malloc(size, MPL_MEM_COMM);
        gathering->failed = MPL_malloc(size, MPL_MEM_COMM);
        gathering->acknowledged = MPL_malloc(size * sizeof(int), MPL_MEM_COMM);
        is_complete &= gathering->has != NULL && gathering->failed != NULL && gathering->acknowledged != NULL;
    }
    if (!is_complete) {
        free_agreements(all);
        return NULL;
    }
    clear_gathering(all, 0);
    clear_gathering(all, 1);
    all->next = all_agreements;
    all_agreements = all;
    return all;
}

/* ---- packets ---- */

/* A packet from one rank to another. */
static void begin_packet(MPIDI_CH3I_Pkt_agree_t * pkt, const agreements_t * all, int kind, uint32_t number,
                         int from, int to)
{
    memset(pkt, 0, sizeof(*pkt));
    MPIDI_Pkt_init(pkt, MPIDI_CH3_PKT_OFFLOAD_AGREE);
    pkt->kind = kind;
    pkt->members = all->members;
    pkt->context = all->context;
    pkt->size = all->size;
    pkt->number = number;
    pkt->from = from;
    pkt->to = to;
}

/* Who is dead by now gets nothing, and whoever waits for its answer learns that it is dead. */
static void send_packet(MPIDI_VC_t * vc, MPIDI_CH3I_Pkt_agree_t * pkt)
{
    struct iovec iov[MPL_IOV_LIMIT];
    MPIR_Request *request = NULL;

    if (vc->ch.peer_failed)
        return;
    if (vc->state == MPIDI_VC_STATE_INACTIVE)
        MPIDI_CHANGE_VC_STATE(vc, ACTIVE);
    iov[0].iov_base = pkt;
    iov[0].iov_len = sizeof(*pkt);
    (void) MPIDI_CH3_iStartMsgv(vc, iov, 1, &request);
    if (request != NULL)
        MPIR_Request_free(request);
}

/* The ranks for which the array has not 0, and all else that the packet has: in several packets, if need
 * be. */
static void send_ranks(MPIDI_VC_t * vc, MPIDI_CH3I_Pkt_agree_t * pkt, const char *is_in)
{
    int i;

    for (i = 0; i < pkt->size; i++) {
        if (!is_in[i])
            continue;
        if (pkt->count == MPIDI_CH3I_AGREE_RANKS) {
            pkt->has_more = TRUE;
            send_packet(vc, pkt);
            pkt->has_more = FALSE;
            pkt->count = 0;
        }
        pkt->ranks[pkt->count++] = i;
    }
    send_packet(vc, pkt);
}

static void send_decision(const agreements_t * all, MPIDI_VC_t * vc, int from, int to)
{
    MPIDI_CH3I_Pkt_agree_t pkt;

    begin_packet(&pkt, all, DECISION, all->decided, from, to);
    pkt.value = all->value;
    pkt.acknowledged = all->is_acknowledged;
    send_ranks(vc, &pkt, all->failed);
}

static void take_contribution(agreements_t * all, MPIDI_VC_t * vc, const MPIDI_CH3I_Pkt_agree_t * pkt)
{
    gathering_t *gathering = gathering_of(all, pkt->number);
    int i;

    if (pkt->number == all->decided) {
        /* Its coordinator has died, after this process had the decision. */
        if (!pkt->has_more)
            send_decision(all, vc, pkt->to, pkt->from);
        return;
    }
    if (gathering->has[pkt->from])
        return;                 /* it has contributed, and was asked nevertheless */
    for (i = 0; i < pkt->count; i++)
        gathering->failed[pkt->ranks[i]] = TRUE;
    if (pkt->has_more)
        return;
    gathering->has[pkt->from] = TRUE;
    gathering->acknowledged[pkt->from] = pkt->acknowledged;
    gathering->value &= pkt->value;
}

static void take_decision(agreements_t * all, const MPIDI_CH3I_Pkt_agree_t * pkt)
{
    int i;

    if (pkt->number != all->number || pkt->number == all->decided ||
        pkt->from < gathering_of(all, pkt->number)->coordinator)
        return;
    if (pkt->from != all->announcer) {
        all->announcer = pkt->from;
        memset(all->announced, FALSE, all->size);
    }
    for (i = 0; i < pkt->count; i++)
        all->announced[pkt->ranks[i]] = TRUE;
    if (pkt->has_more)
        return;
    MPIR_Memcpy(all->failed, all->announced, all->size);
    all->decided = pkt->number;
    all->value = pkt->value;
    all->is_acknowledged = pkt->acknowledged;
}

/* Another process coordinates. come_to_decision() contributes, now or when it begins. */
static void take_question(agreements_t * all, MPIDI_VC_t * vc, const MPIDI_CH3I_Pkt_agree_t * pkt)
{
    gathering_t *gathering = gathering_of(all, pkt->number);

    if (pkt->number == all->decided)
        send_decision(all, vc, pkt->to, pkt->from);
    else if (pkt->from > gathering->coordinator)
        gathering->coordinator = pkt->from;
}

/* ---- a communicator that some cannot make: then all must give up, for they wait for each other's
 * messages ---- */

/* The tag of what is sent to make a communicator after that agreement. What is left of an attempt does not
 * disturb the next one, and has been dropped before the one behind that (MPIX_Comm_shrink). */
static int tag_after(uint32_t number)
{
    return number % 2 == 0 ? MPIR_AGREE_TAG : MPIR_SHRINK_TAG;
}

void MPIDI_CH3I_Note_created(MPIR_Comm * comm)
{
    making_t *making;

    for (making = makings; making != NULL; making = making->next)
        if (making->comm == NULL && pthread_equal(making->thread, pthread_self()))
            making->comm = comm;
}

static int is_of(const making_t * making, const MPIR_Comm * comm, int tag)
{
    const MPIR_Comm *new_comm = making->comm;

    if (comm == making->from)
        return MPIR_TAG_MASK_ERROR_BITS(tag & ~MPIR_TAG_COLL_BIT) == tag_after(making->all->number);
    return new_comm != NULL && (comm == new_comm || comm == new_comm->node_comm ||
                                comm == new_comm->node_roots_comm);
}

int MPIDI_CH3I_Is_abandoned(const MPIR_Comm * comm, int tag)
{
    const making_t *making;

    for (making = makings; making != NULL; making = making->next)
        if (making->is_abandoned && is_of(making, comm, tag))
            return TRUE;
    return FALSE;
}

/* What this process waits for to make it fails, and what it would wait for (MPIDI_CH3I_Is_abandoned). */
static void abandon(making_t * making)
{
    making->is_abandoned = TRUE;
    MPIDI_CH3I_abandoned++;
    MPIDI_CH3I_Drop_tagged(making->from, tag_after(making->all->number));
    if (making->comm != NULL)
        MPIDI_CH3U_Clean_recvq(making->comm);
}

static void take_abandonment(agreements_t * all, uint32_t number)
{
    making_t *making;

    if ((int32_t) (number - all->abandoned) <= 0)
        return;                 /* it is late */
    all->abandoned = number;
    for (making = makings; making != NULL; making = making->next)
        if (making->all == all && number == all->number + 1 && !making->is_abandoned)
            abandon(making);
}

static void begin_making(making_t * making, const agreements_t * all, MPIR_Comm * from)
{
    making->next = makings;
    making->all = all;
    making->from = from;
    making->comm = NULL;
    making->thread = pthread_self();
    making->is_abandoned = all->abandoned == all->number + 1;
    MPIDI_CH3I_abandoned += making->is_abandoned;
    makings = making;
}

static void end_making(making_t * making)
{
    making_t **place;

    for (place = &makings; *place != making; place = &(*place)->next);
    *place = making->next;
    MPIDI_CH3I_abandoned -= making->is_abandoned;
}

/* FALSE: the packet says that it comes from another rank than that process has. */
static int is_from(MPIDI_VC_t * vc, const MPIDI_CH3I_Pkt_agree_t * pkt)
{
    MPIR_Comm *comm;

    for (comm = MPIDI_CH3I_communicators; comm != NULL; comm = comm->dev.ch.next)
        if (comm->context_id == pkt->context && comm->comm_kind == MPIR_COMM_KIND__INTRACOMM &&
            comm->local_size == pkt->size && member(comm, pkt->from) != vc)
            return name_members(comm) != pkt->members;
    return TRUE;
}

static int is_sound(const MPIDI_CH3I_Pkt_agree_t * pkt)
{
    int i;

    if (pkt->size <= 0 || pkt->size > MOST_MEMBERS || pkt->from < 0 || pkt->from >= pkt->size ||
        pkt->to < 0 || pkt->to >= pkt->size || pkt->count > MPIDI_CH3I_AGREE_RANKS || pkt->kind > ABANDONMENT)
        return FALSE;
    for (i = 0; i < pkt->count; i++)
        if (pkt->ranks[i] < 0 || pkt->ranks[i] >= pkt->size)
            return FALSE;
    return TRUE;
}

/* The handler of such packets. */
static int take_packet(MPIDI_VC_t * vc, MPIDI_CH3_Pkt_t * packet, void *data ATTRIBUTE((unused)),
                       intptr_t * length, MPIR_Request ** request)
{
    const MPIDI_CH3I_Pkt_agree_t *pkt = &packet->offload_agree;
    int mpi_errno = MPI_SUCCESS;
    int32_t ahead;
    agreements_t *all;

    *length = 0;
    *request = NULL;
    MPIR_ERR_CHKANDJUMP1(!is_sound(pkt) || !is_from(vc, pkt), mpi_errno, MPI_ERR_OTHER,
                         "**ch3|offload|protocol", "**ch3|offload|protocol %d", vc->pg_rank);
    all = find_agreements(pkt->context, pkt->members, pkt->size);
    MPIR_ERR_CHKANDJUMP(all == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");
    ahead = (int32_t) (pkt->number - all->decided);
    MPIR_ERR_CHKANDJUMP1(ahead > 2, mpi_errno, MPI_ERR_OTHER, "**ch3|offload|protocol",
                         "**ch3|offload|protocol %d", vc->pg_rank);
    if (ahead < 0)
        goto fn_exit;           /* it has been decided without this packet */
    if (pkt->kind == CONTRIBUTION)
        take_contribution(all, vc, pkt);
    else if (pkt->kind == DECISION)
        take_decision(all, pkt);
    else if (pkt->kind == QUESTION)
        take_question(all, vc, pkt);
    else
        take_abandonment(all, pkt->number);
    MPIDI_CH3_Progress_signal_completion();

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Agreement_init(MPIDI_CH3_PktHandler_Fcn ** handlers)
{
    MPL_COMPILE_TIME_ASSERT(sizeof(MPIDI_CH3I_Pkt_agree_t) <= sizeof(MPIDI_CH3_Pkt_t));
    handlers[MPIDI_CH3_PKT_OFFLOAD_AGREE] = take_packet;
}

void MPIDI_CH3I_Agreement_finalize(void)
{
    while (all_agreements != NULL) {
        agreements_t *all = all_agreements;
        all_agreements = all->next;
        free_agreements(all);
    }
    failures = 0;
}

/* ---- a process in an agreement ---- */

/* This process's own contribution. */
static void contribute(agreements_t * all, MPIR_Comm * comm, int value)
{
    gathering_t *own = gathering_of(all, all->number);
    int i, acknowledged = 0;

    for (i = 0; i < all->size; i++) {
        if (!is_dead(comm, i))
            continue;
        own->failed[i] = TRUE;
        acknowledged += is_acknowledged(comm, i);
    }
    own->has[comm->rank] = TRUE;
    own->acknowledged[comm->rank] = acknowledged;
    own->value &= value;
}

static void send_contribution(const agreements_t * all, MPIR_Comm * comm, int value, int acknowledged,
                              const char *failed, int to)
{
    MPIDI_CH3I_Pkt_agree_t pkt;

    begin_packet(&pkt, all, CONTRIBUTION, all->number, comm->rank, to);
    pkt.value = value;
    pkt.acknowledged = acknowledged;
    send_ranks(member(comm, to), &pkt, failed);
}

/* Also so that it is noticed if they are dead: no message may have gone there yet. */
static void ask_others(agreements_t * all, MPIR_Comm * comm)
{
    const gathering_t *own = gathering_of(all, all->number);
    int i;

    for (i = 0; i < all->size; i++) {
        MPIDI_CH3I_Pkt_agree_t pkt;

        if (own->has[i])
            continue;
        begin_packet(&pkt, all, QUESTION, all->number, comm->rank, i);
        send_packet(member(comm, i), &pkt);
    }
}

/* The coordinator: whether all that live have contributed. */
static int has_all(const gathering_t * own, MPIR_Comm * comm, int size)
{
    int i;

    for (i = 0; i < size; i++)
        if (!own->has[i] && !own->failed[i] && !is_dead(comm, i))
            return FALSE;
    return TRUE;
}

/* The coordinator decides. */
static void decide(agreements_t * all, MPIR_Comm * comm)
{
    const gathering_t *own = gathering_of(all, all->number);
    int i, failed = 0;

    for (i = 0; i < all->size; i++) {
        all->failed[i] = own->failed[i] || is_dead(comm, i);
        failed += all->failed[i];
    }
    all->is_acknowledged = TRUE;
    for (i = 0; i < all->size; i++)
        if (own->has[i] && own->acknowledged[i] != failed)
            all->is_acknowledged = FALSE;
    all->value = own->value;
    all->decided = all->number;
}

/* Tells the decision to the others for which the array has not 0. NULL: to all of them. */
static void tell(const agreements_t * all, MPIR_Comm * comm, const char *is_told)
{
    int i;

    for (i = 0; i < all->size; i++)
        if (i != comm->rank && (is_told == NULL || is_told[i]))
            send_decision(all, member(comm, i), comm->rank, i);
}

/* What others know to have failed has failed here, too: then MPIX_Comm_failure_ack acknowledges it. */
static void meet_failures(const agreements_t * all, MPIR_Comm * comm)
{
    int i;

    for (i = 0; i < all->size; i++)
        if (all->failed[i] && i != comm->rank && !is_dead(comm, i))
            ch3_offload_fail_peer(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(member(comm, i)));
    for (i = 0; i < all->size; i++)
        while (all->failed[i] && i != comm->rank && !is_dead(comm, i))
            (void) MPIDI_CH3I_Await_progress();
}

/* Takes part in the next agreement of comm. On success, it is in *result until the next one begins. */
static int come_to_decision(MPIR_Comm * comm, int value, agreements_t ** result)
{
    int mpi_errno = MPI_SUCCESS;
    int coordinator = -1, acknowledged;
    const char *is_told;
    agreements_t *all = NULL;
    gathering_t *own;
    char *failed;
    MPIR_CHKLMEM_DECL(1);

    MPIR_ERR_CHKANDJUMP(comm->comm_kind == MPIR_COMM_KIND__INTERCOMM, mpi_errno, MPI_ERR_COMM,
                        "**commnotintra");
    MPIR_CHKLMEM_MALLOC(failed, char *, comm->local_size, mpi_errno, "failed processes", MPL_MEM_COMM);
    all = find_agreements(comm->context_id, name_members(comm), comm->local_size);
    MPIR_ERR_CHKANDJUMP(all == NULL, mpi_errno, MPI_ERR_NO_MEM, "**nomem");

    all->number++;
    all->announcer = -1;
    clear_gathering(all, all->number + 1);
    own = gathering_of(all, all->number);
    contribute(all, comm, value);
    /* What others get of it stays the same, whatever comes in. */
    MPIR_Memcpy(failed, own->failed, all->size);
    acknowledged = own->acknowledged[comm->rank];
    /* If the decision is another's, who takes this process for the coordinator waits for its word. */
    is_told = own->has;
    while (all->decided != all->number) {
        int next = MPL_MAX(own->coordinator, 0);

        while (next < all->size - 1 && is_dead(comm, next))
            next++;
        own->coordinator = next;
        if (next == comm->rank && has_all(own, comm, all->size)) {
            decide(all, comm);
            is_told = NULL;
            break;
        }
        if (next != coordinator) {
            coordinator = next;
            if (coordinator == comm->rank)
                ask_others(all, comm);
            else
                send_contribution(all, comm, value, acknowledged, failed, coordinator);
            continue;           /* something may have come meanwhile */
        }
        /* An error of progress is one of other operations. */
        (void) MPIDI_CH3I_Await_progress();
    }
    tell(all, comm, is_told);
    meet_failures(all, comm);
    *result = all;

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* In place of MPIR_Comm_agree_impl. */
int MPIDI_CH3I_Comm_agree(MPIR_Comm * comm, int *flag)
{
    int mpi_errno = MPI_SUCCESS;
    agreements_t *all;

    mpi_errno = come_to_decision(comm, *flag, &all);
    MPIR_ERR_CHECK(mpi_errno);
    *flag = all->value;
    MPIR_ERR_CHKANDJUMP(!all->is_acknowledged, mpi_errno, MPIX_ERR_PROC_FAILED, "**mpix_comm_agree");

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Tells all that this process has given up. */
static void tell_abandonment(const agreements_t * all, MPIR_Comm * comm)
{
    int i;

    for (i = 0; i < all->size; i++) {
        MPIDI_CH3I_Pkt_agree_t pkt;

        begin_packet(&pkt, all, ABANDONMENT, all->number + 1, comm->rank, i);
        if (i != comm->rank)
            send_packet(member(comm, i), &pkt);
    }
}

/* Makes a communicator of those for which the array has 0. *new_comm is NULL after an error. */
static int make_comm(const agreements_t * all, MPIR_Comm * comm, const char *failed, MPIR_Comm ** new_comm)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Group *alive = NULL;
    making_t making;
    char *is_alive;
    int i;
    MPIR_CHKLMEM_DECL(1);

    *new_comm = NULL;
    MPIR_CHKLMEM_MALLOC(is_alive, char *, comm->local_size, mpi_errno, "processes", MPL_MEM_COMM);
    for (i = 0; i < comm->local_size; i++)
        is_alive[i] = !failed[i];
    mpi_errno = make_group(comm, is_alive, &alive);
    MPIR_ERR_CHECK(mpi_errno);
    begin_making(&making, all, comm);
    mpi_errno = MPIR_Comm_create_group_impl(comm, alive, tag_after(all->number), new_comm);
    end_making(&making);
    if (mpi_errno != MPI_SUCCESS)
        *new_comm = NULL;       /* MPICH has freed it */
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    if (alive != NULL)
        MPIR_Group_release(alive);
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* In place of MPIR_Comm_shrink_impl. Who fails meanwhile is left out in the next try. */
int MPIDI_CH3I_Comm_shrink(MPIR_Comm * comm, MPIR_Comm ** new_comm)
{
    int mpi_errno = MPI_SUCCESS;
    int has_failed_more = TRUE;
    agreements_t *all;
    char *failed;
    MPIR_CHKLMEM_DECL(1);

    *new_comm = NULL;
    MPIR_CHKLMEM_MALLOC(failed, char *, comm->local_size, mpi_errno, "failed processes", MPL_MEM_COMM);
    mpi_errno = come_to_decision(comm, 1, &all);
    MPIR_ERR_CHECK(mpi_errno);
    while (has_failed_more) {
        int made;

        MPIR_Memcpy(failed, all->failed, all->size);
        made = make_comm(all, comm, failed, new_comm);
        if (made != MPI_SUCCESS)
            tell_abandonment(all, comm);
        /* Nobody begins the next attempt before this process has contributed: this is of the last but one. */
        MPIDI_CH3I_Drop_tagged(comm, tag_after(all->number + 1));
        mpi_errno = come_to_decision(comm, made == MPI_SUCCESS, &all);
        MPIR_ERR_CHECK(mpi_errno);
        if (all->value)
            break;
        /* Not for all: then for nobody. */
        if (*new_comm != NULL)
            MPIR_Comm_release(*new_comm);
        *new_comm = NULL;
        has_failed_more = memcmp(failed, all->failed, all->size) != 0;
        MPIR_ERR_CHKANDJUMP(!has_failed_more, mpi_errno, MPI_ERR_OTHER, "**ch3|offload|shrink");
    }

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
