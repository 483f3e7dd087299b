/*
 * The ch3:offload channel: processes of other MPI worlds. See ch3_worlds.c, ch3_foreign.c (numbers) and
 * ch3_roots.c (packets between roots).
 */
#ifndef CH3_WORLDS_H_INCLUDED
#define CH3_WORLDS_H_INCLUDED

#include "mpidi_ch3_impl.h"

/* The connection with a peer that has a number behind those of this world. NULL: none is known. */
MPIDI_VC_t *MPIDI_CH3I_Foreign_vc(uint32_t peer);
/* The connection with any peer. */
static inline MPIDI_VC_t *MPIDI_CH3I_Vc(uint32_t peer)
{
    return likely(peer < (uint32_t) MPIDI_Process.my_pg->size) ? &MPIDI_Process.my_pg->vct[peer] :
        MPIDI_CH3I_Foreign_vc(peer);
}

/* The engine has lost it. */
int MPIDI_CH3I_Foreign_failed(uint32_t peer, int status);
/* The connection has been closed in good order: its process may go, or be connected anew. */
void MPIDI_CH3I_Leave_peer(MPIDI_VC_t * vc);
void MPIDI_CH3I_Forget_vc(MPIDI_VC_t * vc);

/* Packets of a process whose group is not known yet wait here. */
int MPIDI_CH3I_Hold_packets(uint32_t peer, const void *bytes, size_t length);
int MPIDI_CH3I_Holds_packets(uint32_t peer);
/* Takes those of which the group is known now. */
void MPIDI_CH3I_Take_held(void);

/* The farewell of a process was answered, although nothing here was of its connection: it answers, too. */
int MPIDI_CH3I_Await_last_close(uint32_t peer);
/* TRUE: it has done so now. */
int MPIDI_CH3I_Is_last_close(uint32_t peer);

/* Packets between roots. */
#define MPIDI_CH3I_ROOT_BYTES 16
/* Writes what stands before a packet of that connection. Returns how many bytes: 0 if it is none of roots. */
size_t MPIDI_CH3I_Put_root(const MPIDI_VC_t * vc, void *to);
int MPIDI_CH3I_Is_root(const void *bytes, size_t length);
/* MPIDI_CH3I_ROOT_BYTES are read. *vc may be NULL. has_packet: a packet of that connection follows. */
int MPIDI_CH3I_Take_root(uint32_t peer, const void *bytes, size_t length, MPIDI_VC_t ** vc, int *has_packet);
/* TRUE: a packet to that process goes in parts, and the next of them comes first. So this one is kept, with
 * what stands before it. MPIDI_CH3I_Send_root_packets() sends those when the last part has gone. */
int MPIDI_CH3I_Must_root_wait(const MPIDI_VC_t * vc);
int MPIDI_CH3I_Keep_root_packet(const MPIDI_VC_t * vc, const void *bytes, size_t length);
void MPIDI_CH3I_Send_root_packets(uint32_t peer);
/* The other root is dead, and this packet does not leave. */
int MPIDI_CH3I_Drop_root_packet(MPIDI_VC_t * vc, const MPIDI_CH3_Pkt_t * pkt);

/* `own`: the process group of this world. */
void MPIDI_CH3I_Worlds_init(MPIDI_PG_t * own);
void MPIDI_CH3I_Worlds_finalize(void);

#endif                          /* CH3_WORLDS_H_INCLUDED */
