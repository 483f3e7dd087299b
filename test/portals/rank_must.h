/* What the programs of both MPI and Portals share: the rank, and how a process ends that sees something wrong. */
#ifndef RANK_MUST_H
#define RANK_MUST_H

#include <stdio.h>
#include <stdlib.h>

static int rank, size;

#define MUST(call) must((call) == PTL_OK, #call)

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    exit(1);
}

#endif
