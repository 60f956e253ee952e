/* SPDX-License-Identifier: MIT */
/* What a pool holds beyond its need, for a caller that gives back what was not needed for a while.
 * A page is *needed* while it is live, in a front cache, or free and pending. As in pool.h, the
 * caller holds its lock around every call. No driver call is made here. */
#ifndef VPMM_POOL_SURPLUS_H
#define VPMM_POOL_SURPLUS_H

#include "pool/pool.h"

/* The pages needed now, and the most that were needed since the last restart or since the pool was
 * made. Lost and withheld pages are not counted. */
uint64_t vpmm_pool_need_pages(const struct vpmm_pool *pool);
uint64_t vpmm_pool_need_pages_high(const struct vpmm_pool *pool);
/* The highest need starts again from the present one. */
void vpmm_pool_need_restart(struct vpmm_pool *pool);

#endif
