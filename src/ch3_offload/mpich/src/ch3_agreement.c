/*
 * The ch3:offload channel: MPIX_Comm_agree, in place of CH3's (mpidi_ch3_post.h), which needs rank 0, and
 * asks the process manager who has died. That hears of it later or never.
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

#include "ch3_agreement.h"

/* A packet that speaks of more is no good: tables are made for what it says. */
enum { MOST_MEMBERS = 1 << 20 };

static agreements_t *all_agreements = NULL;

static int is_dead(MPIR_Comm * comm, int rank)
{
    return rank != comm->rank && MPIDI_CH3I_Member(comm, rank)->ch.peer_failed;
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
        const MPIDI_VC_t *vc = MPIDI_CH3I_Member(comm, i);
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

void MPIDI_CH3I_Begin_agree_packet(MPIDI_CH3I_Pkt_agree_t * pkt, const agreements_t * all, int kind,
                                   uint32_t number, int from, int to)
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

void MPIDI_CH3I_Send_agree_packet(MPIDI_VC_t * vc, MPIDI_CH3I_Pkt_agree_t * pkt)
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
            MPIDI_CH3I_Send_agree_packet(vc, pkt);
            pkt->has_more = FALSE;
            pkt->count = 0;
        }
        pkt->ranks[pkt->count++] = i;
    }
    MPIDI_CH3I_Send_agree_packet(vc, pkt);
}

static void send_decision(const agreements_t * all, MPIDI_VC_t * vc, int from, int to)
{
    MPIDI_CH3I_Pkt_agree_t pkt;

    MPIDI_CH3I_Begin_agree_packet(&pkt, all, DECISION, all->decided, from, to);
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

/* Another process coordinates. MPIDI_CH3I_Come_to_decision() contributes, now or when it begins. */
static void take_question(agreements_t * all, MPIDI_VC_t * vc, const MPIDI_CH3I_Pkt_agree_t * pkt)
{
    gathering_t *gathering = gathering_of(all, pkt->number);

    if (pkt->number == all->decided)
        send_decision(all, vc, pkt->to, pkt->from);
    else if (pkt->from > gathering->coordinator)
        gathering->coordinator = pkt->from;
}

/* FALSE: the packet says that it comes from another rank than that process has. */
static int is_from(MPIDI_VC_t * vc, const MPIDI_CH3I_Pkt_agree_t * pkt)
{
    MPIR_Comm *comm;

    for (comm = MPIDI_CH3I_communicators; comm != NULL; comm = comm->dev.ch.next)
        if (comm->context_id == pkt->context && comm->comm_kind == MPIR_COMM_KIND__INTRACOMM &&
            comm->local_size == pkt->size && MPIDI_CH3I_Member(comm, pkt->from) != vc)
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
        MPIDI_CH3I_Take_abandonment(all, pkt->number);
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
        acknowledged += MPIDI_CH3I_Is_acknowledged(comm, i);
    }
    own->has[comm->rank] = TRUE;
    own->acknowledged[comm->rank] = acknowledged;
    own->value &= value;
}

static void send_contribution(const agreements_t * all, MPIR_Comm * comm, int value, int acknowledged,
                              const char *failed, int to)
{
    MPIDI_CH3I_Pkt_agree_t pkt;

    MPIDI_CH3I_Begin_agree_packet(&pkt, all, CONTRIBUTION, all->number, comm->rank, to);
    pkt.value = value;
    pkt.acknowledged = acknowledged;
    send_ranks(MPIDI_CH3I_Member(comm, to), &pkt, failed);
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
        MPIDI_CH3I_Begin_agree_packet(&pkt, all, QUESTION, all->number, comm->rank, i);
        MPIDI_CH3I_Send_agree_packet(MPIDI_CH3I_Member(comm, i), &pkt);
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
            send_decision(all, MPIDI_CH3I_Member(comm, i), comm->rank, i);
}

/* What others know to have failed has failed here, too: then MPIX_Comm_failure_ack acknowledges it. */
static void meet_failures(const agreements_t * all, MPIR_Comm * comm)
{
    int i;

    for (i = 0; i < all->size; i++)
        if (all->failed[i] && i != comm->rank && !is_dead(comm, i))
            ch3_offload_fail_peer(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(MPIDI_CH3I_Member(comm, i)));
    for (i = 0; i < all->size; i++)
        while (all->failed[i] && i != comm->rank && !is_dead(comm, i))
            (void) MPIDI_CH3I_Await_progress();
}

int MPIDI_CH3I_Come_to_decision(MPIR_Comm * comm, int value, agreements_t ** result)
{
    int mpi_errno = MPI_SUCCESS;
    int coordinator = -1, acknowledged;
    const char *is_told;
    agreements_t *all = NULL;
    gathering_t *own;
    char *failed;
    MPIDI_CH3I_CHKLMEM_DECL();

    MPIR_ERR_CHKANDJUMP(comm->comm_kind == MPIR_COMM_KIND__INTERCOMM, mpi_errno, MPI_ERR_COMM,
                        "**commnotintra");
    MPIDI_CH3I_CHKLMEM_MALLOC(failed, comm->local_size);
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

    mpi_errno = MPIDI_CH3I_Come_to_decision(comm, *flag, &all);
    MPIR_ERR_CHECK(mpi_errno);
    *flag = all->value;
    MPIR_ERR_CHKANDJUMP(!all->is_acknowledged, mpi_errno, MPIX_ERR_PROC_FAILED, "**mpix_comm_agree");

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
