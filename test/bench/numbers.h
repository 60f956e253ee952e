/* SPDX-License-Identifier: MIT */
/* A table from 64-bit keys to small numbers, for a trace's addresses, streams and events. One
 * thread at a time. */
#ifndef VPMM_TEST_BENCH_NUMBERS_H
#define VPMM_TEST_BENCH_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#define NUMBER_NONE UINT32_MAX

struct numbers {
    struct number {
        uint64_t key;
        uint32_t value;
        uint32_t is_used;
    } * entries;
    size_t room, n; /* zeroed: empty */
};

/* The place of `key`, made with NUMBER_NONE on first sight; valid until the next call. Ends the
 * program when memory is out. */
uint32_t *numbers_at(struct numbers *numbers, uint64_t key);
void numbers_finish(struct numbers *numbers);

#endif
