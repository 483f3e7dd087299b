/*
 * The ch3:offload channel: how the headers of CH3's packets stand in the stream.
 *
 * In the stream, a header holds only those 8-byte words of MPIDI_CH3_Pkt_t that a packet of its type uses.
 * The first word holds the type. The receiver sets all other words to 0. So a small operation fits one cache
 * line instead of two: for its data of at most MPIDI_RMA_IMMED_BYTES, MPICH reserves 32 bytes where it aligns
 * types.
 */
#ifndef CH3_PACKET_HEADERS_H_INCLUDED
#define CH3_PACKET_HEADERS_H_INCLUDED

#include "mpidi_ch3_impl.h"

typedef struct {
    uint16_t words;             /* bit i: the word at byte 8 * i; 0: no packet of this type is sent */
    uint8_t bytes;              /* length of the header in the stream */
} MPIDI_CH3I_Header_t;

#define MOST_WORDS 10           /* COUNT counts so many */

/* Members of MPIDI_CH3_Pkt_t: the first byte, and the one behind the last. */
#define BEGIN(member) offsetof(MPIDI_CH3_Pkt_t, member)
#define END(member) (BEGIN(member) + sizeof(((MPIDI_CH3_Pkt_t *) NULL)->member))
/* The words of these bytes. */
#define WORDS(begin, end) ((1 << ((end) + 7) / 8) - (1 << (begin) / 8))
#define BIT(words, i) ((words) >> (i) & 1)
#define COUNT(words) (BIT(words, 0) + BIT(words, 1) + BIT(words, 2) + BIT(words, 3) + BIT(words, 4) + \
                      BIT(words, 5) + BIT(words, 6) + BIT(words, 7) + BIT(words, 8) + BIT(words, 9))
#define HEADER(words) {words, 8 * COUNT(words)}
#define UP_TO(member) WORDS(0, END(member))
#define LENGTH_OF_TYPE(packet) WORDS(BEGIN(packet.info), END(packet.info.flattened_type_size))
#define IMMEDIATE_DATA(packet) WORDS(BEGIN(packet.info), BEGIN(packet.info) + MPIDI_RMA_IMMED_BYTES)
#define FOP_RESP \
    (UP_TO(fop_resp.request_handle) | WORDS(BEGIN(fop_resp.target_rank), END(fop_resp.pkt_flags)))

static const MPIDI_CH3I_Header_t headers[MPIDI_CH3_PKT_END_ALL] = {
    [MPIDI_CH3_PKT_PUT] = HEADER(UP_TO(put.source_win_handle) | LENGTH_OF_TYPE(put)),
    [MPIDI_CH3_PKT_PUT_IMMED] = HEADER(UP_TO(put.source_win_handle) | IMMEDIATE_DATA(put)),
    [MPIDI_CH3_PKT_GET] = HEADER(UP_TO(get)),
    [MPIDI_CH3_PKT_ACCUMULATE] = HEADER(UP_TO(accum.source_win_handle) | LENGTH_OF_TYPE(accum)),
    [MPIDI_CH3_PKT_ACCUMULATE_IMMED] = HEADER(UP_TO(accum.source_win_handle) | IMMEDIATE_DATA(accum)),
    [MPIDI_CH3_PKT_GET_ACCUM] = HEADER(UP_TO(get_accum.target_win_handle) | LENGTH_OF_TYPE(get_accum)),
    [MPIDI_CH3_PKT_GET_ACCUM_IMMED] = HEADER(UP_TO(get_accum.target_win_handle) | IMMEDIATE_DATA(get_accum)),
    [MPIDI_CH3_PKT_FOP] = HEADER(UP_TO(fop.target_win_handle)),
    [MPIDI_CH3_PKT_FOP_IMMED] = HEADER(UP_TO(fop.target_win_handle) | IMMEDIATE_DATA(fop)),
    [MPIDI_CH3_PKT_CAS_IMMED] = HEADER(UP_TO(cas)),
    [MPIDI_CH3_PKT_GET_RESP] = HEADER(UP_TO(get_resp.pkt_flags)),
    [MPIDI_CH3_PKT_GET_RESP_IMMED] = HEADER(UP_TO(get_resp.pkt_flags) | IMMEDIATE_DATA(get_resp)),
    [MPIDI_CH3_PKT_GET_ACCUM_RESP] = HEADER(UP_TO(get_accum_resp.pkt_flags)),
    [MPIDI_CH3_PKT_GET_ACCUM_RESP_IMMED] =
        HEADER(UP_TO(get_accum_resp.pkt_flags) | IMMEDIATE_DATA(get_accum_resp)),
    [MPIDI_CH3_PKT_FOP_RESP] = HEADER(FOP_RESP),
    [MPIDI_CH3_PKT_FOP_RESP_IMMED] = HEADER(FOP_RESP | IMMEDIATE_DATA(fop_resp)),
    [MPIDI_CH3_PKT_CAS_RESP_IMMED] = HEADER(UP_TO(cas_resp)),
    [MPIDI_CH3_PKT_LOCK] = HEADER(UP_TO(lock)),
    [MPIDI_CH3_PKT_LOCK_ACK] = HEADER(UP_TO(lock_ack)),
    [MPIDI_CH3_PKT_LOCK_OP_ACK] = HEADER(UP_TO(lock_op_ack)),
    [MPIDI_CH3_PKT_UNLOCK] = HEADER(UP_TO(unlock)),
    [MPIDI_CH3_PKT_FLUSH] = HEADER(UP_TO(flush)),
    [MPIDI_CH3_PKT_ACK] = HEADER(UP_TO(ack)),
    [MPIDI_CH3_PKT_DECR_AT_COUNTER] = HEADER(UP_TO(decr_at_cnt)),
    [MPIDI_CH3_PKT_CLOSE] = HEADER(UP_TO(close)),
    [MPIDI_CH3_PKT_REVOKE] = HEADER(UP_TO(revoke)),
    [MPIDI_CH3_PKT_CONN_ACK] = HEADER(UP_TO(conn_ack)),
    [MPIDI_CH3_PKT_ACCEPT_ACK] = HEADER(UP_TO(accept_ack)),
    [MPIDI_CH3_PKT_OFFLOAD_AGREE] = HEADER(UP_TO(offload_agree)),
};

#undef FOP_RESP
#undef IMMEDIATE_DATA
#undef LENGTH_OF_TYPE
#undef UP_TO
#undef HEADER
#undef COUNT
#undef BIT
#undef WORDS
#undef END
#undef BEGIN

/* The header that begins with these bytes, at least sizeof(MPIDI_CH3_Pkt_type_t). NULL: none does. */
static inline const MPIDI_CH3I_Header_t *find_header(const void *bytes)
{
    MPIDI_CH3_Pkt_type_t type;

    MPIR_Memcpy(&type, bytes, sizeof(type));
    if (unlikely((unsigned int) type >= MPIDI_CH3_PKT_END_ALL || headers[type].words == 0))
        return NULL;
    return &headers[type];
}

/* Writes header->bytes to `to`, from a packet of which the caller has pkt_bytes. REQUIRES: that is all that a
 * packet of its type has. */
static inline void put_header(char *to, const MPIDI_CH3I_Header_t * header, const void *pkt, size_t pkt_bytes)
{
    unsigned int words;
    unsigned int cut = 1U << pkt_bytes / 8;     /* the word in which the packet ends, or the one behind */

    MPIR_Assert(header->words < (pkt_bytes % 8 != 0 ? 2 * cut : cut));
    for (words = header->words & (cut - 1); words != 0; words &= words - 1, to += 8)
        memcpy(to, (const char *) pkt + 8 * __builtin_ctz(words), 8);
    if (header->words & cut) {
        memset(to, 0, 8);
        MPIR_Memcpy(to, (const char *) pkt + (pkt_bytes & ~(size_t) 7), pkt_bytes % 8);
    }
}

/* Reads header->bytes from `from`. */
static inline void get_header(MPIDI_CH3_Pkt_t * pkt, const MPIDI_CH3I_Header_t * header, const char *from)
{
    unsigned int words;

    MPL_COMPILE_TIME_ASSERT(sizeof(*pkt) % 8 == 0 && sizeof(*pkt) / 8 <= MOST_WORDS);
    memset(pkt, 0, sizeof(*pkt));
    for (words = header->words; words != 0; words &= words - 1, from += 8)
        memcpy((char *) pkt + 8 * __builtin_ctz(words), from, 8);
}

#undef MOST_WORDS

#endif                          /* CH3_PACKET_HEADERS_H_INCLUDED */
