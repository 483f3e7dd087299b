/* Partitioned communication (MPI 4.0, chapter 4), with every byte checked.
 *
 * Usage: partitioned PART
 *   shapes      random partitions, datatypes and orders of readiness, several rounds; 2 ranks
 *   matching    requests of one tag meet in order, and meet no message, receive or probe; 2 ranks, and to oneself
 *   early       a partition arrives while others are not ready; 2 ranks
 *   threads     threads make partitions ready and await them; 2 ranks
 *   wrong       sizes that do not fit, partitions that are ready twice, MPI_PROC_NULL, requests that are freed
 *               before they meet; 2 ranks
 *   class       an intercommunicator and a communicator of a traffic class; 2 ranks
 *   died        a peer that dies before and after both have met; 3 ranks, whose last two end
 */
#include <pthread.h>
#include <unistd.h>

#include "over_mpi.h"

enum { TAG = 11 };

/* ---- shapes ---- */

/* So many elements of a type, some of them with gaps, as a type that has all of its bytes in order. */
typedef struct {
    MPI_Datatype type;
    int bytes;                  /* of data */
    int extent;
} kind_t;

static kind_t make_kind(uint64_t * state)
{
    const int words = 1 + (int) next_random(state, 6);
    kind_t kind;

    kind.bytes = 4 * words;
    kind.extent = kind.bytes;
    switch (next_random(state, 3)) {
        case 0:
            MPI_Type_contiguous(words, MPI_INT, &kind.type);
            break;
        case 1:                /* every second word */
            MPI_Type_vector(words, 1, 2, MPI_INT, &kind.type);
            kind.extent = 8 * words - 4;
            break;
        default:
            MPI_Type_contiguous(kind.bytes, MPI_BYTE, &kind.type);
            break;
    }
    MPI_Type_commit(&kind.type);
    return kind;
}

/* The data of `seed` into elements of that kind, or checks that it is there. */
static void put_elements(char *memory, const kind_t * kind, int elements, uint32_t seed)
{
    char *packed = allocate((size_t) elements * kind->bytes);
    int position = 0;

    fill(packed, (size_t) elements * kind->bytes, seed);
    MPI_Unpack(packed, elements * kind->bytes, &position, memory, elements, kind->type, MPI_COMM_SELF);
    free(packed);
}

static void expect_elements(const char *memory, const kind_t * kind, int elements, uint32_t seed)
{
    char *packed = allocate((size_t) elements * kind->bytes);
    int position = 0;

    MPI_Pack(memory, elements, kind->type, packed, elements * kind->bytes, &position, MPI_COMM_SELF);
    expect(packed, (size_t) elements * kind->bytes, seed, "a partition");
    free(packed);
}

/* Makes all partitions ready, in an order and by calls that follow from the state. */
static void make_ready(MPI_Request request, int partitions, uint64_t * state)
{
    int *order = allocate(partitions * sizeof(int));
    int done = 0, i;

    for (i = 0; i < partitions; i++)
        order[i] = i;
    if (next_random(state, 3) == 0) {
        for (done = 0; done < partitions;) {
            int last = done + (int) next_random(state, (uint32_t) (partitions - done));
            MPI_Pready_range(done, last, request);
            done = last + 1;
        }
        free(order);
        return;
    }
    for (i = partitions - 1; i > 0; i--) {
        const int other = (int) next_random(state, (uint32_t) i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    while (done < partitions) {
        const int count = 1 + (int) next_random(state, (uint32_t) (partitions - done));
        if (next_random(state, 2) == 0) {
            MPI_Pready_list(count, order + done, request);
            done += count;
        } else {
            MPI_Pready(order[done++], request);
        }
    }
    free(order);
}

static int largest_divisor(int number, int below)
{
    while (number % below != 0)
        below--;
    return below;
}

static void shape(uint64_t * state, uint32_t seed)
{
    static const int lengths[] = { 1, 60, 1000, 30000, 300000 };
    /* Both sides have the same words: elements and partitions divide them. */
    const kind_t kinds[2] = { make_kind(state), make_kind(state) };
    const int units = 1 + (int) next_random(state, (uint32_t) lengths[next_random(state, 5)]);
    const int words = units * kinds[0].bytes / 4 * (kinds[1].bytes / 4);
    const kind_t *kind = &kinds[rank];
    const int elements = words * 4 / kind->bytes;
    int partitions[2], round, i, flag, arrived = 0;
    char *memory = allocate((size_t) elements * kind->extent + 64);
    MPI_Request request;
    MPI_Status status;

    for (i = 0; i < 2; i++) {
        const int all = words * 4 / kinds[i].bytes;
        partitions[i] = largest_divisor(all, 1 + (int) next_random(state, (uint32_t) (all < 500 ? all : 500)));
    }
    snprintf(doing, sizeof doing, "shape %u: %d words, %d and %d partitions of elements of %d and %d bytes", seed,
             words, partitions[0], partitions[1], kinds[0].bytes, kinds[1].bytes);
    if (rank == 0)
        MPI_Psend_init(memory, partitions[0], elements / partitions[0], kind->type, 1, TAG, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &request);
    else
        MPI_Precv_init(memory, partitions[1], elements / partitions[1], kind->type, 0, TAG, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &request);
    for (round = 0; round < 3; round++) {
        const uint32_t data = seed * 4 + (uint32_t) round;

        memset(memory, 0, (size_t) elements * kind->extent);
        if (rank == 0)
            put_elements(memory, kind, elements, data);
        MPI_Start(&request);
        if (rank == 0) {
            make_ready(request, partitions[0], state);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            int count;

            for (i = 0; round == 1 && i < partitions[1]; i += arrived) {
                MPI_Parrived(request, i, &arrived);
                if (arrived && i == partitions[1] / 2) {
                    int again;
                    MPI_Parrived(request, i, &again);
                    if (!again)
                        fail("partition %d has arrived, and then it has not", i);
                }
            }
            if (round == 1)
                expect_elements(memory, kind, elements, data);
            if (round == 2)
                for (flag = 0; !flag;)
                    MPI_Test(&request, &flag, &status);
            else
                MPI_Wait(&request, &status);
            MPI_Get_count(&status, kind->type, &count);
            if (status.MPI_SOURCE != 0 || status.MPI_TAG != TAG || count != elements)
                fail("a status of source %d, tag %d and %d elements of %d", status.MPI_SOURCE, status.MPI_TAG,
                     count, elements);
            expect_elements(memory, kind, elements, data);
        }
    }
    MPI_Request_free(&request);
    for (i = 0; i < 2; i++) {
        MPI_Datatype type = kinds[i].type;
        MPI_Type_free(&type);
    }
    free(memory);
}

static void shapes(void)
{
    const uint32_t count = is_long() ? 3000 : 60;
    uint32_t seed;

    for (seed = 0; seed < count; seed++) {
        uint64_t state = seed;
        shape(&state, seed);
    }
}

/* ---- matching ---- */

enum { REQUESTS = 5, BYTES = 40000 };

static void start_all_and_wait(MPI_Request * requests, int count, int is_sender)
{
    int i;

    MPI_Startall(count, requests);
    for (i = count - 1; is_sender && i >= 0; i--)
        MPI_Pready_range(0, 1, requests[i]);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

/* to, from: the ranks with which this process exchanges requests of one tag. */
static void exchange(int to, int from, int tag)
{
    char *sent = allocate(REQUESTS * BYTES), *received = allocate(REQUESTS * BYTES);
    char small = (char) rank;
    MPI_Request out[REQUESTS + 1], in[REQUESTS + 1];
    MPI_Status status;
    int i, round, flag;

    fill(sent, REQUESTS * BYTES, (uint32_t) rank);
    for (i = 0; i < REQUESTS; i++)
        MPI_Psend_init(sent + i * BYTES, 2, BYTES / 2, MPI_CHAR, to, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &out[i]);
    MPI_Send_init(&small, 1, MPI_CHAR, to, tag, MPI_COMM_WORLD, &out[REQUESTS]);
    if (to != rank) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
        if (flag)
            fail("a probe has found a message of %d with tag %d", status.MPI_SOURCE, status.MPI_TAG);
    }
    for (i = 0; i < REQUESTS; i++)
        MPI_Precv_init(received + i * BYTES, 2, BYTES / 2, MPI_CHAR, from, tag, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &in[i]);
    MPI_Recv_init(received, 1, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &in[REQUESTS]);
    for (round = 0; round < 3; round++) {
        memset(received, 0, REQUESTS * BYTES);
        MPI_Startall(REQUESTS, in);
        start_all_and_wait(out, REQUESTS, 1);
        MPI_Waitall(REQUESTS, in, MPI_STATUSES_IGNORE);
        expect(received, REQUESTS * BYTES, (uint32_t) from, "what was received");
        /* One of each kind in one call. */
        MPI_Startall(2, in + REQUESTS - 1);
        start_all_and_wait(out + REQUESTS, 1, 0);
        start_all_and_wait(out + REQUESTS - 1, 1, 1);
        MPI_Waitall(2, in + REQUESTS - 1, MPI_STATUSES_IGNORE);
        if (received[0] != (char) from)
            fail("a message got %d instead of %d", received[0], from);
    }
    for (i = 0; i <= REQUESTS; i++) {
        MPI_Request_free(&out[i]);
        MPI_Request_free(&in[i]);
    }
    free(sent);
    free(received);
}

static void matching(void)
{
    exchange(1 - rank, 1 - rank, TAG);
    MPI_Barrier(MPI_COMM_WORLD);
    exchange(rank, rank, TAG + 1);
}

/* ---- early ---- */

static void early(void)
{
    enum { PARTS = 4, EACH = 100000 };
    char *memory = allocate(PARTS * EACH);
    MPI_Request request;
    int round, i, flag;

    if (rank == 0)
        MPI_Psend_init(memory, PARTS, EACH, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else
        MPI_Precv_init(memory, PARTS, EACH, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (round = 0; round < 20; round++) {
        const uint32_t seed = (uint32_t) round;

        MPI_Start(&request);
        for (i = PARTS - 1; i >= 0; i--) {
            if (rank == 0) {
                fill_from(memory + i * EACH, EACH, seed, (uint64_t) i * EACH);
                MPI_Pready(i, request);
                /* The next one comes when this one is there. */
                MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                for (flag = 0; !flag;)
                    MPI_Parrived(request, i, &flag);
                expect_from(memory + i * EACH, EACH, seed, (uint64_t) i * EACH, "an early partition");
                if (i > 0) {
                    MPI_Parrived(request, i - 1, &flag);
                    if (flag)
                        fail("partition %d has arrived, and is not ready", i - 1);
                }
                MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
            }
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
    free(memory);
}

/* ---- threads ---- */

enum { THREADS = 4, PER_THREAD = 8, LENGTH = 5000, ROUNDS = 50 };
static MPI_Request shared_request;
static char *shared_memory;
static pthread_barrier_t turn;

static void *work(void *argument)
{
    const int first = *(int *) argument * PER_THREAD;
    int round, i, flag;

    for (round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&turn);    /* it has been started */
        for (i = first; i < first + PER_THREAD; i++) {
            char *part = shared_memory + i * LENGTH;

            if (rank == 0) {
                fill_from(part, LENGTH, (uint32_t) round, (uint64_t) i * LENGTH);
                MPI_Pready(i, shared_request);
            } else {
                for (flag = 0; !flag;)
                    MPI_Parrived(shared_request, i, &flag);
                expect_from(part, LENGTH, (uint32_t) round, (uint64_t) i * LENGTH, "a thread's partition");
            }
        }
        pthread_barrier_wait(&turn);    /* and may be waited for */
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    int numbers[THREADS], i, round, provided;

    MPI_Query_thread(&provided);
    if (provided != MPI_THREAD_MULTIPLE)
        fail("no MPI_THREAD_MULTIPLE: set MPIR_CVAR_DEFAULT_THREAD_LEVEL");
    shared_memory = allocate(THREADS * PER_THREAD * LENGTH);
    pthread_barrier_init(&turn, NULL, THREADS + 1);
    if (rank == 0)
        MPI_Psend_init(shared_memory, THREADS * PER_THREAD, LENGTH, MPI_BYTE, 1, TAG, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &shared_request);
    else
        MPI_Precv_init(shared_memory, THREADS * PER_THREAD, LENGTH, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &shared_request);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&thread[i], NULL, work, &numbers[i]) != 0)
            fail("no thread");
    }
    for (round = 0; round < ROUNDS; round++) {
        MPI_Start(&shared_request);
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        MPI_Wait(&shared_request, MPI_STATUS_IGNORE);
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    MPI_Request_free(&shared_request);
    free(shared_memory);
}

/* ---- wrong ---- */

static void expect_class(int error, int wanted, const char *what)
{
    int class = MPI_SUCCESS;

    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &class);
    if (class != wanted)
        fail("%s: error class %d instead of %d", what, class, wanted);
}

/* What the calls say of a request that is active, complete and inactive. */
static void statuses(void)
{
    char memory[8] = { 0 };
    MPI_Request requests[2];
    MPI_Status status;
    int count, flag, all;

    MPI_Psend_init(memory, 1, 4, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(memory + 4, 1, 4, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Testall(2, requests, &all, MPI_STATUSES_IGNORE);
    if (all)
        fail("all is over before anything is ready");
    MPI_Pready(0, requests[0]);
    expect_class(MPI_Pready(0, requests[0]), MPI_ERR_ARG, "the only partition is ready twice");
    do
        expect_class(MPI_Request_get_status(requests[1], &flag, &status), MPI_SUCCESS, "a status");
    while (!flag);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != 4 || status.MPI_SOURCE != rank || status.MPI_TAG != TAG)
        fail("MPI_Request_get_status says %d bytes from %d with tag %d", count, status.MPI_SOURCE, status.MPI_TAG);
    do
        expect_class(MPI_Testall(2, requests, &all, MPI_STATUSES_IGNORE), MPI_SUCCESS, "MPI_Testall");
    while (!all);
    MPI_Wait(&requests[1], &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != 0 || status.MPI_SOURCE != MPI_ANY_SOURCE || status.MPI_TAG != MPI_ANY_TAG)
        fail("an inactive request has the status of %d bytes from %d with tag %d", count, status.MPI_SOURCE,
             status.MPI_TAG);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void wrong(void)
{
    const int other = 1 - rank;
    char memory[100] = { 0 };
    MPI_Request request, mates[2];
    MPI_Status status;
    int i, count, flag;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (i = 0; i < 2; i++) {   /* the sender has more, or less */
        if (rank == 0)
            MPI_Psend_init(memory, 10, 8 + 2 * i, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                           &request);
        else
            MPI_Precv_init(memory, 1, 90, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        if (rank == 0)
            expect_class(MPI_Pready_range(0, 9, request), MPI_SUCCESS, "ready for a receiver that does not fit");
        expect_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE, "sides that do not fit");
        MPI_Start(&request);    /* and once more: known from the first time */
        expect_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE, "sides that have not fitted");
        MPI_Request_free(&request);
    }
    if (rank == 0) {
        MPI_Psend_init(memory, 2, 50, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        expect_class(MPI_Pready(0, request), MPI_ERR_REQUEST, "ready before the start");
        MPI_Start(&request);
        expect_class(MPI_Pready(0, request), MPI_SUCCESS, "ready");
        expect_class(MPI_Pready(0, request), MPI_ERR_ARG, "ready twice");
        MPI_Pready(1, request);
    } else {
        MPI_Precv_init(memory, 2, 50, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
    }
    expect_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "the end of it");
    MPI_Request_free(&request);

    statuses();
    /* Nobody: over at once. */
    MPI_Psend_init(memory, 2, 50, MPI_BYTE, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &mates[0]);
    MPI_Precv_init(memory, 2, 50, MPI_BYTE, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &mates[1]);
    for (i = 0; i < 2; i++) {
        MPI_Startall(2, mates);
        MPI_Pready_range(0, 1, mates[0]);
        MPI_Parrived(mates[1], 1, &flag);
        MPI_Wait(&mates[0], MPI_STATUS_IGNORE);
        MPI_Wait(&mates[1], &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (!flag || count != 0 || status.MPI_SOURCE != MPI_PROC_NULL || status.MPI_TAG != MPI_ANY_TAG)
            fail("a status of MPI_PROC_NULL with source %d, tag %d, %d bytes", status.MPI_SOURCE, status.MPI_TAG,
                 count);
    }
    for (i = 0; i < 2; i++)
        MPI_Request_free(&mates[i]);
    /* No bytes, in no partition and in some. */
    for (i = 0; i < 2; i++) {
        if (rank == 0)
            MPI_Psend_init(NULL, 3 * i, 0, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        else
            MPI_Precv_init(NULL, 2, 0, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        if (rank == 0 && i == 1)
            MPI_Pready_range(0, 2, request);
        expect_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "no bytes");
        MPI_Request_free(&request);
    }
    /* Freed at once: those that come later do not meet what these should have met. */
    for (i = 0; i < 4; i++) {
        if (rank == 0)
            MPI_Psend_init(memory, 1, i == 3 ? 4 : 8, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                           &request);
        else
            MPI_Precv_init(memory, 1, i == 3 ? 4 : 8, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                           &request);
        if (i < 3)
            MPI_Request_free(&request);
    }
    MPI_Start(&request);
    if (rank == 0)
        MPI_Pready(0, request);
    expect_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "the one that is left");
    MPI_Request_free(&request);
    /* Freed before both have met, while it is active: its data arrives. */
    if (rank == 0) {
        MPI_Psend_init(memory, 1, 8, MPI_BYTE, other, TAG + 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Pready(0, request);
        MPI_Request_free(&request);
        MPI_Send(NULL, 0, MPI_BYTE, other, TAG, MPI_COMM_WORLD);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Precv_init(memory, 1, 8, MPI_BYTE, other, TAG + 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        expect_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, "from a request that was freed");
        MPI_Request_free(&request);
    }
    /* These never meet. */
    MPI_Psend_init(memory, 1, 8, MPI_BYTE, other, TAG + 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Request_free(&request);
    MPI_Precv_init(memory, 1, 8, MPI_BYTE, other, TAG + 2, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Request_free(&request);
}

/* ---- class ---- */

static void exchange_over(MPI_Comm comm, int other)
{
    enum { PARTS = 3, EACH = 20000 };
    char *memory = allocate(2 * PARTS * EACH);
    MPI_Request requests[2];

    fill(memory, PARTS * EACH, (uint32_t) rank);
    MPI_Psend_init(memory, PARTS, EACH, MPI_BYTE, other, TAG, comm, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(memory + PARTS * EACH, PARTS, EACH, MPI_BYTE, other, TAG, comm, MPI_INFO_NULL, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Pready_range(0, PARTS - 1, requests[0]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    expect(memory + PARTS * EACH, PARTS * EACH, (uint32_t) (1 - rank), "what was received");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    free(memory);
}

static void class(void)
{
    MPI_Info info;
    MPI_Comm comm;

    MPI_Info_create(&info);
    MPI_Info_set(info, "ch3_offload_class", "bulk");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    exchange_over(comm, 1 - rank);
    MPI_Comm_free(&comm);
    MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, TAG, &comm);
    exchange_over(comm, 0);
    MPI_Comm_free(&comm);
}

/* ---- died ---- */

static void died(void)
{
    enum { EACH = 100000 };
    char *memory = allocate(3 * 2 * EACH);
    MPI_Request requests[3];
    int i;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        /* One peer that has met this process, and one that has not. */
        MPI_Psend_init(memory, 2, EACH, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
        MPI_Precv_init(memory + 2 * EACH, 2, EACH, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
        MPI_Precv_init(memory + 4 * EACH, 2, EACH, MPI_BYTE, 2, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
        MPI_Startall(3, requests);
        MPI_Pready(0, requests[0]);
        MPI_Send(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Send(NULL, 0, MPI_BYTE, 2, TAG, MPI_COMM_WORLD);
        for (i = 1; i < 3; i++)
            expect_class(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED, "the peer has died");
        MPI_Pready(1, requests[0]);
        expect_class(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED, "the receiver has died");
        MPI_Startall(3, requests);
        for (i = 1; i < 3; i++)
            expect_class(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED, "once more");
        MPI_Pready_range(0, 1, requests[0]);
        expect_class(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED, "once more, the receiver");
        for (i = 0; i < 3; i++)
            MPI_Request_free(&requests[i]);
        free(memory);
        return;
    }
    if (rank == 1) {
        MPI_Psend_init(memory, 2, EACH, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
        MPI_Precv_init(memory + 2 * EACH, 2, EACH, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
        MPI_Startall(2, requests);
        MPI_Pready(1, requests[0]);
        for (i = 0; !i;)
            MPI_Parrived(requests[1], 0, &i);
    }
    MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("done\n");
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = {
        {"shapes", shapes}, {"matching", matching}, {"early", early}, {"threads", threads}, {"wrong", wrong},
        {"class", class}, {"died", died}
    };

    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
