/*
 * The ch3:offload channel. What CH3 and MPICH's core must know of it before their own types: additions to
 * requests, virtual connections, communicators and the progress state, and the features that it has.
 * This header is included before mpiimpl.h has defined anything.
 */

#ifndef MPIDI_CH3_PRE_H_INCLUDED
#define MPIDI_CH3_PRE_H_INCLUDED

#include <pthread.h>
#include <stdint.h>

/* Matching belongs to the engine: ch3_recvq.c replaces the functions of ch3u_recvq.c. */
#define MPIDI_CH3_OWNS_RECVQ

/* CH3's MPID_Barrier gets another name; mpidi_ch3_post.h has the channel's. See ch3_barrier.c. */
#define MPID_Barrier MPIDI_CH3I_Stock_barrier

/* Memory of MPI_Alloc_mem is the channel's. See ch3_memory.c. */
#define MPIDI_CH3I_HAS_ALLOC_MEM
#define MPIDI_CH3I_HAS_FREE_MEM

#define MPIDI_DEV_IMPLEMENTS_KVS

/* Additions to a communicator: the list of all of them, see ch3_failure.c. */
typedef struct {
    struct MPIR_Comm *next;
    struct MPIR_Comm *prev;
    int is_watched;             /* TRUE: the death of any of its processes is noticed; see ch3_worlds.c */
    uint32_t acknowledged;      /* failures, by MPIX_Comm_failure_ack; see ch3_failure.c */
} MPIDI_CH3I_CH_comm_t;

/* What a peer has asked of the lock of one window of this process; see ch3_rma_locks.c. */
typedef struct MPIDI_CH3I_Lock {
    struct MPIDI_CH3I_Lock *next;
    int window;                 /* its handle */
    int is_taken;               /* TRUE: the peer has asked for the lock and has not given it back */
} MPIDI_CH3I_Lock;

/* Additions to a virtual connection. All sends to a peer that do not become messages of the engine (RMA,
 * close, revoke) form one stream of packets; see ch3_packets_send.c and ch3_packets_recv.c. */
typedef struct MPIDI_CH3I_VC {
    /* The engine's ch3_offload_lane_t for short messages. NULL: there is none, or none yet. */
    void *lane;
    /* Requests whose packet waits behind send_active; linked by next. CH3 wants a field of the first name. */
    struct MPIR_Request *sendq_head;
    struct MPIR_Request *sendq_tail;
    /* The request in mid-packet: its OnDataAvail may send more, and nothing may come between. Or NULL. */
    struct MPIR_Request *send_active;
    /* The request that wants the next bytes of the incoming stream. Or NULL: a packet header comes. */
    struct MPIR_Request *recv_active;
    /* One for each window whose lock the peer has asked for. */
    MPIDI_CH3I_Lock *locks;
    /* The engine's number of the peer: its rank, if it is of this world. Others have MPIDI_CH3I_NO_PEER until
     * MPIDI_CH3I_Peer() has found theirs. */
    uint32_t peer;
    /* The connection of two roots that connect; see ch3_roots.c. NULL: it is none. */
    struct MPIDI_CH3I_Root *root;
    /* TRUE when the engine has said that this peer failed. */
    int peer_failed;
    /* Failures of processes that this one had noticed with that of the peer; 0: it has not failed. */
    uint32_t failed_at;
    /* TRUE when the engine has got the card by which it reaches this peer. */
    int is_introduced;
    /* TRUE when its stream of packets has ended: it failed, or sent what could not be taken. */
    int is_given_up;
} MPIDI_CH3I_VC;

#define MPIDI_CH3_VC_DECL struct MPIDI_CH3I_VC ch;

/* Additions to a process group. */
typedef struct MPIDI_CH3I_PG {
    char *names;                /* by which others find its processes (ch3_worlds.c). NULL: none known */
} MPIDI_CH3I_PG;

#define MPIDI_CH3_PG_DECL MPIDI_CH3I_PG ch;

/* A packet of the channel's own: MPIX_Comm_agree; see ch3_agreement.c. */
#define MPIDI_CH3I_AGREE_RANKS 8
#define MPIDI_CH3_PKT_ENUM MPIDI_CH3_PKT_OFFLOAD_AGREE
#define MPIDI_CH3_PKT_DEFS                                                                      \
    typedef struct MPIDI_CH3I_Pkt_agree {                                                       \
        MPIDI_CH3_Pkt_type_t type;                                                              \
        uint8_t kind;                                                                           \
        uint8_t has_more;       /* FALSE: the last one of its kind */                           \
        uint8_t count;          /* of ranks */                                                  \
        uint8_t reserved;       /* 0 */                                                         \
        uint64_t members;       /* of the communicator, and its context, and its size */        \
        int32_t context;                                                                        \
        int32_t size;                                                                           \
        uint32_t number;        /* of the agreement */                                          \
        int32_t from;           /* ranks */                                                     \
        int32_t to;                                                                             \
        int32_t value;                                                                          \
        int32_t acknowledged;   /* a contribution: how many failures; a decision: whether all */ \
        int32_t ranks[MPIDI_CH3I_AGREE_RANKS];  /* that have failed */                          \
    } MPIDI_CH3I_Pkt_agree_t;
#define MPIDI_CH3_PKT_DECL MPIDI_CH3I_Pkt_agree_t offload_agree;

/* Additions to a request. */
typedef struct MPIDI_CH3I_Request {
    uint64_t operation;         /* the engine's name of it while pending; 0: none */
    uint64_t message;           /* matched probe: the message taken; 0: none */
    struct MPIDI_VC *vc;        /* sends and packets: the peer */
    int is_packet;              /* TRUE: a packet of the stream; FALSE: a message */
    int is_pending;             /* TRUE: the engine owes a send_done */
    int has_layout;             /* receives: TRUE: the payload has a layout */
    struct MPIDI_CH3I_Walk *walk;       /* through a packed payload, while the operation lasts; NULL: none */
    struct MPIDI_CH3I_Partitioned *partitioned; /* whose it is, or a message of; see ch3_partitioned.c */
} MPIDI_CH3I_Request;

#define MPIDI_CH3_REQUEST_DECL struct MPIDI_CH3I_Request ch;

#define MPIDI_CH3_REQUEST_INIT(req_)    \
    do {                                \
        (req_)->ch.operation = 0;       \
        (req_)->ch.message = 0;         \
        (req_)->ch.vc = NULL;           \
        (req_)->ch.is_packet = FALSE;   \
        (req_)->ch.is_pending = FALSE;  \
        (req_)->ch.has_layout = FALSE;  \
        (req_)->ch.walk = NULL;         \
    } while (0)

/* Memory that the processes of a node share; see ch3_shared_segment.c. */
typedef struct MPIDI_CH3I_Segment {
    void *address;              /* where it is mapped in this process; NULL: there is none */
    size_t bytes;               /* with its header */
    uint64_t number;            /* in this job; the same in all processes, and never 0 */
    pthread_mutex_t *mutex;     /* in its header */
} MPIDI_CH3I_Segment;

/* What the network processor serves of a window; see ch3_windows.c. */
typedef enum {
    MPIDI_CH3I_SERVED_NOT = 0,
    MPIDI_CH3I_SERVED_LOCKS,
    MPIDI_CH3I_SERVED_ALL
} MPIDI_CH3I_Served;

/* A process of a window that is served. */
typedef struct MPIDI_CH3I_Window_target {
    uint16_t number;            /* of the window there */
    uint8_t lock;               /* as this process has it; see ch3_window_locks.c */
    uint8_t questions;          /* of the operations, those that ask for the lock: 0 or 1 */
    int under_way;              /* this process's operations on it */
    int failure;                /* MPI error of one without a request: the next synchronisation returns it */
} MPIDI_CH3I_Window_target;

/* Additions to a window; see ch3_shared_windows.c, ch3_rma_locks.c and ch3_windows.c. */
typedef struct MPIDI_CH3I_Win {
    MPIDI_CH3I_Segment segment; /* this window's own, if any */
    pthread_mutex_t *mutex;     /* serialises accumulates; this segment's, or that of another window */
    int is_mapped;              /* TRUE: memory of MPI_Alloc_mem, which the node's processes have mapped */
    struct MPIR_Win *next;      /* list of windows with a segment */
    struct MPIR_Win *prev;
    int is_lock_broken;         /* TRUE: a process died that held the lock of this process's memory */
    int is_lock_all_refused;    /* TRUE: MPI_Win_lock_all waits for a broken lock */
    MPIDI_CH3I_Served served;   /* by the network processor; see ch3_windows.c */
    int is_exposed;             /* TRUE: this process's memory, as `number` */
    uint16_t number;
    MPIDI_CH3I_Window_target *targets;  /* by rank; NULL: it is not served */
    int under_way;              /* operations on all targets */
    int questions;              /* of these, the ones that ask for a lock */
    int failures;               /* targets with a failure */
} MPIDI_CH3I_Win;

#define MPIDI_CH3_WIN_DECL MPIDI_CH3I_Win ch;

typedef struct MPIDI_CH3I_Progress_state {
    unsigned int completion_count;
} MPIDI_CH3I_Progress_state;

#define MPIDI_CH3_PROGRESS_STATE_DECL MPIDI_CH3I_Progress_state ch;

/* Counts completions. A thread in MPID_Progress_wait returns when it differs from its progress state.
 * Written inside the global critical section only. */
extern volatile unsigned int MPIDI_CH3I_progress_completion_count;

#if defined(MPICH_IS_THREADED)
/* A completion by one thread while another has left the critical section to sleep: wake the sleeper. */
#define MPIDI_CH3I_PROGRESS_WAKEUP                                                                      \
    do {                                                                                                \
        if (MPIDI_CH3I_progress_blocked == TRUE && MPIDI_CH3I_progress_wakeup_signalled == FALSE) {     \
            MPIDI_CH3I_progress_wakeup_signalled = TRUE;                                                \
            MPIDI_CH3I_Progress_wakeup();                                                               \
        }                                                                                               \
    } while (0)
#endif

#endif /* MPIDI_CH3_PRE_H_INCLUDED */
