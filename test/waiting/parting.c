/* Two ranks that come to one processor leave it, and keep their affinity masks. Each time, both move to the first
 * processor of the mask as the scheduler would move them, and exchange messages. Rank 0 says "parted", or what is
 * wrong; "one processor" if there is nowhere to go. */
#define _GNU_SOURCE
#include <mpi.h>

#include <sched.h>
#include <stdio.h>

/* The scheduler may be faster: then there is nothing to part. */
enum { kMeetings = 1000 };
static const double kMeetingSeconds = 0.005;

static unsigned long long read_partings(void)
{
    static MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
    static MPI_T_pvar_handle handle;
    unsigned long long value = 0;
    int index, count, provided;

    if (session == MPI_T_PVAR_SESSION_NULL) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        MPI_T_pvar_session_create(&session);
        if (MPI_T_pvar_get_index("ch3_offload_partings", MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS ||
            MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_T_pvar_read(session, handle, &value);
    return value;
}

static void meet(const cpu_set_t * mask)
{
    cpu_set_t first;
    int number = 0;

    while (!CPU_ISSET(number, mask))
        number++;
    CPU_ZERO(&first);
    CPU_SET(number, &first);
    sched_setaffinity(0, sizeof first, &first);
    sched_setaffinity(0, sizeof *mask, mask);
}

static void exchange(int rank)
{
    double end = MPI_Wtime() + kMeetingSeconds;
    int goes_on = 1, answer = 0;

    while (goes_on) {
        if (rank == 0) {
            goes_on = MPI_Wtime() < end;
            MPI_Send(&goes_on, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&answer, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&goes_on, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&answer, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        }
    }
}

int main(int argc, char **argv)
{
    cpu_set_t before, after;
    unsigned long long own, all = 0;
    int rank, same, all_same;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    sched_getaffinity(0, sizeof before, &before);
    for (int i = 0; i < kMeetings && all == 0 && CPU_COUNT(&before) > 1; i++) {
        meet(&before);
        exchange(rank);
        own = read_partings();
        MPI_Allreduce(&own, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
    sched_getaffinity(0, sizeof after, &after);
    same = CPU_EQUAL(&before, &after);
    MPI_Allreduce(&same, &all_same, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (rank == 0)
        puts(CPU_COUNT(&before) < 2 ? "one processor" : !all_same ? "another mask" :
             all == 0 ? "they stay together" : "parted");
    MPI_Finalize();
    return 0;
}
