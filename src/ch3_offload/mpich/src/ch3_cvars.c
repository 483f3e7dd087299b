/*
 * The ch3:offload channel: the way of the control variables (MPIR_CVAR_CH3_OFFLOAD_*; environment, files of
 * settings or MPI_T) into the engine's settings. ch3-offload-graft makes cvars.txt, which declares them to
 * MPICH, of the library's own list, ch3_offload_settings.def. All are declared as strings: MPICH's own reader
 * of ints wraps around, and ends MPI_Init without naming the value. The library reads them, so that MPI,
 * Portals and the tools take the same. MPIR_CVAR_CH3_PORT_RANGE is MPICH's own: it is declared beside
 * nemesis's TCP, and every build has it.
 */

#include "mpidi_ch3_impl.h"

/* What was written through MPI_T; NULL: nothing. MPICH gives such a variable a buffer for MPI_T, which
 * holds the default until then. */
static const char *written(const cvar_table_entry_t * cvar)
{
    if (cvar->datatype != MPI_CHAR || strcmp(cvar->addr, cvar->defaultval.str) == 0)
        return NULL;
    return cvar->addr;
}

int MPIDI_CH3I_Settings(ch3_offload_config_t * config, char *message, size_t capacity)
{
    const char *variable;
    unsigned i;

    for (i = 0; (variable = ch3_offload_setting(i)) != NULL; i++) {
        cvar_table_entry_t *cvar = LOOKUP_CVAR_BY_NAME(variable);
        const char *text = written(cvar);

        if (ch3_offload_config_set(config, i, text, message, capacity) != 0)
            return 1;
        if (text == NULL && cvar->datatype == MPI_CHAR) /* for who reads it through MPI_T */
            ch3_offload_config_text(config, i, cvar->addr, cvar->count);
    }
    /* MPICH has read the same text of the environment, or was told another value through MPI_T. It reads no
     * files of settings. */
    if (MPIR_CVAR_CH3_PORT_RANGE.low != 0 || MPIR_CVAR_CH3_PORT_RANGE.high != 0) {
        config->port_range.low = MPIR_CVAR_CH3_PORT_RANGE.low;
        config->port_range.high = MPIR_CVAR_CH3_PORT_RANGE.high;
    } else {
        MPIR_CVAR_CH3_PORT_RANGE.low = config->port_range.low;
        MPIR_CVAR_CH3_PORT_RANGE.high = config->port_range.high;
    }
#ifndef MPICH_IS_THREADED
    /* MPICH then takes a send to oneself that is not done at once for a deadlock. */
    if (strcmp(config->nic, "thread") == 0) {
        snprintf(message, capacity, "MPIR_CVAR_CH3_OFFLOAD_NIC=thread needs an MPICH that was configured "
                     "with threads: take --enable-threads=multiple, or host");
        return 1;
    }
    if (strcmp(config->nic, "auto") == 0)
        config->nic = "host";
#endif
    return ch3_offload_config_check(config, message, capacity);
}
