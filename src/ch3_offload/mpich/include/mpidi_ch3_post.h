/*
 * The ch3:offload channel. The progress engine, as MPICH's core calls it.
 */

#ifndef MPIDI_CH3_POST_H_INCLUDED
#define MPIDI_CH3_POST_H_INCLUDED

#define MPIDI_CH3_Progress_start(progress_state_) \
    ((progress_state_)->ch.completion_count = MPIDI_CH3I_progress_completion_count)
#define MPIDI_CH3_Progress_end(progress_state_)

int MPIDI_CH3I_Progress(int blocking, MPID_Progress_state * state);
#define MPIDI_CH3_Progress_test() MPIDI_CH3I_Progress(FALSE, NULL)
#define MPIDI_CH3_Progress_wait(state) MPIDI_CH3I_Progress(TRUE, state)
#define MPIDI_CH3_Progress_poke() (MPIDI_CH3_Progress_test())

#undef MPID_Barrier
#define MPID_Barrier MPIDI_CH3I_Barrier
int MPIDI_CH3I_Barrier(MPIR_Comm * comm, MPIR_Errflag_t * errflag);

/* Info of a communicator may name its traffic class (ch3_classes.c). */
#undef MPID_Comm_set_hints
#define MPID_Comm_set_hints MPIDI_CH3I_Set_comm_hints
int MPIDI_CH3I_Set_comm_hints(MPIR_Comm * comm, MPIR_Info * info);

/* The engine takes messages to oneself: calls of MPIDI_Isend_self, whose first argument is buf, become calls of the
 * channel's function. Its definition, where that argument is a declaration, gets another name. */
#define MPIDI_Isend_self(first_, ...) MPIDI_CH3I_ISEND_SELF_##first_, __VA_ARGS__)
#define MPIDI_CH3I_ISEND_SELF_buf MPIDI_CH3I_Isend_self(buf
#define MPIDI_CH3I_ISEND_SELF_const MPIDI_CH3I_Stock_isend_self(const
int MPIDI_CH3I_Isend_self(const void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag,
                          MPIR_Comm * comm, int context_offset, int request_type, MPIR_Request ** request);

/* Likewise MPID_Recv: the channel's function receives a message that waits without a request. */
#define MPID_Recv(first_, ...) MPIDI_CH3I_RECV_##first_, __VA_ARGS__)
#define MPIDI_CH3I_RECV_buf MPIDI_CH3I_Recv(buf
#define MPIDI_CH3I_RECV_void MPIDI_CH3I_Stock_recv(void
int MPIDI_CH3I_Recv(void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag, MPIR_Comm * comm,
                    int context_offset, MPI_Status * status, MPIR_Request ** request);
int MPIDI_CH3I_Stock_recv(void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag,
                          MPIR_Comm * comm, int context_offset, MPI_Status * status, MPIR_Request ** request);

/* Likewise MPID_Type_free_hook, where CH3's does nothing: a datatype takes its list of pieces with it
 * (ch3_layout.c). */
#define MPID_Type_free_hook(first_) MPIDI_CH3I_TYPE_FREE_HOOK_##first_)
#define MPIDI_CH3I_TYPE_FREE_HOOK_ptr MPIDI_CH3I_Type_free_hook(ptr
#define MPIDI_CH3I_TYPE_FREE_HOOK_MPIR_Datatype MPIDI_CH3I_Stock_type_free_hook(MPIR_Datatype
int MPIDI_CH3I_Type_free_hook(MPIR_Datatype * type);
int MPIDI_CH3I_Stock_type_free_hook(MPIR_Datatype * type);

#endif /* MPIDI_CH3_POST_H_INCLUDED */
