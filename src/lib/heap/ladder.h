/* SPDX-License-Identifier: MIT */
/* The ladder: the rungs that a request tries, one after the other. Any thread, without a lock. */
#ifndef VPMM_HEAP_LADDER_H
#define VPMM_HEAP_LADDER_H

#include "heap/heap_internal.h"

/* A request in pages, while it is being served. */
struct vpmm_serving {
    struct vpmm_heap *heap;
    const struct vpmm_request *request;
    struct vpmm_request_view view;
    struct vpmm_want want;
    struct vpmm_recalled recalled;
    bool is_limited;      /* the limit refused it, once or more often */
    bool is_worth_a_wait; /* the shortage's first rung: what is pending might make it up */
    struct vpmm_served served;
};

/* Tries the rungs of the request's kind in order until one serves it. NO_MEMORY: none did; other
 * statuses are those of the rung that failed. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ladder_climb(struct vpmm_serving *serving,
                                                   uint64_t *address_out);

/* Tries that rung alone; what it answers. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ladder_try(struct vpmm_serving *serving, enum vpmm_rung rung,
                                                 uint64_t *address_out);

/* A rung of heap.h's list. It answers OK and an address, NOT_FOUND where the next one is to try,
 * and any other status where no further one of its part of the ladder can help. */
#define VPMM_RUNG_DECLARE(NAME, name, text)                                                        \
    VPMM_MUST_CHECK enum vpmm_status vpmm_rung_##name(struct vpmm_serving *serving,                \
                                                      uint64_t *address_out);
VPMM_RUNG_LIST(VPMM_RUNG_DECLARE)
#undef VPMM_RUNG_DECLARE

/* ---- ladder_serve.c: for the rungs of both files ---- */

/* Serves from mapped pages, those in the stream's own lane included: no driver call. */
VPMM_MUST_CHECK enum vpmm_status vpmm_serving_fit(struct vpmm_serving *serving,
                                                  uint64_t *address_out);

/* Serves by a stitch that creates at most `create_pages_max`. Once memory has been refused, the
 * request is spared no moves. A refusal by the limit is NO_MEMORY, and noted. */
VPMM_MUST_CHECK enum vpmm_status
vpmm_serving_stitch(struct vpmm_serving *serving, uint64_t create_pages_max, uint64_t *address_out);

/* ---- ladder_shortage.c ---- */

/* Lets the request's stream wait on the device for pending frees, oldest first, for no more than
 * it needs. At most `create_pages_max` are created. NOT_FOUND: that does not serve it either. */
VPMM_MUST_CHECK enum vpmm_status vpmm_serving_wait_on_device(struct vpmm_serving *serving,
                                                             uint64_t create_pages_max,
                                                             uint64_t *address_out);

#endif
