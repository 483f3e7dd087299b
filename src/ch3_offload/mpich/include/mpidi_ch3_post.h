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
/* All waits of one-sided communication are in one function of CH3, wait_progress_engine() of mpidrma.h. They fail where a
 * dead process would have to end them (ch3_rma_failure.c). The comparison is done by the compiler. */
int MPIDI_CH3I_Progress_wait_rma(MPID_Progress_state * state);
#define MPIDI_CH3_Progress_wait(state) \
    (strcmp(__func__, "wait_progress_engine") == 0 ? MPIDI_CH3I_Progress_wait_rma(state) : \
     MPIDI_CH3I_Progress(TRUE, state))
#define MPIDI_CH3_Progress_poke() (MPIDI_CH3_Progress_test())

#endif /* MPIDI_CH3_POST_H_INCLUDED */
