/* SPDX-License-Identifier: MIT */
/* Writes bytes to a descriptor, and keeps the signals of a failed write away. The program must not
 * notice such a failure: no signal, no cancelled thread, no other errno. */
#define _GNU_SOURCE
#include "base/write.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BIT(number) ((uint64_t)1 << ((number)-1))
/* A terminal stops a background program that writes to it, unless the signal is blocked. */
#define SHIELDED (BIT(SIGPIPE) | BIT(SIGXFSZ) | BIT(SIGTTOU))

/* A pipe that can be written to takes this much without a wait. */
#define PIECE_BYTES 4096

/* ---- signals ---- */

/* The system's own calls: the C library's wait for a signal is a place where threads are cancelled,
 * and is not promised to be safe in a handler. */
static _Bool change_mask(int how, const uint64_t *set, uint64_t *before_out)
{
    return syscall(SYS_rt_sigprocmask, how, set, before_out, sizeof *set) == 0;
}

static uint64_t find_waiting(void)
{
    uint64_t set = 0;
    return syscall(SYS_rt_sigpending, &set, sizeof set) == 0 ? set : SHIELDED;
}

_Bool vpmm_shield_raise(struct vpmm_shield *shield)
{
    const uint64_t ours = SHIELDED;
    shield->number = errno;
    shield->is_up = change_mask(SIG_BLOCK, &ours, &shield->blocked);
    if (!shield->is_up) {
        errno = shield->number;
        return 0;
    }
    shield->waiting = find_waiting();
    shield->could_be_cancelled = vpmm_cancel_hold();
    return 1;
}

void vpmm_shield_lower(struct vpmm_shield *shield)
{
    const struct timespec at_once = {0};
    const uint64_t caused = SHIELDED & ~shield->waiting;
    int number = errno;
    if (!shield->is_up)
        return;
    while (caused && (syscall(SYS_rt_sigtimedwait, &caused, NULL, &at_once, sizeof caused) > 0 ||
                      errno == EINTR))
        ;
    /* Where a filter of system calls refuses that, the signal is better blocked than deadly. */
    if (!(find_waiting() & caused))
        (void)change_mask(SIG_SETMASK, &shield->blocked, NULL);
    vpmm_cancel_restore(shield->could_be_cancelled);
    shield->is_up = 0;
    errno = number;
}

/* ---- writing ---- */

/* False: it takes nothing until then. */
static _Bool wait_for_room(int fd, uint64_t end_ms)
{
    for (;;) {
        uint64_t now = vpmm_now_ms();
        struct pollfd one = {.fd = fd, .events = POLLOUT};
        int answer = poll(&one, 1, now < end_ms ? (int)(end_ms - now) : 0);
        if (answer >= 0)
            return answer > 0;
        if (errno != EINTR)
            return 1;
        if (now >= end_ms)
            return 0;
    }
}

/* The lowest descriptors are the program's, whether they are open or not. */
static int move_up(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)close(fd);
    return high;
}

/* A terminal with some room still sleeps in the middle of a write that needs more, without end. One
 * that is opened again may be told not to; -1: it cannot be. What `fd` names may have changed. */
static int open_terminal_again(int fd, dev_t device)
{
    char path[32];
    unsigned number;
    struct stat facts;
    struct vpmm_text text;
    /* A master's name makes a new pair. */
    if (ioctl(fd, TIOCGPTN, &number) == 0)
        return -1;
    vpmm_text_init(&text, path, sizeof path, VPMM_TEXT_CUT);
    vpmm_text_string(&text, "/proc/self/fd/");
    vpmm_text_decimal(&text, (uint64_t)fd, 0);
    int again = move_up(open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (again < 0 || (fstat(again, &facts) == 0 && facts.st_rdev == device))
        return again;
    (void)close(again);
    return -1;
}

/* Another writer may have taken the room: a pipe or socket is asked not to wait. */
static ssize_t write_piece(int fd, mode_t mode, struct iovec *piece)
{
    if (S_ISSOCK(mode)) {
        const struct msghdr message = {.msg_iov = piece, .msg_iovlen = 1};
        return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (S_ISFIFO(mode)) {
        ssize_t written = pwritev2(fd, piece, 1, -1, RWF_NOWAIT);
        if (written >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL))
            return written;
    }
    return writev(fd, piece, 1);
}

/* Whether a write that ended so is worth another try. One that found no room after all waits a
 * little: whoever is asked for room may say that there is some. */
static _Bool may_try_again(ssize_t written, uint64_t end_ms)
{
    if (written == 0 || (errno != EINTR && errno != EAGAIN))
        return 0;
    if (errno == EINTR)
        return 1;
    (void)poll(NULL, 0, 1);
    return vpmm_now_ms() < end_ms;
}

static _Bool write_pieces(int fd, mode_t mode, const char *at, size_t n_left, size_t n_most,
                          unsigned patience_ms)
{
    uint64_t end_ms = vpmm_now_ms() + patience_ms;
    while (n_left > 0) {
        union {
            const char *read;
            void *base;
        } source = {at};
        struct iovec piece = {source.base, n_left < n_most ? n_left : n_most};
        if (!S_ISREG(mode) && !wait_for_room(fd, end_ms))
            return 0;
        ssize_t written = write_piece(fd, mode, &piece);
        if (written > 0) {
            at += written;
            n_left -= (size_t)written;
            end_ms = vpmm_now_ms() + patience_ms;
        } else if (!may_try_again(written, end_ms)) {
            return 0;
        }
    }
    return 1;
}

static _Bool write_all(int fd, const char *at, size_t n_left, unsigned patience_ms)
{
    struct stat facts = {0};
    (void)fstat(fd, &facts);
    if (!S_ISCHR(facts.st_mode) || !isatty(fd))
        return write_pieces(fd, facts.st_mode, at, n_left, PIECE_BYTES, patience_ms);
    int again = open_terminal_again(fd, facts.st_rdev);
    if (again < 0)
        return write_pieces(fd, facts.st_mode, at, n_left, 1, patience_ms);
    _Bool is_whole = write_pieces(again, facts.st_mode, at, n_left, PIECE_BYTES, patience_ms);
    (void)close(again);
    return is_whole;
}

_Bool vpmm_write(int fd, const void *bytes, size_t n_bytes, unsigned patience_ms)
{
    struct vpmm_shield shield;
    if (fd < 0 || !vpmm_shield_raise(&shield))
        return 0;
    _Bool is_whole = write_all(fd, bytes, n_bytes, patience_ms);
    errno = shield.number;
    vpmm_shield_lower(&shield);
    return is_whole;
}
