/* What bench/instructions runs under valgrind's callgrind for Portals: two processes of this node, which the
 * program makes by itself. Counts the instructions of one operation for each row that bench/instructions names.
 *
 * portals_instructions BYTES ...
 *
 * The driver is host (MPIR_CVAR_CH3_OFFLOAD_NIC), so that all work is done in calls. The counts do not depend on
 * the machine's load: while a process is measured, the other is outside of Portals, and what the measured
 * process waits for has arrived before. */

#include <portals4.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

enum {
    BATCH = 32,                 /* operations between two steps: fewer than a ring holds */
    WARM_UP = 8,                /* batches that are not counted */
    COUNTED = 32,               /* batches */
    MOST_BYTES = 4096,
    DEPTH = 10000,              /* entries of other initiators, for the deep row */
    DEEP_BITS = 2               /* match bits of the first one there; those of a batch follow */
};

/* What a process tells the other. */
struct hello {
    ptl_process_t id;
    ptl_pt_index_t table;
};

static int side;                /* 0: the initiator. 1: the target. */
static int other;               /* socket */
static uint32_t *steps;         /* by side: how many it has ended */
static ptl_handle_ni_t interface;
static ptl_pt_index_t table;
static struct hello peer;
static ptl_handle_md_t descriptor;
static ptl_handle_ct_t arrived; /* operations on this process's memory */
static ptl_handle_ct_t answered;        /* this process's own operations */
static ptl_size_t arrivals, answers;    /* those that the next waits wait for */
static ptl_size_t length_bytes;
static ptl_match_bits_t bits = 1;       /* of the entry that takes the operations */
static char memory[MOST_BYTES], source[2 * MOST_BYTES];

static void must(int code, const char *call)
{
    if (code == PTL_OK)
        return;
    fprintf(stderr, "portals_instructions: %s returned %d\n", call, code);
    exit(1);
}

#define MUST(call) must(call, #call)

/* Ends a step. Returns when the other process has ended it, too. */
static void step(void)
{
    const uint32_t done = __atomic_add_fetch(&steps[side], 1, __ATOMIC_SEQ_CST);

    while (__atomic_load_n(&steps[1 - side], __ATOMIC_SEQ_CST) < done)
        usleep(100);
}

static void put_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MUST(PtlPut(descriptor, 0, length_bytes, PTL_NO_ACK_REQ, peer.id, peer.table, bits, 0, NULL, 0));
}

static void acknowledged_put_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MUST(PtlPut(descriptor, 0, length_bytes, PTL_CT_ACK_REQ, peer.id, peer.table, bits, 0, NULL, 0));
}

static void get_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MUST(PtlGet(descriptor, MOST_BYTES, length_bytes, peer.id, peer.table, bits, 0, NULL));
}

static void atomic_batch(void)
{
    const ptl_datatype_t type = length_bytes % 8 == 0 ? PTL_UINT64_T : PTL_UINT8_T;

    for (int i = 0; i < BATCH; i++)
        MUST(PtlAtomic(descriptor, 0, length_bytes, PTL_NO_ACK_REQ, peer.id, peer.table, bits, 0, NULL, 0, PTL_SUM,
                       type));
}

static void await(ptl_handle_ct_t counter, ptl_size_t *count)
{
    ptl_ct_event_t event;

    *count += BATCH;
    MUST(PtlCTWait(counter, *count, &event));
    if (event.failure != 0) {
        fprintf(stderr, "portals_instructions: %llu operations failed\n", (unsigned long long) event.failure);
        exit(1);
    }
}

static void await_arrivals(void)
{
    await(arrived, &arrivals);
}

static void await_answers(void)
{
    await(answered, &answers);
}

static void run(void (*batch) (void), int is_counted)
{
    if (is_counted)
        CALLGRIND_TOGGLE_COLLECT;
    batch();
    if (is_counted)
        CALLGRIND_TOGGLE_COLLECT;
}

/* Dumps what was counted under the title "NAME BYTES OPERATIONS". */
static void dump(const char *name)
{
    char title[64];

    snprintf(title, sizeof title, "%s %d %d", name, (int) length_bytes, BATCH * COUNTED);
    CALLGRIND_DUMP_STATS_AT(title);
}

/* The initiator calls `begin`, the target waits for the arrivals, the initiator then for the answers if there are
 * any. One of the three is counted, and dumped under `name`. */
static void measure(const char *name, int counted, void (*begin) (void), int has_answers)
{
    for (int i = 0; i < WARM_UP + COUNTED; i++) {
        const int is_counted = i >= WARM_UP;

        if (side == 0)
            run(begin, is_counted && counted == 0);
        step();                 /* the requests have left */
        if (side == 1)
            run(await_arrivals, is_counted && counted == 1);
        step();                 /* the answers have left */
        if (side == 0 && has_answers)
            run(await_answers, is_counted && counted == 2);
        step();
    }
    if (side == (counted == 1))
        dump(name);
}

static void exchange(const void *mine, void *its, size_t bytes)
{
    if (write(other, mine, bytes) != (ssize_t) bytes || recv(other, its, bytes, MSG_WAITALL) != (ssize_t) bytes) {
        fputs("portals_instructions: the other process has ended\n", stderr);
        exit(1);
    }
}

/* The first operation finds the other process and connects to it, which takes calls on both sides. */
static void meet(void)
{
    ptl_sr_value_t drops;
    char byte;

    if (side == 0) {
        acknowledged_put_batch();
        await_answers();
        if (write(other, "", 1) != 1)
            exit(1);
    } else {
        while (recv(other, &byte, 1, MSG_DONTWAIT) != 1) {
            MUST(PtlNIStatus(interface, PTL_SR_DROP_COUNT, &drops));
            usleep(100);
        }
        await_arrivals();
    }
}

/* Appends an entry for anything from that process with the match bits `bits`. */
static void expose(ptl_process_t initiator)
{
    ptl_me_t entry;
    ptl_handle_me_t appended;

    memset(&entry, 0, sizeof entry);
    entry.start = memory;
    entry.length = sizeof memory;
    entry.ct_handle = arrived;
    entry.uid = PTL_UID_ANY;
    entry.options = PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_EVENT_CT_COMM;
    entry.match_id = initiator;
    entry.match_bits = bits;
    MUST(PtlMEAppend(interface, table, &entry, PTL_PRIORITY_LIST, NULL, &appended));
}

/* Appends many entries that differ in their initiator, then one for each put of a deep batch. How many others are
 * before an entry in its bucket depends on the process ids, which differ from run to run: so there are several. */
static void deepen(void)
{
    ptl_process_t initiator = peer.id;

    bits = DEEP_BITS;
    for (unsigned i = 1; i < DEPTH; i++) {
        initiator.phys.nid = peer.id.phys.nid ^ i;
        expose(initiator);
    }
    for (int i = 0; i < BATCH; i++, bits++)
        expose(peer.id);
}

static void deep_put_batch(void)
{
    for (int i = 0; i < BATCH; i++)
        MUST(PtlPut(descriptor, 0, length_bytes, PTL_NO_ACK_REQ, peer.id, peer.table, DEEP_BITS + i, 0, NULL, 0));
}

static void set_up(void)
{
    struct hello mine;
    ptl_md_t md;

    MUST(PtlInit());
    MUST(PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &interface));
    MUST(PtlCTAlloc(interface, &arrived));
    MUST(PtlCTAlloc(interface, &answered));
    MUST(PtlPTAlloc(interface, 0, PTL_EQ_NONE, PTL_PT_ANY, &table));
    memset(&md, 0, sizeof md);
    md.start = source;
    md.length = sizeof source;
    md.options = PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_CT_REPLY;
    md.eq_handle = PTL_EQ_NONE;
    md.ct_handle = answered;
    MUST(PtlMDBind(interface, &md, &descriptor));
    memset(&mine, 0, sizeof mine);
    MUST(PtlGetPhysId(interface, &mine.id));
    mine.table = table;
    exchange(&mine, &peer, sizeof mine);
    expose(peer.id);
}

int main(int argc, char **argv)
{
    int sockets[2], status = 0;
    pid_t child;

    steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (steps == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
        perror("portals_instructions");
        return 1;
    }
    side = child == 0;
    other = sockets[side];
    close(sockets[1 - side]);
    length_bytes = 8;
    set_up();
    meet();
    step();
    CALLGRIND_START_INSTRUMENTATION;
    for (int i = 1; i < argc; i++) {
        length_bytes = (ptl_size_t) atoi(argv[i]);
        measure("put", 0, put_batch, 0);
        measure("put-arrival", 1, put_batch, 0);
        measure("ack-put", 0, acknowledged_put_batch, 1);
        measure("ack-arrival", 1, acknowledged_put_batch, 1);
        measure("ack", 2, acknowledged_put_batch, 1);
        measure("get", 0, get_batch, 1);
        measure("get-arrival", 1, get_batch, 1);
        measure("reply", 2, get_batch, 1);
        measure("atomic", 0, atomic_batch, 0);
        measure("atomic-arrival", 1, atomic_batch, 0);
    }
    deepen();
    for (int i = 1; i < argc; i++) {
        length_bytes = (ptl_size_t) atoi(argv[i]);
        measure("deep-arrival", 1, deep_put_batch, 0);
    }
    CALLGRIND_STOP_INSTRUMENTATION;
    step();
    MUST(PtlNIFini(interface));
    PtlFini();
    if (side == 0)
        waitpid(child, &status, 0);
    return status != 0;
}
