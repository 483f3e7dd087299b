/*
 * The ch3:offload channel: every counter of the library as an MPI_T performance variable, ch3_offload_NAME.
 *
 * MPI_T may outlive MPI_Finalize: then a variable keeps its last value.
 */

#include "mpidi_ch3_impl.h"

/* One per counter; MPI_T keeps the pointers for good. */
static struct variable {
    char name[64];
    unsigned long long last_value;
} *variables = NULL;

static void get_value(void *addr, void *obj ATTRIBUTE((unused)), int count ATTRIBUTE((unused)), void *value)
{
    struct variable *variable = addr;

    if (MPIDI_CH3I_channel != NULL)
        variable->last_value = *ch3_offload_counter(MPIDI_CH3I_channel, variable - variables);
    *(unsigned long long *) value = variable->last_value;
}

void MPIDI_CH3I_Pvars_init(void)
{
    size_t count = ch3_offload_counter_count();
    size_t i;

    if (variables != NULL)
        return;
    variables = MPL_calloc(count, sizeof(*variables), MPL_MEM_MPIT);
    if (variables == NULL)
        return;
    for (i = 0; i < count; i++) {
        const char *description;
        int is_level;
        const char *name = ch3_offload_counter_name(i, &description, &is_level);

        snprintf(variables[i].name, sizeof(variables[i].name), "ch3_offload_%s", name);
        MPIR_T_PVAR_REGISTER_impl(is_level ? MPI_T_PVAR_CLASS_LEVEL : MPI_T_PVAR_CLASS_COUNTER,
                                  MPI_UNSIGNED_LONG_LONG, variables[i].name, &variables[i], 1,
                                  MPI_T_ENUM_NULL, MPI_T_VERBOSITY_USER_DETAIL, MPI_T_BIND_NO_OBJECT,
                                  MPIR_T_PVAR_FLAG_READONLY | MPIR_T_PVAR_FLAG_CONTINUOUS, get_value, NULL,
                                  "CH3_OFFLOAD", description);
    }
}

void MPIDI_CH3I_Pvars_finalize(void)
{
    size_t count = ch3_offload_counter_count();
    size_t i;

    if (variables != NULL)
        for (i = 0; i < count; i++)
            variables[i].last_value = *ch3_offload_counter(MPIDI_CH3I_channel, i);
}

const uint64_t *MPIDI_CH3I_Counter(const char *name)
{
    size_t count = ch3_offload_counter_count();
    size_t i;

    for (i = 0; i < count; i++) {
        const char *description;
        int is_level;
        if (strcmp(name, ch3_offload_counter_name(i, &description, &is_level)) == 0)
            return ch3_offload_counter(MPIDI_CH3I_channel, i);
    }
    return NULL;
}
