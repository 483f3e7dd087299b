/*
 * The ch3:offload channel: what differs among the MPICHs that it is grafted into. The rest of the glue names
 * what it needs by the newest names.
 */
#ifndef CH3_MPICH_H_INCLUDED
#define CH3_MPICH_H_INCLUDED

/* Whether this is MPICH major.minor or later. */
#define MPIDI_CH3I_MPICH_IS(major, minor) (MPICH_NUMVERSION >= (major) * 10000000 + (minor) * 100000)

#if MPIDI_CH3I_MPICH_IS(4, 1)
typedef MPI_Aint RMA_count_t;        /* of elements, in operations on windows */
typedef const int *MPIDI_CH3I_Partition_list_t;
#define MPIR_CVAR_BARRIER_INTRA_ALGORITHM_dissemination MPIR_CVAR_BARRIER_INTRA_ALGORITHM_k_dissemination
#else
typedef int RMA_count_t;
typedef int *MPIDI_CH3I_Partition_list_t;
#define MPIR_PT2PT_ATTR_CONTEXT_OFFSET(attr_) (attr_)
#endif

#if !MPIDI_CH3I_MPICH_IS(4, 2)
#define MPIR_CONTEXT_PT2PT_OFFSET MPIR_CONTEXT_INTRA_PT2PT
#define MPIR_CONTEXT_COLL_OFFSET MPIR_CONTEXT_INTRA_COLL
#endif

/* Of a collective: whether a process has had an error. Before 4.2 it is noted where the argument points. */
#if MPIDI_CH3I_MPICH_IS(4, 2)
typedef MPIR_Errflag_t MPIDI_CH3I_Errflag_arg_t;
#define MPIDI_CH3I_ERRFLAG_ARG(flag_) (flag_)
#define MPIDI_CH3I_ERRFLAG_OF(arg_) (arg_)
#define MPIDI_CH3I_ERRFLAG_NOTE(arg_, flag_) ((void) (flag_))
#define MPIDI_CH3I_COMMA_ERRFLAG(flag_)
#else
typedef MPIR_Errflag_t *MPIDI_CH3I_Errflag_arg_t;
#define MPIDI_CH3I_ERRFLAG_ARG(flag_) (&(flag_))
#define MPIDI_CH3I_ERRFLAG_OF(arg_) (*(arg_))
#define MPIDI_CH3I_ERRFLAG_NOTE(arg_, flag_) (*(arg_) = (flag_))
#define MPIDI_CH3I_COMMA_ERRFLAG(flag_) , &(flag_)
#endif

/* Windows that MPI_Win_shared_query takes: since MPI 4.1 (MPICH 4.2) those of MPI_Win_create, too. */
#if MPIDI_CH3I_MPICH_IS(4, 2)
#define MPIDI_CH3I_MAY_QUERY(flavor_) ((flavor_) != MPI_WIN_FLAVOR_DYNAMIC)
#else
#define MPIDI_CH3I_MAY_QUERY(flavor_) \
    ((flavor_) == MPI_WIN_FLAVOR_SHARED || (flavor_) == MPI_WIN_FLAVOR_ALLOCATE)
#endif

/* The argument list of MPIR_Progress_hook_exec_all; and whether a send of a schedule is synchronous. */
#if MPIDI_CH3I_MPICH_IS(4, 3)
#define MPIDI_CH3I_IS_SYNC(send_) FALSE
#define MPIDI_CH3I_Progress_hooks(made_progress_) MPIR_Progress_hook_exec_all(-1, made_progress_)
#else
#define MPIDI_CH3I_IS_SYNC(send_) ((send_)->is_sync)
#define MPIDI_CH3I_Progress_hooks(made_progress_) MPIR_Progress_hook_exec_all(made_progress_)
#endif

#endif                          /* CH3_MPICH_H_INCLUDED */
