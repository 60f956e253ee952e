/* SPDX-License-Identifier: MIT */
/* Private to ipc/: seals of blocks. A seal is what a handle holds and nobody can guess. The key
 * never leaves the process that made it. Pure: bytes in, bytes out; any thread. */
#ifndef VPMM_IPC_SEAL_H
#define VPMM_IPC_SEAL_H

#include "ipc/ipc.h"

#define VPMM_IPC_KEY_BYTES 16
#define VPMM_IPC_SEAL_BYTES 16

/* The seal of the block's address, id and device under that key: SipHash-2-4 with 128 bits. */
void vpmm_ipc_seal_make(const unsigned char key[VPMM_IPC_KEY_BYTES],
                        const struct vpmm_ipc_block *block,
                        unsigned char seal_out[VPMM_IPC_SEAL_BYTES]);
/* Whether `seal` is the block's. The time it takes tells nothing about the right one. */
bool vpmm_ipc_seal_is(const unsigned char key[VPMM_IPC_KEY_BYTES],
                      const struct vpmm_ipc_block *block,
                      const unsigned char seal[VPMM_IPC_SEAL_BYTES]);

#endif
