/*
 * The ch3:offload channel: what ch3_worlds.c, ch3_foreign.c and ch3_roots.c share.
 */
#ifndef CH3_FOREIGN_H_INCLUDED
#define CH3_FOREIGN_H_INCLUDED

#include "ch3_worlds.h"

/* A process with a number behind those of this world. */
typedef struct MPIDI_CH3I_Foreign {
    struct MPIDI_CH3I_Foreign *next;
    uint32_t peer;
    MPIDI_VC_t *vc;             /* NULL: not known, or closed */
    char *held;                 /* of its packets: what came before its process group was known */
    size_t held_bytes;
    char *kept;                 /* root packets behind the parts of another packet; before each, its length */
    size_t kept_bytes;
    int last_closes;            /* of its farewells that were answered here: what has not come yet */
} MPIDI_CH3I_Foreign_t;

/* ---- ch3_foreign.c ---- */

/* NULL: nothing is known of it. It becomes the first of the list. */
MPIDI_CH3I_Foreign_t *MPIDI_CH3I_Find_foreign(uint32_t peer);
void MPIDI_CH3I_Drop_foreign(uint32_t peer);
void MPIDI_CH3I_Drop_foreigners(void);
/* Puts the bytes behind those of *to, which the caller frees. After an error, *to is as it was. */
int MPIDI_CH3I_Append(char **to, size_t * to_bytes, const void *bytes, size_t length);

/* ---- ch3_worlds.c ---- */

/* What the name of a port calls the name of its process. */
#define MPIDI_CH3I_NAME_KEY "name"

/* The name of a process of a group whose names are known. */
static inline char *MPIDI_CH3I_Name_in(MPIDI_PG_t * pg, int rank)
{
    return pg->ch.names + (size_t) rank * CH3_OFFLOAD_NAME_BYTES;
}

/* ---- ch3_roots.c ---- */

/* Lets both engines know of each other, so that the death of one is told to the other. */
void MPIDI_CH3I_Greet(uint32_t peer);
/* The process is dead: those of its connections that are of roots break. */
int MPIDI_CH3I_Break_roots(uint32_t peer);
/* The connection is freed. */
void MPIDI_CH3I_Forget_root(MPIDI_VC_t * vc);

#endif                          /* CH3_FOREIGN_H_INCLUDED */
