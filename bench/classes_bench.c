/* How long 8 bytes take to another rank and back while much else is on its way there: for bench/classes.
 *
 * classes_bench CLASS_OF_THE_8_BYTES CLASS_OF_THE_OTHERS LENGTH WINDOW ROUNDS: rank 0 has WINDOW messages of
 * LENGTH bytes on the way to rank 1 all the time. Rank 1 takes them, and answers each message of 8 bytes at
 * once. Prints the median and the 99th percentile of the round trips in microseconds, and the MB/s of the
 * others. A class of "-" sets none. Of 4 ranks, rank 2 sends the 8 bytes to rank 3. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPing = 1, kPong = 2, kBulk = 3, kEnd = 4 };

static MPI_Comm make_comm(const char *name)
{
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (strcmp(name, "-") != 0) {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "ch3_offload_class", name);
        MPI_Comm_set_info(comm, info);
        MPI_Info_free(&info);
    }
    return comm;
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *) one - *(const double *) other;
    return difference < 0 ? -1 : difference > 0;
}

static MPI_Comm urgent, others;
static int length, window, rounds;
static char *memory;
static MPI_Request *requests;   /* window of the others, and one */

/* Gives all that has been sent to the next message. Returns how many. */
static int refill(void)
{
    static int *done = NULL;
    int count;

    if (done == NULL)
        done = malloc(window * sizeof *done);
    MPI_Testsome(window, requests, &count, done, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; i++)
        MPI_Isend(memory, length, MPI_CHAR, 1, kBulk, others, &requests[done[i]]);
    return count;
}

static void report(double *times, double mb_per_s)
{
    qsort(times, rounds, sizeof *times, compare);
    printf("%.1f %.1f %.0f\n", times[rounds / 2], times[rounds * 99 / 100], mb_per_s);
}

/* Of 4 ranks, the first: until rank 2 has measured. */
static void send_until_told(void)
{
    MPI_Request told;
    double begin, mb_per_s;
    long sent = 0;
    int is_told = 0;
    long long word = 0;

    MPI_Irecv(&word, 1, MPI_LONG_LONG, 2, kEnd, others, &told);
    for (int i = 0; i < window; i++)
        MPI_Isend(memory, length, MPI_CHAR, 1, kBulk, others, &requests[i]);
    begin = MPI_Wtime();
    while (!is_told) {
        sent += refill();
        MPI_Test(&told, &is_told, MPI_STATUS_IGNORE);
    }
    mb_per_s = sent * (double) length / (MPI_Wtime() - begin) / 1e6;
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    MPI_Send(&word, 1, MPI_LONG_LONG, 1, kEnd, others);
    MPI_Send(&mb_per_s, 1, MPI_DOUBLE, 2, kEnd, others);
}

static void ping(void)
{
    double *times = malloc(rounds * sizeof *times), mb_per_s;
    long long word = 0;

    for (int round = 0; round < rounds; round++) {
        double start = MPI_Wtime();
        MPI_Send(&word, 1, MPI_LONG_LONG, 3, kPing, urgent);
        MPI_Recv(&word, 1, MPI_LONG_LONG, 3, kPong, urgent, MPI_STATUS_IGNORE);
        times[round] = (MPI_Wtime() - start) * 1e6;
    }
    MPI_Send(&word, 1, MPI_LONG_LONG, 0, kEnd, others);
    MPI_Recv(&mb_per_s, 1, MPI_DOUBLE, 0, kEnd, others, MPI_STATUS_IGNORE);
    report(times, mb_per_s);
    free(times);
}

static void pong(void)
{
    long long word;

    for (int round = 0; round < rounds; round++) {
        MPI_Recv(&word, 1, MPI_LONG_LONG, 2, kPing, urgent, MPI_STATUS_IGNORE);
        MPI_Send(&word, 1, MPI_LONG_LONG, 2, kPong, urgent);
    }
}

static void send_all(void)
{
    double *times = malloc(rounds * sizeof *times), begin, end;
    long sent = 0;
    long long word = 0, answer;

    for (int i = 0; i < window; i++)
        MPI_Isend(memory, length, MPI_CHAR, 1, kBulk, others, &requests[i]);
    begin = MPI_Wtime();
    for (int round = 0; round < rounds; round++) {
        MPI_Request pong, ping;
        int is_done = 0;
        double start;
        for (int i = 0; i < 20; i++)
            sent += refill();
        start = MPI_Wtime();
        MPI_Irecv(&answer, 1, MPI_LONG_LONG, 1, kPong, urgent, &pong);
        MPI_Isend(&word, 1, MPI_LONG_LONG, 1, kPing, urgent, &ping);
        while (!is_done) {
            sent += refill();
            MPI_Test(&pong, &is_done, MPI_STATUS_IGNORE);
        }
        times[round] = (MPI_Wtime() - start) * 1e6;
        MPI_Wait(&ping, MPI_STATUS_IGNORE);
    }
    end = MPI_Wtime();
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    MPI_Send(&word, 1, MPI_LONG_LONG, 1, kEnd, others);
    report(times, sent * (double) length / (end - begin) / 1e6);
    free(times);
}

static void take_all(void)
{
    MPI_Status status;
    long long word;
    int index;

    /* MPI_Waitany prefers the first: the ping. */
    MPI_Irecv(&word, 1, MPI_LONG_LONG, 0, kPing, urgent, &requests[0]);
    for (int i = 1; i <= window; i++)
        MPI_Irecv(memory, length, MPI_CHAR, 0, MPI_ANY_TAG, others, &requests[i]);
    for (;;) {
        MPI_Waitany(window + 1, requests, &index, &status);
        if (status.MPI_TAG == kEnd)
            break;
        if (index == 0) {
            MPI_Send(&word, 1, MPI_LONG_LONG, 0, kPong, urgent);
            MPI_Irecv(&word, 1, MPI_LONG_LONG, 0, kPing, urgent, &requests[0]);
        } else {
            MPI_Irecv(memory, length, MPI_CHAR, 0, MPI_ANY_TAG, others, &requests[index]);
        }
    }
    for (int i = 0; i <= window; i++) {
        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Cancel(&requests[i]);
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 6) {
        fprintf(stderr, "usage: %s CLASS CLASS LENGTH WINDOW ROUNDS\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    urgent = make_comm(argv[1]);
    others = make_comm(argv[2]);
    length = atoi(argv[3]);
    window = atoi(argv[4]);
    rounds = atoi(argv[5]);
    memory = calloc(length > 8 ? length : 8, 1);
    requests = malloc((window + 1) * sizeof *requests);
    if (rank == 0 && ranks == 4)
        send_until_told();
    else if (rank == 0)
        send_all();
    else if (rank == 1)
        take_all();
    else if (rank == 2)
        ping();
    else
        pong();
    MPI_Comm_free(&urgent);
    MPI_Comm_free(&others);
    MPI_Finalize();
    return 0;
}
