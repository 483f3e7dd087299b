/* For test/over-mpi/run: which receive gets which message, with tags up to the greatest, a thousand
 * communicators, wildcards, receives that are too short, and receives that are freed, for messages of every
 * protocol. */
#include "over_mpi.h"

enum { kTag = 7, kLongest = 2 << 20 };

/* By the defaults: short, one slot and several, the eager limit, rendezvous. */
static const int lengths[] = { 0, 8, 1000, 8200, 33000, 65536, 65537, 300000, kLongest };
enum { kLengths = sizeof lengths / sizeof lengths[0] };

static int error_class(int error)
{
    int class;
    MPI_Error_class(error, &class);
    return class;
}

/* ---- tags ---- */

static void check_tag(const MPI_Status * status, int tag, const char *memory, int length)
{
    int count;

    MPI_Get_count(status, MPI_CHAR, &count);
    if (status->MPI_TAG != tag || count != length)
        fail("tag %d and %d bytes instead of tag %d and %d bytes", status->MPI_TAG, count, tag, length);
    expect(memory, length, tag, "data");
}

static void refuse_tag(int tag)
{
    int error;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    error = MPI_Send(NULL, 0, MPI_CHAR, 1 - rank, tag, MPI_COMM_WORLD);
    if (error_class(error) != MPI_ERR_TAG)
        fail("tag %d: error class %d instead of MPI_ERR_TAG", tag, error_class(error));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void tags(void)
{
    enum { kTags = 7 };
    int *upper_bound, is_set;
    char *memory = allocate(kLongest * (size_t) kTags);

    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper_bound, &is_set);
    if (!is_set || *upper_bound < 32767)
        fail("MPI_TAG_UB is missing or less than MPI demands");
    int ub = *upper_bound;
    int some[kTags] = { 0, 1, ub / 2, ub / 2 + 1, ub - 2, ub - 1, ub };

    for (int l = 0; l < kLengths; l++) {
        /* The receiver takes them by tag, the last first; then all with MPI_ANY_TAG, in order. */
        for (int is_any = 0; is_any < 2; is_any++) {
            MPI_Request requests[kTags];
            MPI_Status status;
            snprintf(doing, sizeof doing, "tags, %d bytes, %s", lengths[l], is_any ? "MPI_ANY_TAG" : "by tag");
            for (int t = 0; t < kTags && rank == 0; t++) {
                fill(memory + t * (size_t) kLongest, lengths[l], some[t]);
                MPI_Isend(memory + t * (size_t) kLongest, lengths[l], MPI_CHAR, 1, some[t], MPI_COMM_WORLD,
                          &requests[t]);
            }
            MPI_Barrier(MPI_COMM_WORLD);
            for (int t = 0; t < kTags && rank == 1; t++) {
                int tag = is_any ? some[t] : some[kTags - 1 - t];
                MPI_Recv(memory, lengths[l], MPI_CHAR, 0, is_any ? MPI_ANY_TAG : tag, MPI_COMM_WORLD, &status);
                check_tag(&status, tag, memory, lengths[l]);
            }
            if (rank == 0)
                MPI_Waitall(kTags, requests, MPI_STATUSES_IGNORE);
        }
    }
    if (ub < INT32_MAX)
        refuse_tag(ub + 1);
    refuse_tag(-5);
    free(memory);
}

/* ---- communicators ---- */

static void shuffle(int *numbers, int count, uint64_t * state)
{
    for (int i = 0; i < count; i++)
        numbers[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int k = next_random(state, i + 1), number = numbers[i];
        numbers[i] = numbers[k];
        numbers[k] = number;
    }
}

static MPI_Comm make_communicator(int number)
{
    MPI_Comm comm;

    switch (number % 3) {
        case 0:
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
            break;
        case 1:                /* all, the other way round */
            MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
            break;
        default:               /* the even ones and the odd ones, each by themselves */
            MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
    }
    return comm;
}

/* On all of them a message goes round, with the same tag; who takes one of another communicator sees wrong
 * data. */
static void send_on_all(MPI_Comm * comms, const int *identities, int count, uint64_t * state)
{
    static const int some_lengths[] = { 8, 1000, 70000 };
    MPI_Request *requests = allocate(sizeof(MPI_Request) * 2 * count);
    char **in = allocate(sizeof(char *) * count), **out = allocate(sizeof(char *) * count);
    int *order = allocate(sizeof(int) * count);

    shuffle(order, count, state);
    for (int i = 0; i < count; i++) {
        int c = order[i], length = some_lengths[c % 3], my_rank, ranks;
        MPI_Comm_rank(comms[c], &my_rank);
        MPI_Comm_size(comms[c], &ranks);
        out[c] = allocate(length);
        fill(out[c], length, identities[c] * 100 + my_rank);
        MPI_Isend(out[c], length, MPI_CHAR, (my_rank + 1) % ranks, kTag, comms[c], &requests[c]);
    }
    shuffle(order, count, state);
    for (int i = 0; i < count; i++) {
        int c = order[i], length = some_lengths[c % 3], my_rank, ranks;
        MPI_Comm_rank(comms[c], &my_rank);
        MPI_Comm_size(comms[c], &ranks);
        in[c] = allocate(length);
        MPI_Irecv(in[c], length, MPI_CHAR, c % 5 == 0 ? MPI_ANY_SOURCE : (my_rank + ranks - 1) % ranks,
                  c % 7 == 0 ? MPI_ANY_TAG : kTag, comms[c], &requests[count + c]);
    }
    MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
    for (int c = 0; c < count; c++) {
        int my_rank, ranks;
        MPI_Comm_rank(comms[c], &my_rank);
        MPI_Comm_size(comms[c], &ranks);
        expect(in[c], some_lengths[c % 3], identities[c] * 100 + (my_rank + ranks - 1) % ranks, "data");
        free(in[c]);
        free(out[c]);
    }
    free(requests);
    free(in);
    free(out);
    free(order);
}

static void communicators(void)
{
    enum { kCommunicators = 1000 };
    static MPI_Comm comms[kCommunicators];
    static int identities[kCommunicators];
    uint64_t state = 1, common = 2;
    int made = 0;

    for (int c = 0; c < kCommunicators; c++) {
        identities[c] = made;
        comms[c] = make_communicator(made++);
    }
    for (int round = 0; round < (is_long()? 20 : 2); round++) {
        snprintf(doing, sizeof doing, "communicators, round %d", round);
        send_on_all(comms, identities, kCommunicators, &state);
        /* A third of them goes, others take their context ids. */
        for (int i = 0; i < kCommunicators / 3; i++) {
            int c = next_random(&common, kCommunicators);
            MPI_Comm_free(&comms[c]);
            identities[c] = made;
            comms[c] = make_communicator(made++);
        }
    }
    send_on_all(comms, identities, kCommunicators, &state);
    for (int c = 0; c < kCommunicators; c++)
        MPI_Comm_free(&comms[c]);
}

/* ---- receives that are too short ---- */

/* Every second int of the memory. */
static int receive_short(char *memory, int capacity, int is_strided, int source, int way)
{
    MPI_Datatype type = MPI_CHAR;
    MPI_Message message;
    MPI_Request request;
    int count = capacity, error;

    if (is_strided) {
        MPI_Type_vector(capacity / 4, 1, 2, MPI_INT, &type);
        MPI_Type_commit(&type);
        count = 1;
    }
    switch (way) {
        case 0:                /* expected */
            MPI_Irecv(memory, count, type, source, kTag, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            error = MPI_Wait(&request, MPI_STATUS_IGNORE);
            break;
        case 1:
            MPI_Barrier(MPI_COMM_WORLD);
            error = MPI_Recv(memory, count, type, source, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        default:
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Mprobe(source, kTag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            error = MPI_Mrecv(memory, count, type, &message, MPI_STATUS_IGNORE);
    }
    if (is_strided)
        MPI_Type_free(&type);
    return error;
}

/* What the receive's type does not cover. */
static void expect_untouched(char *memory, int capacity, int is_strided)
{
    if (is_strided) {
        for (int i = 4; i < 2 * capacity; i += 8)
            expect_from(memory + i, 4, 3, i, "a gap");
        expect_from(memory + 2 * capacity, 64, 3, 2 * capacity, "behind the buffer");
    } else {
        expect_from(memory + capacity, 64, 3, capacity, "behind the buffer");
    }
}

static void truncate_one(char *memory, int length, int capacity, int is_strided, int way, int is_sync)
{
    MPI_Request requests[2];
    int error;

    snprintf(doing, sizeof doing, "%d bytes into %d%s, way %d%s", length, capacity, is_strided ? " (strided)" : "",
             way, is_sync ? ", Issend" : "");
    if (rank == 0) {
        if (way == 0)
            MPI_Barrier(MPI_COMM_WORLD);
        fill(memory, length, length);
        (is_sync ? MPI_Issend : MPI_Isend) (memory, length, MPI_CHAR, 1, kTag, MPI_COMM_WORLD, &requests[0]);
        /* The next one is whole. */
        MPI_Isend(memory, length, MPI_CHAR, 1, kTag, MPI_COMM_WORLD, &requests[1]);
        if (way != 0)
            MPI_Barrier(MPI_COMM_WORLD);
        error = MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (error != MPI_SUCCESS)
            fail("the sender got an error of class %d", error_class(error));
    } else {
        fill(memory, 2 * capacity + 64, 3);
        error = receive_short(memory, capacity, is_strided, capacity % 3 == 0 ? MPI_ANY_SOURCE : 0, way);
        if (error_class(error) != MPI_ERR_TRUNCATE)
            fail("error class %d instead of MPI_ERR_TRUNCATE", error_class(error));
        expect_untouched(memory, capacity, is_strided);
        error = MPI_Recv(memory, length, MPI_CHAR, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS)
            fail("the next message: error class %d", error_class(error));
        expect(memory, length, length, "the next message");
    }
}

static void truncation(void)
{
    char *memory = allocate(2 * (size_t) kLongest + 64);

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int l = 1; l < kLengths; l++) {
        int capacities[] = { 0, lengths[l] / 8 * 4, lengths[l] - 1 };
        for (int c = 0; c < 3; c++)
            for (int way = 0; way < 3; way++)
                for (int is_sync = 0; is_sync < 2; is_sync++)
                    for (int is_strided = 0; is_strided < (c == 1 ? 2 : 1); is_strided++)
                        truncate_one(memory, lengths[l], capacities[c], is_strided, way, is_sync);
    }
    free(memory);
}

/* ---- wildcards ---- */

enum { kTags = 4, kPerTag = 100, kAtOnce = 8, kLongestWild = 200000 };

static int wild_length(int sender, int tag, int number)
{
    static const int some[] = { 8, 600, 8200, 33000, 65544, kLongestWild };
    return some[word_at(sender * kTags + tag, number) % 6];
}

static uint32_t wild_seed(int sender, int tag, int number)
{
    return 1000000 * sender + kTags * number + tag;
}

/* All at once, the tags in random order. */
static void send_wild(uint64_t * state)
{
    enum { kMessages = kTags * kPerTag };
    MPI_Request requests[kMessages];
    char *memory[kMessages];
    int numbers[kTags] = { 0 };

    for (int m = 0; m < kMessages; m++) {
        int tag = (int) next_random(state, kTags), length;
        while (numbers[tag] == kPerTag)
            tag = (tag + 1) % kTags;
        length = wild_length(rank, tag, numbers[tag]);
        memory[m] = allocate(length);
        fill(memory[m], length, wild_seed(rank, tag, numbers[tag]));
        (m % 3 == 0 ? MPI_Issend : MPI_Isend) (memory[m], length, MPI_CHAR, 0, tag, MPI_COMM_WORLD, &requests[m]);
        numbers[tag]++;
    }
    MPI_Waitall(kMessages, requests, MPI_STATUSES_IGNORE);
    for (int m = 0; m < kMessages; m++)
        free(memory[m]);
}

/* How many messages are still to come that this receive would take. */
static int still_to_come(int (*numbers)[kTags], int source, int tag)
{
    int sum = 0;

    for (int s = 1; s < size; s++)
        for (int t = 0; t < kTags; t++)
            if ((source == MPI_ANY_SOURCE || source == s) && (tag == MPI_ANY_TAG || tag == t))
                sum += kPerTag - numbers[s][t];
    return sum;
}

/* Some equal receives at a time, as many as messages that match them are to come: so the messages of a
 * sender with a tag arrive in their order. */
static void receive_wild(uint64_t * state)
{
    int (*numbers)[kTags] = allocate(sizeof(*numbers) * size);
    char *memory = allocate((size_t) kLongestWild * kAtOnce);

    memset(numbers, 0, sizeof(*numbers) * size);
    for (int left = (size - 1) * kTags * kPerTag; left > 0;) {
        MPI_Request requests[kAtOnce];
        MPI_Status statuses[kAtOnce];
        int source = next_random(state, 2) ? MPI_ANY_SOURCE : 1 + (int) next_random(state, size - 1);
        int tag = next_random(state, 2) ? MPI_ANY_TAG : (int) next_random(state, kTags);
        int count = still_to_come(numbers, source, tag);
        if (count > kAtOnce)
            count = 1 + next_random(state, kAtOnce);
        for (int i = 0; i < count; i++)
            MPI_Irecv(memory + i * (size_t) kLongestWild, kLongestWild, MPI_CHAR, source, tag, MPI_COMM_WORLD,
                      &requests[i]);
        MPI_Waitall(count, requests, statuses);
        for (int i = 0; i < count; i++) {
            int s = statuses[i].MPI_SOURCE, t = statuses[i].MPI_TAG, length;
            int number = numbers[s][t]++;
            MPI_Get_count(&statuses[i], MPI_CHAR, &length);
            snprintf(doing, sizeof doing, "wildcards, message %d of rank %d with tag %d", number, s, t);
            if (length != wild_length(s, t, number))
                fail("%d bytes instead of %d", length, wild_length(s, t, number));
            expect(memory + i * (size_t) kLongestWild, length, wild_seed(s, t, number), "data");
        }
        left -= count;
    }
    free(numbers);
    free(memory);
}

static void wildcards(void)
{
    uint64_t state = 5 + rank;

    for (int round = 0; round < (is_long() ? 200 : 2); round++) {
        if (rank == 0)
            receive_wild(&state);
        else
            send_wild(&state);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* ---- freed ---- */

/* MPI_Finalize finishes what was freed while it was active (MPI 4.0, sections 3.7.3 and 11.2.2). Each pair of ranks
 * has one message of another kind. One rank has a receive that nobody will match, which holds nobody up. */
static void freed(void)
{
    const int kind = rank / 2, length = kind & 1 ? kLongest : 40, source = kind & 2 ? MPI_ANY_SOURCE : rank - 1;
    char *memory = allocate(kLongest), never;
    MPI_Request request;

    if (rank % 2 == 0) {
        fill(memory, length, kind);
        MPI_Isend(memory, length, MPI_CHAR, rank + 1, kind, MPI_COMM_WORLD, &request);
        if (kind & 4)
            MPI_Request_free(&request);
        else
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        if (rank == 1) {
            MPI_Irecv(&never, 1, MPI_CHAR, 0, 100, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
        }
        if ((kind ^ kind >> 1 ^ kind >> 2) & 1) {       /* the message is there first */
            MPI_Probe(rank - 1, kind, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Irecv(memory, length, MPI_CHAR, source, kind, MPI_COMM_WORLD, &request);
        } else {
            MPI_Recv_init(memory, length, MPI_CHAR, source, kind, MPI_COMM_WORLD, &request);
            MPI_Start(&request);
        }
        MPI_Request_free(&request);
    }
    MPI_Finalize();
    if (rank % 2 == 1)
        expect(memory, length, kind, "data of a receive that was freed");
    free(memory);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = {
        {"tags", tags}, {"communicators", communicators}, {"truncation", truncation}, {"wildcards", wildcards},
        {"freed", freed},
    };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
