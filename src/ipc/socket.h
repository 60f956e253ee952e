/* SPDX-License-Identifier: MIT */
/* Private to ipc/: sockets that keep messages whole (SOCK_SEQPACKET), in the abstract name space,
 * where nothing is left behind. Every descriptor made here is closed on exec. */
#ifndef VPMM_IPC_SOCKET_H
#define VPMM_IPC_SOCKET_H

#include "ipc/protocol.h"

/* Milliseconds of a clock that only goes forward. */
uint64_t vpmm_ipc_now_ms(void);

/* A socket under the name that process and nonce make, not blocking; -1. */
int vpmm_ipc_listen(uint32_t process, const unsigned char nonce[VPMM_IPC_NONCE_BYTES]);
/* One connected to it; -1: nobody listens. Waits at most until `deadline_ms`. */
int vpmm_ipc_connect(uint32_t process, const unsigned char nonce[VPMM_IPC_NONCE_BYTES],
                     uint64_t deadline_ms);
/* Whether the process at the other end belongs to the user. Its number, as far as it can be told
 * here (0 otherwise). */
bool vpmm_ipc_peer_is_of(int socket, uint32_t user_id, int *process_out);

/* One message with `n_descriptors` (at most VPMM_IPC_CHUNK), at once or not at all. */
bool vpmm_ipc_send(int socket, const void *bytes, size_t n, const int *descriptors,
                   size_t n_descriptors);
/* The reply to a request of ours; NOT_READY at the deadline, NOT_FOUND when the other side is gone,
 * INVALID for nonsense. OK: `descriptors_out` are the caller's to close. They may be fewer than the
 * extents of the reply, where this process cannot have more. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ipc_receive_reply(int socket, uint64_t deadline_ms,
                                                        struct vpmm_ipc_reply *reply_out,
                                                        int descriptors_out[VPMM_IPC_CHUNK],
                                                        size_t *n_descriptors_out);

#endif
