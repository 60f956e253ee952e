/* SPDX-License-Identifier: MIT */
/* Stands for what the order does for contexts that come and go, and for what heaps hear of it. */
#include "fakes.h"

#include "base/lock.h"

#include <stdarg.h>
#include <stdlib.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

struct vpmm_departure vpmm_order_context_leaving(struct vpmm_order *order,
                                                 vpmm_context_handle handle, bool is_ending)
{
    (void)order;
    fakes_tell(is_ending ? "ending" : "leaving", ((const struct vpmm_context *)handle)->id);
    return (struct vpmm_departure){(struct vpmm_context *)handle, is_ending};
}

void vpmm_order_context_left(struct vpmm_order *order, const struct vpmm_departure *departure,
                             bool destroyed)
{
    (void)order;
    fakes_tell("left", destroyed);
    if (destroyed)
        fakes.gone_id = departure->context->id;
}

bool vpmm_order_context_lives(struct vpmm_order *order, const struct vpmm_context *context)
{
    (void)order;
    assert_true(vpmm_lock_none_held());
    fakes_tell("lives", context->id);
    return !fakes.is_dead;
}

void vpmm_order_context_made(struct vpmm_order *order, vpmm_context_handle handle, bool is_new)
{
    (void)order;
    if (is_new)
        fakes.gone_id = ((const struct vpmm_context *)handle)->id;
}

uint64_t vpmm_order_next_gone(struct vpmm_order *order)
{
    (void)order;
    return vpmm_atomic_exchange(&fakes.gone_id, 0);
}

bool vpmm_context_is_gone(const struct vpmm_context *context)
{
    return context->is_gone;
}

void vpmm_order_stream_gone(struct vpmm_order *order, vpmm_stream_handle handle)
{
    (void)order, (void)handle;
    abort();
}

/* No object lives on a router over fakes. */
enum vpmm_status vpmm_order_drain_context(struct vpmm_order *order, struct vpmm_context *context)
{
    (void)order;
    (void)context;
    fail_msg("nobody waits for a context here");
    return VPMM_OK;
}

void vpmm_heap_context_gone(struct vpmm_heap *heap, uint64_t context_id)
{
    fakes_tell("heap", (uint64_t)heap->params.device);
    fakes_tell("gone", context_id);
}
