/*
 * The ch3:offload channel: start and end of a process, and of its virtual connections.
 */

#include "ch3_worlds.h"
#include <sys/ioctl.h>
#include <sys/stat.h>
#ifdef HAVE_SYS_RANDOM_H
#include <sys/random.h>
#endif

#define SECRET_KEY "ch3-offload-secret"
#define NODES_NIC_KEY "ch3-offload-nic-%d"
#define JOBS_NIC_KEY "ch3-offload-nic"
#define SECRET_BYTES 16
#define CARD_BYTES 432
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

static void get_card(int peer, char *card)
{
    if (MPIDI_PG_GetConnString(MPIDI_Process.my_pg, peer, card, CARD_BYTES) != MPI_SUCCESS)
        card[0] = '\0';
}

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
    char card[CARD_BYTES];
    int i;

    for (i = 0; i < MPIR_Process.local_size && MPIR_Process.local_size <= MOST_NODE_CARDS; i++) {
        if (MPIR_Process.node_local_map[i] == MPIR_Process.rank)
            continue;
        get_card(MPIR_Process.node_local_map[i], card);
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
    MPIR_CHKLMEM_DECL(2);

    MPIR_CHKLMEM_MALLOC(nodes, ch3_offload_node_t *, count * sizeof(*nodes), mpi_errno, "nodes",
                        MPL_MEM_OTHER);
    MPIR_CHKLMEM_MALLOC(cards, char *, (size_t) count * CARD_BYTES, mpi_errno, "cards", MPL_MEM_OTHER);
    for (i = 0; i < count; i++) {
        nodes[i].card = cards + (size_t) i * CARD_BYTES;
        nodes[i].ranks = 0;
        get_card(MPIR_Process.node_root_map[i], cards + (size_t) i * CARD_BYTES);
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
    char card[CARD_BYTES];

    get_card((int) peer, card);
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

/* ---- MPIR_CVAR_CH3_OFFLOAD_NIC=auto ---- */

/* A network processor in a process of each node must be the choice of all nodes. So each node says what
 * would be best for it, and rank 0 what follows: "process" if some node wants one and no node is better
 * off without, else "own": each node what is best for it, but no process. Whether this is asked at all
 * is rank 0's word, which has come with the secret: on another node there may be another setting. */

/* The first process of a node says what is best there: once all processes of the node run, where they
 * are to run. Who was told to have a thread will have no process. */
static int say_nodes_nic(const ch3_offload_config_t * config)
{
    char key[64];
    const char *word = strcmp(config->nic, "process") == 0 ? "process" : "host";
    int node = MPIR_Process.node_map[MPIR_Process.rank];

    if (MPIR_Process.node_root_map[node] != MPIR_Process.rank)
        return MPI_SUCCESS;
    if (strcmp(config->nic, "auto") == 0)
        word = ch3_offload_best_nic(config);
    snprintf(key, sizeof(key), NODES_NIC_KEY, node);
    return MPIR_pmi_kvs_put(key, word);
}

/* Rank 0: what follows from the words of all nodes. */
static int judge_nodes(const char **word)
{
    int mpi_errno = MPI_SUCCESS;
    char key[64], value[MPIDI_MAX_KVS_VALUE_LEN];
    int node, wants_process = FALSE, wants_none = FALSE;

    for (node = 0; node < MPIR_Process.num_nodes; node++) {
        snprintf(key, sizeof(key), NODES_NIC_KEY, node);
        mpi_errno = MPIR_pmi_kvs_get(MPIR_Process.node_root_map[node], key, value, sizeof(value));
        MPIR_ERR_CHECK(mpi_errno);
        wants_process |= strcmp(value, "process") == 0;
        wants_none |= strcmp(value, "host") == 0;
    }
    *word = wants_process && !wants_none ? "process" : "own";

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* Collective. Replaces "auto" by what is agreed on. `nic` becomes 'p' if that is "process". */
static int agree_on_nic(ch3_offload_config_t * config, char *nic)
{
    int mpi_errno = MPI_SUCCESS;
    char value[MPIDI_MAX_KVS_VALUE_LEN];
    const char *word;

    mpi_errno = say_nodes_nic(config);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIR_pmi_barrier();
    MPIR_ERR_CHECK(mpi_errno);
    if (MPIR_Process.rank == 0) {
        mpi_errno = judge_nodes(&word);
        MPIR_ERR_CHECK(mpi_errno);
        mpi_errno = MPIR_pmi_kvs_put(JOBS_NIC_KEY, word);
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = MPIR_pmi_barrier();
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIR_pmi_kvs_get(0, JOBS_NIC_KEY, value, sizeof(value));
    MPIR_ERR_CHECK(mpi_errno);
    if (strcmp(value, "process") == 0) {
        *nic = 'p';
        if (strcmp(config->nic, "auto") == 0)
            config->nic = "process";
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* ---- the job's secret ---- */

int MPIDI_CH3I_Random_bytes(unsigned char *bytes, size_t count)
{
    size_t got = 0;

#ifdef HAVE_SYS_RANDOM_H
    while (got < count) {
        ssize_t n = getrandom(bytes + got, count - got, 0);
        if (n > 0)
            got += n;
        else if (errno != EINTR)
            break;
    }
#endif
    if (got < count) {
        FILE *random = fopen("/dev/urandom", "rb");
        if (random != NULL) {
            got = fread(bytes, 1, count, random);
            fclose(random);
        }
    }
    return got == count;
}

/* Rank 0 makes it, the process manager spreads it. `nic`, the first letter of this process's
 * MPIR_CVAR_CH3_OFFLOAD_NIC, becomes rank 0's. */
static int share_secret(int rank, int size, unsigned char *secret, char *nic)
{
    int mpi_errno = MPI_SUCCESS;
    char text[2 * SECRET_BYTES + 2];
    int i;

    if (rank == 0) {
        MPIR_ERR_CHKANDJUMP1(!MPIDI_CH3I_Random_bytes(secret, SECRET_BYTES), mpi_errno, MPI_ERR_OTHER,
                             "**ch3|offload|create", "**ch3|offload|create %s",
                             "no random bytes for the job's secret");
        for (i = 0; i < SECRET_BYTES; i++)
            snprintf(text + 2 * i, 3, "%02x", secret[i]);
        text[2 * SECRET_BYTES] = *nic;
        text[2 * SECRET_BYTES + 1] = '\0';
    }
    if (size == 1)
        goto fn_exit;
    if (rank == 0) {
        mpi_errno = MPIR_pmi_kvs_put(SECRET_KEY, text);
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = MPIR_pmi_barrier();
    MPIR_ERR_CHECK(mpi_errno);
    if (rank != 0) {
        char value[MPIDI_MAX_KVS_VALUE_LEN];

        mpi_errno = MPIR_pmi_kvs_get(0, SECRET_KEY, value, sizeof(value));
        MPIR_ERR_CHECK(mpi_errno);
        for (i = 0; i < SECRET_BYTES; i++) {
            unsigned byte = 0;
            MPIR_ERR_CHKANDJUMP1(sscanf(value + 2 * i, "%2x", &byte) != 1, mpi_errno, MPI_ERR_OTHER,
                                 "**ch3|offload|create", "**ch3|offload|create %s",
                                 "the process manager returned no secret for this job");
            secret[i] = byte;
        }
        *nic = value[2 * SECRET_BYTES];
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
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

int MPIDI_CH3_Init(int has_parent ATTRIBUTE((unused)), MPIDI_PG_t * pg_p, int pg_rank)
{
    int mpi_errno = MPI_SUCCESS;
    char message[MESSAGE_BYTES] = "";
    char nic;
    ch3_offload_config_t config;

    MPIR_FUNC_ENTER;

    keep_freed_memory();
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
    mpi_errno = share_secret(pg_rank, pg_p->size, config.secret, &nic);
    MPIR_ERR_CHECK(mpi_errno);
    if (nic == 'a' && pg_p->size > 1) {
        mpi_errno = agree_on_nic(&config, &nic);
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

    /* Publishes the card, and waits until everybody has. */
    mpi_errno = MPIDI_PG_SetConnInfo(pg_rank, ch3_offload_card(MPIDI_CH3I_channel));
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

/* The close packets that come next have the class of packets. So a message of another class leaves before. */
static int finish_messages(void *param ATTRIBUTE((unused)))
{
    return MPIDI_CH3I_Progress_drain();
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
            mpi_errno = MPID_Send(buf, 1, MPI_BYTE, neighbour, TAG, world, MPIR_CONTEXT_COLL_OFFSET,
                                  &request);
        else
            mpi_errno = MPID_Recv(buf, 1, MPI_BYTE, neighbour, TAG, world, MPIR_CONTEXT_COLL_OFFSET,
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
    MPIR_Add_finalize(finish_messages, NULL, MPIR_FINALIZE_CALLBACK_PRIO + 1);
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
    return MPI_SUCCESS;
}
