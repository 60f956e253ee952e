/* SPDX-License-Identifier: MIT */
/* What the tests of requests at a given address have in common. */
#ifndef VPMM_TEST_POOL_SERVE_SCENE_H
#define VPMM_TEST_POOL_SERVE_SCENE_H

#include "scene.h"

extern vpmm_fence old, young;

/* Another world. */
void use_extents_of(uint64_t extent_pages, uint64_t root_pages);

/* Another world, with extents of 4 pages: what lay at 0 lies at 17 now, and at 33 a new one. The
 * old place waits for `old`, the new one for `young` alone; stream 0: for nothing. */
void move_four_extents(uint64_t old_stream, uint64_t young_stream);

struct vpmm_region_view at(uint64_t page);
/* Stream 1 gets the pages, and then all looks like that. */
void serve(uint64_t page, uint64_t pages, const char *layout);
void refuse(uint64_t page, uint64_t pages, uint64_t stream);

#endif
