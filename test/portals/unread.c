/* A process closes its last interface while another one waits for many answers and takes none, because it is stopped. The last
 * PtlNIFini() gives up after PEER_TIMEOUT, and the program says "done". */

#define _GNU_SOURCE
#include <portals4.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kGets = 8000, kBytes = 4096 };

#define MUST(call) must((call) == PTL_OK, #call)

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "%d: %s\n", (int) getpid(), what);
    exit(1);
}

int main(void)
{
    static char memory[kBytes];
    int sockets[2], status;
    ptl_handle_ni_t interface;
    ptl_handle_ct_t counter;
    ptl_pt_index_t table;
    ptl_process_t id;
    ptl_ct_event_t count = { 0, 0 };
    pid_t child;

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0 && (child = fork()) >= 0, "fork");
    /* The child's answers are taken inside its calls only. */
    if (child == 0)
        setenv("MPIR_CVAR_CH3_OFFLOAD_NIC", "host", 1);
    memset(&id, 0, sizeof id);
    MUST(PtlInit());
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_NO_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &interface));
    MUST(PtlCTAlloc(interface, &counter));
    if (child > 0) {
        ptl_le_t entry = {.start = memory,.length = kBytes,.ct_handle = counter,.uid = PTL_UID_ANY,
            .options = PTL_LE_OP_GET | PTL_LE_EVENT_CT_COMM
        };
        ptl_handle_le_t handle;
        MUST(PtlGetPhysId(interface, &id));
        MUST(PtlPTAlloc(interface, 0, PTL_EQ_NONE, 0, &table));
        MUST(PtlLEAppend(interface, table, &entry, PTL_PRIORITY_LIST, NULL, &handle));
        must(write(sockets[1], &id, sizeof id) == sizeof id, "write");
        must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "the child stops");
        /* Some of its gets have come. */
        MUST(PtlCTWait(counter, 1, &count));
        MUST(PtlNIFini(interface));
        PtlFini();
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        puts("done");
    } else {
        ptl_md_t memory_of_all = {.start = memory,.length = kBytes,.eq_handle = PTL_EQ_NONE,.ct_handle = counter,
            .options = PTL_MD_EVENT_CT_REPLY
        };
        ptl_handle_md_t descriptor;
        must(read(sockets[0], &id, sizeof id) == sizeof id, "read");
        MUST(PtlMDBind(interface, &memory_of_all, &descriptor));
        MUST(PtlGet(descriptor, 0, kBytes, id, 0, 0, 0, NULL));
        MUST(PtlCTWait(counter, 1, &count));
        for (int i = 0; i < kGets; i++)
            MUST(PtlGet(descriptor, 0, kBytes, id, 0, 0, 0, NULL));
        raise(SIGSTOP);
    }
    return 0;
}
