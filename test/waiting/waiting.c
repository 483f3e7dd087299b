/* For test/waiting/run: programs in which one thread sleeps in the progress engine while another needs it, and other
 * waits that nobody ends by accident. Each hung once, or could have. argv[1] names one. Says "done" at the end. */
#include <mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    kTagData = 1,
    kTagDone = 2,
    kManyMessages = 100000,
    kQueuedMessages = 200,
    kTestedRounds = 500,
    kMostTests = 1000,
};

static int rank, size;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *wait_for_done(void *unused)
{
    int value = 0;
    (void) unused;
    MPI_Recv(&value, 1, MPI_INT, 1, kTagDone, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

static pthread_t start_sleeper(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_done, NULL) != 0)
        fail("no thread");
    usleep(200000);             /* asleep in the progress engine by now */
    return thread;
}

static void send_done(void)
{
    int value = 1;
    MPI_Send(&value, 1, MPI_INT, 0, kTagDone, MPI_COMM_WORLD);
}

/* The ring fills while the leader sleeps; only the returned space can wake it. */
static void blocked_sender(void)
{
    if (rank == 0) {
        pthread_t sleeper = start_sleeper();
        for (int i = 0; i < kManyMessages; i++)
            MPI_Send(&i, 1, MPI_INT, 1, kTagData, MPI_COMM_WORLD);
        pthread_join(sleeper, NULL);
    } else if (rank == 1) {
        sleep(1);
        for (int i = 0; i < kManyMessages; i++) {
            int value = -1;
            MPI_Recv(&value, 1, MPI_INT, 0, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (value != i)
                fail("messages out of order");
        }
        send_done();
    }
}

/* Sends that wait for room behind a sleeping leader, and nobody but the leader to move them. */
static void blocked_isend(void)
{
    static char buffer[kQueuedMessages][4096];
    if (rank == 0) {
        MPI_Request requests[kQueuedMessages];
        pthread_t sleeper = start_sleeper();
        for (int i = 0; i < kQueuedMessages; i++)
            MPI_Isend(buffer[i], sizeof buffer[i], MPI_CHAR, 1, kTagData, MPI_COMM_WORLD, &requests[i]);
        pthread_join(sleeper, NULL);
        MPI_Waitall(kQueuedMessages, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        sleep(1);
        for (int i = 0; i < kQueuedMessages; i++)
            MPI_Recv(buffer[0], sizeof buffer[0], MPI_CHAR, 0, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        send_done();
    }
}

/* A schedule of a nonblocking collective that gets no event, behind a sleeping leader. */
static void collective_on_self(void)
{
    if (rank == 0) {
        pthread_t sleeper = start_sleeper();
        for (int i = 0; i < 20; i++) {
            int value = 1, sum = 0;
            MPI_Request requests[2];
            MPI_Ibarrier(MPI_COMM_SELF, &requests[0]);
            MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            if (sum != 1)
                fail("wrong sum");
        }
        /* Only now: whoever hung before never gets here. */
        MPI_Send(&rank, 1, MPI_INT, 1, kTagData, MPI_COMM_WORLD);
        pthread_join(sleeper, NULL);
    } else if (rank == 1) {
        int value;
        MPI_Recv(&value, 1, MPI_INT, 0, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        send_done();
    }
}

/* A thread that only tests takes what was to wake the sleeper. */
static void testing_thread(void)
{
    for (int round = 0; round < 300; round++) {
        if (rank == 0) {
            pthread_t sleeper;
            int value, flag = 0;
            if (pthread_create(&sleeper, NULL, wait_for_done, NULL) != 0)
                fail("no thread");
            MPI_Send(&round, 1, MPI_INT, 1, kTagData, MPI_COMM_WORLD);
            for (int i = 0; i < 50; i++)
                MPI_Iprobe(1, kTagData + 100, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            pthread_join(sleeper, NULL);
            for (int i = 0; i < kQueuedMessages; i++)
                MPI_Recv(&value, 1, MPI_INT, 1, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            int value;
            MPI_Recv(&value, 1, MPI_INT, 0, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < kQueuedMessages; i++)
                MPI_Send(&i, 1, MPI_INT, 0, kTagData, MPI_COMM_WORLD);
            send_done();
        }
    }
}

/* Rank 0 knows rank 1 only by a receive that it took back; rank 1 is gone when it says goodbye. */
static void cancelled_receive(void)
{
    if (rank == 0) {
        int value, cancelled = 0;
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(&value, 1, MPI_INT, 1, kTagData, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        if (!cancelled)
            fail("the receive was not cancelled");
        sleep(1);
    }
}

/* A blocking probe, and a matched one, asleep when the message comes. */
static void sleeping_probe(void)
{
    int value = 7;
    MPI_Status status;
    MPI_Message message;

    for (int round = 0; round < 3; round++) {
        if (rank == 1) {
            usleep(100000);
            MPI_Send(&value, 1, MPI_INT, 0, kTagData, MPI_COMM_WORLD);
            usleep(100000);
            MPI_Send(&value, 1, MPI_INT, 0, kTagData, MPI_COMM_WORLD);
        } else if (rank == 0) {
            MPI_Probe(MPI_ANY_SOURCE, kTagData, MPI_COMM_WORLD, &status);
            MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, kTagData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Mprobe(1, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
            MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        }
    }
}

/* Of the ranks' mean numbers of tests in a round, the least is judged. A rank that shares its core with an
 * awaited rank must not test for its whole time slice: that is 10,000 tests and more. */
static void judge_tests(long tests, int rounds)
{
    long mean = tests / rounds, least = 0;
    MPI_Allreduce(&mean, &least, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
    if (least > kMostTests)
        fail("tests without end");
}

/* Ranks that outnumber cores pass a message on, and wait for it by testing. */
static void testing_ring(void)
{
    char bytes[2] = { 0, 0 };
    MPI_Status statuses[2];
    long tests = 0;

    for (int round = 0; round < kTestedRounds; round++) {
        MPI_Request requests[2];
        int flag = 0;
        MPI_Irecv(&bytes[0], 1, MPI_CHAR, (rank + size - 1) % size, kTagData, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&bytes[1], 1, MPI_CHAR, (rank + 1) % size, kTagData, MPI_COMM_WORLD, &requests[1]);
        for (; !flag; tests++)
            MPI_Testall(2, requests, &flag, statuses);
    }
    judge_tests(tests, kTestedRounds);
}

static void probing_ring(void)
{
    char bytes[2] = { 0, 0 };
    long tests = 0;

    for (int round = 0; round < kTestedRounds; round++) {
        MPI_Request request;
        int flag = 0;
        MPI_Isend(&bytes[1], 1, MPI_CHAR, (rank + 1) % size, kTagData, MPI_COMM_WORLD, &request);
        for (; !flag; tests++)
            MPI_Iprobe((rank + size - 1) % size, kTagData, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        MPI_Recv(&bytes[0], 1, MPI_CHAR, (rank + size - 1) % size, kTagData, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    judge_tests(tests, kTestedRounds);
}

/* As ROMIO's nonblocking collectives wait. */
static void testing_collective(void)
{
    long tests = 0;

    for (int round = 0; round < kTestedRounds; round++) {
        MPI_Request request;
        int one = 1, sum = 0, flag = 0;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        for (; !flag; tests++)
            MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        if (sum != size)
            fail("wrong sum");
    }
    judge_tests(tests, kTestedRounds);
}

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
        1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* A wait that lasts is spent asleep. */
static void long_wait(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 3; round++) {
        if (rank == 0)
            usleep(400000);
        double began = MPI_Wtime(), used = processor_seconds();
        MPI_Barrier(MPI_COMM_WORLD);
        double waited = MPI_Wtime() - began;
        used = processor_seconds() - used;
        if (waited > 0.2 && used > waited / 4)
            fail("awake in a long wait");
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run) (void);
    } programs[] = {
        {"blocked-sender", blocked_sender},
        {"blocked-isend", blocked_isend},
        {"collective-on-self", collective_on_self},
        {"testing-thread", testing_thread},
        {"cancelled-receive", cancelled_receive},
        {"sleeping-probe", sleeping_probe},
        {"testing-ring", testing_ring},
        {"probing-ring", probing_ring},
        {"testing-collective", testing_collective},
        {"long-wait", long_wait},
    };
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided != MPI_THREAD_MULTIPLE)
        fail("no MPI_THREAD_MULTIPLE");
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        if (argc == 2 && strcmp(argv[1], programs[i].name) == 0) {
            programs[i].run();
            MPI_Finalize();
            printf("done\n");
            return 0;
        }
    }
    fail("usage: waiting PROGRAM");
    return 2;
}
