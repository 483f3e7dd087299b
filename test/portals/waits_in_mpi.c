/* Each rank in turn waits in MPI, without a call of Portals, while the others get from its memory and put to it.
 * Only then do they send the message that it waits for. Rank 0 says "done".
 *
 * With the host driver, nothing but the calls of MPI moves the waiting rank's side of these operations. */

#include "rank_must.h"

#include <mpi.h>
#include <portals4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLong = 1 << 20, kRounds = 3 };

/* What the first half of a rank's window holds. */
static int first_byte(int owner)
{
    return owner + 1;
}

int main(int argc, char **argv)
{
    ptl_handle_ni_t interface;
    ptl_pt_index_t table;
    ptl_process_t mine, *ids;
    ptl_handle_le_t handle;
    ptl_handle_md_t descriptor;
    ptl_handle_ct_t counter;
    ptl_ct_event_t event;
    ptl_le_t entry;
    ptl_md_t memory;
    ptl_size_t expected = 0;
    unsigned char *window, *local;
    /* "portals": it begins first. */
    int portals_first = argc > 1 && strcmp(argv[1], "portals") == 0;

    if (!portals_first)
        MPI_Init(NULL, NULL);
    MUST(PtlInit());
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL,
                   &interface));
    if (portals_first)
        MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MUST(PtlPTAlloc(interface, 0, PTL_EQ_NONE, 0, &table));
    must(table == 0, "the table is another one");
    ids = calloc((size_t) size, sizeof *ids);
    memset(&mine, 0, sizeof mine);
    MUST(PtlGetPhysId(interface, &mine));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ids, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);

    /* The first half of the window is read, the second is written: a part for each rank. */
    window = calloc(1, 2 * kLong);
    memset(window, first_byte(rank), kLong);
    memset(&entry, 0, sizeof entry);
    entry.start = window;
    entry.length = 2 * kLong;
    entry.ct_handle = PTL_CT_NONE;
    entry.uid = PTL_UID_ANY;
    entry.options = PTL_LE_OP_PUT | PTL_LE_OP_GET;
    MUST(PtlLEAppend(interface, table, &entry, PTL_PRIORITY_LIST, NULL, &handle));
    local = calloc(1, 2 * kLong);
    MUST(PtlCTAlloc(interface, &counter));
    memset(&memory, 0, sizeof memory);
    memory.start = local;
    memory.length = 2 * kLong;
    memory.options = PTL_MD_EVENT_CT_REPLY | PTL_MD_EVENT_CT_ACK;
    memory.eq_handle = PTL_EQ_NONE;
    memory.ct_handle = counter;
    MUST(PtlMDBind(interface, &memory, &descriptor));
    MPI_Barrier(MPI_COMM_WORLD);

    for (int round = 0; round < kRounds; round++) {
        for (int waiter = 0; waiter < size; waiter++) {
            if (rank == waiter) {
                for (int i = 1; i < size; i++)
                    MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                ptl_size_t get_bytes = round == 0 ? 8 : kLong;
                ptl_size_t put_bytes = round == 0 ? 8 : kLong / (ptl_size_t) size;
                ptl_size_t part = kLong + (size_t) rank * (kLong / (size_t) size);
                usleep(50000);  /* It sleeps. */
                MUST(PtlGet(descriptor, 0, get_bytes, ids[waiter], table, 0, 0, NULL));
                memset(local + part, 100 + round, put_bytes);
                MUST(PtlPut(descriptor, part, put_bytes, PTL_CT_ACK_REQ, ids[waiter], table, 0, part, NULL, 0));
                expected += 2;
                MUST(PtlCTWait(counter, expected, &event));
                must(event.failure == 0, "an operation failed");
                must(local[0] == first_byte(waiter) && local[7] == first_byte(waiter), "wrong data of a get");
                MPI_Send(NULL, 0, MPI_BYTE, waiter, round, MPI_COMM_WORLD);
            }
            MPI_Barrier(MPI_COMM_WORLD);
            for (int from = 0; rank == waiter && from < size; from++) {
                size_t part = kLong + (size_t) from * (kLong / (size_t) size);
                must(from == rank || (window[part] == 100 + round && window[part + 7] == 100 + round),
                     "wrong data of a put");
            }
        }
    }
    MUST(PtlMDRelease(descriptor));
    MUST(PtlCTFree(counter));
    MUST(PtlLEUnlink(handle));
    MUST(PtlPTFree(interface, table));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        puts("done");
    MUST(PtlNIFini(interface));
    PtlFini();
    MPI_Finalize();
    return 0;
}
