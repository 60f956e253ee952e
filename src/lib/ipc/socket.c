/* SPDX-License-Identifier: MIT */
/* Opens the sockets, sends messages and receives them. Must not raise SIGPIPE in the program, and
 * must not wait past the deadline. */
#define _GNU_SOURCE
#include "ipc/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

/* The abstract name begins with a zero byte; its length counts. */
static socklen_t name_socket(uint32_t process, uint32_t door, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "vpmm-%u-%08x", process,
                     door);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int vpmm_ipc_listen(uint32_t process, uint32_t door)
{
    struct sockaddr_un address;
    socklen_t n = name_socket(process, door, &address);
    int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listening < 0)
        return -1;
    if (bind(listening, (struct sockaddr *)&address, n) != 0 || listen(listening, BACKLOG) != 0) {
        (void)close(listening);
        return -1;
    }
    return listening;
}

static uint64_t left_ms(uint64_t deadline_ms)
{
    uint64_t now_ms = vpmm_now_ms();
    return deadline_ms > now_ms ? deadline_ms - now_ms : 0;
}

int vpmm_ipc_connect(uint32_t process, uint32_t door, uint64_t deadline_ms)
{
    struct sockaddr_un address;
    socklen_t n = name_socket(process, door, &address);
    uint64_t wait_ms = left_ms(deadline_ms) + 1;
    struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000),
                           .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
    int connected = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connected < 0)
        return -1;
    (void)setsockopt(connected, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    int failed;
    do
        failed = connect(connected, (struct sockaddr *)&address, n);
    while (failed && errno == EINTR && left_ms(deadline_ms) > 0);
    if (failed) {
        (void)close(connected);
        return -1;
    }
    return connected;
}

/* Room for the descriptors of one message, aligned as the kernel wants it. */
union control {
    char bytes[CMSG_SPACE(sizeof(int) * VPMM_IPC_CHUNK)];
    struct cmsghdr header;
};

bool vpmm_ipc_send(int socket, const void *bytes, size_t n, const int *descriptors,
                   size_t n_descriptors)
{
    union control control;
    struct iovec part = {.iov_len = n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;
    memcpy(&part.iov_base, &bytes, sizeof bytes);
    if (n_descriptors) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n_descriptors);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * n_descriptors);
        memcpy(CMSG_DATA(header), descriptors, sizeof(int) * n_descriptors);
    }
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)n;
}

static bool wait_for(int socket, short events, uint64_t deadline_ms)
{
    struct pollfd waited = {.fd = socket, .events = events};
    int n;
    do
        n = poll(&waited, 1, (int)left_ms(deadline_ms));
    while (n < 0 && errno == EINTR);
    return n > 0;
}

enum vpmm_status vpmm_ipc_send_request(int socket, const struct vpmm_ipc_request *request,
                                       uint64_t deadline_ms)
{
    while (!vpmm_ipc_send(socket, request, sizeof *request, NULL, 0)) {
        if (errno != EAGAIN)
            return VPMM_NOT_FOUND;
        if (!wait_for(socket, POLLOUT, deadline_ms))
            return VPMM_NOT_READY;
    }
    return VPMM_OK;
}

static void close_all(const int *descriptors, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)close(descriptors[i]);
}

/* What came with the message; the kernel puts no more there than there is room for. */
static size_t take_descriptors(struct msghdr *message, int descriptors_out[VPMM_IPC_CHUNK])
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(descriptors_out, CMSG_DATA(header), n * sizeof(int));
    return n;
}

enum vpmm_status vpmm_ipc_receive_reply(int socket, uint64_t deadline_ms,
                                        struct vpmm_ipc_reply *reply_out,
                                        int descriptors_out[VPMM_IPC_CHUNK],
                                        size_t *n_descriptors_out)
{
    union control control;
    struct vpmm_ipc_reply received, reply;
    struct iovec part = {&received, sizeof received};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (!wait_for(socket, POLLIN, deadline_ms))
        return VPMM_NOT_READY;
    ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return VPMM_NOT_FOUND;
    size_t n_descriptors = take_descriptors(&message, descriptors_out);
    bool is_cut = (message.msg_flags & MSG_CTRUNC) != 0;
    if ((message.msg_flags & MSG_TRUNC) != 0 ||
        !vpmm_ipc_reply_read(&received, (size_t)n, &reply) || n_descriptors > reply.n ||
        (n_descriptors < reply.n && !is_cut)) {
        close_all(descriptors_out, n_descriptors);
        return VPMM_INVALID;
    }
    *reply_out = reply;
    *n_descriptors_out = n_descriptors;
    return VPMM_OK;
}
