/* A lane: what a short message or packet to one peer needs to leave without a call of the library.
 *
 * The shared-memory provider has one for each peer that it sends to, and works on it itself. The engine
 * opens and closes it: it is open while a message or packet of less than `length_limit` bytes may go at once,
 * in order with all others. A client asks for it with ch3_offload_lane(). It sends a message of contiguous
 * memory with ch3_offload_lane_send(), and a packet with ch3_offload_lane_begin_packet() and
 * ch3_offload_lane_end_packet(). They do what the engine does (Engine::State::send_short() and
 * packet_at_once(), RingProducer::publish()).
 *
 * All of it is private to the process, but for the records and the doorbell. It lives as long as the channel.
 * Threads: as all calls for the channel. A change of this file is a new ABI (CH3_OFFLOAD_ABI_VERSION).
 */
#ifndef CH3_OFFLOAD_LANE_H_INCLUDED
#define CH3_OFFLOAD_LANE_H_INCLUDED

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ch3_offload_copy.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Byte credit with one peer (src/engine/engine_flow.cc), and how many messages it was sent. */
typedef struct {
    uint64_t credit_bytes;      /**< what may be sent eagerly, kEnvelopeBytes for each message included */
    uint64_t owed_bytes;        /**< to be given to the peer with the next slot */
    uint64_t messages_sent;
    uint64_t available_bytes;   /**< what the peer may still spend, by our books */
} ch3_offload_books_t;

typedef struct {
    /* The provider's; src/rdma/shm/ring.h says what they mean. */
    unsigned char *records;     /**< of the ring, mapped twice in a row */
    uint64_t position_mask;     /**< the ring's bytes, less one */
    uint64_t position;          /**< of the next record */
    uint64_t end_limit;         /**< a record may end there at most; 0: none may begin */
    const uint64_t *doorbell;   /**< CH3_OFFLOAD_LANE_SLEEPS, ...WANTS_BITS. NULL: not known yet */
    uint64_t *activity;         /**< the word with this process's activity bit; known if doorbell is */
    uint64_t activity_bit;      /**< the bit, in its place */
    /* src/rdma/shm/travelling_records.h */
    unsigned char *travelling;  /**< the record to write next; NULL: none is here */
    unsigned char *travelling_too;      /**< the one after it; NULL: it is not here */
    uint64_t travelling_kind;   /**< of messages from here */
    uint64_t travelling_sent;   /**< messages from here in such records */
    /* The engine's. */
    uint64_t length_limit;      /**< payloads and packets must be shorter; 0: the lane is closed */
    ch3_offload_books_t books;
    uint64_t *sent_short;       /**< the counter of such messages to all peers */
    uint64_t *packets_sent;     /**< likewise, of packets */
} ch3_offload_lane_t;

enum {
    CH3_OFFLOAD_LANE_LINE_BYTES = 64,   /**< records begin at multiples of it */
    CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES = 8,
    CH3_OFFLOAD_LANE_MESSAGE_HEADER_BYTES = 24, /**< wire::EagerHeader */
    CH3_OFFLOAD_LANE_PACKET_HEADER_BYTES = 8,   /**< wire::CommonHeader */
    CH3_OFFLOAD_LANE_ENVELOPE_BYTES = 160,      /**< wire::kEnvelopeBytes */
    CH3_OFFLOAD_LANE_MOST_BYTES = 3 << 10,      /**< payloads and packets are shorter: kLeastChunkMessage */
    CH3_OFFLOAD_LANE_RECORD_KIND = 1,   /**< RecordKind::kMessage */
    CH3_OFFLOAD_LANE_TRAVELLING_BYTES = 3072,   /**< header included */
    CH3_OFFLOAD_LANE_SLEEPS = 1,        /**< bits of the doorbell: the peer sleeps */
    CH3_OFFLOAD_LANE_WANTS_BITS = 2,    /**< the peer polls many rings, and finds this one by its bit */
    CH3_OFFLOAD_LANE_MESSAGE_KIND = 1,  /**< wire::Kind::kEager */
    CH3_OFFLOAD_LANE_PACKET_KIND = 4    /**< wire::Kind::kPacket */
};

/** What a send through a lane came to. */
enum {
    CH3_OFFLOAD_LANE_CLOSED = 0,        /**< nothing was done: the library must be called */
    CH3_OFFLOAD_LANE_SENT,
    CH3_OFFLOAD_LANE_SENT_TO_SLEEPER    /**< sent, and ch3_offload_nudge() must follow */
};

/** The lane's own: the position behind the next record, which has a slot of so many bytes. */
static inline uint64_t ch3_offload_lane_next(const ch3_offload_lane_t * lane, uint64_t slot_bytes)
{
    return lane->position + ((CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES + slot_bytes +
                              CH3_OFFLOAD_LANE_LINE_BYTES - 1) &
                             ~(uint64_t) (CH3_OFFLOAD_LANE_LINE_BYTES - 1));
}

/** The lane's own: whether the slot goes in a record that travels. */
static inline int ch3_offload_lane_travels(const ch3_offload_lane_t * lane, uint64_t slot_bytes)
{
    return lane->travelling != NULL &&
        slot_bytes <= CH3_OFFLOAD_LANE_TRAVELLING_BYTES - CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES;
}

/** The lane's own: the record for the slot. NULL: there is no room. */
static inline unsigned char *ch3_offload_lane_record(const ch3_offload_lane_t * lane, uint64_t slot_bytes)
{
    if (ch3_offload_lane_travels(lane, slot_bytes))
        return lane->travelling;
    if (ch3_offload_lane_next(lane, slot_bytes) > lane->end_limit)
        return NULL;
    return lane->records + (lane->position & lane->position_mask);
}

/** The lane's own: writes wire::CommonHeader, which takes along the credit that is owed. */
static inline void ch3_offload_lane_write_common(ch3_offload_lane_t * lane, unsigned char *record,
                                                 uint64_t kind)
{
    const uint64_t owed = lane->books.owed_bytes < UINT32_MAX ? lane->books.owed_bytes : UINT32_MAX;
    const uint64_t common = owed << 32 | kind;

    lane->books.owed_bytes -= owed;
    lane->books.available_bytes += owed;
    memcpy(record + CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES, &common, 8);
}

/** The lane's own: publishes the record that travels. It is the peer's then. */
static inline void ch3_offload_lane_pass(ch3_offload_lane_t * lane, uint64_t slot_bytes)
{
    uint64_t *header = (uint64_t *) (void *) lane->travelling;
    const uint64_t number = lane->travelling_sent++ & 0xFFFF;

    lane->travelling = lane->travelling_too;
    lane->travelling_too = NULL;
    __atomic_store_n(header, lane->position / CH3_OFFLOAD_LANE_LINE_BYTES << 32 |
                     lane->travelling_kind << 28 | number << 12 | slot_bytes, __ATOMIC_SEQ_CST);
}

/** The lane's own: publishes the record for a slot of this length. As ShmProvider::publish(): "The sleep
 *  rule". */
static inline int ch3_offload_lane_publish(ch3_offload_lane_t * lane, unsigned char *record,
                                           uint64_t slot_bytes)
{
    uint64_t state;

    if (record == lane->travelling) {
        ch3_offload_lane_pass(lane, slot_bytes);
    } else {
        const uint64_t position = lane->position;
        const uint64_t next = ch3_offload_lane_next(lane, slot_bytes);
        uint64_t *next_header = (uint64_t *) (void *) (lane->records + (next & lane->position_mask));

        lane->position = next;
        __atomic_store_n(next_header, 0, __ATOMIC_RELAXED);
        __atomic_store_n((uint64_t *) (void *) record,
                         position / CH3_OFFLOAD_LANE_LINE_BYTES << 32 |
                         (uint64_t) CH3_OFFLOAD_LANE_RECORD_KIND << 28 | slot_bytes, __ATOMIC_SEQ_CST);
    }
    if (lane->doorbell == NULL)
        return CH3_OFFLOAD_LANE_SENT_TO_SLEEPER;
    state = __atomic_load_n(lane->doorbell, __ATOMIC_SEQ_CST);
    if ((state & (CH3_OFFLOAD_LANE_SLEEPS | CH3_OFFLOAD_LANE_WANTS_BITS)) == 0)
        return CH3_OFFLOAD_LANE_SENT;
    if ((state & CH3_OFFLOAD_LANE_WANTS_BITS) != 0 &&
        (__atomic_load_n(lane->activity, __ATOMIC_SEQ_CST) & lane->activity_bit) == 0)
        __atomic_fetch_or(lane->activity, lane->activity_bit, __ATOMIC_SEQ_CST);
    return (state & CH3_OFFLOAD_LANE_SLEEPS) != 0 ? CH3_OFFLOAD_LANE_SENT_TO_SLEEPER : CH3_OFFLOAD_LANE_SENT;
}

/** Sends a message of contiguous memory, if that is possible at once. `send_id` as for ch3_offload_send(). */
static inline int ch3_offload_lane_send(ch3_offload_lane_t * lane, uint64_t bits, uint32_t initiator,
                                        uint32_t send_id, const void *payload, size_t length_bytes)
{
    const uint64_t slot_bytes = CH3_OFFLOAD_LANE_MESSAGE_HEADER_BYTES + length_bytes;
    const uint64_t cost = CH3_OFFLOAD_LANE_ENVELOPE_BYTES + length_bytes;
    const uint64_t ids = (uint64_t) initiator << 32 | send_id;
    unsigned char *record;

    if (length_bytes >= lane->length_limit || cost > lane->books.credit_bytes)
        return CH3_OFFLOAD_LANE_CLOSED;
    record = ch3_offload_lane_record(lane, slot_bytes);
    if (record == NULL)
        return CH3_OFFLOAD_LANE_CLOSED;

    ch3_offload_lane_write_common(lane, record, CH3_OFFLOAD_LANE_MESSAGE_KIND);
    memcpy(record + 16, &bits, 8);
    memcpy(record + 24, &ids, 8);
    if (length_bytes == 8)      /* not worth a call */
        memcpy(record + 32, payload, 8);
    else if (length_bytes > 0)
        ch3_offload_copy(record + 32, payload, length_bytes);
    lane->books.credit_bytes -= cost;
    lane->books.messages_sent++;
    ++*lane->sent_short;
    return ch3_offload_lane_publish(lane, record, slot_bytes);
}

/** Begins a packet of `length_bytes` if it may leave at once. Returns the place for its bytes. The caller
 *  fills that and calls ch3_offload_lane_end_packet(), with no other call for this peer in between. NULL:
 *  nothing was done: call ch3_offload_send_packet(). REQUIRES: length_bytes >= 1. */
static inline void *ch3_offload_lane_begin_packet(ch3_offload_lane_t * lane, size_t length_bytes)
{
    const uint64_t slot_bytes = CH3_OFFLOAD_LANE_PACKET_HEADER_BYTES + length_bytes;
    unsigned char *record;

    if (length_bytes >= lane->length_limit)
        return NULL;
    record = ch3_offload_lane_record(lane, slot_bytes);
    if (record == NULL)
        return NULL;
    return record + CH3_OFFLOAD_LANE_RECORD_HEADER_BYTES + CH3_OFFLOAD_LANE_PACKET_HEADER_BYTES;
}

/** The engine's: sends a slot of another kind, which was begun as a packet of this length. `kind`: kind,
 *  flags and client as in wire::CommonHeader. Never CH3_OFFLOAD_LANE_CLOSED. */
static inline int ch3_offload_lane_end_slot(ch3_offload_lane_t * lane, uint64_t kind, size_t length_bytes)
{
    const uint64_t slot_bytes = CH3_OFFLOAD_LANE_PACKET_HEADER_BYTES + length_bytes;
    unsigned char *record = ch3_offload_lane_record(lane, slot_bytes);

    ch3_offload_lane_write_common(lane, record, kind);
    return ch3_offload_lane_publish(lane, record, slot_bytes);
}

/** Sends the packet that was begun with this length. Never CH3_OFFLOAD_LANE_CLOSED. */
static inline int ch3_offload_lane_end_packet(ch3_offload_lane_t * lane, size_t length_bytes)
{
    ++*lane->packets_sent;
    return ch3_offload_lane_end_slot(lane, CH3_OFFLOAD_LANE_PACKET_KIND, length_bytes);
}

#ifdef __cplusplus
}
#endif

#endif                          /* CH3_OFFLOAD_LANE_H_INCLUDED */
