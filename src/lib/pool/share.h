/* SPDX-License-Identifier: MIT */
/* What front caches add to the pool's running totals (pool_cache.c). Private to this folder. */
#ifndef VPMM_POOL_SHARE_H
#define VPMM_POOL_SHARE_H

#include "pool/pool_cache.h"

/* Of all of them. */
struct vpmm_share_sum {
    uint64_t cached_pages, live_bytes;
};

/* Any thread. */
void vpmm_shares_sum(const struct vpmm_pool *pool, struct vpmm_share_sum *sum_out);

#endif
