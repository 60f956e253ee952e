/* SPDX-License-Identifier: MIT */
/* A table from 64-bit keys to small numbers, for a trace's addresses, streams and events. One
 * thread at a time. */
#ifndef VPMM_REPLAY_NUMBERS_H
#define VPMM_REPLAY_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#define VPMM_NUMBER_NONE UINT32_MAX

struct vpmm_numbers {
    struct vpmm_number {
        uint64_t key;
        uint32_t value;
        uint32_t is_used;
    } * entries;
    size_t room, n; /* zeroed: empty */
};

/* The place of `key`, made with VPMM_NUMBER_NONE on first sight; valid until the next call. NULL
 * when there is no memory. */
uint32_t *vpmm_numbers_at(struct vpmm_numbers *numbers, uint64_t key);
void vpmm_numbers_finish(struct vpmm_numbers *numbers);

#endif
