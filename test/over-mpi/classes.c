/* For test/over-mpi/run: traffic classes of communicators (info ch3_offload_class): what MPI_Comm_get_info
 * says of them, that messages of a communicator keep their order whatever class it gets while they wait, and
 * that an urgent message does not wait behind those of a bulk class. */
#include "over_mpi.h"

#include <unistd.h>

#define KEY "ch3_offload_class"

static MPI_Info make_info(const char *value)
{
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, KEY, value);
    return info;
}

static void set_class(MPI_Comm comm, const char *value)
{
    MPI_Info info = make_info(value);

    MPI_Comm_set_info(comm, info);
    MPI_Info_free(&info);
}

static void expect_class(MPI_Comm comm, const char *wanted)
{
    char value[MPI_MAX_INFO_VAL + 1] = "";
    MPI_Info info;
    int is_set;

    MPI_Comm_get_info(comm, &info);
    MPI_Info_get(info, KEY, MPI_MAX_INFO_VAL, value, &is_set);
    MPI_Info_free(&info);
    if (!is_set || strcmp(value, wanted) != 0)
        fail("the class is '%s' instead of '%s'", value, wanted);
}

static void names(void)
{
    MPI_Comm comm, other;
    MPI_Info info = make_info("bulk");

    expect_class(MPI_COMM_WORLD, "0");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    set_class(comm, "latency");
    expect_class(comm, "1");
    set_class(comm, "default");
    expect_class(comm, "2");
    set_class(comm, "3");
    expect_class(comm, "3");
    MPI_Comm_dup_with_info(comm, info, &other);
    expect_class(other, "3");
    set_class(other, "");
    expect_class(other, "0");
    MPI_Info_free(&info);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&other);
}

/* A class that came with info before the communicator had its context id, and one that ended with it. */
static void lives(void)
{
    enum { kRounds = 50 };
    MPI_Comm comm, other;
    MPI_Request request;
    MPI_Info info = make_info("latency");
    int word = 0;

    for (int round = 0; round < kRounds; round++) {
        MPI_Comm_idup_with_info(MPI_COMM_WORLD, info, &comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect_class(comm, "1");
        MPI_Comm_dup(comm, &other);
        expect_class(other, "0");
        set_class(other, "bulk");
        MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_SUM, comm);
        MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_SUM, other);
        MPI_Comm_free(&comm);
        MPI_Comm_free(&other);
    }
    MPI_Info_free(&info);
}

/* The process says so, and the class stays. */
static void unknown(void)
{
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    set_class(comm, "bulk");
    set_class(comm, "urgent");
    expect_class(comm, "3");
    set_class(comm, "urgent");
    MPI_Comm_free(&comm);
}

/* ---- order ---- */

enum { kMessages = 3000, kLong = 100000 };

static int length_of(int number)
{
    return number % 97 == 0 ? kLong : number % 13 * 100 + 4;
}

static void send_numbered(MPI_Comm comm, MPI_Comm noise)
{
    static const char *const classes[] = { "latency", "bulk", "default", "bulk", "" };
    MPI_Request *requests = allocate(2 * kMessages * sizeof *requests);
    char *memory = allocate((size_t) kMessages * kLong);
    int count = 0;

    for (int n = 0; n < kMessages; n++) {
        char *bytes = memory + (size_t) n * kLong;
        if (n % 41 == 40)
            set_class(comm, classes[n / 41 % 5]);
        fill(bytes, length_of(n), n);
        if (n % 29 == 0)
            MPI_Issend(bytes, length_of(n), MPI_CHAR, 1, n % 7, comm, &requests[count++]);
        else
            MPI_Isend(bytes, length_of(n), MPI_CHAR, 1, n % 7, comm, &requests[count++]);
        if (n % 3 == 0)
            MPI_Isend(bytes, 4, MPI_CHAR, 1, 0, noise, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    free(memory);
    free(requests);
}

static void order(void)
{
    MPI_Comm comm, noise;
    char *memory = allocate(kLong);

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &noise);
    set_class(noise, "latency");
    for (int round = 0; round < (is_long()? 20 : 2); round++) {
        if (rank == 0) {
            send_numbered(comm, noise);
        } else {
            usleep(50000);      /* So that much waits. */
            for (int n = 0; n < kMessages; n++) {
                MPI_Status status;
                int length;
                snprintf(doing, sizeof doing, "order, round %d, message %d", round, n);
                MPI_Recv(memory, kLong, MPI_CHAR, 0, MPI_ANY_TAG, comm, &status);
                MPI_Get_count(&status, MPI_CHAR, &length);
                if (status.MPI_TAG != n % 7 || length != length_of(n))
                    fail("tag %d and %d bytes instead of tag %d and %d bytes", status.MPI_TAG, length, n % 7,
                         length_of(n));
                expect(memory, length, n, "data");
            }
            for (int n = 0; n < kMessages; n += 3)
                MPI_Recv(memory, 4, MPI_CHAR, 0, 0, noise, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(comm);      /* Collectives go along. */
    }
    MPI_Comm_free(&comm);
    MPI_Comm_free(&noise);
    free(memory);
}

/* ---- overtaking ---- */

/* Rank 1 does not take anything until all is sent: with the host driver the bulk fills what is between
 * them, and waits. */
static void overtaking(void)
{
    enum { kMany = 2000, kBytes = 1000 };
    static char memory[kMany][kBytes];
    static MPI_Request requests[kMany];
    MPI_Comm bulk, urgent;
    int done = 0;

    MPI_Comm_dup(MPI_COMM_WORLD, &bulk);
    MPI_Comm_dup(MPI_COMM_WORLD, &urgent);
    set_class(bulk, "bulk");
    set_class(urgent, "latency");
    for (int n = 0; n < kMany && rank == 1; n++)
        MPI_Irecv(memory[n], kBytes, MPI_CHAR, 0, n, bulk, &requests[n]);
    if (rank == 0)
        memset(memory, 1, sizeof memory);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        for (int n = 0; n < kMany; n++)
            MPI_Isend(memory[n], kBytes, MPI_CHAR, 1, n, bulk, &requests[n]);
        MPI_Send(&done, 1, MPI_INT, 1, 0, urgent);
    } else {
        usleep(200000);
        MPI_Recv(&done, 1, MPI_INT, 0, 0, urgent, MPI_STATUS_IGNORE);
        for (int n = 0; n < kMany; n++)
            done += memory[n][0];       /* MPI_Test would let more come meanwhile. */
        if (done > kMany / 2)
            fail("%d of %d messages of the bulk class came before the urgent one", done, kMany);
    }
    MPI_Waitall(kMany, requests, MPI_STATUSES_IGNORE);
    MPI_Comm_free(&bulk);
    MPI_Comm_free(&urgent);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = {
        {"names", names}, {"lives", lives}, {"unknown", unknown}, {"order", order}, {"overtaking", overtaking},
    };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}
