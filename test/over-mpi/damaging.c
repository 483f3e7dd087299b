/* To be preloaded: a kernel that damages what it copies between processes. Of each third copy of 1,000 bytes or
 * more, one bit becomes another one. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int must_damage(size_t length)
{
    static unsigned copies;
    return length >= 1000 && __atomic_fetch_add(&copies, 1, __ATOMIC_RELAXED) % 3 == 0;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
                         const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
    ssize_t copied = syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
    if (copied > 0 && must_damage((size_t) copied))
        ((unsigned char *) local[0].iov_base)[local[0].iov_len / 2] ^= 16;
    return copied;
}

/* The sender's memory stays as it is. */
ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
                          const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
    unsigned char *copy;
    ssize_t copied;
    if (local_count != 1 || !must_damage(local[0].iov_len) || (copy = malloc(local[0].iov_len)) == NULL)
        return syscall(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, flags);
    memcpy(copy, local[0].iov_base, local[0].iov_len);
    copy[local[0].iov_len / 2] ^= 16;
    struct iovec damaged = { copy, local[0].iov_len };
    copied = syscall(SYS_process_vm_writev, pid, &damaged, 1, remote, remote_count, flags);
    free(copy);
    return copied;
}
