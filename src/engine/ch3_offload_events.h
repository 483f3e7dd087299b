/* The events of an engine, and the ring in which its completions wait for the client.
 *
 * The client reads the ring without a call of the library, and behind it the one packet that may wait. What
 * does not fit the ring, and events of other kinds, wait in the engine: `others` says so, and
 * ch3_offload_next_event() takes them. Completions in the ring are older than those, and the packet is taken
 * after all but warnings.
 *
 * Threads: as all calls for the channel. A change of this file is a new ABI (CH3_OFFLOAD_ABI_VERSION).
 */
#ifndef CH3_OFFLOAD_EVENTS_H_INCLUDED
#define CH3_OFFLOAD_EVENTS_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The key of a message or of a receive, or an ignore mask, whose set bits do not take part. */
typedef struct {
    uint64_t bits;              /**< the client's */
    uint32_t initiator;         /**< the sender's number, as the clients count */
} ch3_offload_match_t;

/** What an event tells, and which members of ch3_offload_event_t it has. */
enum {
    CH3_OFFLOAD_SEND_DONE = 0,  /**< cookie, status: a pending send or packet is finished */
    CH3_OFFLOAD_RECEIVE_DONE,   /**< cookie, status, match, length_bytes: a pending receive is finished. If
                                 *   is_cancelled, ch3_offload_purge took it out, and nothing was received */
    CH3_OFFLOAD_CANCEL_DONE,    /**< cookie, is_cancelled: a pending cancel_send is decided */
    CH3_OFFLOAD_PACKET,         /**< peer, bytes, length_bytes: of its packet stream; valid until the next
                                 *   ch3_offload_progress */
    CH3_OFFLOAD_PACKET_OFFER,   /**< peer, length_bytes: so many bytes of the stream wait there;
                                 *   ch3_offload_place_packet must follow */
    CH3_OFFLOAD_PACKET_PLACED,  /**< peer, length_bytes: so many are in that place */
    CH3_OFFLOAD_PEER_DOWN,      /**< peer, status: it is dead or out of reach, or broke the protocol */
    CH3_OFFLOAD_CARD_WANTED,    /**< peer: ch3_offload_introduce must follow */
    CH3_OFFLOAD_LANE_MADE,      /**< peer: ask ch3_offload_lane again */
    CH3_OFFLOAD_WARNING,        /**< bytes, length_bytes: one line for the user, valid until the next event */
    CH3_OFFLOAD_WINDOW_DONE,    /**< cookie, status: an operation is over (ch3_offload_windows.h) */
    CH3_OFFLOAD_SCHEDULE_DONE   /**< cookie, status: a schedule is over; not OK: its first failure */
};

typedef struct {
    uint8_t kind;
    uint8_t status;             /**< ch3_offload_status_t */
    uint8_t is_cancelled;
    uint32_t peer;
    void *cookie;
    ch3_offload_match_t match;
    size_t length_bytes;
    const void *bytes;
} ch3_offload_event_t;

enum {
    CH3_OFFLOAD_EVENT_SLOTS = 64        /**< a power of two */
};

typedef struct {
    uint32_t written;           /**< events put in so far; the engine's */
    uint32_t taken;             /**< events taken so far; the client's */
    uint32_t others;            /**< not 0: ch3_offload_next_event() may have events when the ring is empty */
    uint32_t packet_peer;       /**< of the packet */
    const void *packet;         /**< its bytes, in the provider's slot; NULL: there is none */
    size_t packet_bytes;
    ch3_offload_event_t slots[CH3_OFFLOAD_EVENT_SLOTS];
} ch3_offload_events_t;

/** 0: there is nothing to take. */
static inline int ch3_offload_has_events(const ch3_offload_events_t * events)
{
    return events->taken != events->written || events->others != 0 || events->packet != NULL;
}

/** Takes the oldest event of the ring. It stays valid until the next call for the channel. NULL: the ring is
 *  empty. */
static inline const ch3_offload_event_t *ch3_offload_take_event(ch3_offload_events_t * events)
{
    if (events->taken == events->written)
        return NULL;
    return &events->slots[events->taken++ % CH3_OFFLOAD_EVENT_SLOTS];
}

/** Takes the packet, if there is one, into the members of `event` that CH3_OFFLOAD_PACKET has. Returns 0 if
 *  there is none. REQUIRES: the ring is empty, and `others` is 0. */
static inline int ch3_offload_take_packet(ch3_offload_events_t * events, ch3_offload_event_t * event)
{
    if (events->packet == NULL)
        return 0;
    event->kind = CH3_OFFLOAD_PACKET;
    event->peer = events->packet_peer;
    event->bytes = events->packet;
    event->length_bytes = events->packet_bytes;
    events->packet = NULL;
    return 1;
}

#ifdef __cplusplus
}
#endif

#endif                          /* CH3_OFFLOAD_EVENTS_H_INCLUDED */
