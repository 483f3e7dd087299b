/*
 * MPI windows that the network processor serves: the part of the C interface that ch3_offload.h does not have.
 *
 * A window is memory of this process. The other processes of the job name it by this process's rank and the
 * window's number. They put to it, get from it, change it atomically and take its lock, while this process
 * computes. One processor carries out all operations on a process's windows, one after another. So an element
 * that an atomic operation changes is changed at once. Operations of one process on one window take effect in
 * order, if none is longer than ch3_offload_window_atomic_bytes().
 *
 * An operation is over when the event CH3_OFFLOAD_WINDOW_DONE has come. Then it has taken effect, and its memory
 * is the caller's again. Its status is
 *   CH3_OFFLOAD_OK
 *   CH3_OFFLOAD_PEER_FAILED   the peer is dead, or somebody died who had the lock
 *   CH3_OFFLOAD_TRUNCATED     it does not lie in the window, and had no effect
 *
 * Threads: as ch3_offload.h. Progress and waiting are those of the channel.
 */

#ifndef CH3_OFFLOAD_WINDOWS_H_INCLUDED
#define CH3_OFFLOAD_WINDOWS_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#include "ch3_offload.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef enum {
    CH3_OFFLOAD_WINDOW_PUT = 0, /**< source */
    CH3_OFFLOAD_WINDOW_GET,     /**< result */
    CH3_OFFLOAD_WINDOW_ATOMIC,  /**< source, atomic, type */
    CH3_OFFLOAD_WINDOW_FETCH,   /**< the same, and result: what was there before */
    CH3_OFFLOAD_WINDOW_SWAP,    /**< source, type, result: as FETCH, and the source replaces what was there */
    CH3_OFFLOAD_WINDOW_COMPARE_SWAP,    /**< the same of one element, if what was there is equal to compare */
    CH3_OFFLOAD_WINDOW_LOCK_SHARED,     /**< over when the caller has the lock of that process's window */
    CH3_OFFLOAD_WINDOW_LOCK_EXCLUSIVE,
    CH3_OFFLOAD_WINDOW_UNLOCK   /**< gives it back. Nothing is told of it */
} ch3_offload_window_kind_t;

/** Of ch3_offload_window_begin(), which has statuses of ch3_offload_status_t otherwise. */
enum {
    CH3_OFFLOAD_WINDOW_AGAIN = 1
};

/** The atomic operations. */
typedef enum {
    CH3_OFFLOAD_MIN = 0,        /**< of a pair: as MPI_MINLOC */
    CH3_OFFLOAD_MAX,            /**< of a pair: as MPI_MAXLOC */
    CH3_OFFLOAD_SUM,
    CH3_OFFLOAD_PROD,
    CH3_OFFLOAD_LOR,
    CH3_OFFLOAD_LAND,
    CH3_OFFLOAD_BOR,
    CH3_OFFLOAD_BAND,
    CH3_OFFLOAD_LXOR,
    CH3_OFFLOAD_BXOR
} ch3_offload_atomic_t;

/** The types that they are for. A pair is a struct of C: a value, and its location. */
typedef enum {
    CH3_OFFLOAD_INT8 = 0,
    CH3_OFFLOAD_UINT8,
    CH3_OFFLOAD_INT16,
    CH3_OFFLOAD_UINT16,
    CH3_OFFLOAD_INT32,
    CH3_OFFLOAD_UINT32,
    CH3_OFFLOAD_FLOAT,
    CH3_OFFLOAD_INT64,
    CH3_OFFLOAD_UINT64,
    CH3_OFFLOAD_DOUBLE,
    CH3_OFFLOAD_FLOAT_COMPLEX,
    CH3_OFFLOAD_DOUBLE_COMPLEX,
    CH3_OFFLOAD_LONG_DOUBLE,
    CH3_OFFLOAD_LONG_DOUBLE_COMPLEX,
    CH3_OFFLOAD_SHORT_INT,
    CH3_OFFLOAD_INT_INT,
    CH3_OFFLOAD_LONG_INT,
    CH3_OFFLOAD_FLOAT_INT,
    CH3_OFFLOAD_DOUBLE_INT,
    CH3_OFFLOAD_LONG_DOUBLE_INT,
    CH3_OFFLOAD_FLOAT_FLOAT,
    CH3_OFFLOAD_DOUBLE_DOUBLE,
    CH3_OFFLOAD_NO_TYPE
} ch3_offload_type_t;

/** An operation on a window of `peer`, which may be this process. */
typedef struct {
    uint8_t kind;               /**< ch3_offload_window_kind_t */
    uint8_t atomic;             /**< ch3_offload_atomic_t */
    uint8_t type;               /**< ch3_offload_type_t */
    uint16_t window;            /**< as that process has it from ch3_offload_window_expose() */
    uint32_t peer;
    uint64_t offset_bytes;      /**< in the window's memory */
    size_t length_bytes;        /**< of the source, and of the result */
    const void *source;
    const void *compare;        /**< an element */
    void *result;
    void *cookie;
} ch3_offload_window_operation_t;

/** 1: there is a processor that serves windows while the process computes. Makes what it needs at the first call.
 *  0: there is none; CH3's packets serve them. */
int ch3_offload_window_serves(ch3_offload_channel_t * channel);

/** 1: there is such an atomic operation on such a type. */
int ch3_offload_window_can(uint8_t atomic, uint8_t type);

/** The longest atomic, and the longest put or get that takes effect at once. Bytes. */
size_t ch3_offload_window_atomic_bytes(ch3_offload_channel_t * channel);

/** What an operation does with memory of this process. */
typedef enum {
    CH3_OFFLOAD_WINDOW_SOURCE = 0,
    CH3_OFFLOAD_WINDOW_RESULT
} ch3_offload_window_access_t;

/** 1: an operation should not name that memory of this process, but a copy in memory of
 *  ch3_offload_alloc_memory(). Either the copy is faster, or the processor cannot reach that memory, which is a
 *  device's or secret: an operation that names such memory ends the job. REQUIRES: serves. */
int ch3_offload_window_stages(ch3_offload_channel_t * channel, const void *address, size_t bytes,
                              ch3_offload_window_access_t access);

/** Exposes memory, of 0 bytes too. CH3_OFFLOAD_OK, CH3_OFFLOAD_NO_MEMORY, or another status: the processor
 *  cannot reach that memory. REQUIRES: serves. */
int ch3_offload_window_expose(ch3_offload_channel_t * channel, void *address, size_t bytes, uint16_t * window);

/** Ends that. 0: an operation is in flight or somebody has the lock, and nothing was done: the caller makes
 *  progress and calls again. */
int ch3_offload_window_withdraw(ch3_offload_channel_t * channel, uint16_t window);

/** Begins an operation. CH3_OFFLOAD_OK: it will be done. CH3_OFFLOAD_WINDOW_AGAIN: too many are under way, and the
 *  caller makes progress and calls again. Else the status of its failure: nothing was done. */
int ch3_offload_window_begin(ch3_offload_channel_t * channel, const ch3_offload_window_operation_t * operation);

/** The same, of a put, get, atomic, fetch or swap whose bytes at the target are in runs: each of `block_bytes`,
 *  and each `stride_bytes` behind the beginning of the one before it. All of them lie in the window, or there
 *  is no effect. block_bytes 0: one run. REQUIRES: the runs do not overlap, and the length is a multiple of the
 *  block. */
int ch3_offload_window_begin_runs(ch3_offload_channel_t * channel,
                                  const ch3_offload_window_operation_t * operation, uint64_t block_bytes,
                                  uint64_t stride_bytes);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif /* CH3_OFFLOAD_WINDOWS_H_INCLUDED */
