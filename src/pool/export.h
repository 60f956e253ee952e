/* SPDX-License-Identifier: MIT */
/* Regions that other processes may come to map. */
#ifndef VPMM_POOL_EXPORT_H
#define VPMM_POOL_EXPORT_H

#include "pool/pool.h"

/* Any thread, no lock. Marks the live region that starts exactly at `address` and whose owner has
 * that id as exported; it stays so until it is free. False: there is none. */
bool vpmm_pool_export(struct vpmm_pool *pool, uint64_t address, uint64_t owner_id);

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
