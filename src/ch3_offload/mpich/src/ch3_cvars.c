/*
 * The ch3:offload channel: control variables (MPIR_CVAR_CH3_OFFLOAD_*; environment or MPI_T) and their way
 * into the engine's settings. Defaults are those of ch3_offload_config_default(). All are declared as
 * strings: MPICH's own reader of ints wraps around, and ends MPI_Init without naming the value. The library
 * reads them, so that MPI, Portals and the tools take the same. MPIR_CVAR_CH3_PORT_RANGE is MPICH's own: it
 * is declared beside nemesis's TCP, and every build has it.
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
      type        : string
      default     : "64K"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        Longest message, in bytes, that is sent before its receive is known
        (eager). Longer ones are announced and sent when they are matched
        (rendezvous). From 0 to 16M.

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
      type        : string
      default     : "2M"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        Greatest size in bytes of the shared-memory ring through which a
        process sends to one peer on its node. A ring is made when the two
        first talk, takes 20 KiB then, and grows with demand. A power of two
        from 64K to 16M.

    - name        : MPIR_CVAR_CH3_OFFLOAD_SHM_MEMORY
      category    : CH3_OFFLOAD
      type        : string
      default     : "0"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        The most memory of the shared-memory rings of all processes of the
        job on the node, in bytes (K, M, G and T may follow), up to 1T. A
        ring has at least 20 KiB. 0: a sixteenth of the node's memory.

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
        cma    - one copy by the kernel, where it allows that

    - name        : MPIR_CVAR_CH3_OFFLOAD_FABRIC
      category    : CH3_OFFLOAD
      type        : string
      default     : "auto"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        Which transports are used.
        auto  - shared memory within a node, verbs between nodes
        shm   - shared memory only: all processes must be on one node
        verbs - InfiniBand or RoCE only, within a node too

    - name        : MPIR_CVAR_CH3_OFFLOAD_NIC
      category    : CH3_OFFLOAD
      type        : string
      default     : "host"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        Where messages are matched and moved.
        host    - inside the calls of MPI: lowest latency
        thread  - in a thread of the process, also while the program computes: needs a core to spare
        process - in a process that serves all ranks of the node (ch3-offload-nicd)
        auto    - thread where every process of the node has a core to spare, process if
                  each node of the job has at least one core left, otherwise host

    - name        : MPIR_CVAR_CH3_OFFLOAD_NIC_CORES
      category    : CH3_OFFLOAD
      type        : string
      default     : ""
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The processors on which the threads of NIC=thread run, by the kernel's
        numbers (3,7-9): each process of a node takes the entry of its number
        there, from the start again at the list's end. With NIC=process the
        node's processor may run on all of them. Empty: cores that nobody
        computes on, where there are any.

    - name        : MPIR_CVAR_CH3_OFFLOAD_NICD
      category    : CH3_OFFLOAD
      type        : string
      default     : ""
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The program of NIC=process that the first process of a node starts,
        where the user runs none. Empty: the ch3-offload-nicd that was
        installed with the library.

    - name        : MPIR_CVAR_CH3_OFFLOAD_CLASS
      category    : CH3_OFFLOAD
      type        : string
      default     : "default"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The traffic class of this process's messages, but for those of
        communicators with info ch3_offload_class: latency, default or bulk.
        What finds no room waits by class. Where all three have messages that
        wait, they send 4 : 2 : 1 bytes, and latency goes first.

    - name        : MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE
      category    : CH3_OFFLOAD
      type        : string
      default     : ""
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The RDMA port to use, as DEVICE, DEVICE:PORT or
        DEVICE:PORT:GID_INDEX (mlx5_0:1). Several with commas between: the
        first that work. Empty: the fastest active port of the node.

    - name        : MPIR_CVAR_CH3_OFFLOAD_VERBS_RAILS
      category    : CH3_OFFLOAD
      type        : string
      default     : "2"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The most RDMA ports that a process uses at once, 1 or 2: of those
        named in MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE or, without that, of
        those as fast as the best one. Long messages go over both, other
        messages over one or the other by their peer, and when one port
        fails the other takes its part.

    - name        : MPIR_CVAR_CH3_OFFLOAD_VERBS_POOL
      category    : CH3_OFFLOAD
      type        : string
      default     : "16M"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The most registered memory that a process keeps for what arrives
        over verbs, all peers together; it begins with 512 KiB and grows
        with demand. A number of bytes from 512K to 1G; the suffixes K, M
        and G stand for powers of 1024.

    - name        : MPIR_CVAR_CH3_OFFLOAD_VERBS_QUEUE_PAIRS
      category    : CH3_OFFLOAD
      type        : string
      default     : "256"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The most queue pairs that a process has at once. When more peers
        are spoken to, the connection that was not used for the longest
        time is closed, to be opened again when it is needed. From 2 to
        65536.

    - name        : MPIR_CVAR_CH3_OFFLOAD_PIN_CACHE
      category    : CH3_OFFLOAD
      type        : string
      default     : "on"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        Whether memory stays registered with the network device after its
        transfer, for the next one from or to the same place. on: yes, and
        what the program gives back to the system is seen and forgotten. off:
        each long message registers its memory anew. on-demand: the device
        fetches pages as it needs them, if it can, and does not pin them.

    - name        : MPIR_CVAR_CH3_OFFLOAD_PIN_BYTES
      category    : CH3_OFFLOAD
      type        : string
      default     : "0"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The most memory of the program that is registered at once, in bytes
        (K, M, G and T may follow), up to 1T. 0: half of the node's memory,
        shared by the job's processes there, and three quarters of what may
        be locked.

    - name        : MPIR_CVAR_CH3_OFFLOAD_PIN_REGIONS
      category    : CH3_OFFLOAD
      type        : string
      default     : "0"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The most pieces of the program's memory that are registered at once,
        from 1 to 1000000. 0: by the device's limits.

    - name        : MPIR_CVAR_CH3_OFFLOAD_INTERFACE
      category    : CH3_OFFLOAD
      type        : string
      default     : ""
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        The network interface, or IP address of the node, at which
        processes set up their connections over TCP. Several with commas
        between: the first that the node has. Names may be patterns
        (ib*), and those after an exclamation mark are excluded. Empty:
        the address of the RDMA port if it has one (RoCE), else the one
        that the host's name stands for.

    - name        : MPIR_CVAR_CH3_OFFLOAD_PEER_TIMEOUT
      category    : CH3_OFFLOAD
      type        : string
      default     : "10"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_BASIC
      scope       : MPI_T_SCOPE_ALL_EQ
      description : >-
        A process on another node that cannot be reached for so many
        seconds is taken for dead: operations with it fail. Shorter
        breaks are bridged, and nothing is lost. From 1 to 86400.

    - name        : MPIR_CVAR_CH3_OFFLOAD_SPIN
      category    : CH3_OFFLOAD
      type        : string
      default     : "-1"
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
      type        : string
      default     : "65536"
      class       : none
      verbosity   : MPI_T_VERBOSITY_USER_DETAIL
      scope       : MPI_T_SCOPE_LOCAL
      description : >-
        How many events a process keeps for its trace; the last ones. From
        1024 to 67108864.

=== END_MPI_T_CVAR_INFO_BLOCK ===
*/

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
    /* MPICH has read the same text, or was told another value through MPI_T. */
    config->first_port = MPIR_CVAR_CH3_PORT_RANGE.low;
    config->last_port = MPIR_CVAR_CH3_PORT_RANGE.high;
#ifndef MPICH_IS_THREADED
    /* MPICH then takes a send to oneself that is not done at once for a deadlock. */
    if (strcmp(config->nic, "thread") == 0) {
        MPL_snprintf(message, capacity, "MPIR_CVAR_CH3_OFFLOAD_NIC=thread needs an MPICH that was configured "
                     "with threads: take --enable-threads=multiple, or host");
        return 1;
    }
    if (strcmp(config->nic, "auto") == 0)
        config->nic = "host";
#endif
    return ch3_offload_config_check(config, message, capacity);
}
