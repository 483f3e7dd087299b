/*
 * The ch3:offload channel: the two sides of a partitioned operation. See ch3_partition_messages.c.
 */
#ifndef CH3_PARTITIONS_H_INCLUDED
#define CH3_PARTITIONS_H_INCLUDED

#include "mpidi_ch3_impl.h"

/* What the sender says of its data. */
typedef struct {
    uint64_t bytes;             /* of all partitions */
    uint64_t partition_bytes;
    uint32_t answer_tag;
    uint32_t reserved;          /* 0 */
} MPIDI_CH3I_Part_greeting_t;

/* How the receiver wants to have it. */
typedef struct {
    uint64_t bytes;             /* of all partitions of the receiver: a sender with others fails */
    uint64_t message_bytes;     /* of each message but the last */
    uint32_t first_tag;
    uint32_t reserved;          /* 0 */
} MPIDI_CH3I_Part_answer_t;

/* One side of a partitioned operation. */
typedef struct MPIDI_CH3I_Partitioned {
    struct MPIDI_CH3I_Partitioned *next;        /* of all of this process */
    struct MPIDI_CH3I_Partitioned *prev;
    MPIR_Request *request;      /* the user's; NULL: it has been freed */
    MPIR_Request *awaited;      /* the receive of the greeting or the answer; NULL: it is over */
    int unfinished;             /* requests of messages that are under way */
    int is_send;
    char *buf;
    int partitions;
    MPI_Datatype type;
    MPI_Aint extent;            /* of the type, and its size */
    MPI_Aint element_bytes;
    MPI_Aint partition_bytes;
    MPI_Aint bytes;             /* of all partitions */
    MPIR_Comm *comm;
    int rank;                   /* of the other side */
    int tag;
    MPIDI_CH3I_Part_greeting_t greeting;
    MPIDI_CH3I_Part_answer_t answer;
    uint32_t first_tag;         /* the tags that this side has chosen */
    uint32_t tags;
    int failure;                /* MPI error: it can never communicate, or not any more */
    int is_met;                 /* both sides know each other, and the next two are known */
    MPI_Aint message_bytes;
    MPI_Aint messages;
    /* The round. */
    int is_active;
    int error;                  /* MPI error: the first one of its messages */
    MPI_Aint left;              /* messages that are not over */
    char *is_ready;             /* send: by partition */
    int *missing;               /* send: by message, partitions that are not ready */
    char *is_here;              /* receive: by message */
} MPIDI_CH3I_Part_t;

/* All of this process. */
extern MPIDI_CH3I_Part_t *MPIDI_CH3I_parts;

/* It begins to look for the other side. If that cannot be, each of its rounds fails. */
void MPIDI_CH3I_Part_meet(MPIDI_CH3I_Part_t * part);
/* REQUIRES: the sides know each other, and a round is active. */
void MPIDI_CH3I_Part_begin_round(MPIDI_CH3I_Part_t * part);
/* The user's request is complete, with its status. */
void MPIDI_CH3I_Part_end_round(MPIDI_CH3I_Part_t * part);
/* The partition is ready, and the sides know each other. */
void MPIDI_CH3I_Part_ready(MPIDI_CH3I_Part_t * part, int partition);
/* What the user has freed stays as long as messages are under way: they use its memory, and the other side
 * must not meet a later request in its place. */
void MPIDI_CH3I_Part_free_if_over(MPIDI_CH3I_Part_t * part);
/* MPI ends: one that has not met its other side will not. */
void MPIDI_CH3I_Part_give_up(MPIDI_CH3I_Part_t * part);

#endif                          /* CH3_PARTITIONS_H_INCLUDED */
