/* What a program of the Virtual Interface Architecture does, by Portals: docs/via.md says which call stands for which. Two
 * processes, which the program makes by itself, connect as client and server and as peers, send with scatter and gather, write
 * and read remote memory, wait at one completion queue and by a notify function. All data is checked.
 *
 * cc -o via via.c $(pkg-config --cflags --libs portals4) -pthread
 */

#include <portals4.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMessages = 100, kHeadBytes = 16, kBodyBytes = 1000, kRegionBytes = 1 << 20, kWaitingRequests = 64 };

/* Tables: one for connections, one for the receive queue, one for registered memory. */
enum { kConnections = 1, kReceives = 2, kRegions = 3 };
/* Discriminators; 0 stands for all of them. */
enum { kServer = 1, kAccepted = 2, kPeer = 3, kMemory = 4, kMessage = 5 };

#define MUST(call) must((call) == PTL_OK, #call)

static const char *process;
static ptl_handle_ni_t nic;
static ptl_handle_eq_t completions;     /* VipCreateCQ: of sends, writes and reads alike */
static ptl_handle_eq_t requests;        /* of those who want to connect */
static ptl_process_t self, other;
static ptl_uid_t user;

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "%s: %s failed\n", process, what);
    exit(1);
}

/* VipCQWait. */
static ptl_event_t wait_completion(ptl_event_kind_t type)
{
    ptl_event_t event;
    MUST(PtlEQWait(completions, &event));
    must(event.type == type && event.ni_fail_type == PTL_NI_OK, "the completion that was awaited");
    return event;
}

/* VipPostRecv: a descriptor with its data segments. VipRegisterMem has no counterpart: naming memory is enough. */
static ptl_handle_me_t post_receive(ptl_pt_index_t table, ptl_match_bits_t discriminator, void *segments, ptl_size_t count,
                                    unsigned options, ptl_process_t from, ptl_list_t list)
{
    ptl_me_t entry;
    ptl_handle_me_t handle;

    memset(&entry, 0, sizeof entry);
    entry.start = segments;
    entry.length = count;
    entry.ct_handle = PTL_CT_NONE;
    entry.uid = user;   /* the protection tag: memory is for this user */
    entry.options = options;
    entry.match_id = from;      /* and for one process, as the memory of a VI */
    entry.match_bits = discriminator;
    entry.ignore_bits = discriminator == 0 ? ~(ptl_match_bits_t) 0 : 0;
    MUST(PtlMEAppend(nic, table, &entry, list, NULL, &handle));
    return handle;
}

/* VipPostSend, and its completion. Reliable reception: the acknowledgement says that the data is in the peer's memory. */
static void post_send(void *segments, ptl_size_t count, ptl_size_t bytes, unsigned options, ptl_pt_index_t table,
                      ptl_match_bits_t discriminator, ptl_hdr_data_t immediate)
{
    ptl_md_t memory;
    ptl_handle_md_t descriptor;

    memset(&memory, 0, sizeof memory);
    memory.start = segments;
    memory.length = count;
    memory.options = options | PTL_MD_EVENT_SEND_DISABLE;
    memory.eq_handle = completions;
    memory.ct_handle = PTL_CT_NONE;
    MUST(PtlMDBind(nic, &memory, &descriptor));
    MUST(PtlPut(descriptor, 0, bytes, PTL_ACK_REQ, other, table, discriminator, 0, NULL, immediate));
    must(wait_completion(PTL_EVENT_ACK).mlength == bytes, "all of it had room");
    MUST(PtlMDRelease(descriptor));
}

/* ---- Connections ---- */

static const ptl_process_t anybody = {.phys = {PTL_NID_ANY, PTL_PID_ANY} };

/* VipConnectWait, VipConnectPeerWait: returns who asks. A request that came before it waits in the overflow list. */
static ptl_process_t wait_connection(ptl_match_bits_t discriminator)
{
    char byte;
    ptl_event_t event;
    post_receive(kConnections, discriminator, &byte, 1,
                 PTL_ME_OP_PUT | PTL_ME_USE_ONCE | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_UNLINK_DISABLE, anybody,
                 PTL_PRIORITY_LIST);
    MUST(PtlEQWait(requests, &event));
    must(event.type == PTL_EVENT_PUT || event.type == PTL_EVENT_PUT_OVERFLOW, "a request");
    must(event.match_bits == discriminator, "that discriminator");
    return event.initiator;
}

static void request_connection(ptl_match_bits_t discriminator)
{
    char byte = 0;
    post_send(&byte, 1, 1, 0, kConnections, discriminator, 0);
}

/* ---- Notify ---- */

static ptl_handle_eq_t notified;
static int notifications;

/* VipRecvNotify: a thread that waits and calls. */
static void *notify(void *unused)
{
    ptl_event_t event;
    while (notifications < kMessages) {
        must(PtlEQWait(notified, &event) == PTL_OK, "PtlEQWait");
        if (event.type == PTL_EVENT_PUT) {
            must(event.hdr_data == (ptl_hdr_data_t) notifications, "immediate data, in order");
            notifications++;
        }
    }
    return unused;
}

/* ---- The two processes ---- */

static unsigned char pattern(size_t i)
{
    return (unsigned char) (i * 7 + i / 1000);
}

static void serve(const int *socket)
{
    unsigned char *region = calloc(1, kRegionBytes);
    unsigned char heads[kMessages][kHeadBytes], bodies[kMessages][kBodyBytes];
    ptl_iovec_t segments[kMessages][2];
    ptl_handle_me_t entry;
    pthread_t thread;
    char byte = 0;

    /* Client and server: wait, look who it is, accept. */
    ptl_process_t client = wait_connection(kServer);
    must(client.phys.nid == other.phys.nid && client.phys.pid == other.phys.pid, "the client");
    /* Receives are posted before the client may send, as a VI wants them. */
    MUST(PtlEQAlloc(nic, 2 * kMessages, &notified));
    MUST(PtlPTAlloc(nic, 0, notified, kReceives, &(ptl_pt_index_t) {0}));
    for (int i = 0; i < kMessages; i++) {
        segments[i][0] = (ptl_iovec_t) {heads[i], kHeadBytes};
        segments[i][1] = (ptl_iovec_t) {bodies[i], kBodyBytes};
        post_receive(kReceives, kMessage, segments[i], 2,
                     PTL_ME_OP_PUT | PTL_ME_USE_ONCE | PTL_IOVEC | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_UNLINK_DISABLE,
                     client, PTL_PRIORITY_LIST);
    }
    entry = post_receive(kRegions, kMemory, region, kRegionBytes,
                         PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_EVENT_COMM_DISABLE, client, PTL_PRIORITY_LIST);
    must(pthread_create(&thread, NULL, notify, NULL) == 0, "pthread_create");
    request_connection(kAccepted);      /* VipConnectAccept */
    pthread_join(thread, NULL);
    for (int i = 0; i < kMessages; i++) {
        must(heads[i][0] == i && heads[i][kHeadBytes - 1] == i, "head");
        for (int j = 0; j < kBodyBytes; j++)
            must(bodies[i][j] == pattern((size_t) (i + j)), "body");
    }
    /* Peers: both request, and both wait. */
    request_connection(kPeer);
    wait_connection(kPeer);
    must(read(*socket, &byte, 1) == 1, "read");
    for (size_t i = 0; i < kRegionBytes; i++)
        must(region[i] == pattern(i), "what the client has written");
    MUST(PtlMEUnlink(entry));
    MUST(PtlPTFree(nic, kReceives));
    MUST(PtlEQFree(notified));
    free(region);
}

static void ask(const int *socket)
{
    unsigned char head[kHeadBytes], body[kBodyBytes], *out = malloc(kRegionBytes), *in = calloc(1, kRegionBytes);
    ptl_iovec_t segments[2] = {{head, sizeof head}, {body, sizeof body}};
    ptl_handle_md_t descriptor;
    ptl_md_t memory;
    char byte = 0;

    request_connection(kServer);        /* VipConnectRequest */
    wait_connection(kAccepted);
    for (int i = 0; i < kMessages; i++) {
        memset(head, i, sizeof head);
        for (int j = 0; j < kBodyBytes; j++)
            body[j] = pattern((size_t) (i + j));
        post_send(segments, 2, sizeof head + sizeof body, PTL_IOVEC, kReceives, kMessage, (ptl_hdr_data_t) i);
    }
    request_connection(kPeer);
    wait_connection(kPeer);

    /* RDMA write and RDMA read. */
    for (size_t i = 0; i < kRegionBytes; i++)
        out[i] = pattern(i);
    post_send(out, kRegionBytes, kRegionBytes, 0, kRegions, kMemory, 0);
    memset(&memory, 0, sizeof memory);
    memory.start = in;
    memory.length = kRegionBytes;
    memory.options = PTL_MD_EVENT_SEND_DISABLE;
    memory.eq_handle = completions;
    memory.ct_handle = PTL_CT_NONE;
    MUST(PtlMDBind(nic, &memory, &descriptor));
    MUST(PtlGet(descriptor, 0, kRegionBytes, other, kRegions, kMemory, 0, NULL));
    must(wait_completion(PTL_EVENT_REPLY).mlength == kRegionBytes, "all of it was there");
    must(memcmp(in, out, kRegionBytes) == 0, "what was read");
    /* Memory that is not registered for this process: an error in the completion. */
    MUST(PtlGet(descriptor, 0, 1, other, kRegions, kMemory + 1, 0, NULL));
    ptl_event_t event;
    MUST(PtlEQWait(completions, &event));
    must(event.type == PTL_EVENT_REPLY && event.ni_fail_type == PTL_NI_DROPPED, "a protection error");
    MUST(PtlMDRelease(descriptor));
    must(write(*socket, &byte, 1) == 1, "write");
    free(out);
    free(in);
}

int main(void)
{
    int sockets[2], status = 0;
    char early[kWaitingRequests];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
        perror("via");
        return 1;
    }
    int *socket = &sockets[child > 0];
    process = child == 0 ? "server" : "client";
    MUST(PtlInit());    /* VipOpenNic */
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &nic));
    MUST(PtlGetUid(nic, &user));
    MUST(PtlEQAlloc(nic, 64, &completions));
    MUST(PtlEQAlloc(nic, 64, &requests));
    MUST(PtlPTAlloc(nic, 0, requests, kConnections, &(ptl_pt_index_t) {0}));
    MUST(PtlPTAlloc(nic, 0, PTL_EQ_NONE, kRegions, &(ptl_pt_index_t) {0}));
    /* Requests that nobody waits for yet. */
    post_receive(kConnections, 0, early, sizeof early,
                 PTL_ME_OP_PUT | PTL_ME_MANAGE_LOCAL | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE, anybody,
                 PTL_OVERFLOW_LIST);
    memset(&self, 0, sizeof self);
    MUST(PtlGetPhysId(nic, &self));
    must(write(*socket, &self, sizeof self) == sizeof self && read(*socket, &other, sizeof other) == sizeof other, "ids");
    if (child == 0)
        serve(socket);
    else
        ask(socket);
    MUST(PtlNIFini(nic));       /* VipCloseNic: frees all that is left */
    PtlFini();
    if (child == 0)
        return 0;
    waitpid(child, &status, 0);
    must(status == 0, "server");
    puts("done");
    return 0;
}
