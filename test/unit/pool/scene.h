/* SPDX-License-Identifier: MIT */
/* One world for all tests of a file: extents of one page of 2 MiB, a root of 256 pages. */
#ifndef VPMM_TEST_POOL_SCENE_H
#define VPMM_TEST_POOL_SCENE_H

#include "world.h"

#define MIB ((uint64_t)1 << 20)

extern struct world w;

/* Before and after each test. */
int set_up(void **state);
int tear_down(void **state);

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
