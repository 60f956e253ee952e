/* SPDX-License-Identifier: MIT */
/* Tells which user a peer is, and watches its process. Must not take for one user the number that
 * the kernel shows for all users without a number here. */
#define _GNU_SOURCE
#include "ipc/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 6.5. */
#ifndef SO_PEERPIDFD
#    define SO_PEERPIDFD 77
#endif

#define OVERFLOW_USER 65534u
#define ALL_USERS 4294967295u

/* False: it cannot be read. */
static bool read_line(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t n = read(file, text, room - 1);
    (void)close(file);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Takes the number that the text begins with off it. False: there is none. */
static bool take_number(char **text, uint32_t *number_out)
{
    char *end;
    unsigned long number = strtoul(*text, &end, 10);
    if (end == *text || number > UINT32_MAX)
        return false;
    *text = end;
    *number_out = (uint32_t)number;
    return true;
}

/* Whether every user has a number in the user namespace of this process. */
static bool are_all_mapped(void)
{
    char text[128], *rest = text;
    uint32_t first, outside, n;
    return read_line("/proc/self/uid_map", text, sizeof text) && take_number(&rest, &first) &&
           take_number(&rest, &outside) && take_number(&rest, &n) && n == ALL_USERS;
}

bool vpmm_ipc_user_is_one(uint32_t user_id)
{
    char text[32], *rest = text;
    uint32_t overflow = OVERFLOW_USER;
    if (read_line("/proc/sys/kernel/overflowuid", text, sizeof text))
        (void)take_number(&rest, &overflow);
    return (user_id != overflow && user_id != OVERFLOW_USER) || are_all_mapped();
}

static bool ask(int socket, struct ucred *peer_out)
{
    socklen_t n = sizeof *peer_out;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, peer_out, &n) == 0;
}

bool vpmm_ipc_peer_is_of(int socket, uint32_t user_id)
{
    struct ucred peer;
    return ask(socket, &peer) && peer.uid == user_id && vpmm_ipc_user_is_one(user_id);
}

/* Its number may be another process's by now, and is 0 where it has none in this pid namespace: the
 * kernel's own descriptor is right in both cases. */
bool vpmm_ipc_peer_watch(int socket, int *descriptor_out)
{
    struct ucred peer;
    int process;
    socklen_t n = sizeof process;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &n) != 0) {
        process = -1;
        if (errno == ENOPROTOOPT && ask(socket, &peer) && peer.pid > 0)
            process = (int)syscall(SYS_pidfd_open, peer.pid, 0);
        /* Before Linux 6.16, EINVAL says so of the option. */
        if (process < 0 && (errno == ESRCH || errno == EINVAL))
            return false;
    }
    *descriptor_out = process;
    return true;
}
