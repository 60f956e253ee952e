/* SPDX-License-Identifier: MIT */
/* Makes the seal of a block, and compares one with it. Must not compare faster where fewer bytes
 * are right, or a seal could be guessed byte by byte. */
#include "ipc/seal.h"

#include <string.h>

#define WORDS 3

static uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static void mix(uint64_t v[4], unsigned rounds)
{
    for (; rounds > 0; rounds--) {
        v[0] += v[1];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[0] = rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

static uint64_t squeeze(uint64_t v[4])
{
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The constants are those of SipHash; the last word holds the length of the message. */
void vpmm_ipc_seal_make(const unsigned char key[VPMM_IPC_KEY_BYTES],
                        const struct vpmm_ipc_block *block,
                        unsigned char seal_out[VPMM_IPC_SEAL_BYTES])
{
    const uint64_t words[WORDS] = {block->address, block->id, (uint64_t)block->device};
    uint64_t k[2];
    uint64_t seal[2];
    memcpy(k, key, sizeof k);
    uint64_t v[4] = {k[0] ^ UINT64_C(0x736f6d6570736575),
                     k[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                     k[0] ^ UINT64_C(0x6c7967656e657261), k[1] ^ UINT64_C(0x7465646279746573)};
    for (unsigned i = 0; i < WORDS; i++)
        absorb(v, words[i]);
    absorb(v, (uint64_t)sizeof words << 56);
    v[2] ^= 0xee;
    seal[0] = squeeze(v);
    v[1] ^= 0xdd;
    seal[1] = squeeze(v);
    memcpy(seal_out, seal, sizeof seal);
}

bool vpmm_ipc_seal_is(const unsigned char key[VPMM_IPC_KEY_BYTES],
                      const struct vpmm_ipc_block *block,
                      const unsigned char seal[VPMM_IPC_SEAL_BYTES])
{
    unsigned char right[VPMM_IPC_SEAL_BYTES];
    volatile unsigned char difference = 0;
    vpmm_ipc_seal_make(key, block, right);
    for (unsigned i = 0; i < sizeof right; i++)
        difference = (unsigned char)(difference | (right[i] ^ seal[i]));
    return difference == 0;
}
