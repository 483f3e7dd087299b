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

#endif /* MPIDI_CH3_POST_H_INCLUDED */
