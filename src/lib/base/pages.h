/* SPDX-License-Identifier: MIT */
/* Whole pages in a number of bytes. VPMM_PAGE_SIZE may make a page any multiple of the device's
 * granularity, but it is nearly always a power of two, where this is no division. Pure. */
#ifndef VPMM_BASE_PAGES_H
#define VPMM_BASE_PAGES_H

#include <stdint.h>

/* `bytes` / `page_bytes` (not 0), rounded down. */
static inline uint64_t vpmm_pages_in(uint64_t bytes, uint64_t page_bytes)
{
    if (page_bytes & (page_bytes - 1))
        return bytes / page_bytes;
    return bytes >> __builtin_ctzll(page_bytes);
}

#endif
