/* Copies of payload between two buffers.
 *
 * For 2 KiB and more, glibc's memcpy() is one instruction (rep movsb). It is slow where the destination is
 * a few bytes ahead of the source modulo a page: by its low twelve bits, each load then seems to read what
 * was just stored, and waits for that. On an AMD EPYC of the third generation, 16 KiB take 7.3 us where the
 * destination is 1 to 31 bytes ahead, and 0.23 to 0.34 elsewhere. On others it is so up to 15 bytes, and 16
 * KiB take 0.5 us up to 63. A program can't avoid it, since it does not know where its messages lie on
 * their way.
 *
 * Two remedies:
 * - Messages lie where the distance to a program's buffer is seldom such: "Places" in
 *   src/rdma/shm/travelling_chunks.h.
 * - In the worst case, 1 to 31 bytes, ch3_offload_copy() copies pieces that are shorter than 2 KiB. memcpy()
 *   copies those by registers, in 0.36 to 1.7 us whatever the processor. Beyond 31 bytes that gains nothing,
 *   because it is slower where the lines come from another core.
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
    CH3_OFFLOAD_COPY_TOO_NEAR_BYTES = 32,
    CH3_OFFLOAD_COPY_SLOW_EVERYWHERE_BYTES = 16
};

/** Whether the destination is 1 to limit_bytes - 1 bytes ahead modulo a page. */
static inline int ch3_offload_copy_is_ahead(uint64_t to, uint64_t from, unsigned limit_bytes)
{
    return ((to - from - 1) & (CH3_OFFLOAD_COPY_PAGE_BYTES - 1)) < limit_bytes - 1;
}

/** Whether the kernel's copies are slow for these addresses, on each processor that was measured. */
static inline int ch3_offload_copy_is_slow(uint64_t to, uint64_t from)
{
    return ch3_offload_copy_is_ahead(to, from, CH3_OFFLOAD_COPY_SLOW_EVERYWHERE_BYTES);
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

/** As memcpy(), but never as slow as that in the worst case. */
static inline void ch3_offload_copy(void *to, const void *from, size_t length_bytes)
{
    if (length_bytes >= CH3_OFFLOAD_COPY_LEAST_BYTES &&
        ch3_offload_copy_is_ahead((uintptr_t) to, (uintptr_t) from, CH3_OFFLOAD_COPY_TOO_NEAR_BYTES))
        ch3_offload_copy_pieces((unsigned char *) to, (const unsigned char *) from, length_bytes);
    else
        memcpy(to, from, length_bytes);
}

#ifdef __cplusplus
}
#endif

#endif                          /* CH3_OFFLOAD_COPY_H_INCLUDED */
