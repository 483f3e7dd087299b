/*
 * The ch3:offload channel: mremap() for the program.
 *
 * libch3offload sees memory go through the hooks of UCX's libucm, whose hook of mremap() passes on four
 * arguments: a program that moves memory to where it says (MREMAP_FIXED, the fifth) would get it elsewhere,
 * in this and any other process with UCX. A program's calls find this function first; the C library's own
 * (realloc) use four.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE     /* the prototype */
#endif

#include <stdarg.h>
#include <sys/mman.h>

#include "ch3_offload.h"

/* libmpi hides what is not MPI's. */
__attribute__ ((visibility("default")))
void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...)
{
    void *new_address;
    va_list arguments;

    /* As the C library does: given or not, it is looked at with MREMAP_FIXED and MREMAP_DONTUNMAP only. */
    va_start(arguments, flags);
    new_address = va_arg(arguments, void *);
    va_end(arguments);
    return ch3_offload_mremap(address, old_bytes, new_bytes, flags, new_address);
}
