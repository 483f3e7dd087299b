/* To be preloaded: a kernel that lets no process access another one's memory. NO_PROCESS_VM_AFTER=N: it begins to
 * refuse after N copies of a process. NO_PROCESS_VM_ERROR: errno, instead of EPERM. Nor does it through
 * /proc/PID/mem: nothing else here uses pread() and pwrite(). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t copy(long call, pid_t pid, const struct iovec *local, unsigned long local_count,
                    const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
    static long copies;
    const char *after = getenv("NO_PROCESS_VM_AFTER"), *error = getenv("NO_PROCESS_VM_ERROR");
    if (after != NULL && copies < atol(after)) {
        copies++;
        return syscall(call, pid, local, local_count, remote, remote_count, flags);
    }
    errno = error == NULL ? EPERM : atoi(error);
    return -1;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
                          const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
    return copy(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, flags);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
                         const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
    return copy(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}

ssize_t pread(int file, void *memory, size_t length, off_t at)
{
    (void) file, (void) memory, (void) length, (void) at;
    errno = EPERM;
    return -1;
}

ssize_t pwrite(int file, const void *memory, size_t length, off_t at)
{
    return pread(file, (void *) memory, length, at);
}
