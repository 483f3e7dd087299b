/* For test/over-mpi/run: storms of cancelled sends and receives. Each message is either delivered, once
 * and whole, or cancelled, and both sides agree which. Ranks work in pairs: 0 and 1, 2 and 3... */
#include "over_mpi.h"

enum { kMessages = 120, kReceives = 60, kLongest = 150000, kTagMargin = 10 };

static MPI_Comm reports;        /* what both tell each other about a round */
static int partner;
static char *out[kMessages], *in[kReceives];
static unsigned char was_delivered[kMessages];

static int length_of(int sender, int round, int message)
{
    static const int some[] = { 0, 8, 1000, 9000, 40000, 65544, kLongest };
    return some[word_at(100 * round + sender, message) % 7];
}

static uint32_t seed_of(int sender, int round, int message)
{
    return (uint32_t) ((round * kMessages + message) * 64 + sender);
}

/* A message came; its tag tells which. */
static void note(int round, const char *memory, const MPI_Status * status)
{
    int message = status->MPI_TAG, count;

    if (message < 0 || message >= kMessages)
        fail("round %d: tag %d", round, message);
    MPI_Get_count(status, MPI_CHAR, &count);
    if (was_delivered[message]++)
        fail("round %d: message %d came twice", round, message);
    if (count != length_of(partner, round, message))
        fail("round %d: message %d has %d bytes instead of %d", round, message, count,
             length_of(partner, round, message));
    expect(memory, count, seed_of(partner, round, message), "data");
}

/* Ends a receive: 1 if it had taken a message. */
static int cancel_receive(int round, MPI_Request * request, const char *memory)
{
    MPI_Status status;
    int cancelled;

    if (*request == MPI_REQUEST_NULL)
        return 0;
    MPI_Cancel(request);
    MPI_Wait(request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    if (!cancelled)
        note(round, memory, &status);
    return !cancelled;
}

static void start_sends(int round, MPI_Request * requests, uint64_t * state)
{
    for (int m = 0; m < kMessages; m++) {
        int length = length_of(rank, round, m);
        fill(out[m], length, seed_of(rank, round, m));
        (next_random(state, 4) == 0 ? MPI_Issend : MPI_Isend) (out[m], length, MPI_CHAR, partner, m, MPI_COMM_WORLD,
                                                               &requests[m]);
    }
}

static void start_receives(MPI_Request * requests, uint64_t * state)
{
    for (int r = 0; r < kReceives; r++) {
        int tag = next_random(state, 2) ? MPI_ANY_TAG : (int) next_random(state, kMessages + kTagMargin);
        MPI_Irecv(in[r], kLongest, MPI_CHAR, partner, tag, MPI_COMM_WORLD, &requests[r]);
    }
}

/* Cancels two thirds of the sends, in any order, and waits for those. Sets which messages go. */
static void cancel_sends(MPI_Request * requests, unsigned char *goes, uint64_t * state)
{
    memset(goes, 1, kMessages);
    for (int i = 0; i < kMessages; i++) {
        int m = (i * 7) % kMessages;
        if (next_random(state, 3) == 0)
            continue;
        MPI_Cancel(&requests[m]);
        goes[m] = 2;
    }
    for (int m = 0; m < kMessages; m++) {
        MPI_Status status;
        int cancelled;
        if (goes[m] != 2)
            continue;
        MPI_Wait(&requests[m], &status);
        MPI_Test_cancelled(&status, &cancelled);
        goes[m] = !cancelled;
    }
}

static int count_of(const unsigned char *flags)
{
    int count = 0;
    for (int m = 0; m < kMessages; m++)
        count += flags[m];
    return count;
}

/* Returns how many of the sends were cancelled. */
static int run_round(int round, uint64_t * state)
{
    MPI_Request sends[kMessages], receives[kReceives];
    unsigned char goes[kMessages], comes[kMessages];
    int delivered = 0, flag = 0;
    int receives_first = (int) next_random(state, 2);

    memset(was_delivered, 0, sizeof was_delivered);
    if (receives_first)
        start_receives(receives, state);
    start_sends(round, sends, state);
    if (!receives_first)
        start_receives(receives, state);
    cancel_sends(sends, goes, state);
    for (int r = 0; r < kReceives; r++)
        delivered += cancel_receive(round, &receives[r], in[r]);

    /* What is left to come is known now: all that was not cancelled and is not here. */
    MPI_Sendrecv(goes, kMessages, MPI_BYTE, partner, round % 100, comes, kMessages, MPI_BYTE, partner, round % 100,
                 reports, MPI_STATUS_IGNORE);
    for (int left = count_of(comes) - delivered; left > 0; left--) {
        MPI_Status status;
        MPI_Recv(in[0], kLongest, MPI_CHAR, partner, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        note(round, in[0], &status);
    }
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (flag)
        fail("round %d: a message is left", round);
    MPI_Waitall(kMessages, sends, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, partner, 100, NULL, 0, MPI_BYTE, partner, 100, reports, MPI_STATUS_IGNORE);
    for (int m = 0; m < kMessages; m++)
        if (comes[m] != was_delivered[m])
            fail("round %d: message %d was %s, but %s", round, m, comes[m] ? "not cancelled" : "cancelled",
                 was_delivered[m] ? "came" : "did not come");
    return kMessages - count_of(goes);
}

static void storm(void)
{
    uint64_t state = 11 + rank;
    int rounds = is_long() ? 4000 : 15;
    long cancelled = 0;

    if (size % 2 != 0)
        fail("an even number of ranks is needed");
    partner = rank ^ 1;
    for (int m = 0; m < kMessages; m++)
        out[m] = allocate(kLongest);
    for (int r = 0; r < kReceives; r++)
        in[r] = allocate(kLongest);
    MPI_Comm_dup(MPI_COMM_WORLD, &reports);
    for (int round = 0; round < rounds; round++)
        cancelled += run_round(round, &state);
    /* Otherwise there was no race. */
    if (cancelled == 0 || cancelled == (long) rounds * kMessages)
        fail("%ld of %ld sends were cancelled", cancelled, (long) rounds * kMessages);
    printf("rank %d: %ld of %ld sends were cancelled\n", rank, cancelled, (long) rounds * kMessages);
    MPI_Comm_free(&reports);
    for (int m = 0; m < kMessages; m++)
        free(out[m]);
    for (int r = 0; r < kReceives; r++)
        free(in[r]);
}

/* A message to oneself that has been matched is here when MPI_Imrecv returns. */
static void matched_at_once(int length)
{
    char *sent = allocate(length), *got = allocate(length);
    int is_here = 0;
    MPI_Request requests[2];
    MPI_Message message;

    for (int i = 0; i < 50; i++) {
        memset(sent, i, length);
        memset(got, ~i, length);
        MPI_Issend(sent, length, MPI_CHAR, rank, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Mprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Imrecv(got, length, MPI_CHAR, &message, &requests[1]);
        if (memcmp(sent, got, length) != 0)
            fail("message %d of %d bytes is not here after MPI_Imrecv", i, length);
        MPI_Request_get_status(requests[1], &is_here, MPI_STATUS_IGNORE);
        if (!is_here)
            fail("message %d of %d bytes: MPI_Imrecv is not over", i, length);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    free(sent);
    free(got);
}

/* Of a message to oneself: MPI_Request_get_status, which waits for nothing, finds the cancellation decided. */
static void at_once(void)
{
    for (int i = 0; i < 200; i++) {
        const int is_received = i % 2;
        char sent = (char) i, got = 0;
        int is_decided = 0, is_cancelled = 0;
        MPI_Request request;
        MPI_Status status;

        MPI_Issend(&sent, 1, MPI_CHAR, rank, 1, MPI_COMM_WORLD, &request);
        MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (is_received)
            MPI_Recv(&got, 1, MPI_CHAR, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Cancel(&request);
        MPI_Request_get_status(request, &is_decided, &status);
        MPI_Test_cancelled(&status, &is_cancelled);
        if (!is_decided || is_cancelled == is_received || got != (is_received ? sent : 0))
            fail("message %d, received: %d, decided: %d, cancelled: %d", i, is_received, is_decided, is_cancelled);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    matched_at_once(1);
    matched_at_once(1000 * 1000);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = { {"storm", storm}, {"at_once", at_once} };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
