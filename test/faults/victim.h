/* What the parts of the program share; victim.c says what it does. */
#define _GNU_SOURCE
#include <mpi.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kVictim = 1, kSecondVictim = 2, kLarge = 8 << 20, kPayload = 256 << 20 };
enum { kWaitBeforeDeath_us = 200000 };  /* the survivors really wait by then */

/* When a victim dies. */
typedef enum {
    kAfterWait,                 /* kWaitBeforeDeath_us after the survivors began */
    kQuarterReceived,           /* when it has the first quarter of a payload */
    kQuarterSent,               /* when a survivor has that */
} death_t;

enum { kEverybody = ~0u, kNobody = 0, kRoot = 1 };

/* How survivors wait for a victim. */
struct way {
    const char *name;
    int (*survive) (void);
    unsigned must_fail;         /* which survivors must get an error, by bits; the others may */
    void (*victim) (void);      /* what the victim does meanwhile; NULL: it sleeps */
    death_t death;
    void (*prepare) (void);     /* before all of that, in all ranks */
    int is_rma;                 /* needs `window` */
};

extern int rank, size;
extern char *buffer;            /* kLarge bytes, or kPayload */
extern MPI_Win window;          /* kLarge / 2 bytes of it, in all ranks */

void stop(const char *what);
long long now_ns(void);
void start_thread(void *(*run) (void *), void *argument);
int recv_from_victim(void);

/* victim_windows.c; the last has no name. */
extern const struct way window_ways[];
