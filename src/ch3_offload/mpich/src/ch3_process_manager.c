/*
 * The ch3:offload channel: what the processes of a job tell each other through the process manager, before
 * they can send messages: the job's secret, the choice of a network processor, and by which cards they are
 * reached.
 *
 * A process may initialise MPI several times: whenever a session is opened and none is open (MPI 4.0, section
 * 11.3). The process manager knows a process for as long as it runs, and keeps each key for good. So the
 * connection with it is made once and lasts until the process exits, and the keys have a number of the
 * initialisation. All processes of a job initialise MPI equally often.
 */

#include "mpidi_ch3_impl.h"
#ifdef HAVE_SYS_RANDOM_H
#include <sys/random.h>
#endif

enum { KEY_BYTES = 64, SECRET_BYTES = sizeof(((ch3_offload_config_t *) 0)->secret) };

/* Which initialisation of MPI in this process this is; the first one is 1. */
static unsigned initialisation = 0;

/* ---- the connection with the process manager ---- */

#if !MPIDI_CH3I_MPICH_IS(4, 2)

static enum {
    CONNECTION_NONE,
    CONNECTION_MADE,
    CONNECTION_UNUSED,          /* MPI has ended in good order, and may begin again */
    CONNECTION_GONE
} connection = CONNECTION_NONE;
static pid_t connected_pid;

/* Who exits while MPI is in use has failed, and the process manager has to notice. */
static void disconnect_at_exit(void)
{
    if (connection == CONNECTION_UNUSED && getpid() == connected_pid)
        MPIDI_CH3I_Stock_pmi_finalize();
}

/* In place of MPIR_pmi_init (mpidi_ch3_post.h). */
int MPIDI_CH3I_Pmi_init(void)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_CHKANDJUMP1(connection == CONNECTION_GONE, mpi_errno, MPI_ERR_OTHER, "**ch3|offload|create",
                         "**ch3|offload|create %s", "MPI_Finalize has ended the connection with the "
                         "process manager, because there had been no session: open the first one before "
                         "MPI_Finalize");
    if (connection == CONNECTION_NONE) {
        mpi_errno = MPIDI_CH3I_Stock_pmi_init();
        MPIR_ERR_CHECK(mpi_errno);
        MPIR_ERR_CHKANDJUMP1(atexit(disconnect_at_exit) != 0, mpi_errno, MPI_ERR_OTHER,
                             "**ch3|offload|create", "**ch3|offload|create %s",
                             "no memory for what is to be done at exit");
        connected_pid = getpid();
    }
    connection = CONNECTION_MADE;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

/* In place of MPIR_pmi_finalize. A process that knows no sessions may end as it likes after MPI_Finalize, by
 * _exit() or a signal: it is done now. */
void MPIDI_CH3I_Pmi_finalize(void)
{
    static int has_had_sessions = FALSE;

    has_had_sessions |= MPIR_Session_mem.initialized;   /* since MPI has begun */
    if (has_had_sessions) {
        connection = CONNECTION_UNUSED;
    } else {
        connection = CONNECTION_GONE;
        MPIDI_CH3I_Stock_pmi_finalize();
    }
}

#endif

void MPIDI_CH3I_Process_manager_init(void)
{
    initialisation++;
}

/* ---- keys ---- */

/* number: of a process or a node; negative: the key is the job's. */
static void make_key(char *key, const char *name, int number)
{
    if (number < 0)
        snprintf(key, KEY_BYTES, "ch3-offload-%u-%s", initialisation, name);
    else
        snprintf(key, KEY_BYTES, "ch3-offload-%u-%s-%d", initialisation, name, number);
}

static int put(const char *name, int number, const char *value)
{
    char key[KEY_BYTES];

    make_key(key, name, number);
    return MPIR_pmi_kvs_put(key, value);
}

/* Reads what process `from` has put. */
static int get(int from, const char *name, int number, char *value, int capacity)
{
    char key[KEY_BYTES];

    make_key(key, name, number);
    return MPIR_pmi_kvs_get(from, key, value, capacity);
}

/* ---- cards ---- */

int MPIDI_CH3I_Publish_card(const char *card)
{
    int mpi_errno = MPI_SUCCESS;

    if (MPIR_Process.size == 1) /* Without a process manager, there is room for one key in all. */
        goto fn_exit;
    mpi_errno = put("card", MPIR_Process.rank, card);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = MPIR_pmi_barrier();
    MPIR_ERR_CHECK(mpi_errno);

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Get_card(int peer, char *card)
{
    if (MPIR_Process.size == 1 || get(peer, "card", peer, card, MPIDI_CH3I_CARD_BYTES) != MPI_SUCCESS)
        card[0] = '\0';
}

/* ---- dead processes ---- */

char *MPIDI_CH3I_Dead_processes(void)
{
#if MPIDI_CH3I_MPICH_IS(4, 2)
    return MPIR_pmi_get_jobattr("PMI_dead_processes");
#else
    const int capacity = MPIR_pmi_max_val_size() + 1;
    char *value;

    if (MPIR_Process.size == 1) /* A process without a manager would start one. */
        return NULL;
    value = MPL_malloc(capacity, MPL_MEM_STRINGS);
    if (value != NULL && MPIR_pmi_kvs_get(-1, "PMI_dead_processes", value, capacity) != MPI_SUCCESS)
        value[0] = '\0';
    return value;
#endif
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
    const char *word = strcmp(config->nic, "process") == 0 ? "process" : "host";
    int node = MPIR_Process.node_map[MPIR_Process.rank];

    if (MPIR_Process.node_root_map[node] != MPIR_Process.rank)
        return MPI_SUCCESS;
    if (strcmp(config->nic, "auto") == 0)
        word = ch3_offload_best_nic(config);
    return put("nic", node, word);
}

/* Rank 0: what follows from the words of all nodes. */
static int judge_nodes(const char **word)
{
    int mpi_errno = MPI_SUCCESS;
    char value[MPIDI_MAX_KVS_VALUE_LEN];
    int node, wants_process = FALSE, wants_none = FALSE;

    for (node = 0; node < MPIR_Process.num_nodes; node++) {
        mpi_errno = get(MPIR_Process.node_root_map[node], "nic", node, value, sizeof(value));
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

int MPIDI_CH3I_Agree_on_nic(ch3_offload_config_t * config, char *nic)
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
        mpi_errno = put("nic", -1, word);
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = MPIR_pmi_barrier();
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = get(0, "nic", -1, value, sizeof(value));
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

/* Rank 0 makes it, the process manager spreads it. */
int MPIDI_CH3I_Share_secret(unsigned char *secret, char *nic)
{
    int mpi_errno = MPI_SUCCESS;
    char text[2 * SECRET_BYTES + 2];
    int i;

    if (MPIR_Process.rank == 0) {
        MPIR_ERR_CHKANDJUMP1(!MPIDI_CH3I_Random_bytes(secret, SECRET_BYTES), mpi_errno, MPI_ERR_OTHER,
                             "**ch3|offload|create", "**ch3|offload|create %s",
                             "no random bytes for the job's secret");
        for (i = 0; i < SECRET_BYTES; i++)
            snprintf(text + 2 * i, 3, "%02x", secret[i]);
        text[2 * SECRET_BYTES] = *nic;
        text[2 * SECRET_BYTES + 1] = '\0';
    }
    if (MPIR_Process.size == 1)
        goto fn_exit;
    if (MPIR_Process.rank == 0) {
        mpi_errno = put("secret", -1, text);
        MPIR_ERR_CHECK(mpi_errno);
    }
    mpi_errno = MPIR_pmi_barrier();
    MPIR_ERR_CHECK(mpi_errno);
    if (MPIR_Process.rank != 0) {
        char value[MPIDI_MAX_KVS_VALUE_LEN];

        mpi_errno = get(0, "secret", -1, value, sizeof(value));
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
