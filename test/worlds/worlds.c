/* Processes of different worlds (MPI 4.0, chapter 11): children, servers and clients. Every byte is checked. */
#include "../over-mpi/over_mpi.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

enum { kTag = 5, kChildren = 3, kRounds = 3, kWindowInts = 1000, kMost = 16 };

static const size_t lengths[] = { 0, 1, 1000, 100000, 3000000 };
static size_t longest = SIZE_MAX;       /* WORLDS_LONGEST: where machines are slow */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint32_t seed_of(int from, int to, size_t length)
{
    return (uint32_t) (from * 1000003 + to * 1009 + (int) length);
}

/* All of one side with all of the other, both ways at once; the answers come from anybody. */
static void exchange(MPI_Comm inter)
{
    int others, me;

    MPI_Comm_remote_size(inter, &others);
    MPI_Comm_rank(inter, &me);
    if (others > kMost)
        fail("%d others", others);
    for (size_t i = 0; i < COUNT(lengths) && lengths[i] <= longest; i++) {
        const size_t length = lengths[i];
        char *in = allocate(length), *out = allocate(length * (size_t) others);
        MPI_Request requests[kMost];
        MPI_Status statuses[kMost];

        snprintf(doing, sizeof doing, "exchanging %zu bytes", length);
        for (int other = 0; other < others; other++) {
            char *its = out + length * (size_t) other;
            fill(its, length, seed_of(me, other, length));
            MPI_Isend(its, (int) length, MPI_CHAR, other, kTag + (int) i, inter, &requests[other]);
        }
        for (int n = 0; n < others; n++) {
            MPI_Status status;
            int count;
            MPI_Recv(in, (int) length, MPI_CHAR, MPI_ANY_SOURCE, kTag + (int) i, inter, &status);
            MPI_Get_count(&status, MPI_CHAR, &count);
            if ((size_t) count != length)
                fail("%d bytes have come", count);
            expect(in, length, seed_of(status.MPI_SOURCE, me, length), "a message of another world");
        }
        MPI_Waitall(others, requests, statuses);
        free(in);
        free(out);
    }
}

/* Both worlds as one communicator: collective operations and a window. */
static void merge(MPI_Comm inter, int is_high)
{
    MPI_Comm all, sharing;
    MPI_Win window;
    int me, count, sum, value, *memory;

    snprintf(doing, sizeof doing, "merging");
    MPI_Intercomm_merge(inter, is_high, &all);
    MPI_Comm_rank(all, &me);
    MPI_Comm_size(all, &count);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, all);
    if (sum != count * (count - 1) / 2)
        fail("the sum of the ranks is %d", sum);
    MPI_Barrier(all);

    snprintf(doing, sizeof doing, "a window of two worlds");
    memory = allocate(kWindowInts * sizeof(*memory));
    for (int i = 0; i < kWindowInts; i++)
        memory[i] = 0;
    MPI_Win_create(memory, kWindowInts * (MPI_Aint) sizeof(*memory), sizeof(*memory), MPI_INFO_NULL, all, &window);
    value = me + 1;
    MPI_Win_fence(0, window);
    for (int to = 0; to < count; to++) {
        MPI_Put(&value, 1, MPI_INT, to, me, 1, MPI_INT, window);
        MPI_Accumulate(&value, 1, MPI_INT, to, kWindowInts - 1, 1, MPI_INT, MPI_SUM, window);
    }
    MPI_Win_fence(0, window);
    for (int i = 0; i < count; i++)
        if (memory[i] != i + 1)
            fail("rank %d has put %d", i, memory[i]);
    if (memory[kWindowInts - 1] != count * (count + 1) / 2)
        fail("all have added up to %d", memory[kWindowInts - 1]);
    MPI_Win_free(&window);
    free(memory);

    /* Those that can share memory are all of one world. */
    snprintf(doing, sizeof doing, "sharing memory");
    MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &sharing);
    MPI_Comm_size(sharing, &count);
    MPI_Comm_rank(sharing, &me);
    MPI_Win_allocate_shared(sizeof(*memory), sizeof(*memory), MPI_INFO_NULL, sharing, &memory, &window);
    MPI_Win_fence(0, window);
    *memory = me + 7;
    MPI_Win_fence(0, window);
    for (int i = 0; i < count; i++) {
        MPI_Aint bytes;
        int unit, *its;
        MPI_Win_shared_query(window, i, &bytes, &unit, &its);
        if (*its != i + 7)
            fail("%d is shared by %d", *its, i);
    }
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    MPI_Comm_free(&sharing);
    MPI_Comm_free(&all);
}

static MPI_Comm spawn(char *program, char *part)
{
    char *arguments[] = { part, NULL };
    MPI_Comm children;

    snprintf(doing, sizeof doing, "spawning");
    MPI_Comm_spawn(program, arguments, kChildren, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                   MPI_ERRCODES_IGNORE);
    return children;
}

/* Says why nobody can be spawned here. */
static void refused(char *program)
{
    char text[MPI_MAX_ERROR_STRING];
    int error, length;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    error = MPI_Comm_spawn(program, MPI_ARGV_NULL, kChildren, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &(MPI_Comm) { 0 },
                           MPI_ERRCODES_IGNORE);
    if (error == MPI_SUCCESS)
        fail("somebody was spawned");
    MPI_Error_string(error, text, &length);
    printf("%s\n", text);
}

static void parent(char *program)
{
    for (int round = 0; round < kRounds; round++) {
        MPI_Comm children = spawn(program, "child");
        exchange(children);
        merge(children, 0);
        MPI_Comm_disconnect(&children);
    }
}

static void child(MPI_Comm parents)
{
    exchange(parents);
    merge(parents, 1);
    MPI_Comm_disconnect(&parents);
}

/* Children and their children, none of which is disconnected: MPI_Finalize ends it all. */
static void generations(char *program, MPI_Comm parents)
{
    char *arguments[] = { "generations", "2", NULL };
    MPI_Comm children;

    if (parents != MPI_COMM_NULL) {
        exchange(parents);
        return;
    }
    MPI_Comm_spawn(program, arguments, kChildren, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children, MPI_ERRCODES_IGNORE);
    exchange(children);
}

/* The name of the port goes through a file. */
static void publish_port(const char *file, char *port)
{
    char temporary[400];
    FILE *out;

    MPI_Open_port(MPI_INFO_NULL, port);
    snprintf(temporary, sizeof temporary, "%s.new", file);
    out = fopen(temporary, "w");
    if (out == NULL || fprintf(out, "%s\n", port) < 0 || fclose(out) != 0 || rename(temporary, file) != 0)
        fail("cannot write %s", file);
}

/* Clients come one after the other, and several at once. */
static void serve(const char *file, int clients)
{
    char port[MPI_MAX_PORT_NAME];

    if (rank == 0)
        publish_port(file, port);
    for (int i = 0; i < clients; i++) {
        MPI_Comm client;
        snprintf(doing, sizeof doing, "accepting client %d", i);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &client);
        exchange(client);
        MPI_Comm_disconnect(&client);
    }
    if (rank == 0)
        MPI_Close_port(port);
}

static void read_port(const char *file, char *port)
{
    FILE *in = NULL;

    for (int i = 0; i < 600 && (in = fopen(file, "r")) == NULL; i++)
        usleep(100000);
    if (in == NULL || fgets(port, MPI_MAX_PORT_NAME, in) == NULL)
        fail("cannot read %s", file);
    port[strcspn(port, "\n")] = '\0';
    fclose(in);
}

static void visit(const char *file, int times)
{
    char port[MPI_MAX_PORT_NAME] = "";

    if (rank == 0)
        read_port(file, port);
    for (int i = 0; i < times; i++) {
        MPI_Comm server;
        snprintf(doing, sizeof doing, "connecting, %d", i);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &server);
        exchange(server);
        MPI_Comm_disconnect(&server);
    }
}

/* One after the other connects by itself. Of the last, the server forgets at once; only this one knows that it has
 * awaited something meanwhile, and says farewell. It comes again, and MPI_Finalize ends. */
static void forsaken(const char *file)
{
    char port[MPI_MAX_PORT_NAME] = "", byte;
    MPI_Comm server;
    MPI_Request request;

    read_port(file, port);
    for (int turn = 0; turn < rank; turn++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &server);
    for (int turn = rank; turn < size; turn++)
        MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        usleep(200000);
        MPI_Irecv(&byte, 1, MPI_CHAR, 0, kTag, server, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_disconnect(&server);
    if (rank < size - 1)
        return;
    for (int i = 0; i < 200; i++) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
        usleep(1000);
    }
    snprintf(doing, sizeof doing, "connecting once more");
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &server);
    exchange(server);
    MPI_Comm_disconnect(&server);
}

/* Lives on, and leaves the others, when those clients are through. */
static void forsake(const char *file, int clients)
{
    char port[MPI_MAX_PORT_NAME], through[400];
    MPI_Comm all[kMost];

    publish_port(file, port);
    for (int i = 0; i < clients; i++)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &all[i]);
    MPI_Comm_disconnect(&all[clients - 1]);
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &all[clients - 1]);
    exchange(all[clients - 1]);
    MPI_Comm_disconnect(&all[clients - 1]);
    snprintf(through, sizeof through, "%s.through", file);
    while (access(through, F_OK) != 0) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < clients - 1; i++)
        MPI_Comm_disconnect(&all[i]);
    MPI_Close_port(port);
}

/* A window of both worlds answers in parts while its process connects: nothing comes between the parts. */
static void answer_in_parts(MPI_Comm inter, int is_server)
{
    enum { kPieces = 200000, kStride = 3, kTimes = 5 };
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm all, again;
    MPI_Win window;
    MPI_Datatype pieces;
    int *memory, *got = allocate(kPieces * sizeof(*got));

    MPI_Intercomm_merge(inter, !is_server, &all);
    MPI_Win_allocate(is_server ? 0 : kPieces * kStride * (MPI_Aint) sizeof(int), sizeof(int), MPI_INFO_NULL, all,
                     &memory, &window);
    if (!is_server)
        for (int i = 0; i < kPieces * kStride; i++)
            memory[i] = i;
    if (is_server)
        MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, all);
    MPI_Type_vector(kPieces, 1, kStride, MPI_INT, &pieces);
    MPI_Type_commit(&pieces);
    MPI_Win_lock_all(0, window);
    for (int time = 0; time < kTimes; time++) {
        snprintf(doing, sizeof doing, "getting in parts, time %d", time);
        MPI_Barrier(all);
        if (is_server) {
            memset(got, 0, kPieces * sizeof(*got));
            for (int i = 0; i < 4; i++)
                MPI_Get(got, kPieces, MPI_INT, 1, 0, 1, pieces, window);
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &again);
            MPI_Win_flush_all(window);
            for (int i = 0; i < kPieces; i++)
                if (got[i] != i * kStride)
                    fail("piece %d is %d", i, got[i]);
        } else {
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &again);
        }
        MPI_Comm_disconnect(&again);
    }
    MPI_Win_unlock_all(window);
    MPI_Type_free(&pieces);
    MPI_Win_free(&window);
    MPI_Comm_free(&all);
    if (is_server)
        MPI_Close_port(port);
    free(got);
}

/* Two processes. */
static void in_parts(char *program, MPI_Comm parents)
{
    char *arguments[] = { "parts", NULL };
    MPI_Comm children;

    if (parents != MPI_COMM_NULL) {
        answer_in_parts(parents, 0);
        MPI_Comm_disconnect(&parents);
        return;
    }
    MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children, MPI_ERRCODES_IGNORE);
    answer_in_parts(children, 1);
    MPI_Comm_disconnect(&children);
}

/* The clients are killed while a message of one of them is awaited, or of any. */
static void mourn(const char *file)
{
    char port[MPI_MAX_PORT_NAME], byte = 0;
    MPI_Comm clients;
    int class, error, last;

    if (rank == 0)
        publish_port(file, port);
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &clients);
    MPI_Comm_remote_size(clients, &last);
    last--;
    MPI_Comm_set_errhandler(clients, MPI_ERRORS_RETURN);
    snprintf(doing, sizeof doing, "waiting for one that dies");
    error = MPI_Recv(&byte, 1, MPI_CHAR, rank == 0 ? last : MPI_ANY_SOURCE, kTag, clients,
                     MPI_STATUS_IGNORE);
    MPI_Error_class(error, &class);
    if (class != MPIX_ERR_PROC_FAILED)
        fail("its death is error class %d", class);
    snprintf(doing, sizeof doing, "sending to one that is dead");
    for (int round = 0; round < 20; round++) {
        MPI_Request request;
        error = MPI_Ssend(&byte, 1, MPI_CHAR, last, kTag, clients);
        MPI_Error_class(error, &class);
        if (class != MPIX_ERR_PROC_FAILED)
            fail("its death is error class %d to who sends", class);
        MPI_Isend(&byte, 1, MPI_CHAR, last, kTag, clients, &request);
        error = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Error_class(error, &class);
        if (class != MPIX_ERR_PROC_FAILED)
            fail("its death is error class %d to who sends later", class);
        usleep(5000);           /* its number is given back meanwhile */
    }
    snprintf(doing, sizeof doing, "leaving those that are dead");
    MPI_Comm_disconnect(&clients);
}

static void die(const char *file)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm server;

    if (rank == 0)
        read_port(file, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &server);
    raise(SIGKILL);
}

/* Whether the process of the other world lives: any error says that it does not. */
static int lives(int error)
{
    int class;

    MPI_Error_class(error, &class);
    if (class != MPI_SUCCESS && class != MPIX_ERR_PROC_FAILED)
        fail("error class %d", class);
    return class == MPI_SUCCESS;
}

/* Both ways at once, with each of the others, as long as they live. `last`: after so many messages this process is
 * killed; -1: it is not. */
static void talk(MPI_Comm inter, int last)
{
    static const int talks[] = { 8, 1000, 300000, 2000000 };
    int others, me;

    MPI_Comm_remote_size(inter, &others);
    MPI_Comm_rank(inter, &me);
    for (size_t i = 0; i < COUNT(talks); i++)
        for (int other = 0; other < others; other++) {
            const size_t length = (size_t) talks[i];
            char *in = allocate(length), *out = allocate(length);
            MPI_Request requests[2];
            int is_sent, has_come;

            if (last-- == 0)
                raise(SIGKILL);
            snprintf(doing, sizeof doing, "talking, %zu bytes", length);
            fill(out, length, seed_of(me, other, length));
            MPI_Irecv(in, (int) length, MPI_CHAR, other, kTag, inter, &requests[0]);
            MPI_Isend(out, (int) length, MPI_CHAR, other, kTag, inter, &requests[1]);
            has_come = lives(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
            is_sent = lives(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
            if (has_come)
                expect(in, length, seed_of(other, me, length), "a message of one that may die");
            free(in);
            free(out);
            if (!has_come || !is_sent)
                return;
        }
}

static int count_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    int count = 0;

    if (all == NULL)
        fail("no /proc");
    while (readdir(all) != NULL)
        count++;
    closedir(all);
    return count;
}

static long used_kib(void)
{
    char line[200];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");

    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "RssAnon: %ld", &kib) == 1)
            break;
    if (status != NULL)
        fclose(status);
    if (kib < 0)
        fail("no RssAnon");
    return kib;
}

/* Clients come, are killed or leave. Nothing of them stays. */
static void host(const char *file, int clients)
{
    enum { kMostKib = 2048 };
    char port[MPI_MAX_PORT_NAME];
    int descriptors = 0;
    long kib = 0;

    if (rank == 0)
        publish_port(file, port);
    for (int i = 0; i < clients; i++) {
        MPI_Comm client;
        snprintf(doing, sizeof doing, "accepting guest %d", i);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &client);
        MPI_Comm_set_errhandler(client, MPI_ERRORS_RETURN);
        talk(client, -1);
        MPI_Comm_disconnect(&client);
        if (i == clients / 2) {
            descriptors = count_descriptors();
            kib = used_kib();
        }
    }
    usleep(500000);
    if (count_descriptors() > descriptors + 4)
        fail("%d descriptors have become %d", descriptors, count_descriptors());
    if (used_kib() > kib + kMostKib)
        fail("%ld KiB have become %ld", kib, used_kib());
    if (rank == 0)
        MPI_Close_port(port);
}

/* A guest, of which one process may be killed. */
static void come(const char *file, unsigned seed)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm server;
    int last = (int) (seed / 2 % 9) - 1;

    if (rank == 0)
        read_port(file, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &server);
    MPI_Comm_set_errhandler(server, MPI_ERRORS_RETURN);
    talk(server, rank == (int) seed % size ? last : -1);
    MPI_Comm_disconnect(&server);
}

/* Ports that are no ports: an error, at once. */
static void err(void)
{
    static const char *const names[] = {
        "", "nonsense", "tag#0$", "tag#0$name#nowhere$", "tag#0$name#127.0.0.1/1$", "tag#0$name#127.0.0.1/99999$",
    };
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm server;
    int class, error;

    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < COUNT(names); i++) {
        for (int time = 0; time < 3; time++) {
            snprintf(doing, sizeof doing, "connecting to '%s', time %d", names[i], time);
            error = MPI_Comm_connect(names[i], MPI_INFO_NULL, 0, MPI_COMM_SELF, &server);
            MPI_Error_class(error, &class);
            if (class != MPI_ERR_PORT)
                fail("error class %d", class);
        }
    }
    snprintf(doing, sizeof doing, "connecting to a closed port");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    error = rank == 0 ? MPI_ERR_PORT : MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &server);
    MPI_Error_class(error, &class);
    if (class != MPI_ERR_PORT)
        fail("error class %d", class);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    MPI_Comm parents;

    if (getenv("WORLDS_LONGEST") != NULL)
        longest = strtoul(getenv("WORLDS_LONGEST"), NULL, 10);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parents);
    if (strcmp(part, "parent") == 0)
        parent(argv[0]);
    else if (strcmp(part, "refused") == 0)
        refused(argv[0]);
    else if (strcmp(part, "child") == 0)
        child(parents);
    else if (strcmp(part, "generations") == 0)
        generations(argv[0], parents);
    else if (strcmp(part, "parts") == 0)
        in_parts(argv[0], parents);
    else if (strcmp(part, "forsake") == 0 && argc > 3)
        forsake(argv[2], atoi(argv[3]));
    else if (strcmp(part, "forsaken") == 0 && argc > 2)
        forsaken(argv[2]);
    else if (strcmp(part, "mourn") == 0 && argc > 2)
        mourn(argv[2]);
    else if (strcmp(part, "die") == 0 && argc > 2)
        die(argv[2]);
    else if (strcmp(part, "serve") == 0 && argc > 3)
        serve(argv[2], atoi(argv[3]));
    else if (strcmp(part, "visit") == 0 && argc > 3)
        visit(argv[2], atoi(argv[3]));
    else if (strcmp(part, "host") == 0 && argc > 3)
        host(argv[2], atoi(argv[3]));
    else if (strcmp(part, "come") == 0 && argc > 3)
        come(argv[2], (unsigned) atoi(argv[3]));
    else if (strcmp(part, "err") == 0)
        err();
    else
        fail("no part '%s'", part);
    printf("done\n");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
