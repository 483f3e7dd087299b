/* What communicators know of failed processes: MPIX_Comm_agree, _shrink, _revoke, _failure_ack and _get_acked, while
 * processes die, coordinators among them. hydra must not clean up, and must not see the deaths: run/survivor.
 *
 * Usage: failures PART TABLE SEED
 *   storm     random deaths before and in agreements: whoever lives has decided as all others did, in each round;
 *             shrunk communicators work. TABLE: a file that does not exist, where all note what they decided
 *   known     a death is acknowledged as soon as a call has failed because of it; a revoked communicator
 *   results   processes die in collective operations: who gets no error has the right result
 *   early     communicators are revoked before all have made them
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "over_mpi.h"

enum { MOST_RANKS = 16, MOST_ROUNDS = 200, ALIVE_AT_END = 2 };

/* What a rank has decided in a round. */
typedef struct {
    int is_noted;
    int flag;
    int class;
    int size;                   /* of the communicator afterwards */
} decision_t;

static struct {
    int ready;                  /* ranks that may see others die */
    int is_dead[MOST_RANKS];
    decision_t decisions[MOST_ROUNDS][MOST_RANKS];
} *table;

static void open_table(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);

    if (file < 0 || ftruncate(file, sizeof *table) != 0)
        fail("no table %s", path);
    table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (table == MAP_FAILED)
        fail("cannot map %s", path);
    close(file);
}

/* All ranks have come here: unlike MPI_Barrier, this bears the death of those that go on. */
static void meet(void)
{
    __atomic_add_fetch(&table->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&table->ready, __ATOMIC_SEQ_CST) < size)
        usleep(100);
}

static void die(void)
{
    table->is_dead[rank] = 1;
    raise(SIGKILL);
}

static void *die_later(void *delay_us)
{
    usleep((useconds_t) (uintptr_t) delay_us);
    die();
    return NULL;
}

static int class_of(int error)
{
    int class = MPI_SUCCESS;

    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &class);
    return class;
}

/* All that decided in the round agree. */
static void compare(int round)
{
    const decision_t *mine = &table->decisions[round][rank];
    int i;

    for (i = 0; i < size; i++) {
        const decision_t *other = &table->decisions[round][i];
        if (other->is_noted && !table->is_dead[i] &&
            (other->flag != mine->flag || other->class != mine->class || other->size != mine->size))
            fail("round %d: rank %d has flag %x, class %d, size %d; this one %x, %d, %d", round, i, other->flag,
                 other->class, other->size, mine->flag, mine->class, mine->size);
    }
}

/* Revokes the communicator. In its place comes one of those that live. */
static void replace_by_living(MPI_Comm * comm)
{
    MPI_Comm smaller;
    int error;

    MPIX_Comm_revoke(*comm);
    error = MPIX_Comm_shrink(*comm, &smaller);
    if (error != MPI_SUCCESS)
        fail("shrink: class %d", class_of(error));
    MPI_Comm_free(comm);
    *comm = smaller;
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
}

static void storm(uint32_t seed)
{
    uint64_t common = seed * 1000 + 1;  /* the same in all ranks */
    uint64_t own = seed * 1000 + 2 + (uint64_t) rank;
    MPI_Comm comm;
    int round, alive = size, doomed = 0, i, was_acknowledged = 0;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    meet();
    for (round = 0; round < MOST_ROUNDS && alive > ALIVE_AT_END; round++) {
        decision_t *mine = &table->decisions[round][rank];
        const int dies = next_random(&common, 3) == 0 && size - doomed > ALIVE_AT_END;
        /* In half of the cases the lowest rank, which coordinates. */
        const int victim = next_random(&common, 2) == 0 ? doomed : -1;
        const uint32_t delay_us = next_random(&common, 2) == 0 ? 0 : 1 + next_random(&common, 400);
        int flag = 0xffff ^ (1 << rank), error, before;

        snprintf(doing, sizeof doing, "seed %u, round %d", seed, round);
        if (dies) {
            const int who = victim >= 0 ? victim : doomed;
            doomed = who + 1;
            if (who == rank) {
                pthread_t thread;
                if (delay_us == 0)
                    die();
                if (pthread_create(&thread, NULL, die_later, (void *) (uintptr_t) delay_us) != 0)
                    fail("no thread");
            }
        }
        if (next_random(&own, 3) == 0)
            usleep(next_random(&own, 500));
        error = MPIX_Comm_agree(comm, &flag);
        MPI_Comm_size(comm, &before);
        mine->flag = flag;
        mine->class = class_of(error);
        if (mine->class != MPI_SUCCESS && mine->class != MPIX_ERR_PROC_FAILED)
            fail("an agreement ended with class %d", mine->class);
        if ((flag & (1 << rank)) != 0)
            fail("a decision without this process's contribution");
        if (error != MPI_SUCCESS) {
            MPI_Group failed;
            int count;
            MPIX_Comm_failure_ack(comm);
            MPIX_Comm_failure_get_acked(comm, &failed);
            MPI_Group_size(failed, &count);
            MPI_Group_free(&failed);
            if (count == 0)
                fail("an agreement failed, and no failure was acknowledged");
            if (next_random(&common, 2) == 0 || was_acknowledged) {
                int sum = 0, one = 1, all;
                replace_by_living(&comm);
                MPI_Comm_size(comm, &all);
                error = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
                if (error == MPI_SUCCESS && sum != all)
                    fail("a shrunk communicator of %d sums to %d", all, sum);
                was_acknowledged = 0;
            } else {
                was_acknowledged = 1;
            }
        }
        MPI_Comm_size(comm, &mine->size);
        mine->is_noted = 1;
        alive = 0;
        for (i = 0; i < size; i++)
            alive += i >= doomed;
    }
    while (rank < doomed)
        pause();                /* its death comes */
    /* Those that are left have all decided all of it. */
    for (;;) {
        int flag = 1, error = MPIX_Comm_agree(comm, &flag);
        if (error == MPI_SUCCESS)
            break;
        MPIX_Comm_failure_ack(comm);
    }
    for (i = 0; i < round; i++)
        compare(i);
    MPI_Comm_free(&comm);
}

static void known(void)
{
    MPI_Group world, acknowledged, expected;
    int one[] = { 1 }, result, flag, class;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    meet();
    if (rank == 1)
        die();
    class = class_of(MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (class != MPIX_ERR_PROC_FAILED)
        fail("a receive from a dead process ended with class %d", class);
    MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &acknowledged);
    MPI_Group_size(acknowledged, &result);
    if (result != 0)
        fail("%d processes were acknowledged before MPIX_Comm_failure_ack", result);
    MPI_Group_free(&acknowledged);
    MPIX_Comm_failure_ack(MPI_COMM_WORLD);
    MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &acknowledged);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, one, &expected);
    MPI_Group_compare(acknowledged, expected, &result);
    if (result != MPI_IDENT)
        fail("the acknowledged group is not the dead process");
    MPI_Group_free(&acknowledged);
    /* The other communicator has acknowledged nothing. */
    flag = 7;
    class = class_of(MPIX_Comm_agree(comm, &flag));
    if (class != MPIX_ERR_PROC_FAILED || flag != 7)
        fail("an agreement with an unknown death ended with class %d and flag %d", class, flag);
    MPIX_Comm_failure_ack(comm);
    class = class_of(MPIX_Comm_agree(comm, &flag));
    if (class != MPI_SUCCESS || flag != 7)
        fail("an agreement with an acknowledged death ended with class %d and flag %d", class, flag);
    if (rank == 0)
        MPIX_Comm_revoke(comm);
    class = class_of(MPI_Recv(NULL, 0, MPI_BYTE, rank == 0 ? 2 : 0, 1, comm, MPI_STATUS_IGNORE));
    if (class != MPIX_ERR_REVOKED)
        fail("a receive in a revoked communicator ended with class %d", class);
    MPI_Group_free(&expected);
    MPI_Group_free(&world);
    MPI_Comm_free(&comm);
}

/* ---- a process dies in a collective operation ---- */

enum { BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL, SCATTER, SCAN, KINDS, MOST_COUNT = 5000 };

/* Calls the operation. What each contributes are numbers of its own. Fails if the result is wrong. */
static int operate(int kind, int count, int root, MPI_Comm comm)
{
    static int in[MOST_COUNT * MOST_RANKS], out[MOST_COUNT * MOST_RANKS];
    int me, ranks, i, error = MPI_SUCCESS, blocks = 1, sum = 0;

    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    for (i = 0; i < count * ranks; i++)
        in[i] = me + 1, out[i] = -1;
    for (i = 0; i < (kind == SCAN ? me + 1 : ranks); i++)
        sum += i + 1;
    if (kind == BCAST) {
        error = MPI_Bcast(in, count, MPI_INT, root, comm);
        memcpy(out, in, sizeof(int) * (size_t) count);
        sum = root + 1;
    } else if (kind == REDUCE) {
        error = MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, root, comm);
        if (me != root)
            return error;
    } else if (kind == ALLREDUCE) {
        error = MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
    } else if (kind == SCAN) {
        error = MPI_Scan(in, out, count, MPI_INT, MPI_SUM, comm);
    } else if (kind == SCATTER) {
        error = MPI_Reduce_scatter_block(in, out, count, MPI_INT, MPI_SUM, comm);
    } else {
        blocks = ranks;
        sum = 0;
        error = kind == ALLGATHER ? MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm) :
            MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, comm);
    }
    for (i = 0; i < count * blocks && error == MPI_SUCCESS; i++) {
        const int right = sum != 0 ? sum : i / count + 1;
        if (out[i] != right)
            fail("operation %d of %d numbers returned success, and number %d is %d instead of %d", kind, count, i,
                 out[i], right);
    }
    return error;
}

/* Each operation in turn, until one of those that take part has died; then with those that are left. */
static void results(uint32_t seed)
{
    uint64_t common = seed * 1000 + 7;
    MPI_Comm comm;
    int kind, is_alive[MOST_RANKS], i;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (i = 0; i < size; i++)
        is_alive[i] = 1;
    meet();
    for (kind = 0; kind < KINDS; kind++) {
        const uint32_t delay_us = 1 + next_random(&common, 3000);
        int victim, ranks, error = MPI_SUCCESS;

        do {
            victim = (int) next_random(&common, (uint32_t) size);
        } while (!is_alive[victim]);
        is_alive[victim] = 0;
        MPI_Comm_size(comm, &ranks);
        if (victim == rank) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, die_later, (void *) (uintptr_t) delay_us) != 0)
                fail("no thread");
        }
        for (i = 0; error == MPI_SUCCESS; i++) {
            const int count = next_random(&common, 2) == 0 ? 1 + (int) next_random(&common, 8) :
                1 + (int) next_random(&common, MOST_COUNT);
            snprintf(doing, sizeof doing, "seed %u, operation %d, round %d", seed, kind, i);
            error = operate(kind, count, (int) next_random(&common, (uint32_t) ranks), comm);
        }
        while (victim == rank)
            pause();
        /* MPICH 4.2 and later do not look into the statuses. */
        if (class_of(error) != MPIX_ERR_PROC_FAILED && class_of(error) != MPIX_ERR_REVOKED &&
            (MPICH_NUMVERSION < 40200000 || class_of(error) != MPI_ERR_IN_STATUS))
            fail("an operation ended with class %d", class_of(error));
        replace_by_living(&comm);
        common = seed * 1000 + 8 + (uint64_t) kind; /* the rounds were not as many for all */
    }
    MPI_Comm_free(&comm);
}

/* ---- communicators that are revoked before all have made them ---- */

static void early(void)
{
    enum { ROUNDS = 100 };
    int round;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (round = 0; round < ROUNDS; round++) {
        const int revoker = round % size;
        MPI_Comm comm;
        int class;

        snprintf(doing, sizeof doing, "round %d", round);
        class = class_of(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        if (class == MPI_SUCCESS) {
            if (rank == revoker)
                MPIX_Comm_revoke(comm);
            MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
            class = class_of(MPI_Recv(NULL, 0, MPI_BYTE, (rank + 1) % size, 1, comm, MPI_STATUS_IGNORE));
            if (MPI_Comm_free(&comm) != MPI_SUCCESS)
                fail("a revoked communicator is not freed");
        }
        if (class != MPIX_ERR_REVOKED)
            fail("a communicator that rank %d has revoked ended with class %d", revoker, class);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(doing, sizeof doing, "usage");
    if (argc != 4 || size > MOST_RANKS)
        fail("failures PART TABLE SEED, with at most %d ranks", MOST_RANKS);
    open_table(argv[2]);
    snprintf(doing, sizeof doing, "%s", argv[1]);
    if (strcmp(argv[1], "storm") == 0)
        storm((uint32_t) atoi(argv[3]));
    else if (strcmp(argv[1], "results") == 0)
        results((uint32_t) atoi(argv[3]));
    else if (strcmp(argv[1], "early") == 0)
        early();
    else
        known();
    MPI_Finalize();
    printf("done\n");
    return 0;
}
