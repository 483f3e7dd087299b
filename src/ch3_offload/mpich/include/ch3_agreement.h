/*
 * The ch3:offload channel: agreements of the processes of a communicator. See ch3_agreement.c.
 */
#ifndef CH3_AGREEMENT_H_INCLUDED
#define CH3_AGREEMENT_H_INCLUDED

#include "mpidi_ch3_impl.h"

/* Kinds of packets. */
enum { CONTRIBUTION, QUESTION, DECISION, ABANDONMENT };

/* What this process, if it coordinates, has of one agreement. */
typedef struct {
    char *has;                  /* by rank: its contribution is here */
    int *acknowledged;          /* by rank: how many failures it has acknowledged */
    char *failed;               /* by rank: somebody knows that it has failed */
    int value;                  /* of the contributions, combined */
    int coordinator;            /* the highest that has or wants this process's contribution; -1: none */
} gathering_t;

/* The agreements of a communicator, one after the other. */
typedef struct agreements {
    struct agreements *next;
    int context;
    uint64_t members;           /* who they are: so that a context may be used again */
    int size;
    uint32_t number;            /* of the last one that this process has begun */
    uint32_t decided;           /* the last one of which the decision is known: `number`, or the one before */
    int value;                  /* that decision */
    int is_acknowledged;        /* all had acknowledged all failures */
    char *failed;               /* by rank */
    char *announced;            /* likewise, of a decision that has come in part, from `announcer` */
    int announcer;
    uint32_t abandoned;         /* before this one, somebody has given up making a communicator */
    gathering_t gatherings[2];  /* of agreement i: i % 2 */
} agreements_t;

/* Takes part in the next agreement of comm. On success, it is in *result until the next one begins. */
int MPIDI_CH3I_Come_to_decision(MPIR_Comm * comm, int value, agreements_t ** result);

static inline MPIDI_VC_t *MPIDI_CH3I_Member(MPIR_Comm * comm, int rank)
{
    MPIDI_VC_t *vc;

    MPIDI_Comm_get_vc(comm, rank, &vc);
    return vc;
}

/* A packet from one rank to another. */
void MPIDI_CH3I_Begin_agree_packet(MPIDI_CH3I_Pkt_agree_t * pkt, const agreements_t * all, int kind,
                                   uint32_t number, int from, int to);
/* Who is dead by now gets nothing, and whoever waits for its answer learns that it is dead. */
void MPIDI_CH3I_Send_agree_packet(MPIDI_VC_t * vc, MPIDI_CH3I_Pkt_agree_t * pkt);

/* ---- ch3_shrink.c ---- */

/* Somebody has given up making the communicator before that agreement. */
void MPIDI_CH3I_Take_abandonment(agreements_t * all, uint32_t number);

/* ---- ch3_failure.c ---- */

/* Whether that process has failed, and MPIX_Comm_failure_ack was called since. */
int MPIDI_CH3I_Is_acknowledged(MPIR_Comm * comm, int rank);
/* The processes of comm for which the array has `wanted`. Of an intercommunicator: of the remote group. */
int MPIDI_CH3I_Group_of(MPIR_Comm * comm, const char *is_in, int wanted, MPIR_Group ** new_group);

#endif                          /* CH3_AGREEMENT_H_INCLUDED */
