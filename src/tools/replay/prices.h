/* SPDX-License-Identifier: MIT */
/* What driver calls cost on an NVIDIA H200 with driver 580: the price list by which the simulated
 * device is compared with others. Pure functions of numbers. */
#ifndef VPMM_REPLAY_PRICES_H
#define VPMM_REPLAY_PRICES_H

#include <stdint.h>

/* Calls that are priced, and the nanoseconds of those whose price depends on nothing. 0: depends on
 * sizes, or has no price: a wait of the device, CUDA's own allocation functions, and what is rare.
 */
#define VPMM_PRICE_LIST(X)                                                                         \
    X(CREATE, create, 0)                                                                           \
    X(MAP, map, 0)                                                                                 \
    X(ACCESS, access, 0)                                                                           \
    X(UNMAP, unmap, 0)                                                                             \
    X(RELEASE, release, 0)                                                                         \
    X(REFUSED, refused, 45000)                                                                     \
    X(RESERVE, reserve, 4000)                                                                      \
    X(EVENT_CREATE, event_create, 0)                                                               \
    X(RECORD, record, 140)                                                                         \
    X(RECORD_CONTEXT, record_context, 180)                                                         \
    X(QUERY, query, 160)                                                                           \
    X(STREAM_WAIT, stream_wait, 120)                                                               \
    X(HOST_WAIT, host_wait, 160)                                                                   \
    X(STREAM_FACTS, stream_facts, 33)                                                              \
    X(STREAM_CAPTURES, stream_captures, 12)                                                        \
    X(CONTEXT, context, 8)                                                                         \
    X(ALLOCATE, allocate, 0)                                                                       \
    X(FREE, free, 0)                                                                               \
    X(OTHER, other, 0)

#define PRICE_ENUM(name, label, ns) VPMM_PRICE_##name,
enum vpmm_price_kind {
    VPMM_PRICE_LIST(PRICE_ENUM) VPMM_PRICE_KINDS
};
#undef PRICE_ENUM

const char *vpmm_price_name(enum vpmm_price_kind kind);

/* Nanoseconds of one call of the kind; for the first five, of one handle of `bytes` while so many
 * mappings exist. */
uint64_t vpmm_price_ns(enum vpmm_price_kind kind, uint64_t bytes, uint64_t n_mappings);

#endif
