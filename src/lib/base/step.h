/* SPDX-License-Identifier: MIT */
/* Each turn of a loop of the pool and of what it searches with says VPMM_STEP(), and so does each
 * record that enters or leaves a tree or the map of regions. A test that counts steps defines it
 * before; the product does nothing. */
#ifndef VPMM_BASE_STEP_H
#define VPMM_BASE_STEP_H

#ifndef VPMM_STEP
#    define VPMM_STEP() ((void)0)
#endif

#endif
