/* SPDX-License-Identifier: MIT */
/* Private to ipc/: sockets that keep messages whole (SOCK_SEQPACKET), in the abstract name space,
 * where nothing is left behind. Every descriptor made here is closed on exec. */
#ifndef VPMM_IPC_SOCKET_H
#define VPMM_IPC_SOCKET_H

#include "base/clock.h"
#include "ipc/protocol.h"

/* A socket under the name that process and door make, not blocking; -1. */
int vpmm_ipc_listen(uint32_t process, uint32_t door);
/* One connected to it; -1: nobody listens. Waits at most until `deadline_ms`. */
int vpmm_ipc_connect(uint32_t process, uint32_t door, uint64_t deadline_ms);
/* Whether a number of a user means one user only. The overflow number stands for everyone whom this
 * user namespace has no number for, unless it has one for everyone. */
bool vpmm_ipc_user_is_one(uint32_t user_id);
/* Whether the process at the other end belongs to the user, who is one. */
bool vpmm_ipc_peer_is_of(int socket, uint32_t user_id);
/* A descriptor that tells of the end of that process: after its descriptors are closed, and so
 * after the driver has stopped its work. The caller's to close; -1: there can be none. False: the
 * process has ended. */
bool vpmm_ipc_peer_watch(int socket, int *descriptor_out);

/* One message with `n_descriptors` (at most VPMM_IPC_CHUNK), at once or not at all. False with
 * errno EAGAIN: the other side has not read enough of what was sent before. */
bool vpmm_ipc_send(int socket, const void *bytes, size_t n, const int *descriptors,
                   size_t n_descriptors);
/* A request, as soon as there is room for it. NOT_READY: there was none until the deadline;
 * NOT_FOUND: the other side is gone. */
VPMM_MUST_CHECK enum vpmm_status
vpmm_ipc_send_request(int socket, const struct vpmm_ipc_request *request, uint64_t deadline_ms);
/* The reply to a request of ours; NOT_READY at the deadline, NOT_FOUND when the other side is gone,
 * INVALID for nonsense. OK: `descriptors_out` are the caller's to close. They may be fewer than the
 * extents of the reply, where this process cannot have more. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ipc_receive_reply(int socket, uint64_t deadline_ms,
                                                        struct vpmm_ipc_reply *reply_out,
                                                        int descriptors_out[VPMM_IPC_CHUNK],
                                                        size_t *n_descriptors_out);

#endif
