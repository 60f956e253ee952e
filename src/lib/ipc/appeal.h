/* SPDX-License-Identifier: MIT */
/* How processes of one user ask each other for device memory. One that may have some to give
 * listens on a datagram socket in the abstract name space; one that has run out asks all of them at
 * once, and waits for their answers for a bounded time. Nothing is said but a device and numbers of
 * bytes. The kernel tells who speaks: another user is not heard, nor one that this user namespace
 * has no number for. No lock, no thread, no driver. */
#ifndef VPMM_IPC_APPEAL_H
#define VPMM_IPC_APPEAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define VPMM_UUID_BYTES 16

struct vpmm_appeals {
    int socket; /* valid while is_open */
    bool is_open;
    uint32_t user_id;
    dev_t device; /* of the socket: a program may close what it did not open */
    ino_t inode;
};

/* Somebody asks. */
struct vpmm_appeal {
    unsigned char uuid[VPMM_UUID_BYTES]; /* of the device */
    uint64_t bytes;
    uint64_t number; /* the asker's own, for the answer */
    struct sockaddr_un from;
    socklen_t from_bytes;
};

/* Begins to listen for processes of the user. False: there can be no socket, or the user is the one
 * that stands for all unknown ones. */
bool vpmm_appeals_open(struct vpmm_appeals *appeals, uint32_t user_id);
/* Also in a forked child, whose parent goes on listening. */
void vpmm_appeals_close(struct vpmm_appeals *appeals);

/* Sleeps for `timeout_ms`, or until somebody asks: then true. Where the socket is not ours any
 * more, the appeals are closed, and the time passes. */
bool vpmm_appeals_wait(struct vpmm_appeals *appeals, uint64_t timeout_ms,
                       struct vpmm_appeal *appeal_out);
/* How many bytes went back to the device for it; at once or not at all. */
void vpmm_appeals_answer(const struct vpmm_appeals *appeals, const struct vpmm_appeal *appeal,
                         uint64_t bytes);

/* Asks all other processes of the user that listen for `bytes` of the device, and waits until all
 * have answered, `timeout_ms` at most. The sum of what they say they gave back. An appeal of
 * the process itself is answered with 0. */
uint64_t vpmm_appeals_ask(uint32_t user_id, const unsigned char uuid[VPMM_UUID_BYTES],
                          uint64_t bytes, uint64_t timeout_ms);

#endif
