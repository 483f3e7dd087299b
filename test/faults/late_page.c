/* For test/faults/run and test/soak/run: memory of rank 1 comes late (userfaultfd) while ranks 0 and 1 move a
 * message from it or to it, in several ways. Ranks 2 and 3 must exchange all of their messages before it
 * comes: whoever serves the page waits until they have. If they never do, the page comes after kPatience
 * seconds, and the test fails.
 *
 * late_page [ROUNDS]: prints "well" once; "skipped: WHY" where there is no userfaultfd. The threads of the
 * job's network processor, which take turns for late pages, must share one heap: with one for each, the memory
 * that ended clients leave is scattered, and the process grows.
 * late_page die DIRECTORY: rank 1 is killed while the page is late, and another process keeps the page from
 * coming until the file DIRECTORY/over exists. The survivors write "error 1" for what they have with rank 1,
 * then "alive", to DIRECTORY/rank*. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "network_processors.h"

enum { kLate = 1, kPatience = 20, kPages = 32, kPage = 4096, kBytes = kPages * kPage, kMessages = 100 };

/* What all ranks see. */
static volatile struct {
    int late;                   /* number of the transfer that waits for its page */
    int done;                   /* ranks 2 and 3 have exchanged their messages in the midst of this one */
    int ready[4];               /* by rank: it waits for this one, and for nothing that was before */
    int failed;
} *seen;

static int rank, faults;
static volatile int current;    /* number of rank 1's transfer */
static char *memory;
static MPI_Comm pair;           /* of ranks 0 and 1, and of ranks 2 and 3 */

static void stop(const char *what)
{
    fprintf(stderr, "late_page: rank %d: %s: %s\n", rank, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Until it is at least so, or fails: not for so long that nobody will ever say so. */
static void await(volatile int *word, int value)
{
    double end = seconds() + kPatience;
    while (*word < value) {
        if (seconds() > end || seen->failed) {
            seen->failed = 1;
            return;
        }
        usleep(200);
    }
}

static int open_faults(void)
{
    struct uffdio_api api = {.api = UFFD_API };
    int file = (int) syscall(SYS_userfaultfd, O_CLOEXEC);
    if (file >= 0 && ioctl(file, UFFDIO_API, &api) != 0)
        stop("UFFDIO_API");
    return file;
}

/* Its memory is not there from now on, and comes when serve() says so. */
static void make_late(void)
{
    struct uffdio_register region = {.mode = UFFDIO_REGISTER_MODE_MISSING };
    memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    region.range.start = (unsigned long) memory;
    region.range.len = kBytes;
    if (memory == MAP_FAILED || ioctl(faults, UFFDIO_REGISTER, &region) != 0)
        stop("UFFDIO_REGISTER");
}

static void *serve(void *none)
{
    static char page[kPage];
    struct uffd_msg event;

    memset(page, 7, sizeof page);
    while (read(faults, &event, sizeof event) == sizeof event) {
        struct uffdio_copy copy = {.len = kPage,.src = (unsigned long) page };
        seen->late = current;
        await(&seen->done, current);
        copy.dst = event.arg.pagefault.address & ~(kPage - 1UL);
        if (ioctl(faults, UFFDIO_COPY, &copy) != 0 && errno != EEXIST)
            stop("UFFDIO_COPY");
    }
    return none;
}

/* Between ranks 2 and 3, while the page of transfer `number` is late. */
static void exchange(int number)
{
    static const int sizes[] = { 1, 1000, 5000, 100000 };
    static char buffer[100000];
    int i, other = 5 - rank;

    seen->ready[rank] = number;
    await(&seen->late, number);
    for (i = 0; i < kMessages; i++)
        MPI_Sendrecv_replace(buffer, sizes[i % 4], MPI_CHAR, other, 0, other, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    MPI_Sendrecv(NULL, 0, MPI_CHAR, other, 1, NULL, 0, MPI_CHAR, other, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    seen->done = number;
}

static void check(const char *bytes, int value, const char *what)
{
    int i;
    for (i = 0; i < kBytes; i++)
        if (bytes[i] != value) {
            fprintf(stderr, "late_page: rank %d: %s: byte %d is %d, not %d\n", rank, what, i, bytes[i],
                    value);
            seen->failed = 1;
            return;
        }
}

/* Rank 1 sends from late memory, in one piece or in pieces. */
static void from_it(MPI_Datatype type, int count)
{
    static char buffer[kBytes];
    if (rank == kLate)
        MPI_Send(memory, count, type, 0, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Recv(buffer, kBytes, MPI_CHAR, kLate, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(buffer, 7, "a message from late memory");
    }
}

/* Rank 1 receives to late memory. */
static void to_it(MPI_Datatype type, int count)
{
    static char buffer[kBytes];
    memset(buffer, 5, sizeof buffer);
    if (rank == 0)
        MPI_Send(buffer, kBytes, MPI_CHAR, kLate, 0, MPI_COMM_WORLD);
    if (rank == kLate) {
        MPI_Recv(memory, count, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(memory, 5, "a message to late memory");
    }
}

/* Rank 1 has late memory in a window. */
static void window_of_it(int gets)
{
    static char buffer[kBytes];
    MPI_Win window;

    memset(buffer, 5, sizeof buffer);
    MPI_Win_create(rank == kLate ? memory : NULL, rank == kLate ? kBytes : 0, 1, MPI_INFO_NULL, pair,
                   &window);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, kLate, 0, window);
        if (gets)
            MPI_Get(buffer, kBytes, MPI_CHAR, kLate, 0, kBytes, MPI_CHAR, window);
        else
            MPI_Put(buffer, kBytes, MPI_CHAR, kLate, 0, kBytes, MPI_CHAR, window);
        MPI_Win_unlock(kLate, window);
        if (gets)
            check(buffer, 7, "a get from late memory");
    }
    MPI_Barrier(pair);
    if (rank == kLate && !gets)
        check(memory, 5, "a put to late memory");
    MPI_Win_free(&window);
}

static void transfer(int way)
{
    MPI_Datatype pieces;
    MPI_Type_vector(kBytes / 16384, 8192, 8192, MPI_CHAR, &pieces);
    MPI_Type_create_resized(pieces, 0, kBytes / 2, &pieces);
    MPI_Type_commit(&pieces);
    switch (way) {
        case 0: from_it(MPI_CHAR, kBytes); break;
        case 1: to_it(MPI_CHAR, kBytes); break;
        case 2: from_it(pieces, 2); break;
        case 3: to_it(pieces, 2); break;
        case 4: window_of_it(0); break;
        case 5: window_of_it(1); break;
    }
    MPI_Type_free(&pieces);
}

/* A child of rank 1 that has its page faults kills it, and serves none of them. */
static void start_killer(const char *directory)
{
    char path[4096];
    struct pollfd fault = {.fd = faults,.events = POLLIN };
    pid_t parent = getpid();
    int i;

    if (fork() != 0)
        return;
    setsid();
    snprintf(path, sizeof path, "%s/killer", directory);
    if ((i = open(path, O_WRONLY | O_CREAT, 0600)) < 0 || dprintf(i, "%d\n", getpid()) < 0)
        stop(path);
    for (i = 0; i < 1024; i++)
        if (i != faults)
            close(i);           /* Also the pipes of mpiexec. */
    fcntl(faults, F_SETFL, O_NONBLOCK); /* Otherwise poll() does not wait. */
    poll(&fault, 1, kPatience * 1000);
    kill(parent, SIGKILL);
    snprintf(path, sizeof path, "%s/over", directory);
    for (i = 0; i < 600 && access(path, F_OK) != 0; i++)
        usleep(100000);
    _exit(0);
}

static void die(const char *directory)
{
    static char buffer[kBytes];
    const int next = rank == 0 ? 2 : rank == 2 ? 3 : 0, previous = 5 - next - rank;
    char path[4096];
    FILE *words;
    int error;

    snprintf(path, sizeof path, "%s/rank%d", directory, rank);
    if ((words = fopen(path, "w")) == NULL)
        stop(path);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == kLate) {
        make_late();
        start_killer(directory);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    seen->ready[rank] = 1;
    if (rank == kLate) {
        await(&seen->ready[0], 1);
        await(&seen->ready[2], 1);
        await(&seen->ready[3], 1);
        MPI_Send(memory, kBytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    error = MPI_Recv(buffer, kBytes, MPI_CHAR, kLate, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    fprintf(words, "error %d\n", error != MPI_SUCCESS);
    MPI_Sendrecv(&rank, 1, MPI_INT, next, 1, &error, 1, MPI_INT, previous, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    fprintf(words, "%s\n", error == previous ? "alive" : "deaf");
    fclose(words);
}

/* Counts in `heaps` those that glibc has made for threads of the process. It reserves 64 MiB for each. */
static void count_heaps_of_threads(const char *pid, void *heaps)
{
    char path[64], line[512];
    FILE *maps;
    snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
    if ((maps = fopen(path, "r")) == NULL)
        return;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;
        char access[8] = "";
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 && strcmp(access, "---p") == 0)
            *(int *) heaps += end % (64UL << 20) == 0 && end - begin > 32UL << 20;
    }
    fclose(maps);
}

int main(int argc, char **argv)
{
    int is_deadly = argc > 2, rounds = argc == 2 ? atoi(argv[1]) : 1;
    int number = 0, round, way, provided, have = 1, heaps = 0;
    MPI_Win window;
    MPI_Aint size;
    int unit;
    void *words;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate_shared(rank == 0 ? kPage : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
    MPI_Win_shared_query(window, 0, &size, &unit, &words);
    seen = words;
    if (rank == kLate) {
        faults = open_faults();
        have = faults >= 0;
        if (!have)
            printf("skipped: userfaultfd: %s\n", strerror(errno));
    }
    MPI_Bcast(&have, 1, MPI_INT, kLate, MPI_COMM_WORLD);
    if (have && is_deadly) {
        die(argv[2]);
        fflush(stdout);
        _exit(0);
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair);
    if (have && rank == kLate) {
        pthread_t server;
        if (pthread_create(&server, NULL, serve, NULL) != 0)
            stop("pthread_create");
    }
    for (round = 0; have && round < rounds; round++)
        for (way = 0; way < 6 && !seen->failed; way++) {
            number++;
            current = number;
            if (rank == kLate)
                make_late();
            if (rank >= 2) {
                exchange(number);
            } else {
                await(&seen->ready[2], number);
                await(&seen->ready[3], number);
                transfer(way);
            }
            MPI_Barrier(MPI_COMM_WORLD);
        }
    if (have && rank == 0 && getenv("CH3_OFFLOAD_SANITIZED") == NULL)   /* sanitizers have another malloc() */
        for_each_network_processor(getsid(0), count_heaps_of_threads, &heaps);
    if (heaps > 0) {
        fprintf(stderr, "late_page: the network processor's threads have heaps of their own\n");
        seen->failed = 1;
    }
    if (have && rank == 0 && !seen->failed)
        printf("well\n");
    if (seen->failed && rank == 0)
        fprintf(stderr, "late_page: failed by transfer %d\n", number);
    MPI_Barrier(MPI_COMM_WORLD);
    have = !have || !seen->failed;
    MPI_Comm_free(&pair);
    MPI_Win_free(&window);
    MPI_Finalize();
    return have ? 0 : 1;
}
