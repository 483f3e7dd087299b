/* Modules: programs of the user, in Lua, that run in the network processor of each process and act on messages.
 *
 * docs/modules.md has what a module is, an example, and what is promised. For programs of MPI: the functions are in
 * MPICH's library, if that has the device ch3:offload.
 *
 * A group of modules (ch3_offload_modules_t) belongs to a communicator, whose ranks its modules count by. A module
 * has a name; the module of that name in one process sends to that in another one. A process gives it messages by
 * ch3_offload_module_send(), and receives what it delivers by ch3_offload_module_recv(), or by MPI_Recv() and all
 * other receives of MPI on ch3_offload_modules_comm().
 *
 * Threads: any that may call MPI, one at a time for a group. All functions but ch3_offload_module_send() wait for
 * the processor, and may wait for MPI's progress.
 *
 * Errors: what is returned is MPI_SUCCESS or an error class of MPI (MPI_ERR_ARG, MPI_ERR_NO_MEM, MPI_ERR_OTHER).
 * No error handler is called, but by MPI_Comm_dup() in ch3_offload_modules_open().
 */
#ifndef CH3_OFFLOAD_MODULES_H_INCLUDED
#define CH3_OFFLOAD_MODULES_H_INCLUDED

#include <mpi.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A longer message is refused. Bytes. */
#define CH3_OFFLOAD_MODULE_MOST_BYTES 16777216
/** Room for any line that says what is wrong. Bytes, with the null byte. */
#define CH3_OFFLOAD_MODULE_PROBLEM_BYTES 1024

typedef struct ch3_offload_modules ch3_offload_modules_t;

/** Opens a group. Collective over `comm`, an intracommunicator. */
int ch3_offload_modules_open(MPI_Comm comm, ch3_offload_modules_t ** modules);

/** Ends the modules of a group, and frees it. Collective; to be called before MPI_Finalize(). Messages that are on
 *  their way, or were not received, are lost. */
int ch3_offload_modules_close(ch3_offload_modules_t ** modules);

/** Where modules deliver. Belongs to the group. */
MPI_Comm ch3_offload_modules_comm(const ch3_offload_modules_t * modules);

/** Loads a module in this process, in place of one of the same name. Every process loads its own; messages to a
 *  module that is not there stop it in the whole group, so a barrier belongs between loading and the first message.
 *  `source`: the text, ending with a null byte. MPI_ERR_ARG: it cannot be loaded, and the former one stays;
 *  `problem` (may be NULL), of CH3_OFFLOAD_MODULE_PROBLEM_BYTES, says why. */
int ch3_offload_module_load(ch3_offload_modules_t * modules, const char *name, const char *source,
                            char *problem);

/** Removes a module from this process. MPI_ERR_ARG: there is none. */
int ch3_offload_module_remove(ch3_offload_modules_t * modules, const char *name);

/** Lists the modules of this process, one a line: its name, "runs" or "stopped", and what it has used, or why it has
 *  stopped; a tab between. What does not fit `capacity_bytes` is cut. */
int ch3_offload_module_list(ch3_offload_modules_t * modules, char *text, size_t capacity_bytes);

/** Sends a message to the module `name` in the process of rank `to`. To the own rank: delegates it to the own
 *  processor. `root` and `tag` come with it: what the module delivers of it has `root` for its source, and `tag`.
 *  The payload is copied. It waits while more than 64 MiB of such copies have not left. MPI_ERR_OTHER: that process
 *  is dead. */
int ch3_offload_module_send(ch3_offload_modules_t * modules, const char *name, const void *payload,
                            size_t length_bytes, int to, int root, int tag);

/** Receives what a module has delivered, as MPI_Recv() does on ch3_offload_modules_comm(): `root` may be
 *  MPI_ANY_SOURCE, `tag` MPI_ANY_TAG. MPI_ERR_OTHER: a module has stopped, or a process of the group has died, and
 *  nothing was received; ch3_offload_modules_problem() says more. The next call waits again. MPI_ERR_TRUNCATE: the
 *  message was longer. `status` may be MPI_STATUS_IGNORE. */
int ch3_offload_module_recv(ch3_offload_modules_t * modules, void *payload, size_t capacity_bytes, int root,
                            int tag, MPI_Status * status);

/** What was the last trouble in the group, as far as this process has received it. "": none. Valid until the next
 *  call. */
const char *ch3_offload_modules_problem(const ch3_offload_modules_t * modules);

#ifdef __cplusplus
}
#endif
#endif /* CH3_OFFLOAD_MODULES_H_INCLUDED */
