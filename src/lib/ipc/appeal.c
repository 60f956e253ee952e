/* SPDX-License-Identifier: MIT */
/* Appeals for device memory between processes: names, messages and who may speak. Must not hear
 * another user, and must not wait longer than its caller allows. */
#define _GNU_SOURCE
#include "ipc/appeal.h"

#include "ipc/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Descriptors below are what programs expect to get. */
#define LOWEST_DESCRIPTOR 512

#define NAME_PREFIX "vpmm-memory-"

/* So many processes are asked at most. */
#define ASKED_MAX 64

/* So many messages of others are thrown away in one wait: nobody keeps the thread busy. */
#define STRANGERS_MAX 16

/* "VPMMAPP1" */
#define MAGIC UINT64_C(0x315050414d4d5056)

struct message {
    uint64_t magic, number, bytes;
    unsigned char uuid[VPMM_UUID_BYTES];
};

/* ---- who speaks ---- */

/* The number that the kernel shows for every user it has no number for here. */
static uint32_t overflow_user_id(void)
{
    char text[16] = "";
    int fd = open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        (void)close(fd);
    return n > 0 ? (uint32_t)strtoul(text, NULL, 10) : 65534;
}

/* Room for the credentials alone: descriptors that somebody sends along have none. */
union control {
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr header;
};

/* One message, if there is one. False: none. `process_out` is 0 where it is none of the user's, or
 * not whole. */
static bool receive(int socket, uint32_t user_id, struct message *message_out,
                    struct sockaddr_un *from_out, socklen_t *from_bytes_out, pid_t *process_out)
{
    union control control;
    struct ucred who;
    struct iovec part = {message_out, sizeof *message_out};
    struct msghdr header = {.msg_name = from_out,
                            .msg_namelen = sizeof *from_out,
                            .msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *process_out = 0;
    if (n < 0)
        return errno == EINTR;
    struct cmsghdr *credentials = CMSG_FIRSTHDR(&header);
    if (n != (ssize_t)sizeof *message_out || (header.msg_flags & MSG_TRUNC) != 0 || !credentials ||
        credentials->cmsg_level != SOL_SOCKET || credentials->cmsg_type != SCM_CREDENTIALS ||
        credentials->cmsg_len != CMSG_LEN(sizeof who))
        return true;
    memcpy(&who, CMSG_DATA(credentials), sizeof who);
    *from_bytes_out = header.msg_namelen;
    if (message_out->magic == MAGIC && who.uid == user_id)
        *process_out = who.pid ? who.pid : -1;
    return true;
}

static bool send_to(int socket, const struct message *message, const struct sockaddr_un *address,
                    socklen_t n)
{
    return sendto(socket, message, sizeof *message, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (const struct sockaddr *)address, n) == (ssize_t)sizeof *message;
}

/* ---- sockets ---- */

static int make_socket(const struct sockaddr_un *address, socklen_t n)
{
    int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int high = made >= 0 ? fcntl(made, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) : -1;
    int yes = 1;
    if (high >= 0) {
        (void)close(made);
        made = high;
    }
    if (made < 0 || (setsockopt(made, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0 &&
                     bind(made, (const struct sockaddr *)address, n) == 0))
        return made;
    (void)close(made);
    return -1;
}

/* An abstract name, without the zero byte that it begins with. */
static socklen_t set_name(struct sockaddr_un *address, const char *name)
{
    size_t n = strlen(name);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

bool vpmm_appeals_open(struct vpmm_appeals *appeals, uint32_t user_id)
{
    struct sockaddr_un address;
    struct stat facts;
    uint64_t nonce;
    char name[64];
    if (user_id == overflow_user_id() ||
        getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) != (ssize_t)sizeof nonce)
        return false;
    (void)snprintf(name, sizeof name, NAME_PREFIX "%u-%016llx", user_id, (unsigned long long)nonce);
    int listening = make_socket(&address, set_name(&address, name));
    if (listening < 0)
        return false;
    if (fstat(listening, &facts) != 0) {
        (void)close(listening);
        return false;
    }
    *appeals = (struct vpmm_appeals){listening, true, user_id, facts.st_dev, facts.st_ino};
    return true;
}

static bool is_ours(const struct vpmm_appeals *appeals)
{
    struct stat facts;
    return appeals->is_open && fstat(appeals->socket, &facts) == 0 &&
           facts.st_dev == appeals->device && facts.st_ino == appeals->inode;
}

void vpmm_appeals_close(struct vpmm_appeals *appeals)
{
    if (is_ours(appeals))
        (void)close(appeals->socket);
    appeals->is_open = false;
}

/* ---- to be asked ---- */

static bool take_appeal(const struct vpmm_appeals *appeals, struct vpmm_appeal *appeal_out)
{
    struct message message;
    pid_t process;
    for (unsigned n = 0; n < STRANGERS_MAX; n++) {
        if (!receive(appeals->socket, appeals->user_id, &message, &appeal_out->from,
                     &appeal_out->from_bytes, &process))
            return false;
        if (!process)
            continue;
        memcpy(appeal_out->uuid, message.uuid, VPMM_UUID_BYTES);
        appeal_out->number = message.number;
        appeal_out->bytes = message.bytes;
        if (process != getpid())
            return true;
        vpmm_appeals_answer(appeals, appeal_out, 0);
    }
    return false;
}

static void sleep_until(uint64_t deadline_ms)
{
    uint64_t now_ms = vpmm_now_ms();
    uint64_t ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&left, NULL);
}

bool vpmm_appeals_wait(struct vpmm_appeals *appeals, uint64_t timeout_ms,
                       struct vpmm_appeal *appeal_out)
{
    uint64_t deadline_ms = vpmm_now_ms() + timeout_ms;
    struct pollfd waited = {.fd = appeals->socket, .events = POLLIN};
    if (!is_ours(appeals)) {
        appeals->is_open = false;
    } else if (poll(&waited, 1, (int)(timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX)) == 0) {
        return false;
    } else if (is_ours(appeals) && take_appeal(appeals, appeal_out)) {
        return true;
    }
    sleep_until(deadline_ms);
    return false;
}

void vpmm_appeals_answer(const struct vpmm_appeals *appeals, const struct vpmm_appeal *appeal,
                         uint64_t bytes)
{
    struct message message = {.magic = MAGIC, .number = appeal->number, .bytes = bytes};
    memcpy(message.uuid, appeal->uuid, VPMM_UUID_BYTES);
    if (is_ours(appeals))
        (void)send_to(appeals->socket, &message, &appeal->from, appeal->from_bytes);
}

/* ---- to ask ---- */

/* A line of the kernel's list of sockets ends with the name. Sends where the name begins as
 * `prefix`. */
static bool send_by_line(int socket, const char *prefix, const char *line,
                         const struct message *message)
{
    struct sockaddr_un address;
    const char *name = strstr(line, prefix);
    return name && strlen(name) < sizeof address.sun_path &&
           send_to(socket, message, &address, set_name(&address, name + 1));
}

/* The end of the whole lines that `text` holds; each is sent by. */
static size_t send_by_lines(int socket, const char *prefix, char *text,
                            const struct message *message, unsigned *n_sent)
{
    char *line = text;
    for (char *end; *n_sent < ASKED_MAX && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        *n_sent += send_by_line(socket, prefix, line, message);
    }
    return (size_t)(line - text);
}

/* Sends to everybody whose name says that it listens for the user. How many there are. */
static unsigned send_to_all(int socket, uint32_t user_id, const struct message *message)
{
    char text[4096], prefix[48];
    unsigned n_sent = 0;
    size_t have = 0;
    ssize_t n;
    int names = open("/proc/net/unix", O_RDONLY | O_CLOEXEC);
    (void)snprintf(prefix, sizeof prefix, "@" NAME_PREFIX "%u-", user_id);
    while (names >= 0 && n_sent < ASKED_MAX && have < sizeof text - 1 &&
           (n = read(names, text + have, sizeof text - 1 - have)) > 0) {
        text[have + (size_t)n] = 0;
        size_t done = send_by_lines(socket, prefix, text, message, &n_sent);
        have += (size_t)n - done;
        memmove(text, text + done, have);
    }
    if (names >= 0)
        (void)close(names);
    return n_sent;
}

static uint64_t add_answers(int socket, uint32_t user_id, uint64_t number, unsigned n_asked,
                            uint64_t deadline_ms)
{
    uint64_t sum = 0;
    unsigned n_heard = 0;
    for (uint64_t now_ms = vpmm_now_ms(); n_asked > 0 && now_ms < deadline_ms;
         now_ms = vpmm_now_ms()) {
        struct pollfd waited = {.fd = socket, .events = POLLIN};
        struct sockaddr_un from;
        socklen_t from_bytes;
        struct message message;
        pid_t process;
        if (poll(&waited, 1, (int)(deadline_ms - now_ms)) <= 0 ||
            !receive(socket, user_id, &message, &from, &from_bytes, &process))
            continue;
        if (process && message.number == number) {
            n_asked--;
            sum += message.bytes;
        }
        if (++n_heard == ASKED_MAX * STRANGERS_MAX)
            break;
    }
    return sum;
}

uint64_t vpmm_appeals_ask(uint32_t user_id, const unsigned char uuid[VPMM_UUID_BYTES],
                          uint64_t bytes, uint64_t timeout_ms)
{
    struct message message = {.magic = MAGIC, .bytes = bytes};
    struct sockaddr_un nameless = {.sun_family = AF_UNIX};
    uint64_t deadline_ms = vpmm_now_ms() + timeout_ms;
    if (user_id == overflow_user_id() || getrandom(&message.number, sizeof message.number,
                                                   GRND_NONBLOCK) != (ssize_t)sizeof message.number)
        return 0;
    /* A bind without a name has the kernel choose one: answers need it. */
    int asking = make_socket(&nameless, sizeof nameless.sun_family);
    if (asking < 0)
        return 0;
    memcpy(message.uuid, uuid, VPMM_UUID_BYTES);
    unsigned n_asked = send_to_all(asking, user_id, &message);
    uint64_t sum = add_answers(asking, user_id, message.number, n_asked, deadline_ms);
    (void)close(asking);
    return sum;
}
