/*
 * The ch3:offload channel: control variables (MPIR_CVAR_CH3_OFFLOAD_*; environment or MPI_T) and their way into
 * the engine's settings. Defaults are those of ch3_offload_config_default().
 */

#include "mpidi_ch3_impl.h"

/*
=== BEGIN_MPI_T_CVAR_INFO_BLOCK ===

categories :
   - name : CH3_OFFLOAD
     description : the ch3:offload channel (matching engine, shared memory and network transports)

cvars:
    - name        : MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT
      category    : CH3_OFFLOAD
      type        : int
      default     : 65536
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        Longest message, in bytes, that is sent before its receive is known
        (eager). Longer ones are announced and sent when they are matched
        (rendezvous). From 0 to 16777216.

    - name        : MPIR_CVAR_CH3_OFFLOAD_UNEXPECTED_BUDGET
      category    : CH3_OFFLOAD
      type        : string
      default     : "64M"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        How much data of messages without a receive a process keeps, for all
        peers together. When it is used up, senders keep their data until
        the receive is posted. A number of bytes from 0 to 1T; the suffixes
        K, M, G and T stand for powers of 1024.

    - name        : MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER
      category    : CH3_OFFLOAD
      type        : string
      default     : "64M"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        How much data of standard-mode sends up to the eager limit a process
        copies so that they can return while the peer has no room for them.
        A number of bytes from 0 (off) to 1T; the suffixes K, M, G and T
        stand for powers of 1024.

    - name        : MPIR_CVAR_CH3_OFFLOAD_SHM_RING_SIZE
      category    : CH3_OFFLOAD
      type        : int
      default     : 262144
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        Size in bytes of the shared-memory ring through which a process
        sends to one peer on its node; made when the two first talk. A power
        of two from 65536 to 16777216.

    - name        : MPIR_CVAR_CH3_OFFLOAD_SHM_BULK
      category    : CH3_OFFLOAD
      type        : string
      default     : "auto"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        How large messages move between processes on a node.
        auto   - whichever works and is faster
        stream - copied through shared memory by both sides
        cma    - one copy by process_vm_writev, where the kernel allows it

    - name        : MPIR_CVAR_CH3_OFFLOAD_FABRIC
      category    : CH3_OFFLOAD
      type        : string
      default     : "auto"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        Which transports are used.
        auto - all that this node has, the fastest first
        shm  - shared memory only: all processes must be on one node

    - name        : MPIR_CVAR_CH3_OFFLOAD_SPIN
      category    : CH3_OFFLOAD
      type        : int
      default     : -1
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        How long a process that waits polls before it sleeps, at most, in
        microseconds. 0 sleeps at once; -1 adapts to how often polling paid
        off.

    - name        : MPIR_CVAR_CH3_OFFLOAD_TRACE
      category    : CH3_OFFLOAD
      type        : string
      default     : ""
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        Prefix of the files to which each process writes what its messages
        did, one file for each rank, for a browser's timeline viewer. Empty
        turns tracing off.

    - name        : MPIR_CVAR_CH3_OFFLOAD_TRACE_EVENTS
      category    : CH3_OFFLOAD
      type        : int
      default     : 65536
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        How many events a process keeps for its trace; the last ones. From
        1024 to 67108864.

=== END_MPI_T_CVAR_INFO_BLOCK ===
*/

static int set_size(const char *variable, const char *text, int64_t * bytes, char *message,
                    size_t capacity)
{
    if (ch3_offload_parse_size(text, bytes) == 0)
        return 0;
    MPL_snprintf(message, capacity,
                 "%s=%s: it takes a number of bytes, with K, M, G or T behind it if you like (64M)", variable,
                 text == NULL ? "" : text);
    return 1;
}

int MPIDI_CH3I_Settings(ch3_offload_config_t * config, char *message, size_t capacity)
{
    if (set_size("MPIR_CVAR_CH3_OFFLOAD_UNEXPECTED_BUDGET", MPIR_CVAR_CH3_OFFLOAD_UNEXPECTED_BUDGET,
                 &config->unexpected_budget_bytes, message, capacity) ||
        set_size("MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER", MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER,
                 &config->send_buffer_bytes, message, capacity))
        return 1;
    config->eager_limit_bytes = MPIR_CVAR_CH3_OFFLOAD_EAGER_LIMIT;
    config->shm_ring_bytes = MPIR_CVAR_CH3_OFFLOAD_SHM_RING_SIZE;
    config->shm_bulk = MPIR_CVAR_CH3_OFFLOAD_SHM_BULK;
    config->fabric = MPIR_CVAR_CH3_OFFLOAD_FABRIC;
    config->spin_us = MPIR_CVAR_CH3_OFFLOAD_SPIN;
    config->trace = MPIR_CVAR_CH3_OFFLOAD_TRACE == NULL ? "" : MPIR_CVAR_CH3_OFFLOAD_TRACE;
    config->trace_events = MPIR_CVAR_CH3_OFFLOAD_TRACE_EVENTS;
    return ch3_offload_config_check(config, message, capacity);
}
