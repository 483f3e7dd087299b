/* MPI and Portals in one process: both Init, both move data, both end, in the order that the arguments say:
 * "mpi" or "portals" comes first, and "mpi" or "portals" ends first. The third one is how many threads of
 * ch3:offload the process has then. Rank 0 says "done". */

#include "rank_must.h"

#include <dirent.h>
#include <mpi.h>
#include <portals4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRounds = 200, kLong = 1 << 20 };

static ptl_handle_ni_t interface;
static ptl_pt_index_t table;

static void portals_init(void)
{
    MUST(PtlInit());
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &interface));
    MUST(PtlPTAlloc(interface, 0, PTL_EQ_NONE, PTL_PT_ANY, &table));
}

static void portals_fini(void)
{
    MUST(PtlPTFree(interface, table));
    MUST(PtlNIFini(interface));
    PtlFini();
}

/* Each rank puts to the next one and sends to it, by turns, short and long. */
static void exchange(void)
{
    ptl_process_t mine, *ids = calloc((size_t) size, sizeof *ids);
    ptl_handle_ct_t counter;
    ptl_handle_md_t descriptor;
    ptl_handle_me_t handle;
    ptl_ct_event_t event;
    ptl_me_t entry;
    ptl_md_t memory;
    unsigned char *in = calloc(1, kLong), *out = calloc(1, kLong), *received = calloc(1, kLong);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;

    memset(&mine, 0, sizeof mine);
    MUST(PtlGetPhysId(interface, &mine));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ids, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    MUST(PtlCTAlloc(interface, &counter));
    memset(&entry, 0, sizeof entry);
    entry.start = in;
    entry.length = kLong;
    entry.ct_handle = counter;
    entry.uid = PTL_UID_ANY;
    entry.options = PTL_ME_OP_PUT | PTL_ME_EVENT_CT_COMM;
    entry.match_id = ids[previous];
    entry.match_bits = 7;
    MUST(PtlMEAppend(interface, table, &entry, PTL_PRIORITY_LIST, NULL, &handle));
    memset(&memory, 0, sizeof memory);
    memory.start = out;
    memory.length = kLong;
    memory.eq_handle = PTL_EQ_NONE;
    memory.ct_handle = PTL_CT_NONE;
    MUST(PtlMDBind(interface, &memory, &descriptor));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 1; round <= kRounds; round++) {
        int bytes = round % 10 == 0 ? kLong : 8 * round;
        memset(out, round & 0xff, (size_t) bytes);
        MUST(PtlPut(descriptor, 0, (ptl_size_t) bytes, PTL_NO_ACK_REQ, ids[next], table, 7, 0, NULL, 0));
        MPI_Sendrecv(out, bytes, MPI_BYTE, next, 0, received, bytes, MPI_BYTE, previous, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        must(received[0] == (round & 0xff) && received[bytes - 1] == (round & 0xff), "wrong data of MPI");
        MUST(PtlCTWait(counter, (ptl_size_t) round, &event));
        must(event.failure == 0, "a put failed");
        must(in[0] == (round & 0xff) && in[bytes - 1] == (round & 0xff), "wrong data of Portals");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MUST(PtlMDRelease(descriptor));
    MUST(PtlMEUnlink(handle));
    MUST(PtlCTFree(counter));
    MPI_Barrier(MPI_COMM_WORLD);
}

static int threads_of_engines(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    int count = 0;

    must(tasks != NULL, "no /proc/self/task");
    while ((task = readdir(tasks)) != NULL) {
        char path[64], name[32] = "";
        FILE *comm;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", task->d_name);
        comm = fopen(path, "r");
        if (comm == NULL)
            continue;
        count += fgets(name, sizeof name, comm) != NULL && strcmp(name, "ch3-offload-nic\n") == 0;
        fclose(comm);
    }
    closedir(tasks);
    return count;
}

int main(int argc, char **argv)
{
    int portals_first = argc > 1 && strcmp(argv[1], "portals") == 0;
    int portals_ends_first = argc > 2 && strcmp(argv[2], "portals") == 0;

    if (portals_first)
        portals_init();
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!portals_first)
        portals_init();
    must(threads_of_engines() == (argc > 3 ? atoi(argv[3]) : 0), "the wrong number of threads");
    exchange();
    if (portals_ends_first)
        portals_fini();
    if (rank == 0)
        puts("done");
    MPI_Finalize();
    if (!portals_ends_first)
        portals_fini();
    return 0;
}
