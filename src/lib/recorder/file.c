/* SPDX-License-Identifier: MIT */
/* Opens the file of a trace, makes it grow, and cuts it at the end. Must not raise a signal in the
 * program, and must not overwrite a file that holds something else. */
#define _GNU_SOURCE
#include "recorder/file.h"

#include "base/fault.h"
#include "base/write.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

/* How often another process may come between two looks at the path. */
#define ATTEMPTS 8

/* What is written at once, from one page. */
#define PIECE_BYTES 4096
#define PIECES 256

#define LOWEST_DESCRIPTOR 512

/* The lowest descriptors are what a program expects to get, and what stray writes name. */
static int open_as(const char *path, int more)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK | more, 0644);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (fd >= 0 && high < 0)
        high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (high < 0)
        return fd;
    (void)close(fd);
    return high;
}

static bool is_same(const struct vpmm_trace_file *file, int fd)
{
    struct stat found;
    return fd >= 0 && fstat(fd, &found) == 0 && found.st_dev == file->device &&
           found.st_ino == file->number;
}

/* No signal where a file may not grow to that size. */
static bool resize(int fd, uint64_t bytes)
{
    struct vpmm_shield shield;
    if (!vpmm_shield_raise(&shield))
        return false;
    bool is_done = ftruncate(fd, (off_t)bytes) == 0;
    vpmm_shield_lower(&shield);
    return is_done;
}

/* What an earlier process left is not emptied where another way is possible: a reader may have it
 * mapped, and so may its writer, whose descriptor and lock its program closed. True: gone, or
 * empty. `errno` 0: the path means another file by now, which is another process's, or none.
 */
static bool make_way(const char *path, int fd, const struct stat *locked)
{
    struct stat entry;
    bool is_there = lstat(path, &entry) == 0;
    bool is_plain = is_there && S_ISREG(entry.st_mode);
    if (!is_there && errno == ENOENT) {
        errno = 0;
        return false;
    }
    if (is_plain && (entry.st_dev != locked->st_dev || entry.st_ino != locked->st_ino)) {
        errno = 0;
        return false;
    }
    return (is_plain && unlink(path) == 0) || resize(fd, 0);
}

/* Whose file it is does not matter where this process has just made it: some file systems give it
 * to somebody else. */
static bool may_be_replaced(int fd, const struct stat *found, bool is_new, const char **why_out)
{
    char magic[sizeof VPMM_TRACE_MAGIC - 1];
    if (is_new)
        return true;
    if (found->st_uid != geteuid()) {
        *why_out = "it belongs to another user";
        return false;
    }
    if (found->st_size && (pread(fd, magic, sizeof magic, 0) != sizeof magic ||
                           memcmp(magic, VPMM_TRACE_MAGIC, sizeof magic) != 0)) {
        *why_out = "it holds something that is no trace";
        return false;
    }
    return true;
}

const char *vpmm_trace_file_fault(int number)
{
    return number == EWOULDBLOCK
               ? "another process is recording into it (%p in the name is the process id)"
               : vpmm_fault_text(number);
}

static bool is_within_limit(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        bytes > limit.rlim_cur) {
        errno = EFBIG;
        return false;
    }
    return true;
}

/* Whether the file opened as `fd` may be recorded into by this process; it is empty and locked
 * then. Else `errno` tells, or `*why_out`; `errno` 0: the path means another file by now. */
static bool take(const char *path, int fd, bool is_new, const char **why_out)
{
    struct stat found;
    struct statfs system;
    if (fstat(fd, &found) != 0)
        return false;
    if (!S_ISREG(found.st_mode)) {
        *why_out = "it is no regular file";
        return false;
    }
    /* What is written anew there takes room anew: on a full disk a store would be a signal. */
    if (fstatfs(fd, &system) == 0 && system.f_type == BTRFS_SUPER_MAGIC) {
        *why_out = "its file system, btrfs, may have no room left for what is written once more";
        return false;
    }
    /* Some file systems have no locks. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    if (!may_be_replaced(fd, &found, is_new, why_out))
        return false;
    if (!is_within_limit(VPMM_TRACE_HEADER_BYTES) || (found.st_size && !make_way(path, fd, &found)))
        return false;
    return fstat(fd, &found) == 0;
}

/* One try: the descriptor; -1 as `take`; or -1 and `errno` 0 where the path meant another file
 * meanwhile. */
static int open_once(const char *path, const char **why_out)
{
    struct stat found, now;
    int fd = open_as(path, O_CREAT | O_EXCL);
    bool is_old = fd < 0 && errno == EEXIST;
    if (is_old)
        fd = open_as(path, 0);
    if (fd < 0) {
        errno = is_old && errno == ENOENT ? 0 : errno;
        return -1;
    }
    bool is_taken = take(path, fd, !is_old, why_out);
    int number = errno;
    if (is_taken && fstat(fd, &found) == 0 && lstat(path, &now) == 0 &&
        now.st_dev == found.st_dev && now.st_ino == found.st_ino)
        return fd;
    (void)close(fd);
    errno = is_taken ? 0 : number;
    return -1;
}

enum vpmm_status vpmm_trace_file_open(struct vpmm_trace_file *file, const char *path,
                                      const char **why_out)
{
    struct stat found;
    *why_out = NULL;
    *file = (struct vpmm_trace_file){.path = path, .fd = -1};
    for (int i = 0; i < ATTEMPTS && file->fd < 0; i++) {
        file->fd = open_once(path, why_out);
        if (file->fd < 0 && !*why_out && errno)
            *why_out = vpmm_trace_file_fault(errno);
        if (*why_out)
            return VPMM_INVALID;
    }
    if (file->fd < 0 || fstat(file->fd, &found) != 0) {
        *why_out = "other processes keep replacing it";
        return VPMM_INVALID;
    }
    file->device = found.st_dev;
    file->number = found.st_ino;
    return VPMM_OK;
}

/* The file's descriptor, found again by its path where the program closed it. */
static bool is_at_hand(struct vpmm_trace_file *file)
{
    if (is_same(file, file->fd))
        return true;
    file->fd = open_as(file->path, 0);
    if (is_same(file, file->fd))
        return true;
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
    errno = EBADF;
    return false;
}

/* Zeros, because what is merely reserved costs twice as much when it is touched, and not every file
 * system can reserve. */
static bool write_zeros(int fd, uint64_t begin, uint64_t bytes)
{
    static const char zeros[PIECE_BYTES];
    const union {
        const char *read;
        void *base;
    } source = {zeros};
    struct iovec pieces[PIECES];
    for (uint64_t done = 0; done < bytes;) {
        int n = 0;
        for (uint64_t left = bytes - done; left && n < PIECES; n++) {
            pieces[n] = (struct iovec){source.base, left < sizeof zeros ? left : sizeof zeros};
            left -= pieces[n].iov_len;
        }
        /* At a limit the first write is cut short, and the next one tells why. */
        ssize_t written = pwritev(fd, pieces, n, (off_t)(begin + done));
        if (written <= 0 && !(written < 0 && errno == EINTR))
            return false;
        done += written > 0 ? (uint64_t)written : 0;
    }
    return true;
}

bool vpmm_trace_file_extend(struct vpmm_trace_file *file, uint64_t begin, uint64_t bytes)
{
    struct vpmm_shield shield;
    if (!is_at_hand(file) || !vpmm_shield_raise(&shield))
        return false;
    bool is_done = write_zeros(file->fd, begin, bytes);
    vpmm_shield_lower(&shield);
    int number = errno;
    if (!is_done)
        vpmm_trace_file_cut(file, begin);
    errno = number;
    return is_done;
}

bool vpmm_trace_file_has(struct vpmm_trace_file *file, uint64_t bytes)
{
    struct stat found;
    return !is_at_hand(file) || fstat(file->fd, &found) != 0 || (uint64_t)found.st_size >= bytes;
}

bool vpmm_trace_file_map(struct vpmm_trace_file *file, void *address, uint64_t begin,
                         uint64_t bytes)
{
    return is_at_hand(file) && mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                                    file->fd, (off_t)begin) != MAP_FAILED;
}

void vpmm_trace_file_cut(struct vpmm_trace_file *file, uint64_t bytes)
{
    if (is_at_hand(file))
        (void)resize(file->fd, bytes);
}

void vpmm_trace_file_close(struct vpmm_trace_file *file)
{
    if (is_same(file, file->fd))
        (void)close(file->fd);
    file->fd = -1;
}

void vpmm_trace_file_remove(struct vpmm_trace_file *file)
{
    struct stat found;
    if (lstat(file->path, &found) == 0 && found.st_dev == file->device &&
        found.st_ino == file->number)
        (void)unlink(file->path);
    vpmm_trace_file_close(file);
}
