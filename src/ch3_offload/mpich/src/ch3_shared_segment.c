/*
 * The ch3:offload channel: memory that the processes of a node share.
 *
 * A segment is a memfd that all of them map: a page with a mutex, then what its user wants. The node's first
 * process makes the memfd and sends it to the others over Unix-domain sockets in the abstract namespace.
 * Nothing is in the file system, and no descriptor stays open once the memory is mapped.
 *
 * All waiting is in collectives; nothing on the sockets blocks. Each process takes part in every collective,
 * whatever has failed before.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE     /* memfd_create, accept4, struct ucred, robust mutexes */
#endif

#include "mpidi_ch3_impl.h"
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define TOKEN_BYTES 16
#define NAME_BYTES 32
#define BACKLOG 16

/* The first bytes of a segment. */
typedef struct {
    pthread_mutex_t mutex;
    uint64_t number;
} header_t;

/* Whom to send the memfd to. Each process tells the others of its node. */
typedef struct {
    int failure;                /* 0: it is ready */
    int name_bytes;             /* 0: the first process, which needs no socket */
    char name[NAME_BYTES];      /* its listening socket's sun_path, up to name_bytes */
    unsigned char token[TOKEN_BYTES];   /* comes with the memfd */
} recipient_t;

enum { STEP_LISTEN = 1, STEP_TAKE, STEP_GIVE, STEP_MAP, STEP_MEMORY };

static const char *const step_texts[] = {
    [STEP_LISTEN] = "cannot listen for the window's shared memory",
    [STEP_TAKE] = "did not get the window's shared memory from the first process of its node",
    [STEP_GIVE] = "cannot send the window's shared memory to another process of its node",
    [STEP_MAP] = "cannot map the window's shared memory",
    [STEP_MEMORY] = "cannot allocate the window's memory",
};

#define FAILURE(step_, errno_) ((step_) << 16 | (errno_))
#define FAILURE_STEP(failure_) ((failure_) >> 16)
#define FAILURE_ERRNO(failure_) ((failure_) & 0xffff)

static uint32_t segments_made = 0;

int MPIDI_CH3I_Segment_no_memory(void)
{
    return FAILURE(STEP_MEMORY, ENOMEM);
}

int MPIDI_CH3I_Segment_lacks_memory(int failure)
{
    int e = FAILURE_ERRNO(failure);

    return FAILURE_STEP(failure) >= STEP_MAP && (e == ENOMEM || e == EFBIG);
}

void MPIDI_CH3I_Segment_describe(int failure, char *text, size_t capacity)
{
    char reason[MPIR_STRERROR_BUF_SIZE];

    snprintf(text, capacity, "%s: %s", step_texts[FAILURE_STEP(failure)],
                 MPIR_Strerror(FAILURE_ERRNO(failure), reason, sizeof(reason)));
}

static void note(int *worst, int failure)
{
    if (failure > *worst)
        *worst = failure;
}

size_t MPIDI_CH3I_Segment_header_bytes(void)
{
    return (size_t) sysconf(_SC_PAGESIZE);
}

/* ---- the mutex ---- */

int MPIDI_CH3I_Segment_init_mutex(pthread_mutex_t * mutex)
{
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);

    if (error != 0)
        return error;
    error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (error == 0)
        error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (error == 0)
        error = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return error;
}

void MPIDI_CH3I_Segment_lock(pthread_mutex_t * mutex)
{
    int error = pthread_mutex_lock(mutex);

    /* Its owner died in the middle of an accumulate: the target's bytes are what it left, the mutex serves
     * on. */
    if (unlikely(error == EOWNERDEAD))
        error = pthread_mutex_consistent(mutex);
    MPIR_Assert(error == 0);
}

void MPIDI_CH3I_Segment_unlock(pthread_mutex_t * mutex)
{
    int error ATTRIBUTE((unused)) = pthread_mutex_unlock(mutex);

    MPIR_Assert(error == 0);
}

/* ---- handing a descriptor over ---- */

static int own_user(int socket_fd)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);

    return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
        credentials.uid == geteuid();
}

static int make_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Returns a socket that waits for a connection, and fills in how to reach it; -1: recipient->failure says
 * why. */
static int make_listener(recipient_t * recipient)
{
    struct sockaddr_un name;
    socklen_t length = sizeof(name);
    int fd = make_socket();

    if (fd < 0)
        goto fn_fail;
    memset(&name, 0, sizeof(name));
    name.sun_family = AF_UNIX;
    /* A name of no length: the kernel chooses one in the abstract namespace. */
    if (bind(fd, (struct sockaddr *) &name, sizeof(name.sun_family)) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *) &name, &length) != 0)
        goto fn_fail;
    recipient->name_bytes = (int) (length - offsetof(struct sockaddr_un, sun_path));
    if (recipient->name_bytes <= 0 || recipient->name_bytes > NAME_BYTES) {
        errno = ENAMETOOLONG;
        goto fn_fail;
    }
    memcpy(recipient->name, name.sun_path, recipient->name_bytes);
    errno = EIO;
    if (!MPIDI_CH3I_Random_bytes(recipient->token, TOKEN_BYTES))
        goto fn_fail;

  fn_exit:
    return fd;
  fn_fail:
    note(&recipient->failure, FAILURE(STEP_LISTEN, errno));
    if (fd >= 0)
        close(fd);
    fd = -1;
    goto fn_exit;
}

/* Sends `file` to the process that listens at recipient->name. Returns 0 or errno. What is sent stays in the
 * socket until the other side takes it. */
static int give(int file, const recipient_t * recipient)
{
    struct sockaddr_un name;
    char control[CMSG_SPACE(sizeof(int))] __attribute__ ((aligned(sizeof(size_t)))) = { 0 };
    struct iovec token = {.iov_base = (void *) recipient->token,.iov_len = TOKEN_BYTES };
    struct msghdr message = {.msg_iov = &token,.msg_iovlen = 1,.msg_control = control,
        .msg_controllen = sizeof(control)
    };
    struct cmsghdr *attached = CMSG_FIRSTHDR(&message);
    int error = 0;
    int fd = make_socket();

    if (fd < 0)
        return errno;
    memset(&name, 0, sizeof(name));
    name.sun_family = AF_UNIX;
    memcpy(name.sun_path, recipient->name, recipient->name_bytes);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(attached), &file, sizeof(int));
    if (connect(fd, (struct sockaddr *) &name,
                offsetof(struct sockaddr_un, sun_path) + recipient->name_bytes) != 0)
        error = errno;
    else if (!own_user(fd))
        error = EACCES;
    else if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != TOKEN_BYTES)
        error = errno;
    close(fd);
    return error;
}

/* Reads the token and the file from a connection. Returns the file, or -1. */
static int take_from(int fd, const unsigned char *token)
{
    unsigned char got[TOKEN_BYTES];
    char control[CMSG_SPACE(sizeof(int))] __attribute__ ((aligned(sizeof(size_t))));
    struct iovec iov = {.iov_base = got,.iov_len = TOKEN_BYTES };
    struct msghdr message = {.msg_iov = &iov,.msg_iovlen = 1,.msg_control = control,
        .msg_controllen = sizeof(control)
    };
    struct cmsghdr *attached;
    ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int file = -1;

    if (length < 0)
        return -1;
    attached = CMSG_FIRSTHDR(&message);
    if (attached != NULL && attached->cmsg_level == SOL_SOCKET && attached->cmsg_type == SCM_RIGHTS &&
        attached->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&file, CMSG_DATA(attached), sizeof(int));
    if (file < 0) {
        /* No descriptor was left for it, or none was sent. */
        errno = message.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO;
    } else if (length != TOKEN_BYTES || memcmp(got, token, TOKEN_BYTES) != 0) {
        close(file);
        file = -1;
        errno = EPROTO;
    }
    return file;
}

/* Takes the file that give() has sent. Ignores connections of others. Returns -1 with errno. */
static int take(int listener, const unsigned char *token)
{
    int reason = ECONNREFUSED;  /* nobody came */

    for (;;) {
        int file = -1;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN)
                reason = errno;
            errno = reason;
            return -1;
        }
        if (own_user(fd)) {
            file = take_from(fd, token);
            if (file < 0)
                reason = errno;
        }
        close(fd);
        if (file >= 0)
            return file;
    }
}

/* ---- the segment ---- */

/* Where the kernel promises no more memory than there is (vm.overcommit_memory is 2), a page that is missing
 * would end the process that touches it (SIGBUS). Returns 0, or -1 with errno. */
static int reserve_pages(int file, size_t bytes)
{
    int setting = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    char mode = '0';
    int is_known = setting >= 0 && read(setting, &mode, 1) == 1;

    if (setting >= 0)
        close(setting);
    if (!is_known || mode != '2' || fallocate(file, 0, 0, (off_t) bytes) == 0)
        return 0;
    errno = ENOMEM;
    return -1;
}

/* Returns a sealed memfd of that size, or -1 with errno. */
static int make_file(size_t bytes)
{
    struct rlimit limit;
    int file;

    /* Past the limit ftruncate() would end the process by a signal. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    file = memfd_create("ch3-offload-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file >= 0 && (ftruncate(file, (off_t) bytes) != 0 ||
                      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
                      reserve_pages(file, bytes) != 0)) {
        int error = errno;

        close(file);
        errno = error;
        file = -1;
    }
    return file;
}

static int is_segment(int file, size_t bytes)
{
    struct stat status;
    int seals = fcntl(file, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(file, &status) == 0 &&
        (size_t) status.st_size == bytes;
}

/* Returns a failure. */
static int map_file(int file, MPIDI_CH3I_Segment * segment)
{
    void *address = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (address == MAP_FAILED)
        return FAILURE(STEP_MAP, errno);
    segment->address = address;
    segment->mutex = &((header_t *) address)->mutex;
    ch3_offload_share_memory(MPIDI_CH3I_channel, address, segment->bytes, file);
    return 0;
}

/* Makes a segment of segment->bytes, maps it, and sends it to the other processes. Returns a failure. */
static int make_segment(MPIDI_CH3I_Segment * segment, const recipient_t * recipients, int count)
{
    header_t *header;
    int failure, error, i;
    int file = make_file(segment->bytes);

    if (file < 0)
        return FAILURE(STEP_MEMORY, errno);
    failure = map_file(file, segment);
    if (failure != 0)
        goto fn_exit;
    header = segment->address;
    header->number = (uint64_t) MPIR_Process.rank << 32 | ++segments_made;
    error = MPIDI_CH3I_Segment_init_mutex(&header->mutex);
    if (error != 0)
        failure = FAILURE(STEP_MEMORY, error);
    for (i = 1; i < count && failure == 0; i++) {
        error = give(file, &recipients[i]);
        if (error != 0)
            failure = FAILURE(STEP_GIVE, error);
    }

  fn_exit:
    close(file);
    return failure;
}

/* Takes the segment of segment->bytes that the first process has sent, and maps it. Returns a failure. */
static int take_segment(MPIDI_CH3I_Segment * segment, int listener, const unsigned char *token)
{
    int failure;
    int file = take(listener, token);

    if (file < 0)
        return FAILURE(STEP_TAKE, errno);
    failure = is_segment(file, segment->bytes) ? map_file(file, segment) : FAILURE(STEP_TAKE, EPROTO);
    close(file);
    return failure;
}

static int all_ready(const recipient_t * recipients, int count)
{
    int i;

    for (i = 0; i < count; i++)
        if (recipients[i].failure != 0)
            return FALSE;
    return TRUE;
}

size_t MPIDI_CH3I_Segment_scratch_bytes(void)
{
    return sizeof(recipient_t);
}

void MPIDI_CH3I_Segment_share(MPIR_Comm * node, MPIDI_CH3I_Segment * segment, void *scratch, int *failure,
                              int *mpi_errno)
{
    recipient_t *recipients = scratch;
    recipient_t *own;
    int listener = -1;
    int is_made = FALSE;
    int error;

    own = &recipients[node->rank];
    own->failure = *failure;
    if (node->rank != 0 && *failure == 0)
        listener = make_listener(own);
    note(failure, own->failure);
    error = MPIDI_CH3I_Allgather(recipients, sizeof(*recipients), MPIR_BYTE_INTERNAL, node);
    MPIR_ERR_ADD(*mpi_errno, error);
    if (node->rank == 0 && *mpi_errno == MPI_SUCCESS && all_ready(recipients, node->local_size)) {
        note(failure, make_segment(segment, recipients, node->local_size));
        is_made = *failure == 0;
    }
    error = MPIDI_CH3I_Bcast(&is_made, 1, MPIR_INT_INTERNAL, 0, node);
    MPIR_ERR_ADD(*mpi_errno, error);
    if (node->rank != 0 && *mpi_errno == MPI_SUCCESS && is_made)
        note(failure, take_segment(segment, listener, own->token));
    if (segment->address != NULL)
        segment->number = ((header_t *) segment->address)->number;
    if (listener >= 0)
        close(listener);
}

void MPIDI_CH3I_Segment_release(MPIDI_CH3I_Segment * segment)
{
    if (segment->address != NULL) {
        ch3_offload_unshare_memory(MPIDI_CH3I_channel, segment->address);
        munmap(segment->address, segment->bytes);
    }
    memset(segment, 0, sizeof(*segment));
}
