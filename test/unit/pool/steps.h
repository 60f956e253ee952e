/* SPDX-License-Identifier: MIT */
/* Included before everything in a build that counts steps. */
#ifndef VPMM_TEST_POOL_STEPS_H
#define VPMM_TEST_POOL_STEPS_H

extern unsigned long vpmm_test_steps;
#define VPMM_STEP() ((void)vpmm_test_steps++)

#endif
