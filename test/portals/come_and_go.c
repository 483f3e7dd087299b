/* A server and clients that come and go, every second one killed: what the server keeps, and the network processor
 * that serves it, does not grow with the number of those that were. come_and_go CLIENTS */

#define _GNU_SOURCE
#include <dirent.h>
#include <portals4.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../faults/network_processors.h"

enum { kTable = 5, kPuts = 2, kBytes = 70000, kAtOnce = 4, kWarmUp = 120 };

#define MUST(call) must((call) == PTL_OK, #call)

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "%d: %s\n", (int) getpid(), what);
    _exit(1);
}

static ptl_handle_ni_t begin(ptl_handle_ct_t * counter)
{
    ptl_handle_ni_t interface;

    MUST(PtlInit());
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL,
                   &interface));
    MUST(PtlCTAlloc(interface, counter));
    return interface;
}

static int client(ptl_process_t server, int is_killed)
{
    static char bytes[kBytes];
    ptl_handle_ct_t counter;
    ptl_handle_ni_t interface = begin(&counter);
    ptl_handle_md_t descriptor;
    ptl_md_t memory = {.start = bytes,.length = kBytes,.options = PTL_MD_EVENT_CT_ACK,.eq_handle = PTL_EQ_NONE,
        .ct_handle = counter
    };
    ptl_ct_event_t count;

    MUST(PtlMDBind(interface, &memory, &descriptor));
    MUST(PtlPut(descriptor, 0, 100, PTL_CT_ACK_REQ, server, kTable, 0, 0, NULL, 0));
    MUST(PtlPut(descriptor, 0, kBytes, PTL_CT_ACK_REQ, server, kTable, 0, 0, NULL, 0));
    MUST(PtlCTWait(counter, kPuts, &count));
    must(count.failure == 0, "the puts succeed");
    if (is_killed)
        raise(SIGKILL);
    MUST(PtlNIFini(interface));
    PtlFini();
    return 0;
}

/* What processes have: resident memory in KiB; mappings; descriptors. Address space alone is not counted: a thread
 * that takes the processor's loop over adds its stack, once. Nor are pages of programs and libraries: which of
 * these are resident is up to the kernel, and changes on a busy machine. */
typedef struct {
    long memory, mappings, files;
} sizes_t;

static void add_sizes_of(const char *process, void *sum)
{
    sizes_t *sizes = sum;
    char path[64], line[4096];
    FILE *file;
    DIR *directory;
    long kibibytes;

    snprintf(path, sizeof path, "/proc/%.20s/status", process);
    if ((file = fopen(path, "r")) != NULL) {
        while (fgets(line, sizeof line, file) != NULL)
            if (sscanf(line, "RssAnon: %ld", &kibibytes) == 1 || sscanf(line, "RssShmem: %ld", &kibibytes) == 1)
                sizes->memory += kibibytes;
        fclose(file);
    }
    snprintf(path, sizeof path, "/proc/%.20s/maps", process);
    if ((file = fopen(path, "r")) != NULL) {
        while (fgets(line, sizeof line, file) != NULL)
            sizes->mappings++;
        fclose(file);
    }
    snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    if ((directory = opendir(path)) != NULL) {
        while (readdir(directory) != NULL)
            sizes->files++;
        closedir(directory);
    }
}

/* Of this process and of all network processors, at this moment. */
static sizes_t sizes_now(void)
{
    sizes_t sizes = { 0, 0, 0 };

    add_sizes_of("self", &sizes);
    for_each_network_processor(0, add_sizes_of, &sizes);
    return sizes;
}

/* The same when all have noticed that the last clients are gone: when nothing has changed for 100 ms. */
static sizes_t settled_sizes(ptl_handle_ct_t counter)
{
    const ptl_size_t never = ~(ptl_size_t) 0 >> 1;
    sizes_t sizes = sizes_now();
    ptl_ct_event_t count;
    unsigned int which;
    int same, i;

    for (same = i = 0; same < 10 && i < 1000; i++) {
        sizes_t now;
        PtlCTPoll(&counter, &never, 1, 10, &count, &which);
        now = sizes_now();
        same = memcmp(&now, &sizes, sizeof now) == 0 ? same + 1 : 0;
        sizes = now;
    }
    return sizes;
}

/* With the host driver, the server works in its calls: it waits for its clients in one of them. */
static void run_clients(const char *program, ptl_process_t server, int number, ptl_handle_ct_t counter)
{
    const ptl_size_t never = ~(ptl_size_t) 0 >> 1;
    ptl_ct_event_t count;
    unsigned int which;
    pid_t children[kAtOnce];
    char nid[16], pid[16];
    int status, i;

    snprintf(nid, sizeof nid, "%u", server.phys.nid);
    snprintf(pid, sizeof pid, "%u", server.phys.pid);
    for (i = 0; i < number; i++) {
        children[i] = vfork();
        if (children[i] == 0) {
            execl("/proc/self/exe", program, "client", nid, pid, i % 2 == 0 ? "ends" : "killed",
                  (char *) NULL);
            _exit(9);
        }
    }
    for (i = 0; i < number; i++) {
        pid_t ended;
        while ((ended = waitpid(children[i], &status, WNOHANG)) == 0)
            PtlCTPoll(&counter, &never, 1, 1, &count, &which);
        must(ended == children[i], "waitpid");
        must(i % 2 == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == 0 : WIFSIGNALED(status),
             "a client ends as it is to");
    }
}

int main(int argc, char **argv)
{
    static char bytes[kBytes];
    const int clients = argc > 1 ? atoi(argv[1]) : 0;
    ptl_handle_ct_t counter;
    ptl_handle_ni_t interface;
    ptl_handle_le_t handle;
    ptl_pt_index_t table;
    ptl_process_t id;
    ptl_ct_event_t count;
    sizes_t before = { 0, 0, 0 }, after;
    int done = 0;

    if (argc == 5) {
        memset(&id, 0, sizeof id);
        id.phys.nid = (ptl_nid_t) strtoul(argv[2], NULL, 0);
        id.phys.pid = (ptl_pid_t) strtoul(argv[3], NULL, 0);
        return client(id, strcmp(argv[4], "killed") == 0);
    }
    interface = begin(&counter);
    ptl_le_t entry = {.start = bytes,.length = kBytes,.ct_handle = counter,.uid = PTL_UID_ANY,
        .options = PTL_LE_OP_PUT | PTL_LE_EVENT_COMM_DISABLE | PTL_LE_EVENT_CT_COMM
    };
    MUST(PtlGetPhysId(interface, &id));
    MUST(PtlPTAlloc(interface, 0, PTL_EQ_NONE, kTable, &table));
    MUST(PtlLEAppend(interface, kTable, &entry, PTL_PRIORITY_LIST, NULL, &handle));
    while (done < clients) {
        if (before.memory == 0 && done >= kWarmUp)
            before = settled_sizes(counter);
        run_clients(argv[0], id, kAtOnce, counter);
        done += kAtOnce;
    }
    MUST(PtlCTGet(counter, &count));
    must(count.failure == 0 && count.success == (ptl_size_t) done * kPuts, "all puts succeed");
    after = settled_sizes(counter);
    printf("clients %d, memory[KiB] %ld then %ld, mappings %ld then %ld, descriptors %ld then %ld\n",
           done - kWarmUp, before.memory, after.memory, before.mappings, after.mappings, before.files,
           after.files);
    fflush(stdout);
    must(after.memory <= before.memory + 1024, "the memory does not grow");
    must(after.mappings <= before.mappings + 20, "the mappings do not grow");
    must(after.files <= before.files + 10, "the descriptors do not grow");
    MUST(PtlNIFini(interface));
    PtlFini();
    printf("done\n");
    return 0;
}
