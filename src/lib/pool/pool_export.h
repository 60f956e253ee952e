/* SPDX-License-Identifier: MIT */
/* Regions that other processes may come to map. */
#ifndef VPMM_POOL_EXPORT_H
#define VPMM_POOL_EXPORT_H

#include "pool/pool.h"

/* Any thread, no lock. Marks the live region that starts exactly at `address` and whose owner has
 * that id as exported; it stays so until it is free. False: there is none. */
bool vpmm_pool_export(struct vpmm_pool *pool, uint64_t address, uint64_t owner_id);

/* Any thread, under the cache's latch. Whether the cached region has its extents to itself. That
 * stays so from one owner to the next. */
bool vpmm_pool_cached_is_whole(const struct vpmm_pool *pool, uint32_t number);

/* Under the lock. The pages of the extents that show the live region at `address`, less its own:
 * what an importer of it can read besides. 0 where there is none. */
uint64_t vpmm_pool_shared_pages(const struct vpmm_pool *pool, uint64_t address);

/* Under the lock. Whether the extents that lie wholly in the claimed region at `address` are mapped
 * nowhere else. */
bool vpmm_pool_is_alone(const struct vpmm_pool *pool, uint64_t address);
/* The same. vpmm_pool_free with a complete fence; the extents that lie wholly in the region, which
 * vpmm_pool_is_alone has said yes to, are taken as vpmm_pool_take_extents does. `room`: the pages
 * of the region. Returns how many; fewer than there are when metadata runs out. */
size_t vpmm_pool_free_and_take(struct vpmm_pool *pool, uint64_t address,
                               struct vpmm_removal *removals_out, size_t room);

/* An extent where a region shows it. */
struct vpmm_shown_extent {
    uint64_t handle, address, pages;
};
/* Under the lock. The extents that show the live or busy region at `address`, in ascending order of
 * their addresses, the first being the one that holds the address `from`; at most `room`. Returns
 * how many; 0 for a `from` outside the region. The first may begin before the region, and the last
 * end behind it. They stay where they are while the region is not free. */
size_t vpmm_pool_shown_extents(const struct vpmm_pool *pool, uint64_t address, uint64_t from,
                               struct vpmm_shown_extent *extents_out, size_t room);

#endif
