/*
 * The ch3:offload channel: progress, and the waiting of one thread or several.
 *
 * One thread at a time, the leader, polls and sleeps; it leaves the critical section to sleep, and between
 * polls when there are other threads. The other threads that wait sleep on a condition variable until the
 * leader has seen something finish. A thread that only tests polls for itself.
 *
 * A thread that waits may give its core away between polls: ch3_offload_wait_step says when. Where
 * processes outnumber cores, a thread that tests again and again does so, too.
 *
 * Who sleeps misses nothing: everything that makes a wait succeed comes from the engine (which wakes the
 * leader), from another thread's completion (MPIDI_CH3I_PROGRESS_WAKEUP), from a signal (ch3_failure.c), or
 * from a progress hook; hooks act on completions and packets, and are run again after every one. There are
 * two exceptions:
 *
 *   schedules that MPICH carries out may retry for what another schedule holds (MPI_Comm_idup for the
 *   mask of context ids): while there are any, a sleep is short.
 *
 *   a thread that has queued operations on a window leaves them to the hook if it cannot issue them. If it
 *   has to wait, it wakes the leader for that. Whose turn at a target ends tells those that wait for it
 *   (ch3_win_fns.c).
 */

#include "mpidi_ch3_impl.h"
/* MPICH declares it in a header of one of its directories only. */
int MPII_TSP_scheds_are_pending(void);

#include <sched.h>

#define RETRY_MS 1
/* Longest line of a warning. */
#define WARNING_BYTES 1024
/* After so many fruitless tests in a row, each further one gives the core away. */
#define MOST_FRUITLESS_TESTS 4
/* Where processes outnumber cores: after so many turns without work, it polls all the same. */
#define MOST_TURNS_WITHOUT_POLL 8

volatile unsigned int MPIDI_CH3I_progress_completion_count = 0;

#ifdef MPICH_IS_THREADED
/* TRUE while the leader is outside the critical section. */
volatile int MPIDI_CH3I_progress_blocked = FALSE;
volatile int MPIDI_CH3I_progress_wakeup_signalled = FALSE;
static MPID_Thread_cond_t completion_cond;
static int has_leader = FALSE;
static MPID_Thread_id_t leader; /* valid while has_leader */

static void wake_followers(void)
{
    if (MPIR_IS_THREADED) {
        int err;
        MPID_Thread_cond_broadcast(&completion_cond, &err);
        MPIR_Assert(err == 0);
    }
}

static int leads_already(void)
{
    MPID_Thread_id_t self;
    int is_same = FALSE;

    if (has_leader) {
        MPID_Thread_self(&self);
        MPID_Thread_same(&self, &leader, &is_same);
    }
    return is_same;
}
#endif

static int deferred_error = MPI_SUCCESS;
/* The processes of this node outnumber its cores. */
static int is_crowded = FALSE;
static int fruitless_tests = 0; /* in a row */
/* More than 0: a progress hook runs. It may poll in turn: CH3's RMA does. */
static int hooks_running = 0;

/* A blocking probe waits for no completion, but for a message that no receive takes. */
static int probe_waits = FALSE;
static uint64_t arrivals_at_probe = 0;

void MPIDI_CH3I_Defer_error(int mpi_errno)
{
    if (mpi_errno != MPI_SUCCESS && deferred_error == MPI_SUCCESS)
        deferred_error = mpi_errno;
}

/* The process exists. */
int MPIDI_CH3I_Progress_init(void)
{
    deferred_error = MPI_SUCCESS;
    is_crowded = ch3_offload_is_crowded(MPIDI_CH3I_channel);
    fruitless_tests = 0;
#ifdef MPICH_IS_THREADED
    int err;
    MPID_Thread_cond_create(&completion_cond, &err);
    MPIR_Assert(err == 0);
#endif
    return MPI_SUCCESS;
}

/* A message that comes after the look counts as new, so the number is read before. */
void MPIDI_CH3I_Probe_looks(void)
{
    if (!probe_waits)           /* another thread's probe has an older look */
        arrivals_at_probe = ch3_offload_arrivals(MPIDI_CH3I_channel);
}

void MPIDI_CH3I_Probe_waits(void)
{
    probe_waits = TRUE;
}

int MPIDI_CH3I_Progress_finalize(void)
{
    probe_waits = FALSE;
#ifdef MPICH_IS_THREADED
    int err;
    MPID_Thread_cond_destroy(&completion_cond, &err);
    MPIR_Assert(err == 0);
#endif
    return MPI_SUCCESS;
}

#ifdef MPICH_IS_THREADED
void MPIDI_CH3I_Progress_wakeup(void)
{
    if (MPIDI_CH3I_channel != NULL)
        ch3_offload_wake(MPIDI_CH3I_channel);
}
#endif

/* The engine polls no further than to a packet. Others have their turn after so many packets, or after
 * one that completes or frees a request: the caller may wait for it. */
#define MOST_PACKETS_IN_A_ROW 32

/* TRUE: a handler reads the bytes of a packet, which are valid until the engine polls again. */
static int reading_packet = FALSE;
static unsigned int packets_read = 0;

static inline void read_packet(const ch3_offload_event_t * packet)
{
    reading_packet = TRUE;
    MPIDI_CH3I_Packet_recv(packet->peer, packet->bytes, packet->length_bytes);
    reading_packet = FALSE;
    packets_read++;
}

static void handle(const ch3_offload_event_t * event)
{
    switch (event->kind) {
        case CH3_OFFLOAD_SEND_DONE:
            MPIDI_CH3I_Send_done(event->cookie, event->status);
            break;
        case CH3_OFFLOAD_CANCEL_DONE:
            MPIDI_CH3I_Cancel_done(event->cookie, event->is_cancelled);
            break;
        case CH3_OFFLOAD_PACKET:
            read_packet(event);
            break;
        case CH3_OFFLOAD_PACKET_OFFER:
            MPIDI_CH3I_Packet_offered(event->peer);
            break;
        case CH3_OFFLOAD_PACKET_PLACED:
            MPIDI_CH3I_Packet_placed(event->peer, event->length_bytes);
            break;
        case CH3_OFFLOAD_PEER_DOWN:
            MPIDI_CH3I_Peer_failed(event->peer, event->status);
            break;
        case CH3_OFFLOAD_CARD_WANTED:
            MPIDI_CH3I_Card_wanted(event->peer);
            break;
        case CH3_OFFLOAD_LANE_MADE:
            MPIDI_CH3I_Lane_made(event->peer);
            break;
        case CH3_OFFLOAD_SCHEDULE_DONE:
            MPIDI_CH3I_Schedule_done(event->cookie, event->status);
            break;
        case CH3_OFFLOAD_WINDOW_DONE:
            MPIDI_CH3I_Window_part_over(event->cookie, event->status);
            break;
        case CH3_OFFLOAD_WARNING:{
                char text[WARNING_BYTES];
                snprintf(text, sizeof(text), "%.*s", (int) event->length_bytes,
                             (const char *) event->bytes);
                MPIDI_CH3I_Warn(text);
                break;
            }
    }
}

static inline void take(const ch3_offload_event_t * event)
{
    if (likely(event->kind == CH3_OFFLOAD_RECEIVE_DONE))
        MPIDI_CH3I_Receive_done(event);
    else
        handle(event);
}

void MPIDI_CH3I_Take_completions(void)
{
    const ch3_offload_event_t *event;

    while ((event = ch3_offload_take_event(MPIDI_CH3I_events)) != NULL)
        take(event);
}

static inline int take_packet(void)
{
    ch3_offload_event_t packet;

    if (!ch3_offload_take_packet(MPIDI_CH3I_events, &packet))
        return FALSE;
    read_packet(&packet);
    return TRUE;
}

static int take_other(void)
{
    ch3_offload_event_t event;

    if (!ch3_offload_next_event(MPIDI_CH3I_channel, &event))
        return FALSE;
    take(&event);
    return TRUE;
}

static inline size_t take_all(void)
{
    const ch3_offload_event_t *event;
    size_t count = 0;

    for (;; count++) {
        event = ch3_offload_take_event(MPIDI_CH3I_events);
        if (event != NULL)
            take(event);
        else if (!(unlikely(MPIDI_CH3I_events->others)? take_other() : take_packet()))
            return count;
    }
}

size_t MPIDI_CH3I_Take_events(void)
{
    return take_all();
}

/* Takes what there is, lets the engine work, and takes what came of that. Returns how many things
 * happened. */
static size_t poll_engine(void)
{
    size_t count;
    unsigned int packets_before;
    unsigned int completions = MPIDI_CH3I_progress_completion_count;
    int turns = MOST_PACKETS_IN_A_ROW;

    if (unlikely(reading_packet))
        return 0;
    count = ch3_offload_has_events(MPIDI_CH3I_events) ? take_all() : 0;
    do {
        packets_before = packets_read;
        count += ch3_offload_progress(MPIDI_CH3I_channel);
        count += take_all();
    } while (unlikely(packets_read != packets_before) && --turns > 0 &&
             completions == MPIDI_CH3I_progress_completion_count);
    return count;
}

/* Polls everything once. *happened: something moved. */
static int poll_once(int *happened)
{
    int mpi_errno = MPI_SUCCESS;
    int made_progress = FALSE;
    size_t events;

    mpi_errno = MPIDI_CH3I_Failure_poll();
    MPIR_ERR_CHECK(mpi_errno);

    events = poll_engine();
    if (unlikely(MPIDI_CH3I_losses > 0)) {
        MPIDI_CH3I_Packets_fail_unsent();
        MPIDI_CH3I_Defer_error(MPIDI_CH3I_Fail_lost_targets());
    }
    if (unlikely(deferred_error != MPI_SUCCESS)) {
        mpi_errno = deferred_error;
        deferred_error = MPI_SUCCESS;
        goto fn_fail;
    }
    if (events > 0)
        MPIDI_CH3I_Drop_revoked();
    if (probe_waits && ch3_offload_arrivals(MPIDI_CH3I_channel) != arrivals_at_probe) {
        probe_waits = FALSE;
        MPIDI_CH3_Progress_signal_completion();
    }

    hooks_running++;
    mpi_errno = MPIDI_CH3I_Progress_hooks(&made_progress);
    hooks_running--;
    MPIR_ERR_CHECK(mpi_errno);
    if (made_progress)
        MPIDI_CH3_Progress_signal_completion();
    *happened = events > 0 || made_progress;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Lets other threads in. */
static void yield(void)
{
#ifdef MPICH_IS_THREADED
    if (MPIR_IS_THREADED) {
        MPIDI_CH3I_progress_blocked = TRUE;
        MPID_THREAD_CS_YIELD(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
        MPIDI_CH3I_progress_blocked = FALSE;
        MPIDI_CH3I_progress_wakeup_signalled = FALSE;
    }
#endif
}

/* Longest sleep, in milliseconds; -1: until something happens. */
static int longest_sleep(void)
{
    return MPIDU_Sched_are_pending() || MPII_TSP_scheds_are_pending() ? RETRY_MS : -1;
}

static void sleep_outside(int timeout_ms)
{
#ifdef MPICH_IS_THREADED
    MPIDI_CH3I_progress_blocked = TRUE;
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
#endif
    ch3_offload_sleep(MPIDI_CH3I_channel, timeout_ms);
#ifdef MPICH_IS_THREADED
    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    MPIDI_CH3I_progress_blocked = FALSE;
    MPIDI_CH3I_progress_wakeup_signalled = FALSE;
#endif
}

/* Lets other processes run on this core, and other threads enter the critical section. */
static void give_core_away(void)
{
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    sched_yield();
    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
}

/* Whether to sleep now, the process being armed; polls first. If a progress hook waits meanwhile, and
 * disarms, ch3_offload_sleep() returns at once. */
static int may_sleep(int *mpi_errno)
{
    int happened = FALSE;

    *mpi_errno = poll_once(&happened);
    return *mpi_errno == MPI_SUCCESS && !happened;
}

/* Gives the core away until there is something to poll for, or it is time to sleep; returns the next step. A
 * poll sees more than ch3_offload_may_have_work, such as a new peer, so there is one now and then anyway. */
static int take_turns(unsigned int count)
{
    int step = ch3_offload_wait_step(MPIDI_CH3I_channel);
    int turns = is_crowded ? MOST_TURNS_WITHOUT_POLL : 1;

    while (step == CH3_OFFLOAD_YIELD) {
        give_core_away();
        if (MPIDI_CH3I_progress_completion_count != count || longest_sleep() != -1 || --turns == 0 ||
            ch3_offload_may_have_work(MPIDI_CH3I_channel))
            return CH3_OFFLOAD_POLL;
        step = ch3_offload_wait_step(MPIDI_CH3I_channel);
    }
    return step;
}

/* Spins and sleeps until the completion count is no longer `count`. */
static int wait_as_leader(unsigned int count)
{
    int mpi_errno = MPI_SUCCESS;
    int happened = FALSE;

    ch3_offload_wait_begin(MPIDI_CH3I_channel);
    for (;;) {
        mpi_errno = poll_once(&happened);
        if (mpi_errno != MPI_SUCCESS || MPIDI_CH3I_progress_completion_count != count)
            break;
        yield();
        if (MPIDI_CH3I_progress_completion_count != count)
            break;
        if (happened)
            continue;

        if (take_turns(count) == CH3_OFFLOAD_SLEEP) {
            /* Armed now: what comes from here on ends the sleep. */
            if (may_sleep(&mpi_errno) && MPIDI_CH3I_progress_completion_count == count)
                sleep_outside(longest_sleep());
            ch3_offload_awake(MPIDI_CH3I_channel);
        }
        if (mpi_errno != MPI_SUCCESS || MPIDI_CH3I_progress_completion_count != count)
            break;
    }
    return mpi_errno;
}

static int progress_wait(MPID_Progress_state * state)
{
    int mpi_errno = MPI_SUCCESS;

#ifdef MPICH_IS_THREADED
    /* A progress hook of the leader may wait in turn: MPI_Comm_idup's does, in a collective. */
    if (leads_already()) {
        mpi_errno = wait_as_leader(state->ch.completion_count);
        wake_followers();
        goto fn_exit;
    }
    /* The leader may have fallen asleep before there were schedules, or operations that wait to be issued. */
    if (MPIDI_CH3I_progress_blocked && (longest_sleep() != -1 || MPIDI_RMA_Win_active_list_head != NULL))
        MPIDI_CH3I_PROGRESS_WAKEUP;
    while (has_leader) {
        int err;
        if (state->ch.completion_count != MPIDI_CH3I_progress_completion_count)
            goto fn_exit;
        MPID_Thread_cond_wait(&completion_cond, &MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX, &err);
        MPIR_Assert(err == 0);
    }
    has_leader = TRUE;
    MPID_Thread_self(&leader);
#endif

    mpi_errno = wait_as_leader(state->ch.completion_count);

#ifdef MPICH_IS_THREADED
    has_leader = FALSE;
    wake_followers();
  fn_exit:
#endif
    state->ch.completion_count = MPIDI_CH3I_progress_completion_count;
    return mpi_errno;
}

/* Counts fruitless tests and probes. Where processes outnumber cores, a program that tests in a loop
 * would keep its core to the end of its time slice, and the awaited process would not run. A hook keeps
 * the critical section, because it may be in the midst of a list. */
static void after_test(int happened)
{
    if (happened) {
        fruitless_tests = 0;
    } else if (++fruitless_tests > MOST_FRUITLESS_TESTS) {
        fruitless_tests = MOST_FRUITLESS_TESTS;
        if (hooks_running > 0)
            sched_yield();
        else
            give_core_away();
    }
}

int MPIDI_CH3I_Progress(int blocking, MPID_Progress_state * state)
{
    int happened = TRUE;
    MPIDI_CH3I_probe_kind_t looked;
    int mpi_errno = MPIDI_CH3I_Probe_error(&looked);

    if (blocking)
        return mpi_errno == MPI_SUCCESS ? progress_wait(state) : mpi_errno;
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = poll_once(&happened);
    if (unlikely(is_crowded))
        after_test(happened);
    MPIDI_CH3I_Probe_polled(looked, mpi_errno);
    return mpi_errno;
}

int MPIDI_CH3I_Await_progress(void)
{
    int mpi_errno;
    MPID_Progress_state state;

    MPID_Progress_start(&state);
    mpi_errno = MPID_Progress_wait(&state);
    MPID_Progress_end(&state);
    return mpi_errno;
}

/* MPI_Finalize: what is on its way goes out, what receives have matched comes in, and all events are
 * taken. */
int MPIDI_CH3I_Progress_drain(void)
{
    int mpi_errno = MPI_SUCCESS;
    int is_idle;
    int happened;
    int step;

    ch3_offload_wait_begin(MPIDI_CH3I_channel);
    for (;;) {
        /* Events of what has ended can be taken by the poll that comes after this look. */
        is_idle = ch3_offload_idle(MPIDI_CH3I_channel);
        mpi_errno = poll_once(&happened);
        MPIR_ERR_CHECK(mpi_errno);
        if (happened)
            continue;
        if (is_idle && MPIDI_CH3I_Packets_idle())
            break;
        step = ch3_offload_wait_step(MPIDI_CH3I_channel);
        if (step == CH3_OFFLOAD_YIELD) {
            sched_yield();
        } else if (step == CH3_OFFLOAD_SLEEP) {
            if (may_sleep(&mpi_errno) && !ch3_offload_idle(MPIDI_CH3I_channel))
                ch3_offload_sleep(MPIDI_CH3I_channel, longest_sleep());
            ch3_offload_awake(MPIDI_CH3I_channel);
            MPIR_ERR_CHECK(mpi_errno);
        }
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}
