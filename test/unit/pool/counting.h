/* SPDX-License-Identifier: MIT */
/* Metadata memory that knows what it gave out, and how much of that is resident. */
#ifndef VPMM_TEST_POOL_COUNTING_H
#define VPMM_TEST_POOL_COUNTING_H

#include "base/memory.h"

#include <stdint.h>

#define COUNTING_MAPPINGS_MAX 4096

struct counting {
    struct vpmm_memory memory;
    struct {
        void *address;
        size_t bytes;
    } mappings[COUNTING_MAPPINGS_MAX];
    size_t n_mappings;
};

void counting_init(struct counting *counting);
uint64_t counting_resident_bytes(const struct counting *counting);
uint64_t counting_mapped_bytes(const struct counting *counting);

#endif
