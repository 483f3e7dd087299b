/* For test/faults/run: one rank or two kill themselves while the others wait for them in the way that
 * argv[1] names. The survivors' calls must end with MPIX_ERR_PROC_FAILED; afterwards they must be able to
 * talk to each other.
 *
 * Each rank writes to its own file in the directory argv[2], because mpiexec may end before it has passed
 * on a survivor's last words. It writes "process PID" and "shm FILE" for each file in /dev/shm that it has
 * open or mapped. A victim writes "killed NS" at its death; a survivor "waiting", then "error CLASS NS" with
 * " must" behind it if 0 is no right answer, and at its end "alive". CLASS is 0, PROC_FAILED,
 * PROC_FAILED_PENDING or a number. A victim's child writes "process PID", too, and "hidden" if a survivor
 * has not heard of the death after 20 s. NS is CLOCK_MONOTONIC, which all processes of a node share. */
#include "victim.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

enum { kTagTalk = 99 };

int rank, size;
char *buffer;
MPI_Win window;
static FILE *words;
static volatile int *quarter_seen;      /* all ranks of the node see it */

long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void stop(const char *what)
{
    fprintf(stderr, "victim: rank %d: %s: %s\n", rank, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 2);
}

void start_thread(void *(*run) (void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0)
        stop("pthread_create");
}

/* ---- point to point ---- */

int recv_from_victim(void)
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

static int victims = 1;
static const char *directory;

static int is_victim(int which)
{
    return which == kVictim || (victims == 2 && which == kSecondVictim);
}

/* A process that ends takes along what its network processor has not sent yet: so nobody ends before all
 * have talked. Not memory: the nodes of the lab share only the directory. Returns whether all have. */
static int wait_for_talks(int longest_ms)
{
    char name[4096];
    int which, waited_ms = 0;

    for (which = 0; which < size; which++) {
        snprintf(name, sizeof name, "%s/talked%d", directory, which);
        for (; !is_victim(which) && access(name, F_OK) != 0; waited_ms++) {
            if (waited_ms == longest_ms)
                return 0;
            usleep(1000);
        }
    }
    return 1;
}

/* Its child ends when the survivors have heard of the death: not before. */
static void victim_forks(void)
{
    const pid_t child = fork();

    if (child < 0)
        stop("fork");
    if (child > 0)
        return;
    fprintf(words, "process %d\n", (int) getpid());
    if (!wait_for_talks(20000))
        fprintf(words, "hidden\n");
    _exit(0);
}

static const struct way ways[] = {
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
    {"child-outlives", recv_from_victim, kEverybody, victim_forks},
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
    {"finalize", finalize, kNobody},
    {"finalize-late", finalize_late, kNobody, victim_finalizes},
    {NULL},
};

static const struct way *find_way(const struct way *among, const char *name)
{
    for (; among->name != NULL; among++)
        if (strcmp(among->name, name) == 0)
            return among;
    return NULL;
}

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

static void say_talked(void)
{
    char name[4096];

    snprintf(name, sizeof name, "%s/talked%d", directory, rank);
    close(open(name, O_CREAT | O_WRONLY, 0600));
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

static void *map_state(void)
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
    if (argc >= 3) {
        way = find_way(ways, argv[1]);
        if (way == NULL)
            way = find_way(window_ways, argv[1]);
    }
    if (way == NULL || argc > 4) {
        fprintf(stderr, "usage: victim WAY DIRECTORY [2 (victims)]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (argc == 4)
        victims = atoi(argv[3]);
    directory = argv[2];
    snprintf(name, sizeof name, "%s/rank%d", directory, rank);
    words = fopen(name, "w");
    if (words == NULL)
        stop(name);
    setlinebuf(words);
    buffer = calloc(1, way->death == kAfterWait ? kLarge : kPayload);
    if (way->death == kQuarterSent)
        quarter_seen = map_state();
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
    if (way->must_fail != kNobody) {
        talk(is_victim);
        say_talked();
        wait_for_talks(5000);
    }
    /* No MPI_Finalize: it is collective, and one rank is gone. */
    _exit(error == MPI_SUCCESS ? 0 : 3);
}
