/* SPDX-License-Identifier: MIT */
/* A number that stands for how structures lie in memory: each folder mixes in what a reader of its
 * structures from outside relies on, so that a reader of another build notices. */
#ifndef VPMM_BASE_LAYOUT_H
#define VPMM_BASE_LAYOUT_H

#include <stdint.h>

/* `layout` with one more number that it depends on. */
static inline uint64_t vpmm_layout_mix(uint64_t layout, uint64_t number)
{
    uint64_t mixed = (layout ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 29;
}

#endif
