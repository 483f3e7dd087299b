/*
 * The ch3:offload channel: the traffic class of a communicator, as info's key "ch3_offload_class" names it.
 * MPICH keeps it with the communicator's hints, as a number.
 *
 * It is that of the context id of what is sent, without the bits that tell a communicator's point-to-point
 * messages, its collectives, its partitioned messages, and its node-local and inter-node parts apart. So all
 * of these go along with it. What is sent over an intercommunicator has the other group's id, which may be
 * that of a communicator of this process, too: then the two have one class, the one that was set last. The
 * part of its collectives that stays within the own group has the class of the process.
 */

#include "mpidi_ch3_impl.h"

#define INFO_KEY "ch3_offload_class"

/* Which of comm->hints; 0: none yet. It stays for the life of the process. */
static int hint = 0;

/* By the hint's value. The first is that of MPIR_CVAR_CH3_OFFLOAD_CLASS. */
static const char *const names[] = { "", "latency", "default", "bulk" };

enum { NAMES = sizeof(names) / sizeof(names[0]) };

uint64_t MPIDI_CH3I_Channel_bits(void)
{
    return (uint64_t) (uint32_t) ~(MPIR_CONTEXT_SUFFIX_MASK | MPIR_CONTEXT_SUBCOMM_MASK |
                                   MPIDI_CH3I_PARTITIONED_MASK) << 32;
}

/* MPICH reads a number, and this is a word: MPIDI_CH3I_Set_comm_hints takes it. */
static int leave_hint(MPIR_Comm * comm ATTRIBUTE((unused)), int key ATTRIBUTE((unused)),
                      int value ATTRIBUTE((unused)))
{
    return MPI_SUCCESS;
}

void MPIDI_CH3I_Classes_init(void)
{
    if (hint == 0)
        hint = MPIR_Comm_register_hint(0, INFO_KEY, leave_hint, MPIR_COMM_HINT_TYPE_INT,
                                       MPIR_COMM_HINT_ATTR_LOCAL, 0);
}

/* Words, and the numbers that MPI_Comm_get_info returns. Less than 0: neither. */
static int value_of(const char *text)
{
    int value;

    for (value = 0; value < NAMES; value++) {
        if (strcmp(text, names[value]) == 0 || (text[0] == '0' + value && text[1] == '\0'))
            return value;
    }
    return -1;
}

static uint64_t channel_of(const MPIR_Comm * comm)
{
    return MPIDI_CH3I_Match(comm->context_id, 0, 0).bits & MPIDI_CH3I_Channel_bits();
}

static void classify(const MPIR_Comm * comm, int value)
{
    static const int classes[NAMES] = { CH3_OFFLOAD_CLASS_OF_PROCESS, CH3_OFFLOAD_CLASS_LATENCY,
        CH3_OFFLOAD_CLASS_DEFAULT, CH3_OFFLOAD_CLASS_BULK
    };
    ch3_offload_classify(MPIDI_CH3I_channel, channel_of(comm), classes[value]);
}

/* Whether comm is complete: before, its context id may be another (MPI_Comm_idup_with_info). */
static int is_complete(const MPIR_Comm * comm)
{
    const MPIR_Comm *one;

    for (one = MPIDI_CH3I_communicators; one != NULL && one != comm;)
        one = one->dev.ch.next;
    return one != NULL;
}

int MPIDI_CH3I_Set_comm_hints(MPIR_Comm * comm, MPIR_Info * info)
{
    char text[MPI_MAX_INFO_VAL + 1];
    char warning[MPI_MAX_INFO_VAL + 200];
    int is_given = FALSE;
    int value;
    int mpi_errno = MPIDI_CH3I_Comm_set_hints(comm, info);

    MPIR_ERR_CHECK(mpi_errno);
    if (info == NULL)
        goto fn_exit;
    mpi_errno = MPIR_Info_get_impl(info, INFO_KEY, MPI_MAX_INFO_VAL, text, &is_given);
    MPIR_ERR_CHECK(mpi_errno);
    if (!is_given)
        goto fn_exit;
    value = value_of(text);
    if (value < 0) {
        snprintf(warning, sizeof(warning), "info " INFO_KEY "=%s has no effect: it takes latency, "
                     "default or bulk, or nothing: the class of MPIR_CVAR_CH3_OFFLOAD_CLASS", text);
        if (comm->rank == 0)
            MPIDI_CH3I_Warn(warning);
        goto fn_exit;
    }
    if (comm->hints[hint] != value && is_complete(comm))
        classify(comm, value);
    comm->hints[hint] = value;

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Apply_class(MPIR_Comm * comm)
{
    if (comm->hints[hint] != 0)
        classify(comm, comm->hints[hint]);
}

void MPIDI_CH3I_Forget_class(MPIR_Comm * comm)
{
    const MPIR_Comm *other;
    int value = 0;

    if (comm->hints[hint] == 0)
        return;
    for (other = MPIDI_CH3I_communicators; other != NULL; other = other->dev.ch.next) {
        if (other != comm && other->hints[hint] != 0 && channel_of(other) == channel_of(comm))
            value = other->hints[hint];
    }
    classify(comm, value);
}
