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

/* Of a collective: whether a process has had an error, and which. Before 4.2 it is noted where the argument
 * points; since 5.0 it is two bits of an argument that has others, too. */
#if MPIDI_CH3I_MPICH_IS(5, 0)
typedef int MPIR_Errflag_t;
#define MPIR_ERR_NONE 0
#define MPIDI_CH3I_ERRFLAG_OF(arg_) MPIR_COLL_ATTR_HAS_ERR(arg_)
#define MPIDI_CH3I_ERRFLAG_CLASS(flag_) \
    ((flag_) & MPIR_ERR_PROC_FAILED ? MPIX_ERR_PROC_FAILED : MPI_ERR_OTHER)
#else
#define MPIDI_CH3I_ERRFLAG_CLASS(flag_) ((int) (flag_))
#if MPIDI_CH3I_MPICH_IS(4, 2)
#define MPIDI_CH3I_ERRFLAG_OF(arg_) (arg_)
#else
#define MPIDI_CH3I_ERRFLAG_OF(arg_) (*(arg_))
#endif
#endif
#if MPIDI_CH3I_MPICH_IS(4, 2)
typedef MPIR_Errflag_t MPIDI_CH3I_Errflag_arg_t;
#define MPIDI_CH3I_ERRFLAG_ARG(flag_) (flag_)
#define MPIDI_CH3I_ERRFLAG_NOTE(arg_, flag_) ((void) (flag_))
#define MPIDI_CH3I_COMMA_ERRFLAG(flag_)
#else
typedef MPIR_Errflag_t *MPIDI_CH3I_Errflag_arg_t;
#define MPIDI_CH3I_ERRFLAG_ARG(flag_) (&(flag_))
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

/* Memory that is freed when the function returns (L), or if it fails (P): one that declares so has the label
 * fn_fail and the variable mpi_errno. */
#if MPIDI_CH3I_MPICH_IS(5, 0)
#define MPIDI_CH3I_CHKLMEM_DECL() MPIR_CHKLMEM_DECL()
#define MPIDI_CH3I_CHKLMEM_MALLOC(pointer_, bytes_) MPIR_CHKLMEM_MALLOC(pointer_, bytes_)
#define MPIDI_CH3I_CHKPMEM_DECL() MPIR_CHKPMEM_DECL()
#define MPIDI_CH3I_CHKPMEM_CALLOC(pointer_, bytes_) MPIR_CHKPMEM_CALLOC(pointer_, bytes_, MPL_MEM_OTHER)
#else
#define MPIDI_CH3I_CHKLMEM_DECL() MPIR_CHKLMEM_DECL(2)
#define MPIDI_CH3I_CHKLMEM_MALLOC(pointer_, bytes_) \
    MPIR_CHKLMEM_MALLOC(pointer_, void *, bytes_, mpi_errno, #pointer_, MPL_MEM_OTHER)
#define MPIDI_CH3I_CHKPMEM_DECL() MPIR_CHKPMEM_DECL(2)
#define MPIDI_CH3I_CHKPMEM_CALLOC(pointer_, bytes_) \
    MPIR_CHKPMEM_CALLOC(pointer_, void *, bytes_, mpi_errno, #pointer_, MPL_MEM_OTHER)
#endif

/* Datatypes as MPICH's core has them inside, and the numbers of processes. */
#if !MPIDI_CH3I_MPICH_IS(5, 0)
#define MPIR_BYTE_INTERNAL MPI_BYTE
#define MPIR_CHAR_INTERNAL MPI_CHAR
#define MPIR_INT_INTERNAL MPI_INT
#define MPIR_AINT_INTERNAL MPI_AINT
#define MPIR_INT64 MPI_INT64_T
#define MPIR_2INT32 MPI_2INT
typedef uint64_t MPIR_Lpid;
#endif

/* The context id in the packet of a revocation; and where a rank is in the communicator of its node
 * (negative: it is on another node). */
#if MPIDI_CH3I_MPICH_IS(5, 0)
#define MPIDI_CH3I_REVOKED_CONTEXT(pkt_) ((pkt_)->revoked_context_id)
#define MPIDI_CH3I_NODE_RANK(comm_, rank_) MPIR_Get_intranode_rank(comm_, rank_)
#else
#define MPIDI_CH3I_REVOKED_CONTEXT(pkt_) ((pkt_)->revoked_comm)
#define MPIDI_CH3I_NODE_RANK(comm_, rank_) ((comm_)->intranode_table[rank_])
#endif

#endif                          /* CH3_MPICH_H_INCLUDED */
