/* SPDX-License-Identifier: MIT */
/* Atomic words. Every atomic access of the library goes through these few names, so that a test can
 * put its own scheduler between any two of them by defining VPMM_ATOMIC_POINT(object, access)
 * before this header: it runs right before each access, after everything that the access needs has
 * been worked out. `access` is READS, ADDS (or subtracts), or WRITES for everything else. */
#ifndef VPMM_BASE_ATOMIC_H
#define VPMM_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef VPMM_ATOMIC_POINT
#    define VPMM_ATOMIC_GET(operation, object, ...)                                                \
        __extension__({                                                                            \
            __typeof__(object) vpmm_from = (object);                                               \
            VPMM_ATOMIC_POINT(vpmm_from, READS);                                                   \
            operation(vpmm_from, __VA_ARGS__);                                                     \
        })
#    define VPMM_ATOMIC_SET(access, operation, object, value, ...)                                 \
        __extension__({                                                                            \
            __typeof__(object) vpmm_object = (object);                                             \
            __typeof__(atomic_load(vpmm_object)) vpmm_value = (value);                             \
            VPMM_ATOMIC_POINT(vpmm_object, access);                                                \
            operation(vpmm_object, vpmm_value, __VA_ARGS__);                                       \
        })
#else
#    define VPMM_ATOMIC_GET(operation, object, ...) operation((object), __VA_ARGS__)
#    define VPMM_ATOMIC_SET(access, operation, object, value, ...)                                 \
        operation((object), (value), __VA_ARGS__)
#endif

#define VPMM_ATOMIC_SWAP(object, value, expected)                                                  \
    atomic_compare_exchange_strong_explicit(object, expected, value, memory_order_acq_rel,         \
                                            memory_order_acquire)

typedef _Atomic uint64_t vpmm_atomic64;
typedef _Atomic uint32_t vpmm_atomic32;

/* Loads acquire, stores release, and read-modify-writes do both. */
#define vpmm_atomic_load(object) VPMM_ATOMIC_GET(atomic_load_explicit, object, memory_order_acquire)
#define vpmm_atomic_store(object, value)                                                           \
    VPMM_ATOMIC_SET(WRITES, atomic_store_explicit, object, value, memory_order_release)
#define vpmm_atomic_add(object, value)                                                             \
    VPMM_ATOMIC_SET(ADDS, atomic_fetch_add_explicit, object, value, memory_order_acq_rel)
#define vpmm_atomic_sub(object, value)                                                             \
    VPMM_ATOMIC_SET(ADDS, atomic_fetch_sub_explicit, object, value, memory_order_acq_rel)
#define vpmm_atomic_exchange(object, value)                                                        \
    VPMM_ATOMIC_SET(WRITES, atomic_exchange_explicit, object, value, memory_order_acq_rel)

/* For hints, on which nothing depends: in no order with anything, and no test stops there. */
#define vpmm_hint_load(object) atomic_load_explicit(object, memory_order_relaxed)
#define vpmm_hint_store(object, value) atomic_store_explicit(object, value, memory_order_relaxed)
#define vpmm_hint_xor(object, value)                                                               \
    ((void)atomic_fetch_xor_explicit(object, value, memory_order_relaxed))
#define vpmm_hint_add(object, value)                                                               \
    ((void)atomic_fetch_add_explicit(object, value, memory_order_relaxed))

/* One compare-and-swap; on failure `*expected` holds what was found. */
#define vpmm_atomic_swap_if(object, expected, value)                                               \
    VPMM_ATOMIC_SET(WRITES, VPMM_ATOMIC_SWAP, object, value, expected)

#endif
