/* One-sided communication with a victim, for victim.c. */
#include "victim.h"

enum { kRounds = 100, kTagLock = 98 };

static MPI_Comm living;         /* without the victim */
static MPI_Win living_window;   /* kLarge / 2 bytes of each of them */

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

/* The victim dies in the queue for rank 0's lock, which rank 2 holds. Rank 2 gives it back when rank 0 knows
 * of the death: before, the dead would be granted it. */
static int death_in_queue(void)
{
    int error = recv_from_victim();
    int living_error = MPI_SUCCESS;

    meet_other_living();
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

/* The victim has used the lock of rank 0 and given it back with its last operation, which waits for the lock
 * because rank 0 answers late. Rank 2 holds it when the victim dies. */
static void lock_by_victim_then_2(void)
{
    if (rank == kVictim) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Put(buffer, 8, MPI_CHAR, 0, 0, 8, MPI_CHAR, window);
        MPI_Put(buffer, 8, MPI_CHAR, 0, 8, 8, MPI_CHAR, window);
        MPI_Win_unlock(0, window);
        MPI_Send(NULL, 0, MPI_CHAR, 2, kTagLock, MPI_COMM_WORLD);
    } else if (rank == 2) {
        MPI_Recv(NULL, 0, MPI_CHAR, kVictim, kTagLock, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        lock_of_0_to_2();
    } else {
        usleep(kWaitBeforeDeath_us);
    }
}

/* Rank 0 waits for its lock, which rank 2 holds, when the death is known. */
static int wait_for_lock_of_living(void)
{
    int error = recv_from_victim();
    int living_error;

    meet_other_living();
    if (rank == 2) {
        progress_us(kWaitBeforeDeath_us);
        living_error = MPI_Win_unlock(0, window);
    } else {
        living_error = lock_put_unlock(0, window);
    }
    meet_other_living();
    return living_error == MPI_SUCCESS ? error : MPI_ERR_OTHER;
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

const struct way window_ways[] = {
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
    {"lock-given-back", wait_for_lock_of_living, kEverybody, .prepare = lock_by_victim_then_2, .is_rma = 1},
    {"fence", fence, kEverybody, .is_rma = 1},
    {"second-fence", fence, kEverybody, victim_fences_once, .is_rma = 1},
    {"start", start_and_complete, kEverybody, .is_rma = 1},
    {"post", post_and_wait, kEverybody, .is_rma = 1},
    {"win-free", win_free, kEverybody, .is_rma = 1},
    {"win-create", win_create, kEverybody},
    {NULL},
};
