/* The C interface of libch3offload: all that the MPICH glue calls.
 *
 * One ch3_offload_channel per MPI process (any number per address space). Opaque handles, plain C, no
 * exceptions, no exit. Cookies are the caller's and come back unchanged. No function calls back: what does
 * not finish at once is told by an event (ch3_offload_events.h).
 *
 * Threads: one thread at a time per channel (MPICH's global critical section), with two exceptions. Any thread
 * and any signal handler may call ch3_offload_wake(). During ch3_offload_sleep(), other threads may make other
 * calls.
 *
 * ABI: structs that the library reads start with their size, by which it refuses a caller built against another
 * header. A changed struct is a new ABI: see -version-info in src/Makefile.mk.
 */
#ifndef CH3_OFFLOAD_H_INCLUDED
#define CH3_OFFLOAD_H_INCLUDED

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "ch3_offload_events.h"
#include "ch3_offload_lane.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden symbols; these are the ones that it shows. */
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/** Changes when a binary built against an older header would break. */
#define CH3_OFFLOAD_ABI_VERSION 20

typedef struct ch3_offload_channel ch3_offload_channel_t;

/** How an operation ended. Zero is success. The numbers are those of the library's own Status. */
typedef enum {
    CH3_OFFLOAD_OK = 0,
    CH3_OFFLOAD_TRUNCATED = 2,  /**< request: longer than the receive buffer, its head was delivered */
    CH3_OFFLOAD_NO_MEMORY = 4,
    CH3_OFFLOAD_REVOKED = 5,    /**< request: ch3_offload_purge() */
    CH3_OFFLOAD_UNREACHABLE = 6,        /**< connection: no provider reaches that peer */
    CH3_OFFLOAD_PEER_FAILED = 7,        /**< connection: the peer died or the connection broke */
    CH3_OFFLOAD_PROTOCOL = 8,   /**< connection: the peer sent nonsense */
    CH3_OFFLOAD_FAILED = 9      /**< anything else, and any other number; a warning was given */
} ch3_offload_status_t;

/** What a call that may finish at once came to. */
typedef enum {
    CH3_OFFLOAD_DONE,           /**< finished, no event */
    CH3_OFFLOAD_PENDING,        /**< an event will come */
    CH3_OFFLOAD_ERROR           /**< failed at once (see status), no event */
} ch3_offload_progressed_t;

typedef enum {
    CH3_OFFLOAD_STANDARD,
    CH3_OFFLOAD_SYNCHRONOUS,
    CH3_OFFLOAD_READY
} ch3_offload_mode_t;

/** A run of bytes of an element. */
typedef struct {
    ptrdiff_t offset_bytes;     /**< from the element's address */
    size_t length_bytes;        /**< not 0 */
} ch3_offload_piece_t;

/** The kinds of a layout, and which members of ch3_offload_layout_t each has. */
enum {
    CH3_OFFLOAD_PIECES = 0,     /**< piece_count, pieces, element_bytes, extent_bytes: the payload's address is that
                                 *   of the first of equal elements. The library moves the bytes by itself */
    CH3_OFFLOAD_PACKED = 1      /**< pack, unpack: one byte range of the message, which begins where the one before
                                 *   it ended, or at 0. `context` is the payload's address, and belongs to one
                                 *   operation until that is over. Called by any thread. They must not call this
                                 *   library */
};

/** How a message whose memory is not contiguous is read and written. Stays as it is until the operation is
 *  done. */
typedef struct {
    uint32_t kind;
    uint32_t piece_count;       /**< not 0 */
    const ch3_offload_piece_t *pieces;  /**< of one element, in the order of the message */
    size_t element_bytes;       /**< of the message: the sum of the pieces */
    ptrdiff_t extent_bytes;     /**< from one element to the next */
    void (*pack) (const void *context, size_t offset_bytes, void *destination, size_t length_bytes);
    void (*unpack) (void *context, size_t offset_bytes, const void *source, size_t length_bytes);
} ch3_offload_layout_t;

/** A buffer: contiguous when layout is NULL. Belongs to the library until the operation is done. */
typedef struct {
    void *address;
    size_t length_bytes;
    const ch3_offload_layout_t *layout;
} ch3_offload_payload_t;

/** What a receive or a probe tells of a message. */
typedef struct {
    ch3_offload_match_t match;  /**< the message's own, with the always-ignored bits */
    size_t length_bytes;        /**< as sent, even when truncated */
    uint8_t status;             /**< ch3_offload_status_t */
} ch3_offload_envelope_t;

/** The messages and receives whose key agrees with `match` where `ignore` is 0. */
typedef struct {
    ch3_offload_match_t match;
    ch3_offload_match_t ignore;
} ch3_offload_pattern_t;

/** The types of settings. */
typedef int64_t ch3_offload_number_t;
typedef const char *ch3_offload_text_t; /**< "" where nothing is chosen */
typedef struct {
    int64_t low, high;
} ch3_offload_range_t;

/** A process, its job, and its settings: ch3_offload_settings.def says which, and what each takes. Fill with
 *  ch3_offload_config_default() first. */
typedef struct {
    size_t size_bytes;          /**< sizeof this struct */
    uint32_t rank;              /**< 0 .. job_size - 1 */
    uint32_t job_size;
    uint32_t local_size;        /**< processes of the job on this node; 0: unknown. Decides how to wait. */
    uint32_t local_rank;        /**< number among those; 0: this process says what holds for the node. Rank 0
                                 *   says what holds for the job */
    uint64_t always_ignored_bits;       /**< match bits that never take part in matching */
    uint64_t channel_bits;      /**< match bits that name a channel; see ch3_offload_classify() */
    unsigned char secret[16];   /**< the same in every process of the job, unknown outside */
#define CH3_OFFLOAD_SETTING(variable, type, field, ...) ch3_offload_##type##_t field;
#include "ch3_offload_settings.def"
#undef CH3_OFFLOAD_SETTING
} ch3_offload_config_t;

void ch3_offload_config_default(ch3_offload_config_t * config);

/** Checks every setting. Returns 0, or not 0 with one line in `message` that names the control variable,
 *  its value and what it takes. */
int ch3_offload_config_check(const ch3_offload_config_t * config, char *message, size_t capacity_bytes);

/** What `nic` = "auto" would be on this node: "host", "thread" or "process". The first two need nobody's
 *  consent. "process" must be the word of all processes of the job, or of none: a caller that has not agreed on
 *  it with them leaves "auto", which is host then. */
const char *ch3_offload_best_nic(const ch3_offload_config_t * config);

/** The control variable of setting `number`: 0, 1, ... NULL: there are no more. */
const char *ch3_offload_setting(unsigned number);

/** Sets setting `number` to what `text` says, "" to its default; NULL: to what the environment says, under any of
 *  the names that it has there, or else a file of settings (settings_files.h). `config` keeps pointers into the
 *  text, or into what was read. Returns 0, or not 0 with one line in `message` that names the variable, its
 *  value as it was written, and what it takes. */
int ch3_offload_config_set(ch3_offload_config_t * config, unsigned number, const char *text, char *message,
                           size_t capacity_bytes);

/** The value of setting `number`, as a user would write it. */
void ch3_offload_config_text(const ch3_offload_config_t * config, unsigned number, char *text,
                             size_t capacity_bytes);

/** Makes a channel. What `config` points to stays valid as long as the channel. Returns 0, or not 0 with one
 *  line in `message`: what failed and what to do. */
int ch3_offload_create(const ch3_offload_config_t * config, ch3_offload_channel_t ** channel, char *message,
                       size_t capacity_bytes);

/** Frees everything, at once: unfinished operations are forgotten (see ch3_offload_idle). */
void ch3_offload_destroy(ch3_offload_channel_t *channel);

/** This process's card, to be published for the others: printable ASCII, no spaces, below 432 bytes.
 *  The string lives as long as the channel. */
const char *ch3_offload_card(const ch3_offload_channel_t *channel);

/** Sends a message; as Engine::send. `send_id`: not 0 if it may be cancelled after it is done.
 *  `operation` is 0 unless PENDING. */
int ch3_offload_send(ch3_offload_channel_t *channel, uint32_t peer, int mode, ch3_offload_match_t match,
                     const ch3_offload_payload_t * payload, uint32_t send_id, void *cookie,
                     uint64_t * operation, int *status);

/** The lane of a peer, for short messages and packets. Valid as long as the channel; that of a peer of another
 *  world until its failure was told. NULL: there is none, or none yet. CH3_OFFLOAD_LANE_MADE tells when there
 *  is. */
ch3_offload_lane_t *ch3_offload_lane(ch3_offload_channel_t * channel, uint32_t peer);

/** Wakes a peer after CH3_OFFLOAD_LANE_SENT_TO_SLEEPER. */
void ch3_offload_nudge(ch3_offload_channel_t * channel, uint32_t peer);

/** Appends `header` and then the data of `iov` to the packet stream to `peer`. PENDING: the header was
 *  copied, the data must stay until CH3_OFFLOAD_SEND_DONE. The first 120 bytes of both arrive in one event. */
int ch3_offload_send_packet(ch3_offload_channel_t *channel, uint32_t peer, const void *header,
                            size_t header_bytes, const struct iovec *iov, size_t iov_count, void *cookie,
                            int *status);

int ch3_offload_post_receive(ch3_offload_channel_t *channel, ch3_offload_match_t match,
                             ch3_offload_match_t ignore, const ch3_offload_payload_t * payload,
                             void *cookie, uint64_t * operation, ch3_offload_envelope_t * envelope);

/** 1 and `envelope` if a message of the set `wanted` is here whole: the oldest was received. 0: nothing was
 *  done. */
int ch3_offload_receive_now(ch3_offload_channel_t *channel, const ch3_offload_pattern_t * wanted,
                            const ch3_offload_payload_t * payload, ch3_offload_envelope_t * envelope);

/** 1 and `envelope` if such a receive would find a message now, else 0. */
int ch3_offload_probe(ch3_offload_channel_t *channel, ch3_offload_match_t match, ch3_offload_match_t ignore,
                      ch3_offload_envelope_t * envelope);

/** As probe, and takes the message: ch3_offload_receive_matched must follow. */
int ch3_offload_matched_probe(ch3_offload_channel_t *channel, ch3_offload_match_t match,
                              ch3_offload_match_t ignore, uint64_t * message,
                              ch3_offload_envelope_t * envelope);

int ch3_offload_receive_matched(ch3_offload_channel_t *channel, uint64_t message,
                                const ch3_offload_payload_t * payload, void *cookie,
                                ch3_offload_envelope_t * envelope);

/** 1: the receive had not matched and is gone. 0: too late. */
int ch3_offload_cancel_receive(ch3_offload_channel_t *channel, uint64_t operation);

/** DONE: cancelled. ERROR: not cancelled. PENDING: CH3_OFFLOAD_CANCEL_DONE. A cancelled send's
 *  CH3_OFFLOAD_SEND_DONE does not come. */
int ch3_offload_cancel_send(ch3_offload_channel_t *channel, uint64_t operation, uint32_t peer,
                            ch3_offload_match_t match, uint32_t send_id, void *cookie);

/** Which receives and messages ch3_offload_purge() looks at. */
enum {
    CH3_OFFLOAD_PURGE_ALL = 0,  /**< posted receives and unexpected messages */
    CH3_OFFLOAD_PURGE_RECEIVES_FROM_ONE,        /**< posted receives that name a source */
    CH3_OFFLOAD_PURGE_RECEIVES_FROM_ANY         /**< posted receives from any source */
};

/** Removes those that are in one of the patterns `doomed` and in none of `spared`. Receives, and pending sends
 *  to oneself, end with `status`: CH3_OFFLOAD_REVOKED or CH3_OFFLOAD_PEER_FAILED. */
void ch3_offload_purge(ch3_offload_channel_t * channel, int scope, const ch3_offload_pattern_t * doomed,
                       size_t doomed_count, const ch3_offload_pattern_t * spared, size_t spared_count, int status);

/** What a step of a schedule does (src/nic/schedule.h). */
enum {
    CH3_OFFLOAD_STEP_SEND = 0,  /**< peer, match, from, length_bytes, layout */
    CH3_OFFLOAD_STEP_SYNCHRONOUS_SEND,  /**< likewise */
    CH3_OFFLOAD_STEP_RECEIVE,   /**< peer, match, to, length_bytes, layout; no wildcard */
    CH3_OFFLOAD_STEP_COMBINE,   /**< operation, type, from, to, length_bytes: `to` becomes the result of both */
    CH3_OFFLOAD_STEP_COPY,      /**< from, to, length_bytes */
    CH3_OFFLOAD_STEP_COUNT,     /**< length_bytes: what is received is counted from there on */
    CH3_OFFLOAD_STEP_COUNT_RECEIVED,    /**< the length of the message that was received last is added */
    CH3_OFFLOAD_STEP_CHECK_COUNT        /**< length_bytes: fails if the count is another one */
};

typedef struct {
    uint8_t kind;
    uint8_t is_barrier;         /**< not 0: the next step waits until this one and all before it are over */
    uint8_t operation;          /**< ch3_offload_atomic_t (ch3_offload_windows.h) */
    uint8_t type;               /**< ch3_offload_type_t; see ch3_offload_window_can() */
    uint32_t peer;              /**< of a receive: who sends */
    ch3_offload_match_t match;  /**< the message's */
    const void *from;
    void *to;
    size_t length_bytes;
    const ch3_offload_layout_t *layout; /**< NULL: contiguous; else of kind CH3_OFFLOAD_PIECES */
} ch3_offload_step_t;

/** How a partitioned operation (MPI 4.0, chapter 4) of so many bytes is cut into messages: the bytes of each
 *  but the last, which may be shorter. They are whole partitions of the sender and whole elements of the
 *  receiver's datatype. 0: there are no bytes. REQUIRES: all bytes are whole partitions and whole elements,
 *  neither of which is empty, unless `bytes` is 0. May be called without a channel. */
uint64_t ch3_offload_cut_partitions(uint64_t bytes, uint64_t partition_bytes, uint64_t element_bytes);

/** The most steps that ch3_offload_schedule() takes now. 0: it takes none. */
size_t ch3_offload_most_steps(ch3_offload_channel_t * channel);

/** Leaves a collective operation to the network processor, which carries out its steps while the process computes.
 *  Their memory and layouts are the processor's until CH3_OFFLOAD_SCHEDULE_DONE. What this process sends after a
 *  failure has in its match bits all of `peer_failed_bits` if a peer has died, else `failed_bits`; what comes with
 *  them fails this schedule, too. 0: there are no such bits. Returns 0 if it was not taken. */
int ch3_offload_schedule(ch3_offload_channel_t * channel, const ch3_offload_step_t * steps, size_t count,
                         uint64_t failed_bits, uint64_t peer_failed_bits, void *cookie);

/* Messages to modules in the network processor (src/modules/module_message.h): their match bits, the header that
 * each begins with, and what a group is opened with. The initiator is 1 of what a process asks of its own processor,
 * else 0. */
#define CH3_OFFLOAD_MODULE_BITS (UINT64_C(1) << 63)
#define CH3_OFFLOAD_MODULE_VERSION 1
/** Tag of the line that tells of a trouble, below ch3_offload_module_opening_t.control_bits. */
#define CH3_OFFLOAD_MODULE_TROUBLE_TAG 0

enum {
    CH3_OFFLOAD_MODULE_DATA = 1,
    CH3_OFFLOAD_MODULE_OPEN = 3,        /**< payload: ch3_offload_module_opening_t, peer_count numbers of processes */
    CH3_OFFLOAD_MODULE_CLOSE,
    CH3_OFFLOAD_MODULE_LOAD,    /**< payload: the source text */
    CH3_OFFLOAD_MODULE_REMOVE,
    CH3_OFFLOAD_MODULE_LIST
};

typedef struct {
    uint8_t version;
    uint8_t kind;
    uint8_t name_length;
    uint8_t reserved;
    uint32_t group;
    uint32_t root;
    uint32_t source;
    uint32_t tag;               /**< all but CH3_OFFLOAD_MODULE_DATA: of the answer */
    uint32_t reserved_too;
    char name[40];
} ch3_offload_module_header_t;

typedef struct {
    uint64_t data_bits;         /**< match bits of what modules deliver, without the tag */
    uint64_t control_bits;      /**< likewise, of answers and troubles */
    uint32_t rank;
    uint32_t size;
    uint32_t peer_count;        /**< 0: rank and number of a process are the same */
    uint32_t reserved;
} ch3_offload_module_opening_t;

/** How urgent messages are; as TrafficClass (src/engine/engine.h). */
enum {
    CH3_OFFLOAD_CLASS_LATENCY = 0,
    CH3_OFFLOAD_CLASS_DEFAULT = 1,
    CH3_OFFLOAD_CLASS_BULK = 2,
    CH3_OFFLOAD_CLASS_OF_PROCESS = 3    /**< that of the settings */
};

/** From now on the messages of a channel (config's channel_bits of `bits`) are of that class. Those of its
 *  messages that wait come along: the messages of a channel keep their order. Those of others may overtake them. */
void ch3_offload_classify(ch3_offload_channel_t * channel, uint64_t bits, int traffic_class);

/** Answers CH3_OFFLOAD_CARD_WANTED with the card that `peer` published (ch3_offload_card in that process), or says
 *  it before it is asked for. "": the card cannot be had, and the peer is given up. */
void ch3_offload_introduce(ch3_offload_channel_t * channel, uint32_t peer, const char *card);

/** After ch3_offload_introduce() of the processes of this node, each of which does the same about now: waits some
 *  milliseconds at most until the connections with them are complete, so that no first message waits for one. */
void ch3_offload_meet_node(ch3_offload_channel_t * channel);

/** A node of a job: see ch3_offload_report(). */
typedef struct {
    const char *card;           /**< of a process there */
    uint32_t ranks;             /**< processes of the job there */
} ch3_offload_node_t;

/** With MPIR_CVAR_CH3_OFFLOAD_REPORT=1, to be called by rank 0 when the cards of all nodes are known: tells as
 *  warnings (CH3_OFFLOAD_WARNING) how messages move between the nodes. */
void ch3_offload_report(ch3_offload_channel_t * channel, const ch3_offload_config_t * config,
                        const ch3_offload_node_t * nodes, size_t count);

/** Answers CH3_OFFLOAD_PACKET_OFFER: where the bytes belong, and how many go there in one run. The memory stays
 *  valid until CH3_OFFLOAD_PACKET_PLACED or CH3_OFFLOAD_PEER_DOWN. NULL and 0: the bytes come as
 *  CH3_OFFLOAD_PACKET. */
void ch3_offload_place_packet(ch3_offload_channel_t * channel, uint32_t peer, void *address, size_t capacity_bytes);

/** Memory for messages and windows, which other processes map: the processor of the node, so that nothing is
 *  copied by the kernel, or the processes of the job there (ch3_offload_map_memory()). NULL: there is none, and
 *  malloc() serves. Aligned to 64 bytes; its contents are not defined. */
void *ch3_offload_alloc_memory(ch3_offload_channel_t * channel, size_t bytes);
/** 1: the memory was of ch3_offload_alloc_memory(), and is free. 0: nothing was done. */
int ch3_offload_free_memory(ch3_offload_channel_t * channel, void *memory);

/** Where such memory is, for the other processes of the node. All 0: nowhere. */
typedef struct {
    uint64_t words[4];
} ch3_offload_place_t;

/** Says where `bytes` from `address` on are. Nowhere: they are not all in one block, or other processes cannot
 *  be given that. */
ch3_offload_place_t ch3_offload_locate_memory(ch3_offload_channel_t * channel, const void *address,
                                              size_t bytes);
/** Maps memory of another process of the node. NULL: it cannot be had. Valid until ch3_offload_unmap_memory(),
 *  whatever becomes of that process and its memory. */
void *ch3_offload_map_memory(ch3_offload_channel_t * channel, const ch3_offload_place_t * place,
                             size_t bytes);
/** `address`: as the former has returned it; NULL has no effect. */
void ch3_offload_unmap_memory(ch3_offload_channel_t * channel, const void *address);

/** Lets such a processor reach memory that the caller has mapped from the beginning of `file`, a sealed memfd
 *  of exactly `bytes`. The caller closes `file`. Has no effect with other drivers. */
void ch3_offload_share_memory(ch3_offload_channel_t * channel, void *address, size_t bytes, int file);
/** Ends that, before the memory is unmapped. Has no effect on memory that is not shared so. */
void ch3_offload_unshare_memory(ch3_offload_channel_t * channel, void *address);

/** How many messages have come before their receive, as far as probes know. A probe that found nothing may find
 *  something once this number, read before it, has changed. The counters may be ahead of it. */
uint64_t ch3_offload_arrivals(const ch3_offload_channel_t * channel);

/** Where completions wait: ch3_offload_take_event() takes them without a call of the library. When that has
 *  returned NULL, ch3_offload_next_event() goes on if `others` is not 0, else ch3_offload_take_packet().
 *  Valid as long as the channel. */
ch3_offload_events_t *ch3_offload_events(ch3_offload_channel_t * channel);

/** Takes the next event, of the ring too. 0: there is none. */
int ch3_offload_next_event(ch3_offload_channel_t * channel, ch3_offload_event_t * event);

/** Polls and moves what can move, once. Returns how many things happened. REQUIRES: all
 *  events were taken: the ring is empty and has no packet, and `others` is 0 or ch3_offload_next_event() has
 *  returned 0. */
size_t ch3_offload_progress(ch3_offload_channel_t *channel);

/** 1 when nothing that has to leave this process waits to leave, no payload is awaited that a receive has
 *  matched, and the events of what has ended can be taken. Messages that wait for a receive or an answer do not
 *  count, nor do receives that wait for a message; packets that do count. */
int ch3_offload_idle(const ch3_offload_channel_t *channel);

/* Processes of other MPI worlds (MPI_Comm_spawn, MPI_Comm_connect). Each has a name: printable ASCII without
 * spaces. Their numbers as peers begin at the job's size; a number may come again for another process after the
 * first one's CH3_OFFLOAD_PEER_FAILED. Their cards are not asked for. */

/** Most bytes of a name, with the 0 at its end. */
#define CH3_OFFLOAD_NAME_BYTES 32

/** Writes the name by which other worlds find this process: from the first call on, they do. Returns 0, or not 0
 *  with one line in `message`: what failed and what to do. */
int ch3_offload_name(ch3_offload_channel_t *channel, char name[CH3_OFFLOAD_NAME_BYTES], char *message,
                     size_t capacity_bytes);

/** The number of the process of that name, which is sought from now on: messages wait until it is found, and
 *  fail if it is not. Returns 0, or not 0 as above: also if nobody can have that name. */
int ch3_offload_find(ch3_offload_channel_t *channel, const char *name, uint32_t *peer, char *message,
                     size_t capacity_bytes);

/** The name of such a peer. "": nobody has that number. */
void ch3_offload_name_of(ch3_offload_channel_t *channel, uint32_t peer, char name[CH3_OFFLOAD_NAME_BYTES]);

void ch3_offload_fail_peer(ch3_offload_channel_t *channel, uint32_t peer);
void ch3_offload_close_peer(ch3_offload_channel_t *channel, uint32_t peer);

/* Waiting: poll, give the core to others, sleep.
 *
 *   ch3_offload_wait_begin(p);
 *   while (nothing of mine is finished) {
 *       if (ch3_offload_progress(p) > 0) { take the events; continue; }
 *       switch (ch3_offload_wait_step(p)) {
 *       case CH3_OFFLOAD_POLL:
 *           break;
 *       case CH3_OFFLOAD_YIELD:
 *           leave the critical section;
 *           sched_yield();
 *           enter the critical section;
 *           break;
 *       case CH3_OFFLOAD_SLEEP:                   // armed now
 *           if (ch3_offload_progress(p) == 0) {   // once more after arming: no lost wake-up
 *               leave the critical section;
 *               ch3_offload_sleep(p, timeout_ms);
 *               enter the critical section;
 *           }
 *           ch3_offload_awake(p);
 *       }
 *   }
 */
enum {
    CH3_OFFLOAD_POLL = 0,
    CH3_OFFLOAD_YIELD = 1,
    CH3_OFFLOAD_SLEEP = 2
};

/** Starts one wait: resets its spin. */
void ch3_offload_wait_begin(ch3_offload_channel_t *channel);
/** After progress found nothing: what to do next. CH3_OFFLOAD_SLEEP: the process is armed. Then call progress
 *  once more before sleeping: by the same thread, with nothing between. */
int ch3_offload_wait_step(ch3_offload_channel_t *channel);
/** After CH3_OFFLOAD_YIELD, cheaper than ch3_offload_progress(): 0 if that would find nothing but housekeeping
 *  to do. The caller may then ask ch3_offload_wait_step() again. */
int ch3_offload_may_have_work(ch3_offload_channel_t *channel);
/** 1: the job's processes of this node outnumber its cores. Programs that test in a loop should yield. Never changes. */
int ch3_offload_is_crowded(const ch3_offload_channel_t *channel);
/** Sleeps until traffic, ch3_offload_wake() or the time-out (ms; -1: none). The only blocking call. If a wait
 *  within the last poll before the sleep has ended the armed state, it returns at once. */
void ch3_offload_sleep(ch3_offload_channel_t *channel, int timeout_ms);
/** Ends the armed state. */
void ch3_offload_awake(ch3_offload_channel_t *channel);
/** Ends the sleep of another thread, or makes the next one return at once. Async-signal-safe. */
void ch3_offload_wake(ch3_offload_channel_t *channel);

/** Counters, by index; stable names for MPI_T. */
size_t ch3_offload_counter_count(void);
/** Name ("sent_eager") and one line of description of a counter; level: 1 when it can fall. */
const char *ch3_offload_counter_name(size_t index, const char **description, int *is_level);
/** Address of the counter's value, valid for the life of the channel. */
const uint64_t *ch3_offload_counter(const ch3_offload_channel_t *channel, size_t index);

/** mremap(2), for a program whose mremap() UCX has hooked (src/dme/memory_events.h). Sets errno; any thread. */
void *ch3_offload_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *new_address);

/** Writes the trace now (also done by destroy, and after a peer failed). Returns 0 or errno. */
int ch3_offload_trace_write(ch3_offload_channel_t *channel);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif /* CH3_OFFLOAD_H_INCLUDED */
