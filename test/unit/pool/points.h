/* SPDX-License-Identifier: MIT */
/* Called before every atomic access of a build that stops there. */
#ifndef VPMM_TEST_POOL_POINTS_H
#define VPMM_TEST_POOL_POINTS_H

void vpmm_test_point(void);

#endif
