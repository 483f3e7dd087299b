/* Portals between two processes: of this node, which the program makes by itself, or of two nodes. The parent, or who
 * connects, measures and prints. All data is checked. usage() says what is measured.
 */

#include <errno.h>
#include <netdb.h>
#include <portals4.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kWindow = 16, kWarmUp = 100, kOperations = 1000, kMostRounds = 1000000, kMasks = 64 };

/* Why the other entries of `rate` do not take its puts. */
enum apart {
    kByInitiator,               /* they are other processes' */
    kByMask,                    /* by their match bits, under as many ignore masks as there are hash tables for */
    kByLength                   /* they match, and what does not fit them must not be cut */
};
static const char *const apart_names[] = { "initiator", "mask", "length" };

/* What a process tells the other. */
struct hello {
    ptl_process_t id;
    ptl_pt_index_t table;
};

static int is_parent;
static int other;               /* socket */
static ptl_handle_ni_t interface;
static ptl_pt_index_t table;
static struct hello peer;
static long long errors;

static void usage(FILE *to)
{
    fputs("usage: portals_bench EXPERIMENT [options]\n"
          "\n"
          "Measures operations of Portals between two processes, checks their data, and prints a table.\n"
          "\n"
          "latency    Half of the round trip of a PtlPut and the put that answers it: mean and median.\n"
          "  -bytes B          of a put (default 8); 0: nothing but the event\n"
          "  -change WHAT      what of a put changes each time: all (default) or ends. MPI's PingPong\n"
          "                    changes nothing\n"
          "bandwidth  PtlPut of one block after another, 16 on the way, in MB/s (10^6 bytes a second).\n"
          "  -bytes B          of a block (default 1048576)\n"
          "get        The same with PtlGet.\n"
          "rate       PtlPut of 8 bytes, 16 on the way, to the last of many match entries: puts a second.\n"
          "  -entries N        match entries (default 10000)\n"
          "  -apart WHAT       why the others do not take the puts: initiator (default: they are of other\n"
          "                    processes), mask (other match bits, under 64 masks) or length (too short)\n"
          "passive    How long 1,000 puts, gets and atomics each take while the other process computes.\n"
          "  -work MS          how long it computes (default 1000; 0: until all is done)\n"
          "\n"
          "All experiments:\n"
          "  -rounds N         round trips, blocks or puts (default 10000, 500 or 100000)\n"
          "  -listen PORT      two nodes: waits for the other process, which is started with -connect\n"
          "  -connect HOST:PORT  and the same other options. This one measures\n"
          "  -help             this text\n"
          "Without -listen and -connect, the program makes the other process by itself. Portals takes its\n"
          "driver from MPIR_CVAR_CH3_OFFLOAD_NIC (thread, process or host).\n",
          to);
}

static void must(int code, const char *call)
{
    if (code == PTL_OK)
        return;
    fprintf(stderr, "portals_bench: %s returned %d\n", call, code);
    exit(1);
}

#define MUST(call) must(call, #call)

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double) now.tv_sec + 1e-3 * (double) now.tv_nsec;
}

static void *allocate(size_t bytes)
{
    void *memory;
    if (posix_memalign(&memory, 4096, bytes > 0 ? bytes : 1) != 0) {
        fprintf(stderr, "portals_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(memory, 0, bytes);
    return memory;
}

/* Tells the other process something, and hears the same of it: so both have come here. Meanwhile it calls the
 * library, whose host driver works in calls only. */
static void exchange(const void *mine, void *its, size_t bytes)
{
    char byte;
    ptl_sr_value_t drops;

    if (write(other, mine, bytes) == (ssize_t) bytes)
        while (recv(other, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
            MUST(PtlNIStatus(interface, PTL_SR_DROP_COUNT, &drops));
            sched_yield();
        }
    if (recv(other, its, bytes, MSG_WAITALL) != (ssize_t) bytes) {
        fputs("portals_bench: the other process has ended\n", stderr);
        exit(1);
    }
}

/* Waits for the other process, or connects to it, which may not listen yet. Returns the socket. */
static int find_other(const char *listen_at, char *connect_to)
{
    struct addrinfo hints, *found;
    char *colon = connect_to == NULL ? NULL : strrchr(connect_to, ':');
    int one = 1;

    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    if (colon != NULL)
        *colon = '\0';
    if (getaddrinfo(connect_to, colon == NULL ? listen_at : colon + 1, &hints, &found) != 0) {
        fputs("portals_bench: there is no such address\n", stderr);
        exit(2);
    }
    for (int try = 0; try < 300; try++) {
        int made = socket(found->ai_family, found->ai_socktype, 0);
        setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (connect_to != NULL && connect(made, found->ai_addr, found->ai_addrlen) == 0)
            return made;
        if (connect_to == NULL && bind(made, found->ai_addr, found->ai_addrlen) == 0 && listen(made, 1) == 0)
            return accept(made, NULL, NULL);
        close(made);
        usleep(100000);
    }
    perror("portals_bench");
    exit(1);
}

static void meet(void)
{
    char mine = 0, its;
    exchange(&mine, &its, 1);
}

/* `matching`: PTL_NI_MATCHING, or PTL_NI_NO_MATCHING. */
static void set_up(unsigned matching)
{
    struct hello mine;

    MUST(PtlInit());
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, matching | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &interface));
    memset(&mine, 0, sizeof mine);
    MUST(PtlGetPhysId(interface, &mine.id));
    MUST(PtlPTAlloc(interface, 0, PTL_EQ_NONE, PTL_PT_ANY, &table));
    mine.table = table;
    exchange(&mine, &peer, sizeof mine);
}

static ptl_handle_ct_t make_counter(void)
{
    ptl_handle_ct_t counter;
    MUST(PtlCTAlloc(interface, &counter));
    return counter;
}

/* Memory that the peer may put to and get from. Counts the peer's operations if there is a counter. */
static ptl_handle_le_t expose(void *memory, size_t bytes, ptl_handle_ct_t counter)
{
    ptl_le_t entry;
    ptl_handle_le_t handle;

    memset(&entry, 0, sizeof entry);
    entry.start = memory;
    entry.length = bytes;
    entry.ct_handle = counter;
    entry.uid = PTL_UID_ANY;
    entry.options = PTL_LE_OP_PUT | PTL_LE_OP_GET | PTL_LE_EVENT_CT_COMM;
    MUST(PtlLEAppend(interface, table, &entry, PTL_PRIORITY_LIST, NULL, &handle));
    return handle;
}

static ptl_handle_md_t bind_memory(void *memory, size_t bytes, unsigned options, ptl_handle_ct_t counter)
{
    ptl_md_t descriptor;
    ptl_handle_md_t handle;

    memset(&descriptor, 0, sizeof descriptor);
    descriptor.start = memory;
    descriptor.length = bytes;
    descriptor.options = options;
    descriptor.eq_handle = PTL_EQ_NONE;
    descriptor.ct_handle = counter;
    MUST(PtlMDBind(interface, &descriptor, &handle));
    return handle;
}

/* Waits until the counter has counted so many successes. */
static void await(ptl_handle_ct_t counter, ptl_size_t count)
{
    ptl_ct_event_t event;
    MUST(PtlCTWait(counter, count, &event));
    if (event.failure != 0) {
        fprintf(stderr, "portals_bench: %llu operations failed\n", (unsigned long long) event.failure);
        exit(1);
    }
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *) left, b = *(const double *) right;
    return (a > b) - (a < b);
}

/* What makes a block differ from the one before. */
static void change(unsigned char *out, size_t bytes, unsigned char value, int is_all)
{
    if (is_all)
        memset(out, value, bytes);
    else if (bytes > 0)
        out[0] = out[bytes - 1] = value;
}

static void latency(size_t bytes, int rounds, int changes_all)
{
    double *times = allocate(sizeof *times * (size_t) (kWarmUp + rounds + 1));
    unsigned char *in = allocate(bytes), *out = allocate(bytes);
    ptl_handle_ct_t arrived = make_counter();
    ptl_handle_le_t entry = expose(in, bytes, arrived);
    ptl_handle_md_t descriptor = bind_memory(out, bytes, 0, PTL_CT_NONE);

    meet();
    for (int round = 0; round < kWarmUp + rounds; round++) {
        times[round] = now_us();
        if (is_parent) {
            change(out, bytes, (unsigned char) round, changes_all);
            MUST(PtlPut(descriptor, 0, bytes, PTL_NO_ACK_REQ, peer.id, peer.table, 0, 0, NULL, 0));
            await(arrived, (ptl_size_t) round + 1);
            errors += bytes > 0 && (in[0] != (round & 0xff) || in[bytes - 1] != (round & 0xff));
        } else {
            await(arrived, (ptl_size_t) round + 1);
            if (changes_all)
                memcpy(out, in, bytes);
            else if (bytes > 0)
                change(out, bytes, in[0] == in[bytes - 1] ? in[0] : (unsigned char) ~round, 0);
            MUST(PtlPut(descriptor, 0, bytes, PTL_NO_ACK_REQ, peer.id, peer.table, 0, 0, NULL, 0));
        }
    }
    if (is_parent) {
        double mean;
        times[kWarmUp + rounds] = now_us();
        mean = (times[kWarmUp + rounds] - times[kWarmUp]) / (2.0 * rounds);
        for (int round = 0; round < rounds; round++)
            times[round] = (times[kWarmUp + round + 1] - times[kWarmUp + round]) / 2;
        qsort(times, (size_t) rounds, sizeof *times, compare);
        printf("%-10s %10s %12s %14s\n", "experiment", "bytes", "mean[usec]", "median[usec]");
        printf("%-10s %10zu %12.3f %14.3f\n", "latency", bytes, mean, times[rounds / 2]);
    }
    meet();
    MUST(PtlMDRelease(descriptor));
    MUST(PtlLEUnlink(entry));
    MUST(PtlCTFree(arrived));
}

static unsigned char pattern(size_t i, size_t bytes)
{
    return (unsigned char) (i * 7 + i / bytes);
}

/* The parent moves blocks to the child's memory, or from there. */
static void bandwidth(size_t bytes, int rounds, int is_get)
{
    size_t all = bytes * kWindow;
    unsigned char *memory = allocate(all);
    ptl_handle_ct_t done = make_counter();
    ptl_handle_le_t entry = expose(memory, all, PTL_CT_NONE);
    int has_source = is_parent != is_get;

    for (size_t i = 0; has_source && i < all; i++)
        memory[i] = pattern(i, bytes);
    meet();
    if (is_parent) {
        ptl_handle_md_t descriptor = bind_memory(memory, all, PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_CT_REPLY, done);
        double begin = 0;

        for (int round = 0; round < kWindow + rounds; round++) {
            if (round == kWindow) {
                await(done, kWindow);
                begin = now_us();
            }
            if (round >= 2 * kWindow)
                await(done, (ptl_size_t) (round - kWindow + 1));
            ptl_size_t at = (ptl_size_t) (round % kWindow) * bytes;
            if (is_get)
                MUST(PtlGet(descriptor, at, bytes, peer.id, peer.table, 0, at, NULL));
            else
                MUST(PtlPut(descriptor, at, bytes, PTL_CT_ACK_REQ, peer.id, peer.table, 0, at, NULL, 0));
        }
        await(done, (ptl_size_t) (kWindow + rounds));
        begin = now_us() - begin;
        printf("%-10s %10s %12s\n", "experiment", "bytes", "MB/s");
        printf("%-10s %10zu %12.1f\n", is_get ? "get" : "bandwidth", bytes, (double) bytes * rounds / begin);
        MUST(PtlMDRelease(descriptor));
    }
    meet();
    for (size_t i = 0; !has_source && i < all; i++)
        errors += memory[i] != pattern(i, bytes);
    MUST(PtlLEUnlink(entry));
    MUST(PtlCTFree(done));
}

/* Appends an entry that counts the peer's puts, behind entries that do not take them. */
static void expose_behind(int entries, enum apart apart, void *memory, size_t bytes, ptl_handle_me_t *handles)
{
    ptl_me_t entry;

    for (int i = 0; i < entries; i++) {
        memset(&entry, 0, sizeof entry);
        entry.start = memory;
        entry.length = bytes;
        entry.ct_handle = PTL_CT_NONE;
        entry.uid = PTL_UID_ANY;
        entry.options = PTL_ME_OP_PUT;
        entry.match_id = peer.id;
        entry.match_bits = 1;
        if (i < entries - 1) {
            if (apart == kByInitiator) {
                entry.match_id.phys.nid ^= 1U + (unsigned) i;
            } else if (apart == kByMask) {
                /* Without the masked bits, all of a mask have bits of their own. */
                entry.ignore_bits = (ptl_match_bits_t) (i % kMasks) << 32;
                entry.match_bits = 2U + (unsigned) i;
            } else {
                entry.length = 0;
                entry.options |= PTL_ME_NO_TRUNCATE;
            }
        }
        MUST(PtlMEAppend(interface, table, &entry, PTL_PRIORITY_LIST, NULL, &handles[i]));
    }
}

static void rate(int entries, enum apart apart, int rounds)
{
    uint64_t *memory = allocate(sizeof *memory);
    ptl_handle_ct_t done = make_counter();
    ptl_handle_me_t *handles = allocate((size_t) entries * sizeof *handles);

    if (is_parent) {
        ptl_handle_md_t descriptor = bind_memory(memory, sizeof *memory, PTL_MD_EVENT_CT_ACK, done);
        double begin = 0;

        *memory = 42;
        meet();
        for (int round = 0; round < kWarmUp + rounds; round++) {
            if (round == kWarmUp) {
                await(done, kWarmUp);
                begin = now_us();
            }
            if (round >= kWindow)
                await(done, (ptl_size_t) (round - kWindow + 1));
            MUST(PtlPut(descriptor, 0, sizeof *memory, PTL_CT_ACK_REQ, peer.id, peer.table, 1, 0, NULL, 0));
        }
        await(done, (ptl_size_t) (kWarmUp + rounds));
        begin = now_us() - begin;
        printf("%-10s %10s %10s %12s\n", "experiment", "entries", "apart by", "puts/s");
        printf("%-10s %10d %10s %12.0f\n", "rate", entries, apart_names[apart], 1e6 * rounds / begin);
        meet();
        MUST(PtlMDRelease(descriptor));
    } else {
        expose_behind(entries, apart, memory, sizeof *memory, handles);
        meet();
        meet();
        errors += *memory != 42;
        for (int i = 0; i < entries; i++)
            MUST(PtlMEUnlink(handles[i]));
    }
    MUST(PtlCTFree(done));
}

/* The child's memory: one word that is added to, one that is got, and kOperations words that are put. */
static void passive(double work_us)
{
    uint64_t *memory = allocate((kOperations + 2) * sizeof *memory);
    ptl_handle_ct_t done = make_counter();
    ptl_handle_le_t entry;

    memory[1] = 42;
    entry = expose(memory, (kOperations + 2) * sizeof *memory, PTL_CT_NONE);
    meet();
    if (is_parent) {
        uint64_t *words = allocate((2 * kOperations + 1) * sizeof *words);
        ptl_handle_md_t descriptor = bind_memory(words, (2 * kOperations + 1) * sizeof *words,
                                                 PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_CT_REPLY, done);
        double begin = now_us(), took;

        words[2 * kOperations] = 1;
        for (int i = 0; i < kOperations; i++) {
            words[i] = (uint64_t) i;
            MUST(PtlPut(descriptor, (ptl_size_t) i * 8, 8, PTL_CT_ACK_REQ, peer.id, peer.table, 0,
                        (ptl_size_t) (i + 2) * 8, NULL, 0));
            MUST(PtlGet(descriptor, (ptl_size_t) (kOperations + i) * 8, 8, peer.id, peer.table, 0, 8, NULL));
            MUST(PtlAtomic(descriptor, 2 * kOperations * 8, 8, PTL_CT_ACK_REQ, peer.id, peer.table, 0, 0, NULL, 0,
                           PTL_SUM, PTL_UINT64_T));
        }
        await(done, 3 * kOperations);
        took = now_us() - begin;
        for (int i = 0; i < kOperations; i++)
            errors += words[kOperations + i] != 42;
        printf("%-10s %10s %16s %12s\n", "experiment", "operations", "computing[usec]", "done[usec]");
        printf("%-10s %10d %16.0f %12.0f\n", "passive", 3 * kOperations, work_us, took);
        meet();
        MUST(PtlMDRelease(descriptor));
    } else {
        double end = now_us() + work_us;
        char byte;
        while (work_us > 0 ? now_us() < end : recv(other, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
        }
        meet();
        errors += memory[0] != kOperations;
        for (int i = 0; i < kOperations; i++)
            errors += memory[i + 2] != (uint64_t) i;
    }
    MUST(PtlLEUnlink(entry));
    MUST(PtlCTFree(done));
}

static long number(const char *option, const char *text, long least, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "portals_bench: %s takes %ld to %ld, not \"%s\"\n", option, least, most, text);
        exit(2);
    }
    return value;
}

static enum apart apart_named(const char *name)
{
    for (int i = 0; i < (int) (sizeof apart_names / sizeof *apart_names); i++)
        if (strcmp(name, apart_names[i]) == 0)
            return (enum apart) i;
    fprintf(stderr, "portals_bench: -apart takes initiator, mask or length, not \"%s\"\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    const char *experiment = argc > 1 ? argv[1] : "";
    long bytes = -1, rounds = -1, work_ms = 1000, entries = 10000;
    enum apart apart = kByInitiator;
    long long its_errors;
    const char *listen_at = NULL;
    char *connect_to = NULL;
    int sockets[2], status = 0, changes_all = 1, is_get;
    pid_t child = 0;

    if (strcmp(experiment, "-h") == 0 || strcmp(experiment, "-help") == 0 || strcmp(experiment, "--help") == 0) {
        usage(stdout);
        return 0;
    }
    for (int i = 2; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "-bytes") == 0)
            bytes = number(argv[i], value, strcmp(experiment, "latency") != 0, 64L << 20);
        else if (strcmp(argv[i], "-rounds") == 0)
            rounds = number(argv[i], value, 1, kMostRounds);
        else if (strcmp(argv[i], "-work") == 0)
            work_ms = number(argv[i], value, 0, 60000);
        else if (strcmp(argv[i], "-entries") == 0)
            entries = number(argv[i], value, 1, 60000);
        else if (strcmp(argv[i], "-apart") == 0)
            apart = apart_named(value);
        else if (strcmp(argv[i], "-change") == 0 && (strcmp(value, "all") == 0 || strcmp(value, "ends") == 0))
            changes_all = strcmp(value, "all") == 0;
        else if (strcmp(argv[i], "-listen") == 0)
            listen_at = value;
        else if (strcmp(argv[i], "-connect") == 0 && strchr(value, ':') != NULL)
            connect_to = argv[i + 1];
        else {
            fprintf(stderr, "portals_bench: no such option: %s %s (-help lists them)\n", argv[i], value);
            return 2;
        }
    }
    is_get = strcmp(experiment, "get") == 0;
    if (strcmp(experiment, "latency") != 0 && strcmp(experiment, "bandwidth") != 0 && !is_get
        && strcmp(experiment, "rate") != 0 && strcmp(experiment, "passive") != 0) {
        usage(stderr);
        return 2;
    }
    if (listen_at != NULL || connect_to != NULL) {
        is_parent = connect_to != NULL;
        other = find_other(listen_at, connect_to);
    } else {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
            perror("portals_bench");
            return 1;
        }
        is_parent = child > 0;
        other = sockets[is_parent];
        close(sockets[!is_parent]);
    }
    set_up(strcmp(experiment, "rate") == 0 ? PTL_NI_MATCHING : PTL_NI_NO_MATCHING);
    if (strcmp(experiment, "latency") == 0)
        latency(bytes < 0 ? 8 : (size_t) bytes, rounds < 0 ? 10000 : (int) rounds, changes_all);
    else if (is_get || strcmp(experiment, "bandwidth") == 0)
        bandwidth(bytes < 0 ? 1 << 20 : (size_t) bytes, rounds < 0 ? 500 : (int) rounds, is_get);
    else if (strcmp(experiment, "rate") == 0)
        rate((int) entries, apart, rounds < 0 ? 100000 : (int) rounds);
    else
        passive(1000.0 * (double) work_ms);
    exchange(&errors, &its_errors, sizeof errors);
    MUST(PtlPTFree(interface, table));
    MUST(PtlNIFini(interface));
    PtlFini();
    if (!is_parent)
        return errors > 0;
    printf("data check: %lld errors\n", errors + its_errors);
    if (child > 0)
        waitpid(child, &status, 0);
    return errors + its_errors > 0 || status != 0;
}
