/* Active messages: a message names a function of the process that it goes to, and brings its arguments. Bulk
 * data moves by remote memory. Both go over libportals (portals4.h), so over shared memory and RDMA networks.
 *
 * docs/active-messages.md has how to build a program, an example, and what is promised of order, room and
 * death.
 *
 * An endpoint (ch3_offload_am_t) sends and receives. Each has an address, which a program passes to others in
 * any way it likes. A function is registered by its name, in any order: its number is a hash of the name.
 *
 * Functions of the program (handlers, and those told of failures and transfers) run inside
 * ch3_offload_am_poll() and ch3_offload_am_flush() of their endpoint, one at a time. They may call everything
 * but these two and ch3_offload_am_close(). Those that are told of transfers may also run inside the latter.
 *
 * Threads: one at a time calls functions of one endpoint, its peers, regions and messages. Different
 * endpoints are independent.
 *
 * Errors: a function that does not return CH3_OFFLOAD_AM_OK has changed nothing, unless it says otherwise.
 * Null pointers, where nothing is said of them, are CH3_OFFLOAD_AM_INVALID.
 */
#ifndef CH3_OFFLOAD_AM_H_INCLUDED
#define CH3_OFFLOAD_AM_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden symbols; these are the ones that it shows. */
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

enum {
    CH3_OFFLOAD_AM_OK = 0,
    CH3_OFFLOAD_AM_AGAIN,       /**< no room now, or the time is over: poll, and try again */
    CH3_OFFLOAD_AM_INVALID,     /**< an argument is wrong, or a handler may not call this */
    CH3_OFFLOAD_AM_IN_USE,      /**< a function of that name is registered */
    CH3_OFFLOAD_AM_UNKNOWN,     /**< the peer has no such function, or no such region any more */
    CH3_OFFLOAD_AM_END,         /**< no argument is left, or there is no room for another one */
    CH3_OFFLOAD_AM_DIFFERENT,   /**< the next argument is of another type, or malformed */
    CH3_OFFLOAD_AM_PEER_DEAD,   /**< the peer has ended, has closed its endpoint or cannot be reached */
    CH3_OFFLOAD_AM_NO_MEMORY,
    CH3_OFFLOAD_AM_FAIL         /**< none of the others; a line on standard error may say more */
};

typedef struct ch3_offload_am ch3_offload_am_t;         /**< an endpoint */
typedef struct ch3_offload_am_peer ch3_offload_am_peer_t;       /**< an endpoint that messages go to */
typedef struct ch3_offload_am_message ch3_offload_am_message_t; /**< a message whose handler runs */
typedef struct ch3_offload_am_region ch3_offload_am_region_t;   /**< memory that others reach */
typedef struct ch3_offload_am_remote ch3_offload_am_remote_t;   /**< an attached region */

/** Where an endpoint is. Bytes in a fixed order, the same for every reader. */
typedef struct {
    unsigned char bytes[24];
} ch3_offload_am_address_t;

/** By this other processes reach a region. Bytes in a fixed order, the same for every reader. */
typedef struct {
    unsigned char bytes[40];
} ch3_offload_am_name_t;

/* ---- Arguments ----
 *
 * Values with their types, in a little-endian form that is the same on every machine
 * (docs/active-messages.md). A message has at most CH3_OFFLOAD_AM_MOST_BYTES of them: a u32 takes 5 bytes, a
 * u64 or a double 9, bytes 5 and their length, a string 6 and its length, the name of a region 41. */

#define CH3_OFFLOAD_AM_MOST_BYTES 4096

/** Arguments that are being written. The program allocates it; its members are the library's. */
typedef struct {
    uint32_t length;
    int32_t code;               /**< of the first append that failed: then it cannot be sent */
    unsigned char bytes[CH3_OFFLOAD_AM_MOST_BYTES];
} ch3_offload_am_arguments_t;

/** Makes it empty. */
void ch3_offload_am_begin(ch3_offload_am_arguments_t *arguments);

/* These append one value. CH3_OFFLOAD_AM_END: it has no room. */
int ch3_offload_am_append_u32(ch3_offload_am_arguments_t *arguments, uint32_t value);
int ch3_offload_am_append_u64(ch3_offload_am_arguments_t *arguments, uint64_t value);
int ch3_offload_am_append_double(ch3_offload_am_arguments_t *arguments, double value);
/** `bytes` may be null if `length` is 0. */
int ch3_offload_am_append_bytes(ch3_offload_am_arguments_t *arguments, const void *bytes, size_t length);
int ch3_offload_am_append_string(ch3_offload_am_arguments_t *arguments, const char *string);
int ch3_offload_am_append_name(ch3_offload_am_arguments_t *arguments, const ch3_offload_am_name_t *name);

/** Arguments that a handler reads, in their order. They are gone when it returns. Its members are the
 *  library's. */
typedef struct {
    const unsigned char *bytes;
    uint32_t length;
    uint32_t at;
} ch3_offload_am_reader_t;

/* These read the next value. CH3_OFFLOAD_AM_END: none is left. CH3_OFFLOAD_AM_DIFFERENT: it is of another
 * type, or longer than the message. Then it is still the next one. */
int ch3_offload_am_read_u32(ch3_offload_am_reader_t *reader, uint32_t *value);
int ch3_offload_am_read_u64(ch3_offload_am_reader_t *reader, uint64_t *value);
int ch3_offload_am_read_double(ch3_offload_am_reader_t *reader, double *value);
/** The bytes are the message's, and have no alignment. */
int ch3_offload_am_read_bytes(ch3_offload_am_reader_t *reader, const void **bytes, size_t *length);
/** The string is the message's, and ends with a null byte. */
int ch3_offload_am_read_string(ch3_offload_am_reader_t *reader, const char **string);
int ch3_offload_am_read_name(ch3_offload_am_reader_t *reader, ch3_offload_am_name_t *name);
/** Returns CH3_OFFLOAD_AM_OK if no value is left, else CH3_OFFLOAD_AM_DIFFERENT. */
int ch3_offload_am_read_end(const ch3_offload_am_reader_t *reader);

/* ---- Endpoints ---- */

/** Tells of a failure.
 *
 *  CH3_OFFLOAD_AM_PEER_DEAD: nothing reaches `peer` any more, and messages that it has not taken are lost.
 *  Comes once for a peer. `function` is 0.
 *
 *  CH3_OFFLOAD_AM_UNKNOWN: `peer` has no function of that number, which a message to it has named; or it has
 *  sent a reply that names a function which this endpoint does not have. The message was not handled.
 *
 *  CH3_OFFLOAD_AM_NO_MEMORY: a message of a new peer was not handled for want of memory. `peer` is null. */
typedef void ch3_offload_am_failed_t(void *context, ch3_offload_am_peer_t *peer, int code, uint64_t function);

/** Opens an endpoint. It calls PtlInit() and opens a Portals interface with matching and physical ids by
 *  itself. `failed`: may be null. CH3_OFFLOAD_AM_NO_MEMORY: also if a limit of the interface is reached,
 *  which a program may have set in PtlNIInit(). CH3_OFFLOAD_AM_FAIL: no network is usable. */
int ch3_offload_am_open(ch3_offload_am_failed_t *failed, void *context, ch3_offload_am_t **am);

/** Closes an endpoint, and frees its peers, regions and remotes. Messages that wait to be sent are lost: see
 *  ch3_offload_am_flush(). CH3_OFFLOAD_AM_AGAIN: operations on its memory have not ended; nothing more is
 *  sent or handled. Call it again. */
int ch3_offload_am_close(ch3_offload_am_t *am);

int ch3_offload_am_address(const ch3_offload_am_t *am, ch3_offload_am_address_t *address);

/** What messages do. `message` and `arguments` are the library's, and gone when it returns. */
typedef void ch3_offload_am_function_t(void *context, ch3_offload_am_message_t *message,
                                       ch3_offload_am_reader_t *arguments);

/** Registers a function, for as long as the endpoint lives. The name is copied. CH3_OFFLOAD_AM_INVALID: the
 *  name is empty. CH3_OFFLOAD_AM_IN_USE: that name is registered, or another one with the same number. */
int ch3_offload_am_register(ch3_offload_am_t *am, const char *name, ch3_offload_am_function_t *function,
                            void *context);

/** Returns the number of a function, as ch3_offload_am_failed_t tells it: the FNV-1a hash of its name, of 64
 *  bits. 0: `name` is null. */
uint64_t ch3_offload_am_number(const char *name);

/** Finds the peer of an address, which lives as long as the endpoint, or until ch3_offload_am_release().
 *  Nothing is sent. CH3_OFFLOAD_AM_NO_MEMORY: also if the endpoint has 65,536 peers. */
int ch3_offload_am_find_peer(ch3_offload_am_t *am, const ch3_offload_am_address_t *address,
                             ch3_offload_am_peer_t **peer);

/** The program uses the pointer to a peer no more, however often it has got it. A peer that is dead, and that
 *  the program has not asked for or has released, is forgotten. */
void ch3_offload_am_release(ch3_offload_am_peer_t *peer);

int ch3_offload_am_peer_address(const ch3_offload_am_peer_t *peer, ch3_offload_am_address_t *address);

/* ---- Messages ---- */

/** Sends a message: `name` is a function of the peer. Arguments are copied; null: none. Messages to one peer
 *  are handled in the order in which they were sent, each once. CH3_OFFLOAD_AM_AGAIN: there is no room for
 *  it, here or at the peer: poll, and try again. CH3_OFFLOAD_AM_PEER_DEAD. CH3_OFFLOAD_AM_INVALID: an append
 *  has failed. */
int ch3_offload_am_send(ch3_offload_am_peer_t *peer, const char *name,
                        const ch3_offload_am_arguments_t *arguments);

/** Answers a message, in its handler, at most once. An answer always has room: a message is not handled
 *  before its answer has. Answers to one peer are handled in their order, but not in the order of other
 *  messages. CH3_OFFLOAD_AM_INVALID: also if the message is an answer, or has been answered.
 *  CH3_OFFLOAD_AM_PEER_DEAD. */
int ch3_offload_am_reply(ch3_offload_am_message_t *message, const char *name,
                         const ch3_offload_am_arguments_t *arguments);

/** Returns who has sent a message: as ch3_offload_am_find_peer(). Null: `message` is null. */
ch3_offload_am_peer_t *ch3_offload_am_sender(const ch3_offload_am_message_t *message);

/** Lets things happen: messages leave and arrive, handlers run. Waits for that at most `timeout_ms`
 *  milliseconds; negative: without limit. CH3_OFFLOAD_AM_AGAIN: nothing has happened. CH3_OFFLOAD_AM_INVALID:
 *  a handler calls. CH3_OFFLOAD_AM_FAIL: PtlAbort() was called, or this is a child of fork(). */
int ch3_offload_am_poll(ch3_offload_am_t *am, int timeout_ms);

/** Polls until peers have taken all messages, and all transfers have ended: those that cannot end have
 *  failed. A message that is taken need not be handled yet. CH3_OFFLOAD_AM_AGAIN: the time is over. Others as
 *  ch3_offload_am_poll(). */
int ch3_offload_am_flush(ch3_offload_am_t *am, int timeout_ms);

/** Begins to find out whether a peer lives, for those who wait for it and send nothing: an idle peer costs
 *  nothing, so nobody hears by itself that it has died. Has no effect while messages to it are under way,
 *  which tell it just as well. CH3_OFFLOAD_AM_PEER_DEAD: it is known to be dead. CH3_OFFLOAD_AM_AGAIN: no
 *  room. */
int ch3_offload_am_check(ch3_offload_am_peer_t *peer);

/* ---- Remote memory ---- */

/** Allocates zeroed memory that processes of this user may put to and get from. Those of this node may map
 *  it: ch3_offload_am_mapped(). A child of fork() does not have it. CH3_OFFLOAD_AM_INVALID: `length` is 0. */
int ch3_offload_am_allocate(ch3_offload_am_t *am, size_t length, ch3_offload_am_region_t **region);

/** Lets processes of this user put to and get from memory that stays the program's, and must be there until
 *  ch3_offload_am_free(). */
int ch3_offload_am_expose(ch3_offload_am_t *am, void *start, size_t length, ch3_offload_am_region_t **region);

/** Returns where a region begins. Null: `region` is null. */
void *ch3_offload_am_memory(const ch3_offload_am_region_t *region);

int ch3_offload_am_name(const ch3_offload_am_region_t *region, ch3_offload_am_name_t *name);

/** Ends a region, and frees memory that the library has allocated. Processes that have mapped it keep the
 *  memory. CH3_OFFLOAD_AM_AGAIN: a transfer is under way there. */
int ch3_offload_am_free(ch3_offload_am_region_t *region);

/** Finds a region by its name, and maps it if that can be. Nothing is sent: who has a name of a region that
 *  is gone hears of it by the first transfer. CH3_OFFLOAD_AM_INVALID: that is no name. */
int ch3_offload_am_attach(ch3_offload_am_t *am, const ch3_offload_am_name_t *name,
                          ch3_offload_am_remote_t **remote);

/** Returns the memory of a region, for loads and stores, if its process has allocated it by
 *  ch3_offload_am_allocate() on this node. Null: use put and get. */
void *ch3_offload_am_mapped(const ch3_offload_am_remote_t *remote);

/** Returns the length of a region. 0: `remote` is null. */
size_t ch3_offload_am_length(const ch3_offload_am_remote_t *remote);

/** Forgets a remote region, and unmaps it. CH3_OFFLOAD_AM_AGAIN: transfers have not ended. */
int ch3_offload_am_detach(ch3_offload_am_remote_t *remote);

/** Tells how a transfer has ended: OK, PEER_DEAD, UNKNOWN (there is no such region), FAIL (the region is
 *  shorter than its name says, or not for this user). */
typedef void ch3_offload_am_done_t(void *context, int code);

/** Writes to a region. `from` must stay as it is until `done` is called, which comes after the data is there.
 *  `done`: may be null. A message that is sent later may arrive before the data, unless it is sent by `done`.
 *  CH3_OFFLOAD_AM_AGAIN: 64 transfers of the endpoint are under way. CH3_OFFLOAD_AM_INVALID: the range is not
 *  within the region. */
int ch3_offload_am_put(ch3_offload_am_remote_t *remote, size_t offset, const void *from, size_t length,
                       ch3_offload_am_done_t *done, void *context);

/** Reads from a region. `to` has the data when `done` is called. As ch3_offload_am_put(). */
int ch3_offload_am_get(ch3_offload_am_remote_t *remote, size_t offset, void *to, size_t length,
                       ch3_offload_am_done_t *done, void *context);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* CH3_OFFLOAD_AM_H_INCLUDED */
