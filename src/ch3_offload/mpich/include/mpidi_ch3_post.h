/*
 * The ch3:offload channel. The progress engine, as MPICH's core calls it.
 */

#ifndef MPIDI_CH3_POST_H_INCLUDED
#define MPIDI_CH3_POST_H_INCLUDED

#include "ch3_mpich.h"

#define MPIDI_CH3_Progress_start(progress_state_) \
    ((progress_state_)->ch.completion_count = MPIDI_CH3I_progress_completion_count)
#define MPIDI_CH3_Progress_end(progress_state_)

int MPIDI_CH3I_Progress(int blocking, MPID_Progress_state * state);
#define MPIDI_CH3_Progress_test() MPIDI_CH3I_Progress(FALSE, NULL)
#define MPIDI_CH3_Progress_wait(state) MPIDI_CH3I_Progress(TRUE, state)
#define MPIDI_CH3_Progress_poke() (MPIDI_CH3_Progress_test())

#undef MPID_Barrier
#define MPID_Barrier MPIDI_CH3I_Barrier
int MPIDI_CH3I_Barrier(MPIR_Comm * comm, MPIDI_CH3I_Errflag_arg_t errflag);

/* The network processor carries out nonblocking collective operations (ch3_schedules.c). */
#undef MPIR_Sched_start
#define MPIR_Sched_start MPIDI_CH3I_Sched_start
int MPIDI_CH3I_Sched_start(struct MPIDU_Sched *s, MPIR_Comm * comm, MPIR_Request ** request);

/* It knows callbacks by their functions. One is static in its file, and equal to one that is not: it becomes
 * that by its name. */
#undef MPIR_Sched_cb
#define MPIR_Sched_cb(callback_, ...) \
    MPIDU_Sched_cb(MPIDI_CH3I_Known_callback(#callback_, callback_), __VA_ARGS__)
MPIR_Sched_cb_t *MPIDI_CH3I_Known_callback(const char *name, MPIR_Sched_cb_t * callback);

/* Info of a communicator may name its traffic class (ch3_classes.c). */
#undef MPID_Comm_set_hints
#define MPID_Comm_set_hints MPIDI_CH3I_Set_comm_hints
int MPIDI_CH3I_Set_comm_hints(MPIR_Comm * comm, MPIR_Info * info);
#if MPICH_NUMVERSION >= 40003000
/* Since 4.0.3, MPICH does not call it where this function's last argument is true, which says that the
 * communicator is being made. Here that argument is always false. */
#define MPII_Comm_set_hints(comm_, info_, is_new_) \
    MPII_Comm_set_hints(comm_, info_, MPIDI_CH3I_IS_NEW_##is_new_)
#define MPIDI_CH3I_IS_NEW_true false
#define MPIDI_CH3I_IS_NEW_false false
#define MPIDI_CH3I_IS_NEW_bool bool
#endif

/* The engine takes messages to oneself: calls of MPIDI_Isend_self, whose first argument is buf, become
 * calls of the channel's function. Its definition, where that argument is a declaration, gets another
 * name. */
#define MPIDI_Isend_self(first_, ...) MPIDI_CH3I_ISEND_SELF_##first_, __VA_ARGS__)
#define MPIDI_CH3I_ISEND_SELF_buf MPIDI_CH3I_Isend_self(buf
#define MPIDI_CH3I_ISEND_SELF_const MPIDI_CH3I_Stock_isend_self(const
int MPIDI_CH3I_Isend_self(const void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag,
                          MPIR_Comm * comm, int context_offset, int request_type, MPIR_Request ** request);

/* Likewise MPID_Recv: the channel's function receives a message that waits without a request. */
#define MPID_Recv(first_, ...) MPIDI_CH3I_RECV_##first_, __VA_ARGS__)
#define MPIDI_CH3I_RECV_buf MPIDI_CH3I_Recv(buf
#define MPIDI_CH3I_RECV_p MPIDI_CH3I_Recv(p
#define MPIDI_CH3I_RECV_NULL MPIDI_CH3I_Recv(NULL
#define MPIDI_CH3I_RECV_void MPIDI_CH3I_Stock_recv(void
int MPIDI_CH3I_Recv(void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag, MPIR_Comm * comm,
                    int attr, MPI_Status * status, MPIR_Request ** request);
int MPIDI_CH3I_Stock_recv(void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag,
                          MPIR_Comm * comm, int attr, MPI_Status * status, MPIR_Request ** request);

/* Likewise two algorithms, without callbacks (ch3_collectives.c). */
#define MPIR_Iallgather_intra_sched_recursive_doubling(first_, ...) \
    MPIDI_CH3I_IALLGATHER_##first_, __VA_ARGS__)
#define MPIDI_CH3I_IALLGATHER_sendbuf MPIDI_CH3I_Iallgather_doubling(sendbuf
#define MPIDI_CH3I_IALLGATHER_const MPIR_Iallgather_intra_sched_recursive_doubling(const
int MPIDI_CH3I_Iallgather_doubling(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype,
                                   void *recvbuf, MPI_Aint recvcount, MPI_Datatype recvtype, MPIR_Comm * comm,
                                   MPIR_Sched_t s);
#define MPIR_Iscatter_intra_sched_binomial(first_, ...) MPIDI_CH3I_ISCATTER_##first_, __VA_ARGS__)
#define MPIDI_CH3I_ISCATTER_sendbuf MPIDI_CH3I_Iscatter_binomial(sendbuf
#define MPIDI_CH3I_ISCATTER_const MPIR_Iscatter_intra_sched_binomial(const
int MPIDI_CH3I_Iscatter_binomial(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype,
                                 void *recvbuf, MPI_Aint recvcount, MPI_Datatype recvtype, int root,
                                 MPIR_Comm * comm, MPIR_Sched_t s);

/* Likewise MPIR_Request_free_impl: MPI_Finalize finishes a receive that was freed while it was active
 * (ch3_recvq.c). */
#define MPIR_Request_free_impl(first_) MPIDI_CH3I_REQUEST_FREE_##first_)
#define MPIDI_CH3I_REQUEST_FREE_request_ptr MPIDI_CH3I_Request_free(request_ptr
#define MPIDI_CH3I_REQUEST_FREE_request MPIDI_CH3I_Request_free(request
#define MPIDI_CH3I_REQUEST_FREE_MPIR_Request MPIDI_CH3I_Stock_request_free(MPIR_Request
int MPIDI_CH3I_Request_free(MPIR_Request * request);
int MPIDI_CH3I_Stock_request_free(MPIR_Request * request);

/* Likewise MPIR_T_env_finalize: the tables of MPI_T stay until the process ends. MPICH makes them once, and
 * crashes where they are used afterwards: by the next session, or the next MPI_T_init_thread. */
#define MPIR_T_env_finalize(...) MPIDI_CH3I_T_ENV_FINALIZE_##__VA_ARGS__
#define MPIDI_CH3I_T_ENV_FINALIZE_ ((void) 0)
#define MPIDI_CH3I_T_ENV_FINALIZE_void MPIDI_CH3I_Stock_t_env_finalize(void)
void MPIDI_CH3I_Stock_t_env_finalize(void);

/* Likewise MPIDI_CH3_PG_Destroy: CH3 calls it where a static variable, pg_world, names the process group of
 * this world, and would still do so in the next session (ch3_worlds.c). */
#define MPIDI_CH3_PG_Destroy(first_) MPIDI_CH3I_PG_DESTROY_##first_)
#define MPIDI_CH3I_PG_DESTROY_pg MPIDI_CH3I_PG_destroy(pg, &pg_world
#define MPIDI_CH3I_PG_DESTROY_struct MPIDI_CH3I_Unused_pg_destroy(struct
struct MPIDI_PG;
int MPIDI_CH3I_PG_destroy(struct MPIDI_PG *pg, struct MPIDI_PG **world);

/* Likewise what communicators know of failed processes (ch3_failure.c, ch3_agreement.c, ch3_shrink.c). */
#define MPID_Comm_failure_ack(first_) MPIDI_CH3I_FAILURE_ACK_##first_)
#define MPIDI_CH3I_FAILURE_ACK_comm_ptr MPIDI_CH3I_Failure_ack(comm_ptr
#define MPIDI_CH3I_FAILURE_ACK_MPIR_Comm MPIDI_CH3I_Stock_failure_ack(MPIR_Comm
#define MPID_Comm_failure_get_acked(first_, ...) MPIDI_CH3I_FAILURE_GET_ACKED_##first_, __VA_ARGS__)
#define MPIDI_CH3I_FAILURE_GET_ACKED_comm_ptr MPIDI_CH3I_Failure_get_acked(comm_ptr
#define MPIDI_CH3I_FAILURE_GET_ACKED_MPIR_Comm MPIDI_CH3I_Stock_failure_get_acked(MPIR_Comm
#define MPIR_Comm_agree_impl(first_, ...) MPIDI_CH3I_COMM_AGREE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_COMM_AGREE_comm_ptr MPIDI_CH3I_Comm_agree(comm_ptr
#define MPIDI_CH3I_COMM_AGREE_MPIR_Comm MPIDI_CH3I_Stock_comm_agree(MPIR_Comm
#define MPIR_Comm_shrink_impl(first_, ...) MPIDI_CH3I_COMM_SHRINK_##first_, __VA_ARGS__)
#define MPIDI_CH3I_COMM_SHRINK_comm_ptr MPIDI_CH3I_Comm_shrink(comm_ptr
#define MPIDI_CH3I_COMM_SHRINK_MPIR_Comm MPIDI_CH3I_Stock_comm_shrink(MPIR_Comm
int MPIDI_CH3I_Failure_ack(MPIR_Comm * comm);
int MPIDI_CH3I_Stock_failure_ack(MPIR_Comm * comm);
int MPIDI_CH3I_Failure_get_acked(MPIR_Comm * comm, MPIR_Group ** group);
int MPIDI_CH3I_Stock_failure_get_acked(MPIR_Comm * comm, MPIR_Group ** group);
int MPIDI_CH3I_Comm_agree(MPIR_Comm * comm, int *flag);
int MPIDI_CH3I_Stock_comm_agree(MPIR_Comm * comm, int *flag);
int MPIDI_CH3I_Comm_shrink(MPIR_Comm * comm, MPIR_Comm ** new_comm);
int MPIDI_CH3I_Stock_comm_shrink(MPIR_Comm * comm, MPIR_Comm ** new_comm);

/* MPICH links errors, and its collective operations link one to the error that it was made of. That makes a
 * ring, which MPICH follows for ever. So of two errors, the one that tells more is kept alone. */
#undef MPIR_ERR_ADD
#define MPIR_ERR_ADD(error_, other_) ((error_) = MPIDI_CH3I_More_telling(error_, other_))
int MPIDI_CH3I_More_telling(int error, int other);

/* In MPICH's collective operations, a receive that fails is no fatal error: the communicator's handler
 * decides. */
#undef MPIR_ERR_POPFATAL
#define MPIR_ERR_POPFATAL(error_) MPIR_ERR_POP(error_)

#if MPIDI_CH3I_MPICH_IS(4, 1)
/* Likewise MPID_Iprobe, where MPICH frees a communicator and looks for messages that nobody has received: a
 * dead process or a revocation does not keep the communicator (ch3_recvq.c). */
#define MPID_Iprobe(first_, ...) MPIDI_CH3I_IPROBE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_IPROBE_MPI_ANY_SOURCE MPIDI_CH3I_Iprobe_last(MPI_ANY_SOURCE
#define MPIDI_CH3I_IPROBE_source MPID_Iprobe(source
#define MPIDI_CH3I_IPROBE_int MPID_Iprobe(int
int MPIDI_CH3I_Iprobe_last(int source, int tag, MPIR_Comm * comm, int attr, int *flag, MPI_Status * status);
#endif

/* Likewise partitioned communication, which CH3 does not have (ch3_partitioned.c). */
#define MPID_Psend_init(first_, ...) MPIDI_CH3I_PSEND_INIT_##first_, __VA_ARGS__)
#define MPIDI_CH3I_PSEND_INIT_buf MPIDI_CH3I_Psend_init(buf
#define MPIDI_CH3I_PSEND_INIT_const MPIDI_CH3I_Stock_psend_init(const
#define MPIDI_CH3I_PSEND_INIT_void MPIDI_CH3I_Stock_psend_init(void     /* in MPICH 4.0.0 */
#define MPID_Precv_init(first_, ...) MPIDI_CH3I_PRECV_INIT_##first_, __VA_ARGS__)
#define MPIDI_CH3I_PRECV_INIT_buf MPIDI_CH3I_Precv_init(buf
#define MPIDI_CH3I_PRECV_INIT_void MPIDI_CH3I_Stock_precv_init(void
#define MPID_Pready_range(first_, ...) MPIDI_CH3I_PREADY_RANGE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_PREADY_RANGE_partition MPIDI_CH3I_Pready_range(partition
#define MPIDI_CH3I_PREADY_RANGE_partition_low MPIDI_CH3I_Pready_range(partition_low
#define MPIDI_CH3I_PREADY_RANGE_int MPIDI_CH3I_Stock_pready_range(int
#define MPID_Pready_list(first_, ...) MPIDI_CH3I_PREADY_LIST_##first_, __VA_ARGS__)
#define MPIDI_CH3I_PREADY_LIST_length MPIDI_CH3I_Pready_list(length
#define MPIDI_CH3I_PREADY_LIST_int MPIDI_CH3I_Stock_pready_list(int
#define MPID_Parrived(first_, ...) MPIDI_CH3I_PARRIVED_##first_, __VA_ARGS__)
#define MPIDI_CH3I_PARRIVED_request_ptr MPIDI_CH3I_Parrived(request_ptr
#define MPIDI_CH3I_PARRIVED_MPIR_Request MPIDI_CH3I_Stock_parrived(MPIR_Request
#define MPID_Startall(first_, ...) MPIDI_CH3I_STARTALL_##first_, __VA_ARGS__)
#define MPIDI_CH3I_STARTALL_1 MPIDI_CH3I_Startall(1
#define MPIDI_CH3I_STARTALL_count MPIDI_CH3I_Startall(count
#define MPIDI_CH3I_STARTALL_int MPIDI_CH3I_Stock_startall(int
/* MPICH's core forgets their requests: in MPI_Testall, MPI_Request_get_status, and when one is inactive. */
#define MPIR_Request_get_error(first_) MPIDI_CH3I_REQUEST_GET_ERROR_##first_)
#define MPIDI_CH3I_REQUEST_GET_ERROR_request_ptrs MPIDI_CH3I_Request_get_error(request_ptrs
#define MPIDI_CH3I_REQUEST_GET_ERROR_MPIR_Request MPIDI_CH3I_Stock_request_get_error(MPIR_Request
#define MPIR_Request_completion_processing(first_, ...) \
    MPIDI_CH3I_REQUEST_COMPLETION_##first_, __VA_ARGS__)
#define MPIDI_CH3I_REQUEST_COMPLETION_rreq MPIDI_CH3I_Request_completion(rreq
#define MPIDI_CH3I_REQUEST_COMPLETION_request_ptr MPIDI_CH3I_Request_completion(request_ptr
#define MPIDI_CH3I_REQUEST_COMPLETION_request_ptrs MPIDI_CH3I_Request_completion(request_ptrs
#define MPIDI_CH3I_REQUEST_COMPLETION_MPIR_Request MPIDI_CH3I_Stock_request_completion(MPIR_Request
int MPIDI_CH3I_Request_get_error(MPIR_Request * request);
int MPIDI_CH3I_Stock_request_get_error(MPIR_Request * request);
int MPIDI_CH3I_Request_completion(MPIR_Request * request, MPI_Status * status);
int MPIDI_CH3I_Stock_request_completion(MPIR_Request * request, MPI_Status * status);
int MPIDI_CH3I_Psend_init(const void *buf, int partitions, MPI_Count count, MPI_Datatype type, int rank,
                          int tag, MPIR_Comm * comm, MPIR_Info * info, MPIR_Request ** request);
int MPIDI_CH3I_Precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype type, int rank, int tag,
                          MPIR_Comm * comm, MPIR_Info * info, MPIR_Request ** request);
int MPIDI_CH3I_Stock_precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype type, int rank,
                                int tag, MPIR_Comm * comm, MPIR_Info * info, MPIR_Request ** request);
int MPIDI_CH3I_Pready_range(int low, int high, MPIR_Request * request);
int MPIDI_CH3I_Stock_pready_range(int low, int high, MPIR_Request * request);
int MPIDI_CH3I_Pready_list(int length, const int *partitions, MPIR_Request * request);
int MPIDI_CH3I_Stock_pready_list(int length, MPIDI_CH3I_Partition_list_t partitions, MPIR_Request * request);
int MPIDI_CH3I_Parrived(MPIR_Request * request, int partition, int *flag);
int MPIDI_CH3I_Stock_parrived(MPIR_Request * request, int partition, int *flag);
int MPIDI_CH3I_Startall(int count, MPIR_Request * requests[]);
int MPIDI_CH3I_Stock_startall(int count, MPIR_Request * requests[]);

#if !MPIDI_CH3I_MPICH_IS(4, 2)
/* Likewise MPIR_pmi_init and MPIR_pmi_finalize: the process manager is met once, and left at exit, as MPICH
 * 4.2 does (ch3_process_manager.c). */
#define MPIR_pmi_init(...) MPIDI_CH3I_PMI_INIT_##__VA_ARGS__
#define MPIDI_CH3I_PMI_INIT_ MPIDI_CH3I_Pmi_init()
#define MPIDI_CH3I_PMI_INIT_void MPIDI_CH3I_Stock_pmi_init(void)
#define MPIR_pmi_finalize(...) MPIDI_CH3I_PMI_FINALIZE_##__VA_ARGS__
#define MPIDI_CH3I_PMI_FINALIZE_ MPIDI_CH3I_Pmi_finalize()
#define MPIDI_CH3I_PMI_FINALIZE_void MPIDI_CH3I_Stock_pmi_finalize(void)
int MPIDI_CH3I_Pmi_init(void);
int MPIDI_CH3I_Stock_pmi_init(void);
void MPIDI_CH3I_Pmi_finalize(void);
void MPIDI_CH3I_Stock_pmi_finalize(void);

/* Likewise MPI_Request_get_status (ch3_partitioned.c). From MPICH 4.2 on it calls MPIR_Test, and so ends a
 * round of any persistent request. */
#define MPIR_Request_get_status_impl(first_, ...) MPIDI_CH3I_REQUEST_GET_STATUS_##first_, __VA_ARGS__)
#define MPIDI_CH3I_REQUEST_GET_STATUS_request_ptr MPIDI_CH3I_Request_get_status(request_ptr
#define MPIDI_CH3I_REQUEST_GET_STATUS_MPIR_Request MPIDI_CH3I_Stock_request_get_status(MPIR_Request
int MPIDI_CH3I_Request_get_status(MPIR_Request * request, int *flag, MPI_Status * status);
int MPIDI_CH3I_Stock_request_get_status(MPIR_Request * request, int *flag, MPI_Status * status);

/* Likewise the algorithms of MPI_Allreduce: what they note is an error (ch3_comm.c). */
#define MPIR_Allreduce_intra_smp(first_, ...) MPIDI_CH3I_SMP_##first_, __VA_ARGS__)
#define MPIDI_CH3I_SMP_sendbuf MPIDI_CH3I_Allreduce_by(MPIR_Allreduce_intra_smp, sendbuf
#define MPIDI_CH3I_SMP_const MPIR_Allreduce_intra_smp(const
#define MPIR_Allreduce_intra_recursive_doubling(first_, ...) MPIDI_CH3I_DOUBLING_##first_, __VA_ARGS__)
#define MPIDI_CH3I_DOUBLING_sendbuf \
    MPIDI_CH3I_Allreduce_by(MPIR_Allreduce_intra_recursive_doubling, sendbuf
#define MPIDI_CH3I_DOUBLING_const MPIR_Allreduce_intra_recursive_doubling(const
#define MPIR_Allreduce_intra_reduce_scatter_allgather(first_, ...) MPIDI_CH3I_SCATTER_##first_, __VA_ARGS__)
#define MPIDI_CH3I_SCATTER_sendbuf \
    MPIDI_CH3I_Allreduce_by(MPIR_Allreduce_intra_reduce_scatter_allgather, sendbuf
#define MPIDI_CH3I_SCATTER_const MPIR_Allreduce_intra_reduce_scatter_allgather(const
typedef int MPIDI_CH3I_Allreduce_t(const void *sendbuf, void *recvbuf, MPI_Aint count, MPI_Datatype type,
                                   MPI_Op op, MPIR_Comm * comm, MPIR_Errflag_t * errflag);
int MPIDI_CH3I_Allreduce_by(MPIDI_CH3I_Allreduce_t * algorithm, const void *sendbuf, void *recvbuf,
                            MPI_Aint count, MPI_Datatype type, MPI_Op op, MPIR_Comm * comm,
                            MPIR_Errflag_t * errflag);

/* Likewise MPIR_Free_contextid: the context ids of MPI_COMM_WORLD and MPI_COMM_SELF are never anybody else's,
 * and MPI_Init and MPI_Session_init need them again. */
#define MPIR_Free_contextid(first_) MPIDI_CH3I_FREE_CONTEXTID_##first_)
#define MPIDI_CH3I_FREE_CONTEXTID_COMM_SELF_CTXID MPIDI_CH3I_Free_contextid(COMM_SELF_CTXID
#define MPIDI_CH3I_FREE_CONTEXTID_COMM_WORLD_CTXID MPIDI_CH3I_Free_contextid(COMM_WORLD_CTXID
#define MPIDI_CH3I_FREE_CONTEXTID_ICOMM_WORLD_CTXID MPIDI_CH3I_Free_contextid(ICOMM_WORLD_CTXID
#define MPIDI_CH3I_FREE_CONTEXTID_comm_ptr MPIDI_CH3I_Free_contextid(comm_ptr
#define MPIDI_CH3I_FREE_CONTEXTID_new_context_id MPIDI_CH3I_Free_contextid(new_context_id
#define MPIDI_CH3I_FREE_CONTEXTID_new_recvcontext_id MPIDI_CH3I_Free_contextid(new_recvcontext_id
#define MPIDI_CH3I_FREE_CONTEXTID_recvcontext_id MPIDI_CH3I_Free_contextid(recvcontext_id
#define MPIDI_CH3I_FREE_CONTEXTID_MPIR_Context_id_t MPIDI_CH3I_Stock_free_contextid(MPIR_Context_id_t
void MPIDI_CH3I_Free_contextid(MPIR_Context_id_t id);
void MPIDI_CH3I_Stock_free_contextid(MPIR_Context_id_t id);
#endif

/* Likewise MPIDI_PG_Create_from_string, MPIDI_Comm_spawn_multiple, MPID_Intercomm_exchange_map and
 * MPIR_Comm_split_type_by_node: processes have names, no process is spawned that could not be met, and worlds
 * share no memory (ch3_worlds.c). */
#define MPIDI_PG_Create_from_string(first_, ...) MPIDI_CH3I_PG_FROM_STRING_##first_, __VA_ARGS__)
#define MPIDI_CH3I_PG_FROM_STRING_pg_str MPIDI_CH3I_PG_from_string(pg_str
#define MPIDI_CH3I_PG_FROM_STRING_const MPIDI_CH3I_Stock_pg_from_string(const
#define MPIDI_Comm_spawn_multiple(first_, ...) MPIDI_CH3I_COMM_SPAWN_##first_, __VA_ARGS__)
#define MPIDI_CH3I_COMM_SPAWN_count MPIDI_CH3I_Comm_spawn(count
#define MPIDI_CH3I_COMM_SPAWN_int MPIDI_CH3I_Stock_comm_spawn(int
#if MPIDI_CH3I_MPICH_IS(5, 0)
#define MPID_Intercomm_exchange(first_, ...) MPIDI_CH3I_EXCHANGE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_EXCHANGE_local_comm_ptr MPIDI_CH3I_Intercomm_exchange(local_comm_ptr
#define MPIDI_CH3I_EXCHANGE_MPIR_Comm MPIDI_CH3I_Stock_intercomm_exchange(MPIR_Comm
#define determine_low_group(first_, ...) MPIDI_CH3I_LOW_GROUP_##first_, __VA_ARGS__)
#define MPIDI_CH3I_LOW_GROUP_remote_lpids MPIDI_CH3I_Determine_low_group(remote_lpids
#define MPIDI_CH3I_LOW_GROUP_MPIR_Lpid ATTRIBUTE((unused)) determine_low_group(MPIR_Lpid
int MPIDI_CH3I_Intercomm_exchange(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm, int remote_leader,
                                  int tag, int context_id, int *remote_context_id, int *remote_size,
                                  MPIR_Lpid ** remote_lpids, int timeout);
int MPIDI_CH3I_Stock_intercomm_exchange(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm,
                                        int remote_leader, int tag, int context_id, int *remote_context_id,
                                        int *remote_size, MPIR_Lpid ** remote_lpids, int timeout);
int MPIDI_CH3I_Determine_low_group(MPIR_Lpid remote_lpid, bool * is_low_group);
#else
#define MPID_Intercomm_exchange_map(first_, ...) MPIDI_CH3I_EXCHANGE_MAP_##first_, __VA_ARGS__)
#define MPIDI_CH3I_EXCHANGE_MAP_local_comm_ptr MPIDI_CH3I_Intercomm_exchange_map(local_comm_ptr
#define MPIDI_CH3I_EXCHANGE_MAP_MPIR_Comm MPIDI_CH3I_Stock_intercomm_exchange_map(MPIR_Comm
int MPIDI_CH3I_Intercomm_exchange_map(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm, int remote_leader,
                                      int *remote_size, uint64_t ** remote_lpids, int *is_low_group);
int MPIDI_CH3I_Stock_intercomm_exchange_map(MPIR_Comm * comm, int leader, MPIR_Comm * peer_comm,
                                            int remote_leader, int *remote_size, uint64_t ** remote_lpids,
                                            int *is_low_group);
#endif
#if MPIDI_CH3I_MPICH_IS(4, 2)
#define MPIDI_CH3I_STOCK_SPLIT_BY_NODE split_type_by_node
#define split_type_by_node(first_, ...) MPIDI_CH3I_SPLIT_BY_NODE_##first_, __VA_ARGS__)
#else
#define MPIDI_CH3I_STOCK_SPLIT_BY_NODE MPIR_Comm_split_type_by_node
#define MPIR_Comm_split_type_by_node(first_, ...) MPIDI_CH3I_SPLIT_BY_NODE_##first_, __VA_ARGS__)
#endif
#define MPIDI_CH3I_SPLIT_BY_NODE_comm_ptr MPIDI_CH3I_Split_by_node(MPIDI_CH3I_STOCK_SPLIT_BY_NODE, comm_ptr
#define MPIDI_CH3I_SPLIT_BY_NODE_user_comm_ptr \
    MPIDI_CH3I_Split_by_node(MPIDI_CH3I_STOCK_SPLIT_BY_NODE, user_comm_ptr
#define MPIDI_CH3I_SPLIT_BY_NODE_MPIR_Comm MPIDI_CH3I_STOCK_SPLIT_BY_NODE(MPIR_Comm
typedef int MPIDI_CH3I_Split_t(MPIR_Comm * comm, int key, MPIR_Comm ** newcomm);
int MPIDI_CH3I_Split_by_node(MPIDI_CH3I_Split_t * stock, MPIR_Comm * comm, int key, MPIR_Comm ** newcomm);
struct MPIDI_PG;
int MPIDI_CH3I_PG_from_string(const char *text, struct MPIDI_PG **pg, int *is_new);
int MPIDI_CH3I_Stock_pg_from_string(const char *text, struct MPIDI_PG **pg, int *is_new);
int MPIDI_CH3I_Comm_spawn(int count, char **commands, char ***argvs, const int *maxprocs, MPIR_Info ** infos,
                          int root, MPIR_Comm * comm, MPIR_Comm ** intercomm, int *errcodes);
int MPIDI_CH3I_Stock_comm_spawn(int count, char **commands, char ***argvs, const int *maxprocs,
                                MPIR_Info ** infos, int root, MPIR_Comm * comm, MPIR_Comm ** intercomm,
                                int *errcodes);

/* Likewise MPID_Type_free_hook, where CH3's does nothing: a datatype takes its list of pieces with it
 * (ch3_layout.c). */
#define MPID_Type_free_hook(first_) MPIDI_CH3I_TYPE_FREE_HOOK_##first_)
#define MPIDI_CH3I_TYPE_FREE_HOOK_ptr MPIDI_CH3I_Type_free_hook(ptr
#define MPIDI_CH3I_TYPE_FREE_HOOK_MPIR_Datatype MPIDI_CH3I_Stock_type_free_hook(MPIR_Datatype
int MPIDI_CH3I_Type_free_hook(MPIR_Datatype * type);
int MPIDI_CH3I_Stock_type_free_hook(MPIR_Datatype * type);

/* Likewise the functions of CH3 for operations on windows and for epochs: the channel's decide whether
 * the network processor serves the window (ch3_windows.c, ch3_window_ops.c). */
#define MPIDI_CH3I_Put(first_, ...) MPIDI_CH3I_PUT_##first_, __VA_ARGS__)
#define MPIDI_CH3I_PUT_origin_addr MPIDI_CH3I_Window_put(origin_addr
#define MPIDI_CH3I_PUT_const MPIDI_CH3I_Stock_put(const
#define MPIDI_CH3I_Get(first_, ...) MPIDI_CH3I_GET_##first_, __VA_ARGS__)
#define MPIDI_CH3I_GET_origin_addr MPIDI_CH3I_Window_get(origin_addr
#define MPIDI_CH3I_GET_void MPIDI_CH3I_Stock_get(void
#define MPIDI_CH3I_Accumulate(first_, ...) MPIDI_CH3I_ACCUMULATE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_ACCUMULATE_origin_addr MPIDI_CH3I_Window_accumulate(origin_addr
#define MPIDI_CH3I_ACCUMULATE_const MPIDI_CH3I_Stock_accumulate(const
#define MPIDI_CH3I_Get_accumulate(first_, ...) MPIDI_CH3I_GET_ACCUMULATE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_GET_ACCUMULATE_origin_addr MPIDI_CH3I_Window_get_accumulate(origin_addr
#define MPIDI_CH3I_GET_ACCUMULATE_const MPIDI_CH3I_Stock_get_accumulate(const
#define MPID_Rget_accumulate(first_, ...) MPIDI_CH3I_RGET_ACCUMULATE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_RGET_ACCUMULATE_origin_addr MPIDI_CH3I_Window_rget_accumulate(origin_addr
#define MPIDI_CH3I_RGET_ACCUMULATE_const MPIDI_CH3I_Stock_rget_accumulate(const
#define MPID_Fetch_and_op(first_, ...) MPIDI_CH3I_FETCH_AND_OP_##first_, __VA_ARGS__)
#define MPIDI_CH3I_FETCH_AND_OP_origin_addr MPIDI_CH3I_Window_fetch_and_op(origin_addr
#define MPIDI_CH3I_FETCH_AND_OP_const MPIDI_CH3I_Stock_fetch_and_op(const
#define MPID_Compare_and_swap(first_, ...) MPIDI_CH3I_COMPARE_AND_SWAP_##first_, __VA_ARGS__)
#define MPIDI_CH3I_COMPARE_AND_SWAP_origin_addr MPIDI_CH3I_Window_compare_and_swap(origin_addr
#define MPIDI_CH3I_COMPARE_AND_SWAP_const MPIDI_CH3I_Stock_compare_and_swap(const
#define MPID_Win_fence(first_, ...) MPIDI_CH3I_WIN_FENCE_##first_, __VA_ARGS__)
#define MPIDI_CH3I_WIN_FENCE_assert MPIDI_CH3I_Window_fence(assert
#define MPIDI_CH3I_WIN_FENCE_int MPIDI_CH3I_Stock_win_fence(int
#define MPID_Win_complete(first_) MPIDI_CH3I_WIN_COMPLETE_##first_)
#define MPIDI_CH3I_WIN_COMPLETE_win_ptr MPIDI_CH3I_Window_complete(win_ptr
#define MPIDI_CH3I_WIN_COMPLETE_MPIR_Win MPIDI_CH3I_Stock_win_complete(MPIR_Win
#define MPID_Win_lock(first_, ...) MPIDI_CH3I_WIN_LOCK_##first_, __VA_ARGS__)
#define MPIDI_CH3I_WIN_LOCK_lock_type MPIDI_CH3I_Window_lock(lock_type
#define MPIDI_CH3I_WIN_LOCK_int MPIDI_CH3I_Stock_win_lock(int
#define MPID_Win_unlock(first_, ...) MPIDI_CH3I_WIN_UNLOCK_##first_, __VA_ARGS__)
#define MPIDI_CH3I_WIN_UNLOCK_rank MPIDI_CH3I_Window_unlock(rank
#define MPIDI_CH3I_WIN_UNLOCK_int MPIDI_CH3I_Stock_win_unlock(int
#define MPID_Win_lock_all(first_, ...) MPIDI_CH3I_WIN_LOCK_ALL_##first_, __VA_ARGS__)
#define MPIDI_CH3I_WIN_LOCK_ALL_assert MPIDI_CH3I_Window_lock_all(assert
#define MPIDI_CH3I_WIN_LOCK_ALL_int MPIDI_CH3I_Stock_win_lock_all(int
#define MPID_Win_unlock_all(first_) MPIDI_CH3I_WIN_UNLOCK_ALL_##first_)
#define MPIDI_CH3I_WIN_UNLOCK_ALL_win_ptr MPIDI_CH3I_Window_unlock_all(win_ptr
#define MPIDI_CH3I_WIN_UNLOCK_ALL_MPIR_Win MPIDI_CH3I_Stock_win_unlock_all(MPIR_Win
#define MPID_Win_flush(first_, ...) MPIDI_CH3I_WIN_FLUSH_##first_, __VA_ARGS__)
#define MPIDI_CH3I_WIN_FLUSH_rank MPIDI_CH3I_Window_flush(rank
#define MPIDI_CH3I_WIN_FLUSH_int MPIDI_CH3I_Stock_win_flush(int
#define MPID_Win_flush_local(first_, ...) MPIDI_CH3I_WIN_FLUSH_LOCAL_##first_, __VA_ARGS__)
#define MPIDI_CH3I_WIN_FLUSH_LOCAL_rank MPIDI_CH3I_Window_flush_local(rank
#define MPIDI_CH3I_WIN_FLUSH_LOCAL_int MPIDI_CH3I_Stock_win_flush_local(int
#define MPID_Win_flush_all(first_) MPIDI_CH3I_WIN_FLUSH_ALL_##first_)
#define MPIDI_CH3I_WIN_FLUSH_ALL_win_ptr MPIDI_CH3I_Window_flush_all(win_ptr
#define MPIDI_CH3I_WIN_FLUSH_ALL_MPIR_Win MPIDI_CH3I_Stock_win_flush_all(MPIR_Win
#define MPID_Win_flush_local_all(first_) MPIDI_CH3I_WIN_FLUSH_LOCAL_ALL_##first_)
#define MPIDI_CH3I_WIN_FLUSH_LOCAL_ALL_win_ptr MPIDI_CH3I_Window_flush_local_all(win_ptr
#define MPIDI_CH3I_WIN_FLUSH_LOCAL_ALL_MPIR_Win MPIDI_CH3I_Stock_win_flush_local_all(MPIR_Win
int MPIDI_CH3I_Window_put(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type, int rank,
                          MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request);
int MPIDI_CH3I_Stock_put(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type, int rank,
                         MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                         MPIR_Request * request);
int MPIDI_CH3I_Window_get(void *origin, RMA_count_t origin_count, MPI_Datatype origin_type, int rank,
                          MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                          MPIR_Request * request);
int MPIDI_CH3I_Stock_get(void *origin, RMA_count_t origin_count, MPI_Datatype origin_type, int rank,
                         MPI_Aint displacement, RMA_count_t count, MPI_Datatype type, MPIR_Win * win,
                         MPIR_Request * request);
int MPIDI_CH3I_Window_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                 int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                 MPI_Op op, MPIR_Win * win, MPIR_Request * request);
int MPIDI_CH3I_Stock_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                MPI_Op op, MPIR_Win * win, MPIR_Request * request);
int MPIDI_CH3I_Window_get_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                     void *address, RMA_count_t result_count, MPI_Datatype result_type,
                                     int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                     MPI_Op op, MPIR_Win * win, MPIR_Request * request);
int MPIDI_CH3I_Stock_get_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                    void *address, RMA_count_t result_count, MPI_Datatype result_type,
                                    int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                    MPI_Op op, MPIR_Win * win, MPIR_Request * request);
int MPIDI_CH3I_Window_rget_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                      void *address, RMA_count_t result_count, MPI_Datatype result_type,
                                      int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                      MPI_Op op, MPIR_Win * win, MPIR_Request ** request);
int MPIDI_CH3I_Stock_rget_accumulate(const void *origin, RMA_count_t origin_count, MPI_Datatype origin_type,
                                     void *address, RMA_count_t result_count, MPI_Datatype result_type,
                                     int rank, MPI_Aint displacement, RMA_count_t count, MPI_Datatype type,
                                     MPI_Op op, MPIR_Win * win, MPIR_Request ** request);
int MPIDI_CH3I_Window_fetch_and_op(const void *origin, void *result, MPI_Datatype type, int rank, MPI_Aint
                                   displacement, MPI_Op op, MPIR_Win * win);
int MPIDI_CH3I_Stock_fetch_and_op(const void *origin, void *result, MPI_Datatype type, int rank, MPI_Aint
                                  displacement, MPI_Op op, MPIR_Win * win);
int MPIDI_CH3I_Window_compare_and_swap(const void *origin, const void *compare, void *result, MPI_Datatype
                                       type, int rank, MPI_Aint displacement, MPIR_Win * win);
int MPIDI_CH3I_Stock_compare_and_swap(const void *origin, const void *compare, void *result, MPI_Datatype
                                      type, int rank, MPI_Aint displacement, MPIR_Win * win);
int MPIDI_CH3I_Window_fence(int assert, MPIR_Win * win);
int MPIDI_CH3I_Stock_win_fence(int assert, MPIR_Win * win);
int MPIDI_CH3I_Window_complete(MPIR_Win * win);
int MPIDI_CH3I_Stock_win_complete(MPIR_Win * win);
int MPIDI_CH3I_Window_lock(int lock_type, int rank, int assert, MPIR_Win * win);
int MPIDI_CH3I_Stock_win_lock(int lock_type, int rank, int assert, MPIR_Win * win);
int MPIDI_CH3I_Window_unlock(int rank, MPIR_Win * win);
int MPIDI_CH3I_Stock_win_unlock(int rank, MPIR_Win * win);
int MPIDI_CH3I_Window_lock_all(int assert, MPIR_Win * win);
int MPIDI_CH3I_Stock_win_lock_all(int assert, MPIR_Win * win);
int MPIDI_CH3I_Window_unlock_all(MPIR_Win * win);
int MPIDI_CH3I_Stock_win_unlock_all(MPIR_Win * win);
int MPIDI_CH3I_Window_flush(int rank, MPIR_Win * win);
int MPIDI_CH3I_Stock_win_flush(int rank, MPIR_Win * win);
int MPIDI_CH3I_Window_flush_local(int rank, MPIR_Win * win);
int MPIDI_CH3I_Stock_win_flush_local(int rank, MPIR_Win * win);
int MPIDI_CH3I_Window_flush_all(MPIR_Win * win);
int MPIDI_CH3I_Stock_win_flush_all(MPIR_Win * win);
int MPIDI_CH3I_Window_flush_local_all(MPIR_Win * win);
int MPIDI_CH3I_Stock_win_flush_local_all(MPIR_Win * win);

#endif /* MPIDI_CH3_POST_H_INCLUDED */
