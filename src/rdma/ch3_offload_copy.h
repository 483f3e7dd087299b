/* Copies of payload between two buffers.
 *
 * Why not memcpy() alone: for some KiB and more, glibc's uses one instruction (rep movsb). That is slow where
 * the destination is a few bytes ahead of the source modulo a page: a load then looks, by its low twelve
 * bits, as if it read what was stored just before, and waits. On an AMD EPYC, 16 KiB take 6 us instead of
 * 0.33 where it is 1 to 15 bytes ahead, and 0.5 up to 63. Whoever calls MPI can't help it, since no program
 * knows where its messages lie on their way. Pieces below 2 KiB are copied by loads and stores of registers,
 * which do not mind (0.36), but are slower than rep movsb where the lines come from another core: so they are
 * the remedy for the worst case alone, and what decides where a message lies keeps away from the rest
 * (src/rdma/shm/travelling_chunks.h, "Places").
 */
#ifndef CH3_OFFLOAD_COPY_H_INCLUDED
#define CH3_OFFLOAD_COPY_H_INCLUDED

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CH3_OFFLOAD_COPY_PIECE_BYTES = 512,
    CH3_OFFLOAD_COPY_LEAST_BYTES = 2048,        /**< memcpy() copies less by registers anyway */
    CH3_OFFLOAD_COPY_PAGE_BYTES = 4096,
    CH3_OFFLOAD_COPY_TOO_NEAR_BYTES = 16
};

/** Whether one instruction would copy slowly from here to there. The kernel copies by that, too. */
static inline int ch3_offload_copy_is_slow(uintptr_t to, uintptr_t from)
{
    return ((to - from - 1) & (CH3_OFFLOAD_COPY_PAGE_BYTES - 1)) < CH3_OFFLOAD_COPY_TOO_NEAR_BYTES - 1;
}

/** As memcpy(), by pieces. */
static inline void ch3_offload_copy_pieces(unsigned char *to, const unsigned char *from, size_t length_bytes)
{
    for (; length_bytes > CH3_OFFLOAD_COPY_PIECE_BYTES; length_bytes -= CH3_OFFLOAD_COPY_PIECE_BYTES) {
        memcpy(to, from, CH3_OFFLOAD_COPY_PIECE_BYTES);
        to += CH3_OFFLOAD_COPY_PIECE_BYTES;
        from += CH3_OFFLOAD_COPY_PIECE_BYTES;
    }
    memcpy(to, from, length_bytes);
}

/** As memcpy(), and as fast wherever the two are. */
static inline void ch3_offload_copy(void *to, const void *from, size_t length_bytes)
{
    if (length_bytes >= CH3_OFFLOAD_COPY_LEAST_BYTES &&
        ch3_offload_copy_is_slow((uintptr_t) to, (uintptr_t) from))
        ch3_offload_copy_pieces((unsigned char *) to, (const unsigned char *) from, length_bytes);
    else
        memcpy(to, from, length_bytes);
}

#ifdef __cplusplus
}
#endif

#endif                          /* CH3_OFFLOAD_COPY_H_INCLUDED */
