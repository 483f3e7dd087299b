/* For test/faults/run: one rank or two kill themselves while the others wait for them in the way that
 * argv[1] names. The survivors' calls must end with MPIX_ERR_PROC_FAILED; afterwards they must be able to
 * talk to each other.
 *
 * Each rank writes to its own file in the directory argv[2], because mpiexec may end before it has passed
 * on a survivor's last words. It writes "process PID" and "shm FILE" for each file in /dev/shm that it has
 * open or mapped. A victim writes "killed NS" at its death; a survivor "waiting", then "error CLASS NS" (CLASS is 0, PROC_FAILED, PROC_FAILED_PENDING or a number) with " must"
 * behind it if 0 is no right answer, and at its end "alive". NS is CLOCK_MONOTONIC, which all processes of
 * a node share. */
#define _GNU_SOURCE
#include <mpi.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kVictim = 1, kSecondVictim = 2, kLarge = 8 << 20, kPayload = 256 << 20, kTagTalk = 99 };
enum { kRounds = 100, kTagLock = 98 };
enum { kWaitBeforeDeath_us = 200000 };  /* the survivors really wait by then */

/* When a victim dies. */
typedef enum {
    kAfterWait,                 /* kWaitBeforeDeath_us after the survivors began */
    kQuarterReceived,           /* when it has the first quarter of a payload */
    kQuarterSent,               /* when a survivor has that */
} death_t;

static int rank, size;
static char *buffer;            /* kLarge bytes, or kPayload */
static MPI_Win window;
static MPI_Comm living;         /* without the victim */
static MPI_Win living_window;   /* kLarge / 2 bytes of each of them */
static FILE *words;
static volatile int *quarter_seen;      /* all ranks of the node see it */

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void stop(const char *what)
{
    fprintf(stderr, "victim: rank %d: %s: %s\n", rank, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void start_thread(void *(*run) (void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0)
        stop("pthread_create");
}

/* ---- point to point ---- */

static int recv_from_victim(void)
{
    return MPI_Recv(buffer, kLarge, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int recv_anysource(void)
{
    return MPI_Recv(buffer, kLarge, MPI_CHAR, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* With two victims: rank 0 waits for one of them, the others for the other. */
static int recv_from_either(void)
{
    return MPI_Recv(buffer, kLarge, MPI_CHAR, rank == 0 ? kVictim : kSecondVictim, 0, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE);
}

static int irecv_anysource(void)
{
    MPI_Request request;
    int error;

    MPI_Irecv(buffer, kLarge, MPI_CHAR, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
    error = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (request != MPI_REQUEST_NULL) {
        /* Pending: it can be cancelled. */
        MPI_Cancel(&request);
        MPI_Request_free(&request);
    }
    return error;
}

static int send_to_victim(void)
{
    return MPI_Send(buffer, kLarge, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD);
}

static int ssend_to_victim(void)
{
    return MPI_Ssend(buffer, 1, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD);
}

/* More of small ones than fit anywhere. */
static int send_many(void)
{
    int error = MPI_SUCCESS;
    while (error == MPI_SUCCESS)
        error = MPI_Send(buffer, 4096, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD);
    return error;
}

static int probe(void)
{
    return MPI_Probe(kVictim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int mprobe(void)
{
    MPI_Message message;
    return MPI_Mprobe(kVictim, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
}

static int iprobe(void)
{
    int error, flag = 0;
    do
        error = MPI_Iprobe(kVictim, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    while (error == MPI_SUCCESS && !flag);
    return error;
}

static int improbe(void)
{
    int error, flag = 0;
    MPI_Message message;
    do
        error = MPI_Improbe(kVictim, 0, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    while (error == MPI_SUCCESS && !flag);
    return error;
}

static int test_recv(void)
{
    MPI_Request request;
    int error, flag = 0;

    MPI_Irecv(buffer, kLarge, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD, &request);
    do
        error = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    while (error == MPI_SUCCESS && !flag);
    return error;
}

/* ---- in the middle of a payload: rank 0 is its other side ---- */

static int payload_send(void)
{
    if (rank != 0)
        return recv_from_victim();
    memset(buffer, 1, kPayload);
    return MPI_Send(buffer, kPayload, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD);
}

static void victim_receives(void)
{
    MPI_Recv(buffer, kPayload, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void *watch_quarter(void *unused)
{
    (void) unused;
    while (((volatile char *) buffer)[kPayload / 4] == 0)
        continue;
    *quarter_seen = 1;
    return NULL;
}

static int payload_recv(void)
{
    if (rank != 0)
        return recv_from_victim();
    start_thread(watch_quarter, NULL);
    return MPI_Recv(buffer, kPayload, MPI_CHAR, kVictim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void victim_sends(void)
{
    memset(buffer, 1, kPayload);
    MPI_Send(buffer, kPayload, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
}

/* ---- collectives that the victim never enters ---- */

static int barrier(void)
{
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int bcast(void)
{
    return MPI_Bcast(buffer, 100000, MPI_CHAR, kVictim, MPI_COMM_WORLD);
}

static int reduce(void)
{
    return MPI_Reduce(rank == 0 ? MPI_IN_PLACE : buffer, buffer, 1000, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static int allreduce(void)
{
    return MPI_Allreduce(MPI_IN_PLACE, buffer, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int allreduce_long(void)
{
    return MPI_Allreduce(MPI_IN_PLACE, buffer, kLarge / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int gather(void)
{
    return MPI_Gather(buffer, 1000, MPI_CHAR, buffer + kLarge / 2, 1000, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static int scatter(void)
{
    return MPI_Scatter(buffer, 1000, MPI_CHAR, buffer + kLarge / 2, 1000, MPI_CHAR, kVictim, MPI_COMM_WORLD);
}

static int allgather(void)
{
    return MPI_Allgather(buffer, 1000, MPI_CHAR, buffer + kLarge / 2, 1000, MPI_CHAR, MPI_COMM_WORLD);
}

static int alltoall(void)
{
    return MPI_Alltoall(buffer, 100000, MPI_CHAR, buffer + kLarge / 2, 100000, MPI_CHAR, MPI_COMM_WORLD);
}

static int reduce_scatter(void)
{
    return MPI_Reduce_scatter_block(buffer, buffer + kLarge / 2, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int scan(void)
{
    return MPI_Scan(MPI_IN_PLACE, buffer, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int comm_dup(void)
{
    MPI_Comm comm;
    return MPI_Comm_dup(MPI_COMM_WORLD, &comm);
}

static int comm_split(void)
{
    MPI_Comm comm;
    return MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
}

static int ibarrier(void)
{
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int iallreduce(void)
{
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, buffer, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* ---- one-sided communication ---- */

/* With a victim that gives no progress, and one that does until it dies. */
static void victim_progresses(void)
{
    recv_from_victim();
}

static int put(void)
{
    int error = MPI_Win_lock_all(0, window);
    while (error == MPI_SUCCESS) {
        error = MPI_Put(buffer, kLarge / 4, MPI_CHAR, kVictim, 0, kLarge / 4, MPI_CHAR, window);
        if (error == MPI_SUCCESS)
            error = MPI_Win_flush(kVictim, window);
    }
    return error;
}

static int get(void)
{
    int error = MPI_Win_lock_all(0, window);
    while (error == MPI_SUCCESS) {
        error = MPI_Get(buffer + kLarge / 2, kLarge / 4, MPI_CHAR, kVictim, 0, kLarge / 4, MPI_CHAR, window);
        if (error == MPI_SUCCESS)
            error = MPI_Win_flush(kVictim, window);
    }
    return error;
}

static int accumulate(void)
{
    int error = MPI_Win_lock_all(0, window);
    while (error == MPI_SUCCESS) {
        error = MPI_Accumulate(buffer, 10000, MPI_INT, kVictim, 0, 10000, MPI_INT, MPI_SUM, window);
        if (error == MPI_SUCCESS)
            error = MPI_Win_flush_all(window);
    }
    return error;
}

/* Operations with a request. */
typedef int start_t(int target, MPI_Request * request);

static int start_rget(int target, MPI_Request * request)
{
    return MPI_Rget(buffer + kLarge / 2, kLarge / 4, MPI_CHAR, target, 0, kLarge / 4, MPI_CHAR, window, request);
}

static int start_rput(int target, MPI_Request * request)
{
    return MPI_Rput(buffer, kLarge / 4, MPI_CHAR, target, 0, kLarge / 4, MPI_CHAR, window, request);
}

static int start_raccumulate(int target, MPI_Request * request)
{
    return MPI_Raccumulate(buffer, 10000, MPI_INT, target, 0, 10000, MPI_INT, MPI_SUM, window, request);
}

static int start_rget_accumulate(int target, MPI_Request * request)
{
    return MPI_Rget_accumulate(buffer, 10000, MPI_INT, buffer + kLarge / 2, 10000, MPI_INT, target, 0, 10000,
                               MPI_INT, MPI_SUM, window, request);
}

static int start_and_wait(start_t * start, int target)
{
    MPI_Request request;
    int error = start(target, &request);
    if (error == MPI_SUCCESS)
        error = MPI_Wait(&request, MPI_STATUS_IGNORE);
    return error;
}

static int until_error(start_t * start)
{
    int error = MPI_Win_lock_all(0, window);
    while (error == MPI_SUCCESS)
        error = start_and_wait(start, kVictim);
    return error;
}

static int rget(void)
{
    return until_error(start_rget);
}

/* It may be done before anything reaches the target. */
static int rput(void)
{
    return until_error(start_rput);
}

static int raccumulate(void)
{
    return until_error(start_raccumulate);
}

static int rget_accumulate(void)
{
    return until_error(start_rget_accumulate);
}

/* Each of them, where the death is known before. */
static int requests_late(void)
{
    static start_t *const starts[] = { start_rget, start_rput, start_raccumulate, start_rget_accumulate };
    int error = recv_from_victim(), class;

    MPI_Win_lock_all(0, window);
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        MPI_Error_class(start_and_wait(starts[i], kVictim), &class);
        if (class != MPIX_ERR_PROC_FAILED)
            return MPI_ERR_OTHER;
    }
    return error;
}

static int lock(void)
{
    int error = MPI_SUCCESS;
    while (error == MPI_SUCCESS) {
        error = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kVictim, 0, window);
        if (error == MPI_SUCCESS)
            error = MPI_Get(buffer, 8, MPI_CHAR, kVictim, 0, 8, MPI_CHAR, window);
        if (error == MPI_SUCCESS)
            error = MPI_Win_unlock(kVictim, window);
    }
    return error;
}

/* For the lock of rank 0, which the victim takes along. */
static int wait_for_held_lock(void)
{
    int error = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    if (error == MPI_SUCCESS)
        error = MPI_Put(buffer, 8, MPI_CHAR, 0, 0, 8, MPI_CHAR, window);
    if (error == MPI_SUCCESS)
        error = MPI_Win_unlock(0, window);
    return error;
}

static void prepare_held_lock(void)
{
    if (rank == kVictim) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(buffer, 8, MPI_CHAR, 0, 0, 8, MPI_CHAR, window);
        MPI_Win_flush(0, window);
    }
}

/* The other survivor, in a job of three. */
static int other_living(void)
{
    return 2 - rank;
}

static void meet_other_living(void)
{
    MPI_Sendrecv(NULL, 0, MPI_CHAR, other_living(), kTagLock, NULL, 0, MPI_CHAR, other_living(), kTagLock,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Rank 2 asks for it when it knows that the holder is dead, and rank 0 does, too. */
static int ask_late_for_held_lock(void)
{
    int error = recv_from_victim();

    meet_other_living();
    if (rank == 2)
        error = wait_for_held_lock();
    /* Rank 0 answers meanwhile. */
    meet_other_living();
    return error;
}

/* Rank 0 waits for its own lock in MPI_Win_lock, the others for an operation that needs it. */
static int wait_for_request_behind_held_lock(void)
{
    int error = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    return error != MPI_SUCCESS ? error : start_and_wait(start_rget, 0);
}

/* ---- the living go on: these return the error of the dead, or MPI_ERR_OTHER if the living have one ---- */


static void make_living(void)
{
    MPI_Comm_split(MPI_COMM_WORLD, rank == kVictim, rank, &living);
    MPI_Comm_set_errhandler(living, MPI_ERRORS_RETURN);
    MPI_Win_create(buffer, kLarge / 2, 1, MPI_INFO_NULL, living, &living_window);
    MPI_Win_set_errhandler(living_window, MPI_ERRORS_RETURN);
}

static int lock_put_unlock(int target, MPI_Win win)
{
    int error = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
    if (error == MPI_SUCCESS)
        error = MPI_Put(buffer + kLarge / 2, 8, MPI_CHAR, target, 0, 8, MPI_CHAR, win);
    if (error == MPI_SUCCESS)
        error = MPI_Win_unlock(target, win);
    return error;
}

/* Another window, which the dead is not part of. */
static int other_window(void)
{
    int error = put();
    for (int i = 0; i < kRounds; i++) {
        if (lock_put_unlock(rank == 0, living_window) != MPI_SUCCESS ||
            MPI_Win_fence(0, living_window) != MPI_SUCCESS ||
            MPI_Put(buffer, 8, MPI_CHAR, rank == 0, 0, 8, MPI_CHAR, living_window) != MPI_SUCCESS ||
            MPI_Win_fence(MPI_MODE_NOSUCCEED, living_window) != MPI_SUCCESS)
            return MPI_ERR_OTHER;
    }
    return error;
}

/* The same window: the living, and the dead once more. */
static int other_target(void)
{
    int error = put();
    for (int i = 0; i < kRounds; i++) {
        if (start_and_wait(start_rget, other_living()) != MPI_SUCCESS ||
            MPI_Put(buffer, 8, MPI_CHAR, other_living(), 0, 8, MPI_CHAR, window) != MPI_SUCCESS ||
            MPI_Win_flush(other_living(), window) != MPI_SUCCESS)
            return MPI_ERR_OTHER;
    }
    if (MPI_Win_flush(kVictim, window) == MPI_SUCCESS)
        return MPI_ERR_OTHER;
    return error;
}

/* Answers others for that long. */
static void progress_us(int time_us)
{
    int flag;
    for (long long end_ns = now_ns() + time_us * 1000LL; now_ns() < end_ns;)
        MPI_Iprobe(other_living(), kTagLock, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

/* Rank 2 waits for a lock that rank 0 holds, when the death is known. */
static int lock_of_living(void)
{
    int error = recv_from_victim(), living_error;

    if (rank == 0) {
        living_error = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Send(NULL, 0, MPI_CHAR, 2, kTagLock, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_CHAR, 2, kTagLock, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        progress_us(kWaitBeforeDeath_us);
        if (living_error == MPI_SUCCESS)
            living_error = MPI_Win_unlock(0, window);
    } else {
        MPI_Recv(NULL, 0, MPI_CHAR, 0, kTagLock, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_CHAR, 0, kTagLock, MPI_COMM_WORLD);
        living_error = lock_put_unlock(0, window);
    }
    return living_error == MPI_SUCCESS ? error : MPI_ERR_OTHER;
}

/* The victim dies in the queue for rank 0's lock, which rank 2 holds and then gives back. */
static int death_in_queue(void)
{
    int error = recv_from_victim();
    int living_error = MPI_SUCCESS;

    if (rank == 2) {
        living_error = MPI_Win_unlock(0, window);
        for (int i = 0; i < kRounds && living_error == MPI_SUCCESS; i++)
            living_error = lock_put_unlock(0, window);
        MPI_Send(NULL, 0, MPI_CHAR, 0, kTagLock, MPI_COMM_WORLD);
    } else {
        living_error = MPI_Recv(NULL, 0, MPI_CHAR, 2, kTagLock, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return living_error == MPI_SUCCESS ? error : MPI_ERR_OTHER;
}

static void lock_of_0_to_2(void)
{
    if (rank == 2) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(buffer, 8, MPI_CHAR, 0, 0, 8, MPI_CHAR, window);
        MPI_Win_flush(0, window);
    }
}

static void victim_queues(void)
{
    lock_put_unlock(0, window);
}

static int fence(void)
{
    int error = MPI_Win_fence(0, window);
    if (error == MPI_SUCCESS)
        error = MPI_Put(buffer, 8, MPI_CHAR, 0, 0, 8, MPI_CHAR, window);
    if (error == MPI_SUCCESS)
        error = MPI_Win_fence(0, window);
    return error;
}

static void victim_fences_once(void)
{
    MPI_Win_fence(0, window);
}

static MPI_Group group_of(int one)
{
    MPI_Group all, group;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &one, &group);
    MPI_Group_free(&all);
    return group;
}

static int start_and_complete(void)
{
    int error = MPI_Win_start(group_of(kVictim), 0, window);
    if (error == MPI_SUCCESS)
        error = MPI_Put(buffer, 8, MPI_CHAR, kVictim, 0, 8, MPI_CHAR, window);
    if (error == MPI_SUCCESS)
        error = MPI_Win_complete(window);
    return error;
}

static int post_and_wait(void)
{
    int error = MPI_Win_post(group_of(kVictim), 0, window);
    if (error == MPI_SUCCESS)
        error = MPI_Win_wait(window);
    return error;
}

static int win_free(void)
{
    return MPI_Win_free(&window);
}

static int win_create(void)
{
    MPI_Win other;
    return MPI_Win_create(buffer, 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other);
}

/* ---- the end ---- */

/* MPI says nothing of what MPI_Finalize returns then; it must come back. */
static int finalize(void)
{
    return MPI_Finalize();
}

/* The survivors come later. */
static int finalize_late(void)
{
    usleep(2 * kWaitBeforeDeath_us);
    return MPI_Finalize();
}

static void victim_finalizes(void)
{
    MPI_Finalize();
}

/* ---- all of them ---- */

enum { kEverybody = ~0u, kNobody = 0, kRoot = 1 };

static const struct way {
    const char *name;
    int (*survive) (void);
    unsigned must_fail;         /* which survivors must get an error, by bits; the others may */
    void (*victim) (void);      /* what the victim does meanwhile; NULL: it sleeps */
    death_t death;
    void (*prepare) (void);     /* before all of that, in all ranks */
    int is_rma;
} ways[] = {
    {"recv", recv_from_victim, kEverybody},
    {"anysource", recv_anysource, kEverybody},
    {"irecv-anysource", irecv_anysource, kEverybody},
    {"test", test_recv, kEverybody},
    {"send", send_to_victim, kEverybody},
    {"ssend", ssend_to_victim, kEverybody},
    {"send-many", send_many, kEverybody},
    {"probe", probe, kEverybody},
    {"mprobe", mprobe, kEverybody},
    {"iprobe", iprobe, kEverybody},
    {"improbe", improbe, kEverybody},
    {"recv-either", recv_from_either, kEverybody},
    {"payload-send", payload_send, kEverybody, victim_receives, kQuarterReceived},
    {"payload-recv", payload_recv, kEverybody, victim_sends, kQuarterSent},
    {"barrier", barrier, kEverybody},
    {"bcast", bcast, kEverybody},
    {"reduce", reduce, kRoot},
    /* MPICH 4.0.2's algorithms for it return the error of their last step only; rank 0's is with the victim. */
    {"allreduce", allreduce, kRoot},
    {"allreduce-long", allreduce_long, kRoot},
    {"gather", gather, kRoot},
    {"scatter", scatter, kEverybody},
    {"allgather", allgather, kEverybody},
    {"alltoall", alltoall, kEverybody},
    {"reduce-scatter", reduce_scatter, kEverybody},
    {"scan", scan, kEverybody & ~kRoot},
    {"comm-dup", comm_dup, kEverybody},
    {"comm-split", comm_split, kEverybody},
    {"ibarrier", ibarrier, kEverybody},
    {"iallreduce", iallreduce, kEverybody},
    {"put", put, kEverybody, .is_rma = 1},
    {"put-busy", put, kEverybody, victim_progresses, .is_rma = 1},
    {"get", get, kEverybody, .is_rma = 1},
    {"get-busy", get, kEverybody, victim_progresses, .is_rma = 1},
    {"accumulate", accumulate, kEverybody, .is_rma = 1},
    {"accumulate-busy", accumulate, kEverybody, victim_progresses, .is_rma = 1},
    {"rget", rget, kEverybody, .is_rma = 1},
    {"rget-busy", rget, kEverybody, victim_progresses, .is_rma = 1},
    {"rput", rput, kEverybody, .is_rma = 1},
    {"raccumulate", raccumulate, kEverybody, .is_rma = 1},
    {"rget-accumulate", rget_accumulate, kEverybody, .is_rma = 1},
    {"rget-accumulate-busy", rget_accumulate, kEverybody, victim_progresses, .is_rma = 1},
    {"requests-late", requests_late, kEverybody, .is_rma = 1},
    {"lock", lock, kEverybody, .is_rma = 1},
    {"lock-busy", lock, kEverybody, victim_progresses, .is_rma = 1},
    {"held-lock", wait_for_held_lock, kEverybody, .prepare = prepare_held_lock, .is_rma = 1},
    {"late-for-held-lock", ask_late_for_held_lock, kEverybody, .prepare = prepare_held_lock,
     .is_rma = 1},
    {"request-behind-held-lock", wait_for_request_behind_held_lock, kEverybody, .prepare = prepare_held_lock,
     .is_rma = 1},
    {"other-window", other_window, kEverybody, .prepare = make_living, .is_rma = 1},
    {"other-target", other_target, kEverybody, .is_rma = 1},
    {"lock-of-living", lock_of_living, kEverybody, .is_rma = 1},
    {"death-in-queue", death_in_queue, kEverybody, victim_queues, .prepare = lock_of_0_to_2, .is_rma = 1},
    {"fence", fence, kEverybody, .is_rma = 1},
    {"second-fence", fence, kEverybody, victim_fences_once, .is_rma = 1},
    {"start", start_and_complete, kEverybody, .is_rma = 1},
    {"post", post_and_wait, kEverybody, .is_rma = 1},
    {"win-free", win_free, kEverybody, .is_rma = 1},
    {"win-create", win_create, kEverybody},
    {"finalize", finalize, kNobody},
    {"finalize-late", finalize_late, kNobody, victim_finalizes},
};

static void *die(void *argument)
{
    const struct way *way = argument;

    switch (way->death) {
        case kAfterWait:
            usleep(kWaitBeforeDeath_us);
            break;
        case kQuarterReceived:
            while (((volatile char *) buffer)[kPayload / 4] == 0)
                continue;
            break;
        case kQuarterSent:
            while (!*quarter_seen)
                continue;
            break;
    }
    fprintf(words, "killed %lld\n", now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

static void say_error(const struct way *way, int error, long long when_ns)
{
    const char *must = way->must_fail >> rank & 1 ? " must" : "";
    int class = MPI_SUCCESS;

    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &class);
    if (class == MPIX_ERR_PROC_FAILED)
        fprintf(words, "error PROC_FAILED %lld%s\n", when_ns, must);
    else if (class == MPIX_ERR_PROC_FAILED_PENDING)
        fprintf(words, "error PROC_FAILED_PENDING %lld%s\n", when_ns, must);
    else
        fprintf(words, "error %d %lld%s\n", class, when_ns, must);
}

/* A message goes round among the living. */
static void talk(int is_victim_rank(int))
{
    int next = rank, previous = rank, value = -1;

    do
        next = (next + 1) % size;
    while (is_victim_rank(next));
    do
        previous = (previous + size - 1) % size;
    while (is_victim_rank(previous));
    if (MPI_Sendrecv(&rank, 1, MPI_INT, next, kTagTalk, &value, 1, MPI_INT, previous, kTagTalk, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE) == MPI_SUCCESS && value == previous)
        fprintf(words, "alive\n");
    else
        fprintf(words, "cut off\n");
}

static int victims = 1;

static int is_victim(int which)
{
    return which == kVictim || (victims == 2 && which == kSecondVictim);
}

static void say_if_shm(const char *path)
{
    if (strncmp(path, "/dev/shm/", 9) == 0 && strstr(path, " (deleted)") == NULL)
        fprintf(words, "shm %s\n", path);
}

/* Writes who this process is, and its files in /dev/shm. */
static void say_self(void)
{
    char line[4096];
    struct dirent *entry;
    DIR *files = opendir("/proc/self/fd");
    FILE *maps = fopen("/proc/self/maps", "r");

    if (files == NULL || maps == NULL)
        stop("/proc");
    fprintf(words, "process %d\n", (int) getpid());
    while (fgets(line, sizeof line, maps) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strchr(line, '/') != NULL)
            say_if_shm(strchr(line, '/'));
    }
    while ((entry = readdir(files)) != NULL) {
        ssize_t length = readlinkat(dirfd(files), entry->d_name, line, sizeof line - 1);
        if (length > 0) {
            line[length] = '\0';
            say_if_shm(line);
        }
    }
    fclose(maps);
    closedir(files);
}

static void *map_state(const char *directory)
{
    char name[4096];
    int file;
    void *memory;

    snprintf(name, sizeof name, "%s/state", directory);
    file = open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, 4096) != 0)
        stop(name);
    memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        stop(name);
    close(file);
    return memory;
}

int main(int argc, char **argv)
{
    const struct way *way = NULL;
    int provided, error;
    long long when_ns;
    char name[4096];

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (size_t i = 0; argc >= 3 && i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(argv[1], ways[i].name) == 0)
            way = &ways[i];
    if (way == NULL || argc > 4) {
        fprintf(stderr, "usage: victim WAY DIRECTORY [2 (victims)]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (argc == 4)
        victims = atoi(argv[3]);
    snprintf(name, sizeof name, "%s/rank%d", argv[2], rank);
    words = fopen(name, "w");
    if (words == NULL)
        stop(name);
    setlinebuf(words);
    buffer = calloc(1, way->death == kAfterWait ? kLarge : kPayload);
    if (way->death == kQuarterSent)
        quarter_seen = map_state(argv[2]);
    if (way->is_rma) {
        MPI_Win_create(buffer, kLarge / 2, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    }
    if (way->prepare != NULL)
        way->prepare();

    /* Everybody has spoken to everybody: connections are up. */
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, name, 1, MPI_CHAR, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    say_self();
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_victim(rank)) {
        start_thread(die, (void *) way);
        if (way->victim != NULL)
            way->victim();
        /* A signal tells of the other victim's death. */
        for (;;)
            pause();
    }
    fprintf(words, "waiting\n");
    error = way->survive();
    when_ns = now_ns();
    say_error(way, error, when_ns);
    if (way->must_fail != kNobody)
        talk(is_victim);
    /* No MPI_Finalize: it is collective, and one rank is gone. */
    _exit(error == MPI_SUCCESS ? 0 : 3);
}
