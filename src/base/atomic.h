/* SPDX-License-Identifier: MIT */
/* Atomic words. Every atomic access of the library goes through these few names, so that a test can
 * put its own scheduler between any two of them by defining VPMM_ATOMIC_POINT before this header.
 */
#ifndef VPMM_BASE_ATOMIC_H
#define VPMM_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef VPMM_ATOMIC_POINT
#    define VPMM_ATOMIC_POINT() ((void)0)
#endif

typedef _Atomic uint64_t vpmm_atomic64;
typedef _Atomic uint32_t vpmm_atomic32;

/* Loads acquire, stores release, and read-modify-writes do both. */
#define vpmm_atomic_load(object)                                                                   \
    (VPMM_ATOMIC_POINT(), atomic_load_explicit((object), memory_order_acquire))
#define vpmm_atomic_store(object, value)                                                           \
    (VPMM_ATOMIC_POINT(), atomic_store_explicit((object), (value), memory_order_release))
#define vpmm_atomic_add(object, value)                                                             \
    (VPMM_ATOMIC_POINT(), atomic_fetch_add_explicit((object), (value), memory_order_acq_rel))
#define vpmm_atomic_sub(object, value)                                                             \
    (VPMM_ATOMIC_POINT(), atomic_fetch_sub_explicit((object), (value), memory_order_acq_rel))
#define vpmm_atomic_exchange(object, value)                                                        \
    (VPMM_ATOMIC_POINT(), atomic_exchange_explicit((object), (value), memory_order_acq_rel))

/* One compare-and-swap; on failure `*expected` holds what was found. */
#define vpmm_atomic_swap_if(object, expected, value)                                               \
    (VPMM_ATOMIC_POINT(),                                                                          \
     atomic_compare_exchange_strong_explicit((object), (expected), (value), memory_order_acq_rel,  \
                                             memory_order_acquire))

#endif
