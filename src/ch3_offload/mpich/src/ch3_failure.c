/*
 * The ch3:offload channel: ends of connections, in good order and bad, and news of dead processes.
 */

#include "ch3_agreement.h"
#include "ch3_worlds.h"
#include "utlist.h"
#ifdef HAVE_SIGNAL_H
#include <signal.h>
#endif

MPIR_Comm *MPIDI_CH3I_communicators = NULL;
/* Peers that failed so far. While there is none, nothing is asked. */
static int failed_peers = 0;
/* Likewise, without those whose connection had been closed: the failures are counted to be put in order. */
static uint32_t failures = 0;

int MPIDI_CH3I_Error(int status, int rank)
{
    int mpi_errno = MPI_SUCCESS;

    switch (status) {
        case CH3_OFFLOAD_OK:
            break;
        case CH3_OFFLOAD_PEER_FAILED:
            MPIR_ERR_SET1(mpi_errno, MPIX_ERR_PROC_FAILED, "**comm_fail", "**comm_fail %d", rank);
            break;
        case CH3_OFFLOAD_UNREACHABLE:
            MPIR_ERR_SET1(mpi_errno, MPI_ERR_OTHER, "**ch3|offload|unreachable",
                          "**ch3|offload|unreachable %d", rank);
            break;
        case CH3_OFFLOAD_PROTOCOL:
            MPIR_ERR_SET1(mpi_errno, MPI_ERR_OTHER, "**ch3|offload|protocol",
                          "**ch3|offload|protocol %d", rank);
            break;
        case CH3_OFFLOAD_REVOKED:
            MPIR_ERR_SETSIMPLE(mpi_errno, MPIX_ERR_REVOKED, "**revoked");
            break;
        case CH3_OFFLOAD_NO_MEMORY:
            MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
            break;
        default:
            MPIR_ERR_SET1(mpi_errno, MPI_ERR_OTHER, "**ch3|offload|failed", "**ch3|offload|failed %d",
                          rank);
            break;
    }
    return mpi_errno;
}

static int is_closed(MPIDI_VC_t * vc)
{
    return vc->state == MPIDI_VC_STATE_MORIBUND || vc->state == MPIDI_VC_STATE_INACTIVE_CLOSED ||
        vc->state == MPIDI_VC_STATE_CLOSED;
}

int MPIDI_CH3I_Has_member(MPIR_Comm * comm, const MPIDI_VC_t * vc)
{
    int rank;

    for (rank = 0; rank < comm->remote_size; rank++)
        if (MPIDI_CH3I_Member(comm, rank) == vc)
            return TRUE;
    return FALSE;
}

/* Turns ANY_SOURCE off in every communicator with that process, as CH3 does at the process manager's news,
 * which may come later or never. */
static void disable_any_source(const MPIDI_VC_t * vc)
{
    MPIR_Comm *comm;

    if (MPIR_Process.comm_world == NULL)
        return; /* MPI_Finalize is past its communication: a peer that ends has done what it had to */
    DL_FOREACH_NP(MPIDI_CH3I_communicators, comm, dev.ch.next, dev.ch.prev) {
        if (comm->dev.anysource_enabled && MPIDI_CH3I_Has_member(comm, vc))
            comm->dev.anysource_enabled = FALSE;
    }
    MPIDI_CH3I_Fail_any_source();
}

int MPIDI_CH3I_Connection_broken(MPIDI_VC_t * vc, int status)
{
    int mpi_errno = MPIDI_CH3I_Error(status, vc->pg_rank);

    vc->ch.peer_failed = TRUE;
    vc->ch.is_given_up = TRUE;
    if (vc->pg != MPIDI_Process.my_pg)
        vc->ch.lane = NULL;     /* its number and its lane will be another's */
    failed_peers++;
    MPIDI_CH3I_losses++;
    MPIDI_CH3I_Packets_fail(vc, mpi_errno);
    MPIDI_CH3I_Defer_error(MPIDI_CH3I_Locks_fail(vc));
    MPIDI_CH3I_Packet_recv_fail(vc, mpi_errno);
    mpi_errno = MPI_SUCCESS;
    if (!is_closed(vc)) {
        vc->ch.failed_at = ++failures;
        mpi_errno = MPIDI_CH3U_Handle_connection(vc, MPIDI_VC_EVENT_TERMINATED);
        MPIR_ERR_CHECK(mpi_errno);
        disable_any_source(vc);
    }

  fn_exit:
    /* Whoever waits looks again. */
    MPIDI_CH3_Progress_signal_completion();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The engine has lost a peer. Its sends and matched receives have been finished before. */
void MPIDI_CH3I_Peer_failed(uint32_t peer, int status)
{
    MPIDI_VC_t *vc;

    if (peer >= (uint32_t) MPIDI_Process.my_pg->size) {
        MPIDI_CH3I_Defer_error(MPIDI_CH3I_Foreign_failed(peer, status));
        return;
    }
    MPIDI_PG_Get_vc(MPIDI_Process.my_pg, peer, &vc);
    if (!vc->ch.peer_failed)
        MPIDI_CH3I_Defer_error(MPIDI_CH3I_Connection_broken(vc, status));
}

int MPIDI_CH3_Connection_terminate(MPIDI_VC_t * vc)
{
    int mpi_errno = MPI_SUCCESS;

    if (vc->state == MPIDI_VC_STATE_MORIBUND || vc->state == MPIDI_VC_STATE_INACTIVE_CLOSED)
        goto fn_exit;

    if (vc->state == MPIDI_VC_STATE_CLOSED) {
        /* The close protocol is through. Its last packet may still be on its way: MPIDI_CH3_Finalize
         * sees it off. */
        if (vc->pg == MPIDI_Process.my_pg)
            ch3_offload_close_peer(MPIDI_CH3I_channel, vc->ch.peer);
        else if (vc->ch.root == NULL)
            MPIDI_CH3I_Leave_peer(vc);
        mpi_errno = MPIDI_CH3U_Handle_connection(vc, MPIDI_VC_EVENT_TERMINATED);
        MPIR_ERR_CHECK(mpi_errno);
    } else {
        /* The process manager says that it died. The engine says so when what it had sent is here,
         * unless it did before. */
        ch3_offload_fail_peer(MPIDI_CH3I_channel, MPIDI_CH3I_Peer(vc));
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- what communicators know of failed processes: in place of CH3's (mpidi_ch3_post.h), which asks the
 * process manager ---- */

int MPIDI_CH3I_Has_failed_member(MPIR_Comm * comm)
{
    int rank;

    for (rank = 0; failures > 0 && rank < comm->remote_size; rank++)
        if (MPIDI_CH3I_Member(comm, rank)->ch.failed_at != 0)
            return TRUE;
    return FALSE;
}

int MPIDI_CH3I_Is_acknowledged(MPIR_Comm * comm, int rank)
{
    const uint32_t failed_at = MPIDI_CH3I_Member(comm, rank)->ch.failed_at;

    return failed_at != 0 && failed_at <= comm->dev.ch.acknowledged;
}

int MPIDI_CH3I_Group_of(MPIR_Comm * comm, const char *is_in, int wanted, MPIR_Group ** new_group)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_Group *group = NULL;
    int *ranks;
    int i, count = 0;
    MPIDI_CH3I_CHKLMEM_DECL();

    MPIDI_CH3I_CHKLMEM_MALLOC(ranks, comm->remote_size * sizeof(int));
    if (comm->comm_kind == MPIR_COMM_KIND__INTERCOMM)
        mpi_errno = MPIR_Comm_remote_group_impl(comm, &group);
    else
        mpi_errno = MPIR_Comm_group_impl(comm, &group);
    MPIR_ERR_CHECK(mpi_errno);
    for (i = 0; i < comm->remote_size; i++)
        if (is_in[i] == wanted)
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
    MPIDI_CH3I_CHKLMEM_DECL();

    MPIDI_CH3I_CHKLMEM_MALLOC(is_in, comm->remote_size);
    for (i = 0; i < comm->remote_size; i++)
        is_in[i] = MPIDI_CH3I_Is_acknowledged(comm, i);
    mpi_errno = MPIDI_CH3I_Group_of(comm, is_in, TRUE, new_group);
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- probes of dead processes ---- */

/* CH3's probes look for a message, and if there is none call progress. They return no error of their own
 * but that of the progress call. So a look that finds nothing, where only dead processes could send,
 * leaves an error here for the progress call that comes next, in the same critical section. MPID_Iprobe
 * and MPID_Improbe look once more after that: an error left then would end up in somebody else's
 * progress call. */
static int probe_error = MPI_SUCCESS;
/* Fruitless, since the last progress call. */
static MPIDI_CH3I_probe_kind_t last_look = MPIDI_CH3I_PROBE_NONE;
static int is_second_look = FALSE;      /* the next look, if any, is an MPID_I(m)probe's second */

MPIR_Comm *MPIDI_CH3I_Find_communicator(int context_id)
{
    MPIR_Comm *comm;

    /* The lowest bit tells collectives from the rest. */
    DL_FOREACH_NP(MPIDI_CH3I_communicators, comm, dev.ch.next, dev.ch.prev) {
        if (comm->recvcontext_id == (context_id & ~1))
            break;
    }
    return comm;
}

void MPIDI_CH3I_Probe_found_something(void)
{
    last_look = MPIDI_CH3I_PROBE_NONE;
    is_second_look = FALSE;
}

void MPIDI_CH3I_Probe_found_nothing(int source, int context_id, MPIDI_CH3I_probe_kind_t kind)
{
    MPIR_Comm *comm;
    MPIDI_VC_t *vc;

    if (is_second_look) {
        is_second_look = FALSE;
        return;
    }
    last_look = kind;
    MPIDI_CH3I_Probe_waits();
    if (likely(failed_peers == 0 && !MPIDI_CH3I_knows_others))
        return;
    comm = MPIDI_CH3I_Find_communicator(context_id);
    if (comm == NULL)
        return;
    if (MPIDI_CH3I_knows_others)
        MPIDI_CH3I_Watch(comm, source);
    if (source == MPI_ANY_SOURCE) {
        if (comm->dev.anysource_enabled)
            return;
    } else {
        MPIDI_Comm_get_vc(comm, source, &vc);
        if (!vc->ch.peer_failed)
            return;
    }
    MPIR_ERR_SETSIMPLE(probe_error, MPIX_ERR_PROC_FAILED, "**proc_failed");
}

int MPIDI_CH3I_Probe_error(MPIDI_CH3I_probe_kind_t * looked)
{
    int mpi_errno = probe_error;

    probe_error = MPI_SUCCESS;
    is_second_look = FALSE;
    *looked = last_look;
    last_look = MPIDI_CH3I_PROBE_NONE;
    return mpi_errno;
}

void MPIDI_CH3I_Probe_polled(MPIDI_CH3I_probe_kind_t looked, int mpi_errno)
{
    /* After an error MPID_Iprobe looks again nevertheless, MPID_Improbe does not. */
    is_second_look = looked == MPIDI_CH3I_PROBE_PLAIN ||
        (looked == MPIDI_CH3I_PROBE_MATCHED && mpi_errno == MPI_SUCCESS);
}

static int on_comm_created(MPIR_Comm * comm, void *param ATTRIBUTE((unused)))
{
    comm->dev.ch.is_watched = FALSE;
    comm->dev.ch.acknowledged = 0;
    DL_APPEND_NP(MPIDI_CH3I_communicators, comm, dev.ch.next, dev.ch.prev);
    MPIDI_CH3I_Apply_class(comm);
    MPIDI_CH3I_Note_created(comm);
    return MPIDI_CH3I_Revoke_created(comm);
}

static int on_comm_destroyed(MPIR_Comm * comm, void *param ATTRIBUTE((unused)))
{
    DL_DELETE_NP(MPIDI_CH3I_communicators, comm, dev.ch.next, dev.ch.prev);
    MPIDI_CH3I_Forget_class(comm);
    return MPI_SUCCESS;
}

/* ---- SIGUSR1: hydra (with -disable-auto-cleanup) says that some process died ---- */

#ifdef HAVE_SIGNAL_H
static struct sigaction previous_action;
static int is_installed = FALSE;
static volatile sig_atomic_t signals = 0;
static sig_atomic_t signals_handled = 0;

static void on_sigusr1(int sig, siginfo_t * info, void *context)
{
    signals++;
    if (MPIDI_CH3I_channel != NULL)
        ch3_offload_wake(MPIDI_CH3I_channel);
    if (previous_action.sa_flags & SA_SIGINFO)
        previous_action.sa_sigaction(sig, info, context);
    else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN)
        previous_action.sa_handler(sig);
}
#endif

int MPIDI_CH3I_Failure_init(void)
{
    int mpi_errno = MPI_SUCCESS;
#ifdef HAVE_SIGNAL_H
    struct sigaction action;
    char strerrbuf[MPIR_STRERROR_BUF_SIZE] ATTRIBUTE((unused));
#endif

    /* A session may have been here before. */
    MPIDI_CH3I_communicators = NULL;
    failed_peers = 0;
    failures = 0;
    MPIDI_CH3I_losses = 0;
    probe_error = MPI_SUCCESS;
    last_look = MPIDI_CH3I_PROBE_NONE;
    is_second_look = FALSE;

    mpi_errno = MPIDI_CH3U_Comm_register_create_hook(on_comm_created, NULL);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIDI_CH3U_Comm_register_destroy_hook(on_comm_destroyed, NULL);
    MPIR_ERR_CHECK(mpi_errno);

#ifdef HAVE_SIGNAL_H
    if (is_installed)
        goto fn_exit;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_sigusr1;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    MPIR_ERR_CHKANDJUMP1(sigaction(SIGUSR1, &action, &previous_action) != 0, mpi_errno, MPI_ERR_OTHER,
                         "**signal", "**signal %s",
                         MPIR_Strerror(errno, strerrbuf, MPIR_STRERROR_BUF_SIZE));
    is_installed = TRUE;
#endif

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Failure_finalize(void)
{
#ifdef HAVE_SIGNAL_H
    /* Not back to the default, which would kill the process if another one dies now. */
    if (is_installed && ((previous_action.sa_flags & SA_SIGINFO) || previous_action.sa_handler != SIG_DFL)) {
        sigaction(SIGUSR1, &previous_action, NULL);
        is_installed = FALSE;
    }
#endif
}

#ifdef HAVE_SIGNAL_H
/* What the process manager says of ranks "1,3-5,11": the engine looks for those that it has not lost yet. */
static int take_news(const char *news)
{
    int mpi_errno = MPI_SUCCESS;

    while (*news != '\0' && mpi_errno == MPI_SUCCESS) {
        char *end;
        long rank = strtol(news, &end, 10), last = rank;

        if (end == news)
            break;              /* no number: what follows is not understood */
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (; rank >= 0 && rank <= last && rank < MPIDI_Process.my_pg->size; rank++) {
            MPIDI_VC_t *vc;

            MPIDI_PG_Get_vc(MPIDI_Process.my_pg, rank, &vc);
            if (!vc->ch.peer_failed && mpi_errno == MPI_SUCCESS)
                mpi_errno = MPIDI_CH3_Connection_terminate(vc);
        }
        news = end + strspn(end, ", ");
    }
    return mpi_errno;
}

/* The process manager has news. */
static int ask_for_failed(void)
{
    int mpi_errno = MPI_SUCCESS;
    char *news = MPIDI_CH3I_Dead_processes();

    if (news != NULL)
        mpi_errno = take_news(news);
    MPL_free(news);
    return mpi_errno;
}
#endif

int MPIDI_CH3I_Failure_poll(void)
{
    int mpi_errno = MPI_SUCCESS;

#ifdef HAVE_SIGNAL_H
    /* MPI_Finalize polls after MPI_COMM_WORLD is gone, which CH3 needs to understand the news. The
     * engine's own are enough then. */
    if (unlikely(signals != signals_handled) && MPIR_Process.comm_world != NULL) {
        signals_handled = signals;
        mpi_errno = ask_for_failed();
    }
#endif
    return mpi_errno;
}
