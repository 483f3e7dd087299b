/*
 * The ch3:offload channel: start and end of a process, and of its virtual connections.
 */

#include "ch3_worlds.h"
#include "mpidrma.h"
#include <sys/ioctl.h>
#include <sys/stat.h>

#define MESSAGE_BYTES 512
#define MAX_WARNINGS 64
/* How long a warning waits for its reader at most, and how often it looks. */
#define READER_WAIT_US 200000
#define READER_LOOK_US 500
/* How long the others wait for the end of the job before they say why they cannot start. */
#define FIRST_SAYS_US 500000
/* malloc() keeps blocks of up to this size when they are freed: keep_freed_memory(). */
#define KEPT_BYTES (8 << 20)
/* Of a node with more processes, cards are not asked for ahead. */
#define MOST_NODE_CARDS 32
/* On a node with more processes, the first message of a pair connects it (ShmProvider::kMostPrepared). */
#define MOST_CONNECTED 9

/* The channel's interface to CH3. */
char MPIDI_CH3_ABIVersion[] = "1.1";

ch3_offload_channel_t *MPIDI_CH3I_channel = NULL;
ch3_offload_events_t *MPIDI_CH3I_events = NULL;

/* What has been said already, so that it is said once. */
static char *warnings[MAX_WARNINGS];
static int warning_count = 0;

uint64_t MPIDI_CH3I_Error_bits(void)
{
#ifdef HAVE_TAG_ERROR_BITS
    return (uint32_t) (MPIR_TAG_ERROR_BIT | MPIR_TAG_PROC_FAILURE_BIT);
#else
    return 0;
#endif
}

/* ---- what the engine asks, and what it says to the user ---- */

/* Gives the engine a card. "": it cannot be had. */
static void introduce(uint32_t peer, const char *card)
{
    MPIDI_VC_t *vc;

    MPIDI_PG_Get_vc(MPIDI_Process.my_pg, peer, &vc);
    vc->ch.is_introduced = TRUE;
    ch3_offload_introduce(MPIDI_CH3I_channel, peer, card);
}

/* Says the cards of the node's processes before they are asked for: to ask the process manager takes longer
 * than all else of a first message within a node. Nodes with more processes do without, for each process
 * asks for all. */
static void introduce_node(void)
{
    char card[MPIDI_CH3I_CARD_BYTES];
    int i;

    for (i = 0; i < MPIR_Process.local_size && MPIR_Process.local_size <= MOST_NODE_CARDS; i++) {
        if (MPIR_Process.node_local_map[i] == MPIR_Process.rank)
            continue;
        MPIDI_CH3I_Get_card(MPIR_Process.node_local_map[i], card);
        if (card[0] != '\0')
            introduce((uint32_t) MPIR_Process.node_local_map[i], card);
    }
    ch3_offload_meet_node(MPIDI_CH3I_channel);
}

/* MPIR_CVAR_CH3_OFFLOAD_REPORT=1: how the nodes of the job reach each other. The cards are known now. */
static int report_job(const ch3_offload_config_t * config)
{
    int mpi_errno = MPI_SUCCESS;
    const int count = MPIR_Process.num_nodes;
    ch3_offload_node_t *nodes;
    char *cards;
    int i;
    MPIDI_CH3I_CHKLMEM_DECL();

    MPIDI_CH3I_CHKLMEM_MALLOC(nodes, count * sizeof(*nodes));
    MPIDI_CH3I_CHKLMEM_MALLOC(cards, (size_t) count * MPIDI_CH3I_CARD_BYTES);
    for (i = 0; i < count; i++) {
        nodes[i].card = cards + (size_t) i * MPIDI_CH3I_CARD_BYTES;
        nodes[i].ranks = 0;
        MPIDI_CH3I_Get_card(MPIR_Process.node_root_map[i], cards + (size_t) i * MPIDI_CH3I_CARD_BYTES);
    }
    for (i = 0; i < MPIR_Process.size; i++)
        nodes[MPIR_Process.node_map[i]].ranks++;
    ch3_offload_report(MPIDI_CH3I_channel, config, nodes, count);
    MPIDI_CH3I_Take_events();

  fn_exit:
    MPIR_CHKLMEM_FREEALL();
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Card_wanted(uint32_t peer)
{
    char card[MPIDI_CH3I_CARD_BYTES];

    MPIDI_CH3I_Get_card((int) peer, card);
    introduce(peer, card);
}

void MPIDI_CH3I_Lane_made(uint32_t peer)
{
    MPIDI_VC_t *vc = MPIDI_CH3I_Vc(peer);

    if (vc != NULL)
        vc->ch.lane = ch3_offload_lane(MPIDI_CH3I_channel, peer);
}

/* Hydra, on PMI_Abort, ends the job without what it has not read of the processes' output: on a busy
 * node the only reason that a user would see. So wait until ours is read. */
static void wait_for_reader(void)
{
    int waited_us, unread_bytes = 0;
    struct stat output;

    if (fstat(STDERR_FILENO, &output) != 0 || !S_ISFIFO(output.st_mode))
        return;
    for (waited_us = 0; waited_us < READER_WAIT_US; waited_us += READER_LOOK_US) {
        if (ioctl(STDERR_FILENO, FIONREAD, &unread_bytes) != 0 || unread_bytes == 0)
            return;
        usleep(READER_LOOK_US);
    }
}

void MPIDI_CH3I_Warn(const char *text)
{
    int i;

    for (i = 0; i < warning_count; i++)
        if (strcmp(warnings[i], text) == 0)
            return;
    if (warning_count < MAX_WARNINGS) {
        char *copy = MPL_strdup(text);
        if (copy != NULL)
            warnings[warning_count++] = copy;
    }
    MPL_error_printf("[%d] ch3:offload: %s\n", MPIR_Process.rank, text);
    fflush(stderr);
    wait_for_reader();
}

/* Also where the processes of the node are not known. */
static int first_of_node(void)
{
    return MPIR_Process.local_rank <= 0;
}

/* Says why this process cannot start. Where one cannot, others often cannot for the same reason. The
 * first one says so at once and ends the job. A process that is still there after a while says it, too. */
static void say_why(const char *text, int is_first)
{
    if (!is_first)
        usleep(FIRST_SAYS_US);
    MPIDI_CH3I_Warn(text);
}

/* ---- start and end ---- */

/* Lets malloc() keep the memory that is freed. glibc returns free memory at the end of the heap to the kernel
 * if it is more than 128 KiB, and blocks of 128 KiB and more in any case, until such a block has been freed:
 * from then on it keeps blocks of that size, and twice as much at the end of the heap. MPICH allocates
 * buffers in each call of a collective operation, and with the page faults MPI_Reduce of 256 KiB took ten
 * times as long. Limits that the user has set (mallopt(3)) stay, and no memory is touched here. */
static void keep_freed_memory(void)
{
    void *volatile block = MPL_malloc(KEPT_BYTES, MPL_MEM_OTHER);       /* The compiler would omit both. */

    MPL_free(block);
}

/* What CH3 leaves behind when MPI ends, and does not expect when it begins again. */
static void forget_last_session(MPIDI_PG_t * pg)
{
    int i;

    /* MPICH takes ranks in MPI_COMM_WORLD for these, and CH3 never counts from 0 again. */
    for (i = 0; i < pg->size; i++)
        pg->vct[i].lpid = i;
#if !MPIDI_CH3I_MPICH_IS(4, 2)
    global_rma_op_pool_head = NULL;
    global_rma_target_pool_head = NULL;
#endif
}

/* The close packets that come next have the class of packets. So a message of another class leaves before. */
static int finish_messages(void *param ATTRIBUTE((unused)))
{
    MPIDI_CH3I_Partitioned_finalize();
    return MPIDI_CH3I_Progress_drain();
}

int MPIDI_CH3_Init(int has_parent ATTRIBUTE((unused)), MPIDI_PG_t * pg_p, int pg_rank)
{
    int mpi_errno = MPI_SUCCESS;
    char message[MESSAGE_BYTES] = "";
    char nic;
    ch3_offload_config_t config;

    MPIR_FUNC_ENTER;

    keep_freed_memory();
    forget_last_session(pg_p);
    MPIDI_CH3I_Process_manager_init();
    ch3_offload_config_default(&config);
    config.rank = pg_rank;
    config.job_size = pg_p->size;
    config.local_size = MPIR_Process.local_size;
    config.local_rank = first_of_node() ? 0 : MPIR_Process.local_rank;
    config.always_ignored_bits = MPIDI_CH3I_Error_bits();
    config.channel_bits = MPIDI_CH3I_Channel_bits();
    if (MPIDI_CH3I_Settings(&config, message, sizeof(message)) != 0) {
        say_why(message, pg_rank == 0);
        MPIR_ERR_SETANDJUMP1(mpi_errno, MPI_ERR_OTHER, "**ch3|offload|setting", "**ch3|offload|setting %s",
                             message);
    }

    nic = config.nic[0];
    mpi_errno = MPIDI_CH3I_Share_secret(config.secret, &nic);
    MPIR_ERR_CHECK(mpi_errno);
    if (nic == 'a' && pg_p->size > 1) {
        mpi_errno = MPIDI_CH3I_Agree_on_nic(&config, &nic);
        MPIR_ERR_CHECK(mpi_errno);
    }
    if ((nic == 'p') != (strcmp(config.nic, "process") == 0)) {
        snprintf(message, sizeof(message), "MPIR_CVAR_CH3_OFFLOAD_NIC=%s, but the choice of rank 0 is "
                     "%s: process must be that of all processes of a job, or of none", config.nic,
                     nic == 'p' ? "process" : nic == 't' ? "thread" : nic == 'h' ? "host" : "not process");
        say_why(message, FALSE);
        MPIR_ERR_SETANDJUMP1(mpi_errno, MPI_ERR_OTHER, "**ch3|offload|setting", "**ch3|offload|setting %s",
                             message);
    }

    MPIDI_CH3I_Worlds_init(pg_p);
    mpi_errno = MPIDI_CH3I_Packet_recv_init();
    MPIR_ERR_CHECK(mpi_errno);
    if (ch3_offload_create(&config, &MPIDI_CH3I_channel, message, sizeof(message)) != 0) {
        say_why(message, first_of_node());
        MPIR_ERR_SETANDJUMP1(mpi_errno, MPI_ERR_OTHER, "**ch3|offload|create", "**ch3|offload|create %s",
                             message);
    }
    MPIDI_CH3I_events = ch3_offload_events(MPIDI_CH3I_channel);
    mpi_errno = MPIDI_CH3I_Progress_init();
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIDI_CH3I_Failure_init();
    MPIR_ERR_CHECK(mpi_errno);
    MPIDI_CH3I_Take_events();   /* warnings */
    MPIDI_CH3I_Pvars_init();
    MPIDI_CH3I_Split_type_init();
    MPIDI_CH3I_Classes_init();
    MPIDI_CH3I_Schedules_init();
    MPIDI_CH3I_Barrier_init();
    MPIR_Add_finalize(finish_messages, NULL, MPIR_FINALIZE_CALLBACK_PRIO + 1);

    /* Publishes the card, and waits until everybody has. */
    mpi_errno = MPIDI_CH3I_Publish_card(ch3_offload_card(MPIDI_CH3I_channel));
    MPIR_ERR_CHECK(mpi_errno);
    if (strcmp(config.nic, "process") != 0)     /* There, the node's processor knows them. */
        introduce_node();
    if (config.report && pg_rank == 0) {
        mpi_errno = report_job(&config);
        MPIR_ERR_CHECK(mpi_errno);
    }

  fn_exit:
    MPIR_FUNC_EXIT;
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* The first message of a process takes a hundred times as long as the next ones: its code and data are in no
 * cache, and its code has no entry in a page table. So each process exchanges one with a neighbour on its
 * node here. An error is dropped: the first call that needs the neighbour meets it again. */
static void exchange_first_message(void)
{
    enum { TAG = 0 };
    const int local_neighbour = MPIR_Process.local_rank ^ 1;
    const int is_first = MPIR_Process.local_rank < local_neighbour;
    MPIR_Comm *world = MPIR_Process.comm_world;
    char buf[1] = { 0 };
    int turn, neighbour;

    if (MPIR_Process.local_rank < 0 || local_neighbour >= MPIR_Process.local_size ||
        MPIR_Process.local_size > MOST_CONNECTED)
        return;
    neighbour = MPIR_Process.node_local_map[local_neighbour];
    for (turn = 0; turn < 2; turn++) {
        int mpi_errno;
        MPIR_Request *request = NULL;

        if ((turn == 0) == is_first)
            mpi_errno = MPID_Send(buf, 1, MPIR_BYTE_INTERNAL, neighbour, TAG, world, MPIR_CONTEXT_COLL_OFFSET,
                                  &request);
        else
            mpi_errno = MPID_Recv(buf, 1, MPIR_BYTE_INTERNAL, neighbour, TAG, world, MPIR_CONTEXT_COLL_OFFSET,
                                  MPI_STATUS_IGNORE, &request);
        if (mpi_errno == MPI_SUCCESS && request != NULL)
            mpi_errno = MPID_Wait(request, MPI_STATUS_IGNORE);
        if (request != NULL)
            MPIR_Request_free(request);
        if (mpi_errno != MPI_SUCCESS)
            return;
    }
}

int MPIDI_CH3_InitCompleted(void)
{
    exchange_first_message();
    return MPI_SUCCESS;
}

int MPIDI_CH3_Finalize(void)
{
    int mpi_errno = MPI_SUCCESS;
    ch3_offload_channel_t *channel = MPIDI_CH3I_channel;

    MPIR_FUNC_ENTER;

    mpi_errno = MPIDI_CH3I_Progress_drain();
    MPIR_ERR_CHECK(mpi_errno);
    ch3_offload_trace_write(channel);
    MPIDI_CH3I_Take_events();
    MPIDI_CH3I_Pvars_finalize();
    MPIDI_CH3I_Failure_finalize();
    MPIDI_CH3I_Send_finalize();
    MPIDI_CH3I_Schedules_finalize();
    MPIDI_CH3I_Windows_finalize();
    MPIDI_CH3I_Worlds_finalize();
    MPIDI_CH3I_Agreement_finalize();
    MPIDI_CH3I_Forget_revocations(NULL);
    mpi_errno = MPIDI_CH3I_Progress_finalize();
    MPIR_ERR_CHECK(mpi_errno);
    MPIDI_CH3I_channel = NULL;
    MPIDI_CH3I_events = NULL;
    ch3_offload_destroy(channel);
    while (warning_count > 0)
        MPL_free(warnings[--warning_count]);

  fn_exit:
    MPIR_FUNC_EXIT;
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- virtual connections ---- */

int MPIDI_CH3_VC_Init(MPIDI_VC_t * vc)
{
    memset(&vc->ch, 0, sizeof(vc->ch));
    vc->ch.peer = MPIDI_CH3I_NO_PEER;
    vc->comm_ops = &MPIDI_CH3I_comm_ops;
    return MPI_SUCCESS;
}

int MPIDI_CH3_VC_Destroy(MPIDI_VC_t * vc)
{
    MPIDI_CH3I_Locks_free(vc);
    MPIDI_CH3I_Forget_vc(vc);
    MPIDI_CH3I_Forget_revocations(vc);
    return MPI_SUCCESS;
}
