/* SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include "counting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void *map(void *self, size_t bytes)
{
    struct counting *counting = self;
    void *address = vpmm_memory_system.map(NULL, bytes);
    assert_non_null(address);
    assert_true(counting->n_mappings < COUNTING_MAPPINGS_MAX);
    /* Small pages, so that the figure is the same on every system. */
    (void)madvise(address, bytes, MADV_NOHUGEPAGE);
    counting->mappings[counting->n_mappings].address = address;
    counting->mappings[counting->n_mappings++].bytes = bytes;
    return address;
}

static void unmap(void *self, void *address, size_t bytes)
{
    struct counting *counting = self;
    size_t i = 0;
    while (i < counting->n_mappings && counting->mappings[i].address != address)
        i++;
    assert_true(i < counting->n_mappings);
    assert_int_equal(counting->mappings[i].bytes, bytes);
    counting->mappings[i] = counting->mappings[--counting->n_mappings];
    vpmm_memory_system.unmap(NULL, address, bytes);
}

void counting_init(struct counting *counting)
{
    counting->memory = (struct vpmm_memory){counting, map, unmap};
    counting->n_mappings = 0;
}

uint64_t counting_resident_bytes(const struct counting *counting)
{
    uint64_t unit = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t n = 0;
    for (size_t i = 0; i < counting->n_mappings; i++) {
        size_t bytes = counting->mappings[i].bytes;
        unsigned char *is_resident = calloc(bytes / unit + 1, 1);
        assert_non_null(is_resident);
        assert_int_equal(mincore(counting->mappings[i].address, bytes, is_resident), 0);
        for (size_t j = 0; j * unit < bytes; j++)
            n += is_resident[j] & 1;
        free(is_resident);
    }
    return n * unit;
}

uint64_t counting_mapped_bytes(const struct counting *counting)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < counting->n_mappings; i++)
        sum += counting->mappings[i].bytes;
    return sum;
}
